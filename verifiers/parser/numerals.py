"""Numbers in words: ``five hundred thousand``, ``one hundred and five``."""

from __future__ import annotations

from fractions import Fraction

from .vocabulary import MAGNITUDES, NUMERALS

__all__ = ["spelled_number", "word_value"]

_POWERS_OF_THOUSAND = ("thousand", "million", "billion", "trillion")


def spelled_number(words: list[str]) -> tuple[Fraction | None, int]:
    """Return the number that a list of words begins with, and how many words it takes."""
    total = group = used = 0
    ceiling = Fraction(10**15)
    while used < len(words):
        word = words[used]
        small = word_value(word)
        if small is not None and small < 100:
            tens = group % 100
            if (used and not small) or (tens and (tens % 10 or tens < 20 or small >= 10)):
                break
            group += int(small)
        elif word == "hundred":
            if group > 9 or (used and not group):
                break
            group = max(group, 1) * 100
        elif word in _POWERS_OF_THOUSAND and MAGNITUDES[word] < ceiling and group:
            ceiling = MAGNITUDES[word]
            total, group = total + group * int(ceiling), 0
        elif word == "dozen" and group and not total:
            return Fraction(group * 12), used + 1
        elif word == "and" and used and words[used - 1] in ("hundred", *_POWERS_OF_THOUSAND):
            following = word_value(words[used + 1]) if used + 1 < len(words) else None
            if following is None or not 0 < following < 100:
                break
        else:
            break
        used += 1
    return (Fraction(total + group) if used else None), used


def word_value(text: str) -> Fraction | None:
    """Return the value of one word, ``seven`` or ``twenty-one``; None for any other."""
    low = text.strip().lower()
    if low in NUMERALS:
        return Fraction(NUMERALS[low])
    head, dash, tail = low.partition("-")
    if dash and NUMERALS.get(head, 0) in range(20, 100) and 0 < NUMERALS.get(tail, 0) < 10:
        return Fraction(NUMERALS[head] + NUMERALS[tail])
    return None
