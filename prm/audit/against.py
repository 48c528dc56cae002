"""Labels against human labels of the same solutions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from treerl.errors import ConfigError
from treerl.prm.audit.measures import Confusion, FirstErrors, LabelQuality, calibrate
from treerl.prm.audit.runs import check_labelled, run_fusion
from treerl.prm.formats.guessing import guess_format
from treerl.prm.formats.processbench import first_error
from treerl.prm.formats.reading import import_format
from treerl.prm.formats.solutions import LabelledSolution
from treerl.prm.label import read_labels
from treerl.store import RunReader
from treerl.verdict import Verdict

__all__ = ["against_gold"]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the labeller says about a step; ``counted`` is what its rollouts alone say."""

    label: int | None
    soft: float | None
    source: str
    verdict: str | None
    counted: int | None = None
    has_counts: bool = False


def against_gold(
    labelled: str | Path | RunReader | Iterable[LabelledSolution],
    gold: str | Path | Iterable[LabelledSolution],
    *,
    format: str | None = None,
    bins: int = 10,
) -> LabelQuality:
    """Measure labels against human labels of the same solutions.

    Steps are the same where problem, all steps before and the step itself have the same words;
    white space does not count. Of equal steps the first one counts.

    Args:
        labelled: A run folder, or solutions from anywhere.
        gold: A file of any format that can be imported, or solutions whose labels are the truth.
        format: That of the file; by default the fields of its first row tell.
        bins: Of the calibration.

    Raises:
        ConfigError: No gold solution was labelled, or the run has no labels.
        ProblemError: The gold file is damaged.
    """
    if isinstance(gold, str | Path):
        gold = import_format(gold, format or guess_format(gold))
    truth, keys = _whole(gold)
    known = _known_steps(labelled, {key for path in keys for key in path})
    score = _Score()
    for solution, path in zip(truth, keys, strict=True):
        score.add(solution, path, [known.get(key) for key in path])
    if not score.counts["matched"]:
        raise ConfigError(
            f"none of the {len(truth)} solutions with human labels was labelled: problem and steps "
            "must have the same words"
        )
    return score.quality(len(truth), bins)


def _whole(
    solutions: Iterable[LabelledSolution],
) -> tuple[list[LabelledSolution], list[list[bytes]]]:
    """Return the solutions that no other one goes on from, and the keys of their steps.

    PRM800K is read as a solution a completion, of which most are beginnings of others.
    """
    found = [(solution, list(_step_keys(solution))) for solution in solutions]
    inner = {key for _, path in found for key in path[:-1]}
    whole = [(s, path) for s, path in found if path and path[-1] not in inner]
    return [solution for solution, _ in whole], [path for _, path in whole]


