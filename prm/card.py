"""The data set card: what a run's labels are, in figures, for the people who train on them.

::

    Path("README.md").write_text(dataset_card("runs/first"))
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treerl.errors import StoreError
from treerl.prm.audit import labelled_trees_of, run_fusion
from treerl.prm.duplicates import Contamination, NearDuplicates, near_duplicates
from treerl.prm.formats.base import Format, LabelledTree, LeftOut
from treerl.prm.formats.paths import label_paths, policy_name
from treerl.prm.formats.solutions import LabelledSolution, solutions_of
from treerl.prm.formats.writing import FORMATS, make_format
from treerl.prm.fuse import Fusion
from treerl.prm.label import StepLabel, evidence_of
from treerl.store import RunReader
from treerl.tree import Tree

__all__ = ["CardFigures", "FormatFigures", "LengthBin", "card_figures", "dataset_card"]

LENGTHS = (10, 20, 40, 80)
"""Upper bounds of the step lengths, in words; the last bin is open."""


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
        labels: Steps by "right", "wrong" and "unlabelled", of which "masked".
        sources: Labels by source; unlabelled steps by the reason for it.
        positions: For each 0-based position, its right, wrong and unlabelled steps.
        lengths: By length of the step.
        duplicates: Of the steps.
        formats: A record a format.
    """

    problems: int
    solutions: int
    labels: dict[str, int]
    sources: dict[str, dict[str, int]]
    positions: tuple[tuple[int, int, int], ...]
    lengths: tuple[LengthBin, ...]
    duplicates: NearDuplicates
    formats: tuple[FormatFigures, ...]


def card_figures(run: str | Path | RunReader, formats: Sequence[str] | None = None) -> CardFigures:
    """Count what a card says, in one reading of the run.

    Args:
        run: A finished run folder with labels.
        formats: Those to describe; all by default.

    Raises:
        ConfigError: The run has no labels, or there is no such format.
        StoreError: The run is not finished.
    """
    reader = run if isinstance(run, RunReader) else RunReader(run)
    if not reader.finished:
        raise StoreError(
            f"{reader.path} is not finished: a card of half a run would be wrong; run the command "
            "that made it again"
        )
    counter = _Counter(reader, [make_format(name) for name in formats or FORMATS])
    duplicates = near_duplicates(counter.read(reader))
    return counter.figures(duplicates)


def dataset_card(
    run: str | Path | RunReader,
    *,
    title: str = "Process labels",
    formats: Sequence[str] | None = None,
    contamination: Contamination | None = None,
) -> str:
    """Write the card of a finished run, in Markdown with the hub's front matter.

    Args:
        run: A finished run folder with labels.
        title: The card's heading.
        formats: Those to describe; all by default.
        contamination: A report of :func:`treerl.prm.duplicates.contamination` to add.

    Raises:
        ConfigError: The run has no labels, or there is no such format.
        StoreError: The run is not finished.
    """
    reader = run if isinstance(run, RunReader) else RunReader(run)
    figures = card_figures(reader, formats)
    parts = [
        _front_matter(title),
        *_origin(reader, figures),
        *_balance(figures),
        *_positions(figures),
        *_lengths(figures),
        *_duplicates(figures.duplicates),
        *(_contamination(contamination) if contamination is not None else ()),
        *_formats(figures),
    ]
    return "\n".join(parts).rstrip() + "\n"


# --- counting -------------------------------------------------------------------------------------


class _Counter:
    """Counts while the trees pass by, and hands their solutions on."""

    def __init__(self, run: RunReader, formats: Iterable[Format]) -> None:
        self._fusion = run_fusion(run)
        self._policy = policy_name(run)
        self._formats = list(formats)
        self._rows: Counter[str] = Counter()
        self._left_out: dict[str, Counter[str]] = {f.name: Counter() for f in self._formats}
        self._totals: Counter[str] = Counter()
        self._labels: Counter[str] = Counter()
        self._sources: dict[str, Counter[str]] = {"labelled": Counter(), "unlabelled": Counter()}
        self._positions: Counter[tuple[int, str]] = Counter()
        self._lengths = [Counter[str]() for _ in (*LENGTHS, None)]

    def read(self, run: RunReader) -> Iterator[LabelledSolution]:
        """Count the run's trees, yielding their solutions."""
        for tree, labels in labelled_trees_of(run):
            self._totals["problems"] += 1
            for label in labels:
                self._add_label(tree, label)
            paths = label_paths(tree, labels, self._policy)
            self._totals["solutions"] += len(paths.paths)
            self._add_rows(paths)
            yield from solutions_of(paths)

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


# --- writing --------------------------------------------------------------------------------------


def _front_matter(title: str) -> str:
    tags = ["process-reward-model", "step-labels", "treerl"]
    return "\n".join(["---", "tags:", *(f"- {tag}" for tag in tags), "---", "", f"# {title}", ""])


