"""Judging closed equations and inequalities between the sides of a chain.

A link is supported when one natural reading of both sides holds under the tolerance rules, and
refuted only when none does and nothing was cut off. The readings are few and named, and the one
that decided stands in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from .parser.enclose import compare, enclose
from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node, strip
from .parser.units import Quantity, multiply, parse_unit
from .parser.vocabulary import MAGNITUDES

__all__ = [
    "Cues",
    "Judgement",
    "Value",
    "has_operation",
    "judge_link",
    "literal_of",
    "transform",
    "value_of",
]


@dataclass(frozen=True, slots=True)
class Cues:
    """What the sentence around a link says.

    Attributes:
        approximate: about, roughly, rounded, nearest, ≈.
        floor: remainder, left over, full, whole, cut off.
        thousand: Magnitude words that stand in the sentence.
    """

    approximate: bool = False
    floor: bool = False
    magnitudes: tuple[Fraction, ...] = ()


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


def transform(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Return a copy with nodes replaced where ``change`` returns one."""
    new = change(node)
    if new is not None:
        return new
    if not node.args:
        return node
    args = tuple(transform(arg, change) for arg in node.args)
    return Node(node.kind, args, node.value, node.places, node.span)


def _drop(kind: str) -> Callable[[Node], Node | None]:
    def change(node: Node) -> Node | None:
        if node.kind == kind:
            return transform(node.args[0], change)
        return None

    return change


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


# -- readings ---------------------------------------------------------------------------------
def _kinds(node: Node) -> set[str]:
    return {n.kind for n in node.walk()}


def _top_kind(node: Node, kind: str) -> bool:
    while node.kind in ("paren", "neg", "money", "qty") and node.kind != kind:
        node = node.args[0]
    return node.kind == kind


def _readings(left: Node, right: Node, cues: Cues) -> Iterator[tuple[Node, Node, str]]:
    """Further natural readings of a link, each only where the text offers it."""
    kl, kr = _kinds(left), _kinds(right)
    if "pct" in kl or "pct" in kr:
        bare_l, bare_r = transform(left, _drop("pct")), transform(right, _drop("pct"))
        if "pct" in kl and "pct" in kr:
            yield bare_l, bare_r, "percent_as_number"
        if "pct" in kr:
            yield left, bare_r, "percent_as_number"
        if "pct" in kl:
            yield bare_l, right, "percent_as_number"
    if "fact" in kr and right.kind == "fact" and right.args[0].kind == "num":
        yield left, right.args[0], "exclamation"
    if "mag" in kl or "mag" in kr:
        if "mag" in kl and "mag" in kr:  # "1 + .5 + 1.5 dozen = 3 dozen"
            yield transform(left, _drop("mag")), transform(right, _drop("mag")), "bare_magnitude"
        if "mag" in kr:
            yield left, transform(right, _drop("mag")), "bare_magnitude"
        if "mag" in kl:
            yield transform(left, _drop("mag")), right, "bare_magnitude"
    elif cues.magnitudes:
        for factor in cues.magnitudes:
            scaled = Node("mul", (left, Node("num", (), factor)))
            yield scaled, right, "implied_magnitude"
    if "of" in kr and right.kind == "of":
        yield left, right.args[0], "part_of"
    if "qty" in kl or "qty" in kr:
        cents_l, cents_r = _cents(left), _cents(right)
        if cents_l != cents_r:
            hundred = Node("num", (), Fraction(100))
            if cents_l:
                yield Node("div", (left, hundred)), right, "cents"
            else:
                yield left, Node("div", (right, hundred)), "cents"


def _cents(node: Node) -> bool:
    return any(
        n.kind == "qty" and str(n.value).lower().startswith(("cent", "penn", "¢"))
        for n in node.walk()
    )


# -- units ------------------------------------------------------------------------------------
class _NoUnits(Exception):
    pass


