r"""OmegaPRM's flat rows, as openr publishes them: every state of a problem's search with its value.

::

    question         "How many?"
    reasoning_steps  [{"solution_prefix": "How many?", "mc_value": 0.5},
                      {"solution_prefix": "How many?\n\n2 * 3 = 6", "mc_value": 0.8}, …]

A state is the question and the steps so far with a blank line between them. Steps may hold blank
lines themselves; then a step is what one state has beyond the longest state that it continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.solutions import LabelledSolution, solutions_of
from treerl.prm.formats.valued import LOSSES, ValuedStep, ValuedTree, head, valued_tree

__all__ = ["STEP_TAG", "OpenR", "read_openr"]

GAP = "\n\n"
STEP_TAG = "\n\n\n\n\n"
"""What openr's own conversion puts behind every step."""


@dataclass(frozen=True, slots=True)
class OpenR:
    """``question_id``: int, ``question``, ``final_answer``: str, ``reasoning_steps``: [{…}].

    A row a problem. ``mc_value`` is the soft label; that of the question itself is the share of
    right rollouts through its first steps, and missing where there was none.
    """

    name = "openr"

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        return (
            *LOSSES,
            "steps that hold openr's step tag (five line breaks), and all steps behind one",
            "steps that begin with the whole text of another step and a blank line, and all steps "
            "behind one: they would read as two steps",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield the problem's row."""
        return self.solution_rows(solutions_of(tree))

    def solution_rows(self, solutions: Iterable[LabelledSolution]) -> Iterator[Row | LeftOut]:
        """Yield the row of one problem's solutions."""
        tree = valued_tree(solutions)
        yield from tree.left_out
        if tree.example is None:
            return
        steps: list[Row] = []
        question = tree.example.statement
        for prefix, step, reason in _states(question, tree):
            if reason is None:
                steps.append({"solution_prefix": prefix, "mc_value": step.value})
            else:
                yield from [LeftOut(reason)] * _tips(step)
        if steps:
            first = [{"solution_prefix": question, "mc_value": tree.value}]
            known = tree.value is not None
            yield {**head(tree.example), "reasoning_steps": [*(first if known else []), *steps]}


def _states(question: str, tree: ValuedTree) -> Iterator[tuple[str, ValuedStep, str | None]]:
    """Yield all states, depth first; with a reason, what is refused with all below it."""
    taken = {question + GAP + text for text in tree.children} | {question}
    stack = [(question, step) for step in reversed(tree.children.values())]
    while stack:
        before, step = stack.pop()
        prefix = before + GAP + step.text
        taken |= {prefix + GAP + text for text in step.children}
        reason = _why_not(before, step, prefix, taken)
        yield prefix, step, reason
        if reason is None:
            stack.extend((prefix, child) for child in reversed(step.children.values()))


def _tips(step: ValuedStep) -> int:
    """Count the paths that go through a step."""
    tips, stack = 0, [step]
    while stack:
        children = stack.pop().children.values()
        tips += not children
        stack.extend(children)
    return tips


def _why_not(before: str, step: ValuedStep, prefix: str, taken: set[str]) -> str | None:
    if STEP_TAG in step.text:
        return "a step contains openr's step tag"
    at = prefix.find(GAP, len(before) + 1)
    while at >= 0:
        if prefix[:at] in taken and at > len(before):
            return "a step begins with another step and a blank line"
        at = prefix.find(GAP, at + 1)
    return None


def read_openr(row: Cell, *, threshold: float = 0.5) -> Iterator[LabelledSolution]:
    """Read a row: one solution for each state that no other state continues.

    Args:
        row: The row.
        threshold: A step is right if its value is above it; 0.5 is openr's own, MM-PRM uses 0.

    Raises:
        ProblemError: A field is missing, a value is not in [0, 1], or a prefix is another
            question's.
    """
    question = row["question"].text()
    answer, id = row.get("final_answer"), row.get("question_id")
    values: dict[str, float] = {}
    for cell in row["reasoning_steps"].items():
        prefix = cell["solution_prefix"]
        if not prefix.text().startswith(question):
            raise prefix.error("the prefix does not begin with the question", "correct the row")
        # Equal states stand there more than once; the first one's value counts.
        values.setdefault(prefix.text(), cell["mc_value"].share())
    root_value = values.pop(question, None)
    parents = {state: _parent(state, question, values) for state in values}
    inner = set(parents.values())
    for tip in values:
        if tip in inner:
            continue
        states = [tip]
        while parents[states[-1]] != question:
            states.append(parents[states[-1]])
        states.reverse()
        starts = [question, *states[:-1]]
        pairs = zip(states, starts, strict=True)
        soft = tuple(values[state] for state in states)
        yield LabelledSolution(
            problem_id=str(id.integer()) if id is not None else "",
            statement=question,
            answer=None if answer is None else answer.text(),
            steps=tuple(state[len(start) :].removeprefix(GAP) for state, start in pairs),
            labels=tuple(int(value > threshold) for value in soft),
            soft=soft,
            source=("openr",) * len(states),
            metadata={} if root_value is None else {"root_value": root_value},
        )


def _parent(state: str, question: str, values: dict[str, float]) -> str:
    """Return the longest state that this one continues; at the least the question."""
    at = state.rfind(GAP, len(question), len(state) - 1)
    while at > len(question):
        if state[:at] in values:
            return state[:at]
        at = state.rfind(GAP, len(question), at + 1)
    return question
