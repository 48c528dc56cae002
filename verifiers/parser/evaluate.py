"""Exact rational values of trees, with every result bounded before it is computed.

The size of an operand is known when an operation is about to run, so the size of its result is
bounded first and a tower such as ``9^9^9`` ends as :class:`NoValue` in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from .nodes import Node, free_names
from .vocabulary import MAGNITUDES, word_set

__all__ = [
    "MAX_BITS",
    "NoValue",
    "based_value",
    "evaluate",
    "evaluate_mod",
    "integer_root",
    "is_closed",
]

MAX_BITS = 12_000
"""Largest numerator or denominator, in bits: about 3,600 digits, below CPython's print limit."""
MAX_FACTORIAL = 1_000
MAX_TERMS = 1_000
MAX_BINOMIAL = 3_000


class NoValue(Exception):
    """A tree has no exact rational value here.

    Args:
        reason: "free_variable", "irrational", "limit", "undefined" or "unsupported".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _checked(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise NoValue("limit")
    return value


def integer_root(value: int, degree: int) -> int | None:
    """Return the exact non-negative ``degree``-th root of ``value`` >= 0, None if there is none."""
    if value < 0 or degree < 1:
        return None
    if degree == 1 or value < 2:
        return value
    if degree == 2:
        root = math.isqrt(value)
    else:
        if degree >= value.bit_length():
            return None
        root = 1 << -(-value.bit_length() // degree)
        while True:
            step = ((degree - 1) * root + value // root ** (degree - 1)) // degree
            if step >= root:
                break
            root = step
    return root if root**degree == value else None


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator == 1:
        power = exponent.numerator
        if base == 0:
            if power <= 0:
                raise NoValue("undefined")
            return Fraction(0)
        if base == 1:
            return base
        if base == -1:
            return Fraction(1 if power % 2 == 0 else -1)
        if power.bit_length() > 32 or abs(power) * max(_bits(base) - 1, 1) > MAX_BITS:
            raise NoValue("limit")
        return base**power
    if base < 0:
        raise NoValue("unsupported")
    degree = exponent.denominator
    if degree > 64:
        raise NoValue("irrational")
    top = integer_root(base.numerator, degree)
    bottom = integer_root(base.denominator, degree)
    if top is None or bottom is None:
        raise NoValue("irrational")
    return _power(Fraction(top, bottom), Fraction(exponent.numerator))


def based_value(text: str) -> Fraction:
    """Return the value of a literal such as ``204_5``; digits must fit the base."""
    digits, _, base_text = text.rpartition("_")
    base = int(base_text) if len(base_text) <= 2 else 99
    if not 2 <= base <= 36 or len(digits) > 200:
        raise NoValue("unsupported")
    whole, _, part = digits.partition(".")
    try:
        value = Fraction(int(whole or "0", base))
        if part:
            value += Fraction(int(part, base), base ** len(part))
    except ValueError:
        raise NoValue("undefined") from None
    return value


def evaluate(node: Node, env: Mapping[str, Fraction] | None = None) -> Fraction:
    """Return the exact value of a tree.

    Args:
        node: The tree; units and currency signs are passed through as factors of one.
        env: Values of variables.

    Raises:
        NoValue: Where the value is not rational, not defined, too large or not known.
    """
    kind = node.kind
    if kind == "num":
        return node.value  # type: ignore[return-value]
    args = node.args
    if kind in ("add", "sub", "mul", "of", "div"):
        left = evaluate(args[0], env)
        right = evaluate(args[1], env)
        if kind == "add":
            value = left + right
        elif kind == "sub":
            value = left - right
        elif kind == "div":
            if right == 0:
                raise NoValue("undefined")
            value = left / right
        else:
            value = left * right
        if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
            raise NoValue("limit")
        return value
    if kind in ("paren", "frac", "money", "qty", "deg"):
        # degrees count as themselves; only enclosures, which know angles, turn them to radians
        return evaluate(args[0], env)
    if kind == "neg":
        return -evaluate(args[0], env)
    if kind == "pct":
        return evaluate(args[0], env) / 100
    if kind == "pow":
        exponent = evaluate(args[1], env)
        if args[0].kind == "const" and args[0].value == "e":
            if exponent == 0:
                return Fraction(1)
            raise NoValue("irrational")
        return _power(evaluate(args[0], env), exponent)
    if kind == "name":
        if env is not None and node.value in env:
            return env[str(node.value)]
        raise NoValue("free_variable")
    if kind == "const":
        raise NoValue("undefined" if node.value == "inf" else "irrational")
    if kind == "mag":
        return _checked(evaluate(args[0], env) * MAGNITUDES[str(node.value)])
    if kind == "call":
        return _call(str(node.value), args, env)
    if kind == "fact":
        value = evaluate(args[0], env)
        if value.denominator != 1 or value < 0:
            raise NoValue("undefined")
        if value > MAX_FACTORIAL:
            raise NoValue("limit")
        return Fraction(math.factorial(value.numerator))
    if kind == "mod":
        return evaluate_mod(args[0], args[1], env)[0]
    if kind == "based":
        return based_value(str(node.value))
    if kind in ("sum", "prod"):
        return _series(node, env)
    raise NoValue("unsupported")


def evaluate_mod(
    node: Node, modulus: Node, env: Mapping[str, Fraction] | None = None
) -> tuple[Fraction, Fraction]:
    """Return (value reduced modulo the modulus, modulus); powers are reduced as they grow."""
    bound = evaluate(modulus, env)
    if bound.denominator != 1 or bound <= 0:
        raise NoValue("undefined")
    return Fraction(_reduce(node, bound.numerator, env)), bound


def _reduce(node: Node, modulus: int, env: Mapping[str, Fraction] | None) -> int:
    kind, args = node.kind, node.args
    if kind in ("paren", "money", "qty"):
        return _reduce(args[0], modulus, env)
    if kind == "pow":
        exponent = evaluate(args[1], env)
        if exponent.denominator != 1 or exponent < 0:
            raise NoValue("unsupported")
        return pow(_reduce(args[0], modulus, env), exponent.numerator, modulus)
    if kind == "neg":
        return -_reduce(args[0], modulus, env) % modulus
    if kind in ("add", "sub", "mul"):
        left, right = _reduce(args[0], modulus, env), _reduce(args[1], modulus, env)
        whole = left + right if kind == "add" else left - right if kind == "sub" else left * right
        return whole % modulus
    value = evaluate(node, env)
    if value.denominator != 1:
        try:
            return value.numerator * pow(value.denominator, -1, modulus) % modulus
        except ValueError:
            raise NoValue("undefined") from None
    return value.numerator % modulus


def _integers(values: list[Fraction]) -> list[int]:
    if any(value.denominator != 1 for value in values):
        raise NoValue("undefined")
    return [value.numerator for value in values]


def _call(function: str, args: tuple[Node, ...], env: Mapping[str, Fraction] | None) -> Fraction:
    if function == "det":
        return _determinant(args[0], env)
    values = [evaluate(arg, env) for arg in args]
    first = values[0]
    if function == "sqrt":
        if first < 0:
            raise NoValue("unsupported")
        return _power(first, Fraction(1, 2))
    if function == "root" and len(values) == 2:
        degree = values[1]
        if degree.denominator != 1 or not 2 <= degree <= 64:
            raise NoValue("unsupported")
        if first < 0 and degree % 2 == 1:
            return -_power(-first, 1 / degree)
        return _power(first, 1 / degree)
    if function == "abs":
        return abs(first)
    if function == "floor":
        return Fraction(math.floor(first))
    if function == "ceil":
        return Fraction(math.ceil(first))
    if function == "gcd" and len(values) >= 2:
        return Fraction(math.gcd(*_integers(values)))
    if function == "lcm" and len(values) >= 2:
        return _checked(Fraction(math.lcm(*_integers(values))))
    if function == "max" and len(values) >= 2:
        return max(values)
    if function == "min" and len(values) >= 2:
        return min(values)
    if function == "mean":
        return sum(values, Fraction(0)) / len(values)
    if function == "binom" and len(values) == 2:
        top, bottom = _integers(values)
        if top < 0 or bottom < 0:
            raise NoValue("undefined")
        if top > MAX_BINOMIAL and min(bottom, top - bottom) > 50:
            raise NoValue("limit")
        return _checked(Fraction(math.comb(top, bottom)))
    if function == "log" and len(values) == 2:
        return _logarithm(first, values[1])
    if function == "log" and len(values) == 1:
        return _logarithm(first, Fraction(10))
    if function == "ln" and first == 1:
        return Fraction(0)
    if function in _TRANSCENDENTAL:
        if first == 0 and function in ("sin", "tan", "asin", "atan", "sinh", "tanh"):
            return Fraction(0)
        if first == 0 and function in ("cos", "sec", "cosh"):
            return Fraction(1)
        raise NoValue("irrational")
    raise NoValue("free_variable")


_TRANSCENDENTAL = word_set("""sin cos tan sec csc cot asin acos atan sinh cosh tanh ln log exp""")


def _logarithm(value: Fraction, base: Fraction) -> Fraction:
    """Exact logarithm where value and base are powers of one rational."""
    if value <= 0 or base <= 0 or base == 1:
        raise NoValue("undefined")
    if value == 1:
        return Fraction(0)
    estimate = _log2(value) / _log2(base)
    for below in range(1, 13):
        top = round(estimate * below)
        if top and abs(estimate * below - top) < 1e-9:
            if _bits(value) * below > MAX_BITS or abs(top) * _bits(base) > 2 * MAX_BITS:
                raise NoValue("irrational")
            if value**below == base**top:
                return Fraction(top, below)
    raise NoValue("irrational")


def _log2(value: Fraction) -> float:
    def one(n: int) -> float:
        shift = max(n.bit_length() - 60, 0)
        return math.log2(n >> shift) + shift

    return one(value.numerator) - one(value.denominator) or 1e-300


def _series(node: Node, env: Mapping[str, Fraction] | None) -> Fraction:
    body, low_node, high_node = node.args
    low, high = _integers([evaluate(low_node, env), evaluate(high_node, env)])
    nested = any(inner.kind in ("sum", "prod") for inner in body.walk())
    if high - low > (30 if nested else MAX_TERMS):
        raise NoValue("limit")
    total = Fraction(0 if node.kind == "sum" else 1)
    inner = dict(env or {})
    for k in range(low, high + 1):
        inner[str(node.value)] = Fraction(k)
        value = evaluate(body, inner)
        total = total + value if node.kind == "sum" else total * value
        if _bits(total) > MAX_BITS // 3:
            raise NoValue("limit")
    return total


def _determinant(matrix: Node, env: Mapping[str, Fraction] | None) -> Fraction:
    while matrix.kind == "paren":
        matrix = matrix.args[0]
    if matrix.kind != "matrix":
        raise NoValue("unsupported")
    rows = [[evaluate(cell, env) for cell in row.args] for row in matrix.args]
    size = len(rows)
    if size != len(rows[0]) or size > 8:
        raise NoValue("undefined" if size != len(rows[0]) else "limit")
    result = Fraction(1)
    for i in range(size):  # Gaussian elimination over the rationals
        pivot = next((r for r in range(i, size) if rows[r][i] != 0), None)
        if pivot is None:
            return Fraction(0)
        if pivot != i:
            rows[i], rows[pivot] = rows[pivot], rows[i]
            result = -result
        result = _checked(result * rows[i][i])
        for r in range(i + 1, size):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [_checked(a - factor * b) for a, b in zip(rows[r], rows[i], strict=True)]
    return result


def is_closed(node: Node) -> bool:
    """True where no free variable, no text and no unknown function stands in the tree."""
    if free_names(node):
        return False
    return not any(
        n.kind == "text" or (n.kind == "call" and len(str(n.value).rstrip("'")) == 1)
        for n in node.walk()
    )
