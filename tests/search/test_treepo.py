"""Segment trees: exact, whole, and the same whatever order answers arrive in (criteria A, C1)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.engines.base import Completion, Request, Usage
from treerl.engines.clock import VirtualClock
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.errors import EngineDied, EngineError, PromptTooLong
from treerl.problem import Problem
from treerl.protocols import Leaf, StepScore
from treerl.search.growth import Judges, run, run_steps, run_sync
from treerl.search.treepo import TreePO
from treerl.search.treepo_allocation import BudgetTransfer, FullTree, LogprobSplit, Quota
from treerl.search.treepo_config import Gate, TreePOConfig
from treerl.search.treepo_fallback import (
    EPTree,
    FromStart,
    MinLogprobToken,
    RandomSegment,
    TreeGRPO,
)
from treerl.search.treepo_presets import PRESETS, preset
from treerl.search.treepo_stopping import Stopping
from treerl.search.treepo_summary import branch_weights, segment_texts, sibling_shares, summarise
from treerl.tree import Node, RunInfo, Tree
from treerl.treefile import tree_from_record, tree_to_record
from treerl.verdict import StepVerdict, Verdict

EOS = ByteTokenizer.eos_id


def coins(request: Request) -> list[int]:
    """Say a's and b's, ending with probability 1/9 a token: memoryless, and rich in repeats."""
    rng = Random(request.seed)
    ids: list[int] = []
    while rng.random() > 1 / 9 and len(ids) < 300:
        ids.append(97 + rng.randrange(2))
    return [*ids, EOS]


def logprob(request: Request, ids: Sequence[int]) -> list[float]:
    """Return log-probs that are a function of place and token, as a model's are."""
    start = len(request.prompt_ids)
    return [-0.1 - (token * 7 + (start + i) * 3) % 11 / 5 for i, token in enumerate(ids)]


def engine(policy: Any = coins, **options: Any) -> ScriptedEngine:
    return ScriptedEngine(policy, logprob=logprob, **options)


def problems(n: int) -> list[Problem]:
    return [Problem.from_text(f"p{i}", "Toss.", "1") for i in range(n)]


def even(problem: Problem, text: str, leaf: Leaf) -> float:
    """Reward an even number of a's."""
    return float(text.count("a") % 2 == 0)


NO_RULES = Stopping(boxed=False, repetition=None)


def config(**options: Any) -> TreePOConfig:
    """Return small trees: 8 paths, segments of 4, at most 24 tokens."""
    defaults: dict[str, Any] = {"width": 8, "segment_tokens": 4, "max_tokens": 24}
    return TreePOConfig(**{**defaults, "stopping": Stopping(boxed=False), **options})


REFILL = RandomSegment(copies=2)
POLICIES: dict[str, TreePOConfig] = {
    "quota": config(allocation=Quota(k0=4)),
    "quota, confident": config(allocation=Quota(k0=2, min_surprisal=1.0)),
    "quota, refilled": config(allocation=Quota(k0=2), fallback=REFILL),
    "published": config(allocation=BudgetTransfer(), fallback=REFILL),
    "published, unlikely": config(
        allocation=BudgetTransfer(split=LogprobSplit()), fallback=MinLogprobToken()
    ),
    "published, from start": config(allocation=BudgetTransfer(b=(2, 4)), fallback=FromStart()),
    "misaligned": config(allocation=BudgetTransfer(), fallback=RandomSegment(window=3)),
    "full": config(allocation=FullTree(factors=(3, 2))),
    "eptree": config(
        width=3,
        segment_tokens=None,
        allocation=Quota(k0=None),
        fallback=EPTree(branch_tokens=2, waves=2, mask_words=()),
    ),
    "tree-grpo": config(width=3, allocation=Quota(k0=None), fallback=TreeGRPO(nodes=3, waves=2)),
}
both = pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))


