"""treerl's own estimators: unbiased on trees, whatever the branches did.

ω(n), the branch weight, is the probability of reaching n by walking down at random (shares among
siblings multiplied along the path). If the children of a node are independent samples of the policy
and their number is fixed before they are drawn, then Σ_i ω_i R_i is an unbiased value of the prompt
and ω(n) (Vc(n) - b) an unbiased policy-gradient weight of segment n, for every baseline b that does
not depend on the tokens of n given its prefix. The baseline here is the mean Vc of the siblings of
n, or of its nearest ancestor that has siblings: nothing below n enters it.

What fallback branches break, shares of 0 mend: see ``Forest``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from treerl.advantage.forest import BoolArray, Forest, ratio
from treerl.advantage.raw import OnLeaves, OnNodes
from treerl.arrays import FloatArray

__all__ = ["omega", "omega_leaf"]

Scale = float | Literal["leaves"]


def omega(forest: Forest, *, scale: Scale = "leaves") -> OnNodes:
    """``A(n) = S ω(n) (Vc(n) - mean of Vc over the other siblings)``, for unique tokens.

    An only child takes the baseline of its nearest ancestor with siblings; without one it gets 0
    and is masked. (N,) values: train each token once (``weight="unique"``). On a star tree this is
    RLOO. Equal shares make the sibling difference k/(k-1) (Vc(n) - Vc(parent)).
    Sound: E[Σ_n A(n) ∇log π(n)] = S ∇J exactly, if every first segment has a sibling. Unsound: with
    branch points chosen by looking at the tokens below them (entropy, lowest log-prob), and with
    unscored leaves that are not missing at random.

    Args:
        scale: S. ``"leaves"``: the group's scored samples, right for a loss that averages over
            rows; a number that does not depend on the samples keeps sums unbiased too.
    """
    baseline, known = _baselines(forest)
    weight = _weights(forest) * _scale(forest, scale)[forest.node_group]
    values = np.where(known, weight * (forest.child_mean - baseline), 0.0)
    return OnNodes(values, known)


def omega_leaf(forest: Forest, *, scale: Scale = "leaves") -> OnLeaves:
    """``A_i = S ω_i (R_i - mean of Vc over the other first segments)``, for leaf rows.

    (L,) values: train every row (``weight="leaf"``); a shared token then gets
    S ω(n) (Vc(n) - baseline). One baseline a first segment: more variance than ``omega``, the same
    expectation. Sound and unsound as there. A leaf of multiplicity m has a row of weight m, so its
    ω is divided by m.

    Args:
        scale: As in ``omega``.
    """
    baseline, known = _baselines(forest)
    first = forest.first_node
    mask = forest.scored & known[first]
    weight = _weights(forest)[forest.leaf] * _scale(forest, scale)[forest.leaf_group]
    weight = ratio(weight, forest.count)
    return OnLeaves(np.where(mask, weight * (forest.shifted - baseline[first]), 0.0), mask)


def _weights(forest: Forest) -> FloatArray:
    """(N,) ω over the valued branches; sums to 1 over the scored leaves of a group."""
    return forest.multiply_down(forest.sibling_share)


def _scale(forest: Forest, scale: Scale) -> FloatArray:
    """(G,) S of each group."""
    if isinstance(scale, str):
        if scale != "leaves":
            raise ValueError(f"scale={scale!r} does not exist; choose 'leaves' or a number")
        return forest.samples
    return np.full(forest.n_groups, float(scale))


def _baselines(forest: Forest) -> tuple[FloatArray, BoolArray]:
    """(N,) mean Vc of the other siblings, inherited by only children; (N,) where there is one."""
    share = np.where(forest.valued, forest.share, 0.0)
    value = forest.child_mean
    up = forest.parent
    n = forest.over_children(share)[up]
    # Two samples that were folded into one node have each other as siblings.
    one = np.minimum(share, 1.0)
    rest = n - one
    total = forest.over_children(share * value)[up]
    own = (rest > 0) & (share > 0)
    baseline = np.where(own, ratio(total - one * value, rest), 0.0)
    known = own.copy()
    known[: forest.n_groups] = False
    for level in forest.levels[1:]:
        lacks = ~known[level]
        baseline[level] = np.where(lacks, baseline[up[level]], baseline[level])
        known[level] |= known[up[level]]
    known &= forest.valued
    return baseline, known
