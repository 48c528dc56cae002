"""Which format a file has, by the fields of its first row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treerl.errors import ConfigError, ProblemError
from treerl.readers import read_rows

__all__ = ["guess_format"]


def guess_format(path: str | Path) -> str:
    """Return the name of the format that a file's first whole row has.

    Raises:
        ConfigError: No format has such rows.
        ProblemError: The file cannot be read, or holds no whole row.
    """
    damaged: ProblemError | None = None
    for row in read_rows(Path(path)):
        if isinstance(row, ProblemError):
            damaged = damaged or row
            continue
        name = _format_of(row.fields)
        if name is None:
            fields = ", ".join(map(str, list(row.fields)[:8]))
            raise ConfigError(f"{path}: no known format has the fields {fields}; name the format")
        return name
    raise damaged or ProblemError("there is no row", file=path, mend="write rows into it")


def _format_of(row: Mapping[str, Any]) -> str | None:
    keys = set(row)
    for name, fields in _FIELDS.items():
        if fields <= keys:
            return name
    if "reasoning_steps" in keys:
        return "openr-tree" if isinstance(row["reasoning_steps"], dict) else "openr"
    if isinstance(row.get("question"), dict) and "label" in keys:
        return "prm800k"
    turns = row.get("messages") or row.get("conversations")
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], dict):
        return None
    return "chat" if turns[0].get("role") == "system" else "rlhflow"


_FIELDS = {
    "processbench": {"problem", "steps", "label"},
    "trl": {"prompt", "completions", "labels"},
    "openr-converted": {"question", "process"},
    "math-shepherd": {"input", "label"},
    "qwen": {"messages", "labels"},
}
"""Fields by which a row is known."""
