"""The last words of a labelling run: totals, files, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rich.text import Text

from treerl.cli.console import clean, output, plain_table
from treerl.cli.progress import duration
from treerl.errors import TreeRLError
from treerl.store import RunReader

__all__ = ["show_files", "show_summary"]

_WHAT = {
    "manifest.json": "every parameter and version of the run",
    "trees": "the trees, a row a step, exact to the token",
    "labels": "the labels with their evidence, a line a step",
    "conflicts.jsonl": "steps on which tools and rollouts disagree",
    "failures.jsonl": "what failed, and why",
    "summary.json": "the totals",
    "volatile.jsonl": "times",
}


def show_summary(
    summary: Mapping[str, Any], out: Path, *, seconds: float, skipped: int = 0
) -> None:
    """Print a run's totals, its files and the next commands.

    Raises:
        TreeRLError: Not one step of the run has a label record; the reason is in the text.
    """
    labels, ledger = summary["labels"], summary["ledger"]
    if not sum(labels.values()):
        raise TreeRLError(_nothing(out))
    table = plain_table("", "")
    for name, value in (
        ("problems", _problems(summary, skipped)),
        ("solutions", f"{summary['rollouts']:,}, {_share(summary)} right"),
        ("steps", _labels(labels)),
        ("labels by", _sources(summary["label_sources"])),
        ("conflicts", f"{summary['conflicts']:,}"),
        ("tokens", f"{ledger['generated']:,} generated, {ledger['discarded']:,} of them repeats"),
        ("time", duration(seconds)),
    ):
        table.add_row(name, Text(value))
    console = output()
    console.print(table)
    show_files(out)
    where = shlex.quote(str(out))
    following = f"\nNext:  treerl show {where}\n       treerl export {where} trl --out train.jsonl"
    console.print(Text(following), soft_wrap=True)


def show_files(out: Path) -> None:
    """Print the files of a run folder with what they hold."""
    files = sorted(p for p in out.rglob("*") if p.is_file() and p.name != "LOCK")
    names = [clean(str(path)) for path in files]
    width = max(map(len, names), default=0)
    console = output()
    console.print()
    for path, name in zip(files, names, strict=True):
        what = _WHAT.get(path.relative_to(out).parts[0], "")
        line = Text(f"{name:{width}}  {path.stat().st_size:>11,} B  ").append(what, "dim")
        console.print(line, soft_wrap=True)


def _problems(summary: Mapping[str, Any], skipped: int) -> str:
    text = f"{summary['problems']:,}"
    if summary["failures"]:
        text += f", {summary['failures']:,} failures (failures.jsonl)"
    return f"{text}, {skipped:,} bad rows skipped" if skipped else text


def _share(summary: Mapping[str, Any]) -> str:
    total = summary["rollouts"]
    return f"{summary['right_rollouts'] / total:.0%}" if total else "none"


def _labels(labels: Mapping[str, int]) -> str:
    counts = ", ".join(f"{labels[name]:,} {name}" for name in ("right", "wrong", "unlabelled"))
    return f"{sum(labels.values()):,}: {counts}"


def _sources(sources: Mapping[str, int]) -> str:
    words = {"mc": "rollouts", "tool": "tools", "tool+mc": "both", "value": "the search's value"}
    return ", ".join(f"{words.get(name, name)} {n:,}" for name, n in sources.items()) or "nothing"


def _nothing(out: Path) -> str:
    reasons = [str(f.get("reason")) for f in islice(RunReader(out).failures(), 1)]
    first = f"; the first reason: {reasons[0]}" if reasons else ""
    return f"no step was labelled{first} (all reasons are in {out / 'failures.jsonl'})"
