"""The record itself: what it accepts, and the two views of a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from treerl.problem import Problem

CHAT = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Tom has 3 apples."},
    {"role": "assistant", "content": "Noted."},
    {"role": "user", "content": "He eats one. How many are left?"},
)


def test_text_is_what_the_user_said() -> None:
    assert Problem("a", CHAT).text == "Tom has 3 apples.\n\nHe eats one. How many are left?"


def test_from_text_makes_one_user_message() -> None:
    problem = Problem.from_text("a", "1 + 1?", "2", metadata={"level": 1})
    assert problem.messages == ({"role": "user", "content": "1 + 1?"},)
    assert (problem.answer, problem.metadata) == ("2", {"level": 1})


def test_system_prompt_is_put_in_front_unless_there_is_one() -> None:
    plain = Problem.from_text("a", "1 + 1?")
    assert plain.conversation("Think.")[0] == {"role": "system", "content": "Think."}
    assert plain.conversation() == [{"role": "user", "content": "1 + 1?"}]
    assert Problem("a", CHAT).conversation("Think.") == list(CHAT)


def test_conversation_is_a_copy() -> None:
    problem = Problem.from_text("a", "1 + 1?")
    problem.conversation()[0]["content"] = "changed"
    assert problem.text == "1 + 1?"


@pytest.mark.parametrize("id", ["a/b\\c", "test/algebra/1.json", "Ünïcode 1", "0"])
def test_ids_may_hold_anything_printable(id: str) -> None:
    assert Problem.from_text(id, "q").id == id


@pytest.mark.parametrize("id", ["", "a\nb", "a\tb", "a\x00", "a\x1b[31m", "a\u2028b", "a\ud800"])
def test_ids_that_break_lines_or_terminals_are_refused(id: str) -> None:
    with pytest.raises(ValueError, match=r"id"):
        Problem.from_text(id, "q")


def test_a_problem_needs_a_message() -> None:
    with pytest.raises(ValueError, match="no message"):
        Problem("a", ())


@pytest.mark.parametrize(("id", "answer"), [(1, None), ("a", 7), ("a", 1.0)])
def test_numbers_are_refused_where_strings_belong(id: Any, answer: Any) -> None:
    with pytest.raises(TypeError):
        Problem.from_text(id, "q", answer)
