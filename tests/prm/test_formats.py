"""Exports: what becomes a row, what is left out and said so, and that other tools read it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from treerl.errors import ConfigError, StoreError
from treerl.prm.formats import FORMATS, LeftOut, export
from treerl.prm.formats.chat import NOTHING_CHECKED, SYSTEM, Chat, judgement
from treerl.prm.formats.paths import Trie, label_paths, labelled_trees
from treerl.prm.formats.processbench import ProcessBench, first_error
from treerl.prm.formats.trl_stepwise import TRLStepwise
from treerl.prm.fuse import Fusion
from treerl.prm.label import StepLabel, label_tree
from treerl.prm.rationale import RIGHT, WRONG
from treerl.problem import Problem
from treerl.store import ProblemResult, RunFolder, RunReader
from treerl.tree import Node, NodeFinish, Tree
from treerl.verdict import Claim, ClaimVerdict, StepVerdict, Strength, ToolCall, Verdict

QUESTION = "Two bags hold 3 apples each, and 4 lie beside them. How many apples?"


def verdict(text: str, word: Verdict, strength: Strength) -> StepVerdict:
    claim = Claim("arithmetic", text, (0, len(text)))
    call = ToolCall("fraction", "1", text, "", "ok", "in_process")
    said = ClaimVerdict(claim, word, "equal", strength, calls=(call,))
    return StepVerdict(word, "equal", strength, (said,), verifier="test/1")


class Builder:
    """Builds a tree step by step, with counts and verdicts."""

    def __init__(self, id: str = "apples", question: str = QUESTION) -> None:
        self.tree = Tree(Problem.from_text(id, question, "10"), (1, 2, 3))
        self._token = 10

    def add(
        self,
        parent: Node,
        text: str | None,
        mc: tuple[int, int] = (0, 0),
        *,
        tool: tuple[Verdict, Strength] | None = None,
        ends: NodeFinish | None = None,
        reward: float | None = None,
    ) -> Node:
        self._token += 1
        node = self.tree.add(parent, (self._token,), (-1.0,), finish_reason=ends, text=text)
        node.correct, node.total = mc
        node.reward = reward
        if tool is not None and text is not None:
            node.verdict = verdict(text, *tool)
        return node

    def labels(self, fusion: Fusion | None = None) -> list[StepLabel]:
        return label_tree(self.tree, fusion or Fusion())


def apples(id: str = "apples") -> Builder:
    """A right solution, one with a refuted step, one without enough evidence, an open tip."""
    b = Builder(id)
    supported: tuple[Verdict, Strength] = (Verdict.SUPPORTED, "partial")
    bags = b.add(b.tree.root, "2 * 3 = 6", (6, 12), tool=supported)
    ten = b.add(bags, "6 + 4 = 10", (6, 6), tool=supported)
    b.add(ten, "Answer: 10", (6, 6), ends="answer", reward=1.0)
    slip = b.add(bags, "6 + 4 = 11", (0, 5), tool=(Verdict.REFUTED, "exact"))
    b.add(slip, "Answer: 11", (0, 5), ends="answer", reward=0.0)
    rare = b.add(bags, "6 - 4 = 2", (0, 1))
    b.add(rare, "Answer: 2", (0, 1), ends="answer", reward=0.0)
    b.add(bags, "Let me think.", (0, 0))
    return b


def rows(format: Any, builder: Builder) -> tuple[list[dict[str, Any]], list[str]]:
    tree = label_paths(builder.tree, builder.labels(), "test/model")
    found = list(format.rows(tree))
    return (
        [row for row in found if not isinstance(row, LeftOut)],
        [row.reason for row in found if isinstance(row, LeftOut)],
    )


def save(folder: Path, *builders: Builder, finish: bool = True, kind: str = "label") -> Path:
    manifest = {"kind": kind, "engine": {"engine": "hf", "model": "/some/place/lab/model"}}
    with RunFolder(folder, manifest) as run:
        for index, builder in enumerate(builders):
            labels = [label.to_json() for label in builder.labels()]
            run.add(ProblemResult(index, builder.tree, labels))
        if finish:
            run.finish(lambda results: {"problems": len(list(results))})
    return folder


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- paths ----------------------------------------------------------------------------------------


def test_every_step_stands_in_a_path() -> None:
    builder = apples()
    labels = builder.labels()
    tree = label_paths(builder.tree, labels)
    assert {step.id for path in tree.paths for step in path.steps} == {x.id for x in labels}
    assert [len(path.steps) for path in tree.paths] == [3, 3, 3, 2]
    assert [path.outcome for path in tree.paths] == [True, False, False, None]
    assert [path.ended for path in tree.paths] == [True, True, True, False]


def test_a_lone_end_token_and_a_failed_request_are_no_steps() -> None:
    b = Builder()
    step = b.add(b.tree.root, "2 * 3 + 4 = 10", (2, 6))
    b.add(step, None, (1, 1), ends="eos", reward=1.0)
    failed = b.add(step, None, ends="error")
    failed.error = "EngineError: lost"
    tree = label_paths(b.tree, b.labels())
    assert [(len(p.steps), p.ended, p.outcome) for p in tree.paths] == [(1, True, True)]


def test_a_step_whose_only_continuation_failed_is_a_tip() -> None:
    b = Builder()
    step = b.add(b.tree.root, "2 * 3 = 7", (0, 4), tool=(Verdict.REFUTED, "exact"))
    b.add(step, None, ends="error").error = "EngineError: lost"
    tree = label_paths(b.tree, b.labels())
    assert [(path.node, path.ended) for path in tree.paths] == [(step.index, False)]


def test_labels_of_another_tree_are_refused() -> None:
    builder = apples()
    with pytest.raises(StoreError, match="has no label"):
        label_paths(builder.tree, builder.labels()[:-1])


def test_a_trie_numbers_sequences() -> None:
    trie = Trie()
    long, short, again = trie.add("abc"), trie.add("ab"), trie.add("abc")
    assert long == again != short
    assert trie.is_inner(short)
    assert not trie.is_inner(long)


# --- trl ------------------------------------------------------------------------------------------


def test_trl_cuts_before_the_first_unlabelled_step_and_repeats_nothing() -> None:
    found, left_out = rows(TRLStepwise(), apples())
    assert found == [
        {
            "prompt": QUESTION,
            "completions": ["2 * 3 = 6", "6 + 4 = 10", "Answer: 10"],
            "labels": [True, True, True],
        },
        {"prompt": QUESTION, "completions": ["2 * 3 = 6", "6 + 4 = 11"], "labels": [True, False]},
    ]
    # "6 - 4 = 2" has one rollout only and the tip none: what is left is the first step.
    assert left_out == ["another row holds the same labelled steps"] * 2


def test_trl_folds_equal_text_of_different_tokens() -> None:
    b = Builder()
    for _ in range(2):
        step = b.add(b.tree.root, "2 * 3 + 4 = 10", (4, 4))
        b.add(step, "Answer: 10", (4, 4), ends="answer", reward=1.0)
    found, left_out = rows(TRLStepwise(), b)
    assert len(found) == 1
    assert left_out == ["another row holds the same labelled steps"]


def test_trl_says_when_nothing_is_labelled() -> None:
    b = Builder()
    b.add(b.tree.root, "Let me think.")
    assert rows(TRLStepwise(), b) == ([], ["the first step has no usable label"])


# --- processbench ---------------------------------------------------------------------------------


def test_processbench_holds_determined_solutions_only() -> None:
    found, left_out = rows(ProcessBench(), apples())
    assert found == [
        {
            "id": "apples-3",
            "generator": "test/model",
            "problem": QUESTION,
            "steps": ["2 * 3 = 6", "6 + 4 = 10", "Answer: 10"],
            "final_answer_correct": True,
            "label": -1,
        },
        {
            "id": "apples-5",
            "generator": "test/model",
            "problem": QUESTION,
            "steps": ["2 * 3 = 6", "6 + 4 = 11", "Answer: 11"],
            "final_answer_correct": False,
            "label": 1,
        },
    ]
    assert left_out == [
        "a step before the first wrong one has no label",
        "the solution is unfinished or was cut off",
    ]


def test_processbench_keeps_a_wrong_step_under_a_right_answer() -> None:
    b = Builder()
    step = b.add(b.tree.root, "2 * 3 = 7", (4, 4), tool=(Verdict.REFUTED, "exact"))
    b.add(step, "Answer: 10", (4, 4), ends="answer", reward=1.0)
    (row,), _ = rows(ProcessBench(), b)
    assert (row["label"], row["final_answer_correct"]) == (0, True)


def test_processbench_refuses_a_wrong_answer_without_a_wrong_step() -> None:
    b = Builder()
    step = b.add(b.tree.root, "2 * 3 + 4 = 10", (3, 4))
    b.add(step, None, (0, 1), ends="eos", reward=0.0)
    found, left_out = rows(ProcessBench(), b)
    assert not found
    assert left_out == ["no step is labelled wrong, but the final answer is"]


def test_processbench_leaves_solutions_out_that_a_cap_cut_off() -> None:
    b = Builder()
    step = b.add(b.tree.root, "2 * 3 = 7", (0, 4), tool=(Verdict.REFUTED, "exact"))
    b.add(step, "Then we ad", (0, 4), ends="length", reward=0.0)
    assert rows(ProcessBench(), b) == ([], ["the solution is unfinished or was cut off"])


def test_processbench_leaves_unjudged_answers_out() -> None:
    b = Builder()
    b.add(b.tree.root, "2 * 3 = 7", tool=(Verdict.REFUTED, "exact"), ends="eos")
    assert rows(ProcessBench(), b) == ([], ["the final answer could not be judged"])


@pytest.mark.parametrize(
    ("labels", "first"),
    [([1, 1], -1), ([1, 0, None], 1), ([0], 0), ([1, None, 0], None), ([None], None)],
)
def test_first_error(labels: list[int | None], first: int | None) -> None:
    assert first_error(labels) == first


# --- chat -----------------------------------------------------------------------------------------


def test_chat_is_a_turn_a_step() -> None:
    found, left_out = rows(Chat(), apples())
    right, wrong = (row["messages"] for row in found)
    assert [m["role"] for m in right] == ["system", *["user", "assistant"] * 3]
    assert right[0]["content"] == SYSTEM
    assert right[1]["content"] == f"{QUESTION}\n\n2 * 3 = 6"
    assert right[3]["content"] == "6 + 4 = 10"
    assert wrong[-1]["content"] == (
        "<verify>\nfraction: 6 + 4 = 11 -> REFUTED\n</verify>\n"
        "<judge>\n“6 + 4 = 11” is false. None of 5 continuations reaches the right answer. "
        "The step is wrong.\n</judge>\n"
        "<output>\nVerdict: \\boxed{Wrong}\n</output>"
    )
    assert left_out == ["another row holds the same labelled steps"] * 2


def test_chat_never_argues_against_its_verdict() -> None:
    for label in apples().labels():
        if label.label is not None:
            said = judgement(label)
            word, other = (RIGHT, WRONG) if label.label == 1 else (WRONG, RIGHT)
            assert said.count(f"\\boxed{{{word}}}") == 1
            assert f"\\boxed{{{other}}}" not in said
            assert f"The step is {other.lower()}" not in said


def test_chat_refuses_a_rationale_of_the_other_label() -> None:
    from dataclasses import replace

    label = apples().labels()[0]
    with pytest.raises(AssertionError):
        judgement(replace(label, label=0))


def test_chat_cuts_before_a_right_label_that_a_tool_refutes() -> None:
    b = Builder()
    step = b.add(b.tree.root, "2 * 3 + 4 = 10", (4, 8))
    b.add(step, "10 = 11", (4, 4), tool=(Verdict.REFUTED, "exact"))
    tree = label_paths(b.tree, b.labels(Fusion("mathshepherd")))
    assert [step.label for step in tree.paths[0].steps] == [1, 1]
    (row,) = Chat().rows(tree)
    assert not isinstance(row, LeftOut)
    assert len(row["messages"]) == 3
    assert NOTHING_CHECKED in row["messages"][-1]["content"]


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trl", "processbench", "chat"])
def test_a_format_lists_its_losses_and_loads_with_datasets(name: str, tmp_path: Path) -> None:
    import datasets

    run = save(tmp_path / "run", apples("first"), apples("second"))
    report = export(run, name, tmp_path / "out.jsonl")
    assert report.losses
    assert report.problems == 2
    assert report.rows == 4
    assert sum(report.left_out.values()) == 4
    table = datasets.load_dataset(
        "json", data_files=str(report.path), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert table.num_rows == report.rows
    assert [dict(row) for row in table] == read(report.path)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_registered_under_its_name(name: str) -> None:
    made = FORMATS[name]()
    assert made.name == name
    assert all(made.losses())


def test_column_types_are_those_of_the_readers(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.json as pj

    run = save(tmp_path / "run", apples())
    export(run, "trl", tmp_path / "trl.jsonl")
    export(run, "processbench", tmp_path / "pb.jsonl")
    trl, bench = pj.read_json(tmp_path / "trl.jsonl"), pj.read_json(tmp_path / "pb.jsonl")
    assert trl.schema.field("labels").type == pa.list_(pa.bool_())
    assert bench.schema.names == [
        "id",
        "generator",
        "problem",
        "steps",
        "final_answer_correct",
        "label",
    ]
    assert bench.schema.field("label").type == pa.int64()
    assert bench.schema.field("final_answer_correct").type == pa.bool_()


def test_the_generator_is_a_name_and_no_place(tmp_path: Path) -> None:
    export(save(tmp_path / "run", apples()), "processbench", tmp_path / "pb.jsonl")
    assert {row["generator"] for row in read(tmp_path / "pb.jsonl")} == {"lab/model"}


def test_an_unfinished_run_is_exported_as_far_as_it_is(tmp_path: Path) -> None:
    run = save(tmp_path / "run", apples("a"), apples("b"), finish=False)
    assert export(run, "trl", tmp_path / "out.jsonl").rows == 4


def test_an_export_replaces_regular_files_outside_its_run_only(tmp_path: Path) -> None:
    run = save(tmp_path / "run", apples("a"))
    labels = run / "labels" / "part-00000.jsonl"
    before = labels.read_bytes()
    with pytest.raises(ConfigError, match="lies in the run folder"):
        export(run, "trl", labels)
    assert labels.read_bytes() == before
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ConfigError, match="is no regular file"):
            export(run, "trl", place)


def test_problems_without_labels_are_passed_over(tmp_path: Path) -> None:
    run = save(tmp_path / "run", Builder("empty"), apples("full"), Builder("empty too"))
    report = export(run, "trl", tmp_path / "out.jsonl")
    assert (report.problems, report.rows) == (3, 2)


def test_text_that_is_no_utf8_is_written_readably(tmp_path: Path) -> None:
    b = Builder()
    b.add(b.tree.root, "a\ud800b\u2028c\0", (0, 4), tool=(Verdict.REFUTED, "exact"))
    export(save(tmp_path / "run", b, finish=False), "trl", tmp_path / "out.jsonl")
    (row,) = [json.loads(x) for x in (tmp_path / "out.jsonl").read_bytes().split(b"\n") if x]
    assert row["completions"] == ["a?b\u2028c\0"]


def test_nothing_to_write_is_an_error_that_says_why(tmp_path: Path) -> None:
    b = Builder()
    b.add(b.tree.root, "Let me think.")
    run = save(tmp_path / "run", b)
    with pytest.raises(ConfigError, match="as trl: 1 times the first step has no usable label"):
        export(run, "trl", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    assert not list(tmp_path.glob(".*part"))


def test_bad_calls_name_the_mend(tmp_path: Path) -> None:
    run = save(tmp_path / "run", apples())
    with pytest.raises(ConfigError, match="no format 'xml'; there are trl, processbench, chat"):
        export(run, "xml", tmp_path / "out")
    with pytest.raises(ConfigError, match="format 'trl'"):
        export(run, "trl", tmp_path / "out", system="Be kind.")
    with pytest.raises(StoreError, match="does not exist"):
        export(tmp_path / "nowhere", "trl", tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        export(run, "trl", tmp_path / "file" / "out.jsonl")
    rollouts = save(tmp_path / "rollouts", apples(), kind="rollout")
    with pytest.raises(ConfigError, match="which has no labels"):
        export(rollouts, "trl", tmp_path / "out")


def test_an_option_of_the_format_is_used(tmp_path: Path) -> None:
    run = save(tmp_path / "run", apples())
    export(run, "chat", tmp_path / "out.jsonl", system="Be strict.")
    assert read(tmp_path / "out.jsonl")[0]["messages"][0]["content"] == "Be strict."


def test_trees_are_read_as_a_stream(tmp_path: Path) -> None:
    run = save(tmp_path / "run", *(apples(str(i)) for i in range(3)))
    ids = [tree.problem_id for tree in labelled_trees(RunReader(run))]
    assert ids == ["0", "1", "2"]


def test_long_paths_are_linear(tmp_path: Path) -> None:
    b = Builder()
    at = b.tree.root
    for depth in range(600):
        at = b.add(at, f"step {depth}", (4, 8))
    found, _ = rows(TRLStepwise(), b)
    assert len(found[0]["completions"]) == 600
