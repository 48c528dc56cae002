"""What crosses rooms: the few callables that users may bring themselves.

Each is a plain function or a small object; none needs a base class of treerl.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from treerl.problem import Problem
from treerl.verdict import StepVerdict

__all__ = ["JudgeStep", "Leaf", "Reward", "StepScore", "StepScorer"]


class Leaf(NamedTuple):
    """A finished path as a reward function sees it.

    Attributes:
        node: Index of the leaf in its tree; where nodes are numbered at the end, a number of the
            path's own.
        finish_reason: Why the path ended.
        token_ids: Generated ids of the whole path, root excluded.
        steps: The path's steps as text.
    """

    node: int
    finish_reason: str
    token_ids: tuple[int, ...]
    steps: tuple[str, ...]


Reward = Callable[[Problem, str, Leaf], "float | Awaitable[float | None] | None"]
"""(problem, response text, leaf) -> reward; None is unscorable and stays out of baselines."""


@dataclass(frozen=True, slots=True)
class StepScore:
    """A model's belief that a step is right.

    Attributes:
        value: In [0, 1].
        parsed: False where the scorer could not read its own answer; never taken for "wrong".
        stderr: Standard error over votes, None for a single one.
    """

    value: float
    parsed: bool = True
    stderr: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)


class StepScorer(Protocol):
    """A process reward model: one score a step."""

    def score(self, problem: Problem, steps: Sequence[str]) -> list[StepScore]:
        """Return exactly one score a step."""


class JudgeStep(Protocol):
    """A step verifier: judges the last step given what came before."""

    name: str

    def verify(
        self, step: str, *, problem: str = "", previous_steps: Sequence[str] = ()
    ) -> StepVerdict:
        """Return a verdict; never raises for model text."""
