"""The data set card: what a run's labels are, in figures, for the people who train on them.

::

    Path("README.md").write_text(dataset_card("runs/first"))
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from treerl.errors import StoreError
from treerl.prm.audit.figures import CardFigures, card_figures
from treerl.prm.duplicates import Contamination, NearDuplicates
from treerl.prm.formats.paths import policy_name
from treerl.store import RunReader

__all__ = ["dataset_card"]

_HUB_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


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
    if not reader.finished:
        raise StoreError(
            f"{reader.path} is not finished: a card of half a run would be wrong; run the command "
            "that made it again"
        )
    figures = card_figures(reader, formats)
    parts = [
        *_front_matter(title, figures),
        *_origin(reader, figures),
        *_problems(reader, figures),
        *_balance(figures),
        *_positions(figures),
        *_lengths(figures),
        *_duplicates(figures.duplicates, figures.repeated),
        *(_contamination(contamination) if contamination is not None else ()),
        *_formats(figures),
    ]
    return "\n".join(parts).rstrip() + "\n"


# --- writing --------------------------------------------------------------------------------------


def _front_matter(title: str, figures: CardFigures) -> Iterator[str]:
    """Yield what the hub reads, and the heading."""
    steps = sum(figures.labels[kind] for kind in ("right", "wrong", "unlabelled"))
    yield from ("---", "tags:", "- process-reward-model", "- step-labels", "- treerl")
    # Terms of all problems alike, in the hub's own words, are those of the data set's text.
    whole = [name for name, n in figures.licenses.items() if n == figures.problems]
    if whole and _HUB_LICENSE.fullmatch(whole[0].lower()):
        yield f"license: {whole[0].lower()}"
    yield from ("size_categories:", f"- {next((s for n, s in _SIZES if steps < n), 'n>10M')}")
    yield from ("---", "", f"# {title}", "")


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
    names = ("verifier", "reward", "seed", "system", "template_options")
    rows += [(name, manifest.get(name)) for name in names]
    rows += [(f"engine: {key}", _placeless(v)) for key, v in _items(manifest.get("engine"))]
    rows += [(f"search: {key}", value) for key, value in _items(manifest.get("search"))]
    rows += [(f"fusion: {key}", value) for key, value in _items(manifest.get("fusion"))]
    yield from _table(["", ""], [(name, f"`{json.dumps(value)}`") for name, value in rows])


def _placeless(value: Any) -> Any:
    """Return a setting; of a place on one machine only its name."""
    if isinstance(value, str) and Path(value).is_absolute():
        return "/".join(Path(value).parts[-2:])
    return value


def _problems(run: RunReader, figures: CardFigures) -> Iterator[str]:
    yield "## Problems"
    yield ""
    given: Mapping[str, Any] = run.manifest.get("problems") or {}
    rows = [("problems", f"{figures.problems:,}")]
    if "sha256" in given:
        rows.append(("their sha256", f"`{given['sha256']}`"))
    for name, counts in (("source", figures.origins), ("license", figures.licenses)):
        rows += [(name, f"{said} ({n:,} problems)") for said, n in counts.items()]
        missing = figures.problems - sum(counts.values())
        if missing:
            rows.append((name, f"unknown ({missing:,} problems)"))
    yield from _table(["", ""], rows)
    if sum(figures.licenses.values()) < figures.problems:
        yield "Their rows do not all name a license: look it up at the source before you publish."
        yield ""
    summary = run.summary() or {}
    names = ("rollouts", "right_rollouts", "conflicts", "failures")
    totals = [(name.replace("_", " "), summary.get(name)) for name in names]
    totals += [(f"ledger: {key}", n) for key, n in _items(summary.get("ledger"))]
    known = [(name, f"{n:,}") for name, n in totals if isinstance(n, int)]
    if known:
        yield from _table(["of the run", ""], known)


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


def _duplicates(report: NearDuplicates, repeated: int) -> Iterator[str]:
    yield "## Near-duplicates"
    yield ""
    yield (
        f"{report.equal + report.near:,} of {report.steps:,} steps "
        f"({_percent(report.equal + report.near, report.steps)}) repeat an earlier step of their "
        f"problem: {report.equal:,} word by word, {report.near:,} with a Jaccard index of "
        f"{report.n}-grams above {report.threshold:g}. {repeated:,} labels have the id of another "
        "one: equal problem, steps before and step."
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
    return f"{100 * part / whole:.1f} %" if whole else "n/a"
