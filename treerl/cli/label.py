"""`treerl label`: problems in, process labels out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import typer

from treerl.cli import options as o
from treerl.cli import options_search as s
from treerl.cli.console import complain, say
from treerl.cli.engines import LAB_WORDS, EngineOptions, open_engine
from treerl.cli.given import given_options, options_of
from treerl.cli.inputs import InputOptions, read_input
from treerl.cli.options import OnBadRow
from treerl.cli.presets import LabelOptions, settle
from treerl.cli.repeat import (
    check_options,
    command_of,
    differences,
    read_config,
    with_command,
)
from treerl.cli.running import Interrupted, run_labeler
from treerl.cli.setup import open_labeler

__all__ = ["OnBadRow", "label"]

_DEFAULT = LabelOptions()


def label(
    ctx: typer.Context,
    out: o.Out,
    problems: o.Problems = None,
    model: o.ModelName = None,
    engine: o.EngineName = "hf",
    url: o.Url = None,
    dtype: o.NumberFormat = None,
    device: o.Device = None,
    max_batch: o.MaxBatch = None,
    max_context: o.MaxContext = None,
    engine_arg: o.EngineArg = None,
    system: o.System = None,
    thinking: o.Thinking = None,
    limit: o.Limit = None,
    question_field: o.QuestionField = None,
    answer_field: o.AnswerField = None,
    id_field: o.IdField = None,
    answer_format: o.GoldFormat = o.AnswerFormat.auto,
    split: o.Split = None,
    on_bad_row: o.OnBad = OnBadRow.RAISE,
    solutions: o.Solutions = None,
    solution_field: o.SolutionField = None,
    solution_id_field: o.SolutionIdField = None,
    preset: s.PresetName = _DEFAULT.preset,
    n_min: s.NMin = _DEFAULT.n_min,
    progress: s.Progress = _DEFAULT.progress,
    right_above: s.RightAbove = _DEFAULT.right_above,
    tools: s.Tools = _DEFAULT.tools,
    verifier: s.VerifierName = None,
    reward: s.RewardName = None,
    method: s.MethodName = None,
    temperature: s.Temperature = _DEFAULT.temperature,
    top_p: s.TopP = _DEFAULT.top_p,
    max_tokens: s.MaxTokens = _DEFAULT.max_tokens,
    step_format: s.StepFormat = _DEFAULT.step_format,
    step_delimiter: s.StepDelimiter = None,
    root_call: s.RootCall = _DEFAULT.root_call,
    stop: s.Stop = None,
    simulations: s.Simulations = _DEFAULT.simulations,
    children: s.Children = _DEFAULT.children,
    wave: s.Wave = _DEFAULT.wave,
    max_steps: s.MaxSteps = _DEFAULT.max_steps,
    selection: s.SelectionName = _DEFAULT.selection,
    exploration: s.Exploration = _DEFAULT.exploration,
    prior: s.PriorKind = _DEFAULT.prior,
    rollouts: s.Rollouts = _DEFAULT.rollouts,
    searches: s.Searches = _DEFAULT.searches,
    rollout_budget: s.RolloutBudget = _DEFAULT.rollout_budget,
    samples: s.Samples = _DEFAULT.samples,
    estimate_root: s.EstimateRoot = _DEFAULT.estimate_root,
    until_first_zero: s.UntilFirstZero = _DEFAULT.until_first_zero,
    config: o.Config = None,
    seed: o.Seed = _DEFAULT.seed,
    active: o.Active = _DEFAULT.active,
) -> None:
    r"""Label the steps of solutions to your problems.

    A model writes many solutions to each problem as a tree of steps, or you give solutions. Every
    step is checked by tools and by how often the solutions through it reach the right answer; both
    together make its label: right, wrong, or none where the evidence does not suffice. A problem
    without a gold answer gets labels from tools alone.

    Example: treerl label problems.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --out runs/first
    """
    typed = dict(locals())  # every option by its name; which of them were given, ctx knows
    from treerl.cli.summary import show_summary

    began = time.monotonic()
    given = given_options(ctx, typed)
    earlier, chosen = _choose(given, config)
    if "problems" not in chosen:
        raise typer.BadParameter("Missing argument 'PROBLEMS'")
    inputs = InputOptions(**options_of(InputOptions, chosen))
    source = EngineOptions(**options_of(EngineOptions, chosen))
    options = settle(
        options_of(LabelOptions, chosen),
        solutions=inputs.solutions is not None,
        lines=source.model == LAB_WORDS,
    )
    with open_labeler(options) as labeler:
        read, skipped = read_input(inputs, options.step_delimiter)
        say(f"loading {source.model or source.engine}")
        finished = (out / "summary.json").exists()
        policy = open_engine(source)
        labeler = with_command(labeler, command_of(inputs, source, options, policy), out)
        if earlier is not None:
            for difference in differences(earlier, labeler, read, policy, beside=given):
                say(f"  unlike {config}: {difference}")
        try:
            summary, session = run_labeler(labeler, read, policy, out)
        except Interrupted as stopped:
            complain(str(stopped))
            raise typer.Exit(130) from stopped
    if finished:
        say(f"{out} was finished before: nothing was generated, this is its summary")
    seconds = time.monotonic() - began
    show_summary(summary, out, session=session, seconds=seconds, skipped=skipped)


def _choose(
    given: Mapping[str, Any], config: Path | None
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the manifest of a run to repeat, and the options that it or the user chose."""
    if config is None:
        return None, dict(given)
    manifest, written = read_config(config)
    stored = check_options(written, get_type_hints(label, include_extras=True), config)
    # Another preset, method or engine has defaults of its own: those of the old one go.
    if any(name in given and given[name] != stored.get(name) for name in ("preset", "method")):
        for name in options_of(LabelOptions, stored).keys() - _KEPT:
            del stored[name]
    if given.get("engine", stored.get("engine")) != stored.get("engine"):
        for name in ("url", "dtype", "engine_arg", "max_context"):
            stored.pop(name, None)
    return manifest, {**stored, **given}


_KEPT = {
    *("seed", "temperature", "top_p", "max_tokens", "step_format", "step_delimiter", "stop"),
    *("root_call", "right_above", "reward", "system", "thinking"),
}
"""Options of a repeated run that another preset or method keeps."""
