"""Premises: what problem and earlier steps state about variables.

Only plain relations are taken, and only where nothing was cut off; a text with relations that
could not be read is marked incomplete, and an incomplete problem refutes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .chains import scan
from .cues import is_conditional, is_hypothetical
from .parser.nodes import Node, free_names, number, strip
from .parser.tokens import tokenize
from .parser.vocabulary import word_set

__all__ = ["Facts", "facts_of", "is_arithmetic", "relations_of_chain"]

MAX_FACTS = 16
_RELATIONS = frozenset({"=", "<", ">", "<=", ">=", "!="})
_ALLOWED = word_set("num name add sub mul div neg pow paren frac mod rel qty money")
_LETTERS = r"(?P<names>\b[a-zA-Z](?:_\d)?\b(?:(?:, and |, | and )\b[a-zA-Z](?:_\d)?\b)*)"
_ADJECTIVES = (
    r"(?P<adj>(?:(?:positive|negative|non-?negative|odd|even|real|whole|natural|distinct|consecutive"
    r"|prime|two|three|different|single|unknown)\b,? ?)*)"
)
_KIND = r"(?P<kind>integers?|numbers?|reals?)"
_DOMAINS = (
    re.compile(
        _LETTERS
        + r" (?:is|are|be|being)(?: (?:an?|both|all|the|two))* ?"
        + _ADJECTIVES
        + _KIND
        + r"\b"
    ),
    re.compile(r"\b" + _ADJECTIVES + _KIND + " " + _LETTERS + r"(?![a-z'])"),
    re.compile(
        _LETTERS + r" (?:is|are)(?: (?:both|all))? (?P<adj>odd|even|positive|negative)\b(?P<kind>)"
    ),
)
_NOT_LETTERS = frozenset({"a", "A", "I"})


@dataclass(frozen=True, slots=True)
class Facts:
    """Relations and domains that a text states.

    Attributes:
        relations: Trees of kind rel with two sides.
        integers: Names that stand for integers.
        complete: False where a relation with variables could not be read.
    """

    relations: tuple[Node, ...] = ()
    integers: frozenset[str] = frozenset()
    complete: bool = True

    @property
    def names(self) -> set[str]:
        """All names that the relations mention."""
        return set().union(*(free_names(relation) for relation in self.relations))


def is_arithmetic(node: Node) -> bool:
    """True for polynomials and fractions, the fragment that z3 is asked about."""
    for n in node.walk():
        if n.kind not in _ALLOWED:
            return False
        if n.kind == "pow":
            exponent = strip(n.args[1])
            if exponent.kind != "num" or exponent.value not in _EXPONENTS:
                return False
    return True


_EXPONENTS = frozenset(range(1, 9))


def relations_of_chain(sides: list[Node], relations: list[str]) -> list[Node]:
    """Return the two-sided relations of a chain that have variables."""
    found = []
    for left, relation, right in zip(sides, relations, sides[1:], strict=False):
        if relation not in _RELATIONS:
            continue
        node = Node("rel", (strip(left), strip(right)), relation)
        if free_names(node):
            found.append(node)
    return found


@lru_cache(maxsize=512)
def facts_of(text: str) -> Facts:
    """Read the facts of a problem or an earlier step."""
    if len(text) > 6000:
        return Facts(complete=False)
    relations: list[Node] = []
    complete = True
    if any(sign in text for sign in "=<>≤≥≠\\"):
        tokens = tokenize(text)
        for chain in scan(tokens):
            sides = chain.sides
            known = [side for side in sides if side is not None]
            nodes = [side.node for side in known]
            if len(known) != len(sides) or chain.cut_left or chain.cut_right or chain.modulus:
                complete = complete and not any(free_names(node) for node in nodes)
                continue
            if not all(is_arithmetic(node) for node in nodes):
                complete = False
                continue
            start, end = known[0].start, known[-1].end
            if is_hypothetical(text, start, end, closed=True, asked=False) or is_conditional(
                text, start, end
            ):
                complete = False
                continue
            relations += relations_of_chain(nodes, chain.relations)
    integers, domains = _domains(text)
    relations += domains
    if len(relations) > MAX_FACTS:
        return Facts(complete=False)
    return Facts(tuple(relations), frozenset(integers), complete)


def _domains(text: str) -> tuple[set[str], list[Node]]:
    plain = text.replace("$", "")
    integers: set[str] = set()
    found: list[Node] = []
    for pattern in _DOMAINS:
        for match in pattern.finditer(plain):
            names = [
                name
                for name in re.findall(
                    r"[a-zA-Z](?:_\d)?", re.sub(r"\band\b", " ", match.group("names"))
                )
                if name not in _NOT_LETTERS
            ]
            words = set(match.group("adj").replace(",", " ").split())
            kind = match.group("kind")
            for name in names:
                variable = Node("name", (), name)
                if kind.startswith("integer") or words & {
                    "whole",
                    "natural",
                    "odd",
                    "even",
                    "prime",
                }:
                    integers.add(name)
                if words & {"positive", "natural", "prime"}:
                    found.append(Node("rel", (variable, number(0)), ">"))
                if words & {"negative"}:
                    found.append(Node("rel", (variable, number(0)), "<"))
                if words & {"nonnegative", "non-negative", "whole"}:
                    found.append(Node("rel", (variable, number(0)), ">="))
                if words & {"odd", "even"}:
                    parity = number(1 if "odd" in words else 0)
                    rest = Node("mod", (variable, number(2)))
                    found.append(Node("rel", (rest, parity), "="))
    return integers, found
