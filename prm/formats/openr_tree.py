"""OmegaPRM's trees, as openr publishes them: a step in a node, its continuations below it.

::

    reasoning_steps  {"text": "How many?", "mc_value": 0.5, "children": [
                       {"text": "2 * 3 = 6", "mc_value": 0.8, "children": [ … ]}, …]}

A node's text is the new text alone, and no separator is part of it, so every step fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from treerl.errors import ConfigError
from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.solutions import LabelledSolution, solutions_of
from treerl.prm.formats.valued import LOSSES, ValuedStep, ValuedTree, head, valued_tree

__all__ = ["OpenRTree", "read_openr_tree"]

NEST_LIMIT = 300
"""Python's own JSON reader and writer recurse: deeper rows could not be read again."""


@dataclass(frozen=True, slots=True)
class OpenRTree:
    """``question_id``: int, ``question``, ``final_answer``: str, ``reasoning_steps``: a tree.

    A row a problem. ``mc_value`` is the soft label; that of the root is the share of right
    rollouts through the first steps, null where there was none.

    Attributes:
        max_depth: Steps behind this one are cut off. Arrow, and with it ``datasets``, reads no
            schema that nests deeper than 30 steps.
    """

    max_depth: int = 30

    name = "openr-tree"

    def __post_init__(self) -> None:
        if not 1 <= self.max_depth <= NEST_LIMIT:
            raise ConfigError(f"max_depth must be from 1 to {NEST_LIMIT}, not {self.max_depth}")

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        return (
            *LOSSES,
            f"steps behind the first {self.max_depth} of a path (option max_depth; datasets reads "
            "no deeper rows than 30)",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield the problem's row."""
        return self.solution_rows(solutions_of(tree))

    def solution_rows(self, solutions: Iterable[LabelledSolution]) -> Iterator[Row | LeftOut]:
        """Yield the row of one problem's solutions."""
        tree = valued_tree(solutions, max_depth=self.max_depth)
        yield from tree.left_out
        if tree.example is not None and tree.children:
            yield {**head(tree.example), "reasoning_steps": _nested(tree.example.statement, tree)}


def _nested(question: str, tree: ValuedTree) -> Row:
    root: Row = {"text": question, "mc_value": tree.value, "children": []}
    stack: list[tuple[Row, ValuedTree | ValuedStep]] = [(root, tree)]
    while stack:
        into, step = stack.pop()
        for child in step.children.values():
            row: Row = {"text": child.text, "mc_value": child.value, "children": []}
            into["children"].append(row)
            stack.append((row, child))
    return root


def read_openr_tree(row: Cell, *, threshold: float = 0.5) -> Iterator[LabelledSolution]:
    """Read a row: one solution a leaf.

    An edge of openr's own files may hold several steps with blank lines between them: its value is
    that of their end, so it stays one step.

    Args:
        row: The row.
        threshold: A step is right if its value is above it; 0.5 is openr's own, MM-PRM uses 0.

    Raises:
        ProblemError: A field is missing, or a value is not in [0, 1].
    """
    question = row["question"].text()
    answer, id = row.get("final_answer"), row.get("question_id")
    root = row["reasoning_steps"]
    root_value = root.get("mc_value")
    value = None if root_value is None else root_value.share()
    stack: list[tuple[Cell, tuple[str, ...], tuple[float, ...]]] = [
        (child, (), ()) for child in reversed(root["children"].items())
    ]
    while stack:
        node, texts, values = stack.pop()
        texts = (*texts, node["text"].text())
        values = (*values, node["mc_value"].share())
        children = node["children"].items()
        stack.extend((child, texts, values) for child in reversed(children))
        if not children:
            yield LabelledSolution(
                problem_id=str(id.integer()) if id is not None else "",
                statement=question,
                answer=None if answer is None else answer.text(),
                steps=texts,
                labels=tuple(int(value > threshold) for value in values),
                soft=values,
                source=("openr-tree",) * len(texts),
                metadata={} if value is None else {"root_value": value},
            )
