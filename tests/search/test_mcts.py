"""MCTS: the laws that every tree keeps, and the rules of selection, folding and failure."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import dice_policy, ends_in_one, problems, small_search

from treerl.engines.base import Completion, Request, Usage
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.errors import PromptTooLong
from treerl.problem import Problem
from treerl.protocols import StepScore
from treerl.search.growth import Judgement, JudgeRequest, Judges, run_sync
from treerl.search.mcts import MCTS, MCTSConfig
from treerl.search.rollout_reward import RolloutReward
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.tree import RunInfo, Tree
from treerl.treefile import tree_from_record, tree_to_record
from treerl.verdict import StepVerdict, Verdict

TOKENIZER = ByteTokenizer()


class Referee:
    """A verifier whose verdict is a function of the step."""

    name = "referee/1"

    def verify(self, step: str, *, problem: str = "", previous_steps=()) -> StepVerdict:
        word = [Verdict.SUPPORTED, Verdict.REFUTED, Verdict.UNVERIFIABLE][len(step + problem) % 3]
        return StepVerdict(word, "by length", None if word is Verdict.UNVERIFIABLE else "partial")


JUDGES = Judges(reward=ends_in_one, verifier=Referee())


def wordy_policy(request: Request) -> str:
    """Say lines of several shapes: blank ones, repeated ones, long ones, early ends."""
    rng = random.Random(request.seed)
    lines = []
    for _ in range(rng.randint(0, 4)):
        lines.append(rng.choice(["", "", "a", "a", "bé", "c" * rng.randint(1, 30), "  a "]))
    answer = f"Answer: {rng.randint(0, 1)}"
    return "\n".join([*lines, *([answer] if rng.random() < 0.9 else [])])


def search(
    config: MCTSConfig,
    *,
    policy=wordy_policy,
    seed: int = 0,
    tree: Tree | None = None,
    **engine: object,
) -> MCTS:
    (problem,) = problems(1)
    growth = MCTS(problem, TOKENIZER, config, run=RunInfo(seed=seed, sampler="mcts"), tree=tree)
    run_sync([growth], ScriptedEngine(policy, **engine), JUDGES, retry_delay_s=0.0)
    return growth


CONFIGS = st.builds(
    MCTSConfig,
    simulations=st.integers(1, 24),
    wave=st.integers(1, 6),
    children=st.integers(1, 4),
    expand_after=st.integers(0, 2),
    max_steps=st.integers(1, 6),
    selection=st.sampled_from(["uct", "uct_published", "puct", "restmcts"]),
    prior=st.sampled_from(["multiplicity", "uniform", "logprob"]),
    exploration=st.floats(0, 3),
    discount=st.floats(0.5, 1.0),
    rollout_reward=st.builds(
        RolloutReward, normalise=st.just(True), include_own_verdict=st.booleans()
    ),
    sampling=st.builds(
        Sampling,
        steps=st.sampled_from([PlainSteps("\n"), PlainSteps("\n\n")]),
        max_tokens=st.integers(1, 60),
        dedup=st.sampled_from(["text", "tokens"]),
        answer_ends=st.booleans(),
        verify_steps=st.booleans(),
    ),
)


@settings(max_examples=500, deadline=None)
@given(config=CONFIGS, seed=st.integers(0, 10**6), faults=st.sampled_from([0.0, 0.0, 0.2]))
def test_invariants(config: MCTSConfig, seed: int, faults: float) -> None:
    growth = search(config, seed=seed, faults=faults, fault_retryable=False)
    tree = growth.tree
    assert growth.done
    assert growth.ready() == []
    for node in tree.nodes:
        assert node.visits == node.own + sum(child.visits for child in node.children)
        assert node.total >= sum(child.total for child in node.children)
        assert 0 <= node.correct <= node.total
        assert node.draws == sum(c.multiplicity or 1 for c in node.children)
        assert len(node.token_ids) == len(node.logprobs) or node is tree.root
        if node.value is not None:
            assert abs(node.value) <= 1 + 1e-9
        if node.finish_reason is not None:
            assert not node.children
        if node.is_leaf:
            assert node.reward is not None
        if node.error is not None:
            assert (node.multiplicity, node.finish_reason) == (0, "error")
    assert tree.ledger.generated == tree.kept_tokens() + tree.ledger.discarded
    assert tree.ledger.computed == tree.ledger.submitted - tree.ledger.cached >= 0
    failed = (tree.root.meta or {}).get("failed_simulations", 0)
    assert tree.root.visits + failed <= config.simulations
    assert max(len(tree.path_ids(leaf)) for leaf in tree.nodes) <= config.sampling.max_tokens


@settings(max_examples=60, deadline=None)
@given(config=CONFIGS, seed=st.integers(0, 999), order=st.integers(0, 999))
def test_arrival_order_leaves_no_trace(config: MCTSConfig, seed: int, order: int) -> None:
    late = search(config, seed=seed, latency=jitter(0.1, 9.0, seed=order))
    assert tree_to_record(late.tree) == tree_to_record(search(config, seed=seed).tree)


@settings(max_examples=60, deadline=None)
@given(config=CONFIGS, seed=st.integers(0, 999), waves=st.integers(1, 3), more=st.integers(1, 12))
def test_going_on_equals_one_longer_search(config, seed, waves, more) -> None:
    early = replace(config, simulations=waves * config.wave)
    longer = replace(config, simulations=waves * config.wave + more)
    first = search(early, seed=seed).tree
    stored = tree_from_record(tree_to_record(first))
    stored.ledger = first.ledger  # the cache count is volatile, so a record leaves it out
    resumed = search(longer, seed=seed, tree=stored).tree
    assert tree_to_record(resumed) == tree_to_record(search(longer, seed=seed).tree)


def test_requests_are_prompt_plus_path_ids_and_seeds_differ() -> None:
    seen: list[Request] = []

    def policy(request: Request) -> str:
        seen.append(request)
        return dice_policy(request)

    tree = search(small_search(simulations=30), policy=policy).tree
    paths = {tree.context_ids(node) for node in tree.nodes}
    assert all(request.prompt_ids in paths for request in seen)
    assert len({(r.prompt_ids, r.seed) for r in seen}) == len(seen)
    assert len({r.request_id for r in seen}) == len(seen)


def test_the_gold_answer_has_no_part_in_the_trees_shape() -> None:
    def shape(gold: str | None) -> list[tuple]:
        problem = Problem.from_text("p", "Roll.", gold)
        config = small_search(simulations=1, rollout_reward=RolloutReward())
        growth = MCTS(problem, TOKENIZER, config)
        run_sync([growth], ScriptedEngine(dice_policy), JUDGES)
        return [(n.token_ids, n.finish_reason) for n in growth.tree.nodes]

    assert shape("1") == shape("0") == shape(None)


def drive(growth: MCTS, answer) -> None:
    """Answer requests one by one with a function of the request."""
    while not growth.done:
        for request in growth.ready():
            if isinstance(request, JudgeRequest):
                growth.tell(request.request_id, Judgement(reward=1.0))
            else:
                growth.tell(request.request_id, answer(request))


def completion(text: str, finish: str = "eos", stop: str | None = None) -> Completion:
    ids = tuple(text.encode())
    return Completion(
        ids,
        (-0.5,) * len(ids),
        finish,
        stop,
        usage=Usage(generated=len(ids)),  # type: ignore[arg-type]
    )


def step(text: str) -> Completion:
    return completion(text, "stop", "\n")


def test_equal_steps_fold_into_one_node_with_multiplicity() -> None:
    config = small_search(simulations=1, children=3, expand_after=0)
    growth = MCTS(problems(1)[0], TOKENIZER, config)
    texts = iter(["x\n", "y\n", " x \n"])
    drive(growth, lambda r: step(next(texts)) if r.stop else completion("z"))
    first, second = growth.tree.root.children
    assert (first.text, first.multiplicity) == ("x", 2)
    assert (second.text, second.multiplicity) == ("y", 1)
    assert growth.tree.ledger.discarded == len(" x \n")
    tokens_only = replace(config, sampling=replace(config.sampling, dedup="tokens"))
    growth = MCTS(problems(1)[0], TOKENIZER, tokens_only)
    texts = iter(["x\n", "y\n", " x \n"])
    drive(growth, lambda r: step(next(texts)) if r.stop else completion("z"))
    assert [n.text for n in growth.tree.root.children] == ["x", "y", "x"]


def test_a_rollout_never_hangs_below_a_sibling_of_other_ids() -> None:
    """Equal text is not enough: what follows was generated behind the newcomer's own ids."""
    config = small_search(simulations=2, wave=1, children=4)
    growth = MCTS(problems(1)[0], TOKENIZER, config)
    rollouts = iter(["x\nend one", " x\nend two"])
    drive(growth, lambda r: step("x\n") if r.stop else completion(next(rollouts)))
    for node in growth.tree.nodes[1:]:
        parent = node.parent
        assert parent is not None
        if parent is not growth.tree.root:
            assert parent.token_ids in (tuple(b"x\n"), tuple(b" x\n"))
    leaf = next(n for n in growth.tree.leaves() if n.text == "end one")
    assert growth.tree.path_ids(leaf) == tuple(b"x\nend one")


