"""Sets of real numbers: intervals, unions and the solutions of inequalities in one variable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from .identity import compare_values
from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node, free_names, strip

__all__ = ["REAL_SETS", "Piece", "RealSet", "real_set", "same_set"]

REAL_SETS = ("interval", "union", "without")
"""Kinds of nodes that are sets of real numbers and nothing else."""

INFINITE = Node("const", (), "inf")
MINUS_INFINITE = Node("neg", (INFINITE,))
_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval; ends may be any expression, infinite ends are open."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


RealSet = list[Piece]


def _order(a: Node, b: Node) -> int | None:
    """Compare two ends, infinities included; None where it cannot be told."""
    if a == b:
        return 0
    if a == MINUS_INFINITE or b == INFINITE:
        return -1
    if a == INFINITE or b == MINUS_INFINITE:
        return 1
    try:
        return compare_values(a, b)
    except NoValue:
        return None


def _bracketed(node: Node) -> Piece | None:
    ends = str(node.value or "()")
    if len(node.args) != 2 or len(ends) != 2:
        return None
    low, high = strip(node.args[0]), strip(node.args[1])
    return Piece(low, high, ends[0] == "[", ends[1] == "]")


def real_set(node: Node) -> RealSet | None:
    """Read an interval, union, inequality or list of them; None where it is something else."""
    node = strip(node)
    if node.kind in ("interval", "tuple"):
        piece = _bracketed(node)
        return _normal([piece]) if piece is not None else None
    if node.kind == "list" and (
        node.value == "and" or (node.value != "or" and all(map(_excludes, node.args)))
    ):
        return _all_of([real_set(arg) for arg in node.args])
    if node.kind == "without":
        whole, taken = real_set(node.args[0]), real_set(node.args[1])
        rest = None if taken is None else _complement(taken)
        return None if whole is None or rest is None else _intersect(whole, rest)
    if node.kind in ("union", "list"):
        pieces: RealSet = []
        for arg in node.args:
            part = real_set(arg)
            if part is None:
                return None
            pieces += part
        return _normal(pieces)
    if node.kind == "rel":
        return _from_relation(node)
    if node.kind == "set":
        if any(free_names(arg) or arg.kind in ("tuple", "text", "set") for arg in node.args):
            return None
        return _normal([Piece(strip(arg), strip(arg), True, True) for arg in node.args])
    if node.kind == "text" and node.value == "ℝ":
        return [Piece(MINUS_INFINITE, INFINITE, False, False)]
    return None


def _excludes(node: Node) -> bool:
    return node.kind == "rel" and str(node.value) == "!="


def _all_of(parts: list[RealSet | None]) -> RealSet | None:
    met: RealSet | None = [Piece(MINUS_INFINITE, INFINITE, False, False)]
    for part in parts:
        met = None if met is None or part is None else _intersect(met, part)
    return met


def _complement(pieces: RealSet) -> RealSet | None:
    """Everything outside of sorted, separate pieces."""
    gaps: RealSet = []
    low, closed = MINUS_INFINITE, False
    for i, piece in enumerate(pieces):
        if i and _order(pieces[i - 1].high, piece.low) is None:
            return None
        if piece.low != MINUS_INFINITE:
            gaps.append(Piece(low, piece.low, closed, not piece.low_closed))
        low, closed = piece.high, not piece.high_closed
    if low != INFINITE:
        gaps.append(Piece(low, INFINITE, closed, False))
    return gaps


def _from_relation(node: Node) -> RealSet | None:
    operators = str(node.value).split(" ")
    names = free_names(node)
    if operators == ["in"] and node.args[0].kind == "name":
        return real_set(node.args[1])
    if len(names) != 1:
        return None
    name = next(iter(names))
    pieces: RealSet = [Piece(MINUS_INFINITE, INFINITE, False, False)]
    for left, operator, right in zip(node.args, operators, node.args[1:], strict=False):
        part = _linear(left, operator, right, name)
        if part is None:
            return None
        met = _intersect(pieces, part)
        if met is None:
            return None
        pieces = met
    return _normal(pieces)


def _linear(left: Node, operator: str, right: Node, name: str) -> RealSet | None:
    """Solve ``left op right`` where the difference is linear in one variable."""
    if operator not in _FLIP or operator == "=":
        return None
    bound: Node | None = None
    if left == Node("name", (), name) and name not in free_names(right):
        bound = strip(right)
    elif right == Node("name", (), name) and name not in free_names(left):
        bound, operator = strip(left), _FLIP[operator]
    else:
        difference = Node("sub", (left, right))
        try:
            at = [evaluate(difference, {name: Fraction(x)}) for x in (0, 1, 2, 7)]
        except NoValue:
            return None
        slope = at[1] - at[0]
        if slope == 0 or at[2] != at[0] + 2 * slope or at[3] != at[0] + 7 * slope:
            return None
        bound = Node("num", (), -at[0] / slope)
        if slope < 0:
            operator = _FLIP[operator]
    if operator == "!=":
        return [Piece(MINUS_INFINITE, bound, False, False), Piece(bound, INFINITE, False, False)]
    closed = operator in ("<=", ">=")
    if operator in ("<", "<="):
        return [Piece(MINUS_INFINITE, bound, False, closed)]
    return [Piece(bound, INFINITE, closed, False)]


def _intersect(left: RealSet, right: RealSet) -> RealSet | None:
    found: RealSet = []
    for a in left:
        for b in right:
            low, high = _order(a.low, b.low), _order(a.high, b.high)
            if low is None or high is None:
                return None
            lower = a if low > 0 else b
            upper = a if high < 0 else b
            low_closed = a.low_closed and b.low_closed if low == 0 else lower.low_closed
            high_closed = a.high_closed and b.high_closed if high == 0 else upper.high_closed
            size = _order(lower.low, upper.high)
            if size is None:
                return None
            if size < 0 or (size == 0 and low_closed and high_closed):
                found.append(Piece(lower.low, upper.high, low_closed, high_closed))
    return found


def _normal(pieces: RealSet) -> RealSet:
    """Sort and join what touches; left as it is where ends cannot be ordered."""
    ordered: RealSet = []
    for piece in pieces:
        at = 0
        while at < len(ordered):
            order = _order(ordered[at].low, piece.low)
            if order is None:
                return pieces
            if order > 0:
                break
            at += 1
        ordered.insert(at, piece)
    joined: RealSet = []
    for piece in ordered:
        if joined:
            last = joined[-1]
            order = _order(last.high, piece.low)
            if order is None:
                return pieces
            if order > 0 or (order == 0 and (last.high_closed or piece.low_closed)):
                top = _order(last.high, piece.high)
                if top is None:
                    return pieces
                higher = last if top > 0 else piece
                closed = higher.high_closed or (top == 0 and last.high_closed)
                low_closed = last.low_closed or (
                    _order(last.low, piece.low) == 0 and piece.low_closed
                )
                joined[-1] = Piece(last.low, higher.high, low_closed, closed)
                continue
        joined.append(piece)
    return joined


def same_set(
    a: RealSet, b: RealSet, ends_equal: Callable[[Node, Node], bool | None]
) -> bool | None:
    """Compare two normalised sets piece by piece."""
    if len(a) != len(b):
        return False
    unsure = False
    for one, two in zip(a, b, strict=True):
        if (one.low_closed, one.high_closed) != (two.low_closed, two.high_closed):
            return False
        for x, y in ((one.low, two.low), (one.high, two.high)):
            same = ends_equal(x, y)
            if same is False:
                return False
            unsure = unsure or same is None
    return None if unsure else True
