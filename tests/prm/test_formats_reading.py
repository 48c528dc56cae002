"""Reading the files of others: each damaged row is one error that says where and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treerl.errors import ConfigError, ProblemError
from treerl.prm.formats import LabelledSolution, guess_format, import_format, solution_rows

GOOD: dict[str, dict[str, Any]] = {
    "trl": {"prompt": "Q", "completions": ["a", "b"], "labels": [True, False]},
    "processbench": {"id": "x-0", "problem": "Q", "steps": ["a", "b"], "label": 1},
    "prm800k": {
        "question": {"problem": "Q", "ground_truth_answer": "1"},
        "label": {
            "steps": [
                {"completions": [{"text": "a", "rating": 1}], "chosen_completion": 0},
                {"completions": [{"text": "b", "rating": -1}], "chosen_completion": None},
            ]
        },
    },
    "math-shepherd": {
        "input": "Q Step 1: a ки\nStep 2: b ки",
        "label": "Q Step 1: a +\nStep 2: b -",
        "task": "MATH",
    },
    "qwen": {
        "messages": [
            {"role": "user", "content": "Q"},
            {"role": "assistant", "content": "a<extra_0>b<extra_0>"},
        ],
        "labels": [1, 0],
    },
    "openr": {
        "question_id": 7,
        "question": "Q",
        "final_answer": "1",
        "reasoning_steps": [
            {"solution_prefix": "Q\n\na", "mc_value": 1},
            {"solution_prefix": "Q\n\na\n\nb", "mc_value": 0},
        ],
    },
    "openr-tree": {
        "question_id": 7,
        "question": "Q",
        "final_answer": "1",
        "reasoning_steps": {
            "text": "Q",
            "mc_value": 0.5,
            "children": [
                {
                    "text": "a",
                    "mc_value": 1.0,
                    "children": [{"text": "b", "mc_value": 0.25, "children": []}],
                }
            ],
        },
    },
    "openr-converted": {
        "question": "Q",
        "process": "a\n\n\n\n\nb\n\n\n\n\n",
        "label": ["+", "-"],
    },
    "chat": {
        "messages": [
            {"role": "system", "content": "Judge."},
            {"role": "user", "content": "Q\n\na"},
            {"role": "assistant", "content": "<output>\nVerdict: \\boxed{Right}\n</output>"},
            {"role": "user", "content": "b"},
            {"role": "assistant", "content": "<output>\nVerdict: \\boxed{Wrong}\n</output>"},
        ],
        "problem": "Q",
    },
    "rlhflow": {
        "messages": [
            {"role": "user", "content": "Q a"},
            {"role": "assistant", "content": "+"},
            {"role": "user", "content": "b"},
            {"role": "assistant", "content": "-"},
        ],
        "problem": "Q",
    },
}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def changed(row: Any, keys: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with the value at a path of keys replaced, or removed by `...`."""
    copy = json.loads(json.dumps(row))
    at = copy
    for key in keys[:-1]:
        at = at[key]
    if value is ...:
        del at[keys[-1]]
    else:
        at[keys[-1]] = value
    return copy


@pytest.mark.parametrize("name", GOOD)
def test_a_good_row(name: str, tmp_path: Path) -> None:
    found = list(import_format(write(tmp_path / "f.jsonl", GOOD[name]), name))
    assert found[-1].statement == "Q"
    assert found[-1].steps == ("a", "b")
    assert found[-1].labels == (1, 0)
    assert set(found[-1].source) == {name}
    assert found[-1].problem_id


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_field_of_each_kind(name: str, tmp_path: Path) -> None:
    optional = {"task", "question_id", "final_answer", "problem"}
    for field in GOOD[name].keys() - (optional if name != "processbench" else set()):
        path = write(tmp_path / "f.jsonl", GOOD[name], changed(GOOD[name], (field,), ...))
        found = import_format(path, name)
        with pytest.raises(ProblemError) as caught:
            list(found)
        assert caught.value.file == str(path)
        assert caught.value.line == 2
        assert caught.value.field in (field, "conversations")
        assert caught.value.mend


