"""Problems: what a tree grows from."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["GIVEN", "Problem"]

GIVEN = "solutions"
"""Key of a problem's metadata that holds given solutions, each a list of steps."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, and, where known, its answer.

    Attributes:
        id: Unique within a run; it enters every seed. Any printable text, path separators too: it
            is written into files, never used as the name of one.
        messages: The conversation up to the assistant's turn, objects with "role" and "content".
        answer: The gold answer as a string, exactly as in the file; None if unknown.
        metadata: Anything else of the row; goes to the run folder untouched.
    """

    id: str
    messages: tuple[Mapping[str, str], ...]
    answer: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not isinstance(self.answer, str | None):
            raise TypeError("the id of a problem is a string, its answer a string or None")
        if not self.id:
            raise ValueError("a problem needs an id")
        if bad := next((c for c in self.id if unicodedata.category(c) in _UNFIT_FOR_IDS), None):
            raise ValueError(f"the id {self.id!r} holds the control character {bad!r}")
        if not self.messages:
            raise ValueError(f"problem {self.id!r} has no message")

    @classmethod
    def from_text(
        cls,
        id: str,
        question: str,
        answer: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Problem:
        """Make a problem of one user message."""
        message = {"role": "user", "content": question}
        return cls(id=id, messages=(message,), answer=answer, metadata=metadata or {})

    @property
    def text(self) -> str:
        """The user's words: what verifiers read as the problem statement."""
        return "\n\n".join(m["content"] for m in self.messages if m["role"] == "user")

    def conversation(self, system: str | None = None) -> list[dict[str, str]]:
        """Return the messages, with a system prompt in front unless they have their own."""
        messages: Sequence[Mapping[str, str]] = self.messages
        has_system = bool(messages) and messages[0]["role"] == "system"
        front = [{"role": "system", "content": system}] if system and not has_system else []
        return front + [dict(m) for m in messages]


_UNFIT_FOR_IDS = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, half surrogate pairs, line and paragraph separators."""
