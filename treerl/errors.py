"""What can go wrong, on one screen.

::

    TreeRLError
    ├── ProblemError        a row of a problem file cannot be used: file, line, field, mend
    ├── ConfigError         options that contradict each other or do not fit the input
    ├── PromptTooLong       a prompt leaves no room in the model's context
    ├── MissingExtra        an optional part of treerl is not installed
    ├── StoreError          a run folder cannot be read or written
    │   ├── StoreLocked     another process writes to the folder
    │   └── StoreMismatch   the folder belongs to another run or schema
    └── EngineError         a request failed; `retryable` says whether a second try may help
        └── EngineDied      the engine itself is gone: no later request can succeed

Mistakes in a call (a wrong type, a value out of range) are TypeError and ValueError as usual. Model
text never raises: whatever a model writes ends as a verdict with a reason.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "ConfigError",
    "EngineDied",
    "EngineError",
    "MissingExtra",
    "ProblemError",
    "PromptTooLong",
    "StoreError",
    "StoreLocked",
    "StoreMismatch",
    "TreeRLError",
]


class TreeRLError(Exception):
    """Base of every error that treerl raises on purpose; its text is one plain sentence."""


class ProblemError(TreeRLError):
    """A row of a problem file cannot be used.

    Args:
        message: What is wrong.
        file: Where the row stands.
        line: 1-based line or row number.
        field: The field at fault.
        mend: What the user can do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        mend: str | None = None,
    ) -> None:
        self.message, self.file, self.line, self.field, self.mend = message, file, line, field, mend
        place = [str(file)] if file is not None else []
        if line is not None:
            place.append(f"line {line}")
        if field is not None:
            place.append(f"field '{field}'")
        text = f"{', '.join(place)}: {message}" if place else message
        super().__init__(f"{text}; {mend}" if mend else text)


class ConfigError(TreeRLError):
    """Options contradict each other or do not fit the input."""


class PromptTooLong(TreeRLError):
    """A prompt leaves no room for generation in the model's context."""


class MissingExtra(TreeRLError):
    """An optional part of treerl is not installed.

    Args:
        what: What the user asked for, e.g. "the hf engine".
        extra: The extra that brings it, e.g. "local".
    """

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs an optional part: pip install 'treerl[{extra}]'")


class StoreError(TreeRLError):
    """A run folder cannot be read or written."""


class StoreLocked(StoreError):
    """Another process is writing to the run folder."""


class StoreMismatch(StoreError):
    """The run folder was made by another run, another configuration or another schema."""


class EngineError(TreeRLError):
    """A request failed.

    Attributes:
        retryable: True where the same request may succeed later (a timeout, a full queue).
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message)


class EngineDied(EngineError):
    """The engine is gone; every later request fails too."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)
