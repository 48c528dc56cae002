"""`treerl rollout`: problems in, trees and training rows out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from treerl.cli import options as o
from treerl.cli import options_rollout as r
from treerl.cli.console import complain, say
from treerl.cli.engines import LAB_WORDS, EngineOptions, open_engine
from treerl.cli.given import given_options, options_of
from treerl.cli.inputs import SHOWN, InputOptions
from treerl.cli.options import OnBadRow
from treerl.cli.options_rollout import RolloutOptions, settle_rollouts, tree_config, written
from treerl.cli.plugins import load_reward
from treerl.cli.presets import LabelOptions
from treerl.cli.progress import LabelProgress
from treerl.cli.repeat import check_options, command_of, differences, read_config, with_command
from treerl.cli.running import Interrupted, run_labeler

if TYPE_CHECKING:
    from treerl.engines.base import Engine
    from treerl.problem import Problem
    from treerl.search.rollouts import Rollouts
    from treerl.store import ProblemResult

__all__ = ["RolloutProgress", "rollout"]

_DEFAULT = RolloutOptions()


def rollout(
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
    preset: r.PresetName = _DEFAULT.preset,
    width: r.Width = None,
    segment_tokens: r.SegmentTokens = None,
    max_tokens: r.MaxTokens = None,
    k0: r.FirstSegments = None,
    branches: r.Branches = None,
    temperature: r.Temperature = None,
    top_p: r.TopP = None,
    stop: r.Stop = None,
    boxed: r.Boxed = _DEFAULT.boxed,
    estimator: r.EstimatorName = _DEFAULT.estimator,
    reward: r.RewardName = None,
    right_above: r.RightAbove = _DEFAULT.right_above,
    config: o.Config = None,
    seed: o.Seed = _DEFAULT.seed,
    active: r.Active = _DEFAULT.active,
) -> None:
    """Roll out trees of solutions to your problems, with a reward and advantages a leaf.

    Solutions grow in segments and fork where a segment ends, so that their common beginnings are
    generated once. What comes out: the trees, and rows/*.parquet, a row a solution with token ids,
    behaviour log-probs, reward and advantages, for a trainer.

    Example: treerl rollout problems.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --out runs/first
    """
    typed = dict(locals())  # every option by its name; which of them were given, ctx knows
    from treerl.cli.summary import show_rollouts

    began = time.monotonic()
    given = given_options(ctx, typed)
    earlier, chosen = _choose(given, config)
    if "problems" not in chosen:
        raise typer.BadParameter("Missing argument 'PROBLEMS'")
    inputs = InputOptions(**options_of(InputOptions, chosen))
    source = EngineOptions(**options_of(EngineOptions, chosen))
    options = settle_rollouts(options_of(RolloutOptions, chosen), words=source.model == LAB_WORDS)
    with _open_rollouts(options) as rollouts:
        read, skipped = _read(inputs)
        say(f"loading {source.model or source.engine}")
        finished = (out / "summary.json").exists()
        policy = open_engine(source)
        rollouts = with_command(rollouts, _command(inputs, source, options, policy), out)
        if earlier is not None:
            told: Any = rollouts
            for difference in differences(earlier, told, read, policy, beside=given):
                say(f"  unlike {config}: {difference}")
        try:
            summary, session = run_labeler(rollouts, read, policy, out, RolloutProgress)
        except Interrupted as stopped:
            complain(str(stopped))
            raise typer.Exit(130) from stopped
    if finished:
        say(f"{out} was finished before: nothing was generated, this is its summary")
    seconds = time.monotonic() - began
    show_rollouts(summary, out, session=session, seconds=seconds, skipped=skipped)


class RolloutProgress(LabelProgress):
    """Problems done, rate and time left, with leaves and mean reward of this process."""

    def __init__(self, total: int, done: int = 0) -> None:
        super().__init__(total, done)
        self.leaves = self.scored = 0
        self.reward = 0.0

    def update(self, result: ProblemResult) -> None:
        """Count a problem that is done and safe on disk."""
        for leaf in () if result.tree is None else result.tree.leaves():
            self.leaves += leaf.multiplicity
            if leaf.reward is not None:
                self.scored += leaf.multiplicity
                self.reward += leaf.multiplicity * leaf.reward
        super().update(result)

    def line(self) -> str:
        """Return the state as one line."""
        front = super().line().rpartition("; ")[0]
        mean = f", mean reward {self.reward / self.scored:.3f}" if self.scored else ""
        return f"{front}; {self.leaves:,} leaves{mean}"


@contextmanager
def _open_rollouts(options: RolloutOptions) -> Iterator[Rollouts]:
    """Yield what rolls out, its reward running."""
    from treerl.prm.rewards import AnswerReward
    from treerl.search.rollouts import Rollouts
    from treerl.verifiers import AnswerVerifier

    search = tree_config(options)
    with ExitStack() as stack:
        if options.reward is None:
            reward: Any = AnswerReward(stack.enter_context(AnswerVerifier()))
        else:
            reward = load_reward(options.reward, stack)
        template = None if options.thinking is None else {"enable_thinking": options.thinking}
        yield Rollouts(
            reward=reward,
            search=search,
            advantage=None if options.estimator == "none" else options.estimator,
            right_above=options.right_above,
            seed=options.seed,
            system=options.system,
            template_options=template,
            active=options.active,
        )


def _read(options: InputOptions) -> tuple[list[Problem], int]:
    """Read the problems and say what was found; return them and how many bad rows were skipped."""
    from treerl.cli.solutions import without_given
    from treerl.loading import load_problems

    kind: Any = str(options.answer_format)
    bad: Any = str(options.on_bad_row)
    loaded = load_problems(
        options.problems,
        question_field=options.question_field,
        answer_field=options.answer_field,
        id_field=options.id_field,
        split=options.split,
        limit=options.limit,
        on_error=bad,
        answer_format=kind,
    )
    say(loaded.summary())
    for error in loaded.errors[1:SHOWN]:
        say(f"  also skipped: {error}")
    if loaded.counts["without_answer"]:
        say("  a problem without an answer gets no reward, unless --reward needs none")
    return without_given(loaded.problems), len(loaded.errors)


# --- what was given, and what an earlier run was given --------------------------------------------


def _choose(
    given: Mapping[str, Any], config: Path | None
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the manifest of a run to repeat, and the options that it or the user chose."""
    if config is None:
        return None, dict(given)
    manifest, repeat = read_config(config, "rollout")
    stored = check_options(repeat, get_type_hints(rollout, include_extras=True), config)
    # Another preset or engine has defaults of its own: those of the old one go.
    if given.get("preset", stored.get("preset")) != stored.get("preset"):
        for name in options_of(RolloutOptions, stored).keys() - _KEPT:
            del stored[name]
    if given.get("engine", stored.get("engine")) != stored.get("engine"):
        for name in ("url", "dtype", "engine_arg", "max_context"):
            stored.pop(name, None)
    return manifest, {**stored, **given}


_KEPT = {
    *("seed", "system", "thinking", "reward", "right_above", "estimator"),
    *("max_tokens", "stop", "boxed"),
}
"""Options of a repeated run that another preset keeps."""


def _command(
    inputs: InputOptions, source: EngineOptions, options: RolloutOptions, live: Engine
) -> dict[str, Any]:
    """Return the section ``command`` of a new run's manifest."""
    command = command_of(inputs, source, LabelOptions(), live)
    labels = {f.name for f in fields(LabelOptions)}
    repeat = {name: value for name, value in command["repeat"].items() if name not in labels}
    return {**command, "repeat": {**repeat, **written(options)}}
