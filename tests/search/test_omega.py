"""OmegaPRM against the numeric oracle, and its rules."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import dice_policy, ends_in_one, problems

from treerl.engines.base import Request
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.search.growth import Judges, run_sync
from treerl.search.omega import BinarySearch, OmegaPRM, OmegaPRMConfig, omega_q, omega_u
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.tree import RunInfo
from treerl.treefile import tree_to_record

ORACLE = Path(__file__).parents[1] / "data" / "groundedprm_oracle.json"
CASES = {case["name"]: case for case in json.loads(ORACLE.read_text())["cases"]}
SEARCHES = [name for name in CASES if name.startswith("omegaprm.binary_search")]
LINES = Sampling(steps=PlainSteps("\n"), max_tokens=200, verify_steps=False)


def test_scores_and_two_successive_picks() -> None:
    case = CASES["omegaprm.select"]
    visits = dict(case["N_before"])
    pool = list(case["pool"])
    for turn in ("first", "second"):
        total = sum(visits.values())
        assert total == case[turn]["total_N"]
        scores = {}
        for state, rollout, length in pool:
            q = omega_q(case["states"][state]["MC"], length)
            u = omega_u(total, visits[state])
            want = case[turn]["scores"][rollout]
            assert q == pytest.approx(want["Q"], abs=1e-12)
            assert u == pytest.approx(want["U"], abs=1e-12)
            scores[rollout] = q + u
        pick = max(scores, key=scores.__getitem__)
        assert pick == case[turn]["pick"]
        state = next(s for s, r, _ in pool if r == pick)
        visits[state] += 1
        pool = [entry for entry in pool if entry[1] != pick]


@pytest.mark.parametrize("name", SEARCHES)
def test_binary_searches(name: str) -> None:
    case = CASES[name]
    search, visited = BinarySearch(case["steps"]), []
    while search.probe is not None:
        probe = search.probe
        reachable = probe <= case["true_first_error"]
        visited.append({"prefix": probe, "go": "right" if reachable else "left"})
        search.tell(reachable)
    assert visited == [{"prefix": v["prefix"], "go": v["go"]} for v in case["visited"]]
    assert search.first_error == case["found"]
    assert len(visited) * case["k"] == case["rollouts_used"]
    assert len(visited) <= case["max_probes"]


@pytest.mark.parametrize("row", CASES["omegaprm.openr_probe_order"]["rows"])
def test_the_probe_order_of_openr(row: dict[str, Any]) -> None:
    search, probes = BinarySearch(row["steps"], trust_outcome=False), []
    while search.probe is not None:
        reachable = search.probe <= row["err"]
        probes.append([search.probe - 1, "MC>0" if reachable else "MC=0"])  # it counts steps from 0
        search.tell(reachable)
    assert probes == row["probes"]
    assert search.first_error == row["first_error"]


@given(st.integers(1, 200), st.data())
def test_the_first_error_is_always_found_within_log2_probes(steps: int, data: Any) -> None:
    error = data.draw(st.integers(0, steps - 1))
    search, probes = BinarySearch(steps), 0
    while search.probe is not None:
        search.tell(search.probe <= error)
        probes += 1
    assert search.first_error == error
    assert probes <= max(steps - 1, 0).bit_length()


def search(
    policy=dice_policy, seed: int = 0, engine: dict | None = None, **options: Any
) -> OmegaPRM:
    config = OmegaPRMConfig(sampling=LINES, **options)
    (problem,) = problems(1)
    growth = OmegaPRM(problem, ByteTokenizer(), config, run=RunInfo(seed=seed))
    run_sync([growth], ScriptedEngine(policy, **(engine or {})), Judges(reward=ends_in_one))
    return growth


def faulty_policy(request: Request) -> str:
    """Write good steps, with one bad one now and then; the answer is right if none is bad."""
    rng = random.Random(request.seed)
    text = bytes(t for t in request.prompt_ids if t < 256).decode()
    so_far = text.count("good") + text.count("bad")
    bad = "bad" in text
    lines = []
    for i in range(so_far, 6):
        bad_now = rng.random() < 0.12
        bad = bad or bad_now
        lines.append(f"{'bad' if bad_now else 'good'} {i}")
    return "\n".join([*lines, f"Answer: {int(not bad)}"])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_in_a_world_without_luck_the_found_step_is_the_first_bad_one(seed: int) -> None:
    growth = search(faulty_policy, seed, rollouts=24, rollout_budget=2000)
    for path in growth.searches:
        texts = [node.text or "" for node in growth.tree.path(path[-1])]
        assert "bad" in texts[-1]
        assert not any("bad" in text for text in texts[:-1])


def test_no_rollout_is_searched_twice() -> None:
    growth = search(rollouts=6, searches=50, rollout_budget=500)
    ends = [tuple(growth.tree.path_ids(path[-1])) for path in growth.searches]
    assert growth.searches
    assert len(growth.searches) <= 50
    assert all(path for path in growth.searches)
    assert len(ends) == len(growth.searches)


def test_budgets_hold() -> None:
    growth = search(rollouts=4, searches=3, rollout_budget=30)
    assert len(growth.searches) <= 3
    assert growth.tree.ledger.requests <= 30


def test_an_always_right_or_always_wrong_problem_needs_no_search() -> None:
    for answer in (0, 1):
        growth = search(lambda r, a=answer: f"x\nAnswer: {a}")
        assert growth.done
        assert growth.searches == []
        assert growth.tree.root.total == 8
        assert growth.tree.root.correct == 8 * answer


def test_arrival_order_leaves_no_trace_and_the_ledger_adds_up() -> None:
    first, second = search(), search(engine={"latency": jitter(0.1, 5.0)})
    assert tree_to_record(first.tree) == tree_to_record(second.tree)
    ledger = first.tree.ledger
    assert ledger.generated == first.tree.kept_tokens() + ledger.discarded
    for node in first.tree.nodes:
        assert node.visits == node.own + sum(child.visits for child in node.children)
