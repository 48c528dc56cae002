"""Known segment trees by name; docs/treepo.md says which to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treerl.search.treepo_allocation import BudgetTransfer, EvenSplit, FullTree, Quota, Span
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_fallback import EPTree, RandomSegment, TreeGRPO
from treerl.search.treepo_stopping import Repetition, Stopping

__all__ = ["PRESETS", "preset"]


def preset(name: str, **options: Any) -> TreePOConfig:
    """Return a known configuration.

    Args:
        name: One of :data:`PRESETS`.
        options: What the preset itself takes (see there), and any field of
            :class:`~treerl.search.treepo.TreePOConfig`, which then wins.

    Raises:
        ValueError: No preset has this name.
    """
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}; there are {', '.join(sorted(PRESETS))}")
    return PRESETS[name](**options)


def _config(options: dict[str, Any], **defaults: Any) -> TreePOConfig:
    return TreePOConfig(**{**defaults, **options})


def _treerl(*, width: int = 16, k0: int | None = 8, b: int = 2, **options: Any) -> TreePOConfig:
    """Quota allocation without a fallback: no barrier at all, and branch weights are unbiased."""
    return _config(options, width=width, allocation=Quota(k0=k0, b=b))


def _flat(*, width: int = 16, **options: Any) -> TreePOConfig:
    """Independent samples, a request each: the baseline on the same code path.

    With ``segment_tokens`` each sample is a chain of segments, under the stopping rules of trees.
    """
    return _config(options, width=width, allocation=Quota(k0=None, b=1), segment_tokens=None)


def _treepo_paper(
    *, width: int = 16, k0: Span | None = (2, 8), b: Span = 2, **options: Any
) -> TreePOConfig:
    """TreePO as the paper says, with more initial divergence; ``k0=2`` is its fixed form."""
    return _config(
        options,
        width=width,
        max_depth=14,
        allocation=BudgetTransfer(b=b, k0=k0),
        fallback=RandomSegment(copies=b if isinstance(b, int) else b[0]),
    )


def _treepo_official(*, width: int = 16, b: int = 2, **options: Any) -> TreePOConfig:
    r"""TreePO as its training script would run it, as far as it can (treepo.md §5.1).

    Kept quirks: the initial divergence is the branching budget whatever the script says (#2); the
    whole remainder of an even split goes to the last path (#7); a box without an end token does not
    end a path; loops are looked for in the newest segment only, since the script's key for more is
    ignored (#4). Left out, because the tree would not be one: paths that continue a context which
    they do not have (#1), generation behind an end token (#5), and the window of -1, which crashes
    (#3): the segment takes its place.
    """
    return _config(
        options,
        width=width,
        max_depth=14,
        allocation=BudgetTransfer(b=b, k0=b, split=EvenSplit("last")),
        stopping=Stopping(boxed=False, repetition=Repetition(tail_tokens=0)),
        fallback=RandomSegment(copies=b),
    )


def _spo_tree(*, factors: tuple[int, ...] = (6, 6, 6), **options: Any) -> TreePOConfig:
    """SPO-tree: a full tree; the last level runs to the end of the path."""
    allocation = FullTree(factors=factors)
    return _config(options, width=allocation.leaves, segment_tokens=600, allocation=allocation)


def _eptree(
    *, chains: int = 6, branch_tokens: int = 2, waves: int = 1, copies: int = 2, **options: Any
) -> TreePOConfig:
    """TreeRL's EPTree: whole chains, then new paths at their most surprising tokens.

    All leaves are kept; the released code picks 16 of its 30 at random.
    """
    return _config(
        options,
        width=chains,
        segment_tokens=None,
        temperature=1.2,
        top_p=0.95,
        allocation=Quota(k0=None, b=1),
        fallback=EPTree(branch_tokens=branch_tokens, waves=waves, copies=copies),
    )


def _tree_grpo(*, chains: int = 2, nodes: int = 2, waves: int = 1, **options: Any) -> TreePOConfig:
    """Tree-GRPO: chains of segments (there: an agent's turns), re-entered at random nodes."""
    return _config(
        options,
        width=chains,
        allocation=Quota(k0=None, b=1),
        fallback=TreeGRPO(nodes=nodes, waves=waves),
    )


PRESETS: dict[str, Callable[..., TreePOConfig]] = {
    "eptree": _eptree,
    "flat": _flat,
    "spo_tree": _spo_tree,
    "tree_grpo": _tree_grpo,
    "treepo_official": _treepo_official,
    "treepo_paper": _treepo_paper,
    "treerl": _treerl,
}
"""Presets by name, each a function of its own options and the fields of the configuration."""
