"""GiGPO: the episode against its group, each step against the other visits to its state."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from treerl.advantage.flat import Parity
from treerl.advantage.forest import Forest, ratio
from treerl.advantage.raw import OnNodes
from treerl.advantage.stats import Std, choice, normalise
from treerl.advantage.values import only
from treerl.arrays import FloatArray, IntArray

__all__ = ["GiGPOSteps", "gigpo", "gigpo_steps"]

ROUNDING = 1e-12  # of the mean square: a smaller variance is what rounding left of 0


@dataclass(frozen=True, slots=True)
class GiGPOSteps:
    """Advantages of one group of T trajectories with S steps in all.

    Attributes:
        episode: (T,) of the whole trajectory.
        step_returns: (S,) discounted reward from each step on.
        step: (S,) against the other steps that start in the same state.
        joint: (S,) episode + weight * step: what the tokens of a step are trained with.
    """

    episode: FloatArray
    step_returns: FloatArray
    step: FloatArray
    joint: FloatArray


def gigpo_steps(
    lengths: Sequence[int],
    states: Sequence[Hashable],
    rewards: Sequence[float],
    returns: Sequence[float],
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    std: Std = "none",
    eps: float = 1e-6,
    parity: Parity = None,
) -> GiGPOSteps:
    """Estimate on flat agent trajectories, whose states may come back.

    Args:
        lengths: (T,) steps of each trajectory.
        states: (S,) key of the state that each step starts in, trajectory after trajectory.
        rewards: (S,) reward of each step.
        returns: (T,) return of each trajectory.
        gamma: Discount a step.
        step_weight: Weight of the step's term.
        std: Which deviation divides both terms.
        eps: Added to it.
        parity: ``"official"``: the episode's baseline is a mean over step rows, so that long
            trajectories weigh more, as released code has it by default; the paper's Eq. 3 averages
            over trajectories.

    Raises:
        ValueError: Lengths that do not fit, or a parity that does not exist.
    """
    choice("parity", parity, (None, "official"))
    n = np.asarray(lengths, dtype=np.int64)
    if len(states) != n.sum() or len(rewards) != n.sum() or len(returns) != len(n):
        raise ValueError(
            f"{len(n)} lengths with {int(n.sum())} steps, but {len(states)} states, "
            f"{len(rewards)} rewards and {len(returns)} returns"
        )
    ret = _discounted(n, np.asarray(rewards, dtype=np.float64), gamma)
    one_group = np.zeros(len(n), dtype=np.int64)
    weight = n.astype(np.float64) if parity == "official" else np.ones(len(n))
    episode, _ = normalise(
        np.asarray(returns, dtype=np.float64), one_group, 1, weight, std=std, eps=eps
    )
    ids: dict[Hashable, int] = {}
    key = np.array([ids.setdefault(state, len(ids)) for state in states], dtype=np.int64)
    step, _ = normalise(ret, key, len(ids), np.ones(len(key)), std=std, eps=eps)
    return GiGPOSteps(episode, ret, step, np.repeat(episode, n) + step_weight * step)


def _discounted(n: IntArray, reward: FloatArray, gamma: float) -> FloatArray:
    """(S,) Σ_k gamma^k r_{t+k}, all trajectories going back together."""
    out, last = reward.copy(), np.cumsum(n) - 1
    for back in range(1, int(n.max(initial=0))):
        at = (last - back)[n > back]
        out[at] += gamma * out[at + 1]
    return out


def gigpo(
    forest: Forest,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    std: Std = "none",
    eps: float = 1e-6,
) -> OnNodes:
    """GiGPO on a tree: the states that several samples visit are the nodes themselves.

    ::

        G_i(p) = gamma^(D_i - 1 - depth(p)) R_i            return of leaf i from state p on
        A(n) = mean over L(n) of [ GRPO-like episode term_i
                                   + w (G_i(parent) - mean over L(parent)) / std ]

    Source: arXiv 2505.10978, the reward on the last step. Published code gives each row its own
    number; their mean over the rows that share a token is given here, which has the same gradient
    at ratio 1. (N,) values. At gamma 1 without std: (V(n) - V(0)) + w (V(n) - V(parent)). For
    trajectories that are no tree: ``gigpo_steps``.
    Unsound: leaf means, as ``vineppo``; the std of the few visits to a state.

    Args:
        gamma: Discount a segment.
        step_weight: w.
        std: Which deviation divides both terms.
        eps: Added to it.
    """
    known, size = forest.leaves_below > 0, forest.leaves_below
    episode, _ = normalise(
        forest.shifted, forest.leaf_group, forest.n_groups, forest.count, std=std, eps=eps
    )
    # Differences of undiscounted returns do not see the shift, and are exact with it.
    reward = forest.shifted if gamma == 1 else np.where(forest.scored, forest.reward, 0.0)
    total = forest.sum_up(forest.count * reward, gamma)
    mean = ratio(forest.over_children(total), size)[forest.parent]
    step = ratio(total, size) - mean
    if std != "none":
        squares = forest.sum_up(forest.count * reward * reward, gamma * gamma)
        squares = forest.over_children(squares)[forest.parent]
        visits = size[forest.parent]
        spread = squares - visits * mean * mean
        spread = np.where(spread > ROUNDING * squares, spread, 0.0)
        scale = np.sqrt(ratio(spread, visits - 1 if std == "unbiased" else visits))
        step = np.where(scale > 0, step / (scale + eps), 0.0) if eps else ratio(step, scale)
    values = ratio(forest.sum_up(forest.count * episode), size) + step_weight * step
    return only(forest, values, known)