def test_a_blank_step_goes_on_until_it_says_something() -> None:
    config = small_search(simulations=1, children=1, expand_after=0)
    growth = MCTS(problems(1)[0], TOKENIZER, config)
    parts = iter(["\n", "  \n", "x\n"])
    contexts: list[tuple[int, ...]] = []

    def answer(request: Request) -> Completion:
        contexts.append(request.prompt_ids)
        return step(next(parts)) if request.stop else completion("end")

    drive(growth, answer)
    (child,) = growth.tree.root.children
    assert (child.text, child.token_ids) == ("x", tuple(b"\n  \nx\n"))
    prompt = growth.tree.prompt_ids
    assert contexts[:3] == [prompt, prompt + tuple(b"\n"), prompt + tuple(b"\n  \n")]


def test_a_final_answer_ends_its_path_and_the_surplus_is_booked() -> None:
    config = small_search(simulations=1)
    growth = MCTS(problems(1)[0], TOKENIZER, config)
    drive(growth, lambda r: completion("x\nAnswer: 1\nBut wait"))
    (leaf,) = growth.tree.leaves()
    assert (leaf.text, leaf.finish_reason) == ("Answer: 1", "answer")
    assert growth.tree.ledger.discarded == len("But wait")


def test_a_path_that_fills_its_budget_ends_by_length() -> None:
    sampling = Sampling(steps=PlainSteps("\n"), max_tokens=4, verify_steps=False)
    config = small_search(simulations=1, children=1, expand_after=0, sampling=sampling)
    growth = MCTS(problems(1)[0], TOKENIZER, config)
    drive(growth, lambda r: step("abc\n"))
    (child,) = growth.tree.root.children
    assert child.finish_reason == "length"


