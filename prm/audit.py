"""Audits of a finished run: do its labels follow from its evidence, and are they right?

::

    report = replay("runs/first", StepVerifier())
    report.ok, report.mismatches
    gold = import_format("ProcessBench/gsm8k.json", "processbench")
    quality = against_gold("runs/first", gold)
    quality.first_error.f1, quality.by_source["mc"].precision
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from treerl.errors import ConfigError, StoreError
from treerl.prm.formats.processbench import first_error
from treerl.prm.formats.reading import import_format
from treerl.prm.formats.solutions import LabelledSolution
from treerl.prm.fuse import Fusion
from treerl.prm.label import StepLabel, label_tree
from treerl.protocols import JudgeStep
from treerl.store import RunReader
from treerl.tree import Tree
from treerl.verdict import StepVerdict, Verdict

__all__ = [
    "Calibration",
    "CalibrationBin",
    "Confusion",
    "FirstErrors",
    "LabelQuality",
    "Mismatch",
    "Replay",
    "against_gold",
    "labelled_trees_of",
    "recount",
    "replay",
    "run_fusion",
]

COUNTS_ALL_SAMPLES = ("mcts",)
"""Samplers whose counts are those of all samples through a step.

Others count only the rollouts that were started at it, which the finished tree does not tell from
those that were started above; their counts are held against all samples as a bound.
"""


# --- replay ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something stored that does not follow from the rest.

    Attributes:
        problem_id, node: Where.
        what: "verdict" (the tool says something else now), "evidence" (label and tree differ),
            "counts" (the tree's counts are not those of its leaves), "label" (the fusion of the
            run makes another label of this evidence), "missing" (a step has no label).
        stored, found: Both sides, short.
    """

    problem_id: str
    node: int
    what: str
    stored: str
    found: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay checked.

    Attributes:
        trees, labels: Read.
        verdicts: Tool verdicts asked for again.
        counts: Steps whose Monte-Carlo counts were recomputed exactly.
        bounded: Steps whose counts were held against the samples of the tree as a bound.
        relabelled: Labels fused again; 0 where the run's rule is unknown here.
        mismatches: All that did not agree.
    """

    trees: int
    labels: int
    verdicts: int
    counts: int
    bounded: int
    relabelled: int
    mismatches: tuple[Mismatch, ...]

    @property
    def ok(self) -> bool:
        """True where everything agreed."""
        return not self.mismatches


def replay(
    run: str | Path | RunReader, verifier: JudgeStep | None = None, *, share: float = 1.0
) -> Replay:
    """Recompute what the labels of a run stand on, from its stored trees.

    Args:
        run: A run folder with labels.
        verifier: Judges steps again; None leaves the tools out. It must be of the run's version,
            or differences are its own.
        share: Part of the verdicts to ask for again, chosen by the labels' ids, so that equal
            calls choose the same ones.

    Raises:
        ConfigError: The run has no labels, or ``share`` is not in [0, 1].
        StoreError: The folder cannot be read.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share must be in [0, 1], not {share}")
    reader = run if isinstance(run, RunReader) else RunReader(run)
    audit = _Replay(reader, verifier, share)
    for tree, labels in labelled_trees_of(reader):
        audit.check(tree, labels)
    n = audit.counts
    return Replay(
        trees=n["trees"],
        labels=n["labels"],
        verdicts=n["verdicts"],
        counts=n["counts"],
        bounded=n["bounded"],
        relabelled=n["relabelled"],
        mismatches=tuple(audit.mismatches),
    )


