"""From options to the objects of a run: search, verifiers, reward, fusion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from treerl.cli.plugins import load_reward, load_verifier
from treerl.cli.presets import PRESETS, LabelOptions, Method, Steps
from treerl.errors import ConfigError

if TYPE_CHECKING:
    from treerl.prm.pipeline import Labeler, SearchConfig
    from treerl.search.mcts import MCTSConfig
    from treerl.search.sampling import Sampling
    from treerl.steps import StepFormat

__all__ = ["open_labeler", "search_config", "unescape"]


@contextmanager
def open_labeler(options: LabelOptions) -> Iterator[Labeler]:
    """Yield a labeler with its verifiers running.

    Raises:
        ConfigError: Options contradict each other, or name an object that is not there.
    """
    from treerl.prm.fuse import Fusion
    from treerl.prm.pipeline import Labeler
    from treerl.prm.rewards import AnswerReward
    from treerl.verifiers import AnswerVerifier, StepVerifier

    search = search_config(options)
    fusion = Fusion(PRESETS[options.preset].rule, options.n_min, options.progress)
    with ExitStack() as stack:
        if options.reward is None:
            reward: Any = AnswerReward(stack.enter_context(AnswerVerifier()))
        else:
            reward = load_reward(options.reward, stack)
        verifier: Any = None
        if search.sampling.verify_steps:
            verifier = (
                stack.enter_context(StepVerifier())
                if options.verifier is None
                else load_verifier(options.verifier, stack)
            )
        template = None if options.thinking is None else {"enable_thinking": options.thinking}
        yield Labeler(
            reward=reward,
            verifier=verifier,
            search=search,
            fusion=fusion,
            seed=options.seed,
            system=options.system,
            template_options=template,
            active=options.active,
        )


def search_config(options: LabelOptions) -> SearchConfig:
    """Return the search of a preset and method.

    Raises:
        ConfigError: Options contradict each other.
    """
    from treerl.search.omega import OmegaPRMConfig
    from treerl.search.prefix_mc import PrefixMCConfig
    from treerl.search.sampling import Sampling
    from treerl.steps import PlainSteps
    from treerl.steps_json import ObjectiveSteps

    try:
        steps: StepFormat = (
            PlainSteps(options.step_delimiter)
            if options.step_format is Steps.plain
            else ObjectiveSteps(root_call=options.root_call)
        )
        sampling = Sampling(
            temperature=options.temperature,
            top_p=options.top_p,
            max_tokens=options.max_tokens,
            stop=options.stop,
            steps=steps,
            verify_steps=options.tools and PRESETS[options.preset].tools is not False,
        )
        if options.method is Method.mcts:
            return _mcts(options, sampling)
        if options.method is Method.omegaprm:
            return OmegaPRMConfig(
                rollouts=options.rollouts,
                searches=options.searches,
                rollout_budget=options.rollout_budget,
                right_above=options.right_above,
                sampling=sampling,
            )
        return PrefixMCConfig(
            rollouts=options.rollouts,
            solutions=options.samples,
            estimate_root=options.estimate_root,
            until_first_zero=options.until_first_zero,
            right_above=options.right_above,
            sampling=sampling,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _mcts(options: LabelOptions, sampling: Sampling) -> MCTSConfig:
    from treerl.search.mcts import MCTSConfig
    from treerl.search.rollout_reward import RolloutReward

    changes = dict(PRESETS[options.preset].mcts)
    if "rollout_reward" in changes:
        changes["rollout_reward"] = RolloutReward(**changes["rollout_reward"])
    return MCTSConfig(
        simulations=options.simulations,
        wave=options.wave,
        children=options.children,
        max_steps=options.max_steps,
        exploration=options.exploration,
        selection=options.selection.value,
        prior=options.prior.value,
        right_above=options.right_above,
        sampling=sampling,
        **changes,
    )


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
