"""What a comparison of two answers says."""

from __future__ import annotations

import time
from dataclasses import dataclass

from treerl.verdict import ToolCall

__all__ = ["NO", "YES", "Budget", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a comparison: True, False or None (cannot tell), with the rule that decided."""

    equal: bool | None
    reason: str
    calls: tuple[ToolCall, ...] = ()


class Budget:
    """Seconds that one answer may take: this thread's computing and what its tools report.

    Waiting for a free worker does not count, so that other callers change no verdict by it.

    Args:
        seconds: To spend from now on.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.thread_time() + seconds

    def charge(self, seconds: float) -> None:
        """Take off what a tool spent."""
        self._until -= seconds

    def left(self) -> float:
        """Return the seconds that are left, 0.0 at the end."""
        return max(self._until - time.thread_time(), 0.0)


YES = Outcome(True, "equal")
NO = Outcome(False, "not_equal")
