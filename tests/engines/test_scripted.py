"""The scripted engine: time, order, faults and death as ordered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from treerl.engines import ScriptedEngine
from treerl.engines.base import Completion, Request, Usage
from treerl.engines.scripted import jitter
from treerl.errors import EngineDied, EngineError


def ask(name: str, prompt: str = "p", **options: Any) -> Request:
    settings = {"tree_id": "t", "max_tokens": 100, "prompt_ids": tuple(prompt.encode()), **options}
    return Request(request_id=name, **settings)


def gather(engine: ScriptedEngine, *requests: Request) -> list[Any]:
    async def main() -> list[Any]:
        return await asyncio.gather(*map(engine.generate, requests), return_exceptions=True)

    return asyncio.run(main())


def test_text_ends_with_the_end_token_and_ids_are_taken_as_they_are() -> None:
    engine = ScriptedEngine(lambda r: "hi" if r.seed == 1 else [104, 257, 105])
    text, ids = gather(engine, ask("a", seed=1), ask("b", seed=2))
    assert (text.token_ids, text.finish_reason) == ((104, 105, 257), "eos")
    assert (ids.token_ids, ids.finish_reason) == ((104, 257), "eos")
    assert text.logprobs == (-1.0, -1.0, -1.0)
    assert text.usage == Usage(prompt=1, cached=0, generated=3)


def test_a_completion_passes_through_untouched() -> None:
    wanted = Completion((1, 2), (-0.5, -0.25), "length", policy_version="7")
    assert gather(ScriptedEngine(lambda r: wanted), ask("a")) == [wanted]


def test_latency_overlaps_up_to_the_width_and_the_log_shows_it() -> None:
    engine = ScriptedEngine(lambda r: "x", latency=lambda r: float(r.seed or 0), max_concurrency=2)
    gather(engine, ask("a", seed=4), ask("b", seed=1), ask("c", seed=1), ask("d", seed=5))
    times = {e.request_id: (e.submitted, e.started, e.ended) for e in engine.log}
    assert times == {"a": (0, 0, 4), "b": (0, 0, 1), "c": (0, 1, 2), "d": (0, 2, 7)}


def test_lower_priority_values_go_first_among_those_that_wait() -> None:
    engine = ScriptedEngine(lambda r: "x", latency=1.0, max_concurrency=1)
    gather(engine, ask("a"), ask("late", priority=5), ask("b"), ask("first", priority=-1))
    assert [e.request_id for e in sorted(engine.log, key=lambda e: e.started)] == [
        "a",
        "first",
        "b",
        "late",
    ]


def test_jitter_reorders_by_its_seed_only() -> None:
    def order(seed: int) -> list[str]:
        engine = ScriptedEngine(lambda r: "x", latency=jitter(0, 10, seed=seed))
        gather(engine, *(ask(str(i), seed=i) for i in range(20)))
        return [e.request_id for e in sorted(engine.log, key=lambda e: e.ended or 0)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_faults_hit_a_share_of_requests_the_same_in_every_order() -> None:
    def failed(order: list[int]) -> set[int]:
        engine = ScriptedEngine(lambda r: "x", faults=0.2)
        found = gather(engine, *(ask(str(i), seed=i) for i in order))
        assert all(e.retryable for e in found if isinstance(e, EngineError))
        return {i for i, r in zip(order, found, strict=True) if isinstance(r, EngineError)}

    numbers = list(range(300))
    assert failed(numbers) == failed(numbers[::-1])
    assert 30 < len(failed(numbers)) < 90


def test_a_retry_of_a_fault_succeeds_some_time() -> None:
    engine = ScriptedEngine(lambda r: "x", faults=0.5)
    for seed in range(20):
        tries = [gather(engine, ask(f"{seed}-{n}", seed=seed))[0] for n in range(40)]
        assert any(isinstance(r, Completion) for r in tries)


def test_faults_may_be_chosen_by_hand() -> None:
    broken = EngineError("by hand")
    engine = ScriptedEngine(lambda r: "x", faults=lambda r: broken if r.seed == 1 else None)
    first, second = gather(engine, ask("a", seed=1), ask("b", seed=2))
    assert first is broken
    assert second.finish_reason == "eos"


def test_death_takes_those_inside_along() -> None:
    engine = ScriptedEngine(
        lambda r: "x", latency=lambda r: float(r.seed or 0), dies_after=2, max_concurrency=2
    )
    found = gather(engine, ask("a", seed=1), ask("b", seed=9), ask("c", seed=1), ask("d", seed=1))
    assert isinstance(found[0], Completion)
    assert all(isinstance(r, EngineDied) for r in found[1:])
    assert [e.outcome for e in engine.log] == ["eos", "died", "died", "died"]


def test_abort_returns_the_share_that_time_allowed() -> None:
    engine = ScriptedEngine(lambda r: "0123456789", latency=10.0, max_concurrency=1)

    async def main() -> list[Completion]:
        tasks = [asyncio.ensure_future(engine.generate(ask(n))) for n in "ab"]
        await engine.clock.sleep(5)
        await engine.abort("b")
        await engine.abort("a")
        return list(await asyncio.gather(*tasks))

    running, waiting = asyncio.run(main())
    assert running.token_ids == tuple(b"01234")
    assert (running.finish_reason, waiting.finish_reason) == ("abort", "abort")
    assert waiting.token_ids == ()


def test_steps_follow_virtual_time() -> None:
    engine = ScriptedEngine(lambda r: "x", latency=lambda r: float(r.seed or 0), max_concurrency=2)
    engine.submit([ask("a", seed=3), ask("b", seed=1), ask("c", seed=2)])
    assert [[i for i, _ in engine.step()] for _ in range(3)] == [["b"], ["a", "c"], []]
    assert engine.clock.now() == 3


@pytest.mark.parametrize("width", [0, -1])
def test_nobody_gets_through_a_gate_of_no_width(width: int) -> None:
    with pytest.raises(ValueError, match=str(width)):
        ScriptedEngine(lambda r: "x", max_concurrency=width)
