"""Solutions that somebody else wrote, joined to their problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treerl.errors import ProblemError
from treerl.problem import GIVEN

if TYPE_CHECKING:
    from treerl.loading import LoadedProblems
    from treerl.prm.formats.cells import Cell
    from treerl.problem import Problem
    from treerl.readers import Row

__all__ = ["JoinedSolutions", "join_solutions", "without_given"]

SOLUTION_FIELDS = (
    "steps",
    "completions",
    "solution",
    "response",
    "completion",
    "prediction",
    "generation",
    "generated_text",
    "model_output",
    "output",
)
_TEXT_FIELDS = ("problem", "question", "statement", "query")
_ID_FIELDS = ("problem_id", "question_id")
"""Looked for before the usual names of ids: a solution may have an id of its own."""


@dataclass(frozen=True, slots=True)
class JoinedSolutions:
    """Problems with their solutions.

    Attributes:
        problems: Those with at least one solution, which stands in their metadata.
        count: Solutions in all.
        errors: One for each row that was skipped.
        without: Problems that have no solution and are left out.
        field: The field that the solutions were taken from.
    """

    problems: tuple[Problem, ...]
    count: int
    errors: tuple[ProblemError, ...]
    without: int
    field: str

    def summary(self, source: str) -> str:
        """Say in one sentence what was joined and what was left out."""
        n, m = self.count, len(self.problems)
        text = f"{n:,} solution{'s' * (n != 1)} from {source} ({self.field}) of {m:,} of them"
        if self.without:
            text += f", {self.without:,} problems without a solution are left out"
        if self.errors:
            skipped = len(self.errors)
            text += f", {skipped:,} bad row{'s' * (skipped != 1)} skipped (first: {self.errors[0]})"
        return text


def join_solutions(
    loaded: LoadedProblems,
    source: str,
    *,
    split: str | None = None,
    solution_field: str | None = None,
    id_field: str | None = None,
    delimiter: str = "\n\n",
    skip: bool = False,
    limited: bool = False,
) -> JoinedSolutions:
    """Read solutions and give them to their problems.

    A row belongs to the problem whose text it repeats, or else to the one that its id names. Where
    the problems come from the same source, each row belongs to its own problem.

    Args:
        loaded: The problems.
        source: A file, a folder, or a hub id.
        split: Of the source.
        solution_field: A list of steps, a text, or a conversation; found where it has a usual name.
        id_field: The id of the problem; found where it has a usual name.
        delimiter: What ends a step where a solution is one text.
        skip: Leave bad rows out and count them, instead of raising.
        limited: Only a part of the problems was loaded, so rows of unknown ones are no mistakes.

    Raises:
        ProblemError: A row is bad, names no problem, or no row is good.
    """
    from treerl.sources import open_source

    own = source == loaded.source or _same_file(source, loaded.source)
    file, stem, rows = open_source(source, split)
    join = _Join(loaded.problems, file, stem, solution_field, id_field, delimiter, own)
    join.partly = limited or own  # of its own rows, those that made no problem were dealt with
    if own and id_field is None:
        join.id_field = loaded.fields.get("id")
    errors: list[ProblemError] = []
    for index, row in enumerate(rows):
        try:
            if isinstance(row, ProblemError):
                raise row
            join.take(index, row)
        except ProblemError as error:
            if not skip or isinstance(error, _NoField):
                raise
            if not own or not isinstance(row, ProblemError):
                errors.append(error)
    if not join.found:
        raise _nothing(file, errors)
    return join.result(errors)


def without_given(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems without what the search would take for given solutions.

    A file's own field of that name stays in the metadata under another one.
    """
    return [
        replace(p, metadata={k + "_of_file" if k == GIVEN else k: v for k, v in p.metadata.items()})
        if GIVEN in p.metadata
        else p
        for p in problems
    ]


class _NoField(ProblemError):
    """The rows have no such field: going on is of no use."""


