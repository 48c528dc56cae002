"""How servers are spoken to: a request as JSON, and their answer as a completion.

Three dialects: vLLM's completions (token ids, log-probs, everything), SGLang's ``/generate`` (the
same under other names), and the plain completions of OpenAI, where only text comes back. The first
is tested against a live server; the second against a fake written from SGLang's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from treerl.engines.base import Completion, FinishReason, Request, Tokenizer, Usage
from treerl.engines.checks import read_logprob
from treerl.errors import EngineError

__all__ = ["DIALECTS", "Dialect", "PlainDialect", "SGLangDialect", "VLLMDialect"]

Json = dict[str, Any]


class Dialect(Protocol):
    """One way to ask a server.

    Attributes:
        name: Its name for users.
        path: Where requests are posted.
        scores: Whether given tokens can be scored.
        token_ids: Whether answers hold the generated ids themselves.
        top: Alternatives a position that can be reported at most.
    """

    name: str
    path: str
    scores: bool
    token_ids: bool
    top: int

    def ask(self, request: Request, model: str, eos_ids: frozenset[int], room: int) -> Json:
        """Return the body of a generation request.

        Args:
            model: The served model's name.
            eos_ids: End tokens, named to the server so that none is missed.
            room: Tokens to generate at most.
        """

    def read(
        self, answer: Json, request: Request, eos_ids: frozenset[int], tokenizer: Tokenizer
    ) -> Completion:
        """Return the completion in an answer.

        Raises:
            EngineError: The answer is no completion.
        """

    def ask_score(self, token_ids: Sequence[int], model: str) -> Json:
        """Return the body of a scoring request."""

    def read_score(self, answer: Json, token_ids: Sequence[int], start: int) -> list[float]:
        """Return the log-probs of ``token_ids[start:]``."""


def _end(
    ids: Sequence[int], kind: str, stop: str | int | None, eos_ids: frozenset[int]
) -> tuple[FinishReason, str | int | None]:
    if kind == "stop":
        return ("eos", None) if ids and ids[-1] in eos_ids else ("stop", stop)
    if kind == "length":
        return "length", None
    if kind == "abort":
        return "abort", None
    raise EngineError(f"the server ended the request with {str(kind)[:60]!r}", retryable=True)


class VLLMDialect:
    """vLLM's OpenAI-compatible completions, with its extensions for token ids."""

    name = "vllm"
    path = "/v1/completions"
    scores = True
    token_ids = True
    top = 20

    def ask(self, request: Request, model: str, eos_ids: frozenset[int], room: int) -> Json:
        """Return the body; see :class:`Dialect`."""
        body: Json = {
            "model": model,
            "prompt": list(request.prompt_ids),
            "max_tokens": room,
            "temperature": request.temperature,
            "top_p": request.top_p,
            # The server fills what is left out from the model's generation config.
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": sorted({*request.stop_token_ids, *eos_ids}),
            "logprobs": request.top_logprobs,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if request.seed is not None:
            body["seed"] = request.seed
        if request.logprob_token_ids:
            # These take the place of the alternatives; vLLM wants both numbers to agree.
            body["logprob_token_ids"] = list(request.logprob_token_ids)
            body["logprobs"] = len(request.logprob_token_ids)
        return body

    def read(
        self, answer: Json, request: Request, eos_ids: frozenset[int], tokenizer: Tokenizer
    ) -> Completion:
        """Return the completion; see :class:`Dialect`."""
        choice = answer["choices"][0]
        ids = tuple(choice["token_ids"])  # as they are: check_completion looks at each
        reason, stop = _end(ids, choice["finish_reason"], choice.get("stop_reason"), eos_ids)
        logprobs = _dict(choice.get("logprobs"))
        return Completion(
            token_ids=ids,
            logprobs=tuple(logprobs.get("token_logprobs") or ()),
            finish_reason=reason,
            stop_reason=stop,
            top_logprobs=_wanted(map(_named, logprobs.get("top_logprobs") or ()), request, ids),
            usage=_usage(_cached(answer), request, len(ids)),
        )

    def ask_score(self, token_ids: Sequence[int], model: str) -> Json:
        """Return the body; see :class:`Dialect`."""
        return {
            "model": model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
        }

    def read_score(self, answer: Json, token_ids: Sequence[int], start: int) -> list[float]:
        """Return the log-probs; see :class:`Dialect`."""
        rows = answer["choices"][0]["prompt_logprobs"][start:]
        found = [row[str(i)]["logprob"] for row, i in zip(rows, token_ids[start:], strict=True)]
        return [read_logprob(x, least=-math.inf) for x in found]


class SGLangDialect:
    """SGLang's own ``/generate``."""

    name = "sglang"
    path = "/generate"
    scores = True
    token_ids = True
    top = 64

    def __init__(self, *, seeds: bool = True) -> None:
        # Servers without deterministic inference refuse the parameter or ignore it.
        self.seeds = seeds

    def ask(self, request: Request, model: str, eos_ids: frozenset[int], room: int) -> Json:
        """Return the body; see :class:`Dialect`."""
        sampling: Json = {
            "max_new_tokens": room,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": sorted({*request.stop_token_ids, *eos_ids}),
            "no_stop_trim": True,
        }
        if request.stop:
            sampling["stop"] = list(request.stop)
        if request.seed is not None and self.seeds:
            sampling["sampling_seed"] = request.seed % 2**31
        body: Json = {
            "rid": request.request_id,
            "input_ids": list(request.prompt_ids),
            "sampling_params": sampling,
            "return_logprob": True,
            "logprob_start_len": -1,
        }
        if request.top_logprobs:
            body["top_logprobs_num"] = request.top_logprobs
        if request.logprob_token_ids:
            body["token_ids_logprob"] = list(request.logprob_token_ids)
        return body

    def read(
        self, answer: Json, request: Request, eos_ids: frozenset[int], tokenizer: Tokenizer
    ) -> Completion:
        """Return the completion; see :class:`Dialect`."""
        meta = answer["meta_info"]
        # Entries are [log-prob, id, text or null]. These ids are all that were sampled, whereas
        # output_ids may lack the one that stopped.
        entries = meta["output_token_logprobs"]
        ids = tuple(entry[1] for entry in entries)
        end = meta["finish_reason"]
        reason, stop = _end(ids, end["type"], end.get("matched"), eos_ids)
        tops: list[dict[int, float]] = [{} for _ in ids]
        for key in ("output_top_logprobs", "output_token_ids_logprobs"):
            for found, row in zip(tops, meta.get(key) or (), strict=False):
                found.update({int(entry[1]): _value(entry[0]) for entry in row or ()})
        for found, entry in zip(tops, entries, strict=True):
            found.setdefault(entry[1], entry[0])
        return Completion(
            token_ids=ids,
            logprobs=tuple(entry[0] for entry in entries),
            finish_reason=reason,
            stop_reason=stop,
            top_logprobs=_wanted(tops, request, ids),
            usage=_usage(meta.get("cached_tokens"), request, len(ids)),
        )

    def ask_score(self, token_ids: Sequence[int], model: str) -> Json:
        """Return the body; see :class:`Dialect`."""
        return {
            "input_ids": list(token_ids),
            "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": 0,
        }

    def read_score(self, answer: Json, token_ids: Sequence[int], start: int) -> list[float]:
        """Return the log-probs; see :class:`Dialect`."""
        entries = answer["meta_info"]["input_token_logprobs"][start:]
        if [int(entry[1]) for entry in entries] != list(token_ids[start:]):
            raise EngineError("the server scored other tokens than those it was sent")
        return [read_logprob(entry[0], least=-math.inf) for entry in entries]


class PlainDialect:
    """OpenAI's completions without extensions: text comes back, and ids are made from it.

    Good for labelling, useless for training. Such a server does not say which stop ended a
    completion: an empty text with finish reason "stop" counts as an end token, any other as the
    stop string where exactly one was asked for.
    """

    name = "openai"
    path = "/v1/completions"
    scores = False
    token_ids = False
    top = 0

    def ask(self, request: Request, model: str, eos_ids: frozenset[int], room: int) -> Json:
        """Return the body; see :class:`Dialect`."""
        body: Json = {
            "model": model,
            "prompt": list(request.prompt_ids),
            "max_tokens": room,
            "temperature": request.temperature,
            "top_p": request.top_p,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if request.seed is not None:
            body["seed"] = request.seed % 2**31
        return body

    def read(
        self, answer: Json, request: Request, eos_ids: frozenset[int], tokenizer: Tokenizer
    ) -> Completion:
        """Return the completion; see :class:`Dialect`."""
        choice = answer["choices"][0]
        text, kind = choice["text"], choice["finish_reason"]
        if not isinstance(text, str):
            raise TypeError(f"its text is a {type(text).__name__}")
        stop = request.stop[0] if len(request.stop) == 1 and text else None
        ids = tokenizer.encode(text + (stop or "") if kind == "stop" else text)
        if kind == "stop" and stop is None and eos_ids:
            ids.append(min(eos_ids))
        reason, stop_reason = _end(ids, kind, stop, eos_ids)
        generated = _dict(answer.get("usage")).get("completion_tokens") or len(ids)
        return Completion(
            token_ids=tuple(ids),
            logprobs=(),
            finish_reason=reason,
            stop_reason=stop_reason,
            usage=_usage(_cached(answer), request, generated),
        )

    def ask_score(self, token_ids: Sequence[int], model: str) -> Json:
        """Raise: nothing can be scored here."""
        raise EngineError("this server cannot score given tokens")

    def read_score(self, answer: Json, token_ids: Sequence[int], start: int) -> list[float]:
        """Raise: nothing can be scored here."""
        raise EngineError("this server cannot score given tokens")


def _value(x: float | None) -> float:
    """Read a log-prob: JSON has no -inf, so vLLM writes -9999 and SGLang null."""
    return float("-inf") if x is None or x <= -9999 else float(x)


def _named(row: Mapping[str, float] | None) -> dict[int, float]:
    """Read ``{"token_id:33": -1.5}``."""
    return {int(key.removeprefix("token_id:")): _value(x) for key, x in (row or {}).items()}


def _wanted(rows: Any, request: Request, ids: Sequence[int]) -> tuple[dict[int, float], ...]:
    """Keep what the request asked for of each position's log-probs."""
    if request.logprob_token_ids and not request.top_logprobs:
        return tuple(
            {i: row.get(i, float("-inf")) for i in request.logprob_token_ids} for row in rows
        )
    if not request.top_logprobs:
        return ()
    kept = []
    for row, token_id in zip(rows, ids, strict=True):
        best = sorted((i for i in row if row[i] > float("-inf")), key=lambda i: -row[i])
        names = {*best[: request.top_logprobs], token_id, *request.logprob_token_ids}
        kept.append({i: row[i] for i in row if i in names})
    return tuple(kept)


def _usage(cached: Any, request: Request, generated: Any) -> Usage:
    """Return counts as the server has them; check_completion looks whether they are numbers."""
    prompt = len(request.prompt_ids)
    # After a preemption a server may count what it took from the cache twice.
    return Usage(prompt, min(cached, prompt) if isinstance(cached, int) else cached or 0, generated)


def _cached(answer: Json) -> Any:
    return _dict(_dict(answer.get("usage")).get("prompt_tokens_details")).get("cached_tokens")


def _dict(found: Any) -> Json:
    """Return a part of an answer that may be left out or null."""
    if found is None or isinstance(found, dict):
        return found or {}
    raise TypeError(f"{str(found)[:40]!r} is no object")


DIALECTS: dict[str, type[VLLMDialect] | type[SGLangDialect] | type[PlainDialect]] = {
    "vllm": VLLMDialect,
    "sglang": SGLangDialect,
    "openai": PlainDialect,
}
"""Dialects by name."""
