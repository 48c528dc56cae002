"""RLHFlow: a conversation whose assistant answers every step with + or -.

::

    user       How many apples? 2 * 3 = 6
    assistant  +
    user       6 + 4 = 11
    assistant  -

The problem and the first step share a turn, a space between them, as in the example of
RLHF-Reward-Modeling's math/README.md. Nobody can tell them apart again, so ``problem`` holds the
problem once more; trainers read ``messages`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.qwen import CONTROL
from treerl.prm.formats.solutions import (
    LabelledSolution,
    labelled_beginnings,
    solutions_of,
    statement_id,
)

__all__ = ["RLHFlow", "read_rlhflow"]

_STEP = "Step 1:"


@dataclass(frozen=True, slots=True)
class RLHFlow:
    """``messages``: [{role, content}], ``problem``: str."""

    name = "rlhflow"

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        return (
            "steps without a label, and all steps behind one: a path is cut there",
            "paths in which a step or the problem contains a control token (<|eot_id|>, [INST], …)",
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
            if any(CONTROL.search(text) for text in (solution.statement, *solution.steps)):
                yield LeftOut("a step or the problem contains a control token")
                continue
            first, *others = solution.steps
            said = [f"{solution.statement} {first}", *others]
            messages = []
            for text, label in zip(said, solution.labels, strict=True):
                messages.append({"role": "user", "content": text})
                messages.append({"role": "assistant", "content": "+" if label == 1 else "-"})
            yield {"messages": messages, "problem": solution.statement}


def read_rlhflow(row: Cell) -> Iterator[LabelledSolution]:
    """Read a row; one without ``problem`` must call its first step "Step 1:".

    Raises:
        ProblemError: The turns are others, or problem and first step cannot be told apart.
    """
    conversation = row.get("messages") or row["conversations"]
    turns = conversation.items()
    said, answers = turns[::2], turns[1::2]
    roles = [turn["role"].text() for turn in turns]
    if not turns or roles != ["user", "assistant"] * len(answers):
        raise conversation.error("the turns do not alternate", "user and assistant must take turns")
    labels: list[int] = []
    for turn in answers:
        cell = turn["content"]
        if cell.text().strip() not in ("+", "-"):
            raise cell.error(f"the answer is {cell.text()[:20]!r}", "it must be + or -")
        labels.append(int(cell.text().strip() == "+"))
    statement, first = _split(row, said[0]["content"])
    steps = (first, *(turn["content"].text() for turn in said[1:]))
    yield LabelledSolution(
        problem_id=statement_id(statement),
        statement=statement,
        answer=None,
        steps=steps,
        labels=tuple(labels),
        soft=(None,) * len(steps),
        source=("rlhflow",) * len(steps),
    )


def _split(row: Cell, cell: Cell) -> tuple[str, str]:
    text, problem = cell.text(), row.get("problem")
    if problem is not None:
        statement = problem.text()
        if not text.startswith(f"{statement} "):
            raise cell.error("the first turn does not begin with 'problem'", "correct the row")
        return statement, text[len(statement) + 1 :]
    if text.count(_STEP) != 1:
        raise cell.error(
            "the problem cannot be told from the first step",
            f"add a field 'problem', or begin the first step with '{_STEP}'",
        )
    before, _, after = text.partition(_STEP)
    return before.removesuffix(" "), _STEP + after
