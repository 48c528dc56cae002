"""`treerl verify`: counts by verdict and reason, records that replay, one sentence a bad row."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treerl.integrations import judge_answer
from treerl.verdict import AnswerVerdict, StepVerdict
from treerl.verifiers import AnswerVerifier, StepVerifier

if TYPE_CHECKING:
    from conftest import Treerl

ROWS: list[dict[str, Any]] = [
    {"response": "So \\boxed{1/2}.", "answer": "0.5"},
    {"response": "The answer is 7.", "answer": "8"},
    {"response": "I do not know.", "answer": "8"},
    {"response": "\\boxed{9}", "answer": ""},
    {"response": "\\boxed{9}", "answer": "One line.\nAnd another."},
]
STEPS = [
    {"problem": "Ann has 2 and 3.", "steps": ["2 + 3 = 5", "5 * 2 = 11", "That is all."]},
    {"problem": "Bob has 4.", "steps": ["4 - 1 = 3"]},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def counts(text: str) -> dict[str, str]:
    """Read the table: the number next to each verdict or reason."""
    lines = [line.split() for line in text.splitlines()[1:-1]]
    return {words[0]: words[1] for words in lines}


def test_steps_need_no_problem_unless_its_field_is_named(quick: Treerl, tmp_path: Path) -> None:
    rows = [STEPS[0], {"steps": ["2 + 2 = 5"]}, {"steps": ["x = 6"], "question": "Solve 3x = 15."}]
    path = write(tmp_path / "rows.jsonl", rows)
    done = quick("verify", path, "--steps")
    assert done.returncode == 0, done.stderr
    assert counts(done.stdout)["REFUTED"] == "3"
    done = quick("verify", path, "--steps", "--problem-field", "problem")
    assert done.returncode == 1
    assert "line 2" in done.stderr
    assert "there is no such field" in done.stderr


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_counts_by_verdict_and_reason(quick: Treerl, tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", ROWS)
    done = quick("verify", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:4] == ["verdict", "reason", "rows", "share"]
    found = counts(done.stdout)
    assert (found["SUPPORTED"], found["REFUTED"], found["UNVERIFIABLE"]) == ("1", "1", "3")
    assert (found["no_answer"], found["gold_missing"], found["gold_unmarked"]) == ("1", "1", "1")
    assert "60.0 % of 5 rows are without a verdict: 1 by the response, 2 by the gold" in done.stdout
    assert f"5 rows of {path} (response, answer)\n" in done.stderr
    assert "\x1b" not in done.stdout


def test_every_record_replays(quick: Treerl, tmp_path: Path) -> None:
    path, out = write(tmp_path / "rows.jsonl", ROWS), tmp_path / "records.jsonl"
    assert quick("verify", path, "--out", out, "--percent", "lenient").returncode == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["row"] for record in records] == [1, 2, 3, 4, 5]
    for record, row in zip(records, ROWS, strict=True):
        assert (record["response"], record["gold"]) == (row["response"], row["answer"])
        with AnswerVerifier(**record["options"]) as verifier:
            again = judge_answer(verifier, record["response"], record["gold"])
        assert again == AnswerVerdict.from_json(record["record"])
    assert records[0]["options"]["percent"] == "lenient"
    assert not out.with_name("records.jsonl.part").exists()
    done = quick("verify", path, "--out", out)
    assert (done.returncode, "exists" in done.stderr) == (1, True)
    assert quick("verify", path, "--out", out, "--force").returncode == 0


@pytest.mark.parametrize(
    ("option", "row", "verdict"),
    [
        ((), {"response": "\\boxed{50\\%}", "answer": "50"}, "REFUTED"),
        (("--percent", "lenient"), {"response": "\\boxed{50\\%}", "answer": "50"}, "SUPPORTED"),
        ((), {"response": "\\boxed{5}", "answer": "5 cm"}, "SUPPORTED"),
        (("--units", "strict"), {"response": "\\boxed{5}", "answer": "5 cm"}, "REFUTED"),
        ((), {"response": "It makes 5 or so, yes", "answer": "5"}, "UNVERIFIABLE"),
        (
            ("--extraction", "last_number"),
            {"response": "It makes 5 or so, yes", "answer": "5"},
            "SUPPORTED",
        ),
    ],
)
def test_policies(
    quick: Treerl, tmp_path: Path, option: tuple[str, ...], row: dict[str, Any], verdict: str
) -> None:
    done = quick("verify", write(tmp_path / "rows.jsonl", [row]), *option)
    assert counts(done.stdout)[verdict] == "1", done.stdout


def test_fields_can_be_named_and_chats_are_read(quick: Treerl, tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "\\boxed{3}"}]
    row = {"out": {"turns": chat}, "meta": {"gold": 3}, "answer": "9"}
    path = write(tmp_path / "rows.jsonl", [row])
    named = ("--response-field", "out.turns", "--gold-field", "meta.gold")
    done = quick("verify", path, *named)
    assert counts(done.stdout)["SUPPORTED"] == "1"
    assert "(out.turns, meta.gold)" in done.stderr


def test_bad_rows_end_in_one_sentence_or_are_skipped(quick: Treerl, tmp_path: Path) -> None:
    rows = [ROWS[0], {"response": None, "answer": "5"}, {"answer": "5"}, ROWS[1]]
    path, out = write(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    with path.open("a") as stream:
        stream.write("{broken\n")
    done = quick("verify", path, "--out", out)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"treerl: {path}, line 2, field 'response': the response is no text and no chat\n"
    )
    assert list(tmp_path.iterdir()) == [path]
    done = quick("verify", path, "--on-bad-row", "skip")
    assert done.returncode == 0
    assert "2 rows" in done.stderr
    assert "3 bad ones skipped" in done.stderr
    assert "line 3, field 'response': there is no such field" in done.stderr
    only = write(tmp_path / "bad.jsonl", rows[1:2] * 2)
    done = quick("verify", only, "--on-bad-row", "skip", "--out", out)
    assert done.returncode == 1
    assert "none of the 2 rows can be used; the first: the response is no text" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nowhere.jsonl"], 1, "no such file"),
        (["rows.jsonl", "--percent", "perhaps"], 2, "'perhaps'"),
        (["rows.jsonl", "--workers", "0"], 2, "--workers"),
        (["rows.jsonl", "--steps", "--gold-field", "answer"], 2, "--steps judges no answers"),
        (["rows.jsonl", "--steps", "--units", "strict"], 2, "--steps judges no answers"),
        (["rows.jsonl", "--problem-field", "problem"], 2, "belongs to --steps"),
        (["rows.jsonl", "--step-delimiter", "x"], 2, "belongs to --steps"),
        (["rows.jsonl", "--steps", "--step-delimiter", ""], 2, "must not be empty"),
        (["rows.jsonl", "--response-field", "x"], 1, "line 1, field 'x': there is no such field"),
        (["bare.jsonl"], 1, "no field for the response was found"),
        (["golden.jsonl"], 1, "name it with --gold-field"),
        (["empty.jsonl"], 1, "empty"),
        (["rows.jsonl", "--out", "no/such/folder.jsonl"], 1, "No such file or directory"),
    ],
)
def test_whatever_goes_wrong_is_one_sentence(
    quick: Treerl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.jsonl", ROWS)
    write(tmp_path / "bare.jsonl", [{"text": "x"}])
    write(tmp_path / "golden.jsonl", [{"response": "x", "right": "x"}])
    (tmp_path / "empty.jsonl").touch()
    done = quick("verify", *args)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_steps_as_lists_and_as_text(quick: Treerl, tmp_path: Path) -> None:
    text = [{"problem": r["problem"], "solution": "\n".join(r["steps"])} for r in STEPS]
    for name, rows, more in (
        ("lists", STEPS, ()),
        ("text", text, ("--step-delimiter", r"\n", "--response-field", "solution")),
    ):
        path, out = write(tmp_path / f"{name}.jsonl", rows), tmp_path / f"{name}.out"
        done = quick("verify", path, "--steps", "--out", out, *more)
        assert done.returncode == 0, done.stderr
        found = counts(done.stdout)
        assert (found["SUPPORTED"], found["REFUTED"], found["UNVERIFIABLE"]) == ("2", "1", "1")
        assert found["no_claim"] == "1"
        last = "25.0 % of 4 steps are without a verdict; 1 of 2 solutions hold a refuted step"
        assert last in done.stdout
        records = [json.loads(line) for line in out.read_text().splitlines()]
        assert [r["steps"] for r in records] == [r["steps"] for r in STEPS]
        with StepVerifier() as verifier:
            for record in records:
                again = verifier.verify_solution(record["steps"], problem=record["problem"])
                assert again == [StepVerdict.from_json(step) for step in record["records"]]


def test_rows_may_hold_a_solution_or_its_steps(quick: Treerl, tmp_path: Path) -> None:
    rows = [{"solution": "2 + 2 = 4\n\n2 + 3 = 6"}, {"steps": ["1 + 1 = 2"]}, {"text": "1 + 1"}]
    path = write(tmp_path / "rows.jsonl", rows[:2])
    done = quick("verify", path, "--steps")
    assert done.returncode == 0, done.stderr
    assert (counts(done.stdout)["SUPPORTED"], counts(done.stdout)["REFUTED"]) == ("2", "1")
    done = quick("verify", path, "--steps", "--response-field", "solution")
    assert done.returncode == 1
    assert "line 2, field 'solution': there is no such field" in done.stderr
    done = quick("verify", write(path, rows), "--steps")
    assert done.returncode == 1
    assert "line 3: no field for the solution was found" in done.stderr


def test_records_never_replace_the_file_that_is_read(quick: Treerl, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROWS)
    before = path.read_bytes()
    done = quick("verify", path, "--out", path, "--force")
    assert done.returncode == 1
    assert "is the file that is read" in done.stderr
    assert path.read_bytes() == before


def test_a_solution_without_steps_is_a_bad_row(quick: Treerl, tmp_path: Path) -> None:
    done = quick("verify", write(tmp_path / "rows.jsonl", [{"steps": []}]), "--steps")
    assert done.returncode == 1
    assert "line 1, field 'steps': the solution is empty" in done.stderr


def test_hostile_text_is_counted_and_cannot_steer_the_terminal(
    quick: Treerl, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    attack = f"__import__('os').system('touch {marker}')"
    rows = [{"response": f"\\boxed{{{attack}}}\x1b[2J", "answer": "5"}] * 3
    done = quick("verify", write(tmp_path / "rows.jsonl", rows))
    assert done.returncode == 0
    assert counts(done.stdout)["SUPPORTED"] == "0"
    assert "\x1b" not in done.stdout + done.stderr
    assert not marker.exists()


def test_as_a_user_runs_it(treerl: Treerl, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", ROWS * 30)
    done = treerl("verify", "rows.jsonl", "--limit", "100", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert "of 100 rows are without a verdict" in done.stdout
    assert "treerl verify" in treerl("verify", "--help").stdout


def test_ctrl_c_leaves_no_half_written_records(tmp_path: Path) -> None:
    gold = "\\boxed{\\int_0^1 \\sin(x^%d) dx}"
    rows = [{"response": gold % i, "answer": f"x^3+{i}"} for i in range(3, 2000)]
    write(tmp_path / "rows.jsonl", rows)
    command = [
        sys.executable,
        "-m",
        "treerl.cli.main",
        "verify",
        "rows.jsonl",
        "--out",
        "out.jsonl",
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        began = time.monotonic()
        while not (tmp_path / "out.jsonl.part").exists():
            assert process.poll() is None
            assert time.monotonic() - began < 60
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    # `python -m` forgets the code 130 and dies of SIGINT instead where the interrupt fell into an
    # `exec` of the standard library (a dataclass being made); a shell shows 130 for both.
    assert process.returncode in {130, -signal.SIGINT}
    assert out == ""
    assert err.startswith("treerl: interrupted after ")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
