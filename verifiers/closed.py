"""Closed arithmetic in a step: from a link of a chain to a verdict with its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from treerl.verdict import Claim, ClaimVerdict, ToolCall, Verdict

from .arithmetic import Judgement, has_operation, judge_link, literal_of
from .chains import Chain, Side, read_side
from .conventions import convention_of
from .cues import cues_for, is_hypothetical, remainder_after, speaks_of_clocks
from .parser.evaluate import NoValue, evaluate, evaluate_mod
from .parser.nodes import Node, render
from .parser.tokens import Token
from .parser.units import parse_unit

__all__ = [
    "FRACTION_VERSION",
    "Link",
    "collect_numbers",
    "judge_closed",
    "links_of",
    "states_something",
]

FRACTION_VERSION = "1"


@dataclass(slots=True)
class Link:
    """Two neighbouring sides of a chain with the text around them."""

    left: Side
    relation: str
    right: Side
    chain: Chain
    index: int

    @property
    def span(self) -> tuple[int, int]:
        return self.left.start, self.right.end

    @property
    def cut(self) -> bool:
        first = self.index == 0 and self.chain.cut_left
        last = self.index == len(self.chain.relations) - 1 and self.chain.cut_right
        return first or last


def links_of(chain: Chain) -> Iterator[Link]:
    """Yield the links whose two sides were read."""
    for i, relation in enumerate(chain.relations):
        left, right = chain.sides[i], chain.sides[i + 1]
        if left is not None and right is not None:
            yield Link(left, relation, right, chain, i)


def states_something(link: Link) -> bool:
    """False where both sides merely name a number, as in ``Figure 2 = 3``."""
    left, right = link.left.node, link.right.node
    if has_operation(left) or has_operation(right):
        return True
    if link.relation not in ("=", "≈"):
        return True
    if len(link.chain.relations) > 1 and any(
        side is not None and has_operation(side.node) for side in link.chain.sides
    ):
        return True
    return _convertible(left, right)


def _convertible(left: Node, right: Node) -> bool:
    """True for ``2 hours = 120 minutes``: two known units of one dimension."""
    units = []
    for node in (left, right):
        inner = node.args[0] if node.kind == "neg" else node
        text = str(inner.value) if inner.kind in ("qty", "money") else ""
        units.append(parse_unit(text) if text else None)
    a, b = units
    if "pct" in (left.kind, right.kind) and a is None and b is None:
        return True
    scaled = [any(n.kind == "mag" for n in node.walk()) for node in (left, right)]
    if scaled[0] != scaled[1]:
        return True  # "2 dozen = 24", "1.5 million = 1,500,000"
    return a is not None and b is not None and a[1] == b[1] and a[0] != b[0]


def judge_closed(step: str, tokens: list[Token], link: Link, problem: str = "") -> ClaimVerdict:
    """Judge closed arithmetic in this process."""
    start, end = link.span
    left, right = link.left.node, link.right.node
    cues = cues_for(step, start, end)
    modulus = link.chain.modulus
    if modulus is not None:
        judgement = _congruence(left, right, modulus)
    else:
        judgement = _remainder(step, link) or judge_link(
            left, link.relation, right, cues, variants=_variants(tokens, link)
        )
    lhs, rhs = render(left), render(right)
    claim = Claim(
        _kind(left, right, link.relation), step[start:end], (start, end), lhs, link.relation, rhs
    )
    query = f"{lhs} {link.relation} {rhs}"
    if modulus is not None:
        query += f" (mod {render(modulus)})"
    output = str(judgement.holds)
    if judgement.left and judgement.right:  # the witness: both sides, worked out
        output += f": {judgement.left} is not {judgement.right}"
    call = ToolCall("fraction", FRACTION_VERSION, query, output, "ok", "in_process")
    if judgement.holds:
        return ClaimVerdict(
            claim, Verdict.SUPPORTED, judgement.reason, "partial", judgement.reading, (call,)
        )
    if judgement.holds is None:
        return ClaimVerdict(
            claim, Verdict.UNVERIFIABLE, judgement.reason, None, judgement.reading, (call,)
        )
    run_on = _runs_on(link)
    excuse = ""
    if link.cut or _one_in(tokens, link) is not None:
        excuse = "cut_context"
    elif not run_on and _names_a_thing(tokens, link):
        excuse = "unit_unknown"
    elif any(_clock_like(tokens, side) for side in (link.left, link.right)) or (
        _turns(left, right) and speaks_of_clocks(step, start, end)
    ):
        excuse = "clock"
    elif any(_bare_log(n) for side in (left, right) for n in side.walk()):
        excuse = "base_unknown"
    elif is_hypothetical(step, start, end, closed=True):
        excuse = "hypothetical"
    elif modulus is None:
        excuse = convention_of(step, start, end, left, link.relation, right, problem)
    if excuse:
        return ClaimVerdict(claim, Verdict.UNVERIFIABLE, excuse, None, judgement.reading, (call,))
    return ClaimVerdict(
        claim, Verdict.REFUTED, "run_on" if run_on else judgement.reason, "exact",
        judgement.reading, (call,),
    )  # fmt: skip


def _runs_on(link: Link) -> bool:
    """True for the first link of ``3 + 4 = 7 * 2 = 14``: its result is calculated on."""
    if link.index + 1 >= len(link.chain.relations) or link.relation != "=":
        return False
    if not has_operation(link.left.node):
        return False
    first = link.right.node
    while first.kind in ("add", "sub", "mul", "div", "qty", "money", "paren") and first.args:
        first = first.args[0]
    try:
        return first.kind == "num" and first.value == evaluate(link.left.node)
    except NoValue:
        return False


def _turns(left: Node, right: Node) -> bool:
    """True where two sides differ by whole turns of a clock."""
    try:
        return (evaluate(left) - evaluate(right)) % 12 == 0
    except NoValue:
        return False


def _bare_log(node: Node) -> bool:
    return node.kind == "call" and node.value == "log" and len(node.args) == 1


def _one_in(tokens: list[Token], link: Link) -> Node | None:
    """``3 out of 4 = 75%``, ``1 in 4 = 25%``: the quotient that ends in the left side."""
    first = link.left.first
    words = [t.text.lower() for t in tokens[max(0, first - 2) : first]]
    back = 3 if words == ["out", "of"] else 2 if words[-1:] == ["in"] else 0
    if not back or first < back or tokens[first - back].kind != "num":
        return None
    node = link.left.node
    while node.kind in ("qty", "paren"):
        node = node.args[0]
    if node.kind != "num":
        return None
    return Node("div", (Node("num", (), tokens[first - back].value), node))


def _names_a_thing(tokens: list[Token], link: Link) -> bool:
    """True for ``4 subjects = 186 + 62``: the number on the left counts what is computed."""
    left, right = link.left.node, link.right.node
    if not has_operation(right):
        return False
    if any(n.kind in ("mul", "div", "pow", "sub", "call", "of") for n in left.walk()):
        return False
    if link.index:  # "… = 16 quarters = 16 * $0.25": a price per unit
        return left.kind == "qty" and any(n.kind == "money" for n in right.walk())
    first = link.left.first
    if left.kind == "num" and first and tokens[first].math and tokens[first - 1].kind == "math":
        return False  # "$360 = 2^2 …$" states an equation
    return link.left.start > 0 or left.kind == "qty" or left.kind == "add"


def _congruence(left: Node, right: Node, modulus: Node) -> Judgement:
    try:
        (a, n), (b, _) = evaluate_mod(left, modulus), evaluate_mod(right, modulus)
    except NoValue as problem:
        return Judgement(None, problem.reason)
    holds = a == b
    return Judgement(holds, "equal" if holds else "unequal", f"{a} = {b} (mod {n})")


def _clock_like(tokens: list[Token], side: Side) -> bool:
    """True where a number with a leading zero (0730) is a clock time or a code."""
    return any(
        t.kind == "num" and len(t.text) >= 3 and t.text[0] == "0" and t.text.isdigit()
        for t in tokens[side.first : side.last]
    )


def _remainder(step: str, link: Link) -> Judgement | None:
    """``17 / 5 = 3 remainder 2`` as one claim."""
    left, right = link.left.node, link.right.node
    while left.kind in ("paren", "frac", "qty"):
        left = left.args[0]
    if left.kind != "div" or literal_of(right) is None:
        return None
    stated = remainder_after(step, right.span[1])
    if stated is None:
        stated = remainder_after(step, link.right.end)
    if stated is None:
        return None
    try:
        top, bottom, quotient = evaluate(left.args[0]), evaluate(left.args[1]), evaluate(right)
    except NoValue:
        return None
    if bottom == 0 or any(v.denominator != 1 for v in (top, bottom, quotient)):
        return None
    holds = quotient * bottom + stated == top and 0 <= stated < abs(bottom)
    reading = f"{top} = {quotient}*{bottom} + {stated}"
    return Judgement(holds, "equal" if holds else "unequal", reading)


def _variants(tokens: list[Token], link: Link) -> Iterator[tuple[Node, Node, str]]:
    """Readings that need the tokens: tight slashes, numbers cut by a comma or an "and"."""
    left, right = link.left, link.right
    if _has_slash_pair(tokens, left):
        tight = read_side(tokens, left.first, tight=True)
        if tight is not None and tight.last == left.last:
            yield tight.node, right.node, "tight_slash"
    if _has_slash_pair(tokens, right):
        tight = read_side(tokens, right.first, tight=True)
        if tight is not None and tight.last == right.last:
            yield left.node, tight.node, "tight_slash"
    words = {t.text.lower() for t in tokens[right.first : right.last] if t.kind == "word"}
    if words & {"times", "of", "divided", "multiplied"}:
        short = read_side(tokens, right.first, symbols_only=True)
        if short is not None and short.last < right.last:
            yield left.node, short.node, "prose_after"
    if right.node.kind == "mod":  # "17 = 2 mod 5", a congruence
        yield Node("mod", (left.node, right.node.args[1])), right.node, "congruence"
    share = _one_in(tokens, link)
    if share is not None:
        yield share, right.node, "one_in"
    joined = _spaced_thousands(tokens, right)
    if joined is not None:
        yield left.node, joined, "spaced_thousands"
    mixed = _mixed_after(tokens, right)
    if mixed is not None:
        yield left.node, mixed, "mixed_number"


def _has_slash_pair(tokens: list[Token], side: Side) -> bool:
    slashes = sum(
        1
        for token in tokens[side.first : side.last]
        if token.kind == "op" and token.text in ("/", "*")
    )
    return slashes >= 2


def _spaced_thousands(tokens: list[Token], side: Side) -> Node | None:
    """``= 3 000 grams``: a group of exactly three digits after a lone short number."""
    if side.last != side.first + 1 or side.last >= len(tokens) or side.node.kind != "num":
        return None
    head, tail = tokens[side.first], tokens[side.last]
    if tail.kind != "num" or len(tail.text) != 3 or not (head.text + tail.text).isdigit():
        return None
    if len(head.text) > 3 or head.value is None or tail.value is None or tail.gap != 1:
        return None
    return Node("num", (), head.value * 1000 + tail.value)


def _mixed_after(tokens: list[Token], side: Side) -> Node | None:
    """``= 5 and 2/3``, ``= $3 and $1/3``: the whole number is on the side, the fraction after."""
    at = side.last
    if at + 1 >= len(tokens) or tokens[at].text.lower() != "and" or literal_of(side.node) is None:
        return None
    fraction = read_side(tokens, at + 1)
    if fraction is None:
        return None
    inner = fraction.node
    while inner.kind in ("paren", "money", "qty", "frac"):
        inner = inner.args[0]
    if inner.kind == "div" and inner.args[1].kind == "qty":  # "2/3 loads"
        inner = Node("div", (inner.args[0], inner.args[1].args[0]))
    if inner.kind != "div" or inner.args[1].kind != "num":
        return None
    try:
        part = evaluate(inner)
    except NoValue:
        return None
    if not 0 < part < 1:
        return None
    return Node("add", (side.node, inner))


def _kind(left: Node, right: Node, relation: str) -> str:
    kinds = {n.kind for side in (left, right) for n in side.walk()}
    if relation not in ("=", "≈", "≡"):
        return "inequality"
    if "pct" in kinds:
        return "percent"
    if "mod" in kinds or relation == "≡":
        return "modular"
    if not has_operation(left) and not has_operation(right):
        return "unit_conversion"
    return "arithmetic"


def collect_numbers(
    link: Link, operands: list[tuple[str, Fraction]], results: set[Fraction]
) -> None:
    """Add a link's operands and results to the step's lists, for carry-over."""
    for node in link.left.node.walk():
        if node.kind == "num" and isinstance(node.value, Fraction) and node.value not in results:
            shown = _plain(node)
            operands.append((shown, node.value))
    for node in link.right.node.walk():
        if node.kind == "num" and isinstance(node.value, Fraction):
            results.add(node.value)


def _plain(node: Node) -> str:
    value = node.value
    assert isinstance(value, Fraction)
    if node.places > 0 and value.denominator != 1:
        return f"{float(value):.{node.places}f}"
    return render(node)
