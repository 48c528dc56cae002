"""The rows that `treerl verify` judges: which fields they have, and what is wrong with the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from treerl.errors import ProblemError

if TYPE_CHECKING:
    from treerl.readers import Row, Rows

__all__ = ["RESPONSE_FIELDS", "STEPS_FIELDS", "Fields", "Reader", "Task"]

RESPONSE_FIELDS = (
    "response",
    "completion",
    "prediction",
    "generation",
    "generated_text",
    "model_output",
    "output",
    "pred",
    "messages",
)
STEPS_FIELDS = ("steps", "completions", "solution", *RESPONSE_FIELDS, "answer")


@dataclass
class Fields:
    """Which fields are read; settled on the first row where they are not given."""

    file: str
    steps: bool
    response: str | None
    gold: str | None
    problem: str | None
    found: bool = False
    asked: bool = False
    response_asked: bool = False

    def __post_init__(self) -> None:
        self.asked = self.problem is not None
        self.response_asked = self.response is not None

    def settle(self, row: Row) -> None:
        """Find the fields that were not given.

        Raises:
            ProblemError: There is none with a usual name.
        """
        from treerl.fields import ANSWER_FIELDS, QUESTION_FIELDS

        usual = STEPS_FIELDS if self.steps else RESPONSE_FIELDS
        self.response = self.response or _first(row, usual)
        if self.response is None:
            raise self._not_found(row, "response", "--response-field")
        if self.steps:
            others = [name for name in QUESTION_FIELDS if name != self.response]
            self.problem = self.problem or _first(row, others)
        else:
            others = [name for name in ANSWER_FIELDS if name != self.response]
            self.gold = self.gold or _first(row, others)
            if self.gold is None:
                raise self._not_found(row, "gold answer", "--gold-field")
        self.found = True

    def names(self) -> str:
        """Return the fields in use."""
        return ", ".join(filter(None, (self.problem, self.response, self.gold)))

    def get(self, row: Row, name: str) -> Any:
        """Return a field's value.

        Raises:
            ProblemError: The row has no such field.
        """
        there, value = _lookup(row.fields, name)
        if not there:
            message = f"there is no such field; the fields are {_list(row)}"
            raise ProblemError(message, file=self.file, line=row.line, field=name)
        return value

    def steps_of(self, row: Row) -> tuple[str, Any]:
        """Return the field of a row's solution and its value.

        Rows of one file may differ: one has a list of steps, the next the text of a solution.

        Raises:
            ProblemError: The row has no field with the given name, or with a usual one.
        """
        assert self.response is not None
        name: str | None = self.response
        if not self.response_asked:
            name = _first(row, (self.response, *STEPS_FIELDS))
            if name is None:
                raise self._not_found(row, "solution", "--response-field")
        assert name is not None
        return name, self.get(row, name)

    def problem_of(self, row: Row) -> Any:
        """Return the row's problem, None where it has none and nobody named the field.

        A step can be judged without its problem; a field that was named must be there.

        Raises:
            ProblemError: The row has no field of the name that was given.
        """
        from treerl.fields import QUESTION_FIELDS

        if self.asked and self.problem is not None:
            return self.get(row, self.problem)
        name = _first(row, [name for name in QUESTION_FIELDS if name != self.response])
        return None if name is None else _lookup(row.fields, name)[1]

    def bad(self, row: Row, name: str | None, message: str) -> ProblemError:
        """Return an error that names the row and the field."""
        return ProblemError(message, file=self.file, line=row.line, field=name)

    def _not_found(self, row: Row, what: str, option: str) -> ProblemError:
        return ProblemError(
            f"no field for the {what} was found; the fields are {_list(row)}",
            file=self.file,
            line=row.line,
            mend=f"name it with {option}",
        )


@dataclass
class Reader:
    """Rows without the bad ones."""

    fields: Fields
    rows: Rows
    skip: bool
    good: int = 0
    errors: list[ProblemError] = field(default_factory=list)

    def read(self, task: Callable[[Row], Task]) -> Iterator[Task]:
        """Yield what is to be judged."""
        for row in self.rows:
            try:
                if isinstance(row, ProblemError):
                    raise row
                if not self.fields.found:
                    self.fields.settle(row)
                made = task(row)
            except ProblemError as error:
                if not self.skip or (not self.fields.found and not isinstance(row, ProblemError)):
                    raise
                self.errors.append(error)
                continue
            self.good += 1
            yield made

    def nothing(self) -> ProblemError:
        """Return why there is nothing to judge."""
        if not self.errors:
            return ProblemError("the file holds no row", file=self.fields.file)
        first = self.errors[0]
        message = f"none of the {len(self.errors):,} rows can be used; the first: {first.message}"
        return ProblemError(
            message, file=first.file, line=first.line, field=first.field, mend=first.mend
        )


class Task(NamedTuple):
    """What is judged: a response with its gold, or steps with their problem."""

    line: int
    what: Any
    against: Any


def _lookup(fields: Any, name: str) -> tuple[bool, Any]:
    """Return whether there is a field, and its value; a dot steps into an object."""
    if not isinstance(fields, dict):
        return False, None
    if name in fields:
        return True, fields[name]
    head, dot, rest = name.partition(".")
    return _lookup(fields.get(head), rest) if dot else (False, None)


def _first(row: Row, names: Sequence[str]) -> str | None:
    return next((name for name in names if _lookup(row.fields, name)[0]), None)


def _list(row: Row) -> str:
    shown = [repr(name) for name in islice(row.fields, 20)]
    return ", ".join(shown + ["…"] * (len(row.fields) > len(shown))) or "none"
