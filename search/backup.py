"""Back-up: how one simulation changes the statistics of its path.

Sums only, so the order of back-ups does not matter beyond float rounding, and
N(parent) = own simulations + Σ N(children) holds after each (law 5 of the design).
"""

from __future__ import annotations

from collections.abc import Sequence

from treerl.tree import Node

__all__ = ["back_up", "back_up_counts"]


def back_up(nodes: Sequence[Node], values: Sequence[float], discount: float = 1.0) -> None:
    """Back up one simulation.

    Every node of the rollout gets its own value; the ancestors of the first one get that node's
    value, discounted by γ a level (groundedprm.md §1.4).

    Args:
        nodes: The start node and the rollout's nodes below it, each the parent of the next.
        values: One value a node.
        discount: γ.
    """
    nodes[-1].own += 1
    for node, value in zip(nodes, values, strict=True):
        node.visits += 1
        node.value_sum += value
    value = values[0]
    current = nodes[0].parent
    while current is not None:
        value *= discount
        current.visits += 1
        current.value_sum += value
        current = current.parent


def back_up_counts(leaf: Node, right: bool) -> None:
    """Count one scored sample in its leaf and in all ancestors."""
    current: Node | None = leaf
    while current is not None:
        current.total += 1
        current.correct += right
        current = current.parent
