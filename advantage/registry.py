"""Every estimator by its name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treerl.advantage.chains import spo_chain, vineppo_chain
from treerl.advantage.flat import dapo, dr_grpo, grpo, reinforce_pp, reinforce_pp_baseline, rloo
from treerl.advantage.forest import Forest
from treerl.advantage.gigpo import gigpo
from treerl.advantage.omega import omega, omega_leaf
from treerl.advantage.paths import path_nodes
from treerl.advantage.raw import OnLeaves, OnNodes, OnPaths, Raw
from treerl.advantage.results import (
    Advantages,
    GroupReport,
    LeafAdvantages,
    NodeAdvantages,
    PathAdvantages,
)
from treerl.advantage.stats import whiten
from treerl.advantage.tree_grpo import tree_grpo
from treerl.advantage.treepo import treepo, treepo_repo_spo, treepo_segment
from treerl.advantage.values import spo_tree, tempo, treerl, treerpo, vineppo, vineppo_loo
from treerl.arrays import FloatArray, TreeArrays

__all__ = ["ESTIMATORS", "Estimator", "estimator"]

ESTIMATORS: Mapping[str, Callable[..., Raw]] = {
    function.__name__: function
    for function in (
        grpo,
        dr_grpo,
        rloo,
        reinforce_pp,
        reinforce_pp_baseline,
        dapo,
        treepo,
        treepo_segment,
        treepo_repo_spo,
        treerl,
        spo_tree,
        spo_chain,
        tree_grpo,
        treerpo,
        vineppo,
        vineppo_loo,
        vineppo_chain,
        tempo,
        gigpo,
        omega,
        omega_leaf,
    )
}
"""Name -> function on a forest; ``help(ESTIMATORS["treepo"])`` says what it computes."""

_WHITENED = ("reinforce_pp", "reinforce_pp_baseline")


@dataclass(frozen=True, slots=True)
class Estimator:
    """A named estimator with its options.

    Attributes:
        name: In ``ESTIMATORS``.
        options: What its function is called with.
        whiten: Whiten over the tokens of the batch at the end.
    """

    name: str
    options: Mapping[str, Any]
    whiten: bool

    def __call__(
        self,
        trees: TreeArrays | Sequence[TreeArrays],
        shares: FloatArray | Sequence[FloatArray] | None = None,
    ) -> Advantages:
        """Estimate.

        Args:
            trees: One tree or a batch. Groups go by ``TreeArrays.group``: several trees of a
                problem are compared with each other, different problems never are.
            shares: For each tree (N,) weight of each node among its siblings; see ``Forest``.

        Returns:
            One entry a tree, in the order given.

        Raises:
            ValueError: A reward is infinite, or the arrays are no tree.
        """
        if isinstance(trees, TreeArrays):
            trees = (trees,)
        if isinstance(shares, np.ndarray):
            shares = (shares,)
        forest = Forest(trees, shares)
        raw = ESTIMATORS[self.name](forest, **self.options)
        return _finish(forest, _whitened(forest, raw) if self.whiten else raw)


def estimator(name: str, *, whiten: bool | None = None, **options: Any) -> Estimator:
    """Return an estimator by name.

    Args:
        name: One of ``ESTIMATORS``.
        whiten: Whiten over the tokens of the whole batch (row tokens for leaf values, unique ones
            for node values). Default: only where the method is its whitening, ``reinforce_pp`` and
            ``reinforce_pp_baseline``.
        options: Of that estimator; see its docstring.

    Raises:
        ValueError: No such estimator.
        TypeError: The estimator has no such option.

    Example:
        >>> from treerl.arrays import TreeArrays
        >>> n = np.array
        >>> tree = TreeArrays(
        ...     parent=n([-1, 0, 0]), depth=n([0, 1, 1]), n_tokens=n([0, 4, 3]),
        ...     reward=n([np.nan, 1.0, 0.0]), is_leaf=n([False, True, True]),
        ...     logprob_sum=n([0.0, -1.0, -1.0]), multiplicity=n([1, 1, 1]), group="p",
        ... )
        >>> estimator("dr_grpo")(tree).values[0].tolist()
        [0.5, -0.5]
    """
    if name not in ESTIMATORS:
        close = difflib.get_close_matches(name, ESTIMATORS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose from {sorted(ESTIMATORS)}"
        raise ValueError(f"there is no estimator {name!r}; {hint}")
    allowed = [p for p in inspect.signature(ESTIMATORS[name]).parameters if p != "forest"]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise TypeError(
            f"estimator {name!r} has no option {unknown[0]!r}; it has {['whiten', *allowed]}"
        )
    return Estimator(name, options, name in _WHITENED if whiten is None else whiten)


def _whitened(forest: Forest, raw: Raw) -> Raw:
    if isinstance(raw, OnNodes):
        weight = np.where(raw.mask, forest.n_tokens, 0).astype(np.float64)
        return OnNodes(whiten(raw.values, weight), raw.mask, raw.leaf_mask)
    weight = np.where(raw.mask, forest.count, 0.0)
    if isinstance(raw, OnLeaves):
        tokens = forest.sum_down(forest.n_tokens.astype(np.float64))
        weight = weight * tokens[forest.leaf]
        return OnLeaves(whiten(raw.values, weight), raw.mask, raw.first_token)
    nodes, offsets = path_nodes(forest.parent, forest.depth, forest.leaf)
    weight = np.repeat(weight, np.diff(offsets)) * forest.n_tokens[nodes]
    return OnPaths(whiten(raw.values, weight), raw.mask)


def _finish(forest: Forest, raw: Raw) -> Advantages:
    groups = _reports(forest)
    if isinstance(raw, OnNodes):
        leaf_mask = forest.scored if raw.leaf_mask is None else raw.leaf_mask
        return NodeAdvantages(
            forest.split_nodes(raw.values),
            forest.split_nodes(raw.mask),
            forest.split_leaves(leaf_mask),
            groups,
        )
    mask = forest.split_leaves(raw.mask)
    if isinstance(raw, OnPaths):
        depth = np.bincount(
            forest.leaf_tree, forest.depth[forest.leaf], minlength=len(forest.trees)
        ).astype(np.int64)
        parts = np.split(raw.values, np.cumsum(depth)[:-1])
        return PathAdvantages(tuple(parts), mask, groups)
    values = forest.split_leaves(np.where(raw.mask, raw.values, 0.0))
    first = None if raw.first_token is None else forest.split_nodes(raw.first_token)
    return LeafAdvantages(values, mask, groups, first)


def _reports(forest: Forest) -> tuple[GroupReport, ...]:
    size = forest.n_groups
    leaves = np.bincount(forest.leaf_group, minlength=size).tolist()
    unscored = np.bincount(forest.leaf_group[~forest.scored], minlength=size).tolist()
    highest = np.zeros(size)
    np.maximum.at(highest, forest.leaf_group, forest.shifted)
    trees: list[list[int]] = [[] for _ in range(size)]
    for tree, group in enumerate(forest.tree_group.tolist()):
        trees[group].append(tree)
    return tuple(
        GroupReport(name, tuple(which), n, int(samples), missing, bool(alone), bool(high == 0))
        for name, which, n, samples, missing, alone, high in zip(
            forest.groups,
            trees,
            leaves,
            forest.samples.tolist(),
            unscored,
            forest.alone.tolist(),
            highest.tolist(),
            strict=True,
        )
    )
