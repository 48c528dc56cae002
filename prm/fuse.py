"""Fusion: from a tool's verdict and Monte-Carlo counts to one label.

Why the rules are asymmetric: on human-labelled data a refutation by arithmetic is right 93-100 % of
the time, while "the arithmetic in this step checks out" says almost nothing about the step
(groundedprm.md §0.3). So an exact refutation decides alone, and support never makes a label.
Fusion works on single steps; masking behind the first error is the labeller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from treerl.errors import ConfigError
from treerl.verdict import Strength, Verdict

__all__ = [
    "FUSIONS",
    "Evidence",
    "Fused",
    "Fusion",
    "LabelSource",
    "mask_after_first_error",
    "published_label",
    "truncate_published",
]

LabelSource = Literal[
    "tool",  # an exact refutation alone
    "mc",  # Monte-Carlo counts alone
    "tool+mc",  # both, agreeing
    "conflict",  # both, disagreeing: no label, goes to the conflict file
    "tool_support_only",  # support without enough rollouts: no label
    "too_few_rollouts",  # no refutation and not enough rollouts: no label
    "value",  # the sign of the search's value, GroundedPRM as published
    "dropped",  # the published rule throws the sample away: no label
    "no_consensus",  # rollouts and judge name different first errors: no label
    "value_target",  # the distance to a right answer, ReST-MCTS*
    "malformed",  # the step is not in the format that the policy was asked for: no label
]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a step.

    Attributes:
        verdict, strength: The tool's; UNVERIFIABLE where nothing was judged.
        correct, total: c of n scored rollouts through the step reached the right answer.
        terminal: The step ends its path and the path was scored: its outcome is certain, so one
            rollout is as good as any number.
        value_sum: W of the search, for the published rule.
        correct_before, total_before: The counts of the prefix without this step, for relative
            progress.
        value_target: v of ReST-MCTS*; None where it has none.
        reaches_right: Whether some path through the step ends right, as far as was tried.
    """

    verdict: Verdict = Verdict.UNVERIFIABLE
    strength: Strength | None = None
    correct: int = 0
    total: int = 0
    terminal: bool = False
    value_sum: float = 0.0
    correct_before: int = 0
    total_before: int = 0
    value_target: float | None = None
    reaches_right: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.total:
            raise ValueError(f"Evidence needs 0 <= correct <= total, got {self}")


@dataclass(frozen=True, slots=True)
class Fused:
    """A label: 1 right, 0 wrong, None unknown; the soft label in [0, 1]; and where it is from."""

    label: int | None
    soft: float | None
    source: LabelSource


Rule = Callable[[Evidence, "Fusion"], Fused]


@dataclass(frozen=True, slots=True)
class Fusion:
    """A fusion rule with its parameters; all of it stands in the manifest.

    Attributes:
        rule: A key of :data:`FUSIONS`. "consensus" is Math-Shepherd's on every step, and of the
            labelled tree only the solutions where rollouts and judge name the same first error.
        n_min: Rollouts below which Monte Carlo says nothing.
        progress: Of the rule "genprm_rpe": the least share of the value that a right step keeps.
    """

    rule: str = "groundedprm"
    n_min: int = 4
    progress: float = 0.8

    def __post_init__(self) -> None:
        if self.rule not in FUSIONS:
            raise ConfigError(f"no fusion rule '{self.rule}'; there are {', '.join(FUSIONS)}")
        if self.n_min < 1:
            raise ConfigError(f"n_min must be at least 1, got {self.n_min}")

    def __call__(self, evidence: Evidence) -> Fused:
        """Fuse the evidence about one step."""
        return FUSIONS[self.rule](evidence, self)

    def to_json(self) -> dict[str, Any]:
        """Describe the rule for a manifest."""
        return asdict(self)


