"""Which child to visit next: the selection scores of the published tree searches.

All are pure functions of counts. Ties, infinities included, go to the child created first, so a
search is deterministic (groundedprm.md §1.3).
"""

from __future__ import annotations

import math

__all__ = ["puct", "uct", "uct_published"]

PUCT_BASE = 19652.0
PUCT_INIT = 1.25


def uct(value_sum: float, visits: int, parent_visits: int, exploration: float) -> float:
    """Upper confidence bound for trees, Q + c·sqrt(ln N(parent) / N(child)).

    Args:
        value_sum: W of the child; Q = W / N.
        visits: N of the child; an unvisited child scores +inf.
        parent_visits: N of the parent, at least 1 where the child was visited.
        exploration: c, in units of the value.

    Example:
        >>> uct(1.0, 2, 4, 0.0)
        0.5
    """
    if visits == 0:
        return math.inf
    return value_sum / visits + exploration * math.sqrt(math.log(parent_visits) / visits)


def uct_published(
    value_sum: float,
    visits: int,
    parent_visits: int,
    exploration: float,
    *,
    negative_phase: bool = False,
) -> float:
    """The form in GroundedPRM's released code: s·W + c·sqrt(ln(N(parent)+1) / (N(child)+1)).

    For reproduction only. W is a sum, not a mean, and there N leaves out a node's own simulation;
    s is -1 while wrong paths are collected.
    """
    sign = -1.0 if negative_phase else 1.0
    return sign * value_sum + exploration * math.sqrt(math.log(parent_visits + 1) / (visits + 1))


def puct(value: float, prior: float, visits: int, parent_visits: int) -> float:
    """PUCT as openr writes it: Q + P·(ln((N(parent)+base+1)/base) + init)·sqrt(N(parent))/(N+1).

    Args:
        value: Q of the child; for an unvisited child its first estimate, a prior belief.
        prior: P, the child's share of the prior.
        visits: N of the child.
        parent_visits: N of the parent.
    """
    rate = math.log((parent_visits + PUCT_BASE + 1) / PUCT_BASE) + PUCT_INIT
    return value + prior * rate * math.sqrt(parent_visits) / (visits + 1)
