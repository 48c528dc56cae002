"""Round trips: what is written can be read back, and real files survive being read and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import dice_policy, ends_in_one, problems, small_search

from treerl.engines.scripted import ScriptedEngine
from treerl.errors import ConfigError
from treerl.prm.formats import (
    FORMATS,
    IMPORTERS,
    LabelledPath,
    LabelledSolution,
    LabelledTree,
    LeftOut,
    export,
    import_format,
    solution_rows,
    solutions_of,
)
from treerl.prm.formats.base import Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.openr import STEP_TAG
from treerl.prm.formats.paths import labelled_trees
from treerl.prm.formats.solutions import labelled_beginnings
from treerl.prm.formats.writing import make_format
from treerl.prm.label import StepLabel
from treerl.prm.pipeline import Labeler
from treerl.problem import Problem
from treerl.readers import Number
from treerl.store import ProblemResult, RunFolder, RunReader
from treerl.tree import Tree

NEW = ("prm800k", "math-shepherd", "qwen", "openr", "openr-tree", "openr-converted", "rlhflow")
HARD = ("trl", "math-shepherd", "qwen", "openr-converted", "rlhflow", "chat")
SOFT = ("openr", "openr-tree")


def step_label(
    text: str, label: int | None, soft: float | None, *, node: int = 1, prefix: tuple[str, ...] = ()
) -> StepLabel:
    """Return a label as a run would hold it, with the parts that formats read."""
    return StepLabel(
        id=f"{prefix}{text}",
        problem_id="p",
        statement="How many?",
        answer="10",
        node=node,
        parent=0,
        index=len(prefix),
        prefix=prefix,
        step=text,
        terminal=False,
        label=label,
        soft=soft,
        source="mc",
        masked=False,
        verdict=None,
        correct=4,
        total=8,
        visits=8,
        value_sum=0.0,
        rationale=f"The step is {'right' if label else 'wrong'}.",
    )


Marks = tuple[str, "int | None", "float | None"]


def tree_of(*paths: list[Marks], statement: str = "How many?", ended: bool = True) -> LabelledTree:
    """Return a problem with these paths; equal beginnings are the same nodes."""
    nodes: dict[tuple[Marks, ...], int] = {}
    made = []
    for marks in paths:
        steps = []
        for i, (text, label, soft) in enumerate(marks):
            node = nodes.setdefault(tuple(marks[: i + 1]), len(nodes) + 1)
            prefix = tuple(text for text, _, _ in marks[:i])
            steps.append(step_label(text, label, soft, node=node, prefix=prefix))
        made.append(LabelledPath(steps[-1].node, tuple(steps), ended, None))
    return LabelledTree("p", statement, "10", "test/model", tuple(made))


APPLES = tree_of(
    [("2 * 3 = 6", 1, 0.9), ("6 + 4 = 10", 1, 0.75), ("Answer: 10", 1, 1.0)],
    [("2 * 3 = 6", 1, 0.9), ("6 + 4 = 11", 0, 0.1), ("Answer: 11", None, None)],
)


def split(found: Iterator[Row | LeftOut]) -> tuple[list[Row], list[str]]:
    rows, reasons = [], []
    for row in found:
        if isinstance(row, LeftOut):
            reasons.append(row.reason)
        else:
            rows.append(row)
    return rows, reasons


def read_back(rows: list[Row], name: str, tmp: Path | None = None) -> list[LabelledSolution]:
    """Read rows as the importer would from a file; through one where a folder is given."""
    if tmp is not None:
        path = tmp / f"{name}.jsonl"
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        path.write_text("".join(lines), encoding="utf-8", newline="\n")
        return list(import_format(path, name))
    decoder = json.JSONDecoder(parse_float=Number, parse_int=Number)
    found: list[LabelledSolution] = []
    for line, row in enumerate(rows, start=1):
        found += IMPORTERS[name](Cell(decoder.decode(json.dumps(row)), "rows", line))
    return found


def hard(solutions: list[LabelledSolution]) -> list[tuple[Any, ...]]:
    return [(s.statement, s.steps, s.labels) for s in solutions]


def longest(solutions: list[LabelledSolution]) -> list[LabelledSolution]:
    """Drop those that another one begins with: PRM800K is read as a solution a step."""
    keys = [list(zip(s.steps, s.labels, strict=True)) for s in solutions]
    return [
        s
        for s, key in zip(solutions, keys, strict=True)
        if not any(len(other) > len(key) and other[: len(key)] == key for other in keys)
    ]


# --- native -> format -> native -------------------------------------------------------------------


@pytest.mark.parametrize("name", HARD)
def test_formats_of_hard_labels_keep_labelled_steps(name: str, tmp_path: Path) -> None:
    rows, left_out = split(make_format(name).rows(APPLES))
    assert not left_out
    assert hard(read_back(rows, name, tmp_path)) == [
        ("How many?", ("2 * 3 = 6", "6 + 4 = 10", "Answer: 10"), (1, 1, 1)),
        ("How many?", ("2 * 3 = 6", "6 + 4 = 11"), (1, 0)),
    ]


def test_prm800k_keeps_unlabelled_steps(tmp_path: Path) -> None:
    rows, left_out = split(make_format("prm800k").rows(APPLES))
    assert not left_out
    ratings = [[c["rating"] for s in r["label"]["steps"] for c in s["completions"]] for r in rows]
    assert ratings == [[1, 1, 1], [1, -1, None]]
    assert [row["label"]["finish_reason"] for row in rows] == ["solution", "found_error"]
    found = read_back(rows, "prm800k", tmp_path)
    assert [len(s.steps) for s in found] == [1, 2, 3, 1, 2, 3]
    assert found[0].answer == "10"
    assert hard(longest(found)) == hard(list(solutions_of(APPLES)))


@pytest.mark.parametrize("name", ["openr", "openr-tree"])
def test_soft_labels_stay_what_they_are(name: str, tmp_path: Path) -> None:
    (row,), left_out = split(make_format(name).rows(APPLES))
    assert not left_out
    assert "0.9" in json.dumps(row)
    found = read_back([row], name, tmp_path)
    assert [(s.statement, s.answer, s.steps, s.soft, s.labels) for s in found] == [
        (
            "How many?",
            "10",
            ("2 * 3 = 6", "6 + 4 = 10", "Answer: 10"),
            (0.9, 0.75, 1.0),
            (1, 1, 1),
        ),
        ("How many?", "10", ("2 * 3 = 6", "6 + 4 = 11"), (0.9, 0.1), (1, 0)),
    ]
    # The problem's own value: 4 of 8 rollouts through its only first step.
    assert found[0].metadata["root_value"] == 0.5


def test_soft_and_hard_labels_come_from_one_run() -> None:
    (trl, _), _ = split(make_format("trl").rows(APPLES))
    assert trl["labels"] == [True, True, True]
    assert all(type(label) is bool for label in trl["labels"])
    (flat,), _ = split(make_format("openr").rows(APPLES))
    assert flat["reasoning_steps"][1] == {
        "solution_prefix": "How many?\n\n2 * 3 = 6",
        "mc_value": 0.9,
    }


def test_processbench_keeps_the_first_error(tmp_path: Path) -> None:
    path = tmp_path / "pb.json"
    row = {"id": "x-0", "generator": "g", "problem": "Q", "steps": ["a", "b", "c"]}
    rows = [{**row, "final_answer_correct": False, "label": i} for i in (-1, 0, 1, 2)]
    path.write_text(json.dumps(rows))
    found = list(import_format(path, "processbench"))
    assert [s.labels for s in found] == [(1, 1, 1), (0, None, None), (1, 0, None), (1, 1, 0)]
    assert found[0].metadata == {"generator": "g", "final_answer_correct": False}
    assert found[0].problem_id == "x-0"


TEXT = st.text(alphabet="a1\n +-:кипS<>_|", min_size=1, max_size=6)
PIECES = st.lists(
    st.sampled_from(
        ["a", "\n", "\n\n", " ", "ки", "Step 1:", "Step 2: ", "<extra_0>", "<|im_end|>", "+", "-"]
    ),
    min_size=1,
    max_size=4,
).map("".join)
STEP = st.tuples(
    TEXT | PIECES,
    st.sampled_from([1, 1, 1, 0, None]),
    st.sampled_from([0.0, 0.1, 0.9, 1.0, 1 / 3]),
)
PATHS = st.lists(st.lists(STEP, min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.mark.parametrize("name", [n for n in IMPORTERS if n not in ("processbench",)])
def test_nothing_is_silently_corrupted(name: str) -> None:
    """What is written reads back as a beginning of a path, step by step, whatever the text is."""

    @settings(max_examples=150)
    @given(paths=PATHS, statement=TEXT | PIECES)
    def check(paths: list[list[Marks]], statement: str) -> None:
        tree = tree_of(*paths, statement=statement)
        rows, _ = split(make_format(name).rows(tree))
        is_soft = name in SOFT
        values: dict[tuple[str, ...], set[Any]] = {}
        for solution in solutions_of(tree):
            for i, marks in enumerate(zip(solution.labels, solution.soft, strict=True)):
                values.setdefault(solution.steps[: i + 1], set()).add(marks[is_soft])
        for solution in read_back(rows, name):
            assert solution.statement == statement
            marks = solution.soft if is_soft else solution.labels
            for i, mark in enumerate(marks):
                assert mark in values[solution.steps[: i + 1]]

    check()


@pytest.mark.parametrize("name", NEW)
def test_500_plain_records_come_back_whole(name: str) -> None:
    import random

    rng = random.Random(0)
    for case in range(500):
        n, wrong = rng.randint(1, 6), rng.randint(0, 8)
        steps: list[Marks] = [
            (f"{case}: {i} + 1 = {i + 1 + (i == wrong)}.", int(i != wrong), rng.random())
            for i in range(n)
        ][: wrong + 1]
        tree = tree_of(steps, statement=f"Problem {case}?")
        rows, left_out = split(make_format(name).rows(tree))
        assert not left_out
        (solution,) = longest(read_back(rows, name))
        (native,) = solutions_of(tree)
        assert (solution.statement, solution.steps) == (native.statement, native.steps)
        if name in SOFT:
            assert solution.soft == native.soft
        else:
            assert solution.labels == native.labels


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("math-shepherd", "три ки 6", "the tag ки"),
        ("math-shepherd", "ананки = 6", "the tag ки"),
        ("math-shepherd", "As in Step 2: 6", "'Step 1:' or the like"),
        ("qwen", "6 <extra_0>", "<extra_0> or a control token"),
        ("qwen", "6<|im_end|>", "<extra_0> or a control token"),
        ("rlhflow", "6<|eot_id|>", "a control token"),
        ("rlhflow", "6 [/INST]", "a control token"),
        ("openr", "6\n\n\n\n\n7", "step tag"),
        ("openr-converted", "6\n\n\n\n\n7", "step tag"),
        ("openr-converted", "6\n", "ends with a part of it"),
        ("chat", "6<|im_end|>", "a control token"),
    ],
)
def test_text_that_holds_a_separator_is_refused(name: str, text: str, reason: str) -> None:
    tree = tree_of([(text, 1, 0.9)])
    rows, (why,) = split(make_format(name).rows(tree))
    assert not rows
    assert reason in why
    if not name.startswith("openr"):
        rows, (why,) = split(make_format(name).rows(tree_of([("6", 1, 0.9)], statement=text)))
        assert not rows
        assert reason in why


def test_openr_converted_takes_another_tag_and_older_labels(tmp_path: Path) -> None:
    tree = tree_of([("a\n", 1, 0.9), ("b", 0, 0.1)])
    (row,), _ = split(make_format("openr-converted", {"step_tag": " <prm>"}).rows(tree))
    assert row == {"question": "How many?", "process": "a\n <prm>b <prm>", "label": ["+", "-"]}
    row["labels"] = [1, 0]
    del row["label"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps([row]))
    (found,) = import_format(path, "openr-converted", step_tag=" <prm>")
    assert (found.steps, found.labels) == (("a\n", "b"), (1, 0))
    for call in (make_format, lambda name, options: list(import_format(path, name, **options))):
        with pytest.raises(ConfigError, match="step_tag must not be empty"):
            call("openr-converted", {"step_tag": ""})


def test_openr_refuses_what_would_read_as_two_steps() -> None:
    tree = tree_of(
        [("a", 1, 0.5), ("b", 1, 0.6)],
        [("a\n\nb", 1, 0.7), ("c", 1, 0.8)],
        [("d\n\ne", 1, 0.9)],
    )
    (row,), (why,) = split(make_format("openr").rows(tree))
    assert why == "a step begins with another step and a blank line"
    found = read_back([row], "openr")
    assert [(s.steps, s.soft) for s in found] == [(("a", "b"), (0.5, 0.6)), (("d\n\ne",), (0.9,))]


def test_steps_without_a_soft_label_end_a_path() -> None:
    tree = tree_of([("a", 1, 0.5), ("b", None, None), ("c", 1, 0.5)], [("d", None, None)])
    for name in ("openr", "openr-tree"):
        rows, left_out = split(make_format(name).rows(tree))
        assert [s.steps for s in read_back(rows, name)] == [("a",)]
        assert left_out == ["the first step has no soft label"]


def test_no_rollouts_no_value_of_the_problem(tmp_path: Path) -> None:
    solution = LabelledSolution("p", "Q", None, ("a",), (0,), (0.0,), ("tool",))
    (flat,) = solution_rows([solution], "openr")
    assert isinstance(flat, dict)
    assert [state["solution_prefix"] for state in flat["reasoning_steps"]] == ["Q\n\na"]
    (tree,) = solution_rows([solution], "openr-tree")
    assert isinstance(tree, dict)
    assert tree["reasoning_steps"]["mc_value"] is None
    (again,) = read_back([tree], "openr-tree", tmp_path)
    assert again.metadata == {}


def test_trees_nest_only_so_deep(tmp_path: Path) -> None:
    steps: list[Marks] = [(f"step {i}", 1, 0.5) for i in range(350)]
    for options, depth in (({}, 30), ({"max_depth": 300}, 300)):
        rows, reasons = split(make_format("openr-tree", options).rows(tree_of(steps)))
        (found,) = read_back(rows, "openr-tree", tmp_path)
        assert found.steps == tuple(text for text, _, _ in steps[:depth])
        assert reasons == [f"steps behind the first {depth} are cut off"]
    with pytest.raises(ConfigError, match="from 1 to 300"):
        make_format("openr-tree", {"max_depth": 301})
    rows, _ = split(make_format("openr").rows(tree_of(steps)))
    (found,) = read_back(rows, "openr", tmp_path)
    assert found.steps == tuple(text for text, _, _ in steps)


def test_prm800k_leaves_unlabelled_paths_out() -> None:
    rows, left_out = split(make_format("prm800k").rows(tree_of([("a", None, None)])))
    assert (rows, left_out) == ([], ["no step has a label"])
    rows, left_out = split(make_format("prm800k").rows(tree_of([("a", 1, None)], [("a", 1, 0.5)])))
    assert (len(rows), left_out) == (1, ["another row holds the same labelled steps"])


# --- real files -----------------------------------------------------------------------------------


def real(data_dir: Path, name: str) -> tuple[Path, list[Row]]:
    path = data_dir / "format-samples" / f"samples_{name}.jsonl"
    return path, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("file", "name"), [("math-shepherd", "math-shepherd"), ("prm800k", "prm800k")]
)
def test_real_rows_are_written_as_they_were_read(data_dir: Path, file: str, name: str) -> None:
    path, rows = real(data_dir, file)
    assert list(solution_rows(import_format(path, name), name)) == rows


def test_real_prm800k_is_a_solution_a_completion(data_dir: Path) -> None:
    path, rows = real(data_dir, "prm800k")
    found = list(import_format(path, "prm800k", neutral=None))
    steps = [step for row in rows for step in row["label"]["steps"]]
    humans = sum(step["human_completion"] is not None for step in steps)
    assert len(found) == sum(len(step["completions"] or []) for step in steps) + humans
    # Row 1: six alternatives of the second step behind the chosen first one, the last a human's.
    first = [s for s in found if s.metadata["prm800k.line"] == 1]
    assert [len(s.steps) for s in first] == [1, *[2] * 6, 3, 4, 5, *[6] * 5]
    assert [s.labels for s in first[1:7]] == [*[(1, 0)] * 5, (1, None)]
    # Its last step has the neutral first; all go on from the human's second.
    assert [s.labels[-1] for s in first[-5:]] == [None, 1, 1, 1, 1]
    assert len({s.steps[:5] for s in first[-5:]}) == 1
    assert first[-1].steps[1] == "We have $3p+e=1.24$ and $5p+e=1.82$."
    for neutral in (0, 1):
        again = import_format(path, "prm800k", neutral=neutral)
        labels = [s.labels[-1] for s in again if s.metadata["prm800k.completion"]["rating"] == 0]
        assert labels == [neutral] * 3


@pytest.mark.parametrize(("file", "name"), [("math-aps", "openr"), ("math-aps-tree", "openr-tree")])
def test_real_trees_lose_repeated_states_only(data_dir: Path, file: str, name: str) -> None:
    path, rows = real(data_dir, file)
    again = [row for row in solution_rows(import_format(path, name), name) if isinstance(row, dict)]
    states = flat_states if name == "openr" else tree_states
    assert len(again) == len(rows) == 3
    for old, new in zip(rows, again, strict=True):
        assert {key: new[key] for key in ("question_id", "question", "final_answer")} == {
            key: old[key] for key in ("question_id", "question", "final_answer")
        }
        first: dict[Any, float] = {}
        for state, value in states(old):
            first.setdefault(state, value)
        # Noise that a model wrote at a high temperature holds the step tag, and is refused.
        refused = {
            s for s in first if name == "openr" and STEP_TAG in s[len(old["question"]) + 4 :]
        }
        assert len(refused) <= 2
        assert dict(states(new)) == {s: v for s, v in first.items() if s not in refused}
        assert len(list(states(new))) == len(first) - len(refused)
    found = list(import_format(path, name))
    assert [s.problem_id for s in found] == sorted(
        (s.problem_id for s in found), key=[str(row["question_id"]) for row in rows].index
    )


def flat_states(row: Row) -> Iterator[tuple[Any, float]]:
    for state in row["reasoning_steps"]:
        yield state["solution_prefix"], state["mc_value"]


def tree_states(row: Row) -> Iterator[tuple[Any, float]]:
    stack = [((), row["reasoning_steps"])]
    while stack:
        above, node = stack.pop()
        path = (*above, node["text"])
        yield path, node["mc_value"]
        stack.extend((path, child) for child in reversed(node["children"]))


def test_a_real_tree_becomes_flat_and_a_tree_again(data_dir: Path) -> None:
    path, _ = real(data_dir, "math-aps-tree")
    rows, _ = split(solution_rows(import_format(path, "openr-tree"), "openr-tree"))
    solutions = read_back(rows, "openr-tree")
    flat, refused = split(solution_rows(solutions, "openr"))
    found = {(s.steps, s.soft) for s in read_back(flat, "openr")}
    native = {(s.steps, s.soft) for s in solutions}
    # A step of these trees may hold several, and begin with another one.
    assert set(refused) <= {
        "a step begins with another step and a blank line",
        "a step contains openr's step tag",
    }
    assert len(native - found) == len(refused)
    assert found <= native


def test_prm800k_becomes_math_shepherd(data_dir: Path, tmp_path: Path) -> None:
    path, rows = real(data_dir, "prm800k")
    written = [
        row
        for row in solution_rows(import_format(path, "prm800k"), "math-shepherd")
        if isinstance(row, dict)
    ]
    problems = {s.statement for s in read_back(written, "math-shepherd", tmp_path)}
    assert problems <= {row["question"]["problem"] for row in rows}
    assert len(problems) >= 5


def test_real_processbench_labels(data_dir: Path) -> None:
    path = data_dir / "ProcessBench" / "gsm8k.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    for row, solution in zip(rows, import_format(path, "processbench"), strict=True):
        assert solution.steps == tuple(row["steps"])
        first = solution.labels.index(0) if 0 in solution.labels else -1
        assert first == row["label"]


# --- files ----------------------------------------------------------------------------------------


def save(folder: Path, n: int = 2) -> Path:
    from treerl.prm.fuse import Fusion
    from treerl.prm.label import label_tree

    with RunFolder(folder, {"kind": "label", "engine": {"engine": "hf", "model": "m"}}) as run:
        for index in range(n):
            tree = Tree(Problem.from_text(f"p{index}", f"How many {index}?", "10"), (1, 2))
            bags = tree.add(tree.root, (3,), (-1.0,), text="2 * 3 = 6")
            ten = tree.add(bags, (4,), (-1.0,), text="6 + 4 = 10", finish_reason="answer")
            slip = tree.add(bags, (5,), (-1.0,), text="6 + 4 = 11")
            for node, right, total in ((bags, 4, 8), (ten, 4, 4), (slip, 0, 4)):
                node.correct, node.total = right, total
            ten.reward = 1.0
            labels = [label.to_json() for label in label_tree(tree, Fusion())]
            run.add(ProblemResult(index, tree, labels))
        run.finish(lambda results: {"problems": len(list(results))})
    return folder


@pytest.mark.parametrize("name", NEW)
def test_every_export_loads_with_datasets(name: str, tmp_path: Path) -> None:
    import datasets

    report = export(save(tmp_path / "run"), name, tmp_path / "out.jsonl")
    assert report.losses
    assert report.rows == (2 if name in SOFT else 4)
    table = datasets.load_dataset(
        "json", data_files=str(report.path), split="train", cache_dir=str(tmp_path / "cache")
    )
    written = [json.loads(line) for line in report.path.read_text().splitlines()]
    assert [dict(row) for row in table] == written
    assert list(import_format(report.path, name))


@pytest.fixture(scope="module")
def dice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as the labeller makes it, with shared, masked and unlabelled steps."""
    out = tmp_path_factory.mktemp("dice") / "run"
    labeler = Labeler(reward=ends_in_one, search=small_search(simulations=24))
    labeler.run(problems(3), ScriptedEngine(dice_policy), out)
    return out


