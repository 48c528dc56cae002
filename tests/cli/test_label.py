"""`treerl label`: from a file to a run folder, and every way in which it can go wrong."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from treerl.cli.label import label
from treerl.cli.main import main
from treerl.cli.presets import LabelOptions, Preset, settle
from treerl.cli.progress import LabelProgress
from treerl.cli.running import count_done
from treerl.cli.setup import search_config
from treerl.errors import ConfigError
from treerl.search.mcts import MCTSConfig
from treerl.store import ProblemResult, RunReader
from treerl.treefile import tree_to_record

if TYPE_CHECKING:
    from conftest import Treerl

# A run of a tiny model: noise, but quick.
SMALL = ("--simulations", "3", "--children", "2", "--max-tokens", "16", "--step-delimiter", r"\n")


def sha256s(folder: Path) -> dict[str, str]:
    """Hash every file that equal runs share."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("volatile.jsonl", "LOCK")
    }


def trees(folder: Path) -> tuple[list[dict[str, Any]], list[float]]:
    """Return the trees of a run without their log-probs, and the log-probs.

    A real engine's log-probs depend in their last bits on which requests shared a batch.
    """
    records = [tree_to_record(tree) for tree in RunReader(folder).trees()]
    columns = [record["nodes"].pop("logprobs") for record in records]
    return records, [x for column in columns for node in column for x in node]


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of stderr, which is the only one about the error."""
    assert "Traceback" not in done.stderr, done.stderr
    lines = done.stderr.splitlines()
    assert sum(line.startswith("treerl: ") for line in lines) == 1, done.stderr
    assert lines[-1].startswith("treerl: ")
    return lines[-1]


def test_a_file_becomes_a_run_folder(
    treerl: Treerl, quick: Treerl, tiny_model: Path, problem_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ["label", problem_file, "--model", tiny_model, "--out", out, "--limit", "4", *SMALL]
    done = treerl(*command)
    assert done.returncode == 0, done.stderr
    assert "4 problems from" in done.stderr
    assert "4/4 problems" in done.stderr
    for said in (
        "solutions",
        "label yield",
        "tokens/s",
        "problems/hour",
        "labels/part-00000.jsonl",
        "treerl show",
        "treerl export",
    ):
        assert said in done.stdout
    run = RunReader(out)
    assert run.finished
    assert run.manifest["search"]["sampling"]["steps"]["delimiter"] == "\n"
    assert [tree.problem.id for tree in run.trees()] == [f"sum-{i}" for i in range(4)]
    before = sha256s(out)
    assert quick(*command).returncode == 0  # a finished run only shows its summary again
    assert sha256s(out) == before
    assert quick("show", out).returncode == 0


def test_bad_rows_are_skipped_on_demand_and_counted(
    quick: Treerl, tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "p.jsonl"
    good = {"id": "a", "question": "What is 1 + 2 + 3 ?", "answer": "6"}
    bad = {"id": "b", "question": None, "answer": "6"}
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, bad, {**good, "id": "c"})))
    command = ["label", path, "--model", tiny_model, "--out", tmp_path / "run", *SMALL]
    stopped = quick(*command)
    assert stopped.returncode == 1
    assert "line 2, field 'question'" in one_sentence(stopped)
    done = quick(*command, "--on-bad-row", "skip")
    assert done.returncode == 0, done.stderr
    assert "1 bad row skipped" in done.stderr
    assert "1 bad row skipped" in done.stdout


def test_bad_input_is_one_sentence(
    quick: Treerl, tiny_model: Path, problem_file: Path, tmp_path: Path
) -> None:
    row = {"id": "a", "question": "What is 1 + 2 + 3 ?", "answer": "6"}

    def file(name: str, *rows: object) -> Path:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        return path

    model = ("--model", tiny_model)
    no_tokenizer = tmp_path / "no-tokenizer"
    shutil.copytree(tiny_model, no_tokenizer)
    for path in no_tokenizer.glob("*token*"):
        path.unlink()
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((tmp_path / "none.jsonl", *model), "there is no such file"),
        ((file("empty"), *model), "the file is empty"),
        ((file("fields", {"a": 1}), *model), "field"),
        ((problem_file, *model, "--question-field", "q"), "'q'"),
        ((problem_file, *model, "--answer-field", "gold"), "'gold'"),
        ((file("twice", row, row), *model), "line 2, field 'id'"),
        ((file("gold", {**row, "answer": {"x": 1}}), *model), "field 'answer'"),
        ((problem_file, *model, "--answer-format", "gsm8k"), "####"),
        ((problem_file, *model, "--engine", "abacus"), "no engine 'abacus'; there are: hf"),
        ((problem_file,), "--engine hf needs --model"),
        ((problem_file, "--model", tmp_path / "nowhere"), "no model folder"),
        ((problem_file, "--model", no_tokenizer), "no tokenizer in"),
        ((problem_file, *model, "--device", "abacus"), "abacus"),
        ((problem_file, *model, "--max-context", "1000000"), "max_context=1000000"),
        ((problem_file, *model, "--temperature", "0"), "at temperature 0"),
        ((problem_file, *model, "--top-p", "0"), "top_p"),
        (
            (problem_file, *model, "--preset", "groundedprm_published", "--no-tools"),
            "needs the tools",
        ),
    ]
    for number, (args, said) in enumerate(cases):
        done = quick("label", *args, "--out", tmp_path / f"out-{number}", *SMALL)
        assert done.returncode == 1, (args, done.stderr)
        assert said in one_sentence(done), args


def test_a_prompt_longer_than_the_context_is_recorded(
    quick: Treerl, tiny_model: Path, tmp_path: Path
) -> None:
    short = {"id": "short", "question": "What is 1 + 2 + 3 ?", "answer": "6"}
    long = {"id": "long", "question": "What is 1 + 2 + 3 ? " * 40, "answer": "6"}
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(long) + "\n" + json.dumps(short) + "\n")
    done = quick("label", path, "--model", tiny_model, "--out", tmp_path / "run", *SMALL)
    assert done.returncode == 0, done.stderr
    (failure,) = RunReader(tmp_path / "run").failures()
    assert f"1 (failures.jsonl), {failure['reason'][:40]}" in done.stdout
    assert failure["problem_id"] == "long"
    assert "context" in failure["reason"]
    path.write_text(json.dumps(long) + "\n")
    alone = quick("label", path, "--model", tiny_model, "--out", tmp_path / "alone", *SMALL)
    assert alone.returncode == 1
    assert "no step was labelled; the first reason: problem 'long'" in one_sentence(alone)


def test_the_folder_of_another_run_is_refused(
    quick: Treerl, tiny_model: Path, problem_file: Path, tmp_path: Path
) -> None:
    command = ["label", problem_file, "--model", tiny_model, "--limit", "2", *SMALL, "--out"]
    out = tmp_path / "run"
    assert quick(*command, out).returncode == 0
    before = sha256s(out)
    other = quick(*command, out, "--seed", "1")
    assert other.returncode == 1
    assert "belongs to another run: 'seed' is 0 there and 1 now" in one_sentence(other)
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").touch()
    assert "is not empty and no run folder" in one_sentence(quick(*command, full))
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, "schema": "treerl.run/0"}))
    for done in (quick(*command, out), quick("show", out)):
        assert done.returncode == 1
        assert "schema 'treerl.run/0'" in one_sentence(done)
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    assert sha256s(out) == before


def test_a_locked_folder_is_refused(
    quick: Treerl, tiny_model: Path, problem_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with (out / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("process 7 on earth")
        lock.flush()
        done = quick("label", problem_file, "--model", tiny_model, "--out", out, *SMALL)
    assert done.returncode == 1
    assert "is being written by process 7 on earth" in one_sentence(done)


@pytest.fixture(scope="session")
def whole(
    tiny_model: Path, problem_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], Path]:
    """A command without its --out, and the folder of its run that nothing interrupted."""
    args = ["label", str(problem_file), "--model", str(tiny_model)]
    # One problem at a time, and enough work for a signal to fall into it.
    args += ["--active", "1", "--simulations", "8", "--max-tokens", "24", "--no-tools"]
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([*args, "--out", str(out)]) == 0
    return args, out


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_goes_on_and_ends_as_if_nothing_had_been(
    number: signal.Signals,
    whole: tuple[list[str], Path],
    quick: Treerl,
    tmp_path: Path,
) -> None:
    command = [*whole[0], "--out", str(tmp_path / "cut")]
    process = subprocess.Popen(
        [sys.executable, "-m", "treerl.cli.main", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while count_done(tmp_path / "cut") < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    last = err.splitlines()[-1]
    assert last.startswith("treerl: stopped: ")
    assert "of 12 problems are finished and safe" in last
    assert "the same command goes on" in last
    assert "Traceback" not in err
    assert not (tmp_path / "cut" / "LOCK").exists()
    safe = count_done(tmp_path / "cut")
    assert 2 <= safe < 12
    assert quick("show", tmp_path / "cut").returncode == 0
    resumed = quick(*command)
    assert resumed.returncode == 0, resumed.stderr
    (ours, numbers), (theirs, expected) = trees(tmp_path / "cut"), trees(whole[1])
    assert ours == theirs
    assert numbers == pytest.approx(expected, abs=1e-5)
    cut, uncut = sha256s(tmp_path / "cut"), sha256s(whole[1])
    assert {k: v for k, v in cut.items() if "trees" not in k} == {
        k: v for k, v in uncut.items() if "trees" not in k
    }


# --- parts ----------------------------------------------------------------------------------------


def test_presets_choose_search_and_tools() -> None:
    ours = search_config(LabelOptions())
    published = search_config(settle({"preset": Preset.groundedprm_published}))
    counts = search_config(settle({"preset": Preset.mathshepherd}))
    assert isinstance(ours, MCTSConfig)
    assert isinstance(published, MCTSConfig)
    assert isinstance(counts, MCTSConfig)
    assert ours.rollout_reward.normalise
    assert ours.sampling.verify_steps
    assert not published.rollout_reward.normalise
    assert not counts.rollout_reward.verdicts
    assert not counts.sampling.verify_steps
    with pytest.raises(ConfigError, match="at least 1"):
        search_config(LabelOptions(wave=0))


def test_progress_counts_and_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    labels = [{"label": value} for value in (1, 1, 0, None)]
    with LabelProgress(10, done=4) as progress:
        progress.update(ProblemResult(4, None, labels))
        line = progress.line()
    # What an earlier process did is told apart: rate, time and labels are of this one.
    assert line.startswith("5/10 problems (4 before), ")
    assert " a minute, 0 tokens/s, " in line
    assert line.endswith(" left, 1 without a tree; new: 2 right, 1 wrong, 1 unlabelled steps")
    assert LabelProgress(3).line() == "0/3 problems; 0 right, 0 wrong, 0 unlabelled steps"


def test_a_torn_line_of_the_journal_is_no_finished_problem(tmp_path: Path) -> None:
    assert count_done(tmp_path) == 0
    lines = b'{"index":0}\n{"index":11,"x":{}}\n{"index":0}\nnoise\n{"index":5,"x\n{"index":7}'
    (tmp_path / "journal.jsonl").write_bytes(lines)
    assert count_done(tmp_path) == 2


def test_every_option_says_what_it_does() -> None:
    import typing

    for name, hint in typing.get_type_hints(label, include_extras=True).items():
        if name not in ("return", "ctx"):
            assert len(hint.__metadata__[0].help) > 10, name
