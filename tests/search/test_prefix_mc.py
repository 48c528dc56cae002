"""Prefix Monte Carlo: counts of rollouts that start at the prefix, and of no others."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import dice_policy, ends_in_one, problems

from treerl.engines.base import Request
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.search.growth import Judges, run_sync
from treerl.search.prefix_mc import PrefixMC, PrefixMCConfig
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.treefile import tree_to_record

LINES = Sampling(steps=PlainSteps("\n"), max_tokens=200, verify_steps=False)
GIVEN = [["one", "two", "bad three", "four", "Answer: 0"]]


def estimate(
    policy=dice_policy, solutions: Any = None, engine: dict | None = None, **options: Any
) -> PrefixMC:
    config = PrefixMCConfig(**{"sampling": LINES, **options})
    growth = PrefixMC(problems(1)[0], ByteTokenizer(), config, solutions=solutions)
    run_sync([growth], ScriptedEngine(policy, **(engine or {})), Judges(reward=ends_in_one))
    return growth


def honest(request: Request) -> str:
    """Finish right unless the prefix holds a bad step."""
    return f"Answer: {int(b'bad' not in bytes(t for t in request.prompt_ids if t < 256))}"


def test_given_solutions_are_judged_prefix_by_prefix() -> None:
    tree = estimate(honest, GIVEN, rollouts=5).tree
    path = tree.path(tree.nodes[tree.root.meta["solutions"][0]])
    assert [n.text for n in path] == GIVEN[0]
    assert {n.kind for n in path} == {"given"}
    assert [(n.correct, n.total) for n in path] == [(5, 5), (5, 5), (0, 5), (0, 5), (0, 1)]
    assert bytes(tree.path_ids(path[-1])).decode() == "\n".join(GIVEN[0])


def test_until_first_zero_spends_nothing_behind_it() -> None:
    tree = estimate(honest, GIVEN, rollouts=5, until_first_zero=True).tree
    path = tree.path(tree.nodes[tree.root.meta["solutions"][0]])
    assert [(n.correct, n.total) for n in path] == [(5, 5), (5, 5), (0, 5), (0, 0), (0, 1)]
    assert tree.ledger.requests == 15


def test_sampled_solutions_and_the_empty_prefix() -> None:
    tree = estimate(rollouts=6, solutions=None, estimate_root=True).tree
    assert tree.root.total == 6
    (end,) = tree.root.meta["solutions"]
    for node in tree.path(tree.nodes[end]):
        assert node.total == (1 if node.is_leaf else 6)


def test_shared_prefixes_are_estimated_once() -> None:
    twins = [["one", "two", "Answer: 1"], ["one", "other", "Answer: 0"]]
    tree = estimate(honest, twins, rollouts=3).tree
    assert tree.ledger.requests == 3 * 3
    assert len(tree.root.meta["solutions"]) == 2


def test_a_prefix_that_fills_the_budget_is_a_record() -> None:
    short = Sampling(steps=PlainSteps("\n"), max_tokens=6, verify_steps=False)
    tree = estimate(honest, [["one", "two", "Answer: 1"]], rollouts=2, sampling=short).tree
    errors = [n.error for n in tree.nodes if n.error]
    assert len(errors) == 2
    assert "fills its budget of 6 tokens" in errors[0]


def test_arrival_order_leaves_no_trace_and_the_ledger_adds_up() -> None:
    first = estimate(rollouts=4).tree
    second = estimate(rollouts=4, engine={"latency": jitter(0.1, 5.0)}).tree
    assert tree_to_record(first) == tree_to_record(second)
    assert first.ledger.generated == first.kept_tokens() + first.ledger.discarded


@pytest.mark.parametrize("options", [{"rollouts": 0}, {"solutions": 0}])
def test_options_are_checked(options: dict) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PrefixMCConfig(**options)
