"""Equations that a text denies, quotes or wishes for: they are not the writer's own claims."""

from __future__ import annotations

import re

__all__ = ["is_denied"]

_WRONG = (
    r"(?:wrong|incorrect\w*|false|untrue|invalid|impossible|absurd|nonsense|mistaken|a mistake"
    r"|an error|not (?:true|right|correct|possible|valid|equal)|a contradiction)"
)
_CROSSES = re.compile(r"[❌✗✘🚫]")
_BRACKETED = re.compile(rf"^[\s$.,;*_]*[(\[][^()\[\]]{{0,40}}\b{_WRONG}\b", re.IGNORECASE)
_JUDGED = re.compile(
    r"^[\s$.,;:!*_)\]\"'”—–-]*(?:but )?(?:(?:this|that|it|which"
    r"|(?:this|that|the) (?:claim|statement|equation|answer|result|step))"
    r"(?: is| was|'s| seems) |is |was )?(?:also |clearly |obviously )?"
    rf"(?:{_WRONG}|no|error|mistake)(?=\s*(?:[.!;,)*]|$|because|since|as))",
    re.IGNORECASE,
)
_CANNOT = (
    r"(?:cannot|can't|can not|does not|doesn't|do not|don't|did not|didn't|won't)"
    r"\s+(?:be|hold|work|equal|match|satisf\w*|make sense|add up|check|happen|occur|agree)\b"
)
_AFTER = re.compile(
    rf"^[\s$.,*_)\"'”]*(?:{_CANNOT}|would (?:mean|imply|contradict)|fails\b|(?:was|is) what\b"
    r"|(?:you|we|one) would)",
    re.IGNORECASE,
)
_INSIDE = re.compile(rf"\b(?:{_CANNOT}|(?:cannot|can't|doesn't|don't|fails)$)", re.IGNORECASE)
_THOUGHT = (
    r"(?:thinks?|thought|says?|said|believed?|assumed?|writes?|wrote|guess(?:ed)?|claim(?:ed)?"
    r"|concluded?)"
)
_BEFORE = re.compile(
    r"\b(?:might|may|could|would|tempted to|tempting to|first|initially|originally|mistakenly"
    rf"|wrongly|incorrectly|previously) {_THOUGHT}\b[^.;]{{0,25}}$"
    r"|\b(?:claim|statement|assertion|belief|idea|notion|assumption)s? that\W*$"
    r"|\b(?:thought|claimed|claims)(?: that)?[\s$\"'“]*$"
    r"|\b(?:we|you|one|I)(?: would| will|'d)? (?:want|wanted|wish|like)(?: that| to have)?[\s$]*$"
    r"|^\W*(?:original(?:ly)?|student(?:'s)?(?: \w+)?|before correction|wrong|incorrect|mistake"
    r"|error|not)\s*:[\s*_$]*$"
    r"|\bif (?:it )?(?:were|was|is) (?:really |actually )?(?:true|the case|correct)\b[^.;]{0,12}$",
    re.IGNORECASE,
)
_NEEDED = re.compile(
    r"\b(?:(?:we|you|one|I) (?:would |will |must )?(?:need|require)|wrote|writes|says?|said)"
    r"(?: that| down| to have)?[\s$]*$",
    re.IGNORECASE,
)
_BUT = re.compile(r"^[\s$.,;]*(?:but|however|yet|and (?:this|that) (?:is|cannot))\b", re.IGNORECASE)
_QUOTES = {'"': '"', "“": "”", "'": "'"}


def is_denied(text: str, start: int, end: int, low: int) -> bool:
    """Say whether the words next to ``text[start:end]`` deny, quote or only wish for it.

    Args:
        text: The step.
        start, end: Offsets of the claim.
        low: Where its sentence begins.
    """
    before, after = text[low:start], text[end : end + 80]
    if _INSIDE.search(text[start:end]):  # words behind a number were taken for its unit
        return True
    line = after.split("\n", 1)[0][:6]
    if _CROSSES.search(before[-6:]) or _CROSSES.search(line):
        return True
    if any(pattern.search(after) for pattern in (_BRACKETED, _JUDGED, _AFTER)):
        return True
    if _BEFORE.search(before) or (_NEEDED.search(before) and _BUT.search(after)):
        return True
    closing = _QUOTES.get(before[-1:])
    return closing is not None and after[:1] == closing
