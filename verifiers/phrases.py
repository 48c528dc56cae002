"""What phrases claim: one function a phrase, from a match to a closed claim.

Number-theoretic claims are decided by integer arithmetic in this process; sizes are bounded first.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from .parser.evaluate import NoValue, based_value
from .parser.grammar import parse_expression
from .parser.nodes import Node, number
from .parser.vocabulary import ORDINALS

__all__ = [
    "N",
    "Statement",
    "aggregate_claim",
    "bases_claim",
    "computed_claim",
    "distance_claim",
    "divisible_claim",
    "divisor_count_claim",
    "is_prime",
    "more_claim",
    "multiple_claim",
    "part_claim",
    "percent_change_claim",
    "power_claim",
    "property_claim",
    "remainder_claim",
    "root_claim",
]

# The last part is possessive: without it "1/1/1/…" is split in exponentially many ways.
N = r"[-−]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?+"


@dataclass(frozen=True, slots=True)
class Statement:
    """A claim read from words.

    Attributes:
        kind: Kind of the claim.
        start, end: Offsets in the step.
        left, relation, right: A closed link, where the claim is one.
        holds: The verdict of a number-theoretic claim, decided on reading.
        query: What was decided, canonical.
    """

    kind: str
    start: int
    end: int
    left: Node | None = None
    relation: str = "="
    right: Node | None = None
    holds: bool | None = None
    query: str = ""


def _num(text: str) -> Node | None:
    return parse_expression(text.replace("−", "-").replace("$", ""), math=False)


def _int(text: str) -> int | None:
    plain = text.replace(",", "").replace("$", "").replace("−", "-")
    return int(plain) if re.fullmatch(r"-?\d{1,40}", plain) else None


def is_prime(n: int) -> bool | None:
    """Primality by Miller-Rabin with bases that are exact below 3.3e24; None beyond."""
    if n < 2:
        return False
    small = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
    for p in small:
        if n % p == 0:
            return n == p
    if n >= 3_317_044_064_679_887_385_961_981:
        return None
    d, r = n - 1, 0
    while d % 2 == 0:
        d, r = d // 2, r + 1
    for a in small:
        x = pow(a, d, n)
        if x in (1, n - 1):
            continue
        for _ in range(r - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def _divisors(n: int) -> int | None:
    """Number of positive divisors by trial division, None past 10^10."""
    if not 0 < n <= 10**10:
        return None
    count, p = 1, 2
    while p * p <= n:
        exponent = 0
        while n % p == 0:
            n //= p
            exponent += 1
        count *= exponent + 1
        p += 1
    return count * (2 if n > 1 else 1)


def _closed(kind: str, m: re.Match[str], left: Node | None, right: Node | None) -> Statement | None:
    if left is None or right is None:
        return None
    about = "about" in m.groupdict() and m.group("about")
    return Statement(kind, m.start(), m.end(), left, "≈" if about else "=", right)


def _decided(kind: str, m: re.Match[str], holds: bool | None, query: str) -> Statement | None:
    if holds is None:
        return None
    return Statement(kind, m.start(), m.end(), holds=holds, query=query)


def root_claim(m: re.Match[str]) -> Statement | None:
    inner = _num(m.group("n"))
    if inner is None:
        return None
    if m.group("kind").lower() == "square":
        left = Node("call", (inner,), "sqrt")
    else:
        left = Node("call", (inner, number(3)), "root")
    return _closed("arithmetic", m, left, _num(m.group("r")))


_FACTORS = {
    "twice": Fraction(2), "double": Fraction(2), "thrice": Fraction(3), "triple": Fraction(3),
    "half": Fraction(1, 2),
}  # fmt: skip


def multiple_claim(m: re.Match[str]) -> Statement | None:
    word = m.group("f").lower().split()[0]
    inner = _num(m.group("n"))
    if inner is None:
        return None
    factor = _FACTORS.get(word)
    if factor is None:
        ordinal = re.search(
            r"third|quarter|fourth|fifth|sixth|eighth|tenth|half", m.group("f").lower()
        )
        if ordinal is None:
            return None
        factor = ORDINALS[ordinal.group()]
    return _closed("arithmetic", m, Node("mul", (number(factor), inner)), _num(m.group("r")))


def aggregate_claim(m: re.Match[str]) -> Statement | None:
    texts = re.findall(N, m.group("list"))
    values = [_num(text) for text in texts]
    if any(value is None for value in values):
        return None
    nodes = [value for value in values if value is not None]
    word = re.sub(r"\s+", " ", m.group("f").lower())
    left: Node | None = nodes[0]
    if word in ("sum", "total", "product"):
        for node in nodes[1:]:
            assert left is not None
            left = Node("mul" if word == "product" else "add", (left, node))
    elif word in ("average", "mean", "arithmetic mean"):
        left = Node("call", tuple(nodes), "mean")
    elif word in ("difference", "quotient") and len(nodes) == 2:
        if word == "difference":
            left = Node("call", (Node("sub", (nodes[0], nodes[1])),), "abs")
        else:
            left = Node("div", (nodes[0], nodes[1]))
    elif word in ("gcd", "gcf", "hcf", "greatest common divisor", "greatest common factor",
                  "highest common factor"):  # fmt: skip
        left = Node("call", tuple(nodes), "gcd")
    elif word in ("lcm", "least common multiple", "lowest common multiple"):
        left = Node("call", tuple(nodes), "lcm")
    else:
        return None
    kind = "number_theory" if left is not None and left.value in ("gcd", "lcm") else "arithmetic"
    return _closed(kind, m, left, _num(m.group("r")))


def percent_change_claim(m: re.Match[str]) -> Statement | None:
    base, rate, right = _num(m.group("n")), _num(m.group("p")), _num(m.group("r"))
    if base is None or rate is None:
        return None
    share = Node("div", (rate, number(100)))
    up = m.group("dir").lower() in ("more", "greater", "larger", "higher")
    factor = Node("add" if up else "sub", (number(1), share))
    return _closed("percent", m, Node("mul", (base, factor)), right)


def more_claim(m: re.Match[str]) -> Statement | None:
    extra, base, right = _num(m.group("p")), _num(m.group("n")), _num(m.group("r"))
    if extra is None or base is None:
        return None
    up = m.group("dir").lower() in ("more", "greater", "larger", "higher")
    left = Node("add" if up else "sub", (base, extra))
    return _closed("arithmetic", m, left, right)


def power_claim(m: re.Match[str]) -> Statement | None:
    base = _num(m.group("n"))
    if base is None:
        return None
    exponent = number(2 if m.group("k").lower() == "squared" else 3)
    return _closed(
        "arithmetic", m, Node("pow", (Node("paren", (base,)), exponent)), _num(m.group("r"))
    )


def property_claim(m: re.Match[str]) -> Statement | None:
    n = _int(m.group("n"))
    if n is None:
        return None
    word = m.group("prop").lower().split()[-1]
    full = m.group("prop").lower()
    truth: bool | None
    if word == "prime":
        truth = is_prime(n)
    elif word == "composite":
        prime = is_prime(n)
        truth = None if prime is None else (n > 1 and not prime)
    elif word in ("even", "odd"):
        truth = (n % 2 == 0) == (word == "even")
    elif full.endswith("square"):
        truth = n >= 0 and math.isqrt(n) ** 2 == n
    else:
        truth = any(k**3 == abs(n) for k in _near_cube(abs(n)))
    if truth is None:
        return None
    holds = truth != bool(m.group("neg"))
    return _decided("number_theory", m, holds, f"{word}({n})")


def _near_cube(n: int) -> range:
    root = round(n ** (1 / 3)) if n < 10**24 else 0
    return range(max(root - 2, 0), root + 3)


def divisible_claim(m: re.Match[str]) -> Statement | None:
    a, b = _int(m.group("a")), _int(m.group("b"))
    if a is None or b is None:
        return None
    factor = m.group("rel").lower().startswith(("a factor", "a divisor"))
    top, bottom = (b, a) if factor else (a, b)
    if bottom == 0:
        return None
    holds = (top % bottom == 0) != bool(m.group("neg"))
    return _decided("number_theory", m, holds, f"{top} mod {bottom} = 0")


def divisor_count_claim(m: re.Match[str]) -> Statement | None:
    n, claimed = _int(m.group("n")), _int(m.group("r"))
    if n is None or claimed is None:
        return None
    count = _divisors(n)
    if count is None:
        return None
    if (m.group("what") or "").lower() == "prime":
        return None
    return _decided("number_theory", m, count == claimed, f"number_of_divisors({n}) = {claimed}")


def remainder_claim(m: re.Match[str]) -> Statement | None:
    a, b, r = _int(m.group("a")), _int(m.group("b")), _int(m.group("r"))
    if a is None or b is None or r is None or b <= 0:
        return None
    return _decided("modular", m, a % b == r, f"{a} mod {b} = {r}")


def bases_claim(m: re.Match[str]) -> Statement | None:
    try:
        left = based_value(f"{m.group('a')}_{m.group('ba')}")
        right = based_value(f"{m.group('b')}_{m.group('bb') or '10'}")
    except NoValue:
        return None
    query = f"{m.group('a')}_{m.group('ba')} = {m.group('b')}_{m.group('bb') or '10'}"
    return _decided("number_theory", m, left == right, query)


def distance_claim(m: re.Match[str]) -> Statement | None:
    points = [_num(m.group(name)) for name in ("x1", "y1", "x2", "y2")]
    if any(point is None for point in points):
        return None
    x1, y1, x2, y2 = (point for point in points if point is not None)
    dx = Node("pow", (Node("paren", (Node("sub", (x2, x1)),)), number(2)))
    dy = Node("pow", (Node("paren", (Node("sub", (y2, y1)),)), number(2)))
    left = Node("call", (Node("add", (dx, dy)),), "sqrt")
    right_text = m.group("r").strip().rstrip(".$")
    return _closed("arithmetic", m, left, parse_expression(right_text.strip("$"), math=True))


def part_claim(m: re.Match[str]) -> Statement | None:
    whole, share = _num(m.group("n")), _num(m.group("p"))
    if whole is None or share is None:
        return None
    if m.group("sign"):
        share = Node("div", (share, number(100)))
    elif share.kind != "div":
        return None
    kind = "percent" if m.group("sign") else "arithmetic"
    return _closed(kind, m, Node("mul", (share, whole)), _num(m.group("r")))


def computed_claim(m: re.Match[str]) -> Statement | None:
    text = m.group("e")
    if re.fullmatch(rf"{N}", text) and not m.group("about"):
        return None  # "1/2 is 3": a fraction of something
    return _closed("arithmetic", m, _num(text), _num(m.group("r")))
