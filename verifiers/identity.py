"""Equality of expressions by exact evaluation at rational points.

One point where both sides are defined and provably differ settles the matter, and the point is the
witness. Agreement at many points is evidence: for polynomials and rational functions of the size
met here the chance of an accident is below 1e-12.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from .parser.enclose import compare
from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node, free_names

__all__ = ["Sampled", "compare_values", "sample", "sample_points"]

MIN_POINTS = 5
MAX_POINTS = 28


@dataclass(frozen=True, slots=True)
class Sampled:
    """Outcome of a comparison by points.

    Attributes:
        equal: False with a witness, True where ``points`` points agree, None where too few could
            be evaluated.
        witness: Values of the variables where the sides differ.
        points: Points at which both sides were defined.
        reason: Why it is undecided.
    """

    equal: bool | None
    witness: tuple[tuple[str, Fraction], ...] = ()
    points: int = 0
    reason: str = ""


def compare_values(left: Node, right: Node, env: dict[str, Fraction] | None = None) -> int | None:
    """Compare two sides at one point: exactly where possible, else by enclosures.

    Raises:
        NoValue: Where either has no real value.
    """
    try:
        a, b = evaluate(left, env), evaluate(right, env)
    except NoValue as problem:
        if problem.reason not in ("irrational", "unsupported"):
            raise
        return compare(left, right, env)
    return (a > b) - (a < b)


def sample_points(names: list[str]) -> Iterator[dict[str, Fraction]]:
    """Deterministic points: rationals of both signs, positive ones, and positive integers."""
    seed = zlib.crc32(" ".join(names).encode())
    draw = random.Random(seed)
    for i in range(MAX_POINTS):
        env: dict[str, Fraction] = {}
        for name in names:
            if i % 4 == 3:
                env[name] = Fraction(draw.randint(2, 12))
            else:
                value = Fraction(draw.randint(1, 97), draw.choice((7, 11, 13, 29, 31)))
                env[name] = -value if i % 4 == 1 and draw.random() < 0.6 else value
        yield env


def _wide_points(names: list[str], left: Node, right: Node) -> Iterator[dict[str, Fraction]]:
    """Points beyond every number that stands in the two sides, under all signs of their names.

    ``|x + 100|`` is ``x + 100`` at all small x; pieces meet where a literal says so.
    """
    largest = max(
        (abs(n.value) for side in (left, right) for n in side.walk()
         if n.kind == "num" and isinstance(n.value, Fraction)),
        default=Fraction(1),
    )  # fmt: skip
    reach = 2 * math.ceil(min(largest, Fraction(10**30))) + 3
    for signs in range(1 << min(len(names), 4)):
        for step in (1, 40):
            yield {
                name: Fraction((-1 if signs >> i & 1 else 1) * (reach * step + 7 * i) * 11 + 1, 11)
                for i, name in enumerate(names)
            }


def sample(left: Node, right: Node) -> Sampled:
    """Compare two expressions at rational points of their variables."""
    names = sorted(free_names(left) | free_names(right))
    if not names:
        try:
            order = compare_values(left, right)
        except NoValue as problem:
            return Sampled(None, reason=problem.reason)
        if order is None:
            return Sampled(None, reason="undecided")
        return Sampled(order == 0, points=1)
    agreed = 0
    reason = ""
    for env in sample_points(names):
        try:
            order = compare_values(left, right, env)
        except NoValue as problem:
            reason = problem.reason
            if reason == "limit" and agreed == 0 and env[names[0]].denominator != 1:
                continue
            continue
        if order is None:
            continue
        if order != 0:
            return Sampled(False, tuple(sorted(env.items())), agreed + 1)
        agreed += 1
        if agreed >= 9:
            break
    if agreed >= MIN_POINTS:
        for env in _wide_points(names, left, right):
            try:
                order = compare_values(left, right, env)
            except NoValue:
                continue
            if order:
                return Sampled(False, tuple(sorted(env.items())), agreed + 1)
        return Sampled(True, points=agreed)
    return Sampled(None, points=agreed, reason=reason or "undecided")
