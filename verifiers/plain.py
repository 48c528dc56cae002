"""Values of Python as JSON data that keeps their types, and their comparison.

JSON has no sets, no NaN, no keys but strings. What it lacks is written as an object of one tag, and
an object that could be taken for a tag is tagged itself, so that no two values share a text. Only
the standard library is used: the sandbox loads this file too.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = ["TooLarge", "literal", "plain", "printed_number", "same_printed", "same_value"]

MAX_ITEMS = 200_000
MAX_DEPTH = 100
MAX_BITS = 1 << 20
SAFE_BITS = 1_000  # beyond it an integer no longer fits a float, and JSON readers may round it
_SYMPY_NUMBERS = frozenset({"Integer", "Rational", "Zero", "One", "NegativeOne", "Half"})


class TooLarge(Exception):
    """A value with too many items, too deep, or an integer of too many digits."""


def plain(value: Any, *, strict: bool = False) -> Any:
    """Return a value as JSON data; exact types only, so that no method of the value is called.

    Numbers, texts, lists and objects with plain keys stay as they are, tuples become lists. The
    tags are ``__int__`` (hexadecimal), ``__float__``, ``__complex__``, ``__fraction__``,
    ``__decimal__``, ``__bytes__`` (hexadecimal), ``__set__``, ``__dict__`` (pairs) and ``__type__``
    for anything else.

    Args:
        value: Anything.
        strict: Refuse what would become ``__type__``.

    Raises:
        TypeError: With ``strict``, where the value holds something without a form of its own.
        TooLarge: It has more than 200,000 items, 100 levels or 2^20 bits.
    """
    return _Writer(strict).write(value, 0)


class _Writer:
    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.left = MAX_ITEMS

    def write(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return self._int(value)
        if kind is float:
            finite = value - value == 0
            return value if finite else {"__float__": str(value)}
        if kind is complex:
            return {"__complex__": [self.write(part, depth) for part in (value.real, value.imag)]}
        if kind is bytes:
            return {"__bytes__": value.hex()}
        if kind is Fraction:
            return {"__fraction__": [self._int(value.numerator), self._int(value.denominator)]}
        if kind is Decimal:
            return {"__decimal__": str(value)}
        if kind not in (list, tuple, set, frozenset, dict):
            return self._other(value, kind)
        self.left -= len(value)
        if self.left < 0 or depth >= MAX_DEPTH:
            raise TooLarge
        if kind is dict:
            return self._dict(value, depth)
        items = [self.write(item, depth + 1) for item in value]
        if kind is list or kind is tuple:
            return items
        return {"__set__": sorted(items, key=_text)}  # an order that no class of the items decides

    def _int(self, value: int) -> Any:
        size = value.bit_length()
        if size > MAX_BITS:
            raise TooLarge
        return value if size < SAFE_BITS else {"__int__": hex(value)}

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        tag_like = len(value) == 1 and str(next(iter(value))).startswith("__")
        if not tag_like and all(type(key) is str for key in value):
            return {key: self.write(item, depth + 1) for key, item in value.items()}
        pairs = [[self.write(k, depth + 1), self.write(v, depth + 1)] for k, v in value.items()]
        return {"__dict__": sorted(pairs, key=lambda pair: _text(pair[0]))}

    def _other(self, value: Any, kind: type) -> Any:
        module = getattr(kind, "__module__", "")
        if (
            isinstance(module, str)
            and module.startswith("sympy.")
            and kind.__name__ in _SYMPY_NUMBERS
        ):
            return {"__fraction__": [self._int(int(value.p)), self._int(int(value.q))]}
        if self.strict:
            raise TypeError(f"a value of type {kind.__name__} cannot be compared")
        return {"__type__": kind.__name__}


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True)


def same_value(value: Any, expected: Any) -> bool:
    """Say whether a value in the form of :func:`plain` is equal to a value of Python.

    As in Python, 1, 1.0 and Fraction(1) are equal; floats agree to 1e-9 relative. Unlike there,
    True is no 1, a tuple equals a list, and NaN equals NaN.
    """
    return _same(value, plain(expected))


def _same(a: Any, b: Any) -> bool:
    x, y = _number(a), _number(b)
    if x is not None or y is not None:
        return x is not None and y is not None and _same_number(x, y)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return False
        if set(a) == {"__set__"} or set(a) == {"__dict__"}:
            (left,), (right,) = a.values(), b.values()
            return _same_members(left, right)
        return all(_same(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


def _same_members(a: Any, b: Any) -> bool:
    """Sets and pairs: in one order nearly always; floats that differ a little may sort apart."""
    if not isinstance(a, list) or not isinstance(b, list) or len(a) != len(b):
        return False
    if all(map(_same, a, b)):
        return True
    left = list(b) if len(b) <= 300 else []
    for item in a:
        at = next((i for i, other in enumerate(left) if _same(item, other)), None)
        if at is None:
            return False
        del left[at]
    return True


Number = int | float | complex | Fraction


def _number(data: Any) -> Number | None:
    """The number that plain data stands for, None where it is none."""
    if isinstance(data, bool):
        return None
    if isinstance(data, int | float):
        return data
    if not isinstance(data, dict) or len(data) != 1:
        return None
    ((tag, inner),) = data.items()
    try:
        if tag == "__int__":
            return int(inner, 16)
        if tag == "__float__":
            return float(inner)
        if tag == "__decimal__":
            number = Decimal(inner)
            # as a fraction only where it is short: 1E+999999999 is a text of ten letters
            short = number.is_finite() and abs(number.adjusted()) < 10_000
            return Fraction(number) if short else float(number)
        if tag in ("__fraction__", "__complex__"):
            a, b = (_number(part) for part in inner)
            if tag == "__fraction__" and isinstance(a, int) and isinstance(b, int):
                return Fraction(a, b)
            if tag == "__complex__" and isinstance(a, float) and isinstance(b, float):
                return complex(a, b)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return None


def _same_number(a: Number, b: Number) -> bool:
    if isinstance(a, complex) or isinstance(b, complex):
        x, y = _parts(a), _parts(b)
        return all(_same_number(p, q) for p, q in zip(x, y, strict=True))
    if not isinstance(a, float) and not isinstance(b, float):
        return a == b
    if any(isinstance(x, float) and x - x != 0 for x in (a, b)):  # infinite, or no number
        return a == b or (a != a and b != b)
    one, two = Fraction(a), Fraction(b)  # exact: a float overflows on a long integer
    return abs(one - two) * 10**9 <= max(Fraction(1), abs(one), abs(two))


def _parts(value: Number) -> tuple[Number, Number]:
    return (value.real, value.imag) if isinstance(value, complex) else (value, 0)


# One literal, no zeros before it: "007" is a text. Longer ones are compared letter by letter.
_LITERAL = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?")
_LONGEST = 400


def printed_number(text: str) -> Fraction | None:
    """Return the value of a text that is one decimal literal, None for any other text."""
    if len(text) > _LONGEST or _LITERAL.fullmatch(text) is None:
        return None
    return Fraction(text)


def same_printed(actual: str, expected: str) -> bool:
    """Say whether a program printed what it should: the same words, however they are spaced.

    Nothing that was printed is computed: ``3+4`` is not 7, nor ``1/2`` 0.5. Two words that differ
    agree only where both are decimal literals of one value. Where the expected one shows a point
    or an exponent, 1e-9 relative is near enough, and 1e-12 absolute beside zero.
    """
    a, b = actual.split(), expected.split()
    return len(a) == len(b) and all(map(_same_word, a, b))


def _same_word(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    x, y = printed_number(actual), printed_number(expected)
    if x is None or y is None:
        return False
    if x == y or expected.lstrip("+-").isdigit():
        return x == y
    return abs(x - y) * 10**9 <= abs(y) if y else abs(x) * 10**12 <= 1


def literal(value: Any) -> str:
    """Return Python source of a value; it uses no name, so that no program can change its meaning.

    Raises:
        TypeError: It is no number, text, bytes, list, tuple, set or dictionary.
    """
    kind = type(value)
    if value is None or kind in (bool, str, bytes):
        return repr(value)
    if kind is int:
        return f"({value})" if abs(value) < 10**300 else f"({hex(value)})"
    if kind is float:
        if value != value:
            return "(1e999-1e999)"
        return f"({value!r})" if value - value == 0 else "(1e999)" if value > 0 else "(-1e999)"
    if kind is complex:
        return f"({literal(value.real)}+{literal(value.imag)}*1j)"
    if kind is dict:
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if kind in (list, tuple, set):
        inner = "".join(f"{literal(item)}, " for item in value)
        if kind is set:
            return f"{{{inner}}}" if value else "{*()}"
        return f"[{inner}]" if kind is list else f"({inner})"
    raise TypeError(f"a value of type {kind.__name__} cannot be an argument")