def solutions_by_problem(run: Path) -> list[list[LabelledSolution]]:
    return [list(solutions_of(tree)) for tree in labelled_trees(RunReader(run))]


@pytest.mark.parametrize("name", HARD)
def test_a_run_keeps_its_hard_labels(name: str, dice: Path, tmp_path: Path) -> None:
    report = export(dice, name, tmp_path / "out.jsonl")
    native = [
        cut
        for solutions in solutions_by_problem(dice)
        for cut in labelled_beginnings(solutions)
        if not isinstance(cut, LeftOut)
    ]
    assert hard(list(import_format(report.path, name))) == hard(native)
    assert report.rows == len(native) > 5


def test_a_run_keeps_its_unlabelled_steps_in_prm800k(dice: Path, tmp_path: Path) -> None:
    report = export(dice, "prm800k", tmp_path / "out.jsonl")
    found = {(s.steps, s.labels) for s in import_format(report.path, "prm800k")}
    paths = [s for solutions in solutions_by_problem(dice) for s in solutions]
    native = {(s.steps, s.labels) for s in paths if any(x is not None for x in s.labels)}
    assert native <= found
    starts = {(s[:i], x[:i]) for s, x in native for i in range(1, len(s) + 1)}
    assert found == starts
    assert any(None in labels for _, labels in found)


