"""Why a path ends: the stopping rules of segment trees.

All of them are functions of the path alone, whatever else grows or has arrived.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from treerl.search.treepo_path import Decode, PathView
from treerl.tree import NodeFinish

__all__ = ["Repetition", "Stopping", "has_repetition", "holds_box", "stop_string_end"]

_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
"""A box's opening, an escaped character (which is no brace), a brace."""
_BOX_REACH = 64
"""Tokens before a segment that are read along, for a box that was opened there."""


def has_repetition(text: str, window: int = 32, count: int = 8) -> bool:
    """Say whether some stretch of ``window`` characters stands ``count`` times in a text.

    Stretches may overlap: a text of period p is repetitive from window + (count - 1)·p characters
    on (treepo.md §1.5).
    """
    seen: Counter[str] = Counter()
    for i in range(len(text) - window + 1):
        part = text[i : i + window]
        seen[part] += 1
        if seen[part] >= count:
            return True
    return False


def holds_box(text: str) -> bool:
    r"""Say whether a text holds a whole ``\boxed{…}``, braces inside balanced to any depth."""
    opened: list[bool] = []  # braces; True is a box's
    for match in _BRACES.finditer(text):
        sign = match.group()
        if sign == "{" or sign.startswith("\\boxed"):
            opened.append(sign != "{")
        elif sign == "}" and opened and opened.pop():
            return True
    return False


def stop_string_end(
    ids: Sequence[int], start: int, stops: Sequence[str], decode: Decode
) -> int | None:
    """Return where a stop string that began before a segment ends inside it, None if none does.

    Engines see one segment at a time and miss these.

    Args:
        ids: Of the whole path.
        start: Where the segment begins.
        stops: The stop strings.
        decode: Ids to text.

    Returns:
        The number of ids up to the token that completes the stop string.
    """
    reach = max(map(len, stops), default=0)
    if reach < 2 or not start:
        return None
    begin = max(0, start - reach - 8)

    def complete(end: int) -> bool:
        text = decode(ids[begin:end])
        return any(stop in text for stop in stops)

    # A string that began before the segment is complete after as many tokens as it has bytes.
    low, high = start, min(len(ids), start + 4 * reach)
    if not complete(high) or complete(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if complete(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """When a path counts as a loop.

    Attributes:
        window, count: As of :func:`has_repetition`.
        tail_tokens: How far back to look, at least over the newest segment. The released code looks
            at the newest segment only (0) and misses loops spread over segments.
    """

    window: int = 32
    count: int = 8
    tail_tokens: int = 1024

    def __post_init__(self) -> None:
        if self.window < 1 or self.count < 2:
            raise ValueError("Repetition needs window >= 1 and count >= 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    r"""Why a path ends, besides end tokens and stop strings. In order of precedence::

        repetition (if repetition_first) > boxed > end token or stop string > length > depth
        > repetition > predicate

    Attributes:
        boxed: A whole ``\boxed{…}`` ends the path ("answer"); what follows it in the segment stays.
        repetition: What counts as a loop; None never does.
        repetition_first: A segment that both loops and ends is a "repetition".
        predicate: A rule of one's own: a path for which it is true ends ("stop").
    """

    boxed: bool = True
    repetition: Repetition | None = field(default_factory=Repetition)
    repetition_first: bool = False
    predicate: Callable[[PathView], bool] | None = None

    def finish(
        self, path: PathView, *, ended: NodeFinish | None, full: bool, deep: bool
    ) -> NodeFinish | None:
        """Return why a path ends, None where it goes on.

        Args:
            path: The path.
            ended: What the engine said: "eos" or "stop".
            full: The path has as many tokens as it may.
            deep: The path has as many segments as it may.
        """
        if self.repetition_first and self._loops(path):
            return "repetition"
        if self.boxed and holds_box(path.tail(len(path.segment_ids) + _BOX_REACH)):
            return "answer"
        if ended is not None:
            return ended
        if full:
            return "length"
        if deep:
            return "depth"
        if not self.repetition_first and self._loops(path):
            return "repetition"
        if self.predicate is not None and self.predicate(path):
            return "stop"
        return None

    def _loops(self, path: PathView) -> bool:
        rule = self.repetition
        return rule is not None and has_repetition(
            path.tail(rule.tail_tokens), rule.window, rule.count
        )