class _Replay:
    """The checks of one replay and what they found."""

    def __init__(self, run: RunReader, verifier: JudgeStep | None, share: float) -> None:
        self.counts: Counter[str] = Counter()
        self.mismatches: list[Mismatch] = []
        self._verifier = verifier
        self._share = share
        self._fusion = run_fusion(run)
        self._right_above = _right_above(run)

    def check(self, tree: Tree, labels: tuple[StepLabel, ...]) -> None:
        """Check one tree."""
        self.counts["trees"] += 1
        self.counts["labels"] += len(labels)
        again = recount(tree, self._right_above)
        exact = tree.run.sampler in COUNTS_ALL_SAMPLES
        for label in labels:
            if not 0 < label.node < len(tree):
                self._add(label, "evidence", f"node {label.node}", "no such node")
                continue
            self._check_counts(tree, label, again[label.node], exact)
            self._check_verdict(tree, label)
        if self._fusion is not None:
            self._check_labels(tree, labels, self._fusion)

    def _check_counts(
        self, tree: Tree, label: StepLabel, found: tuple[int, int], exact: bool
    ) -> None:
        node = tree.nodes[label.node]
        stored = (label.correct, label.total)
        if stored != (node.correct, node.total):
            self._add(label, "evidence", _share(stored), _share((node.correct, node.total)))
        self.counts["counts" if exact else "bounded"] += 1
        wrong, found_wrong = label.total - label.correct, found[1] - found[0]
        fits = stored == found if exact else label.correct <= found[0] and wrong <= found_wrong
        if not fits:
            self._add(label, "counts", _share(stored), _share(found))

    def _check_verdict(self, tree: Tree, label: StepLabel) -> None:
        if label.verdict != tree.nodes[label.node].verdict:
            found = _word(tree.nodes[label.node].verdict)
            self._add(label, "evidence", _word(label.verdict), found)
        asked = self._verifier is not None and label.verdict is not None
        if not asked or not _is_chosen(label.id, self._share):
            return
        assert self._verifier is not None
        self.counts["verdicts"] += 1
        found_verdict = self._verifier.verify(
            label.step, problem=label.statement, previous_steps=label.prefix
        )
        if found_verdict != label.verdict:
            self._add(label, "verdict", _word(label.verdict), _word(found_verdict))

    def _check_labels(self, tree: Tree, labels: tuple[StepLabel, ...], fusion: Fusion) -> None:
        stored = {label.node: label for label in labels}
        for label in label_tree(tree, fusion):
            old = stored.get(label.node)
            if old is None:
                self._add(label, "missing", "no label", _label(label))
                continue
            self.counts["relabelled"] += 1
            if _label(old) != _label(label):
                self._add(label, "label", _label(old), _label(label))

    def _add(self, label: StepLabel, what: str, stored: str, found: str) -> None:
        self.mismatches.append(Mismatch(label.problem_id, label.node, what, stored, found))


def labelled_trees_of(run: RunReader) -> Iterator[tuple[Tree, tuple[StepLabel, ...]]]:
    """Yield the trees of a run with their labels, one at a time; both stand in one order.

    Raises:
        ConfigError: The run has no labels.
        StoreError: Trees and labels do not belong together.
    """
    _check_labelled(run)
    groups = groupby(map(StepLabel.from_json, run.labels()), key=lambda label: label.problem_id)
    waiting = next(groups, None)
    for tree in run.trees():
        labels: tuple[StepLabel, ...] = ()
        if waiting is not None and waiting[0] == tree.problem.id:
            labels = tuple(waiting[1])
            waiting = next(groups, None)
        yield tree, labels
    # A run that still goes on may have grown between the two readings.
    if waiting is not None and run.finished:
        raise StoreError(f"{run.path}: the labels of problem '{waiting[0]}' have no tree")


def _check_labelled(run: RunReader) -> None:
    if run.manifest.get("kind") != "label":
        kind = run.manifest.get("kind")
        raise ConfigError(f"{run.path} is a run of kind {kind!r}, which has no labels to audit")


def recount(tree: Tree, right_above: float = 0.5) -> list[tuple[int, int]]:
    """Return right and scored samples through each node, counted from the leaves alone."""
    counts = [(0, 0)] * len(tree)
    for node in reversed(tree.nodes):
        right, total = counts[node.index]
        if node.is_leaf and node.reward is not None:
            total += node.multiplicity
            right += node.multiplicity * (node.reward > right_above)
            counts[node.index] = right, total
        if node.parent is not None:
            above = counts[node.parent.index]
            counts[node.parent.index] = above[0] + right, above[1] + total
    return counts


def run_fusion(run: RunReader) -> Fusion | None:
    """Return the fusion that a run's manifest names, None where this treerl has none like it."""
    try:
        return Fusion(**run.manifest["fusion"])
    except (KeyError, TypeError, ConfigError):
        return None


def _right_above(run: RunReader) -> float:
    search = run.manifest.get("search")
    value = search.get("right_above", 0.5) if isinstance(search, Mapping) else 0.5
    return float(value)


def _is_chosen(id: str, share: float) -> bool:
    digest = hashlib.sha256(id.encode()).digest()
    return int.from_bytes(digest[:6], "big") < share * 2**48