def grow(
    how: TreePOConfig, served: ScriptedEngine | None = None, n: int = 1, seed: int = 0, **run: Any
) -> list[Tree]:
    served = served or engine()
    growths = [
        TreePO(p, served.tokenizer, how, run=RunInfo(seed=seed, sampler="t")) for p in problems(n)
    ]
    run_sync(growths, served, Judges(reward=even), retry_delay_s=0.0, **run)
    assert all(growth.done for growth in growths)
    return [growth.tree for growth in growths]


def watched() -> tuple[ScriptedEngine, list[Request]]:
    """Return an engine and the list of what it is asked."""
    asked: list[Request] = []

    def policy(request: Request) -> list[int]:
        asked.append(request)
        return coins(request)

    return engine(policy), asked


def check_exact(tree: Tree) -> None:
    """Check what holds on every tree, however it was grown."""
    for node in tree.nodes[1:]:
        assert node.parent is not None
        assert node.parent.index < node.index
        # C1: one log-prob a generated token, and each the one its place and token have.
        assert len(node.logprobs) == len(node.token_ids)
        path = tree.path_ids(node)
        place = Request("", "", tree.context_ids(node.parent), 1)
        assert list(node.logprobs) == logprob(place, node.token_ids)
        assert EOS not in path[:-1]
        assert (path[-1:] == (EOS,)) == (node.finish_reason == "eos")
        if node.is_leaf:
            assert not node.children
            assert node.reward == float(path.count(97) % 2 == 0)
    assert not tree.root.logprobs
    # A8: a node denotes one token sequence, and a sequence that ends somewhere is one node.
    prefixes = [tree.path_ids(n) for n in tree.nodes if n.finish_reason != "error"]
    assert len(set(prefixes)) == len(prefixes)
    boundaries = set(prefixes)
    for path in prefixes:
        ancestors = [path[:k] for k in range(len(path)) if path[:k] in boundaries]
        assert [tree.path_ids(n) for n in _above(tree, path)] == ancestors
    # What carries weight hangs below what carries weight, and goes on unless a request failed.
    early = sibling_shares(tree)
    for node in tree.nodes[1:]:
        below = [early[child.index] > 0 for child in node.children]
        if all(child.finish_reason != "error" for child in node.children) and below:
            assert any(below) == (early[node.index] > 0)
        assert early[node.index] > 0 or not any(below)
    ledger = tree.ledger
    assert ledger.generated == tree.kept_tokens() + ledger.discarded


def _above(tree: Tree, path: tuple[int, ...]) -> list[Node]:
    node = next(n for n in tree.nodes if tree.path_ids(n) == path and n.finish_reason != "error")
    return [tree.root, *tree.path(node)][: node.depth]


# --- A --------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("seed", range(8))
def test_a1_requests_are_the_prompt_and_the_path(policy: TreePOConfig, seed: int) -> None:
    served, asked = watched()
    (tree,) = grow(policy, served, seed=seed)
    check_exact(tree)
    contexts = Counter(request.prompt_ids for request in asked)
    assert contexts == {tree.context_ids(n): n.draws for n in tree.nodes if n.draws}
    assert len({request.seed for request in asked}) == len(asked)


class BlindTokenizer(ByteTokenizer):
    """Refuses to touch text once the prompt is made."""

    def encode(self, text: str) -> list[int]:
        raise AssertionError("a tokenizer call on generated tokens")

    def decode(self, token_ids: Sequence[int]) -> str:
        raise AssertionError("text where nobody asked for any")


@both
def test_a2_no_tokenizer_call_on_generated_tokens(policy: TreePOConfig) -> None:
    silent = replace(policy, rewards=False, stopping=Stopping(boxed=False, repetition=None))
    growth = TreePO(problems(1)[0], BlindTokenizer(), silent)
    run_sync([growth], engine())
    assert growth.tree.leaves()


def said(*parts: str | Sequence[int], reason: str = "length") -> Any:
    """Return a policy that says these segments in turn, as Completions with one finish reason."""

    def policy(request: Request) -> Completion:
        done = len(request.prompt_ids) - PROMPT
        for part in parts:
            ids = tuple(part.encode() if isinstance(part, str) else part)
            if done <= 0:
                break
            done -= len(ids)
        else:
            raise AssertionError("asked behind the end")
        return Completion(ids, (-1.0,) * len(ids), reason, usage=Usage(0, 0, len(ids)))  # type: ignore[arg-type]

    return policy


