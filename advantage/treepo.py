"""TreePO's estimators: sub-groups of leaves that share an ancestor."""

from __future__ import annotations

from typing import Literal

import numpy as np

from treerl.advantage.flat import Parity, group_mask
from treerl.advantage.forest import Forest, ratio
from treerl.advantage.paths import path_nodes
from treerl.advantage.raw import OnLeaves, OnNodes, OnPaths
from treerl.advantage.stats import choice
from treerl.arrays import FloatArray

__all__ = ["treepo", "treepo_repo_spo", "treepo_segment"]


def treepo(
    forest: Forest,
    *,
    weighting: Literal["average", "size"] = "average",
    reject: bool = False,
    root: bool = True,
    dedup: bool | None = None,
    max_depth: int | None = None,
    parity: Parity = None,
) -> OnLeaves:
    """TreePO: a leaf against the mean of every sub-group it belongs to.

    ::

        G_d = leaves below the leaf's ancestor of depth d;  a_d = R_i - mean(R over G_d)
        average (Eq. 5)  A_i = mean of a_d
        size    (Eq. 6)  A_i = Σ |G_d| a_d / Σ |G_d|
        reject  (Eq. 7)  groups of depth >= 1 whose rewards are all equal are left out

    Groups of one leaf below the root are left out. Source: arXiv 2508.17445. The published method
    then whitens over the batch: ``whiten=True``. (L,) values.
    Sound: A_i = R_i - a mixture of ancestor values, so a shared token gets the mean over its
    ancestors a of V(n) - V(a), times |L(n)|. Unsound: leaves are weighted alike although early
    ends hand their budget to long paths; one number a trajectory, not a segment.

    Args:
        weighting: ``"average"`` (the paper's choice) or ``"size"``.
        reject: Eq. 7; works with either weighting.
        root: False leaves the group of all leaves out (an ablation of the paper).
        dedup: Count a leaf set once that several ancestors share (a chain of only children).
            Default True; False with ``parity="official"``.
        max_depth: Deepest sub-group; None for all (official: ``tree_subgroup_opt``).
        parity: ``"official"``: a group of one keeps its raw reward, chains count several times,
            and ``max_depth`` itself is left out (its loop ends a level early).
    """
    choice("weighting", weighting, ("average", "size"))
    mask = group_mask(forest, parity)
    size, roots = forest.leaves_below, slice(0, forest.n_groups)
    use = size > 1
    if dedup if dedup is not None else parity != "official":
        use &= size != forest.from_parent(size)
    if reject:
        low, high = (forest.extreme(_scored(forest), f) for f in (np.fmin, np.fmax))
        use &= low != high
    if max_depth is not None:
        use &= forest.depth < max_depth + (parity != "official")
    use[roots] = root
    use[forest.leaf] = False
    weight = np.where(use, size if weighting == "size" else 1.0, 0.0)
    value = forest.leaf_mean.copy()
    if parity == "official":
        # The published mean of a lone trajectory is 0: counted from the lowest reward, -lowest.
        value[roots] = np.where(forest.alone, -forest.lowest, value[roots])
    above = forest.parent[forest.leaf]
    total = forest.sum_down(weight)[above]
    baseline = ratio(forest.sum_down(weight * value)[above], total)
    values = np.where(mask & (total > 0), forest.shifted - baseline, 0.0)
    return OnLeaves(values, mask)


def treepo_segment(forest: Forest, *, eta: float = -1.0) -> OnPaths:
    """The segment variant of TreePO's code, which its paper does not have.

    ::

        R'_i = Σ_{d=0..D} |G_d| a_d / Σ |G_d|      the leaf itself included
        val(n) = child mean of R', val(root) = 0
        A(i, n) = val(n) - k val(parent),  k = eta^(D + 1 - depth(n)) if eta > 0 else 1

    Source: verl fork of TreePO, ``tree_segment_reinforce_plus_plus_baseline``; whitened there.
    (S,) values, one a leaf and segment. Published code assumes that all segments have the same
    length; here a segment has the tokens it has.
    Unsound: kept for comparison. R' is already a mixture of baselines, and the first segment is
    compared with 0.

    Args:
        eta: Discount along the path; not positive for none.
    """
    size = forest.leaves_below
    above = forest.parent[forest.leaf]
    total = forest.sum_down(size)[above]
    mixed = forest.sum_down(size * forest.leaf_mean)[above]
    # The leaf's own group: a_d = 0, size 1.
    value = forest.back_up((total * forest.shifted - mixed) / (total + 1.0))
    value[: forest.n_groups] = 0.0
    nodes, offsets = path_nodes(forest.parent, forest.depth, forest.leaf)
    k: FloatArray = np.ones(len(nodes))
    if eta > 0:
        deepest = np.repeat(forest.depth[forest.leaf], np.diff(offsets))
        k = np.power(eta, deepest + 1.0 - forest.depth[nodes]).astype(np.float64)
    mask = np.repeat(forest.scored, np.diff(offsets))
    values = np.where(mask, value[nodes] - k * value[forest.parent[nodes]], 0.0)
    return OnPaths(values, forest.scored)


def treepo_repo_spo(forest: Forest) -> OnNodes:
    """What TreePO's repository calls SPO; it is not SPO (see ``spo_tree``).

    Child means, each replaced by ``(value - mean) / std`` among its siblings (population std, 0 if
    that is 0), an only child's left as it is, the root's 0; ``A(n) = own - parent's``. (N,) values.
    Unsound: on a binary tree with one right leaf that leaf gets 0 and two wrong ones +1. Kept to
    reproduce published runs only.
    """
    value = forest.child_mean
    share = np.where(forest.valued, forest.share, 0.0)
    n = forest.over_children(share)
    mean = ratio(forest.over_children(share * value), n)[forest.parent]
    square = forest.over_children(share * (value - mean) ** 2)
    std = np.sqrt(ratio(square, n))[forest.parent]
    normal = ratio(value - mean, np.where(std >= 1e-8, std, 0.0))
    own = np.where(n[forest.parent] < 2, value + forest.lowest[forest.node_group], normal)
    own[: forest.n_groups] = 0.0
    mask = forest.valued.copy()
    mask[: forest.n_groups] = False
    return OnNodes(np.where(mask, own - forest.from_parent(own), 0.0), mask)


def _scored(forest: Forest) -> FloatArray:
    """(L,) shifted rewards, NaN where unscored."""
    return np.where(forest.scored, forest.shifted, np.nan)
