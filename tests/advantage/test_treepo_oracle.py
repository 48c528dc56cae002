"""Every estimator against numbers that other code worked out from the definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treerl.advantage import (
    Forest,
    LeafAdvantages,
    NodeAdvantages,
    PathAdvantages,
    dapo_filter,
    drop_leaves,
    estimator,
    overlong_penalty,
    spo_cut_points,
    to_rows,
)
from treerl.arrays import TreeArrays
from treerl.problem import Problem
from treerl.tree import Tree

DATA = Path(__file__).resolve().parents[1] / "data"
ORACLE: dict[str, Any] = json.loads((DATA / "treepo_oracle.json").read_text())
TREES = sorted(ORACLE["trees"])
CLOSE = {"rel": 0, "abs": 2e-6}  # the file is rounded to six decimals
OFFICIAL = {"parity": "official"}


def load(uid: str) -> TreeArrays:
    tree = ORACLE["trees"][uid]["tree"]
    n = len(tree["parent"])
    inner = set(tree["parent"])
    return TreeArrays(
        parent=np.array(tree["parent"]),
        depth=np.array(tree["depth"]),
        n_tokens=np.array(tree["tokens"]),
        reward=np.array([np.nan if r is None else r for r in tree["reward"]]),
        is_leaf=np.array([i not in inner for i in range(n)]),
        logprob_sum=np.zeros(n),
        multiplicity=np.ones(n, dtype=np.int64),
        group=uid,
    )


def answer(tree: TreeArrays, name: str, **options: Any) -> dict[str, Any]:
    """Return an estimator's numbers in the oracle's layout."""
    out = estimator(name, **options)(tree)
    if isinstance(out, NodeAdvantages):
        return {str(i): v for i, v in enumerate(out.values[0].tolist()) if i}
    leaves = tree.leaves.tolist()
    if isinstance(out, PathAdvantages):
        parts = np.split(out.values[0], np.cumsum(tree.depth[leaves])[:-1])
        return {str(leaf): part.tolist() for leaf, part in zip(leaves, parts, strict=True)}
    table = {str(leaf): v for leaf, v in zip(leaves, out.values[0].tolist(), strict=True)}
    if out.first_token is None:
        return table
    first = {str(i): v for i, v in enumerate(out.first_token[0].tolist()) if i}
    return {"leaf": table, "first_token_bonus": first}


ESTIMATES: dict[str, tuple[str, dict[str, Any]]] = {
    "leaf/grpo": ("grpo", OFFICIAL),
    "leaf/grpo_no_std (Dr.GRPO)": ("dr_grpo", OFFICIAL),
    "leaf/rloo": ("rloo", OFFICIAL),
    "leaf/treepo_average (Eq.5, before whitening)": ("treepo", OFFICIAL),
    "leaf/treepo_size (Eq.6)": ("treepo", {"weighting": "size", **OFFICIAL}),
    "leaf/treepo_size_reject (Eq.7)": (
        "treepo",
        {"weighting": "size", "reject": True, **OFFICIAL},
    ),
    "leaf/treepo_average_reject": ("treepo", {"reject": True, **OFFICIAL}),
    "leaf/treepo_average_no_root": ("treepo", {"root": False, **OFFICIAL}),
    "leaf/treepo_size_no_root": ("treepo", {"weighting": "size", "root": False, **OFFICIAL}),
    "leaf/treepo_average_dedup (extension)": ("treepo", {"dedup": True, **OFFICIAL}),
    "leaf/tree_grpo inter+intra": ("tree_grpo", OFFICIAL),
    "leaf/tree_grpo intra": ("tree_grpo", {"mode": "intra", **OFFICIAL}),
    "leaf/tree_grpo 2norm": ("tree_grpo", {"mode": "2norm", **OFFICIAL}),
    "node/treerl_paper": ("treerl", {}),
    "node/treerl_code": ("treerl", {"form": "code"}),
    "node/spo_tree_rloo": ("spo_tree", {}),
    "node/spo_tree_grpo": ("spo_tree", {"norm": "grpo"}),
    "node/vineppo (leaf mean)": ("vineppo", {}),
    "node/vineppo_loo (extension)": ("vineppo_loo", {}),
    "node/treerpo_none": ("treerpo", {"normaliser": "none"}),
    "node/treerpo_std": ("treerpo", {"normaliser": "std"}),
    "node/treerpo_bernoulli": ("treerpo", {}),
    "mixed/tempo": ("tempo", OFFICIAL),
    "segment/treepo_segment eta=-1": ("treepo_segment", {}),
    "segment/treepo_segment eta=0.9": ("treepo_segment", {"eta": 0.9}),
    "node/treepo_repo_spo": ("treepo_repo_spo", {}),
}


def below(tree: TreeArrays, leaf_values: list[float]) -> tuple[dict[str, float], dict[str, float]]:
    """Return sum and mean over the leaves below each node, climbing from every leaf."""
    sums, counts = np.zeros(len(tree.parent)), np.zeros(len(tree.parent))
    for leaf, value in zip(tree.leaves.tolist(), leaf_values, strict=True):
        node = leaf
        while node > 0:
            sums[node] += value
            counts[node] += 1
            node = int(tree.parent[node])
    nodes = range(1, len(tree.parent))
    return (
        {str(i): sums[i] for i in nodes},
        {str(i): sums[i] / counts[i] for i in nodes},
    )


def derived(tree: TreeArrays) -> dict[str, Any]:
    """Return the oracle's entries that are not an estimator of their own."""
    forest = Forest([tree])
    low = float(forest.lowest[0])
    mean, child = (forest.split_nodes(v)[0] + low for v in (forest.leaf_mean, forest.child_mean))
    mean[0], child[0] = forest.leaf_mean[0] + low, forest.child_mean[0] + low
    centred = estimator("dr_grpo", parity="official")(tree).values[0].tolist()
    treepo = estimator("treepo", parity="official")(tree).values[0].tolist()
    grpo = estimator("grpo", parity="official")(tree).values[0].tolist()
    weights = tree.weights()
    kept, dropped = dapo_filter([tree])
    assert bool(kept) != bool(dropped)
    return {
        "V_leafmean": dict(enumerate(mean.tolist())),
        "V_childmean": dict(enumerate(child.tolist())),
        "group/dapo_keep": bool(kept),
        "node/effective grpo_no_std": below(tree, centred)[0],
        "node/effective treepo_average": below(tree, treepo)[0],
        "node/redistributed grpo": below(tree, grpo)[1],
        "leaf/branch_weight (extension)": {str(i): weights[i] for i in tree.leaves},
    }


