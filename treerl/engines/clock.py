"""A clock whose seconds cost no time, for tests of order and overlap.

Sleepers wake when everything else in the event loop has nothing left to do, in the order of (due
time, order of asking). So a run on scripted engines is a function of its inputs alone, however
loaded the machine is.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

__all__ = ["VirtualClock"]

_BLIND_ROUNDS = 64
"""Turns to wait on a loop that does not show its queue (uvloop) before it counts as idle."""


class VirtualClock:
    """Virtual time in seconds, starting at 0, shared by everything that sleeps on it.

    Work outside the event loop (threads, processes, sockets) is not waited for: the clock moves on
    while it runs.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._pumping: asyncio.AbstractEventLoop | None = None
        self._rounds = 0

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Sleep for virtual seconds; 0 lets everything run that is ready now.

        Raises:
            ValueError: ``seconds`` is negative or not a number.
        """
        if not seconds >= 0:
            raise ValueError(f"a sleep takes seconds >= 0, not {seconds}")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        self._start(loop)
        await future

    def advance(self, seconds: float) -> None:
        """Move the time on by hand, for synchronous engines that sleep on nothing."""
        if not seconds >= 0:
            raise ValueError(f"time moves forward only, not by {seconds}")
        self._now += seconds

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        # A loop that died with a pump in its queue must not block the next loop's.
        if self._pumping is not loop:
            self._pumping = loop
            self._rounds = 0
            loop.call_soon(self._pump, loop)

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the next sleeper once the loop is idle; one at a time, so that order is exact."""
        if self._pumping is not loop:
            return
        self._rounds += 1
        if self._busy(loop):
            loop.call_soon(self._pump, loop)
            return
        self._rounds = 0
        while self._sleepers:
            due, _, future = heapq.heappop(self._sleepers)
            if future.done() or future.get_loop() is not loop:  # cancelled, or of a dead loop
                continue
            self._now = max(self._now, due)
            future.set_result(None)
            break
        if self._sleepers:
            loop.call_soon(self._pump, loop)
        else:
            self._pumping = None

    def _busy(self, loop: asyncio.AbstractEventLoop) -> bool:
        # asyncio has no public word for "nothing else is ready"; its queue of ready callbacks is
        # empty exactly then, since the callback that is running has left it.
        ready = getattr(loop, "_ready", None)
        return self._rounds < _BLIND_ROUNDS if ready is None else len(ready) > 0
