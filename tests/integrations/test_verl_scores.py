"""The scores for verl, called as its reward managers call them."""

from __future__ import annotations

import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from treerl.integrations import verl
from treerl.integrations.verl import compute_code_score, compute_score, stats

KEYS = {"score", "acc", "pred", "verdict"}


def score(response: str, gold: Any, **kwargs: Any) -> dict[str, Any]:
    return compute_score(
        data_source="math", solution_str=response, ground_truth=gold, extra_info={}, **kwargs
    )


@pytest.mark.parametrize(
    ("response", "gold", "number", "pred", "verdict"),
    [
        ("\\boxed{1/2}", "0.5", 1.0, "1/2", "SUPPORTED"),
        ("\\boxed{(x+1)^2}", "x^2+2x+1", 1.0, "(x+1)^2", "SUPPORTED"),
        ("\\boxed{3}", np.array(["3"], dtype=object), 1.0, "3", "SUPPORTED"),
        ("\\boxed{4}", "5", 0.0, "4", "REFUTED"),
        ("I do not know.", "5", 0.0, "", "UNVERIFIABLE"),
        ("\\boxed{4}", None, 0.0, "", "UNVERIFIABLE"),
        ("\\boxed{4}", "One line.\nAnd another.", 0.0, "", "UNVERIFIABLE"),
    ],
)
def test_answers(response: str, gold: Any, number: float, pred: str, verdict: str) -> None:
    result = score(response, gold)
    assert result == {"score": number, "acc": number, "pred": pred, "verdict": verdict}
    assert type(result["score"]) is float


def test_every_row_has_the_same_keys() -> None:
    rows = [
        score("", ""),
        score("\\boxed{1}", "1"),
        compute_code_score("code", "", None),
        compute_code_score("code", "", "assert f() == 1"),
    ]
    assert all(row.keys() == KEYS for row in rows)


def test_options_come_from_reward_kwargs_and_verls_own_are_ignored() -> None:
    assert score("\\boxed{50\\%}", "50")["score"] == 0.0
    assert score("\\boxed{50\\%}", "50", percent="lenient")["score"] == 1.0
    more = {"reward_router_address": None, "reward_model_tokenizer": None}
    assert score("\\boxed{50\\%}", "50", **more)["score"] == 0.0
    with pytest.raises(ValueError, match="percent"):
        score("\\boxed{50\\%}", "50", percent="perhaps")


def test_one_verifier_serves_all_threads() -> None:
    before = stats().get("verdict/SUPPORTED/equal", 0)
    rows = [("\\boxed{\\int_0^1 x dx}", "1/2")] * 16
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda row: score(*row)["score"], rows))
    assert results == [1.0] * 16
    made = verl._VERIFIERS.get()
    assert sum(key == ("answers",) for key in made) == 1
    assert stats()["verdict/SUPPORTED/equal"] == before + 16


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_worker_scores_too() -> None:
    assert score("\\boxed{\\int_0^1 y dy}", "1/2")["score"] == 1.0
    child = os.fork()
    if child == 0:
        os._exit(7 if score("\\boxed{\\int_0^1 y dy}", "1/2")["score"] == 1.0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_verl_may_load_the_file_by_its_path() -> None:
    assert verl.__file__ is not None
    spec = importlib.util.spec_from_file_location("custom_module", verl.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.compute_score("d", "#### 4", "4")["score"] == 1.0


def test_programs() -> None:
    right = "```python\nprint(int(input()) + 1)\n```"
    tests = {"inputs": ["1\n", "5\n"], "outputs": ["2", "6"]}
    result = compute_code_score("code", right, tests, None, wall_s=5.0)
    assert result == {
        "score": 1.0,
        "acc": 1.0,
        "pred": "print(int(input()) + 1)\n",
        "verdict": "SUPPORTED",
    }
    assert compute_code_score("code", right.replace("+ 1", "+ 2"), tests)["verdict"] == "REFUTED"
    assert compute_code_score("code", "none", tests)["verdict"] == "UNVERIFIABLE"
    assert compute_code_score("code", right, "[broken")["verdict"] == "UNVERIFIABLE"
