"""What every reader of files yields: rows of fields, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from treerl.errors import ProblemError

__all__ = ["ItemLine", "Number", "Row", "Rows"]


class Number(str):
    """A number as its file writes it, told apart from a string."""


class ItemLine(int):
    """The 1-based line of an item that shares it with other items of a JSON list.

    It prints with the item's number: where a whole list stands on one line, the line alone says
    nothing.
    """

    item: int

    def __new__(cls, line: int, item: int) -> Self:
        """Return the line; ``item`` counts from 1."""
        made = super().__new__(cls, line)
        made.item = item
        return made

    def __format__(self, spec: str) -> str:
        return f"{int(self):{spec}}, item {self.item}"


class Row(NamedTuple):
    """One row: its 1-based line (row number where there are no lines) and its fields."""

    line: int
    fields: dict[str, Any]


Rows = Iterator["Row | ProblemError"]
"""Rows in the order of their file; a bad one costs itself only."""
