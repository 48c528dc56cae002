"""What a tree cost adds up, on every tree (criteria D)."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.engines.base import Completion, Request
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.errors import EngineError
from treerl.ledger import Ledger
from treerl.problem import Problem
from treerl.search.growth import run_sync
from treerl.search.treepo import TreePO
from treerl.search.treepo_allocation import BudgetTransfer, Quota
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_fallback import EPTree, MinLogprobToken, RandomSegment
from treerl.search.treepo_stopping import Stopping
from treerl.search.treepo_summary import summarise, tree_cost, warm_prefill
from treerl.tree import RunInfo, Tree
from treerl.treefile import tree_from_record, tree_to_record

ORACLE = json.loads((Path(__file__).parents[1] / "data" / "treepo_oracle.json").read_text())
PLAIN = Stopping(boxed=False, repetition=None)


class CachingEngine(ScriptedEngine):
    """A scripted engine with a prefix cache of whole blocks that loses nothing, or much.

    Args:
        block: Tokens of a block.
        forgets: Forget everything after so many requests; 0 never does.
    """

    def __init__(self, policy: Any, block: int, forgets: int = 0, **options: Any) -> None:
        super().__init__(policy, **options)
        self.block, self.forgets, self.served = block, forgets, 0
        self.blocks: set[tuple[int, ...]] = set()

    def _answer(self, request: Request) -> Completion | EngineError:
        self.served += 1
        if self.forgets and self.served % self.forgets == 0:
            self.blocks.clear()
        context, hit = request.prompt_ids, 0
        while hit + self.block < len(context) and context[: hit + self.block] in self.blocks:
            hit += self.block
        done = super()._answer(request)
        if isinstance(done, EngineError):
            return done
        whole = context + done.token_ids
        for end in range(self.block, len(whole), self.block):
            self.blocks.add(whole[:end])
        return done._replace(usage=done.usage._replace(cached=hit))


def letters(request: Request) -> list[int]:
    """Say a's and b's for about eight tokens."""
    rng = Random(request.seed)
    ids: list[int] = []
    while rng.random() > 1 / 8 and len(ids) < 100:
        ids.append(97 + rng.randrange(2))
    return ids


CONFIGS = {
    "quota": Quota(k0=2),
    "published": BudgetTransfer(),
}
FALLBACKS = {
    "none": None,
    "segment": RandomSegment(),
    "token": MinLogprobToken(),
    "eptree": EPTree(mask_words=()),
}


def grow(engine: ScriptedEngine, seed: int = 0, prompt: str = "q", **options: Any) -> Tree:
    defaults: dict[str, Any] = {"width": 8, "segment_tokens": 4, "max_tokens": 24}
    growth = TreePO(
        Problem.from_text("p", prompt, "1"),
        engine.tokenizer,
        TreePOConfig(**{**defaults, "stopping": PLAIN, "rewards": False, **options}),
        run=RunInfo(seed=seed),
    )
    run_sync([growth], engine, retry_delay_s=0.0)
    return growth.tree


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(CONFIGS)),
    st.sampled_from(sorted(FALLBACKS)),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.2]),
)
def test_d1_d2_d3_the_ledger_adds_up_on_every_tree(
    seed: int, allocation: str, fallback: str, block: int, faults: float
) -> None:
    engine = CachingEngine(letters, block, forgets=5, faults=faults, fault_retryable=False)
    tree = grow(
        engine,
        seed,
        allocation=CONFIGS[allocation],
        fallback=FALLBACKS[fallback],
        abort=lambda path: path.ids[:2] == (97, 97),
    )
    cost, ledger = tree_cost(tree, block), tree.ledger
    # D1
    assert cost.generated == cost.kept + cost.duplicates + cost.surplus == ledger.generated
    assert cost.duplicates + cost.surplus == ledger.discarded
    assert cost.kept == cost.unique_tokens + cost.aborted
    # D2, recounted path by path
    ended = [leaf for leaf in tree.leaves() if leaf.finish_reason != "aborted"]
    paths = [(len(tree.path_ids(leaf)), leaf.multiplicity) for leaf in ended]
    assert cost.flat_equivalent == sum(n * count for n, count in paths)
    assert cost.row_tokens == sum(n for n, _ in paths)
    if cost.flat_equivalent:
        assert cost.saved == 1 - cost.generated / cost.flat_equivalent
    # D3
    assert cost.warm is not None
    assert cost.prefill.submitted == cost.prefill.cached + cost.prefill.computed
    assert cost.prefill.submitted == cost.warm.submitted
    assert cost.prefill.requests == cost.warm.requests == cost.requests - cost.failed_requests
    # D7: forgetting shows as prompt tokens that a warm cache would have had.
    assert cost.evicted == max(0, cost.warm.cached - cost.prefill.cached)
    # D8
    assert cost.unique_tokens <= cost.row_tokens
    assert all(
        isinstance(getattr(cost, name), int)
        for name in type(cost).__dataclass_fields__
        if name not in ("prefill", "warm")
    )


def test_d1_totals_are_sums() -> None:
    trees = [grow(ScriptedEngine(letters), seed) for seed in range(5)]
    total = sum((tree.ledger for tree in trees), Ledger())
    assert total.generated == sum(tree_cost(tree).generated for tree in trees)
    assert total.generated == sum(tree.kept_tokens() for tree in trees) + total.discarded


@pytest.mark.parametrize("block", [1, 3, 8])
@pytest.mark.parametrize("allocation", sorted(CONFIGS))
def test_d4_one_prefill_a_prompt(block: int, allocation: str) -> None:
    """Served one at a time by a cache that loses nothing: every request finds all whole blocks."""
    for seed in range(5):
        engine = CachingEngine(letters, block, max_concurrency=1, latency=1.0)
        tree = grow(engine, seed, "a prompt of some length", allocation=CONFIGS[allocation])
        cost = tree_cost(tree, block)
        assert cost.prefill.computed <= len(tree.prompt_ids) + block * (cost.requests - 1)
        assert cost.prefill == cost.warm
        assert cost.evicted == 0


@pytest.mark.parametrize("case", ORACLE["sampler"]["binary_tree_ideal_saving"], ids=str)
@pytest.mark.parametrize("published", [True, False])
def test_d5_the_never_stopping_tree_saves_what_it_should(
    case: dict[str, Any], published: bool
) -> None:
    def endless(request: Request) -> list[int]:
        rng = Random(request.seed)
        return [rng.randrange(256) for _ in range(request.max_tokens)]

    b = case["b"]
    tree = grow(
        ScriptedEngine(endless),
        width=case["width"],
        segment_tokens=8,
        max_tokens=8 * case["segments_per_path"],
        allocation=BudgetTransfer(b=b) if published else Quota(k0=b, b=b),
    )
    cost = tree_cost(tree)
    assert len(tree.leaves()) == case["width"]
    assert cost.generated == 8 * case["tree_segments"]
    assert cost.flat_equivalent == 8 * case["flat_segments"]
    assert cost.saved == pytest.approx(case["saved_fraction"], abs=1e-6)


def built(spec: dict[str, Any]) -> Tree:
    """Return one of the oracle's trees, every node a request of its own."""
    tree = Tree(Problem.from_text(spec["uid"], "q"), tuple(range(spec["prompt_tokens"])))
    finish = {"eos": "eos", "boxed_eos": "answer", "repetition": "repetition", "max_depth": "depth"}
    for i, parent in enumerate(spec["parent"]):
        if parent >= 0:
            status = spec["status"][i]
            reason: Any = finish[status] if status else None
            tree.add(
                tree.nodes[parent], (i,) * spec["tokens"][i], finish_reason=reason
            ).reward = spec["reward"][i]
            tree.nodes[parent].draws += 1
            tree.ledger.requests += 1
            tree.ledger.generated += spec["tokens"][i]
    return tree


