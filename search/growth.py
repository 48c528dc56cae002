"""The growth core: search algorithms without I/O, and the drivers that feed them.

An algorithm is a :class:`Growth`: it says what it wants to know (:meth:`Growth.ready`) and is told
the answers (:meth:`Growth.tell`), in any order. It has no engine, no clock and no asyncio inside,
so the same algorithm runs on an async engine over many problems, in a notebook, or step by step on
an engine that a trainer owns, and its tree depends only on what it is told.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, SupportsFloat, TypeVar

from treerl.engines.base import Completion, Engine, Request, StepEngine
from treerl.errors import EngineDied, EngineError
from treerl.problem import Problem
from treerl.protocols import JudgeStep, Leaf, Reward, StepScore, StepScorer
from treerl.tree import Tree
from treerl.verdict import StepVerdict

__all__ = [
    "Answer",
    "Growth",
    "JudgeRequest",
    "Judgement",
    "Judges",
    "run",
    "run_coroutine",
    "run_steps",
    "run_sync",
]

T = TypeVar("T")


class JudgeRequest(NamedTuple):
    """A question about text: a leaf for a reward, a prefix for a verifier or a scorer.

    Attributes:
        request_id: Unique within the growth.
        role: Who is asked.
        problem: The problem.
        steps: The path's steps as text; verifiers judge the last, scorers all.
        text: The whole response, for rewards.
        leaf: The finished path, for rewards.
    """

    request_id: str
    role: Literal["reward", "verifier", "scorer"]
    problem: Problem
    steps: tuple[str, ...]
    text: str = ""
    leaf: Leaf | None = None


class Judgement(NamedTuple):
    """The answer to a :class:`JudgeRequest`; the field of its role is set.

    Attributes:
        reward: None is unscorable.
        verdict: The verifier's verdict on the last step.
        scores: One score a step.
        error: What the judge raised, if it did: the text stays unjudged and the run goes on.
    """

    reward: float | None = None
    verdict: StepVerdict | None = None
    scores: tuple[StepScore, ...] = ()
    error: str | None = None


Answer = Completion | Judgement | EngineError


class Growth(Protocol):
    """A search algorithm in the middle of one problem."""

    tree: Tree

    @property
    def done(self) -> bool:
        """True once the tree is final; nothing is ready or awaited then."""

    def ready(self) -> list[Request | JudgeRequest]:
        """Return what can be asked now; each request is returned once."""

    def tell(self, request_id: str, answer: Answer) -> None:
        """Give the answer to one request."""


@dataclass(frozen=True, slots=True)
class Judges:
    """Who answers judge requests.

    Attributes:
        reward: Scores leaves.
        verifier: Judges steps with tools.
        scorer: A process reward model.
    """

    reward: Reward | None = None
    verifier: JudgeStep | None = None
    scorer: StepScorer | None = None

    def is_async(self, request: JudgeRequest) -> bool:
        """True where the judge runs on the event loop and needs no thread."""
        call = getattr(self.reward, "__call__", None)  # noqa: B004  (a callable object's method)
        return request.role == "reward" and (
            inspect.iscoroutinefunction(self.reward) or inspect.iscoroutinefunction(call)
        )

    def answer(self, request: JudgeRequest) -> Judgement | Coroutine[Any, Any, Judgement]:
        """Ask the judge; an async reward yields a coroutine. Never raises for a judge's error."""
        try:
            if request.role == "verifier" and self.verifier is not None:
                *previous, step = request.steps
                verdict = self.verifier.verify(
                    step, problem=request.problem.text, previous_steps=previous
                )
                if not isinstance(verdict, StepVerdict):
                    raise TypeError(f"the verifier returned {_what(verdict)}, not a StepVerdict")
                return Judgement(verdict=verdict)
            if request.role == "scorer" and self.scorer is not None:
                scores = self.scorer.score(request.problem, request.steps)
                if len(scores) != len(request.steps):
                    raise ValueError(f"{len(scores)} scores for {len(request.steps)} steps")
                return Judgement(scores=tuple(scores))
            if request.role == "reward" and self.reward is not None:
                assert request.leaf is not None
                value = self.reward(request.problem, request.text, request.leaf)
                if inspect.isawaitable(value):
                    return _await_reward(value)
                return Judgement(reward=_checked(value))
        except Exception as error:
            return _failed(error)
        return Judgement(error=f"no {request.role} is configured")


