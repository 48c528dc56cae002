r"""Conversations that teach a model to judge steps and say why (a generative reward model).

::

    system     You check the solution of a problem, one step at a time. …
    user       <problem>  (blank line)  <first step>
    assistant  <verify> … </verify> <judge> … </judge> <output> Verdict: \boxed{Right} </output>
    user       <second step>
    assistant  …
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.paths import labelled_prefixes
from treerl.prm.label import StepLabel
from treerl.prm.rationale import RIGHT, WRONG
from treerl.verdict import ClaimVerdict, Verdict

__all__ = ["SYSTEM", "Chat", "judgement"]

SYSTEM = (
    "You check the solution of a problem, one step at a time. For each step, first list inside "
    "<verify> what a calculation tool says about it, then weigh the evidence inside <judge>, then "
    f"give your verdict inside <output> as \\boxed{{{RIGHT}}} or \\boxed{{{WRONG}}}. A step is "
    "right if it is correct itself and the solution can still reach the right answer."
)

NOTHING_CHECKED = "No calculation to check."


@dataclass(frozen=True, slots=True)
class Chat:
    """``messages``: [{role, content}], a user and an assistant turn for each labelled step.

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
            messages = [{"role": "system", "content": self.system}]
            for index, step in enumerate(steps):
                said = f"{tree.statement}\n\n{step.step}" if index == 0 else step.step
                messages.append({"role": "user", "content": said})
                messages.append({"role": "assistant", "content": judgement(step)})
            yield {"messages": messages}


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
