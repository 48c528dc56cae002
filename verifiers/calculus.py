"""Claims about derivatives, antiderivatives, limits and integrals: read here, decided by sympy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .chains import read_side, scan
from .parser.nodes import Node, free_names, strip
from .parser.tokens import Token, tokenize

__all__ = ["CalculusClaim", "find_calculus", "has_calculus", "link_task"]

KINDS = frozenset({"diff", "int", "lim", "sum", "prod"})


@dataclass(frozen=True, slots=True)
class CalculusClaim:
    """``claimed`` is the derivative (or antiderivative) of ``of`` with respect to ``name``."""

    task: str
    start: int
    end: int
    of: Node
    claimed: Node
    name: str


_PHRASE = re.compile(
    r"\b(?P<what>derivative|anti-?derivative|indefinite integral|integral) of\b", re.IGNORECASE
)
_LINK_WORDS = frozenset({"is", "equals", "gives", "=", "as"})


def has_calculus(node: Node) -> bool:
    """True where the tree needs more than evaluation at points."""
    return any(n.kind in KINDS for n in node.walk())


def find_calculus(
    step: str, tokens: list[Token], context: Sequence[str]
) -> Iterator[CalculusClaim]:
    """Yield derivative and antiderivative claims in words and in prime notation."""
    if "erivative" in step or "ntegral" in step:
        yield from _in_words(step, tokens)
    if "'(" in step:
        yield from _primes(step, tokens, context)


def _in_words(step: str, tokens: list[Token]) -> Iterator[CalculusClaim]:
    for match in _PHRASE.finditer(step):
        at = next((i for i, t in enumerate(tokens) if t.start >= match.end()), None)
        if at is None:
            continue
        of_at = _skip_math(tokens, at)
        of = read_side(tokens, of_at) if of_at < len(tokens) else None
        if of is None:
            continue
        names = sorted(free_names(of.node))
        link = _skip_math(tokens, of.last)
        words = 0
        while link < len(tokens) and words < 6 and tokens[link].text.lower() not in _LINK_WORDS:
            token = tokens[link]
            if token.kind not in ("word", "math", "num"):
                break
            if token.kind == "word" and len(token.text) == 1:
                names = [token.text]  # "with respect to x"
            link += 1
            words += 1
        if link >= len(tokens) or tokens[link].text.lower() not in _LINK_WORDS or len(names) != 1:
            continue
        claimed = (
            read_side(tokens, _skip_math(tokens, link + 1)) if link + 1 < len(tokens) else None
        )
        if claimed is None:
            continue
        task = "derivative" if match.group("what").lower() == "derivative" else "antiderivative"
        yield CalculusClaim(
            task, match.start(), claimed.end, strip(of.node), strip(claimed.node), names[0]
        )


def _skip_math(tokens: list[Token], at: int) -> int:
    while at < len(tokens) and tokens[at].kind == "math":
        at += 1
    return at


def _definitions(text: str) -> dict[str, tuple[str, Node]]:
    """``f(x) = E`` definitions: function letter -> (variable, E)."""
    found: dict[str, tuple[str, Node]] = {}
    for chain in scan(tokenize(text)):
        if chain.relations[:1] != ["="] or chain.sides[0] is None or chain.sides[1] is None:
            continue
        head, body = strip(chain.sides[0].node), strip(chain.sides[1].node)
        if head.kind == "call" and len(head.args) == 1 and head.args[0].kind == "name":
            found[str(head.value)] = (str(head.args[0].value), body)
    return found


def _primes(step: str, tokens: list[Token], context: Sequence[str]) -> Iterator[CalculusClaim]:
    known: dict[str, tuple[str, Node]] = {}
    for text in [*context, step]:
        known.update(_definitions(text))
    for chain in scan(tokens):
        head, body = chain.sides[0], chain.sides[1]
        if chain.relations[0] != "=" or head is None or body is None or chain.cut_right:
            continue
        call = strip(head.node)
        if call.kind != "call" or len(call.args) != 1 or call.args[0].kind != "name":
            continue
        letter = str(call.value)
        if not letter.endswith("'") or letter.endswith("''"):
            continue
        definition = known.get(letter[:-1])
        if definition is None or definition[0] != str(call.args[0].value):
            continue
        yield CalculusClaim(
            "derivative", head.start, body.end, definition[1], strip(body.node), definition[0]
        )


def link_task(left: Node, right: Node) -> tuple[str, Node, Node, str] | None:
    """``∫ E dx = F``: an antiderivative claim; returns (task, of, claimed, name)."""
    left = strip(left)
    if left.kind == "int" and len(left.args) == 1:
        return "antiderivative", left.args[0], strip(right), str(left.value)
    return None
