"""Times of day and dates: texts that look like ratios, quotients or differences."""

from __future__ import annotations

import math
import re

__all__ = ["same_moment"]

_TIME = re.compile(
    r"(?P<h>\d{1,2})(?::(?P<m>[0-5]\d))?(?::(?P<s>[0-5]\d))?"
    r"(?P<half>(?:am|pm|a\.m|p\.m|noon|midnight|oclock|o'clock)\.?)?"
)
_DATE = re.compile(r"(?P<a>\d{1,4})(?P<sign>[-/.])(?P<b>\d{1,2})(?P=sign)(?P<c>\d{1,4})")
_MARKUP = re.compile(r"\\(?:text|textrm|mathrm|textbf)\s*\{([^{}]*)\}|[\s~${}]|\\[ ,;:!]")

Time = tuple[int, int, int, str]
"""Hour, minute, second, and "am", "pm" or ""."""


def _bare(text: str) -> str:
    return _MARKUP.sub(lambda m: (m[1] or "").replace(" ", ""), text).lower().rstrip(".")


def _time(text: str) -> Time | None:
    match = _TIME.fullmatch(text)
    if match is None or not (match["m"] or match["half"]):
        return None
    hour, minute, second = (int(match[name] or 0) for name in ("h", "m", "s"))
    word = (match["half"] or "").replace(".", "").replace("'", "")
    half = {"noon": "pm", "midnight": "am", "oclock": ""}.get(word, word)
    if hour > 24 or (half and not 1 <= hour <= 12):
        return None
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return hour, minute, second, half


def _surely(text: str) -> bool:
    """True for what no ratio looks like: a half of the day, 7:05, or terms that are not lowest."""
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    if match["half"]:
        return True
    minute = match["m"] or ""
    return minute[:1] == "0" or bool(minute and math.gcd(int(match["h"]), int(minute)) > 1)


def _same_time(gold: Time, pred: Time) -> bool:
    if gold[1:3] != pred[1:3]:
        return False
    if gold[3] and pred[3]:
        return gold[0] == pred[0]
    # a side without its half of the day may be either, unless it counts to 24
    open_gold, open_pred = not gold[3] and gold[0] <= 12, not pred[3] and pred[0] <= 12
    if gold[0] == pred[0]:
        return True
    half_said = bool(gold[3]) or bool(pred[3])
    return half_said and (open_gold or open_pred) and gold[0] % 12 == pred[0] % 12


def _dates(text: str) -> set[tuple[int, int, int]] | None:
    """The (year, month, day) that a text may mean, None where it is no date."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    a, b, c = (match[name] for name in "abc")
    if len(a) == 4 and len(c) <= 2:
        orders = [(a, b, c)]
    elif len(c) == 4 and len(a) <= 2:
        orders = [(c, a, b), (c, b, a)]
    else:
        return None
    found = {(int(y), int(m), int(d)) for y, m, d in orders}
    return {(y, m, d) for y, m, d in found if 1 <= m <= 12 and 1 <= d <= 31} or None


def same_moment(gold: str, pred: str) -> bool | None:
    """Compare two texts as times of day or as dates; None where they are neither."""
    gold, pred = _bare(gold), _bare(pred)
    days, others = _dates(gold), _dates(pred)
    if days is not None or others is not None:
        if days is None or others is None:
            return False
        # 3/4/2021 is one of two days: only the same text, or a text that leaves one, is equal
        return gold == pred or (min(len(days), len(others)) == 1 and bool(days & others))
    times = _time(gold), _time(pred)
    if times[0] is None or times[1] is None:
        return False if times[0] is not None and _surely(gold) and ":" in pred else None
    if not (_surely(gold) or _surely(pred)):
        return True if gold == pred else None
    return _same_time(times[0], times[1])
