"""Engine processes do not outlive us: vLLM's would, after a kill -9, and keep the GPU's memory.

vLLM's engine and worker processes do not notice that the process that started them is gone: they go
on polling, and the next run of the same command finds the memory taken. So a small process of our
own waits for our end, whatever brings it about, and kills what is left of them.

This file is also that process, run with ``python -I``: at the top it imports only what that needs.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["OrphanGuard"]

_MARKS = ("VLLM::", "multiprocessing.spawn")
"""How vLLM's processes call themselves, and how they look before they do."""


class OrphanGuard:
    """Kills the engine processes that were started since it was made, once we are gone.

    Use :meth:`look` while and after they start, and :meth:`close` once they are shut down in good
    order: from then on nothing is guarded. Without psutil, which vLLM brings, it does nothing.
    """

    def __init__(self) -> None:
        self._known = {process.pid for process in _engine_processes()}
        # Its own session: a Ctrl-C in our terminal is for us.
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def look(self) -> None:
        """Hand over the engine processes that are new."""
        for process in _engine_processes():
            if process.pid not in self._known:
                self._known.add(process.pid)
                self._tell(f"{process.pid} {process.create_time()}\n")

    def close(self) -> None:
        """Let the watcher go, with nothing killed."""
        self._watcher.kill()  # before it sees the end of what it reads
        self._watcher.communicate()

    def _tell(self, line: str) -> None:
        assert self._watcher.stdin is not None
        with contextlib.suppress(OSError):  # somebody killed the watcher: nothing is guarded then
            self._watcher.stdin.write(line.encode())
            self._watcher.stdin.flush()


def _engine_processes() -> Iterator[Any]:
    try:
        import psutil
    except ImportError:
        return
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(mark in word for word in process.cmdline() for mark in _MARKS):
                yield process


def _watch() -> None:
    """Read processes until our starter is gone, then kill those that still are what they were."""
    import psutil

    lines = sys.stdin.buffer.read().decode().split("\n")  # until the pipe's other end is closed
    for pid, created in (line.split() for line in lines if line):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(int(pid))
            if process.create_time() == float(created):
                process.kill()


if __name__ == "__main__":
    _watch()
