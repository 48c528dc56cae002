"""How busy an engine was: requests running and waiting over time."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from treerl.engines.base import Capabilities, Completion, Engine, Request, Tokenizer

__all__ = ["TracePoint", "TracedEngine"]


class TracePoint(NamedTuple):
    """The state of an engine from one moment on.

    Attributes:
        seconds: Since some moment of the clock's own.
        running: Requests in the engine's places.
        waiting: Requests without one.
    """

    seconds: float
    running: int
    waiting: int


class TracedEngine:
    """An engine that also notes how many requests it holds.

    Args:
        engine: Does the work.
        capacity: Requests that it serves at once; None serves all.
        now: A clock, seconds.

    Attributes:
        trace: A point for every request that came or went.
    """

    def __init__(
        self,
        engine: Engine,
        capacity: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._capacity = capacity
        self._now = now
        self._open = 0
        self.trace: list[TracePoint] = []

    @property
    def tokenizer(self) -> Tokenizer:
        """The engine's."""
        return self._engine.tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        """The engine's."""
        return self._engine.eos_ids

    @property
    def capabilities(self) -> Capabilities:
        """The engine's."""
        return self._engine.capabilities

    async def generate(self, request: Request) -> Completion:
        """Let the engine sample; see :meth:`treerl.engines.base.Engine.generate`."""
        self._note(1)
        try:
            return await self._engine.generate(request)
        finally:
            self._note(-1)

    async def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Let the engine score; not traced."""
        return await self._engine.score(token_ids, start)

    async def abort(self, request_id: str) -> None:
        """Pass an abort on."""
        await self._engine.abort(request_id)

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()

    def utilisation(self) -> float:
        """Return the mean share of the capacity (else of the peak) in use while anything ran."""
        busy = total = 0.0
        peak = self._capacity or max((point.running for point in self.trace), default=0)
        for point, after in pairwise(self.trace):
            if point.running:
                busy += point.running * (after.seconds - point.seconds)
                total += peak * (after.seconds - point.seconds)
        return busy / total if total else 0.0

    def save(self, path: str | Path) -> None:
        """Write the trace as CSV: seconds, running, waiting."""
        with Path(path).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(TracePoint._fields)
            writer.writerows(self.trace)

    def _note(self, change: int) -> None:
        self._open += change
        running = self._open if self._capacity is None else min(self._open, self._capacity)
        self.trace.append(TracePoint(self._now(), running, self._open - running))
