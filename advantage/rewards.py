"""Rewards before they become advantages: several of them, left-out leaves, filters, penalties."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from treerl.advantage.forest import Forest
from treerl.advantage.stats import choice, normalise
from treerl.arrays import FloatArray, TreeArrays

__all__ = ["combine_rewards", "dapo_filter", "drop_leaves", "overlong_penalty", "with_rewards"]


def with_rewards(tree: TreeArrays, rewards: FloatArray) -> TreeArrays:
    """Return the tree with other rewards.

    Args:
        tree: The tree.
        rewards: (L,) in the order of ``tree.leaves``; NaN for unscorable.
    """
    if np.shape(rewards) != (len(tree.leaves),):
        raise ValueError(
            f"rewards have shape {np.shape(rewards)}, but the tree of group {tree.group!r} has "
            f"{len(tree.leaves)} leaves"
        )
    out = np.full(len(tree.parent), np.nan)
    out[tree.leaves] = rewards
    return replace(tree, reward=out)


def combine_rewards(
    trees: Sequence[TreeArrays],
    rewards: Mapping[str, Sequence[FloatArray]],
    *,
    weights: Mapping[str, float] | None = None,
    how: Literal["sum", "gdpo"] = "sum",
    eps: float = 1e-6,
) -> list[TreeArrays]:
    """Merge several rewards into one.

    ``"sum"`` adds w_k R_k. ``"gdpo"`` first normalises every reward on its own within the group,
    ``(R_k - mean) / (std + eps)`` with std over n - 1, so that rewards of different scale count as
    their weights say and different mixtures stay different; follow it with ``dr_grpo`` and
    ``whiten=True`` for GDPO (arXiv 2601.05242), or with any tree estimator.

    Args:
        trees: The trees; groups go by ``TreeArrays.group``.
        rewards: For each reward's name (L,) values a tree, as in ``with_rewards``. A leaf that one
            reward cannot score is unscored in all.
        weights: For each name; default 1.
        how: ``"sum"`` or ``"gdpo"``.
        eps: Added to the deviation.

    Raises:
        ValueError: No reward, names or shapes that do not fit.
    """
    choice("how", how, ("sum", "gdpo"))
    if not rewards:
        raise ValueError("no rewards to combine")
    if weights is not None and set(weights) != set(rewards):
        raise ValueError(
            f"weights are for {sorted(weights)}, but the rewards are {sorted(rewards)}"
        )
    for name, values in rewards.items():
        if len(values) != len(trees):
            raise ValueError(f"reward {name!r} has {len(values)} arrays for {len(trees)} trees")
    total = [np.zeros(len(tree.leaves)) for tree in trees]
    known = [np.ones(len(tree.leaves), dtype=bool) for tree in trees]
    for values in rewards.values():
        for i, value in enumerate(values):
            known[i] &= ~np.isnan(with_rewards(trees[i], value).reward[trees[i].leaves])
    for name, values in rewards.items():
        weight = 1.0 if weights is None else weights[name]
        masked = [np.where(k, v, np.nan) for k, v in zip(known, values, strict=True)]
        if how == "gdpo":
            masked = _normalised(trees, masked, eps)
        total = [t + weight * v for t, v in zip(total, masked, strict=True)]
    return [with_rewards(tree, value) for tree, value in zip(trees, total, strict=True)]


def _normalised(
    trees: Sequence[TreeArrays], rewards: Sequence[FloatArray], eps: float
) -> list[FloatArray]:
    forest = Forest([with_rewards(tree, value) for tree, value in zip(trees, rewards, strict=True)])
    values, _ = normalise(
        forest.shifted, forest.leaf_group, forest.n_groups, forest.count, std="unbiased", eps=eps
    )
    return list(forest.split_leaves(np.where(forest.scored, values, np.nan)))


def drop_leaves(tree: TreeArrays, leaves: Collection[int]) -> TreeArrays:
    """Take leaves out of every baseline: their rewards become unknown.

    To keep a leaf in the baselines but out of the loss, use ``to_rows(no_loss=…)``.

    Args:
        tree: The tree.
        leaves: Their node indices.
    """
    at = np.array(sorted(leaves), dtype=np.int64)
    if not np.isin(at, tree.leaves).all():
        bad = at[~np.isin(at, tree.leaves)].tolist()
        raise ValueError(f"nodes {bad} of the tree of group {tree.group!r} are no leaves")
    reward = tree.reward.copy()
    reward[at] = np.nan
    return replace(tree, reward=reward)


def dapo_filter(
    trees: Sequence[TreeArrays], *, keep_alone: bool = True
) -> tuple[list[TreeArrays], tuple[str, ...]]:
    """DAPO's dynamic sampling: keep the groups whose rewards differ.

    Args:
        trees: The trees.
        keep_alone: Keep a group of one scored sample, as published code does.

    Returns:
        The trees of the kept groups, and the ids of the others: problems to replace.
    """
    forest = Forest(trees)
    highest = np.zeros(forest.n_groups)
    np.maximum.at(highest, forest.leaf_group, forest.shifted)
    keep = highest > 0
    if keep_alone:
        keep |= forest.samples == 1
    kept = [t for t, g in zip(forest.trees, forest.tree_group.tolist(), strict=True) if keep[g]]
    return kept, tuple(g for g, k in zip(forest.groups, keep.tolist(), strict=True) if not k)


def overlong_penalty(
    length: FloatArray | int, *, max_length: int, buffer: int, factor: float = 1.0
) -> FloatArray:
    """DAPO's soft penalty: 0 up to max_length - buffer tokens, then down to -factor at max_length.

    Args:
        length: Tokens of the response, any shape.
        max_length: The cap.
        buffer: Tokens before the cap over which the penalty grows.
        factor: Its size at the cap.
    """
    over = np.asarray(length, dtype=np.float64) - (max_length - buffer)
    return np.minimum(-over / buffer * factor, 0.0)
