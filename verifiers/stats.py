"""Counts of what a verifier has said, for logs and reports."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from treerl.verdict import ToolCall, Verdict

__all__ = ["VerifierStats"]


class VerifierStats:
    """Counts by verdict and reason, tool calls by tool and status, and seconds spent.

    Safe to update from threads; :meth:`to_dict` is a plain dictionary for any logger.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.verdicts: Counter[tuple[str, str]] = Counter()
        self.tools: Counter[tuple[str, str]] = Counter()
        self.wall_time_s = 0.0
        self.tool_time_s = 0.0

    def count(
        self, verdict: Verdict, reason: str, calls: tuple[ToolCall, ...], wall_s: float
    ) -> None:
        """Add one verdict."""
        with self._lock:
            self.verdicts[(str(verdict), reason)] += 1
            self.wall_time_s += wall_s
            for call in calls:
                self.tools[(call.tool, call.status)] += 1
                self.tool_time_s += call.wall_time_s

    @property
    def total(self) -> int:
        """Number of verdicts counted."""
        return sum(self.verdicts.values())

    def share(self, verdict: Verdict) -> float:
        """Share of one verdict, 0 before the first."""
        total = self.total
        part = sum(n for (word, _), n in self.verdicts.items() if word == str(verdict))
        return part / total if total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return flat counters: ``verdict/REFUTED/unequal``, ``tool/sympy/timeout``, seconds."""
        with self._lock:
            flat: dict[str, Any] = {
                f"verdict/{word}/{reason}": n for (word, reason), n in sorted(self.verdicts.items())
            }
            flat |= {f"tool/{tool}/{status}": n for (tool, status), n in sorted(self.tools.items())}
            flat["wall_time_s"] = self.wall_time_s
            flat["tool_time_s"] = self.tool_time_s
        return flat
