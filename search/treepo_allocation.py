"""How many children a live path gets: the allocation policies of segment trees.

Policies of two shapes. **Forks** (:class:`Quota`, :class:`FullTree`) look at one path only, so a
path goes on the moment its segment arrives. **Rounds** (:class:`BudgetTransfer`, the published
rule) need to know how many of the prompt's paths have stopped, so each round waits for the
prompt's slowest segment; other prompts are never waited for.

Every policy decides on the number of children before they are sampled, from tokens above them only.
That is what makes branch weights unbiased (treepo.md §2.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, floor
from random import Random
from typing import Literal, Protocol, runtime_checkable

from treerl.search.treepo_path import PathView

__all__ = [
    "BudgetTransfer",
    "EvenSplit",
    "Forks",
    "FullTree",
    "LogprobSplit",
    "Quota",
    "Rounds",
    "Split",
    "branch_probabilities",
    "split_even",
    "split_weighted",
    "total_branches",
]

Span = int | tuple[int, int]
"""A number, or bounds (both included) between which one is drawn."""


# --- integer rules --------------------------------------------------------------------------------


def total_branches(width: int, finished: int, finished_now: int, live: int, b: int) -> int:
    """Return how many paths a prompt's next round has, by the published rule (treepo.md §1.6).

    The branches of paths that stopped in this round pass to those that did not.

    Args:
        width: Finished paths wanted.
        finished: Finished so far, those of this round included.
        finished_now: Finished in this round.
        live: Paths that go on.
        b: Branching budget.
    """
    return max(min(max(width - finished, 0), b * finished_now + b * live), live)


def split_even(total: int, n: int, *, remainder: Literal["spread", "last"] = "spread") -> list[int]:
    """Split a total over n paths, at least 1 each.

    The remainder goes to the first ones, or, as in the released TreePO code, all to the last.
    """
    share, rest = divmod(total, n)
    if remainder == "last":
        return [max(1, share + (rest if i == n - 1 else 0)) for i in range(n)]
    return [max(1, share + (i < rest)) for i in range(n)]


def split_weighted(weights: Sequence[float], total: int) -> list[int]:
    """Give each path 1 and the rest in proportion to weights, by largest remainder.

    Ties go to the earlier path.

    Raises:
        ValueError: The total is smaller than the number of paths.
    """
    n = len(weights)
    if total < n:
        raise ValueError(f"{total} branches are too few for {n} paths")
    rest, mass = total - n, sum(weights)
    exact = [w / mass * rest for w in weights]
    whole = [floor(x) for x in exact]
    by_fraction = sorted(range(n), key=lambda i: (whole[i] - exact[i], i))
    for i in by_fraction[: rest - sum(whole)]:
        whole[i] += 1
    return [1 + x for x in whole]


def branch_probabilities(
    logprobs: Sequence[Sequence[float]],
    *,
    score: Literal["sum", "mean", "last"],
    likelier: bool,
    segment: int,
    temperature: float,
) -> list[float]:
    """Return the softmax that shares branches between paths (treepo.md §1.7).

    Args:
        logprobs: Of each path's sampled tokens, nats.
        score: Of a path: the sum or the mean of its log-probs, or the mean of its last segment's.
        likelier: True gives more to likely paths, False to unlikely ones.
        segment: Tokens of a segment.
        temperature: Of the softmax.
    """
    scores = []
    for path in logprobs:
        part = path[-segment:] if score == "last" else path
        scores.append(sum(part) / (1 if score == "sum" else len(part)))
    sign = 1.0 if likelier else -1.0
    logits = [sign * (s - min(scores)) / temperature for s in scores]
    top = max(logits)
    parts = [exp(x - top) for x in logits]
    mass = sum(parts)
    return [x / mass for x in parts]


# --- splits of a round's branches -----------------------------------------------------------------


class Split(Protocol):
    """Shares a round's branches between the live paths."""

    def __call__(self, total: int, live: Sequence[PathView]) -> list[int]:
        """Return a number for each path, at least 1; they sum to ``total``."""


@dataclass(frozen=True, slots=True)
class EvenSplit:
    """The same number for every path.

    Attributes:
        remainder: "spread" evenly, or all of it to the "last" path, as in the released code.
    """

    remainder: Literal["spread", "last"] = "spread"

    def __call__(self, total: int, live: Sequence[PathView]) -> list[int]:
        """See :class:`Split`."""
        return split_even(total, len(live), remainder=self.remainder)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobSplit:
    """More branches for paths that the policy found unlikely, or likely.

    The paper found none of these better than the even split (treepo.md §1.7).

    Attributes:
        score, likelier, temperature: As of :func:`branch_probabilities`.
    """

    score: Literal["sum", "mean", "last"] = "last"
    likelier: bool = False
    temperature: float = 2.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"LogprobSplit.temperature must be above 0, got {self.temperature}")

    def __call__(self, total: int, live: Sequence[PathView]) -> list[int]:
        """See :class:`Split`."""
        weights = branch_probabilities(
            [path.segment_logprobs if self.score == "last" else path.logprobs for path in live],
            score=self.score,
            likelier=self.likelier,
            segment=max(len(path.segment_logprobs) for path in live),
            temperature=self.temperature,
        )
        return split_weighted(weights, total)


