"""The options of `treerl label` about its input, the model and the run, as the help shows them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Active",
    "AnswerField",
    "AnswerFormat",
    "Config",
    "Device",
    "Dtype",
    "EngineArg",
    "EngineName",
    "GoldFormat",
    "IdField",
    "Limit",
    "MaxBatch",
    "MaxContext",
    "ModelName",
    "NumberFormat",
    "OnBad",
    "OnBadRow",
    "Out",
    "Problems",
    "QuestionField",
    "Seed",
    "SolutionField",
    "SolutionIdField",
    "Solutions",
    "Split",
    "System",
    "Thinking",
    "Url",
]


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

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


_INPUT, _GIVEN, _MODEL, _RUN = "Problems", "Given solutions", "Model", "Run"

# --- problems -------------------------------------------------------------------------------------

Problems = Annotated[
    str | None,
    typer.Argument(
        metavar="PROBLEMS",
        help="The problems: a .jsonl, .json, .csv or .parquet file, a folder of them, or the "
        "id of a data set on the Hugging Face hub ('openai/gsm8k:main').",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Take only the first so many problems.", rich_help_panel=_INPUT),
]
QuestionField = Annotated[
    str | None,
    typer.Option(
        help="Field of the question; found by itself where it has a usual name.",
        rich_help_panel=_INPUT,
    ),
]
AnswerField = Annotated[
    str | None, typer.Option(help="Field of the gold answer.", rich_help_panel=_INPUT)
]
IdField = Annotated[str | None, typer.Option(help="Field of the id.", rich_help_panel=_INPUT)]
GoldFormat = Annotated[
    AnswerFormat,
    typer.Option(
        help="How the gold stands in its field: gsm8k is the text behind ####, boxed the "
        "content of the last \\boxed{}, plain the whole field.",
        rich_help_panel=_INPUT,
    ),
]
Split = Annotated[
    str | None, typer.Option(help="Split of a folder or a hub data set.", rich_help_panel=_INPUT)
]
OnBad = Annotated[
    OnBadRow,
    typer.Option(
        help="A row that cannot be used ends the command, or is left out and counted.",
        rich_help_panel=_INPUT,
    ),
]

# --- given solutions ------------------------------------------------------------------------------

Solutions = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Label these solutions instead of sampled ones: rows with an id of a problem or its "
        "text, and with steps. May be PROBLEMS itself, where its rows hold both.",
        rich_help_panel=_GIVEN,
    ),
]
SolutionField = Annotated[
    str | None,
    typer.Option(
        help="Field of the solution: a list of steps, or a text that --step-delimiter splits; "
        "found by itself where it has a usual name.",
        rich_help_panel=_GIVEN,
    ),
]
SolutionIdField = Annotated[
    str | None,
    typer.Option(help="Field of the problem's id in --solutions.", rich_help_panel=_GIVEN),
]

# --- the model ------------------------------------------------------------------------------------

ModelName = Annotated[
    str | None,
    typer.Option(
        help="A model folder, a hub id, or lab:words for the little model that comes with treerl. "
        "With --engine server: the served name, or the folder of its tokenizer.",
        rich_help_panel=_MODEL,
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        metavar="hf|vllm|server|MODULE:OBJECT",
        help="What runs the model: hf (transformers, on CPU or GPU), vllm (in this process), "
        "server (any by --url), or your own engine.",
        rich_help_panel=_MODEL,
    ),
]
Url = Annotated[
    list[str] | None,
    typer.Option(
        help="Address of a server, with --engine server; may be given several times for several "
        "servers of the same model.",
        rich_help_panel=_MODEL,
    ),
]
EngineArg = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A further argument of the engine, e.g. gpu_memory_utilization=0.8 of vLLM; the value "
        "is JSON or else text. May be given several times.",
        rich_help_panel=_MODEL,
    ),
]
NumberFormat = Annotated[
    Dtype | None,
    typer.Option(
        help="Number format of the weights; only float32 repeats a run exactly.",
        show_default="float32 with hf, auto with vllm",
        rich_help_panel=_MODEL,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, cuda:1, …, with --engine hf; by default the first GPU, else the CPU.",
        rich_help_panel=_MODEL,
    ),
]
MaxBatch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Requests that run at once (on each server); fewer need less memory.",
        show_default="32 with hf, 64 with server, vLLM's own with vllm",
        rich_help_panel=_MODEL,
    ),
]
MaxContext = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Tokens of prompt and solution together; by default the model's own bound.",
        rich_help_panel=_MODEL,
    ),
]
System = Annotated[
    str | None,
    typer.Option(
        help="System prompt for problems that have none of their own.", rich_help_panel=_MODEL
    ),
]
Thinking = Annotated[
    bool | None,
    typer.Option(
        "--thinking/--no-thinking",
        help="Switch a reasoning model's thinking on or off; by default its template decides.",
        rich_help_panel=_MODEL,
    ),
]

# --- the run --------------------------------------------------------------------------------------

Out = Annotated[
    Path,
    typer.Option(
        help="Folder for the results. If it holds an interrupted run of the same command, "
        "that run goes on.",
        rich_help_panel=_RUN,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR|FILE",
        help="Repeat an earlier run: its folder, or its manifest.json. Options beside it override "
        "the run's.",
        rich_help_panel=_RUN,
    ),
]
Seed = Annotated[int, typer.Option(help="Another seed, other solutions.", rich_help_panel=_RUN)]
Active = Annotated[
    int,
    typer.Option(
        min=1,
        help="Problems that are worked on at the same time; no label depends on it.",
        rich_help_panel=_RUN,
    ),
]
