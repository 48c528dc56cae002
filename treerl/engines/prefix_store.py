"""Keys and values of what was computed before, for requests that begin alike.

A tree's requests all begin with their parent's path, and most of a request is that prefix. The
store is a tree itself: an entry holds the tokens by which a sequence differs from an older one, and
hangs on that one where they part, so a shared prefix is kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt

from treerl.engines.kv_slots import KV

__all__ = ["Match", "PrefixStore"]

_Ids = npt.NDArray[np.int64]


class _Entry:
    __slots__ = ("begin", "children", "ids", "kv", "parent", "used")

    def __init__(self, parent: _Entry | None, begin: int, ids: _Ids, kv: KV) -> None:
        self.parent, self.begin, self.ids, self.kv = parent, begin, ids, kv
        self.children: dict[tuple[int, int], _Entry] = {}  # (position, first id) -> entry
        self.used = 0


class Match:
    """A known prefix: its length in tokens, and its pieces in order."""

    __slots__ = ("_entry", "length")

    def __init__(self, entry: _Entry | None, length: int) -> None:
        self._entry, self.length = entry, length

    def pieces(self, length: int) -> Iterator[KV]:
        """Yield the keys and values of the first ``length`` tokens."""
        spans: list[KV] = []
        entry, end = self._entry, min(length, self.length)
        while entry is not None and end > 0:
            if end > entry.begin:
                n = end - entry.begin
                spans.append([(keys[:, :n], values[:, :n]) for keys, values in entry.kv])
            end = min(end, entry.begin)
            entry = entry.parent
        yield from reversed(spans)


class PrefixStore:
    """Least recently used prefixes, within a budget.

    Args:
        budget: Tokens to hold; 0 switches the store off.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = 0
        self._clock = count(1)
        self._roots: dict[tuple[int, int], _Entry] = {}
        self._entries: list[_Entry] = []

    def find(self, ids: Sequence[int]) -> Match:
        """Return the longest known prefix of ``ids``."""
        wanted = np.asarray(ids, dtype=np.int64)
        entry: _Entry | None = None
        at = 0
        children = self._roots
        now = next(self._clock)
        # Sequences that part from an entry at one position hang there under their first id, so
        # there is at most one way on.
        while at < len(wanted) and (following := children.get((at, int(wanted[at])))) is not None:
            entry = following
            entry.used = now
            n = min(len(entry.ids), len(wanted) - at)
            differs = entry.ids[:n] != wanted[at : at + n]
            at += int(differs.argmax()) if differs.any() else n
            children = entry.children
        return Match(entry, at)

    def add(self, ids: Sequence[int], read: Callable[[int, int], KV]) -> None:
        """Keep a sequence.

        Args:
            ids: Its tokens.
            read: Copies the keys and values of tokens [begin, end); called for the new ones only.
        """
        if self.budget <= 0:
            return
        match = self.find(ids)
        fresh = len(ids) - match.length
        if fresh == 0 or fresh > self.budget:
            return
        parent = match._entry
        tail = np.asarray(ids[match.length :], dtype=np.int64)
        entry = _Entry(parent, match.length, tail, read(match.length, len(ids)))
        entry.used = next(self._clock)
        siblings = self._roots if parent is None else parent.children
        siblings[match.length, int(tail[0])] = entry
        self._entries.append(entry)
        self.size += fresh
        self._shrink()

    def _shrink(self) -> None:
        """Drop leaves, the longest unused first, until the budget holds."""
        if self.size <= self.budget:
            return
        goal = self.budget * 9 // 10  # a little more at once, so that the sort pays
        while self.size > goal:
            leaves = [e for e in self._entries if not e.children]
            leaves.sort(key=lambda e: e.used)
            dropped: set[int] = set()
            for entry in leaves:
                if self.size <= goal:
                    break
                siblings = self._roots if entry.parent is None else entry.parent.children
                del siblings[entry.begin, int(entry.ids[0])]
                self.size -= len(entry.ids)
                dropped.add(id(entry))
            self._entries = [e for e in self._entries if id(e) not in dropped]

    def clear(self) -> None:
        """Forget everything; after a change of weights."""
        self._roots.clear()
        self._entries.clear()
        self.size = 0
