"""A solution with the labels of its steps: what every format is read into.

It is also what the formats of whole solutions are written from, so that a file of one can be
rewritten as another: ``solution_rows(import_format(path, "prm800k"), "math-shepherd")``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from treerl.prm.formats.base import LabelledTree, LeftOut
from treerl.prm.formats.paths import Trie

__all__ = [
    "NO_LABEL",
    "SAME_STEPS",
    "LabelledSolution",
    "labelled_beginnings",
    "solutions_of",
    "statement_id",
]

NO_LABEL = LeftOut("the first step has no usable label")
SAME_STEPS = LeftOut("another row holds the same labelled steps")


@dataclass(frozen=True, slots=True)
class LabelledSolution:
    """A solution, whole or begun, with a label a step.

    Attributes:
        problem_id, statement, answer: The problem; the answer is None where it is unknown.
        steps: As text, without the words or marks that a format puts around them.
        labels: 1 right, 0 wrong, None unknown.
        soft: Belief that the step is right, in [0, 1]; None where the label is a plain yes or no.
        source: What made each label: "tool", "mc", …, or the name of the format it was read from.
        metadata: Whatever else is known.

    Raises:
        ValueError: Steps, labels, soft labels and sources differ in number.
    """

    problem_id: str
    statement: str
    answer: str | None
    steps: tuple[str, ...]
    labels: tuple[int | None, ...]
    soft: tuple[float | None, ...]
    source: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.labels) == len(self.soft) == len(self.source):
            raise ValueError(
                f"{len(self.steps)} steps, {len(self.labels)} labels, {len(self.soft)} soft labels "
                f"and {len(self.source)} sources"
            )

    def first(self, n: int) -> LabelledSolution:
        """Return the solution's first n steps."""
        return replace(
            self,
            steps=self.steps[:n],
            labels=self.labels[:n],
            soft=self.soft[:n],
            source=self.source[:n],
        )


def solutions_of(tree: LabelledTree) -> Iterator[LabelledSolution]:
    """Yield a tree's paths as solutions.

    Metadata: "node" (the tip), "ended", "outcome", "policy", and a value a step of "nodes",
    "counts" (right and scored rollouts) and "verdicts" (the tool's word, None where not asked).
    """
    for path in tree.paths:
        steps = path.steps
        yield LabelledSolution(
            problem_id=tree.problem_id,
            statement=tree.statement,
            answer=tree.answer,
            steps=tuple(step.step for step in steps),
            labels=tuple(step.label for step in steps),
            soft=tuple(step.soft for step in steps),
            source=tuple(step.source for step in steps),
            metadata={
                "node": path.node,
                "ended": path.ended,
                "outcome": path.outcome,
                "policy": tree.policy,
                "nodes": tuple(step.node for step in steps),
                "counts": tuple((step.correct, step.total) for step in steps),
                "verdicts": tuple(
                    None if step.verdict is None else str(step.verdict.verdict) for step in steps
                ),
            },
        )


def labelled_beginnings(
    solutions: Iterable[LabelledSolution], *, soft: bool = False
) -> Iterator[LabelledSolution | LeftOut]:
    """Cut the solutions of one problem before their first unlabelled step; drop repetitions.

    A beginning of a longer beginning teaches nothing that the longer one does not.

    Args:
        solutions: Of one problem.
        soft: A step without a soft label counts as unlabelled, one without a hard label does not.
    """
    trie = Trie()
    cuts: list[tuple[LabelledSolution, int]] = []
    for solution in solutions:
        marks: Iterable[object] = solution.soft if soft else solution.labels
        n = len(list(takewhile(lambda x: x is not None, marks)))
        cut = solution.first(n)
        cuts.append((cut, trie.add(zip(cut.steps, cut.labels, strict=True))))
    written: set[int] = set()
    for cut, end in cuts:
        if not cut.steps:
            yield NO_LABEL
        elif end in written or trie.is_inner(end):
            yield SAME_STEPS
        else:
            written.add(end)
            yield cut


def statement_id(statement: str) -> str:
    """Make a problem id for a format that has none: equal for equal statements."""
    words = " ".join(statement.split()).encode("utf-8", "surrogatepass")
    return hashlib.sha256(words).hexdigest()[:16]
