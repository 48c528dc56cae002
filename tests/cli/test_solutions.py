"""`treerl label --solutions`: labels of solutions that somebody else wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from treerl.cli.solutions import join_solutions, without_given
from treerl.errors import ProblemError
from treerl.loading import load_problems
from treerl.problem import GIVEN, Problem
from treerl.store import RunReader

if TYPE_CHECKING:
    from conftest import Treerl

OWN = ("--engine", "mine:engine", "--reward", "mine:right", "--step-delimiter", r"\n")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def steps_of(i: int, slip: int = 0) -> list[str]:
    """Solve the i-th of the sums, with a slip in the first step."""
    x = i + i + 3 + slip
    return [f"{i} + {i + 3} = {x}", f"{x} + {2 * i} = {x + 2 * i}", f"Answer: {x + 2 * i}"]


def test_given_solutions_are_labelled_step_by_step(
    quick: Treerl, mine: Path, problem_file: Path
) -> None:
    rows = [
        {"id": f"mine-{i}", "problem_id": f"sum-{i}", "steps": steps_of(i, slip)}
        for i in range(4)
        for slip in (0, 1)
    ]
    command = ["label", problem_file, *OWN, "--solutions", write(mine / "s.jsonl", rows)]
    done = quick(*command, "--verifier", "mine:Adder", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "8 solutions from" in done.stderr
    assert "8 problems without a solution are left out" in done.stderr
    run = RunReader("run")
    assert run.manifest["search"]["method"] == "PrefixMCConfig"
    for tree in run.trees():
        given = [node for node in tree.nodes[1:] if node.kind == "given"]
        assert len(given) == 6
        assert all(node.total for node in given)
    labels: dict[tuple[str, ...], list[int | None]] = {}
    for label in run.labels():
        labels[(*label["prefix"], label["step"]["text"])] = label["label"]
    for i in range(4):
        good, bad = steps_of(i), steps_of(i, 1)
        assert [labels[tuple(good[:n])] for n in (1, 2, 3)] == [1, 1, 1]
        assert [labels[tuple(bad[:n])] for n in (1, 2, 3)] == [0, None, None]


def test_tools_alone_generate_nothing(quick: Treerl, mine: Path, problem_file: Path) -> None:
    rows = [{"problem_id": "sum-1", "solution": "\n".join(steps_of(1, 1))}]
    command = ["label", problem_file, *OWN, "--solutions", write(mine / "s.jsonl", rows)]
    done = quick(*command, "--verifier", "mine:Adder", "--rollouts", "0", "--out", "run")
    assert done.returncode == 0, done.stderr
    run = RunReader("run")
    assert run.summary() is not None
    assert (run.summary() or {})["ledger"]["generated"] == 0
    assert [label["label"] for label in run.labels()] == [0, None, None]
    assert next(run.labels())["label_source"] == "tool"


def test_a_file_of_problems_with_their_solutions(quick: Treerl, mine: Path) -> None:
    rows = [  # ProcessBench's shape, but with an answer
        {"id": f"p-{i}", "problem": f"What is {i} + {i + 3} + {2 * i} ?", "answer": str(4 * i + 3)}
        | {"steps": steps_of(i), "label": -1}
        for i in range(3)
    ]
    path = write(mine / "bench.jsonl", rows)
    done = quick("label", path, *OWN, "--solutions", path, "--no-tools", "--out", "run")
    assert done.returncode == 0, done.stderr
    trees = list(RunReader("run").trees())
    assert [tree.problem.id for tree in trees] == ["p-0", "p-1", "p-2"]
    assert trees[1].problem.metadata == {"label": -1, GIVEN: [steps_of(1)]}
    assert {label["label"] for label in RunReader("run").labels()} == {1}


def joined(tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Return the solutions of each problem."""
    questions = ["How many?", "How  much?", "How far?", "How far?"]
    problems = [{"id": f"q{i}", "question": text} for i, text in enumerate(questions)]
    loaded = load_problems(write(tmp_path / "p.jsonl", problems))
    found = join_solutions(loaded, str(write(tmp_path / "s.jsonl", rows)), **options)
    return {problem.id: problem.metadata[GIVEN] for problem in found.problems}


