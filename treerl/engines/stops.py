"""Finding a stop string in text that grows token by token.

A stop string is looked for in decoded text, never as token ids: the same text has many token
sequences, it may end inside a token ("7 +" inside the token " +"), and a character may straddle
tokens. Only generated text counts; a stop string never begins in the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["StopFinder", "first_stop"]


def first_stop(text: str, stops: Sequence[str]) -> str | None:
    """Return the stop string that is complete first in ``text``; of equals, the first listed."""
    best: str | None = None
    best_end = 0
    for stop in stops:
        at = text.find(stop)
        if at >= 0 and (best is None or at + len(stop) < best_end):
            best, best_end = stop, at + len(stop)
    return best


class StopFinder:
    """Watches one completion for its stop strings.

    Only a window of the last tokens is decoded: whatever stood further back would have fired
    before. The window is widened until its text is longer than the longest stop string, so special
    tokens (no text) and partial characters (several tokens for one) are no trouble.

    Args:
        decode: Ids to text, special tokens left out.
        stops: The stop strings, none empty.
    """

    __slots__ = ("_decode", "_longest", "_stops")

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        self._decode = decode
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)

    def find(self, token_ids: Sequence[int], end: int | None = None) -> str | None:
        """Return the stop string that the newest token completed, or None.

        Args:
            token_ids: The generated ids.
            end: How many of them are there already; all by default. To be called for each number
                once, in order.
        """
        end = len(token_ids) if end is None else end
        if not self._stops or not end:
            return None
        width = self._longest + 8
        while True:
            window = token_ids[max(0, end - width) : end]
            text = self._decode(window)
            # A stop may begin a whole stop's length before the newest token's text. Two characters
            # more, since a window may begin inside a character or lose its leading space.
            if len(window) == end or (
                len(text) - len(self._decode(window[-1:])) >= self._longest + 2
            ):
                return first_stop(text, self._stops)
            width *= 2
