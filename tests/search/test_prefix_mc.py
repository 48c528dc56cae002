"""Prefix Monte Carlo: counts of rollouts that start at the prefix, and of no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from worlds import dice_policy, ends_in_one, problems

from treerl.engines.base import Request
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.search.chain_values import chain_values, step_advantages
from treerl.search.growth import Judges, run_sync
from treerl.search.prefix_mc import PrefixMC, PrefixMCConfig
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.tree import Tree
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


@pytest.mark.parametrize("options", [{"rollouts": -1}, {"solutions": 0}])
def test_options_are_checked(options: dict) -> None:
    with pytest.raises(ValueError, match="rollouts >= 0"):
        PrefixMCConfig(**options)


def test_values_and_advantages_of_a_given_solution() -> None:
    tree = estimate(honest, GIVEN, rollouts=5, estimate_root=True).tree
    (chain,) = chain_values(tree)
    assert chain.values.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert chain.advantages.tolist() == [0.0, 0.0, -1.0, 0.0, 0.0]
    assert [tree.nodes[i].text for i in chain.nodes] == GIVEN[0]
    assert chain.reward == 0.0


def test_advantages_of_a_chain_sum_to_what_the_solution_gained() -> None:
    tree = estimate(rollouts=6, solutions=None, estimate_root=True).tree
    (chain,) = chain_values(tree)
    assert len(chain.values) == len(chain.nodes) + 1 == len(chain.advantages) + 1
    assert chain.values[0] == tree.root.mc
    leaf = tree.nodes[tree.root.meta["solutions"][0]]
    assert chain.reward == float(leaf.reward > 0.5)
    assert chain.advantages.sum() == pytest.approx(chain.reward - chain.values[0])


def test_prefixes_that_were_not_estimated_are_nan() -> None:
    tree = estimate(honest, GIVEN, rollouts=5, estimate_root=True, until_first_zero=True).tree
    (chain,) = chain_values(tree)
    assert chain.values[:4].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert np.isnan(chain.values[4])
    assert np.isnan(chain.advantages).tolist() == [False, False, False, True, True]


@pytest.mark.parametrize("name", ["vineppo_chain", "spo_chain"])
def test_step_advantages_are_the_published_ones(name: str) -> None:
    values, want = PUBLISHED[name]
    assert step_advantages(np.array(values)) == pytest.approx(want, abs=1e-12)


# VinePPO: V before each of four steps, reward 1 on the last one, V(terminal) = 0, hence V(s_T) = R.
# SPO-chain: the values at two cut points, then the reward.
PUBLISHED = {
    "vineppo_chain": ([0.5, 0.75, 0.25, 0.5, 1.0], [0.25, -0.5, 0.25, 0.5]),
    "spo_chain": ([0.25, 0.5, 1.0], [0.25, 0.5]),
}


def test_trees_without_values_are_refused_with_the_mend() -> None:
    with pytest.raises(ValueError, match="estimate_root=True"):
        chain_values(estimate(honest, GIVEN, rollouts=2).tree)
    with pytest.raises(ValueError, match="not grown by PrefixMC"):
        chain_values(Tree(problems(1)[0], (1,)))
