"""Units in sums and products: values in base units, and sums of what cannot be added."""

from __future__ import annotations

from fractions import Fraction

from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node
from .parser.units import Quantity, multiply, parse_unit

__all__ = ["mixes_measures", "near_in_units", "other_power", "unit_verdict"]


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


def unit_verdict(left: Node, right: Node) -> tuple[bool, bool] | None:
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


def near_in_units(left: Node, right: Node, *, approximate: bool) -> bool:
    """True where two quantities are so close that rounding may explain the difference."""
    try:
        (a, _), (b, _) = _with_units(left), _with_units(right)
    except _NoUnits:
        return True
    size = max(abs(a), abs(b))
    return abs(a - b) * (20 if approximate else 100) <= size


def other_power(left: Node, right: Node) -> bool:
    """True where a product of lengths is given as a length: ``5 m * 3 m = 15 m``.

    Other products of one dimension are habits of speech: "5 days * 8 hours = 40 hours".
    """
    try:
        (_, (_, one)), (_, (_, two)) = _with_units(left), _with_units(right)
    except (_NoUnits, OverflowError):
        return False
    return [base for base, _ in one] == [base for base, _ in two] == ["length"] and one != two


Measure = str | Quantity
"""Percent, money, a noun, or a unit of the table."""


def mixes_measures(node: Node) -> bool:
    """True where a sum adds money to hours, feet to inches or a percentage to a number.

    Nouns that are no units may be added to each other: apples and oranges are fruit.
    """
    for n in node.walk():
        if n.kind not in ("add", "sub"):
            continue
        one, two = (_measure(arg) for arg in n.args)
        if one == "percent" or two == "percent":
            number = n.args[1] if one == "percent" else n.args[0]
            if one != two and not _is_share(number):
                return True
            continue
        told = [measure for measure in (one, two) if measure != "noun"]
        if one and two and one != two and (len(told) == 2 or "money" in told):
            return True
    return False


def _is_share(node: Node) -> bool:
    try:
        return abs(evaluate(node)) <= 1
    except NoValue:
        return True


def _measure(node: Node) -> Measure | None:
    """What one operand of a sum counts; None for a bare number, a rate or a product."""
    while node.kind in ("paren", "neg", "frac") or (
        node.kind == "qty" and node.args[0].kind in ("money", "pct")  # "$150 discount", "15% tip"
    ):
        node = node.args[0]
    if node.kind in ("add", "sub"):
        return _measure(node.args[0]) or _measure(node.args[1])
    if node.kind == "pct":
        return "percent"
    if node.kind == "money":
        return "money"
    if node.kind != "qty" or "/" in str(node.value):
        return None
    unit = parse_unit(str(node.value))
    if unit is None:
        return "noun"
    dollars = unit[1] == (("money", 1),) and unit[0] == 1
    return "money" if dollars else unit
