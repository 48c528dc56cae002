"""The grammar of structures: lists, tuples, sets, intervals, relations, ratios, values with units.

What is left over after the longest reading decides: a unit is part of the answer, anything else
fails, so that "2 or any other value" never becomes 2.
"""

from __future__ import annotations

from fractions import Fraction

from .grammar import Grammar
from .nodes import Node, ParseFailure
from .numerals import spelled_number
from .tokens import Token
from .units import NOT_UNIT, may_be_unit, parse_unit
from .vocabulary import NUMERALS, ORDINALS

__all__ = ["StructureReader"]

MAX_ITEMS = 60
MAX_NESTING = 6
_ANGLES = frozenset({"angle", "measuredangle"})


class StructureReader(Grammar):
    """Answer structures on top of expressions."""

    nesting = 0
    joined = -1  # where a text such as "feet and" stands, whose unit is taken already

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
        if self.pos == self.joined:
            text = text.split()[-1]
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
                raise self.too_large()
        if len(found) == 1:
            return first
        joined = "or" if "or" in seen else None
        if seen == {"and"} and all(map(_is_inequality, found)):
            joined = "and"
        return Node("list", tuple(found), joined)

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
                raise self.too_large()
        if not operators:
            return left
        return Node("rel", tuple(sides), " ".join(operators))

    def side(self) -> Node:
        """Read one side of a relation: a structure or an expression with its unit or modulus."""
        node = self._named_side() or self.structure()
        while True:
            if self.at_op("∪"):
                kind = "union"
            elif self.at_op("∖") or (self.at_op("-") and _is_set(node)):
                kind = "without"
            else:
                break
            self.pos += 1
            self.count_operation()
            node = Node(kind, (node, self.structure()))
        token = self.peek()
        if token.kind == "op" and token.text == "pmod":
            self.pos += 1
            node = Node("residue", (node, self.primary()))
        elif token.kind == "op" and token.text == "(" and self.peek(1).text == "mod":
            self.pos += 2
            node = Node("residue", (node, self.expression()))
            self.expect(")")
        return node

    def _named_side(self) -> Node | None:
        r"""``\text{length} =``, ``\angle ABC =``: words that name what has the value."""
        token, following = self.peek(), self.peek(1)
        if token.kind == "text" and following.text == "=" and token.text:
            words = {word.strip(".,") for word in token.text.lower().split()}
            if not words & NOT_UNIT and not words & set(NUMERALS):
                self.pos += 1
                return Node("name", (), token.text)
        if token.kind == "word" and token.text == "m" and following.text in _ANGLES:
            self.pos += 1
            token, following = following, self.peek(1)
        if token.kind == "cmd" and token.text in _ANGLES and following.kind == "word":
            self.pos += 2
            return Node("name", (), f"angle {following.text}")
        return None

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
            raise self.too_large()
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
            if token.text.strip().lower() in ("negative", "minus") and self.pos + 1 < self.count:
                self.pos += 1
                node = self.quantity()
                if node.kind == "qty":
                    return Node("qty", (Node("neg", node.args),), node.value)
                return Node("neg", (node,))
            value = self.spelled()
            if value is not None:
                return self.with_unit(Node("num", (), value))
        if token.kind == "rel" and token.text == "≈":
            raise ParseFailure("hedge")
        node = self.expression()
        if self.peek().kind == "cmd" and self.peek().text == "over":
            self.pos += 1
            node = Node("div", (node, self.expression()))
        if self.at_op(":"):
            parts = [node]
            while self.at_op(":"):
                self.pos += 1
                parts.append(self.expression())
            return Node("ratio", tuple(parts))
        return self.compound(self.with_unit(node))

    def spelled(self) -> Fraction | None:
        """Read a number in words: ``five hundred thousand``, ``one hundred and five``."""
        token = self.peek()
        if token.kind == "text":
            words = token.text.lower().split()
            value, used = spelled_number(words)
            if value is None or used < len(words):
                return None
            self.pos += 1
            return value
        words = []
        while self.peek(len(words)).kind == "word" and len(words) < 20:
            words.append(self.peek(len(words)).text.lower())
        value, used = spelled_number(words)
        part = ORDINALS.get(words[used]) if value is not None and used < len(words) else None
        if value is not None and part is not None and value < 100:  # "two thirds"
            value, used = value * part, used + 1
        self.pos += used
        return value

    def compound(self, node: Node) -> Node:
        """Add the second part of ``5 hours 30 minutes`` or ``5 feet and 6 inches``."""
        if node.kind != "qty":
            return node
        start = self.pos
        word = self.peek().text.strip().lower()
        if word in (",", "and") or (self.pos == self.joined and word.endswith(" and")):
            self.pos += 1
        if self.peek().kind == "num":
            back = self.pos
            part = self.with_unit(self.number(self.peek(), self.pos))
            whole_unit = parse_unit(str(node.value))
            inches = str(part.value) == "in"  # alone it is a preposition
            part_unit = parse_unit("inch" if inches else str(part.value))
            part_unit = part_unit if part.kind == "qty" else None
            if whole_unit and part_unit and whole_unit[1] == part_unit[1] != ():
                factor = whole_unit[0] / part_unit[0]
                if factor > 1:
                    scaled = Node("mul", (node.args[0], Node("num", (), factor)))
                    total = Node("add", (scaled, part.args[0]))
                    return Node("qty", (total,), "inch" if inches else part.value)
            self.pos = back
        self.pos = start
        return node

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
                self.joined = self.pos if token.kind == "text" and words else -1
                break
            self.pos += 1
        turns = node.value == "pi" and parse_unit(" ".join(words)) is not None
        if not words or (node.kind in ("name", "const") and not turns):  # "I don't know"
            self.pos = start
            return node
        if not may_be_unit(words):
            self.pos = start
            return node
        return Node("qty", (node,), " ".join(words))


def _is_inequality(node: Node) -> bool:
    return node.kind == "rel" and not set(str(node.value).split(" ")) & {"=", "≈", "≡", "in"}


def _is_set(node: Node) -> bool:
    """True for what a difference of sets may start with, where a minus stands for it."""
    return node.kind in ("set", "interval", "union", "without") or (
        node.kind == "text" and str(node.value) in "ℝℤℕℚℂ"
    )
