"""Quirks, mistakes, empty trees and huge ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from treerl.advantage import ESTIMATORS, Forest, NodeAdvantages, PathAdvantages, estimator
from treerl.arrays import TreeArrays


def build(
    parent: Sequence[int],
    reward: Sequence[float],
    *,
    tokens: Sequence[int] | None = None,
    multiplicity: Sequence[int] | None = None,
    group: str = "p",
) -> TreeArrays:
    """Return arrays in which every childless node is a leaf; rewards of inner nodes are unused."""
    n, inner = len(parent), set(parent)
    depth = [0] * n
    for i in range(1, n):
        depth[i] = depth[parent[i]] + 1
    is_leaf = np.array([i not in inner for i in range(n)])
    return TreeArrays(
        parent=np.array(parent, dtype=np.int64),
        depth=np.array(depth, dtype=np.int64),
        n_tokens=np.array([0, *(tokens or [2] * n)[1:]], dtype=np.int64),
        reward=np.where(is_leaf, reward, np.nan),
        is_leaf=is_leaf,
        logprob_sum=np.zeros(n),
        multiplicity=np.array(multiplicity or [1] * n, dtype=np.int64),
        group=group,
    )


def test_truncated_ids_lose_a_level_in_published_code() -> None:
    tree = build([-1, 0, 0, 1, 1, 3, 3], [0, 0, 0, 0, 1, 1, 0])
    sound, official = (
        [
            estimator("treepo", max_depth=k, dedup=True, parity=parity)(tree).values[0].tolist()
            for k in range(4)
        ]
        for parity in (None, "official")
    )
    assert official[1:] == sound[:3]
    assert official[1] == estimator("dr_grpo")(tree).values[0].tolist()
    assert sound[1] != sound[0]


def test_chains_count_once_unless_parity_is_asked_for() -> None:
    chain = build([-1, 0, 1, 2, 3, 3, 0], [0, 0, 0, 0, 1, 0, 0])
    short = build([-1, 0, 1, 1, 0], [0, 0, 1, 0, 0])
    same = estimator("treepo")
    assert same(chain).values[0] == pytest.approx(same(short).values[0])
    twice = estimator("treepo", parity="official")
    assert twice(chain).values[0] != pytest.approx(twice(short).values[0])


def test_mistakes_are_named() -> None:
    tree = build([-1, 0, 0], [0, 1, 0])
    with pytest.raises(ValueError, match="no estimator 'gpro'; did you mean 'grpo'"):
        estimator("gpro")
    with pytest.raises(ValueError, match="choose from"):
        estimator("zzz")
    with pytest.raises(TypeError, match=r"'treepo' has no option 'weight'; it has \['whiten', "):
        estimator("treepo", weight="size")
    for name, options in [
        ("treepo", {"weighting": "sum"}),
        ("grpo", {"std": "both"}),
        ("grpo", {"parity": "verl"}),
        ("omega", {"scale": "width"}),
        ("tree_grpo", {"trees": "all"}),
    ]:
        with pytest.raises(ValueError, match="does not exist; choose"):
            estimator(name, **options)(tree)
    with pytest.raises(ValueError, match=r"treerpo .* needs rewards in \[0, 1\]"):
        estimator("treerpo")(build([-1, 0, 0], [0, 1, -1]))
    with pytest.raises(ValueError, match="group 'p' has an infinite reward"):
        estimator("grpo")(build([-1, 0, 0], [0, np.inf, 0]))
    with pytest.raises(ValueError, match="depth must be"):
        estimator("grpo")(replace(tree, depth=np.zeros(3, dtype=np.int64)))
    with pytest.raises(ValueError, match="is_leaf has children"):
        estimator("grpo")(replace(build([-1, 0, 1], [0, 1, 1]), is_leaf=np.array([0, 1, 1]) > 0))
    with pytest.raises(ValueError, match="no trees"):
        estimator("grpo")([])
    with pytest.raises(ValueError, match="node 0 of tree 0 is no leaf"):
        estimator("spo_chain", trajectories=[0])(tree)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_trees_without_leaves_or_rewards(name: str) -> None:
    bare = build([-1], [0.0], group="bare")
    rootleaf = replace(bare, is_leaf=np.array([True]), group="prompt too long")
    blank = build([-1, 0, 0], [np.nan] * 3, group="blank")
    failed = build([-1, 0, 0], [0.0, 1.0, 0.0], multiplicity=[1, 0, 0], group="failed")
    unended = replace(build([-1, 0], [0.0, 0.0]), is_leaf=np.array([False, False]))
    bare = replace(bare, is_leaf=np.array([False]))
    batch = [bare, rootleaf, blank, failed, unended]
    for part in ([tree] for tree in batch):
        out = estimator(name)(part)
        assert not out.values[0].any()
    out = estimator(name)([*batch, build([-1, 0, 0], [0, 1, 0])])
    assert [len(m) for m in out.mask] == (
        [1, 1, 3, 3, 2, 3] if isinstance(out, NodeAdvantages) else [0, 1, 2, 2, 0, 2]
    )
    assert not any(values.any() for values in out.values[:5])


def test_every_estimator_says_what_it_is() -> None:
    for name, function in ESTIMATORS.items():
        doc = function.__doc__ or ""
        assert "ound" in doc, name  # sound or unsound
        assert "Source" in doc or name in ("omega", "omega_leaf", "treepo_repo_spo", "vineppo_loo")
        assert ("UNVERIFIED" in doc) == (name in ("treerpo", "tempo"))


# --- size -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def huge() -> TreeArrays:
    """100,000 nodes, a chain of 5,000 among them."""
    rng = np.random.default_rng(0)
    n, deep = 100_000, 5_000
    parent = np.concatenate([[-1], np.arange(deep), rng.integers(0, deep - 1, n - deep - 1)])
    depth = np.zeros(n, dtype=np.int64)
    depth[1 : deep + 1] = np.arange(1, deep + 1)
    depth[deep + 1 :] = depth[parent[deep + 1 :]] + 1
    is_leaf = np.arange(n) >= deep
    return TreeArrays(
        parent=parent,
        depth=depth,
        n_tokens=np.where(np.arange(n) > 0, 3, 0),
        reward=np.where(is_leaf, rng.integers(0, 2, n), np.nan),
        is_leaf=is_leaf,
        logprob_sum=np.zeros(n),
        multiplicity=np.ones(n, dtype=np.int64),
        group="huge",
    )


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"treepo_segment"}))
def test_a_deep_tree_of_100_000_nodes(name: str, huge: TreeArrays) -> None:
    out = estimator(name)(huge)
    assert not isinstance(out, PathAdvantages)
    values = out.values[0]
    assert np.isfinite(values).all()
    assert values.any()
    if name in ("spo_tree", "vineppo"):
        deepest = 5_000
        forest = Forest([huge])
        top = (forest.child_mean if name == "spo_tree" else forest.leaf_mean)[0]
        total = values[1 : deepest + 1].sum()
        assert total == pytest.approx(huge.reward[deepest] - forest.lowest[0] - top, abs=1e-9)


def test_a_number_for_every_leaf_and_segment_of_a_deep_tree() -> None:
    deep = 5_000
    parent = [-1, *range(deep), 0, deep // 2, deep - 1]
    out = estimator("treepo_segment")(build(parent, [0.0] * deep + [1.0, 0.0, 1.0, 0.0]))
    assert len(out.values[0]) == deep + 1 + (deep // 2 + 1) + deep
