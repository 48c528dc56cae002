r"""Math-Shepherd: the same text twice, once with a tag behind every step, once with its label.

::

    input  "How many? Step 1: 2 * 3 = 6 ки\nStep 2: 6 + 4 = 11 ки"
    label  "How many? Step 1: 2 * 3 = 6 +\nStep 2: 6 + 4 = 11 -"
    task   "GSM8K"

The format of the data set behind Math-Shepherd (Wang et al., arXiv 2312.08935). Its tag ``ки`` is
one token of the Mistral tokenizer, which a scorer looks for by id: no other place may hold it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.solutions import (
    LabelledSolution,
    labelled_beginnings,
    solutions_of,
    statement_id,
)

__all__ = ["TAG", "MathShepherd", "read_math_shepherd"]

TAG = "ки"
_STEP = re.compile(r"Step \d+:")
_HEAD = re.compile(r"\s*Step (\d+): ?")


@dataclass(frozen=True, slots=True)
class MathShepherd:
    """``input``: str, ``label``: str, ``task``: str.

    Attributes:
        task: What to write under ``task``; the original knows "GSM8K" and "MATH".
    """

    task: str = "GSM8K"

    name = "math-shepherd"

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        return (
            "steps without a label, and all steps behind one: a path is cut there",
            f"paths in which a step or the problem contains the tag {TAG} or 'Step 1:'",
            "soft labels: only + and - are kept",
            "evidence, sources of labels and rationales",
            "ids of problems, the gold answer and whether the final answer is right",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct labelled path."""
        return self.solution_rows(solutions_of(tree))

    def solution_rows(self, solutions: Iterable[LabelledSolution]) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct labelled beginning of one problem's solutions."""
        for solution in labelled_beginnings(solutions):
            if isinstance(solution, LeftOut):
                yield solution
                continue
            reason = _why_not(solution)
            if reason is not None:
                yield LeftOut(reason)
                continue
            marks = ["+" if label == 1 else "-" for label in solution.labels]
            yield {
                "input": _text(solution, [TAG] * len(marks)),
                "label": _text(solution, marks),
                "task": str(solution.metadata.get("task", self.task)),
            }


def _text(solution: LabelledSolution, marks: list[str]) -> str:
    steps = zip(solution.steps, marks, strict=True)
    lines = [f"Step {i}: {step} {mark}" for i, (step, mark) in enumerate(steps, start=1)]
    return f"{solution.statement} " + "\n".join(lines)


def _why_not(solution: LabelledSolution) -> str | None:
    texts = (solution.statement, *solution.steps)
    if any(TAG in text for text in texts):
        return f"a step or the problem contains the tag {TAG}"
    if any(_STEP.search(text) for text in texts):
        return "a step or the problem contains 'Step 1:' or the like"
    return None


def read_math_shepherd(row: Cell) -> Iterator[LabelledSolution]:
    """Read a row.

    Raises:
        ProblemError: A tag is missing or doubled, or input and label are not the same text.
    """
    cell = row["input"]
    *parts, tail = cell.text().split(TAG)
    mend = "skip the row: the original data holds some without their tags"
    if tail.strip() or not parts:
        raise cell.error(f"no tag {TAG} stands behind the last step", mend)
    if len(_STEP.findall(parts[0])) != 1 or _STEP.findall(parts[0]) != ["Step 1:"]:
        raise cell.error("'Step 1:' does not stand exactly once before the first tag", mend)
    statement, _, first = parts[0].partition("Step 1:")
    steps = [first.removeprefix(" ").removesuffix(" ")]
    for number, part in enumerate(parts[1:], start=2):
        head = _HEAD.match(part)
        if head is None or int(head[1]) != number or len(_STEP.findall(part)) != 1:
            raise cell.error(f"one step must stand between two tags: no 'Step {number}:'", mend)
        steps.append(part[head.end() :].removesuffix(" "))
    statement = statement.removesuffix(" ")
    task = row.get("task")
    n = len(steps)
    yield LabelledSolution(
        problem_id=statement_id(statement),
        statement=statement,
        answer=None,
        steps=tuple(steps),
        labels=tuple(_labels(row["label"], parts, tail)),
        soft=(None,) * n,
        source=("math-shepherd",) * n,
        metadata={} if task is None else {"task": task.text()},
    )


def _labels(cell: Cell, parts: list[str], tail: str) -> Iterator[int]:
    text, at = cell.text(), 0
    for number, part in enumerate(parts, start=1):
        end = at + len(part)
        if text[at:end] != part or text[end : end + 1] not in ("+", "-"):
            raise cell.error(
                f"step {number} is not that of 'input', or has no + or - behind it", "skip the row"
            )
        yield int(text[end] == "+")
        at = end + 1
    if text[at:] != tail:
        raise cell.error("text stands behind the last label", "skip the row")
