"""`treerl rollout`: from a file to trees and rows, and every way in which it can go wrong."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from treerl.cli.main import main
from treerl.cli.options_rollout import (
    RolloutOptions,
    TreePreset,
    settle_rollouts,
    tree_config,
    written,
)
from treerl.cli.rollout import RolloutProgress, rollout
from treerl.cli.running import count_done
from treerl.errors import ConfigError
from treerl.search.treepo_presets import PRESETS, preset
from treerl.store import ProblemResult, RunReader

if TYPE_CHECKING:
    from conftest import Treerl

# A run of a tiny model: noise, but quick.
SMALL = ("--width", "4", "--k0", "2", "--segment-tokens", "4", "--max-tokens", "12")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "rows").to_pylist()
    return found


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of stderr, which is the only one about the error."""
    assert "Traceback" not in done.stderr, done.stderr
    lines = done.stderr.splitlines()
    assert sum(line.startswith("treerl: ") for line in lines) == 1, done.stderr
    assert lines[-1].startswith("treerl: ")
    return lines[-1]


PARTS = '''
import random
from treerl.engines import ByteTokenizer, ScriptedEngine

def adds(request):
    """Add three numbers, slipping now and then; a path may be cut anywhere."""
    question, _, done = ByteTokenizer().decode(request.prompt_ids).partition("\\n")
    a, b, c = (int(word) for word in question.split() if word.isdigit())
    rng = random.Random(request.seed)
    while True:
        x = a + b + (rng.random() < 0.3)
        y = x + c - (rng.random() < 0.2)
        text = f"{a} + {b} = {x}\\n{x} + {c} = {y}\\nAnswer: {y}"
        if text.startswith(done):
            return text[len(done):]

def engine(model=None):
    return ScriptedEngine(adds)
'''


@pytest.fixture
def run(mine: Path, problem_file: Path, quick: Treerl) -> Iterator[Path]:
    """A run by a scripted engine that a test may look at."""
    (mine / "parts.py").write_text(PARTS)
    done = quick("rollout", problem_file, "--engine", "parts:engine", "--out", mine / "run",
                 "--segment-tokens", "8", "--max-tokens", "120", "--limit", "3")  # fmt: skip
    assert done.returncode == 0, done.stderr
    yield mine / "run"
    sys.modules.pop("parts", None)


# --- a run ----------------------------------------------------------------------------------------