@pytest.mark.parametrize("name", ["trl", "qwen"])
def test_formats_of_hard_labels_hold_soft_ones_on_demand(
    name: str, dice: Path, tmp_path: Path
) -> None:
    """Hard and soft labels of one run, in one format: 0.9 stays 0.9, and datasets reads floats."""
    import datasets

    (first, _), _ = split(make_format(name, {"soft": True}).rows(APPLES))
    assert first["labels"] == [0.9, 0.75, 1.0]
    (hard_row, _), _ = split(make_format(name).rows(APPLES))
    assert hard_row["labels"] == [True] * 3
    report = export(dice, name, tmp_path / "out.jsonl", soft=True)
    assert any("hard labels" in loss for loss in report.losses)
    native = [
        (cut.statement, cut.steps, cut.soft)
        for solutions in solutions_by_problem(dice)
        for cut in labelled_beginnings(solutions, soft=True)
        if not isinstance(cut, LeftOut)
    ]
    found = [(s.statement, s.steps, s.soft) for s in import_format(report.path, name)]
    assert found == native
    assert any(0 < value < 1 for _, _, soft in found for value in soft if value is not None)
    table = datasets.load_dataset(
        "json", data_files=str(report.path), split="train", cache_dir=str(tmp_path / "cache")
    )
    values = [value for row in table for value in row["labels"]]
    assert {type(value) for value in values} == {float}


