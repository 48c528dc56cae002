"""Problem files of every kind, good and bad."""

from __future__ import annotations

import csv
import decimal
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treerl import readers
from treerl.errors import ProblemError
from treerl.loading import extract_gold, load_problems

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write text or bytes into a file and return its path."""

    def _write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(rows: list[dict[str, Any]], path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def failure(path: Path | str, **options: Any) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        load_problems(path, **options)
    assert "\n" not in str(caught.value)
    return caught.value


Q1 = {"question": "1 + 1?", "answer": "2"}
Q2 = {"question": "2 + 2?", "answer": "4"}


# --- the kinds of files ---------------------------------------------------------------------------


def as_jsonl(rows: list[dict[str, str]], folder: Path) -> Path:
    path = folder / "p.jsonl"
    path.write_text(lines(*rows), encoding="utf-8", newline="")
    return path


def as_raw_jsonl(rows: list[dict[str, str]], folder: Path) -> Path:
    path = folder / "raw.jsonl"
    text = "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows)
    path.write_text(text, encoding="utf-8-sig", newline="")
    return path


def as_json(rows: list[dict[str, str]], folder: Path) -> Path:
    path = folder / "p.json"
    path.write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8", newline="")
    return path


def as_wrapped_json(rows: list[dict[str, str]], folder: Path) -> Path:
    path = folder / "wrapped.json"
    path.write_text(json.dumps({"version": 1, "data": rows}), encoding="utf-8")
    return path


def as_csv(rows: list[dict[str, str]], folder: Path, delimiter: str = ",") -> Path:
    path = folder / ("p.csv" if delimiter == "," else "p.tsv")
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_tsv(rows: list[dict[str, str]], folder: Path) -> Path:
    return as_csv(rows, folder, "\t")


def as_parquet(rows: list[dict[str, str]], folder: Path) -> Path:
    return table(rows, folder / "p.parquet")


KINDS = [
    as_jsonl,
    as_raw_jsonl,
    as_json,
    as_wrapped_json,
    as_csv,
    as_tsv,
    as_parquet,
]
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1)


@pytest.mark.parametrize("make", KINDS)
def test_strings_stay_strings(make: Callable[..., Path], tmp_path: Path) -> None:
    golds = ["007", "1e3", "1.0", "NaN", "null", "None", "true", "-0", " 5 ", "1,000", "1_000"]
    path = make([{"question": "q", "answer": gold} for gold in golds], tmp_path)
    assert [p.answer for p in load_problems(path)] == golds


@pytest.mark.parametrize("make", KINDS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_any_text_survives(
    make: Callable[..., Path], tmp_path: Path, rows: list[tuple[str, str]]
) -> None:
    # A blank question or gold is a bad row; csv cells are padded so that no row is one.
    rows = [(q + "?", a + "!") for q, a in rows]
    path = make([{"question": q, "answer": a} for q, a in rows], tmp_path)
    loaded = load_problems(path, answer_format="plain")
    assert [(p.text, p.answer) for p in loaded] == rows


@pytest.mark.parametrize("make", KINDS)
def test_ids_are_the_row_index_and_stable_under_limit(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    path = make([Q1, Q2, Q1], tmp_path)
    ids = [p.id for p in load_problems(path)]
    assert ids == [f"{path.stem}-{i}" for i in range(3)]
    assert [p.id for p in load_problems(path, limit=2)] == ids[:2]


def test_skipped_rows_keep_their_index(write: Write) -> None:
    path = write("p.jsonl", lines(Q1, {"question": "", "answer": "1"}, Q2))
    loaded = load_problems(path, on_error="skip")
    assert [p.id for p in loaded] == ["p-0", "p-2"]
    assert loaded.counts == {"rows": 3, "problems": 2, "skipped": 1, "without_answer": 0}
    assert "1 bad row skipped" in loaded.summary()
    assert loaded[:1] == loaded.problems[:1]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_bom_crlf_and_blank_lines(write: Write, newline: str, bom: bytes) -> None:
    text = lines(Q1, Q2).replace("\n", newline * 2).encode()
    assert len(load_problems(write("p.jsonl", bom + text))) == 2
    text = newline.join(["question,answer", "a,1", "", "b,2", ""]).encode()
    loaded = load_problems(write("p.csv", bom + text))
    assert [(p.text, p.answer) for p in loaded] == [("a", "1"), ("b", "2")]


def test_csv_quotes_and_line_breaks(write: Write) -> None:
    text = 'question,answer\n"He said ""hi"",\nthen left",7\nnext,8\n,9\n'
    path = write("p.csv", text)
    loaded = load_problems(path, on_error="skip")
    assert loaded[0].text == 'He said "hi",\nthen left'
    # The bad row is the fifth line of the file, though it is the third record.
    assert loaded.errors[0].line == 5
    assert "the question is empty" in str(loaded.errors[0])


def test_json_files_of_many_shapes(write: Write) -> None:
    shapes = [
        write("lines.json", lines(Q1, Q2)),
        write("list.jsonl", json.dumps([Q1, Q2])),
        write("padded.json", "\n \n" + json.dumps([Q1, Q2], indent=1) + "\n\n"),
        write("wrapped.json", json.dumps({"n": 2, "rows": [Q1, Q2]}, indent=1)),
    ]
    for path in shapes:
        assert [p.answer for p in load_problems(path)] == ["2", "4"], path
    assert load_problems(write("one.json", json.dumps(Q1, indent=1)))[0].answer == "2"


def test_json_lines_are_counted(write: Write) -> None:
    path = write("p.json", json.dumps([Q1, Q2, {"question": 3}], indent=1))
    assert failure(path).line == 10


def test_a_long_json_list_is_read_across_buffers(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_CHUNK", 7)
    rows = [{"question": "é" * i, "answer": 10**i, "tail": [i, i]} for i in range(1, 60)]
    loaded = load_problems(write("p.json", json.dumps(rows, indent=3)))
    assert [p.answer for p in loaded] == [str(10**i) for i in range(1, 60)]
    assert [p.metadata["tail"] for p in loaded] == [[i, i] for i in range(1, 60)]


# --- lazy -----------------------------------------------------------------------------------------


class Counting(io.BufferedReader):
    """Counts the bytes that are taken from a file."""

    taken = 0

    def read1(self, size: int = -1, /) -> bytes:
        data = super().read1(size)
        type(self).taken += len(data)
        return data


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv"])
def test_limit_reads_only_the_front(
    write: Write, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rows = [{"question": "q" * 1000, "answer": str(i)} for i in range(2000)]
    texts = {
        "jsonl": lines(*rows),
        "json": json.dumps(rows),
        "csv": "question,answer\n" + "".join(f"{r['question']},{r['answer']}\n" for r in rows),
    }
    path = write(f"p.{kind}", texts[kind])

    def opened(path: Path) -> io.TextIOWrapper:
        raw = Counting(path.open("rb").detach())  # type: ignore[attr-defined]
        return io.TextIOWrapper(raw, "utf-8-sig", "surrogateescape", "\n")

    monkeypatch.setattr(readers, "_open", opened)
    Counting.taken = 0
    assert len(load_problems(path, limit=8)) == 8
    assert 0 < Counting.taken < 300_000 < path.stat().st_size


def test_limit_does_not_see_later_bad_rows(write: Write) -> None:
    path = write("p.jsonl", lines(Q1, Q2) + "{broken\n")
    assert len(load_problems(path, limit=2)) == 2
    assert failure(path, limit=3).line == 3


# --- fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["question", "problem", "prompt", "input", "query"])
@pytest.mark.parametrize("answer", ["answer", "final_answer", "target", "solution", "gold"])
def test_fields_are_guessed(write: Write, question: str, answer: str) -> None:
    loaded = load_problems(write("p.jsonl", lines({"x": 1, question: "1 + 1?", answer: "2"})))
    assert (loaded[0].text, loaded[0].answer) == ("1 + 1?", "2")
    assert loaded.fields == {"question": question, "answer": answer}
    assert loaded[0].metadata == {"x": 1}


def test_an_answer_is_preferred_to_a_worked_solution(write: Write) -> None:
    row = {"problem": "p", "solution": "so \\boxed{3}", "answer": "4", "unique_id": "t/1.json"}
    loaded = load_problems(write("p.jsonl", lines(row)))
    assert (loaded[0].answer, loaded[0].id) == ("4", "t/1.json")
    assert loaded[0].metadata == {"solution": "so \\boxed{3}"}


def test_fields_by_name(write: Write) -> None:
    row = {"question": "no", "answer": "no", "q": "yes", "extra": {"gold": "7"}, "key": 12}
    path = write("p.jsonl", lines(row))
    loaded = load_problems(path, question_field="q", answer_field="extra.gold", id_field="key")
    assert (loaded[0].text, loaded[0].answer, loaded[0].id) == ("yes", "7", "12")
    assert loaded[0].metadata == {"question": "no", "answer": "no", "extra": {"gold": "7"}}


def test_a_wrong_field_names_those_there_are(write: Write) -> None:
    path = write("p.jsonl", lines(Q1))
    for option in ("question_field", "answer_field", "id_field", "messages_field"):
        error = failure(path, **{option: "nope"})
        assert (error.field, error.line, error.file) == ("nope", 1, str(path))
        assert "'question', 'answer'" in str(error)
    error = failure(write("odd.jsonl", lines({"a": 1, "b": 2})), on_error="skip")
    assert "the fields are 'a', 'b'" in str(error)
    assert "question_field" in str(error)


def test_unknown_answers_are_none_and_counted(write: Write) -> None:
    loaded = load_problems(write("p.jsonl", lines({"question": "a", "answer": None}, Q2)))
    assert [p.answer for p in loaded] == [None, "4"]
    assert loaded.counts["without_answer"] == 1
    assert load_problems(write("q.jsonl", lines({"question": "a"})))[0].answer is None


def test_a_guessed_solution_without_a_mark_is_no_answer(write: Write) -> None:
    row = {"problem": "p", "solution": "first this\nthen that"}
    path = write("p.jsonl", lines(row))
    assert load_problems(path)[0].answer is None
    assert load_problems(path)[0].metadata == {"solution": row["solution"]}
    assert "marks no final answer" in str(failure(path, answer_field="solution"))
    plain = load_problems(path, answer_field="solution", answer_format="plain")
    assert plain[0].answer == row["solution"]


def test_conversations(write: Write) -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "1 + 1?"}]
    for name in ("messages", "prompt"):
        loaded = load_problems(write("p.jsonl", lines({name: turns, "answer": 2})))
        assert loaded[0].messages == tuple(turns)
        assert (loaded[0].answer, loaded.fields["messages"]) == ("2", name)


def test_the_assistants_last_turn_is_cut_off(write: Write) -> None:
    reply = "It is\n\\boxed{2}"
    turns = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": reply}]
    loaded = load_problems(write("p.jsonl", lines({"messages": turns})))
    assert loaded[0].messages == (turns[0],)
    assert (loaded[0].answer, loaded[0].metadata) == ("2", {"reply": reply})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "the conversation is empty"),
        ([1], "turn 1 is a number"),
        ([{"role": "user"}], "turn 1 lacks"),
        ([{"role": "assistant", "content": "a"}], "no question of a user"),
        ([{"role": "user", "content": "  "}], "no question of a user"),
        ("text", "the conversation is no text"),
    ],
)
def test_bad_conversations(write: Write, value: Any, message: str) -> None:
    path = write("p.jsonl", lines({"messages": value}))
    assert message in str(failure(path, messages_field="messages"))


def test_verl_parquet(tmp_path: Path) -> None:
    row = {
        "prompt": [{"role": "user", "content": "1 + 1?"}],
        "reward_model": {"ground_truth": "2", "style": "rule"},
    }
    loaded = load_problems(table([row], tmp_path / "train.parquet"))
    assert (loaded[0].text, loaded[0].answer) == ("1 + 1?", "2")


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["1.0", "27.00", "1e3", "-0.0", "0.1000000000000000055511151231257827", "1E400", "9" * 5000],
)
def test_json_numbers_keep_their_text(write: Write, text: str) -> None:
    row = f'{{"question": "q", "answer": {text}, "level": {text}}}\n'
    loaded = load_problems(write("p.jsonl", row))
    assert loaded[0].answer == text
    level = loaded[0].metadata["level"]
    assert type(level) in (int, float, str)
    assert str(level) == text


def test_numbers_of_parquet(tmp_path: Path) -> None:
    columns = {
        "question": pa.array(["q", "q"]),
        "answer": pa.array([decimal.Decimal("1.50"), None]),
        "single": pa.array([0.1, 2.0], pa.float32()),
        "double": pa.array([27.0, float("nan")]),
        "whole": pa.array([2**63 - 1, None], pa.int64()),
        "flag": pa.array([True, False]),
    }
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table(columns), path)
    expected = {
        "answer": ["1.50", None],
        "single": ["0.1", "2.0"],
        "double": ["27.0", None],
        "whole": ["9223372036854775807", None],
        "flag": ["true", "false"],
    }
    for name, golds in expected.items():
        assert [p.answer for p in load_problems(path, answer_field=name)] == golds


def test_missing_numbers_are_unknown(write: Write) -> None:
    assert load_problems(write("p.jsonl", '{"question": "q", "answer": NaN}'))[0].answer is None


def test_metadata_is_plain_json(write: Write, tmp_path: Path) -> None:
    row = {"question": "q", "n": [1, 2.5, None, True, {"a": "b"}], "text": "t"}
    metadata = load_problems(write("p.jsonl", lines(row)))[0].metadata
    assert metadata == {"n": row["n"], "text": "t"}
    assert [type(x) for x in metadata["n"]] == [int, float, type(None), bool, dict]
    table(
        [{"question": "q", "image": b"1234", "d": decimal.Decimal("1.5")}], tmp_path / "p.parquet"
    )
    metadata = load_problems(tmp_path / "p.parquet")[0].metadata
    assert json.loads(json.dumps(metadata)) == {"image": "<4 bytes>", "d": "1.5"}


@pytest.mark.parametrize("value", [["2"], {"a": 1}, []])
def test_a_list_is_no_answer(write: Write, value: Any) -> None:
    error = failure(write("p.jsonl", lines({"question": "q", "answer": value})))
    assert error.field == "answer"
    assert "an answer is one string or number" in str(error)


# --- golds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("She makes 9 * 2 = $<<9*2=18>>18.\n#### 18", "18"),
        ("a\n#### 1,000\n", "1,000"),
        ("#### -5", "-5"),
        ("a\r\n####  7.50  ", "7.50"),
        ("so $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
        ("\\boxed{1} or \\boxed{x^{2_{3}}}", "x^{2_{3}}"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{\\left\\{ x \\right.}", "\\left\\{ x \\right."),
        ("\\boxed {3}", "3"),
        ("$\\boxed 5$", "5"),
        ("\\fbox{4}", "4"),
        ("007", "007"),
        (" x ", " x "),
        ("#### Solution\nIt is \\boxed{6}", "6"),
        ("##### heading", "##### heading"),
    ],
)
def test_golds_are_found(text: str, gold: str) -> None:
    assert extract_gold(text) == gold


@pytest.mark.parametrize(
    ("text", "format", "message"),
    [
        ("18", "gsm8k", "no '#### x'"),
        ("a\n####\n", "gsm8k", "nothing follows"),
        ("a\n#### ", "auto", "nothing follows"),
        ("18", "boxed", "no \\boxed"),
        ("\\boxed{ }", "auto", "the box is empty"),
        ("\\boxed{1} \\boxed{\\frac{1}{2}", "auto", "never closed"),
        (" ", "plain", "empty"),
        ("", "auto", "empty"),
    ],
)
def test_golds_that_cannot_be_found(write: Write, text: str, format: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        extract_gold(text, format)
    path = write("p.jsonl", lines({"question": "q", "answer": text}))
    error = failure(path, answer_format=format)
    assert message in str(error)
    assert (error.line, error.field) == (1, "answer")
    assert error.mend


def test_the_raw_field_stays_in_metadata(write: Write) -> None:
    raw = "one\n#### 1"
    loaded = load_problems(write("p.jsonl", lines({"question": "q", "answer": raw}, Q1)))
    assert loaded[0].metadata == {"answer": raw}
    assert loaded[1].metadata == {}


@given(st.text())
def test_extract_gold_never_breaks(text: str) -> None:
    for kind in ("auto", "plain", "gsm8k", "boxed"):
        try:
            gold = extract_gold(text, kind)  # type: ignore[arg-type]
        except ValueError:
            continue
        assert gold.strip()


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", b"", "the file is empty; name a file that holds rows"),
        ("p.jsonl", b"\n \n", "holds no row"),
        ("p.json", b"[]", "the list is empty; name a file that holds rows"),
        ("p.json", b"[ ", "breaks off"),
        ("p.csv", b"question,answer\n", "holds no row"),
        ("p.csv", b"\n\n", "no header line"),
        ("p.csv", b"question,question\na,b\n", "names 'question' twice"),
        ("p.parquet", b"PAR1 and so on", "not a readable parquet file"),
        ("p.txt", b"hello", "unknown kind of file"),
        ("p.jsonl", "{}".encode("utf-16"), "UTF-16"),
        ("p.jsonl", b"[1, 2]", "the row is a JSON number"),
        ("p.jsonl", b'"text"\n', "the row is a JSON string"),
        ("p.json", b'{"a": [{"question": "q"}], "b": [{"question": "q"}]}', "several lists"),
    ],
)
def test_useless_files(write: Write, name: str, content: bytes, message: str) -> None:
    path = write(name, content)
    for on_error in ("raise", "skip"):
        error = failure(path, on_error=on_error)
        assert message in str(error)
        assert str(path) in str(error)


GOOD = json.dumps(Q1).encode() + b"\n"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b'{"question": "trunc', "breaks off"),
        (b'{"question": "a",', "breaks off"),
        (b"{'question': 'a'}", "not valid JSON"),
        (b"\0\0\0\0", "NUL"),
        (b'{"question": "a\0b"}', "NUL"),
        (b'{"question": "a\\u0000b", "answer": "1"}', "NUL"),
        (b'{"question": "caf\xe9", "answer": "1"}', "not UTF-8"),
        (b'{"question": "a", "answer": "1", "x": ["\\ud800"]}', "surrogate"),
        (b'{"question": "", "answer": "1"}', "the question is empty"),
        (b'{"question": null, "answer": "1"}', "the question is null"),
        (b'{"question": 5, "answer": "1"}', "the question is a number"),
        (b'{"question": "a"}', "there is no such field"),
        (b"[" * 100_000, "nested too deeply; no more than a few hundred levels"),
        (b"null", "the row is a JSON constant"),
    ],
)
def test_a_bad_row_is_one_clear_sentence(write: Write, bad: bytes, message: str) -> None:
    path = write("p.jsonl", GOOD + bad + b"\n" + GOOD)
    error = failure(path)
    assert message in str(error)
    assert (error.line, error.file) == (2, error.file)
    loaded = load_problems(path, on_error="skip")
    assert [p.id for p in loaded] == ["p-0", "p-2"]
    assert [message in str(e) for e in loaded.errors] == [True]


@pytest.mark.parametrize(
    ("bad", "message", "left"),
    [
        (b"a\n", "1 cells, the header 2", 2),
        (b"a,b,c\n", "3 cells, the header 2", 2),
        (b'"a"b,1\n', "follows a closing quote", 2),
        (b"a\rb,1\n", "bare carriage return", 2),
        (b"caf\xe9,1\n", "not UTF-8", 2),
        (b"a\0,1\n", "NUL", 2),
        (b"a,\n", "the answer is empty", 2),
        (b'"never closed,1\n', "never closed", 1),
    ],
)
def test_a_bad_csv_row(write: Write, bad: bytes, message: str, left: int) -> None:
    path = write("p.csv", b"question,answer\ngood,1\n" + bad + b"good,2\n")
    error = failure(path)
    assert message in str(error)
    assert error.line == 3
    assert len(load_problems(path, on_error="skip")) == left


def test_a_json_list_that_breaks_off_keeps_what_came_before(write: Write) -> None:
    whole = json.dumps([Q1, Q2, Q1])
    for cut in range(len(json.dumps([Q1, Q2])), len(whole)):
        loaded = load_problems(write("p.json", whole[:cut]), on_error="skip")
        assert loaded.counts["skipped"] == 1
        assert [p.answer for p in loaded][:2] == ["2", "4"]


def test_items_of_a_list_on_one_line_are_numbered(write: Write) -> None:
    """Where the whole list stands on line 1, the line alone says nothing."""
    good = '{"question": "q", "answer": "1"}'
    bad = '{"question": "q", "answer": [1]}'
    one_line = write("a.json", f"[{good}, {bad}, 5, {good}]".encode())
    errors = load_problems(one_line, on_error="skip").errors
    assert [error.line for error in errors] == [1, 1]
    assert ", line 1, item 2, field 'answer': the value is a list" in str(errors[0])
    assert ", line 1, item 3: the row is a JSON number" in str(errors[1])
    spread = write("b.json", f"[\n{good},\n{bad},\n5, {good}, 6]".encode())
    texts = [str(error) for error in load_problems(spread, on_error="skip").errors]
    assert ", line 3, field 'answer'" in texts[0]
    assert ", line 4: the row" in texts[1]
    assert ", line 4, item 5: the row" in texts[2]
    broken = write("c.json", f"[{good}, {good} {good}]".encode())
    (error,) = load_problems(broken, on_error="skip").errors
    assert ", line 1, item 2: ',' or ']' is missing" in str(error)


def test_huge_lines(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_ROW_CHARS", 1000)
    huge = {"question": "x" * 5000, "answer": "1"}
    path = write("p.jsonl", lines(Q1, huge, Q2))
    loaded = load_problems(path, on_error="skip")
    assert [p.id for p in loaded] == ["p-0", "p-2"]
    assert "longer than 1,000 characters" in str(loaded.errors[0])
    assert loaded.errors[0].line == 2
    error = failure(write("p.csv", "question,answer\n" + "x" * 5000 + ",1\n"))
    assert "longer than 1,000" in str(error)


def test_cells_past_the_csv_modules_own_limit(write: Write) -> None:
    before = csv.field_size_limit()
    loaded = load_problems(write("p.csv", "question,answer\n" + "x" * 300_000 + ",1\n"))
    assert len(loaded[0].text) == 300_000
    assert csv.field_size_limit() == before


def test_duplicate_and_bad_ids(write: Write) -> None:
    rows = [{**Q1, "id": 1}, {**Q1, "id": "1"}, {**Q1, "id": None}, {**Q1, "id": "a\tb"}, Q1]
    loaded = load_problems(write("p.jsonl", lines(*rows)), on_error="skip")
    assert [p.id for p in loaded] == ["1"]
    said = [str(error) for error in loaded.errors]
    for text, part in zip(
        said,
        ["stands on line 1 already", "the id is empty", "control", "no such field"],
        strict=True,
    ):
        assert part in text


def test_file_names_make_safe_ids(write: Write) -> None:
    assert load_problems(write("a\nb.jsonl", lines(Q1)))[0].id == "a_b-0"


def test_a_file_of_bad_rows_only_is_given_up(write: Write) -> None:
    path = write("p.jsonl", lines(*[{"question": "", "answer": "1"}] * 1000))
    error = failure(path, on_error="skip")
    assert "none of the first 100 rows can be used; the first: the question is empty" in str(error)
    assert error.line == 1


def test_missing_files_and_bad_options(tmp_path: Path, write: Write) -> None:
    assert "there is no such file or folder" in str(failure(tmp_path / "no.jsonl"))
    assert "there is no such file or folder" in str(failure("no.jsonl"))
    path = write("p.jsonl", lines(Q1))
    assert "a file has no split" in str(failure(path, split="test"))
    for options in (
        {"limit": 0},
        {"on_error": "ignore"},
        {"answer_format": "latex"},
        {"question_field": "question", "messages_field": "messages"},
    ):
        with pytest.raises(ValueError):
            load_problems(path, **options)  # type: ignore[arg-type]


# --- folders and data sets ------------------------------------------------------------------------


def test_folders_of_files(write: Write, tmp_path: Path) -> None:
    write("set/train.jsonl", lines(Q1))
    write("set/test.jsonl", lines(Q2))
    write("set/README.md", "text")
    assert "several splits: test, train" in str(failure(tmp_path / "set"))
    assert "there is no split 'dev'" in str(failure(tmp_path / "set", split="dev"))
    loaded = load_problems(tmp_path / "set", split="test")
    assert [(p.id, p.answer) for p in loaded] == [("test-0", "4")]
    assert "no data file" in str(failure(write("empty/x.txt", "").parent))


def test_shards_are_one_split(tmp_path: Path) -> None:
    (tmp_path / "set" / "data").mkdir(parents=True)
    for i, gold in enumerate(["007", "1e3"]):
        row = {"question": "q", "answer": gold}
        table([row], tmp_path / "set" / "data" / f"train-0000{i}-of-00002.parquet")
    loaded = load_problems(tmp_path / "set")
    assert [(p.id, p.answer) for p in loaded] == [("set-train-0", "007"), ("set-train-1", "1e3")]


def test_saved_data_sets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"question": "q", "answer": "007"}] * 3)
    rows.save_to_disk(str(tmp_path / "one"))
    assert [p.answer for p in load_problems(tmp_path / "one", limit=2)] == ["007"] * 2
    datasets.DatasetDict({"test": rows, "train": rows}).save_to_disk(str(tmp_path / "two"))
    assert "several splits: test, train" in str(failure(tmp_path / "two"))
    assert load_problems(tmp_path / "two", split="test")[0].id == "two-test-0"


# A stream of datasets that is left before its end does not close its file.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_hub_data_sets(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's path through the real library, with a local folder in its place."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write("hub/owner/name/test.csv", "question,answer\nq,007\nq,1e3\nq,NA\n")
    from treerl import sources

    monkeypatch.chdir(tmp_path / "hub")
    file, stem, rows = sources._open_dataset("owner/name", None, saved=False)
    fields = [row.fields for row in rows if not isinstance(row, ProblemError)]
    assert (file, stem) == ("owner/name", "name-test")
    assert [row["answer"] for row in fields] == ["007", "1e3", "NA"]


def test_an_unreachable_hub_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setattr(datasets, "load_dataset_builder", refuse)
    error = failure("openai/gsm8k:main")
    assert "the hub data set cannot be loaded (ConnectionError: no route)" in str(error)


# --- the real files -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "count"), [("test", 1319), ("train", 7473)])
def test_gsm8k(data_dir: Path, name: str, count: int) -> None:
    loaded = load_problems(data_dir / "GSM8K" / f"{name}.jsonl")
    assert loaded.counts == {"rows": count, "problems": count, "skipped": 0, "without_answer": 0}
    assert all(re.fullmatch(r"-?[\d,]+(\.\d+)?", p.answer or "") for p in loaded)
    assert all(p.metadata["answer"].endswith(p.answer) for p in loaded)
    if name == "test":
        assert [p.answer for p in loaded[:4]] == ["18", "3", "70000", "540"]
        assert loaded[0].id == "test-0"


def test_math(data_dir: Path) -> None:
    path = data_dir / "MATH" / "test500.jsonl"
    loaded = load_problems(path)
    assert len(loaded) == 500
    assert loaded[0].id == "test/precalculus/807.json"
    boxes = load_problems(path, answer_field="solution")
    differ = [
        (a.answer, b.answer) for a, b in zip(loaded, boxes, strict=True) if a.answer != b.answer
    ]
    assert len(differ) <= 5, differ


def test_math_extracted(data_dir: Path) -> None:
    path = data_dir / "MATH" / "math_extracted_problems_and_answers.json"
    assert failure(path).line == 9202
    loaded = load_problems(path, on_error="skip")
    assert loaded.counts == {"rows": 7500, "problems": 7498, "skipped": 2, "without_answer": 0}


def test_contests(data_dir: Path) -> None:
    loaded = load_problems(data_dir / "contests" / "amc23" / "test.jsonl")
    assert (len(loaded), loaded[0].answer) == (40, "27.0")