PROMPT = len(ByteTokenizer().encode_prompt([{"role": "user", "content": "Toss."}]))
CHAIN = config(width=1)


def test_a3_an_end_token_alone_in_a_segment_ends_the_path() -> None:
    (tree,) = grow(CHAIN, ScriptedEngine(lambda r: b"aaaa" if len(r.prompt_ids) == PROMPT else b""))
    assert [(n.token_ids, n.finish_reason) for n in tree.nodes[1:]] == [
        (tuple(b"aaaa"), None),
        ((EOS,), "eos"),
    ]


@pytest.mark.parametrize("end", [300, 301])
def test_a3_end_tokens_that_an_engine_overlooks_end_the_path(end: int) -> None:
    """One of a list, first in its segment or not; what follows it is discarded and not built on."""
    served = ScriptedEngine(said("aaaa", (end, 97, 97, 97)), eos_id=999)
    growth = TreePO(problems(1)[0], served.tokenizer, CHAIN, eos_ids=frozenset({300, 301}))
    run_sync([growth], served)
    (leaf,) = growth.tree.leaves()
    assert (leaf.token_ids, leaf.finish_reason) == ((end,), "eos")
    assert summarise(growth.tree).cost.surplus == growth.tree.ledger.discarded == 3


def test_a3_an_end_token_as_the_last_allowed_token_is_an_end() -> None:
    (tree,) = grow(config(width=1, max_tokens=8), ScriptedEngine(lambda r: b"a" * 7))
    assert tree.leaves()[0].finish_reason == "eos" or len(tree.leaves()) == 1
    served = ScriptedEngine(said("aaaa", (*b"aaa", EOS), reason="length"))
    growth = TreePO(
        problems(1)[0], served.tokenizer, config(width=1, max_tokens=8), eos_ids=served.eos_ids
    )
    run_sync([growth], served)
    (leaf,) = growth.tree.leaves()
    assert (leaf.token_ids[-1], leaf.finish_reason) == (EOS, "eos")


def test_a3_stop_strings_across_a_segment_boundary() -> None:
    served = ScriptedEngine(lambda r: b"abcd" if len(r.prompt_ids) == PROMPT else b"efgh")
    (tree,) = grow(config(width=1, stop=("cdef",)), served)
    (leaf,) = tree.leaves()
    assert bytes(tree.path_ids(leaf)) == b"abcdef"
    assert leaf.finish_reason == "stop"
    assert tree.ledger.discarded == 2
    (tree,) = grow(config(width=1, stop=("fg",)), served)  # inside: the engine sees it
    assert bytes(tree.path_ids(tree.leaves()[0])) == b"abcdefg"


@both
def test_a3_nothing_is_generated_behind_an_end(policy: TreePOConfig) -> None:
    served, asked = watched()
    grow(policy, served, n=5)
    assert not any(EOS in request.prompt_ids for request in asked)


@pytest.mark.parametrize("cap", [1, 3, 4, 5, 10])
@both
def test_a4_no_path_exceeds_the_cap(policy: TreePOConfig, cap: int) -> None:
    served, asked = watched()
    (tree,) = grow(replace(policy, max_tokens=cap), served)
    assert max(len(tree.path_ids(leaf)) for leaf in tree.leaves()) <= cap
    for request in asked:
        room = cap - (len(request.prompt_ids) - PROMPT)
        assert request.max_tokens == min(policy.segment_tokens or room, room) or (
            isinstance(policy.allocation, FullTree) and request.max_tokens == room
        )


def test_a4_the_engines_context_is_a_cap_too() -> None:
    served = engine(lambda r: b"a" * 400, max_context=PROMPT + 10)
    growth = TreePO(problems(1)[0], served.tokenizer, CHAIN, max_context=PROMPT + 10)
    run_sync([growth], served)
    (leaf,) = growth.tree.leaves()
    assert (len(growth.tree.path_ids(leaf)), leaf.finish_reason) == (10, "length")
    with pytest.raises(PromptTooLong, match="shorten the prompt"):
        TreePO(problems(1)[0], served.tokenizer, CHAIN, max_context=PROMPT)


