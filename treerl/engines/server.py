"""Any model server that speaks completions over HTTP, or several of them.

Token ids go in and, where the server can, token ids come out. A tree stays on one server, whose
prefix cache knows its path, unless another one has much less to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

from treerl.engines.address import Address, parse_address
from treerl.engines.base import Capabilities, Completion, Request, Tokenizer, Usage
from treerl.engines.checks import check_completion, check_request, collect_eos_ids, room_for
from treerl.engines.dialects import DIALECTS, Dialect, SGLangDialect
from treerl.engines.gate import Gate, TurnedAway
from treerl.engines.loop_thread import LoopThread
from treerl.engines.posting import Busy, Client, Unreachable, words_of
from treerl.engines.probe import Findings, LogprobMode, identify, probe
from treerl.errors import ConfigError, EngineDied, EngineError, MissingExtra
from treerl.seeding import derive_seed

__all__ = ["ServerEngine"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_ODD = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_SPILL = 8  # requests by which a tree's server must be busier than the idlest to lose it
_LONGEST_WAIT = 30.0  # seconds between two tries


class ServerEngine:
    """One or more servers of the same model as an engine. Made by :meth:`connect`.

    Attributes:
        findings: What the probe found; ``notes`` holds sentences for the user.
    """

    def __init__(
        self,
        home: LoopThread,
        client: Client,
        servers: Sequence[Address],
        dialect: Dialect,
        tokenizer: Tokenizer,
        eos_ids: frozenset[int],
        *,
        model: str,
        max_context: int | None,
        concurrency: int,
        retries: int,
        backoff: float,
    ) -> None:
        self._home = home
        self._client = client
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids
        self.findings = Findings(False, "none", False, False)
        self._probed = False
        self._max_context = max_context
        self._servers = list(servers)
        self._load = [0] * len(servers)
        self._dialect = dialect
        self._model = model
        self._gate = Gate(concurrency * len(servers))
        self._retries, self._backoff = retries, backoff
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._aborted: set[str] = set()
        self._gone: EngineError | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What the probe found, in the words of all engines."""
        found, dialect = self.findings, self._dialect
        return Capabilities(
            logprobs=found.logprobs == "processed",
            token_ids=found.token_ids and dialect.token_ids,
            score=dialect.scores,
            seeds=found.seeds,
            logprob_token_ids=found.chosen,
            max_context=self._max_context,
            detail={
                "engine": "server",
                "dialect": dialect.name,
                "model": self._model,
                "logprobs": found.logprobs,
            },
        )

    @classmethod
    def connect(
        cls,
        urls: str | Sequence[str],
        *,
        tokenizer: str | Path | Tokenizer | None = None,
        model: str | None = None,
        dialect: str = "auto",
        eos_ids: frozenset[int] | None = None,
        max_context: int | None = None,
        concurrency: int = 64,
        timeout: float = 600.0,
        retries: int = 5,
        backoff: float = 0.5,
        api_key_env: str = "OPENAI_API_KEY",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> ServerEngine:
        """Find out what a server is and can do, and make an engine of it.

        Args:
            urls: Base address, with or without ``/v1``; several serve the same model. A user and
                password in it are sent as such, a query stands behind every request; neither is
                ever shown.
            tokenizer: Folder, hub id or tokenizer; by default what the server says it serves.
            model: The served name; the server's first by default.
            dialect: "auto", "vllm", "sglang" or "openai".
            eos_ids: The end tokens; by default those that the tokenizer's folder names.
            max_context: Prompt plus generated tokens; what the server says by default.
            concurrency: Requests at once for each server.
            timeout: Seconds that one try may take.
            retries: Further tries of a request after a fault that may pass.
            backoff: Seconds before the first of them; doubled each time, at most 30.
            api_key_env: Environment variable with the API key, which is never logged.
            transport: An httpx transport, for tests.

        Raises:
            ConfigError: No server there, or one that cannot take token ids.
        """
        bases = [urls] if isinstance(urls, str) else list(urls)
        if not bases:
            raise ConfigError("no server address was given")
        if dialect not in ("auto", *DIALECTS):
            raise ConfigError(f"dialect {dialect!r} is none of auto, {', '.join(DIALECTS)}")
        for name, number in (("timeout", timeout), ("retries", retries), ("backoff", backoff)):
            kinds = (int,) if name == "retries" else (int, float)
            if type(number) not in kinds or not 0 <= number < 1e6:
                raise ConfigError(f"{name} must be a number of 0 or more, not {number!r}")
        servers = [parse_address(base) for base in bases]
        key = _api_key(api_key_env)

        async def look() -> ServerEngine:
            client = Client(servers, key, timeout, transport)
            try:
                served = await identify(client, servers[0], dialect)
                words, ends = _tokenizer(tokenizer or served.root or served.name, eos_ids)
                engine = cls(
                    home, client, servers, served.dialect, words, ends,
                    model=model or served.name, max_context=max_context or served.context,
                    concurrency=concurrency, retries=retries, backoff=backoff,
                )  # fmt: skip
                await engine._probe()
            except BaseException:
                await client.aclose()
                raise
            return engine

        home = LoopThread("treerl-server")
        try:
            return home.call(look()).result()
        except BaseException as error:
            home.stop()
            if isinstance(error, (EngineError, *_ODD)):
                text = f"the server at {servers[0].base} cannot be used: {words_of(error)}"
                raise ConfigError(text) from error
            raise

    async def _probe(self) -> None:
        """Find out what the first server can do; all serve the same model."""
        prompt = tuple(self.tokenizer.encode("1 2 3 4"))[:4] or (1, 2, 3)
        if isinstance(self._dialect, SGLangDialect):
            try:
                await self._try_once(0, Request("treerl-probe", "", prompt, 1, seed=1))
            except EngineError as error:
                if error.retryable:
                    raise
                self._dialect.seeds = False  # refused with the seed; below shows if without is well

        def ask(request: Request) -> Completion:
            return self._home.call(self._try_once(0, request)).result()

        # The probe is written without asyncio, so it sits in a thread and asks from there.
        self.findings = await asyncio.to_thread(probe, ask, prompt)
        self._probed = True
        for note in self.findings.notes:
            _log.warning("%s: %s", self._servers[0].base, note)

    # The engine -----------------------------------------------------------------------------------

    async def generate(self, request: Request) -> Completion:
        """Sample one completion, trying again after faults that may pass."""
        if self._gone is not None:
            raise self._gone
        # Ids are not checked: a model may have, and generate, more of them than its tokenizer.
        check_request(request, max_context=self._max_context)
        return await self._home.wait(self._serve(request))

    async def _serve(self, request: Request) -> Completion:
        name = request.request_id
        if name in self._tasks:
            raise EngineError(f"request {name!r} is already running")
        task = asyncio.current_task()
        assert task is not None
        self._tasks[name] = task
        try:
            async with self._gate.enter(name, request.priority):
                return await self._persist(
                    request.tree_id, lambda server: self._try_once(server, request)
                )
        except TurnedAway:
            return _nothing(request)
        except asyncio.CancelledError:
            if name in self._aborted:  # the connection is closed; what it had is lost
                return _nothing(request)
            if self._gone is not None:
                raise self._gone from None
            raise
        finally:
            self._aborted.discard(name)
            del self._tasks[name]

    async def _persist(self, tree_id: str, attempt: Callable[[int], Awaitable[T]]) -> T:
        """Try until it works, elsewhere if there is an elsewhere."""
        server = self._choose(tree_id)
        unreachable = 0
        for tries in range(self._retries + 1):
            self._load[server] += 1
            try:
                return await attempt(server)
            except EngineError as error:
                if not error.retryable or tries == self._retries:
                    if unreachable == self._retries and isinstance(error, Unreachable):
                        self._gone = EngineDied(f"no server can be reached: {words_of(error)}")
                        raise self._gone from error
                    raise
                unreachable += isinstance(error, Unreachable)
                wait = error.wait if isinstance(error, Busy) and error.wait else 0.0
                wait = max(wait, self._backoff * 2**tries * random.uniform(0.5, 1.0))
                _log.info("try %d of request failed, again in %.1f s: %s", tries + 1, wait, error)
            finally:
                self._load[server] -= 1
            await asyncio.sleep(min(wait, _LONGEST_WAIT))
            server = (server + 1) % len(self._servers)
        raise AssertionError("unreachable")

    def _choose(self, tree_id: str) -> int:
        """Return the tree's server, or the idlest one if the tree's is much busier."""
        home = derive_seed("server", tree_id) % len(self._servers)
        idlest = min(range(len(self._servers)), key=lambda i: self._load[i])
        return idlest if self._load[home] - self._load[idlest] > _SPILL else home

    async def _try_once(self, server: int, request: Request) -> Completion:
        room = room_for(request, self._max_context)
        if request.top_logprobs > self._dialect.top and self._dialect.token_ids:
            raise EngineError(
                f"request {request.request_id!r} asks for top_logprobs={request.top_logprobs}, "
                f"but this server reports at most {self._dialect.top}"
            )
        dialect = self._dialect
        body = dialect.ask(request, self._model, self.eos_ids, room)
        answer = await self._client.post(self._servers[server], dialect.path, body)
        try:
            found = dialect.read(answer, request, self.eos_ids, self.tokenizer)
        except _ODD as error:
            raise self._odd("completion", error) from error
        asked = room if dialect.token_ids else None
        found = check_completion(found, request, self.eos_ids, room=asked)
        return _only_exact(found, request, self.findings.logprobs) if self._probed else found

    def _odd(self, kind: str, error: Exception) -> EngineError:
        said = self._client.hide(repr(error))[:300]
        return EngineError(f"the server's answer is not a {self._dialect.name} {kind}: {said}")

    async def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Return log-probs (nats, temperature 1) of ``token_ids[start:]`` given what precedes."""
        if self._gone is not None:
            raise self._gone
        if not 1 <= start <= len(token_ids):
            raise EngineError(f"score needs 1 <= start <= {len(token_ids)}, not {start}")
        return await self._home.wait(self._score(token_ids, start))

    async def _score(self, token_ids: Sequence[int], start: int) -> list[float]:
        body = self._dialect.ask_score(token_ids, self._model)

        async def attempt(server: int) -> Any:
            return await self._client.post(self._servers[server], self._dialect.path, body)

        async with self._gate.enter("score"):
            answer = await self._persist(str(token_ids[:start]), attempt)
        try:
            return self._dialect.read_score(answer, token_ids, start)
        except _ODD as error:
            raise self._odd("score", error) from error

    async def abort(self, request_id: str) -> None:
        """Close a request's connection; its ``generate`` returns no tokens.

        What the server had is lost: only streams would show it, and they cost a message a token.
        """

        async def end() -> None:
            task = self._tasks.get(request_id)
            if task is not None and not self._gate.turn_away(request_id):
                self._aborted.add(request_id)
                task.cancel()

        if not self._home.stopped:
            await self._home.wait(end())

    async def close(self) -> None:
        """Close the connections; requests inside fail with EngineError. The server goes on."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._gone = self._gone or EngineError("the engine is closed")
        if self._home.stopped:
            return

        async def end() -> None:
            assert self._gone is not None
            self._gate.fail(self._gone)
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._client.aclose()

        self._home.call(end()).result()
        self._home.stop()


def _nothing(request: Request) -> Completion:
    return Completion((), (), "abort", usage=Usage(prompt=len(request.prompt_ids)))


def _only_exact(found: Completion, request: Request, mode: LogprobMode) -> Completion:
    """Leave out log-probs that are not those of the distribution sampled from."""
    exact = {
        "processed": True,
        "none": False,
        "temperature": request.top_p == 1,
        "raw": request.top_p == 1 and request.temperature in (0, 1),
    }[mode]
    return found if exact else found._replace(logprobs=(), top_logprobs=())


def _api_key(variable: str) -> str | None:
    """Return the API key of an environment variable.

    Raises:
        ConfigError: No header can hold it.
    """
    key = os.environ.get(str(variable), "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"the API key in the environment variable {variable} holds spaces or characters that "
            "no key has"
        )
    return key or None


def _tokenizer(
    source: str | Path | Tokenizer, eos_ids: frozenset[int] | None
) -> tuple[Tokenizer, frozenset[int]]:
    if not isinstance(source, (str, Path)):
        named = getattr(source, "eos_id", None)
        ends = frozenset(() if named is None else (named,))
        return source, ends if eos_ids is None else eos_ids
    from treerl.engines.tokenizer import HFTokenizer

    try:
        from transformers import AutoConfig, GenerationConfig
    except ImportError as error:
        raise MissingExtra("the server engine's tokenizer", "local") from error
    words = HFTokenizer.from_pretrained(source)
    if eos_ids is not None:
        return words, eos_ids
    found: list[Any] = [words.hf]
    for kind in (GenerationConfig, AutoConfig):
        try:
            found.append(kind.from_pretrained(str(source)))
        except (OSError, ValueError):
            continue  # a folder with a tokenizer alone will do
    return words, collect_eos_ids(*found)
