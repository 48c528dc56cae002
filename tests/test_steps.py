"""Step ends are found on text and mapped to tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.engines.scripted import ByteTokenizer
from treerl.steps import PlainSteps, StepContext, states_answer, token_ends


class PieceTokenizer:
    """Each id is a run of bytes: tokens may hold delimiters, parts of them, or half characters."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = list(pieces)

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(self.pieces[i] for i in token_ids).decode(errors="replace")

    def encode_prompt(self, messages, *, options=None) -> list[int]:
        raise NotImplementedError


def split(pieces: Sequence[bytes], delimiter: str = "\n\n") -> list[tuple[int, int, str, bool]]:
    tokenizer = PieceTokenizer(pieces)
    cuts = PlainSteps(delimiter).split(tokenizer, range(len(pieces)))
    return [(c.start, c.end, c.text, c.complete) for c in cuts]


def test_a_blank_line_as_one_token_or_two_gives_the_same_steps() -> None:
    assert split([b"a", b"\n\n", b"b"]) == [(0, 2, "a", True), (2, 3, "b", False)]
    assert split([b"a", b"\n", b"\n", b"b"]) == [(0, 3, "a", True), (3, 4, "b", False)]


def test_the_completing_token_belongs_to_the_ending_step_and_its_surplus_to_the_next() -> None:
    assert split([b"a", b".\n\nSo", b" b"]) == [(0, 2, "a.", True), (2, 3, "So b", False)]


def test_a_second_delimiter_inside_the_completing_token_does_not_cut_it() -> None:
    assert split([b"a", b"\n\nb\n\n", b"c", b"\n\n"]) == [
        (0, 2, "a", True),
        (2, 4, "b\n\nc", True),
    ]


def test_a_delimiter_behind_white_space_only_ends_no_step() -> None:
    assert split([b"\n\n", b"\n\n", b"a", b"\n\n", b"\n\n", b"b"]) == [
        (0, 4, "a", True),
        (4, 6, "b", False),
    ]


def test_a_blank_rest_joins_the_step_before_it() -> None:
    assert split([b"a", b"\n\n", b" ", b"\n"]) == [(0, 4, "a", True)]


def test_white_space_alone_is_one_open_step_without_text() -> None:
    assert split([b"\n\n"]) == [(0, 1, "", False)]
    assert split([]) == []


def test_a_character_across_tokens_counts_where_its_last_byte_stands() -> None:
    first, second = "é"[:1].encode()[:1], "é".encode()[1:]
    ends = token_ends(PieceTokenizer([b"a" + first, second, b"\n"]), [0, 1, 2])
    assert ends == [0, 2, 3]
    assert split([b"a" + first, second + b"\n", b"\n", b"b"]) == [
        (0, 3, "aé", True),
        (3, 4, "b", False),
    ]


def test_an_unfinished_character_at_the_end_stays_in_the_text() -> None:
    tokenizer = PieceTokenizer([b"ab", b"\xf0\x9f"])
    assert token_ends(tokenizer, [0, 1])[-1] == len(tokenizer.decode([0, 1]))


def test_broken_bytes_are_not_waited_for_for_ever() -> None:
    """The decoding window stays short, so the walk stays linear on garbage too."""

    class Counting(PieceTokenizer):
        decoded = 0

        def decode(self, token_ids: Sequence[int]) -> str:
            self.decoded += len(token_ids)
            return super().decode(token_ids)

    tokenizer = Counting([b"\xff"])
    assert token_ends(tokenizer, [0] * 2000)[-1] == 2000
    assert tokenizer.decoded < 40 * 2000


PIECES = st.lists(
    st.binary(min_size=1, max_size=4).map(lambda b: b.replace(b"\x00", b"\n"))
    | st.sampled_from([b"\n", b"\n\n", b".\n", b"x\n\ny", b" ", b"Step", "é".encode()]),
    max_size=24,
)


@given(PIECES, st.sampled_from(["\n", "\n\n", "##"]))
def test_steps_tile_the_tokens(pieces: list[bytes], delimiter: str) -> None:
    cuts = split(pieces, delimiter)
    bounds = [start for start, *_ in cuts] + [cuts[-1][1]] if cuts else []
    assert bounds == [0, *accumulate(end - start for start, end, *_ in cuts)] if cuts else True
    assert (cuts[-1][1] if cuts else 0) == len(pieces)
    assert all(end > start for start, end, *_ in cuts)
    assert all(text for *_, text, complete in cuts if complete)


@given(PIECES.filter(bool))
def test_ends_are_monotone_and_complete(pieces: list[bytes]) -> None:
    tokenizer = PieceTokenizer(pieces)
    ids = list(range(len(pieces)))
    ends = token_ends(tokenizer, ids)
    assert ends == sorted(ends)
    assert ends[-1] == len(tokenizer.decode(ids))


@given(st.text(alphabet="ab\né", max_size=40), st.sampled_from(["\n", "\n\n"]))
def test_cutting_a_rest_gives_the_same_steps_as_cutting_the_whole(text: str, delim: str) -> None:
    """Stopping at each step end and going on, as a search does, agrees with one long rollout."""
    tokenizer, steps = ByteTokenizer(), PlainSteps(delim)
    ids = tokenizer.encode(text)
    whole = steps.split(tokenizer, ids)
    for i, cut in enumerate(whole):
        before = ids[: cut.start]
        rest = steps.split(tokenizer, ids[cut.start :], steps.context(tokenizer, before))
        assert [(c.text, c.end - c.start) for c in rest] == [
            (c.text, c.end - c.start) for c in whole[i:]
        ]


def test_context_of_a_fresh_path_is_empty() -> None:
    assert PlainSteps().context(ByteTokenizer(), ()) == StepContext()


def test_an_empty_delimiter_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        PlainSteps("")


@pytest.mark.parametrize(
    "step",
    [
        r"So it is \boxed{4}.",
        "Answer: 42",
        "**Final answer:** 42",
        "The answer is 7.",
        "#### 12",
        "First this.\nAnswer = 3",
    ],
)
def test_final_answers_are_seen(step: str) -> None:
    assert states_answer(step)


@pytest.mark.parametrize(
    "step", ["We answer this by adding.", "boxed lunches: 4", "## Step 2: add", "12 + 3 = 15"]
)
def test_other_steps_are_not_final_answers(step: str) -> None:
    assert not states_answer(step)
