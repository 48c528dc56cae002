"""Seeds that depend on what is sampled, never on when.

A request's seed is a hash of (run seed, problem id, visit, tree index, node path, child index):
equal for every arrival order, batch size and worker count, and unrelated between siblings
(consecutive integers would collide with engines that derive the seeds of n samples as s, s+1, …).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

__all__ = ["TreeSeed", "derive_seed"]

_MASK = (1 << 63) - 1
_WORD = (1 << 64) - 1
_DRAW_STEP = 0x9E3779B97F4A7C15
_PART_STEP = 0xD1342543DE82EF95


def derive_seed(*key: int | str) -> int:
    """Hash a key of integers and strings to a seed in [0, 2**63).

    Every part is written with its type and length, so that ("1", 23) and ("12", 3) differ.
    """
    digest = blake2b(digest_size=8)
    for part in key:
        raw = str(part).encode()
        digest.update(b"%c%d:" % (b"i" if isinstance(part, int) else b"s", len(raw)))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "little") & _MASK


class TreeSeed:
    """The seeds of one tree: a hash state that already holds the tree's key.

    Args:
        run_seed: The run's seed.
        problem_id: The problem's id.
        visit: Trainer step or epoch in which the problem is visited.
        tree_index: Which of the problem's trees of this visit.
    """

    __slots__ = ("_state",)

    def __init__(self, run_seed: int, problem_id: str, visit: int = 0, tree_index: int = 0) -> None:
        self._state = blake2b(digest_size=8)
        raw = problem_id.encode()
        self._state.update(b"%d,%d,%d,%d:" % (run_seed, visit, tree_index, len(raw)))
        self._state.update(raw)

    def at(self, path: Sequence[int], draw: int, part: int = 0) -> int:
        """Return the seed of one draw below a node.

        Args:
            path: Child index at each depth from the root; () is the root.
            draw: Which draw there.
            part: Which request of that draw, where one was not enough.
        """
        return self.below(path)(draw, part)

    def below(self, path: Sequence[int]) -> Callable[[int, int], int]:
        """Return ``at`` for one node, the node's address hashed once for all draws below it."""
        state = self._state.copy()
        state.update(repr(tuple(path)).encode())
        base = int.from_bytes(state.digest(), "little")

        def seed(draw: int, part: int = 0) -> int:
            # Odd steps keep all (draw, part) of a node apart before they are mixed.
            return _mix(base + draw * _DRAW_STEP + part * _PART_STEP) & _MASK

        return seed


def _mix(x: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit integers."""
    x &= _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)
