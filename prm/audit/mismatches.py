"""Something stored that does not follow from the rest, and how to say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treerl.runfiles import short_json
from treerl.runreader import Line

__all__ = ["Mismatch", "difference", "file_in"]

_ABSENT = object()

_AROUND = 20
"""Characters shown before the place where two long texts part."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something stored that does not follow from the rest.

    Attributes:
        what: "verdict" (the tool says something else now), "evidence" (label and tree differ),
            "counts" (the tree's counts are not those of its leaves), "label" (the fusion of the
            run makes another label of this evidence), "content" (problem, steps or id are not the
            tree's), "missing" (a step has no label), "repeated" (a second label of a step), or
            "file" (manifest, shards, summary, conflicts or failures).
        stored, found: Both sides, short.
        file: Where it is stored, inside the run folder.
        line: There, from 1; None where no line is at fault.
        field: The field at fault, dotted; empty where it is the whole record.
        problem_id, node: The step; None where it is about no step.
    """

    what: str
    stored: str
    found: str
    file: str
    line: int | None = None
    field: str = ""
    problem_id: str | None = None
    node: int | None = None

    @property
    def place(self) -> str:
        """Where it is stored: file, line, step and field."""
        words = [self.file]
        if self.line is not None:
            words.append(f"line {self.line}")
        if self.problem_id is not None:
            node = "" if self.node is None else f"node {self.node} of "
            words.append(f"{node}problem '{self.problem_id}'")
        if self.field:
            words.append(f"'{self.field}'")
        return ", ".join(words)


def difference(
    what: str, stored: Mapping[str, Any], found: Mapping[str, Any], **place: Any
) -> Mismatch | None:
    """Return the first field in which two JSON objects differ as a mismatch, None where none does.

    Args:
        what: Its kind.
        stored, found: The objects.
        place: The other attributes of the mismatch.
    """
    parted = next(_differing(stored, found), None)
    if parted is None:
        return None
    field, old, new = parted
    old, new = _parted(old, new)
    return Mismatch(what, _shown(old), _shown(new), field=field, **place)


def _differing(old: Any, new: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the places where two JSON values differ; to JSON, unlike to Python, true is no 1."""
    dot = f"{field}." if field else ""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _differing(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{dot}{name}")
    elif isinstance(old, list) and isinstance(new, list):
        for i in range(max(len(old), len(new))):
            pair = [side[i] if i < len(side) else _ABSENT for side in (old, new)]
            yield from _differing(pair[0], pair[1], f"{dot}{i}")
    elif isinstance(old, bool) != isinstance(new, bool) or old != new:
        yield field, old, new


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else short_json(value)


def _parted(old: Any, new: Any) -> tuple[Any, Any]:
    """Cut what two long texts have in common at their beginnings."""
    if not (isinstance(old, str) and isinstance(new, str)):
        return old, new
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    same = same or min(len(old), len(new)) * (old[:1] == new[:1])
    start = max(same - _AROUND, 0)
    return (f"…{old[start:]}", f"…{new[start:]}") if start else (old, new)


def file_in(run: Path, line: Line) -> str:
    """Return the name of a line's file inside its run."""
    return line.file.relative_to(run).as_posix()
