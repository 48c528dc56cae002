"""Branch weights are unbiased, uniform means are not (criteria B)."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean, stdev
from typing import Any

import pytest

from treerl.engines.base import Completion, Request, Usage
from treerl.engines.scripted import ByteTokenizer
from treerl.problem import Problem
from treerl.search.growth import Judgement
from treerl.search.treepo import TreePO
from treerl.search.treepo_allocation import BudgetTransfer, EvenSplit, LogprobSplit, Quota
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_fallback import FromStart, RandomSegment
from treerl.search.treepo_stopping import Stopping
from treerl.search.treepo_summary import branch_weights, summarise
from treerl.tree import RunInfo, Tree

pytestmark = pytest.mark.slow

ORACLE = json.loads((Path(__file__).parents[1] / "data" / "treepo_oracle.json").read_text())[
    "toy_budget_transfer_bias"
]
TOKENIZER = ByteTokenizer()
PROBLEM = Problem.from_text("p", "q", "1")
PROMPT = len(TOKENIZER.encode_prompt(PROBLEM.conversation(None)))
PLAIN = Stopping(boxed=False, repetition=None)


def drive(
    config: TreePOConfig,
    answer: Callable[[Request], Completion],
    reward: Callable[[tuple[int, ...]], float] | None = None,
    seed: int = 0,
) -> Tree:
    """Grow a tree on the spot: a growth needs neither an engine nor a loop."""
    growth = TreePO(PROBLEM, TOKENIZER, config, run=RunInfo(seed=seed))
    waiting = deque(growth.ready())
    while waiting:
        request = waiting.popleft()
        if isinstance(request, Request):
            growth.tell(request.request_id, answer(request))
        else:
            assert request.leaf is not None
            assert reward is not None
            growth.tell(request.request_id, Judgement(reward=reward(request.leaf.token_ids)))
        waiting.extend(growth.ready())
    assert growth.done
    return growth.tree


def completion(ids: tuple[int, ...], ends: bool, logprob: float = -1.0) -> Completion:
    reason: Any = "eos" if ends else "length"
    usage = Usage(0, 0, len(ids))
    return Completion(ids, (logprob,) * len(ids), reason, usage=usage)


# --- B1: the toy of the oracle, enumerated --------------------------------------------------------


def toy(config: TreePOConfig, distinct: bool) -> Iterator[tuple[float, Tree]]:
    """Yield every tree of the toy with its probability.

    A path's first segment is A (stops, reward 1) or B (goes on; then stops, reward 0), half and
    half. ``distinct`` makes no two segments equal, so that nothing folds.
    """
    for letters in product("AB", repeat=4):
        used: list[str] = []

        def answer(request: Request, letters: Any = letters, used: list[str] = used) -> Completion:
            own = request.seed or 0 if distinct else 0
            if len(request.prompt_ids) > PROMPT:
                return completion((3, own), ends=True)
            used.append(letters[len(used)])
            return completion((1 if used[-1] == "A" else 2, own), ends=used[-1] == "A")

        tree = drive(config, answer, lambda ids: float(ids[0] == 1))
        # Every assignment of the letters that the tree did not use leads to the same tree.
        yield 0.5 ** len(letters), tree
        assert len(used) <= len(letters)


def expectation(config: TreePOConfig, distinct: bool) -> dict[str, float]:
    out = {"value": 0.0, "uniform": 0.0, "all children": 0.0, "share of B": 0.0}
    for probability, tree in toy(config, distinct):
        summary = summarise(tree)
        assert summary.value is not None
        assert summary.uniform_value is not None
        out["value"] += probability * summary.value
        out["uniform"] += probability * summary.uniform_value
        leaves = [(leaf, leaf.multiplicity) for leaf in tree.leaves()]
        omega = tree.weights()
        out["all children"] += probability * sum(
            omega[leaf.index] * (leaf.reward or 0.0) for leaf, _ in leaves
        )
        out["share of B"] += (
            probability
            * sum(count for leaf, count in leaves if not leaf.reward)
            / sum(count for _, count in leaves)
        )
    return out


TOY = TreePOConfig(
    width=4,
    segment_tokens=2,
    max_tokens=4,
    allocation=BudgetTransfer(b=2, split=EvenSplit("last")),
    stopping=PLAIN,
)


@pytest.mark.parametrize("distinct", [True, False])
def test_b1_branch_weights_are_exactly_unbiased_without_a_fallback(distinct: bool) -> None:
    found = expectation(TOY, distinct)
    assert found["value"] == ORACLE["E_child_mean_without_fallback"] == ORACLE["true_value"] == 0.5
    assert found["all children"] == 0.5


def test_b1_the_published_rule_is_as_biased_as_the_oracle_says() -> None:
    found = expectation(replace(TOY, fallback=FromStart(copies=2)), distinct=True)
    assert found["uniform"] == ORACLE["E_leaf_mean"] == 0.3125
    assert found["all children"] == ORACLE["E_child_mean"] == 0.4375
    assert found["share of B"] == ORACLE["E_share_of_leaves_from_B"] == 0.6875
    # Late draws have no weight here, so that refilling does not spoil the estimate.
    assert found["value"] == 0.5


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("k0", [1, 2, 4])
def test_b1_quota_is_unbiased_whatever_its_initial_divergence(k0: int, distinct: bool) -> None:
    found = expectation(replace(TOY, allocation=Quota(k0=k0)), distinct)
    assert found["value"] == found["all children"] == 0.5


# --- B2: lengths --------------------------------------------------------------------------------

SCALE = 32  # tokens that one token of the model stands for
CAP, SEGMENT = 7168 // SCALE, 512 // SCALE
SIGMA = 0.8
NORMAL = NormalDist()


class LogNormal:
    """Answers whose whole length is lognormal: a prefix goes on as such an answer would."""

    def __init__(self, mean: float) -> None:
        self.mu = math.log(mean / SCALE) - SIGMA**2 / 2

    def length(self, u: float, longer_than: int = 0) -> int:
        low = NORMAL.cdf((math.log(longer_than) - self.mu) / SIGMA) if longer_than else 0.0
        p = low + u * (1 - low)
        if p >= 1:
            return CAP
        return max(longer_than + 1, math.ceil(math.exp(self.mu + SIGMA * NORMAL.inv_cdf(p))))

    def __call__(self, request: Request) -> Completion:
        rng = Random(request.seed)
        done = len(request.prompt_ids) - PROMPT
        rest = self.length(rng.random() or 0.5, done) - done
        n = min(rest, request.max_tokens)
        # A first token of its own: segments must not fold for want of content.
        ids = (rng.getrandbits(60), *(0,) * (n - 1))
        return completion(ids, ends=n == rest, logprob=-rng.random())

    def true_mean(self) -> float:
        """Return the mean length under the cap, by the midpoint rule."""
        n = 20_000
        return fmean(min(CAP, self.length((i + 0.5) / n)) for i in range(n))


WIDE = TreePOConfig(width=16, segment_tokens=SEGMENT, max_tokens=CAP, stopping=PLAIN, rewards=False)


def grown(name: str, mean: int, trees: int) -> list[Tree]:
    how = {
        "published": replace(WIDE, allocation=BudgetTransfer(), fallback=RandomSegment()),
        "quota": WIDE,
        "unlikely first": replace(
            WIDE, allocation=BudgetTransfer(split=LogprobSplit(temperature=0.5))
        ),
    }[name]
    model = LogNormal(mean)
    return [drive(how, model, seed=seed) for seed in range(trees)]


@pytest.mark.parametrize(("mean", "low", "high"), [(1000, 40, 90), (1500, 30, 70), (3000, 8, 30)])
def test_b2_weighted_lengths_are_the_policys_and_uniform_ones_are_not(
    mean: int, low: int, high: int
) -> None:
    """With the published rule; the uniform bias is that of treepo.md §5.2 (+66, +49, +18 %)."""
    true = LogNormal(mean).true_mean()
    summaries = [summarise(tree) for tree in grown("published", mean, 1500)]
    weighted = [s.mean_tokens or 0.0 for s in summaries]
    assert fmean(weighted) == pytest.approx(true, rel=0.03)
    uniform = fmean(s.uniform_mean_tokens or 0.0 for s in summaries)
    assert low <= 100 * (uniform / true - 1) <= high


@pytest.mark.parametrize("name", ["quota", "unlikely first"])
def test_b2_other_allocations_are_unbiased_too(name: str) -> None:
    true = LogNormal(1000).true_mean()
    weighted = [summarise(tree).mean_tokens or 0.0 for tree in grown(name, 1000, 1500)]
    error = stdev(weighted) / math.sqrt(len(weighted))
    assert abs(fmean(weighted) - true) < 4 * error
    assert error < 0.02 * true


def test_b2_quota_lengthens_samples_less_than_the_published_rule() -> None:
    true = LogNormal(1000).true_mean()

    def bias(name: str) -> float:
        lengths = [summarise(t).uniform_mean_tokens or 0.0 for t in grown(name, 1000, 300)]
        return abs(fmean(lengths) / true - 1)

    assert bias("quota") < bias("published") / 2


def test_b3_effective_samples_and_first_nodes_are_reported() -> None:
    for tree in grown("published", 1500, 20):
        summary, omega = summarise(tree), branch_weights(tree)
        weights = [omega[leaf.index] for leaf in tree.leaves()]
        assert summary.ess == pytest.approx(sum(weights) ** 2 / sum(w * w for w in weights))
        early = [n for n in tree.root.children if "late" not in (n.meta or {})]
        assert len(early) == 2
        assert summary.first_nodes == len(tree.root.children) >= 2
    more = fmean(summarise(tree).ess for tree in grown("quota", 1500, 50))
    fewer = fmean(summarise(tree).ess for tree in grown("published", 1500, 50))
    assert more > fewer


def test_b2_savings_that_come_from_long_leaves_are_no_savings() -> None:
    """The published rule saves twice as much against its own long leaves as against flat ones."""
    true = LogNormal(1000).true_mean()
    summaries = [summarise(tree) for tree in grown("published", 1000, 300)]
    per_leaf = fmean(s.cost.generated for s in summaries) / fmean(s.leaves for s in summaries)
    flattered = fmean(s.cost.saved for s in summaries)
    assert flattered > 2 * (1 - per_leaf / true)
    (star,) = [drive(replace(WIDE, allocation=Quota(k0=None), segment_tokens=None), LogNormal(9e3))]
    assert summarise(star).relative_cost == pytest.approx(1)
    assert summarise(star).cost.saved == 0
