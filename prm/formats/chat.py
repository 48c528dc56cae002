r"""Conversations that teach a model to judge steps and say why (a generative reward model).

::

    system     You check the solution of a problem, one step at a time. …
    user       <problem>  (blank line)  <first step>
    assistant  <verify> … </verify> <judge> … </judge> <output> Verdict: \boxed{Right} </output>
    user       <second step>
    assistant  …

The problem and the first step share a turn. Nobody can tell them apart again where the problem has
blank lines itself, so ``problem`` holds the problem once more; trainers read ``messages`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.paths import labelled_prefixes
from treerl.prm.formats.qwen import CONTROL
from treerl.prm.formats.solutions import LabelledSolution, statement_id
from treerl.prm.label import StepLabel
from treerl.prm.rationale import RIGHT, WRONG
from treerl.verdict import ClaimVerdict, Verdict

__all__ = ["SYSTEM", "Chat", "judgement", "read_chat"]

SYSTEM = (
    "You check the solution of a problem, one step at a time. For each step, first list inside "
    "<verify> what a calculation tool says about it, then weigh the evidence inside <judge>, then "
    f"give your verdict inside <output> as \\boxed{{{RIGHT}}} or \\boxed{{{WRONG}}}. A step is "
    "right if it is correct itself and the solution can still reach the right answer."
)

GAP = "\n\n"
_VERDICT = re.compile(rf"\\boxed\{{({RIGHT}|{WRONG})\}}\s*</output>\s*\Z")

NOTHING_CHECKED = "No calculation to check."


@dataclass(frozen=True, slots=True)
class Chat:
    """``messages``: [{role, content}], a turn of each role for each labelled step; ``problem``.

    A path is cut before its first step that is unlabelled, or labelled right in spite of a tool's
    refutation: no assistant turn argues against its own verdict.

    Attributes:
        system: The instruction of every conversation.
    """

    system: str = SYSTEM

    name = "chat"

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        return (
            "steps without a label, and all steps behind one: a path is cut there",
            "paths in which a step or the problem contains a control token (<|im_end|>, [INST], …)",
            "steps labelled right although a tool refutes them: a path is cut there",
            "soft labels; counts and tool results remain as words only",
            "the gold answer and whether the final answer is right",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield a conversation for each distinct labelled path."""
        for steps in labelled_prefixes(tree, _is_consistent):
            if isinstance(steps, LeftOut):
                yield steps
                continue
            if any(CONTROL.search(text) for text in (tree.statement, *(s.step for s in steps))):
                yield LeftOut("a step or the problem contains a control token")
                continue
            messages = [{"role": "system", "content": self.system}]
            for index, step in enumerate(steps):
                said = f"{tree.statement}{GAP}{step.step}" if index == 0 else step.step
                messages.append({"role": "user", "content": said})
                messages.append({"role": "assistant", "content": judgement(step)})
            yield {"messages": messages, "problem": tree.statement}


def judgement(step: StepLabel) -> str:
    """Write the assistant's turn about a labelled step."""
    word = RIGHT if step.label == 1 else WRONG
    # Both are written from one label; a file edited by hand must not teach a contradiction.
    assert step.rationale.endswith(f"The step is {word.lower()}."), step.rationale
    return (
        f"<verify>\n{_tool_lines(step)}\n</verify>\n"
        f"<judge>\n{step.rationale}\n</judge>\n"
        f"<output>\nVerdict: \\boxed{{{word}}}\n</output>"
    )


def _is_consistent(step: StepLabel) -> bool:
    refuted = step.verdict is not None and step.verdict.verdict is Verdict.REFUTED
    return step.label is not None and not (step.label == 1 and refuted)


def _tool_lines(step: StepLabel) -> str:
    if step.verdict is None or not step.verdict.claims:
        return NOTHING_CHECKED
    return "\n".join(map(_tool_line, step.verdict.claims))


def _tool_line(claim: ClaimVerdict) -> str:
    tool = claim.calls[-1].tool if claim.calls else "tool"
    said = " ".join(claim.claim.text.split())
    reading = f" ({claim.reading})" if claim.reading and claim.reading != said else ""
    return f"{tool}: {said} -> {claim.verdict}{reading}"


def read_chat(row: Cell) -> Iterator[LabelledSolution]:
    """Read a row; one without ``problem`` must have one blank line in its first turn.

    Metadata: "system" where there is one, and the assistant's "judgements".

    Raises:
        ProblemError: The turns are others, a verdict is missing, or problem and first step cannot
            be told apart.
    """
    conversation = row["messages"]
    turns = conversation.items()
    roles = [turn["role"].text() for turn in turns]
    front = int(roles[:1] == ["system"])
    said, answers = turns[front::2], turns[front + 1 :: 2]
    if not answers or roles[front:] != ["user", "assistant"] * len(answers):
        raise conversation.error("the turns do not alternate", "user and assistant must take turns")
    statement, first = _split(row, said[0]["content"])
    n = len(answers)
    system = {"system": turns[0]["content"].text()} if front else {}
    yield LabelledSolution(
        problem_id=statement_id(statement),
        statement=statement,
        answer=None,
        steps=(first, *(turn["content"].text() for turn in said[1:])),
        labels=tuple(_label(turn["content"]) for turn in answers),
        soft=(None,) * n,
        source=("chat",) * n,
        metadata={**system, "judgements": tuple(turn["content"].text() for turn in answers)},
    )


def _label(cell: Cell) -> int:
    found = _VERDICT.search(cell.text())
    if found is None:
        raise cell.error(
            "no verdict stands at the end", f"it must be \\boxed{{{RIGHT}}} or \\boxed{{{WRONG}}}"
        )
    return int(found[1] == RIGHT)


def _split(row: Cell, cell: Cell) -> tuple[str, str]:
    text, problem = cell.text(), row.get("problem")
    if problem is not None:
        statement = problem.text()
        if not text.startswith(statement + GAP):
            raise cell.error("the first turn does not begin with 'problem'", "correct the row")
        return statement, text[len(statement) + len(GAP) :]
    if text.count(GAP) != 1:
        raise cell.error(
            "the problem cannot be told from the first step",
            "add a field 'problem', or put one blank line between them and no other",
        )
    before, _, after = text.partition(GAP)
    return before, after
