"""Claims that need context: "so x = 5", "the roots are 2 and 3", "then n is prime".

Premises are what the problem, earlier steps and earlier equations of the step state. Entailment
from any of them supports. Only the problem's own statements refute, only where all of them were
read, and wherever the claim names values the refutation is re-checked in exact rationals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from treerl.verdict import Claim, ClaimVerdict, Strength, ToolCall, Verdict

from .closed import FRACTION_VERSION, Link
from .context import Facts, facts_of, is_arithmetic
from .parser.evaluate import NoValue, evaluate
from .parser.grammar import parse_expression
from .parser.nodes import Node, free_names, render, strip, to_wire
from .pool import WorkerPool
from .statements import is_prime
from .symbolic import ask

__all__ = [
    "Premises",
    "Solved",
    "find_value_claims",
    "judge_relation",
    "judge_values",
    "premises_for",
]

MAX_NAMES = 8
MAX_CONTEXT = 24


@dataclass(frozen=True, slots=True)
class Premises:
    """Everything a claim may stand on.

    Attributes:
        problem: What the problem states.
        context: Relations of earlier steps and of the step itself so far.
        integers: Names that stand for integers.
        redefined: Names that a step introduces itself ("let x be …"): the problem's statements
            about them refute nothing.
    """

    problem: Facts
    context: tuple[Node, ...]
    integers: frozenset[str]
    redefined: frozenset[str]


_LET = re.compile(r"\b(?:let|denote|define|call|suppose|assume|set|say)\b[^.]{0,60}", re.IGNORECASE)


def premises_for(problem: str, previous: Sequence[str], step: str, own: Sequence[Node]) -> Premises:
    """Collect the premises of a step."""
    facts = facts_of(problem) if problem else Facts()
    context: list[Node] = []
    integers = set(facts.integers)
    redefined: set[str] = set()
    for text in [*previous, step]:
        for match in _LET.finditer(text):
            redefined |= set(re.findall(r"(?<![A-Za-z])[a-zA-Z](?![A-Za-z])", match.group()))
    for text in previous[-12:]:
        earlier = facts_of(text)
        context += earlier.relations
        integers |= earlier.integers
    context += own
    unique = list(dict.fromkeys(context))[-MAX_CONTEXT:]
    return Premises(facts, tuple(unique), frozenset(integers), frozenset(redefined))


@dataclass(frozen=True, slots=True)
class Solved:
    """A verdict on a claim with variables and why."""

    verdict: Verdict
    reason: str
    strength: Strength | None
    calls: tuple[ToolCall, ...]
    premises: tuple[str, ...] = ()
    reading: str = ""


def _relevant(relations: Sequence[Node], names: set[str]) -> list[Node]:
    """Relations connected to the names through shared variables."""
    wanted = set(names)
    chosen: list[Node] = []
    left = list(relations)
    grown = True
    while grown:
        grown = False
        for relation in list(left):
            if free_names(relation) & wanted:
                wanted |= free_names(relation)
                chosen.append(relation)
                left.remove(relation)
                grown = True
    order = {id(relation): i for i, relation in enumerate(relations)}
    return sorted(chosen, key=lambda relation: order[id(relation)])


def _violated(relations: Sequence[Node], env: dict[str, Fraction]) -> Node | None:
    """A relation that fails at these exact values, None if all that can be evaluated hold."""
    for relation in relations:
        if not free_names(relation) <= set(env):
            continue
        try:
            a, b = evaluate(relation.args[0], env), evaluate(relation.args[1], env)
        except NoValue:
            continue
        holds = {
            "=": a == b, "!=": a != b, "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b,
        }[str(relation.value)]  # fmt: skip
        if not holds:
            return relation
    return None


def _assignment(claim: Node) -> dict[str, Fraction] | None:
    """Values that a claim gives to its names, None where it is more than an assignment."""
    parts = claim.args if claim.kind == "list" and claim.value == "and" else (claim,)
    env: dict[str, Fraction] = {}
    for part in parts:
        if part.kind != "rel" or part.value != "=":
            return None
        left, right = part.args
        if left.kind != "name":
            left, right = right, left
        if left.kind != "name" or free_names(right) or str(left.value) in env:
            return None
        try:
            env[str(left.value)] = evaluate(right)
        except NoValue:
            return None
    return env


def judge_relation(
    claim: Node, premises: Premises, pool: WorkerPool, wall_s: float, *, may_refute: bool
) -> Solved | None:
    """Judge a relation, or a list of them joined by "and" / "or", against the premises.

    Args:
        claim: Tree of kind rel, or a list of them whose value is "and" or "or".
        premises: What it may stand on.
        pool: Where z3 lives.
        wall_s: Seconds it may take.
        may_refute: False where the sentence supposes the claim.

    Returns:
        None where the claim is outside what can be asked.
    """
    names = free_names(claim)
    if not names or len(names) > MAX_NAMES or not is_arithmetic_claim(claim):
        return None
    problem = [r for r in _relevant(premises.problem.relations, names) if is_arithmetic(r)]
    context = [r for r in _relevant(premises.context, names) if is_arithmetic(r) and r != claim]
    context = [r for r in context if r not in problem]
    if not problem and not context:
        return None
    if claim in problem or claim in premises.context:
        return Solved(Verdict.UNVERIFIABLE, "restated", None, ())
    shown = tuple(render(r) for r in [*problem, *context])
    fair = (
        may_refute
        and premises.problem.complete
        and bool(problem)
        and not names & premises.redefined
    )
    env = _assignment(claim)
    if env is not None and fair:
        broken = _violated(problem, env)
        if broken is not None:
            values = ", ".join(f"{name} = {value}" for name, value in sorted(env.items()))
            call = ToolCall(
                "fraction",
                FRACTION_VERSION,
                f"{render(broken)} at {values}",
                "False",
                "ok",
                "in_process",
            )
            return Solved(
                Verdict.REFUTED, "premise_violated", "exact", (call,), (render(broken),), values
            )
    payload = {
        "problem": [to_wire(r) for r in problem],
        "context": [to_wire(r) for r in context],
        "claim": to_wire(claim),
        "integers": sorted(premises.integers),
    }
    query = f"{'; '.join(shown)} |- {render(claim)}"
    reply, call = ask(pool, "z3", "entail", payload, query, wall_s)
    if reply.status != "ok":
        reason = "limit" if reply.status in ("timeout", "memory", "killed") else "error"
        return Solved(Verdict.UNVERIFIABLE, reason, None, (call,), shown)
    answer = str(reply.result.get("verdict"))
    script = str(reply.result.get("script", ""))
    if script:
        call = ToolCall(
            call.tool,
            call.tool_version,
            script,
            call.output,
            call.status,
            call.isolation,
            call.wall_time_s,
        )
    if answer == "entailed":
        by = str(reply.result.get("by", "context"))
        return Solved(Verdict.SUPPORTED, f"entailed_by_{by}", "partial", (call,), shown)
    if answer == "excluded" and fair:
        return Solved(Verdict.REFUTED, "contradicts_problem", "partial", (call,), shown)
    reason = {"excluded": "premise", "unknown": "limit", "inconsistent": "inconsistent_premises",
              "independent": "independent"}.get(answer, "unsupported")  # fmt: skip
    return Solved(Verdict.UNVERIFIABLE, reason, None, (call,), shown)


def is_arithmetic_claim(claim: Node) -> bool:
    """True where every relation of the claim is in z3's fragment."""
    parts = claim.args if claim.kind == "list" else (claim,)
    return all(part.kind == "rel" and is_arithmetic(part) for part in parts)


