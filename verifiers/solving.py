"""Claims that need context: "so x = 5", "the roots are 2 and 3", "then n is prime".

Premises are what the problem, earlier steps and earlier equations of the step state. Entailment
from any of them supports. Only the problem's own statements refute, only where all of them were
read, and wherever the claim names values the refutation is re-checked in exact rationals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from treerl.verdict import Claim, ClaimVerdict, Strength, ToolCall, Verdict

from .closed import FRACTION_VERSION, Link
from .context import Facts, facts_of, is_arithmetic
from .parser.evaluate import NoValue, evaluate
from .parser.nodes import Node, free_names, render, strip, to_wire
from .pool import WorkerPool
from .symbolic import ask

__all__ = [
    "Premises",
    "Solved",
    "is_arithmetic_claim",
    "judge_relation",
    "link_claim",
    "premises_for",
    "to_claim_verdict",
    "violated",
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


def violated(relations: Sequence[Node], env: dict[str, Fraction]) -> Node | None:
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
        broken = violated(problem, env)
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
