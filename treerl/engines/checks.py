"""What every engine checks before it works on a request, and how it reads a model's end tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treerl.engines.base import Request
from treerl.errors import EngineError

__all__ = ["MAX_TOP_LOGPROBS", "check_request", "collect_eos_ids", "room_for"]

MAX_TOP_LOGPROBS = 64
"""Alternatives a position that every engine of treerl can report."""


def check_request(
    request: Request, *, max_context: int | None = None, vocab_size: int | None = None
) -> None:
    """Refuse a request that no engine could serve.

    Raises:
        EngineError: Not retryable; names the value and its bound. A bad request fails alone and is
            recorded as a failed node, so this is no ValueError.
    """
    name = f"request {request.request_id!r}"
    if not request.prompt_ids:
        raise EngineError(f"{name} has an empty prompt: at least one token is needed")
    if request.max_tokens < 1:
        raise EngineError(f"{name} asks for max_tokens={request.max_tokens}: at least 1 is needed")
    if request.temperature < 0:
        raise EngineError(f"{name} has temperature={request.temperature}: 0 is the least")
    if not 0 < request.top_p <= 1:
        raise EngineError(f"{name} has top_p={request.top_p}: it must be in (0, 1]")
    if not 0 <= request.top_logprobs <= MAX_TOP_LOGPROBS:
        raise EngineError(
            f"{name} asks for top_logprobs={request.top_logprobs}: 0 to {MAX_TOP_LOGPROBS} work"
        )
    if any(not text for text in request.stop):
        raise EngineError(f"{name} has an empty stop string, which would stop everywhere")
    if vocab_size is not None:
        _check_ids(name, "prompt", request.prompt_ids, vocab_size)
        _check_ids(name, "logprob_token_ids", request.logprob_token_ids, vocab_size)
    room_for(request, max_context)


def _check_ids(name: str, where: str, ids: Iterable[int], vocab_size: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise EngineError(
                f"{name} has id {token_id} in its {where}, but the vocabulary has {vocab_size} ids"
            )


def room_for(request: Request, max_context: int | None) -> int:
    """Return how many tokens the request may generate: max_tokens, or what the context leaves.

    A request cut by the context ends with finish reason "length" as one cut by max_tokens does,
    which is also what vLLM does.

    Raises:
        EngineError: Not retryable: the prompt fills the context.
    """
    if max_context is None:
        return request.max_tokens
    room = max_context - len(request.prompt_ids)
    if room < 1:
        raise EngineError(
            f"request {request.request_id!r}: its prompt of {len(request.prompt_ids)} tokens "
            f"leaves no room in the context of {max_context} tokens"
        )
    return min(request.max_tokens, room)


def collect_eos_ids(*sources: Any) -> frozenset[int]:
    """Return every end token that the sources name.

    Args:
        sources: Anything with ``eos_token_id`` (a generation config, a model config, a tokenizer),
            where it is one id, a list of ids or None; None sources are skipped.
    """
    found: set[int] = set()
    for source in sources:
        value = getattr(source, "eos_token_id", None)
        if value is None:
            continue
        found.update(int(v) for v in (value if isinstance(value, (list, tuple, set)) else [value]))
    return frozenset(found)
