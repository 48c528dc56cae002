"""Judging the claims of a step that need no context, one function a kind."""

from __future__ import annotations

import re

from treerl.verdict import Claim, ClaimVerdict, Verdict

from .algebra import judge_identity, matches_far_away
from .arithmetic import judge_link
from .chains import Side
from .closed import Link
from .cues import cues_for, is_hypothetical
from .identity import Sampled
from .parser.nodes import Node, free_names, render
from .phrases import Statement
from .readings import transform
from .verdicts import fraction_call, make

__all__ = [
    "assigns_value",
    "beyond_exact",
    "identity_verdict",
    "is_alternative",
    "judge_rewriting",
    "judge_statement",
    "maybe_imaginary",
    "with_imaginary_unit",
    "with_node",
]


def maybe_imaginary(left: Node, right: Node) -> bool:
    """True where ``i`` may be the imaginary unit: it stands alone, without other single indices."""
    names = free_names(left) | free_names(right)
    return "i" in names and not names & {"j", "k", "n"}


def with_imaginary_unit(node: Node) -> Node:
    """Read the name ``i`` as the imaginary unit."""
    unit = Node("const", (), "i")
    return transform(node, lambda n: unit if n.kind == "name" and n.value == "i" else None)


def with_node(side: Side, node: Node) -> Side:
    """The same side with another tree."""
    return Side(node, side.first, side.last, side.start, side.end)


def beyond_exact(link: Link) -> bool:
    """True for complex numbers and matrices, which the exact evaluator does not know."""
    return any(
        n.kind == "matrix" or (n.kind == "const" and n.value == "i")
        for side in (link.left, link.right)
        for n in side.node.walk()
    )


def assigns_value(relation: Node) -> bool:
    """True for ``x = 5``: only a value may be refuted by the problem, never an equation."""
    left, right = relation.args
    return relation.value == "=" and (
        (left.kind == "name" and not free_names(right))
        or (right.kind == "name" and not free_names(left))
    )


def is_alternative(step: str, start: int, end: int) -> bool:
    """True where the claim is one of several cases joined by "or"."""
    around = step[max(0, start - 40) : start] + " | " + step[end : end + 40]
    return re.search(r"\bor\b|\\lor|\bcases?\b|\beither\b", around, re.IGNORECASE) is not None


def identity_verdict(
    step: str, start: int, end: int, left: Node, right: Node, sampled: Sampled
) -> ClaimVerdict:
    """Record of a comparison at points: agreement is partial, one witness is exact."""
    claim = Claim("identity", step[start:end], (start, end), render(left), "=", render(right))
    query = f"{render(left)} = {render(right)}"
    if sampled.equal:
        call = fraction_call(query, f"agrees at {sampled.points} points")
        return make(claim, Verdict.SUPPORTED, "identity", "partial", calls=(call,))
    witness = ", ".join(f"{name} = {value}" for name, value in sampled.witness)
    call = fraction_call(query, f"differs at {witness}")
    return make(claim, Verdict.REFUTED, "no_identity", "exact", f"differs at {witness}", (call,))


def judge_rewriting(
    step: str, start: int, end: int, left: Node, right: Node
) -> ClaimVerdict | None:
    """Judge "rewrite A as B"."""
    sampled = judge_identity(left, right)
    if sampled is None or sampled.equal is None:
        return None
    if sampled.equal is False:
        if free_names(left) != free_names(right) or not matches_far_away(left, right):
            return None
        if is_hypothetical(step, start, end, closed=True):
            return None
    return identity_verdict(step, start, end, left, right, sampled)


def judge_statement(step: str, statement: Statement) -> ClaimVerdict | None:
    """Judge a claim in words."""
    start, end = statement.start, statement.end
    text = step[start:end]
    if statement.holds is not None:
        claim = Claim(statement.kind, text, (start, end), statement.query, "is", str(True))
        call = fraction_call(statement.query, str(statement.holds), tool="python")
        if statement.holds:
            return make(claim, Verdict.SUPPORTED, "holds", "partial", statement.query, (call,))
        if is_hypothetical(step, start, end, closed=True):
            return make(claim, Verdict.UNVERIFIABLE, "hypothetical", None, statement.query, (call,))
        return make(claim, Verdict.REFUTED, "fails", "exact", statement.query, (call,))
    left, right = statement.left, statement.right
    assert left is not None
    assert right is not None
    judgement = judge_link(left, statement.relation, right, cues_for(step, start, end))
    claim = Claim(
        statement.kind, text, (start, end), render(left), statement.relation, render(right)
    )
    call = fraction_call(
        f"{render(left)} {statement.relation} {render(right)}", str(judgement.holds)
    )
    if judgement.holds:
        return make(
            claim, Verdict.SUPPORTED, judgement.reason, "partial", judgement.reading, (call,)
        )
    if judgement.holds is None or is_hypothetical(step, start, end, closed=True):
        reason = judgement.reason if judgement.holds is None else "hypothetical"
        return make(claim, Verdict.UNVERIFIABLE, reason, None, judgement.reading, (call,))
    return make(claim, Verdict.REFUTED, judgement.reason, "exact", judgement.reading, (call,))