def test_rows_find_their_problems_by_text_or_id(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "x", "question": "How much?", "steps": ["a", "b"]},
        {"id": "q0", "question": " How many? ", "steps": ["c"]},
        {"id": "q3", "question": "How far?", "steps": ["d"]},
        {"id": "q1", "question": None, "steps": ["e"]},
    ]
    assert joined(tmp_path, rows) == {"q0": [["c"]], "q1": [["a", "b"], ["e"]], "q3": [["d"]]}
    named = [{"of": "q2", "text": "one\n\n\n\n two", "question": "Which?"}]
    options = {"id_field": "of", "solution_field": "text"}
    assert joined(tmp_path, named, **options) == {"q2": [["one", " two"]]}
    chat = [{"problem_id": "q0", "steps": [{"role": "assistant", "content": "x;y"}]}]
    assert joined(tmp_path, chat, delimiter=";") == {"q0": [["x", "y"]]}
    nested = [{"meta": {"id": "q1"}, "out": {"steps": ["x"]}}]
    options = {"id_field": "meta.id", "solution_field": "out.steps"}
    assert joined(tmp_path, nested, **options) == {"q1": [["x"]]}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"problem_id": "q9", "steps": ["a"]}, "line 2, field 'problem_id': there is no problem"),
        ({"problem_id": "q0", "steps": []}, "line 2, field 'steps': the solution is empty"),
        ({"problem_id": "q0", "steps": " \n"}, "field 'steps': the solution is empty"),
        ({"problem_id": "q0", "steps": ["a", " "]}, "field 'steps[1]': the step is empty"),
        ({"problem_id": "q0", "steps": ["a", 7]}, "field 'steps[1]': a number stands where a str"),
        ({"problem_id": "q0", "steps": None}, "field 'steps': null stands where a string must"),
        ({"problem_id": "q0", "steps": ["a\0"]}, "NUL character"),
        ({"problem_id": "q0"}, "field 'steps': the field is missing"),
        ({"steps": ["a"]}, "field 'problem_id': the field is missing"),
        ({"problem_id": ["q0"], "steps": ["a"]}, "field 'problem_id': a list stands where"),
    ],
    ids=str,
)
def test_bad_rows_end_the_command_or_are_counted(
    tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    good = {"problem_id": "q1", "steps": ["fine"]}
    with pytest.raises(ProblemError) as caught:
        joined(tmp_path, [good, row])
    assert str(tmp_path / "s.jsonl") in str(caught.value)
    assert said in str(caught.value)
    assert joined(tmp_path, [good, row], skip=True) == {"q1": [["fine"]]}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "How far?", "steps": ["a"]}, "several problems have this text; name the pro"),
        ({"id": "q0", "question": "How far?", "steps": ["a"]}, "several problems have this text"),
        ({"id": "q0", "question": "Which?", "steps": ["a"]}, "with the id 'q0' has another text"),
        ({"id": "z", "question": "Which?", "steps": ["a"]}, "no problem with this text or the id"),
        ({"question": "Which?", "steps": ["a"]}, "there is no problem with this text;"),
        ({"id": "q0", "labels": [1]}, "no field for the solution was found; the fields are 'id'"),
        ({"steps": ["a"], "n": 1}, "name it with --solution-id-field"),
    ],
    ids=str,
)
def test_rows_of_no_problem_are_errors(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        joined(tmp_path, [row])
    assert said in str(caught.value)


def test_a_part_of_the_problems_has_a_part_of_the_solutions(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"problem_id": "q1", "steps": ["a"]},
        {"problem_id": "later", "steps": ["b"]},
    ]
    assert joined(tmp_path, rows, limited=True) == {"q1": [["a"]]}
    with pytest.raises(ProblemError, match="no row holds a solution of one of the problems"):
        joined(tmp_path, rows[1:], limited=True)


def test_a_field_called_solutions_is_not_taken_for_given_ones() -> None:
    plain = Problem.from_text("a", "?", metadata={"level": 1})
    named = Problem.from_text("b", "?", metadata={GIVEN: "see page 7"})
    assert without_given([plain, named])[0] is plain
    assert without_given([named])[0].metadata == {"solutions_of_file": "see page 7"}
