"""What the words around a claim say about it: rounding, supposition, denial, carry-over."""

from __future__ import annotations

import re
from fractions import Fraction

from .chains import sentence_of
from .denials import is_denied
from .parser.tokens import read_number
from .parser.vocabulary import MAGNITUDES, NUMERALS
from .readings import Cues

__all__ = [
    "cues_for",
    "is_conditional",
    "is_hypothetical",
    "other_arithmetic",
    "remainder_after",
    "speaks_of_clocks",
    "unsourced_numbers",
]

_APPROXIMATE = re.compile(
    r"\b(?:about|approximate(?:ly)?|approx|roughly|nearly|almost|around|close to|round(?:s|ed|ing)?"
    r"|nearest|just (?:over|under))\b|≈|\\approx|~", re.IGNORECASE
)  # fmt: skip
_FLOOR = re.compile(
    r"\b(?:remainder|left ?over|leftovers?|full|fully|complete(?:ly|d)?|at most|cut off|truncat\w+"
    r"|integer|round(?:s|ed|ing)? down)\b", re.IGNORECASE
)  # fmt: skip
_MAGNITUDE = re.compile(r"\b(hundred|thousand|million|billion|trillion)s?\b", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"\b(?:suppos\w*|imagine|pretend|contradict\w*|mistake\w*|guess\w*|impossible|instead of"
    r"|rather than"
    r"|unless|error|plug\w*)\b|\b(?:try|trying|tried|tests?|testing|not|isn't|doesn't|don't"
    r"|cannot|can't"
    r"|never|wrong\w*|incorrect\w*|false\w*|assum\w*)\b[^.;]{0,18}$", re.IGNORECASE
)  # fmt: skip
_ASKED = re.compile(
    r"^\W*(?:(?:so|then|now|but|and),? )?(?:is|are|was|does|do|did|can|could|would|should|will)\b"
    r"[^,;:]{0,25}$|\b(?:if|whether|provided|assuming)(?: that)?\W*$|\bwhether\b[^,;:.]*$",
    re.IGNORECASE,
)
_OPEN_SUPPOSED = re.compile(
    r"\b(?:if|cases?|when|let|consider|for|where|whether|either|say|setting|substitut\w*|taking|at"
    r"|choos\w*|putting|plugging|check\w*|letting|assum\w*|try\w*|test\w*|lines?|axis|directrix|asymptotes?|plane|curve"
    r"|graph|intercepts?|points?)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:when|whenever|at|for|after|before|unless|except|other than|cannot|not|would)\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:is|are|was|which is|that is|this is|be)\s+(?:not|wrong|incorrect|false|impossible|untrue"
    r"|a contradiction)|contradict\w*|n't (?:work|true|right|hold)|\bnot (?:true|right"
    r"|correct|possible"
    r"|equal|satisf)|\bfalse\b|\bimpossible\b|\bfails\b|\bmistake\b|\bincorrect\b"
    r"|\bno\b\W*$", re.IGNORECASE
)  # fmt: skip
_EXCLUDED = re.compile(
    r"^\W{0,3}(?:cannot|can't|can not|does not|doesn't|is not|isn't|is no|fails)\b", re.I
)
_BRACKETED = re.compile(r"\([^()]*\)")
_NONE = Cues()


def cues_for(text: str, start: int, end: int) -> Cues:
    """Return what the sentence around ``text[start:end]`` says about rounding."""
    low, high = sentence_of(text, start, end)
    around = text[low:start] + " " + text[end : min(high, end + 120)]
    approximate = _APPROXIMATE.search(around) is not None
    floor = _FLOOR.search(around) is not None
    magnitudes: tuple[Fraction, ...] = ()
    if "illion" in around or "ousand" in around or "undred" in around:
        found = {m.group(1).lower() for m in _MAGNITUDE.finditer(around)}
        magnitudes = tuple(sorted(MAGNITUDES[word] for word in found))
    if not (approximate or floor or magnitudes):
        return _NONE
    return Cues(approximate, floor, magnitudes)