def test_depth_is_a_cap_of_its_own() -> None:
    served = engine(lambda r: b"a" * 400)
    (tree,) = grow(config(width=1, max_depth=3, stopping=Stopping(repetition=None)), served)
    assert [n.finish_reason for n in tree.nodes[1:]] == [None, None, "depth"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["quota, refilled", "published", "published, from start"])
def test_a5_leaves_are_the_width_with_refill(name: str, seed: int) -> None:
    (tree,) = grow(POLICIES[name], seed=seed)
    assert sum(leaf.multiplicity for leaf in tree.leaves()) == 8


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["quota", "quota, confident"])
def test_a5_leaves_are_at_most_the_width_without_refill(name: str, seed: int) -> None:
    (tree,) = grow(POLICIES[name], seed=seed)
    leaves = tree.leaves()
    assert 1 <= sum(leaf.multiplicity for leaf in leaves) <= 8
    assert len({tree.path_ids(leaf) for leaf in leaves}) == len(leaves)


def test_equal_samples_fold_into_one_node_that_counts_them() -> None:
    (tree,) = grow(config(width=8, allocation=Quota(k0=4)), engine(lambda r: b"ab"))
    (leaf,) = tree.nodes[1:]
    assert (leaf.multiplicity, leaf.reward) == (4, 0.0)
    assert tree.ledger.judged == 1
    assert tree.ledger.discarded == 3 * 3
    assert summarise(tree).ess == pytest.approx(4)
    assert summarise(tree).first_nodes == 1


@both
@pytest.mark.parametrize("width", [1, 64])
def test_a7_arrival_order_and_concurrency_leave_no_trace(policy: TreePOConfig, width: int) -> None:
    want = [tree_to_record(tree) for tree in grow(policy)]
    assert want == [tree_to_record(tree_from_record(record)) for record in want]
    for seed in range(20):
        served = engine(latency=jitter(0.1, 9.0, seed=seed), max_concurrency=width)
        assert [tree_to_record(tree) for tree in grow(policy, served)] == want


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(POLICIES)),
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.integers(1, 3),
    st.booleans(),
)
def test_a7_batch_size_and_driver_leave_no_trace(
    name: str, seed: int, batch: int, active: int, steps: bool
) -> None:
    want = [tree_to_record(tree) for tree in grow(POLICIES[name], n=3, seed=seed)]
    served = engine(latency=jitter(0.1, 3.0, seed=seed), max_concurrency=batch)
    if steps:
        info = RunInfo(seed=seed, sampler="t")
        growths = [TreePO(p, served.tokenizer, POLICIES[name], run=info) for p in problems(3)]
        list(run_steps(growths, served, Judges(reward=even), active=active))
        trees = [growth.tree for growth in growths]
    else:
        trees = grow(POLICIES[name], served, n=3, seed=seed, active=active)
    assert [tree_to_record(tree) for tree in trees] == want


@settings(max_examples=60)
@given(st.sampled_from(sorted(POLICIES)), st.integers(0, 10**6), st.integers(1, 9))
def test_a8_nodes_are_shared_exactly_by_equal_prefixes(name: str, seed: int, segment: int) -> None:
    policy = POLICIES[name]
    if policy.segment_tokens is not None:
        policy = replace(policy, segment_tokens=segment)
    (tree,) = grow(policy, seed=seed)
    check_exact(tree)


