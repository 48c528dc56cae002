"""Which child to visit next: the selection scores of the published tree searches.

All are pure functions of counts. Ties, infinities included, go to the child created first, so a
search is deterministic (groundedprm.md §1.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from treerl.tree import Node

__all__ = [
    "PUBLISHED_EXPLORATION",
    "PriorKind",
    "Selection",
    "prior_shares",
    "puct",
    "ucb_restmcts",
    "uct",
    "uct_published",
]

Selection = Literal["uct", "uct_published", "puct", "restmcts"]
"""The selection scores by name."""

PriorKind = Literal["multiplicity", "uniform", "logprob"]
"""What PUCT's prior is made of; see :func:`prior_shares`."""

PUBLISHED_EXPLORATION = {"uct": 1.414, "uct_published": 1.8, "restmcts": 0.7}
"""The constant c that each score was published with; PUCT's rate has none."""

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


def ucb_restmcts(
    value: float,
    visits: int,
    parent_visits: int,
    exploration: float = 0.7,
    first_bonus: float = 1.0,
) -> float:
    """The bound of ReST-MCTS*, V + c·sqrt(2·ln N(parent) / N(child)); unvisited V + 1.

    An unvisited child does not win by itself: a visited one with a large bonus can come first.

    Args:
        value: V of the child in [0, 1], known before its first visit.
        visits: N of the child.
        parent_visits: N of the parent, at least 1 where the child was visited.
        exploration: c.
        first_bonus: Takes the place of the second term for an unvisited child.
    """
    if visits == 0:
        return value + first_bonus
    return value + exploration * math.sqrt(2.0 * math.log(parent_visits) / visits)


def prior_shares(children: Sequence[Node], kind: PriorKind = "multiplicity") -> list[float]:
    """Return P of each child; the shares of siblings that were sampled sum to 1.

    Args:
        children: All children of one node.
        kind: "multiplicity": the share of the node's samples that the child stands for, an unbiased
            estimate of the policy's own probability; "uniform": the same for all; "logprob": the
            share of exp(mean log-prob of the step's tokens), which is openr's prior and favours
            steps by how sure the policy is of each token, whatever their length. Failed requests
            get 0.
    """
    if kind == "multiplicity":
        weights = [float(child.multiplicity) for child in children]
    elif kind == "uniform":
        weights = [float(child.error is None) for child in children]
    else:
        weights = [
            math.exp(sum(child.logprobs) / len(child.logprobs)) if child.logprobs else 0.0
            for child in children
        ]
        weights = [
            0.0 if c.error is not None else w for c, w in zip(children, weights, strict=True)
        ]
    total = sum(weights)
    return [weight / total if total else 0.0 for weight in weights]
