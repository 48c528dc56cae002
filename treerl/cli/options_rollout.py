"""The options of `treerl rollout` about trees, rewards and advantages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treerl.errors import ConfigError

if TYPE_CHECKING:
    from treerl.search.treepo_config import TreePOConfig

__all__ = [
    "Active",
    "Boxed",
    "Branches",
    "EstimatorName",
    "FirstSegments",
    "MaxTokens",
    "PresetName",
    "RewardName",
    "RightAbove",
    "RolloutOptions",
    "SegmentTokens",
    "Stop",
    "Temperature",
    "TopP",
    "TreePreset",
    "Width",
    "settle_rollouts",
    "tree_config",
    "written",
]

_TREES, _REWARDS, _RUN = "Trees", "Rewards and advantages", "Run"


class TreePreset(StrEnum):
    """Known segment trees, as ``treerl.search.preset`` names them."""

    treerl = "treerl"
    flat = "flat"
    treepo_paper = "treepo_paper"
    treepo_official = "treepo_official"
    spo_tree = "spo_tree"
    eptree = "eptree"
    tree_grpo = "tree_grpo"


_BUDGETED = (TreePreset.treerl, TreePreset.treepo_paper, TreePreset.treepo_official)
_BELONGS: dict[str, tuple[TreePreset, ...]] = {
    "width": (*_BUDGETED, TreePreset.flat),
    "k0": (TreePreset.treerl, TreePreset.treepo_paper),
    "branches": _BUDGETED,
    "segment_tokens": tuple(p for p in TreePreset if p is not TreePreset.eptree),
}
"""Options that only some presets have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """How to roll out; the names are those of the command line, None is the preset's own value."""

    preset: TreePreset = TreePreset.treerl
    width: int | None = None
    segment_tokens: int | None = None
    max_tokens: int | None = None
    k0: int | None = None
    branches: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] | None = None
    boxed: bool = True
    estimator: str = "omega"
    reward: str | None = None
    right_above: float = 0.5
    system: str | None = None
    thinking: bool | None = None
    seed: int = 0
    active: int = 64


def settle_rollouts(given: Mapping[str, Any], *, words: bool = False) -> RolloutOptions:
    """Check the options that were given and complete them.

    Args:
        given: Values of :class:`RolloutOptions` that somebody chose.
        words: The model is the lab's, whose solutions are shorter than a usual segment.

    Raises:
        ConfigError: An option does not belong to the preset, or there is no such estimator.
    """
    from treerl.advantage import ESTIMATORS

    options = RolloutOptions(**given)
    for name, presets in _BELONGS.items():
        if getattr(options, name) is not None and options.preset not in presets:
            raise ConfigError(
                f"--{name.replace('_', '-')} belongs to --preset {', '.join(presets)}, not to "
                f"{options.preset}; leave it out"
            )
    if options.estimator not in (*ESTIMATORS, "none"):
        raise ConfigError(
            f"no estimator '{options.estimator}'; there are: none, {', '.join(sorted(ESTIMATORS))}"
        )
    if words and options.segment_tokens is None and options.preset in _BUDGETED:
        return RolloutOptions(**{**given, "segment_tokens": 16})
    return options


def tree_config(options: RolloutOptions) -> TreePOConfig:
    """Return how the trees grow.

    Raises:
        ConfigError: A value cannot be.
    """
    from treerl.search.treepo_presets import preset
    from treerl.search.treepo_stopping import Stopping

    names = ("width", "segment_tokens", "max_tokens", "temperature", "top_p", "stop", "k0")
    chosen = {name: getattr(options, name) for name in names}
    chosen["b"] = options.branches
    if not options.boxed:
        chosen["stopping"] = Stopping(boxed=False)
    try:
        return preset(
            str(options.preset), **{name: v for name, v in chosen.items() if v is not None}
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def written(options: RolloutOptions) -> dict[str, Any]:
    """Return the options that a run depends on; given again, they give the same options."""
    found = {f.name: getattr(options, f.name) for f in fields(options) if f.name != "active"}
    return {
        name: str(value) if isinstance(value, StrEnum) else value
        for name, value in found.items()
        if value is not None
    }


# --- trees ----------------------------------------------------------------------------------------

PresetName = Annotated[
    TreePreset,
    typer.Option(
        help="How trees grow: treerl (a quota of paths shared out at every fork), flat "
        "(independent samples, the baseline), treepo_paper and treepo_official (TreePO as written "
        "and as released), spo_tree (full trees), eptree (chains branched where they were "
        "surprising), tree_grpo (chains entered again at random).",
        rich_help_panel=_TREES,
    ),
]
Width = Annotated[
    int | None,
    typer.Option(
        min=1, help="Leaves a problem.", show_default="16, by most presets", rich_help_panel=_TREES
    ),
]
SegmentTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens of a segment: paths fork where one ends. Take a small part of a usual "
        "solution; with flat it cuts samples into segments without a fork.",
        show_default="512; 600 with spo_tree, 16 with lab:words",
        rich_help_panel=_TREES,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Tokens a path may have.", show_default="7168", rich_help_panel=_TREES
    ),
]
FirstSegments = Annotated[
    int | None,
    typer.Option(
        "--k0",
        min=1,
        help="First segments, all of them independent: fewer share more and differ less.",
        show_default="8 with treerl; 2 to 8 by lot with treepo_paper",
        rich_help_panel=_TREES,
    ),
]
Branches = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Children of a segment at most (on average, with TreePO).",
        show_default="2",
        rich_help_panel=_TREES,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Sampling temperature.",
        show_default="1; 1.2 with eptree",
        rich_help_panel=_TREES,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Nucleus mass, above 0 up to 1; 1 where log-probs are to be trained on.",
        show_default="1; 0.95 with eptree",
        rich_help_panel=_TREES,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        help="A text that ends a path; may be given several times.", rich_help_panel=_TREES
    ),
]
Boxed = Annotated[
    bool,
    typer.Option(
        "--boxed/--no-boxed",
        help="A whole \\boxed{} ends a path. treepo_official never ends there.",
        rich_help_panel=_TREES,
    ),
]

# --- rewards and advantages -----------------------------------------------------------------------

EstimatorName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What makes advantages of the rewards: omega (unbiased on trees), omega_leaf, rloo, "
        "grpo, treepo, treerl, spo_tree, … (docs/advantage.md has all), or none for rows without.",
        rich_help_panel=_REWARDS,
    ),
]
RewardName = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:OBJECT",
        help="Your own reward of a completion: called with (problem, text, leaf), it returns a "
        "number, or None for no verdict. By default: 1 for the gold answer, else 0.",
        rich_help_panel=_REWARDS,
    ),
]
RightAbove = Annotated[
    float,
    typer.Option(
        help="A reward above this is a right answer, in pass@w and maj@w.", rich_help_panel=_REWARDS
    ),
]

# --- the run --------------------------------------------------------------------------------------

Active = Annotated[
    int,
    typer.Option(
        min=1,
        help="Problems that are worked on at the same time; no result depends on it.",
        rich_help_panel=_RUN,
    ),
]
