"""Values of a foreign row, checked as they are taken out.

Every mistake ends in one :class:`~treerl.errors.ProblemError` that names file, line and field, so
the readers of the formats say what they want and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from treerl.errors import ProblemError
from treerl.readers import Number

__all__ = ["Cell"]

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with its place.

    Attributes:
        value: As :func:`treerl.readers.read_rows` gives it: numbers are :class:`Number`.
        file, line: Where the row stands.
        field: Path of the value in its row, "label.steps[2].chosen_completion".
    """

    value: Any
    file: str
    line: int
    field: str = ""

    def error(self, message: str, mend: str) -> ProblemError:
        """Make the error that this value gives."""
        return ProblemError(
            message, file=self.file, line=self.line, field=self.field or None, mend=mend
        )

    def get(self, key: str) -> Cell | None:
        """Return the value of a key, None where it is absent or null."""
        cell = self._at(key)
        return None if cell.value is _ABSENT or cell.value is None else cell

    def __getitem__(self, key: str) -> Cell:
        cell = self._at(key)
        if cell.value is _ABSENT:
            raise cell.error("the field is missing", "is the file of the format you named?")
        return cell

    def _at(self, key: str) -> Cell:
        if not isinstance(self.value, dict):
            raise self._unlike("an object")
        field = f"{self.field}.{key}" if self.field else key
        return Cell(self.value.get(key, _ABSENT), self.file, self.line, field)

    def items(self) -> list[Cell]:
        """Return the values of a list."""
        if not isinstance(self.value, list):
            raise self._unlike("a list")
        return [
            Cell(value, self.file, self.line, f"{self.field}[{i}]")
            for i, value in enumerate(self.value)
        ]

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str) or isinstance(self.value, Number):
            raise self._unlike("a string")
        if any("\ud800" <= char <= "\udfff" for char in self.value):
            raise self.error("the text is not valid UTF-8", "convert the file to UTF-8")
        return str(self.value)

    def integer(self) -> int:
        """Return a whole number."""
        # A parquet file gives plain numbers, a JSON one the text that they were written in.
        try:
            if isinstance(self.value, int | Number) and not isinstance(self.value, bool):
                return int(self.value)
        except ValueError:
            pass
        raise self._unlike("a whole number")

    def share(self) -> float:
        """Return a number in [0, 1]."""
        value = self._float()
        if not 0.0 <= value <= 1.0:  # NaN too
            raise self.error(
                f"{value} is not between 0 and 1", "correct the value, or skip the row"
            )
        return value

    def label(self, threshold: float) -> tuple[int | None, float | None]:
        """Return a hard and a soft label of true, false, 0, 1, a number between, or null.

        A number written as one with a fraction, 1.0 too, is a soft label: a column of beliefs must
        not lose some of them.
        """
        if self.value is None:
            return None, None
        if isinstance(self.value, bool):
            return int(self.value), None
        share = self.share()
        if str(self.value) in ("0", "1"):
            return int(share), None
        return int(share > threshold), share

    def plain(self) -> Any:
        """Return the value with plain numbers in it."""
        return _plain(self.value)

    def _float(self) -> float:
        try:
            numbers = int | float | Number
            if isinstance(self.value, numbers) and not isinstance(self.value, bool):
                return float(self.value)
        except ValueError:
            pass
        raise self._unlike("a number")

    def _unlike(self, wanted: str) -> ProblemError:
        kinds: list[tuple[type, str]] = [
            (dict, "an object"),
            (list, "a list"),
            (Number, "a number"),
            (str, "a string"),
            (bool, "true or false"),
            (int, "a number"),
            (float, "a number"),
        ]
        kind = next((name for type_, name in kinds if isinstance(self.value, type_)), "null")
        return self.error(f"{kind} stands where {wanted} must", "correct the row, or skip it")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Number):
        try:
            return int(value)
        except ValueError:
            number = float(value)
            return number if math.isfinite(number) else None
    return value
