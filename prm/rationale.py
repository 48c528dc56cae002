"""Rationales: the evidence in words, for generative process reward models.

Written from the evidence by template, so a rationale never contradicts its label and never says
more than a tool or a count has shown.
"""

from __future__ import annotations

from treerl.prm.fuse import Evidence
from treerl.verdict import ClaimVerdict, StepVerdict, Verdict

__all__ = ["RIGHT", "WRONG", "write_rationale"]

RIGHT, WRONG = "Right", "Wrong"
"""The only two verdict words, in training, evaluation and search alike."""


def write_rationale(
    label: int | None, evidence: Evidence, verdict: StepVerdict | None, *, masked: bool = False
) -> str:
    """Say why a step has its label; for an unlabelled step, what is known about it.

    Args:
        label: 1 right, 0 wrong, None unlabelled.
        evidence: What the label was made of.
        verdict: The tool's, with the claims to name.
        masked: The step has no label because one before it is wrong.
    """
    refuted = _claims(verdict, Verdict.REFUTED)
    supported = _claims(verdict, Verdict.SUPPORTED)
    counts = _counts(evidence)
    if label == 0:
        parts = [f"{_refutation(claim)}." for claim in refuted]
        if evidence.correct == 0:
            parts += counts
        if not parts and verdict is not None and verdict.verdict is Verdict.REFUTED:
            parts = [f"The check found: {' '.join(verdict.reason.split())}."]
        return " ".join([*parts, "The step is wrong."])
    if label == 1:
        parts = [f"The calculation {_quote(claim)} holds." for claim in supported]
        if evidence.correct == 0 and not evidence.terminal:
            # A label by reach: the step's own continuations failed, but it stands on a right path.
            counts = ["A solution through it reaches the right answer."]
        return " ".join([*parts, *counts, "The step is right."])
    parts = [f"{_refutation(claim)}." for claim in refuted]
    parts += [f"The calculation {_quote(claim)} holds." for claim in supported]
    why = "An earlier step is wrong already." if masked else "That is not enough to tell."
    return " ".join([*parts, *counts, why])


def _claims(verdict: StepVerdict | None, word: Verdict) -> list[ClaimVerdict]:
    return [c for c in verdict.claims if c.verdict is word] if verdict is not None else []


def _quote(claim: ClaimVerdict) -> str:
    return f"“{' '.join(claim.claim.text.split())}”"


def _refutation(claim: ClaimVerdict) -> str:
    """Say what is false, with the tool's witness where it adds something."""
    output = claim.calls[-1].output if claim.calls else claim.reading
    witness = output.removeprefix("False").removeprefix(": ").strip()
    return f"{_quote(claim)} is false" + (f": {witness}" if witness else "")


def _counts(evidence: Evidence) -> list[str]:
    c, n = evidence.correct, evidence.total
    if n == 0:
        return []
    if evidence.terminal:
        return [f"The final answer is {'right' if c else 'wrong'}."]
    if c == 0:
        return [f"None of {n} continuations reaches the right answer."]
    return [f"{c} of {n} continuations reach the right answer."]
