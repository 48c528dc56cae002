"""Claims that sympy decides: equations beyond exact arithmetic, derivatives and integrals."""

from __future__ import annotations

from treerl.verdict import Claim, ClaimVerdict, Verdict

from .calculus import CalculusClaim, has_calculus
from .closed import Link
from .cues import is_hypothetical
from .parser.evaluate import is_closed
from .parser.nodes import render, to_wire
from .pool import WorkerPool
from .symbolic import ask, ask_equal
from .verdicts import make

__all__ = ["by_sympy", "judge_calculus"]


def by_sympy(pool: WorkerPool, wall_s: float, step: str, link: Link) -> ClaimVerdict:
    """Judge an equation with integrals, complex numbers or matrices."""
    left, right = link.left.node, link.right.node
    start, end = link.span
    outcome = ask_equal(pool, left, right, wall_s)
    kind = "calculus" if has_calculus(left) or has_calculus(right) else "identity"
    claim = Claim(kind, step[start:end], (start, end), render(left), link.relation, render(right))
    if outcome.equal:
        return make(claim, Verdict.SUPPORTED, outcome.reason, "partial", calls=outcome.calls)
    if outcome.equal is None:
        return make(claim, Verdict.UNVERIFIABLE, outcome.reason, None, calls=outcome.calls)
    closed = is_closed(left) and is_closed(right)
    if link.cut or is_hypothetical(step, start, end, closed=closed) or not closed:
        return make(claim, Verdict.UNVERIFIABLE, "cut_context", None, calls=outcome.calls)
    return make(claim, Verdict.REFUTED, "unequal", "partial", calls=outcome.calls)


def judge_calculus(
    pool: WorkerPool, wall_s: float, step: str, claim: CalculusClaim
) -> ClaimVerdict:
    """Judge a derivative, an antiderivative or a limit."""
    payload = {"of": to_wire(claim.of), "claimed": to_wire(claim.claimed), "name": claim.name}
    query = f"{claim.task}({render(claim.of)}, {claim.name}) = {render(claim.claimed)}"
    reply, call = ask(pool, "sympy", claim.task, payload, query, wall_s)
    record = Claim(
        "calculus", step[claim.start : claim.end], (claim.start, claim.end),
        f"{claim.task}({render(claim.of)}, {claim.name})", "=", render(claim.claimed),
    )  # fmt: skip
    equal = reply.result.get("equal") if reply.status == "ok" else None
    if equal is None:
        reason = "limit" if reply.status in ("timeout", "memory", "killed") else "undecided"
        return make(record, Verdict.UNVERIFIABLE, reason, None, calls=(call,))
    if equal:
        return make(record, Verdict.SUPPORTED, "equal", "partial", calls=(call,))
    if is_hypothetical(step, claim.start, claim.end, closed=True):
        return make(record, Verdict.UNVERIFIABLE, "hypothetical", None, calls=(call,))
    return make(record, Verdict.REFUTED, "unequal", "partial", calls=(call,))
