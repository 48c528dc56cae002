"""Outcome rewards: the final answer against gold."""

from __future__ import annotations

from typing import Protocol

from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.verdict import AnswerVerdict

__all__ = ["AnswerReward"]


class _VerifiesAnswers(Protocol):
    name: str

    def verify(self, response: str, gold: str) -> AnswerVerdict: ...


class AnswerReward:
    """1 for the gold answer, 0 for anything else, None where the gold answer is missing or unread.

    A response without a readable answer is wrong: a policy must not gain by hiding its answer.

    Args:
        verifier: Compares a response with a gold answer, e.g. ``AnswerVerifier()``.
    """

    def __init__(self, verifier: _VerifiesAnswers) -> None:
        self.verifier = verifier
        self.name = verifier.name

    def __call__(self, problem: Problem, text: str, leaf: Leaf) -> float | None:
        """Score a response."""
        if problem.answer is None:
            return None
        verdict = self.verifier.verify(text, problem.answer)
        if verdict.gold_at_fault:
            return None
        return 1.0 if verdict.equal else 0.0
