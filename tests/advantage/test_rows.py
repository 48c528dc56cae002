"""Rows: ids as generated, the right tokens trained, weights that add up."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.advantage import Row, estimator, expand, to_rows
from treerl.problem import Problem
from treerl.tree import Tree


def small(group: str = "p") -> Tree:
    """Root -> a(2 tokens) -> {b(1), c(3)}; root -> given(2) -> d(1): rewards 1, 0, 1."""
    tree = Tree(Problem.from_text(group, "?"), (1, 2, 3))
    a = tree.add(tree.root, (10, 11), (-0.1, -0.2))
    b = tree.add(a, (12,), (-0.3,), finish_reason="eos")
    c = tree.add(a, (13, 14, 15), (-0.4, -0.05, -0.6), finish_reason="eos")
    hint = tree.add(tree.root, (20, 21), kind="given")
    d = tree.add(hint, (22,), (-0.7,), finish_reason="eos")
    b.reward, c.reward, d.reward = 1.0, 0.0, 1.0
    return tree


def test_a_row_is_a_path() -> None:
    tree = small()
    rows = to_rows(tree, estimator("dr_grpo")(tree.arrays()))
    assert [row.leaf for row in rows] == [2, 3, 5]
    row = rows[1]
    assert (row.group, row.tree, row.reward, row.prompt_ids) == ("p", 0, 0.0, (1, 2, 3))
    assert row.token_ids.tolist() == [10, 11, 13, 14, 15]
    assert row.nodes.tolist() == [1, 1, 3, 3, 3]
    assert row.logprobs.tolist() == [-0.1, -0.2, -0.4, -0.05, -0.6]
    assert row.loss_mask.all()
    assert row.advantages == pytest.approx([-2 / 3] * 5)
    assert row.weights.tolist() == [1.0] * 5
    given_row = rows[2]  # what the policy did not write is never trained
    assert given_row.loss_mask.tolist() == [False, False, True]
    assert np.isnan(given_row.logprobs).tolist() == [True, True, False]
    assert given_row.advantages == pytest.approx([0, 0, 1 / 3])
    assert given_row.weights.tolist() == [0, 0, 1]


def test_node_advantages_stand_on_their_segments() -> None:
    tree = small()
    out = estimator("spo_tree")(tree.arrays())
    values = out.values[0]
    for row in to_rows(tree, out, weight="unique"):
        assert row.advantages.tolist() == np.where(row.loss_mask, values[row.nodes], 0).tolist()


def test_a_bonus_stands_on_the_first_token_of_a_branch() -> None:
    tree = small()
    out = estimator("tempo")(tree.arrays())
    grpo = to_rows(tree, estimator("grpo")(tree.arrays()))
    assert out.first_token is not None
    for row, plain in zip(to_rows(tree, out), grpo, strict=True):
        extra = row.advantages - plain.advantages
        first = np.r_[True, row.nodes[1:] != row.nodes[:-1]] & row.loss_mask
        assert extra[first] == pytest.approx(out.first_token[0][row.nodes[first]])
        assert not extra[~first].any()
    assert out.first_token[0].any()


def test_improbable_tokens_only() -> None:
    tree = small()
    rows = to_rows(tree, estimator("dr_grpo")(tree.arrays()), max_prob=0.9)
    assert rows[1].loss_mask.tolist() == [False, True, True, False, True]
    assert not rows[1].advantages[~rows[1].loss_mask].any()


def test_an_unscored_leaf_has_a_row_without_loss() -> None:
    tree = small()
    tree.nodes[3].reward = None
    for weight in ("leaf", "unique"):
        rows = to_rows(tree, estimator("dr_grpo")(tree.arrays()), weight=weight)
        assert np.isnan(rows[1].reward)
        assert not rows[1].loss_mask.any()
        assert not rows[1].weights.any()
    assert rows[0].weights.tolist() == [1, 1, 1]  # nobody to share with


def test_a_duplicate_weighs_double() -> None:
    tree = small()
    tree.nodes[2].multiplicity = 2
    out = estimator("dr_grpo")(tree.arrays())
    leaf, unique = (to_rows(tree, out, weight=w) for w in ("leaf", "unique"))
    assert leaf[0].weights.tolist() == [2, 2, 2]
    assert unique[0].weights == pytest.approx([2 / 3, 2 / 3, 1])
    assert unique[1].weights == pytest.approx([1 / 3, 1 / 3, 1, 1, 1])
    total = sum(float((row.weights * row.advantages).sum() / len(row.nodes)) for row in leaf[:2])
    assert total == pytest.approx(2 * 0.25 - 0.75)


def test_records_survive_json() -> None:
    tree = small()
    tree.nodes[3].reward = None
    rows = to_rows(tree, estimator("spo_tree")(tree.arrays()), weight="unique")
    records = [json.loads(json.dumps(row.to_record(), allow_nan=False)) for row in rows]
    assert records[0]["token_ids"] == [10, 11, 12]
    assert records[1]["reward"] is None
    assert records[2]["logprobs"] == [None, None, -0.7]
    assert set(records[0]) == set(Row.__slots__)


def test_advantages_of_other_trees_are_refused() -> None:
    tree = small()
    out = estimator("dr_grpo")(tree.arrays())
    with pytest.raises(ValueError, match="advantages of 1 trees for 2 trees"):
        to_rows([tree, tree], out)
    with pytest.raises(ValueError, match="does not exist; choose"):
        to_rows(tree, out, weight="token")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no_loss is for 2 trees"):
        to_rows(tree, out, no_loss=[(), ()])
    tree.add(tree.root, (9,), (-1.0,), finish_reason="eos")
    with pytest.raises(ValueError, match="has it grown since"):
        to_rows(tree, out)


NAMES: list[tuple[str, dict[str, Any]]] = [
    ("dr_grpo", {}),
    ("spo_tree", {}),
    ("tempo", {}),
    ("treepo_segment", {"eta": 0.9}),
    ("omega", {}),
    ("vineppo_chain", {}),
]


def random_tree(rng: np.random.Generator, group: str) -> Tree:
    tree = Tree(Problem.from_text(group, "?"), (1,))
    for _ in range(int(rng.integers(3, 20))):
        live = [node for node in tree.nodes if node.finish_reason is None]
        n = int(rng.integers(0, 4))
        node = tree.add(
            live[rng.integers(len(live))],
            tuple(rng.integers(0, 99, n).tolist()),
            tuple((-rng.random(n)).tolist()),
            kind="policy" if rng.random() < 0.9 else "environment",
            finish_reason="eos" if rng.random() < 0.5 else None,
        )
        if node.is_leaf:
            node.reward = None if rng.random() < 0.2 else float(rng.integers(0, 2))
            node.multiplicity = int(rng.integers(1, 4))
    return tree


@pytest.mark.parametrize(("name", "options"), NAMES, ids=[name for name, _ in NAMES])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_weights_add_up(name: str, options: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, group) for group in "aab"]
    out = estimator(name, **options)([tree.arrays() for tree in trees])
    for weight in ("leaf", "unique"):
        rows = to_rows(trees, out, weight=weight)
        assert [(r.tree, r.leaf) for r in rows] == [
            (i, leaf.index) for i, tree in enumerate(trees) for leaf in tree.leaves()
        ]
        total: dict[tuple[int, int, int], float] = {}
        for row in rows:
            tree = trees[row.tree]
            assert row.token_ids.tolist() == list(tree.path_ids(tree.nodes[row.leaf]))
            assert row.group == tree.problem.id
            assert not row.weights[~row.loss_mask].any()
            assert not row.advantages[~row.loss_mask].any()
            assert all(tree.nodes[n].kind == "policy" for n in row.nodes[row.loss_mask])
            starts = np.flatnonzero(np.r_[True, row.nodes[1:] != row.nodes[:-1]])
            inside = np.arange(len(row.nodes))
            if len(inside):
                inside = inside - np.maximum.accumulate(
                    np.where(np.isin(inside, starts), inside, 0)
                )
            for n, k, w, m in zip(row.nodes, inside, row.weights, row.loss_mask, strict=True):
                if m:
                    key = (row.tree, int(n), int(k))
                    total[key] = total.get(key, 0.0) + w
                    if weight == "leaf":
                        assert w == tree.nodes[row.leaf].multiplicity
        if weight == "unique":
            assert all(value == pytest.approx(1) for value in total.values())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_expand_agrees_with_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, group) for group in "aab"]
    arrays = [tree.arrays() for tree in trees]
    for name, options in NAMES:
        out = estimator(name, **options)(arrays)
        rows = to_rows(trees, out)
        values, starts = expand(arrays, out)
        assert len(starts) == len(rows) + 1
        for row, a, b in zip(rows, starts[:-1], starts[1:], strict=True):
            wrote = [trees[row.tree].nodes[n].kind == "policy" for n in row.nodes]
            assert values[a:b].tolist() == row.advantages[wrote].tolist()


def test_unbiased_weights_survive_the_rows() -> None:
    """ω on unique tokens and ω on leaf rows give a shared token weights of one expectation."""
    tree = small()
    arrays = tree.arrays()
    for name, weight in (("omega", "unique"), ("omega_leaf", "leaf")):
        rows = to_rows(tree, estimator(name)(arrays), weight=weight)  # type: ignore[arg-type]
        shared = sum(float(row.weights[0] * row.advantages[0]) for row in rows[:2])
        # Half of the prompt's weight, value 1/2 against the other first segment's 1, 3 leaves.
        assert shared == pytest.approx(3 * 0.5 * (0.5 - 1.0))
