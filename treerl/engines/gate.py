"""A bounded number of requests at once, served by priority."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

__all__ = ["Gate", "TurnedAway"]


class TurnedAway(Exception):
    """An abort reached a request that still waited for its turn."""


class Gate:
    """Lets ``width`` requests in at once; the others wait in order of (priority, arrival).

    Args:
        width: None lets everybody in.

    Attributes:
        inside: Requests that are in now.
    """

    def __init__(self, width: int | None) -> None:
        if width is not None and width < 1:
            raise ValueError(f"at least one request must be let in at once, not {width}")
        self._width = width
        self._order = count()
        self._waiting: list[tuple[int, int, str, asyncio.Future[None]]] = []
        self.inside = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(not turn.done() for *_, turn in self._waiting)

    @asynccontextmanager
    async def enter(self, request_id: str, priority: int = 0) -> AsyncIterator[None]:
        """Wait for a turn and hold it.

        Raises:
            TurnedAway: :meth:`turn_away` named this request while it waited.
            Exception: What :meth:`fail` was given while it waited.
        """
        if self._width is None or self.inside < self._width:
            self.inside += 1
        else:
            await self._wait(request_id, priority)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, request_id: str, priority: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), request_id, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # the turn and the cancellation crossed
            raise

    def _pass_on(self) -> None:
        """Give the place to the next one waiting, so that no newcomer slips in between."""
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self.inside -= 1

    def turn_away(self, request_id: str) -> bool:
        """Send a waiting request away; return whether it was waiting."""
        for _, _, waiting_id, turn in self._waiting:
            if waiting_id == request_id and not turn.done():
                turn.set_exception(TurnedAway(request_id))
                return True
        return False

    def fail(self, error: Exception) -> None:
        """Fail everyone that waits."""
        for *_, turn in self._waiting:
            if not turn.done():
                turn.set_exception(error)
        self._waiting.clear()
