"""The consensus filter: per solution, and what a step on several solutions gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.prm.consensus import (
    NO_ERROR,
    agree,
    consensus_of_tree,
    first_error,
    judge_first_error,
    kept_steps,
)
from treerl.prm.fuse import Fusion, mask_after_first_error
from treerl.prm.label import StepLabel, label_tree
from treerl.problem import Problem
from treerl.tree import Node, Tree
from treerl.verdict import StepVerdict, Verdict

ORACLE = Path(__file__).parents[1] / "data" / "groundedprm_oracle.json"
CASES = {case["name"]: case for case in json.loads(ORACLE.read_text())["cases"]}
SHEPHERD = CASES["mathshepherd.labels"]
WORDS = {
    "s": StepVerdict(Verdict.SUPPORTED, "x", "partial"),
    "r": StepVerdict(Verdict.REFUTED, "x", "exact"),
    "u": StepVerdict(Verdict.UNVERIFIABLE, "x"),
    "-": None,
}


@pytest.mark.parametrize("row", SHEPHERD["consensus_filter"].values())
def test_two_first_errors(row: dict[str, Any]) -> None:
    assert first_error(SHEPHERD["hard"]) == row["mc_first_error"]
    assert agree(row["mc_first_error"], row["judge_first_error"]) is row["keep"]


@pytest.mark.parametrize(
    ("labels", "first"),
    [([1, 1], NO_ERROR), ([1, 0, 1], 1), ([1, None, 0], None), ([1, 0, None], 1), ([], NO_ERROR)],
)
def test_the_first_error_of_labels(labels: list[int | None], first: int | None) -> None:
    assert first_error(labels) == first


@pytest.mark.parametrize(
    ("verdicts", "first"), [("ssu", NO_ERROR), ("surr", 2), ("s-r", None), ("r-", 0)]
)
def test_the_first_error_of_a_judge(verdicts: str, first: int | None) -> None:
    assert judge_first_error([WORDS[v] for v in verdicts]) == first


def grow(*paths: list[tuple[str, int, str]], solutions: bool = False) -> Tree:
    """Return a tree of paths of (text, right rollouts of 8, verdict); equal texts are shared."""
    tree = Tree(Problem.from_text("p", "q", "1"), (1,))
    ends = []
    for path in paths:
        node = tree.root
        for i, (text, correct, verdict) in enumerate(path):
            last = i == len(path) - 1
            found = next((c for c in node.children if c.text == text), None)
            if found is None:
                finish = "eos" if last else None
                found = tree.add(node, (2,), (-0.1,), finish_reason=finish, text=text)
                found.correct, found.total, found.verdict = correct, 8, WORDS[verdict]
            node = found
        ends.append(node.index)
    if solutions:
        tree.root.meta = {"solutions": ends}
    return tree


def labels(tree: Tree) -> list[tuple[str, int | None, str]]:
    return [(x.step, x.label, x.source) for x in label_tree(tree, Fusion("consensus"))]


GOOD = [("a", 8, "s"), ("b", 4, "u"), ("c", 8, "s")]
CAUGHT = [("a", 8, "s"), ("x", 0, "r"), ("y", 3, "s")]
MISSED = [("a", 8, "s"), ("b", 4, "u"), ("z", 0, "s")]


def test_solutions_are_kept_where_both_name_the_same_step() -> None:
    tree = grow(GOOD, CAUGHT, MISSED)
    hard = {n.index: int(n.correct > 0) for n in tree.nodes[1:]}
    got = consensus_of_tree(tree, hard)
    assert [(d.mc, d.judge, d.kept, d.reason) for d in got] == [
        (NO_ERROR, NO_ERROR, True, "agree"),
        (1, 1, True, "agree"),
        (2, NO_ERROR, False, "disagree"),
    ]
    assert [tree.nodes[i].text for i in sorted(kept_steps(tree, got))] == ["a", "b", "c", "x", "y"]


def test_only_what_kept_solutions_share_is_labelled() -> None:
    assert labels(grow(GOOD, CAUGHT, MISSED)) == [
        ("a", 1, "mc"),
        ("b", 1, "mc"),
        ("c", 1, "mc"),
        ("x", 0, "mc"),
        ("y", None, "mc"),  # masked, as behind any error
        ("z", None, "no_consensus"),
    ]
    assert {source for _, label, source in labels(grow(MISSED))} == {"no_consensus"}
    assert all(label is None for _, label, _ in labels(grow(MISSED)))


def test_unknown_is_not_agreement() -> None:
    unjudged = grow([("a", 8, "s"), ("b", 8, "-")])
    (decision,) = consensus_of_tree(unjudged, {1: 1, 2: 1})
    assert (decision.kept, decision.reason) == (False, "judge_unknown")
    few = grow(GOOD)
    few.nodes[1].total = few.nodes[1].correct = 1
    assert {source for *_, source in labels(few)} == {"no_consensus"}


def test_only_the_trees_own_solutions_are_decided_on() -> None:
    tree = grow(CAUGHT, solutions=True)
    rollout = tree.add(tree.nodes[1], (9,), (-0.1,), finish_reason="eos", text="rollout")
    rollout.reward = 1.0
    assert [d.leaf for d in consensus_of_tree(tree, {1: 1, 2: 0, 3: 1})] == [3]
    assert [step for step, *_ in labels(tree)] == ["a", "x", "y"]


def test_labels_without_consensus_survive_json() -> None:
    for label in label_tree(grow(MISSED), Fusion("consensus")):
        assert StepLabel.from_json(json.loads(json.dumps(label.to_json()))) == label
        assert label.soft is None
        assert label.rationale.endswith("That is not enough to tell.")


STEPS = st.tuples(st.sampled_from("ab"), st.integers(0, 8), st.sampled_from("sru-"))
PATHS = st.lists(st.lists(STEPS, min_size=1, max_size=4), min_size=1, max_size=6)


@given(PATHS)
def test_no_label_contradicts_the_judge(paths: list[list[tuple[str, int, str]]]) -> None:
    tree = Tree(Problem.from_text("p", "q", "1"), (1,))
    for path in paths:
        node: Node = tree.root
        for i, (text, correct, verdict) in enumerate(path):
            place = f"{text}{'.' if i == len(path) - 1 else ''}"
            found = next((c for c in node.children if c.text == place), None)
            if found is None:
                finish = "eos" if i == len(path) - 1 else None
                found = tree.add(node, (2,), (-0.1,), finish_reason=finish, text=place)
                found.correct, found.total, found.verdict = correct, 8, WORDS[verdict]
            node = found
    for label in label_tree(tree, Fusion("consensus")):
        word = None if label.verdict is None else label.verdict.verdict
        if label.label == 1:
            assert label.correct > 0
            assert word is not Verdict.REFUTED
        if label.label == 0:
            assert label.correct == 0
            assert word is Verdict.REFUTED
        path = tree.path(tree.nodes[label.node])
        hard = [int(n.correct > 0) for n in path]
        if label.label is not None:
            assert mask_after_first_error(hard)[-1] == label.label
