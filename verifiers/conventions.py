"""Conventions under which a true equation looks like wrong arithmetic.

Map scales, ranges of pages, working weeks, place values: where the text may mean one of them, an
inequality of the two sides refutes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from .chains import sentence_of
from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node
from .parser.units import parse_unit
from .parser.vocabulary import word_set

__all__ = ["changes_scale", "convention_of"]

_DEGREES = re.compile(
    r"(?:°|\\circ\b\s*\}?|\bdegrees?)\s*(?:\\(?:text|mathrm)\s*\{\s*)?([CF])(?![A-Za-z])|\d\s?(K)\b"
)
_SCALE = re.compile(
    r"\b(?:scale[sd]?|maps?|models?|drawings?|drawn|blueprints?|diagram|represents?|represented"
    r"|representing|stands? for|corresponds?|planet|martian|conversion)\b",
    re.IGNORECASE,
)
_CALENDAR = re.compile(
    r"\b(?:work|working|workdays?|school|business|shifts?|game|dog|planet)\b", re.IGNORECASE
)
_ASSUMED = re.compile(r"\b(?:if|let|say|suppose|assume|given)\b[^.;]*$", re.IGNORECASE)
_RANGE = re.compile(
    r"^\W*(?:\\\w+\s*)?(\d{1,4})(?:\s?[ap]\.?m\.?)?\s?(?<!\s)[-–—](?!\s)(\d{1,4})\b", re.IGNORECASE
)
_IS = re.compile(r"=|\bis\b|\bequals\b")
_HALF_DAYS = re.compile(r"\b[ap]\.?m\b", re.IGNORECASE)
_SIGNLESS = re.compile(
    r"\b(?:difference|differ|distance|absolute|magnitude|apart|gap|negative of|opposite of|between"
    r"|deviation)\b",
    re.IGNORECASE,
)
_FUNCTION = re.compile(
    r"\b(?:(remainder)|absolute value|negative|opposite|negation|reciprocal|inverse|integer part"
    r"|fractional part|whole part|floor|ceiling|number of (?:\w+ )?(?:digits|divisors|factors)"
    r"|sum of (?:the |its )?digits|digit sum|(?:last|units?|ones|final|first|leading) digit"
    r"|(?:square|cube) root|factorial|parity)(?: of| in| when|\s*:)(?: the| computing)?"
    r"[\s:$({\[\\]*$",
    re.IGNORECASE,
)
_REMAINDER = re.compile(r"\bremainders?\b|\bmod(?:ulo)?\b", re.IGNORECASE)
_PARTS = (60, 24, 7, 12, 100, 1000)
_PLACES = word_set("tens hundreds thousands tenths hundredths thousandths")
_QUARTERS = word_set("quarter quarters")
_COINS = word_set("nickel nickels dime dimes cent cents penny pennies")


def convention_of(
    step: str, start: int, end: int, left: Node, relation: str, right: Node, problem: str = ""
) -> str:
    """Reason why two unequal sides may be meant otherwise, "" where nothing says so.

    Args:
        step: The text.
        start, end: Offsets of the claim in it.
        left, relation, right: The closed link that the claim was read as.
        problem: The problem's text, "" if unknown.
    """
    if relation not in ("=", "≈"):
        return ""
    low, high = sentence_of(step, start, end)
    before, sentence = step[low:start], step[low:high]
    claim = step[start : min(high, end + 8)]
    named = _FUNCTION.search(before)
    if named is not None and (named[1] is None or _bare(left).kind in ("div", "mod")):
        return "function_before"
    words = [str(n.value).lower().split() for side in (left, right) for n in _quantities(side)]
    told = {word for unit in words for word in unit}
    if told & _PLACES:
        return "place_value"
    if told & _QUARTERS and told & _COINS:  # coins, no quarters of something
        return "unit_unknown"
    if _conventional(left, right, before, sentence, problem):
        return "unit_convention"
    if _near_pi(left, right) or _near_pi(right, left):
        return "rounding"
    try:
        a, b = evaluate(left), evaluate(right)
    except NoValue:
        return ""
    if _spans(left, claim, b):
        return "range"
    if 0 < a < 1 and not any(_quantities(left)) and right.kind == "qty" and b / a in _PARTS:
        return "unit_convention"  # "1/2 = 30 minutes", of an hour
    if a == -b and _SIGNLESS.search(sentence):
        return "sign"
    division = _bare(left)
    if division.kind in ("div", "mod") and _REMAINDER.search(sentence):
        try:
            top, bottom = evaluate(division.args[0]), evaluate(division.args[1])
        except NoValue:
            return ""
        if bottom and top % bottom == b:
            return "remainder"
    return ""


def _quantities(node: Node) -> Iterator[Node]:
    return (n for n in node.walk() if n.kind == "qty")


def _bare(node: Node) -> Node:
    while node.kind in ("paren", "frac", "qty", "money", "neg"):
        node = node.args[0]
    return node


def _conventional(left: Node, right: Node, before: str, sentence: str, problem: str) -> bool:
    """``1 cm = 5 km`` on a map, ``1 week = 5 days`` of work: units that a text may redefine."""
    if left.kind != "qty" or right.kind != "qty":
        return False
    one, two = parse_unit(str(left.value)), parse_unit(str(right.value))
    if one is None or two is None or one[1] != two[1] or one[0] == two[0]:
        return False
    periods = {base for base, _ in one[1]} & {"time", "calendar"}
    named = any(" of " in f" {n.value} " for n in (left, right))  # "5 days of work"
    if (named and periods) or _ASSUMED.search(before) or _SCALE.search(f"{sentence} {problem}"):
        return True
    if _CALENDAR.search(sentence):
        return True
    # between systems a rounded factor is usual: "1 foot = 30 cm"
    factor = one[0] / two[0]
    if 1 in (factor.numerator, factor.denominator):
        return False
    try:
        a, b = evaluate(left) * one[0], evaluate(right) * two[0]
    except NoValue:
        return False
    return abs(a - b) * 16 <= max(abs(a), abs(b))


def _near_pi(one: Node, other: Node) -> bool:
    """``π = 22/7``: a value to calculate with."""
    one = _bare(one)
    if one.kind != "const" or one.value != "pi":
        return False
    try:
        return abs(evaluate(other) - Fraction(22, 7)) < Fraction(1, 6)
    except NoValue:
        return False


def _spans(left: Node, claim: str, result: Fraction) -> bool:
    """``pages 10-19 = 10 pages``, ``9-5 = 8 hours``: from the first to the last."""
    if _bare(left).kind != "sub" or result <= 0:
        return False
    if _HALF_DAYS.search(claim):
        hours = re.findall(r"\d+", _IS.split(claim)[0])
        return len(hours) != 2 or result % 12 in {
            (int(hours[1]) - int(hours[0])) % 12,
            (int(hours[0]) - int(hours[1])) % 12,
        }
    match = _RANGE.match(claim)
    if match is None:
        return False
    first, last = int(match[1]), int(match[2])
    if first < last:  # counted with both ends, one of them, or neither
        return abs(result - (last - first)) <= 1
    worked = re.search(r"(?:=|\bis)\W*[\d.]+ hours?\b", claim) is not None
    return worked and first <= 12 and (last - first) % 12 == result


def changes_scale(claim: str) -> bool:
    """True for ``20°C = 68°F``: the letters are scales of temperature, no variables."""
    return len({match[1] or match[2] for match in _DEGREES.finditer(claim)}) > 1