SHEPHERD_INPUT = "Q Step 1: a ки\nStep 2: b ки"


@pytest.mark.parametrize(
    ("name", "keys", "value", "field", "message"),
    [
        ("trl", ("labels",), [True], "labels", "1 labels, but 2 completions"),
        ("trl", ("labels", 1), 1.5, "labels[1]", "1.5 is not between 0 and 1"),
        ("trl", ("labels", 1), "yes", "labels[1]", "a string stands where a number must"),
        ("trl", ("prompt",), 3, "prompt", "a number stands where a string must"),
        ("trl", ("prompt",), "a\ud800", "prompt", "not valid UTF-8"),
        ("processbench", ("label",), 2, "label", "the label is 2, but there are 2 steps"),
        ("processbench", ("label",), -2, "label", "the label is -2"),
        ("processbench", ("label",), 0.5, "label", "where a whole number must"),
        ("processbench", ("label",), True, "label", "where a whole number must"),
        ("processbench", ("steps",), "a", "steps", "a string stands where a list must"),
        ("processbench", ("steps", 1), None, "steps[1]", "null stands where a string must"),
        (
            "prm800k",
            ("label", "steps", 1, "completions", 0, "rating"),
            2,
            "label.steps[1].completions[0].rating",
            "the rating is 2",
        ),
        (
            "prm800k",
            ("label", "steps", 0, "chosen_completion"),
            1,
            "label.steps[0].chosen_completion",
            "there is no completion 1",
        ),
        (
            "prm800k",
            ("label", "steps", 0, "chosen_completion"),
            -1,
            "label.steps[0].chosen_completion",
            "there is no completion -1",
        ),
        (
            "prm800k",
            ("label", "steps", 0, "chosen_completion"),
            None,
            "label.steps[1]",
            "the step before it chose no completion",
        ),
        ("prm800k", ("label", "steps", 0), [], "label.steps[0]", "where an object must"),
        ("math-shepherd", ("input",), "Q Step 1: a", "input", "no tag ки stands behind"),
        ("math-shepherd", ("input",), "Q Step 1: Step 1: a ки", "input", "exactly once"),
        ("math-shepherd", ("input",), "Q a ки", "input", "exactly once"),
        ("math-shepherd", ("input",), "Q Step 1: a ки\nb ки", "input", "no 'Step 2:'"),
        ("math-shepherd", ("label",), "Q Step 1: a +\nStep 2: b", "label", "step 2 is not that"),
        ("math-shepherd", ("label",), "Q Step 1: a +\nStep 2: c -", "label", "step 2 is not that"),
        ("math-shepherd", ("label",), "Q Step 1: a +\nStep 2: b - c", "label", "behind the last"),
        ("qwen", ("labels",), [1], "labels", "1 labels, but 2 steps"),
        ("qwen", ("messages", 1, "content"), "a<extra_0>b", "messages[1].content", "no <extra_0>"),
        ("qwen", ("messages", 1, "role"), "user", "messages", "the roles are user, user"),
        ("openr", ("reasoning_steps", 0, "mc_value"), 1.5, None, "1.5 is not between 0 and 1"),
        ("openr", ("reasoning_steps", 1, "solution_prefix"), "R", None, "does not begin with"),
        ("openr", ("question_id",), "x", "question_id", "where a whole number must"),
        ("openr-tree", ("reasoning_steps", "children"), None, None, "where a list must"),
        ("openr-tree", ("reasoning_steps", "children", 0, "mc_value"), -1, None, "-1.0 is not"),
        ("rlhflow", ("messages", 1, "content"), "++", "messages[1].content", "the answer is '++'"),
        ("rlhflow", ("messages", 3, "role"), "user", "messages", "do not alternate"),
        ("rlhflow", ("problem",), "R", "messages[0].content", "does not begin with 'problem'"),
        ("rlhflow", ("problem",), ..., "messages[0].content", "cannot be told from"),
        ("rlhflow", ("messages",), [], "messages", "do not alternate"),
        ("openr-converted", ("process",), "a", "process", "no step tag stands behind"),
        ("openr-converted", ("label",), ["+"], "label", "1 labels, but 2 steps"),
        ("openr-converted", ("label", 1), "?", "label[1]", "a string stands where"),
        ("openr-converted", ("label", 1), 0.5, "label[1]", "neither + nor -"),
        ("chat", ("messages", 2, "role"), "user", "messages", "do not alternate"),
        ("chat", ("messages", 2, "content"), "Right", "messages[2].content", "no verdict stands"),
        ("chat", ("problem",), "R", "messages[1].content", "does not begin with 'problem'"),
    ],
)
def test_a_damaged_row_names_the_field(
    name: str, keys: tuple[Any, ...], value: Any, field: str | None, message: str, tmp_path: Path
) -> None:
    bad = changed(GOOD[name], keys, value)
    path = write(tmp_path / "f.jsonl", bad, GOOD[name])
    with pytest.raises(ProblemError) as caught:
        list(import_format(path, name))
    assert message in caught.value.message
    assert (caught.value.file, caught.value.line) == (str(path), 1)
    assert caught.value.mend
    if field is not None:
        assert caught.value.field == field
    # With a handler, the damaged row costs itself alone.
    errors: list[ProblemError] = []
    assert len(list(import_format(path, name, on_error=errors.append))) in (1, 2)
    assert len(errors) == 1


