"""Exact reading of the arithmetic in a solution line; no `eval`, bounded in size and depth.

    sum     := product (("+" | "-") product)*
    product := factor (("*" | "/") factor)*
    factor  := "-" factor | number | "(" sum ")"

Values are exact rationals. This reader is the truth checker's own: it shares nothing with the
verifiers, which are measured against it.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

MAX_CHARS: Final = 300
MAX_DEPTH: Final = 20

_TOKEN: Final = re.compile(r"\s*(\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?|[-+*/()])")
_SIGNS: Final = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "$": " "})
_TIMES: Final = re.compile(r"(?<=\d)\s*[xX]\s*(?=\d)")
_UNITS: Final = re.compile(r"[^\W\d_]+")


class NotArithmetic(ValueError):
    """The text is not an expression of this grammar, or exceeds its limits."""


@dataclass(frozen=True, slots=True)
class Expression:
    """What was read.

    Attributes:
        value: The exact value; None where the expression divides by zero.
        numbers: The numbers in order of appearance.
        operations: The binary operations in order of appearance.
    """

    value: Fraction | None
    numbers: tuple[Fraction, ...]
    operations: tuple[str, ...]


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise NotArithmetic(f"unexpected character at {place} in {text!r}")
            self.tokens.append(found.group(1).replace(",", ""))
            place = found.end()
        self.place = 0
        self.numbers: list[Fraction] = []
        self.operations: list[str] = []

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.place += 1
        return token

    def sum(self, depth: int) -> Fraction | None:
        value = self.product(depth)
        while self.peek() in ("+", "-"):
            operation = self.take()
            self.operations.append(operation)
            right = self.product(depth)
            if value is not None:
                value = None if right is None else value + (right if operation == "+" else -right)
        return value

    def product(self, depth: int) -> Fraction | None:
        value = self.factor(depth)
        while self.peek() in ("*", "/"):
            operation = self.take()
            self.operations.append(operation)
            right = self.factor(depth)
            if value is None or right is None or (operation == "/" and right == 0):
                value = None
            else:
                value = value * right if operation == "*" else value / right
        return value

    def factor(self, depth: int) -> Fraction | None:
        if depth > MAX_DEPTH:
            raise NotArithmetic("nested too deeply")
        token = self.take()
        if token == "-":
            value = self.factor(depth + 1)
            return None if value is None else -value
        if token == "(":
            value = self.sum(depth + 1)
            if self.take() != ")":
                raise NotArithmetic("missing parenthesis")
            return value
        if not token or not token[0].isdigit():
            raise NotArithmetic(f"expected a number, got {token!r}")
        number = Fraction(token)
        self.numbers.append(number)
        return number


def read_expression(text: str) -> Expression:
    """Read one side of an equation; units ("12 apples", "$5") are ignored.

    Raises:
        NotArithmetic: `text` is not an expression.
    """
    if len(text) > MAX_CHARS:
        raise NotArithmetic(f"longer than {MAX_CHARS} characters")
    plain = _UNITS.sub(" ", _TIMES.sub("*", text.translate(_SIGNS))).strip()
    reader = _Reader(plain)
    value = reader.sum(0)
    if reader.place < len(reader.tokens):
        raise NotArithmetic(f"unexpected {reader.peek()!r}")
    return Expression(value, tuple(reader.numbers), tuple(reader.operations))


def read_equation(text: str) -> tuple[Expression, ...]:
    """Read `a = b` or a chain `a = b = c`; a full stop at the end is ignored.

    Returns:
        The sides in order; one side if there is no equals sign.

    Raises:
        NotArithmetic: A side is not an expression.
    """
    return tuple(read_expression(side) for side in text.strip().rstrip(".").split("="))
