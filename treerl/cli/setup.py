"""From options to the objects of a run: engine, search, verifiers, fusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from treerl.errors import ConfigError

if TYPE_CHECKING:
    from treerl.engines.base import Engine
    from treerl.prm.pipeline import Labeler
    from treerl.search.mcts import MCTSConfig

__all__ = [
    "ENGINES",
    "LAB_WORDS",
    "EngineOptions",
    "LabelOptions",
    "Preset",
    "open_engine",
    "open_labeler",
    "search_config",
    "unescape",
]

LAB_WORDS = "lab:words"
"""The little model that comes with treerl."""


class Preset(StrEnum):
    """How a tree's evidence becomes labels."""

    groundedprm = "groundedprm"
    groundedprm_published = "groundedprm_published"
    mathshepherd = "mathshepherd"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Which model answers, and how it is run.

    Attributes:
        engine: A key of :data:`ENGINES`.
        model: Folder, hub id, or :data:`LAB_WORDS`.
        dtype: Number format of the weights.
        device: None chooses the first GPU, else the CPU.
        max_batch: Requests at once.
        max_context: None takes the model's own bound.
    """

    engine: str
    model: str
    dtype: str = "float32"
    device: str | None = None
    max_batch: int = 32
    max_context: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions:
    """How to search and label; the names are those of the command line."""

    preset: Preset = Preset.groundedprm
    seed: int = 0
    simulations: int = 32
    # A last step's siblings are all the rollouts that its parent ever gets: fewer than n_min, and
    # no step before a last one could be labelled by rollouts.
    children: int = 4
    wave: int = 4
    max_steps: int = 32
    exploration: float = 1.414
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512
    step_delimiter: str = "\n\n"
    stop: tuple[str, ...] = ()
    n_min: int = 4
    tools: bool = True
    system: str | None = None
    thinking: bool | None = None
    active: int = 16


def _open_hf(options: EngineOptions) -> Engine:
    from treerl.engines.hf import HFEngine

    model = options.model
    if model.startswith("lab:") and model != LAB_WORDS:
        raise ConfigError(f"no lab model '{model}'; there is {LAB_WORDS}")
    if model == LAB_WORDS:
        import torch

        from treerl.lab.words import model_path

        model = str(model_path())
        # Its matrices are so small that sharing them out costs more than it saves, most of all
        # where other programs want the cores too.
        torch.set_num_threads(1)
    try:
        return HFEngine.from_pretrained(
            model,
            dtype=options.dtype,
            device=options.device,
            max_batch=options.max_batch,
            max_context=options.max_context,
        )
    except (RuntimeError, AssertionError) as error:  # torch: no such device, or its memory is full
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{model} cannot be put on the device: {reason}") from error


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {"hf": _open_hf}
"""Engines by name; each imports its libraries when it is opened."""


def open_engine(options: EngineOptions) -> Engine:
    """Load the model.

    Raises:
        ConfigError: There is no such engine, or no model where it was looked for.
        MissingExtra: The engine's libraries are not installed.
    """
    if options.engine not in ENGINES:
        raise ConfigError(f"no engine '{options.engine}'; there are: {', '.join(ENGINES)}")
    return ENGINES[options.engine](options)


@contextmanager
def open_labeler(options: LabelOptions) -> Iterator[Labeler]:
    """Yield a labeler with its verifiers running.

    Raises:
        ConfigError: Options contradict each other.
    """
    from treerl.prm.fuse import Fusion
    from treerl.prm.pipeline import Labeler
    from treerl.prm.rewards import AnswerReward
    from treerl.verifiers import AnswerVerifier, StepVerifier

    search, fusion = search_config(options), Fusion(options.preset.value, options.n_min)
    with ExitStack() as stack:
        answers = stack.enter_context(AnswerVerifier())
        steps = stack.enter_context(StepVerifier()) if search.sampling.verify_steps else None
        template = None if options.thinking is None else {"enable_thinking": options.thinking}
        yield Labeler(
            reward=AnswerReward(answers),
            verifier=steps,
            search=search,
            fusion=fusion,
            seed=options.seed,
            system=options.system,
            template_options=template,
            active=options.active,
        )


def search_config(options: LabelOptions) -> MCTSConfig:
    """Return the search of a preset.

    Raises:
        ConfigError: Options contradict each other.
    """
    from treerl.search.mcts import MCTSConfig
    from treerl.search.rollout_reward import RolloutReward
    from treerl.search.sampling import Sampling
    from treerl.steps import PlainSteps

    preset = options.preset
    if preset is Preset.groundedprm_published and not options.tools:
        raise ConfigError("the preset groundedprm_published needs the tools; leave --no-tools out")
    try:
        search = MCTSConfig(
            simulations=options.simulations,
            wave=options.wave,
            children=options.children,
            max_steps=options.max_steps,
            exploration=options.exploration,
            sampling=Sampling(
                temperature=options.temperature,
                top_p=options.top_p,
                max_tokens=options.max_tokens,
                stop=options.stop,
                steps=PlainSteps(options.step_delimiter),
                # Math-Shepherd knows no tools: its labels are counts of rollouts alone.
                verify_steps=options.tools and preset is not Preset.mathshepherd,
            ),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    rewards: dict[Preset, RolloutReward] = {
        Preset.groundedprm_published: RolloutReward(),
        Preset.mathshepherd: RolloutReward(verdicts=False),
    }
    changes: dict[str, Any] = {"rollout_reward": rewards[preset]} if preset in rewards else {}
    return replace(search, **changes)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def unescape(text: str) -> str:
    r"""Turn the two characters ``\n`` of a shell argument into a newline; also \t, \r and \\.

    Example:
        >>> unescape(r"\n\n") == "\n" + "\n"
        True
    """
    out, escaped = [], False
    for c in text:
        if escaped:
            out.append(_ESCAPES.get(c, f"\\{c}"))
            escaped = False
        elif c == "\\":
            escaped = True
        else:
            out.append(c)
    return "".join(out) + ("\\" if escaped else "")
