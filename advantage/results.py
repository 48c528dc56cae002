"""What an estimator returns: numbers per leaf, per node, or per leaf and segment."""

from __future__ import annotations

from dataclasses import dataclass

from treerl.advantage.forest import BoolArray
from treerl.arrays import FloatArray

__all__ = ["Advantages", "GroupReport", "LeafAdvantages", "NodeAdvantages", "PathAdvantages"]


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What an estimator had to compare within one group.

    Attributes:
        group: The problem's id.
        trees: Positions of its trees in the input.
        leaves: Ended paths.
        samples: Scored samples, duplicates counted.
        unscored: Leaves without a reward; they are in no baseline and get no advantage.
        alone: At most one scored sample: a group of one has no baseline.
        uniform: All scored samples have the same reward: nothing to learn from the group.
    """

    group: str
    trees: tuple[int, ...]
    leaves: int
    samples: int
    unscored: int
    alone: bool
    uniform: bool


@dataclass(frozen=True, slots=True)
class LeafAdvantages:
    """One number a leaf, the same on every token of its path.

    Attributes:
        values: For each tree (L,) in the order of ``TreeArrays.leaves``; 0 where masked.
        mask: For each tree (L,) leaves that have an advantage and are trained.
        groups: One report a group.
        first_token: For each tree (N,) what is added on the first token of a node's segment; None
            where the estimator has no such term.
    """

    values: tuple[FloatArray, ...]
    mask: tuple[BoolArray, ...]
    groups: tuple[GroupReport, ...]
    first_token: tuple[FloatArray, ...] | None = None

    @property
    def alone(self) -> tuple[str, ...]:
        """Ids of the groups of one."""
        return tuple(report.group for report in self.groups if report.alone)


@dataclass(frozen=True, slots=True)
class NodeAdvantages:
    """One number a node, for the tokens of the segment that enters it, each counted once.

    Attributes:
        values: For each tree (N,); 0 at the root and where masked.
        mask: For each tree (N,) nodes that have an advantage and are trained.
        leaf_mask: For each tree (L,) leaves whose rows carry the nodes: the scored ones, or the one
            trajectory of a chain estimator.
        groups: One report a group.
    """

    values: tuple[FloatArray, ...]
    mask: tuple[BoolArray, ...]
    leaf_mask: tuple[BoolArray, ...]
    groups: tuple[GroupReport, ...]

    @property
    def alone(self) -> tuple[str, ...]:
        """Ids of the groups of one."""
        return tuple(report.group for report in self.groups if report.alone)


@dataclass(frozen=True, slots=True)
class PathAdvantages:
    """One number a leaf and segment: a shared token may differ between the rows that hold it.

    Attributes:
        values: For each tree (S,) where S is the sum of the leaves' depths: leaf after leaf, from
            depth 1 down to the leaf.
        mask: For each tree (L,) leaves that have an advantage and are trained.
        groups: One report a group.
    """

    values: tuple[FloatArray, ...]
    mask: tuple[BoolArray, ...]
    groups: tuple[GroupReport, ...]

    @property
    def alone(self) -> tuple[str, ...]:
        """Ids of the groups of one."""
        return tuple(report.group for report in self.groups if report.alone)


Advantages = LeafAdvantages | NodeAdvantages | PathAdvantages
