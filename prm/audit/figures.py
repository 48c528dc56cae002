"""Figures of a run's labels: balance, positions, lengths, duplicates, and what formats hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treerl.prm.audit.runs import labelled_trees_of, run_fusion
from treerl.prm.duplicates import NearDuplicates, near_duplicates
from treerl.prm.formats.base import Format, LabelledTree, LeftOut
from treerl.prm.formats.paths import label_paths, policy_name
from treerl.prm.formats.solutions import LabelledSolution, solutions_of
from treerl.prm.formats.writing import FORMATS, make_format
from treerl.prm.fuse import Fusion
from treerl.prm.label import StepLabel, evidence_of
from treerl.store import RunReader
from treerl.tree import Tree

__all__ = ["CardFigures", "FormatFigures", "LengthBin", "card_figures"]

LENGTHS = (10, 20, 40, 80)
"""Upper bounds of the step lengths, in words; the last bin is open."""


ORIGIN, LICENSE = ("source", "data_source"), ("license", "licence")
"""Fields of a problem's row that say where it is from, and on what terms."""


@dataclass(frozen=True, slots=True)
class LengthBin:
    """Steps of a length, and how many of them are wrong.

    ``before`` counts every step by its own evidence, masked ones too, ``after`` only the labels
    that the data set holds.

    Attributes:
        longest: Words of the longest; None for the open bin.
        steps: All steps of the length.
        before, after: Labelled steps and, of these, wrong ones; ``before`` is None where the
            run's fusion is unknown here.
    """

    longest: int | None
    steps: int
    before: tuple[int, int] | None
    after: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FormatFigures:
    """What a format makes of the run, and what it does not hold."""

    name: str
    rows: int
    left_out: dict[str, int]
    losses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CardFigures:
    """All figures of a card.

    Attributes:
        problems, solutions: Read; a solution is a path to a tip.
        origins, licenses: Problems by what their rows say about it in a field "source" or
            "data_source", and "license" or "licence"; those that say nothing count nowhere.
        labels: Steps by "right", "wrong" and "unlabelled", of which "masked".
        sources: Labels by source; unlabelled steps by the reason for it.
        positions: For each 0-based position, its right, wrong and unlabelled steps.
        lengths: By length of the step.
        repeated: Labels with the id of another one: equal problem, prefix and step.
        duplicates: Of the steps.
        formats: A record a format.
    """

    problems: int
    solutions: int
    origins: dict[str, int]
    licenses: dict[str, int]
    labels: dict[str, int]
    sources: dict[str, dict[str, int]]
    positions: tuple[tuple[int, int, int], ...]
    lengths: tuple[LengthBin, ...]
    repeated: int
    duplicates: NearDuplicates
    formats: tuple[FormatFigures, ...]


def card_figures(run: str | Path | RunReader, formats: Sequence[str] | None = None) -> CardFigures:
    """Count what a card says, in one reading of the run.

    Args:
        run: A run folder with labels; of an unfinished one what is there counts.
        formats: Those to describe; all by default.

    Raises:
        ConfigError: The run has no labels, or there is no such format.
        StoreError: Trees and labels do not belong together.
    """
    reader = run if isinstance(run, RunReader) else RunReader(run)
    names = FORMATS if formats is None else formats
    counter = _Counter(reader, [make_format(name) for name in names])
    duplicates = near_duplicates(counter.read(reader))
    return counter.figures(duplicates)


