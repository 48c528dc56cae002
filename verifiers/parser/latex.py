"""The LaTeX half of the grammar: commands, groups, environments, subscripts."""

from __future__ import annotations

from fractions import Fraction

from .nodes import Node, ParseFailure, render
from .operators import OperatorMixin
from .tokens import Token, read_number
from .vocabulary import CONSTANT_COMMANDS, FUNCTIONS, GREEK

__all__ = ["LatexMixin"]

_FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac"})
_BINOMIALS = frozenset({"binom", "dbinom", "tbinom"})
_WRAPPERS = frozenset({"boxed", "fbox", "overrightarrow", "vec", "hat", "underline", "mathop"})


class LatexMixin(OperatorMixin):
    """Readers for LaTeX constructs; mixed into the grammar."""

    def group(self) -> Node:
        """Read ``{…}``."""
        start = self.pos
        self.expect("{")
        bars, self.bars = self.bars, 0
        inner = self.expression()
        self.bars = bars
        token = self.peek()
        if token.kind == "cmd" and token.text == "choose":
            self.pos += 1
            below = self.expression()
            inner = Node("call", (inner, below), "binom", -1, self.span_from(start))
        elif token.kind == "cmd" and token.text == "over":
            self.pos += 1
            inner = Node("div", (inner, self.expression()), None, -1, self.span_from(start))
        self.expect("}")
        return inner

    def argument(self) -> Node:
        """Read a command's argument: a group, one digit or one letter."""
        token = self.peek()
        if token.kind == "op" and token.text == "{":
            return self.group()
        if token.kind == "num" and token.text.isdigit() and len(token.text) > 1:
            return self.split_digit(token)
        if token.kind == "num":
            self.pos += 1
            return Node("num", (), token.value, token.places, (token.start, token.end))
        if token.kind == "word" and len(token.text) > 1:
            return self.split_letter(token)
        return self.primary()

    def split_digit(self, token: Token) -> Node:
        """``\\frac12``: take one digit and leave the rest as the next token."""
        head, rest = token.text[0], token.text[1:]
        read = read_number(rest)
        if read is None:
            raise self.too_large()
        cut = token.start + 1
        self.tokens = [
            *self.tokens[: self.pos],
            Token("num", head, token.start, cut, token.gap, Fraction(int(head))),
            Token("num", rest, cut, token.end, False, read[0], read[1]),
            *self.tokens[self.pos + 1 :],
        ]
        self.tokens[self.pos].math = self.tokens[self.pos + 1].math = token.math
        self.count = len(self.tokens)
        self.pos += 1
        return Node("num", (), Fraction(int(head)), -1, (token.start, cut))

    def split_letter(self, token: Token) -> Node:
        """``\\frac ab``: take one letter and leave the rest."""
        cut = token.start + 1
        self.tokens = [
            *self.tokens[: self.pos],
            Token("word", token.text[0], token.start, cut, token.gap),
            Token("word", token.text[1:], cut, token.end),
            *self.tokens[self.pos + 1 :],
        ]
        self.tokens[self.pos].math = self.tokens[self.pos + 1].math = token.math
        self.count = len(self.tokens)
        return self.primary()

    def command(self, token: Token, start: int) -> Node:
        """Read what a command such as ``\\frac`` starts."""
        word = token.text
        if word in _FRACTIONS:
            derivative = self.derivative(start)
            if derivative is not None:
                return derivative
            self.pos += 1
            top = self.argument()
            bottom = self.argument()
            node = Node("div", (top, bottom), None, -1, self.span_from(start))
            return Node("frac", (node,), None, -1, node.span)
        if word == "sqrt":
            self.pos += 1
            if self.at_op("["):
                self.pos += 1
                index = self.expression()
                self.expect("]")
                inner = self.argument()
                return Node("call", (inner, index), "root", -1, self.span_from(start))
            if self.at_op("("):  # \sqrt(3), as models write it
                return Node("call", self.arguments(), "sqrt", -1, self.span_from(start))
            inner = self.argument()
            return Node("call", (inner,), "sqrt", -1, self.span_from(start))
        if word in _BINOMIALS:
            self.pos += 1
            top, bottom = self.argument(), self.argument()
            return Node("call", (top, bottom), "binom", -1, self.span_from(start))
        if word in CONSTANT_COMMANDS:
            self.pos += 1
            return Node("const", (), CONSTANT_COMMANDS[word], -1, self.span_from(start))
        if word in FUNCTIONS:
            return self.function(FUNCTIONS[word], start)
        if word in GREEK:
            self.pos += 1
            return self.subscripted(word, start)
        if word in _WRAPPERS:
            self.pos += 1
            inner = self.argument()
            return Node("paren", (inner,), None, -1, self.span_from(start))
        if word in ("sum", "prod"):
            return self.summation(word, start)
        if word in ("int", "lim"):
            return self.integral(start) if word == "int" else self.limit(start)
        raise ParseFailure("parse")

    def mixed_fraction(self, token: Token, start: int) -> Node | None:
        """``10\\frac{1}{12}``: a mixed number when whole and fraction are plain integers."""
        back = self.pos
        self.pos += 1
        try:
            top, bottom = self.argument(), self.argument()
        except ParseFailure:
            self.pos = back
            return None
        whole = token.value
        if (
            whole is not None
            and token.text.isdigit()
            and top.kind == bottom.kind == "num"
            and isinstance(top.value, Fraction)
            and isinstance(bottom.value, Fraction)
            and top.places == bottom.places == -1
            and 0 < top.value < bottom.value
        ):
            return Node("num", (), whole + top.value / bottom.value, -1, self.span_from(start))
        self.pos = back
        return None

    def based_number(self, token: Token, start: int) -> Node:
        """``204_5`` or ``204_{5}``: digits and a base."""
        following = self.peek(1)
        base = ""
        if following.kind == "num" and following.text.isdigit():
            self.pos += 2
            base = following.text
        elif following.kind == "op" and following.text == "{":
            inner, close = self.peek(2), self.peek(3)
            known = inner.text if inner.kind == "num" else _base_word(inner)
            if known is not None and known.isdigit() and close.text == "}":
                self.pos += 4
                base = known
        if not base or not token.text.replace(".", "", 1).isdigit():
            raise ParseFailure("parse")
        return Node("based", (), f"{token.text}_{base}", -1, self.span_from(start))

    def repeating(self, token: Token, start: int) -> Node:
        """``0.\\overline{3}``, ``0.1\\overline{6}``: an exact rational."""
        back = self.pos
        self.pos += 1
        opened = self.at_op("{")
        if opened:
            self.pos += 1
        digits = self.peek()
        if digits.kind != "num" or not digits.text.isdigit() or len(digits.text) > 200:
            self.pos = back
            return Node("num", (), token.value, token.places, (token.start, token.end))
        self.pos += 1
        if opened:
            self.expect("}")
        places = max(token.places, 0)
        block = Fraction(int(digits.text), 10 ** len(digits.text) - 1)
        assert token.value is not None
        value = token.value + block / Fraction(10) ** places
        return Node("num", (), value, -1, self.span_from(start))

    def subscripted(self, text: str, start: int) -> Node:
        """Read a name with its subscript and prime marks: ``x_1``, ``F_{n-1}``, ``a'``."""
        token = self.peek()
        if token.kind == "subs":
            self.pos += 1
            text = f"{text}_{token.text}"
        elif token.kind == "op" and token.text == "_":
            self.pos += 1
            following = self.peek()
            if following.kind == "text":
                self.pos += 1
                text = f"{text}_{following.text.replace(' ', '')}"
            elif following.kind == "op" and following.text == "{":
                if self.peek(1).kind == "text" and self.peek(2).text == "}":
                    text = f"{text}_{self.peek(1).text.replace(' ', '')}"
                    self.pos += 3
                elif self.peek(1).kind == "word" and self.peek(2).text == "}":
                    text = f"{text}_{self.peek(1).text}"
                    self.pos += 3
                else:
                    inner = self.group()
                    text = f"{text}_{render(inner).replace(' ', '')}"
            elif following.kind in ("num", "word"):
                self.pos += 1
                text = f"{text}_{following.text}"
            else:
                raise ParseFailure("parse")
        while self.at_op("'"):
            self.pos += 1
            text += "'"
        return Node("name", (), text, -1, self.span_from(start))

    def function(self, word: str, start: int) -> Node:
        """Read a named function and its argument: ``\\sin^2 x``, ``\\log_2 8``, ``gcd(a, b)``."""
        self.pos += 1
        exponent: Node | None = None
        base: Node | None = None
        for _ in range(2):
            if self.at_op("^") and exponent is None:
                self.pos += 1
                exponent = self.exponent()
            elif self.at_op("_") and base is None and word == "log":
                self.pos += 1
                base = self.argument()
            elif self.peek().kind == "subs" and word == "log" and base is None:
                token = self.peek()
                self.pos += 1
                base = Node("num", (), Fraction(int(token.text)))
            elif self.peek().kind == "sup" and exponent is None:
                exponent = Node("num", (), self.peek().value)
                self.pos += 1
        token = self.peek()
        if token.kind == "op" and token.text == "(":
            args = self.arguments()
            if word in ("sin", "cos", "tan", "log", "ln") and self.at_op("^"):
                # \sin(x)^2 means (\sin x)^2
                pass
        elif token.kind == "op" and token.text == "{":
            args = (self.group(),)
        elif word in ("gcd", "lcm", "max", "min", "mean"):
            raise ParseFailure("parse")
        elif word == "det" and token.kind == "begin":
            args = (self.environment(token, self.pos),)
        else:
            args = (self.function_operand(),)
        if word == "exp":
            node = Node("pow", (Node("const", (), "e"), args[0]))
        elif word == "log" and base is not None:
            node = Node("call", (args[0], base), "log")
        elif word == "cbrt":
            node = Node("call", (args[0], Node("num", (), Fraction(3))), "root")
        else:
            node = Node("call", args, word)
        node.span = self.span_from(start)
        if exponent is not None:
            inverse = exponent.kind == "neg" and exponent.args[0] == Node("num", (), Fraction(1))
            if inverse and word in ("sin", "cos", "tan", "cot", "sec", "csc"):
                node.value = "a" + word
            else:
                node = Node("pow", (node, exponent), None, -1, node.span)
        return node

    def function_operand(self) -> Node:
        """Read the operand of a function written without brackets: a product of plain factors."""
        start = self.pos
        self.depth += 1
        if self.depth > 40:
            raise self.too_large()
        token = self.peek()
        if token.kind == "op" and token.text == "-":
            node = self.unary()
        else:
            node = self.power()
        while True:
            token = self.peek()
            back = self.pos, self.depth
            plain = token.kind == "word" and len(token.text) == 1 and not (self.units and token.gap)
            greek = token.kind == "cmd" and (token.text in GREEK or token.text == "pi")
            signs = token.kind == "op" and token.text == "π"
            if not (plain or greek or signs) or node.kind in ("paren", "call"):
                break
            try:
                right = self.power()
            except ParseFailure:
                self.pos, self.depth = back
                break
            node = Node("mul", (node, right), None, -1, self.span_from(start))
        self.depth -= 1
        return node

    def text_value(self, token: Token, start: int) -> Node:
        """``\\text{13}`` is a number; other text is no operand."""
        read = None
        if token.text.replace(".", "", 1).isdigit() and token.text.isascii():
            read = read_number(token.text)
        if read is None:
            raise ParseFailure("word")
        self.pos += 1
        return Node("num", (), read[0], read[1], self.span_from(start))


def _base_word(token: Token) -> str | None:
    """``204_{five}``."""
    words = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
             "eight": "8", "nine": "9", "ten": "10"}  # fmt: skip
    return words.get(token.text)
