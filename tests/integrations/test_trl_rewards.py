"""The reward functions for TRL, called as GRPOTrainer calls them."""

from __future__ import annotations

import inspect
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from treerl.errors import ConfigError
from treerl.integrations.trl import make_accuracy_reward, make_code_reward
from treerl.verifiers import AnswerVerifier, CodeVerifier

RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"
WRONG = "```python\ndef add(a, b):\n    return a - b\n```"
TESTS = "assert add(1, 2) == 3"

ROWS: list[tuple[Any, Any, float | None]] = [
    ("So it is \\boxed{1/2}.", "0.5", 1.0),
    ("So it is \\boxed{1/3}.", "0.5", 0.0),
    ([{"role": "assistant", "content": "The answer is 7."}], "7", 1.0),
    ([{"role": "assistant", "content": "No idea."}], "7", 0.0),
    ("", "7", 0.0),
    ("\\boxed{7", "7", 0.0),
    ("\\boxed{9^{9^{9^{9}}}}", "7", 0.0),
    ("\\boxed{7}", None, None),
    ("\\boxed{7}", "", None),
    ("\\boxed{7}", "First this.\nThen that.", None),
    ("\\boxed{(x+1)^2}", "x^2+2x+1", 1.0),
    ("\\boxed{\\int_0^1 x dx}", "1/2", 1.0),  # by sympy, in a worker
]


def call(reward: Any, rows: list[tuple[Any, Any, float | None]] = ROWS, **more: Any) -> list[Any]:
    """As TRL does: everything by keyword, and columns that no reward asked for."""
    result: list[Any] = reward(
        prompts=["p"] * len(rows),
        completions=[row[0] for row in rows],
        completion_ids=[[1]] * len(rows),
        solution=[row[1] for row in rows],
        trainer_state=None,
        **more,
    )
    return result


def test_a_reward_is_one_zero_or_none() -> None:
    assert call(make_accuracy_reward()) == [row[2] for row in ROWS]


def test_it_looks_like_a_function_to_trl() -> None:
    reward = make_accuracy_reward(name="math")
    assert (reward.__name__, make_accuracy_reward().__name__) == ("math", "accuracy_reward")
    assert make_code_reward().__name__ == "code_reward"
    assert callable(reward)
    assert not inspect.iscoroutinefunction(reward)
    assert list(inspect.signature(reward).parameters) == ["prompts", "completions", "columns"]
    assert reward([], [], solution=[]) == []


def test_reasons_reach_the_log() -> None:
    extra: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    call(make_accuracy_reward(), log_extra=extra.__setitem__, log_metric=metrics.__setitem__)
    reasons = extra["accuracy_reward/reason"]
    assert len(reasons) == len(extra["accuracy_reward/judged"]) == len(ROWS)
    assert reasons[7:10] == ["gold_missing", "gold_missing", "gold_unmarked"]
    assert extra["accuracy_reward/judged"][0] == "1/2"
    assert math.isclose(metrics["accuracy_reward/gold_at_fault"], 3 / len(ROWS))


def test_policies_of_the_verifier_count() -> None:
    rows: list[tuple[Any, Any, float | None]] = [("\\boxed{50\\%}", "50", None)]
    with AnswerVerifier(percent="lenient") as lenient:
        reward = make_accuracy_reward(lenient)
        assert call(reward, rows) == [1.0]
        assert reward.stats is lenient.stats
        assert lenient.stats.total == 1
        assert call(pickle.loads(pickle.dumps(reward)), rows) == [1.0]
    assert call(make_accuracy_reward(), rows) == [0.0]


def test_a_pickled_copy_gives_the_same() -> None:
    reward = make_accuracy_reward(num_workers=3)
    expected = call(reward)
    copy = pickle.loads(pickle.dumps(reward))
    assert (copy.__name__, copy.num_workers) == (reward.__name__, 3)
    assert call(copy) == expected == [row[2] for row in ROWS]


def test_eight_threads_agree() -> None:
    reward = make_accuracy_reward()
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: call(reward), range(16)))
    assert results == [[row[2] for row in ROWS]] * 16
    assert reward.stats.total == 16 * 9  # the three golds at fault never reach it


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("given", [True, False])
def test_a_forked_child_gives_the_same(given: bool) -> None:
    with AnswerVerifier() as verifier:
        reward = make_accuracy_reward(verifier if given else None)
        expected = call(reward)
        child = os.fork()
        if child == 0:
            os._exit(7 if call(reward) == expected else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert call(reward) == expected
        assert reward.stats.tools["sympy", "ok"] == 2


def test_a_column_that_is_not_there_is_a_mistake() -> None:
    reward = make_accuracy_reward(answer_column="gold")
    with pytest.raises(ConfigError, match="no column 'gold'; there are: completion_ids, solution"):
        call(reward)
    with pytest.raises(ValueError, match="2 completions, but 1 values of 'gold'"):
        reward(["p", "p"], ["a", "b"], gold=["1"])
    with pytest.raises(ValueError, match="num_workers"):
        make_accuracy_reward(num_workers=0)


def test_code_is_judged_by_its_tests() -> None:
    extra: dict[str, list[Any]] = {}
    rows: list[tuple[Any, Any, float | None]] = [
        (RIGHT, TESTS, 1.0),
        ([{"role": "assistant", "content": WRONG}], TESTS, 0.0),
        ("no program", TESTS, 0.0),
        ("```python\nimport os; os._exit(0)\n```", TESTS, 0.0),
        ("```python\ndef add(a, b: return\n```", TESTS, 0.0),
        (RIGHT, None, None),
        (RIGHT, "def check(f):\n    assert f(1, 2) == 3", None),
        (RIGHT, {"fn_name": "add", "inputs": [[1, 2], [2, 2]], "outputs": [3, 4]}, 1.0),
    ]
    with CodeVerifier() as verifier:
        reward = make_code_reward(verifier, tests_column="solution", num_workers=2)
        assert call(reward, rows, log_extra=extra.__setitem__) == [row[2] for row in rows]
        assert reward.stats.total == 6
        copy = pickle.loads(pickle.dumps(reward))
        assert call(copy, rows[:2]) == [1.0, 0.0]
    assert extra["code_reward/judged"][-1] == "2/2 tests"
    assert extra["code_reward/reason"][5].startswith("tests: ")
