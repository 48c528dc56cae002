"""Claims about sets of values: "the only root is 2", "the numbers are 3 and 4", "n is prime"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from treerl.verdict import ToolCall, Verdict

from .closed import FRACTION_VERSION
from .context import is_arithmetic
from .parser.evaluate import NoValue, evaluate
from .parser.grammar import parse_expression
from .parser.nodes import Node, free_names, render, to_wire
from .phrases import is_prime
from .pool import WorkerPool
from .solving import Premises, Solved, violated
from .symbolic import ask

__all__ = ["ValueClaim", "find_value_claims", "judge_values"]


@dataclass(frozen=True, slots=True)
class ValueClaim:
    """Values claimed for unknowns: the roots, the numbers, or a property of a name.

    ``complete`` says that there are no others ("the only root", "the roots are").
    """

    kind: str
    start: int
    end: int
    name: str
    values: tuple[Fraction, ...] = ()
    complete: bool = False
    prop: str = ""


_V = r"(?:[a-zA-Z]\s*=\s*)?[-−]?\d+(?:\.\d+)?(?:/\d+)?|\\frac\{-?\d+\}\{\d+\}"
_VALUES = rf"(?P<values>(?:{_V})(?:(?:,\s*(?:and|or)?\s*|\s+(?:and|or)\s+)(?:{_V}))*)"
_ROOTS = re.compile(
    rf"\b(?P<only>only )?(?:(?:real|integer|positive|possible|two) )?(?:roots?|solutions?"
    rf"|zeros?|zeroes)"
    rf"(?: of (?:the|this) (?:equation|polynomial))? (?:is|are) {_VALUES}(?![\d./]*\d|\s*[-+*/^])",
    re.IGNORECASE,
)
_NUMBERS = re.compile(
    rf"\b(?:the|these|two|those) (?:two |three )?numbers are {_VALUES}(?![\d./]*\d|\s*[-+*/^])",
    re.IGNORECASE,
)
_PROPERTY = re.compile(
    r"\b(?P<name>[a-zA-Z]) is(?P<neg> not)? (?:an? |the )?(?P<prop>prime|odd|even|positive"
    r"|negative)\b"
)


def find_value_claims(step: str, premises: Premises) -> Iterator[ValueClaim]:
    """Yield claims about sets of values and properties of names."""
    plain = step.replace("$", " ")
    unknowns = sorted(premises.problem.names)
    for match in _ROOTS.finditer(plain):
        values = _values(match.group("values"))
        names = set(re.findall(r"([a-zA-Z])\s*=", match.group("values")))
        name = names.pop() if len(names) == 1 else (unknowns[0] if len(unknowns) == 1 else "")
        if values and name:
            plural = re.search(r"roots|solutions|zeros|zeroes", match.group(), re.IGNORECASE)
            complete = bool(match.group("only") or plural)
            yield ValueClaim("roots", match.start(), match.end(), name, values, complete)
    for match in _NUMBERS.finditer(plain):
        values = _values(match.group("values"))
        if len(values) == len(unknowns) >= 2:
            yield ValueClaim("numbers", match.start(), match.end(), ",".join(unknowns), values)
    for match in _PROPERTY.finditer(plain):
        name = match.group("name")
        if name in premises.problem.names and not match.group("neg"):
            yield ValueClaim("property", match.start(), match.end(), name, prop=match.group("prop"))


def _values(text: str) -> tuple[Fraction, ...]:
    found: list[Fraction] = []
    for part in re.split(r",|\band\b|\bor\b", text):
        bare = re.sub(r"^\s*[a-zA-Z]\s*=", "", part).strip()
        if not bare:
            continue
        node = parse_expression(bare)
        try:
            found.append(evaluate(node) if node is not None else Fraction(0))
        except NoValue:
            return ()
        if node is None:
            return ()
    return tuple(dict.fromkeys(found))


def _equals(name: str, value: Fraction) -> Node:
    return Node("rel", (Node("name", (), name), Node("num", (), value)), "=")


def judge_values(
    claim: ValueClaim, premises: Premises, pool: WorkerPool, wall_s: float, *, may_refute: bool
) -> Solved | None:
    """Judge a claim about a set of values."""
    relations = [r for r in premises.problem.relations if is_arithmetic(r)]
    if not relations:
        return None
    if claim.kind == "numbers":
        return _judge_numbers(claim, relations, premises, pool, wall_s, may_refute)
    own = [r for r in relations if free_names(r) == {claim.name}]
    if not own:
        return None
    if claim.kind == "property":
        return _judge_property(claim, own, premises, pool, wall_s, may_refute)
    fair = may_refute and premises.problem.complete and claim.name not in premises.redefined
    for value in claim.values:
        broken = violated(own, {claim.name: value})
        if broken is not None:
            reading = f"{render(broken)} at {claim.name} = {value}"
            call = ToolCall("fraction", FRACTION_VERSION, reading, "False", "ok", "in_process")
            if not fair:
                return Solved(Verdict.UNVERIFIABLE, "premise", None, (call,))
            return Solved(Verdict.REFUTED, "no_root", "exact", (call,), (render(broken),), reading)
    disjunction = Node("list", tuple(_equals(claim.name, v) for v in claim.values), "or")
    only = disjunction if len(claim.values) > 1 else disjunction.args[0]
    payload = {
        "problem": [to_wire(r) for r in own],
        "context": [],
        "claim": to_wire(only),
        "integers": sorted(premises.integers),
    }
    query = (
        f"{'; '.join(render(r) for r in own)} |- {claim.name} in {[str(v) for v in claim.values]}"
    )
    reply, call = ask(pool, "z3", "entail", payload, query, wall_s)
    if reply.status != "ok":
        return Solved(Verdict.UNVERIFIABLE, "limit", None, (call,))
    if reply.result.get("verdict") == "entailed":
        return Solved(Verdict.SUPPORTED, "all_roots", "partial", (call,), tuple(map(render, own)))
    model = reply.result.get("model") or {}
    if claim.complete and fair and claim.name in model:
        other = _fraction(str(model[claim.name]))
        if other not in claim.values and violated(own, {claim.name: other}) is None:
            reading = f"{claim.name} = {other} is a root too"
            return Solved(
                Verdict.REFUTED, "missing_root", "exact", (call,), tuple(map(render, own)), reading
            )
    return Solved(Verdict.UNVERIFIABLE, "independent", None, (call,))


def _fraction(text: str) -> Fraction:
    top, _, bottom = text.partition("/")
    return Fraction(int(top), int(bottom or 1))


def _judge_numbers(
    claim: ValueClaim,
    relations: list[Node],
    premises: Premises,
    pool: WorkerPool,
    wall_s: float,
    may_refute: bool,
) -> Solved | None:
    """The numbers in some order satisfy everything, or in no order do."""
    names = claim.name.split(",")
    if len(names) > 4:
        return None
    orders = [dict(zip(names, order, strict=True)) for order in permutations(claim.values)]
    good = [env for env in orders if violated(relations, env) is None]
    query = "; ".join(render(r) for r in relations)
    call = ToolCall(
        "fraction", FRACTION_VERSION, f"{query} at orders of {[str(v) for v in claim.values]}",
        str(bool(good)), "ok", "in_process",
    )  # fmt: skip
    if not good:
        if may_refute and premises.problem.complete:
            return Solved(Verdict.REFUTED, "premise_violated", "exact", (call,), (query,))
        return Solved(Verdict.UNVERIFIABLE, "premise", None, (call,))
    if not premises.problem.complete:
        return Solved(Verdict.UNVERIFIABLE, "premise", None, (call,))
    conjunctions = [
        Node("list", tuple(_equals(n, v) for n, v in sorted(env.items())), "and") for env in good
    ]
    payload = {
        "problem": [to_wire(r) for r in relations],
        "context": [],
        "claim": to_wire(Node("list", tuple(conjunctions), "or")),
        "integers": sorted(premises.integers),
    }
    reply, solver_call = ask(pool, "z3", "entail", payload, query, wall_s)
    if reply.status == "ok" and reply.result.get("verdict") == "entailed":
        return Solved(
            Verdict.SUPPORTED, "entailed_by_problem", "partial", (call, solver_call), (query,)
        )
    return Solved(Verdict.SUPPORTED, "satisfies_problem", "partial", (call, solver_call), (query,))


def _judge_property(
    claim: ValueClaim,
    own: list[Node],
    premises: Premises,
    pool: WorkerPool,
    wall_s: float,
    may_refute: bool,
) -> Solved | None:
    """A property of a name that the problem pins to one value."""
    payload = {
        "problem": [to_wire(r) for r in own],
        "context": [],
        "claim": to_wire(_equals(claim.name, Fraction(10**9 + 7, 3))),  # asks for any model
        "integers": sorted(premises.integers),
    }
    query = "; ".join(render(r) for r in own)
    reply, call = ask(pool, "z3", "entail", payload, query, wall_s)
    model = reply.result.get("model") or {}
    if reply.status != "ok" or claim.name not in model:
        return Solved(
            Verdict.UNVERIFIABLE, "limit" if reply.status != "ok" else "premise", None, (call,)
        )
    value = _fraction(str(model[claim.name]))
    payload["claim"] = to_wire(_equals(claim.name, value))
    reply, second = ask(pool, "z3", "entail", payload, f"{query} |- {claim.name} = {value}", wall_s)
    if reply.status != "ok" or reply.result.get("verdict") != "entailed":
        return Solved(Verdict.UNVERIFIABLE, "independent", None, (call, second))
    truth = _has_property(value, claim.prop)
    reading = f"{claim.name} = {value}"
    if truth is None:
        return Solved(Verdict.UNVERIFIABLE, "limit", None, (call, second))
    if truth:
        return Solved(
            Verdict.SUPPORTED, "entailed_by_problem", "partial", (call, second), (query,), reading
        )
    if may_refute and premises.problem.complete:
        return Solved(
            Verdict.REFUTED, "contradicts_problem", "partial", (call, second), (query,), reading
        )
    return Solved(Verdict.UNVERIFIABLE, "premise", None, (call, second))


def _has_property(value: Fraction, prop: str) -> bool | None:
    if prop == "positive":
        return value > 0
    if prop == "negative":
        return value < 0
    if value.denominator != 1:
        return False
    if prop == "prime":
        return is_prime(value.numerator)
    return (value.numerator % 2 == 0) == (prop == "even")
