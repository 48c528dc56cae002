"""Objective steps: what models write is read where its meaning is plain, and never lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.config import to_jsonable
from treerl.engines.scripted import ByteTokenizer
from treerl.steps import STEP_ERROR, StepContext, StepCut
from treerl.steps_json import (
    EXAMPLES,
    STEP_INSTRUCTION,
    ObjectiveSteps,
    last_box,
    read_object,
    read_step,
)

TOKENIZER = ByteTokenizer()
STEPS = ObjectiveSteps()


def step(objective: str, action: str) -> str:
    return json.dumps({"step objective": objective, "action": action})


def split(text: str, before: str = "") -> list[StepCut]:
    context = STEPS.context(TOKENIZER, TOKENIZER.encode(before)) if before else StepContext()
    return STEPS.split(TOKENIZER, TOKENIZER.encode(text), context)


A = step("Find a", r"7 * 12 = 84. \boxed{a = 84}")
B = step("Find b", r"84 - 15 = 69. \boxed{b = 69} <end>")


def test_objects_become_steps_that_tile_the_tokens() -> None:
    text = f"Sure:\n```json\n{A}\n{B}\n```"
    first, second = split(text)
    assert (first.start, first.end) == (0, text.index(A) + len(A))
    assert (second.start, second.end) == (first.end, len(text))
    assert first.text == "Find a\n7 * 12 = 84. \\boxed{a = 84}"
    assert first.meta == {"objective": "Find a", "conclusion": "a = 84", "end": False}
    assert second.text == "Find b\n84 - 15 = 69. \\boxed{b = 69}"
    assert second.meta == {"objective": "Find b", "conclusion": "b = 69", "end": True}
    assert [STEPS.final(c) for c in (first, second)] == [False, True]
    assert all(STEPS.complete(c) for c in (first, second))


def test_a_list_around_the_steps_is_read_through() -> None:
    assert [c.meta["objective"] for c in split(f'{{"steps": [{A}, {B}]}}')] == ["Find a", "Find b"]


def test_the_next_step_begins_behind_the_last_object() -> None:
    (cut,) = split(f"\n{B}", before=f"{A}\n")
    assert cut.meta["objective"] == "Find b"
    (cut,) = split(B[1:], before=A + "\n{")  # a token may hold the next object's brace
    assert cut.meta["objective"] == "Find b"


def test_an_object_that_a_stop_string_cut_is_not_complete() -> None:
    text = '{"step objective": "Find a", "action": "Of \\\\text{\\"x\\"}'
    (cut,) = split(text)
    assert not STEPS.complete(cut)
    assert cut.text == text
    assert cut.meta == {STEP_ERROR: "the JSON object does not end"}
    assert not STEPS.complete(split("  \n")[0])


@pytest.mark.parametrize(
    ("written", "action"),
    [
        (r"so \boxed{a = \frac{1}{2}}", r"so \boxed{a = \frac{1}{2}}"),
        (r"so \\boxed{a = \\frac{1}{2}}", r"so \boxed{a = \frac{1}{2}}"),
        (r"3 \times 4 \neq 5 \text{ jars}", r"3 \times 4 \neq 5 \text{ jars}"),
        (r"one\nThen\ttwo", "one\nThen\ttwo"),
        ("one\ntwo", "one\ntwo"),
        (r"\(x\) is \underline{5}", r"\(x\) is \underline{5}"),
        (r"say \"x\" \u00e9", 'say "x" é'),
        (r"half \ud800 pair", "half � pair"),
    ],
)
def test_actions_as_models_write_them(written: str, action: str) -> None:
    text, meta = read_step(f'{{"step objective": "o", "action": "{written}",\n}}')
    assert text == f"o\n{action}"
    assert STEP_ERROR not in meta


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ('{"action": "x"}', 'no "step objective"'),
        ('{"step objective": "x"}', 'no "action"'),
        ('{"step objective": "x", "action": 5}', '"action" of the step is no text'),
        ('{"step objective": " ", "action": "x"}', '"step objective" of the step is no text'),
        ("{'step objective': 'x', 'action': 'y'}", "no JSON object"),
        ('{"step objective": "a "b" c", "action": "y"}', "no JSON object"),
        ('{"a": ' * 50_000, "longer than 20000 characters"),
        ('{"a": ' * 2_500 + "1" + "}" * 2_500, "nested too deeply"),
        ('{"a": ' + "9" * 10_000 + "}", "no JSON object"),
    ],
)
def test_a_malformed_step_is_kept_with_its_reason(raw: str, reason: str) -> None:
    text, meta = read_step(raw)
    assert text == raw.strip()
    assert reason in meta[STEP_ERROR]


def test_no_object_and_no_list() -> None:
    with pytest.raises(ValueError, match="no JSON object but a list"):
        read_object("[1]")


def test_a_step_that_never_closes_ends_where_the_next_begins() -> None:
    broken = '{"step objective": "Find a", "action": "x"\n'
    first, second = split(broken + B)
    assert first.text == broken.strip()
    assert STEP_ERROR in first.meta
    assert second.meta["objective"] == "Find b"


def test_words_behind_the_last_object_are_a_step_with_a_reason() -> None:
    first, second = split(f"{A}\nI hope this helps.")
    assert first.meta["objective"] == "Find a"
    assert (second.text, second.complete) == ("I hope this helps.", False)
    assert second.meta == {STEP_ERROR: "no JSON object"}


PIECES = st.sampled_from(
    [
        A,
        B,
        "\n",
        "{",
        "}",
        '"',
        "\\",
        '"}',
        "{}",
        " so ",
        "é",
        '{"action": "x"',
        "<end>",
        "[",
        "```",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=12), st.lists(PIECES, max_size=4))
def test_steps_always_tile_the_tokens_and_are_json(parts: list[str], before: list[str]) -> None:
    text = "".join(parts)
    cuts = split(text, "".join(before))
    assert [c.start for c in cuts] == [0, *(c.end for c in cuts[:-1])]
    assert cuts[-1].end == len(text.encode())
    assert all(c.end > c.start for c in cuts)
    for cut in cuts:
        json.dumps(cut.meta, allow_nan=False)
        assert cut.text or not cut.complete or cut.meta


# Without what JSON escapes with a letter: `\\f` in front of one is taken for a LaTeX command.
WORDS = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\\")


@settings(max_examples=300, deadline=None)
@given(st.text(WORDS, max_size=40), st.text(WORDS, max_size=40))
def test_what_json_writes_is_read_back(objective: str, action: str) -> None:
    text, meta = read_step(step(objective, action))
    if objective.strip() and action.strip():
        words = action.strip().replace("<end>", "").strip()
        assert meta["objective"] == objective.strip()
        assert text == f"{objective.strip()}\n{words}".strip()


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{a = 1} \boxed{b = \frac{1}{2}}", r"b = \frac{1}{2}"),
        (r"\boxed{a = 1", None),
        ("none", None),
        (r"\boxed{ }", None),
    ],
)
def test_last_boxes(text: str, box: str | None) -> None:
    assert last_box(text) == box


def test_rewards_read_the_result_and_not_its_parameter() -> None:
    steps = ("Find a\n84 \\boxed{a = 84}", "Find b\n69 \\boxed{b = 84 - 15 = 69}")
    assert STEPS.response("{...}", steps) == "\n\n".join([*steps, r"\boxed{69}"])
    assert STEPS.response("{...}", ("no box",)) == "no box"
    assert STEPS.response("", ()) == ""


def test_equal_conclusions_fold_only_where_asked_to() -> None:
    (cut,) = split(step("find A", r"12 * 7 gives \boxed{a=84}"))
    (other,) = split(A)
    assert not STEPS.same(other.text, other.meta, cut)
    by_conclusion = ObjectiveSteps(dedup="conclusion")
    assert by_conclusion.same(other.text, other.meta, cut)
    (open_end,) = split(step("find A", "no box"))
    assert not by_conclusion.same(open_end.text, open_end.meta, cut)
    assert by_conclusion.same(cut.text, None, cut)


def test_given_steps_are_written_in_the_format_and_read_back() -> None:
    plain = STEPS.given(' 84 - 15 = "69" ', last=True)
    (cut,) = split(plain.written)
    assert (plain.text, cut.meta["end"]) == ('84 - 15 = "69"', True)
    assert cut.text.endswith('84 - 15 = "69"')
    own = STEPS.given(A, last=False)
    assert own.written == A + "\n"
    assert own.meta == {"objective": "Find a", "conclusion": "a = 84", "end": False}


def test_the_examples_are_steps_that_the_format_reads() -> None:
    for _, steps in EXAMPLES:
        cuts = split("\n".join(steps))
        assert len(cuts) == len(steps)
        assert all(c.meta["conclusion"] for c in cuts)
        assert [STEPS.final(c) for c in cuts] == [False] * (len(cuts) - 1) + [True]


def test_the_prompt_asks_for_the_format_and_keeps_the_callers_system_prompt() -> None:
    asked = [{"role": "user", "content": "q"}]
    shown = STEPS.prompt(asked)
    assert shown[0] == {"role": "system", "content": STEP_INSTRUCTION}
    assert [m["role"] for m in shown[1:]] == ["user", "assistant"] * 2 + ["user"]
    own = {"role": "system", "content": "Be brief."}
    assert STEPS.prompt([own, *asked]) == [own, *shown[1:]]
    assert ObjectiveSteps(examples=False).prompt([own, *asked]) == [own, *asked]
    assert asked == [{"role": "user", "content": "q"}]


def test_the_format_stands_in_the_manifest() -> None:
    shown: Any = to_jsonable(ObjectiveSteps(dedup="conclusion", root_call=True))
    assert (shown["format"], shown["dedup"], shown["root_call"]) == (
        "objective",
        "conclusion",
        True,
    )
    with pytest.raises(ValueError, match="text or conclusion, got 'magic'"):
        ObjectiveSteps(dedup="magic")  # type: ignore[arg-type]
