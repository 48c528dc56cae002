"""ReST-MCTS*: value targets against the oracle and on trees, and the search set up like it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import dice_policy, ends_in_one, problems

from treerl.config import to_jsonable
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine
from treerl.problem import Problem
from treerl.search.growth import Judges, run_sync
from treerl.search.mcts import MCTS, MCTSConfig
from treerl.search.restmcts import (
    ValueTarget,
    restmcts_config,
    value_targets,
    value_targets_of_tree,
)
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.tree import Tree
from treerl.treefile import tree_from_record, tree_to_record

ORACLE = Path(__file__).parents[1] / "data" / "groundedprm_oracle.json"
CASES = {case["name"]: case for case in json.loads(ORACLE.read_text())["cases"]}
LINES = Sampling(steps=PlainSteps("\n"), max_tokens=200, verify_steps=False)


@pytest.mark.parametrize("row", CASES["restmcts.value_targets"]["rows"])
def test_value_targets(row: dict[str, Any]) -> None:
    got = value_targets(row["m"], row["he"])
    assert got == pytest.approx([float(Fraction(v)) for v in row["v_exact"]], abs=1e-12)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=12))
def test_value_targets_stay_in_the_unit_interval(path: list[tuple[int, bool]]) -> None:
    values = value_targets([m for m, _ in path], [right for _, right in path])
    assert all(0 <= v <= 1 for v in values)


def test_a_step_is_at_least_one_step_from_the_answer() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        value_targets([0], [True])


def grow(*paths: tuple[str, float | None]) -> Tree:
    """Return a tree of paths written as letters, each with the reward of its end."""
    tree = Tree(Problem.from_text("o", "?"), (1,))
    for path, reward in paths:
        node = tree.root
        for i, letter in enumerate(path):
            last = i == len(path) - 1
            found = next((c for c in node.children if c.text == letter), None)
            if found is None:
                finish = "eos" if last else None
                found = tree.add(node, (ord(letter),), finish_reason=finish, text=letter)
            node = found
        node.reward = reward
    return tree


def by_path(tree: Tree) -> dict[str, ValueTarget]:
    targets = value_targets_of_tree(tree)
    return {"".join(n.text or "" for n in tree.path(tree.nodes[i])): t for i, t in targets.items()}


def test_targets_of_a_tree_follow_the_nearest_right_answer() -> None:
    got = by_path(grow(("abc", 1.0), ("ax", 0.0), ("ay", None), ("pq", 0.0)))
    third = 1 / 3
    want = {
        "a": (third, True),
        "ab": (2 * third, True),
        "abc": (1.0, True),
        "ax": (0.0, False),  # m of a is 3: 1/3 - (2/3)/3 = 1/9
        "p": (0.0, False),
        "pq": (0.0, False),
    }
    want["ax"] = (1 / 9, False)
    assert {k: (pytest.approx(t.value), t.reaches) for k, t in got.items()} == want


def test_of_two_right_answers_the_nearer_one_counts() -> None:
    got = by_path(grow(("abcd", 1.0), ("ab2"[:2] + "z", 1.0)))
    assert got["a"].value == pytest.approx(1 / 3)


def test_a_tree_without_a_right_answer_has_no_targets() -> None:
    assert value_targets_of_tree(grow(("ab", 0.0))) == {}
    assert value_targets_of_tree(Tree(Problem.from_text("o", "?"), (1,))) == {}


def search(config: MCTSConfig, seed: int = 0) -> Tree:
    from treerl.tree import RunInfo

    growth = MCTS(problems(1)[0], ByteTokenizer(), config, run=RunInfo(seed=seed, sampler="mcts"))
    run_sync([growth], ScriptedEngine(dice_policy), Judges(reward=ends_in_one))
    return growth.tree


def test_a_whole_search_has_targets_and_survives_saving() -> None:
    tree = search(restmcts_config(simulations=24, sampling=LINES))
    targets = value_targets_of_tree(tree)
    assert targets
    for index, target in targets.items():
        node = tree.nodes[index]
        assert target.reaches == any(
            leaf.reward == 1.0 and node in tree.path(leaf) for leaf in tree.leaves()
        )
        if node.is_leaf and node.reward == 1.0:
            assert target.value == 1.0
    assert value_targets_of_tree(tree_from_record(tree_to_record(tree))) == targets


def test_each_selection_is_a_search_of_its_own_and_stands_in_the_manifest() -> None:
    shapes = {}
    for selection in ("uct", "uct_published", "puct", "restmcts"):
        config = MCTSConfig(simulations=40, selection=selection, sampling=LINES)
        assert to_jsonable(config)["selection"] == selection
        shapes[selection] = [n.visits for n in search(config).nodes]
    assert len({tuple(s) for s in shapes.values()}) == 4


def test_priors_change_what_puct_visits() -> None:
    def visits(prior: str) -> list[int]:
        config = MCTSConfig(simulations=40, selection="puct", prior=prior, sampling=LINES)
        return [n.visits for n in search(config).nodes]

    assert visits("multiplicity") != visits("uniform")


@pytest.mark.parametrize("field", ["selection", "prior"])
def test_unknown_names_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"MCTSConfig.{field} is one of .*, got 'magic'"):
        MCTSConfig(**{field: "magic"})
