"""Many trees as one set of arrays, so that an estimator runs once for a whole batch.

Trees of the same group (the problem's id) share their root: the prompt is one state, whatever tree
its samples came from. Nodes are renumbered by depth, children of one parent side by side, which
makes every sweep over a level a sum over slices: no recursion, no walk per token, and a chain of
5,000 nodes is as good as a bush.

Letters: G groups, N nodes of all trees together (roots merged), L leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from treerl.arrays import FloatArray, IntArray, TreeArrays

__all__ = ["BoolArray", "Forest", "ratio"]

BoolArray = npt.NDArray[np.bool_]

Scalar = TypeVar("Scalar", bound=np.generic)


class Forest:
    """Trees, merged at the roots of their groups.

    Args:
        trees: The trees; those with an equal ``group`` form one group, wherever they stand.
        shares: For each tree (N_t,) how a parent's weight falls on its children, relative to their
            siblings. Default: the multiplicity, since children are samples of one distribution.
            A branch that was added because of what its siblings came to (a fallback) must get 0,
            or the ω-weighted value is biased.

    Attributes:
        trees: As given.
        groups: Ids of the groups by first appearance.
        parent: (N,) index of the parent, -1 for the G roots, which stand first.
        depth: (N,).
        n_tokens: (N,).
        share: (N,) weight among siblings; see ``shares``.
        levels: Slices of the nodes of depth 1, 2, ….
        leaf: (L,) nodes of the leaves, by tree and creation order.
        leaf_group: (L,) group of each leaf.
        leaf_tree: (L,) tree of each leaf.
        reward: (L,) NaN where unscored.
        scored: (L,) reward known and at least one sample.
        count: (L,) samples that a scored leaf stands for, 0 for an unscored one.

    Raises:
        ValueError: A reward is infinite, a path goes on behind its leaf, depths are wrong, or no
            tree was given.
    """

    def __init__(
        self, trees: Sequence[TreeArrays], shares: Sequence[FloatArray] | None = None
    ) -> None:
        if not trees:
            raise ValueError("no trees to estimate advantages for")
        self.trees = tuple(trees)
        names: dict[str, int] = {}
        self.tree_group = np.array([names.setdefault(t.group, len(names)) for t in self.trees])
        self.groups = tuple(names)
        n_groups = len(names)

        sizes = np.array([len(t.parent) - 1 for t in self.trees])
        # Before sorting, node j > 0 of tree t stands at base[t] + j.
        self._base = n_groups - 1 + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        base = np.repeat(self._base, sizes)
        group = np.repeat(self.tree_group, sizes)

        up = np.concatenate([t.parent[1:] for t in self.trees]).astype(np.int64)
        parent = np.concatenate([np.full(n_groups, -1), np.where(up == 0, group, up + base)])
        depth = self._join([t.depth for t in self.trees], 0).astype(np.int64)
        wrong = depth[n_groups:] != depth[parent[n_groups:]] + 1
        if wrong.any():
            raise ValueError("TreeArrays.depth must be the parent's depth + 1, and 0 at the root")

        order = np.lexsort((parent, depth))
        self._place = np.empty(len(order), dtype=np.int64)
        self._place[order] = np.arange(len(order))
        self.parent = np.where(parent < 0, -1, self._place[parent])[order]
        self.depth = depth[order]
        self.n_tokens: IntArray = self._join([t.n_tokens for t in self.trees], 0)[order]
        multiplicity = self._join([t.multiplicity for t in self.trees], 1)[order]
        self.share = (
            multiplicity.astype(np.float64)
            if shares is None
            else self._join(list(shares), 1.0)[order].astype(np.float64)
        )
        bounds = np.searchsorted(self.depth, np.arange(1, self.depth[-1] + 2))
        self.levels = [slice(int(a), int(b)) for a, b in pairwise(bounds)]

        # A root that is a leaf (nothing was generated) has no token to train: it is left out.
        is_leaf = [t.is_leaf[1:] for t in self.trees]
        leaf = np.flatnonzero(np.concatenate(is_leaf)) + n_groups
        self.leaf = self._place[leaf]
        counts = np.array([int(np.count_nonzero(x)) for x in is_leaf])
        self.leaf_tree = np.repeat(np.arange(len(self.trees)), counts)
        self.leaf_group = self.tree_group[self.leaf_tree]
        self.reward: FloatArray = self._join([t.reward for t in self.trees], np.nan)[leaf]
        if np.isinf(self.reward).any():
            bad = self.trees[self.leaf_tree[np.isinf(self.reward)][0]].group
            raise ValueError(
                f"a leaf of group {bad!r} has an infinite reward; a reward is a finite number, "
                "or NaN where it is unknown"
            )
        if np.isin(self.leaf, self.parent).any():
            raise ValueError("a node that is_leaf has children; a path ends at its leaf")
        samples = multiplicity[self.leaf]
        self.scored: BoolArray = np.isfinite(self.reward) & (samples > 0)
        self.count: FloatArray = np.where(self.scored, samples, 0).astype(np.float64)

    def _join(self, parts: Sequence[npt.NDArray[Scalar]], root: float) -> npt.NDArray[Scalar]:
        """Lay out per-node arrays of the trees as groups' roots, then the trees' other nodes."""
        head = np.full(len(self.groups), root)
        return np.concatenate([head.astype(parts[0].dtype), *(part[1:] for part in parts)])

    # --- sizes ------------------------------------------------------------------------------------

    @property
    def n_groups(self) -> int:
        """G."""
        return len(self.groups)

    @property
    def n_nodes(self) -> int:
        """N."""
        return len(self.parent)

    # --- families: the children of one parent stand side by side ----------------------------------

    @cached_property
    def _family_starts(self) -> IntArray:
        """First child of every parent."""
        inner = self.parent[self.n_groups :]
        if not len(inner):
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(np.r_[True, inner[1:] != inner[:-1]]) + self.n_groups

    @cached_property
    def _level_families(self) -> list[tuple[slice, IntArray, IntArray]]:
        """For each level: its slice, the first children inside the slice, their parents."""
        starts = self._family_starts
        cuts = np.searchsorted(starts, [level.start for level in self.levels] + [self.n_nodes])
        return [
            (level, starts[a:b] - level.start, self.parent[starts[a:b]])
            for level, (a, b) in zip(self.levels, pairwise(cuts), strict=True)
        ]

    def over_children(self, values: FloatArray) -> FloatArray:
        """(N,) sum of a (N,) array over each node's children; 0 without children."""
        out = np.zeros(self.n_nodes)
        starts = self._family_starts
        if len(starts):
            out[self.parent[starts]] = np.add.reduceat(values, starts)
        return out

    # --- sweeps -----------------------------------------------------------------------------------

    def sum_up(self, leaf_values: FloatArray, decay: float = 1.0) -> FloatArray:
        """(N,) sum of (L,) values over the leaves below each node, the node included.

        With a decay a leaf's value counts ``decay ** (levels between)``.
        """
        out = np.zeros(self.n_nodes)
        out[self.leaf] = leaf_values
        for level, starts, parents in reversed(self._level_families):
            out[parents] += decay * np.add.reduceat(out[level], starts)
        return out

    def extreme(self, leaf_values: FloatArray, which: np.ufunc) -> FloatArray:
        """(N,) ``np.fmin`` or ``np.fmax`` of (L,) values over the leaves below; NaN if none."""
        out = np.full(self.n_nodes, np.nan)
        out[self.leaf] = leaf_values
        for level, starts, parents in reversed(self._level_families):
            out[parents] = which(out[parents], which.reduceat(out[level], starts))
        return out

    def sum_down(self, node_values: FloatArray) -> FloatArray:
        """(N,) sum of a (N,) array over each node and its ancestors."""
        out = node_values.astype(np.float64, copy=True)
        for level in self.levels:
            out[level] += out[self.parent[level]]
        return out

    def multiply_down(self, node_values: FloatArray) -> FloatArray:
        """(N,) product of a (N,) array over each node and its ancestors."""
        out = node_values.astype(np.float64, copy=True)
        for level in self.levels:
            out[level] *= out[self.parent[level]]
        return out

    @cached_property
    def node_group(self) -> IntArray:
        """(N,) group of each node."""
        out = np.arange(self.n_nodes)
        for level in self.levels:
            out[level] = out[self.parent[level]]
        return out

    @cached_property
    def first_node(self) -> IntArray:
        """(L,) depth-1 ancestor of each leaf."""
        out = np.arange(self.n_nodes)
        for level in self.levels[1:]:
            out[level] = out[self.parent[level]]
        return out[self.leaf]

    # --- values -----------------------------------------------------------------------------------

    @cached_property
    def samples(self) -> FloatArray:
        """(G,) scored samples of each group."""
        return np.bincount(self.leaf_group, self.count, self.n_groups).astype(np.float64)

    @cached_property
    def alone(self) -> BoolArray:
        """(G,) groups of at most one scored sample: nothing to compare it with."""
        return self.samples <= 1

    @cached_property
    def lowest(self) -> FloatArray:
        """(G,) smallest reward of a group, 0 without any.

        Rewards are counted from here, so that equal rewards, whatever their binary fraction, are
        all exactly 0 and every difference between them too.
        """
        out = np.full(self.n_groups, np.inf)
        np.minimum.at(out, self.leaf_group[self.scored], self.reward[self.scored])
        return np.where(np.isfinite(out), out, 0.0)

    @cached_property
    def shifted(self) -> FloatArray:
        """(L,) reward above the group's lowest; 0 for an unscored leaf."""
        return np.where(self.scored, self.reward - self.lowest[self.leaf_group], 0.0)

    @cached_property
    def leaves_below(self) -> FloatArray:
        """(N,) C(n): scored samples at or below each node."""
        return self.sum_up(self.count)

    @cached_property
    def leaf_mean(self) -> FloatArray:
        """(N,) V(n): mean shifted reward of the scored samples below; 0 where there is none."""
        total = self.sum_up(self.count * self.shifted)
        return ratio(total, self.leaves_below)

    @cached_property
    def valued(self) -> BoolArray:
        """(N,) nodes that have a child-mean value: a scored leaf down a path of positive share."""
        known = np.zeros(self.n_nodes, dtype=bool)
        known[self.leaf] = self.scored
        for level, starts, parents in reversed(self._level_families):
            known[parents] = np.logical_or.reduceat(known[level] & (self.share[level] > 0), starts)
        return known

    @cached_property
    def child_mean(self) -> FloatArray:
        """(N,) Vc(n): share-weighted mean of the children's Vc, of the shifted rewards.

        A child without a scored leaf leaves the mean. 0 where nothing is known; see ``valued``.
        """
        return self.back_up(self.shifted)

    def back_up(self, leaf_values: FloatArray) -> FloatArray:
        """(N,) share-weighted child means of (L,) values, from the scored leaves up."""
        value = np.zeros(self.n_nodes)
        value[self.leaf] = np.where(self.scored, leaf_values, 0.0)
        share = np.where(self.valued, self.share, 0.0)
        for level, starts, parents in reversed(self._level_families):
            total = np.add.reduceat(share[level], starts)
            value[parents] = ratio(np.add.reduceat(share[level] * value[level], starts), total)
        return value

    @cached_property
    def sibling_share(self) -> FloatArray:
        """(N,) a node's part of its parent: share over the shares of its valued siblings."""
        share = np.where(self.valued, self.share, 0.0)
        total = self.over_children(share)
        part = ratio(share, total[self.parent])
        part[: self.n_groups] = 1.0
        return part

    def from_parent(self, values: FloatArray) -> FloatArray:
        """(N,) the parent's value of a (N,) array; a root's own."""
        out: FloatArray = values[self.parent]
        out[: self.n_groups] = values[: self.n_groups]
        return out

    # --- back to the trees ------------------------------------------------------------------------

    def split_leaves(self, values: npt.NDArray[Scalar]) -> tuple[npt.NDArray[Scalar], ...]:
        """Cut a (L,) array into one (L_t,) array a tree, rows as in ``tree.leaves``."""
        counts = np.bincount(self.leaf_tree, minlength=len(self.trees))
        parts = np.split(values, np.cumsum(counts)[:-1])
        # A root leaf stands first among its tree's leaves and was left out: it gets a zero.
        zero = np.zeros(1, dtype=values.dtype)
        return tuple(
            np.concatenate([zero, part]) if tree.is_leaf[0] else part
            for tree, part in zip(self.trees, parts, strict=True)
        )

    def split_nodes(self, values: npt.NDArray[Scalar]) -> tuple[npt.NDArray[Scalar], ...]:
        """Cut a (N,) array into one (N_t,) array a tree, node for node; 0 at the roots."""
        flat = values[self._place]
        zero = np.zeros(1, dtype=values.dtype)
        return tuple(
            np.concatenate([zero, flat[base + 1 : base + len(tree.parent)]])
            for tree, base in zip(self.trees, self._base.tolist(), strict=True)
        )

    def nodes_of(self, tree: int) -> IntArray:
        """(N_t,) where the nodes of a tree stand in the forest."""
        n = len(self.trees[tree].parent)
        out: IntArray = self._place[self._base[tree] + np.arange(n)]
        out[0] = self.tree_group[tree]
        return out


def ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Divide, with 0 where the denominator is 0."""
    return np.divide(top, bottom, out=np.zeros(len(top)), where=bottom > 0)
