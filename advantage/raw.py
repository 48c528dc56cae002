"""What the estimators compute on a forest, before it is cut back into trees."""

from __future__ import annotations

from dataclasses import dataclass

from treerl.advantage.forest import BoolArray
from treerl.arrays import FloatArray

__all__ = ["OnLeaves", "OnNodes", "OnPaths", "Raw"]


@dataclass(frozen=True, slots=True)
class OnLeaves:
    """(L,) values, (L,) mask, and perhaps (N,) what is added to a segment's first token."""

    values: FloatArray
    mask: BoolArray
    first_token: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class OnNodes:
    """(N,) values, (N,) mask; (L,) leaves whose rows carry them, None for all scored ones."""

    values: FloatArray
    mask: BoolArray
    leaf_mask: BoolArray | None = None


@dataclass(frozen=True, slots=True)
class OnPaths:
    """(S,) values along all paths (see ``paths``), (L,) mask."""

    values: FloatArray
    mask: BoolArray


Raw = OnLeaves | OnNodes | OnPaths
