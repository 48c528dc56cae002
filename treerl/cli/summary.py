"""The last words of a run: totals, files, and what to do next."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rich.text import Text

from treerl.cli.console import clean, output, plain_table
from treerl.cli.progress import Session, duration
from treerl.errors import TreeRLError
from treerl.store import RunReader

__all__ = ["show_files", "show_rollouts", "show_summary"]

_WHAT = {
    "manifest.json": "every parameter and version of the run",
    "trees": "the trees, a row a step, exact to the token",
    "rows": "the leaves with ids, log-probs and advantages, a row each, for trainers",
    "labels": "the labels with their evidence, a line a step",
    "conflicts.jsonl": "steps on which tools and rollouts disagree",
    "failures.jsonl": "what failed, and why",
    "summary.json": "the totals",
    "volatile.jsonl": "times",
}


def show_summary(
    summary: Mapping[str, Any], out: Path, *, session: Session, seconds: float, skipped: int = 0
) -> None:
    """Print a run's totals, its files and the next commands.

    Args:
        summary: Of the whole run.
        out: Its folder.
        session: What this process did of it.
        seconds: How long this process took, the model's loading included.
        skipped: Bad rows of the input.

    Raises:
        TreeRLError: Not one step of the run has a label record; the reason is in the text.
    """
    labels, ledger = summary["labels"], summary["ledger"]
    if not sum(labels.values()):
        raise TreeRLError(_nothing(out))
    table = plain_table("", "")
    for name, value in (
        ("problems", _problems(summary, skipped)),
        ("failures", _failures(summary["failures"], out)),
        ("solutions", _solutions(summary)),
        ("steps", _labels(labels)),
        ("labels by", _sources(summary["label_sources"])),
        ("label yield", _yield(labels, ledger["generated"])),
        ("conflicts", f"{summary['conflicts']:,}"),
        ("tokens", f"{ledger['generated']:,} generated, {ledger['discarded']:,} of them repeats"),
        ("this session" if session.problems < summary["problems"] else "speed", _speed(session)),
        ("time", duration(seconds)),
    ):
        if not value:
            continue
        table.add_row(name, Text(value))
    console = output()
    console.print(table)
    show_files(out)
    where = shlex.quote(str(out))
    following = (
        f"\nNext:  treerl show {where}\n       treerl audit {where}"
        f"\n       treerl export {where} trl --out train.jsonl"
    )
    console.print(Text(following), soft_wrap=True)


def show_rollouts(
    summary: Mapping[str, Any], out: Path, *, session: Session, seconds: float, skipped: int = 0
) -> None:
    """Print the totals of a run of rollouts, its files and the next command.

    Arguments as of :func:`show_summary`.

    Raises:
        TreeRLError: Not one path ended; the reason is in the text.
    """
    if not summary["leaves"]:
        raise TreeRLError(_nothing(out, "no path ended"))
    trees, cost = max(summary["trees"], 1), summary["cost"]
    table = plain_table("", "")
    for name, value in (
        ("problems", _problems(summary, skipped)),
        ("failures", _failures(summary["failures"], out)),
        ("leaves", f"{summary['leaves']:,}, {summary['leaves'] / trees:.1f} a tree"),
        ("right", _right(summary)),
        ("reward", _pair(summary, "mean_reward", ".3f")),
        ("leaf length", _pair(summary, "mean_tokens", ".1f", " tokens")),
        ("alike", _alike(summary)),
        ("ended by", ", ".join(f"{reason} {n:,}" for reason, n in summary["finish"].items())),
        ("tokens", f"{cost['generated']:,} generated, {cost['unique_tokens']:,} on ended paths"),
        ("cost", _cost(cost)),
        ("this session" if session.problems < summary["problems"] else "speed", _speed(session)),
        ("time", duration(seconds)),
    ):
        if value:
            table.add_row(name, Text(value))
    console = output()
    console.print(table)
    show_files(out)
    console.print(Text(f"\nNext:  treerl show {shlex.quote(str(out))}"), soft_wrap=True)


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
    return f"{text}, {skipped:,} bad row{'s' * (skipped != 1)} skipped" if skipped else text


def _failures(count: int, out: Path) -> str:
    """Count failures, with the commonest reason; nothing where there is none."""
    if not count:
        return ""
    with (out / "failures.jsonl").open(encoding="utf-8") as lines:
        reasons = Counter(str(json.loads(line)["reason"]) for line in lines)
    (reason, n), *others = reasons.most_common()
    which = f"{n:,} of them: " if others else ""
    return f"{count:,} (failures.jsonl), {which}{textwrap.shorten(clean(reason), 90)}"


def _right(summary: Mapping[str, Any]) -> str:
    if not summary["scored_leaves"]:
        return "unknown: no leaf has a reward"
    text = f"{summary['right_leaves'] / summary['scored_leaves']:.0%} of the leaves, "
    text += f"{summary['pass_at_w']:.0%} of the problems by some leaf (pass@w)"
    if summary["maj_at_w"] is not None:
        text += f", {summary['maj_at_w']:.0%} by the majority (maj@w)"
    same = summary["without_contrast"]
    return f"{text}; {same:,} with one reward on all leaves" if same else text


def _pair(summary: Mapping[str, Any], name: str, form: str, unit: str = "") -> str:
    """Return a mean with branch weights beside the one with equal weights."""
    value, uniform = summary[name], summary[f"uniform_{name}"]
    if value is None or uniform is None:
        return ""
    return f"{value:{form}}{unit} by branch weight, {uniform:{form}} with equal weights"


def _alike(summary: Mapping[str, Any]) -> str:
    if summary["ess"] is None:
        return ""
    return (
        f"{summary['first_nodes']:.1f} different first segments a tree, effective sample size "
        f"{summary['ess']:.1f}"
    )


def _cost(cost: Mapping[str, Any]) -> str:
    """Say what a leaf cost against a flat sample, and against the leaves themselves one by one."""
    if cost["relative_cost"] is None:
        return ""
    return (
        f"{cost['relative_cost']:.2f} of a flat sample a leaf ({cost['saved']:.0%} less than these "
        "leaves one by one)"
    )


def _solutions(summary: Mapping[str, Any]) -> str:
    total = summary["rollouts"]
    if not total:
        return f"{summary['leaves']:,}"
    return f"{total:,}, {summary['right_rollouts'] / total:.0%} right"


def _labels(labels: Mapping[str, int]) -> str:
    counts = ", ".join(f"{labels[name]:,} {name}" for name in ("right", "wrong", "unlabelled"))
    return f"{sum(labels.values()):,}: {counts}"


def _yield(labels: Mapping[str, int], generated: int) -> str:
    steps = sum(labels.values())
    labelled = steps - labels["unlabelled"]
    text = f"{labelled / steps:.0%} of the steps"
    if generated:
        text += f", {1000 * labelled / generated:.1f} labels per 1,000 generated tokens"
    return text


def _speed(session: Session) -> str:
    """Say how fast this process was; nothing where it only found a finished run."""
    if not session.problems or not session.seconds:
        return ""
    hours = session.seconds / 3600
    tokens = f"{session.generated / session.seconds:,.0f} tokens/s, " * bool(session.generated)
    return (
        f"{tokens}{session.problems / hours:,.0f} problems/hour "
        f"({session.problems:,} problems in {duration(session.seconds)})"
    )


def _sources(sources: Mapping[str, int]) -> str:
    words = {
        "mc": "rollouts",
        "tool": "tools",
        "tool+mc": "both",
        "value": "the search's value",
        "value_target": "value targets",
    }
    return ", ".join(f"{words.get(name, name)} {n:,}" for name, n in sources.items()) or "nothing"


def _nothing(out: Path, what: str = "no step was labelled") -> str:
    reasons = [str(f.get("reason")) for f in islice(RunReader(out).failures(), 1)]
    first = f"; the first reason: {reasons[0]}" if reasons else ""
    return f"{what}{first} (all reasons are in {out / 'failures.jsonl'})"
