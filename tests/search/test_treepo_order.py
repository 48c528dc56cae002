"""No barrier: nobody waits for somebody else's segment (criteria E), on the virtual clock."""

from __future__ import annotations

import asyncio
import csv
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean
from typing import Any

import pytest

from treerl.engines.base import Completion, Request, Usage
from treerl.engines.clock import VirtualClock
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.search.growth import Judges, run, run_steps
from treerl.search.treepo import TreePO
from treerl.search.treepo_allocation import BudgetTransfer, FullTree, Quota
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_fallback import RandomSegment
from treerl.search.treepo_stopping import Stopping
from treerl.search.utilisation import TracedEngine
from treerl.treefile import tree_to_record

PLAIN = Stopping(boxed=False, repetition=None)
SMALL: dict[str, Any] = {
    "width": 8,
    "segment_tokens": 4,
    "max_tokens": 24,
    "stopping": PLAIN,
    "rewards": False,
}
QUOTA = TreePOConfig(**SMALL, allocation=Quota(k0=4))
PUBLISHED = TreePOConfig(**SMALL, allocation=BudgetTransfer(), fallback=RandomSegment())


def numbers(request: Request) -> list[int]:
    """Say numbers that no other request says, for about nine tokens."""
    rng = Random(request.seed)
    ids = []
    while rng.random() > 1 / 9 and len(ids) < 60:
        ids.append(1000 + rng.getrandbits(40))
    return ids


def growths(config: TreePOConfig, names: Iterable[str]) -> list[TreePO]:
    return [TreePO(Problem.from_text(name, "q"), ByteTokenizer(), config) for name in names]


def finish_times(config: TreePOConfig, names: Iterable[str], engine: Any) -> dict[str, float]:
    found: dict[str, float] = {}

    async def collect() -> None:
        async for growth in run(growths(config, names), engine):
            found[growth.tree.problem.id] = engine.clock.now()

    asyncio.run(collect())
    return found


@pytest.mark.parametrize("config", [QUOTA, PUBLISHED], ids=["quota", "published"])
def test_e1_a_slow_prompt_delays_no_other(config: TreePOConfig) -> None:
    def latency(request: Request) -> float:
        return 10.0 if request.tree_id.startswith("A") else 1.0

    alone = finish_times(config, ["B"], ScriptedEngine(numbers, latency=latency))
    together = finish_times(config, ["A", "B"], ScriptedEngine(numbers, latency=latency))
    assert together["B"] == alone["B"]
    assert together["A"] > together["B"]


@pytest.mark.parametrize(
    "allocation", [Quota(k0=4), FullTree(factors=(3, 2, 2))], ids=["quota", "full"]
)
def test_e2_children_leave_the_moment_their_parent_ends(allocation: Any) -> None:
    said: dict[tuple[int, ...], str] = {}  # context behind a completion -> who said it
    asked: dict[str, tuple[int, ...]] = {}

    class Watched(ScriptedEngine):
        async def generate(self, request: Request) -> Completion:
            asked[request.request_id] = request.prompt_ids
            done = await super().generate(request)
            said[request.prompt_ids + done.token_ids] = request.request_id
            return done

    engine = Watched(numbers, latency=jitter(0.5, 20.0))
    config = TreePOConfig(**{**SMALL, "width": 12}, allocation=allocation)
    finish_times(config, [f"p{i}" for i in range(5)], engine)
    log = {entry.request_id: entry for entry in engine.log}
    below = 0
    for request_id, context in asked.items():
        parent = said.get(context)
        assert log[request_id].submitted == (log[parent].ended if parent else 0.0)
        below += parent is not None
    assert below > 25


# --- E3 -------------------------------------------------------------------------------------------

SCALE = 64  # tokens of the model that one token here stands for
NORMAL = NormalDist()


class Lengths:
    """Answers of lognormal length (sigma 0.8); a segment takes as long as it has tokens."""

    def __init__(self, mean: int) -> None:
        self.mu = math.log(mean / SCALE) - 0.32
        self.prompt = len(ByteTokenizer().encode_prompt([{"role": "user", "content": "q"}]))

    def tokens(self, request: Request) -> tuple[int, bool]:
        done = len(request.prompt_ids) - self.prompt
        low = NORMAL.cdf((math.log(done) - self.mu) / 0.8) if done else 0.0
        p = low + (request.seed or 1) / 2**63 * (1 - low)
        whole = math.exp(self.mu + 0.8 * NORMAL.inv_cdf(p)) if 0 < p < 1 else 1e9
        rest = max(1, math.ceil(whole) - done)
        return min(rest, request.max_tokens), rest <= request.max_tokens

    def __call__(self, request: Request) -> Completion:
        n, ends = self.tokens(request)
        ids = ((request.seed or 0), *(0,) * (n - 1))
        return Completion(ids, (-1.0,) * n, "eos" if ends else "length", usage=Usage(0, 0, n))

    def latency(self, request: Request) -> float:
        return float(self.tokens(request)[0])


