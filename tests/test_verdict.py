"""Verdict records survive JSON, and time is no part of them."""

from __future__ import annotations

import json

import pytest

from treerl.verdict import AnswerVerdict, Claim, ClaimVerdict, StepVerdict, ToolCall, Verdict

CALL = ToolCall("fraction", "1", "2 + 2 = 5", "4 != 5", "ok", "in_process", wall_time_s=0.25)
CLAIM = Claim("arithmetic", "2 + 2 = 5", (3, 12), "2 + 2", "=", "5", premises=("x = 2",))
STEP = StepVerdict(
    Verdict.REFUTED,
    "unequal",
    "exact",
    (ClaimVerdict(CLAIM, Verdict.REFUTED, "unequal", "exact", "4 != 5", (CALL,)),),
    unsourced=("5",),
    verifier="treerl.step/1",
    wall_time_s=1.5,
)
ANSWER = AnswerVerdict(True, "equal", "42", "boxed", "42", "42", (CALL,), wall_time_s=2.0)


def test_step_verdicts_survive_json() -> None:
    assert StepVerdict.from_json(json.loads(json.dumps(STEP.to_json()))) == STEP


def test_answer_verdicts_survive_json() -> None:
    assert AnswerVerdict.from_json(json.loads(json.dumps(ANSWER.to_json()))) == ANSWER


def test_times_are_left_out_so_that_equal_runs_are_equal_bytes() -> None:
    assert "wall_time_s" not in json.dumps([STEP.to_json(), ANSWER.to_json()])


@pytest.mark.parametrize(
    ("equal", "word"),
    [(True, Verdict.SUPPORTED), (False, Verdict.REFUTED), (None, Verdict.UNVERIFIABLE)],
)
def test_an_answer_speaks_the_same_three_words(equal: bool | None, word: Verdict) -> None:
    assert AnswerVerdict(equal, "x").verdict is word


def test_only_an_undecided_answer_can_blame_the_gold() -> None:
    assert AnswerVerdict(None, "gold_unparsable").gold_at_fault
    assert not AnswerVerdict(None, "no_answer").gold_at_fault
    assert not AnswerVerdict(False, "not_equal").gold_at_fault


def test_a_judge_may_write_the_words_of_a_verdict() -> None:
    written = StepVerdict("REFUTED", "own", "exact")  # type: ignore[arg-type]
    assert written.verdict is Verdict.REFUTED
    assert StepVerdict.from_json(written.to_json()) == written
    with pytest.raises(ValueError, match="WRONG"):
        StepVerdict("WRONG", "own")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="strength"):
        StepVerdict(Verdict.REFUTED, "own", "total")  # type: ignore[arg-type]