@dataclass
class _Join:
    """Looks up the problem of each row."""

    problems: Sequence[Problem]
    file: str
    stem: str
    solution_field: str | None
    id_field: str | None
    delimiter: str
    own: bool
    partly: bool = False
    statement_field: str | None = None
    settled: bool = False
    found: dict[int, list[list[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_id = {problem.id: i for i, problem in enumerate(self.problems)}
        self._by_text: dict[str, list[int]] = {}
        for i, problem in enumerate(self.problems):
            self._by_text.setdefault(_words(problem.text), []).append(i)

    def take(self, index: int, row: Row) -> None:
        """Give a row's solution to its problem.

        Raises:
            ProblemError: The row is bad, or its problem is unknown.
        """
        from treerl.prm.formats.cells import Cell

        cell = Cell(row.fields, self.file, row.line)
        if not self.settled:
            self._settle(cell)
        at = self._problem(index, cell)
        assert self.solution_field is not None
        if at is not None:
            steps = _steps(_at(cell, self.solution_field), self.delimiter)
            self.found.setdefault(at, []).append(steps)

    def result(self, errors: list[ProblemError]) -> JoinedSolutions:
        """Return the problems that have solutions, in their order."""
        assert self.solution_field is not None
        dropped = {GIVEN, self.solution_field} if self.own else {GIVEN}
        joined = []
        for i in sorted(self.found):
            problem = self.problems[i]
            rest = {key: value for key, value in problem.metadata.items() if key not in dropped}
            joined.append(replace(problem, metadata={**rest, GIVEN: self.found[i]}))
        return JoinedSolutions(
            problems=tuple(joined),
            count=sum(map(len, self.found.values())),
            errors=tuple(errors),
            without=len(self.problems) - len(joined),
            field=self.solution_field,
        )

    def _settle(self, row: Cell) -> None:
        """Find the fields that were not named, on the first row."""
        from treerl.fields import ID_FIELDS

        if self.solution_field is None:
            self.solution_field = _first(row, SOLUTION_FIELDS)
            if self.solution_field is None:
                raise self._no_field(row, "solution", "--solution-field")
        if not self.own:
            # An id field that somebody named says what a row belongs to, whatever text it holds.
            if self.id_field is None:
                others = [name for name in _TEXT_FIELDS if name != self.solution_field]
                self.statement_field = _first(row, others)
                self.id_field = _first(row, (*_ID_FIELDS, *ID_FIELDS))
            if self.id_field is None and self.statement_field is None:
                raise self._no_field(row, "problem's id or text", "--solution-id-field")
        self.settled = True

    def _problem(self, index: int, row: Cell) -> int | None:
        """Return the place of a row's problem; None where it may be missing."""
        if self.own and self.id_field is None:
            return self._by_id.get(f"{self.stem}-{index}")
        name = None if self.id_field is None else _text_of(_at(row, self.id_field))
        by_id = None if name is None else self._by_id.get(name)
        text = None if self.statement_field is None else row.get(self.statement_field)
        if text is None:
            if self.id_field is None:
                assert self.statement_field is not None
                raise _at(row, self.statement_field).error("the field is missing", "fill it in")
            if by_id is None and not self.partly:
                message = f"there is no problem with the id {name!r}"
                raise _at(row, self.id_field).error(message, "correct the id, or skip bad rows")
            return by_id
        places = self._by_text.get(_words(text.text()), [])
        if by_id in places or len(places) == 1:
            return by_id if by_id in places else places[0]
        if len(places) > 1:
            raise text.error("several problems have this text", "name the problem by its id")
        if by_id is not None:
            message = f"the problem with the id {name!r} has another text"
            raise text.error(message, "are these the solutions of these problems?")
        if self.partly:
            return None
        what = "this text" if name is None else f"this text or the id {name!r}"
        raise text.error(f"there is no problem with {what}", "skip bad rows to leave it out")

    def _no_field(self, row: Cell, what: str, option: str) -> ProblemError:
        fields = ", ".join(map(repr, list(row.value)[:20])) or "none"
        return _NoField(
            f"no field for the {what} was found; the fields are {fields}",
            file=self.file,
            line=row.line,
            mend=f"name it with {option}",
        )


def _steps(cell: Cell, delimiter: str) -> list[str]:
    """Return the steps of a solution: a list of them, a text, or a conversation's last turn."""
    from treerl.integrations import completion_text

    value = cell.value
    if isinstance(value, list) and value and not all(isinstance(item, dict) for item in value):
        steps = [item.text() for item in cell.items()]
        for item, step in zip(cell.items(), steps, strict=True):
            if not step.strip():
                raise item.error("the step is empty", "leave it out of the row, or skip the row")
    else:
        text = completion_text(value) if isinstance(value, list) else cell.text()
        steps = [part for part in text.split(delimiter) if part.strip()]
    if not steps:
        raise cell.error("the solution is empty", "fill it in, or skip bad rows")
    if any("\0" in step for step in steps):
        raise cell.error("the text holds a NUL character", "save the file as UTF-8 text")
    return steps


def _at(row: Cell, name: str) -> Cell:
    """Return a field's cell; a dot in the name steps into an object unless a field is called so."""
    cell = row
    parts = [name] if isinstance(row.value, Mapping) and name in row.value else name.split(".")
    for part in parts:
        cell = cell[part]
    return cell


def _first(row: Cell, names: Sequence[str]) -> str | None:
    return next((name for name in names if row.get(name) is not None), None)


def _text_of(cell: Cell) -> str:
    value: Any = cell.value
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    return cell.text()  # raises


def _words(text: str) -> str:
    return " ".join(text.split())


def _same_file(source: str, other: str) -> bool:
    paths = Path(source).expanduser(), Path(other).expanduser()
    return all(path.exists() for path in paths) and paths[0].samefile(paths[1])


def _nothing(file: str, errors: Sequence[ProblemError]) -> ProblemError:
    if not errors:
        return ProblemError(
            "no row holds a solution of one of the problems",
            file=file,
            mend="rows name a problem by its id or repeat its text",
        )
    first = errors[0]
    return ProblemError(
        f"none of the rows can be used; the first: {first.message}",
        file=first.file,
        line=first.line,
        field=first.field,
        mend=first.mend,
    )