def test_an_aborted_rollout_is_kept_unscored_and_its_simulation_fails() -> None:
    config = small_search(simulations=1)
    growth = MCTS(problems(1)[0], TOKENIZER, config)
    drive(growth, lambda r: completion("half a st", "abort"))
    (node,) = growth.tree.root.children
    assert (node.finish_reason, node.reward) == ("aborted", None)
    assert growth.tree.root.meta == {"failed_simulations": 1}
    assert growth.tree.root.visits == 0


def test_an_empty_completion_is_a_failure_not_a_node_without_tokens() -> None:
    growth = MCTS(problems(1)[0], TOKENIZER, small_search(simulations=1))
    drive(growth, lambda r: completion("", "abort"))
    (node,) = growth.tree.root.children
    assert node.error == "EngineError: an empty completion (abort)"


def test_every_leaf_is_scored_and_counted_once_per_sample() -> None:
    config = small_search(simulations=40, wave=4)
    tree = search(config, policy=dice_policy).tree
    samples = sum(leaf.multiplicity for leaf in tree.leaves())
    assert tree.root.total == samples
    right = sum(leaf.multiplicity for leaf in tree.leaves() if leaf.reward == 1.0)
    assert tree.root.correct == right


def test_an_exhausted_tree_ends_the_search_early() -> None:
    config = small_search(simulations=50, children=2)
    tree = search(config, policy=lambda r: "Answer: 1").tree
    assert tree.root.visits < 50
    assert len(tree.leaves()) == 1


class Scorer:
    """A scorer that likes rolls of 4 and cannot read its own answer about rolls of 1."""

    def score(self, problem: Problem, steps) -> list[StepScore]:
        return [StepScore(1.0 if s.endswith("4") else 0.25, parsed="1" not in s) for s in steps]


def test_scores_are_known_before_a_child_is_chosen() -> None:
    sampling = Sampling(
        steps=PlainSteps("\n"), max_tokens=200, verify_steps=False, score_steps=True
    )

    def grow(**engine: object) -> Tree:
        config = small_search(
            simulations=1, children=8, expand_after=0, selection="puct", sampling=sampling
        )
        growth = MCTS(problems(1)[0], TOKENIZER, config, run=RunInfo(seed=5))
        judges = Judges(reward=ends_in_one, scorer=Scorer())
        run_sync([growth], ScriptedEngine(dice_policy, **engine), judges)
        return growth.tree

    tree = grow()
    priors = {child.text: child.prior for child in tree.root.children}
    assert priors["roll 4"] == 1.0
    assert priors["roll 1"] == 0.0
    assert priors["roll 2"] == -0.5
    (visited,) = [child.text for child in tree.root.children if child.visits]
    assert visited == "roll 4"
    assert tree_to_record(grow(latency=jitter(0.1, 9.0))) == tree_to_record(tree)


def test_a_prompt_without_room_is_refused_with_its_numbers() -> None:
    (problem,) = problems(1)
    with pytest.raises(PromptTooLong, match="problem 'p0': the prompt has 7 tokens.*context 7"):
        MCTS(problem, TOKENIZER, small_search(), max_context=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"simulations": 0}, "simulations must be at least 1"),
        ({"discount": 0.0}, "discount"),
        ({"expand_after": -1}, "expand_after"),
        ({"sampling": Sampling(temperature=0.0)}, "at temperature 0 all children are the same"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MCTSConfig(**options)


@pytest.mark.parametrize(
    "options", [{"temperature": -1.0}, {"top_p": 0.0}, {"max_tokens": 0}, {"stop": ("",)}]
)
def test_sampling_options_are_checked(options: dict) -> None:
    with pytest.raises(ValueError, match="Sampling"):
        Sampling(**options)