@pytest.mark.parametrize("name", SOFT)
def test_a_run_keeps_its_soft_labels(name: str, dice: Path, tmp_path: Path) -> None:
    report = export(dice, name, tmp_path / "out.jsonl")
    found: dict[str, dict[tuple[str, ...], float | None]] = {}
    for solution in import_format(report.path, name):
        values = found.setdefault(solution.problem_id, {})
        for i, value in enumerate(solution.soft):
            values[solution.steps[: i + 1]] = value
    for solutions, values in zip(solutions_by_problem(dice), found.values(), strict=True):
        native: dict[tuple[str, ...], float | None] = {}
        for solution in solutions:
            for i, value in enumerate(solution.soft):
                native.setdefault(solution.steps[: i + 1], value)
        # A step that no rollout was scored through has no value to write.
        assert values == {steps: value for steps, value in native.items() if value is not None}
        assert len(native) > 20


def test_a_deep_tree_loads_with_datasets(tmp_path: Path) -> None:
    import datasets

    steps: list[Marks] = [(f"step {i}", 1, 0.5) for i in range(100)]
    rows, _ = split(make_format("openr-tree").rows(tree_of(steps)))
    (tmp_path / "deep.jsonl").write_text(json.dumps(rows[0]) + "\n")
    table = datasets.load_dataset(
        "json",
        data_files=str(tmp_path / "deep.jsonl"),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    assert table.num_rows == 1


def test_the_registries_agree() -> None:
    assert set(IMPORTERS) == set(FORMATS)
    writers: list[Callable[..., Any]] = [FORMATS[name] for name in NEW]
    for writer in writers:
        assert len(set(writer().losses())) == len(writer().losses()) >= 4
