"""Units of answers: what may be left out, what converts, what differs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from .identity import sample
from .outcome import Outcome
from .parser.answer import UNIT_LETTERS, Answer
from .parser.evaluate import is_closed
from .parser.nodes import Node
from .parser.units import Quantity, parse_unit
from .readings import transform
from .shapes import inner_unit, same_words

__all__ = ["compare_units", "with_letter_units"]

_TEMPERATURES = ("°C", "°F")


def with_letter_units(gold: Answer, pred: Answer) -> tuple[Answer, Answer]:
    """Read ``5m`` as a length where the other side has a unit, and as a product where it has none.

    A letter behind a number is a variable as often as a unit; the other side says which.
    """
    return _like(gold, pred), _like(pred, gold)


def _like(answer: Answer, other: Answer) -> Answer:
    node = answer.node
    if other.unit and not answer.unit and node.kind == "mul" and node.args[1].kind == "name":
        letter = str(node.args[1].value)
        known = parse_unit(other.unit) is not None or other.unit == letter
        if letter == "K" and other.unit in _TEMPERATURES and is_closed(node.args[0]):
            return replace(answer, node=node.args[0], unit=letter)
        if letter in UNIT_LETTERS and known and is_closed(node.args[0]):
            return replace(answer, node=node.args[0], unit=letter)
    return answer


def compare_units(gold: Answer, pred: Answer, units: str) -> Outcome | None:
    """Settle unequal units; None where the values decide.

    Args:
        gold, pred: Read answers.
        units: "lenient": a missing unit is fine; "strict": it is not.
    """
    gold_unit = gold.unit or inner_unit(gold.node)
    pred_unit = pred.unit or inner_unit(pred.node)
    if gold_unit == pred_unit or not gold_unit:
        return None
    if not pred_unit:
        return Outcome(False, "unit_missing") if units == "strict" else None
    if gold_unit in _TEMPERATURES or pred_unit in _TEMPERATURES:
        return _temperatures(gold, pred, gold_unit, pred_unit)
    a, b = parse_unit(gold_unit), parse_unit(pred_unit)
    if a is not None and b is not None and {a[1], b[1]} == {_DEGREES, _RADIANS}:
        return _converted(_radians(gold.node, a), _radians(pred.node, b))
    if a is None or b is None:
        if a is None and b is None and not same_words(gold_unit, pred_unit):
            return Outcome(False, "unit")
        return None
    if a[1] != b[1]:
        return Outcome(False, "unit")
    if a[0] == b[0]:
        return None
    left = Node("mul", (gold.node, Node("num", (), a[0])))
    right = Node("mul", (pred.node, Node("num", (), b[0])))
    return _converted(left, right)


_DEGREES, _RADIANS = (("angle", 1),), (("radians", 1),)


def _radians(node: Node, unit: Quantity) -> Node:
    if unit[1] == _RADIANS:
        return node
    bare = transform(node, lambda n: n.args[0] if n.kind == "deg" else None)
    turned = Node("mul", (bare, Node("const", (), "pi")))
    return Node("div", (turned, Node("num", (), Fraction(180))))


def _converted(left: Node, right: Node) -> Outcome:
    found = sample(left, right)
    if found.equal is None:
        return Outcome(None, found.reason)
    return Outcome(found.equal, "unit_converted" if found.equal else "not_equal")


def _temperatures(gold: Answer, pred: Answer, gold_unit: str, pred_unit: str) -> Outcome | None:
    if {gold_unit, pred_unit} != set(_TEMPERATURES):
        # bare degrees, or the letter left without its sign, do not say which scale
        bare = ("degrees", "degree", "C", "F", "Celsius", "Fahrenheit")
        return None if gold_unit in bare or pred_unit in bare else Outcome(False, "unit")
    celsius, fahrenheit = (gold, pred) if gold_unit == "°C" else (pred, gold)
    scaled = Node("mul", (celsius.node, Node("num", (), Fraction(9, 5))))
    return _converted(Node("add", (scaled, Node("num", (), Fraction(32)))), fahrenheit.node)
