"""Rigorous enclosures of irrational values.

A closed expression is enclosed between two rationals. Two disjoint enclosures prove that the
values differ; enclosures that still meet at 200 digits are taken as equal, which is evidence and
no proof. Magnitudes are bounded before any function is called.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from .evaluate import MAX_TERMS, NoValue, evaluate
from .nodes import Node
from .vocabulary import MAGNITUDES

__all__ = ["compare", "enclose"]

_MAX_EXPONENT = 20_000
_MAX_ANGLE_BITS = 3_000
MAX_PART_DIGITS = 10_000
_local = threading.local()


def _context(digits: int) -> Any:
    """Return this thread's interval context; mpmath's global one is shared and not safe."""
    if not hasattr(_local, "iv"):
        from mpmath.ctx_iv import MPIntervalContext
        from mpmath.ctx_mp import MPContext

        _local.iv = MPIntervalContext()
        _local.mp = MPContext()
    _local.iv.prec = int(digits * 3.33) + 20
    _local.mp.prec = _local.iv.prec + 20
    return _local.iv


def _fraction(endpoint: Any) -> Fraction:
    """The exact rational value of an interval's endpoint (a binary float of any length)."""
    raw = endpoint._mpi_[0]
    sign, mantissa, exponent, _ = raw
    if not mantissa and exponent:
        raise NoValue("limit")  # infinite endpoint
    if abs(int(exponent)) > 60_000:
        raise NoValue("limit")
    value = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -value if sign else value


def enclose(
    node: Node, digits: int = 40, env: Mapping[str, Fraction] | None = None
) -> tuple[Fraction, Fraction]:
    """Return rationals between which the value of a closed real expression lies.

    Raises:
        NoValue: Where the value is not real, not defined, too large or unknown.
    """
    context = _context(digits)
    try:
        encloser = _Encloser(context, _local.mp, env)
        # the exact evaluator takes degrees as plain numbers: no short cut where they occur
        encloser.angles = any(n.kind == "deg" for n in node.walk())
        value = encloser.visit(node)
        return _fraction(value.a), _fraction(value.b)
    except NoValue:
        raise
    except (ArithmeticError, ValueError, TypeError, NotImplementedError, AttributeError):
        # mpmath signals domains and poles in several ways
        raise NoValue("undefined") from None


