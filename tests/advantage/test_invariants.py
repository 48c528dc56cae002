"""What must hold on every tree, for every estimator."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.advantage import (
    ESTIMATORS,
    Advantages,
    Forest,
    LeafAdvantages,
    NodeAdvantages,
    estimator,
    expand,
)
from treerl.arrays import FloatArray, TreeArrays

CHAINS = ("spo_chain", "vineppo_chain")  # they train one trajectory, by default the first leaf
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in sorted(ESTIMATORS) if name not in CHAINS),
    ("grpo", {"std": "population"}),
    ("treepo", {"weighting": "size", "reject": True, "dedup": False}),
    ("treepo", {"root": False}),
    ("treepo_segment", {"eta": 0.9}),
    ("treerl", {"form": "code"}),
    ("spo_tree", {"norm": "grpo"}),
    ("tree_grpo", {"mode": "2norm"}),
    ("treerpo", {"normaliser": "std"}),
    ("gigpo", {"gamma": 1.0, "std": "unbiased"}),
    ("vineppo", {"whiten": True}),
]
IDS = [name + "".join(f"-{k}={v}" for k, v in options.items()) for name, options in VARIANTS]
every = pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)


def plain_module() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "advantages.py"
    spec = importlib.util.spec_from_file_location("plain_advantages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PLAIN = plain_module()
SEEDS = st.integers(0, 2**32)


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


@st.composite
def trees(
    draw: st.DrawFn, *, rewards: Sequence[float] = (0.0, 1.0), least: int = 2, group: str = "p"
) -> TreeArrays:
    """Trees of at least ``least`` leaves, up to 6 deep, up to 5 children a node."""
    # One draw for the size and one for the rest: a draw a node would cost most of the time.
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    parent, depth, kids = [-1], [0], [0]
    for _ in range(draw(st.integers(1, 24))):
        open_nodes = [i for i in range(len(parent)) if depth[i] < 6 and kids[i] < 5]
        p = int(rng.choice(open_nodes))
        parent.append(p)
        depth.append(depth[p] + 1)
        kids[p] += 1
        kids.append(0)
    while len(set(range(len(parent))) - set(parent)) < least:
        parent.append(0)
    n = len(parent)
    reward = rng.choice(rewards, n).tolist()
    return build(parent, reward, tokens=rng.integers(1, 10, n).tolist(), group=group)


def per_segment(tree: TreeArrays, out: Advantages, index: int = 0) -> dict[int, list[float]]:
    """Return, for each leaf, the advantage on every segment of its path (one token each)."""
    one = replace(tree, n_tokens=np.where(np.arange(len(tree.parent)) > 0, 1, 0))
    values, starts = expand(one, out, index)
    parts = np.split(values, starts[1:-1])
    return {leaf: p.tolist() for leaf, p in zip(tree.leaves.tolist(), parts, strict=True)}


def close(got: dict[int, list[float]], want: dict[int, list[float]]) -> None:
    assert got.keys() == want.keys()
    for leaf in want:
        assert got[leaf] == pytest.approx(want[leaf], abs=1e-7)


# --- against the formulas written down plainly ----------------------------------------------------


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@settings(max_examples=25, deadline=None)
@given(tree=trees())
def test_equals_the_plain_formula(name: str, tree: TreeArrays) -> None:
    plain = PLAIN.Plain(tree)
    want = PLAIN.PLAIN[name](plain)
    out = estimator(name)(tree)
    if name == "tempo":
        assert isinstance(out, LeafAdvantages)
        out = replace(out, first_token=None)
    if name == "dapo" and not any(m.any() for m in out.mask):
        want = {leaf: [0.0] * len(row) for leaf, row in want.items()}
    if name not in CHAINS:
        close(per_segment(tree, out), want)
        return
    # Only the trajectory's row is trained; the others share its first segments but not its loss.
    leaf = int(tree.leaves[0])
    got = per_segment(tree, out)
    assert got[leaf] == pytest.approx(want[leaf], abs=1e-7)
    assert not any(any(row) for other, row in got.items() if other != leaf)


# --- order, duplicates, unknown rewards, batches --------------------------------------------------


@every
@settings(max_examples=25, deadline=None)
@given(tree=trees(), seed=SEEDS)
def test_the_order_of_siblings_does_not_matter(
    name: str, options: dict[str, Any], tree: TreeArrays, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    order = [0]  # another creation order in which parents still come first
    waiting = np.flatnonzero(tree.parent == 0).tolist()
    while waiting:
        node = waiting.pop(rng.integers(len(waiting)))
        order.append(node)
        waiting += np.flatnonzero(tree.parent == node).tolist()
    place = {old: new for new, old in enumerate(order)}
    other = build(
        [-1] + [place[int(tree.parent[old])] for old in order[1:]],
        tree.reward[order].tolist(),
        tokens=tree.n_tokens[order].tolist(),
    )
    got = per_segment(other, estimator(name, **options)(other))
    want = per_segment(tree, estimator(name, **options)(tree))
    close(got, {place[leaf]: row for leaf, row in want.items()})


# Whitening of node values goes over unique tokens, of which a folded tree has fewer.
@pytest.mark.parametrize(("name", "options"), VARIANTS[:-1], ids=IDS[:-1])
@settings(max_examples=25, deadline=None)
@given(tree=trees(), seed=SEEDS)
def test_a_duplicate_counts_as_two_samples(
    name: str, options: dict[str, Any], tree: TreeArrays, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    times = [1] * len(tree.parent)
    parent, reward = tree.parent.tolist(), tree.reward.tolist()
    tokens = tree.n_tokens.tolist()
    for leaf in tree.leaves.tolist():
        times[leaf] = int(rng.integers(1, 4))
        for _ in range(times[leaf] - 1):
            parent.append(tree.parent[leaf])
            reward.append(tree.reward[leaf])
            tokens.append(tree.n_tokens[leaf])
    folded = replace(tree, multiplicity=np.array(times))
    unfolded = build(parent, reward, tokens=tokens)
    got = per_segment(folded, estimator(name, **options)(folded))
    want = per_segment(unfolded, estimator(name, **options)(unfolded))
    for leaf in got:
        if name == "omega":  # its value carries all samples that the one segment stands for
            want[leaf][-1] *= times[leaf]
        if name in ("treerl", "vineppo_loo"):  # |L(n)| of the folded leaf is its samples
            want[leaf][-1] = got[leaf][-1]
    close(got, {leaf: want[leaf] for leaf in got})


@every
@settings(max_examples=25, deadline=None)
@given(tree=trees(least=3), seed=SEEDS)
def test_an_unscored_leaf_is_as_if_it_were_not_there(
    name: str, options: dict[str, Any], tree: TreeArrays, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    lost = set(rng.choice(tree.leaves, rng.integers(1, len(tree.leaves) + 1), replace=False))
    reward = tree.reward.copy()
    reward[list(lost)] = np.nan
    holed = replace(tree, reward=reward)
    out = estimator(name, **options)(holed)
    rows = per_segment(holed, out)
    assert not any(any(rows[leaf]) for leaf in lost)
    assert out.groups[0].unscored == len(lost)
    keep = set()
    for leaf in set(tree.leaves.tolist()) - lost:
        node = leaf
        while node >= 0:
            keep.add(node)
            node = int(tree.parent[node])
    if not keep:
        assert out.groups[0].alone
        return
    order = sorted(keep)
    place = {old: new for new, old in enumerate(order)}
    pruned = build(
        [-1] + [place[int(tree.parent[old])] for old in order[1:]],
        tree.reward[order].tolist(),
        tokens=tree.n_tokens[order].tolist(),
    )
    want = per_segment(pruned, estimator(name, **options)(pruned))
    close({place[k]: v for k, v in rows.items() if k not in lost}, want)


@every
@settings(max_examples=25, deadline=None)
@given(
    batch=st.lists(st.sampled_from("abc").flatmap(lambda g: trees(group=g)), min_size=2, max_size=5)
)
def test_only_the_id_makes_a_group(
    name: str, options: dict[str, Any], batch: list[TreeArrays]
) -> None:
    options = {**options, "whiten": False}
    out = estimator(name, **options)(batch)
    for group in {tree.group for tree in batch}:
        places = [i for i, tree in enumerate(batch) if tree.group == group]
        alone = estimator(name, **options)([batch[i] for i in places])
        (report,) = (r for r in out.groups if r.group == group)
        assert report.trees == tuple(places)
        for k, i in enumerate(places):
            close(per_segment(batch[i], out, i), per_segment(batch[i], alone, k))


@settings(max_examples=25, deadline=None)
@given(tree=trees(), seed=SEEDS)
def test_trees_of_one_problem_are_one_tree(tree: TreeArrays, seed: int) -> None:
    """The root is the prompt: branches may be spread over several trees."""
    first = [i for i in range(1, len(tree.parent)) if tree.parent[i] == 0]
    rng = np.random.default_rng(seed)
    side = {node: bool(rng.integers(2)) for node in first}
    home = [False] * len(tree.parent)
    for i in range(1, len(tree.parent)):
        home[i] = side[i] if tree.parent[i] == 0 else home[tree.parent[i]]
    parts, places = [], []
    for which in (False, True):
        nodes = [0] + [i for i in range(1, len(tree.parent)) if home[i] == which]
        place = {old: new for new, old in enumerate(nodes)}
        parent = [-1] + [place[int(tree.parent[old])] for old in nodes[1:]]
        if len(nodes) == 1:
            continue
        parts.append(build(parent, tree.reward[nodes].tolist()))
        places.append(place)
    for name in ("treepo", "omega", "treerl", "spo_tree", "tree_grpo"):
        want = per_segment(tree, estimator(name)(tree))
        out = estimator(name)(parts)
        for i, (part, place) in enumerate(zip(parts, places, strict=True)):
            old = {new: o for o, new in place.items()}
            got = {old[leaf]: row for leaf, row in per_segment(part, out, i).items()}
            close(got, {leaf: want[leaf] for leaf in got})


# --- equal rewards, lone samples ------------------------------------------------------------------

LEVEL = [v for v in zip(VARIANTS, IDS, strict=True) if v[0][0] not in ("treepo_repo_spo",)]


@pytest.mark.parametrize("reward", [0.1, 1 / 3, -7.7, 1e9 + 0.1])
@pytest.mark.parametrize(("variant", "_id"), LEVEL, ids=[i for _, i in LEVEL])
def test_equal_rewards_give_exactly_nothing(
    variant: tuple[str, dict[str, Any]], _id: str, reward: float
) -> None:
    name, options = variant
    if name == "treerpo" and not 0 <= reward <= 1:
        options = {"normaliser": "none"}
    if name == "gigpo":
        options = {"gamma": 1.0, **options}
    star = build([-1] + [0] * 8, [reward] * 9)
    bushy = build([-1, 0, 0, 1, 1, 1, 2, 2, 3, 3, 7, 0], [reward] * 12)
    for tree in (star, bushy):
        for whiten in (False, True):
            if name == "reinforce_pp" and not whiten:
                continue  # without whitening it is the raw reward
            out = estimator(name, **{**options, "whiten": whiten})(tree)
            assert all(np.all(values == 0) for values in out.values)
            assert out.groups[0].uniform


@every
def test_a_group_of_one_is_reported_and_gets_nothing(name: str, options: dict[str, Any]) -> None:
    out = estimator(name, **{**options, "whiten": False})(
        [build([-1, 0, 1], [0.0, 0.0, 1.0], group="lone"), build([-1, 0, 0], [0, 1, 0], group="b")]
    )
    assert out.alone == ("lone",)
    if name not in ("reinforce_pp", "treepo_repo_spo", "treepo_segment"):
        assert not out.values[0].any()
        assert not out.mask[0].any()


@pytest.mark.parametrize(
    "name", ["grpo", "dr_grpo", "rloo", "treepo", "reinforce_pp_baseline", "dapo", "tempo"]
)
def test_published_code_trains_a_group_of_one_on_its_raw_reward(name: str) -> None:
    tree = build([-1, 0, 1], [0.0, 0.0, 0.7])
    out = estimator(name, parity="official", whiten=False)(tree)
    assert out.values[0].tolist() == pytest.approx([0.7], abs=1e-5)
    assert out.mask[0].all()


# --- sums -----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(tree=trees(rewards=(-1.0, 0.0, 0.25, 1.0)))
def test_identities(tree: TreeArrays) -> None:
    """Sums to zero, telescoping differences, and what a shared token is really trained with."""
    forest = Forest([tree])
    to_tree = forest.split_nodes
    size = to_tree(forest.leaves_below)[0]
    mean, child = to_tree(forest.leaf_mean)[0], to_tree(forest.child_mean)[0]
    size[0], mean[0], child[0] = (
        x[0] for x in (forest.leaves_below, forest.leaf_mean, forest.child_mean)
    )
    low = forest.lowest[0]
    n, up, leaves = len(tree.leaves), tree.parent, tree.leaves.tolist()

    def value(name: str, **options: Any) -> FloatArray:
        return estimator(name, **options)(tree).values[0]

    def path(leaf: int) -> list[int]:
        out = []
        while leaf > 0:
            out.append(leaf)
            leaf = int(up[leaf])
        return out

    centred, rloo = value("dr_grpo"), value("rloo")
    assert rloo == pytest.approx(n / (n - 1) * centred)
    assert rloo.sum() == pytest.approx(0, abs=1e-9)
    effective = np.zeros(len(up))
    for leaf, a in zip(leaves, centred, strict=True):
        effective[path(leaf)] += a
    inner = np.arange(1, len(up))
    assert effective[inner] == pytest.approx((size * (mean - mean[0]))[inner], abs=1e-9)
    vine, spo = value("vineppo"), value("spo_tree")
    weights = tree.weights()
    for leaf in leaves:
        reward = tree.reward[leaf] - low
        assert vine[path(leaf)].sum() == pytest.approx(reward - mean[0], abs=1e-9)
        assert spo[path(leaf)].sum() == pytest.approx(reward - child[0], abs=1e-9)
    for node in set(up[1:].tolist()):
        assert spo[up == node].sum() == pytest.approx(0, abs=1e-9)
    assert weights[leaves].sum() == pytest.approx(1)
    assert (weights[leaves] * tree.reward[leaves]).sum() == pytest.approx(child[0] + low)
    loo = value("vineppo_loo")
    assert vine[inner] == pytest.approx(((1 - size / size[up]) * loo)[inner], abs=1e-9)
    # The ω form sums to zero over the children of every node that has several.
    omega = value("omega")
    for node in set(up[1:].tolist()):
        if (up == node).sum() > 1:
            assert omega[up == node].sum() == pytest.approx(0, abs=1e-9)
    assert value("omega_leaf").sum() == pytest.approx(0, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(rewards=st.lists(st.floats(-2, 2), min_size=2, max_size=9))
def test_on_flat_samples_the_tree_forms_are_the_flat_ones(rewards: list[float]) -> None:
    star = build([-1] + [0] * len(rewards), [0.0, *rewards])
    for tree_form, flat_form in [
        ("omega_leaf", "rloo"),
        ("treepo", "dr_grpo"),
    ]:
        got, want = estimator(tree_form)(star), estimator(flat_form)(star)
        assert got.values[0] == pytest.approx(want.values[0], abs=1e-9)
    rloo = estimator("rloo")(star).values[0]
    for name in ("omega", "vineppo_loo"):
        assert estimator(name)(star).values[0][1:] == pytest.approx(rloo, abs=1e-9)


def test_whitened_values_have_mean_zero_and_variance_one_over_tokens() -> None:
    batch = [
        build([-1, 0, 0, 1, 1], [0, 0, 1, 0, 1], tokens=[0, 3, 5, 2, 8], group="a"),
        build([-1, 0, 0, 0], [0, 1, 1, 0], tokens=[0, 9, 1, 4], group="b"),
    ]
    for name in ("treepo", "reinforce_pp", "treepo_segment"):
        out = estimator(name, whiten=True)(batch)
        values, _ = expand(batch, out)
        assert values.mean() == pytest.approx(0, abs=1e-9)
        assert values.var(ddof=1) == pytest.approx(1, abs=1e-6)
    out = estimator("vineppo", whiten=True)(batch)
    assert isinstance(out, NodeAdvantages)
    unique = np.concatenate(
        [np.repeat(v, t.n_tokens) for v, t in zip(out.values, batch, strict=True)]
    )
    assert unique.mean() == pytest.approx(0, abs=1e-9)
    assert unique.var(ddof=1) == pytest.approx(1, abs=1e-6)
