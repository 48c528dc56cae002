"""An event loop in a thread of its own.

Some things belong to one event loop for life: connections, vLLM's async engine. Drivers come with
loops of their own, one after another. So an engine that owns such a thing keeps it in a loop of its
own, and drivers await its futures from theirs.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a loop of its own until :meth:`stop`.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()
        # A daemon thread that still runs while the interpreter is torn down may crash it.
        atexit.register(_stop_at_exit, weakref.ref(self))

    def call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and await it from any other loop."""
        return await asyncio.wrap_future(self.call(work))

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self.loop.is_closed()

    def stop(self) -> None:
        """Cancel what still runs and end the thread; a second call does nothing."""
        if self.stopped:
            return

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.call(cancel_all()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def _stop_at_exit(reference: weakref.ref[LoopThread]) -> None:
    home = reference()
    if home is not None:
        home.stop()