def test_a8_a_branch_point_inside_a_node_splits_it() -> None:
    def policy(request: Request) -> bytes:
        return b"abcdefgh" if len(request.prompt_ids) == PROMPT else b"XY"

    def surprised(request: Request, ids: Sequence[int]) -> list[float]:
        return [-5.0 if token == ord("d") else -0.5 for token in ids]

    how = config(
        width=1,
        segment_tokens=None,
        allocation=Quota(k0=None),
        fallback=EPTree(branch_tokens=1, copies=2),
    )
    (tree,) = grow(how, ScriptedEngine(policy, logprob=surprised))
    shared, rest, new = tree.nodes[1:]
    assert bytes(shared.token_ids) == b"abc"
    assert rest.token_ids == (*b"defgh", EOS)
    assert (new.token_ids, new.multiplicity) == ((*b"XY", EOS), 2)
    assert rest.parent is shared
    assert new.parent is shared
    assert rest.logprobs == (-5.0, *(-0.5,) * 5)
    assert (rest.seed, shared.draws, tree.root.draws) == (shared.seed, 2, 1)
    assert new.meta == {"late": 2}
    # Branching where the sample was unlikely selects: the new paths must not count as samples.
    assert branch_weights(tree).tolist() == [1.0, 1.0, 1.0, 0.0]


@both
def test_a9_failed_requests_are_records_and_harm_nobody(policy: TreePOConfig) -> None:
    served = engine(faults=0.3, fault_retryable=False)
    trees = grow(policy, served, n=6)
    failed = [n for tree in trees for n in tree.nodes if n.finish_reason == "error"]
    assert failed
    assert all("an injected fault" in (n.error or "") and not n.multiplicity for n in failed)
    assert len(failed) == sum(tree.ledger.failed_requests for tree in trees)
    for tree in trees:
        check_exact(tree)
        assert all(weight == 0 for n, weight in _weights(tree) if n.finish_reason == "error")


def _weights(tree: Tree) -> list[tuple[Node, float]]:
    return list(zip(tree.nodes, branch_weights(tree).tolist(), strict=True))


@both
def test_a9_retried_requests_leave_no_trace(policy: TreePOConfig) -> None:
    want = [tree_to_record(tree) for tree in grow(policy, n=2)]
    served = engine(faults=0.3, latency=jitter(0.1, 2.0))
    assert [tree_to_record(tree) for tree in grow(policy, served, n=2, retries=50)] == want


def test_a9_an_engine_that_always_fails_does_not_refill_for_ever() -> None:
    served = engine(faults=lambda r: EngineError("no"))
    (tree,) = grow(POLICIES["published"], served)
    assert not tree.leaves()
    assert {n.finish_reason for n in tree.nodes[1:]} == {"error"}


def test_a9_cancellation_leaves_no_request_pending() -> None:
    served = engine(latency=5.0)

    async def cancelled() -> int:
        growths = [TreePO(p, served.tokenizer, POLICIES["published"]) for p in problems(4)]
        async with aclosing(run(growths, served, Judges(reward=even))) as trees:
            async for _ in trees:
                break  # the reader leaves with trees half grown
        return sum(entry.ended is None for entry in served.log)

    assert asyncio.run(cancelled()) == 0


def test_a_dead_engine_ends_the_run_and_not_the_trees_before_it() -> None:
    served = engine(dies_after=40)
    growths = [TreePO(p, served.tokenizer, POLICIES["quota"]) for p in problems(9)]
    with pytest.raises(EngineDied):
        run_sync(growths, served, Judges(reward=even), active=1)
    whole = [tree_to_record(g.tree) for g in growths if g.done]
    assert 0 < len(whole) < 9
    again = [TreePO(p, served.tokenizer, POLICIES["quota"]) for p in problems(len(whole))]
    run_sync(again, engine(), Judges(reward=even))
    assert [tree_to_record(g.tree) for g in again] == whole


# --- policies at work -----------------------------------------------------------------------------


def test_seeds_change_with_run_problem_visit_and_tree() -> None:
    def first(problem: str, **run: int) -> tuple[int, ...]:
        tokenizer = ByteTokenizer()
        growth = TreePO(
            Problem.from_text(problem, "Toss.", "1"), tokenizer, CHAIN, run=RunInfo(**run)
        )
        return tuple(r.seed or 0 for r in growth.ready() if isinstance(r, Request))

    keys = [("p", {}), ("q", {}), ("p", {"seed": 1}), ("p", {"visit": 1}), ("p", {"tree_index": 1})]
    assert len({first(name, **run) for name, run in keys}) == len(keys)


