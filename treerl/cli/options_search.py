"""The options of `treerl label` about labels and the search, as the help shows them."""

from __future__ import annotations

from typing import Annotated

import typer

from treerl.cli.presets import Method, Preset, Prior, Selection, Steps, describe_presets

__all__ = [
    "Children",
    "EstimateRoot",
    "Exploration",
    "MaxSteps",
    "MaxTokens",
    "MethodName",
    "NMin",
    "PresetName",
    "PriorKind",
    "Progress",
    "RewardName",
    "RightAbove",
    "RolloutBudget",
    "Rollouts",
    "RootCall",
    "Samples",
    "Searches",
    "SelectionName",
    "Simulations",
    "StepDelimiter",
    "StepFormat",
    "Stop",
    "Temperature",
    "Tools",
    "TopP",
    "UntilFirstZero",
    "VerifierName",
    "Wave",
]

_SEARCH, _LABELS = "Search, with every method", "Labels"
_MCTS, _PREFIX = "Search with --method mcts", "Search with --method prefix-mc"
_ROLLOUTS, _OMEGA = "Search with --method omegaprm or prefix-mc", "Search with --method omegaprm"


# --- the labels -----------------------------------------------------------------------------------

PresetName = Annotated[
    Preset,
    typer.Option(
        help=f"How to search, and how evidence becomes labels: {describe_presets()}. Other options "
        "override its defaults.",
        rich_help_panel=_LABELS,
    ),
]
NMin = Annotated[
    int,
    typer.Option(
        min=1,
        help="Rollouts that a label needs at least; never more than --rollouts by default.",
        rich_help_panel=_LABELS,
    ),
]
Progress = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="With --preset genprm_rpe: the least share of its value that a right step keeps.",
        rich_help_panel=_LABELS,
    ),
]
RightAbove = Annotated[
    float,
    typer.Option(help="A reward above this is a right answer.", rich_help_panel=_LABELS),
]
Tools = Annotated[
    bool,
    typer.Option("--tools/--no-tools", help="Check steps with tools.", rich_help_panel=_LABELS),
]
RewardName = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:OBJECT",
        help="Your own reward of a solution: called with (problem, text, leaf), it returns a "
        "number, or None for no verdict. By default: 1 for the gold answer, else 0.",
        rich_help_panel=_LABELS,
    ),
]
VerifierName = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:OBJECT",
        help="Your own judge of steps instead of the tools: an object with a name and a "
        "verify(step, *, problem, previous_steps).",
        rich_help_panel=_LABELS,
    ),
]

# --- the search -----------------------------------------------------------------------------------

MethodName = Annotated[
    Method | None,
    typer.Option(
        help="mcts (a tree search), omegaprm (a binary search for the first wrong step of wrong "
        "solutions), prefix-mc (rollouts from each step of sampled or given solutions).",
        show_default="the preset's; prefix-mc with --solutions",
        rich_help_panel=_SEARCH,
    ),
]
Temperature = Annotated[
    float, typer.Option(min=0.0, help="Sampling temperature.", rich_help_panel=_SEARCH)
]
TopP = Annotated[
    float, typer.Option(help="Nucleus mass, above 0 up to 1.", rich_help_panel=_SEARCH)
]
MaxTokens = Annotated[
    int, typer.Option(min=1, help="Tokens a solution may have.", rich_help_panel=_SEARCH)
]
StepFormat = Annotated[
    Steps,
    typer.Option(
        help="How the model writes steps: plain text with a delimiter, or json, an object with an "
        "objective and an action (which the system prompt then asks for).",
        rich_help_panel=_SEARCH,
    ),
]
RootCall = Annotated[
    bool,
    typer.Option(
        "--root-call/--no-root-call",
        help="With --step-format json: first ask the model for the problem's conditions and its "
        "objective.",
        rich_help_panel=_SEARCH,
    ),
]
StepDelimiter = Annotated[
    str | None,
    typer.Option(
        help=r"What ends a step: by default a blank line, '\n\n'; '\n' makes each line a step.",
        show_default=False,
        rich_help_panel=_SEARCH,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        help="A text that ends a solution; may be given several times.", rich_help_panel=_SEARCH
    ),
]
Simulations = Annotated[
    int,
    typer.Option(
        min=1,
        help="Search steps a problem. More give larger trees and firmer labels.",
        rich_help_panel=_MCTS,
    ),
]
Children = Annotated[
    int,
    typer.Option(
        min=1,
        help="Continuations tried below a step; with fewer than --n-min, the step before an "
        "answer stays without a label from rollouts.",
        rich_help_panel=_MCTS,
    ),
]
Wave = Annotated[
    int,
    typer.Option(
        min=1,
        help="Search steps of one problem that run together; changes the trees, like a batch "
        "size does.",
        rich_help_panel=_MCTS,
    ),
]
MaxSteps = Annotated[
    int, typer.Option(min=1, help="Depth below which no step is branched.", rich_help_panel=_MCTS)
]
SelectionName = Annotated[
    Selection,
    typer.Option(
        help="Which step is visited next: uct, puct (openr's), restmcts (ReST-MCTS*'s), "
        "uct_published (GroundedPRM's released form).",
        rich_help_panel=_MCTS,
    ),
]
Exploration = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="How much rarely tried steps are favoured; puct has no such constant.",
        show_default="1.414; 1.8 with uct_published, 0.7 with restmcts",
        rich_help_panel=_MCTS,
    ),
]
PriorKind = Annotated[
    Prior,
    typer.Option(
        help="What the prior of --selection puct is made of: how often a step was sampled, "
        "nothing, or its log-prob.",
        rich_help_panel=_MCTS,
    ),
]
Rollouts = Annotated[
    int,
    typer.Option(
        min=0,
        help="Rollouts from each step that is looked at; with prefix-mc, 0 labels by tools alone.",
        rich_help_panel=_ROLLOUTS,
    ),
]
Searches = Annotated[
    int,
    typer.Option(
        min=1,
        help="Wrong solutions a problem whose first wrong step is searched.",
        rich_help_panel=_OMEGA,
    ),
]
RolloutBudget = Annotated[
    int,
    typer.Option(min=1, help="Rollouts a problem may cost at most.", rich_help_panel=_OMEGA),
]
Samples = Annotated[
    int,
    typer.Option(
        min=1,
        help="Solutions to sample a problem where none are given.",
        rich_help_panel=_PREFIX,
    ),
]
EstimateRoot = Annotated[
    bool,
    typer.Option(
        "--estimate-root/--no-estimate-root",
        help="Rollouts from the problem itself too, which the first step's progress is held "
        "against.",
        rich_help_panel=_PREFIX,
    ),
]
UntilFirstZero = Annotated[
    bool,
    typer.Option(
        "--until-first-zero/--no-until-first-zero",
        help="Stop at the first step without a right rollout: cheaper, since what is behind it "
        "stays unlabelled anyway, but slower, since steps wait for each other.",
        rich_help_panel=_PREFIX,
    ),
]
