"""What a rollout is worth: GroundedPRM's mix of step verdicts and outcome (groundedprm.md §1.4).

For a rollout from node i through the simulated steps i+1 … T there are N = T-1-i intermediate
steps with verdicts v in {+1, 0, -1} and an outcome F in {+1, 0, -1} (0: unscorable). The last step
contributes the outcome only::

    u = (1/N) · Σ_m w_m · v_m + β · F          w_m = (N-m)/N,  β = 1/N      (N >= 1)
    u = F                                                                    (N = 0)

Since |u| <= (N+3)/(2N), short rollouts weigh more than long ones and the outcome's share vanishes
with length. ``normalise`` divides by the bound, so that |u| <= 1 at every length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["RolloutReward"]


@dataclass(frozen=True, slots=True)
class RolloutReward:
    """The rule that turns verdicts and an outcome into one value.

    Attributes:
        verdicts: False leaves the verdicts out: the value is the outcome alone.
        outcome_weight: β: "1/N" as published, or a constant.
        position_weight: w_m: "linear" (N-m)/N as published, "uniform" 1, or "exp" 0.9^m.
        normalise: Divide by the largest possible |u|.
        include_own_verdict: Add the expanded node's own verdict v_i, as the paper's text does and
            its code does not.
    """

    verdicts: bool = True
    outcome_weight: Literal["1/N"] | float = "1/N"
    position_weight: Literal["linear", "uniform", "exp"] = "linear"
    normalise: bool = False
    include_own_verdict: bool = False

    def __call__(self, verdicts: Sequence[int], outcome: int, own: int = 0) -> float:
        """Return u of one rollout.

        Args:
            verdicts: v of every simulated step except the last, in order.
            outcome: F.
            own: v of the node that the rollout started from.

        Example:
            >>> RolloutReward()([1, -1], 1)
            0.75
        """
        if not self.verdicts:
            return float(outcome)
        n = len(verdicts)
        beta = self._outcome_weight(n)
        value = beta * outcome
        bound = beta
        for m, verdict in enumerate(verdicts):
            weight = self._position_weight(m, n) / n
            value += weight * verdict
            bound += weight
        if self.include_own_verdict:
            value += own
            bound += 1.0
        return value / bound if self.normalise else value

    def _outcome_weight(self, n: int) -> float:
        if n == 0:
            return 1.0
        return 1.0 / n if self.outcome_weight == "1/N" else self.outcome_weight

    def _position_weight(self, m: int, n: int) -> float:
        if self.position_weight == "linear":
            return (n - m) / n
        return 1.0 if self.position_weight == "uniform" else 0.9**m