def _groundedprm(evidence: Evidence, fusion: Fusion) -> Fused:
    """treerl's rules (groundedprm.md §1.4), in this order.

    1. An exact refutation is a 0, whatever the rollouts say: a right answer reached after a wrong
       equation is Monte Carlo's known failure.
    2. Without n_min rollouts there is no label.
    3. A partial refutation is a 0 where no rollout is right, else a conflict.
    4. No right rollout is a 0, unless the tool supports the step exactly: a conflict.
    5. Otherwise the step is right.
    """
    c, n = evidence.correct, evidence.total
    soft = (c + 1) / (n + 2)  # posterior mean under a uniform prior
    refuted = evidence.verdict is Verdict.REFUTED
    supported = evidence.verdict is Verdict.SUPPORTED
    exact = evidence.strength == "exact"
    if refuted and exact:
        return Fused(0, 0.0, "tool")
    if n < fusion.n_min and not (evidence.terminal and n > 0):
        alone = supported and exact
        return Fused(None, soft, "tool_support_only" if alone else "too_few_rollouts")
    if refuted:
        return Fused(0, min(soft, 0.5), "tool+mc") if c == 0 else Fused(None, soft, "conflict")
    if c == 0:
        return Fused(None, soft, "conflict") if supported and exact else Fused(0, soft, "mc")
    return Fused(1, soft, "tool+mc" if supported else "mc")


def _mathshepherd(evidence: Evidence, fusion: Fusion) -> Fused:
    """Math-Shepherd: hard label 1[c > 0], soft label c / n; tools are not asked (§1.6)."""
    c, n = evidence.correct, evidence.total
    if n < fusion.n_min and not (evidence.terminal and n > 0):
        return Fused(None, c / n if n else None, "too_few_rollouts")
    return Fused(int(c > 0), c / n, "mc")


def _groundedprm_published(evidence: Evidence, fusion: Fusion) -> Fused:
    """GroundedPRM's released rule: the sign of W, and drop what the judge does not confirm."""
    label = published_label(evidence.value_sum, evidence.verdict)
    return Fused(
        label, None if label is None else float(label), "value" if label is not None else "dropped"
    )


def _genprm_rpe(evidence: Evidence, fusion: Fusion) -> Fused:
    """GenPRM's relative progress: right iff MC_t / MC_{t-1} >= ε; 0/0 is wrong (§1.6)."""
    enough = evidence.total >= fusion.n_min or (evidence.terminal and evidence.total > 0)
    if not enough or evidence.total_before < fusion.n_min:
        return Fused(None, None, "too_few_rollouts")
    now = Fraction(evidence.correct, evidence.total)
    before = Fraction(evidence.correct_before, evidence.total_before)
    right = before > 0 and now / before >= Fraction(str(fusion.progress))
    return Fused(int(right), float(now), "mc")


def _restmcts(evidence: Evidence, fusion: Fusion) -> Fused:
    """ReST-MCTS*: the soft label is the value target, the hard one whether it reached an answer.

    These are the two sets of samples in the released code: v for the value model, and the hard
    estimate, 1 where any leaf below is right, for the process reward model (§1.6). Neither asks
    for a number of rollouts, so n_min does not count here; a step on no scored path has no label,
    nor has any step of a tree without a right answer.
    """
    if evidence.value_target is None:
        return Fused(None, None, "too_few_rollouts")
    return Fused(int(evidence.reaches_right), evidence.value_target, "value_target")


FUSIONS: dict[str, Rule] = {
    "groundedprm": _groundedprm,
    "groundedprm_published": _groundedprm_published,
    "mathshepherd": _mathshepherd,
    "genprm_rpe": _genprm_rpe,
    "consensus": _mathshepherd,
    "restmcts": _restmcts,
}


def published_label(value: float, verdict: Verdict) -> int | None:
    """Return the label of GroundedPRM's construct.py, None where it drops the sample.

    A score of 0 drops it; a positive one needs the verdict True; a negative one is kept where the
    verdict is False *or* True. In the last case label and rationale contradict each other, which
    is why this rule is for reproduction only.
    """
    if value == 0:
        return None
    if value > 0:
        return 1 if verdict is Verdict.SUPPORTED else None
    return 0 if verdict is not Verdict.UNVERIFIABLE else None


def truncate_published(scores: Sequence[float]) -> list[float]:
    """Cut a negative path as published: before the first score >= 0 behind the first <= 0."""
    first = next((i for i, score in enumerate(scores) if score <= 0), None)
    if first is None:
        return list(scores)
    again = next((i for i in range(first + 1, len(scores)) if scores[i] >= 0), len(scores))
    return list(scores[:again])


def mask_after_first_error(labels: Sequence[int | None]) -> list[int | None]:
    """Return the labels of one path with everything behind the first 0 masked.

    Example:
        >>> mask_after_first_error([1, 1, 0, 1, 0])
        [1, 1, 0, None, None]
    """
    first = next((i for i, label in enumerate(labels) if label == 0), len(labels))
    return [label if i <= first else None for i, label in enumerate(labels)]