def test_late_draws_carry_no_weight_and_weights_sum_to_one() -> None:
    for seed in range(20):
        (tree,) = grow(POLICIES["published"], seed=seed)
        omega = branch_weights(tree)
        leaves = [leaf.index for leaf in tree.leaves()]
        assert omega[leaves].sum() == pytest.approx(1)
        early = sum((n.meta or {}).get("late", 0) for n in tree.nodes) + sibling_shares(tree).sum()
        assert early == sum(n.multiplicity for n in tree.nodes)
        for node in tree.nodes[1:]:
            if (node.meta or {}).get("late") == node.multiplicity:
                assert omega[node.index] == 0


def test_an_eptree_branches_where_its_chains_were_surprised() -> None:
    def numbers(request: Request) -> list[int]:
        rng = Random(request.seed)
        return [1000 + rng.getrandbits(40) for _ in range(rng.randint(4, 20))]

    how = preset("eptree", chains=3, branch_tokens=2, copies=2, rewards=False)
    (tree,) = grow(how, engine(numbers))
    assert len(tree.leaves()) == 3 * (1 + 2 * 2)
    late = {n.index for n in tree.nodes if (n.meta or {}).get("late")}
    for top in tree.root.children:
        chain = [n for n in tree.nodes if n.index not in late and top in tree.path(n)]
        path = [x for n in chain for x in n.logprobs]
        branched = [n.logprobs[0] for n in chain[1:]]
        assert len(branched) == 2
        assert sorted(branched) == sorted(path[1:])[:2]
        assert all(len(n.parent.children) == 3 for n in chain[1:] if n.parent)


def test_nothing_branches_behind_a_word_that_announces_the_answer() -> None:
    def policy(request: Request) -> list[int]:
        return [*b"ab", 300, *b"cdef"] if len(request.prompt_ids) == PROMPT else [*b"X"]

    class Words(ByteTokenizer):
        def decode(self, token_ids: Sequence[int]) -> str:
            return "The Answer" if tuple(token_ids) == (300,) else super().decode(token_ids)

    served = ScriptedEngine(
        policy,
        tokenizer=Words(),
        logprob=lambda request, ids: [-float(i) for i in range(len(ids))],
    )
    how = preset(
        "eptree",
        chains=1,
        branch_tokens=1,
        copies=1,
        rewards=False,
        stopping=Stopping(boxed=False, repetition=None),
    )
    growth = TreePO(problems(1)[0], served.tokenizer, how)
    run_sync([growth], served)
    # The likeliest places are further on, but the token 300 is the last that may be branched at.
    assert growth.tree.nodes[1].token_ids == tuple(b"ab")


def test_tree_grpo_counts_new_paths_from_the_root_to_their_chain() -> None:
    how = POLICIES["tree-grpo"]
    marked = 0
    for seed in range(20):
        (tree,) = grow(how, seed=seed)
        late = [(n.meta or {}).get("late", 0) for n in tree.root.children]
        chains = sum(n.multiplicity > k for n, k in zip(tree.root.children, late, strict=True))
        assert 1 <= chains <= 3  # equal ones are one
        assert sum(leaf.multiplicity for leaf in tree.leaves()) == 3 + chains * 3 * 2
        for node in tree.nodes[1:]:
            meta = node.meta or {}
            if "chain" in meta:
                marked += node.depth == 1
                assert 0 <= meta["chain"] < 3
    assert marked


def test_a_full_tree_is_full_where_nothing_stops() -> None:
    def digits(request: Request) -> list[int]:
        rng = Random(request.seed)
        return [97 + rng.randrange(26) for _ in range(40)]

    how = preset("spo_tree", factors=(3, 2, 2), segment_tokens=8, max_tokens=30)
    (tree,) = grow(how, engine(digits))
    assert [sum(n.depth == d for n in tree.nodes) for d in range(4)] == [1, 3, 6, 12]
    assert how.width == len(tree.leaves()) == 12
    assert {len(tree.path_ids(leaf)) for leaf in tree.leaves()} == {30}


