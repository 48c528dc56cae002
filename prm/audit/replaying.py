"""Replay: what a run's labels stand on, computed again from its stored trees."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from treerl.errors import ConfigError
from treerl.prm.audit.runs import labelled_trees_of, run_fusion
from treerl.prm.fuse import Fusion
from treerl.prm.label import StepLabel, label_tree
from treerl.protocols import JudgeStep
from treerl.store import RunReader
from treerl.tree import Tree
from treerl.verdict import StepVerdict

__all__ = ["Mismatch", "Replay", "recount", "replay"]

COUNTS_ALL_SAMPLES = ("mcts",)
"""Samplers whose counts are those of all samples through a step.

Others count only the rollouts that were started at it, which the finished tree does not tell from
those that were started above; their counts are held against all samples as a bound.
"""


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
