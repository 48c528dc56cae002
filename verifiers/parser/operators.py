"""Operators that bind a variable, and matrices: derivatives, sums, integrals, limits."""

from __future__ import annotations

from .nodes import Node, ParseFailure
from .reader import Reader
from .tokens import Token

__all__ = ["OperatorMixin"]

_MATRICES = frozenset(
    {"pmatrix", "bmatrix", "vmatrix", "Vmatrix", "matrix", "Bmatrix", "smallmatrix", "array"}
)
MAX_SERIES = 2  # sums inside sums: the number of terms multiplies with every one


class OperatorMixin(Reader):
    """Readers for calculus and matrices; mixed into the grammar."""

    def derivative(self, start: int) -> Node | None:
        """``\\frac{d}{dx} E``: the derivative of a product."""
        if (
            self.peek(1).text == "{"
            and self.peek(2).text == "d"
            and self.peek(3).text == "}"
            and self.peek(4).text == "{"
            and self.peek(5).kind == "word"
            and len(self.peek(5).text) == 2
            and self.peek(5).text[0] == "d"
            and self.peek(6).text == "}"
        ):
            variable = self.peek(5).text[1]
            self.pos += 7
            inner = self.term()
            return Node("diff", (inner,), variable, -1, self.span_from(start))
        return None

    def summation(self, word: str, start: int) -> Node:
        """``\\sum_{k=1}^{n} E`` and ``\\prod``."""
        self.pos += 1
        self.expect("_")
        self.expect("{")
        variable = self.peek()
        if variable.kind != "word" or len(variable.text) != 1 or self.peek(1).text != "=":
            raise ParseFailure("parse")
        self.pos += 2
        low = self.expression()
        self.expect("}")
        self.expect("^")
        high = self.exponent()
        if self.series >= MAX_SERIES:
            raise self.too_large()
        self.series += 1
        try:
            body = self.term()
        finally:
            self.series -= 1
        return Node(word, (body, low, high), variable.text, -1, self.span_from(start))

    def integral(self, start: int) -> Node:
        """``\\int_a^b E\\,dx`` and the indefinite form."""
        self.pos += 1
        bounds: tuple[Node, ...] = ()
        if self.at_op("_"):
            self.pos += 1
            low = self.argument()
            self.expect("^")
            bounds = (low, self.exponent())
        self.integrals += 1
        body = self.expression()
        self.integrals -= 1
        token = self.peek()
        if token.kind == "word" and len(token.text) == 2 and token.text[0] == "d":
            variable = token.text[1]
            self.pos += 1
        elif token.kind == "text" and token.text == "d" and self.peek(1).kind == "word":
            variable = self.peek(1).text
            self.pos += 2
        else:
            raise ParseFailure("parse")
        return Node("int", (body, *bounds), variable, -1, self.span_from(start))

    def limit(self, start: int) -> Node:
        """``\\lim_{x\\to a} E``."""
        self.pos += 1
        self.expect("_")
        self.expect("{")
        variable = self.peek()
        if variable.kind != "word" or len(variable.text) != 1 or self.peek(1).text != "→":
            raise ParseFailure("parse")
        self.pos += 2
        target = self.expression()
        side = ""
        if self.at_op("^"):
            self.pos += 1
            side = self.peek().text
            if side not in ("+", "-"):
                raise ParseFailure("parse")
            self.pos += 1
        self.expect("}")
        body = self.term()
        return Node("lim", (body, target), variable.text + side, -1, self.span_from(start))

    # -- matrices -----------------------------------------------------------------------------
    def environment(self, token: Token, start: int) -> Node:
        """``\\begin{pmatrix} … \\end{pmatrix}`` and its relatives."""
        word = token.text
        if word not in _MATRICES:
            raise ParseFailure("parse")
        self.pos += 1
        rows: list[Node] = []
        cells: list[Node] = []
        while True:
            cells.append(self.expression())
            token = self.peek()
            if token.kind == "op" and token.text == "&":
                self.pos += 1
                continue
            rows.append(Node("row", tuple(cells)))
            cells = []
            if token.kind == "row":
                self.pos += 1
                if self.peek().kind != "end":
                    continue
                token = self.peek()
            if token.kind == "end" and token.text == word:
                self.pos += 1
                break
            raise ParseFailure("parse")
        if len({len(row.args) for row in rows}) != 1 or len(rows) * len(rows[0].args) > 100:
            raise ParseFailure("parse")
        matrix = Node("matrix", tuple(rows), None, -1, self.span_from(start))
        if word in ("vmatrix",):
            return Node("call", (matrix,), "det", -1, matrix.span)
        return matrix
