"""Estimators of segments: differences of the values of neighbouring nodes.

V(n) is the mean reward of the leaves below n, Vc(n) the mean over its children's Vc. They differ
where sibling branches have different numbers of leaves; with branch counts fixed before the
children are drawn Vc is unbiased, V is not. All give (N,) values, for the tokens of the segment
that enters a node, each token counted once.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from treerl.advantage.flat import Parity, group_mask, grpo_values
from treerl.advantage.forest import BoolArray, Forest, ratio
from treerl.advantage.raw import OnLeaves, OnNodes
from treerl.advantage.stats import choice
from treerl.arrays import FloatArray

__all__ = ["only", "spo_tree", "tempo", "treerl", "treerpo", "vineppo", "vineppo_loo"]

SPREAD_FLOOR = 1e-12  # values closer than this are equal: what is left is rounding


def only(forest: Forest, values: FloatArray, known: BoolArray) -> OnNodes:
    """Mask what is not known, the roots, and groups of one."""
    mask = known & ~forest.alone[forest.node_group]
    mask[: forest.n_groups] = False
    return OnNodes(np.where(mask, values, 0.0), mask)


def vineppo(forest: Forest) -> OnNodes:
    """VinePPO's difference on a tree: ``A(n) = V(n) - V(parent)``, leaf means.

    Source: arXiv 2410.01679, with the tree's own leaves in place of independent rollouts; the
    published method whitens over the batch (``whiten=True``). For independent rollouts of a
    trajectory's prefixes take ``vineppo_chain``. Differences telescope along a path to R_i - V(0).
    Unsound: V(n) and V(parent) both contain the leaves being judged, which shrinks the difference
    by 1 - |L(n)|/|L(parent)| against ``vineppo_loo``; leaf means are biased under budget transfer.
    """
    value = forest.leaf_mean
    return only(forest, value - forest.from_parent(value), forest.leaves_below > 0)


def vineppo_loo(forest: Forest) -> OnNodes:
    """Leave-subtree-out: ``A(n) = V(n) - mean(R over L(parent) without L(n))``, 0 if that is empty.

    treerl's extension of ``vineppo``. Sound baseline (independent of the segment's tokens given the
    parent); the leaf mean itself is still biased where leaf counts depend on what happened.
    """
    value, size = forest.leaf_mean, forest.leaves_below
    up_value, up_size = forest.from_parent(value), forest.from_parent(size)
    rest = up_size - size
    others = ratio(up_size * up_value - size * value, rest)
    return only(forest, np.where(rest > 0, value - others, 0.0), size > 0)


def treerl(forest: Forest, *, form: Literal["paper", "code"] = "paper") -> OnNodes:
    """TreeRL: global plus local advantage, scaled down with the leaves below.

    ::

        paper  A(n) = ((V(n) - V(0)) + (V(n) - V(parent))) / sqrt(|L(n)|)
        code   u(n) = N/(N-1) (V(n) - V(0)) / sqrt(|L(n)|);  A(n) = 2 u(n) - u(parent)

    Source: arXiv 2506.11902; ``code`` with the flags of its released training script, where the
    parent is scaled by its own root and rewards are centred leave-one-out.
    Unsound: the scale depends on how often a branch happened to be split; the paper's sum counts
    the leaves below in every baseline.

    Args:
        form: ``"paper"`` or ``"code"``.
    """
    choice("form", form, ("paper", "code"))
    value, size = forest.leaf_mean, forest.leaves_below
    top = value[: forest.n_groups][forest.node_group]
    known = size > 0
    if form == "paper":
        sums = (value - top) + (value - forest.from_parent(value))
        return only(forest, ratio(sums, np.sqrt(size)), known)
    n = np.maximum(forest.samples, 2)[forest.node_group]
    u = ratio((value - top) * n / (n - 1), np.sqrt(size))
    return only(forest, 2 * u - forest.from_parent(u), known)


def spo_tree(forest: Forest, *, norm: Literal["rloo", "grpo"] = "rloo") -> OnNodes:
    """SPO-tree: ``A(n) = Vc(n) - Vc(parent)``; ``norm="grpo"`` divides by the siblings' std + 1e-8.

    Source: arXiv 2505.23564 (population std). Published training drops segments with A = 0 and
    tokens of old probability >= 0.9: ``to_rows(max_prob=0.9)``. Sums over siblings are 0, sums
    along a path are R_i - Vc(0).
    Sound values where branch counts are fixed before the children are drawn; the baseline contains
    the judged branch, which scales by (k-1)/k against ``omega``, and every segment weighs the same
    however improbable its prefix. Unsound: ``"grpo"``, which blows small differences up to 1.

    Args:
        norm: ``"rloo"`` (the published name of no normaliser) or ``"grpo"``.
    """
    choice("norm", norm, ("rloo", "grpo"))
    value = forest.child_mean
    out = value - forest.from_parent(value)
    if norm == "grpo":
        _, _, std = _siblings(forest, unbiased=False)
        out = out / (std + 1e-8)
    return only(forest, out, forest.valued)


def treerpo(
    forest: Forest, *, normaliser: Literal["bernoulli", "std", "none"] = "bernoulli"
) -> OnNodes:
    """TreeRPO: siblings are the group, ``A(n) = (Vc(n) - μ) / σ`` with μ the mean of the siblings.

    Source: arXiv 2506.05183. UNVERIFIED: that its σ is the Bernoulli one, ``sqrt(μ (1 - μ))``, is
    remembered and was not checked against the paper; its pruning threshold is left out.
    Sound up to σ, as ``spo_tree``. Unsound: ``"std"`` turns values 0.49 and 0.51 into those of 0
    and 1.

    Args:
        normaliser: ``"bernoulli"`` needs rewards in [0, 1]; ``"std"`` is over n - 1, + 1e-6.

    Raises:
        ValueError: Bernoulli with a reward outside [0, 1].
    """
    choice("normaliser", normaliser, ("bernoulli", "std", "none"))
    n, mean, std = _siblings(forest, unbiased=True)
    out = forest.child_mean - mean
    # Rounding of recursive means must not be blown up to a difference.
    differs = (n > 1) & (std > SPREAD_FLOOR)
    if normaliser == "bernoulli":
        reward = forest.reward[forest.scored]
        if ((reward < 0) | (reward > 1)).any():
            raise ValueError(
                'treerpo with normaliser="bernoulli" needs rewards in [0, 1]; rescale them or '
                'choose "std" or "none"'
            )
        mu = mean + forest.lowest[forest.node_group]
        out = ratio(out, np.sqrt(np.maximum(mu * (1 - mu), 0.0)))
    elif normaliser == "std":
        out = out / (std + 1e-6)
    return only(forest, np.where(differs, out, 0.0), forest.valued)


def tempo(forest: Forest, *, parity: Parity = None) -> OnLeaves:
    """TEMPO: GRPO everywhere, ``(V(n) - V(parent)) / std`` on top at the first token of a branch.

    Source: arXiv 2509.18314 for the structure; UNVERIFIED scale. (L,) values and a (N,) term for
    the first token of each segment whose parent has several children.
    Unsound: as ``grpo`` and ``vineppo``.

    Args:
        parity: ``"official"``: a group of one keeps its raw reward.
    """
    value = forest.leaf_mean
    square = forest.count * (forest.shifted - value[forest.leaf_group]) ** 2
    total = forest.sum_up(square)[: forest.n_groups]
    std = np.sqrt(ratio(total, forest.samples - 1))
    known = forest.leaves_below > 0
    splits = forest.over_children(known.astype(np.float64))[forest.parent] > 1
    bonus = (value - forest.from_parent(value)) / (std + 1e-6)[forest.node_group]
    bonus = np.where(splits & known, bonus, 0.0)
    bonus[: forest.n_groups] = 0.0
    return OnLeaves(
        grpo_values(forest, "unbiased", 1e-6, parity), group_mask(forest, parity), bonus
    )


def _siblings(forest: Forest, *, unbiased: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(N,) number, mean and std of the Vc of a node and its siblings, shares as multiplicity."""
    share = np.where(forest.valued, forest.share, 0.0)
    n = forest.over_children(share)
    mean = forest.child_mean[forest.parent]
    square = forest.over_children(share * (forest.child_mean - mean) ** 2)
    std = np.sqrt(ratio(square, n - 1 if unbiased else n))
    return n[forest.parent], mean, std[forest.parent]