@pytest.mark.parametrize("block", [16, 4])
@pytest.mark.parametrize("uid", sorted(ORACLE["trees"]))
def test_d6_the_oracles_ledgers(uid: str, block: int) -> None:
    want = ORACLE["trees"][uid]["expected"][f"ledger/block{block}"]
    tree = built(ORACLE["trees"][uid]["tree"])
    cost = tree_cost(tree, block)
    warm = cost.warm
    assert warm is not None
    assert {
        "requests": warm.requests,
        "leaves": len(tree.leaves()),
        "generated_tokens": cost.generated,
        "flat_equivalent_tokens": cost.flat_equivalent,
        "saved_fraction": round(cost.saved, 6),
        "block_size": block,
        "prefill_submitted": warm.submitted,
        "prefill_cached": warm.cached,
        "prefill_computed": warm.computed,
        "ideal_prefill": len(tree.prompt_ids),
    } == want
    assert warm == warm_prefill(tree, block)


def test_d6_the_oracles_branch_weights() -> None:
    for uid, case in ORACLE["trees"].items():
        tree = built(case["tree"])
        omega = tree.weights()
        for leaf, want in case["expected"]["leaf/branch_weight (extension)"].items():
            assert omega[int(leaf)] == pytest.approx(want, abs=2e-6), uid


def test_d7_a_cache_that_forgets_is_seen() -> None:
    kept = grow(CachingEngine(letters, 4, max_concurrency=1, latency=1.0))
    lost = grow(CachingEngine(letters, 4, forgets=2, max_concurrency=1, latency=1.0))
    assert (tree_cost(kept, 4).evicted or 0) < (tree_cost(lost, 4).evicted or 0)
    assert tree_to_record(kept) == tree_to_record(lost)  # the cache's luck stands in no tree


def test_d8_what_a_packed_trainer_forwards() -> None:
    tree = grow(ScriptedEngine(letters), allocation=BudgetTransfer(), fallback=RandomSegment())
    cost = tree_cost(tree)
    assert cost.unique_tokens == tree.kept_tokens()
    assert cost.row_tokens > cost.unique_tokens


def test_costs_survive_a_save(tmp_path: Path) -> None:
    tree = grow(
        ScriptedEngine(letters, latency=jitter(0.1, 3.0)),
        allocation=BudgetTransfer(),
        fallback=MinLogprobToken(),
    )
    tree.save(tmp_path / "tree.parquet")
    again = Tree.load(tmp_path / "tree.parquet")
    assert summarise(again, 4) == summarise(tree, 4)
    assert summarise(tree_from_record(tree_to_record(tree)), 4) == summarise(tree, 4)


def test_a_tree_without_a_single_answer_has_a_summary() -> None:
    tree = Tree(Problem.from_text("p", "q"), tuple(ByteTokenizer().encode("q")))
    summary = summarise(tree, 16)
    assert (summary.leaves, summary.ess, summary.value, summary.cost.saved) == (0, 0.0, None, 0.0)
