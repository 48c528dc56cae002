"""When two unequal numbers agree because one of them is rounded."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from .identity import sample
from .parser.enclose import enclose
from .parser.evaluate import NoValue
from .parser.nodes import Node
from .shapes import decimal_literal, significant

__all__ = ["Tolerance", "rounding_rule", "without_approximation"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """When a decimal counts as an exact value and the other way round.

    Attributes:
        exact_digits: Significant digits a decimal prediction must show against an exact gold.
        gold_digits: Significant digits a decimal gold must show before rounding to it counts.
    """

    exact_digits: int = 6
    gold_digits: int = 2


def rounding_rule(gold: Node, pred: Node, tolerance: Tolerance) -> str:
    """Return the rounding rule under which two unequal numbers agree, "" if none."""
    lit_gold, lit_pred = decimal_literal(gold), decimal_literal(pred)
    try:
        g_low, g_high = enclose(gold, 40)
        p_low, p_high = enclose(pred, 40)
    except NoValue:
        return ""
    gap = max(p_low - g_high, g_low - p_high)
    if lit_gold is not None:
        places, scale = lit_gold
        if places < 1 or significant(gold) < tolerance.gold_digits:
            return ""
        if lit_pred is not None and lit_pred[0] <= places and lit_pred[1] == scale:
            return ""
        return "rounds_to_gold" if 2 * gap <= scale / Fraction(10) ** places else ""
    if lit_pred is None:
        return ""
    if g_low == g_high and g_low.denominator == 1:
        return ""  # an integer gold needs the exact integer
    places, scale = lit_pred
    if places < 1 or significant(pred) < tolerance.exact_digits:
        return ""
    return "shown_digits" if 2 * gap <= scale / Fraction(10) ** places else ""


def without_approximation(relation: Node) -> Node | None:
    r"""``\frac13 \approx 0.333`` without its right end; None where that is no rounding."""
    operators = str(relation.value).split(" ")
    if relation.kind != "rel" or operators[-1] != "≈":
        return None
    exact, shown = relation.args[-2:]
    close = rounding_rule(shown, exact, Tolerance(gold_digits=1))
    if not close and sample(exact, shown).equal is not True:
        return None
    if len(operators) == 1:
        return exact
    return Node("rel", relation.args[:-1], " ".join(operators[:-1]))
