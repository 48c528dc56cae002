"""Natural readings of a link besides the literal one, each only where the text offers it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from .parser.nodes import Node

__all__ = ["Cues", "counts_cents", "readings", "transform"]


@dataclass(frozen=True, slots=True)
class Cues:
    """What the sentence around a link says.

    Attributes:
        approximate: about, roughly, rounded, nearest, ≈.
        floor: remainder, left over, full, whole, cut off.
        thousand: Magnitude words that stand in the sentence.
    """

    approximate: bool = False
    floor: bool = False
    magnitudes: tuple[Fraction, ...] = ()


def transform(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Return a copy with nodes replaced where ``change`` returns one."""
    new = change(node)
    if new is not None:
        return new
    if not node.args:
        return node
    args = tuple(transform(arg, change) for arg in node.args)
    return Node(node.kind, args, node.value, node.places, node.span)


def _drop(kind: str) -> Callable[[Node], Node | None]:
    def change(node: Node) -> Node | None:
        if node.kind == kind:
            return transform(node.args[0], change)
        return None

    return change


def _kinds(node: Node) -> set[str]:
    return {n.kind for n in node.walk()}


def readings(left: Node, right: Node, cues: Cues) -> Iterator[tuple[Node, Node, str]]:
    """Further natural readings of a link, each only where the text offers it."""
    kl, kr = _kinds(left), _kinds(right)
    yield from _spellings(left, right, kl | kr)
    if "pct" in kl or "pct" in kr:
        bare_l, bare_r = transform(left, _drop("pct")), transform(right, _drop("pct"))
        if "pct" in kl and "pct" in kr:
            yield bare_l, bare_r, "percent_as_number"
        if "pct" in kr:
            yield left, bare_r, "percent_as_number"
        if "pct" in kl:
            yield bare_l, right, "percent_as_number"
    if "fact" in kr and right.kind == "fact" and right.args[0].kind == "num":
        yield left, right.args[0], "exclamation"
    if "mag" in kl or "mag" in kr:
        if "mag" in kl and "mag" in kr:  # "1 + .5 + 1.5 dozen = 3 dozen"
            yield transform(left, _drop("mag")), transform(right, _drop("mag")), "bare_magnitude"
        if "mag" in kr:
            yield left, transform(right, _drop("mag")), "bare_magnitude"
        if "mag" in kl:
            yield transform(left, _drop("mag")), right, "bare_magnitude"
    elif cues.magnitudes:
        for factor in cues.magnitudes:
            scaled = Node("mul", (left, Node("num", (), factor)))
            yield scaled, right, "implied_magnitude"
    if "of" in kr and right.kind == "of":
        yield left, right.args[0], "part_of"
    if "qty" in kl or "qty" in kr:
        cents_l, cents_r = counts_cents(left), counts_cents(right)
        if cents_l != cents_r:
            hundred = Node("num", (), Fraction(100))
            if cents_l:
                yield Node("div", (left, hundred)), right, "cents"
            else:
                yield left, Node("div", (right, hundred)), "cents"


def counts_cents(node: Node) -> bool:
    """True where an amount is given in cents."""
    return any(
        n.kind == "qty" and str(n.value).lower().startswith(("cent", "penn", "¢"))
        for n in node.walk()
    )


_TRIGONOMETRY = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})


def _spellings(left: Node, right: Node, kinds: set[str]) -> Iterator[tuple[Node, Node, str]]:
    """Readings that one spelling leaves open, applied to both sides at once."""

    def both(change: Callable[[Node], Node | None], label: str) -> Iterator[tuple[Node, Node, str]]:
        one, two = transform(left, change), transform(right, change)
        if (one, two) != (left, right):
            yield one, two, label

    if "call" in kinds and "deg" not in kinds and not _has_pi(left):
        yield from both(_in_degrees, "degrees")
    if _names_degrees(left) or _names_degrees(right):
        yield from both(_in_radians, "radians")
    if "call" in kinds and any(n.value in _INVERSE for s in (left, right) for n in s.walk()):
        yield from both(_inverse_in_degrees, "degrees")
    if "div" in kinds and "mul" in kinds:
        yield from both(_divided_by_product, "product_first")
    if "pct" in kinds and ("add" in kinds or "sub" in kinds):
        yield from both(_percent_of_it, "percent_of_it")
    decimals = [
        n for side in (left, right) for n in side.walk() if n.kind == "num" and n.places > 0
    ]
    if decimals and all(map(_like_thousands, decimals)):
        yield from both(_thousands, "dot_thousands")


def _has_pi(node: Node) -> bool:
    return any(n.kind == "const" and n.value == "pi" for n in node.walk())


def _in_degrees(node: Node) -> Node | None:
    """``sin 30``: an angle in degrees."""
    if node.kind == "call" and node.value in _TRIGONOMETRY and len(node.args) == 1:
        return Node("call", (Node("deg", node.args),), node.value)
    return None


_INVERSE = frozenset({"asin", "acos", "atan", "acot", "asec", "acsc"})
_HALF_TURN = Node("num", (), Fraction(180))
_PI = Node("const", (), "pi")


def _names_degrees(node: Node) -> bool:
    """True where a degree stands outside the argument of a function."""
    if node.kind == "call":
        return False
    return node.kind == "deg" or any(map(_names_degrees, node.args))


def _in_radians(node: Node) -> Node | None:
    """``90° = π/2``: degrees turned into radians outside the functions, which know degrees."""
    if node.kind == "call":
        return node
    if node.kind == "deg":
        return Node("div", (Node("mul", (node.args[0], _PI)), _HALF_TURN))
    return None


def _inverse_in_degrees(node: Node) -> Node | None:
    """``arctan(1) = 45°``: an inverse function whose value is in degrees."""
    if node.kind == "call" and node.value in _INVERSE:
        return Node("div", (Node("mul", (node, _HALF_TURN)), _PI))
    if node.kind == "deg":
        return node.args[0]
    return None


def _divided_by_product(node: Node) -> Node | None:
    """``6 ÷ 2(1 + 2)``: the product without a sign may come first."""
    if node.kind == "mul" and node.places == -2 and node.args[0].kind == "div":
        top, bottom = node.args[0].args
        return Node("div", (top, Node("mul", (bottom, node.args[1]))))
    return None


def _percent_of_it(node: Node) -> Node | None:
    """``50 + 10%``: ten percent of the 50."""
    if node.kind not in ("add", "sub"):
        return None
    base, share = node.args
    if share.kind == "qty":  # "15% tip"
        share = share.args[0]
    if share.kind == "pct" and base.kind != "pct":
        return Node("mul", (base, Node(node.kind, (Node("num", (), Fraction(1)), share))))
    return None


def _like_thousands(node: Node) -> bool:
    assert isinstance(node.value, Fraction)
    return node.places == 3 and 1 <= node.value < 1000


def _thousands(node: Node) -> Node | None:
    """``1.200`` as much of Europe writes 1,200."""
    if node.kind == "num" and node.places > 0 and isinstance(node.value, Fraction):
        return Node("num", (), node.value * 1000)
    return None