# --- policies -------------------------------------------------------------------------------------


@runtime_checkable
class Forks(Protocol):
    """An allocation that looks at one path at a time."""

    def first(self, width: int, rng: Random) -> Sequence[int]:
        """Return the quota of each child of the root."""

    def shares(self, path: PathView) -> Sequence[int]:
        """Return the quota of each child of a live path, at least one."""

    def tokens(self, level: int, segment: int | None) -> int | None:
        """Return the most tokens of a segment at a level (1 is the first); None is no bound."""


class Rounds(Protocol):
    """An allocation that looks at all paths of a prompt at once."""

    def first(self, width: int, rng: Random) -> Sequence[int]:
        """Return the quota of each child of the root."""

    def plan(
        self, width: int, finished: int, finished_now: int, live: Sequence[PathView], rng: Random
    ) -> Sequence[int]:
        """Return how many children each live path gets, at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A node with quota q has min(q, b) children, which share q as evenly as possible.

    Needs no siblings, so nothing waits. A path that stops early forfeits the rest of its quota: no
    other path gets it, and leaves are not drawn to where the policy writes long.

    Attributes:
        k0: Children of the root; None is one for every path. More of them are more independent
            samples and less sharing: the effective sample size never exceeds their spread.
        b: Children of every other node.
        min_surprisal: A segment whose mean surprisal (nats a token) is below it gets one child,
            which carries the whole quota on: paths branch where the policy hesitates.
    """

    k0: int | None = 8
    b: int = 2
    min_surprisal: float = 0.0

    def __post_init__(self) -> None:
        if self.b < 1 or (self.k0 is not None and self.k0 < 1):
            raise ValueError(f"Quota needs k0 >= 1 and b >= 1, got k0={self.k0} and b={self.b}")

    def first(self, width: int, rng: Random) -> Sequence[int]:
        """See :class:`Forks`."""
        return split_even(width, width if self.k0 is None else min(self.k0, width))

    def shares(self, path: PathView) -> Sequence[int]:
        """See :class:`Forks`."""
        k = min(path.quota, self.b)
        if k > 1 and self.min_surprisal > 0:
            logprobs = path.segment_logprobs
            if -sum(logprobs) < self.min_surprisal * len(logprobs):
                k = 1
        return split_even(path.quota, k)

    def tokens(self, level: int, segment: int | None) -> int | None:
        """See :class:`Forks`."""
        return segment


@dataclass(frozen=True, slots=True, kw_only=True)
class FullTree:
    """Every node of a level has the same number of children (SPO-tree, TreeRPO).

    Attributes:
        factors: Children of a node at each depth, the root first. Paths that outlive them go on
            alone.
        open_end: The last level's segments have no bound but the path's, as in SPO.
    """

    factors: tuple[int, ...] = (6, 6, 6)
    open_end: bool = True

    def __post_init__(self) -> None:
        if not self.factors or min(self.factors) < 1:
            raise ValueError(f"FullTree.factors must be numbers of at least 1, got {self.factors}")

    @property
    def leaves(self) -> int:
        """Leaves of the tree if no path stops early."""
        out = 1
        for factor in self.factors:
            out *= factor
        return out

    def first(self, width: int, rng: Random) -> Sequence[int]:
        """See :class:`Forks`."""
        return split_even(max(width, self.factors[0]), self.factors[0])

    def shares(self, path: PathView) -> Sequence[int]:
        """See :class:`Forks`."""
        k = self.factors[path.level] if path.level < len(self.factors) else 1
        return split_even(max(path.quota, k), k)

    def tokens(self, level: int, segment: int | None) -> int | None:
        """See :class:`Forks`."""
        return None if self.open_end and level >= len(self.factors) else segment


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTransfer:
    """TreePO's published rule: a round's branches pass from stopped paths to live ones.

    It lengthens samples (treepo.md §5.2): leaves gather where the policy writes long, and a uniform
    mean over them is biased; branch weights undo that.

    Attributes:
        b: Branching budget, or bounds of one drawn each round.
        k0: Children of the root, or bounds ("more initial divergence"); None is ``b``.
        split: Shares a round's branches.
    """

    b: Span = 2
    k0: Span | None = None
    split: Split = field(default_factory=EvenSplit)

    def __post_init__(self) -> None:
        for name, span in (("b", self.b), ("k0", self.k0)):
            low, high = span if isinstance(span, tuple) else (span, span)
            if low is not None and high is not None and not 1 <= low <= high:
                raise ValueError(f"BudgetTransfer.{name} must be >= 1, got {span}")

    def first(self, width: int, rng: Random) -> Sequence[int]:
        """See :class:`Rounds`."""
        return [1] * min(_draw(self.b if self.k0 is None else self.k0, rng), width)

    def plan(
        self, width: int, finished: int, finished_now: int, live: Sequence[PathView], rng: Random
    ) -> Sequence[int]:
        """See :class:`Rounds`."""
        b = _draw(self.b, rng)
        return self.split(total_branches(width, finished, finished_now, len(live), b), live)


def _draw(span: Span, rng: Random) -> int:
    return rng.randint(*span) if isinstance(span, tuple) else span