@pytest.mark.engine
def test_a_file_becomes_a_run_folder(
    tiny_model: Path, problem_file: Path, quick: Treerl, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = quick("rollout", problem_file, "--model", tiny_model, "--out", out, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "12 problems" in done.stderr
    assert "12/12 problems" in done.stderr
    summary = RunReader(out).summary()
    assert summary is not None
    assert summary["trees"] == 12
    rows = rows_of(out)
    assert sum(row["multiplicity"] for row in rows) == summary["leaves"] <= 48
    for said in ("pass@w", "of a flat sample a leaf", "by branch weight", "rows/part-00000"):
        assert said in done.stdout
    assert f"treerl show {out}" in done.stdout
    # The same command finds it finished.
    again = quick("rollout", problem_file, "--model", tiny_model, "--out", out, *SMALL)
    assert again.returncode == 0
    assert "was finished before" in again.stderr


def test_a_folder_of_rollouts_can_be_looked_at(run: Path, quick: Treerl) -> None:
    shown = quick("show", run, "--index", "1")
    assert shown.returncode == 0, shown.stderr
    assert "problem sum-1" in shown.stdout
    assert "1 + 4" in shown.stdout  # segments have their text
    assert "reward" in shown.stdout
    listed = quick("show", run)
    tree = next(iter(RunReader(run).trees()))
    right = sum(n.multiplicity for n in tree.leaves() if n.reward)
    assert f"{right}/16" in listed.stdout
    assert "wrong" not in listed.stdout.splitlines()[0]  # no column for labels without labels
    assert (tree.root.correct, tree.root.total) == (right, 16)


@pytest.mark.parametrize("command", [["audit"], ["export", "trl"]])
def test_what_needs_labels_says_so(
    command: list[str], run: Path, quick: Treerl, tmp_path: Path
) -> None:
    args = [command[0], str(run), *command[1:]]
    args += ["--out", str(tmp_path / "x.jsonl")] if command[0] == "export" else []
    done = quick(*args)
    assert done.returncode == 1
    assert "labels" in one_sentence(done)
    assert not (tmp_path / "x.jsonl").exists()


def test_an_earlier_run_is_repeated(run: Path, quick: Treerl, mine: Path) -> None:
    again = quick("rollout", "--config", run, "--out", mine / "again")
    assert again.returncode == 0, again.stderr
    assert rows_of(mine / "again") == rows_of(run)
    assert "unlike" not in again.stderr
    flat = quick("rollout", "--config", run, "--preset", "flat", "--estimator", "rloo",
                 "--width", "5", "--out", mine / "flat")  # fmt: skip
    assert flat.returncode == 0, flat.stderr
    manifest = json.loads((mine / "flat" / "manifest.json").read_text())
    assert manifest["search"]["segment_tokens"] is None
    assert manifest["search"]["max_tokens"] == 120
    assert manifest["advantage"]["name"] == "rloo"
    assert manifest["command"]["repeat"]["width"] == 5
    assert RunReader(mine / "flat").summary()["leaves"] == 15  # type: ignore[index]


def test_rewards_of_ones_own_and_no_estimator(
    mine: Path, problem_file: Path, quick: Treerl
) -> None:
    done = quick("rollout", problem_file, "--engine", "mine:engine", "--reward", "mine:right",
                 "--estimator", "none", "--limit", "2", "--out", mine / "run")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "advantages" not in rows_of(mine / "run")[0]
    assert json.loads((mine / "run" / "manifest.json").read_text())["reward"] == "mine:right"


@pytest.mark.engine
def test_an_interrupted_run_goes_on_and_ends_as_if_nothing_had_been(
    tiny_model: Path, problem_file: Path, quick: Treerl, tmp_path: Path
) -> None:
    args = ["rollout", str(problem_file), "--model", str(tiny_model), "--active", "1"]
    args += ["--width", "16", "--k0", "4", "--segment-tokens", "4", "--max-tokens", "48"]
    assert main([*args, "--out", str(tmp_path / "whole")]) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "treerl.cli.main", *args, "--out", str(tmp_path / "cut")],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while count_done(tmp_path / "cut") < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    assert "of 12 problems are finished and safe" in err.splitlines()[-1]
    assert 2 <= count_done(tmp_path / "cut") < 12
    assert quick(*args, "--out", tmp_path / "cut").returncode == 0
    ours, theirs = rows_of(tmp_path / "cut"), rows_of(tmp_path / "whole")
    floats = ("logprobs", "advantages")  # a real engine's last bits depend on the batch
    for mine, other in zip(ours, theirs, strict=True):
        for name in floats:
            assert mine.pop(name) == pytest.approx(other.pop(name), abs=1e-4)
    assert ours == theirs
    assert _sha(tmp_path / "cut" / "manifest.json") == _sha(tmp_path / "whole" / "manifest.json")


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "flat", "--k0", "4"], "--k0 belongs to --preset treerl, treepo_paper"),
        (["--preset", "spo_tree", "--width", "4"], "--width belongs to --preset"),
        (["--estimator", "gpro"], "no estimator 'gpro'; there are: none, dapo, "),
        (["--top-p", "0"], "0 < top_p <= 1"),
        (["--reward", "mine:number"], "cannot be called"),
        (["--config", "nowhere"], "there is no nowhere"),
    ],
)
def test_bad_options_are_one_sentence(
    options: list[str], words: str, mine: Path, problem_file: Path, quick: Treerl
) -> None:
    done = quick(
        "rollout", problem_file, "--engine", "mine:engine", "--out", mine / "run", *options
    )
    assert done.returncode == 1
    assert words in one_sentence(done)
    assert not (mine / "run").exists()


def test_a_labelled_run_is_no_run_to_repeat(run_dir: Path, quick: Treerl, tmp_path: Path) -> None:
    done = quick("rollout", "--config", run_dir, "--out", tmp_path / "run")
    assert done.returncode == 1
    assert "is no manifest of `treerl rollout`" in one_sentence(done)


def test_a_call_without_problems_is_wrong(quick: Treerl, tmp_path: Path) -> None:
    done = quick("rollout", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "PROBLEMS" in one_sentence(done)


# --- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_are_those_of_the_search(name: str) -> None:
    options = settle_rollouts({"preset": TreePreset(name)})
    assert tree_config(options) == preset(name)
    assert settle_rollouts(dict(written(options), preset=TreePreset(name))) == options


def test_options_reach_the_search() -> None:
    given = {"width": 6, "k0": 3, "branches": 3, "segment_tokens": 9, "max_tokens": 40}
    given |= {"temperature": 0.7, "top_p": 0.9, "stop": ("\n\n",), "boxed": False}
    config = tree_config(settle_rollouts(given))
    assert (config.width, config.segment_tokens, config.max_tokens) == (6, 9, 40)
    assert (config.temperature, config.top_p, config.stop) == (0.7, 0.9, ("\n\n",))
    assert (config.allocation.k0, config.allocation.b) == (3, 3)  # type: ignore[union-attr]
    assert not config.stopping.boxed
    assert tree_config(settle_rollouts({}, words=True)).segment_tokens == 16
    with pytest.raises(ConfigError, match="at least 1"):
        tree_config(RolloutOptions(width=0))


def test_progress_counts_leaves_and_rewards(run: Path) -> None:
    tree = next(iter(RunReader(run).trees()))
    progress = RolloutProgress(3)
    assert progress.line() == "0/3 problems; 0 leaves"
    progress.update(ProblemResult(0, tree))
    mean = tree.root.correct / tree.root.total
    assert progress.line().endswith(f"; 16 leaves, mean reward {mean:.3f}")


def test_every_option_says_what_it_does() -> None:
    for name, hint in typing.get_type_hints(rollout, include_extras=True).items():
        if name not in ("return", "ctx"):
            assert len(hint.__metadata__[0].help) > 10, name
