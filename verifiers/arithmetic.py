"""Judging closed equations and inequalities between the sides of a chain.

A link is supported when one natural reading of both sides holds under the tolerance rules, and
refuted only when none does and nothing was cut off. The readings are few and named, and the one
that decided stands in the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from .dimensions import mixes_measures, near_in_units, other_power, unit_verdict
from .parser.enclose import compare, enclose
from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node, strip
from .parser.vocabulary import MAGNITUDES
from .readings import Cues, counts_cents, readings

__all__ = [
    "Judgement",
    "Value",
    "has_operation",
    "judge_link",
    "literal_of",
    "value_of",
]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Outcome of one link: ``holds`` is True, False or None (cannot tell).

    ``left`` and ``right`` are the values of the two sides, the witness of a refutation.
    """

    holds: bool | None
    reason: str
    reading: str = ""
    exact: bool = True
    left: str = ""
    right: str = ""


_TRIVIAL = frozenset({"num", "paren", "money", "qty", "neg", "pct", "mag", "deg"})


def has_operation(node: Node) -> bool:
    """True where the side computes something, rather than naming a number."""
    return any(n.kind not in _TRIVIAL for n in node.walk())


def literal_of(node: Node) -> tuple[int, Fraction] | None:
    """Return (shown places, scale) of a side that is a lone number, else None.

    Scale is what one unit of the literal is worth: 1/100 for a percent, 10^6 for "million".
    """
    scale = Fraction(1)
    while node.kind != "num":
        if node.kind == "pct":
            scale /= 100
        elif node.kind == "mag":
            scale *= MAGNITUDES[str(node.value)]
        elif node.kind not in ("paren", "money", "qty", "neg", "deg"):
            return None
        node = node.args[0]
    value = node.value
    assert isinstance(value, Fraction)
    if value.denominator != 1 and node.places < 0:
        return None  # a mixed number or ½ is exact
    return node.places, scale


class Value:
    """A side's value as an exact rational or a narrow enclosure."""

    __slots__ = ("high", "low")

    def __init__(self, low: Fraction, high: Fraction) -> None:
        self.low = low
        self.high = high

    @property
    def exact(self) -> bool:
        return self.low == self.high


def value_of(node: Node) -> Value:
    """Return the value of a closed side.

    Raises:
        NoValue: Where there is none.
    """
    try:
        value = evaluate(node)
        return Value(value, value)
    except NoValue as problem:
        if problem.reason not in ("irrational", "unsupported"):
            raise
    low, high = enclose(node, 40)
    return Value(low, high)


def _agrees(left: Node, right: Node, lv: Value, rv: Value, cues: Cues) -> bool | None:
    """Does left equal right under the tolerance rules; None where rounding could explain it."""
    if lv.exact and rv.exact:
        if lv.low == rv.low:
            return True
    elif lv.high >= rv.low and rv.high >= lv.low:
        try:
            return True if compare(left, right) == 0 else None
        except NoValue:
            return None
    gap = max(rv.low - lv.high, lv.low - rv.high)  # distance between the two, exact up to 1e-30
    lit_l, lit_r = literal_of(left), literal_of(right)
    if lit_l is not None and lit_r is None:
        lit_r, lv, rv = lit_l, rv, lv
        left, right = right, left
        lit_l = None
    if lit_l is not None and lit_r is not None:
        if lit_l[0] == lit_r[0]:
            return None if cues.approximate else False
        # two literals: the one with fewer digits may be a rounding of the other
        coarse = lit_l if lit_l[0] < lit_r[0] else lit_r
        if coarse[0] >= 1:
            return _within(gap, coarse, lv, cues)
        return (
            (gap < coarse[1] or None) if cues.approximate else (None if gap < coarse[1] else False)
        )
    if lit_r is not None:
        return _rounded(gap, lit_r, left, lv, rv, cues)
    # expression against expression: only rounded operands can excuse a difference
    size = max(abs(lv.low), abs(rv.low), Fraction(1, 1000))
    rounded = _has_decimal(left, 2) or _has_decimal(right, 2)
    if rounded and gap * 1000 <= size:
        return True if cues.approximate else None
    if (rounded or cues.approximate) and gap * 100 <= size:
        return None
    return False


def _within(gap: Fraction, literal: tuple[int, Fraction], other: Value, cues: Cues) -> bool | None:
    places, scale = literal
    step = scale / Fraction(10) ** places
    if places == 1:
        if gap * 2 <= step:
            return True
        return None if cues.approximate and gap < step else False
    return gap < step


