"""`treerl audit`: is a run what it says, what are its labels like, and are they right?"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treerl.cli.console import output, say

if TYPE_CHECKING:
    from treerl.prm.audit import AuditReport, Replay
    from treerl.protocols import JudgeStep
    from treerl.store import RunReader

__all__ = ["audit"]


def audit(
    run: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run folder made by `treerl label`.")
    ],
    share: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Part of the tool verdicts to ask for again; equal calls choose the same ones.",
        ),
    ] = 1.0,
    verifier: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:OBJECT",
            help="The run's judge, where that was one of your own (`treerl label --verifier`); "
            "treerl's own is found by itself.",
        ),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Human labels of the same solutions: ProcessBench, PRM800K, or another format "
            "that `treerl export` writes.",
        ),
    ] = None,
    gold_format: Annotated[
        str | None,
        typer.Option(help="Format of that file; by default the fields of its first row tell."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A test set whose problems must not be among the run's; may be given several "
            "times.",
        ),
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the data set card, in Markdown, into this file."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the card if it exists.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as one JSON object.")
    ] = False,
) -> None:
    """Check a run, and say what its labels are like.

    Tool verdicts are asked for again, rollout counts are computed again from the stored trees, and
    labels are fused again from both; manifest, summary and the other files must fit as well.
    Whatever does not match is listed, and the exit code is 1. Then come class balance, positions,
    lengths and near-duplicates. With --gold the labels are held against human ones, beside three
    baselines.

    Example: treerl audit runs/first --against MATH-500=test500.jsonl
    """
    from treerl.cli.audit_tables import show_report
    from treerl.errors import ConfigError, TreeRLError
    from treerl.prm.audit import audit_run
    from treerl.store import RunReader

    if card is not None and card.exists() and not force:
        raise ConfigError(f"{card} exists; name another file, or replace it with --force")
    named = _named(against or [])
    reader = RunReader(run)
    with ExitStack() as stack:
        judge = _verifier_of(reader, verifier, share, stack)
        stack.enter_context(output(stderr=True).status("replaying"))
        report = audit_run(
            reader, judge, share=share, gold=gold, gold_format=gold_format, against=named
        )
    if report.ok and not report.replay.trees:
        raise TreeRLError(_nothing(report))
    if as_json:
        print(json.dumps(report.to_json(), ensure_ascii=False, indent=2))  # noqa: T201
    else:
        show_report(report)
    if card is not None and report.figures is not None:
        from treerl.prm.card import dataset_card
        from treerl.treefile import replace_file

        text = dataset_card(reader, contamination=report.contamination).encode()

        def write(part: Path) -> None:
            part.write_bytes(text)

        replace_file(card, write)
        say(f"the card is in {card}")
    if not report.ok:
        raise TreeRLError(_difference(report.replay, reader))


def _named(against: list[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in against:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise typer.BadParameter(f"--against takes NAME=FILE, not '{text}'")
        if name in named:
            raise typer.BadParameter(f"--against names '{name}' twice")
        named[name] = file
    return named


def _verifier_of(
    run: RunReader, spec: str | None, share: float, stack: ExitStack
) -> JudgeStep | None:
    """Open the verifier that judged the run, None where there was none or it is not at hand."""
    from treerl.errors import ConfigError
    from treerl.verifiers import StepVerifier

    name = run.manifest.get("verifier")
    if spec is not None:
        from treerl.cli.plugins import load_verifier

        if name is None:
            raise ConfigError(f"{run.path} was judged by no verifier; leave --verifier out")
        judge = load_verifier(spec, stack)
        if judge.name != name:
            raise ConfigError(
                f"--verifier {spec} is '{judge.name}', but the verdicts are those of '{name}'; "
                "only the judge that gave them can be held against them"
            )
        return judge
    if name is None or not share:
        return None
    if name != StepVerifier.name:
        say(
            f"the verdicts are those of {name}, while this treerl has {StepVerifier.name}: they "
            "are not asked for again; a judge of your own is named with --verifier module:object"
        )
        return None
    return stack.enter_context(StepVerifier())


def _nothing(report: AuditReport) -> str:
    why = "every problem failed before it had one, and failures.jsonl says why"
    if not report.finished:
        why = "no problem is done yet"
    return f"{report.run} holds no tree to audit: {why}"


def _difference(replay: Replay, run: RunReader) -> str:
    from treerl import __version__

    first, n = replay.mismatches[0], len(replay.mismatches)
    what = "record does" if n == 1 else "records do"
    writer = run.manifest.get("treerl", __version__)
    other = "" if writer == __version__ else f" (treerl {writer} wrote it, this is {__version__})"
    return (
        f"{n:,} stored {what} not follow from the rest of the run{other}; the first: "
        f"{first.place}: stored is {first.stored}, found {first.found}"
    )
