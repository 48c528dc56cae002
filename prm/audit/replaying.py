"""Replay: what a run's labels stand on, computed again from its stored trees."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from treerl.errors import ConfigError, StoreError, TreeRLError
from treerl.prm.audit.files import FileChecks
from treerl.prm.audit.mismatches import Mismatch, difference, file_in
from treerl.prm.audit.runs import (
    StoredTree,
    check_labelled,
    right_above_of,
    run_fusion,
    stored_trees,
)
from treerl.prm.fuse import Fusion
from treerl.prm.label import LabelLine, label_tree
from treerl.prm.pipeline import summarise
from treerl.protocols import JudgeStep
from treerl.runfiles import DAMAGE
from treerl.search.runs import tree_failures
from treerl.store import ProblemResult, RunReader
from treerl.tree import Tree
from treerl.verdict import StepVerdict

__all__ = ["Replay", "recount", "replay"]

COUNTS_ALL_SAMPLES = ("mcts",)
"""Samplers whose counts are those of all samples through a step.

Others count only the rollouts that were started at it, which the finished tree does not tell from
those that were started above; their counts are held against all samples as a bound.
"""


_OF_THE_RULE = ("label", "label_source", "masked", "rationale", "soft_label")
"""Fields of a label record that its fusion rule decides; the tree alone decides the others."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay checked.

    Attributes:
        trees, labels: Read.
        verdicts: Tool verdicts asked for again.
        counts: Steps whose Monte-Carlo counts were recomputed exactly.
        bounded: Steps whose counts were held against the samples of the tree as a bound.
        relabelled: Labels fused again; 0 where the run's rule is unknown here, which is a mismatch.
        files: Files beside trees and labels that were held against them.
        mismatches: All that did not agree.
    """

    trees: int
    labels: int
    verdicts: int
    counts: int
    bounded: int
    relabelled: int
    files: int
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
    check_labelled(reader, "audit")
    audit = _Replay(reader, verifier, share)
    audit.run()
    n = audit.counts
    return Replay(
        trees=n["trees"],
        labels=n["labels"],
        verdicts=n["verdicts"],
        counts=n["counts"],
        bounded=n["bounded"],
        relabelled=n["relabelled"],
        files=n["files"],
        mismatches=tuple(audit.mismatches),
    )


class _Replay:
    """The checks of one replay and what they found."""

    def __init__(self, run: RunReader, verifier: JudgeStep | None, share: float) -> None:
        self.counts: Counter[str] = Counter()
        self.mismatches: list[Mismatch] = []
        self._run = run
        self._verifier = verifier
        self._share = share
        self._fusion = run_fusion(run)
        self._right_above = right_above_of(run)

    def run(self) -> None:
        """Check everything."""
        files = FileChecks(self._run, self.mismatches.append)
        summary = summarise(self._results(files), right_above=self._right_above)
        files.end(summary)
        self.counts["files"] = files.checked

    def _results(self, files: FileChecks) -> Iterator[ProblemResult]:
        """Check a tree at a time, yielding what its problem's result should be."""
        for stored in stored_trees(self._run, files.ids, self._check_stray):
            made = self._made(stored, files.index_of(stored))
            self._check_tree(stored, made)
            files.check(stored, made)
            yield made
        yield from files.failed_results()

    def _made(self, stored: StoredTree, index: int) -> ProblemResult:
        """Return what the labeller makes of a stored tree."""
        tree = stored.tree
        _restore_surrogates(tree, stored.labels)
        try:
            labels = [label.to_json() for label in label_tree(tree, self._fusion or Fusion())]
        except DAMAGE as error:
            raise StoreError(
                f"{self._run.path}: the tree of problem '{tree.problem.id}' is damaged: {error}"
            ) from error
        if self._fusion is None:  # what the unknown rule decided is taken as it stands
            of_node = {line.label.node: line.line.record for line in stored.labels}
            for label in labels:
                old = of_node.get(_node(label), {})
                label.update({name: old[name] for name in _OF_THE_RULE if name in old})
        conflicts = [label for label in labels if label["label_source"] == "conflict"]
        return ProblemResult(index, tree, labels, conflicts, list(tree_failures(index, tree)))

    def _check_tree(self, stored: StoredTree, made: ProblemResult) -> None:
        tree = stored.tree
        self.counts["trees"] += 1
        self.counts["labels"] += len(stored.labels)
        again = recount(tree, self._right_above)
        exact = tree.run.sampler in COUNTS_ALL_SAMPLES
        of_node = {_node(label): label for label in made.labels}
        seen: set[int] = set()
        for line in stored.labels:
            node = line.label.node
            found = of_node.get(node)
            if found is None:
                self._add(line, "evidence", f"node {node}", "no such step", "evidence.tree.node")
            elif node in seen:
                self._add(line, "repeated", f"a second label of node {node}", "one")
            else:
                seen.add(node)
                self._check_counts(line, again[node], exact)
                self._check_verdict(tree, line)
                self._check_record(line, found)
        for node in of_node.keys() - seen:
            self._miss(stored, node, of_node[node])
        whole = len(stored.labels) == len(seen) == len(of_node)
        if whole and any(a.label.node > b.label.node for a, b in pairwise(stored.labels)):
            self._add(stored.labels[0], "content", "labels out of order", "the order of the nodes")

    def _check_record(self, line: LabelLine, made: dict[str, Any]) -> None:
        self.counts["relabelled"] += self._fusion is not None
        stored = line.line.record
        if stored == made:
            return
        kinds = {"label": {*_OF_THE_RULE}, "evidence": {"evidence"}}
        kinds["content"] = {*stored, *made} - kinds["label"] - kinds["evidence"]
        for what, names in kinds.items():
            sides = [{k: v for k, v in side.items() if k in names} for side in (stored, made)]
            if differs := difference(what, *sides, **self._place(line)):
                self.mismatches.append(differs)

    def _check_counts(self, line: LabelLine, found: tuple[int, int], exact: bool) -> None:
        label = line.label
        stored = (label.correct, label.total)
        self.counts["counts" if exact else "bounded"] += 1
        wrong, found_wrong = label.total - label.correct, found[1] - found[0]
        fits = stored == found if exact else label.correct <= found[0] and wrong <= found_wrong
        if not fits:
            self._add(line, "counts", _share(stored), _share(found), "evidence.mc")

    def _check_verdict(self, tree: Tree, line: LabelLine) -> None:
        verdict = line.label.verdict
        if self._verifier is None or verdict is None or not _is_chosen(line.label.id, self._share):
            return
        self.counts["verdicts"] += 1
        # The step of the tree: a label that says another one is a difference of its own.
        *before, step = [node.text for node in tree.path(tree.nodes[line.label.node]) if node.text]
        try:
            found = self._verifier.verify(step, problem=tree.problem.text, previous_steps=before)
        except TreeRLError:
            raise
        except Exception as error:  # whatever a judge of the user's own raises
            self._add(line, "verdict", _word(verdict), f"{type(error).__name__}: {error}")
            return
        if found != verdict:
            self._add(line, "verdict", _word(verdict), _word(found), "evidence.tool")

    def _check_stray(self, line: LabelLine) -> None:
        self.counts["labels"] += 1
        self._add(
            line, "content", "a label", f"no tree of '{line.label.problem_id}' here", "problem.id"
        )

    def _miss(self, stored: StoredTree, node: int, label: dict[str, Any]) -> None:
        lines = stored.labels
        file = file_in(self._run.path, lines[0].line) if lines else "labels"
        found = f"{label['label']} ({label['label_source']})"
        id = stored.tree.problem.id
        self.mismatches.append(
            Mismatch("missing", "no label", found, file, problem_id=id, node=node)
        )

    def _add(self, line: LabelLine, what: str, stored: str, found: str, field: str = "") -> None:
        place = self._place(line)
        self.mismatches.append(Mismatch(what, stored, found, field=field, **place))

    def _place(self, line: LabelLine) -> dict[str, Any]:
        return {
            "file": file_in(self._run.path, line.line),
            "line": line.line.number,
            "problem_id": line.label.problem_id,
            "node": line.label.node,
        }


def _restore_surrogates(tree: Tree, lines: list[LabelLine]) -> None:
    """Give nodes back the lone surrogates that their labels hold and parquet cannot."""
    for line in lines:
        node, step = line.label.node, line.label.step
        held = step.encode("utf-8", "replace").decode()
        if held != step and 0 < node < len(tree) and tree.nodes[node].text == held:
            tree.nodes[node].text = step


def _node(label: dict[str, Any]) -> int:
    node: int = label["evidence"]["tree"]["node"]
    return node


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


def _is_chosen(id: str, share: float) -> bool:
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") < share * 2**48


def _share(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {counts[1]}"


def _word(verdict: StepVerdict | None) -> str:
    if verdict is None:
        return "not asked"
    return f"{verdict.verdict} ({verdict.strength or 'no strength'}, {verdict.reason})"
