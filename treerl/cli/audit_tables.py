"""An audit's report in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from rich.text import Text

from treerl.cli.console import clean, output, plain_table
from treerl.prm.audit import AuditReport, CardFigures, Confusion, FirstErrors, LabelQuality, Replay
from treerl.prm.duplicates import Contamination

__all__ = ["show_report"]

LISTED = 10
"""Differences, leaks and positions that are shown one by one."""

BAR = 24
"""Characters of the longest bar."""

_ROW_OF = {"missing": "label", "repeated": "label"}
"""Kinds of differences that have no row of their own."""

_STYLES = {"right": "green", "wrong": "red", "unlabelled": "dim"}


def show_report(report: AuditReport) -> None:
    """Print a report, a section a question."""
    figures = report.figures
    line = f"{clean(str(report.run))}: {_counts(report)}"
    _say(line if report.finished else f"{line} (the run is not finished: this is what is there)")
    _show_replay(report.replay)
    if figures is not None:
        _show_balance(figures)
        _show_positions(figures)
        _show_lengths(figures)
        _show_repeats(figures)
    if report.contamination is not None:
        _show_leaks(report.contamination)
    if report.quality is not None:
        _show_quality(report.quality)


def _counts(report: AuditReport) -> str:
    figures = report.figures
    if figures is None:  # the labels do not fit the trees
        return f"{report.replay.trees:,} trees, {report.replay.labels:,} labels"
    steps = sum(figures.labels[kind] for kind in _STYLES)
    return f"{figures.problems:,} problems, {figures.solutions:,} solutions, {steps:,} steps"


def _show_replay(replay: Replay) -> None:
    differing = Counter(_ROW_OF.get(m.what, m.what) for m in replay.mismatches)
    table = plain_table("", "checked>", "differ>")
    counts = [
        ("tool verdicts, asked for again", replay.verdicts, differing["verdict"]),
        ("rollout counts, from the leaves", replay.counts, differing["counts"]),
        ("labels, fused again", replay.relabelled, differing["label"]),
        ("evidence, as in the trees", replay.labels, differing["evidence"]),
        ("problems and steps, as in the trees", replay.labels, differing["content"]),
        ("other files, from the trees", replay.files, differing["file"]),
    ]
    if replay.bounded:
        # Which samples were started at a step is not stored where a search mixes them.
        bound = ("rollout counts, as a bound", replay.bounded, differing["counts"])
        counts[1] = bound if not replay.counts else counts[1]
    for name, checked, differs in counts:
        table.add_row(
            name, f"{checked:,}", Text(f"{differs:,}", "bold red" if differs else "green")
        )
    _section("Replay", "everything follows" if replay.ok else "it does not follow", ok=replay.ok)
    output().print(table)
    for m in islice(replay.mismatches, LISTED):
        _say(f"  {clean(m.place)}: stored is {clean(m.stored)}, found {clean(m.found)}")
    _say_rest(len(replay.mismatches))


def _show_balance(figures: CardFigures) -> None:
    _section("Labels")
    labels = figures.labels
    total = sum(labels[kind] for kind in _STYLES)
    table = plain_table("label", "steps>", "share>", "")
    for kind, style in _STYLES.items():
        row = (kind, f"{labels[kind]:,}", _share(labels[kind], total))
        table.add_row(*row, Text(_bar(labels[kind], total), style))
    output().print(table)
    for side, found in figures.sources.items():
        by = ", ".join(f"{clean(name)} {n:,}" for name, n in found.items())
        _say(f"{side}: {by or 'none'}", "dim")


def _show_positions(figures: CardFigures) -> None:
    _section("Positions")
    table = plain_table("step>", "right>", "wrong>", "none>", "wrong of labelled>", "steps")
    most = max((sum(counts) for counts in figures.positions), default=0)
    for i, (right, wrong, none) in enumerate(figures.positions[: 2 * LISTED]):
        bar = Text()
        for kind, n in (("right", right), ("wrong", wrong), ("unlabelled", none)):
            mark = "░" if kind == "unlabelled" else "▒" if kind == "wrong" else "█"
            bar.append(_bar(n, most, mark), _STYLES[kind])
        cells = (f"{right:,}", f"{wrong:,}", f"{none:,}", _share(wrong, right + wrong))
        table.add_row(str(i + 1), *cells, bar)
    output().print(table)
    _say("█ right  ▒ wrong  ░ none", "dim")
    _say_rest(len(figures.positions), 2 * LISTED)


def _show_lengths(figures: CardFigures) -> None:
    _section("Length and error", "a model can learn length instead of truth where these differ")
    table = plain_table("words>", "steps>", "wrong by own evidence>", "wrong as labelled>")
    shortest = 0
    for length in figures.lengths:
        words = f"{shortest}+" if length.longest is None else f"{shortest}-{length.longest}"
        shortest = (length.longest or 0) + 1
        if not length.steps:
            continue
        before = "unknown" if length.before is None else _share(*reversed(length.before))
        table.add_row(words, f"{length.steps:,}", before, _share(*reversed(length.after)))
    output().print(table)


def _show_repeats(figures: CardFigures) -> None:
    _section("Near-duplicates")
    found = figures.duplicates
    n = found.equal + found.near
    _say(
        f"{n:,} of {found.steps:,} steps ({_share(n, found.steps)}) repeat an earlier one of their "
        "problem: "
        f"{found.equal:,} word by word, {found.near:,} nearly; "
        f"{figures.repeated:,} labels have the id of another one"
    )


def _show_leaks(leaks: Contamination) -> None:
    _section("Contamination", f"problems that share {leaks.n} words in a row with a file's")
    table = plain_table("file", "its problems>", f"of ours ({leaks.problems:,})>")
    for file in leaks.files:
        hits = Text(f"{file.hits:,}", "bold red" if file.hits else "green")
        table.add_row(Text(clean(file.file)), f"{file.problems:,}", hits)
    output().print(table)
    for leak in islice(leaks.overlaps, LISTED):
        pair = f"  {clean(leak.problem_id)} stands in {clean(leak.file)} as {clean(leak.other_id)}"
        _say(f"{pair} ({leak.shared} of its {leak.of} word groups)")
    _say_rest(len(leaks.overlaps))


def _show_quality(quality: LabelQuality) -> None:
    _section(
        "Against human labels",
        f"{quality.matched:,} of {quality.gold:,} solutions were labelled, "
        f"{_share(quality.labelled, quality.steps)} of their {quality.steps:,} steps up to the "
        "first error",
    )
    table = plain_table(
        "labels by", "wrong, found>", "false alarms>", "missed>", "right, kept>", *_RATES
    )
    rows = [*quality.by_source.items(), ("all", quality.confusion)]
    for name, confusion in rows:
        table.add_row(Text(clean(name), "bold" if name == "all" else ""), *_confusion(confusion))
    console = output()
    console.print(table)
    console.print()
    table = plain_table(
        "first wrong step", *_RATES, "right ones left alone>", "ProcessBench F1>", "no answer>"
    )
    for name, first in (
        ("these labels", quality.first_error),
        ("rollouts alone", quality.rollouts_alone),
        ("first refuted", quality.first_refuted),
        ("always -1", quality.always_negative),
    ):
        style = "bold" if first is quality.first_error else ""
        table.add_row(Text(name, style), *(["unknown"] * 5 if first is None else _firsts(first)))
    console.print(table)
    solutions = quality.first_error
    _say(f"{solutions.wrong:,} solutions have a wrong step, {solutions.right:,} have none", "dim")
    _show_calibration(quality)


def _show_calibration(quality: LabelQuality) -> None:
    found = quality.calibration
    if found.brier is None or found.error is None:
        return
    console = output()
    console.print()
    table = plain_table("soft label", "steps>", "mean>", "truly right>", "")
    for b in found.bins:
        bar = Text(_bar(round(1000 * b.right), 1000), "green")
        cells = (f"{b.steps:,}", f"{b.belief:.2f}", f"{b.right:.2f}")
        table.add_row(f"{b.low:.1f}-{b.high:.1f}", *cells, bar)
    console.print(table)
    _say(f"expected calibration error {found.error:.3f}, Brier score {found.brier:.3f}", "dim")


_RATES = ("precision>", "recall>")


def _confusion(c: Confusion) -> Iterable[str]:
    counts = (c.true_positive, c.false_positive, c.false_negative, c.true_negative)
    return (*(f"{n:,}" for n in counts), _rate(c.precision), _rate(c.recall))


def _firsts(first: FirstErrors) -> Sequence[str]:
    rates = (first.precision, first.recall, first.correct_accuracy, first.f1)
    return (*map(_rate, rates), f"{first.undetermined:,}")


def _rate(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f} %"


def _share(part: int, whole: int) -> str:
    return _rate(part / whole if whole else None)


def _bar(n: int, most: int, mark: str = "█") -> str:
    """Return a bar; what is there at all has a mark."""
    return mark * max(round(BAR * n / most), 1) if n and most else ""


def _section(title: str, note: str = "", *, ok: bool | None = None) -> None:
    style = {None: "dim", True: "green", False: "bold red"}[ok]
    line = Text(f"\n{title}", "bold")
    if note:
        line.append(f"  {note}", f"not bold {style}")
    output().print(line, soft_wrap=True)


def _say(text: str, style: str = "") -> None:
    output().print(Text(text, style), soft_wrap=True)


def _say_rest(total: int, shown: int = LISTED) -> None:
    if total > shown:
        _say(f"  … and {total - shown:,} more", "dim")
