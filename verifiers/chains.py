"""Relation chains in a step: ``a + b = c = d``, with what stands around them.

The scanner walks the tokens once. Where a value starts it reads the longest expression; where a
relation sign follows, it reads the chain. What stands before and after decides later whether an
inequality of the two sides proves anything: an operand cut off by prose is not the writer's claim.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .parser.grammar import Grammar
from .parser.nodes import Node, ParseFailure, free_names
from .parser.tokens import Token
from .parser.vocabulary import FUNCTIONS, GREEK, JOINING_WORDS, UNICODE_LETTERS, word_set

__all__ = ["Chain", "Side", "read_side", "scan", "sentence_of"]

MAX_LINKS = 40
SENTENCE_REACH = 600
_SKIPPABLE = frozenset({"math", "row"})
_VALUE_COMMANDS = word_set(
    """frac dfrac tfrac cfrac sqrt binom dbinom tbinom pi infty sum prod int lim det boxed"""
)
_VALUE_OPS = frozenset({"(", "-", "+", "√", "π", "∞", "{", "|", "⌊", "⌈", "±", "["})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "^", "±", "%", "√"})
_LABELS = word_set(
    """day week month year step case figure table chapter grade level question problem part example
    equation number no page room house team group bus stage phase round game lesson section
    exercise option days weeks column row"""
)
_PARTS = word_set(
    """half third quarter fourth fifth thirds quarters fifths percent % twice double triple thrice
    times by plus minus"""
)


@dataclass(slots=True)
class Side:
    """One side of a relation: its tree and the tokens it was read from."""

    node: Node
    first: int
    last: int  # exclusive
    start: int
    end: int


@dataclass(slots=True)
class Chain:
    """``sides[0] relations[0] sides[1] …``; an unreadable side is None.

    Attributes:
        cut_left, cut_right: An operand may be missing there.
        before, after: Token indices just outside the chain.
        modulus: Of a congruence, ``… (mod 7)``.
    """

    sides: list[Side | None]
    relations: list[str]
    at: list[int] = field(default_factory=list)
    cut_left: bool = False
    cut_right: bool = False
    before: int = -1
    after: int = 0
    modulus: Node | None = None


def _starts_value(token: Token) -> bool:
    kind = token.kind
    if kind == "num" or kind == "money" or kind == "begin":
        return True
    if kind == "word":
        text = token.text
        return len(text) == 1 or text.lower() in FUNCTIONS or (token.math and len(text) <= 3)
    if kind == "op":
        return token.text in _VALUE_OPS or token.text in UNICODE_LETTERS
    if kind == "cmd":
        return token.text in _VALUE_COMMANDS or token.text in GREEK or token.text in FUNCTIONS
    return False


def read_side(
    tokens: list[Token], at: int, *, tight: bool = False, symbols_only: bool = False
) -> Side | None:
    """Read the longest expression that starts at a token."""
    return _read(tokens, at, tight=tight, symbols_only=symbols_only)[0]


def _read(
    tokens: list[Token], at: int, *, tight: bool = False, symbols_only: bool = False
) -> tuple[Side | None, int]:
    """Read a side; returns it and where the reading ended, beyond the bounds of one too."""
    reader = Grammar(tokens, units=True, tight=tight, symbols_only=symbols_only)
    reader.pos = at
    node: Node | None
    try:
        node = reader.expression()
    except ParseFailure:
        node = None
    if node is None and not reader.limited:
        return None, at
    last = reader.pos
    if reader.tokens is not tokens:  # \frac12 split a token: keep the caller's list in step
        tokens[:] = reader.tokens
    if node is None:
        return None, last
    return Side(node, at, last, tokens[at].start, tokens[last - 1].end), last


def _skip(tokens: list[Token], at: int) -> int:
    """Step over math delimiters, alignment marks and line breaks."""
    count = len(tokens)
    while at < count and (
        tokens[at].kind in _SKIPPABLE or (tokens[at].kind == "op" and tokens[at].text == "&")
    ):
        at += 1
    return at


def scan(tokens: list[Token]) -> list[Chain]:
    """Return the relation chains of a step in text order."""
    chains: list[Chain] = []
    if not any(token.kind == "rel" for token in tokens):
        return chains
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "rel":
            chain = _chain(tokens, None, at)
            if chain is not None:
                chains.append(chain)
                at = chain.after
                continue
            at += 1
            continue
        if _bullet(tokens, at):
            at += 1
            continue
        if _starts_value(token):
            side, stopped = _read(tokens, at)
            if side is not None:
                following = _skip(tokens, side.last)
                if following < len(tokens) and tokens[following].kind == "rel":
                    chain = _chain(tokens, side, following)
                    if chain is not None:
                        chains.append(chain)
                        at = max(chain.after, side.last)
                        continue
                at = max(side.last, at + 1)
                continue
            # what is too long from here is too long from its next terms too: go on where it ended
            at = min(max(stopped, at + 1), len(tokens))
            continue
        at += 1
    return chains


def _bullet(tokens: list[Token], at: int) -> bool:
    """True for the dash or star of a list item."""
    token = tokens[at]
    return (
        token.kind == "op"
        and token.text in ("-", "*", "+")
        and not token.math
        and (at == 0 or token.gap == 2)
        and at + 1 < len(tokens)
        and tokens[at + 1].gap == 1
    )


def _chain(tokens: list[Token], first: Side | None, rel_at: int) -> Chain | None:
    sides: list[Side | None] = [first]
    relations: list[str] = []
    places: list[int] = []
    at = rel_at
    while at < len(tokens) and tokens[at].kind == "rel" and len(relations) < MAX_LINKS:
        relations.append(tokens[at].text)
        places.append(tokens[at].start)
        start = _skip(tokens, at + 1)
        side = read_side(tokens, start) if start < len(tokens) and _opens(tokens, start) else None
        sides.append(side)
        if side is None:
            at = start
            break
        at = _skip(tokens, side.last)
        if at < len(tokens) and tokens[at].kind != "rel":
            at = side.last
    last_side = sides[-1]
    end = last_side.last if last_side is not None else max(at, rel_at + 1)
    chain = Chain(sides, relations, places, after=end)
    if last_side is not None:
        chain.modulus, chain.after = _modulus(tokens, end)
        if chain.modulus is not None:
            chain.before = (first.first if first is not None else rel_at) - 1
            chain.cut_left = first is not None and _cut_left(tokens, first)
            return chain
    chain.before = (first.first if first is not None else rel_at) - 1
    if first is not None:
        chain.cut_left = _cut_left(tokens, first)
    if last_side is not None:
        chain.cut_right = _cut_right(tokens, last_side)
    return chain


def _modulus(tokens: list[Token], at: int) -> tuple[Node | None, int]:
    """Read ``\\pmod{n}`` or ``(mod n)`` after a chain; returns it and where reading ended."""
    begin = at
    while at < len(tokens) and tokens[at].kind == "math":
        at += 1
    if at >= len(tokens):
        return None, begin
    token = tokens[at]
    if token.kind == "op" and token.text == "pmod":
        side = read_side(tokens, at + 1)
        return (side.node, side.last) if side is not None else (None, begin)
    bracket = token.kind == "op" and token.text == "(" and at + 1 < len(tokens)
    word = tokens[at + 1] if bracket else token
    if word.text in ("mod", "modulo") and (bracket or word.kind == "word"):
        side = read_side(tokens, at + (2 if bracket else 1))
        if side is None:
            return None, begin
        return side.node, side.last + (1 if bracket else 0)
    return None, begin


def _opens(tokens: list[Token], at: int) -> bool:
    return _starts_value(tokens[at]) or tokens[at].kind == "text"


def _cut_left(tokens: list[Token], side: Side) -> bool:
    """True where an operand may have been lost to the left of a side."""
    at = side.first - 1
    delimited = False
    while at >= 0 and tokens[at].kind == "math":
        at -= 1
        delimited = True
    if at < 0:
        return False
    before = tokens[at]
    first = tokens[side.first]
    earlier = tokens[at - 1] if at else None
    if first.kind == "op" and first.text in ("-", "+", "±"):
        # a sign after a word is a minus whose left operand was prose
        bullet = first.gap == 2 or before.kind in ("rel", "row")
        opening = before.kind == "op" and before.text in ("(", "[", "{", ":", ",", ";", '"', "⇒")
        is_word = before.kind == "word" and before.text.lower() in (
            "is", "are", "of", "so", "and", "get", "gives", "have", "then", "equals", "thus", "or"
        )  # fmt: skip
        glued = first.gap >= 1 and not tokens[side.first + 1].gap
        return not (bullet or opening or (is_word and glued))
    if before.kind == "op":
        text = before.text
        if text in _ARITHMETIC:
            return first.gap < 2 and not _bullet(tokens, at)
        if text == "." and earlier is not None and earlier.kind == "op":
            return True
        if text == ":" and not before.gap and not first.gap:
            return earlier is not None and earlier.kind == "num"
        if text == "," and earlier is not None and earlier.kind == "num":
            return first.kind == "num" and (len(first.text.split(".")[0]) == 3 or not first.gap)
        if text == "(" and earlier is not None and earlier.kind == "op":
            return earlier.text in _ARITHMETIC or earlier.text == "("
        return text in ("_", "√", "…", "#", "|", "‖", "!", "@", "{", "}", "→", "\\{")
    if before.kind in ("num", "deg", "sup", "subs"):
        return first.gap < 2
    if before.kind == "money":
        return first.gap < 2
    if before.kind == "word":
        low = before.text.lower()
        if not first.gap and not delimited:
            return True
        if low in _LABELS and first.kind == "num":
            return not free_names(side.node)
        if low in ("of", "by") and earlier is not None:
            return earlier.text.lower() in _PARTS or earlier.kind in ("num", "deg")
        if low in _PARTS:
            return True
        if low == "and" and earlier is not None and earlier.kind == "num":
            # "5 and 2/3" may be one number; "8 and 8 - 2" are two claims
            slash = tokens[min(side.first + 1, len(tokens) - 1)]
            return slash.text == "/" and not free_names(side.node)
        return False
    return before.kind in ("other", "cmd", "begin", "end", "text")


def _cut_right(tokens: list[Token], side: Side) -> bool:
    """True where an operand may have been lost to the right of a side."""
    at = side.last
    while at < len(tokens) and tokens[at].kind == "math":
        at += 1
    if at >= len(tokens):
        return False
    after = tokens[at]
    if after.kind == "op":
        text = after.text
        if text in _ARITHMETIC:
            following = tokens[at + 1] if at + 1 < len(tokens) else None
            if following is None:
                return True
            if after.gap == 2 and following.gap:
                return False
            if following.kind == "word" and not after.gap and not following.gap and text == "-":
                return False  # a hyphen
            if text == "*" and following.kind == "op" and following.text == "*":
                return False  # markdown
            return not (
                text == "-"
                and after.gap
                and following.gap
                and following.kind == "word"
                and following.text.lower() in ("so", "this", "that", "which", "the")
            )
        if text == "(":
            return not after.gap
        if text == ":":
            return not after.gap and at + 1 < len(tokens) and tokens[at + 1].kind == "num"
        if text == ",":
            following = tokens[at + 1] if at + 1 < len(tokens) else None
            return (
                following is not None
                and following.kind == "num"
                and len(following.text.split(".")[0]) == 3
                and following.text[0].isdigit()
                and tokens[side.last - 1].kind == "num"
                and len(tokens[side.last - 1].text) <= 3
            )
        return text in ("_", "…", "/", "#", "|", "‖", "!", "@", "{", "}", "→")
    if after.kind == "num":
        return after.gap < 2
    if after.kind in ("deg", "sup", "subs"):
        return True
    if after.kind == "word":
        low = after.text.lower()
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if low in ("times", "plus", "minus"):
            return following is not None and following.kind in ("num", "money")
        if low in ("multiplied", "divided", "mod"):
            return True
        if _operand_goes_on(tokens, at):
            return True
        return len(after.text) == 1 and not after.gap
    if after.kind == "cmd" or after.kind == "begin":
        return after.math or after.kind == "begin"
    return after.kind == "other" and not after.gap


def _operand_goes_on(tokens: list[Token], at: int) -> bool:
    """True where plain words lead to an operator: ``= 8 bags of leaves / Y``."""
    for ahead in range(at, min(at + 6, len(tokens) - 1)):
        token = tokens[ahead]
        if token.kind == "word" and token.gap < 2 and token.text.lower() not in JOINING_WORDS:
            continue
        following = tokens[ahead + 1]
        return (
            token.kind == "op"
            and token.text in ("+", "*", "/")
            and token.gap == 1
            and following.gap == 1
        )
    return False


_SENTENCE_END = re.compile(r"(?<=[a-zA-Z0-9)%\"'\]}$])[.!?](?=[\s\"']|$)|\n")


def sentence_of(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the offsets of the sentence around ``text[start:end]``, cut off far away."""
    floor = max(0, start - SENTENCE_REACH)
    ceiling = min(len(text), end + SENTENCE_REACH)
    low = floor
    for match in _SENTENCE_END.finditer(text, floor, start):
        low = match.end()
    following = _SENTENCE_END.search(text, end, ceiling)
    return low, following.start() if following else ceiling