class _Score:
    """Counts over gold solutions."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._cells: dict[str, Counter[str]] = {}
        self._firsts = {name: Counter[str]() for name in ("own", "negative", "refuted", "counted")}
        self._beliefs: list[tuple[float, int]] = []
        self._seen: set[bytes] = set()
        self._verdicts = False
        self._counts = False

    def add(self, gold: LabelledSolution, keys: list[bytes], steps: list[_Known | None]) -> None:
        """Count one solution."""
        first = first_error(gold.labels)
        if first is None or not any(step is not None for step in steps):
            return
        self.counts["matched"] += 1
        counted = steps if first == -1 else steps[: first + 1]
        for i, step in enumerate(counted):
            if keys[i] in self._seen:
                continue
            self._seen.add(keys[i])
            self.counts["steps"] += 1
            if step is not None:
                self._add_step(step, truth=int(i != first))
        self._verdicts |= any(step is not None and step.verdict is not None for step in steps)
        self._counts |= any(step is not None and step.has_counts for step in steps)
        own = first_error([None if step is None else step.label for step in steps])
        refuted = [step is not None and step.verdict == Verdict.REFUTED for step in steps]
        predictions = {
            "own": own,
            "negative": -1,
            "refuted": refuted.index(True) if True in refuted else -1,
            "counted": first_error([None if step is None else step.counted for step in steps]),
        }
        kind = "right" if first == -1 else "wrong"
        for name, prediction in predictions.items():
            firsts = self._firsts[name]
            firsts[kind] += 1
            firsts[f"{kind}_hits"] += prediction == first
            firsts["named"] += prediction is not None and prediction >= 0
            firsts["undetermined"] += prediction is None

    def _add_step(self, step: _Known, *, truth: int) -> None:
        if step.soft is not None:
            self._beliefs.append((step.soft, truth))
        if step.label is None:
            return
        self.counts["labelled"] += 1
        correctness = "true" if step.label == truth else "false"
        cell = f"{correctness}_{'negative' if step.label == 1 else 'positive'}"
        self._cells.setdefault(step.source, Counter())[cell] += 1

    def quality(self, gold: int, bins: int) -> LabelQuality:
        """Return the measures."""
        by_source = {name: Confusion(**cells) for name, cells in sorted(self._cells.items())}
        total: Counter[str] = sum(self._cells.values(), Counter())
        return LabelQuality(
            gold=gold,
            matched=self.counts["matched"],
            steps=self.counts["steps"],
            labelled=self.counts["labelled"],
            confusion=Confusion(**total),
            by_source=by_source,
            first_error=_first_errors(self._firsts["own"]),
            always_negative=_first_errors(self._firsts["negative"]),
            first_refuted=_first_errors(self._firsts["refuted"]) if self._verdicts else None,
            rollouts_alone=_first_errors(self._firsts["counted"]) if self._counts else None,
            calibration=calibrate(self._beliefs, bins),
        )


def _first_errors(counts: Mapping[str, int]) -> FirstErrors:
    names = ("wrong", "right", "wrong_hits", "right_hits", "named", "undetermined")
    return FirstErrors(**{name: counts.get(name, 0) for name in names})


def _known_steps(
    labelled: str | Path | RunReader | Iterable[LabelledSolution], wanted: set[bytes]
) -> dict[bytes, _Known]:
    """Return what the labeller says about the wanted steps; holds nothing else of a run."""
    if isinstance(labelled, str | Path):
        labelled = RunReader(labelled)
    found = _run_steps(labelled) if isinstance(labelled, RunReader) else _own_steps(labelled)
    known: dict[bytes, _Known] = {}
    for key, step in found:
        if key in wanted:
            known.setdefault(key, step)
    return known


def _run_steps(run: RunReader) -> Iterator[tuple[bytes, _Known]]:
    check_labelled(run, "audit")
    fusion = run_fusion(run)
    n_min = 1 if fusion is None else fusion.n_min
    for _, label in read_labels(run):
        key = _hash(b"", label.statement)
        for step in (*label.prefix, label.step):
            key = _hash(key, step)
        word = None if label.verdict is None else str(label.verdict.verdict)
        counted = _counted(label.correct, label.total, 1 if label.terminal else n_min)
        yield (
            key,
            _Known(
                label.label, label.soft, label.source, word, counted, has_counts=label.total > 0
            ),
        )


def _counted(correct: int, total: int, n_min: int) -> int | None:
    """Return what rollouts alone say about a step, None where they are too few."""
    return int(correct > 0) if total >= max(n_min, 1) else None


def _own_steps(solutions: Iterable[LabelledSolution]) -> Iterator[tuple[bytes, _Known]]:
    for solution in solutions:
        words = solution.metadata.get("verdicts", (None,) * len(solution.steps))
        for i, key in enumerate(_step_keys(solution)):
            yield key, _Known(solution.labels[i], solution.soft[i], solution.source[i], words[i])


def _step_keys(solution: LabelledSolution) -> Iterator[bytes]:
    """Yield a hash of the problem and all steps so far, for each step."""
    key = _hash(b"", solution.statement)
    for step in solution.steps:
        key = _hash(key, step)
        yield key


def _hash(before: bytes, text: str) -> bytes:
    words = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return hashlib.sha256(before + words).digest()
