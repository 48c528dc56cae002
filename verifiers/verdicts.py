"""Small makers of records, shared by the judges."""

from __future__ import annotations

from treerl.verdict import Claim, ClaimVerdict, Strength, ToolCall, Verdict

__all__ = ["combine", "fraction_call", "make"]

VERSION = "1"


def fraction_call(query: str, output: str, *, tool: str = "fraction") -> ToolCall:
    """Record of exact arithmetic in this process."""
    return ToolCall(tool, VERSION, query[:4000], output[:1000], "ok", "in_process")


def make(
    claim: Claim,
    verdict: Verdict,
    reason: str,
    strength: Strength | None,
    reading: str = "",
    calls: tuple[ToolCall, ...] = (),
) -> ClaimVerdict:
    """Return a claim's verdict."""
    return ClaimVerdict(claim, verdict, reason, strength, reading, calls)


def combine(claims: list[ClaimVerdict]) -> tuple[Verdict, str, Strength | None]:
    """The step's verdict: refuted if any claim is, else supported if any is."""
    for wanted in (Verdict.REFUTED, Verdict.SUPPORTED):
        agreeing = [claim for claim in claims if claim.verdict is wanted]
        if agreeing:
            best = next((claim for claim in agreeing if claim.strength == "exact"), agreeing[0])
            return wanted, best.reason, best.strength
    if not claims:
        return Verdict.UNVERIFIABLE, "no_claim", None
    return Verdict.UNVERIFIABLE, claims[0].reason, None
