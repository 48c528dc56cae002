"""Stop strings: the windowed search agrees with decoding everything each time."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from treerl.engines.stops import StopFinder, first_stop
from treerl.engines.tokenizer import ByteTokenizer

# Tokens of a made-up vocabulary: empty ones (special), partial characters, long ones.
PIECES = [
    b"",
    b"",
    b"a",
    b"b",
    b"\n",
    b"ab",
    b"\n\n",
    b"ba\nab",
    b"\xc3",
    b"\xa9",
    b"\xe2\x82",
    b"\xac",
]


def decode(ids: Sequence[int]) -> str:
    return b"".join(PIECES[i] for i in ids).decode(errors="replace")


@given(
    ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=60),
    stops=st.lists(
        st.sampled_from(["\n", "\n\n", "ab", "ba\n", "é", "€", "aab", "bb\nbb"]), max_size=3
    ),
)
def test_the_window_sees_what_the_whole_text_shows(ids: list[int], stops: list[str]) -> None:
    finder = StopFinder(decode, stops)
    for n in range(1, len(ids) + 1):
        whole = [s for s in stops if s in decode(ids[:n])]
        found = finder.find(ids, n)
        assert (found is not None) == bool(whole)
        if found is not None:
            assert found in whole
            break


def test_a_long_run_of_special_tokens_hides_no_stop() -> None:
    ids = [2, *[0] * 500, 3]
    finder = StopFinder(decode, ["ab"])
    assert [n for n in range(1, len(ids) + 1) if finder.find(ids, n)] == [len(ids)]


def test_the_stop_complete_first_wins_and_then_the_first_listed() -> None:
    assert first_stop("x end. y", ["y", "end."]) == "end."
    assert first_stop("abc", ["bc", "abc"]) == "bc"
    assert first_stop("abc", ["abc", "bc"]) == "abc"
    assert first_stop("abc", []) is None


def test_a_stop_may_straddle_a_character_of_several_tokens() -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode("ça 5 € non")
    finder = StopFinder(tokenizer.decode, ["€"])
    assert next(n for n in range(1, len(ids)) if finder.find(ids, n)) == len("ça 5 €".encode())
