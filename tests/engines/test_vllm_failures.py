"""Why vLLM did not start, read from its own words."""

from __future__ import annotations

import pytest

from treerl.engines.vllm_failures import start_failure

FAILED = "Engine core initialization failed. See root cause above. Failed core proc(s): {}"


@pytest.mark.parametrize("name", ["EngineCore", "EngineCore_DP0", "EngineCore_0"])
def test_a_process_killed_from_outside_is_called_so(name: str) -> None:
    said = start_failure(RuntimeError(FAILED.format({name: -9})))
    assert said.startswith("its engine process was killed from outside, most often because")
    assert "memory" in said
    assert FAILED.format({name: -9}) in said


def test_other_ends_are_named_or_left_in_vllms_words() -> None:
    assert "ended by SIGSEGV" in start_failure(RuntimeError(FAILED.format({"EngineCore": -11})))
    for words in (FAILED.format({"EngineCore": 1}), FAILED.format({}), "block_size must be 16"):
        assert start_failure(ValueError(words)) == words
    assert start_failure(ValueError()) == "ValueError"