def _share(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {counts[1]}"


def _word(verdict: StepVerdict | None) -> str:
    if verdict is None:
        return "not asked"
    return f"{verdict.verdict} ({verdict.strength or 'no strength'}, {verdict.reason})"


def _label(label: StepLabel) -> str:
    soft = "none" if label.soft is None else repr(label.soft)
    masked = ", masked" if label.masked else ""
    return f"{label.label} (soft {soft}, {label.source}{masked})"


# --- labels against human labels ------------------------------------------------------------------


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
    """ProcessBench's measure: is the first wrong step named exactly?

    Attributes:
        wrong, right: Solutions with and without an error.
        wrong_hits, right_hits: Those predicted exactly; None predicted is never a hit.
        undetermined: Solutions with no prediction.
    """

    wrong: int
    right: int
    wrong_hits: int
    right_hits: int
    undetermined: int

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
        """Harmonic mean of the two; None where one of the two kinds is missing."""
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
    first error.

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
    calibration: Calibration

    @property
    def coverage(self) -> float | None:
        """Share of the counted steps that have a label."""
        return _ratio(self.labelled, self.steps)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the labeller says about a step."""

    label: int | None
    soft: float | None
    source: str
    verdict: str | None


def against_gold(
    labelled: str | Path | RunReader | Iterable[LabelledSolution],
    gold: str | Path | Iterable[LabelledSolution],
    *,
    bins: int = 10,
) -> LabelQuality:
    """Measure labels against human labels of the same solutions.

    Steps are the same where problem, all steps before and the step itself have the same words;
    white space does not count. Of equal steps the first one counts.

    Args:
        labelled: A run folder, or solutions from anywhere.
        gold: A file in ProcessBench's form, or solutions whose labels are the truth.
        bins: Of the calibration.

    Raises:
        ConfigError: No gold solution was labelled, or the run has no labels.
        ProblemError: The gold file is damaged.
    """
    truth = list(import_format(gold, "processbench") if isinstance(gold, str | Path) else gold)
    keys = [list(_step_keys(solution)) for solution in truth]
    known = _known_steps(labelled, {key for path in keys for key in path})
    score = _Score()
    for solution, path in zip(truth, keys, strict=True):
        score.add(solution, [known.get(key) for key in path])
    if not score.counts["matched"]:
        raise ConfigError(
            f"none of the {len(truth)} solutions with human labels was labelled: problem and steps "
            "must have the same words"
        )
    return score.quality(len(truth), bins)


class _Score:
    """Counts over gold solutions."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._cells: dict[str, Counter[str]] = {}
        self._firsts = {name: Counter[str]() for name in ("own", "negative", "refuted")}
        self._beliefs: list[tuple[float, int]] = []
        self._verdicts = False

    def add(self, gold: LabelledSolution, steps: list[_Known | None]) -> None:
        """Count one solution."""
        first = first_error(gold.labels)
        if first is None or not any(step is not None for step in steps):
            return
        self.counts["matched"] += 1
        counted = steps if first == -1 else steps[: first + 1]
        for i, step in enumerate(counted):
            self.counts["steps"] += 1
            if step is not None:
                self._add_step(step, truth=int(i != first))
        self._verdicts |= any(step is not None and step.verdict is not None for step in steps)
        own = first_error([None if step is None else step.label for step in steps])
        refuted = [step is not None and step.verdict == Verdict.REFUTED for step in steps]
        predictions = {
            "own": own,
            "negative": -1,
            "refuted": refuted.index(True) if True in refuted else -1,
        }
        kind = "right" if first == -1 else "wrong"
        for name, prediction in predictions.items():
            firsts = self._firsts[name]
            firsts[kind] += 1
            firsts[f"{kind}_hits"] += prediction == first
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
            calibration=_calibration(self._beliefs, bins),
        )


def _first_errors(counts: Mapping[str, int]) -> FirstErrors:
    names = ("wrong", "right", "wrong_hits", "right_hits", "undetermined")
    return FirstErrors(**{name: counts.get(name, 0) for name in names})


def _calibration(beliefs: list[tuple[float, int]], bins: int) -> Calibration:
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
    _check_labelled(run)
    for label in map(StepLabel.from_json, run.labels()):
        key = _hash(b"", label.statement)
        for step in (*label.prefix, label.step):
            key = _hash(key, step)
        word = None if label.verdict is None else str(label.verdict.verdict)
        yield key, _Known(label.label, label.soft, label.source, word)


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


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
