"""Answers as typed structures: numbers with units, tuples, sets, intervals, relations, text.

An answer is read whole or not at all. What is left over after the longest reading decides: a unit
is part of the answer, anything else makes the whole a text, so that "2 or any other value" never
becomes 2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from .grammar import Grammar
from .nodes import Node, ParseFailure, strip
from .tokens import Token, tokenize
from .units import parse_unit
from .vocabulary import NUMERALS, STOP_WORDS, word_set

__all__ = ["Answer", "plain_text", "read_answer"]

MAX_ITEMS = 60
MAX_NESTING = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """A read answer.

    Attributes:
        kind: expression, relation, list, tuple, set, interval, union, matrix, ratio, text.
        node: The tree; for text a node that holds it.
        unit: Unit phrase of a lone value, "" if it has none.
        text: Normalised text for comparison of words.
        hedged: Alternatives are offered ("or"), which no scalar gold equals.
        source: The text as it was read.
    """

    kind: str
    node: Node
    unit: str = ""
    text: str = ""
    hedged: bool = False
    source: str = ""


_WRAPPING = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"), ("**", "**"), ("`", "`"))
_COMMAND_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mbox|operatorname|mathbf|texttt|textsf)\s*\{([^{}]*)\}"
)
_NOISE = re.compile(r"\\[,;:! ]|\\quad|\\left|\\right|\\displaystyle|[\s$\"'`*{}]+|\\\\")
_ANNOUNCED = re.compile(r"^\\text\{\s*(?:[Tt]he )?(?:final )?answer is:?\s*\}\s*")
_LEAD = re.compile(
    r"^(?:so\s+)?(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|option|choice)(?:\s+is)?\s*:?\s*(?=\S)",
    re.I,
)


def plain_text(text: str) -> str:
    """Return text without markup, case and spacing, for comparing words."""
    bare = _COMMAND_TEXT.sub(r"\1", text)
    bare = _COMMAND_TEXT.sub(r"\1", bare)
    bare = _LEAD.sub("", bare.strip())
    bare = re.sub(r"(?<=\d)\s+(?=\d)", "_", bare)  # "1 2" is not 12
    bare = _NOISE.sub("", bare).rstrip(".").lower()
    if re.fullmatch(r"\([a-z]\)", bare):
        bare = bare[1:-1]
    return bare


def _unwrap(text: str) -> str:
    """Remove math delimiters, emphasis and closing punctuation around the whole answer."""
    text = _ANNOUNCED.sub("", text.strip())
    for _ in range(4):
        before = text
        text = text.rstrip(" .") if not text.endswith("...") else text
        text = text.strip()
        for opening, closing in _WRAPPING:
            inner = text[len(opening) : -len(closing)]
            if (
                text.startswith(opening)
                and text.endswith(closing)
                and len(text) > len(opening) + len(closing)
                and opening not in inner
            ):
                text = inner.strip()
        match = re.fullmatch(
            r"\\(?:text|textbf|mathrm|textrm|mbox|mathbf|textit)\s*\{([^{}]*)\}", text
        )
        if match is not None:
            text = match.group(1).strip()
        if text == before:
            break
    return text


class _Reader(Grammar):
    """Answer structures on top of expressions."""

    nesting = 0

    def answer(self) -> Node:
        """Read the whole answer or fail."""
        node = self.items()
        if self.pos != self.count:
            raise ParseFailure("rest")
        return node

    # -- lists --------------------------------------------------------------------------------
    def separator(self) -> str:
        """Consume "," "and" "or"; returns it, "" where none stands."""
        token = self.peek()
        text = token.text.strip().lower()
        if token.kind == "op" and text in (",", ";"):
            self.pos += 1
            follow = self.peek()
            word = follow.text.strip().lower()
            if follow.kind in ("word", "text", "op") and word in ("and", "or"):
                self.pos += 1
                return word
            return ","
        if token.kind in ("word", "text", "op") and text in ("and", "or", ", or", ", and", "&"):
            self.pos += 1
            return "or" if "or" in text else "and"
        return ""

    def items(self, close: str = "") -> Node:
        """Read one item or several separated ones."""
        first = self.item()
        found = [first]
        seen: set[str] = set()
        while True:
            sign = self.separator()
            if not sign:
                break
            if close and self.at_op(close):
                break
            seen.add(sign)
            found.append(self.item())
            if len(found) > MAX_ITEMS:
                raise ParseFailure("limit")
        if len(found) == 1:
            return first
        return Node("list", tuple(found), "or" if "or" in seen else None)

    def item(self) -> Node:
        """Read a relation, set, interval, tuple or value with unit."""
        if self.at_op("…"):
            self.pos += 1
            return Node("text", (), "…")
        left = self.side()
        operators: list[str] = []
        sides = [left]
        while True:
            token = self.peek()
            if token.kind == "rel":
                operators.append(token.text)
            elif token.kind == "op" and token.text in ("∈",):
                operators.append("in")
            else:
                break
            self.pos += 1
            sides.append(self.side())
            if len(operators) > 8:
                raise ParseFailure("limit")
        if not operators:
            return left
        return Node("rel", tuple(sides), " ".join(operators))

    def side(self) -> Node:
        """Read one side of a relation: a structure or an expression with its unit."""
        node = self.structure()
        while self.at_op("∪"):
            self.pos += 1
            node = Node("union", (node, self.structure()))
        token = self.peek()
        if token.kind == "op" and token.text == "pmod":
            self.pos += 1
            self.primary()
        elif token.kind == "op" and token.text == "(" and self.peek(1).text == "mod":
            self.pos += 2
            self.expression()
            self.expect(")")
        return node

    def structure(self) -> Node:
        """Read a bracketed structure, falling back to an expression."""
        token = self.peek()
        start = self.pos
        if token.kind == "op":
            if token.text in ("∅",):
                self.pos += 1
                return Node("set", ())
            if token.text in ("ℝ", "ℤ", "ℕ", "ℚ", "ℂ"):
                self.pos += 1
                return Node("text", (), token.text)
            if token.text == "\\{":
                return self.braces()
            if token.text == "{":
                node = self.plain_braces()
                if node is not None:
                    return node
                self.pos = start
            if token.text in ("(", "[", "⟨"):
                node = self.bracketed(token.text)
                if node is not None:
                    return node
                self.pos = start
        if token.kind == "cmd" and token.text in ("emptyset", "varnothing"):
            self.pos += 1
            return Node("set", ())
        return self.quantity()

    def bracketed(self, opening: str) -> Node | None:
        """``(a, b]`` and friends; None where the brackets hold one expression."""
        if self.nesting >= MAX_NESTING:
            return None
        tokens, count = self.tokens, self.count
        depth, bars, integrals = self.depth, self.bars, self.integrals
        token = self.peek()
        self.pos += 1
        self.nesting += 1
        try:
            following = self.peek()
            # "(1,234)" is a pair: a comma directly inside brackets separates
            if following.kind == "num" and "," in following.text and self.peek(1).text in ")]":
                self.split_thousands(following)
            inner = self.items()
            closing = self.peek()
            if closing.kind != "op" or closing.text not in (")", "]", "⟩"):
                raise ParseFailure("parse")
            self.pos += 1
        except ParseFailure:
            self.tokens, self.count = tokens, count
            self.depth, self.bars, self.integrals = depth, bars, integrals
            return None
        finally:
            self.nesting -= 1
        if inner.kind != "list":
            if self.pos == self.count and opening == "[" and closing.text == "]":
                return Node("tuple", (inner,), "[]")
            return None
        if inner.value == "or":
            return None
        ends = opening + closing.text
        kind = "interval" if ends in ("[)", "(]") and len(inner.args) == 2 else "tuple"
        span = (token.start, closing.end)
        return Node(kind, inner.args, ends, -1, span)

    def split_thousands(self, token: Token) -> None:
        """Undo the reading of ``1,234`` as one number."""
        parts = token.text.split(",")
        made: list[Token] = []
        at = token.start
        for part in parts:
            if not part.replace(".", "", 1).isdigit():
                raise ParseFailure("parse")
            if made:
                made.append(Token("op", ",", at - 1, at))
            places = len(part.partition(".")[2]) if "." in part else -1
            made.append(Token("num", part, at, at + len(part), 0, Fraction(part), places))
            at += len(part) + 1
        self.tokens = [*self.tokens[: self.pos], *made, *self.tokens[self.pos + 1 :]]
        self.count = len(self.tokens)

    def braces(self) -> Node:
        """``\\{a, b\\}``."""
        self.expect("\\{")
        if self.at_op("\\}"):
            self.pos += 1
            return Node("set", ())
        if self.nesting >= MAX_NESTING:
            raise ParseFailure("depth")
        self.nesting += 1
        inner = self.items(close="\\}")
        self.nesting -= 1
        self.expect("\\}")
        if inner.value == "or" and inner.kind == "list":
            raise ParseFailure("parse")
        return Node("set", inner.args if inner.kind == "list" else (inner,))

    def plain_braces(self) -> Node | None:
        """``{a, b}`` as models write sets; None where the braces hold one expression."""
        if self.nesting >= MAX_NESTING:
            return None
        saved = self.tokens, self.count, self.depth
        self.nesting += 1
        self.pos += 1
        try:
            inner = self.items(close="}")
            self.expect("}")
        except ParseFailure:
            self.tokens, self.count, self.depth = saved
            return None
        finally:
            self.nesting -= 1
        return Node("set", inner.args) if inner.kind == "list" and inner.value is None else None

    def quantity(self) -> Node:
        """Read an expression and the unit after it."""
        token = self.peek()
        if token.kind in ("word", "text"):
            value = _numeral(token.text)
            if value is not None:
                self.pos += 1
                node = Node("num", (), value)
                return self.with_unit(node)
        if token.kind == "rel" and token.text == "≈":
            raise ParseFailure("hedge")
        node = self.expression()
        if self.at_op(":"):
            parts = [node]
            while self.at_op(":"):
                self.pos += 1
                parts.append(self.expression())
            return Node("ratio", tuple(parts))
        return self.with_unit(node)

    def with_unit(self, node: Node) -> Node:
        """Attach the words after a value as its unit where they can be one."""
        start = self.pos
        words: list[str] = []
        while True:
            token = self.peek()
            if token.kind == "text":
                words += token.text.replace("/", " / ").split()
            elif token.kind == "word":
                words.append(token.text)
            elif token.kind == "op" and token.text == "/" and words:
                words.append("/")
            elif token.kind == "op" and token.text == "^" and words:
                follow = self.peek(1)
                if follow.kind == "num":
                    words += ["^", follow.text]
                    self.pos += 2
                    continue
                if follow.text == "{" and self.peek(2).kind == "num" and self.peek(3).text == "}":
                    words += ["^", self.peek(2).text]
                    self.pos += 4
                    continue
                break
            elif token.kind == "sup" and words:
                words += ["^", str(token.value)]
            elif token.kind == "op" and token.text == "." and words and self.peek(1).kind == "word":
                pass  # "p.m."
            elif token.kind == "op" and token.text == "." and words and self.pos + 1 == self.count:
                pass
            else:
                break
            if words and words[-1].lower() in ("and", "or"):
                words.pop()
                break
            self.pos += 1
        if not words:
            return node
        lows = [word.lower().strip(".,") for word in words]
        bad = any(low in _NOT_UNIT or (low in STOP_WORDS and low not in _UNIT_OK) for low in lows)
        single = len(lows) == 1 and len(lows[0]) == 1 and parse_unit(words[0]) is None
        if bad or len(words) > 7 or single or not all(_WORDLIKE.fullmatch(w) for w in words):
            self.pos = start
            return node
        return Node("qty", (node,), " ".join(words))


_WORDLIKE = re.compile(r"[A-Za-z][A-Za-z'.,-]*|/|\^|[0-9]|[°%]|per")
_UNIT_OK = frozenset({"of", "per", "a", "an", "in", "the", "each", "for", "from"})
_NOT_UNIT = word_set(
    """wrong incorrect correct any other maybe perhaps possible possibly both either neither none
    nothing no not never false true undefined infinite unknown approximately answer anything
    everything something all"""
)


def _numeral(text: str) -> Fraction | None:
    low = text.strip().lower()
    if low in NUMERALS:
        return Fraction(NUMERALS[low])
    head, dash, tail = low.partition("-")
    if dash and NUMERALS.get(head, 0) in range(20, 100) and 0 < NUMERALS.get(tail, 0) < 10:
        return Fraction(NUMERALS[head] + NUMERALS[tail])
    return None


_INFINITE = Node("const", (), "inf")
_ALL_REALS = Node("interval", (Node("neg", (_INFINITE,)), _INFINITE), "()")


def _text_answer(text: str) -> Answer:
    shown = plain_text(text)
    if shown in ("allrealnumbers", "allreals"):
        return Answer("interval", _ALL_REALS, "", shown, False, text)
    return Answer("text", Node("text", (), shown), "", shown, False, text)


def read_answer(text: str, *, decimal_comma: bool = False) -> Answer:
    """Read an answer's text; what cannot be read as mathematics is a text.

    Args:
        text: The answer without its box or marker.
        decimal_comma: Read ``1,22`` as one number.
    """
    inner = _unwrap(text)
    if decimal_comma:
        inner = re.sub(r"(?<=\d),(?=\d+(?:\D|$))", ".", inner)
    if not inner or len(inner) > 4000:
        return _text_answer(inner[:4000])
    tokens = [t for t in tokenize(inner, spaced_thousands=True, math=True) if t.kind != "math"]
    while tokens and tokens[-1].kind == "op" and tokens[-1].text in (".", ","):
        tokens.pop()
    if not tokens:
        return _text_answer(inner)
    reader = _Reader(tokens)
    try:
        node = strip(reader.answer())
    except (ParseFailure, ZeroDivisionError):
        return _text_answer(inner)
    unit = ""
    if node.kind == "qty":
        unit, node = str(node.value), node.args[0]
    kind = {
        "rel": "relation", "list": "list", "tuple": "tuple", "set": "set", "interval": "interval",
        "union": "union", "matrix": "matrix", "ratio": "ratio", "text": "text",
    }.get(node.kind, "expression")  # fmt: skip
    if node.kind == "text" and node.value == "ℝ":
        kind, node = "interval", _ALL_REALS
    hedged = node.kind == "list" and node.value == "or"
    return Answer(kind, node, unit, plain_text(inner), hedged, inner)
