"""ReST-MCTS*: its back-up, its value targets, and a search set up like it.

The value target of a step grows from 0 at the question to 1 at a right answer, a share of what is
left for every step that leads there, and falls by the same share for a step that does not
(groundedprm.md §1.6). The published search itself is guided by a value model's raw output and uses
the targets for training only; so do these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from treerl.search.mcts import MCTSConfig
from treerl.search.rollout_reward import RolloutReward
from treerl.search.selection import PUBLISHED_EXPLORATION
from treerl.tree import Node, Tree

__all__ = [
    "ValueTarget",
    "mean_of_children",
    "mix_rollout",
    "restmcts_config",
    "value_targets",
    "value_targets_of_tree",
]


class ValueTarget(NamedTuple):
    """What ReST-MCTS* trains on at one step.

    Attributes:
        value: v in [0, 1], the value model's target.
        reaches: Whether a right answer was found below: its process reward model's hard label.
    """

    value: float
    reaches: bool


def mean_of_children(values: Sequence[float], visits: Sequence[int]) -> float | None:
    """Return V of a parent: the mean of its children's V by visits; None without a visit.

    Example:
        >>> mean_of_children([0.6, 0.3, 0.5], [2, 1, 0])
        0.5
    """
    total = sum(visits)
    if not total:
        return None
    return sum(v * n for v, n in zip(values, visits, strict=True)) / total


def mix_rollout(value: float, best: float, alpha: float = 0.5) -> float:
    """Return a node's V after a greedy rollout whose best step has the value ``best``."""
    return (1.0 - alpha) * value + alpha * best


def value_targets(remaining: Sequence[int], reaches: Sequence[bool | int]) -> list[float]:
    """Return v_k = max(0, v_{k-1} + (1 - v_{k-1})·r_k / m_k) along one path, v_0 = 0.

    Args:
        remaining: m_k, steps from before step k to the nearest right answer: 1 for the step that
            gives it. A step that reaches none has the m of the nearest step above that does.
        reaches: Whether a right answer lies at or below step k; r_k is 1 then, else -1.

    Raises:
        ValueError: Lengths differ, or an m is below 1.

    Example:
        >>> value_targets([2, 1], [True, True])
        [0.5, 1.0]
    """
    out, value = [], 0.0
    for m, right in zip(remaining, reaches, strict=True):
        value = _next_value(value, m, bool(right))
        out.append(value)
    return out


def _next_value(before: float, remaining: int, reaches: bool) -> float:
    if remaining < 1:
        raise ValueError(f"the number of remaining steps is at least 1, got {remaining}")
    return max(0.0, before + (1.0 - before) * (1 if reaches else -1) / remaining)


def value_targets_of_tree(tree: Tree, right_above: float = 0.5) -> dict[int, ValueTarget]:
    """Return the target of every step that lies on a path with a known outcome, by node index.

    Nodes without text are no steps: they take no share. A tree without a right answer has no
    targets at all, since nothing says how far each step is from one.

    Args:
        tree: A finished tree; its leaves' rewards are the outcomes.
        right_above: A reward above it is a right answer.
    """
    scored: set[int] = set()  # nodes with a scored leaf at or below
    distance: dict[int, int] = {}  # node -> steps behind it up to the nearest right answer
    for node in reversed(tree.nodes):
        if node.is_leaf and node.reward is not None:
            scored.add(node.index)
            if node.reward > right_above:
                distance[node.index] = 0
        if node.parent is None:
            continue
        above = node.parent.index
        if node.index in scored:
            scored.add(above)
        if node.index in distance:
            through = distance[node.index] + _is_step(node)
            distance[above] = min(distance.get(above, through), through)
    if 0 not in distance:
        return {}
    targets: dict[int, ValueTarget] = {}
    values = {0: 0.0}
    remaining = {0: distance[0]}  # m of each node; wrong ones inherit it
    for node in tree.nodes[1:]:
        assert node.parent is not None
        if node.index not in scored:
            continue
        above = node.parent.index
        reaches = node.index in distance
        values[node.index] = values[above]
        remaining[node.index] = distance[node.index] + 1 if reaches else remaining[above]
        if _is_step(node):
            m = max(remaining[node.index], 1)
            values[node.index] = _next_value(values[above], m, reaches)
            targets[node.index] = ValueTarget(values[node.index], reaches)
    return targets


def _is_step(node: Node) -> bool:
    return bool(node.text)


def restmcts_config(**options: Any) -> MCTSConfig:
    """Return a search set up like ReST-MCTS*; options are those of :class:`MCTSConfig`.

    Three children, its bound with c = 0.7, values that are outcomes alone and are not discounted.
    A rollout takes the place of the value model's estimate, which a search without a model lacks.
    """
    config = MCTSConfig(
        selection="restmcts",
        exploration=PUBLISHED_EXPLORATION["restmcts"],
        children=3,
        discount=1.0,
        rollout_reward=RolloutReward(verdicts=False),
    )
    return replace(config, **options)
