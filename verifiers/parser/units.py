"""Units of measure: one table, exact factors.

Factors are definitions (international yard and pound, 1959; SI prefixes) as exact rationals. US
customary volumes are used where US and imperial differ. Months and years are a dimension of their
own: a year is twelve months, but neither has a fixed number of days.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from .vocabulary import (
    MAGNITUDES,
    NUMBER_WORDS,
    NUMERALS,
    POWER_WORDS,
    STOP_WORDS,
    word_set,
)

__all__ = ["NOT_UNIT", "Quantity", "invert", "may_be_unit", "multiply", "parse_unit"]

Quantity = tuple[Fraction, tuple[tuple[str, int], ...]]
"""Factor to base units and the dimension as sorted (base, exponent) pairs."""

_F = Fraction
_TABLE: dict[str, tuple[Fraction, str]] = {}


def _add(dimension: str, **names: tuple[int | str, str]) -> None:
    for _, (factor, words) in names.items():
        for word in words.split():
            _TABLE[word] = (_F(factor), dimension)


_add(
    "time",
    second=(1, "second seconds sec secs s"),
    minute=(60, "minute minutes min mins"),
    hour=(3600, "hour hours hr hrs h"),
    day=(86400, "day days"),
    week=(604800, "week weeks"),
    fortnight=(1209600, "fortnight fortnights"),
    ms=("1/1000", "millisecond milliseconds ms"),
)
_add(
    "calendar",
    month=(1, "month months"),
    year=(12, "year years yr yrs"),
    decade=(120, "decade decades"),
    century=(1200, "century centuries"),
    millennium=(12000, "millennium millennia"),
)
_add(
    "length",
    metre=(1, "meter meters metre metres m"),
    km=(1000, "kilometer kilometers kilometre kilometres km kms"),
    cm=("1/100", "centimeter centimeters centimetre centimetres cm cms"),
    mm=("1/1000", "millimeter millimeters millimetre millimetres mm"),
    inch=("127/5000", "inch inches in."),
    foot=("381/1250", "foot feet ft"),
    yard=("1143/1250", "yard yards yd yds"),
    mile=("201168/125", "mile miles mi"),
)
_add(
    "mass",
    gram=(1, "gram grams g gm"),
    kg=(1000, "kilogram kilograms kg kgs kilo kilos"),
    mg=("1/1000", "milligram milligrams mg"),
    tonne=(1_000_000, "tonne tonnes"),
    pound=("45359237/100000", "pound pounds lb lbs"),
    ounce=("45359237/1600000", "ounce ounces oz"),
)
_add(
    "volume",
    litre=(1, "liter liters litre litres L l"),
    ml=("1/1000", "milliliter milliliters millilitre millilitres mL ml"),
    gallon=("473176473/125000000", "gallon gallons gal"),
    quart=("473176473/500000000", "quart quarts qt"),
    pint=("473176473/1000000000", "pint pints pt"),
)
_add(
    "money",
    dollar=(1, "dollar dollars $ USD usd buck bucks"),
    cent=("1/100", "cent cents ¢ penny pennies"),
    nickel=("1/20", "nickel nickels"),
    dime=("1/10", "dime dimes"),
)
_add("pounds_sterling", gbp=(1, "£ GBP"), pence=("1/100", "pence"))
_add("euro", eur=(1, "€ EUR euro euros"))
_add("yen", jpy=(1, "¥ JPY yen"))
_add("rupee", inr=(1, "₹ INR rupee rupees"))
_add("count", one=(1, "item items piece pieces"))
_add("angle", degree=(1, "degree degrees °"))
_add("radians", radian=(1, "radian radians rad rads"))  # no rational factor leads to degrees

_COMPOUND: dict[str, tuple[Fraction, tuple[tuple[str, int], ...]]] = {
    "mph": (_F(201168, 125 * 3600), (("length", 1), ("time", -1))),
    "kmh": (_F(1000, 3600), (("length", 1), ("time", -1))),
    "kph": (_F(1000, 3600), (("length", 1), ("time", -1))),
}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}


def _word(word: str) -> Quantity | None:
    known = _TABLE.get(word) or _TABLE.get(word.lower().rstrip("."))
    if known is not None:
        return known[0], ((known[1], 1),)
    return _COMPOUND.get(word.lower())


def _power(quantity: Quantity, exponent: int) -> Quantity:
    return quantity[0] ** exponent, tuple((base, e * exponent) for base, e in quantity[1])


def multiply(left: Quantity, right: Quantity) -> Quantity:
    """Product of two quantities' units."""
    dims: dict[str, int] = dict(left[1])
    for base, exponent in right[1]:
        dims[base] = dims.get(base, 0) + exponent
    return left[0] * right[0], tuple(sorted((b, e) for b, e in dims.items() if e))