class _Counter:
    """Counts while the trees pass by, and hands their solutions on."""

    def __init__(self, run: RunReader, formats: Iterable[Format]) -> None:
        self._fusion = run_fusion(run)
        self._policy = policy_name(run)
        self._formats = list(formats)
        self._rows: Counter[str] = Counter()
        self._left_out: dict[str, Counter[str]] = {f.name: Counter() for f in self._formats}
        self._totals: Counter[str] = Counter()
        self._origins: Counter[str] = Counter()
        self._licenses: Counter[str] = Counter()
        self._labels: Counter[str] = Counter()
        self._sources: dict[str, Counter[str]] = {"labelled": Counter(), "unlabelled": Counter()}
        self._positions: Counter[tuple[int, str]] = Counter()
        self._lengths = [Counter[str]() for _ in (*LENGTHS, None)]

    def read(self, run: RunReader) -> Iterator[LabelledSolution]:
        """Count the run's trees, yielding their solutions."""
        for tree, labels in labelled_trees_of(run):
            self._totals["problems"] += 1
            self._add_origin(tree.problem.metadata)
            # An id holds the problem's words, so equal ones stand in one tree.
            self._totals["repeated"] += len(labels) - len({label.id for label in labels})
            for label in labels:
                self._add_label(tree, label)
            paths = label_paths(tree, labels, self._policy)
            self._totals["solutions"] += len(paths.paths)
            self._add_rows(paths)
            yield from solutions_of(paths)

    def _add_origin(self, row: Mapping[str, Any]) -> None:
        for counts, fields in ((self._origins, ORIGIN), (self._licenses, LICENSE)):
            said = next((row[field] for field in fields if isinstance(row.get(field), str)), None)
            if said:
                counts[" ".join(said.split())[:80]] += 1

    def _add_label(self, tree: Tree, label: StepLabel) -> None:
        kind = {1: "right", 0: "wrong", None: "unlabelled"}[label.label]
        self._labels[kind] += 1
        self._labels["masked"] += label.masked
        known = label.label is not None
        source = "masked" if label.masked else str(label.source)
        self._sources["labelled" if known else "unlabelled"][source] += 1
        self._positions[label.index, kind] += 1
        words = len(label.step.split())
        number = next((i for i, most in enumerate(LENGTHS) if words <= most), len(LENGTHS))
        length = self._lengths[number]
        length["steps"] += 1
        length["after"] += known
        length["after_wrong"] += label.label == 0
        if self._fusion is not None:
            own = _own_label(tree, label, self._fusion)
            length["before"] += own is not None
            length["before_wrong"] += own == 0

    def _add_rows(self, paths: LabelledTree) -> None:
        for format in self._formats:
            for row in format.rows(paths):
                if isinstance(row, LeftOut):
                    self._left_out[format.name][row.reason] += 1
                else:
                    self._rows[format.name] += 1

    def figures(self, duplicates: NearDuplicates) -> CardFigures:
        """Return the figures once everything was read."""
        kinds = ("right", "wrong", "unlabelled")
        depth = max((index + 1 for index, _ in self._positions), default=0)
        bounds = (*LENGTHS, None)
        return CardFigures(
            problems=self._totals["problems"],
            solutions=self._totals["solutions"],
            origins=dict(self._origins.most_common()),
            licenses=dict(self._licenses.most_common()),
            labels={kind: self._labels[kind] for kind in (*kinds, "masked")},
            sources={name: dict(found.most_common()) for name, found in self._sources.items()},
            positions=tuple(
                (
                    self._positions[i, "right"],
                    self._positions[i, "wrong"],
                    self._positions[i, "unlabelled"],
                )
                for i in range(depth)
            ),
            lengths=tuple(
                LengthBin(
                    longest=longest,
                    steps=n["steps"],
                    before=None if self._fusion is None else (n["before"], n["before_wrong"]),
                    after=(n["after"], n["after_wrong"]),
                )
                for longest, n in zip(bounds, self._lengths, strict=True)
            ),
            repeated=self._totals["repeated"],
            duplicates=duplicates,
            formats=tuple(
                FormatFigures(
                    name=format.name,
                    rows=self._rows[format.name],
                    left_out=dict(self._left_out[format.name].most_common()),
                    losses=format.losses(),
                )
                for format in self._formats
            ),
        )


def _own_label(tree: Tree, label: StepLabel, fusion: Fusion) -> int | None:
    """Return what a step's evidence says about it, whatever stands before it."""
    return fusion(evidence_of(tree.nodes[label.node])).label if label.masked else label.label
