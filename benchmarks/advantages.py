"""Microseconds a tree of every estimator, beside a plain per-token loop in Python.

    python benchmarks/advantages.py
    python benchmarks/advantages.py --tokens 32 --plain 40 --seeds 3

Both sides end with a number on every token of every leaf's row: treerl estimates on arrays and
repeats values, the loop works each formula out with lists and dicts and appends token by token. The
loop runs on the first ``--plain`` trees only, being slow; its figure is per tree too. Times are CPU
seconds of this process, so that a busy machine does not stretch them.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from treerl.advantage import ESTIMATORS, estimator, expand
from treerl.arrays import TreeArrays

WIDTH, DEPTH = 16, 14
BAR = 10.0
CHUNK = 16  # trees whose tokens are written out at once: 1,000 would not fit a small machine

Row = list[float]  # an advantage for every segment of a path
Rows = dict[int, Row]  # by leaf


def grow(seed: int, group: str, length: int) -> TreeArrays:
    """Return a tree of 16 leaves and up to 14 segments a path: the quota policy, b = 2, k0 = 2."""
    rng = random.Random(seed)
    parent, depth, tokens, reward, leaf = [-1], [0], [0], [math.nan], [False]
    queue = [(0, WIDTH)]
    while queue:
        node, quota = queue.pop(0)
        if depth[node] == DEPTH:
            continue
        k = min(quota, 2)
        for i in range(k):
            parent.append(node)
            depth.append(depth[node] + 1)
            tokens.append(rng.randint(length // 2, length * 3 // 2))
            ends = depth[-1] == DEPTH
            reward.append(float(rng.random() < 0.4) if ends else math.nan)
            leaf.append(ends)
            queue.append((len(parent) - 1, quota // k + (i < quota % k)))
    n = len(parent)
    return TreeArrays(
        parent=np.array(parent),
        depth=np.array(depth),
        n_tokens=np.array(tokens),
        reward=np.array(reward),
        is_leaf=np.array(leaf),
        logprob_sum=np.zeros(n),
        multiplicity=np.ones(n, dtype=np.int64),
        group=group,
    )


# --- the formulas as one would write them down first ----------------------------------------------


class Plain:
    """A tree as lists; one group, every leaf scored, no duplicates."""

    def __init__(self, tree: TreeArrays) -> None:
        self.parent: list[int] = tree.parent.tolist()
        self.tokens: list[int] = tree.n_tokens.tolist()
        self.reward = {i: float(tree.reward[i]) for i in tree.leaves.tolist()}
        self.kids: list[list[int]] = [[] for _ in self.parent]
        for i, p in enumerate(self.parent):
            if p >= 0:
                self.kids[p].append(i)
        self.path: dict[int, list[int]] = {}
        self.under: list[list[int]] = [[] for _ in self.parent]
        for leaf in self.reward:
            node, path = leaf, []
            while node >= 0:
                path.append(node)
                self.under[node].append(leaf)
                node = self.parent[node]
            self.path[leaf] = path[::-1]  # root first
        self.nodes = range(1, len(self.parent))

    def mean(self, node: int) -> float:
        """Leaf mean."""
        return _mean([self.reward[i] for i in self.under[node]])

    def child_means(self, start: dict[int, float] | None = None) -> list[float]:
        """Child mean of every node; children stand behind their parents."""
        leaf_values = self.reward if start is None else start
        out = [0.0] * len(self.parent)
        for i in reversed(range(len(out))):
            kids = [out[k] for k in self.kids[i]]
            out[i] = leaf_values[i] if i in leaf_values else _mean(kids)
        return out

    def on_leaves(self, values: dict[int, float]) -> Rows:
        """One number a leaf."""
        return {leaf: [values[leaf]] * (len(path) - 1) for leaf, path in self.path.items()}

    def on_nodes(self, values: dict[int, float]) -> Rows:
        """One number a node."""
        return {leaf: [values[n] for n in path[1:]] for leaf, path in self.path.items()}

    def per_token(self, rows: Rows) -> list[list[float]]:
        """Every token of every row, one at a time."""
        out = []
        for leaf, row in rows.items():
            tokens = []
            for node, value in zip(self.path[leaf][1:], row, strict=True):
                for _ in range(self.tokens[node]):
                    tokens.append(value)
            out.append(tokens)
        return out


def _mean(xs: list[float]) -> float:
    return sum(xs) / len(xs)


def _std(xs: list[float], ddof: int) -> float:
    mean = _mean(xs)
    return math.sqrt(sum((x - mean) ** 2 for x in xs) / max(len(xs) - ddof, 1))


def _normal(values: dict[int, float], key: Callable[[int], int]) -> dict[int, float]:
    groups: dict[int, list[int]] = {}
    for leaf in values:
        groups.setdefault(key(leaf), []).append(leaf)
    out = {}
    for members in groups.values():
        xs = [values[leaf] for leaf in members]
        for leaf in members:
            out[leaf] = (values[leaf] - _mean(xs)) / (_std(xs, 1) + 1e-6) if len(xs) > 1 else 0.0
    return out


def _whiten(t: Plain, values: dict[int, float]) -> dict[int, float]:
    tokens = {leaf: sum(t.tokens[n] for n in path) for leaf, path in t.path.items()}
    total = sum(tokens.values())
    mean = sum(values[i] * tokens[i] for i in values) / total
    var = sum((values[i] - mean) ** 2 * tokens[i] for i in values) / (total - 1)
    return {i: (values[i] - mean) / math.sqrt(var + 1e-8) for i in values}


def _centred(t: Plain) -> dict[int, float]:
    return {leaf: reward - t.mean(0) for leaf, reward in t.reward.items()}


def grpo(t: Plain) -> Rows:
    return t.on_leaves(_normal(t.reward, lambda leaf: 0))


def dr_grpo(t: Plain) -> Rows:
    return t.on_leaves(_centred(t))


def rloo(t: Plain) -> Rows:
    n, total = len(t.reward), sum(t.reward.values())
    return t.on_leaves({i: r - (total - r) / (n - 1) for i, r in t.reward.items()})


def reinforce_pp(t: Plain) -> Rows:
    return t.on_leaves(_whiten(t, t.reward))


def reinforce_pp_baseline(t: Plain) -> Rows:
    return t.on_leaves(_whiten(t, _centred(t)))


def treepo(t: Plain) -> Rows:
    out = {}
    for leaf, reward in t.reward.items():
        terms: list[float] = []
        seen = 0
        for node in t.path[leaf][:-1]:
            size = len(t.under[node])
            if size > 1 and size != seen:
                terms.append(reward - t.mean(node))
            seen = size
        out[leaf] = _mean(terms)
    return t.on_leaves(out)


def treepo_segment(t: Plain) -> Rows:
    start = {}
    for leaf, reward in t.reward.items():
        sizes = [len(t.under[n]) for n in t.path[leaf]]
        gaps = [(reward - t.mean(n)) * s for n, s in zip(t.path[leaf], sizes, strict=True)]
        start[leaf] = sum(gaps) / sum(sizes)
    value = t.child_means(start)
    value[0] = 0.0
    return t.on_nodes({n: value[n] - value[t.parent[n]] for n in t.nodes})


def treepo_repo_spo(t: Plain) -> Rows:
    value = t.child_means()
    normal = [0.0] * len(value)
    for n in t.nodes:
        group = [value[k] for k in t.kids[t.parent[n]]]
        std = _std(group, 0)
        normal[n] = (value[n] - _mean(group)) / std if len(group) > 1 and std >= 1e-8 else 0.0
        if len(group) == 1:
            normal[n] = value[n]
    return t.on_nodes({n: normal[n] - normal[t.parent[n]] for n in t.nodes})


def treerl(t: Plain) -> Rows:
    out = {}
    for n in t.nodes:
        gaps = (t.mean(n) - t.mean(0)) + (t.mean(n) - t.mean(t.parent[n]))
        out[n] = gaps / math.sqrt(len(t.under[n]))
    return t.on_nodes(out)


def spo_tree(t: Plain) -> Rows:
    value = t.child_means()
    return t.on_nodes({n: value[n] - value[t.parent[n]] for n in t.nodes})


def _own_values(t: Plain) -> tuple[int, list[float | None]]:
    """Return the first leaf and the values along its path, None without own rollouts."""
    leaf = next(iter(t.reward))
    path = t.path[leaf]
    values: list[float | None] = []
    for node, following in pairwise(path):
        own = [t.reward[i] for i in t.under[node] if i not in t.under[following]]
        values.append(_mean(own) if own else None)
    return leaf, [*values, t.reward[leaf]]


def spo_chain(t: Plain) -> Rows:
    leaf, values = _own_values(t)
    row = [0.0] * (len(values) - 1)
    last, since = values[0], 1
    for k in range(1, len(values)):
        value = values[k]
        if value is None:
            continue
        for j in range(since, k + 1):
            row[j - 1] = 0.0 if last is None else value - last
        last, since = value, k + 1
    return {i: row if i == leaf else [0.0] * (len(t.path[i]) - 1) for i in t.reward}


def vineppo_chain(t: Plain) -> Rows:
    leaf, values = _own_values(t)
    filled = [0.0] * len(values)
    for k in reversed(range(len(values))):
        value = values[k]
        filled[k] = filled[k + 1] if value is None else value
    row = [b - a for a, b in pairwise(filled)]
    return {i: row if i == leaf else [0.0] * (len(t.path[i]) - 1) for i in t.reward}


def tree_grpo(t: Plain) -> Rows:
    inter = _normal(t.reward, lambda leaf: 0)
    intra = _normal(t.reward, lambda leaf: t.path[leaf][1])
    return t.on_leaves({i: inter[i] + intra[i] for i in t.reward})


def treerpo(t: Plain) -> Rows:
    value = t.child_means()
    out = {}
    for n in t.nodes:
        group = [value[k] for k in t.kids[t.parent[n]]]
        mean = _mean(group)
        same = max(group) - min(group) < 1e-12
        out[n] = 0.0 if same else (value[n] - mean) / math.sqrt(mean * (1 - mean))
    return t.on_nodes(out)


def vineppo(t: Plain) -> Rows:
    return t.on_nodes({n: t.mean(n) - t.mean(t.parent[n]) for n in t.nodes})


def vineppo_loo(t: Plain) -> Rows:
    out = {}
    for n in t.nodes:
        others = [t.reward[i] for i in t.under[t.parent[n]] if i not in t.under[n]]
        out[n] = t.mean(n) - _mean(others) if others else 0.0
    return t.on_nodes(out)


def tempo(t: Plain) -> Rows:
    """Bonus on whole segments here: the rows are per segment; first tokens are tested elsewhere."""
    return grpo(t)


def gigpo(t: Plain) -> Rows:
    returns = {
        leaf: [0.95 ** (len(path) - 2 - d) * t.reward[leaf] for d in range(len(path) - 1)]
        for leaf, path in t.path.items()
    }
    depth = {n: d for path in t.path.values() for d, n in enumerate(path)}
    out = {}
    for n in t.nodes:
        p = t.parent[n]
        at = [returns[i][depth[p]] for i in t.under[p]]
        own = [returns[i][depth[p]] for i in t.under[n]]
        out[n] = (t.mean(n) - t.mean(0)) + (_mean(own) - _mean(at))
    return t.on_nodes(out)


def _omega(t: Plain) -> tuple[list[float], list[float | None], list[float]]:
    value = t.child_means()
    weight, baseline = [1.0] * len(value), [None] * len(value)  # type: list[float], list[float | None]
    for n in t.nodes:
        p = t.parent[n]
        others = [value[k] for k in t.kids[p] if k != n]
        weight[n] = weight[p] / len(t.kids[p])
        baseline[n] = _mean(others) if others else baseline[p]
    return weight, baseline, value


def omega(t: Plain) -> Rows:
    weight, baseline, value = _omega(t)
    out = {}
    for n in t.nodes:
        b = baseline[n]
        out[n] = 0.0 if b is None else len(t.reward) * weight[n] * (value[n] - b)
    return t.on_nodes(out)


def omega_leaf(t: Plain) -> Rows:
    weight, baseline, _ = _omega(t)
    out = {}
    for leaf, reward in t.reward.items():
        b = baseline[t.path[leaf][1]]
        out[leaf] = 0.0 if b is None else len(t.reward) * weight[leaf] * (reward - b)
    return t.on_leaves(out)


PLAIN: dict[str, Callable[[Plain], Rows]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "dapo": grpo,
    "treepo": treepo,
    "treepo_segment": treepo_segment,
    "treepo_repo_spo": treepo_repo_spo,
    "treerl": treerl,
    "spo_tree": spo_tree,
    "spo_chain": spo_chain,
    "tree_grpo": tree_grpo,
    "treerpo": treerpo,
    "vineppo": vineppo,
    "vineppo_loo": vineppo_loo,
    "vineppo_chain": vineppo_chain,
    "tempo": tempo,
    "gigpo": gigpo,
    "omega": omega,
    "omega_leaf": omega_leaf,
}


# --- timing ---------------------------------------------------------------------------------------


def main() -> None:
    """Print a line an estimator: mean ± sd over seeds, and how many times faster."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trees", type=int, default=1000)
    parser.add_argument("--plain", type=int, default=40, help="trees for the Python loop")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=512, help="mean length of a segment")
    options = parser.parse_args()
    assert set(PLAIN) == set(ESTIMATORS)
    print(
        f"{options.trees} trees of {WIDTH} leaves x {DEPTH} segments of about {options.tokens} "
        f"tokens, {options.seeds} seeds; CPU µs a tree, mean ± sd\n"
    )
    print(f"{'estimator':<22} {'estimate':>15} {'with tokens':>16} {'loop':>18} {'times':>14}")
    batches = []
    for seed in range(options.seeds):
        trees = [
            grow(seed * options.trees + i, f"p{i}", options.tokens) for i in range(options.trees)
        ]
        batches.append(trees)
    missed = []
    for name in PLAIN:
        alone, whole, loop = [], [], []
        for trees in batches:
            few = trees[: options.plain]
            began = time.process_time()
            out = estimator(name)(trees)
            alone.append(1e6 * (time.process_time() - began) / len(trees))
            for i in range(0, len(trees), CHUNK):
                expand(trees[i : i + CHUNK], out, i)
            whole.append(1e6 * (time.process_time() - began) / len(trees))
            began = time.process_time()
            for tree in few:
                plain = Plain(tree)
                plain.per_token(PLAIN[name](plain))
            loop.append(1e6 * (time.process_time() - began) / len(few))
        times = [b / a for a, b in zip(whole, loop, strict=True)]
        met = min(times) >= BAR
        if not met:
            missed.append(name)
        print(
            f"{name:<22} {_spread(alone):>15} {_spread(whole):>16} {_spread(loop):>18} "
            f"{_spread(times):>14}x {'' if met else 'MISSED'}"
        )
    print(f"\nbar: {BAR:g}x in every seed, tokens included; missed: {', '.join(missed) or 'none'}")


def _spread(xs: list[float]) -> str:
    return f"{statistics.mean(xs):.0f} ± {statistics.stdev(xs) if len(xs) > 1 else 0:.0f}"


if __name__ == "__main__":
    main()
