"""TRL's stepwise supervision: a prompt, its completions, a boolean each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.paths import labelled_prefixes
from treerl.prm.label import StepLabel

__all__ = ["TRLStepwise"]


@dataclass(frozen=True, slots=True)
class TRLStepwise:
    """``prompt``: str, ``completions``: [str], ``labels``: [bool], for TRL's ``PRMTrainer``.

    Labels are booleans because the trainer casts them with ``int``, which makes 0 of a soft 0.9.
    A path is cut before its first unlabelled step, so every completion has a label.

    Attributes:
        soft: ``labels`` are the soft labels, [float], for trainers that take them; a path is cut
            before its first step without one.
    """

    soft: bool = False

    name = "trl"

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        if self.soft:
            return (
                "steps without a soft label, and all steps behind one: a path is cut there",
                "hard labels: a reader makes them by its own threshold, but TRL's PRMTrainer casts "
                "with int, which makes 0 of 0.9",
                "evidence, sources of labels and rationales",
                "the gold answer and whether the final answer is right",
            )
        return (
            "steps without a label, and all steps behind one: a path is cut there",
            "soft labels: only true and false are kept",
            "evidence, sources of labels and rationales",
            "the gold answer and whether the final answer is right",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct labelled path."""
        for steps in labelled_prefixes(tree, self._is_usable):
            if isinstance(steps, LeftOut):
                yield steps
                continue
            yield {
                "prompt": tree.statement,
                "completions": [step.step for step in steps],
                "labels": [step.soft if self.soft else step.label == 1 for step in steps],
            }

    def _is_usable(self, step: StepLabel) -> bool:
        return (step.soft if self.soft else step.label) is not None
