"""`treerl verify`: a file of responses or steps judged, and counted by verdict and reason."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from treerl.cli.console import clean, complain, output, plain_table, say
from treerl.cli.label import OnBadRow
from treerl.cli.setup import unescape
from treerl.cli.verify_rows import Fields, Reader, Task
from treerl.errors import ConfigError

if TYPE_CHECKING:
    from treerl.readers import Row

__all__ = ["Extraction", "Percent", "Units", "verify"]

CHUNK, SAY_EVERY_S, SHOWN = 64, 20.0, 5


class Extraction(StrEnum):
    """Where the answer stands in a response."""

    boxed_or_marker = "boxed_or_marker"
    boxed = "boxed"
    marker = "marker"
    last_number = "last_number"
    whole = "whole"


class Percent(StrEnum):
    """What 50 % is equal to."""

    strict = "strict"
    lenient = "lenient"


class Units(StrEnum):
    """Whether a unit may be left out."""

    lenient = "lenient"
    strict = "strict"


_DEFAULTS = {"extraction": "boxed_or_marker", "percent": "strict", "units": "lenient"}
_FIELDS, _ANSWERS, _STEPS = "Input", "Answers", "Steps"


def verify(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A .jsonl, .json, .csv or .parquet file, a folder of them, or a hub id; a row "
            "is a response with its gold, or a solution with --steps.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Write the records here, a JSON line a row; each can be replayed."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace that file if it exists.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Checks that run at the same time.")] = 4,
    response_field: Annotated[
        str | None,
        typer.Option(
            help="Field of the response or the solution: text, a chat, or a list of steps; found "
            "by itself where it has a usual name. A dot steps into an object.",
            rich_help_panel=_FIELDS,
        ),
    ] = None,
    gold_field: Annotated[
        str | None, typer.Option(help="Field of the gold answer.", rich_help_panel=_FIELDS)
    ] = None,
    problem_field: Annotated[
        str | None,
        typer.Option(help="Field of the problem, with --steps.", rich_help_panel=_FIELDS),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Split of a folder or a hub data set.", rich_help_panel=_FIELDS),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Take only the first so many rows.", rich_help_panel=_FIELDS),
    ] = None,
    on_bad_row: Annotated[
        OnBadRow,
        typer.Option(
            help="A row that cannot be used ends the command, or is left out and counted.",
            rich_help_panel=_FIELDS,
        ),
    ] = OnBadRow.RAISE,
    extraction: Annotated[
        Extraction,
        typer.Option(help="Where the answer stands in a response.", rich_help_panel=_ANSWERS),
    ] = Extraction.boxed_or_marker,
    percent: Annotated[
        Percent,
        typer.Option(
            help="strict: 50 % equals 0.5; lenient: also 50.",
            rich_help_panel=_ANSWERS,
        ),
    ] = Percent.strict,
    units: Annotated[
        Units,
        typer.Option(
            help="lenient: a missing unit is accepted; strict: it is not.",
            rich_help_panel=_ANSWERS,
        ),
    ] = Units.lenient,
    steps: Annotated[
        bool,
        typer.Option(
            "--steps", help="Judge the steps of solutions, not answers.", rich_help_panel=_STEPS
        ),
    ] = False,
    step_delimiter: Annotated[
        str | None,
        typer.Option(
            help=r"What ends a step where a solution is one text; \n\n if not given.",
            rich_help_panel=_STEPS,
        ),
    ] = None,
) -> None:
    r"""Judge responses against gold answers, or the steps of solutions, with tools.

    Prints how many rows got which verdict for which reason. What cannot be judged is counted
    apart and never as wrong.

    Example: treerl verify responses.jsonl --response-field output --gold-field answer
    """
    from treerl.sources import open_source

    options = {"extraction": extraction.value, "percent": percent.value, "units": units.value}
    if steps and (gold_field is not None or options != _DEFAULTS):
        raise typer.BadParameter(
            "--steps judges no answers; leave --gold-field, --extraction, --percent, --units out"
        )
    for option, value in (("--problem-field", problem_field), ("--step-delimiter", step_delimiter)):
        if not steps and value is not None:
            raise typer.BadParameter(f"{option} belongs to --steps")
    delimiter = unescape(r"\n\n" if step_delimiter is None else step_delimiter)
    if not delimiter:
        raise typer.BadParameter("the step delimiter must not be empty")
    if out is not None and out.exists() and not force:
        raise ConfigError(f"{out} exists; name another file, or replace it with --force")
    file, _, rows = open_source(source, split)
    if out is not None and out.resolve() == Path(file).resolve():
        raise ConfigError(f"{out} is the file that is read; name another one for the records")
    fields = Fields(file, steps, response_field, gold_field, problem_field)
    reader = Reader(fields, islice(rows, limit), skip=on_bad_row is OnBadRow.SKIP)
    job = _StepJob(fields, delimiter) if steps else _AnswerJob(fields, options)
    try:
        with closing(job):
            _run(job, reader, out, workers)
    except KeyboardInterrupt as stopped:
        complain(f"interrupted after {reader.good:,} rows; no records were written")
        raise typer.Exit(130) from stopped
    _report_rows(reader)
    job.show()


class _AnswerJob:
    """Final answers against golds."""

    def __init__(self, fields: Fields, options: dict[str, Any]) -> None:
        from treerl.verifiers import AnswerVerifier

        self.fields, self.options = fields, options
        self.verifier = AnswerVerifier(**options)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.by_gold = 0

    def close(self) -> None:
        self.verifier.close()

    def task(self, row: Row) -> Task:
        from treerl.integrations import completion_text
        from treerl.readers import Number

        assert self.fields.response is not None
        assert self.fields.gold is not None
        value = self.fields.get(row, self.fields.response)
        gold = self.fields.get(row, self.fields.gold)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        response = completion_text(value)
        if not isinstance(value, str) and not response:
            raise self.fields.bad(row, self.fields.response, "the response is no text and no chat")
        # A number keeps the text that its file has; only a missing one is no gold.
        if isinstance(gold, Number):
            gold = None if gold.lower() == "nan" else str(gold)
        return Task(row.line, str(response), gold)

    def judge(self, task: Task) -> dict[str, Any]:
        from treerl.integrations import judge_answer

        verdict = judge_answer(self.verifier, task.what, task.against)
        return {
            "row": task.line,
            "verdict": str(verdict.verdict),
            "response": task.what,
            "gold": task.against,
            "options": self.options,
            "record": verdict.to_json(),
        }

    def add(self, record: dict[str, Any]) -> None:
        reason = record["record"]["reason"]
        self.counts[(record["verdict"], reason)] += 1
        self.by_gold += record["verdict"] == "UNVERIFIABLE" and reason.startswith("gold")

    def show(self) -> None:
        total, open_ = _table(self.counts, "rows")
        text = f"{_share(open_, total)} of {total:,} rows are without a verdict"
        if open_:
            text += f": {open_ - self.by_gold:,} by the response, {self.by_gold:,} by the gold"
        output().print(text, soft_wrap=True)


class _StepJob:
    """Steps of solutions."""

    def __init__(self, fields: Fields, delimiter: str) -> None:
        from treerl.verifiers import StepVerifier

        self.fields, self.delimiter = fields, delimiter
        self.verifier = StepVerifier()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.solutions = self.refuted = 0

    def close(self) -> None:
        self.verifier.close()

    def task(self, row: Row) -> Task:
        from treerl.integrations import completion_text

        name, value = self.fields.steps_of(row)
        if isinstance(value, list) and value and all(isinstance(step, str) for step in value):
            steps = [str(step) for step in value]
        else:
            steps = [step for step in completion_text(value).split(self.delimiter) if step.strip()]
        if not steps:
            message = "the solution is empty, or no text and no list of steps"
            raise self.fields.bad(row, name, message)
        problem = self.fields.problem_of(row)
        return Task(row.line, steps, str(problem) if isinstance(problem, str) else "")

    def judge(self, task: Task) -> dict[str, Any]:
        verdicts = self.verifier.verify_solution(task.what, problem=task.against)
        return {
            "row": task.line,
            "problem": task.against,
            "steps": task.what,
            "records": [verdict.to_json() for verdict in verdicts],
        }

    def add(self, record: dict[str, Any]) -> None:
        found = [(step["verdict"], step["reason"]) for step in record["records"]]
        self.counts.update(found)
        self.solutions += 1
        self.refuted += any(word == "REFUTED" for word, _ in found)

    def show(self) -> None:
        total, open_ = _table(self.counts, "steps")
        output().print(
            f"{_share(open_, total)} of {total:,} steps are without a verdict; "
            f"{self.refuted:,} of {self.solutions:,} solutions hold a refuted step",
            soft_wrap=True,
        )


def _run(job: _AnswerJob | _StepJob, reader: Reader, out: Path | None, workers: int) -> None:
    """Judge all rows; the file of records appears when it is whole."""
    part = None if out is None else out.with_name(f"{out.name}.part")
    try:
        if part is None or out is None:
            _judge(job, reader, None, workers)
            return
        with part.open("w", encoding="utf-8") as stream:
            _judge(job, reader, stream, workers)
        os.replace(part, out)
    except BaseException:
        if part is not None:
            part.unlink(missing_ok=True)
        raise


def _judge(job: _AnswerJob | _StepJob, reader: Reader, stream: TextIO | None, workers: int) -> None:
    tasks = reader.read(job.task)
    said = time.monotonic()
    threads = ThreadPoolExecutor(workers)
    try:
        while chunk := list(islice(tasks, CHUNK)):
            for record in threads.map(job.judge, chunk):
                job.add(record)
                if stream is not None:
                    stream.write(json.dumps(record, default=str) + "\n")
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                say(f"{reader.good:,} rows judged")
        if not reader.good:
            raise reader.nothing()
    finally:  # after Ctrl-C nobody waits for the checks that have not begun
        threads.shutdown(wait=False, cancel_futures=True)


def _report_rows(reader: Reader) -> None:
    fields, skipped = reader.fields, len(reader.errors)
    text = f"{reader.good:,} row{'s' * (reader.good != 1)} of {fields.file} ({fields.names()})"
    say(f"{text}, {skipped:,} bad ones skipped" if skipped else text)
    for error in reader.errors[:SHOWN]:
        say(f"  skipped: {error}")


_STYLES = {"SUPPORTED": "green", "REFUTED": "red", "UNVERIFIABLE": "yellow"}


def _table(counts: Counter[tuple[str, str]], unit: str) -> tuple[int, int]:
    """Print the counts; return how many there are and how many of them have no verdict."""
    from rich.text import Text

    total = sum(counts.values())
    table = plain_table("verdict", "reason", f"{unit}>", "share>")
    for word, style in _STYLES.items():
        reasons = {reason: n for (w, reason), n in counts.items() if w == word}
        n = sum(reasons.values())
        table.add_row(Text(word, style), "", Text(f"{n:,}", "bold"), Text(_share(n, total), "bold"))
        for reason, k in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            table.add_row("", Text(clean(reason)), f"{k:,}", _share(k, total))
    output().print(table)
    return total, sum(n for (word, _), n in counts.items() if word == "UNVERIFIABLE")


def _share(n: int, total: int) -> str:
    return f"{n / total:.1%}".replace("%", " %") if total else "none"
