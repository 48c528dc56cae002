r"""What openr's trainer reads: a question and its steps in one text, with a tag behind each step.

::

    question  "How many?"
    process   "2 * 3 = 6\n\n\n\n\n6 + 4 = 11\n\n\n\n\n"
    label     ["+", "-"]

openr keeps these rows in one JSON list; here they are a line each, which ``jq -s .`` makes a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from treerl.errors import ConfigError
from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.openr import STEP_TAG
from treerl.prm.formats.solutions import (
    LabelledSolution,
    labelled_beginnings,
    solutions_of,
    statement_id,
)

__all__ = ["OpenRConverted", "read_openr_converted"]

_MARKS = {"+": 1, "-": 0}


@dataclass(frozen=True, slots=True)
class OpenRConverted:
    """``question``: str, ``process``: str, ``label``: ["+" or "-"], one a tag.

    Attributes:
        step_tag: What stands behind every step.

    Raises:
        ConfigError: The tag is empty.
    """

    step_tag: str = STEP_TAG

    name = "openr-converted"

    def __post_init__(self) -> None:
        _check_tag(self.step_tag)

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        return (
            "steps without a label, and all steps behind one: a path is cut there",
            f"paths in which the step tag {self.step_tag!r} stands in a step, or across its end",
            "soft labels: only + and - are kept",
            "evidence, sources of labels and rationales",
            "ids of problems, the gold answer and whether the final answer is right",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct labelled path."""
        return self.solution_rows(solutions_of(tree))

    def solution_rows(self, solutions: Iterable[LabelledSolution]) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct labelled beginning of one problem's solutions."""
        tag = self.step_tag
        for solution in labelled_beginnings(solutions):
            if isinstance(solution, LeftOut):
                yield solution
            # A step that ends with a part of the tag would give it away to the next one.
            elif any((step + tag).find(tag) != len(step) for step in solution.steps):
                yield LeftOut("a step contains openr's step tag, or ends with a part of it")
            else:
                yield {
                    "question": solution.statement,
                    "process": "".join(step + tag for step in solution.steps),
                    "label": ["+" if label == 1 else "-" for label in solution.labels],
                }


def read_openr_converted(row: Cell, *, step_tag: str = STEP_TAG) -> Iterator[LabelledSolution]:
    """Read a row; files of older versions have ``labels`` of 1 and 0.

    Raises:
        ConfigError: The tag is empty.
        ProblemError: Labels and tags differ in number, or a label is none.
    """
    _check_tag(step_tag)
    statement, process = row["question"].text(), row["process"]
    *steps, tail = process.text().split(step_tag)
    if tail.strip() or not steps:
        raise process.error("no step tag stands behind the last step", "name the file's step_tag")
    cell = row.get("label") or row.get("labels") or row["label"]
    labels = [_label(item) for item in cell.items()]
    if len(labels) != len(steps):
        raise cell.error(
            f"{len(labels)} labels, but {len(steps)} steps end in the tag", "correct the row"
        )
    yield LabelledSolution(
        problem_id=statement_id(statement),
        statement=statement,
        answer=None,
        steps=tuple(steps),
        labels=tuple(labels),
        soft=(None,) * len(steps),
        source=("openr-converted",) * len(steps),
    )


def _label(cell: Cell) -> int:
    if isinstance(cell.value, str) and cell.value in _MARKS:
        return _MARKS[cell.value]
    hard, soft = cell.label(0.5)
    if hard is None or soft is not None:
        raise cell.error("the label is neither + nor -", "correct the row, or skip it")
    return hard


def _check_tag(tag: str) -> None:
    if not tag:
        raise ConfigError("step_tag must not be empty")
