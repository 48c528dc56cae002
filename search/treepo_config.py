"""How a segment tree grows: one record of policies and bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from treerl.search.treepo_allocation import Forks, Quota, Rounds
from treerl.search.treepo_fallback import Fallback
from treerl.search.treepo_path import PathView
from treerl.search.treepo_stopping import Stopping
from treerl.tree import Tree

__all__ = ["Gate", "TreePOConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A judge who is asked about every segment; refused paths end as "aborted".

    A path waits for its own judgement only; all others go on meanwhile.

    Attributes:
        role: "verifier" refuses what it refutes, "scorer" what scores below the bound. Segments are
            the steps that they see.
        below: The scorer's bound.
    """

    role: Literal["verifier", "scorer"] = "scorer"
    below: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePOConfig:
    """How a segment tree grows. :func:`treerl.search.treepo_presets.preset` has the known ones.

    Attributes:
        width: Finished paths wanted.
        segment_tokens: Tokens of a segment; None is a whole path.
        max_tokens: Generated tokens a path.
        max_depth: Segments a path, counted as started segments of ``segment_tokens``; None is no
            bound of its own.
        temperature, top_p: Of the policy. Exact log-probs for training need top_p = 1.
        stop, stop_token_ids: End a path, besides the model's end tokens.
        allocation: How often paths fork.
        stopping: Why paths end.
        fallback: Where a quiet tree grows on; None leaves it as it is.
        abort: Live paths for which it is true end as "aborted" and are not judged. A function of
            the path, so that no clock decides about the tree.
        gate: Judges every segment.
        enough: Asked before each wave of the fallback, all rewards in; True ends the tree.
        rewards: Ask the reward about every finished path, while the others grow.
    """

    width: int = 16
    segment_tokens: int | None = 512
    max_tokens: int = 7168
    max_depth: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    allocation: Forks | Rounds = field(default_factory=Quota)
    stopping: Stopping = field(default_factory=Stopping)
    fallback: Fallback | None = None
    abort: Callable[[PathView], bool] | None = None
    gate: Gate | None = None
    enough: Callable[[Tree], bool] | None = None
    rewards: bool = True

    def __post_init__(self) -> None:
        for name in ("width", "segment_tokens", "max_tokens", "max_depth"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"TreePOConfig.{name} must be at least 1, got {value}")
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                "TreePOConfig needs temperature >= 0 and 0 < top_p <= 1, got "
                f"temperature={self.temperature} and top_p={self.top_p}"
            )
        if self.max_depth is not None and self.segment_tokens is None:
            raise ValueError("TreePOConfig.max_depth counts segments: set segment_tokens too")
        if "" in self.stop:
            raise ValueError("TreePOConfig.stop holds an empty string")
