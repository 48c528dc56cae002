"""Estimators that see a group of samples and no tree.

R_i reward, n scored samples of the group, duplicates counted. On tree rows even these are a process
signal: a token shared by the leaves L(n) is trained with Σ A_i over them, |L(n)| (V(n) - V(root))
for the centred reward. All give (L,) values, the same on every token of a path.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from treerl.advantage.forest import BoolArray, Forest
from treerl.advantage.raw import OnLeaves
from treerl.advantage.stats import Std, choice, normalise
from treerl.arrays import FloatArray

__all__ = [
    "Parity",
    "dapo",
    "dr_grpo",
    "group_mask",
    "grpo",
    "grpo_values",
    "raw_if_alone",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
]

Parity = Literal["official"] | None
"""``"official"`` reproduces what the published code does, quirks included; None is sound."""


def group_mask(forest: Forest, parity: Parity) -> BoolArray:
    """(L,) scored leaves that have a baseline; published code trains a group of one regardless."""
    choice("parity", parity, (None, "official"))
    if parity == "official":
        return forest.scored
    has_baseline: BoolArray = ~forest.alone[forest.leaf_group]
    return forest.scored & has_baseline


def raw_if_alone(
    forest: Forest, values: FloatArray, parity: Parity, scale: float = 1.0
) -> FloatArray:
    """(L,) values, with reward / scale in groups of one as published code has it."""
    if parity != "official":
        return values
    alone = forest.alone[forest.leaf_group] & forest.scored
    return np.where(alone, forest.reward / scale, values)


def grpo_values(forest: Forest, std: Std, eps: float, parity: Parity) -> FloatArray:
    """(L,) group-normalised rewards."""
    values, _ = normalise(
        forest.shifted, forest.leaf_group, forest.n_groups, forest.count, std=std, eps=eps
    )
    # The published rule for a group of one is mean 0 and deviation 1.
    return raw_if_alone(forest, values, parity, 1.0 if std == "none" else 1.0 + eps)


def grpo(
    forest: Forest, *, std: Std = "unbiased", eps: float = 1e-6, parity: Parity = None
) -> OnLeaves:
    """GRPO: ``A_i = (R_i - mean) / (std + eps)``.

    Source: arXiv 2402.03300; std over n - 1 and eps 1e-6 as in verl (TRL: 1e-4). Papers write std
    without saying which: for rewards 1, 0, 0, 0 the first advantage is 1.5 unbiased, 1.732 with
    the population's, 0.75 without.
    Sound: centred within the group. Unsound: dividing by std up-weights problems that are nearly
    solved or nearly hopeless; on trees the uniform mean over leaves is biased wherever the number
    of leaves below a branch depends on what the branch did.

    Args:
        std: ``"unbiased"``, ``"population"`` or ``"none"``.
        eps: Added to the deviation.
        parity: ``"official"``: a group of one keeps its raw reward instead of having no advantage.
    """
    return OnLeaves(grpo_values(forest, std, eps, parity), group_mask(forest, parity))


def dr_grpo(forest: Forest, *, parity: Parity = None) -> OnLeaves:
    """Dr. GRPO: ``A_i = R_i - mean``.

    Source: arXiv 2503.20783 (which also drops the length normaliser of the loss: the trainer's
    matter).
    Sound on flat samples up to the factor (n-1)/n, see ``rloo``. On trees: as ``grpo``.

    Args:
        parity: ``"official"``: a group of one keeps its raw reward.
    """
    return grpo(forest, std="none", parity=parity)


def rloo(forest: Forest, *, parity: Parity = None) -> OnLeaves:
    """RLOO: ``A_i = R_i - mean_{j≠i} R_j = n/(n-1) (R_i - mean)``.

    Source: arXiv 2402.14740.
    Sound: unbiased on independent samples. On trees the other leaves share this one's prefix, so
    the baseline depends on the tokens it is subtracted from; see ``omega``.

    Args:
        parity: ``"official"``: a group of one keeps its raw reward.
    """
    n = np.maximum(forest.samples, 2)[forest.leaf_group]
    values = grpo_values(forest, "none", 0.0, None) * (n / (n - 1))
    return OnLeaves(raw_if_alone(forest, values, parity), group_mask(forest, parity))


def reinforce_pp(forest: Forest) -> OnLeaves:
    """REINFORCE++: ``A_i = whiten_batch(R_i)``, outcome reward, discount 1.

    Source: arXiv 2501.03262. Whitened by default; ``whiten=False`` leaves the raw rewards.
    Unsound for mixed batches: the only baseline is the batch's mean, so every answer to an easy
    problem counts as good. A group of one is no special case.
    """
    return OnLeaves(np.where(forest.scored, forest.reward, 0.0), forest.scored)


def reinforce_pp_baseline(forest: Forest, *, parity: Parity = None) -> OnLeaves:
    """REINFORCE++-baseline: ``A_i = whiten_batch(R_i - mean of the group)``.

    Source: arXiv 2501.03262. Whitened by default. TreePO on a tree of depth 1 is the same.
    Unsound: whitening shifts by a token-weighted mean, so the groups' sums are no longer 0.

    Args:
        parity: ``"official"``: a group of one keeps its raw reward.
    """
    return dr_grpo(forest, parity=parity)


def dapo(
    forest: Forest, *, std: Std = "unbiased", eps: float = 1e-6, parity: Parity = None
) -> OnLeaves:
    """DAPO: GRPO on the groups that pass its dynamic-sampling filter, the others masked.

    A group passes if its rewards differ: ``std > 0``. Source: arXiv 2503.14476.
    Sound: a uniform group's advantages are 0 anyway; masking also takes its tokens out of a
    token-mean loss. Refilling the batch, the clip bounds and the over-length penalty
    (``overlong_penalty``) are the trainer's and the reward's.

    Args:
        std: As in ``grpo``.
        eps: As in ``grpo``.
        parity: ``"official"``: a group of one passes and keeps its raw reward.
    """
    out = grpo(forest, std=std, eps=eps, parity=parity)
    differs = np.zeros(forest.n_groups)
    np.maximum.at(differs, forest.leaf_group, forest.shifted)
    passes = (differs > 0) | (forest.alone if parity == "official" else False)
    mask = out.mask & passes[forest.leaf_group]
    return OnLeaves(np.where(mask, out.values, 0.0), mask)