def test_lines_that_are_no_json_are_errors_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path / "f.jsonl", GOOD["trl"])
    path.write_text(path.read_text() + '{"prompt": "Q", "comp\n')
    errors: list[ProblemError] = []
    assert len(list(import_format(path, "trl", on_error=errors.append))) == 1
    assert [(error.line, "breaks off" in error.message) for error in errors] == [(2, True)]


def test_nesting_without_end_is_an_error(tmp_path: Path) -> None:
    deep = '{"text": "a", "mc_value": 1, "children": [' * 5000 + "]}" * 5000
    row = f'{{"question": "Q", "reasoning_steps": {deep}}}\n'
    (tmp_path / "f.jsonl").write_text(row)
    with pytest.raises(ProblemError, match="nested too deeply"):
        list(import_format(tmp_path / "f.jsonl", "openr-tree"))


def test_bad_calls_name_the_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no format 'xml' to import; there are trl, "):
        import_format(tmp_path / "f.jsonl", "xml")
    with pytest.raises(ConfigError, match="format 'trl': got an unexpected keyword"):
        import_format(tmp_path / "f.jsonl", "trl", neutral=1)
    with pytest.raises(ProblemError, match="cannot be read"):
        list(import_format(tmp_path / "f.jsonl", "trl"))
    solution = LabelledSolution("p", "Q", None, ("a",), (1,), (None,), ("mc",))
    with pytest.raises(ConfigError, match="from the trees of a run only"):
        list(solution_rows([solution], "chat"))
    with pytest.raises(ValueError, match="1 steps, 0 labels"):
        LabelledSolution("p", "Q", None, ("a",), (), (None,), ("mc",))


# --- labels ---------------------------------------------------------------------------------------


def test_trl_labels_may_be_soft_or_missing(tmp_path: Path) -> None:
    row = {"prompt": "Q", "completions": list("abcdef"), "labels": [True, 0.9, 0.2, 1, 1.0, None]}
    path = write(tmp_path / "f.jsonl", row)
    (found,) = import_format(path, "trl")
    assert found.labels == (1, 1, 0, 1, 1, None)
    assert found.soft == (None, 0.9, 0.2, None, 1.0, None)
    (found,) = import_format(path, "trl", threshold=0.1)
    assert found.labels[2] == 1


@pytest.mark.parametrize(("threshold", "labels"), [(0.5, (1, 0)), (0.0, (1, 1))])
def test_the_threshold_of_soft_labels(
    threshold: float, labels: tuple[int, ...], tmp_path: Path
) -> None:
    path = write(tmp_path / "f.jsonl", GOOD["openr-tree"])
    (found,) = import_format(path, "openr-tree", threshold=threshold)
    assert found.labels == labels
    assert found.soft == (1.0, 0.25)


