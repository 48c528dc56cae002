"""Claims in words: "91 is prime", "twice 15 is 30", "the mean of 2, 4 and 9 is 5".

Each pattern reads one fixed phrase into a closed claim with a span.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .phrases import (
    N,
    Statement,
    aggregate_claim,
    bases_claim,
    computed_claim,
    distance_claim,
    divisible_claim,
    divisor_count_claim,
    more_claim,
    multiple_claim,
    part_claim,
    percent_change_claim,
    power_claim,
    property_claim,
    remainder_claim,
    root_claim,
)

__all__ = ["find_statements"]

MAX_STATEMENTS = 60
_IS = r"\s+(?:is|are|equals|=|was|will be|gives|makes|comes to|is equal to)\s+"
_ABOUT = r"(?P<about>(?:about|approximately|roughly|around|nearly|almost)\s+)?"
_TAIL = (
    r"(?![\d.,]*\d)(?![A-Za-z_])(?!,? (?:and|or) \d|,\s*\d)"
    r"(?!\s*(?:[-+*/×^]|times|percent|%|more|less|of|out|\\))"
)
_WORD_IS = _IS.replace("|=|", "|")
_LIST = rf"{N}(?:,\s*{N})*,?\s+and\s+{N}"

_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Statement | None], str], ...] = (
    tuple(
        (re.compile(pattern, re.IGNORECASE), made, hint)
        for pattern, made, hint in (
            (
                rf"\b(?P<kind>square|cube) root of (?P<n>{N}){_IS}{_ABOUT}(?P<r>{N}){_TAIL}",
                root_claim,
                "root",
            ),
            (
                rf"(?<![\w.,/+*×÷^({{}}-])(?<![-+*/×÷^(] )(?P<e>{N}(?:\s*[-+*/×÷]\s*{N})*)"
                rf"{_WORD_IS}{_ABOUT}(?P<r>{N}){_TAIL}",
                computed_claim,
                "",
            ),
            (
                rf"(?<![\w.,/+*×÷^(-])(?P<p>{N})(?P<sign>\s?(?:\\?%|percent))? of (?:the )?"
                rf"(?P<n>{N}) (?:is|equals|gives) {_ABOUT}(?P<r>{N}){_TAIL}",
                part_claim,
                " of ",
            ),
            (
                rf"\b(?P<f>twice|double|thrice|triple|half(?: of)?|(?:one|a)[- ](?:half"
                rf"|third|quarter|fourth"
                rf"|fifth|sixth|eighth|tenth) of) (?P<n>{N}){_IS}{_ABOUT}(?P<r>{N}){_TAIL}",
                multiple_claim,
                "",
            ),
            (
                rf"\b(?P<f>sum|total|product|difference|quotient|average|(?:arithmetic"
                rf" )?mean|gcd|gcf|hcf|lcm"
                rf"|greatest common (?:divisor|factor)|highest common factor|(?:least"
                rf"|lowest) common multiple)"
                rf" (?:of|between) (?P<list>{_LIST}){_IS}{_ABOUT}(?P<r>{N}){_TAIL}",
                aggregate_claim,
                " and ",
            ),
            (
                rf"(?P<p>{N})\s?(?:\\?%|percent) (?P<dir>more|less|greater|larger|higher"
                rf"|smaller|lower) than "
                rf"(?P<n>{N}){_IS}{_ABOUT}(?P<r>{N}){_TAIL}",
                percent_change_claim,
                "than",
            ),
            (
                rf"(?<![%\w.])(?<!of )(?P<p>{N}) (?P<dir>more|less|greater|larger|higher"
                rf"|smaller|lower) than "
                rf"(?P<n>{N}) (?:is|equals|gives) {_ABOUT}(?P<r>{N}){_TAIL}",
                more_claim,
                "than",
            ),
            (
                rf"(?<![\d.])(?P<n>{N}) (?P<k>squared|cubed){_IS}{_ABOUT}(?P<r>{N}){_TAIL}",
                power_claim,
                "ed",
            ),
            (
                r"(?<![\d.,/+*×^=-])(?<![\d.,/+*×^=-] )(?P<n>\d[\d,]*) (?:is|are)(?P<neg>"
                r" not)?(?: also)? "
                r"(?:(?:an?|the) )?(?P<prop>prime|composite|even|odd|perfect square|perfect cube)\b"
                r"(?! and\b.*\bdifferent)",
                property_claim,
                "",
            ),
            (
                r"(?<![\d.,/+*×^=-])(?<![\d.,/+*×^=-] )(?P<a>\d[\d,]*) is(?P<neg> not)?"
                r" (?P<rel>divisible by"
                r"|a multiple of|a factor of|a divisor of) (?P<b>\d[\d,]*)(?![\d.]*\d)",
                divisible_claim,
                "",
            ),
            (
                r"(?<![\d.,/+*×^-])(?P<n>\d[\d,]*) has (?:exactly )?(?P<r>\d+)"
                r" (?P<what>positive|distinct|prime)? ?"
                r"(?:integer )?(?:divisors|factors)\b",
                divisor_count_claim,
                " has ",
            ),
            (
                r"\bremainder (?:when|of|if) (?P<a>\d[\d,]*) (?:is )?divided by"
                r" (?P<b>\d[\d,]*) is (?P<r>\d+)",
                remainder_claim,
                "remainder",
            ),
            (
                r"(?<![\d.])(?P<a>\d[\d,]*) divided by (?P<b>\d[\d,]*) (?:leaves|has|gives)"
                r" a remainder of "
                r"(?P<r>\d+)",
                remainder_claim,
                "remainder",
            ),
            (
                r"\b(?P<a>[0-9A-Za-z]+) in base (?P<ba>\d+) (?:is|equals|=) (?P<b>[0-9A-Za-z]+)"
                r"(?: in (?:base (?P<bb>\d+)|decimal))",
                bases_claim,
                "base",
            ),
            (
                rf"\bdistance (?:from|between) (?:the points?"
                rf" )?\$?\((?P<x1>{N}),\s*(?P<y1>{N})\)\$? (?:to|and) "
                rf"(?:the point )?\$?\((?P<x2>{N}),\s*(?P<y2>{N})\)\$? (?:is|equals|=)"
                rf" (?P<r>\$?[^.;]*?"
                rf"[\d)}}]\$?)(?=[.;,\s]|$)",
                distance_claim,
                "distance",
            ),
        )
    )
)


def find_statements(step: str) -> Iterator[Statement]:
    """Yield the claims in words of a step; each stretch of text is read once."""
    low = step.lower()
    if not any(char.isdigit() for char in step):
        return
    taken: list[tuple[int, int]] = []
    for pattern, made, hint in _PATTERNS:
        if hint and hint not in low:
            continue
        for match in pattern.finditer(step):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            statement = made(match)
            if statement is not None and len(taken) < MAX_STATEMENTS:
                taken.append((match.start(), match.end()))
                yield statement