def invert(quantity: Quantity) -> Quantity:
    """Reciprocal unit."""
    return _power(quantity, -1)


@lru_cache(maxsize=4096)
def parse_unit(text: str) -> Quantity | None:
    """Read a unit phrase such as ``square feet``, ``km / h``, ``cm ^ 2``, ``minutes of work``.

    Returns:
        Factor to base units and dimension; None where no part is a known unit.
    """
    words = (
        text.replace("/", " / ")
        .replace("^", " ^ ")
        .replace("²", " ^ 2")
        .replace("³", " ^ 3")
        .split()
    )
    result: Quantity = (_F(1), ())
    known = False
    sign = 1
    power = 1
    i = 0
    seen_since_slash = False
    while i < len(words):
        word = words[i]
        low = word.lower()
        if low in ("/", "per"):
            sign = -1
            seen_since_slash = False
        elif low in _POWERS:
            power = _POWERS[low]
        elif low == "of":
            while i + 1 < len(words) and words[i + 1] not in ("/", "per"):
                i += 1
        else:
            quantity = _word(word)
            if quantity is not None and not seen_since_slash:
                exponent = power
                if i + 2 < len(words) and words[i + 1] == "^" and words[i + 2].isdigit():
                    exponent = min(int(words[i + 2]), 9)
                    i += 2
                elif i + 1 < len(words) and words[i + 1].lower() in POWER_WORDS:
                    exponent = POWER_WORDS[words[i + 1].lower()]
                    i += 1
                result = multiply(result, _power(quantity, sign * exponent))
                known = True
                seen_since_slash = True
            elif quantity is None and low not in _FILLERS and not seen_since_slash:
                return None  # an unknown noun ("5 books / shelf"): nothing we can convert
            power = 1
        i += 1
    return result if known else None


_FILLERS = word_set("""each total more extra long wide tall high old left altogether every""")
_WORDLIKE = re.compile(r"[A-Za-z][A-Za-z'.,-]*|/|\^|[0-9]|[°%]|per")
_UNIT_OK = frozenset({"of", "per", "a", "an", "in", "the", "each", "for", "from"})
NOT_UNIT = word_set(
    """don't dont know idea sure cannot can't guess wrong incorrect correct any other maybe
    perhaps possible possibly both either neither none
    nothing no not never false true undefined infinite unknown approximately answer anything
    everything something all"""
)


def may_be_unit(words: list[str]) -> bool:
    """Say whether words behind a value may be its unit: any noun, but nothing that changes it."""
    if len(words) > 7 or not all(_WORDLIKE.fullmatch(word) for word in words):
        return False
    lows = [word.lower().strip(".,") for word in words]
    if len(lows) == 1 and len(lows[0]) == 1 and parse_unit(words[0]) is None:
        return False
    for i, low in enumerate(lows):
        if low in NOT_UNIT or (low in STOP_WORDS and low not in _UNIT_OK):
            return False
        changing = low in NUMBER_WORDS or low in NUMERALS or (low in MAGNITUDES and len(low) > 1)
        if changing and not (low in POWER_WORDS and i and parse_unit(words[i - 1]) is not None):
            return False
    return True