def _with_units(node: Node) -> tuple[Fraction, Quantity]:
    """Value in base units and dimension; fails where a dimension does not fit."""
    kind = node.kind
    if kind == "qty":
        unit = parse_unit(str(node.value))
        value, inner = _with_units(node.args[0])
        if unit is None or inner[1]:
            raise _NoUnits
        return value * unit[0], (Fraction(1), unit[1])
    if kind == "money":
        value, inner = _with_units(node.args[0])
        sign = parse_unit(str(node.value))
        if sign is None or inner[1]:
            raise _NoUnits
        return value, (Fraction(1), sign[1])
    if kind in ("paren", "frac"):
        return _with_units(node.args[0])
    if kind == "neg":
        value, dim = _with_units(node.args[0])
        return -value, dim
    if kind in ("add", "sub"):
        (a, da), (b, db) = _with_units(node.args[0]), _with_units(node.args[1])
        if da[1] != db[1]:
            raise _NoUnits
        return (a + b if kind == "add" else a - b), da
    if kind in ("mul", "of"):
        (a, da), (b, db) = _with_units(node.args[0]), _with_units(node.args[1])
        return a * b, multiply(da, db)
    if kind == "div":
        below = node.args[1]
        if node.args[0].kind == "num" and below.kind == "qty" and below.args[0].kind == "num":
            # "42/60 hours": the unit belongs to the fraction
            fraction = Node("div", (node.args[0], below.args[0]))
            return _with_units(Node("qty", (fraction,), below.value))
        (a, da), (b, db) = _with_units(node.args[0]), _with_units(node.args[1])
        if b == 0:
            raise _NoUnits
        inverse = (Fraction(1), tuple((base, -e) for base, e in db[1]))
        return a / b, multiply(da, inverse)
    try:
        return evaluate(node), (Fraction(1), ())
    except NoValue:
        raise _NoUnits from None


def _unit_verdict(left: Node, right: Node) -> tuple[bool, bool] | None:
    """(equal in base units, whether a conversion was needed); None where units do not apply."""
    try:
        (a, da), (b, db) = _with_units(left), _with_units(right)
    except (_NoUnits, OverflowError):
        return None
    if not da[1] or da[1] != db[1]:
        return None
    return a == b, _mixes_units(left, right)


def _mixes_units(left: Node, right: Node) -> bool:
    """True where both sides name different units of one dimension without any bare factor."""
    names = [str(n.value).lower() for side in (left, right) for n in side.walk() if n.kind == "qty"]
    factors = {unit[0] for unit in map(parse_unit, names) if unit is not None}
    if len(factors) < 2:
        return False
    # "3 hours * 60 = 180 minutes" converts with a bare factor; then the bare reading decides
    for side in (left, right):
        for n in side.walk():
            if n.kind in ("mul", "div", "of"):
                return False
    return True


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
        units = _unit_verdict(left, right)
    if units is not None and units[1]:
        if units[0]:
            return Judgement(True, "equal", "units: " + shown, exact)
        if holds is not None and not _near_in_units(left, right, cues):
            return Judgement(False, "unequal", "units: " + shown, exact)
        return Judgement(None, "rounding", "units: " + shown, exact)
    if holds:
        return Judgement(True, "equal" if relation in ("=", "≈") else "holds", shown, exact)
    if relation not in ("=", "≈"):
        if holds is None:
            return Judgement(None, "undecided", shown, exact)
        return Judgement(False, "fails", shown, exact)
    if units is not None and units[0]:
        return Judgement(True, "equal", "units: " + shown, exact)
    if holds is None:
        unsure = "rounding"

    def others() -> Iterator[tuple[Node, Node, str]]:
        yield from _readings(left, right, cues)
        if variants is not None:
            yield from variants

    for other_left, other_right, label in others():
        try:
            again, exact_again = _holds(other_left, relation, other_right, cues)
        except NoValue:
            continue
        if again:
            text = f"{label}: {_show(other_left)} {relation} {_show(other_right)}"
            return Judgement(True, "equal", text, exact_again)
        if again is None:
            unsure = unsure or "rounding"
    if unsure:
        return Judgement(None, unsure, shown, exact)
    return Judgement(False, "unequal", shown, exact, _worked_out(left), _worked_out(right))


def _worked_out(node: Node) -> str:
    """Return a side's value for the record: a witness that a reader can check."""
    try:
        value = value_of(strip(node))
    except NoValue:
        return ""
    text = str(value.low)
    return text if value.exact and len(text) <= 60 else ""


def _near_in_units(left: Node, right: Node, cues: Cues) -> bool:
    try:
        (a, _), (b, _) = _with_units(left), _with_units(right)
    except _NoUnits:
        return True
    size = max(abs(a), abs(b))
    return abs(a - b) * (20 if cues.approximate else 100) <= size


def _has(node: Node, kind: str) -> bool:
    return any(n.kind == kind for n in node.walk())


def _show(node: Node) -> str:
    from .parser.nodes import render

    return render(strip(node))[:300]
