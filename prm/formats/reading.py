"""Labels of others in: one reader a format, one way to call them.

::

    for solution in import_format("prm800k/phase2_train.jsonl", "prm800k", neutral=None):
        solution.statement, solution.steps, solution.labels
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from treerl.errors import ConfigError, ProblemError
from treerl.prm.formats.base import LeftOut, Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.chat import read_chat
from treerl.prm.formats.math_shepherd import read_math_shepherd
from treerl.prm.formats.openr import read_openr
from treerl.prm.formats.openr_converted import read_openr_converted
from treerl.prm.formats.openr_tree import read_openr_tree
from treerl.prm.formats.prm800k import read_prm800k
from treerl.prm.formats.qwen import read_qwen
from treerl.prm.formats.rlhflow import read_rlhflow
from treerl.prm.formats.solutions import LabelledSolution, statement_id
from treerl.prm.formats.writing import make_format
from treerl.readers import read_rows

__all__ = ["IMPORTERS", "import_format", "read_processbench", "read_trl", "solution_rows"]


def import_format(
    path: str | Path,
    format: str,
    *,
    on_error: Callable[[ProblemError], None] | None = None,
    **options: Any,
) -> Iterator[LabelledSolution]:
    """Read labelled solutions from a file of another tool, one row at a time.

    Args:
        path: A .jsonl, .json or .parquet file.
        format: A key of :data:`IMPORTERS`.
        on_error: Called with the error of each damaged row, which is then left out; without it the
            first one is raised.
        options: Of the format: ``neutral`` of prm800k, ``threshold`` of those with soft labels.

    Raises:
        ConfigError: There is no such format, or it has no such option.
        ProblemError: The file cannot be read, or a row is damaged.
    """
    if format not in IMPORTERS:
        raise ConfigError(f"no format '{format}' to import; there are {', '.join(IMPORTERS)}")
    reader = IMPORTERS[format]
    try:
        inspect.signature(reader).bind(None, **options)
    except TypeError as error:
        raise ConfigError(f"format '{format}': {error}") from error
    return _read(Path(path), reader, on_error, options)


def _read(
    path: Path,
    reader: Callable[..., Iterator[LabelledSolution]],
    on_error: Callable[[ProblemError], None] | None,
    options: dict[str, Any],
) -> Iterator[LabelledSolution]:
    for row in read_rows(path):
        try:
            if isinstance(row, ProblemError):
                raise row
            cell = Cell(row.fields, str(path), row.line)
            try:
                # As a list: of a damaged row nothing is taken.
                found = list(reader(cell, **options))
            except RecursionError as error:
                raise cell.error("the row is nested too deeply", "skip the row") from error
        except ProblemError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        yield from found


def solution_rows(
    solutions: Iterable[LabelledSolution], format: str, **options: Any
) -> Iterator[Row | LeftOut]:
    """Yield solutions, however they came, as rows of a format.

    Args:
        solutions: Those of one problem in a row, one behind the other.
        format: A format that holds whole solutions.
        options: Of the format.

    Raises:
        ConfigError: There is no such format, or it is written from trees only.
    """
    writer = make_format(format, options)
    write = getattr(writer, "solution_rows", None)
    if write is None:
        raise ConfigError(f"format '{format}' is written from the trees of a run only")
    for _, group in groupby(solutions, key=lambda s: (s.problem_id, s.statement)):
        yield from write(group)


def read_trl(row: Cell, *, threshold: float = 0.5) -> Iterator[LabelledSolution]:
    """Read a row of TRL's stepwise supervision; null is unlabelled, a number is a soft label.

    Raises:
        ProblemError: Completions and labels differ in number.
    """
    statement = row["prompt"].text()
    steps = tuple(cell.text() for cell in row["completions"].items())
    labels = [cell.label(threshold) for cell in row["labels"].items()]
    if len(labels) != len(steps):
        raise row["labels"].error(
            f"{len(labels)} labels, but {len(steps)} completions", "correct the row, or skip it"
        )
    yield LabelledSolution(
        problem_id=statement_id(statement),
        statement=statement,
        answer=None,
        steps=steps,
        labels=tuple(hard for hard, _ in labels),
        soft=tuple(soft for _, soft in labels),
        source=("trl",) * len(steps),
    )


def read_processbench(row: Cell) -> Iterator[LabelledSolution]:
    """Read a row of ProcessBench; steps behind the first wrong one are unlabelled.

    Raises:
        ProblemError: The label is no index of a step, nor -1.
    """
    steps = tuple(cell.text() for cell in row["steps"].items())
    first = row["label"].integer()
    if not -1 <= first < len(steps):
        raise row["label"].error(
            f"the label is {first}, but there are {len(steps)} steps",
            "it must be the 0-based index of the first wrong step, or -1",
        )
    right = len(steps) if first == -1 else first
    labels = [1 if i < right else 0 if i == right else None for i in range(len(steps))]
    metadata = {key: row.get(key) for key in ("generator", "final_answer_correct")}
    yield LabelledSolution(
        problem_id=row["id"].text(),
        statement=row["problem"].text(),
        answer=None,
        steps=steps,
        labels=tuple(labels),
        soft=(None,) * len(steps),
        source=("processbench",) * len(steps),
        metadata={key: cell.plain() for key, cell in metadata.items() if cell is not None},
    )


IMPORTERS: dict[str, Callable[..., Iterator[LabelledSolution]]] = {
    "trl": read_trl,
    "processbench": read_processbench,
    "chat": read_chat,
    "prm800k": read_prm800k,
    "math-shepherd": read_math_shepherd,
    "qwen": read_qwen,
    "openr": read_openr,
    "openr-tree": read_openr_tree,
    "openr-converted": read_openr_converted,
    "rlhflow": read_rlhflow,
}
"""Every readable format by name."""