def is_hypothetical(text: str, start: int, end: int, *, closed: bool, asked: bool = True) -> bool:
    """True where the sentence supposes or denies the claim instead of stating it.

    Args:
        text: The step.
        start, end: Offsets of the claim.
        closed: Arithmetic without variables; an "if" before it does not make it a supposition.
        asked: Questions and "if" right before the claim suppose it too. A problem gives its
            equations that way: "If x + y = 3, what is x?"
    """
    low, high = sentence_of(text, start, end)
    before = text[low:start]
    if _SUPPOSED.search(before) or is_denied(text, start, end, low):
        return True
    if asked and (_ASKED.search(before) or text[high : high + 1] == "?"):
        return True
    if not closed and _OPEN_SUPPOSED.search(before):
        return True
    if not closed and _EXCLUDED.match(text[end : end + 40]):
        return True
    after = _BRACKETED.sub(" ", text[end:high])
    return _DENIED.search(after[:80]) is not None


_OTHER_BASE = re.compile(
    r"\b(?:base[- ](?:\d|two|three|five|six|seven|eight|nine|b\b)|bases|binary|octal|hexadecimal)\b"
    r"|\d_\{?\d",
    re.IGNORECASE,
)
_SAME_SIDE = r"(?:(?!\band\b)[^.;,=\n]){0,80}?(?<![a-z])"
_OTHER_OPERATION = re.compile(
    r"\b(?:operation|operator|binary relation|is defined (?:as|by|to be))\b|[★◇⊕⊗♣♥♠@]"
    r"|\\(?:star|oplus|otimes|diamond|bigstar|clubsuit|heartsuit|spadesuit)\b"
    r"|\bbitwise\b|\bxor\b|\bboolean\b"
    # "let a * b = a^2 + b": two letters joined by a sign, and both again on the right
    r"|(?<![A-Za-z0-9])([a-z])\s*(?:\\?\*|∗|#|&|\\(?:ast|circ)\b)\s*([a-z])\s*=\s*"
    rf"(?={_SAME_SIDE}\1(?![a-z]))(?={_SAME_SIDE}\2(?![a-z]))",
    re.IGNORECASE,
)
_MODULAR = re.compile(
    r"\b(?:mod|modulo|modulus|congruent|congruence)\b|\\[pb]?mod\b|≡|\\equiv"
    r"|\\math(?:bb|bf)\s*\{?\s*[FZ]\s*\}?\s*(?:_|/)|(?<![A-Za-z])[Zℤ](?:_\{?\d|/\d+[Zℤ]?|[₀-₉])"
    r"|(?:𝔽)|(?<![A-Za-z])GF\s*\(|\bcharacteristic (?:of )?(?:\d|p\b|two|three)"
    r"|\b(?:last|units?|ones|final|unit's|rightmost)['’]? digits?\b"
    r"|^\W*(?:units|ones|tens|hundreds)\W*:"
    r"|\bcarry(?:ing)? (?:1|one)\b|\bcarry(?:ing)? (?:over |the )+\d\b"
    r"|\bwrite (?:down )?\d,? (?:and )?carry"
    r"|\bborrow(?:ing)?(?: the| a)? ?(?:1|one)\b|\bafter borrowing\b",
    re.IGNORECASE | re.MULTILINE,
)


def other_arithmetic(text: str) -> str:
    """Reason why ordinary arithmetic may not be meant here, "" where it is.

    Numerals of another base, an operation that the problem defines, and "=" written for a
    congruence all look like wrong arithmetic.
    """
    if _OTHER_BASE.search(text):
        return "other_base"
    if _OTHER_OPERATION.search(text):
        return "other_operation"
    return "modular" if _MODULAR.search(text) else ""


def is_conditional(text: str, start: int, end: int) -> bool:
    """True where a problem states a relation for one situation only: "x = 24 when y = 15"."""
    low, _ = sentence_of(text, start, end)
    return _CONDITION.search(text[low:start]) is not None or (
        re.match(r"\W{0,3}when\b", text[end : end + 20]) is not None
    )