def barrier_time(trees: list[TreePO], engine: ScriptedEngine) -> float:
    """Grow in global rounds: everything that is ready, then wait for all of it."""
    while not all(growth.done for growth in trees):
        owner = {}
        requests = []
        for growth in trees:
            for request in growth.ready():
                assert isinstance(request, Request)
                owner[request.request_id] = growth
                requests.append(request)
        engine.submit(requests)
        answers: list[Any] = []
        while len(answers) < len(requests):
            answers += engine.step()
        for request_id, answer in answers:
            owner[request_id].tell(request_id, answer)
    return engine.clock.now()


@pytest.mark.parametrize("mean", [1500, 3000])
def test_e3_rounds_within_each_prompt_beat_a_global_barrier(mean: int) -> None:
    """64 prompts, 16 paths each, 256 places, 8 seeds: the published rule under both drivers."""
    segment = 512 // SCALE
    config = TreePOConfig(
        width=16,
        segment_tokens=segment,
        max_tokens=14 * segment,
        allocation=BudgetTransfer(),
        fallback=RandomSegment(),
        stopping=PLAIN,
        rewards=False,
    )
    ratios = []
    for seed in range(8):
        model = Lengths(mean)
        names = [f"{seed}.{i}" for i in range(64)]

        def engine(model: Lengths = model) -> ScriptedEngine:
            return ScriptedEngine(model, latency=model.latency, max_concurrency=256)

        free, bound = growths(config, names), growths(config, names)
        engine_free = engine()
        list(run_steps(free, engine_free, active=64))
        ratios.append(engine_free.clock.now() / barrier_time(bound, engine()))
        if seed == 0:
            assert [tree_to_record(g.tree) for g in free] == [tree_to_record(g.tree) for g in bound]
    assert fmean(ratios) <= 0.95


# --- E4, E5 ---------------------------------------------------------------------------------------


def slow_reward(clock: VirtualClock, seconds: float) -> Any:
    async def reward(problem: Problem, text: str, leaf: Leaf) -> float:
        await clock.sleep(seconds)
        return 1.0

    return reward


@pytest.mark.parametrize("config", [QUOTA, PUBLISHED], ids=["quota", "published"])
def test_e4_a_slow_verifier_costs_no_generation(config: TreePOConfig) -> None:
    def timeline(seconds: float | None) -> tuple[list[Any], float, float]:
        clock = VirtualClock()
        engine = ScriptedEngine(numbers, latency=jitter(0.05, 0.2), max_concurrency=16, clock=clock)
        traced = TracedEngine(engine, capacity=16, now=clock.now)
        judges = Judges() if seconds is None else Judges(reward=slow_reward(clock, seconds))
        how = replace(config, rewards=seconds is not None)

        async def collect() -> None:
            names = [f"p{i}" for i in range(8)]
            async for growth in run(growths(how, names), traced, judges):
                if seconds is not None:
                    assert all(leaf.reward == 1.0 for leaf in growth.tree.leaves())

        asyncio.run(collect())
        log = [(e.submitted, e.started, e.ended) for e in engine.log]
        return log, traced.utilisation(), clock.now()

    without, share, end = timeline(None)
    with_verifier, share_with, end_with = timeline(0.2)
    assert with_verifier == without
    assert share_with == share > 0
    assert end <= end_with <= end + 0.2 + 1e-9


def test_e5_the_utilisation_trace_is_exported(tmp_path: Path) -> None:
    engine = ScriptedEngine(numbers, latency=jitter(0.1, 1.0), max_concurrency=3)
    traced = TracedEngine(engine, capacity=3, now=engine.clock.now)

    async def collect() -> None:
        async for _ in run(growths(QUOTA, ["p", "q"]), traced):
            pass

    asyncio.run(collect())
    traced.save(tmp_path / "trace.csv")
    with (tmp_path / "trace.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(engine.log)
    assert {int(row["running"]) for row in rows} == {0, 1, 2, 3}
    assert max(int(row["waiting"]) for row in rows) > 0
    assert rows[-1]["running"] == rows[-1]["waiting"] == "0"
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds)
    assert 0.5 < traced.utilisation() <= 1
    # The trace and the engine's own log agree on every moment.
    for row in rows[::7]:
        at = float(row["seconds"])
        held = sum(e.submitted <= at and (e.ended or 0.0) > at for e in engine.log)
        assert int(row["running"]) <= min(3, held + 1)


def test_a_traced_engine_is_its_engine() -> None:
    engine = ScriptedEngine(numbers)
    traced = TracedEngine(engine)
    assert (traced.tokenizer, traced.eos_ids) == (engine.tokenizer, engine.eos_ids)
    assert traced.capabilities == engine.capabilities
    assert asyncio.run(traced.score((1, 2, 3), 1)) == [-1.0, -1.0]
    asyncio.run(traced.abort("nobody"))
    asyncio.run(traced.close())
    assert traced.utilisation() == 0.0
