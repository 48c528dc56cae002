"""The smallest parts of the grammar: numbers, words, letters and brackets."""

from __future__ import annotations

from fractions import Fraction

from .nodes import Node, ParseFailure
from .reader import END, Reader
from .tokens import Token
from .vocabulary import FUNCTIONS, GREEK, STOP_WORDS, UNICODE_LETTERS, word_set

__all__ = ["FACTOR_COMMANDS", "NOT_NAMES", "PrimaryMixin"]

_FUNCTION_LETTERS = frozenset("fghFGHP")
NOT_NAMES = frozenset({"a", "A", "I"})
FACTOR_COMMANDS = word_set(
    """frac dfrac tfrac cfrac sqrt binom dbinom tbinom pi infty boxed fbox overline det"""
)


class PrimaryMixin(Reader):
    """Readers for primaries; mixed into the grammar."""

    def primary(self) -> Node:
        """Read a number, a name, a call or a bracketed expression."""
        token = self.peek()
        kind = token.kind
        start = self.pos
        if kind == "num":
            return self.number(token, start)
        if kind == "word":
            return self._word(token, start)
        if kind == "op":
            return self._bracket(token, start)
        if kind == "money":
            self.pos += 1
            following = self.peek()
            if following.kind == "op" and following.text == "-" and self.peek(1).kind == "num":
                self.pos += 1
                inner = Node("neg", (self.primary(),))
            elif _money_value(following):
                inner = self.primary()
            else:
                raise ParseFailure("parse")
            return Node("money", (inner,), token.text, -1, self.span_from(start))
        if kind == "cmd":
            return self.enter(lambda: self.command(token, start))
        if kind == "begin":
            return self.environment(token, start)
        if kind == "text":
            return self.text_value(token, start)
        raise ParseFailure("parse")

    def number(self, token: Token, start: int) -> Node:
        """Read a number with what makes it mixed, repeating or of another base."""
        self.pos += 1
        node = Node("num", (), token.value, token.places, (token.start, token.end))
        following = self.peek()
        if token.places < 0 and following.kind == "num" and token.value is not None:
            mixed = self._mixed(token, following)
            if mixed is not None:
                return Node("num", (), mixed, -1, self.span_from(start))
        elif following.kind == "cmd" and following.text in ("frac", "dfrac", "tfrac"):
            mixed_node = self.mixed_fraction(token, start)
            if mixed_node is not None:
                return mixed_node
        elif following.kind == "op" and following.text == "_":
            return self.based_number(token, start)
        elif following.kind == "subs" and token.text.isdigit():
            self.pos += 1
            return Node("based", (), f"{token.text}_{following.text}", -1, self.span_from(start))
        elif following.kind == "cmd" and following.text in ("overline", "bar"):
            return self.repeating(token, start)
        return node

    def _mixed(self, whole: Token, following: Token) -> Fraction | None:
        """``2 1/2`` and ``2½`` as one number, consuming the fraction."""
        value = whole.value
        if value is None or value.denominator != 1 or following.value is None:
            return None
        if following.value.denominator != 1 and following.places < 0:
            self.pos += 1
            return value + following.value
        slash, below = self.peek(1), self.peek(2)
        if (
            following.gap
            and whole.text.isdigit()
            and following.text.isdigit()
            and slash.kind == "op"
            and slash.text == "/"
            and below.kind == "num"
            and not slash.gap
            and not below.gap
            and below.text.isdigit()
            and below.value is not None
            and following.value < below.value <= 1000
        ):
            self.pos += 3
            return value + following.value / below.value
        return None

    def _word(self, token: Token, start: int) -> Node:
        text = token.text
        function = FUNCTIONS.get(text) or FUNCTIONS.get(text.lower())
        if function is not None and len(text) > 1:
            return self.enter(lambda: self.function(function, start))
        if len(text) == 1:
            return self._letter(token, start)
        if text == "pi" or text == "Pi":
            self.pos += 1
            return Node("const", (), "pi", -1, self.span_from(start))
        if text in GREEK and not self.units:
            self.pos += 1
            return self.subscripted(text, start)
        if text in ("inf", "infinity", "oo") and not self.units:
            self.pos += 1
            return Node("const", (), "inf", -1, self.span_from(start))
        if token.math and len(text) <= (3 if self.units else 4) and text.isascii():
            if self.integrals and len(text) == 2 and text[0] == "d":
                raise ParseFailure("parse")
            if self.units and text.lower() in STOP_WORDS:
                raise ParseFailure("word")
            if not self.units and self._prose(token):
                raise ParseFailure("word")
            if self.units and text.isupper():
                return self._named(text, start)  # AB is a segment, no product
            # letters side by side are a product
            self.pos += 1
            node: Node | None = None
            at = token.start
            for i, letter in enumerate(text):
                span = (at + i, at + i + 1)
                if i == len(text) - 1 and self.at_op("_"):
                    leaf = self.subscripted(letter, start)
                else:
                    leaf = Node("const" if letter == "e" else "name", (), letter, -1, span)
                node = leaf if node is None else Node("mul", (node, leaf), None, -1, span)
            assert node is not None
            node.span = self.span_from(start)
            return node
        raise ParseFailure("word")

    def _prose(self, token: Token) -> bool:
        """True where a word of letters stands beside another word: prose, no product."""
        if len(token.text) < 2:
            return False
        if token.text.lower() in ("or", "and"):
            return True
        if len(token.text) > 2 and token.text.lower() in STOP_WORDS:
            return True
        before = self.tokens[self.pos - 1] if self.pos else END
        after = self.peek(1)
        return (token.gap > 0 and before.kind == "word" and len(before.text) > 1) or (
            after.gap > 0 and after.kind == "word" and len(after.text) > 1
        )

    def _named(self, text: str, start: int) -> Node:
        self.pos += 1
        return self.subscripted(text, start)

    def _letter(self, token: Token, start: int) -> Node:
        text = token.text
        following = self.peek(1)
        if self.units and not token.math and text in NOT_NAMES and not _operates(following):
            raise ParseFailure("word")
        if following.kind == "op" and not following.gap:
            if following.text == "(" and text in _FUNCTION_LETTERS:
                self.pos += 1
                return Node("call", self.arguments(), text, -1, self.span_from(start))
            if following.text == "(" and text == "C" and self._two_arguments():
                self.pos += 1
                return Node("call", self.arguments(), "binom", -1, self.span_from(start))
            if following.text == "'":
                self.pos += 1
                primes = 0
                while self.at_op("'"):
                    primes += 1
                    self.pos += 1
                if self.at_op("("):
                    args = self.arguments()
                    return Node("call", args, text + "'" * primes, -1, self.span_from(start))
                return Node("name", (), text + "'" * primes, -1, self.span_from(start))
        self.pos += 1
        if text == "e" and not self.at_op("_") and (not self.units or self.at_op("^")):
            return Node("const", (), "e", -1, self.span_from(start))
        if text == "i" and not self.at_op("_") and not self.units:
            return Node("const", (), "i", -1, self.span_from(start))
        return self.subscripted(text, start)

    def _two_arguments(self) -> bool:
        return (
            self.peek(2).kind in ("num", "word")
            and self.peek(3).kind == "op"
            and self.peek(3).text == ","
        )

    def arguments(self) -> tuple[Node, ...]:
        """Read ``(a, b, …)``."""
        self.expect("(")
        args = [self.expression()]
        while self.at_op(",") or self.at_op(";"):
            self.pos += 1
            args.append(self.expression())
        self.expect(")")
        return tuple(args)

    def _bracket(self, token: Token, start: int) -> Node:
        text = token.text
        if text in ("(", "["):
            close = ")" if text == "(" else "]"
            self.pos += 1
            bars, self.bars = self.bars, 0
            inner = self.expression()
            self.bars = bars
            self.expect(close)
            # brackets keep their own extent, so that a unit after them is seen
            inner_span = self.span_from(start)
            copy = Node(inner.kind, inner.args, inner.value, inner.places, inner_span)
            if inner.kind == "num" and inner.places == -2:
                copy.places = -1
            return Node("paren", (copy,), None, -1, inner_span)
        if text == "{":
            return self.group()
        if text == "|" and self.bars == 0:
            self.pos += 1
            self.bars += 1
            inner = self.expression()
            self.bars -= 1
            self.expect("|")
            return Node("call", (inner,), "abs", -1, self.span_from(start))
        if text in ("⌊", "⌈"):
            self.pos += 1
            inner = self.expression()
            self.expect("⌋" if text == "⌊" else "⌉")
            function = "floor" if text == "⌊" else "ceil"
            return Node("call", (inner,), function, -1, self.span_from(start))
        if text == "√":
            self.pos += 1
            inner = self.enter(self.primary)
            return Node("call", (inner,), "sqrt", -1, self.span_from(start))
        if text in ("π", "∞"):
            self.pos += 1
            value = "pi" if text == "π" else "inf"
            return Node("const", (), value, -1, self.span_from(start))
        if text in UNICODE_LETTERS:
            self.pos += 1
            return self.subscripted(UNICODE_LETTERS[text], start)
        raise ParseFailure("parse")


def _money_value(token: Token) -> bool:
    """True for what may stand behind a currency sign."""
    if token.kind == "op":
        return token.text == "("
    return token.kind == "num" or (token.kind == "cmd" and token.text in FACTOR_COMMANDS)


def _operates(token: Token) -> bool:
    """True for a sign that makes the letter before it a variable, not an article."""
    return token.kind == "rel" or (token.kind == "op" and token.text in ("+", "-", "*", "/", "^"))
