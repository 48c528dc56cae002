"""Estimators of one trajectory whose prefixes were valued by rollouts of their own.

The tree holds the trajectory and, below every prefix that was valued, its rollouts. Only the
trajectory is trained. V of a prefix is the mean of its own rollouts: leaves below it that do not
follow the trajectory further. V of the end is the reward.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treerl.advantage.forest import BoolArray, Forest, ratio
from treerl.advantage.paths import path_nodes
from treerl.advantage.raw import OnNodes
from treerl.arrays import FloatArray, IntArray

__all__ = ["spo_chain", "spo_cut_points", "vineppo_chain"]


def vineppo_chain(forest: Forest, *, trajectories: Sequence[int] | None = None) -> OnNodes:
    """VinePPO: ``A_k = V(s_{k+1}) - V(s_k)`` with V(end) = R; a missing V is the next known one.

    Source: arXiv 2410.01679 (there r_k + V(s_{k+1}) - V(s_k) with the reward on the last step and
    V(end) = 0: the same numbers). Whitened over the batch there: ``whiten=True``. (N,) values.
    Sound: V(s_k) comes from rollouts that do not contain the judged step. It costs K rollouts a
    step that are not trained.

    Args:
        trajectories: For each tree the node at which its trajectory ends; default its first leaf.
    """
    walk = _Walk(forest, trajectories)
    filled = walk.value[walk.next_known]
    return walk.to_nodes(filled - np.concatenate([[0.0], filled])[: len(filled)])


def spo_chain(forest: Forest, *, trajectories: Sequence[int] | None = None) -> OnNodes:
    """SPO-chain: between two valued prefixes every segment gets the difference of their values.

    Source: arXiv 2505.23564. What stands before the first valued prefix gets 0. (N,) values. Its
    probability mask is ``to_rows(max_prob=0.9)``, its cut points ``spo_cut_points``.
    Sound as ``vineppo_chain``; several segments between two values share one number.

    Args:
        trajectories: As in ``vineppo_chain``.
    """
    walk = _Walk(forest, trajectories)
    before = walk.last_known_before
    values = walk.value[walk.next_known] - walk.value[before]
    return walk.to_nodes(np.where(before >= walk.start, values, 0.0))


def spo_cut_points(logprobs: FloatArray, *, interval: int, max_prob: float = 0.9) -> IntArray:
    """Return the tokens after which SPO-chain values a prefix; -1 is the prompt itself.

    Candidates are the tokens that the policy was not sure of (p < max_prob); every ``interval``-th
    of them is cut off just before.

    Args:
        logprobs: (T,) nats.
        interval: Candidates from one cut to the next.
        max_prob: Probability from which on a token is no candidate.
    """
    if interval < 1:
        raise ValueError(f"interval is {interval}, but cuts lie at least one candidate apart")
    unsure = np.flatnonzero(np.exp(logprobs) < max_prob)
    return (unsure - 1)[::interval].astype(np.int64)


class _Walk:
    """The trajectories with their roots, one after another: (P,) places."""

    def __init__(self, forest: Forest, trajectories: Sequence[int] | None) -> None:
        self._forest = forest
        end, self._leaf = _ends(forest, trajectories)
        nodes, offsets = path_nodes(forest.parent, forest.depth, end)
        depth = np.diff(offsets)
        starts = offsets[:-1] + np.arange(len(end))  # a root stands in front of every path
        size = len(nodes) + len(end)
        is_root = np.zeros(size, dtype=bool)
        is_root[starts] = True
        self._inner = ~is_root
        place = np.empty(size, dtype=np.int64)
        place[self._inner] = nodes
        place[is_root] = forest.node_group[end]
        self._place = place
        self.start: IntArray = np.repeat(starts, depth + 1)

        on_path = np.zeros(forest.n_nodes, dtype=bool)
        on_path[nodes] = True
        count, total = forest.leaves_below, forest.sum_up(forest.count * forest.shifted)
        own = count - forest.over_children(count * on_path)
        own_total = total - forest.over_children(total * on_path)
        known = own[place] > 0
        last = starts + depth
        known[last] = True
        self.value: FloatArray = ratio(own_total, own)[place]
        self.value[last] = forest.shifted[self._leaf]
        self._trained = np.repeat(forest.scored[self._leaf], depth + 1) & self._inner

        at = np.arange(size)
        # The end of every path is known, so looking ahead never leaves the path.
        self.next_known = np.minimum.accumulate(np.where(known, at, size)[::-1])[::-1]
        seen = np.maximum.accumulate(np.where(known, at, -1))
        self.last_known_before: IntArray = np.concatenate([[-1], seen])[:size]

    def to_nodes(self, values: FloatArray) -> OnNodes:
        """Put (P,) values on the nodes of the trajectories."""
        forest = self._forest
        out, mask = np.zeros(forest.n_nodes), np.zeros(forest.n_nodes, dtype=bool)
        out[self._place[self._trained]] = values[self._trained]
        mask[self._place[self._trained]] = True
        leaf_mask = np.zeros(len(forest.leaf), dtype=bool)
        leaf_mask[self._leaf] = forest.scored[self._leaf]
        return OnNodes(out, mask, leaf_mask)


def _ends(forest: Forest, trajectories: Sequence[int] | None) -> tuple[IntArray, IntArray]:
    """Return the trajectories' last nodes and which leaves they are; trees without one are out."""
    if trajectories is None:
        _, leaf = np.unique(forest.leaf_tree, return_index=True)
        return forest.leaf[leaf], leaf
    if len(trajectories) != len(forest.trees):
        raise ValueError(f"{len(trajectories)} trajectories for {len(forest.trees)} trees")
    is_leaf: BoolArray = np.zeros(forest.n_nodes, dtype=bool)
    is_leaf[forest.leaf] = True
    end = np.array([forest.nodes_of(t)[node] for t, node in enumerate(trajectories)])
    if not is_leaf[end].all():
        bad = int(np.flatnonzero(~is_leaf[end])[0])
        raise ValueError(f"node {trajectories[bad]} of tree {bad} is no leaf: no trajectory ends")
    which = np.full(forest.n_nodes, -1)
    which[forest.leaf] = np.arange(len(forest.leaf))
    return end, which[end]
