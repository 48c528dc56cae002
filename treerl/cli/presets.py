"""Presets: a label rule with the search that its authors use, and what may be changed about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from treerl.errors import ConfigError

__all__ = [
    "PRESETS",
    "LabelOptions",
    "Method",
    "Preset",
    "PresetSpec",
    "Prior",
    "Selection",
    "Steps",
    "describe_presets",
    "in_force",
    "settle",
]


class Method(StrEnum):
    """Search algorithms."""

    mcts = "mcts"
    omegaprm = "omegaprm"
    prefix_mc = "prefix-mc"


class Selection(StrEnum):
    """Scores by which a tree search chooses the next step."""

    uct = "uct"
    uct_published = "uct_published"
    puct = "puct"
    restmcts = "restmcts"


class Prior(StrEnum):
    """What PUCT's prior is made of."""

    multiplicity = "multiplicity"
    uniform = "uniform"
    logprob = "logprob"


class Steps(StrEnum):
    """How the model writes steps."""

    plain = "plain"
    json = "json"


class Preset(StrEnum):
    """How to search, and how evidence becomes labels."""

    groundedprm = "groundedprm"
    groundedprm_published = "groundedprm_published"
    mathshepherd = "mathshepherd"
    omegaprm = "omegaprm"
    genprm_rpe = "genprm_rpe"
    consensus = "consensus"
    restmcts = "restmcts"
    openr = "openr"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetSpec:
    """What a preset stands for.

    Attributes:
        says: A few words for the help.
        rule: The fusion rule.
        methods: Methods that the rule can label from; the first is the default.
        tools: None where steps may be checked by tools or not, else whether they must be.
        defaults: Values of :class:`LabelOptions` that differ from its own.
        mcts: Fields of ``MCTSConfig`` that no option names.
    """

    says: str
    rule: str
    methods: tuple[Method, ...] = tuple(Method)
    tools: bool | None = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    mcts: Mapping[str, Any] = field(default_factory=dict)