_CLOCK = re.compile(
    r"\bclock|o'clock|\b(?:midnight|noon|a\.?m|p\.?m)\b|\bhours? (?:later|after|before|earlier)\b",
    re.IGNORECASE,
)


def speaks_of_clocks(text: str, start: int, end: int) -> bool:
    """True where the sentence is about times of day, on which 10 + 4 is 2."""
    low, high = sentence_of(text, start, end)
    return _CLOCK.search(text[low:high]) is not None


_REMAINDER = re.compile(
    r"^\W{0,3}(?:[a-z]+ ){0,2}?(?:(?:with|and|leaving|has)? ?(?:a )?remainder(?: of| is)?"
    r" ?(?P<a>\d+)"
    r"|R ?(?P<d>\d+)\b"
    r"|(?:with|and) (?P<b>\d+)(?: [a-z]+){0,2}? (?:left ?over|left|remaining"
    r"|remain)\b)", re.IGNORECASE
)  # fmt: skip


def remainder_after(text: str, end: int) -> int | None:
    """Return the remainder stated right after a quotient, None if none is."""
    match = _REMAINDER.match(text[end : end + 80])
    if match is None:
        return None
    digits = match.group("a") or match.group("b") or match.group("d")
    return int(digits) if len(digits) < 50 else None


_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+")
_LICENSED = {
    "half": "2 0.5", "twice": "2", "double": "2", "triple": "3", "thrice": "3", "dozen": "12",
    "week": "7 52", "weeks": "7", "day": "24 7", "days": "24 7", "hour": "60", "hours": "60 24",
    "minute": "60", "minutes": "60", "second": "60", "seconds": "60", "year": "12 365 52",
    "years": "12 365 52", "month": "12 30", "months": "12 30", "percent": "100", "%": "100",
    "third": "3", "quarter": "4 0.25", "fourth": "4", "fifth": "5", "foot": "12 3", "feet": "12 3",
    "yard": "3 36", "inch": "12", "inches": "12", "pound": "16", "pounds": "16", "ounces": "16",
    "average": "2", "both": "2", "pair": "2", "cent": "100", "cents": "100", "dollar": "100",
    "square": "4", "cube": "6", "triangle": "3 180", "circle": "360", "legs": "4 2",
    "quarters": "25 4",
    "gallon": "4", "quart": "4", "weekly": "7", "daily": "24", "annual": "12", "monthly": "12 30",
}  # fmt: skip
_SMALL = frozenset({Fraction(0), Fraction(1), Fraction(2), Fraction(100)})


def _numbers(text: str) -> set[Fraction]:
    found: set[Fraction] = set()
    for match in _NUMBER.finditer(text):
        read = read_number(match.group())
        if read is not None:
            found.add(read[0])
    low = text.lower()
    for word in re.findall(r"[a-z]+|%", low):
        if word in NUMERALS:
            found.add(Fraction(NUMERALS[word]))
        licence = _LICENSED.get(word)
        if licence:
            found.update(Fraction(part) for part in licence.split())
    return found


def unsourced_numbers(
    operands: list[tuple[str, Fraction]],
    results: set[Fraction],
    problem: str,
    previous: tuple[str, ...],
) -> tuple[str, ...]:
    """Return operands that neither problem, earlier steps nor licensed words contain.

    Args:
        operands: Numbers on claims' left sides as written, with their values, in text order.
        results: Values that the step itself has computed.
        problem, previous: Where numbers may come from.
    """
    if not operands or not (problem or previous):
        return ()
    known = _numbers(problem).union(*(_numbers(step) for step in previous)) | results | _SMALL
    missing: list[str] = []
    for text, value in operands:
        # a percent stands in the text as 20 and in the product as 0.2, 0.8 or 1.2
        related = (value, value * 100, 1 - value, value - 1, (1 - value) * 100, (value - 1) * 100)
        if not any(candidate in known for candidate in related) and text not in missing:
            missing.append(text)
    return tuple(missing)