def same(got: Any, want: Any) -> None:
    if isinstance(want, dict):
        got = {str(k): v for k, v in got.items()}
        assert got.keys() == want.keys()
        for key in want:
            same(got[key], want[key])
    else:
        assert got == pytest.approx(want, **CLOSE)


@pytest.mark.parametrize("uid", TREES)
def test_every_entry_of_every_tree(uid: str) -> None:
    tree, expected = load(uid), ORACLE["trees"][uid]["expected"]
    ours = derived(tree)
    for name, want in expected.items():
        if name.startswith("ledger/"):
            continue  # what the tree cost: not the estimators' matter
        if want is None:  # TreeRL's code asserts on a lone leaf
            assert name == "node/treerl_code"
            assert estimator("treerl", form="code")(tree).alone == (uid,)
            continue
        if name in ours:
            same(ours[name], want)
        else:
            which, options = ESTIMATES[name]
            same(answer(tree, which, **options), want)


def test_no_entry_is_forgotten() -> None:
    names = {name for entry in ORACLE["trees"].values() for name in entry["expected"]}
    names = {name for name in names if not name.startswith("ledger/")}
    assert names == set(ESTIMATES) | set(derived(load("T1_binary")))


WHITENED: list[tuple[str, str, dict[str, Any]]] = [
    (
        "treepo_average whitened over batch [T1,T2] (token-weighted, Bessel)",
        "treepo",
        {"whiten": True},
    ),
    ("reinforce++-baseline over batch [T1,T2]", "reinforce_pp_baseline", {}),
    ("reinforce++ (gamma 1, outcome reward only) over batch [T1,T2]", "reinforce_pp", {}),
]


