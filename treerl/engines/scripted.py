"""An engine that says what a function tells it to, in virtual time.

Everything a real engine does to a driver can be ordered here: slow and fast requests, answers out
of order, faults, a death, a queue that is full. Nothing sleeps for real and nothing is random: one
run repeats another to the last byte.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treerl.engines.base import Capabilities, Completion, FinishReason, Request, Tokenizer, Usage
from treerl.engines.checks import check_request, room_for
from treerl.engines.clock import VirtualClock
from treerl.engines.gate import Gate, TurnedAway
from treerl.engines.stops import StopFinder
from treerl.engines.tokenizer import ByteTokenizer
from treerl.errors import EngineDied, EngineError
from treerl.seeding import derive_seed

__all__ = ["LogEntry", "Policy", "ScriptedEngine", "jitter"]

Policy = Callable[[Request], "str | Sequence[int] | Completion"]
"""What the model would say until its end token: text or ids, or a whole Completion as it is."""


@dataclass(slots=True)
class LogEntry:
    """What happened to one request, times in virtual seconds.

    Attributes:
        submitted: When it arrived.
        started: When it got one of the engine's places; 0 if it never did.
        ended: When it left; None while it is in the engine.
        outcome: Its finish reason, or "error" or "died".
    """

    request_id: str
    submitted: float
    started: float = 0.0
    ended: float | None = None
    outcome: str = ""


def jitter(low: float, high: float, *, seed: int = 0) -> Callable[[Request], float]:
    """Return a latency (virtual seconds) uniform in [low, high), fixed by the request's content.

    Two seeds give two arrival orders of the same completions.
    """

    def latency(request: Request) -> float:
        return low + (high - low) * _uniform("latency", seed, request)

    return latency


def _uniform(purpose: str, salt: int, request: Request, attempt: int = 0) -> float:
    key = derive_seed(
        purpose, salt, attempt, request.seed or 0, request.tree_id, str(request.prompt_ids)
    )
    return key / 2**63


class ScriptedEngine:
    """Serves requests from a policy function; async and step by step.

    Args:
        policy: From a request to what the model says. It must depend on the request alone, best on
            ``seed`` and ``prompt_ids``. Text and ids are cut as a model's would be: end token
            (added at the end where missing), stop strings, stop ids, max_tokens.
        tokenizer: Its ``eos_id`` is the end token where ``eos_id`` is not given.
        eos_id: The end token.
        latency: Virtual seconds a request takes, fixed or by request (see :func:`jitter`).
        clock: To share with others; one of its own by default.
        max_concurrency: Requests served at once; more wait, lower ``priority`` value first.
        faults: Share of requests that fail, decided by a hash of the request and the number of its
            failures so far, so that a retry may succeed; or a function that returns an error.
        fault_retryable: What the errors of a share say about trying again.
        fault_seed: Chooses other victims for the same share.
        dies_after: The engine is dead once it has started this many requests; the next one and all
            that are inside fail with EngineDied.
        logprob: Behaviour log-prob (nats) of each token: a constant or a function of request and
            completion ids.
        scorer: For :meth:`score`; the constant ``logprob`` by default.
        max_context: Bound of prompt plus generated tokens.
        policy_version: Written into completions.

    Attributes:
        log: What happened to each request, in order of arrival.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        tokenizer: Tokenizer | None = None,
        eos_id: int | None = None,
        latency: float | Callable[[Request], float] = 0.0,
        clock: VirtualClock | None = None,
        max_concurrency: int | None = None,
        faults: float | Callable[[Request], EngineError | None] = 0.0,
        fault_retryable: bool = True,
        fault_seed: int = 0,
        dies_after: int | None = None,
        logprob: float | Callable[[Request, Sequence[int]], Sequence[float]] = -1.0,
        scorer: Callable[[Sequence[int], int], Sequence[float]] | None = None,
        max_context: int | None = None,
        policy_version: str = "",
    ) -> None:
        self.tokenizer: Tokenizer = ByteTokenizer() if tokenizer is None else tokenizer
        self._eos = getattr(self.tokenizer, "eos_id", None) if eos_id is None else eos_id
        self.eos_ids = frozenset(() if self._eos is None else (self._eos,))
        self.capabilities = Capabilities(max_context=max_context, detail={"engine": "scripted"})
        self.clock = clock or VirtualClock()
        self.log: list[LogEntry] = []
        self._policy = policy
        self._latency = latency
        self._width = max_concurrency
        self._gate = Gate(max_concurrency)
        self._faults = faults
        self._fault_retryable = fault_retryable
        self._fault_seed = fault_seed
        self._dies_after = dies_after
        self._logprob = logprob
        self._scorer = scorer
        self._max_context = max_context
        self._version = policy_version
        self._failures: dict[int, int] = {}
        self._started = 0
        self._gone: EngineError | None = None
        self._running: dict[str, asyncio.Future[None]] = {}
        self._queue: list[tuple[int, int, Request, LogEntry]] = []
        self._due: list[tuple[float, int, str, Completion | EngineError, LogEntry]] = []

    # The async engine -------------------------------------------------------------------------

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; see :meth:`treerl.engines.base.Engine.generate`."""
        entry = self._enter(request)
        try:
            self._check(request)
            async with self._gate.enter(request.request_id, request.priority):
                completion = await self._serve(request, entry)
        except TurnedAway:
            completion = self._nothing(request)
        except BaseException as error:
            self._leave(entry, _outcome(error))
            raise
        self._leave(entry, completion.finish_reason)
        return completion

    async def _serve(self, request: Request, entry: LogEntry) -> Completion:
        seconds = self._start(request, entry)
        result = self._answer(request)
        if seconds > 0:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._running[request.request_id] = ended
            alarm = asyncio.ensure_future(self.clock.sleep(seconds))
            try:
                await asyncio.wait({ended, alarm}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                alarm.cancel()
                self._running.pop(request.request_id, None)
            if self._gone is not None:
                raise self._gone
            if ended.done():
                return self._part(request, result, (self.clock.now() - entry.started) / seconds)
        if isinstance(result, EngineError):
            raise result
        return result

    def _part(self, request: Request, result: Completion | EngineError, share: float) -> Completion:
        """Return what was generated in a share of the request's time."""
        if isinstance(result, EngineError):
            return self._nothing(request)
        n = min(int(share * len(result.token_ids)), len(result.token_ids))
        return result._replace(
            token_ids=result.token_ids[:n],
            logprobs=result.logprobs[:n],
            top_logprobs=result.top_logprobs[:n],
            finish_reason="abort",
            stop_reason=None,
            usage=result.usage._replace(generated=n),
        )

    def _nothing(self, request: Request) -> Completion:
        usage = Usage(prompt=len(request.prompt_ids))
        return Completion((), (), "abort", usage=usage, policy_version=self._version)

    async def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Return the scorer's log-probs of ``token_ids[start:]``."""
        if self._gone is not None:
            raise self._gone
        if self._scorer is not None:
            return list(self._scorer(token_ids, start))
        constant = self._logprob if isinstance(self._logprob, float) else -1.0
        return [constant] * (len(token_ids) - start)

    async def abort(self, request_id: str) -> None:
        """End a request; one that is unknown or finished is left alone."""
        ended = self._running.get(request_id)
        if ended is not None and not ended.done():
            ended.set_result(None)
        self._gate.turn_away(request_id)

    async def close(self) -> None:
        """Fail what is inside and refuse what comes."""
        self._go(EngineError("the engine is closed"))

    # The step engine ----------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests for :meth:`step`, which also returns the errors of bad ones."""
        for request in requests:
            entry = LogEntry(request.request_id, self.clock.now())
            self.log.append(entry)
            heapq.heappush(self._queue, (request.priority, len(self.log), request, entry))
        self._fill()

    def step(self) -> list[tuple[str, Completion | EngineError]]:
        """Move the clock to the next request that ends; return all that end then, in order."""
        if not self._due:
            return []
        now = self._due[0][0]
        self.clock.advance(max(0.0, now - self.clock.now()))
        finished: list[tuple[str, Completion | EngineError]] = []
        while self._due and self._due[0][0] <= now:
            *_, request_id, result, entry = heapq.heappop(self._due)
            failure = self._gone or (result if isinstance(result, EngineError) else None)
            self._leave(entry, _outcome(failure) if failure else result.finish_reason)  # type: ignore[union-attr]
            finished.append((request_id, failure or result))
        self._fill()
        return finished

    def _fill(self) -> None:
        while self._queue and (self._width is None or len(self._due) < self._width):
            _, order, request, entry = heapq.heappop(self._queue)
            result: Completion | EngineError
            seconds = 0.0
            try:
                self._check(request)
                seconds = self._start(request, entry)
                result = self._answer(request)
            except EngineError as error:
                result = error
            due = self.clock.now() + seconds
            heapq.heappush(self._due, (due, order, request.request_id, result, entry))

    # Both ---------------------------------------------------------------------------------------

    def _enter(self, request: Request) -> LogEntry:
        if self._gone is not None:
            raise self._gone
        entry = LogEntry(request.request_id, self.clock.now())
        self.log.append(entry)
        return entry

    def _check(self, request: Request) -> None:
        check_request(request, max_context=self._max_context)

    def _leave(self, entry: LogEntry, outcome: str) -> None:
        entry.ended, entry.outcome = self.clock.now(), outcome

    def _start(self, request: Request, entry: LogEntry) -> float:
        """Begin to serve; return the latency in virtual seconds."""
        if self._gone is not None:
            raise self._gone
        if self._dies_after is not None and self._started >= self._dies_after:
            self._go(EngineDied(f"the scripted engine died after {self._started} requests"))
            assert self._gone is not None
            raise self._gone
        self._started += 1
        entry.started = self.clock.now()
        return self._latency(request) if callable(self._latency) else self._latency

    def _go(self, error: EngineError) -> None:
        self._gone = self._gone or error
        for ended in self._running.values():
            if not ended.done():
                ended.set_result(None)
        self._gate.fail(self._gone)

    def _answer(self, request: Request) -> Completion | EngineError:
        fault = self._fault(request)
        if fault is not None:
            return fault
        said = self._policy(request)
        return said if isinstance(said, Completion) else self._cut(request, said)

    def _fault(self, request: Request) -> EngineError | None:
        if callable(self._faults):
            return self._faults(request)
        if not self._faults:
            return None
        key = derive_seed(request.seed or 0, request.tree_id, str(request.prompt_ids))
        attempt = self._failures.get(key, 0)
        if _uniform("fault", self._fault_seed, request, attempt) >= self._faults:
            return None
        self._failures[key] = attempt + 1
        return EngineError("an injected fault", retryable=self._fault_retryable)

    def _cut(self, request: Request, said: str | Sequence[int]) -> Completion:
        """End what the policy says where a model would be ended."""
        ids = self.tokenizer.encode(said) if isinstance(said, str) else list(said)
        if self._eos is not None and (not ids or ids[-1] != self._eos):
            ids.append(self._eos)
        limit = room_for(request, self._max_context)
        finder = StopFinder(self.tokenizer.decode, request.stop)
        reason: FinishReason = "length"
        stop: str | int | None = None
        end = min(limit, len(ids))
        for n, token_id in enumerate(ids[:limit], start=1):
            if token_id in self.eos_ids:
                reason, end = "eos", n
                break
            if token_id in request.stop_token_ids:
                reason, stop, end = "stop", token_id, n
                break
            stop = finder.find(ids, n) if request.stop else None
            if stop is not None:
                reason, end = "stop", n
                break
        kept = tuple(ids[:end])
        logprobs = self._logprob(request, kept) if callable(self._logprob) else None
        return Completion(
            token_ids=kept,
            logprobs=(self._logprob,) * end if logprobs is None else tuple(logprobs),  # type: ignore[arg-type]
            finish_reason=reason,
            stop_reason=stop,
            usage=Usage(prompt=len(request.prompt_ids), generated=end),
            policy_version=self._version,
        )


def _outcome(error: BaseException | None) -> str:
    if isinstance(error, EngineDied):
        return "died"
    return "error" if isinstance(error, EngineError) else "cancelled"
