"""Small questions about answers' trees, asked by the comparison."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from .identity import sample, sample_points
from .parser.answer import Answer
from .parser.evaluate import NoValue, evaluate, is_closed
from .parser.nodes import Node, free_names, render, strip

__all__ = [
    "assigned",
    "canonical",
    "choice_content",
    "constant_of_integration",
    "decimal_literal",
    "difference",
    "has_kind",
    "has_pi",
    "inner_unit",
    "irrational_proportion",
    "is_choice",
    "is_infinite",
    "is_opaque",
    "matrix_rows",
    "members",
    "names_apart",
    "plain_value",
    "proportion",
    "same_shape",
    "same_words",
    "sign_of_infinity",
    "signed",
    "significant",
    "value_side",
    "wordlike",
]


def wordlike(answer: Answer) -> bool:
    """True for a text, or letters that were read as a product of variables."""
    return answer.kind == "text" or (
        answer.kind == "expression" and re.fullmatch(r"[a-z]+", answer.text) is not None
    )


_CHOICE = re.compile(
    r"^\W*(?:\\text\w*\{)?\(?([A-J])\)?\}?(?:[.):]|\s|\\[ ,;:!]|\\q?quad|~)\s*[^()]*$"
)


def is_choice(letter: str, text: str) -> bool:
    """True where a text is a choice letter with its content: ``(B) 12``, and no other choice."""
    text = text.replace("$", " ")
    match = _CHOICE.match(text)
    if match is None or match.group(1) != letter or len(letter) != 1:
        return False
    rest = text[match.end(1) :]
    bracketed = re.match(r"\s*(?:\\text\w*\{\s*)?\(", text) is not None
    labelled = re.match(r"\s*[A-J](?:[:)]\s*\S|\.\s+\S)", text) is not None
    if labelled and re.search(r"(?:^|[\s,(])[A-J](?:[.,:)]|\s*$)", rest[1:]):
        return False
    return (bracketed or labelled) and not re.search(r"\b(?:or|and|not)\b|\([A-J]\)", rest)


def choice_content(text: str) -> str:
    """The content behind a choice in brackets, ``12`` of ``\\textbf{(B)}\\ 12``; "" without one."""
    text = text.replace("$", " ")
    match = re.match(r"^\s*(?:\\text\w*\s*\{\s*)?\([A-J]\)\s*\}?(?:\s|\\[ ,;:!]|\\q?quad|~)+", text)
    return text[match.end() :] if match is not None else ""


def inner_unit(node: Node) -> str:
    while node.kind in ("neg", "paren"):
        node = node.args[0]
    if node.kind == "money":
        return str(node.value)
    return "degrees" if node.kind == "deg" else ""


def same_words(a: str, b: str) -> bool:
    def words(text: str) -> set[str]:
        return {word.rstrip("s") for word in re.findall(r"[a-z]+", text.lower())} - {"of", "per"}

    one, two = words(a), words(b)
    return bool(one and two) and (one <= two or two <= one)


def plain_value(node: Node) -> Node:
    """Strip what does not change a value: brackets, money signs, units inside structures."""
    node = strip(node)
    while node.kind in ("qty", "money"):
        node = node.args[0]
    return node


def members(node: Node) -> list[Node] | None:
    """Members of a list or set, with ± written out; None for a scalar."""
    if node.kind in ("list", "set"):
        found: list[Node] = []
        for arg in node.args:
            found.extend(members(strip(arg)) or [arg])
        return found
    if any(n.kind == "pm" for n in node.walk()) and node.kind != "rel":
        return [signed(node, upper=True), signed(node, upper=False)]
    return None


def signed(node: Node, *, upper: bool) -> Node:
    args = tuple(signed(arg, upper=upper) for arg in node.args)
    if node.kind == "pm":
        if len(args) == 1:
            return args[0] if upper else Node("neg", args)
        return Node("add" if upper else "sub", args)
    return Node(node.kind, args, node.value, node.places, node.span)


def names_apart(items: list[Node]) -> list[Node]:
    """``n = 2, 3, 4``: the name belongs to every member."""
    first = items[0] if items else None
    if (
        first is not None
        and len(items) > 1
        and first.kind == "rel"
        and first.value == "="
        and first.args[0].kind == "name"
        and all(item.kind != "rel" for item in items[1:])
    ):
        return [first.args[1], *items[1:]]
    names = {
        str(item.args[0].value)
        for item in items
        if item.kind == "rel" and item.value == "=" and item.args[0].kind == "name"
    }
    if len(names) == 1 and all(item.kind == "rel" and len(item.args) == 2 for item in items):
        return [item.args[1] for item in items]
    return items


def value_side(node: Node) -> Node:
    if node.kind == "rel" and node.value == "=" and node.args[0].kind == "name":
        return node.args[-1]
    return node


_EQUATIONS = frozenset({"sqrt", "root", "abs", "exp", "ln", "log", "floor", "ceil"})


def _solvable(head: Node) -> bool:
    """True for ``|x|`` and ``sqrt(x)``: with a number they make an equation for x, no value.

    ``|AB|`` is a length and ``sin A`` what was asked for.
    """
    return head.value in _EQUATIONS and any(not name.isupper() for name in free_names(head))


def assigned(relation: Node) -> Node | None:
    """The value of ``x = 5``, ``f(x) = x^2`` or a chain whose closed links all hold."""
    head, *rest = relation.args
    bare = (
        head.kind == "name"
        or (head.kind == "call" and not _solvable(head))
        or (head.kind == "mul" and all(n.kind in ("name", "mul", "call") for n in head.walk()))
        or (  # (a, b) = (1, 2)
            head.kind == "tuple"
            and all(n.kind == "name" for n in head.args)
            and all(n.kind == "tuple" and len(n.args) == len(head.args) for n in rest)
        )
    )
    if not bare:
        rest = [head, *rest]
        if not is_closed(head):
            return None
    values = [node for node in rest if node.kind != "name"]
    if not values:
        return rest[-1] if head.kind == "call" and len(rest) == 1 else None  # f(x) = x
    for one, two in pairwise(values):
        if sample(one, two).equal is not True:
            return None
    return values[-1]


def matrix_rows(node: Node) -> list[list[Node]] | None:
    if node.kind == "matrix":
        return [list(row.args) for row in node.args]
    if node.kind == "tuple":
        return [list(node.args)]
    return None


def difference(relation: Node) -> Node:
    return Node("sub", relation.args)


def proportion(left: Node, right: Node) -> Fraction | None:
    """Return k with left = k*right everywhere, None if there is none: both vanish together."""
    names = sorted(free_names(left) | free_names(right))
    ratio: Fraction | None = None
    agreed = 0
    for env in sample_points(names):
        try:
            a, b = evaluate(left, env), evaluate(right, env)
        except NoValue:
            return irrational_proportion(left, right)
        if (a == 0) != (b == 0):
            return None
        if b == 0:
            continue
        if ratio is None:
            ratio = a / b
        elif a != ratio * b:
            return None
        agreed += 1
    return ratio if agreed >= 5 else None


def irrational_proportion(left: Node, right: Node) -> Fraction | None:
    if sample(left, right).equal:
        return Fraction(1)
    if sample(left, Node("neg", (right,))).equal:
        return Fraction(-1)
    return None


def is_infinite(node: Node) -> bool:
    return (node.kind == "const" and node.value == "inf") or (
        node.kind == "neg" and is_infinite(node.args[0])
    )


def sign_of_infinity(node: Node) -> int:
    if not is_infinite(node):
        return 0
    return 1 if node.kind == "const" else -sign_of_infinity(node.args[0])


def constant_of_integration(node: Node, *, any_case: bool = False) -> Node | None:
    """The part without a trailing ``+ C``."""
    if node.kind != "add" or node.args[1].kind != "name":
        return None
    name = str(node.args[1].value)
    if (name.upper() if any_case else name) in ("C", "K") and name not in free_names(node.args[0]):
        return node.args[0]
    return None


def is_opaque(node: Node) -> bool:
    """True where an unknown function stands in the tree: it has no value at a point."""
    return any(n.kind == "call" and len(str(n.value).rstrip("'")) == 1 for n in node.walk())


def same_shape(a: Node, b: Node) -> bool:
    """Equal up to the order of sums and products and equal arguments of functions."""
    a, b = strip(a), strip(b)
    if a == b:
        return True
    if a.kind != b.kind or a.value != b.value or len(a.args) != len(b.args):
        return not (is_opaque(a) or is_opaque(b)) and sample(a, b).equal is True
    if all(same_shape(x, y) for x, y in zip(a.args, b.args, strict=True)):
        return True
    if a.kind in ("add", "mul") and len(a.args) == 2:
        return same_shape(a.args[0], b.args[1]) and same_shape(a.args[1], b.args[0])
    return False


def has_kind(node: Node, kind: str) -> bool:
    return any(n.kind == kind for n in node.walk())


def has_pi(node: Node) -> bool:
    return any(n.kind == "const" and n.value == "pi" for n in node.walk())


def decimal_literal(node: Node) -> tuple[int, Fraction] | None:
    """(decimal places, scale) of a lone decimal, with its sign and percent."""
    scale = Fraction(1)
    while node.kind in ("neg", "pct", "deg"):
        if node.kind == "pct":
            scale /= 100
        node = node.args[0]
    if node.kind == "mul" and node.args[1].kind == "pow":  # 1.2 * 10^6
        base, power = node.args[0], node.args[1]
        if (
            base.kind == "num"
            and base.places > 0
            and power.args[0] == Node("num", (), Fraction(10))
        ):
            try:
                return base.places, scale * evaluate(power)
            except NoValue:
                return None
    if node.kind != "num" or node.places < 1:
        return None
    return node.places, scale


def significant(node: Node) -> int:
    """Significant digits that a decimal shows."""
    while node.kind in ("neg", "pct", "deg", "mul"):
        node = node.args[0]
    value = node.value
    if not isinstance(value, Fraction):
        return 0
    scaled = abs(value) * Fraction(10) ** max(node.places, 0)
    return len(str(int(scaled))) if scaled else 0


def canonical(answer: Answer) -> str:
    """Canonical text of an answer for the record."""
    text = render(answer.node)[:400]
    return f"{text} [{answer.unit}]" if answer.unit else text
