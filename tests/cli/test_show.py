"""`treerl show`: readable, complete, and deaf to what model text would do to a terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from treerl.cli.console import clean
from treerl.cli.main import main
from treerl.cli.treeview import TreeView
from treerl.problem import Problem
from treerl.store import ProblemResult, RunFolder, RunReader
from treerl.tree import Tree

if TYPE_CHECKING:
    from conftest import Treerl

HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]x[/bold] [link=a]b[/] \u202eabc\r\n\t\0 :smile:"
)


def shown(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    assert main(["show", *map(str, args)]) == 0
    return capsys.readouterr().out


def test_a_run_is_listed_and_its_first_tree_drawn(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown(capsys, run_dir)
    for i in range(5):
        assert re.search(rf"^{i}\s+sum-{i}\s", out, re.MULTILINE)
    assert "problem sum-0\n  What is 0 + 3 + 0 ?\n  gold answer: 3\n" in out
    assert "0 + 3 = 3" in out
    assert "mc " in out
    assert "tokens generated" in out


def test_every_step_of_the_tree_is_drawn_with_its_label(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunReader(run_dir)
    tree = next(tree for tree in run.trees() if tree.problem.id == "sum-3")
    out = shown(capsys, run_dir, "--problem", "sum-3", "--max-nodes", "0")
    lines = re.findall(r"^[│├└─ ]+([✓✗·]) (.+?)  ", out, re.MULTILINE)
    assert len(lines) == len(tree) - 1
    labels = [label["label"] for label in run.labels() if label["problem"]["id"] == "sum-3"]
    signs = [sign for sign, _ in lines]
    assert [signs.count(sign) for sign in "✓✗·"] == [labels.count(x) for x in (1, 0, None)]


def test_a_parquet_file_is_shown_without_labels(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (part,) = (run_dir / "trees").glob("*.parquet")
    out = shown(capsys, part, "--index", "2")
    assert "problem sum-2" in out
    assert "✓ " not in out.partition("mc: ")[0].replace("✓ right", "")


def test_levels_and_steps_are_limited_and_said_so(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "more steps (--max-nodes)" in shown(capsys, run_dir, "--index", "0", "--max-nodes", "3")
    out = shown(capsys, run_dir, "--index", "0", "--steps", "1")
    assert "have more below them (--steps)" in out
    assert "Answer" not in out


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_lines_keep_to_the_width(run_dir: Path, width: int) -> None:
    view = TreeView(width=width)
    for tree in RunReader(run_dir).trees():
        assert all(line.cell_len <= max(width, 60) for line in view.lines(tree, {}))


def test_an_unfinished_run_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = Tree(Problem.from_text("only", "What is 1 + 1?", "2"), (1,))
    tree.add(tree.root, (2,), text="1 + 1 = 2", finish_reason="eos")
    with RunFolder(tmp_path / "run", {"kind": "rollout"}) as run:
        run.add(ProblemResult(0, tree))
        assert "1 + 1 = 2" in shown(capsys, tmp_path / "run")


def test_model_text_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(Problem.from_text("evil[red]", HOSTILE, HOSTILE), (1,))
    tree.add(tree.root, (2,), text=HOSTILE)
    failed = tree.add(tree.root, (3,), finish_reason="error")
    failed.error = HOSTILE
    tree.save(tmp_path / "evil.parquet")
    out = shown(capsys, tmp_path / "evil.parquet", "--width", "300")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out)
    # What looks like rich's markup is printed as it stands.
    assert out.count("[bold]x[/bold] [link=a]b[/]") == 4
    assert out.count(":smile:") == 4
    assert "problem evil[red]" in out


def test_clean_keeps_text_and_drops_control() -> None:
    assert clean("x²  = 4,\nso x = ±2 ✓ 数学") == "x² = 4, so x = ±2 ✓ 数学"
    assert clean("a\x1b[2Jb\x9bc\u202ed") == "a�[2Jb�c�d"


def test_a_deep_tree_is_drawn_without_recursion(tmp_path: Path) -> None:
    tree = Tree(Problem.from_text("deep", "?", None), (1,))
    node = tree.root
    for depth in range(5000):
        node = tree.add(node, (depth,), text=f"step {depth}")
    lines = list(TreeView(width=80).lines(tree, None))
    assert len(lines) == 5000
    assert "step 4999" in lines[-1].plain
    assert max(line.cell_len for line in lines) <= 100


def test_wrong_calls_are_one_sentence(run_dir: Path, tmp_path: Path, quick: Treerl) -> None:
    for args, code, said in (
        ([run_dir, "--problem", "nobody"], 1, "has no tree of a problem 'nobody'"),
        ([run_dir, "--index", "5"], 1, "holds 5 trees, numbered from 0; there is no number 5"),
        ([tmp_path / "nowhere"], 1, "does not exist"),
        ([tmp_path], 1, "is no run folder"),
        ([run_dir / "manifest.json"], 1, "cannot be read as trees"),
        ([run_dir, "--index", "1", "--problem", "sum-1"], 2, "not both"),
        ([run_dir, "--index", "-1"], 2, "--index"),
        ([], 2, "Missing argument"),
    ):
        done = quick("show", *args)
        assert done.returncode == code, (args, done.stderr)
        assert said in done.stderr
        assert done.stderr.startswith("treerl: ")
        assert done.stderr.count("\n") == 1
        assert not done.stdout


def test_output_may_end_early(run_dir: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    command = f"{sys.executable} -m treerl.cli.main show {run_dir} --max-nodes 0 | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert "Error" not in done.stderr
    assert not done.stderr