def _origin(run: RunReader, figures: CardFigures) -> Iterator[str]:
    manifest = run.manifest
    yield (
        f"{sum(figures.labels[kind] for kind in ('right', 'wrong', 'unlabelled')):,} steps in "
        f"{figures.solutions:,} solutions of {figures.problems:,} problems, labelled by treerl "
        f"{manifest.get('treerl', '')}".rstrip()
        + "."
    )
    yield ""
    yield "A label is about a prefix: 1 says that the steps up to and including this one can still"
    yield "lead to a right answer, 0 that they stopped to here. Steps behind a 0 have no label."
    yield ""
    rows: list[tuple[str, Any]] = [("policy", policy_name(run))]
    rows += [(name, manifest.get(name)) for name in ("verifier", "reward", "seed")]
    rows += [(f"search: {key}", value) for key, value in _items(manifest.get("search"))]
    rows += [(f"fusion: {key}", value) for key, value in _items(manifest.get("fusion"))]
    yield from _table(["", ""], [(name, f"`{json.dumps(value)}`") for name, value in rows])


def _items(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a part of the manifest, those of its parts with a dot."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _items(item, f"{name}.{key}" if name else key)
    elif name:
        yield name, value


def _balance(figures: CardFigures) -> Iterator[str]:
    labels = figures.labels
    total = labels["right"] + labels["wrong"] + labels["unlabelled"]
    yield "## Class balance"
    yield ""
    kinds = [(kind, labels[kind]) for kind in ("right", "wrong", "unlabelled")]
    rows = [(kind, f"{n:,}", _percent(n, total)) for kind, n in kinds]
    yield from _table(["label", "steps", "share"], rows)
    labelled = labels["right"] + labels["wrong"]
    yield f"Of the labelled steps, {_percent(labels['wrong'], labelled)} are wrong."
    yield ""
    yield "## Sources"
    yield ""
    rows = [
        (kind, source, f"{n:,}")
        for kind, found in figures.sources.items()
        for source, n in found.items()
    ]
    yield from _table(["", "source", "steps"], rows)


def _positions(figures: CardFigures) -> Iterator[str]:
    yield "## Positions"
    yield ""
    rows = [
        (str(i + 1), f"{right:,}", f"{wrong:,}", f"{none:,}", _percent(wrong, right + wrong))
        for i, (right, wrong, none) in enumerate(figures.positions)
    ]
    yield from _table(["step", "right", "wrong", "unlabelled", "wrong of labelled"], rows)


def _lengths(figures: CardFigures) -> Iterator[str]:
    yield "## Length and error"
    yield ""
    yield "Share of wrong steps by length. Before masking every step counts by its own evidence;"
    yield "after masking, as in the data, steps behind a wrong one do not count. A model can learn"
    yield "length instead of truth from a share that changes much with it."
    yield ""
    rows, shortest = [], 0
    for length in figures.lengths:
        words = f"{shortest}+" if length.longest is None else f"{shortest}-{length.longest}"
        before = (
            "unknown" if length.before is None else _percent(length.before[1], length.before[0])
        )
        after = _percent(length.after[1], length.after[0])
        rows.append((words, f"{length.steps:,}", before, after))
        shortest = (length.longest or 0) + 1
    yield from _table(["words", "steps", "wrong before masking", "wrong after"], rows)


def _duplicates(report: NearDuplicates) -> Iterator[str]:
    yield "## Near-duplicates"
    yield ""
    yield (
        f"{report.equal + report.near:,} of {report.steps:,} steps "
        f"({_percent(report.equal + report.near, report.steps)}) repeat an earlier step of their "
        f"problem: {report.equal:,} word by word, {report.near:,} with a Jaccard index of "
        f"{report.n}-grams above {report.threshold:g}."
    )
    yield ""


def _contamination(report: Contamination) -> Iterator[str]:
    yield "## Contamination"
    yield ""
    yield f"Problems that share {report.n} words in a row with a problem of these files:"
    yield ""
    # The place of a file on one machine says nothing to the reader of a card.
    rows = [
        ("/".join(Path(file.file).parts[-2:]), f"{file.problems:,}", f"{file.hits:,}")
        for file in report.files
    ]
    yield from _table(["file", "its problems", f"of ours ({report.problems:,})"], rows)


def _formats(figures: CardFigures) -> Iterator[str]:
    yield "## Formats"
    yield ""
    yield "What `treerl export` makes of these labels, and what each format does not hold."
    yield ""
    for format in figures.formats:
        yield f"### {format.name}: {format.rows:,} rows"
        yield ""
        yield from (f"- {_escaped(loss)}" for loss in format.losses)
        yield from (f"- left out: {n:,} × {_escaped(why)}" for why, n in format.left_out.items())
        yield ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        cells = [" ".join(cell.replace("|", "\\|").split()) for cell in row]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _escaped(text: str) -> str:
    # Names of tokens look like HTML, which a page would swallow.
    return text.replace("<", "\\<")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"
