"""What a sampler asks of a language model, and what it gets back.

Engines speak token ids only: text is never re-tokenised, so a node's request ids are always the
prompt's ids plus the ids of its path.

Records that are made for every node (requests, completions, usage) are named tuples: immutable as
a frozen dataclass, but four times cheaper to make (benchmarks/tree_overhead.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from treerl.errors import EngineError

__all__ = [
    "Capabilities",
    "Completion",
    "Engine",
    "FinishReason",
    "Request",
    "StepEngine",
    "Tokenizer",
    "Usage",
]

FinishReason = Literal["eos", "stop", "length", "abort"]
"""Why generation ended: an end token, a stop string or stop token, ``max_tokens``, an abort."""


class Request(NamedTuple):
    """One sample from the policy.

    Attributes:
        request_id: Unique within an engine's life.
        tree_id: Requests of one tree share it; engines with several servers route by it.
        prompt_ids: The whole context: the problem's ids, then the path's.
        max_tokens: Upper bound of generated tokens, at least 1.
        temperature: 0 is greedy.
        top_p: Nucleus mass; 1 switches it off, which exact behaviour log-probs for training need.
        stop: Strings that end generation. The tokens that complete a stop string are kept.
        stop_token_ids: Ids that end generation and are kept, besides the model's end tokens.
        seed: The sample is a function of (prompt, sampling, seed) alone; None is unseeded.
        top_logprobs: How many alternatives a position to report.
        logprob_token_ids: Report the log-probs of exactly these ids at each position.
        priority: Lower is served first, where the engine can.
    """

    request_id: str
    tree_id: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    top_logprobs: int = 0
    logprob_token_ids: tuple[int, ...] = ()
    priority: int = 0


class Usage(NamedTuple):
    """What a completion cost, in tokens.

    Attributes:
        prompt: Submitted prompt tokens.
        cached: Of those, taken from a cache (a prefix cache, or a prefix shared in a batch).
        generated: New tokens, the end token included.
    """

    prompt: int = 0
    cached: int = 0
    generated: int = 0


class Completion(NamedTuple):
    """What the policy generated.

    Attributes:
        token_ids: Generated ids, the end or stop token included.
        logprobs: Behaviour log-prob of each generated id, in nats: of the distribution that was
            sampled from, after temperature and top-p; of temperature 1 where the request's is 0.
            Empty only where the engine has none.
        finish_reason: Why generation ended.
        stop_reason: The stop string or stop token id that ended it, None otherwise.
        top_logprobs: Per position {id: log-prob}; empty unless asked for.
        usage: Token counts.
        policy_version: Version of the weights that generated it.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    top_logprobs: tuple[dict[int, float], ...] = ()
    usage: Usage = Usage()
    policy_version: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; jobs check it at the start instead of failing in the night.

    Attributes:
        logprobs: Completions carry exact behaviour log-probs.
        token_ids: Completions carry the generated ids themselves.
        score: :meth:`Engine.score` works.
        seeds: A request's seed alone decides its sample.
        logprob_token_ids: Chosen ids can be scored while generating.
        max_context: Prompt plus generated tokens, None if unbounded.
        detail: Engine name and versions for the manifest.
    """

    logprobs: bool = True
    token_ids: bool = True
    score: bool = True
    seeds: bool = True
    logprob_token_ids: bool = False
    max_context: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Tokenizer(Protocol):
    """The little of a tokenizer that treerl needs; HF tokenizers are adapted to it."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text: no special tokens added, none recognised inside."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens left out."""

    def encode_prompt(
        self, messages: Sequence[dict[str, str]], *, options: dict[str, Any] | None = None
    ) -> list[int]:
        """Return the ids of a conversation, ready for the assistant's turn.

        The chat template is applied where the model has one. Control tokens written inside the
        messages stay text.

        Args:
            messages: Objects with "role" and "content".
            options: Passed to the template, e.g. ``{"enable_thinking": False}``.
        """


class Engine(Protocol):
    """A language model that answers requests concurrently."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end generation, whatever a request says."""

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""

    async def generate(self, request: Request) -> Completion:
        """Sample one completion.

        Raises:
            EngineError: The request failed; ``retryable`` says whether to try again.
            EngineDied: The engine is gone.
        """

    async def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Return log-probs (nats, temperature 1) of ``token_ids[start:]`` given what precedes."""

    async def abort(self, request_id: str) -> None:
        """End a request; its ``generate`` returns what it has, with finish_reason "abort"."""

    async def close(self) -> None:
        """Free the engine; waiting requests fail with EngineError."""


class StepEngine(Protocol):
    """A synchronous engine that is driven step by step, often one that somebody else owns."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end generation, whatever a request says."""

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests."""

    def step(self) -> list[tuple[str, Completion | EngineError]]:
        """Work until at least one queued request is finished; return the finished ones."""
