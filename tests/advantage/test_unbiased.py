"""The ω forms are unbiased: expectations over all trees that a small policy can grow.

A policy of binary tokens; token 0 ends a path, and so does the third. All trees are enumerated with
their probabilities, and the expected policy gradient is compared with the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest

from treerl.advantage import Forest, LeafAdvantages, NodeAdvantages, estimator
from treerl.arrays import FloatArray, TreeArrays

pytestmark = pytest.mark.slow

P = {"": 0.6, "1": 0.3, "11": 0.7}  # probability of token 1 after each path
STATES = list(P)
REWARD = {"0": 0.2, "10": 1.0, "110": -0.5, "111": 0.9}

Counts = Callable[[str, list[str]], int]
"""Children of a live path, from the path and the tokens that all paths of its round came to."""


def quota(path: str, level: list[str]) -> int:
    return {"": 2, "1": 2, "11": 1}[path]


def uneven(path: str, level: list[str]) -> int:
    return {"": 3, "1": 1, "11": 2}[path]


def transfer(path: str, level: list[str]) -> int:
    """Budget transfer: the branches of paths that ended go to those that did not."""
    if path == "":
        return 2
    return 4 // sum(p not in REWARD for p in level) if path == "1" else 1


def outcomes(counts: Counts) -> Iterator[tuple[float, list[int], list[str]]]:
    """Yield (probability, parents, paths) of every tree."""
    stack: list[tuple[float, list[int], list[str], list[int]]] = [(1.0, [-1], [""], [0])]
    while stack:
        probability, parent, paths, level = stack.pop()
        live = [i for i in level if paths[i] not in REWARD]
        if not live:
            yield probability, parent, paths
            continue
        words = [paths[i] for i in level]
        slots = [i for i in live for _ in range(counts(paths[i], words))]
        for tokens in product((0, 1), repeat=len(slots)):
            chance = probability
            for i, token in zip(slots, tokens, strict=True):
                chance *= P[paths[i]] if token else 1 - P[paths[i]]
            new = [paths[i] + str(token) for i, token in zip(slots, tokens, strict=True)]
            first = len(parent)
            stack.append(
                (chance, parent + slots, paths + new, list(range(first, first + len(new))))
            )


def arrays(parent: list[int], paths: list[str]) -> TreeArrays:
    n = len(parent)
    return TreeArrays(
        parent=np.array(parent),
        depth=np.array([len(path) for path in paths]),
        n_tokens=np.array([int(path != "") for path in paths]),
        reward=np.array([REWARD.get(path, np.nan) for path in paths]),
        is_leaf=np.array([path in REWARD for path in paths]),
        logprob_sum=np.zeros(n),
        multiplicity=np.ones(n, dtype=np.int64),
        group="p",
    )


def score(path: str) -> FloatArray:
    """Gradient of log π of a path's last token by the logits of the three states."""
    out = np.zeros(len(STATES))
    state = path[:-1]
    out[STATES.index(state)] = int(path[-1]) - P[state]
    return out


def chance(path: str) -> float:
    out = 1.0
    for i, token in enumerate(path):
        out *= P[path[:i]] if token == "1" else 1 - P[path[:i]]
    return out


TRUE_VALUE = sum(chance(path) * reward for path, reward in REWARD.items())
TRUE_GRADIENT = sum(
    chance(path) * reward * sum(score(path[: k + 1]) for k in range(len(path)))
    for path, reward in REWARD.items()
)


def expected_gradient(name: str, counts: Counts, **options: object) -> FloatArray:
    total = np.zeros(len(STATES))
    for probability, parent, paths in outcomes(counts):
        tree = arrays(parent, paths)
        out = estimator(name, **options)(tree)
        gradient = np.zeros(len(STATES))
        if isinstance(out, NodeAdvantages):
            for node in range(1, len(parent)):
                gradient += out.values[0][node] * score(paths[node])
        else:
            assert isinstance(out, LeafAdvantages)
            for leaf, value in zip(tree.leaves.tolist(), out.values[0], strict=True):
                path = paths[leaf]
                gradient += value * sum(score(path[: k + 1]) for k in range(len(path)))
        total += probability * gradient
    return total


@pytest.mark.parametrize("counts", [quota, uneven, transfer])
def test_all_trees_are_there(counts: Counts) -> None:
    assert sum(p for p, _, _ in outcomes(counts)) == pytest.approx(1)


@pytest.mark.parametrize("name", ["omega", "omega_leaf"])
@pytest.mark.parametrize("counts", [quota, uneven, transfer])
def test_the_omega_forms_have_the_policy_gradient(name: str, counts: Counts) -> None:
    assert expected_gradient(name, counts, scale=1.0) == pytest.approx(TRUE_GRADIENT, abs=1e-12)


@pytest.mark.parametrize("counts", [quota, uneven, transfer])
def test_the_child_mean_has_the_policy_value(counts: Counts) -> None:
    value = {"child": 0.0, "leaf": 0.0}
    for probability, parent, paths in outcomes(counts):
        forest = Forest([arrays(parent, paths)])
        value["child"] += probability * (forest.child_mean[0] + forest.lowest[0])
        value["leaf"] += probability * (forest.leaf_mean[0] + forest.lowest[0])
    assert value["child"] == pytest.approx(TRUE_VALUE, abs=1e-12)
    if counts is transfer:
        assert abs(value["leaf"] - TRUE_VALUE) > 0.02


@pytest.mark.parametrize("name", ["dr_grpo", "treepo", "vineppo", "spo_tree"])
def test_published_forms_point_elsewhere_under_budget_transfer(name: str) -> None:
    got = expected_gradient(name, transfer)
    cosine = got @ TRUE_GRADIENT / np.linalg.norm(got) / np.linalg.norm(TRUE_GRADIENT)
    assert cosine < 0.995


def with_fallback() -> Iterator[tuple[float, TreeArrays, FloatArray, list[str]]]:
    """Yield the quota's trees, and a further path from the root where both first tokens ended."""
    for probability, parent, paths in outcomes(quota):
        if paths[1:] != ["0", "0"]:
            yield probability, arrays(parent, paths), np.ones(len(parent)), paths
            continue
        for path in REWARD:
            added = [path[: k + 1] for k in range(len(path))]
            chain = [0, *range(len(parent), len(parent) + len(path) - 1)]
            tree = arrays(parent + chain, paths + added)
            shares = np.ones(len(tree.parent))
            shares[len(parent)] = 0.0
            yield probability * chance(path), tree, shares, paths + added


@pytest.mark.parametrize("name", ["omega", "omega_leaf"])
def test_fallback_needs_a_share_of_zero(name: str) -> None:
    total = {True: np.zeros(len(STATES)), False: np.zeros(len(STATES))}
    whole = 0.0
    for probability, tree, shares, paths in with_fallback():
        whole += probability
        for told in total:
            out = estimator(name, scale=1.0)(tree, shares if told else None)
            at = range(len(paths)) if isinstance(out, NodeAdvantages) else tree.leaves.tolist()
            for node, value in zip(at, out.values[0], strict=True):
                path = paths[node]
                steps = range(len(path)) if isinstance(out, LeafAdvantages) else [len(path) - 1]
                for k in steps:
                    if path:
                        total[told] += probability * value * score(path[: k + 1])
    assert whole == pytest.approx(1)
    assert total[True] == pytest.approx(TRUE_GRADIENT, abs=1e-12)
    assert np.abs(total[False] - TRUE_GRADIENT).max() > 0.005