def test_the_flat_preset_is_a_star_or_chains() -> None:
    (star,) = grow(preset("flat", width=6, max_tokens=300, stopping=Stopping(boxed=False)))
    assert {n.depth for n in star.nodes[1:]} == {1}
    assert sum(n.multiplicity for n in star.nodes[1:]) == star.root.draws == 6
    assert summarise(star).ess == pytest.approx(6)
    chains = preset("flat", width=6, segment_tokens=4, max_tokens=300)
    (tree,) = grow(chains)
    assert sum(leaf.multiplicity for leaf in tree.leaves()) == 6
    assert max(n.depth for n in tree.nodes) > 1


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_grows(name: str) -> None:
    options: dict[str, Any] = {"max_tokens": 40, "rewards": True}
    if preset(name).segment_tokens is not None:
        options["segment_tokens"] = 4
    if preset(name).max_depth is not None:
        options["max_depth"] = 10
    (tree,) = grow(preset(name, **options))
    check_exact(tree)
    assert tree.leaves()


def test_unknown_presets_name_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no preset 'tree'; there are eptree, flat"):
        preset("tree")


# --- aborting, judging, stopping early ------------------------------------------------------------


def test_aborted_paths_are_a_function_of_the_path() -> None:
    how = config(allocation=Quota(k0=4), abort=lambda path: path.ids[0] == 97)
    want = tree_to_record(grow(how)[0])
    assert tree_to_record(grow(how, engine(latency=jitter(0.1, 9.0)))[0]) == want
    tree = tree_from_record(want)
    aborted = [n for n in tree.nodes if n.finish_reason == "aborted"]
    assert aborted
    assert all(n.token_ids[0] == 97 and n.reward is None for n in aborted)
    assert summarise(tree).cost.aborted == sum(len(n.token_ids) for n in aborted)
    assert "aborted" in summarise(tree).finish


def test_a_predicate_that_aborts_everything_ends_the_tree() -> None:
    (tree,) = grow(config(fallback=REFILL, abort=lambda path: True))
    assert {n.finish_reason for n in tree.nodes[1:] if not n.children} <= {"aborted", "eos"}


class Scorer:
    """Gives a step 0 where it ends in b."""

    def score(self, problem: Problem, steps: Sequence[str]) -> list[StepScore]:
        return [StepScore(0.0 if step.endswith("b") else 1.0) for step in steps]


class RefutesB:
    """Refutes a step that ends in b."""

    name = "b"

    def verify(
        self, step: str, *, problem: str = "", previous_steps: Sequence[str] = ()
    ) -> StepVerdict:
        return StepVerdict(
            Verdict.REFUTED if step.endswith("b") else Verdict.SUPPORTED, "last_letter"
        )


@pytest.mark.parametrize("role", ["scorer", "verifier"])
def test_a_gate_prunes_what_its_judge_refuses(role: Any) -> None:
    how = config(allocation=Quota(k0=4), gate=Gate(role=role))
    served = engine()
    judges = Judges(reward=even, scorer=Scorer(), verifier=RefutesB())
    growths = [TreePO(p, served.tokenizer, how) for p in problems(4)]
    run_sync(growths, served, judges)
    nodes = [n for g in growths for n in g.tree.nodes[1:]]
    for node in nodes:
        ends_in_b = bytes(t for t in node.token_ids if t < 256).endswith(b"b")
        assert (node.finish_reason == "aborted") == ends_in_b
        if role == "verifier":
            assert node.verdict is not None
    assert {n.finish_reason for n in nodes} >= {"aborted", "eos", None}


def test_a_gate_whose_judge_fails_lets_the_path_go_on() -> None:
    (growth,) = run_sync(
        [TreePO(problems(1)[0], ByteTokenizer(), config(gate=Gate()))], engine(), Judges(even)
    )
    nodes = growth.tree.nodes[1:]
    assert all((n.meta or {})["judge_error"] == "no scorer is configured" for n in nodes)
    assert any(n.finish_reason == "eos" for n in nodes)


