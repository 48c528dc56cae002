"""Drivers: order, overlap, faults and death, on the scripted engine's virtual clock."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from worlds import dice_policy, ends_in_one, problems, small_search

from treerl.engines.base import Request
from treerl.engines.scripted import ScriptedEngine, jitter
from treerl.errors import EngineDied, EngineError
from treerl.search.growth import Growth, Judges, run, run_steps, run_sync
from treerl.search.mcts import MCTS
from treerl.treefile import tree_to_record

JUDGES = Judges(reward=ends_in_one)


def searches(engine: ScriptedEngine, n: int, **options: object) -> list[MCTS]:
    return [MCTS(p, engine.tokenizer, small_search(**options)) for p in problems(n)]


def grown(engine: ScriptedEngine, n: int = 4, **options: object) -> list[dict]:
    done = run_sync(searches(engine, n), engine, JUDGES, retry_delay_s=0.0, **options)
    assert all(growth.done for growth in done)
    return [tree_to_record(growth.tree) for growth in done]


WANT = grown(ScriptedEngine(dice_policy))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("width", [1, 3, None])
def test_trees_do_not_depend_on_arrival_order_or_concurrency(seed: int, width: int | None) -> None:
    engine = ScriptedEngine(dice_policy, latency=jitter(0.1, 9.0, seed=seed), max_concurrency=width)
    assert grown(engine) == WANT


@pytest.mark.parametrize("active", [1, 2, 64])
def test_trees_do_not_depend_on_how_many_grow_at_once(active: int) -> None:
    engine = ScriptedEngine(dice_policy, latency=jitter(0.1, 2.0))
    assert grown(engine, active=active) == WANT


def test_the_step_driver_grows_the_same_trees() -> None:
    engine = ScriptedEngine(dice_policy, latency=jitter(0.1, 9.0))
    growths = searches(engine, 4)
    finished = list(run_steps(growths, engine, JUDGES))
    assert sorted(map(id, finished)) == sorted(map(id, growths))
    assert [tree_to_record(g.tree) for g in growths] == WANT


def test_retried_faults_leave_no_trace_in_the_nodes() -> None:
    engine = ScriptedEngine(dice_policy, faults=0.2, latency=jitter(0.1, 2.0))
    assert grown(engine, retries=50) == WANT


def test_one_slow_problem_delays_nobody() -> None:
    def latency(request: Request) -> float:
        return 1000.0 if request.tree_id.startswith("p0/") else 1.0

    async def reward(problem, text, leaf) -> float:  # on the loop, so the clock waits for it
        return ends_in_one(problem, text, leaf)

    engine = ScriptedEngine(dice_policy, latency=latency)
    finished: list[tuple[str, float]] = []

    async def collect() -> None:
        async for growth in run(searches(engine, 6), engine, Judges(reward=reward)):
            finished.append((growth.tree.problem.id, engine.clock.now()))

    asyncio.run(collect())
    assert finished[-1][0] == "p0"
    assert max(time for name, time in finished if name != "p0") < 100


def test_growths_are_taken_from_their_source_only_when_there_is_room() -> None:
    engine = ScriptedEngine(dice_policy, latency=1.0)
    taken: list[int] = []
    done: list[Growth] = []

    def source():
        for i, growth in enumerate(searches(engine, 9)):
            taken.append(i)
            yield growth

    async def collect() -> None:
        async for growth in run(source(), engine, JUDGES, active=2):
            done.append(growth)
            assert len(taken) - len(done) <= 2

    asyncio.run(collect())
    assert len(done) == 9


def test_judges_run_while_generation_goes_on() -> None:
    """A judge blocks until the engine has served other problems: serial drivers would hang here."""
    engine = ScriptedEngine(dice_policy, latency=1.0)
    others_done = threading.Event()

    def reward(problem, text, leaf) -> float:
        if problem.id == "p0":
            assert others_done.wait(60)
        return ends_in_one(problem, text, leaf)

    async def collect() -> None:
        left = {"p1", "p2", "p3"}
        growths = searches(engine, 4, wave=1)
        async for growth in run(growths, engine, Judges(reward=reward)):
            left.discard(growth.tree.problem.id)
            if not left:
                others_done.set()
        assert all(leaf.reward is not None for leaf in growths[0].tree.leaves())

    asyncio.run(collect())


def test_async_rewards_are_awaited_by_both_drivers() -> None:
    async def reward(problem, text, leaf) -> float:
        await asyncio.sleep(0)
        return ends_in_one(problem, text, leaf)

    engine = ScriptedEngine(dice_policy)
    growths = run_sync(searches(engine, 4), engine, Judges(reward=reward))
    assert [tree_to_record(g.tree) for g in growths] == WANT
    growths = searches(engine, 4)
    list(run_steps(growths, ScriptedEngine(dice_policy), Judges(reward=reward)))
    assert [tree_to_record(g.tree) for g in growths] == WANT


def test_a_judge_that_raises_is_a_record_and_the_run_goes_on() -> None:
    def reward(problem, text, leaf) -> float:
        raise ZeroDivisionError("no such number")

    engine = ScriptedEngine(dice_policy)
    (growth,) = run_sync(searches(engine, 1), engine, Judges(reward=reward))
    leaves = growth.tree.leaves()
    assert leaves
    for leaf in leaves:
        assert leaf.reward is None
        assert leaf.meta == {"judge_error": "ZeroDivisionError: no such number"}
    assert growth.tree.root.total == 0


@pytest.mark.parametrize("answer", [np.float32(1.0), np.bool_(True), True, 1, np.array(1.0)])
def test_any_finite_number_is_a_reward(answer: Any) -> None:
    engine = ScriptedEngine(dice_policy)
    judges = Judges(reward=lambda problem, text, leaf: answer)
    (growth,) = run_sync(searches(engine, 1), engine, judges)
    assert {type(leaf.reward) for leaf in growth.tree.leaves()} == {float}
    assert growth.tree.root.correct == growth.tree.root.total > 0


@pytest.mark.parametrize("answer", ["0.5", [1.0], math.nan, math.inf, 10**400, {}, object()])
def test_a_reward_that_is_no_finite_number_costs_its_leaf_alone(answer: Any) -> None:
    async def later(problem, text, leaf) -> Any:
        return answer

    for reward in (lambda problem, text, leaf: answer, later):
        engine = ScriptedEngine(dice_policy)
        (growth,) = run_sync(searches(engine, 1), engine, Judges(reward=reward))
        leaves = growth.tree.leaves()
        assert leaves
        assert all(leaf.reward is None and leaf.meta["judge_error"] for leaf in leaves)


@pytest.mark.parametrize("answer", [True, "REFUTED", None, 0])
def test_a_verdict_of_another_kind_costs_its_step_alone(answer: Any) -> None:
    class Judge:
        name = "odd"

        def verify(self, step: str, **context: Any) -> Any:
            return answer

    engine = ScriptedEngine(dice_policy)
    sampling = replace(small_search().sampling, verify_steps=True)
    growth = MCTS(problems(1)[0], engine.tokenizer, small_search(sampling=sampling))
    run_sync([growth], engine, Judges(reward=ends_in_one, verifier=Judge()))
    steps = [node for node in growth.tree.nodes[1:] if node.text]
    assert steps
    assert all(node.verdict is None for node in steps)
    assert all("not a StepVerdict" in node.meta["judge_error"] for node in steps)
    assert growth.tree.root.total > 0


def test_a_missing_judge_is_a_record_too() -> None:
    engine = ScriptedEngine(dice_policy)
    (growth,) = run_sync(searches(engine, 1), engine)
    assert growth.tree.leaves()[0].meta == {"judge_error": "no reward is configured"}


def test_run_sync_works_inside_a_running_loop() -> None:
    async def notebook() -> list[dict]:
        return grown(ScriptedEngine(dice_policy))

    assert asyncio.run(notebook()) == WANT


def test_a_dead_engine_ends_the_run_and_finished_trees_are_kept() -> None:
    whole = ScriptedEngine(dice_policy)
    grown(whole, 1)
    engine = ScriptedEngine(dice_policy, dies_after=len(whole.log) + 3)
    finished: list[Growth] = []

    async def collect() -> None:
        async for growth in run(searches(engine, 4), engine, JUDGES, active=1):
            finished.append(growth)

    with pytest.raises(EngineDied):
        asyncio.run(collect())
    assert [tree_to_record(g.tree) for g in finished] == WANT[:1]
    with pytest.raises(EngineDied):
        list(run_steps(searches(engine, 4), ScriptedEngine(dice_policy, dies_after=5), JUDGES))


def test_an_engine_bug_is_not_taken_for_a_failed_request() -> None:
    class Broken(ScriptedEngine):
        async def generate(self, request: Request):
            raise KeyError("logits")

    engine = Broken(dice_policy)
    with pytest.raises(KeyError, match="logits"):
        run_sync(searches(engine, 2), engine, JUDGES)


def test_leaving_the_driver_early_cancels_what_is_in_flight() -> None:
    engine = ScriptedEngine(dice_policy, latency=jitter(1.0, 5.0))

    async def first() -> None:
        stream = run(searches(engine, 8), engine, JUDGES)
        async for _ in stream:
            break
        await stream.aclose()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(first())


def test_a_growth_that_asks_for_nothing_is_called_a_bug() -> None:
    class Stuck(MCTS):
        def ready(self):
            super().ready()
            return []

        def tell(self, request_id, answer) -> None: ...

    engine = ScriptedEngine(dice_policy)
    stuck = Stuck(problems(1)[0], engine.tokenizer, small_search())
    with pytest.raises(RuntimeError, match="problem 'p0' is not done but asks for nothing"):
        run_sync([stuck], engine, JUDGES)


def test_errors_that_are_not_retryable_are_told_at_once() -> None:
    tries: list[str] = []

    def fault(request: Request) -> EngineError:
        tries.append(request.request_id)
        return EngineError("too long", retryable=False)

    engine = ScriptedEngine(dice_policy, faults=fault)
    (growth,) = run_sync(searches(engine, 1, simulations=1), engine, JUDGES)
    assert len(tries) == len(set(tries)) == 1
    assert growth.tree.nodes[1].error == "EngineError: too long"


def test_a_cancellation_let_out_by_an_engine_is_a_failed_request() -> None:
    class Leaky(ScriptedEngine):
        async def generate(self, request: Request):
            completion = await super().generate(request)
            if request.seed is not None and request.seed % 3 == 0:
                raise asyncio.CancelledError
            return completion

    engine = Leaky(dice_policy)
    growths = run_sync(searches(engine, 4), engine, JUDGES)
    errors = [node.error for growth in growths for node in growth.tree.nodes if node.error]
    assert all(growth.done for growth in growths)
    assert set(errors) == {"EngineError: cancelled inside, not by its caller"}


def test_a_cancellation_let_out_by_a_judge_is_a_record() -> None:
    async def reward(problem, text, leaf) -> float:
        raise asyncio.CancelledError

    engine = ScriptedEngine(dice_policy)
    (growth,) = run_sync(searches(engine, 1), engine, Judges(reward=reward))
    assert growth.done
    assert all(leaf.reward is None for leaf in growth.tree.leaves())


def test_cancelling_the_driver_still_ends_it() -> None:
    class Endless(ScriptedEngine):
        async def generate(self, request: Request):
            await asyncio.Event().wait()

    async def main() -> None:
        engine = Endless(dice_policy)

        async def collect() -> None:
            async for _ in run(searches(engine, 2), engine, JUDGES):
                pass

        task = asyncio.create_task(collect())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_an_engine_that_returns_no_completion_is_named() -> None:
    class Nothing(ScriptedEngine):
        async def generate(self, request: Request):
            return None

    engine = Nothing(dice_policy)
    with pytest.raises(TypeError, match="the engine returned 'None' .NoneType., not a Completion"):
        run_sync(searches(engine, 1), engine, JUDGES)