class _Encloser:
    def __init__(self, iv: Any, mp: Any, env: Mapping[str, Fraction] | None) -> None:
        self.iv = iv
        self.mp = mp
        self.env = env
        self.angles = False

    def rational(self, value: Fraction) -> Any:
        if value.denominator == 1:
            return self.iv.mpf(value.numerator)
        return self.iv.mpf(value.numerator) / self.iv.mpf(value.denominator)

    def visit(self, node: Node) -> Any:
        if node.kind == "deg":
            return self.visit(node.args[0]) * self.iv.pi / 180
        if self.angles and node.args and node.kind not in ("pct", "num"):
            return self.compound(node)
        try:
            return self.rational(evaluate(node, self.env))
        except NoValue as problem:
            if problem.reason in ("free_variable", "undefined") and node.kind in ("name", "call"):
                raise
            if not node.args and node.kind != "const":
                raise
        return self.compound(node)

    def compound(self, node: Node) -> Any:
        kind, args = node.kind, node.args
        if kind == "const":
            if node.value == "pi":
                return self.iv.pi
            if node.value == "e":
                return self.iv.e
            raise NoValue("unsupported")
        if kind in ("paren", "frac", "money", "qty"):
            return self.visit(args[0])
        if kind == "neg":
            return -self.visit(args[0])
        if kind == "pct":
            return self.visit(args[0]) / 100
        if kind == "mag":
            return self.visit(args[0]) * self.rational(MAGNITUDES[str(node.value)])
        if kind in ("add", "sub", "mul", "of", "div"):
            left, right = self.visit(args[0]), self.visit(args[1])
            if kind == "add":
                return self.sized(left + right)
            if kind == "sub":
                return self.sized(left - right)
            if kind == "div":
                if 0 in right:
                    raise NoValue("undefined")
                return self.sized(left / right)
            return self.sized(left * right)
        if kind == "pow":
            return self.power(args[0], args[1])
        if kind == "call":
            return self.call(str(node.value), args)
        if kind == "sum" or kind == "prod":
            return self.series(node)
        raise NoValue("unsupported")

    def sized(self, value: Any) -> Any:
        magnitude = value._mpi_[1]
        if abs(int(magnitude[2]) + int(magnitude[3])) > 60_000 and magnitude[1]:
            raise NoValue("limit")
        return value

    def power(self, base_node: Node, exponent_node: Node) -> Any:
        exponent = self.visit(exponent_node)
        if base_node.kind == "const" and base_node.value == "e":
            return self.exp(exponent)
        base = self.visit(base_node)
        try:
            exact: Fraction | None = evaluate(exponent_node, self.env)
        except NoValue:
            exact = None
        if exact is not None and exact.denominator == 1:
            power = exact.numerator
            if abs(power) > _MAX_EXPONENT:
                raise NoValue("limit")
            if power < 0 and 0 in base:
                raise NoValue("undefined")
            return self.sized(base**power)
        if base.a <= 0:
            if exact is not None and base.b < 0 and exact.denominator % 2 == 1:
                raise NoValue("unsupported")
            raise NoValue("undefined")
        return self.exp(exponent * self.iv.log(base))

    def exp(self, value: Any) -> Any:
        if value.b > _MAX_EXPONENT or value.a < -_MAX_EXPONENT:
            raise NoValue("limit")
        return self.iv.exp(value)

    def call(self, function: str, args: tuple[Node, ...]) -> Any:
        if function in ("gcd", "lcm", "floor", "ceil", "binom", "det") or not args:
            raise NoValue("unsupported")
        values = [self.visit(arg) for arg in args]
        x = values[0]
        if function == "sqrt":
            if x.a < 0:
                raise NoValue("unsupported" if x.b < 0 else "undefined")
            return self.iv.sqrt(x)
        if function == "root":
            return self.power(args[0], Node("div", (Node("num", (), Fraction(1)), args[1])))
        if function == "abs":
            return abs(x)
        if function in ("max", "min"):
            ends = [(value.a, value.b) for value in values]
            pick = max if function == "max" else min
            low, high = pick(end[0] for end in ends), pick(end[1] for end in ends)
            return self.iv.mpf([low, high])
        if function == "mean":
            return sum(values[1:], values[0]) / len(values)
        if function in ("sin", "cos", "tan", "sec", "csc", "cot"):
            if abs(x).b > 2**_MAX_ANGLE_BITS:
                raise NoValue("limit")
            if abs(x).b > 2**40:
                raise NoValue("limit")
            sin, cos = self.iv.sin(x), self.iv.cos(x)
            top, bottom = {
                "sin": (sin, None), "cos": (cos, None), "tan": (sin, cos), "cot": (cos, sin),
                "sec": (self.iv.mpf(1), cos), "csc": (self.iv.mpf(1), sin),
            }[function]  # fmt: skip
            if bottom is None:
                return top
            if 0 in bottom:
                raise NoValue("undefined")
            return top / bottom
        if function in ("ln", "log"):
            if x.a <= 0:
                raise NoValue("undefined")
            value = self.iv.log(x)
            if function == "ln":
                return value
            base = values[1] if len(values) == 2 else self.iv.mpf(10)
            if base.a <= 0 or 1 in base:
                raise NoValue("undefined")
            return value / self.iv.log(base)
        if function in ("sinh", "cosh", "tanh"):
            up, down = self.exp(x), self.exp(-x)
            if function == "sinh":
                return (up - down) / 2
            return (up + down) / 2 if function == "cosh" else (up - down) / (up + down)
        if function in ("asin", "acos", "atan"):
            return self.inverse(function, x)
        raise NoValue("free_variable")

    def inverse(self, function: str, x: Any) -> Any:
        """Inverse trigonometry: monotone, so the endpoints' images, widened by a rounding step."""
        if function != "atan" and (x.a < -1 or x.b > 1):
            raise NoValue("unsupported")
        ends = []
        for end in (x.a, x.b):
            value = _fraction(end)
            point = self.mp.mpf(value.numerator) / self.mp.mpf(value.denominator)
            ends.append(getattr(self.mp, function)(point))
        low, high = min(ends), max(ends)
        slack = self.mp.mpf(2) ** (-self.iv.prec + 4)
        return self.iv.mpf([low - slack, high + slack])

    def series(self, node: Node) -> Any:
        body, low_node, high_node = node.args
        low, high = evaluate(low_node, self.env), evaluate(high_node, self.env)
        if low.denominator != 1 or high.denominator != 1 or high - low > MAX_TERMS // 10:
            raise NoValue("limit")
        total = self.iv.mpf(0 if node.kind == "sum" else 1)
        inner = dict(self.env or {})
        for k in range(low.numerator, high.numerator + 1):
            inner[str(node.value)] = Fraction(k)
            value = _Encloser(self.iv, self.mp, inner).visit(body)
            total = self.sized(total + value if node.kind == "sum" else total * value)
        return total


def _digits_of_parts(sides: tuple[Node, Node], env: Mapping[str, Fraction] | None) -> int:
    """Digits at which the smallest and the largest power or function in the sides would show."""
    most = 0
    for side in sides:
        for node in side.walk():
            if node.kind not in ("pow", "call"):
                continue
            try:
                low, high = enclose(node, 30, env)
            except NoValue:
                continue
            for end in (low, high):
                bits = abs(end.numerator.bit_length() - end.denominator.bit_length())
                most = max(most, bits * 3 // 10 + 60 if end else 0)
    return most


def compare(left: Node, right: Node, env: Mapping[str, Fraction] | None = None) -> int | None:
    """Compare two closed real expressions.

    Returns:
        -1, 1 where the enclosures are disjoint (proven), 0 where they still meet at 200 digits, or
        at as many as the smallest part needs, with a width far below the values' size.

    Raises:
        NoValue: As :func:`enclose`.
    """
    digits = 30
    for digits in (30, 80, 200):
        low_a, high_a = enclose(left, digits, env)
        low_b, high_b = enclose(right, digits, env)
        if high_a < low_b:
            return -1
        if high_b < low_a:
            return 1
    needed = _digits_of_parts((left, right), env)
    if needed > MAX_PART_DIGITS:
        return None
    if needed > digits:  # 1 + e^-1000 is not 1
        low_a, high_a = enclose(left, needed, env)
        low_b, high_b = enclose(right, needed, env)
        if high_a < low_b or high_b < low_a:
            return -1 if high_a < low_b else 1
    width = max(high_a - low_a, high_b - low_b)
    size = max(abs(low_a), abs(high_a), abs(low_b), abs(high_b))
    if size == 0 or width <= size / 10**100 or width <= Fraction(1, 10**150):
        return 0
    return None