def test_enough_is_asked_with_all_rewards_in() -> None:
    seen: list[bool] = []

    def enough(tree: Tree) -> bool:
        seen.append(all(leaf.reward is not None for leaf in tree.leaves()))
        return sum(leaf.reward or 0.0 for leaf in tree.leaves()) >= 1

    how = config(allocation=Quota(k0=1, b=1), fallback=FromStart(copies=1), enough=enough)
    trees = [tree for seed in range(10) for tree in grow(how, seed=seed)]
    assert all(seen)
    assert all(sum(leaf.reward or 0.0 for leaf in tree.leaves()) <= 1 for tree in trees)
    assert len({len(tree.leaves()) for tree in trees}) > 1


def test_a_reward_that_raises_is_a_record() -> None:
    def reward(problem: Problem, text: str, leaf: Leaf) -> float:
        raise ZeroDivisionError("no such number")

    (growth,) = run_sync(
        [TreePO(problems(1)[0], ByteTokenizer(), config())], engine(), Judges(reward)
    )
    leaves = growth.tree.leaves()
    assert all(leaf.reward is None for leaf in leaves)
    assert {(leaf.meta or {})["judge_error"] for leaf in leaves} == {
        "ZeroDivisionError: no such number"
    }


def test_rewards_see_each_distinct_path_once_with_a_number_of_its_own() -> None:
    seen: list[Leaf] = []

    def reward(problem: Problem, text: str, leaf: Leaf) -> float:
        assert text.encode() == bytes(t for t in leaf.token_ids if t < 256)
        seen.append(leaf)
        return 1.0

    (growth,) = run_sync(
        [TreePO(problems(1)[0], ByteTokenizer(), POLICIES["published"])], engine(), Judges(reward)
    )
    leaves = growth.tree.leaves()
    assert len(seen) == len(leaves) == growth.tree.ledger.judged
    assert len({leaf.node for leaf in seen}) == len(seen)
    assert {leaf.token_ids for leaf in seen} == {growth.tree.path_ids(leaf) for leaf in leaves}


def test_segment_texts_join_to_the_paths_text() -> None:
    def policy(request: Request) -> list[int]:
        whole = "größer als π — ja".encode()
        return list(whole[len(request.prompt_ids) - PROMPT :])

    (tree,) = grow(config(width=1, segment_tokens=3, max_tokens=60), engine(policy))
    texts = segment_texts(tree, ByteTokenizer())
    assert "".join(texts).replace("\N{REPLACEMENT CHARACTER}", "") == "größer als π — ja"


def test_children_follow_their_own_parents_seed_lineage() -> None:
    """Two trees that share a first draw share everything below it, however many siblings it has."""
    one = grow(config(width=2, allocation=Quota(k0=2)))[0]
    two = grow(config(width=4, allocation=Quota(k0=4)))[0]
    first = one.root.children[0]
    again = next(n for n in two.root.children if n.seed == first.seed)
    below = [(n.token_ids, n.seed) for n in one.walk() if first in one.path(n)]
    assert below == [(n.token_ids, n.seed) for n in two.walk() if again in two.path(n)]


def test_the_clock_is_shared_by_nobody() -> None:
    """A tree is no function of time: two engines, one far slower, grow the same one."""
    slow = engine(latency=1e6, clock=VirtualClock())
    assert tree_to_record(grow(POLICIES["published"], slow)[0]) == tree_to_record(
        grow(POLICIES["published"])[0]
    )


def test_nodes_stand_depth_first() -> None:
    (tree,) = grow(POLICIES["published"])
    assert [n.index for n in tree.walk()] == list(range(len(tree)))
    for node in tree.nodes:
        assert all(a.place + 1 == b.place for a, b in pairwise(node.children))


def test_a_chain_of_thousands_of_segments_is_an_ordinary_tree() -> None:
    served = engine(lambda request: [request.max_tokens % 2 + 97] * 2)
    how = config(width=1, segment_tokens=1, max_tokens=2000, stopping=NO_RULES, rewards=False)
    (tree,) = grow(how, served)
    assert max(n.depth for n in tree.nodes) == 2000
    assert len(tree.path_ids(tree.leaves()[0])) == 2000
