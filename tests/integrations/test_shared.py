"""What the adapters share: golds, tests and completions as data sets hold them."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treerl.integrations import PerProcess, completion_text, judge_answer, read_tests
from treerl.verifiers import AnswerVerifier, CodeTest


def test_importing_the_adapters_is_light(tmp_path: Path) -> None:
    heavy = ("torch", "transformers", "trl", "verl", "sympy", "z3", "datasets", "numpy", "pyarrow")
    code = (
        "import sys, treerl.integrations.trl as t, treerl.integrations.verl as v\n"
        "reward = t.make_accuracy_reward()\n"
        "assert reward(['p'], ['#### 4'], solution=['4']) == [1.0]\n"
        "assert v.compute_score('d', '#### 4', '4')['score'] == 1.0\n"
        f"print(*[m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("plain", "plain"),
        ([{"role": "assistant", "content": "one"}], "one"),
        (
            [
                {"role": "assistant", "content": "calls a tool"},
                {"role": "tool", "content": "42"},
                {"role": "assistant", "content": "last"},
            ],
            "last",
        ),
        ([{"role": "assistant", "content": [{"type": "text", "text": "part"}, {"x": 1}]}], "part"),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "user", "content": "mine"}], ""),
        ([], ""),
        (None, ""),
        (7, ""),
    ],
)
def test_completions_are_strings_or_chats(completion: Any, text: str) -> None:
    assert completion_text(completion) == text


@pytest.mark.parametrize(
    ("gold", "equal", "reason"),
    [
        ("5", True, None),
        (5, True, None),
        (5.0, True, None),
        (np.int64(5), True, None),
        (np.array(["5"]), True, None),
        (["5"], True, None),
        ("Two and three\nmake five.\n#### 5", True, None),
        ("We add and get $\\boxed{5}$, as was to be shown.", True, None),
        ("6", False, None),
        (None, None, "gold_missing"),
        (float("nan"), None, "gold_missing"),
        ("  ", None, "gold_missing"),
        ([], None, "gold_missing"),
        (["5", "6"], None, "gold_several"),
        ({"answer": "5"}, None, "gold_kind"),
        (True, None, "gold_kind"),
        ("Two and three\nmake five.", None, "gold_unmarked"),
        ("So \\boxed{5", None, "gold_unreadable"),
        ("all is done\n####", None, "gold_unreadable"),
    ],
)
def test_golds_are_read_or_at_fault(gold: Any, equal: bool | None, reason: str | None) -> None:
    with AnswerVerifier() as verifier:
        verdict = judge_answer(verifier, "It is \\boxed{5}.", gold)
    assert verdict.equal is equal
    assert verdict.gold_at_fault is (equal is None)
    if reason is not None:
        assert verdict.reason == reason


def test_an_unreadable_response_is_not_the_golds_fault() -> None:
    with AnswerVerifier() as verifier:
        for response in ("", "I do not know.", "<think>on and on", "\\boxed{\\frac{1}{2}"):
            verdict = judge_answer(verifier, response, "5")
            assert verdict.equal is not True
            assert not verdict.gold_at_fault


ADD = CodeTest.returns("add", (1, 2), 3)


@pytest.mark.parametrize(
    ("given", "tests"),
    [
        ([ADD], [ADD]),
        ("assert add(1, 2) == 3", [CodeTest.holds("assert add(1, 2) == 3")]),
        (["assert a", "assert b"], [CodeTest.holds("assert a"), CodeTest.holds("assert b")]),
        ({"function": "add", "args": [1, 2], "expected": 3}, [ADD]),
        (json.dumps([{"function": "add", "args": [1, 2], "expected": 3}]), [ADD]),
        ({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, [ADD]),
        ({"inputs": ["1\n"], "outputs": [["1"]]}, [CodeTest.prints("1\n", "1")]),
        ({"stdin": "1", "stdout": "2"}, [CodeTest.prints("1", "2")]),
        (
            np.array([{"stdin": "1", "stdout": "2", "assertion": None}], dtype=object),
            [CodeTest.prints("1", "2")],
        ),
        ({"function": "f", "args": [], "expected": None}, [CodeTest.returns("f", (), None)]),
    ],
)
def test_tests_are_read(given: Any, tests: list[CodeTest]) -> None:
    assert read_tests(given) == tests


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        "",
        "[1, 2",
        7,
        [7],
        {"input": "1"},
        {"inputs": ["1"], "outputs": []},
        {"inputs": [1], "outputs": [2]},
        {"inputs": "1", "outputs": "2"},
        {"fn_name": "f", "inputs": [1], "outputs": [2]},
        {"function": "f", "expected": 1},
        {"function": "f", "args": [1]},
        "assert (",
        "x = 1",
        "def check(candidate):\n    assert candidate(1) == 2",
    ],
)
def test_tests_that_test_nothing_are_refused(given: Any) -> None:
    with pytest.raises(ValueError):
        read_tests(given)


def test_per_process_makes_one_object_for_all_threads() -> None:
    holder, seen = PerProcess(object), []
    threads = [threading.Thread(target=lambda: seen.append(holder.get())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, seen))) == 1
    assert pickle.loads(pickle.dumps(holder)).get() is not seen[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_per_process_makes_another_object_after_a_fork() -> None:
    holder = PerProcess(list[int])
    mine = holder.get()
    child = os.fork()
    if child == 0:
        os._exit(7 if holder.get() is not mine else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert holder.get() is mine
