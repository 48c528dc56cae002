"""ProcessBench: whole solutions with the index of their first wrong step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treerl.prm.formats.base import LabelledPath, LabelledTree, LeftOut, Row
from treerl.prm.formats.paths import Trie

__all__ = ["ProcessBench", "first_error"]


@dataclass(frozen=True, slots=True)
class ProcessBench:
    """The fields of ProcessBench's own files, in their order.

    ``id``: str, ``generator``: str, ``problem``: str, ``steps``: [str], ``final_answer_correct``:
    bool, ``label``: int. The label is the 0-based index of the first wrong step, -1 for none.
    Only solutions that ended are written, and only those whose first error is determined or which
    are labelled right from the first step to the last.
    """

    name = "processbench"

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        return (
            "solutions with an unlabelled step before their first wrong one",
            "solutions that the search left unfinished or a cap cut off",
            "soft labels, evidence, sources of labels and rationales",
            "the gold answer",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct solution that is determined."""
        trie = Trie()
        seen: set[int] = set()
        for path in tree.paths:
            label = first_error([step.label for step in path.steps])
            reason = _why_not(path, label)
            if reason is not None:
                yield LeftOut(reason)
                continue
            key = trie.add(step.step for step in path.steps)
            if key in seen:
                yield LeftOut("another row holds the same solution")
                continue
            seen.add(key)
            yield {
                "id": f"{tree.problem_id}-{path.node}",
                "generator": tree.policy,
                "problem": tree.statement,
                "steps": [step.step for step in path.steps],
                "final_answer_correct": path.outcome,
                "label": label,
            }


def first_error(labels: Sequence[int | None]) -> int | None:
    """Return the index of the first 0, -1 where all are 1, None where that is not determined.

    Example:
        >>> first_error([1, 0, None]), first_error([1, 1]), first_error([None, 0])
        (1, -1, None)
    """
    for index, label in enumerate(labels):
        if label is None:
            return None
        if label == 0:
            return index
    return -1


def _why_not(path: LabelledPath, label: int | None) -> str | None:
    if not path.ended:
        return "the solution is unfinished or was cut off"
    if path.outcome is None:
        return "the final answer could not be judged"
    if label is None:
        return "a step before the first wrong one has no label"
    if label == -1 and not path.outcome:
        return "no step is labelled wrong, but the final answer is"
    return None
