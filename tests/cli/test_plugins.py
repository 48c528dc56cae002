"""Engines, rewards and judges of one's own, by `module:object`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from treerl.cli.engines import EngineOptions, open_engine
from treerl.cli.plugins import is_plugin, load_reward, load_verifier
from treerl.errors import ConfigError
from treerl.store import RunReader
from treerl.verifiers import Verdict

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


ODD_ENGINE = """
from mine import adds
from treerl.engines import ScriptedEngine

class Odd(ScriptedEngine):
    def __init__(self, how):
        super().__init__(adds)
        self.how, self.count = how, 0

    async def generate(self, request):
        found = await super().generate(request)
        self.count += 1
        if self.count % 4:
            return found
        if self.how == "none":
            return None
        if self.how == "nan":
            return found._replace(logprobs=(float("nan"),) * len(found.token_ids))
        if self.how == "cancel":
            import asyncio
            raise asyncio.CancelledError
        if self.how == "raises":
            raise OSError(5, "the wire is cut")
        return found

    async def close(self):
        if self.how == "close":
            raise ValueError("the door is stuck")

class Bare:
    tokenizer = eos_ids = capabilities = generate = abort = close = None

class Sleepy(ScriptedEngine):
    def __init__(self):
        super().__init__(adds)
    @property
    def tokenizer(self):
        raise RuntimeError("no words today")
    @tokenizer.setter
    def tokenizer(self, value): ...
"""


@pytest.fixture
def odd(mine: Path) -> Iterator[Path]:
    """The module with odd engines, beside `mine`."""
    path = mine / "odd.py"
    path.write_text(ODD_ENGINE)
    yield path
    sys.modules.pop("odd", None)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("none", "--engine odd:Odd: the answer is None, not a Completion"),
        ("nan", "--engine odd:Odd: an odd completion: a log-prob is nan"),
        ("cancel", "--engine odd:Odd: `generate` was cancelled inside"),
    ],
)
def test_an_odd_completion_of_an_own_engine_costs_a_node(
    quick: Treerl, odd: Path, problem_file: Path, how: str, said: str
) -> None:
    command = ["label", problem_file, *OWN, "--no-tools", "--limit", "2", "--out", "run"]
    done = quick(*command, "--engine", "odd:Odd", "--engine-arg", f"how={how}")
    assert done.returncode == 0, done.stderr
    failures = Path("run/failures.jsonl").read_text().splitlines()
    assert failures
    assert all(f"EngineError: {said}" in line for line in failures)


def test_an_own_engine_that_fails_ends_the_run_in_one_sentence(
    quick: Treerl, odd: Path, problem_file: Path
) -> None:
    command = ["label", problem_file, *OWN, "--no-tools", "--limit", "2", "--out", "run"]
    done = quick(*command, "--engine", "odd:Odd", "--engine-arg", "how=raises")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("treerl: --engine odd:Odd fails in `generate`: OSError: ")
    line = 1 + ODD_ENGINE.splitlines().index('            raise OSError(5, "the wire is cut")')
    assert f"({odd}, line {line})" in last
    assert "finished and safe in run" in last
    again = quick(*command, "--engine", "odd:Odd", "--engine-arg", "how=raises")
    assert "belongs to another" not in again.stderr


def test_an_own_engine_that_cannot_close_hides_no_summary(
    quick: Treerl, odd: Path, problem_file: Path
) -> None:
    command = ["label", problem_file, *OWN, "--no-tools", "--limit", "1", "--out", "run"]
    done = quick(*command, "--engine", "odd:Odd", "--engine-arg", "how=close")
    assert done.returncode == 0
    assert Path("run/summary.json").exists()
    warnings = [line for line in done.stderr.splitlines() if "warning:" in line]
    (line,) = warnings
    assert "--engine odd:Odd fails in `close`: ValueError: the door is stuck (" in line
    assert done.stdout


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("odd:Bare", "--engine odd:Bare has no method `generate`"),
        ("odd:Sleepy", "fails: RuntimeError: no words today"),
    ],
)
def test_an_own_engine_is_looked_at_before_the_run(
    quick: Treerl, odd: Path, problem_file: Path, engine: str, said: str
) -> None:
    done = quick("label", problem_file, *OWN, "--engine", engine, "--out", "run")
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    assert not Path("run").exists()


DOCS = Path(__file__).resolve().parents[2] / "docs"


def code_with(page: str, mark: str) -> str:
    """Return the Python block of a page that holds a mark."""
    blocks = (DOCS / page).read_text().split("```python\n")[1:]
    (code,) = (block.split("```")[0] for block in blocks if mark in block)
    return code


def test_the_objects_that_the_docs_show_label_problems(
    quick: Treerl, mine: Path, problem_file: Path
) -> None:
    engine = code_with("engines.md", "class Parrot").split("guarded =")[0]
    (mine / "my_engines.py").write_text(engine)
    (mine / "my_judges.py").write_text(code_with("cli.md", "class Doubles"))
    command = ["label", problem_file, "--limit", "2", "--simulations", "8", "--out", "run"]
    own = ("--reward", "my_judges:right", "--verifier", "my_judges:Doubles")
    done = quick(*command, "--engine", "my_engines:Parrot", *own)
    assert done.returncode in (0, 1), done.stderr  # 1: noise may hold nothing to label
    assert "2/2 problems" in done.stderr
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["problems"] == 2
    assert Path("run/failures.jsonl").read_text() == ""
    import my_judges  # type: ignore[import-not-found]

    judge = my_judges.Doubles()
    words = ["4 doubled is 8", "4 doubled is 9", "hm"]
    assert [judge.verify(step).verdict for step in words] == list(Verdict)
