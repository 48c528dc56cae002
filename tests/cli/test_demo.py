"""`treerl demo`, and the truth that it scores labels with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from treerl.cli.demo import words_problems
from treerl.lab import words
from treerl.lab.words.scoring import Score, score_labels, truth_of_steps
from treerl.store import RunReader
from treerl.tree import Node, Tree

if TYPE_CHECKING:
    from conftest import Treerl


def grown() -> tuple[Tree, list[Node], Node, Node]:
    """A tree of a right solution, and of one that is wrong from its first step on."""
    (problem,) = words_problems(1)
    tree = Tree(problem, (1,))
    right: list[Node] = []
    at = tree.root
    for token, line in enumerate(words.problems(1)[0].solution()):
        at = tree.add(at, (token,), text=line)
        right.append(at)
    tree.add(at, (98,), text=None, finish_reason="eos")
    wrong = tree.add(tree.root, (99,), text="Answer: 123456")
    below = tree.add(wrong, (100,), text=right[0].text, finish_reason="eos")
    return tree, right, wrong, below


def test_truth_reaches_up_to_the_first_error() -> None:
    tree, right, wrong, below = grown()
    truth = truth_of_steps(tree)
    assert truth == {**{node.index: True for node in right}, wrong.index: False}
    assert below.index not in truth


def test_truth_knows_no_failed_request() -> None:
    tree, *_ = grown()
    failed = tree.add(tree.root, (7,), finish_reason="error")
    failed.error = "EngineError: lost"
    assert failed.index not in truth_of_steps(tree)


def test_scores_count_each_step_once() -> None:
    truth = {1: True, 2: True, 3: False, 4: False, 5: False}
    score = score_labels(truth, [(1, 1), (2, 0), (3, 0), (4, 1), (5, None), (6, 0)])
    assert score == Score(found=1, missed=2, false_alarms=1, labelled=4, steps=5)
    assert (score.precision, score.recall, score.coverage) == (0.5, 1 / 3, 0.8)
    assert (score + score).found == 2
    assert Score().precision is None


def test_problems_carry_their_truth() -> None:
    problem = words_problems(3)[2]
    record = words.problems(3)[2]
    assert (problem.id, problem.text, problem.answer) == (record.id, record.question, record.answer)
    assert problem.metadata["world"] == "words"


@pytest.mark.engine
def test_the_demo_labels_scores_and_says_where(quick: Treerl, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = quick("demo", "--out", out, "--problems", "4")
    assert done.returncode == 0, done.stderr
    for said in (
        "4/4 problems",
        "One of the trees",
        "gold answer",
        "tools and rollouts",
        "the same rollouts alone",
        "precision",
        "labels/part-00000.jsonl",
        "treerl export",
    ):
        assert said in done.stdout + done.stderr, said
    run = RunReader(out)
    assert run.finished
    assert any(label["label"] == 1 for label in run.labels())
    assert quick("export", out, "trl", "--out", tmp_path / "train.jsonl").returncode == 0
