"""What tools say about text: records that both trees and verifiers need.

A verdict has three values and no others. ``UNVERIFIABLE`` is an answer of its own: errors, limits
and parse failures end there with a reason, and nothing turns it silently into ``REFUTED``.
Every record survives ``from_json(to_json(record)) == record`` and holds what a replay needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self

__all__ = [
    "AnswerVerdict",
    "Claim",
    "ClaimVerdict",
    "StepVerdict",
    "Strength",
    "ToolCall",
    "Verdict",
]

Strength = Literal["exact", "partial"]
"""How far a verdict reaches.

``exact``: the witness was re-checked in exact arithmetic (a false equation, a counter-example).
``partial``: everything else, above all any *support* by arithmetic inside the step, which says
nothing about whether the operation was the right one.
"""

SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """The only three words a tool may answer with."""

    SUPPORTED = "SUPPORTED"
    REFUTED = "REFUTED"
    UNVERIFIABLE = "UNVERIFIABLE"


@dataclass(frozen=True, slots=True)
class Claim:
    """A checkable statement found in a step.

    Attributes:
        kind: "arithmetic", "identity", "solve", …: the routing key of the tools.
        text: The exact substring of the step.
        span: Character offsets of ``text`` in the step, end exclusive.
        lhs, relation, rhs: Canonical forms of the parts, None where the claim has none.
        premises: Facts the claim stands on, canonical.
    """

    kind: str
    text: str
    span: tuple[int, int]
    lhs: str | None = None
    relation: str | None = None
    rhs: str | None = None
    premises: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "kind": self.kind,
            "text": self.text,
            "span": list(self.span),
            "lhs": self.lhs,
            "relation": self.relation,
            "rhs": self.rhs,
            "premises": list(self.premises),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore a claim from :meth:`to_json`."""
        start, end = data["span"]
        return cls(
            kind=data["kind"],
            text=data["text"],
            span=(start, end),
            lhs=data["lhs"],
            relation=data["relation"],
            rhs=data["rhs"],
            premises=tuple(data["premises"]),
        )


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One question to one tool, kept so that it can be asked again.

    Attributes:
        tool: "fraction", "sympy", "z3" or "python".
        tool_version: The version that answered.
        query: Exactly what was sent: an expression, an SMT-LIB script, a program.
        output: What came back, capped; empty if nothing did.
        status: "ok", "error", "timeout", "memory", "killed" or "unknown".
        isolation: Where it ran: "in_process", "worker", "rlimit", "landlock+seccomp".
        wall_time_s: Seconds on the wall clock; not part of equality, since it never repeats.
    """

    tool: str
    tool_version: str
    query: str
    output: str
    status: str
    isolation: str
    wall_time_s: float = field(default=0.0, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without the time, which is not reproducible."""
        return {
            "tool": self.tool,
            "tool_version": self.tool_version,
            "query": self.query,
            "output": self.output,
            "status": self.status,
            "isolation": self.isolation,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore a call from :meth:`to_json`."""
        return cls(**{name: data[name] for name in _TOOL_CALL_FIELDS})


_TOOL_CALL_FIELDS = ("tool", "tool_version", "query", "output", "status", "isolation")


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A tool's verdict on one claim.

    Attributes:
        claim: What was judged.
        verdict: The answer.
        reason: A short code: "equal", "unequal", "free_variable", "limit", "parse", ….
        strength: How far the verdict reaches; None for UNVERIFIABLE.
        reading: The reading of the text that decided, canonical.
        calls: The tool calls behind it, cheapest first.
    """

    claim: Claim
    verdict: Verdict
    reason: str
    strength: Strength | None = None
    reading: str = ""
    calls: tuple[ToolCall, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "claim": self.claim.to_json(),
            "verdict": str(self.verdict),
            "reason": self.reason,
            "strength": self.strength,
            "reading": self.reading,
            "calls": [call.to_json() for call in self.calls],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore a claim verdict from :meth:`to_json`."""
        return cls(
            claim=Claim.from_json(data["claim"]),
            verdict=Verdict(data["verdict"]),
            reason=data["reason"],
            strength=data["strength"],
            reading=data["reading"],
            calls=tuple(ToolCall.from_json(call) for call in data["calls"]),
        )


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """What the tools say about one reasoning step.

    The step is REFUTED if any claim is, else SUPPORTED if any claim is, else UNVERIFIABLE.
    ``strength`` is that of the strongest claim verdict that agrees with the step's.

    Attributes:
        verdict: The step's verdict.
        reason: Why, as a short code; "no_claim" where the step states nothing checkable.
        strength: None for UNVERIFIABLE.
        claims: One verdict a claim, in text order.
        unsourced: Numbers in the step that neither problem nor earlier steps contain.
        verifier: Name and version of the judge, e.g. "treerl.step/1".

    Raises:
        ValueError: The verdict or the strength is none of its words.
    """

    verdict: Verdict
    reason: str
    strength: Strength | None = None
    claims: tuple[ClaimVerdict, ...] = ()
    unsourced: tuple[str, ...] = ()
    verifier: str = ""
    wall_time_s: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        # A judge of the user's own may write "REFUTED": rules compare members, not words.
        object.__setattr__(self, "verdict", Verdict(self.verdict))
        if self.strength not in ("exact", "partial", None):
            raise ValueError(f"a strength is 'exact', 'partial' or None, not {self.strength!r}")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without the time, which is not reproducible."""
        return {
            "schema": SCHEMA_VERSION,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "strength": self.strength,
            "claims": [claim.to_json() for claim in self.claims],
            "unsourced": list(self.unsourced),
            "verifier": self.verifier,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore a step verdict from :meth:`to_json`."""
        return cls(
            verdict=Verdict(data["verdict"]),
            reason=data["reason"],
            strength=data["strength"],
            claims=tuple(ClaimVerdict.from_json(claim) for claim in data["claims"]),
            unsourced=tuple(data["unsourced"]),
            verifier=data["verifier"],
        )


@dataclass(frozen=True, slots=True)
class AnswerVerdict:
    """Whether a response's final answer is the gold answer.

    Attributes:
        equal: True, False, or None where it cannot be told.
        reason: A short code: "equal", "not_equal", "no_answer", "gold_unparsable", "limit", ….
        extracted: The answer text found in the response.
        extraction: How it was found: "boxed", "marker", ….
        gold_canonical, pred_canonical: Canonical forms of both sides.
        calls: Tool calls behind the comparison.
    """

    equal: bool | None
    reason: str
    extracted: str | None = None
    extraction: str = ""
    gold_canonical: str | None = None
    pred_canonical: str | None = None
    calls: tuple[ToolCall, ...] = ()
    wall_time_s: float = field(default=0.0, compare=False)

    @property
    def verdict(self) -> Verdict:
        """The same answer in the three words: equal is SUPPORTED, unequal REFUTED."""
        if self.equal is None:
            return Verdict.UNVERIFIABLE
        return Verdict.SUPPORTED if self.equal else Verdict.REFUTED

    @property
    def gold_at_fault(self) -> bool:
        """True where the gold answer, not the response, made the comparison impossible."""
        return self.equal is None and self.reason.startswith("gold")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without the time, which is not reproducible."""
        return {
            "schema": SCHEMA_VERSION,
            "equal": self.equal,
            "reason": self.reason,
            "extracted": self.extracted,
            "extraction": self.extraction,
            "gold_canonical": self.gold_canonical,
            "pred_canonical": self.pred_canonical,
            "calls": [call.to_json() for call in self.calls],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore an answer verdict from :meth:`to_json`."""
        return cls(
            equal=data["equal"],
            reason=data["reason"],
            extracted=data["extracted"],
            extraction=data["extraction"],
            gold_canonical=data["gold_canonical"],
            pred_canonical=data["pred_canonical"],
            calls=tuple(ToolCall.from_json(call) for call in data["calls"]),
        )
