"""State of a reader over tokens, shared by the parts of the grammar."""

from __future__ import annotations

from collections.abc import Callable

from .nodes import Node, ParseFailure
from .tokens import Token

__all__ = ["END", "MAX_DEPTH", "Reader"]

MAX_DEPTH = 40
MAX_OPERATIONS = 250  # bounds the height of the tree, and with it every recursion over it
END = Token("end_of_text", "", 0, 0)


class Reader:
    """A position in a token list and what bounds the reading.

    Args:
        tokens: The tokens of the whole text.
        units: Take words after a number as its unit (solution steps); off in answers, where a
            rest of text must stay visible.
        tight: Let an unspaced ``3/4`` bind tighter than a spaced division before it.
        symbols_only: Do not read "times", "of", "divided by" … as operators.
    """

    def __init__(
        self,
        tokens: list[Token],
        *,
        units: bool = False,
        tight: bool = False,
        symbols_only: bool = False,
    ) -> None:
        self.tokens = tokens
        self.count = len(tokens)
        self.units = units
        self.tight = tight
        self.symbols_only = symbols_only
        self.pos = 0
        self.depth = 0
        self.bars = 0
        self.integrals = 0
        self.operations = 0
        self.nested = 0
        self.series = 0
        self.limited = False

    def count_operation(self) -> None:
        """Fail once the expression has more operations than any honest one."""
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise self.too_large()

    def enter(self, read: Callable[[], Node]) -> Node:
        """Read what may hold itself without brackets (``√√√2``), to a bounded depth."""
        if self.nested >= MAX_DEPTH:
            raise self.too_large()
        self.nested += 1
        try:
            return read()
        finally:
            self.nested -= 1

    def too_large(self) -> ParseFailure:
        """Return the failure of a text beyond the bounds; the reading keeps that it happened."""
        self.limited = True
        return ParseFailure("limit")

    # -- token access -------------------------------------------------------------------------
    def peek(self, ahead: int = 0) -> Token:
        """Return a coming token without consuming it."""
        at = self.pos + ahead
        return self.tokens[at] if at < self.count else END

    def at_op(self, text: str) -> bool:
        """True where the next token is this operator."""
        token = self.peek()
        return token.kind == "op" and token.text == text

    def expect(self, text: str) -> None:
        """Consume an operator or fail."""
        if not self.at_op(text):
            raise ParseFailure("parse")
        self.pos += 1

    def span_from(self, start: int) -> tuple[int, int]:
        """Offsets from a token's start to the end of the last consumed token."""
        return self.tokens[start].start, self.tokens[max(start, self.pos - 1)].end

    # -- the parts of the grammar call each other through these ----------------------------------
    def expression(self) -> Node:
        """Read sums and differences."""
        raise NotImplementedError

    def term(self) -> Node:
        """Read products, quotients and implicit products."""
        raise NotImplementedError

    def unary(self) -> Node:
        """Read signs."""
        raise NotImplementedError

    def power(self) -> Node:
        """Read a primary with its postfixes and exponents."""
        raise NotImplementedError

    def primary(self) -> Node:
        """Read a number, a name, a call or a bracketed expression."""
        raise NotImplementedError

    def exponent(self) -> Node:
        """Read what stands behind a power sign."""
        raise NotImplementedError

    def arguments(self) -> tuple[Node, ...]:
        """Read ``(a, b, …)``."""
        raise NotImplementedError

    def argument(self) -> Node:
        """Read a command's argument."""
        raise NotImplementedError

    def group(self) -> Node:
        """Read ``{…}``."""
        raise NotImplementedError

    def command(self, token: Token, start: int) -> Node:
        """Read what a command starts."""
        raise NotImplementedError

    def environment(self, token: Token, start: int) -> Node:
        """Read what ``\\begin`` starts."""
        raise NotImplementedError

    def function(self, word: str, start: int) -> Node:
        """Read a named function and its argument."""
        raise NotImplementedError

    def subscripted(self, text: str, start: int) -> Node:
        """Read a name with its subscript and prime marks."""
        raise NotImplementedError

    def text_value(self, token: Token, start: int) -> Node:
        """Read a number that stands in ``\\text``."""
        raise NotImplementedError

    def based_number(self, token: Token, start: int) -> Node:
        """Read digits and a base."""
        raise NotImplementedError

    def repeating(self, token: Token, start: int) -> Node:
        """Read a repeating decimal."""
        raise NotImplementedError

    def mixed_fraction(self, token: Token, start: int) -> Node | None:
        """Read a mixed number, None where the fraction is a factor."""
        raise NotImplementedError