def _rounded(
    gap: Fraction, literal: tuple[int, Fraction], expression: Node, lv: Value, rv: Value, cues: Cues
) -> bool | None:
    """An expression's value against a literal that may be a rounding of it."""
    places, scale = literal
    size = max(abs(lv.low), abs(rv.low))
    if places >= 1:
        near = _within(gap, literal, lv, cues)
        if near is not False:
            return near
        if cues.approximate and gap * 100 <= size:
            return True
        if _has_decimal(expression, 2) and gap * 200 <= size:
            return None  # operands were rounded before
        return False
    if lv.exact and lv.low.denominator == 1 and scale == 1:
        # integers on both sides: no approximation, except far-away rounding said in words
        if cues.approximate and gap * 100 <= size and size >= 100:
            return True
        return None if cues.approximate and gap * 20 <= size else False
    if gap < scale:
        if cues.approximate:
            return True
        if cues.floor and lv.high > rv.low:
            return True
        return None
    if gap * 100 <= size and size >= 100 * scale:
        return True if cues.approximate else (None if _has_decimal(expression, 1) else False)
    if cues.approximate and gap * 20 <= size:
        return None
    if _has_decimal(expression, 2) and gap * 100 <= size:
        return None
    return False


def _has_decimal(node: Node, places: int) -> bool:
    return any(n.kind == "num" and n.places >= places for n in node.walk())


# -- the judge --------------------------------------------------------------------------------
def _holds(left: Node, relation: str, right: Node, cues: Cues) -> tuple[bool | None, bool]:
    """(holds, exact): evaluates both sides and applies the relation."""
    lv, rv = value_of(left), value_of(right)
    exact = lv.exact and rv.exact
    if relation in ("=", "≈"):
        if relation == "≈":
            cues = Cues(True, cues.floor, cues.magnitudes)
        return _agrees(left, right, lv, rv, cues), exact
    if exact or lv.high < rv.low or rv.high < lv.low:
        a, b = lv.low, rv.low
        return {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "!=": a != b}[relation], exact
    same = compare(left, right)
    if same == 0:
        return relation in ("<=", ">="), False
    return None, False


def judge_link(
    left: Node,
    relation: str,
    right: Node,
    cues: Cues,
    *,
    variants: Iterator[tuple[Node, Node, str]] | None = None,
) -> Judgement:
    """Judge one closed link under its natural readings.

    Args:
        left, right: Closed trees.
        relation: One of = ≈ < > <= >= !=.
        cues: What the sentence says about rounding.
        variants: Further readings that only the caller can see (other brackets, a cut number).

    Returns:
        ``holds`` True where a reading holds, False where every reading fails, else None.
    """
    unsure = ""
    try:
        holds, exact = _holds(left, relation, right, cues)
        shown = f"{_show(left)} {relation} {_show(right)}"
    except NoValue as problem:
        return Judgement(None, problem.reason)
    units = None
    if relation in ("=", "≈") and (_has(left, "qty") or _has(right, "qty")):
        units = unit_verdict(left, right)
    if units is not None and units[1]:
        if units[0]:
            return Judgement(True, "equal", "units: " + shown, exact)
        if holds is not None and not near_in_units(left, right, approximate=cues.approximate):
            return Judgement(False, "unequal", "units: " + shown, exact)
        return Judgement(None, "rounding", "units: " + shown, exact)
    # a sum of money and hours, or of feet and inches taken as bare numbers, proves nothing
    mixed = mixes_measures(left) or mixes_measures(right)
    if units is not None and not units[0]:  # "15 cents × 200 = $3000"
        mixed = mixed or (
            counts_cents(left) != counts_cents(right) and not _by_hundred(left, right)
        )
    mixed = mixed or other_power(left, right)
    if holds and not mixed:
        return Judgement(True, "equal" if relation in ("=", "≈") else "holds", shown, exact)
    if relation not in ("=", "≈"):
        if holds is None or mixed:
            return Judgement(None, "mixed_units" if mixed else "undecided", shown, exact)
        return Judgement(False, "fails", shown, exact)
    if units is not None and units[0]:
        return Judgement(True, "equal", "units: " + shown, exact)
    if holds is None:
        unsure = "rounding"

    def others() -> Iterator[tuple[Node, Node, str]]:
        yield from readings(left, right, cues)
        if variants is not None:
            yield from variants

    for other_left, other_right, label in others():
        try:
            again, exact_again = _holds(other_left, relation, other_right, cues)
        except NoValue:
            continue
        if again and (not mixed or label in ("percent_of_it", "cents")):
            text = f"{label}: {_show(other_left)} {relation} {_show(other_right)}"
            return Judgement(True, "equal", text, exact_again)
        if again is None:
            unsure = unsure or "rounding"
    if unsure or mixed:
        return Judgement(None, "mixed_units" if mixed else unsure, shown, exact)
    return Judgement(False, "unequal", shown, exact, _worked_out(left), _worked_out(right))


def _by_hundred(left: Node, right: Node) -> bool:
    """True where a bare factor turns dollars into cents: ``$2.65 * 100 = 265 cents``."""
    hundred = Fraction(100)
    return any(n.kind == "num" and n.value == hundred for s in (left, right) for n in s.walk())


def _worked_out(node: Node) -> str:
    """Return a side's value for the record: a witness that a reader can check."""
    try:
        value = value_of(strip(node))
    except NoValue:
        return ""
    text = str(value.low)
    return text if value.exact and len(text) <= 60 else ""


def _has(node: Node, kind: str) -> bool:
    return any(n.kind == kind for n in node.walk())


def _show(node: Node) -> str:
    from .parser.nodes import render

    return render(strip(node))[:300]