PRESETS: dict[Preset, PresetSpec] = {
    Preset.groundedprm: PresetSpec(says="tools and rollouts", rule="groundedprm", tools=None),
    Preset.groundedprm_published: PresetSpec(
        says="the authors' released rules, to reproduce them",
        rule="groundedprm_published",
        methods=(Method.mcts,),
        tools=True,
        defaults={"selection": Selection.uct_published},
        mcts={"rollout_reward": {}},
    ),
    # Math-Shepherd knows no tools: its labels are counts of rollouts alone.
    Preset.mathshepherd: PresetSpec(
        says="rollouts alone", rule="mathshepherd", mcts={"rollout_reward": {"verdicts": False}}
    ),
    Preset.omegaprm: PresetSpec(
        says="rollouts where OmegaPRM's binary search wants them",
        rule="mathshepherd",
        methods=(Method.omegaprm,),
    ),
    Preset.genprm_rpe: PresetSpec(
        says="GenPRM's relative progress",
        rule="genprm_rpe",
        methods=(Method.prefix_mc,),
        defaults={"estimate_root": True},
    ),
    Preset.consensus: PresetSpec(
        says="Qwen's filter: rollouts, where tools name the same first wrong step",
        rule="consensus",
        methods=(Method.prefix_mc, Method.mcts, Method.omegaprm),
        tools=True,
    ),
    Preset.restmcts: PresetSpec(
        says="the search and the value targets of ReST-MCTS*",
        rule="restmcts",
        methods=(Method.mcts,),
        defaults={"selection": Selection.restmcts, "children": 3},
        mcts={"rollout_reward": {"verdicts": False}},
    ),
    Preset.openr: PresetSpec(
        says="rollouts in a search with openr's PUCT",
        rule="mathshepherd",
        methods=(Method.mcts,),
        defaults={"selection": Selection.puct},
        mcts={"rollout_reward": {"verdicts": False}},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions:
    """How to search and label; the names are those of the command line."""

    preset: Preset = Preset.groundedprm
    method: Method = Method.mcts
    seed: int = 0
    simulations: int = 32
    # A last step's siblings are all the rollouts that its parent ever gets: fewer than n_min, and
    # no step before a last one could be labelled by rollouts.
    children: int = 4
    wave: int = 4
    max_steps: int = 32
    selection: Selection = Selection.uct
    exploration: float = 1.414
    prior: Prior = Prior.multiplicity
    rollouts: int = 8
    searches: int = 20
    rollout_budget: int = 200
    samples: int = 1
    estimate_root: bool = False
    until_first_zero: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512
    step_format: Steps = Steps.plain
    step_delimiter: str = "\n\n"
    root_call: bool = False
    stop: tuple[str, ...] = ()
    n_min: int = 4
    progress: float = 0.8
    right_above: float = 0.5
    tools: bool = True
    verifier: str | None = None
    reward: str | None = None
    system: str | None = None
    thinking: bool | None = None
    active: int = 16


_BELONGS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    **dict.fromkeys(
        ("simulations", "children", "wave", "max_steps", "selection"),
        (("method", (Method.mcts,)),),
    ),
    "exploration": (
        ("method", (Method.mcts,)),
        ("selection", (Selection.uct, Selection.uct_published, Selection.restmcts)),
    ),
    "prior": (("method", (Method.mcts,)), ("selection", (Selection.puct,))),
    **dict.fromkeys(("searches", "rollout_budget"), (("method", (Method.omegaprm,)),)),
    **dict.fromkeys(
        ("samples", "estimate_root", "until_first_zero"), (("method", (Method.prefix_mc,)),)
    ),
    "rollouts": (("method", (Method.omegaprm, Method.prefix_mc)),),
    "progress": (("preset", (Preset.genprm_rpe,)),),
    "root_call": (("step_format", (Steps.json,)),),
}
"""Options that mean something only where another option has one of some values."""


def settle(
    given: Mapping[str, Any], *, solutions: bool = False, lines: bool = False
) -> LabelOptions:
    """Complete the options that were given with the defaults of their preset and method.

    Args:
        given: Values of :class:`LabelOptions` that somebody chose.
        solutions: Solutions are given, so none are searched for.
        lines: The model writes a step a line.

    Raises:
        ConfigError: Options contradict each other, or one does not belong to the method.
    """
    from treerl.search.selection import PUBLISHED_EXPLORATION

    preset = Preset(given.get("preset", Preset.groundedprm))
    spec = PRESETS[preset]
    values: dict[str, Any] = {"tools": spec.tools is not False, **spec.defaults, **given}
    values["preset"] = preset
    values["method"] = _method(given.get("method"), preset, solutions)
    for name, kind in (("selection", Selection), ("prior", Prior), ("step_format", Steps)):
        if name in values:
            values[name] = kind(values[name])
    selection = values.get("selection", Selection.uct)
    values.setdefault("exploration", PUBLISHED_EXPLORATION.get(selection, 1.414))
    values.setdefault("step_delimiter", "\n" if lines else "\n\n")
    options = LabelOptions(**values)
    for name in given:
        _check_belongs(name, options)
    _check_given(given, options, solutions)
    if options.method in (Method.omegaprm, Method.prefix_mc):
        _check_rollouts(given, options)
        if "n_min" not in values:
            least = max(1, min(options.n_min, options.rollouts))
            options = replace(options, n_min=least)
    return options


def in_force(options: LabelOptions, *, solutions: bool = False) -> dict[str, Any]:
    """Return the options that a run depends on, without those of other methods and rules.

    Given to :func:`settle` again, they give the same options.
    """
    left_out = {"active"}
    if solutions:
        left_out |= {"samples"}
    elif options.step_format is Steps.json:
        left_out |= {"step_delimiter"}
    return {
        f.name: getattr(options, f.name)
        for f in fields(options)
        if f.name not in left_out and _foreign(f.name, options) is None
    }


def describe_presets() -> str:
    """Return the presets with a few words about each."""
    return ", ".join(f"{name} ({spec.says})" for name, spec in PRESETS.items())


def _method(given: str | None, preset: Preset, solutions: bool) -> Method:
    methods = PRESETS[preset].methods
    default = Method.prefix_mc if solutions else methods[0]
    method = default if given is None else Method(given)
    if solutions and method is not Method.prefix_mc:
        raise ConfigError(
            f"--method {method} searches solutions of its own; --solutions needs prefix-mc"
        )
    if method not in methods:
        known = " or ".join(methods)
        why = ", which --solutions needs" if solutions and given is None else ""
        raise ConfigError(f"the preset {preset} labels from {known}, not from {method}{why}")
    return method


def _foreign(name: str, options: LabelOptions) -> tuple[str, tuple[str, ...]] | None:
    """Return the option and its values that an option needs and does not have."""
    for other, values in _BELONGS.get(name, ()):
        if getattr(options, other) not in values:
            return other, values
    return None


def _check_belongs(name: str, options: LabelOptions) -> None:
    needs = _foreign(name, options)
    if needs is not None:
        other, values = needs
        option, owner = f"--{name.replace('_', '-')}", f"--{other.replace('_', '-')}"
        raise ConfigError(
            f"{option} belongs to {owner} {' or '.join(values)}, not to "
            f"{getattr(options, other)}; leave it out"
        )


def _check_given(given: Mapping[str, Any], options: LabelOptions, solutions: bool) -> None:
    preset, tools = options.preset, PRESETS[options.preset].tools
    if solutions and "samples" in given:
        raise ConfigError("--samples belongs to sampled solutions; leave it out with --solutions")
    if options.step_format is Steps.json and not solutions and "step_delimiter" in given:
        raise ConfigError("--step-delimiter belongs to --step-format plain; leave it out")
    if tools is not None and options.tools != tools:
        need, option = ("needs the", "--no-tools") if tools else ("asks no", "--tools")
        raise ConfigError(f"the preset {preset} {need} tools; leave {option} out")
    if options.verifier is not None and not options.tools:
        mend = f"the preset {preset} asks none" if tools is False else "leave --no-tools out"
        raise ConfigError(f"--verifier has nothing to judge: {mend}")


def _check_rollouts(given: Mapping[str, Any], options: LabelOptions) -> None:
    rollouts = options.rollouts
    if rollouts == 0 and (options.method is not Method.prefix_mc or not options.tools):
        raise ConfigError(
            "--rollouts 0 leaves the tools alone: it needs --method prefix-mc and tools"
        )
    if 0 < rollouts < given.get("n_min", 0):
        raise ConfigError(
            f"--n-min {given['n_min']} is more than --rollouts {rollouts}: no step could be "
            "labelled by rollouts"
        )
