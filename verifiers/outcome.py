"""What a comparison of two answers says."""

from __future__ import annotations

from dataclasses import dataclass

from treerl.verdict import ToolCall

__all__ = ["NO", "YES", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a comparison: True, False or None (cannot tell), with the rule that decided."""

    equal: bool | None
    reason: str
    calls: tuple[ToolCall, ...] = ()


YES = Outcome(True, "equal")
NO = Outcome(False, "not_equal")