@pytest.mark.parametrize(("key", "name", "options"), WHITENED)
def test_whitening_over_a_batch(key: str, name: str, options: dict[str, Any]) -> None:
    trees = [load("T1_binary"), load("T2_uneven")]
    out = estimator(name, **options)(trees)
    assert isinstance(out, LeafAdvantages)
    rows = iter(ORACLE["batch"][key]["rows"])
    for tree, values in zip(trees, out.values, strict=True):
        for leaf, value in zip(tree.leaves.tolist(), values.tolist(), strict=True):
            row = next(rows)
            assert (row["leaf"], row["advantage"]) == (leaf, pytest.approx(value, **CLOSE))
    assert next(rows, None) is None


def test_dapo_filter_and_penalty() -> None:
    want = ORACLE["batch"]["dapo_dynamic_sampling keep"]
    kept, dropped = dapo_filter([load(uid) for uid in TREES])
    assert {t.group: True for t in kept} | dict.fromkeys(dropped, False) == want
    assert dapo_filter([load("T4_single_leaf")], keep_alone=False) == ([], ("T4_single_leaf",))
    for case in ORACLE["batch"]["dapo_overlong (Lmax 100, buffer 20, factor 1)"]:
        got = overlong_penalty(case["length"], max_length=100, buffer=20)
        assert float(got) == pytest.approx(case["penalty"])


@pytest.mark.parametrize(("key", "dropped"), [("keep", []), ("drop leaves 4 and 6", [4, 6])])
def test_unfinished_paths_kept_or_dropped(key: str, dropped: list[int]) -> None:
    want = ORACLE["unfinished_policies (T6)"][key]
    tree = drop_leaves(load("T6_unfinished"), dropped)
    for name, which, options in [
        ("treepo_average", "treepo", OFFICIAL),
        ("grpo", "grpo", OFFICIAL),
        ("spo_tree_rloo", "spo_tree", {}),
    ]:
        got = answer(tree, which, **options)
        same({k: v for k, v in got.items() if int(k) not in dropped}, want[name])
        assert all(got[str(leaf)] == 0 for leaf in dropped)


def grow(arrays: TreeArrays) -> Tree:
    """Return a tree with these arrays: counted token ids, log-probs of -1."""
    tree = Tree(Problem.from_text(arrays.group, "?"), (1,))
    next_id = 100
    for i in range(1, len(arrays.parent)):
        n = int(arrays.n_tokens[i])
        node = tree.add(
            tree.nodes[arrays.parent[i]],
            tuple(range(next_id, next_id + n)),
            (-1.0,) * n,
            finish_reason="eos" if arrays.is_leaf[i] else None,
        )
        next_id += n
        node.reward = None if np.isnan(arrays.reward[i]) else float(arrays.reward[i])
    return tree


def test_unfinished_paths_masked() -> None:
    want = ORACLE["unfinished_policies (T6)"]["mask (stay in baselines, zero loss weight)"]
    arrays = load("T6_unfinished")
    rows = to_rows(grow(arrays), estimator("treepo", **OFFICIAL)(arrays), no_loss=[{4, 6}])
    assert {str(r.leaf): int(r.loss_mask.any()) for r in rows} == want["loss_mask"]
    for row in rows:
        assert row.advantages == pytest.approx(want["treepo_average"][str(row.leaf)], **CLOSE)


def test_spo_chain() -> None:
    want = ORACLE["spo_chain"]
    logprobs = np.log(want["prob"])
    cuts = spo_cut_points(logprobs, interval=want["interval"])
    assert cuts.tolist() == want["cutpoints"]
    tree = Tree(Problem.from_text("p", "?"), (1,))
    node, ends = tree.root, [*(c + 1 for c in cuts.tolist()), len(logprobs)]
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        last = stop == len(logprobs)
        node = tree.add(
            node,
            tuple(range(start, stop)),
            tuple(logprobs[start:stop].tolist()),
            finish_reason="eos" if last else None,
        )
        if not last:
            right = round(4 * want["mc_values"][str(stop - 1)])
            for k in range(4):  # the prefix's own rollouts
                tree.add(node, (50 + k,), (-0.1,), finish_reason="eos").reward = float(k < right)
    node.reward = want["reward"]
    for max_prob, key in [(None, "segment_adv"), (0.9, "after_prob_mask")]:
        out = estimator("spo_chain")(
            tree.arrays(),
        )
        # Of all leaves only the trajectory is trained; by default that is the first leaf.
        out = estimator("spo_chain", trajectories=[node.index])(tree.arrays())
        rows = to_rows(tree, out, weight="unique", max_prob=max_prob)
        (row,) = [r for r in rows if r.loss_mask.any()]
        assert row.leaf == node.index
        assert row.advantages.tolist() == pytest.approx(want[key], **CLOSE)


