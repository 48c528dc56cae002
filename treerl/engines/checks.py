"""What every engine checks before it works on a request, and how it reads a model's end tokens.

What strangers answer, a server or an engine of the user's own, is checked here too.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection, Iterable, Mapping
from operator import index
from typing import Any, SupportsFloat, get_args

from treerl.engines.base import Completion, FinishReason, Request, Usage
from treerl.errors import EngineError

__all__ = [
    "MAX_TOP_LOGPROBS",
    "check_completion",
    "check_request",
    "collect_eos_ids",
    "read_logprob",
    "room_for",
]

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


def check_completion(
    found: Any,
    request: Request,
    eos_ids: Collection[int],
    *,
    room: int | None,
    vocab_size: int | None = None,
) -> Completion:
    """Return what somebody answered as a completion that a tree can hold.

    Lists and numpy's numbers become tuples and Python's; counts that were left out are filled in;
    what ends with an end token has the finish reason "eos", whatever limit it reached as well.

    Args:
        found: The answer.
        request: The question.
        eos_ids: The end tokens.
        room: Tokens that were asked for at most; None where the ids were made from text, which
            neither counts as the model does nor stops at ids.
        vocab_size: How many ids there are, None where it is not known.

    Raises:
        EngineError: Not retryable; names what is odd.
    """
    if not isinstance(found, Completion):
        raise EngineError(f"the answer is {_what(found)}, not a Completion")
    try:
        ids = _ids(found.token_ids, vocab_size)
        if room is not None:
            if len(ids) > room:
                raise ValueError(f"{len(ids)} tokens, but {room} were asked for")
            if any(i in eos_ids or i in request.stop_token_ids for i in ids[:-1]):
                raise ValueError("there are tokens behind an end token")
        logprobs = tuple(read_logprob(x) for x in _items(found.logprobs, "logprobs"))
        if logprobs and len(logprobs) != len(ids):
            raise ValueError(f"{len(ids)} tokens, but {len(logprobs)} log-probs")
        tops = tuple(_row(row) for row in _items(found.top_logprobs, "top_logprobs"))
        if tops and len(tops) != len(ids):
            raise ValueError(f"{len(ids)} tokens, but top_logprobs of {len(tops)}")
        if not isinstance(found.policy_version, str):
            raise ValueError(f"policy_version is {_what(found.policy_version)}")
        reason, stop = _end(found, ids, eos_ids)
        return Completion(
            token_ids=ids,
            logprobs=logprobs,
            finish_reason=reason,
            stop_reason=stop,
            top_logprobs=tops,
            usage=_counts(found.usage, request, len(ids)),
            policy_version=found.policy_version,
        )
    except (TypeError, ValueError) as error:
        raise EngineError(f"an odd completion: {str(error)[:300]}") from error


_REASONS = frozenset(get_args(FinishReason))
_MOST = 2**31 - 1  # ids and counts are kept in 32 bits


def read_logprob(value: Any, *, least: float = -1e30) -> float:
    """Return a log-prob as a float.

    Args:
        value: A number; rounding may put it a little above 0.
        least: ``-inf`` where a token may be impossible; a sampled one never was.

    Raises:
        ValueError: It is none.
    """
    if type(value) is not float:
        if isinstance(value, bool | str | bytes) or not isinstance(value, SupportsFloat):
            raise ValueError(f"a log-prob is {_what(value)}")
        value = float(value)
    if not least <= value <= 0.01:  # false for nan
        raise ValueError(f"a log-prob is {value}")
    return float(value)


def _ids(found: Any, vocab_size: int | None) -> tuple[int, ...]:
    ids = tuple(
        i if type(i) is int else _whole(i, "a token id") for i in _items(found, "token_ids")
    )
    for i in ids:
        if not 0 <= i <= _MOST:
            raise ValueError(f"a token id is {_what(i)}")
        if vocab_size is not None and i >= vocab_size:
            raise ValueError(f"a token id is {i}, but the vocabulary has {vocab_size} ids")
    return ids


def _row(found: Any) -> dict[int, float]:
    if not isinstance(found, Mapping):
        raise ValueError(f"a row of top_logprobs is {_what(found)}")
    return {_whole(i, "a token id"): read_logprob(x, least=-math.inf) for i, x in found.items()}


def _end(
    found: Completion, ids: tuple[int, ...], eos_ids: Collection[int]
) -> tuple[FinishReason, str | int | None]:
    reason, stop = found.finish_reason, found.stop_reason
    if not isinstance(reason, str) or reason not in _REASONS:
        raise ValueError(f"finish_reason is {_what(reason)}")
    ended = bool(ids) and ids[-1] in eos_ids
    if reason == "eos" and not ended:
        raise ValueError("finish_reason is 'eos', but the last token is no end token")
    if ended and reason != "abort":
        return "eos", None
    if isinstance(stop, str):  # half a surrogate pair fits in no file
        return reason, stop.encode(errors="replace").decode()
    return reason, None if stop is None else _whole(stop, "stop_reason")


def _counts(usage: Any, request: Request, generated: int) -> Usage:
    if not isinstance(usage, Usage):
        raise ValueError(f"usage is {_what(usage)}")
    if usage == Usage():
        return Usage(len(request.prompt_ids), 0, generated)
    counts = Usage(*(_whole(n, "a count of usage") for n in usage))
    if min(counts) < 0 or max(counts) > _MOST or counts.cached > counts.prompt:
        shown = reprlib.repr(tuple(counts))
        raise ValueError(f"usage is {shown}: tokens of the prompt, cached, generated")
    return counts


def _items(found: Any, name: str) -> Iterable[Any]:
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise ValueError(f"{name} is {_what(found)}")
    return found


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{name} is {_what(value)}")
    return index(value)


def _what(value: Any) -> str:
    """Return a short form of whatever it is; reprlib bounds its depth and length."""
    return "None" if value is None else f"{reprlib.repr(value)} ({type(value).__name__})"


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