async def _await_reward(value: Any) -> Judgement:
    try:
        return Judgement(reward=_checked(await value))
    except Exception as error:
        return _failed(error)


def _checked(reward: Any) -> float | None:
    """Return a reward as a float; None where it was unscorable."""
    if reward is None:
        return None
    if not isinstance(reward, SupportsFloat) or isinstance(reward, str):
        raise TypeError(f"the reward returned {_what(reward)}, not a number or None")
    value = float(reward)
    if not math.isfinite(value):
        raise ValueError(f"the reward returned {value}; None says that a leaf cannot be scored")
    return value


def _what(value: Any) -> str:
    return f"{str(value)[:40]!r} ({type(value).__name__})"


def _failed(error: Exception) -> Judgement:
    return Judgement(error=f"{type(error).__name__}: {error}")


async def run(
    growths: Iterable[Growth],
    engine: Engine,
    judges: Judges | None = None,
    *,
    active: int = 64,
    retries: int = 2,
    retry_delay_s: float = 0.5,
    judge_threads: int = 4,
) -> AsyncIterator[Growth]:
    """Grow many trees at once; yield each as soon as it is done, in finishing order.

    No tree waits for another: each growth's next requests leave as soon as it has them. Judges run
    in threads (sync) or on the loop (async) while generation goes on.

    Args:
        growths: Taken lazily, never more than ``active`` at once.
        engine: Answers requests.
        judges: Answer judge requests.
        active: Trees that grow at the same time.
        retries: Further tries of a request whose error is retryable; after them the growth is told
            the error and records it.
        retry_delay_s: Seconds before the first retry; doubled for each further one.
        judge_threads: Threads for sync judges.

    Raises:
        EngineDied: The engine is gone. Trees yielded before are complete.
    """
    judges = judges or Judges()
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[tuple[Growth, str, Answer | Exception]] = asyncio.Queue()
    tasks: set[asyncio.Task[None]] = set()
    open_requests: dict[int, int] = {}  # id(growth) -> requests not answered yet
    source = iter(growths)

    async def generate(request: Request) -> Answer:
        attempt = 0
        while True:
            try:
                found = await engine.generate(request)
                if not isinstance(found, Completion):
                    raise TypeError(f"the engine returned {_what(found)}, not a Completion")
                return found
            except EngineError as error:
                if not error.retryable or attempt == retries:
                    return error
            await asyncio.sleep(retry_delay_s * 2**attempt)
            attempt += 1

    async def judge(request: JudgeRequest) -> Answer:
        if judges.is_async(request):
            answer = judges.answer(request)
        else:
            answer = await loop.run_in_executor(pool, judges.answer, request)
        return answer if isinstance(answer, Judgement) else await answer

    async def ask(growth: Growth, request: Request | JudgeRequest) -> None:
        answer: Answer | Exception
        try:
            answer = await (generate(request) if isinstance(request, Request) else judge(request))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The driver cancelled nothing: the engine or judge let out a cancellation of its own.
            words = "cancelled inside, not by its caller"
            is_judge = isinstance(request, JudgeRequest)
            answer = Judgement(error=words) if is_judge else EngineError(words)
        except Exception as error:  # a fault of the engine's code: raised by the driver below
            answer = error
        told.put_nowait((growth, request.request_id, answer))

    def send(growth: Growth) -> None:
        requests = growth.ready()
        open_requests[id(growth)] += len(requests)
        for request in requests:
            task = loop.create_task(ask(growth, request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    with ThreadPoolExecutor(judge_threads, thread_name_prefix="treerl-judge") as pool:
        try:
            while True:
                while len(open_requests) < active:
                    growth = next(source, None)
                    if growth is None:
                        break
                    open_requests[id(growth)] = 0
                    send(growth)
                    _check_progress(growth, open_requests[id(growth)])
                    if growth.done:
                        del open_requests[id(growth)]
                        yield growth
                if not open_requests:
                    return
                growth, request_id, answer = await told.get()
                if isinstance(answer, EngineDied) or not isinstance(answer, Answer):
                    raise answer
                growth.tell(request_id, answer)
                open_requests[id(growth)] -= 1
                send(growth)
                _check_progress(growth, open_requests[id(growth)])
                if growth.done:
                    del open_requests[id(growth)]
                    yield growth
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _check_progress(growth: Growth, open_requests: int) -> None:
    if not growth.done and open_requests == 0:
        raise RuntimeError(
            f"{type(growth).__name__} on problem '{growth.tree.problem.id}' is not done but asks "
            "for nothing: this is a bug in the algorithm"
        )


def run_sync(
    growths: Iterable[Growth],
    engine: Engine,
    judges: Judges | None = None,
    **options: Any,
) -> list[Growth]:
    """Run :func:`run` to the end and return the growths in the order given.

    Works where no event loop runs and, in a thread of its own, where one does (a notebook).
    """
    growths = list(growths)

    async def collect() -> None:
        async for _ in run(growths, engine, judges, **options):
            pass

    run_coroutine(collect)
    return growths


def run_coroutine(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end from sync code, inside or outside a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    outcome: Future[T] = Future()

    def target() -> None:
        try:
            outcome.set_result(asyncio.run(make()))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=target, name="treerl-run")
    thread.start()
    thread.join()
    return outcome.result()


def run_steps(
    growths: Iterable[Growth],
    engine: StepEngine,
    judges: Judges | None = None,
    *,
    active: int = 64,
    judge_threads: int = 4,
) -> Iterator[Growth]:
    """Grow trees on a synchronous engine, one engine step at a time.

    For engines that somebody else owns, such as a trainer's colocated vLLM. Yields each growth as
    soon as it is done. Judges run in threads while the engine works.

    Raises:
        EngineDied: The engine is gone.
    """
    judges = judges or Judges()
    source = iter(growths)
    owner: dict[str, Growth] = {}
    open_requests: dict[int, int] = {}
    judging: dict[Future[Judgement], tuple[Growth, str]] = {}

    def ask(request: JudgeRequest) -> Judgement:
        answer = judges.answer(request)
        return answer if isinstance(answer, Judgement) else asyncio.run(_as_coroutine(answer))

    def send(growth: Growth) -> None:
        requests = growth.ready()
        open_requests[id(growth)] += len(requests)
        to_engine = [r for r in requests if isinstance(r, Request)]
        owner.update((r.request_id, growth) for r in to_engine)
        if to_engine:
            engine.submit(to_engine)
        for r in requests:
            if isinstance(r, JudgeRequest):
                judging[pool.submit(ask, r)] = (growth, r.request_id)

    def answers() -> list[tuple[Growth, str, Answer]]:
        out: list[tuple[Growth, str, Answer]] = []
        if owner:
            out = [(owner.pop(key), key, answer) for key, answer in engine.step()]
        elif judging:
            wait(judging, return_when=FIRST_COMPLETED)
        for future in [f for f in judging if f.done()]:
            growth, key = judging.pop(future)
            out.append((growth, key, future.result()))
        return out

    with ThreadPoolExecutor(judge_threads, thread_name_prefix="treerl-judge") as pool:
        while True:
            while len(open_requests) < active:
                growth = next(source, None)
                if growth is None:
                    break
                open_requests[id(growth)] = 0
                send(growth)
                _check_progress(growth, open_requests[id(growth)])
                if growth.done:
                    del open_requests[id(growth)]
                    yield growth
            if not open_requests:
                return
            for growth, key, answer in answers():
                if isinstance(answer, EngineDied):
                    raise answer
                growth.tell(key, answer)
                open_requests[id(growth)] -= 1
                send(growth)
                _check_progress(growth, open_requests[id(growth)])
                if growth.done:
                    del open_requests[id(growth)]
                    yield growth


async def _as_coroutine(awaitable: Any) -> Judgement:
    result: Judgement = await awaitable
    return result
