"""The syntax tree that every reading of model text ends in.

One small node class serves numbers, expressions and structures (tuples, intervals, matrices). A
tree holds only numbers, strings and nodes: it can be sent to another process as JSON and built
into a sympy or z3 object there without any text being evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

__all__ = [
    "Node",
    "ParseFailure",
    "constant",
    "free_names",
    "from_wire",
    "name",
    "number",
    "render",
    "strip",
    "to_wire",
]


class ParseFailure(Exception):
    """The text is not an expression here; carries a short code and never leaves the room."""


Value = Fraction | str | None


class Node:
    """A node of the tree; treated as immutable.

    Attributes:
        kind: What it is, see ``PRECEDENCE`` and the grammar.
        args: Children in reading order.
        value: A number's value, a name, a function's name, a unit, …; None where it has none.
        places: Digits shown after the decimal point of a literal, -1 for one without a point.
        span: Offsets in the text, end exclusive.
    """

    __slots__ = ("args", "kind", "places", "span", "value")

    def __init__(
        self,
        kind: str,
        args: tuple[Node, ...] = (),
        value: Value = None,
        places: int = -1,
        span: tuple[int, int] = (0, 0),
    ) -> None:
        self.kind = kind
        self.args = args
        self.value = value
        self.places = places
        self.span = span

    def __eq__(self, other: object) -> bool:
        """Equal structure; spans and shown digits do not count."""
        if not isinstance(other, Node):
            return NotImplemented
        return (self.kind, self.value, self.args) == (other.kind, other.value, other.args)

    def __hash__(self) -> int:
        return hash((self.kind, self.value, self.args))

    def __repr__(self) -> str:
        return f"Node({render(self)!r})"

    def walk(self) -> Iterator[Node]:
        """Yield this node and everything below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.args))


def number(value: Fraction | int, places: int = -1, span: tuple[int, int] = (0, 0)) -> Node:
    """Return a literal."""
    return Node("num", (), Fraction(value), places, span)


def name(text: str, span: tuple[int, int] = (0, 0)) -> Node:
    """Return a variable."""
    return Node("name", (), text, -1, span)


def constant(text: str, span: tuple[int, int] = (0, 0)) -> Node:
    """Return one of the constants pi, e, i, inf."""
    return Node("const", (), text, -1, span)


def free_names(node: Node) -> set[str]:
    """Return the names of variables below ``node``, without those that a sum or integral binds."""
    if node.kind == "name":
        return {str(node.value)}
    if node.kind in ("sum", "prod", "int", "lim", "diff") and node.args:
        inner = free_names(node.args[0])
        if not (node.kind == "diff" or (node.kind == "int" and len(node.args) == 1)):
            inner -= {str(node.value)}
        return inner.union(*(free_names(arg) for arg in node.args[1:]))
    found: set[str] = set()
    for arg in node.args:
        found |= free_names(arg)
    return found


PRECEDENCE = {
    "pm": 1,
    "add": 1,
    "sub": 1,
    "neg": 2,
    "mul": 3,
    "of": 3,
    "div": 3,
    "mod": 3,
    "pow": 5,
}
_SYMBOL = {
    "add": " + ",
    "sub": " - ",
    "mul": "*",
    "of": "*",
    "div": "/",
    "mod": " mod ",
    "pow": "^",
}


def render(node: Node) -> str:
    """Return a canonical text that the plain grammar reads back to an equal tree."""
    return _render(node)[0]


def _decimal(value: Fraction) -> str:
    return (
        str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    )


def _render(node: Node) -> tuple[str, int]:
    kind = node.kind
    if kind == "num":
        value = node.value
        assert isinstance(value, Fraction)
        text = _decimal(value)
        return text, 3 if value.denominator != 1 else (9 if value >= 0 else 2)
    if kind in ("name", "const", "text"):
        return str(node.value), 9
    if kind in _SYMBOL:
        mine = PRECEDENCE[kind]
        left, lp = _render(node.args[0])
        right, rp = _render(node.args[1])
        if lp < mine or (kind == "pow" and lp <= mine):
            left = f"({left})"
        if rp < mine or (rp == mine and kind in ("sub", "div", "mod", "pow", "mul", "of", "add")):
            right = f"({right})"
        return left + _SYMBOL[kind] + right, mine
    if kind == "frac":
        return _render(node.args[0])
    if kind == "paren":
        inner, prec = _render(node.args[0])
        return (inner, prec) if prec >= 9 else (f"({inner})", 9)
    if kind == "neg":
        inner, prec = _render(node.args[0])
        return f"-({inner})" if prec <= 3 else f"-{inner}", 2
    if kind == "fact":
        inner, prec = _render(node.args[0])
        return (inner if prec >= 9 else f"({inner})") + "!", 6
    if kind == "pct":
        inner, prec = _render(node.args[0])
        return (inner if prec >= 9 else f"({inner})") + "%", 6
    if kind == "deg":
        inner, prec = _render(node.args[0])
        return (inner if prec >= 9 else f"({inner})") + "°", 6
    if kind == "qty":
        inner, prec = _render(node.args[0])
        return (inner if prec >= 6 else f"({inner})") + f" {node.value}", 4
    # only here: above, each child is rendered once, or a tower of signs would take twice as long
    # with every floor
    parts = [render(arg) for arg in node.args]
    if kind == "money":
        return f"{node.value}{parts[0]}", 6
    if kind == "rel":
        ops = str(node.value).split(" ")
        text = parts[0]
        for op, part in zip(ops, parts[1:], strict=True):
            text += f" {op} {part}"
        return text, 0
    if kind == "interval":
        ends = str(node.value)
        return f"{ends[0]}{', '.join(parts)}{ends[1]}", 9
    if kind == "tuple":
        return f"({', '.join(parts)})", 9
    if kind == "set":
        return "{" + ", ".join(parts) + "}", 9
    if kind == "list":
        return ", ".join(parts), 0
    if kind == "union":
        return " U ".join(parts), 0
    if kind == "pm":
        text = " ± ".join(parts) if len(parts) > 1 else f"±{parts[0]}"
        return text, 1
    if kind == "call":
        return f"{node.value}({', '.join(parts)})", 9
    head = kind if node.value is None else f"{kind}[{node.value}]"
    return f"{head}({', '.join(parts)})", 9


def to_wire(node: Node) -> list[Any]:
    """Return the tree as nested lists for JSON: [kind, value, args…]."""
    value = node.value
    plain = f"{value.numerator}/{value.denominator}" if isinstance(value, Fraction) else value
    return [node.kind, plain, *(to_wire(arg) for arg in node.args)]


def from_wire(data: list[Any]) -> Node:
    """Restore a tree from :func:`to_wire`; spans are lost."""
    kind, value = data[0], data[1]
    if kind == "num":
        top, _, bottom = str(value).partition("/")
        value = Fraction(int(top), int(bottom))
    return Node(str(kind), tuple(from_wire(arg) for arg in data[2:]), value)


def strip(node: Node) -> Node:
    """Return the tree without brackets and other marks of spelling that carry no meaning."""
    while node.kind in ("paren", "frac"):
        node = node.args[0]
    if not node.args:
        return node
    args = tuple(strip(arg) for arg in node.args)
    return Node("mul" if node.kind == "of" else node.kind, args, node.value, node.places, node.span)
