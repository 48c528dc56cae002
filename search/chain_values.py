"""Step values and advantages of solutions, from the rollouts of their prefixes.

* VinePPO (arXiv 2410.01679): A(s_t, a_t) = r_t + V(s_{t+1}) - V(s_t) with V from independent
  rollouts of s_t, the reward on the last step alone and V(terminal) = 0.
* SPO-chain (arXiv 2505.23564): the segment between two cut points is worth the difference of their
  values, the final reward being the last one.

Putting V(s_T) = R, both are one formula: the difference of neighbouring values. What the two
publications add is the trainer's: VinePPO whitens over the batch, SPO-chain cuts by token
probability and leaves tokens out that the policy was sure of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treerl.arrays import FloatArray, IntArray
from treerl.tree import Node, Tree

__all__ = ["ChainValues", "chain_values", "step_advantages"]


@dataclass(frozen=True)
class ChainValues:
    """One solution of T steps.

    Attributes:
        nodes: (T,) index of each step's node; a node without text is no step of its own.
        values: (T+1,) V(s_0) of the question … V(s_{T-1}) before the last step, shares of right
            rollouts, then V(s_T) = R, 1 for a right answer and 0 for a wrong one. NaN where a
            prefix was not estimated or none of its rollouts could be scored, or where the solution
            itself could not.
        advantages: (T,) V(s_{t+1}) - V(s_t); NaN next to a NaN.
    """

    nodes: IntArray  # (T,)
    values: FloatArray  # (T+1,)
    advantages: FloatArray  # (T,)

    @property
    def reward(self) -> float:
        """R of the solution."""
        return float(self.values[-1])


def step_advantages(values: FloatArray) -> FloatArray:
    """Return V(s_{t+1}) - V(s_t) of (T+1,) values, shape (T,).

    Example:
        >>> step_advantages(np.array([0.5, 0.75, 0.0])).tolist()
        [0.25, -0.75]
    """
    return np.diff(values)


def chain_values(tree: Tree) -> list[ChainValues]:
    """Return values and advantages of every solution of a finished prefix Monte Carlo tree.

    Raises:
        ValueError: The tree is of another algorithm, or the question itself was not estimated,
            so that no first step could have an advantage.
    """
    ends = (tree.root.meta or {}).get("solutions")
    if ends is None:
        raise ValueError(
            f"the tree of problem '{tree.problem.id}' has no solutions to value: it was not grown "
            "by PrefixMC"
        )
    if ends and not tree.root.total:
        raise ValueError(
            f"no rollout from the question of problem '{tree.problem.id}' was scored, so its first "
            "steps have no advantage; set PrefixMCConfig(estimate_root=True)"
        )
    return [_of_solution(tree, tree.nodes[end]) for end in ends]


def _of_solution(tree: Tree, leaf: Node) -> ChainValues:
    steps = [node for node in tree.path(leaf) if node.text]
    before = [tree.root, *steps[:-1]] if steps else []
    reward = _share(leaf)
    values = np.array([*(_share(node) for node in before), reward], dtype=np.float64)
    nodes = np.array([node.index for node in steps], dtype=np.int64)
    return ChainValues(nodes, values, step_advantages(values))


def _share(node: Node) -> float:
    return np.nan if node.mc is None else node.mc
