"""Labels: evidence, masking, rationales that never contradict them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import dice_policy, ends_in_one, problems, small_search

from treerl.engines.scripted import ByteTokenizer, ScriptedEngine
from treerl.prm.fuse import Evidence, Fusion
from treerl.prm.label import StepLabel, evidence_of, label_tree
from treerl.prm.rationale import write_rationale
from treerl.problem import Problem
from treerl.search.growth import Judges, run_sync
from treerl.search.mcts import MCTS
from treerl.steps import STEP_ERROR
from treerl.tree import Node, Tree
from treerl.verdict import Claim, ClaimVerdict, StepVerdict, Verdict


def verdict(word: Verdict, strength: str | None = "exact") -> StepVerdict:
    claim = Claim("arithmetic", "2 + 2 = 5", (0, 9))
    return StepVerdict(
        word,
        "x",
        strength,  # type: ignore[arg-type]
        (ClaimVerdict(claim, word, "x", strength, "4 != 5"),),  # type: ignore[arg-type]
    )


def chain(*steps: tuple[str, int, int]) -> tuple[Tree, list[Node]]:
    """Return a one-path tree of (text, correct, total) steps."""
    tree = Tree(Problem.from_text("p", "q", "1"), (1,))
    node, nodes = tree.root, []
    for text, correct, total in steps:
        node = tree.add(node, (2,), (-0.1,), text=text)
        node.correct, node.total = correct, total
        nodes.append(node)
    return tree, nodes


def test_everything_behind_the_first_error_is_masked() -> None:
    tree, _ = chain(("a", 5, 8), ("b", 0, 8), ("c", 3, 8), ("d", 0, 8))
    labels = label_tree(tree, Fusion())
    assert [x.label for x in labels] == [1, 0, None, None]
    assert [x.masked for x in labels] == [False, False, True, True]
    assert [x.soft for x in labels][2:] == [None, None]
    assert [x.index for x in labels] == [0, 1, 2, 3]
    assert labels[3].prefix == ("a", "b", "c")


def test_a_masked_step_says_that_it_stands_behind_an_error() -> None:
    tree, _ = chain(("a", 0, 8), ("b", 3, 8), ("c", 0, 0))
    _, masked, silent = label_tree(tree, Fusion())
    assert masked.masked
    assert silent.masked
    assert masked.rationale == (
        "3 of 8 continuations reach the right answer. An earlier step is wrong already."
    )
    assert silent.rationale == "An earlier step is wrong already."
    (alone,) = label_tree(chain(("a", 1, 2))[0], Fusion())
    assert alone.rationale.endswith("That is not enough to tell.")


def test_an_error_masks_its_own_branch_only() -> None:
    tree, (first, *_) = chain(("a", 5, 8), ("b", 0, 8))
    other = tree.add(first, (3,), (-0.1,), text="other")
    other.correct, other.total = 4, 8
    assert [x.label for x in label_tree(tree, Fusion())] == [1, 0, 1]


def test_failed_requests_and_bare_end_tokens_carry_no_label() -> None:
    tree, (node,) = chain(("a", 5, 8))
    tree.add(node, (9,), (-0.1,), finish_reason="eos", text="")
    failed = tree.add(node, (), finish_reason="error")
    failed.error = "EngineError: slow"
    assert [x.step for x in label_tree(tree, Fusion())] == ["a"]


def test_a_path_cut_off_by_a_cap_has_no_certain_last_step() -> None:
    tree, (node,) = chain(("a", 5, 8))
    ends = [tree.add(node, (i,), (-0.1,), finish_reason=f, text=f) for i, f in enumerate(REASONS)]
    for end in ends:
        end.reward, end.total = 0.0, 1
    got = {x.step: x.label for x in label_tree(tree, Fusion())}
    assert got == {"a": 1, "eos": 0, "stop": 0, "answer": 0, "length": None, "repetition": None}


REASONS = ("eos", "stop", "answer", "length", "repetition")


def test_labels_survive_json() -> None:
    tree, (a, b) = chain(("a", 5, 8), ("2 + 2 = 5", 3, 8))
    b.verdict = verdict(Verdict.REFUTED)
    b.value_sum, b.visits = 1 / 3, 3
    a.verdict = verdict(Verdict.SUPPORTED, "partial")
    for label in label_tree(tree, Fusion()):
        assert StepLabel.from_json(json.loads(json.dumps(label.to_json()))) == label


def test_ids_depend_on_content_alone() -> None:
    one, two = (label_tree(chain(("a", 5, 8), ("b", 1, n))[0], Fusion()) for n in (8, 9))
    assert [x.id for x in one] == [x.id for x in two]
    assert len({x.id for x in one}) == 2
    spaced = label_tree(chain((" a ", 5, 8), ("b", 1, 8))[0], Fusion())
    assert spaced[0].id == one[0].id


def test_a_refutation_beats_lucky_rollouts_and_says_why() -> None:
    tree, (_, b) = chain(("a", 8, 8), ("2 + 2 = 5", 6, 8))
    b.verdict = verdict(Verdict.REFUTED)
    label = label_tree(tree, Fusion())[1]
    assert (label.label, label.soft, label.source) == (0, 0.0, "tool")
    assert label.rationale == "“2 + 2 = 5” is false: 4 != 5. The step is wrong."


EVIDENCE = st.builds(
    lambda word, strength, total, share, terminal: (
        Evidence(word, strength, round(share * total), total, terminal),
        verdict(word, strength),
    ),
    st.sampled_from(list(Verdict)),
    st.sampled_from(["exact", "partial"]),
    st.integers(0, 12),
    st.floats(0, 1),
    st.booleans(),
)


@given(EVIDENCE)
def test_rationales_never_contradict_their_label(case) -> None:
    evidence, record = case
    fused = Fusion()(evidence)
    text = write_rationale(fused.label, evidence, record)
    if fused.label == 0:
        assert text.endswith("The step is wrong.")
        assert "holds" not in text
        assert "reach the right answer" not in text
    elif fused.label == 1:
        assert text.endswith("The step is right.")
        assert "is false" not in text
        assert "None of" not in text
    else:
        assert text.endswith("That is not enough to tell.")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["groundedprm", "mathshepherd"]))
def test_no_label_of_a_real_search_lacks_evidence(seed: int, rule: str) -> None:
    (problem,) = problems(1)
    growth = MCTS(problem, ByteTokenizer(), small_search(simulations=24))
    run_sync([growth], ScriptedEngine(dice_policy), Judges(reward=ends_in_one))
    nodes = growth.tree.nodes
    for label in label_tree(growth.tree, Fusion(rule)):
        node = nodes[label.node]
        assert (label.correct, label.total) == (node.correct, node.total)
        if label.label is not None:
            certain = evidence_of(node).terminal
            assert label.total >= (1 if certain else 4)
        path = growth.tree.path(node)
        assert label.prefix == tuple(n.text for n in path[:-1] if n.text)


def test_restmcts_labels_a_whole_tree_and_its_rationales_follow_the_reach() -> None:
    tree, (a, b) = chain(("a", 1, 2), ("b", 0, 1))
    right = tree.add(a, (3,), (-0.1,), finish_reason="eos", text="c")
    wrong = tree.add(b, (4,), (-0.1,), finish_reason="eos", text="d")
    right.reward, wrong.reward = 1.0, 0.0
    a.correct, a.total = 0, 4  # its own rollouts failed; the path through c is another sample's
    labels = {x.step: x for x in label_tree(tree, Fusion("restmcts"))}
    assert {k: (x.label, x.masked) for k, x in labels.items()} == {
        "a": (1, False),
        "b": (0, False),
        "c": (1, False),
        "d": (None, True),
    }
    assert [labels[k].soft for k in "abc"] == pytest.approx([0.5, 0.25, 1.0])
    assert "None of" not in labels["a"].rationale


def test_a_malformed_step_carries_no_label() -> None:
    tree, (_, b) = chain(("a", 5, 8), ("{", 5, 8))
    b.meta = {STEP_ERROR: "the JSON object does not end"}
    labels = label_tree(tree, Fusion())
    assert [(x.label, x.source) for x in labels] == [(1, "mc"), (None, "malformed")]


@pytest.mark.parametrize("rule", ["groundedprm", "groundedprm_published", "mathshepherd"])
def test_every_rule_labels_a_tree(rule: str) -> None:
    tree, (a, b) = chain(("a", 5, 8), ("b", 0, 8))
    a.verdict, a.value_sum = verdict(Verdict.SUPPORTED, "partial"), 0.5
    b.verdict, b.value_sum = verdict(Verdict.REFUTED), -0.5
    assert [x.label for x in label_tree(tree, Fusion(rule))] == [1, 0]
