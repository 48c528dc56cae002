"""Qwen's process reward models: a conversation with a marker behind every step.

::

    messages  system, user (the problem), assistant "2 * 3 = 6<extra_0>6 + 4 = 11<extra_0>"
    labels    [1, 0], one a marker

The text is what the model card of Qwen2.5-Math-PRM feeds to its two-class head; the labels belong
to the markers in order. A tokenizer turns the marker and the template's control tokens into special
ids wherever they stand, so text that contains one is refused.
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

__all__ = ["CONTROL", "MARKER", "SYSTEM", "Qwen", "read_qwen"]

MARKER = "<extra_0>"
SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
CONTROL = re.compile(r"<\|[^|<>\s]+\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>")
"""Control tokens of chat templates: Qwen's <|im_end|>, Llama's <|eot_id|>, Mistral's [INST], …."""


@dataclass(frozen=True, slots=True)
class Qwen:
    """``messages``: [{role, content}], ``labels``: [int], one a marker.

    Attributes:
        system: The system prompt of every conversation.
        soft: ``labels`` are the soft labels, [float]; a path is cut before its first step without
            one.
    """

    system: str = SYSTEM
    soft: bool = False

    name = "qwen"

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        kind = "soft label" if self.soft else "label"
        return (
            f"steps without a {kind}, and all steps behind one: a path is cut there",
            f"paths in which a step or the problem contains {MARKER} or a control token "
            "(<|im_end|>, [INST], …)",
            "hard labels: a reader makes them by its own threshold"
            if self.soft
            else "soft labels: only 0 and 1 are kept",
            "evidence, sources of labels and rationales",
            "ids of problems, the gold answer and whether the final answer is right",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct labelled path."""
        return self.solution_rows(solutions_of(tree))

    def solution_rows(self, solutions: Iterable[LabelledSolution]) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct labelled beginning of one problem's solutions."""
        for solution in labelled_beginnings(solutions, soft=self.soft):
            if isinstance(solution, LeftOut):
                yield solution
                continue
            texts = (solution.statement, *solution.steps)
            if any(MARKER in text or CONTROL.search(text) for text in texts):
                yield LeftOut(f"a step or the problem contains {MARKER} or a control token")
                continue
            system = str(solution.metadata.get("system", self.system))
            yield {
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": solution.statement},
                    {
                        "role": "assistant",
                        "content": "".join(step + MARKER for step in solution.steps),
                    },
                ],
                "labels": list(solution.soft if self.soft else solution.labels),
            }


def read_qwen(row: Cell, *, threshold: float = 0.5) -> Iterator[LabelledSolution]:
    """Read a row; of a soft label, what is above the threshold counts as right.

    Raises:
        ProblemError: The roles are others, or labels and markers differ in number.
    """
    messages = row["messages"]
    turns = messages.items()
    roles = [turn["role"].text() for turn in turns]
    if roles not in (["user", "assistant"], ["system", "user", "assistant"]):
        raise messages.error(
            f"the roles are {', '.join(roles) or 'none'}", "they must be system, user, assistant"
        )
    statement = turns[-2]["content"].text()
    content = turns[-1]["content"]
    *steps, tail = content.text().split(MARKER)
    labels = [cell.label(threshold) for cell in row["labels"].items()]
    if tail.strip() or not steps:
        raise content.error(f"no {MARKER} stands behind the last step", "correct the row")
    if len(labels) != len(steps):
        raise row["labels"].error(
            f"{len(labels)} labels, but {len(steps)} steps end in {MARKER}", "correct the row"
        )
    yield LabelledSolution(
        problem_id=statement_id(statement),
        statement=statement,
        answer=None,
        steps=tuple(steps),
        labels=tuple(hard for hard, _ in labels),
        soft=tuple(soft for _, soft in labels),
        source=("qwen",) * len(steps),
        metadata={"system": turns[0]["content"].text()} if len(turns) == 3 else {},
    )