def test_vineppo_chain() -> None:
    want = ORACLE["vineppo_chain"]
    tree = Tree(Problem.from_text("p", "?"), (1,))
    spine, steps = [tree.root], len(want["advantage"])
    for k in range(steps):  # the trajectory comes first, as it is sampled first
        last = k == steps - 1
        spine.append(tree.add(spine[-1], (k,), (-1.0,), finish_reason="eos" if last else None))
    spine[-1].reward = want["step_rewards"][-1]
    for node, value in zip(spine[:-1], want["V"], strict=False):
        for k in range(4):
            tree.add(node, (9,), (-1.0,), finish_reason="eos").reward = float(k < 4 * value)
    out = estimator("vineppo_chain")(tree.arrays())
    assert isinstance(out, NodeAdvantages)
    values = [out.values[0][node.index] for node in spine[1:]]
    assert values == pytest.approx(want["advantage"], **CLOSE)
    assert out.mask[0].sum() == steps
    assert np.flatnonzero(out.leaf_mask[0]).tolist() == [0]


def test_budget_transfer_biases_the_leaf_mean_and_not_the_child_mean() -> None:
    """All trees of the toy policy, value 1/2, that budget transfer grows, and their means."""
    toy = ORACLE["toy_budget_transfer_bias"]
    expected = {"leaf": 0.0, "child": 0.0, "share of B": 0.0}
    for segments, probability, leaf_mean, child_mean, share in toy[
        "rows [first segments, prob, leaf_mean, child_mean, share of B leaves]"
    ]:
        kids = segments.replace("+", "")
        ends, going = kids.count("A"), kids.count("B")
        # Budget transfer, width 4: all branches that are left go to the paths that go on, the
        # remainder of an even split to the last of them.
        room = 4 - ends
        q, rest = divmod(max(room, going), going) if going else (0, 0)
        parent, reward = [-1], [np.nan]
        longs = []
        for kid in kids:
            parent.append(0)
            reward.append(1.0 if kid == "A" else np.nan)
            if kid == "B":
                longs.append(len(parent) - 1)
        for i, node in enumerate(longs):
            for _ in range(q + (rest if i == len(longs) - 1 else 0)):
                parent.append(node)
                reward.append(0.0)
        n = len(parent)
        tree = TreeArrays(
            parent=np.array(parent),
            depth=np.array([0 if p < 0 else 1 if p == 0 else 2 for p in parent]),
            n_tokens=np.ones(n, dtype=np.int64),
            reward=np.array(reward),
            is_leaf=~np.isnan(reward),
            logprob_sum=np.zeros(n),
            multiplicity=np.ones(n, dtype=np.int64),
            group="toy",
        )
        forest = Forest([tree])
        leaf = forest.leaf_mean[0] + forest.lowest[0]
        child = forest.child_mean[0] + forest.lowest[0]
        got = float(np.mean(tree.depth[tree.leaves] == 2))
        assert (leaf, child, got) == pytest.approx((leaf_mean, child_mean, share))
        for key, value in (("leaf", leaf), ("child", child), ("share of B", got)):
            expected[key] += probability * value
        # Fallback branches with share 0 leave the first two children's mean: no bias.
        if "+" in segments:
            shares = np.where((np.arange(n) > 2) & (np.array(parent) == 0), 0.0, 1.0)
            forest = Forest([tree], [shares])
            value = forest.child_mean[0] + forest.lowest[0]
            assert value == segments[:2].count("A") / 2
    assert expected["leaf"] == pytest.approx(toy["E_leaf_mean"])
    assert expected["child"] == pytest.approx(toy["E_child_mean"])
    assert expected["share of B"] == pytest.approx(toy["E_share_of_leaves_from_B"])
