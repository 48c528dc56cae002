"""The expression grammar: one recursive-descent reader for plain text and LaTeX.

It reads the longest expression that starts at a token and stops where the text stops being one;
the caller decides whether what is left over matters. Depth is bounded, so hostile nesting costs a
:class:`ParseFailure` and nothing else.
"""

from __future__ import annotations

from fractions import Fraction

from .latex import LatexMixin
from .nodes import Node, ParseFailure
from .primaries import FACTOR_COMMANDS, NOT_NAMES, PrimaryMixin
from .quantities import MATH_UNITS, WORD_OPERATORS, QuantityMixin
from .reader import MAX_DEPTH
from .tokens import Token, tokenize
from .units import parse_unit
from .vocabulary import (
    FUNCTIONS,
    GREEK,
    MAGNITUDES,
    UNICODE_LETTERS,
)

__all__ = ["Grammar", "ParseFailure", "parse_expression"]


class Grammar(LatexMixin, PrimaryMixin, QuantityMixin):
    """The expression grammar, see :class:`Reader` for its options."""

    # -- expressions --------------------------------------------------------------------------
    def expression(self) -> Node:
        """Read sums and differences."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.too_large()
        start = self.pos
        token = self.peek()
        if token.kind == "op" and token.text in ("±", "∓"):
            self.pos += 1
            left = Node("pm", (self.term(),), None, -1, self.span_from(start))
        else:
            left = self.term()
        while True:
            token = self.peek()
            text = token.text
            if token.gap == 2 and self.units and not token.math and self.peek(1).gap:
                break  # a bullet or a new line, no operator
            if token.kind == "op" and text in ("+", "-", "±", "∓"):
                kind = "add" if text == "+" else "sub" if text == "-" else "pm"
                width = 1
            elif token.kind == "word" and text in ("plus", "minus") and not self.symbols_only:
                kind, width = ("add" if text == "plus" else "sub"), 1
            elif self.units and token.kind == "num" and left.kind == "qty" and self._compound(left):
                kind, width = "add", 0  # 1 hour 20 minutes
            else:
                break
            back = self.pos, self.depth, self.bars, self.integrals
            self.pos += width
            self.count_operation()
            try:
                right = self.term()
            except ParseFailure:
                self.pos, self.depth, self.bars, self.integrals = back
                break
            left = Node(kind, (left, right), None, -1, self.span_from(start))
        self.depth -= 1
        return left

    def term(self) -> Node:
        """Read products, quotients and implicit products."""
        start = self.pos
        left = self.unary()
        while True:
            token = self.peek()
            kind, text = token.kind, token.text
            if token.gap == 2 and self.units and not token.math:
                break
            back = self.pos, self.depth, self.bars, self.integrals
            if kind == "op":
                if text == "*":
                    made, width = "mul", 1
                elif text == "/":
                    made, width = "div", 1
                elif text == "mod":
                    made, width = "mod", 1
                elif self._opens_factor(token, left):
                    made, width = "mul", 0
                else:
                    break
            elif kind == "word":
                low = text.lower()
                if self.symbols_only and low in WORD_OPERATORS:
                    break
                if low == "times":
                    made, width = "mul", 1
                elif low in ("multiplied", "divided") and self.peek(1).text == "by":
                    made, width = ("mul" if low[0] == "m" else "div"), 2
                elif low in ("mod", "modulo"):
                    made, width = "mod", 1
                elif low == "of" and self._of(left):
                    made, width = "of", 1
                elif low == "choose" and self.peek(1).kind == "num":
                    made, width = "binom", 1
                elif self._letter_factor(token, left):
                    made, width = "mul", 0
                else:
                    break
            elif kind == "begin" or (kind in ("cmd", "num") and self._opens_factor(token, left)):
                made, width = "mul", 0
            else:
                break
            self.pos += width
            self.count_operation()
            try:
                right = self._tight_quotient() if made == "div" and self.tight else self.unary()
            except ParseFailure:
                self.pos, self.depth, self.bars, self.integrals = back
                break
            span = self.span_from(start)
            if made == "binom":
                left = Node("call", (left, right), "binom", -1, span)
            elif made == "mul" and width == 0:
                # places -2 marks the missing sign: 1/2x is read two ways
                left = Node("mul", (left, right), None, -2, span)
            else:
                left = Node(made, (left, right), None, -1, span)
        return left

    def _tight_quotient(self) -> Node:
        start = self.pos
        node = self.unary()
        token = self.peek()
        following = self.peek(1)
        if (
            node.kind in ("num", "money")
            and token.kind == "op"
            and token.text == "/"
            and following.kind == "num"
        ):
            self.pos += 2
            below = Node("num", (), following.value, following.places)
            node = Node("div", (node, below), None, -1, self.span_from(start))
            if self.peek().kind == "word" and self.units:
                node = self._quantity(node, start) or node
        return node

    def _of(self, left: Node) -> bool:
        """True where "of" multiplies: after a fraction or percent, before a number."""
        following = self.peek(1)
        value = following.kind in ("num", "money") or (
            following.kind == "op" and following.text == "("
        )
        if not value:
            return False
        if left.kind == "num":
            return left.places > 0 or (
                isinstance(left.value, Fraction) and left.value.denominator != 1
            )
        return left.kind in ("pct", "div", "frac", "paren")

    def _opens_factor(self, token: Token, left: Node) -> bool:
        """True where the token starts a factor that is multiplied without a sign."""
        kind, text = token.kind, token.text
        if kind == "op":
            if text == "(" and self.units and token.gap:
                return left.kind not in ("qty", "pct", "money") and not (
                    left.kind == "num" and not token.math
                )
            if text == "(" or text == "√" or text == "π":
                return True
            if text == "[":
                return left.kind not in ("name",)
            if text == "{":
                return token.math
            if text == "|":
                return self.bars == 0 and token.math
            return text in UNICODE_LETTERS
        if kind == "cmd":
            if self.units and (text in ("boxed", "fbox") or left.kind == "qty"):
                return False  # "138 lines \\boxed{138}" says it twice
            return text in FACTOR_COMMANDS or text in GREEK or text in FUNCTIONS
        if kind == "num":
            # "2 3" is no product, but "x 3" and ") 3" neither: only ½ after a number sticks
            return False
        return False

    def _letter_factor(self, token: Token, left: Node) -> bool:
        """True where a word is a variable or function multiplied onto what stands before."""
        text = token.text
        if text.lower() in FUNCTIONS:
            return len(text) > 1
        if self.integrals and len(text) == 2 and text[0] == "d":
            return False
        if len(text) == 1:
            if self.units and not token.math and token.gap:
                return left.kind != "num" and text not in NOT_NAMES and left.kind != "qty"
            return True
        if token.math and not self.units:
            glued = text in MATH_UNITS and left.kind == "num"
            spaced = token.gap and left.kind in ("num", "div", "money")
            if (glued or spaced) and parse_unit(text) is not None:
                return False  # "35 cm" is a length, "35 ab" a product
            return len(text) <= 4 and not self._prose(token)
        return token.math and len(text) <= 3 and not token.gap

    def unary(self) -> Node:
        """Read signs."""
        token = self.peek()
        if token.kind == "op" and token.text in ("-", "+"):
            start = self.pos
            self.pos += 1
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self.too_large()
            inner = self.unary()
            self.depth -= 1
            if token.text == "+":
                return inner
            return Node("neg", (inner,), None, -1, self.span_from(start))
        return self.power()

    def power(self) -> Node:
        """Read a primary with its postfixes and exponents."""
        start = self.pos
        base = self.primary()
        while True:
            token = self.peek()
            kind = token.kind
            if kind == "op":
                text = token.text
                if text == "^":
                    self.pos += 1
                    self.count_operation()
                    exponent = self.exponent()
                    base = Node("pow", (base, exponent), None, -1, self.span_from(start))
                    continue
                if text == "!" and not token.gap and base.kind != "pct":
                    self.pos += 1
                    self.count_operation()
                    base = Node("fact", (base,), None, -1, self.span_from(start))
                    continue
                if text == "%":
                    self.pos += 1
                    self.count_operation()
                    base = Node("pct", (base,), None, -1, self.span_from(start))
                    continue
                if text == "¢":
                    self.pos += 1
                    self.count_operation()
                    base = Node("qty", (base,), "cents", -1, self.span_from(start))
                    continue
                if text == "/" and self.units and base.kind in ("num", "money", "qty", "paren"):
                    rate = self._rate(base, start)
                    if rate is not None:
                        self.count_operation()
                        base = rate
                        continue
                break
            if kind == "sup":
                self.pos += 1
                self.count_operation()
                exponent = Node("num", (), token.value)
                base = Node("pow", (base, exponent), None, -1, self.span_from(start))
                continue
            if kind == "deg":
                self.pos += 1
                self.count_operation()
                base = Node("deg", (base,), None, -1, self.span_from(start))
                continue
            if kind == "word" or kind == "text":
                postfix = self._word_postfix(base, token, start)
                if postfix is not None:
                    self.count_operation()
                    base = postfix
                    continue
            break
        return base

    def exponent(self) -> Node:
        """Read what stands behind a power sign."""
        token = self.peek()
        if token.kind == "op" and token.text == "{":
            return self.group()
        if token.kind == "op" and token.text in ("-", "+"):
            return self.unary()
        if token.kind == "num" and token.math and token.text.isdigit() and len(token.text) > 1:
            pass  # LaTeX reads x^12 as x^1 2; models mean x^12
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.too_large()
        start = self.pos
        base = self.primary()
        if self.at_op("!"):
            self.pos += 1
            base = Node("fact", (base,), None, -1, self.span_from(start))
        if self.at_op("^"):
            self.pos += 1
            base = Node("pow", (base, self.exponent()), None, -1, self.span_from(start))
        self.depth -= 1
        return base

    def _word_postfix(self, base: Node, token: Token, start: int) -> Node | None:
        text = token.text
        low = text.lower()
        if low in ("percent", "percents") or (low == "per" and self.peek(1).text == "cent"):
            self.pos += 1 if low != "per" else 2
            return Node("pct", (base,), None, -1, self.span_from(start))
        if low in ("degrees", "degree"):
            self.pos += 1
            return Node("deg", (base,), None, -1, self.span_from(start))
        if low in MAGNITUDES and base.kind in ("num", "money") and (len(low) > 1 or not token.gap):
            if low == "k" and (self.units or token.math):
                return None
            self.pos += 1
            return Node("mag", (base,), low, -1, self.span_from(start))
        if text == "C" and not token.gap and base.kind == "num" and self.peek(1).kind == "num":
            self.pos += 1
            right = self.primary()
            return Node("call", (base, right), "binom", -1, self.span_from(start))
        if self.units and not self.integrals and base.kind not in ("qty", "name", "const", "call"):
            return self._quantity(base, start)
        return None


def parse_expression(text: str, *, units: bool = False, math: bool = True) -> Node | None:
    """Read a whole text as one expression; None if it is not one."""
    reader = Grammar(tokenize(text, math=math), units=units)
    try:
        node = reader.expression()
    except ParseFailure:
        return None
    return node if reader.pos == reader.count else None
