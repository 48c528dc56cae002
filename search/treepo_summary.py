"""What a segment tree says and what it cost, recounted from its nodes.

Two kinds of figures. **Statistics**: branch weights, the value they give beside the uniform mean,
the effective sample size. **Cost**: unique tokens against what flat sampling would have generated,
prompt tokens against what a warm prefix cache would have served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from treerl.arrays import FloatArray
from treerl.engines.base import Tokenizer
from treerl.tree import Node, Tree

__all__ = [
    "Prefill",
    "TreeCost",
    "TreeSummary",
    "branch_weights",
    "segment_texts",
    "sibling_shares",
    "summarise",
    "tree_cost",
    "warm_prefill",
]


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompt tokens of a tree's requests, all retries left out.

    Attributes:
        requests: Requests that were answered.
        submitted: Prompt tokens sent; cached + computed.
        cached: Of those, served by a cache.
    """

    requests: int
    submitted: int
    cached: int

    @property
    def computed(self) -> int:
        """Prompt tokens that were really prefilled."""
        return self.submitted - self.cached


@dataclass(frozen=True, slots=True)
class TreeCost:
    """What a tree cost; all are tokens unless named otherwise.

    Attributes:
        requests, failed_requests: Requests to the engine, and those that failed for good.
        generated: New tokens; kept + duplicates + surplus.
        kept: In nodes.
        duplicates: Discarded: they repeat what a node holds.
        surplus: Discarded: behind the end of a path.
        aborted: Kept, but only on paths that were aborted.
        flat_equivalent: What the same finished paths cost one by one; duplicates count.
        unique_tokens: Kept on finished paths: what a packed trainer forwards, prompt apart.
        row_tokens: The same with a row a finished path: what other trainers forward.
        prefill: As the engine reported it.
        warm: The same requests on a warm cache that loses nothing; None without a block size.
    """

    requests: int
    failed_requests: int
    generated: int
    kept: int
    duplicates: int
    surplus: int
    aborted: int
    flat_equivalent: int
    unique_tokens: int
    row_tokens: int
    prefill: Prefill
    warm: Prefill | None

    @property
    def saved(self) -> float:
        """Share of the flat cost that was not generated; negative where trees cost more."""
        return 1 - self.generated / self.flat_equivalent if self.flat_equivalent else 0.0

    @property
    def evicted(self) -> int | None:
        """Prompt tokens computed though a warm cache would have had them: evictions, preemptions,
        requests that went to another server."""
        return None if self.warm is None else max(0, self.warm.cached - self.prefill.cached)


@dataclass(frozen=True, slots=True)
class TreeSummary:
    """What a tree says.

    Attributes:
        leaves: Finished paths, duplicates and all.
        distinct_leaves: Finished paths that differ.
        first_nodes: Different first segments: no more than so many paths are independent.
        depth: Of the deepest node.
        ess: Kish's effective sample size of the branch weights, (Σω)²/Σω²; late paths carry none.
        value: Σωr/Σω over scored paths, unbiased where nothing was aborted; None without any.
        uniform_value: Mean reward over the same paths with equal weights; biased where the number
            of paths depends on what they say.
        mean_tokens, uniform_mean_tokens: Path length, weighted likewise.
        finish: Finished and aborted paths by reason.
        cost: What it cost.
    """

    leaves: int
    distinct_leaves: int
    first_nodes: int
    depth: int
    ess: float
    value: float | None
    uniform_value: float | None
    mean_tokens: float | None
    uniform_mean_tokens: float | None
    finish: dict[str, int]
    cost: TreeCost

    @property
    def relative_cost(self) -> float | None:
        """Generated tokens a leaf, as a share of a flat sample's; 1 is no saving.

        The flat length is estimated by ``mean_tokens``, without bias. ``cost.saved`` compares with
        the tree's own leaves, which some allocations lengthen, and is flattered by that.
        """
        if not self.leaves or not self.mean_tokens:
            return None
        return self.cost.generated / self.leaves / self.mean_tokens


def sibling_shares(tree: Tree) -> FloatArray:
    """Return (N,) how a node's weight falls on its children: their samples that are not late.

    A draw is late if it was started after its surroundings were seen, as a fallback's are. Giving
    it weight would bias estimates (treepo.md §6.1). Estimators take this as ``shares``.
    """
    shares = [node.multiplicity - (node.meta or {}).get("late", 0) for node in tree.nodes]
    return np.array(shares, dtype=np.float64)


def branch_weights(tree: Tree) -> FloatArray:
    """Return (N,) branch weights ω by :func:`sibling_shares`.

    Without late draws they are ``tree.weights()``.
    """
    shares = sibling_shares(tree).astype(np.int64)
    return replace(tree.arrays(), multiplicity=shares).weights()


