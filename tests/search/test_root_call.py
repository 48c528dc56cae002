"""The call for the conditions, and searches over objective steps as a whole."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from worlds import problems

from treerl.engines.base import Request
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.errors import EngineError, PromptTooLong
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.search.growth import Growth, Judges, run_sync
from treerl.search.mcts import MCTS, MCTSConfig
from treerl.search.prefix_mc import PrefixMC, PrefixMCConfig
from treerl.search.root_call import (
    ROOT_CALL_ERROR,
    ROOT_INSTRUCTION,
    Conditions,
    RootCall,
    read_conditions,
)
from treerl.search.sampling import Sampling
from treerl.steps import STEP_ERROR
from treerl.steps_json import ObjectiveSteps
from treerl.tree import RunInfo, Tree
from treerl.treefile import tree_from_record, tree_to_record

TOKENIZER = ByteTokenizer()
SAMPLING = Sampling(steps=ObjectiveSteps(root_call=True), max_tokens=900, verify_steps=False)
CONFIG = MCTSConfig(simulations=12, children=3, sampling=SAMPLING)
FOUND = {"conditions": ["There are 7 rows.", "Each has 12 jars."], "global_objective": "Count."}


def prompt_of(request: Request) -> str:
    return TOKENIZER.decode(request.prompt_ids)


def step(objective: str, action: str) -> str:
    return json.dumps({"step objective": objective, "action": action}) + "\n"


def policy(request: Request) -> str:
    """List conditions, or go on from wherever a stop string ended the last request."""
    if ROOT_INSTRUCTION in prompt_of(request):
        return "Here it is:\n" + json.dumps(FOUND)
    rng = random.Random(request.seed)
    rows = [step("Find a", rf"with {{\text{{x\"}} 7 * {n} \boxed{{a = {n}}}") for n in (1, 2)]
    ends = [step("Find b", rf"done \boxed{{b = {n}}} <end>") for n in (0, 1)]
    path = prompt_of(request).rpartition("\n")[2]
    for whole in rows + ends:
        if path and whole.startswith(path):
            return whole[len(path) :] + rng.choice(ends)
    return rng.choice(['{"step objective": "Find c"}\n', *rows]) + rng.choice(ends)


def boxed_one(problem: Problem, text: str, leaf: Leaf) -> float:
    return float(text.endswith(r"\boxed{1}"))


def search(
    policy: Any = policy, config: MCTSConfig = CONFIG, context: int | None = None, **engine: Any
) -> Tree:
    (problem,) = problems(1)
    info = RunInfo(seed=3, sampler="mcts")

    def start(tree: Tree) -> Growth:
        return MCTS(problem, TOKENIZER, config, run=info, tree=tree, max_context=context)

    growth = RootCall(problem, TOKENIZER, config.sampling, start, run=info, max_context=context)
    run_sync([growth], ScriptedEngine(policy, **engine), Judges(reward=boxed_one), retries=0)
    return growth.tree


def test_conditions_are_kept_prompted_and_booked() -> None:
    seen: list[str] = []

    def watched(request: Request) -> str:
        seen.append(prompt_of(request))
        return policy(request)

    tree = search(watched)
    assert tree.root.meta["conditions"] == FOUND["conditions"]
    assert tree.root.meta["global_objective"] == "Count."
    first, *others = seen
    assert ROOT_INSTRUCTION in first
    shown = Conditions(tuple(FOUND["conditions"]), "Count.").as_prompt()
    assert others
    assert all(f"Roll.\n\n{shown}" in prompt for prompt in others)
    assert shown in TOKENIZER.decode(tree.prompt_ids)
    answer = len(("Here it is:\n" + json.dumps(FOUND)).encode()) + 1
    assert tree.ledger.discarded >= answer
    assert tree.ledger.generated == tree.kept_tokens() + tree.ledger.discarded
    assert tree.ledger.requests == len(seen)


def test_objective_steps_grow_a_tree_whose_steps_are_read() -> None:
    tree = search()
    steps = [n for n in tree.nodes[1:] if n.text]
    assert {n.meta["objective"] for n in steps if "objective" in n.meta} == {"Find a", "Find b"}
    assert any(STEP_ERROR in n.meta for n in steps)
    for node in steps:
        if node.meta.get("end"):
            assert node.finish_reason in ("answer", "eos")  # "answer" where more stood behind it
            assert node.reward == float(node.meta["conclusion"] == "b = 1")
    assert {leaf.reward for leaf in tree.leaves()} == {0.0, 1.0}
    assert tree_to_record(tree_from_record(tree_to_record(tree))) == tree_to_record(tree)


def test_a_step_that_a_stop_string_cut_goes_on_as_the_same_sample() -> None:
    """The action holds the stop string `"}` inside; the step must not end there."""
    paths: list[str] = []

    def watched(request: Request) -> str:
        paths.append(prompt_of(request).rpartition("\n")[2])
        return policy(request)

    tree = search(watched)
    assert any(path.endswith('{\\\\text{x\\\\\\"}') for path in paths)
    first = [n for n in tree.root.children if n.meta.get("objective") == "Find a"]
    assert first
    for node in first:
        assert node.text.startswith('Find a\nwith {\\text{x\\"} 7 * ')
        assert node.meta["conclusion"] in ("a = 1", "a = 2")


def test_equal_conclusions_fold_into_one_node() -> None:
    def wordy(request: Request) -> str:
        rng = random.Random(request.seed)
        words = rng.choice(["so", "thus", "hence", "then"])
        return step("Find a", rf"{words} \boxed{{a = 1}}") + step("End", r"\boxed{b = 1} <end>")

    def children(dedup: str) -> list[int]:
        steps = ObjectiveSteps(dedup=dedup)
        sampling = replace(SAMPLING, steps=steps)
        config = replace(CONFIG, sampling=sampling, simulations=1, children=6, expand_after=0)
        growth = MCTS(problems(1)[0], TOKENIZER, config)
        run_sync([growth], ScriptedEngine(wordy), Judges(reward=boxed_one))
        return [c.multiplicity for c in growth.tree.root.children]

    assert children("conclusion") == [6]
    assert len(children("text")) > 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("The conditions are clear.", "no JSON object"),
        ('{"conditions": [], "global_objective": "x"}', '"conditions" is no list'),
        ('{"conditions": "one", "global_objective": "x"}', '"conditions" is no list'),
        ('{"conditions": [1], "global_objective": "x"}', '"conditions" holds something'),
        ('{"conditions": ["a"]}', '"global_objective" holds something'),
        ('{"conditions": ["a"], "global_objective": "b"} {', ""),
        ('{"conditions": ["a"', "no JSON object"),
    ],
)
def test_a_malformed_call_falls_back_to_the_plain_problem(answer: str, reason: str) -> None:
    def broken(request: Request) -> str:
        return answer if ROOT_INSTRUCTION in prompt_of(request) else policy(request)

    tree = search(broken)
    if not reason:
        assert tree.root.meta["conditions"] == ["a"]
        return
    assert reason in tree.root.meta[ROOT_CALL_ERROR]
    assert "conditions" not in tree.root.meta
    assert "Conditions:" not in TOKENIZER.decode(tree.prompt_ids)
    assert tree.leaves()
    assert tree.ledger.generated == tree.kept_tokens() + tree.ledger.discarded


def test_a_failed_call_is_a_record_and_the_search_goes_on() -> None:
    def fault(request: Request) -> EngineError | None:
        return EngineError("out of luck") if ROOT_INSTRUCTION in prompt_of(request) else None

    tree = search(faults=fault)
    assert tree.root.meta[ROOT_CALL_ERROR] == "EngineError: out of luck"
    assert tree.ledger.failed_requests == 1
    assert tree.leaves()


def test_conditions_that_crowd_the_steps_out_are_left_out() -> None:
    plain = len(MCTS(problems(1)[0], TOKENIZER, CONFIG).tree.prompt_ids)

    def long(request: Request) -> str:
        found = {**FOUND, "conditions": ["x" * 100] * 3}
        return json.dumps(found) if ROOT_INSTRUCTION in prompt_of(request) else policy(request)

    tree = search(long, context=plain + 500)
    assert "less than half the room" in tree.root.meta[ROOT_CALL_ERROR]
    assert len(tree.prompt_ids) == plain
    with pytest.raises(PromptTooLong, match=f"has {plain} tokens and the context {plain}"):
        search(context=plain)


def test_the_tree_is_a_function_of_what_comes_back() -> None:
    late = search(latency=jitter(0.1, 9.0))
    assert tree_to_record(late) == tree_to_record(search())


def test_given_solutions_are_labelled_in_the_format() -> None:
    solution = [["There are 84 jars.", "So 69 are left."]]
    config = PrefixMCConfig(rollouts=3, sampling=SAMPLING)
    growth = PrefixMC(problems(1)[0], TOKENIZER, config, solutions=solution)
    run_sync([growth], ScriptedEngine(policy), Judges(reward=boxed_one))
    tree = growth.tree
    path = tree.path(tree.nodes[tree.root.meta["solutions"][0]])
    assert [n.text for n in path] == solution[0]
    written = TOKENIZER.decode(tree.path_ids(path[-1]))
    assert [json.loads(row)["action"] for row in written.splitlines()] == [
        "There are 84 jars.",
        "So 69 are left. <end>",
    ]
    assert path[0].total == 3


def test_conditions_hold_no_half_characters() -> None:
    found = read_conditions(r'{"conditions": ["a \ud800 b"], "global_objective": "c\n d"}')
    assert found == Conditions(("a � b",), "c d")
