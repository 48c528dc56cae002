"""Claims with variables that need no context: identities and rewritings.

An equation says something about its variables, an identity about nothing: only where the words
claim an identity ("factoring", "for every", "rewrite … as …") may a point where the sides differ
refute it. Agreement everywhere supports it in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from .chains import Side, read_side, sentence_of
from .identity import Sampled, sample
from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node, free_names, strip
from .parser.tokens import Token

__all__ = ["Rewriting", "claims_identity", "find_rewritings", "judge_identity", "matches_far_away"]

_FACTORING = re.compile(r"\bfactor\w*", re.IGNORECASE)
_EXPANDING = re.compile(r"\b(?:expand\w*|distribut\w*|multiply\w* out|FOIL)\b", re.IGNORECASE)
_SQUARE = re.compile(r"\bcomplet\w+ the square", re.IGNORECASE)
_REWRITING = re.compile(r"\b(?:simplif\w*|rewrit\w*|identity)\b", re.IGNORECASE)
_EVERYWHERE = re.compile(r"\bfor (?:all|every|each|any)\b", re.IGNORECASE)


def claims_identity(text: str, start: int, end: int, left: Node, right: Node) -> bool:
    """True where words and form together claim that both sides are equal everywhere."""
    names = free_names(left)
    if not names or names != free_names(right):
        return False
    low, high = sentence_of(text, start, end)
    before, after = text[low:start], text[end:high]
    if _EVERYWHERE.search(after) and not _EVERYWHERE.search(before):
        return True
    left, right = strip(left), strip(right)
    summed = left.kind in ("add", "sub")
    if _FACTORING.search(before):
        return summed and _is_product(right) and matches_far_away(left, right)
    if _SQUARE.search(before):
        return any(n.kind == "pow" for n in right.walk()) and matches_far_away(left, right)
    if _EXPANDING.search(before):
        summed = right.kind in ("add", "sub")
        close = matches_far_away(left, right) or _same_degree(left, right, names)
        return _is_product(left) and summed and close
    if _REWRITING.search(before):
        return _size(left) > _size(right) and matches_far_away(left, right)
    return False


def _size(node: Node) -> int:
    return sum(1 for _ in node.walk())


def _same_degree(left: Node, right: Node, names: set[str]) -> bool:
    """True where both sides are homogeneous of one degree in several variables."""
    if len(names) < 2:
        return False
    one = {name: Fraction(3 + 2 * i, 5) for i, name in enumerate(sorted(names))}
    two = {name: 2 * value for name, value in one.items()}
    try:
        ratios = [evaluate(side, two) / evaluate(side, one) for side in (left, right)]
    except (NoValue, ZeroDivisionError):
        return False
    return ratios[0] == ratios[1]


def _is_product(node: Node) -> bool:
    node = strip(node)
    if node.kind in ("neg",):
        node = node.args[0]
    if node.kind == "pow":
        return node.args[0].kind in ("add", "sub")
    if node.kind != "mul":
        return False
    return any(n.kind in ("add", "sub") for n in node.walk())


def matches_far_away(left: Node, right: Node) -> bool:
    """True where the sides agree to a per mille at large values: a slip, not an equation."""
    names = sorted(free_names(left) | free_names(right))
    if len(names) > 4:
        return False
    for sign in (1, -1):
        env = {n: Fraction(sign * (10**6 + 7919 * i)) for i, n in enumerate(names)}
        try:
            a, b = evaluate(left, env), evaluate(right, env)
        except NoValue:
            return False
        if abs(a - b) * 1000 > max(abs(a), abs(b)):
            return False
    return True


def judge_identity(left: Node, right: Node) -> Sampled | None:
    """Compare two sides with variables; None where the comparison says nothing."""
    left, right = strip(left), strip(right)
    if left == right or left.kind == "name" or right.kind == "name":
        return None
    if any(_unusable(n) for side in (left, right) for n in side.walk()):
        return None
    names_left, names_right = free_names(left), free_names(right)
    if not names_left or not names_right:
        # "sin^2 + cos^2 = 1" is an identity, "2x + 5 = 17" is not: only agreement tells
        found = sample(left, right)
        return found if found.equal else None
    return sample(left, right)


def _unusable(node: Node) -> bool:
    if node.kind in ("text", "pm", "tuple", "matrix", "int", "lim", "diff"):
        return True
    return node.kind == "call" and len(str(node.value).rstrip("'")) == 1


@dataclass(frozen=True, slots=True)
class Rewriting:
    """``rewrite A as B``, ``A factors as B``, ``A simplifies to B``."""

    left: Side
    right: Side


_LINKS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("rewrite", "write", "express", "factor"), ("as", "into")),
    (("rewritten", "written", "expressed", "factored"), ("as", "into")),
    (("simplifies", "reduces", "expands", "simplified", "simplify"), ("to",)),
    (("factors", "factorizes", "factorises"), ("as", "into", "to")),
)  # fmt: skip


def find_rewritings(tokens: list[Token]) -> Iterator[Rewriting]:
    """Yield rewritings in words: a verb, an expression, a link word, an expression."""
    for i, token in enumerate(tokens):
        if token.kind != "word":
            continue
        low = token.text.lower()
        for verbs, links in _LINKS:
            if low not in links or i == 0:
                continue
            left = _side_before(tokens, i, verbs)
            if left is None:
                continue
            start = i + 1
            while start < len(tokens) and tokens[start].kind == "math":
                start += 1
            right = read_side(tokens, start) if start < len(tokens) else None
            if right is None or not free_names(right.node):
                continue
            after = right.last
            if after < len(tokens) and tokens[after].kind == "math":
                after += 1
            if after < len(tokens) and tokens[after].kind == "rel":
                continue  # "as x = 3": an equation
            yield Rewriting(left, right)
            break


def _side_before(tokens: list[Token], at: int, verbs: tuple[str, ...]) -> Side | None:
    """The expression that ends right before the link word (or before its verb)."""
    end = at
    verb_seen = False
    while (
        end > 0
        and tokens[end - 1].kind in ("math", "word")
        and (
            tokens[end - 1].kind == "math"
            or tokens[end - 1].text.lower() in verbs
            or tokens[end - 1].text.lower()
            in ("can", "be", "is", "which", "further", "also", "then")
        )
    ):
        verb_seen = verb_seen or tokens[end - 1].text.lower() in verbs
        end -= 1
    for start in range(max(0, end - 40), end):
        token = tokens[start]
        if token.kind in ("math", "rel") or (
            token.kind == "word" and len(token.text) > 3 and not token.math
        ):
            continue
        before = tokens[start - 1] if start else None
        opens = before is None or before.kind in ("math", "word") or before.text in (",", ":", ";")
        if not opens:
            continue
        side = read_side(tokens, start)
        if side is None or side.last != end or not free_names(side.node):
            continue
        if verb_seen:
            return side
        lead = start - 1
        while lead >= 0 and tokens[lead].kind == "math":
            lead -= 1
        window = [t.text.lower() for t in tokens[max(0, lead - 3) : lead + 1]]
        if any(word in verbs for word in window):
            return side
        return None
    return None
