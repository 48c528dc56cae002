"""What a server can do, found out by asking it before the work begins.

Documentation ages and servers differ by their start options, so nothing is believed: ids, seeds,
log-probs and exactness are each tried with a few tokens. Only which model it serves, a server is
asked in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from treerl.engines.address import Address
from treerl.engines.base import Completion, Request
from treerl.engines.dialects import DIALECTS, Dialect, SGLangDialect
from treerl.engines.posting import Client, Unreachable
from treerl.errors import EngineError

__all__ = ["Findings", "LogprobMode", "Served", "identify", "probe"]

LogprobMode = Literal["processed", "temperature", "raw", "none"]
"""Of what distribution a server's log-probs are: of the one sampled from; of it but for top-p; of
the model's raw logits; there are none."""

Ask = Callable[[Request], Completion]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the probe found.

    Attributes:
        token_ids: Generated ids come back, and a cut generation continues as the uncut one.
        logprobs: Of what distribution.
        seeds: Equal seeds gave equal samples and different ones differed.
        chosen: Chosen ids can be scored while generating.
        notes: What a user should know, a sentence each.
    """

    token_ids: bool
    logprobs: LogprobMode
    seeds: bool
    chosen: bool
    notes: tuple[str, ...] = ()


class Served(NamedTuple):
    """What a server says it serves.

    Attributes:
        dialect: How it is spoken to.
        name: The served name.
        root: Folder or hub id of the model, if it says so.
        context: Prompt plus generated tokens, if it says so.
    """

    dialect: Dialect
    name: str
    root: str | None
    context: int | None


async def identify(client: Client, address: Address, dialect: str) -> Served:
    """Ask a server what it is.

    Args:
        client: Asks.
        address: Of the server.
        dialect: "auto" or a key of :data:`~treerl.engines.dialects.DIALECTS`.

    Raises:
        EngineError: Nothing there speaks the dialect; the message says what was answered.
    """
    if dialect in ("auto", "sglang"):
        path = "/get_model_info"
        try:
            info = await client.look(address, path)
        except Unreachable:
            raise
        except EngineError as error:
            if dialect == "sglang":
                raise EngineError(f"no SGLang there: {error}") from error
            info = None
        model = info.get("model_path") if isinstance(info, dict) else None
        if isinstance(model, str):
            return Served(SGLangDialect(), model, model, await _sglang_context(client, address))
        if dialect == "sglang":
            raise EngineError(f"no SGLang there: {path} says no model_path")
    path = "/v1/models"
    models = await client.look(address, path)
    try:
        card = models["data"][0]
        name, root, context = card["id"], card.get("root"), card.get("max_model_len")
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise EngineError(
            f"{path} answered with no list of models: is this an OpenAI-style address?"
        ) from error
    if not isinstance(name, str) or not isinstance(root, str | None):
        raise EngineError(f"{path} names no model: is this an OpenAI-style address?")
    if dialect == "auto":
        dialect = "vllm" if context is not None else "openai"
    return Served(DIALECTS[dialect](), name, root, _tokens(context, f"{path}: max_model_len"))


async def _sglang_context(client: Client, address: Address) -> int | None:
    path = "/get_server_info"
    try:
        info = await client.look(address, path)
    except EngineError:
        return None
    found = info.get("context_length") if isinstance(info, dict) else None
    return _tokens(found, f"{path}: context_length")


def _tokens(value: Any, name: str) -> int | None:
    if value is None or (type(value) is int and value > 1):
        return value
    raise EngineError(f"{name} is {str(value)[:40]!r}, which is no number of tokens")


def probe(ask: Ask, prompt: tuple[int, ...]) -> Findings:
    """Try a server.

    Args:
        ask: Sends one request and returns its completion.
        prompt: A few tokens.

    Raises:
        EngineError: It does not even generate.
    """
    base = Request("treerl-probe", "treerl-probe", prompt, 8, temperature=0.0)
    notes: list[str] = []
    whole = ask(base)
    token_ids = _continues(ask, base, whole, notes)
    return Findings(
        token_ids=token_ids,
        logprobs=_mode(ask, base._replace(max_tokens=1), whole, notes),
        seeds=_seeds(ask, base._replace(temperature=1.5), notes),
        chosen=_chosen(ask, base._replace(max_tokens=1)),
        notes=tuple(notes),
    )


def _continues(ask: Ask, base: Request, whole: Completion, notes: list[str]) -> bool:
    """Whether 4 + 4 greedy tokens are the 8 generated at once."""
    first = ask(base._replace(max_tokens=4))
    if first.finish_reason == "length" and len(first.token_ids) == 4:
        second = ask(base._replace(prompt_ids=base.prompt_ids + first.token_ids, max_tokens=4))
        joined = first.token_ids + second.token_ids
    else:
        joined = first.token_ids
    if joined == whole.token_ids:
        return True
    notes.append("a cut generation does not continue as the uncut one: ids or arithmetic differ")
    # Low-precision servers may break a tie differently; ids are still ids if each has a log-prob.
    return len(whole.logprobs) == len(whole.token_ids) > 0


def _mode(ask: Ask, base: Request, whole: Completion, notes: list[str]) -> LogprobMode:
    if not whole.logprobs:
        notes.append("no log-probs come back: this server cannot serve training")
        return "none"

    def best(temperature: float, top_p: float) -> dict[int, float]:
        asked = base._replace(temperature=temperature, top_p=top_p, top_logprobs=5, seed=1)
        try:
            rows = ask(asked).top_logprobs
        except EngineError as error:
            if error.retryable:
                raise
            rows = ()
        return rows[0] if rows else {}

    plain = best(1.0, 1.0)
    if not plain:
        notes.append(
            "no alternatives come back, so the log-probs cannot be told: they are left out"
        )
        return "none"
    if not _differ(plain, best(2.0, 1.0)):
        notes.append(
            "log-probs are of the raw logits: exact at temperature 1 and top_p 1 only "
            "(vLLM: start the server with --logprobs-mode processed_logprobs)"
        )
        return "raw"
    # The nucleus of the likeliest token alone: its renormalised log-prob is 0.
    top = max(plain, key=lambda i: plain[i])
    narrow = best(1.0, 1e-4)
    if abs(narrow.get(top, -1.0)) < 1e-3:
        return "processed"
    notes.append("log-probs do not follow top_p: keep it at 1 where they matter")
    return "temperature"


def _differ(a: dict[int, float], b: dict[int, float]) -> bool:
    shared = a.keys() & b.keys()
    return not shared or any(abs(a[i] - b[i]) > 1e-3 for i in shared)


def _seeds(ask: Ask, base: Request, notes: list[str]) -> bool:
    samples = [ask(base._replace(seed=seed)).token_ids for seed in (1, 1, 2, 3)]
    held = samples[0] == samples[1] and len(set(samples)) > 1
    if not held:
        notes.append("seeds do not fix samples here: a repeated run gives other trees")
    return held


def _chosen(ask: Ask, base: Request) -> bool:
    wanted = (3, 5)
    try:
        found = ask(base._replace(logprob_token_ids=wanted)).top_logprobs
    except EngineError:
        return False
    return bool(found) and all(found[0].get(i, float("-inf")) > float("-inf") for i in wanted)