def summarise(tree: Tree, block_size: int | None = None) -> TreeSummary:
    """Summarise a tree.

    Args:
        tree: A finished tree.
        block_size: Tokens of a block of the engine's prefix cache, for ``cost.warm``.
    """
    omega = branch_weights(tree)
    lengths = _path_tokens(tree)
    leaves = _finished(tree)
    weight = np.array([omega[leaf.index] for leaf in leaves])
    count = np.array([leaf.multiplicity for leaf in leaves], dtype=np.float64)
    shares = sibling_shares(tree)
    early = np.array([shares[leaf.index] for leaf in leaves])
    scored = np.array([leaf.reward is not None for leaf in leaves], dtype=bool)
    reward = np.array([leaf.reward or 0.0 for leaf in leaves])
    tokens = np.array([lengths[leaf.index] for leaf in leaves], dtype=np.float64)
    ended = [node for node in tree.nodes if node.is_leaf]
    finish: Counter[str] = Counter()
    for node in ended:
        finish[str(node.finish_reason)] += node.multiplicity
    squares = float(np.sum(weight**2 / np.maximum(early, 1))) if leaves else 0.0
    return TreeSummary(
        leaves=int(count.sum()),
        distinct_leaves=len(leaves),
        first_nodes=sum(node.multiplicity > 0 for node in tree.root.children),
        depth=max(node.depth for node in tree.nodes),
        ess=float(weight.sum()) ** 2 / squares if squares else 0.0,
        value=_mean(reward[scored], weight[scored]),
        uniform_value=_mean(reward[scored], count[scored]),
        mean_tokens=_mean(tokens, weight),
        uniform_mean_tokens=_mean(tokens, count),
        finish=dict(sorted(finish.items())),
        cost=tree_cost(tree, block_size),
    )


def tree_cost(tree: Tree, block_size: int | None = None) -> TreeCost:
    """Return what a tree cost; arguments as of :func:`summarise`."""
    lengths = _path_tokens(tree)
    leaves = _finished(tree)
    on_path = [False] * len(tree)
    for leaf in leaves:
        node: Node | None = leaf
        while node is not None and not on_path[node.index]:
            on_path[node.index] = True
            node = node.parent
    unique = sum(len(n.token_ids) for n in tree.nodes[1:] if on_path[n.index])
    discarded = (tree.root.meta or {}).get("discarded", {})
    ledger, kept = tree.ledger, tree.kept_tokens()
    return TreeCost(
        requests=ledger.requests,
        failed_requests=ledger.failed_requests,
        generated=ledger.generated,
        kept=kept,
        duplicates=discarded.get("duplicates", 0),
        surplus=discarded.get("surplus", 0),
        aborted=kept - unique,
        flat_equivalent=sum(lengths[leaf.index] * leaf.multiplicity for leaf in leaves),
        unique_tokens=unique,
        row_tokens=sum(lengths[leaf.index] for leaf in leaves),
        prefill=Prefill(ledger.requests - ledger.failed_requests, ledger.submitted, ledger.cached),
        warm=None if block_size is None else warm_prefill(tree, block_size),
    )


def warm_prefill(tree: Tree, block_size: int) -> Prefill:
    """Return what a tree's requests cost on a warm prefix cache that loses nothing.

    The first request finds nothing; every other one finds its context up to the last whole block
    before its last token: floor((context - 1) / block) blocks (treepo.md §6.2).
    """
    lengths = _path_tokens(tree)
    prompt = len(tree.prompt_ids)
    requests = submitted = cached = 0
    for node in tree.nodes:
        failed = sum(child.finish_reason == "error" for child in node.children)
        answered, context = node.draws - failed, prompt + lengths[node.index]
        requests += answered
        submitted += answered * context
        cached += answered * ((context - 1) // block_size) * block_size
    if requests:
        cached -= (prompt - 1) // block_size * block_size
    return Prefill(requests, submitted, cached)


def segment_texts(tree: Tree, tokenizer: Tokenizer, context: int = 16) -> list[str]:
    """Return the text of each node, "" for the root, as a part of its path's text.

    A segment's end may lie inside a character, so each segment is decoded behind the last
    ``context`` ids of its path; the halves of a cut character come out as U+FFFD.
    """
    tails: list[tuple[int, ...]] = [()]
    out = [""]
    for node in tree.nodes[1:]:
        assert node.parent is not None
        before = tails[node.parent.index]
        text = tokenizer.decode(before + node.token_ids)
        head = tokenizer.decode(before).rstrip("\N{REPLACEMENT CHARACTER}")
        out.append(text[len(head) :])
        tails.append((before + node.token_ids)[-context:])
    return out


def _path_tokens(tree: Tree) -> list[int]:
    """Return (N,) generated tokens from the root to the end of each node."""
    out = [0]
    for node in tree.nodes[1:]:
        assert node.parent is not None
        out.append(out[node.parent.index] + len(node.token_ids))
    return out


def _finished(tree: Tree) -> list[Node]:
    return [leaf for leaf in tree.leaves() if leaf.finish_reason != "aborted"]


def _mean(values: Sequence[float] | FloatArray, weights: FloatArray) -> float | None:
    mass = float(np.sum(weights))
    return float(np.dot(values, weights)) / mass if mass > 0 else None