# -- sets of values ---------------------------------------------------------------------------
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
        broken = _violated(own, {claim.name: value})
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
        if other not in claim.values and _violated(own, {claim.name: other}) is None:
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
    from itertools import permutations

    names = claim.name.split(",")
    if len(names) > 4:
        return None
    orders = [dict(zip(names, order, strict=True)) for order in permutations(claim.values)]
    good = [env for env in orders if _violated(relations, env) is None]
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


def link_claim(link: Link) -> Node | None:
    """The relation of an open link as a claim, None where it cannot be one."""
    if link.relation not in ("=", "<", ">", "<=", ">=", "!="):
        return None
    return Node("rel", (strip(link.left.node), strip(link.right.node)), link.relation)


def to_claim_verdict(
    step: str, start: int, end: int, node: Node | None, solved: Solved, kind: str
) -> ClaimVerdict:
    """Turn a solver's answer into a record."""
    lhs = rhs = relation = None
    if node is not None and node.kind == "rel":
        lhs, relation, rhs = render(node.args[0]), str(node.value), render(node.args[1])
    claim = Claim(kind, step[start:end], (start, end), lhs, relation, rhs, solved.premises)
    return ClaimVerdict(
        claim, solved.verdict, solved.reason, solved.strength, solved.reading, solved.calls
    )
