"""Engines, rewards and judges of one's own, by `module:object`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from treerl.cli.engines import EngineOptions, open_engine
from treerl.cli.plugins import is_plugin, load_reward, load_verifier
from treerl.errors import ConfigError
from treerl.store import RunReader

if TYPE_CHECKING:
    from conftest import Treerl

OWN = ("--engine", "mine:engine", "--reward", "mine:right", "--step-delimiter", r"\n")


def test_a_run_with_nothing_but_objects_of_ones_own(
    quick: Treerl, mine: Path, problem_file: Path
) -> None:
    command = ["label", problem_file, *OWN, "--verifier", "mine:Adder", "--out", "run"]
    done = quick(*command, "--model", "abacus", "--engine-arg", "beads=7", "--simulations", "8")
    assert done.returncode == 0, done.stderr
    import mine as module  # type: ignore[import-not-found]

    assert module.made == [("abacus", {"beads": 7})]
    manifest = RunReader("run").manifest
    assert manifest["verifier"] == "test.adder/1"
    assert manifest["reward"] == "mine:right"
    assert manifest["command"]["engine"]["object"] == "mine:engine"
    labels = list(RunReader("run").labels())
    assert {label["label"] for label in labels} == {0, 1, None}
    assert {(label["evidence"]["tool"] or {}).get("verifier") for label in labels} >= {
        "test.adder/1"
    }
    other = quick(*command, "--model", "abacus", "--engine-arg", "beads=8", "--simulations", "8")
    assert other.returncode == 1
    assert "'command.engine.arguments.beads' is 7 there and 8 now" in other.stderr


def test_the_present_folder_is_searched_as_python_m_does(
    treerl: Treerl, mine: Path, problem_file: Path
) -> None:
    done = treerl("label", problem_file, *OWN, "--no-tools", "--limit", "1", "--out", "run")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "nowhere:engine"), "there is no module 'nowhere' in this folder or among"),
        (("--engine", "mine.deeper:engine"), "there is no module 'mine.deeper'"),
        (("--engine", "mine:motor"), "mine has no 'motor'"),
        (("--engine", "mine:number"), "is a int and no engine: it has no tokenizer, eos_ids"),
        (("--engine", "mine:Adder"), "is a Adder and no engine"),
        (("--engine", "mine:fails"), "fails: ValueError: the model is asleep"),
        (("--engine", "broken:engine"), "cannot be imported: ZeroDivisionError: division by zero"),
        (("--engine", "broken:engine"), "broken.py, line 2)"),
        (("--engine", "wants:engine"), "cannot be imported: ModuleNotFoundError: No module named"),
        (("--engine", "mine:engine", "--device", "cpu"), "--device does not belong to your own"),
        (("--reward", "mine"), "--reward mine is no module:object"),
        (
            ("--reward", "mine:number"),
            "is a int, which cannot be called with (problem, text, leaf)",
        ),
        (("--reward", "mine:one"), "cannot be called with (problem, text, leaf)"),
        (("--verifier", "mine:right"), "must have `name`, a string, and verify("),
    ],
)
def test_what_is_not_there_or_does_not_fit_is_one_sentence(
    quick: Treerl, mine: Path, problem_file: Path, options: tuple[str, ...], said: str
) -> None:
    (mine / "broken.py").write_text("def engine(): ...\n1 / 0\n")
    (mine / "wants.py").write_text("import a_module_that_nobody_has\n")
    done = quick("label", problem_file, *OWN, *options, "--out", "run")
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    assert not Path("run").exists()


def test_an_instance_takes_no_arguments(mine: Path) -> None:
    (mine / "ready.py").write_text("from mine import engine as make\nengine = make()\n")
    assert open_engine(EngineOptions(engine="ready:engine")).tokenizer is not None
    with pytest.raises(ConfigError, match="is made already"):
        open_engine(EngineOptions(engine="ready:engine", engine_arg={"beads": 7}))


def test_what_has_an_end_is_closed(mine: Path) -> None:
    (mine / "closing.py").write_text(
        "from mine import Adder\n"
        "said = []\n"
        "class Judge(Adder):\n"
        "    def __enter__(self): said.append('open'); return self\n"
        "    def __exit__(self, *error): said.append('closed')\n"
        "    def __call__(self, problem, text, leaf): return 1.0\n"
    )
    with ExitStack() as stack:
        assert load_verifier("closing:Judge", stack).name == "test.adder/1"
        assert callable(load_reward("closing:Judge", stack))
        import closing  # type: ignore[import-not-found]

        assert closing.said == ["open", "open"]
    assert closing.said == ["open", "open", "closed", "closed"]


def test_names_of_objects() -> None:
    assert is_plugin("package.module:Class.method")
    assert not any(map(is_plugin, ("hf", "a:", ":b", "a:b:c", "a-b:c", "lab:wo rds")))