def test_prm800k_alternatives_do_not_multiply(tmp_path: Path) -> None:
    """1 x 3 x 2 completions are six solutions: one a completion, no product of them."""

    def step(texts: str, chosen: int | None) -> dict[str, Any]:
        completions = [{"text": t, "rating": 1} for t in texts]
        return {"completions": completions, "chosen_completion": chosen}

    steps = [step("a", 0), step("bcd", 1), step("ef", None)]
    row = {"question": {"problem": "Q"}, "label": {"steps": steps}}
    found = list(import_format(write(tmp_path / "f.jsonl", row), "prm800k"))
    assert ["".join(s.steps) for s in found] == ["a", "ab", "ac", "ad", "ace", "acf"]


def test_rlhflow_without_the_problem_needs_step_1(tmp_path: Path) -> None:
    turns = ["How many? Step 1: six.", "+", "Step 2: ten.", "-"]
    roles = ["user", "assistant"] * 2
    row = {
        "conversations": [
            {"role": role, "content": text} for role, text in zip(roles, turns, strict=True)
        ]
    }
    (found,) = import_format(write(tmp_path / "f.jsonl", row), "rlhflow")
    assert (found.statement, found.steps) == ("How many?", ("Step 1: six.", "Step 2: ten."))
    (again,) = solution_rows([found], "rlhflow")
    assert isinstance(again, dict)
    assert [turn["content"] for turn in again["messages"]] == turns


def test_chat_without_the_problem_needs_one_blank_line(tmp_path: Path) -> None:
    row = changed(GOOD["chat"], ("problem",), ...)
    (found,) = import_format(write(tmp_path / "f.jsonl", row), "chat")
    assert (found.statement, found.steps) == ("Q", ("a", "b"))
    assert found.metadata["system"] == "Judge."
    assert found.metadata["judgements"][1].endswith("\\boxed{Wrong}\n</output>")
    row["messages"][1]["content"] = "Q\n\nR\n\na"
    with pytest.raises(ProblemError, match="cannot be told from the first step"):
        list(import_format(write(tmp_path / "f.jsonl", row), "chat"))


@pytest.mark.parametrize("name", GOOD)
def test_a_format_is_known_by_its_fields(name: str, tmp_path: Path) -> None:
    assert guess_format(write(tmp_path / "f.jsonl", GOOD[name])) == name
    torn = tmp_path / "torn.jsonl"
    torn.write_text('{"prompt": \n' + json.dumps(GOOD[name]) + "\n")
    assert guess_format(torn) == name


def test_a_file_of_no_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no known format has the fields question, answer"):
        guess_format(write(tmp_path / "f.jsonl", {"question": "Q", "answer": "1"}))
    with pytest.raises(ConfigError, match="no known format"):
        guess_format(write(tmp_path / "f.jsonl", {"messages": "Q"}))
    (tmp_path / "torn.jsonl").write_text('{"prompt": \n')
    with pytest.raises(ProblemError):
        guess_format(tmp_path / "torn.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ProblemError):
        guess_format(tmp_path / "empty.jsonl")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("ProcessBench/gsm8k.json", "processbench"),
        ("format-samples/samples_prm800k.jsonl", "prm800k"),
        ("format-samples/samples_math-shepherd.jsonl", "math-shepherd"),
        ("format-samples/samples_math-aps.jsonl", "openr"),
        ("format-samples/samples_math-aps-tree.jsonl", "openr-tree"),
    ],
)
def test_real_files_are_known_by_their_fields(data_dir: Path, file: str, name: str) -> None:
    assert guess_format(data_dir / file) == name


def test_parquet_is_read_too(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("openr", "processbench", "trl"):
        pq.write_table(pa.Table.from_pylist([GOOD[name]]), tmp_path / f"{name}.parquet")
        (found,) = import_format(tmp_path / f"{name}.parquet", name)
        assert found.labels == (1, 0)
