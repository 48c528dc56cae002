"""Hostile text: nothing is executed, nothing hangs, nothing stays, from eight threads too."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from treerl.verifiers import AnswerVerifier, PythonExecutor, StepVerifier, WorkerPool

CASES = Path(__file__).parents[1] / "data" / "hostile_open.jsonl"
WALL_S = 2.0


def load() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


class Tools:
    """The verifiers under attack and a folder in which no file may appear."""

    def __init__(self, folder: Path) -> None:
        self.marker = folder / "MARKER"
        self.pool = WorkerPool(wall_s=WALL_S)
        self.answers = AnswerVerifier(pool=self.pool, wall_s=WALL_S)
        self.steps = StepVerifier(pool=self.pool, wall_s=WALL_S)
        self.python = PythonExecutor(size=4)

    def close(self) -> None:
        self.pool.close()
        self.python.close()

    def outcome(self, case: dict[str, Any]) -> str:
        """Run one case; returns the word it ended with."""
        text = case["input"].replace("MARKER", str(self.marker))
        if case["target"] == "answer":
            verdict = self.answers.verify(text, case["gold"])
            if verdict.equal is None:
                return "timeout_or_limit" if verdict.reason == "limit" else "unverifiable"
            return "equal" if verdict.equal else "not_equal"
        if case["target"] == "step":
            return str(self.steps.verify(text).verdict).lower()
        if case["target"] == "z3":
            alone = self.steps.verify(text).verdict
            entailed = self.steps.verify("Therefore x > 1.", problem=text).verdict
            return str(alone if alone != "UNVERIFIABLE" else entailed).lower()
        result = self.python.run(text, wall_s=WALL_S, cpu_s=2)
        if result.status in ("timeout", "limit"):
            return "timeout_or_limit"
        return result.status


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    made = Tools(tmp_path_factory.mktemp("hostile"))
    # start what is needed: starting a worker is not part of a check's deadline
    made.answers.verify(r"\boxed{\int_0^1 x dx}", "1/2")
    made.steps.verify("So x = 2.", problem="Solve 3x = 6.")
    made.python.run("1")
    yield made
    made.close()


def accepted(case: dict[str, Any]) -> set[str]:
    words = set(case["expected"])
    if "timeout_or_limit" in words:
        words.add("unverifiable")  # a limit is a reason of the same verdict
    return words


def test_one_by_one(tools: Tools) -> None:
    for case in load():
        began = time.monotonic()
        outcome = tools.outcome(case)
        spent = time.monotonic() - began
        assert outcome in accepted(case), (case["id"], outcome)
        assert spent <= WALL_S + 1.0, (case["id"], spent)
        assert not tools.marker.exists(), case["id"]
    assert tools.pool.call("echo", {"whole": True}).result == {"whole": True}
    assert tools.python.run("result = 6 * 7").value == 42


def test_from_eight_threads(tools: Tools) -> None:
    cases = load()
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(tools.outcome, cases))
    for case, outcome in zip(cases, outcomes, strict=True):
        assert outcome in accepted(case), (case["id"], outcome)
    assert not tools.marker.exists()
    assert tools.pool.call("echo", {"whole": True}).status == "ok"
    assert tools.python.run("result = 6 * 7").value == 42


def test_state_never_leaks_between_snippets(tools: Tools) -> None:
    tools.python.run("import builtins, math; builtins.len = lambda x: 7; math.pi = 3; x = 1")
    result = tools.python.run("import math; result = [len([1]), math.pi > 3.1, 'x' in globals()]")
    assert result.value == [1, True, False]


def test_environment_holds_no_secrets(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREERL_TEST_SECRET", "hunter2")
    with PythonExecutor(size=1) as executor:
        result = executor.run("import os; print(dict(os.environ))")
    assert result.status == "ok"
    assert "hunter2" not in result.stdout


LONG = [
    "2 + " * 30_000 + "2 = 4",
    "\\frac{" * 2_000,
    "x^" * 3_000 + "2 = 1",
    "(" * 10_000 + ")" * 10_000 + " = 1",
    "1 = " * 4_000,
    "a" * 1_000_000,
    "\\boxed{" * 3_000 + "}" * 3_000,
    "$" * 19_000,
    "= " * 9_000,
    "5 apples " * 2_000 + "= 3",
    ">>> 1\n" * 3_000,
    "12 is 13 less than 4 is 5 " * 700,
    "the sum of 1, " * 1_400 + "1 and 2 is 3",
]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_long_text_is_bounded(tools: Tools, text: str) -> None:
    began = time.monotonic()
    tools.steps.verify(text, problem=text[:3000], previous_steps=[text[:3000]])
    tools.answers.verify(text, "4")
    tools.answers.verify("#### " + text[:5000], text[:5000])
    assert time.monotonic() - began < 3 * (WALL_S + 1.0)
