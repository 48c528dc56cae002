"""How good labels are, measured against the truth that only a lab knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from treerl.lab.words.problem import WordsProblem
from treerl.lab.words.truth import judge
from treerl.tree import Tree

__all__ = ["Score", "score_labels", "truth_of_steps"]


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of steps; a step counts where all steps before it are truly right.

    Attributes:
        found: Wrong steps labelled wrong.
        missed: Wrong steps labelled right or not at all.
        false_alarms: Right steps labelled wrong.
        labelled: Steps with a label.
        steps: Steps that count.
    """

    found: int = 0
    missed: int = 0
    false_alarms: int = 0
    labelled: int = 0
    steps: int = 0

    @property
    def recall(self) -> float | None:
        """Share of the wrong steps that were found."""
        return _share(self.found, self.missed)

    @property
    def precision(self) -> float | None:
        """Share of the steps labelled wrong that are."""
        return _share(self.found, self.false_alarms)

    @property
    def coverage(self) -> float | None:
        """Share of the steps that have a label."""
        return _share(self.labelled, self.steps - self.labelled)

    def __add__(self, other: Score) -> Score:
        return Score(
            self.found + other.found,
            self.missed + other.missed,
            self.false_alarms + other.false_alarms,
            self.labelled + other.labelled,
            self.steps + other.steps,
        )


def _share(part: int, rest: int) -> float | None:
    return part / (part + rest) if part + rest else None


def truth_of_steps(tree: Tree) -> dict[int, bool]:
    """Return, for each step up to the first truly wrong one of its path, whether it is right."""
    problem = tree.problem
    record = {"id": problem.id, "question": problem.text, "answer": problem.answer}
    words = WordsProblem.from_record({**record, "metadata": problem.metadata})
    steps: dict[int, tuple[str, ...]] = {0: ()}  # node -> its path's steps, all right so far
    truth: dict[int, bool] = {}
    for node in tree.nodes[1:]:
        assert node.parent is not None
        before = steps.get(node.parent.index)
        if before is None or node.error is not None:
            continue
        if not node.text:
            steps[node.index] = before
            continue
        path = (*before, node.text)
        truth[node.index] = judge(words, path).verdicts[-1] is True
        if truth[node.index]:
            steps[node.index] = path
    return truth


def score_labels(truth: Mapping[int, bool], labels: Iterable[tuple[int, int | None]]) -> Score:
    """Compare labels with the truth.

    Args:
        truth: By node, for the steps that count.
        labels: (node, label); other nodes than those in ``truth`` are passed over.
    """
    by_node = dict(labels)
    found = missed = alarms = labelled = 0
    for node, right in truth.items():
        label = by_node.get(node)
        labelled += label is not None
        if right:
            alarms += label == 0
        elif label == 0:
            found += 1
        else:
            missed += 1
    return Score(found, missed, alarms, labelled, len(truth))
