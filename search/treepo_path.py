"""One segment in the making, and the path that ends with it as policies see it.

A sampler works on draws: every request is one, and its seed depends on its lineage alone, so that
no draw needs to know what the others have said. Nodes are made of draws once the tree is quiet
(:mod:`treerl.search.treepo_nodes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from treerl.tree import NodeFinish
from treerl.verdict import StepVerdict

__all__ = ["PathView", "SegmentDraw"]

Decode = Callable[[Sequence[int]], str]


class SegmentDraw:
    """One request for a segment and what came of it.

    Attributes:
        parent: The draw that it continues; None for the one that stands for the prompt.
        offset: How many of the parent's ids it keeps: all of them, or fewer at a branch point.
        index: Which draw at that place.
        seed: Of its request.
        start: Generated ids of the path before it.
        level: Segments of the path, this one included.
        quota: Paths that it stands for.
        late: It or a draw above it was started after what would have stood in its place was seen:
            it must not carry weight in an estimate (treepo.md §5.2).
        chain: Which of the tree's chains it counts to, where a policy says so.
        ids, logprobs: What was generated.
        finish: Why its path ended, None where it goes on.
        error: Message of its failed request.
        policy_version: Version of the weights.
        verdict: What the gate's verifier said of the segment.
        judge_error: What the gate's judge raised.
        children: Draws that continue it, by offset.
    """

    __slots__ = (
        "chain",
        "children",
        "error",
        "finish",
        "ids",
        "index",
        "judge_error",
        "late",
        "level",
        "logprobs",
        "offset",
        "parent",
        "policy_version",
        "quota",
        "seed",
        "start",
        "verdict",
    )

    def __init__(self, parent: SegmentDraw | None = None, offset: int = 0, quota: int = 1) -> None:
        self.parent = parent
        self.offset = offset
        self.quota = quota
        self.index = 0
        self.seed: int | None = None
        self.start, self.level = 0, 0
        self.late = False
        self.chain: int | None = None
        self.ids: tuple[int, ...] = ()
        self.logprobs: tuple[float, ...] = ()
        self.finish: NodeFinish | None = None
        self.error: str | None = None
        self.policy_version = ""
        self.verdict: StepVerdict | None = None
        self.judge_error: str | None = None
        self.children: dict[int, list[SegmentDraw]] = {}
        if parent is not None:
            siblings = parent.children.setdefault(offset, [])
            self.index = len(siblings)
            self.start, self.level = parent.start + offset, parent.level + 1
            self.late, self.chain = parent.late, parent.chain
            siblings.append(self)

    @property
    def end(self) -> int:
        """Generated ids of the path up to the end of this segment."""
        return self.start + len(self.ids)

    def address(self) -> tuple[int, ...]:
        """Return the key of the place at which it starts, part of its seed.

        The index of each draw above, and minus the offset where one was entered before its end.
        """
        out: list[int] = []
        draw = self
        while draw.parent is not None:
            if draw.offset < len(draw.parent.ids):
                out.append(-draw.offset)
            draw = draw.parent
            out.append(draw.index)
        # The draw that stands for the prompt has no siblings to be told from.
        return tuple(reversed(out[:-1]))

    def lineage(self) -> list[tuple[SegmentDraw, int]]:
        """Return the draws of the path from the top, each with how many of its ids the path has."""
        out = []
        draw, kept = self, len(self.ids)
        while draw.parent is not None:
            out.append((draw, kept))
            draw, kept = draw.parent, draw.offset
        out.reverse()
        return out

    def place(self, tokens: int) -> tuple[SegmentDraw, int]:
        """Return the draw and the offset at which the path has so many ids.

        Raises:
            ValueError: The path is shorter.
        """
        if not 0 <= tokens <= self.end:
            raise ValueError(f"a path of {self.end} ids has no prefix of {tokens}")
        draw = self
        while draw.parent is not None and tokens <= draw.start:
            draw = draw.parent
        return draw, tokens - draw.start


class PathView:
    """A path as policies see it: its last segment has just arrived.

    Args:
        draw: The last segment.
        decode: Ids to text.

    Attributes:
        start: Ids before the last segment.
        level: Segments.
        quota: Paths that the last segment stands for.
    """

    __slots__ = ("_decode", "_draw", "_ids", "level", "quota", "start")

    def __init__(self, draw: SegmentDraw, decode: Decode) -> None:
        self._draw = draw
        self._decode = decode
        self._ids: tuple[int, ...] | None = None
        self.start, self.level, self.quota = draw.start, draw.level, draw.quota

    def __len__(self) -> int:
        return self._draw.end

    @property
    def ids(self) -> tuple[int, ...]:
        """Generated ids of the whole path."""
        if self._ids is None:
            parts = [d.ids if n == len(d.ids) else d.ids[:n] for d, n in self._draw.lineage()]
            self._ids = tuple(chain.from_iterable(parts))
        return self._ids

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Behaviour log-probs of the whole path, nats."""
        return tuple(chain.from_iterable(d.logprobs[:n] for d, n in self._draw.lineage()))

    @property
    def segment_ids(self) -> tuple[int, ...]:
        """Ids of the last segment."""
        return self._draw.ids

    @property
    def segment_logprobs(self) -> tuple[float, ...]:
        """Log-probs of the last segment, nats."""
        return self._draw.logprobs

    def text(self) -> str:
        """Return the text of the whole path."""
        return self._decode(self.ids)

    def tail(self, tokens: int) -> str:
        """Return the text of the last segment, or of so many ids where the segment is shorter.

        The window may begin inside a character, which is decoded as U+FFFD.
        """
        return self._decode(self.ids[max(0, min(self.start, len(self) - tokens)) :])

    def segments(self) -> tuple[str, ...]:
        """Return the text of each segment, decoded apart."""
        return tuple(self._decode(d.ids[:n]) for d, n in self._draw.lineage())
