"""Measures of labels that are held against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Calibration",
    "CalibrationBin",
    "Confusion",
    "FirstErrors",
    "LabelQuality",
    "calibrate",
]


@dataclass(frozen=True, slots=True)
class Confusion:
    """Labels against the truth; positive is a wrong step.

    Attributes:
        true_positive: Wrong steps labelled wrong.
        false_positive: Right steps labelled wrong.
        true_negative: Right steps labelled right.
        false_negative: Wrong steps labelled right.
    """

    true_positive: int = 0
    false_positive: int = 0
    true_negative: int = 0
    false_negative: int = 0

    @property
    def precision(self) -> float | None:
        """Share of the steps labelled wrong that are; None where none is."""
        return _ratio(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float | None:
        """Share of the labelled wrong steps that are found; None where there is none."""
        return _ratio(self.true_positive, self.true_positive + self.false_negative)


@dataclass(frozen=True, slots=True)
class FirstErrors:
    """Is the first wrong step of a solution named exactly?

    Attributes:
        wrong, right: Solutions with and without an error.
        wrong_hits, right_hits: Those predicted exactly; None predicted is never a hit.
        named: Solutions of which some step is named as the first wrong one.
        undetermined: Solutions with no prediction.
    """

    wrong: int
    right: int
    wrong_hits: int
    right_hits: int
    named: int
    undetermined: int

    @property
    def precision(self) -> float | None:
        """Share of the named first errors that are; None where none is named."""
        return _ratio(self.wrong_hits, self.named)

    @property
    def recall(self) -> float | None:
        """Share of the true first errors that are named; the same as ``error_accuracy``."""
        return self.error_accuracy

    @property
    def coverage(self) -> float | None:
        """Share of the solutions with a prediction."""
        total = self.wrong + self.right
        return _ratio(total - self.undetermined, total)

    @property
    def error_accuracy(self) -> float | None:
        """Share of solutions with an error whose first one is named; None without any."""
        return _ratio(self.wrong_hits, self.wrong)

    @property
    def correct_accuracy(self) -> float | None:
        """Share of solutions without an error that are left alone; None without any."""
        return _ratio(self.right_hits, self.right)

    @property
    def f1(self) -> float | None:
        """ProcessBench's F1: the harmonic mean of the two accuracies.

        None where one of the two kinds of solutions is missing.
        """
        error, correct = self.error_accuracy, self.correct_accuracy
        if error is None or correct is None:
            return None
        return 2 * error * correct / (error + correct) if error + correct else 0.0


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Steps whose soft label lies in [low, high): mean belief and share that is right."""

    low: float
    high: float
    steps: int
    belief: float
    right: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Soft labels against the truth.

    Attributes:
        steps: With a soft label.
        brier: Mean squared error; None without steps.
        error: Expected calibration error over the bins; None without steps.
        bins: Those that hold a step.
    """

    steps: int
    brier: float | None
    error: float | None
    bins: tuple[CalibrationBin, ...]


@dataclass(frozen=True, slots=True)
class LabelQuality:
    """A labeller, held against human labels.

    Only solutions that the labeller has seen count, of these only steps up to and including the
    first error. A step that several solutions share counts once, and a solution that another one
    goes on from is none of its own.

    Attributes:
        gold: Solutions with human labels.
        matched: Of these, the ones with a step that the labeller has seen.
        steps: Their counted steps.
        labelled: Of these, the ones with a label.
        confusion: Of all labels.
        by_source: Of the labels of each source.
        first_error: The labeller's.
        always_negative: That of saying -1 always.
        first_refuted: That of the first step that a tool refutes, -1 where none is; None where no
            verdict is known.
        rollouts_alone: That of the rollouts' counts without tools: wrong where no rollout reaches
            the right answer; None where no count is known.
        calibration: Of the soft labels.
    """

    gold: int
    matched: int
    steps: int
    labelled: int
    confusion: Confusion
    by_source: dict[str, Confusion]
    first_error: FirstErrors
    always_negative: FirstErrors
    first_refuted: FirstErrors | None
    rollouts_alone: FirstErrors | None
    calibration: Calibration

    @property
    def coverage(self) -> float | None:
        """Share of the counted steps that have a label."""
        return _ratio(self.labelled, self.steps)


def calibrate(beliefs: Sequence[tuple[float, int]], bins: int) -> Calibration:
    """Hold beliefs in [0, 1] against the truth, 0 or 1, in so many bins of equal width."""
    if not beliefs:
        return Calibration(0, None, None, ())
    groups: dict[int, list[tuple[float, int]]] = {}
    for belief, truth in beliefs:
        groups.setdefault(min(int(belief * bins), bins - 1), []).append((belief, truth))
    made = []
    for i, group in sorted(groups.items()):
        n = len(group)
        belief, right = sum(b for b, _ in group) / n, sum(t for _, t in group) / n
        made.append(CalibrationBin(i / bins, (i + 1) / bins, n, belief, right))
    n = len(beliefs)
    return Calibration(
        steps=n,
        brier=sum((belief - truth) ** 2 for belief, truth in beliefs) / n,
        error=sum(b.steps * abs(b.belief - b.right) for b in made) / n,
        bins=tuple(made),
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
