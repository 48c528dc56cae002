"""`treerl label`: problems in, process labels out."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treerl.cli.console import complain, say
from treerl.cli.running import Interrupted, run_labeler
from treerl.cli.setup import (
    LAB_WORDS,
    EngineOptions,
    LabelOptions,
    Preset,
    open_engine,
    open_labeler,
    unescape,
)

if TYPE_CHECKING:
    from treerl.loading import LoadedProblems

__all__ = ["AnswerFormat", "Dtype", "OnBadRow", "label"]

_INPUT, _MODEL, _SEARCH, _LABELS, _RUN = "Problems", "Model", "Search", "Labels", "Run"


class OnBadRow(StrEnum):
    """What a bad row does."""

    RAISE = "raise"
    SKIP = "skip"


class AnswerFormat(StrEnum):
    """How the gold answer stands in its field."""

    auto = "auto"
    plain = "plain"
    gsm8k = "gsm8k"
    boxed = "boxed"


class Dtype(StrEnum):
    """Number formats of weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def label(
    problems: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEMS",
            help="The problems: a .jsonl, .json, .csv or .parquet file, a folder of them, or the "
            "id of a data set on the Hugging Face hub ('openai/gsm8k:main').",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for the results. If it holds an interrupted run of the same command, "
            "that run goes on.",
            rich_help_panel=_RUN,
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help=f"A model folder, a hub id, or {LAB_WORDS} for the little model that comes with "
            "treerl.",
            rich_help_panel=_MODEL,
        ),
    ],
    engine: Annotated[
        str,
        typer.Option(
            help="What runs the model: hf (transformers, on CPU or GPU).", rich_help_panel=_MODEL
        ),
    ] = "hf",
    dtype: Annotated[
        Dtype,
        typer.Option(
            help="Number format of the weights; only float32 repeats a run exactly.",
            rich_help_panel=_MODEL,
        ),
    ] = Dtype.float32,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, cuda:1, …; by default the first GPU, else the CPU.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    max_batch: Annotated[
        int,
        typer.Option(
            min=1, help="Requests that run at once; fewer need less memory.", rich_help_panel=_MODEL
        ),
    ] = 32,
    max_context: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Tokens of prompt and solution together; by default the model's own bound.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="System prompt for problems that have none of their own.", rich_help_panel=_MODEL
        ),
    ] = None,
    thinking: Annotated[
        bool | None,
        typer.Option(
            "--thinking/--no-thinking",
            help="Switch a reasoning model's thinking on or off; by default its template decides.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Take only the first so many problems.", rich_help_panel=_INPUT),
    ] = None,
    question_field: Annotated[
        str | None,
        typer.Option(
            help="Field of the question; found by itself where it has a usual name.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    answer_field: Annotated[
        str | None,
        typer.Option(help="Field of the gold answer.", rich_help_panel=_INPUT),
    ] = None,
    id_field: Annotated[
        str | None, typer.Option(help="Field of the id.", rich_help_panel=_INPUT)
    ] = None,
    answer_format: Annotated[
        AnswerFormat,
        typer.Option(
            help="How the gold stands in its field: gsm8k is the text behind ####, boxed the "
            "content of the last \\boxed{}, plain the whole field.",
            rich_help_panel=_INPUT,
        ),
    ] = AnswerFormat.auto,
    split: Annotated[
        str | None,
        typer.Option(help="Split of a folder or a hub data set.", rich_help_panel=_INPUT),
    ] = None,
    on_bad_row: Annotated[
        OnBadRow,
        typer.Option(
            help="A row that cannot be used ends the command, or is left out and counted.",
            rich_help_panel=_INPUT,
        ),
    ] = OnBadRow.RAISE,
    simulations: Annotated[
        int,
        typer.Option(
            min=1,
            help="Search steps a problem. More give larger trees and firmer labels.",
            rich_help_panel=_SEARCH,
        ),
    ] = 32,
    children: Annotated[
        int,
        typer.Option(
            min=1,
            help="Continuations tried below a step; with fewer than --n-min, the step before an "
            "answer stays without a label from rollouts.",
            rich_help_panel=_SEARCH,
        ),
    ] = 4,
    wave: Annotated[
        int,
        typer.Option(
            min=1,
            help="Search steps of one problem that run together; changes the trees, like a batch "
            "size does.",
            rich_help_panel=_SEARCH,
        ),
    ] = 4,
    max_steps: Annotated[
        int,
        typer.Option(min=1, help="Depth below which no step is branched.", rich_help_panel=_SEARCH),
    ] = 32,
    exploration: Annotated[
        float,
        typer.Option(
            min=0.0, help="How much rarely tried steps are favoured.", rich_help_panel=_SEARCH
        ),
    ] = 1.414,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature.", rich_help_panel=_SEARCH)
    ] = 1.0,
    top_p: Annotated[
        float, typer.Option(help="Nucleus mass, above 0 up to 1.", rich_help_panel=_SEARCH)
    ] = 1.0,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens a solution may have.", rich_help_panel=_SEARCH)
    ] = 512,
    step_delimiter: Annotated[
        str | None,
        typer.Option(
            help=r"What ends a step: by default a blank line, '\n\n'; '\n' makes each line a step.",
            show_default=False,
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            help="A text that ends a solution; may be given several times.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option(
            help="How evidence becomes labels: groundedprm (tools and rollouts), mathshepherd "
            "(rollouts alone), groundedprm_published (the authors' released rules, to reproduce "
            "them).",
            rich_help_panel=_LABELS,
        ),
    ] = Preset.groundedprm,
    n_min: Annotated[
        int,
        typer.Option(min=1, help="Rollouts that a label needs at least.", rich_help_panel=_LABELS),
    ] = 4,
    tools: Annotated[
        bool,
        typer.Option("--tools/--no-tools", help="Check steps with tools.", rich_help_panel=_LABELS),
    ] = True,
    seed: Annotated[
        int, typer.Option(help="Another seed, other solutions.", rich_help_panel=_RUN)
    ] = 0,
    active: Annotated[
        int,
        typer.Option(
            min=1,
            help="Problems that are worked on at the same time; no label depends on it.",
            rich_help_panel=_RUN,
        ),
    ] = 16,
) -> None:
    r"""Label the steps of solutions to your problems.

    A model writes many solutions to each problem as a tree of steps. Every step is checked by
    tools and by how often the solutions through it reach the right answer; both together make
    its label: right, wrong, or none where the evidence does not suffice. A problem
    without a gold answer gets labels from tools alone.

    Example: treerl label problems.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --out runs/first
    """
    from treerl.cli.summary import show_summary
    from treerl.loading import load_problems

    began = time.monotonic()
    loaded = load_problems(
        problems,
        question_field=question_field,
        answer_field=answer_field,
        id_field=id_field,
        split=split,
        limit=limit,
        on_error=on_bad_row.value,
        answer_format=answer_format.value,
    )
    _report_input(loaded)
    delimiter = step_delimiter or ("\\n" if model == LAB_WORDS else "\\n\\n")
    options = LabelOptions(
        preset=preset,
        seed=seed,
        simulations=simulations,
        children=children,
        wave=wave,
        max_steps=max_steps,
        exploration=exploration,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        step_delimiter=unescape(delimiter),
        stop=tuple(unescape(text) for text in stop or ()),
        n_min=n_min,
        tools=tools,
        system=system,
        thinking=thinking,
        active=active,
    )
    source = EngineOptions(
        engine=engine,
        model=model,
        dtype=dtype.value,
        device=device,
        max_batch=max_batch,
        max_context=max_context,
    )
    with open_labeler(options) as labeler:
        say(f"loading {model}")
        finished = (out / "summary.json").exists()
        policy = open_engine(source)
        try:
            summary = run_labeler(labeler, loaded.problems, policy, out)
        except Interrupted as stopped:
            complain(str(stopped))
            raise typer.Exit(130) from stopped
    if finished:
        say(f"{out} was finished before: nothing was generated, this is its summary")
    show_summary(summary, out, seconds=time.monotonic() - began, skipped=len(loaded.errors))


def _report_input(loaded: LoadedProblems) -> None:
    say(loaded.summary())
    for error in loaded.errors[1:5]:
        say(f"  also skipped: {error}")
    if loaded.counts["without_answer"]:
        say("  a problem without an answer gets labels only where a tool refutes a step")
