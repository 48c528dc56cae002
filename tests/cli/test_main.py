"""The command line as a whole: help, version, exit codes, and one sentence an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import treerl as package
from treerl.cli.main import main
from treerl.cli.progress import duration
from treerl.cli.setup import unescape
from treerl.errors import TreeRLError

if TYPE_CHECKING:
    from conftest import Treerl


@pytest.mark.parametrize("args", [["--version"], ["version"]])
def test_version(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 0
    assert capsys.readouterr().out == f"treerl {package.__version__}\n"


@pytest.mark.parametrize("command", ["label", "show", "export", "audit", "demo"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"treerl {command}" in capsys.readouterr().out


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([])
    said = capsys.readouterr()
    assert code == 2
    assert "Commands" in said.out + said.err


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = "('torch', 'transformers', 'datasets', 'pyarrow', 'sympy', 'numpy', 'z3')"
    code = (
        "import sys; from treerl.cli.main import main; main(['--help']); "
        f"print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_wrong_calls_exit_with_2(quick: Treerl) -> None:
    for args, said in (
        (["lable"], "No such command 'lable'"),
        (["label", "x.jsonl", "--model", "m"], "Missing option '--out'"),
        (["label", "x.jsonl", "--out", "o", "--model", "m", "--children", "0"], "'--children'"),
        (["label", "x.jsonl", "--out", "o", "--model", "m", "--preset", "best"], "'best'"),
        (["label", "x.jsonl", "--out", "o", "--model", "m", "--colour"], "--colour"),
        (["export", "run"], "FORMAT"),
    ):
        done = quick(*args)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert "--help" in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_errors_of_treerl_and_of_the_system_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, said in (
        (TreeRLError("the tree\nis down"), "treerl: the tree is down\n"),
        (OSError(28, "No space left on device", "disk"), "treerl: disk: No space left on device\n"),
    ):

        def fail(*args: object, error: Exception = error, **options: object) -> None:
            raise error

        monkeypatch.setattr("treerl.cli.main.app", fail)
        assert main([]) == 1
        assert capsys.readouterr().err == said


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("treerl.cli.main.app", fail)
    with pytest.raises(ZeroDivisionError):
        main([])


def test_ctrl_c_anywhere_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("treerl.cli.main.app", fail)
    assert main([]) == 130
    assert capsys.readouterr().err == "treerl: interrupted\n"


def test_export_writes_and_reports(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "train.jsonl"
    assert main(["export", str(run_dir), "trl", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"{len(out.read_text().splitlines())} rows from 5 problems" in said
    assert "does not hold" in said
    assert main(["export", str(run_dir), "chat", "--out", str(out)]) == 1
    assert "exists" in capsys.readouterr().err
    assert main(["export", str(run_dir), "chat", "--out", str(out), "--force"]) == 0
    assert '"messages"' in out.read_text()
    assert main(["export", str(run_dir), "xml", "--out", str(tmp_path / "x")]) == 1


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (r"\n\n", "\n\n"),
        (r"\t|", "\t|"),
        ("\n", "\n"),
        (r"\\n", r"\n"),
        (r"ĉ\d", r"ĉ\d"),
        ("\\", "\\"),
        ("", ""),
    ],
)
def test_escapes_of_the_shell(typed: str, meant: str) -> None:
    assert unescape(typed) == meant


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (60, "1:00"), (3661, "1:01:01")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
