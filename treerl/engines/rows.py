"""One request while it runs: what it has, what it wants next, when it ends."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from treerl.engines.base import Completion, FinishReason, Request, Usage
from treerl.engines.sampling import Draw, Wish
from treerl.engines.stops import StopFinder

__all__ = ["Row"]


@dataclass(slots=True, eq=False)
class Row:
    """A running request.

    Attributes:
        request: What was asked for.
        finder: Looks for its stop strings.
        room: Tokens it may generate: max_tokens, or what the context leaves.
        cached: Prompt tokens that needed no computing.
        ids: What it has generated.
    """

    request: Request
    finder: StopFinder
    room: int
    cached: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    alternatives: list[dict[int, float]] = field(default_factory=list)
    key: int = field(init=False)

    def __post_init__(self) -> None:
        seed = self.request.seed
        self.key = Wish.key_of(secrets.randbits(63) if seed is None else seed)

    def wish(self) -> Wish:
        """Return how the next token is to be drawn."""
        r = self.request
        return Wish(
            r.temperature, r.top_p, self.key, len(self.ids), r.top_logprobs, r.logprob_token_ids
        )

    def accept(
        self, drawn: Draw, eos_ids: frozenset[int]
    ) -> tuple[FinishReason, str | int | None] | None:
        """Append a token; return finish and stop reason if the row ends with it.

        An end token comes before a stop, and a stop before the length.
        """
        self.ids.append(drawn.token_id)
        self.logprobs.append(drawn.logprob)
        if drawn.alternatives is not None:
            self.alternatives.append(drawn.alternatives)
        if drawn.token_id in eos_ids:
            return "eos", None
        if drawn.token_id in self.request.stop_token_ids:
            return "stop", drawn.token_id
        if (stop := self.finder.find(self.ids)) is not None:
            return "stop", stop
        return ("length", None) if len(self.ids) >= self.room else None

    def completion(self, reason: FinishReason, stop: str | int | None, version: str) -> Completion:
        """Return what there is."""
        return Completion(
            token_ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            finish_reason=reason,
            stop_reason=stop,
            top_logprobs=tuple(self.alternatives),
            usage=Usage(len(self.request.prompt_ids), self.cached, len(self.ids)),
            policy_version=version,
        )

    @property
    def computed(self) -> tuple[int, ...]:
        """All ids whose keys the model has computed: the newest token's are not yet."""
        return (*self.request.prompt_ids, *self.ids[:-1])
