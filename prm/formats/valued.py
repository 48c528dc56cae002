"""Steps with soft labels as a tree of texts: what both OmegaPRM formats are written from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from treerl.prm.formats.base import LeftOut
from treerl.prm.formats.solutions import LabelledSolution

__all__ = ["LOSSES", "ValuedStep", "ValuedTree", "head", "valued_tree"]

LOSSES = (
    "hard labels: a reader makes them of mc_value by its own threshold",
    "steps without a soft label (masked ones too), and all steps behind one: a path is cut there",
    "equal steps behind equal steps: the value of the first one stands",
    "evidence, counts, sources of labels and rationales",
    "ids of problems: question_id is a number made from the id",
)


@dataclass(slots=True)
class ValuedStep:
    """A step: its text, its soft label, and the steps behind it by their text."""

    text: str
    value: float
    children: dict[str, ValuedStep] = field(default_factory=dict)


@dataclass(slots=True)
class ValuedTree:
    """The steps of one problem.

    Attributes:
        example: A solution of the problem.
        value: Share of right rollouts through the first steps, None where it is unknown.
        children: The first steps by their text, in the order of the solutions.
        left_out: A reason for each solution that added nothing.
    """

    example: LabelledSolution | None = None
    value: float | None = None
    children: dict[str, ValuedStep] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)


def valued_tree(
    solutions: Iterable[LabelledSolution], *, max_depth: int | None = None
) -> ValuedTree:
    """Put the solutions of one problem together, each up to its first step without a value.

    Args:
        solutions: Of one problem.
        max_depth: A path is cut behind so many steps; None cuts nowhere.
    """
    tree = ValuedTree()
    counts: dict[int, tuple[int, int]] = {}  # first step's node -> its rollouts
    for solution in solutions:
        tree.example = tree.example or solution
        tree.value = solution.metadata.get("root_value", tree.value)
        if solution.metadata.get("nodes"):
            counts[solution.metadata["nodes"][0]] = solution.metadata["counts"][0]
        children, is_new, depth = tree.children, False, 0
        for text, value in zip(solution.steps, solution.soft, strict=True):
            if value is None:
                break
            if depth == max_depth:
                tree.left_out.append(LeftOut(f"steps behind the first {max_depth} are cut off"))
                break
            if text not in children:
                children[text], is_new = ValuedStep(text, value), True
            children, depth = children[text].children, depth + 1
        if not depth:
            tree.left_out.append(LeftOut("the first step has no soft label"))
        elif not is_new:
            tree.left_out.append(LeftOut("other paths hold the same steps"))
    right = sum(c for c, _ in counts.values())
    total = sum(n for _, n in counts.values())
    if total:
        # In a search, every rollout from the problem goes through one first step.
        tree.value = right / total
    return tree


def head(solution: LabelledSolution) -> dict[str, Any]:
    """Return the fields that stand before the steps."""
    id = solution.problem_id
    # 48 bits: whole numbers that every JSON reader keeps exactly.
    number = int(id) if id.isascii() and id.isdigit() else _number(id)
    return {
        "question_id": number,
        "question": solution.statement,
        "final_answer": solution.answer,
    }


def _number(id: str) -> int:
    return int.from_bytes(sha256(id.encode("utf-8", "surrogatepass")).digest()[:6], "big")
