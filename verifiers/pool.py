"""Resident workers behind a hard deadline.

sympy and z3 can run for minutes on short input and hold the interpreter lock while they do, so no
thread can bound them. Each request goes to a process of its own that is killed on its deadline and
replaced. Requests and replies are length-prefixed JSON over pipes; nothing is pickled, the caller
is not forked, gets no signal and needs no event loop.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .frames import Channel

__all__ = ["PoolStats", "Reply", "WorkerPool", "package_root"]

START_S = 60.0
_WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back from a worker.

    Attributes:
        status: "ok", "error", "timeout", "memory" or "killed".
        result: The worker's answer where status is "ok".
        detail: An error's text, capped.
        wall_time_s: Seconds between request and reply.
    """

    status: str
    result: dict[str, Any] = field(default_factory=dict)
    detail: str = ""
    wall_time_s: float = 0.0


@dataclass(slots=True)
class PoolStats:
    """Counters of a pool's life: calls, and workers started, killed and retired."""

    calls: int = 0
    started: int = 0
    killed: int = 0
    recycled: int = 0


def package_root() -> str:
    """Folder that holds the package treerl; workers append it to their import path."""
    import treerl

    return str(Path(next(iter(treerl.__path__))).parent)


class _Template:
    """The process that workers are forked from; it has the libraries loaded."""

    def __init__(self, memory_mb: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(_WORKER)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={
                    k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH")
                },
                cwd=os.path.abspath(os.sep),
                start_new_session=True,  # Ctrl-C in the terminal is the caller's business
            )
        self.line = ours
        self.channel = Channel(ours.fileno(), ours.fileno())
        self.lock = threading.Lock()
        start = {
            "paths": [entry for entry in sys.path if entry and os.path.isabs(entry)],
            "root": package_root(),
            "memory_mb": memory_mb,
        }
        deadline = time.monotonic() + START_S
        if not self.channel.send(start, deadline) or self.channel.receive(deadline) is None:
            self.end()
            raise OSError("the verifier's worker process did not start")

    def order(self, order: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """Send an order with descriptors and wait for its answer."""
        with self.lock:
            os.set_blocking(self.line.fileno(), True)
            socket.send_fds(self.line, [json.dumps(order).encode()], list(fds))
            answer = self.channel.receive(time.monotonic() + START_S)
        if answer is None:
            raise OSError("the verifier's worker process is gone")
        return answer

    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """End the process and, through it, all its workers."""
        self.line.close()
        with contextlib.suppress(OSError):
            self.process.kill()
        with contextlib.suppress(Exception):
            self.process.wait(timeout=10)

    def forget(self) -> None:
        """Drop a template inherited by fork: it belongs to the parent."""
        self.line.close()
        self.process.returncode = 0  # keeps Popen from waiting for a child that is not ours


class _Worker:
    """One forked worker with its two pipes."""

    def __init__(self, template: _Template) -> None:
        self.template = template
        child_reads, self.write_fd = os.pipe()
        self.read_fd, child_writes = os.pipe()
        try:
            self.pid = int(template.order({"spawn": 1}, (child_reads, child_writes))["pid"])
        except (OSError, KeyError, ValueError):
            self.drop()
            raise OSError("a verifier worker could not be started") from None
        finally:
            os.close(child_reads)
            os.close(child_writes)
        self.channel = Channel(self.read_fd, self.write_fd)
        self.calls = 0
        self.rss_mb = 0

    def drop(self) -> None:
        """Close our ends; an idle worker ends by itself then."""
        for fd in (self.write_fd, self.read_fd):
            with contextlib.suppress(OSError):
                os.close(fd)

    def kill(self) -> None:
        """End the worker at once, whatever it is doing."""
        with contextlib.suppress(OSError):
            self.template.order({"kill": self.pid})
        self.drop()


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


class WorkerPool:
    """Workers for sympy and z3, started when first needed.

    Args:
        size: Most workers at once; callers beyond it wait for a free one.
        wall_s: Default seconds a request may take before its worker is killed.
        max_calls: Requests after which a worker is replaced (sympy's caches grow).
        max_rss_mb: Resident size after which a worker is replaced.
        memory_mb: Memory a worker may take beyond the libraries.

    A pool may be shared by verifiers and threads, survives a fork (the child starts its own
    workers) and is pickled as its options only.
    """

    def __init__(
        self,
        size: int = 8,
        *,
        wall_s: float = 3.0,
        max_calls: int = 500,
        max_rss_mb: int = 640,
        memory_mb: int = 2048,
    ) -> None:
        if size < 1:
            raise ValueError("a pool needs at least one worker")
        self.size = size
        self.wall_s = wall_s
        self.max_calls = max_calls
        self.max_rss_mb = max_rss_mb
        self.memory_mb = memory_mb
        self.stats = PoolStats()
        self._reset()
        _POOLS.add(self)

    def _reset(self) -> None:
        self._template: _Template | None = None
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._slots = threading.BoundedSemaphore(self.size)
        self._lock = threading.Lock()
        self._starting = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        names = ("size", "wall_s", "max_calls", "max_rss_mb", "memory_mb")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:  # at interpreter exit even contextlib may be gone
            self.close()
        except Exception:
            return

    def start(self) -> None:
        """Load the libraries now instead of on the first call (about a second)."""
        with self._starting:
            if self._template is None or not self._template.alive():
                self._template = _Template(self.memory_mb)

    def call(self, task: str, payload: dict[str, Any], *, wall_s: float | None = None) -> Reply:
        """Ask a worker and wait for its answer.

        Args:
            task: What to do, a name that the worker knows.
            payload: JSON data for it.
            wall_s: Seconds it may take; the pool's own limit if None.

        Returns:
            A reply; it never raises for what happens inside a worker.
        """
        limit = self.wall_s if wall_s is None else wall_s
        with self._slots:
            try:
                worker = self._take()
            except OSError as problem:
                return Reply("error", detail=str(problem)[:200])
            began = time.monotonic()
            deadline = began + limit
            answer: dict[str, Any] | None = None
            try:
                message = {"task": task, "payload": payload, "cpu_s": int(limit) + 5}
                if worker.channel.send(message, deadline):
                    answer = worker.channel.receive(deadline)
            finally:
                spent = time.monotonic() - began
                self._give(worker, answer)
        if answer is None:
            # silence until the deadline, or a pipe that closed before it
            return Reply("timeout" if spent >= limit - 0.01 else "killed", wall_time_s=spent)
        result = answer.get("result")
        return Reply(
            str(answer.get("status", "error")),
            result if isinstance(result, dict) else {},
            str(answer.get("detail", ""))[:500],
            spent,
        )

    def _take(self) -> _Worker:
        """Return an idle worker or fork a new one."""
        with self._lock:
            self.stats.calls += 1
            if self._idle:
                worker = self._idle.pop()
                self._busy.add(worker)
                return worker
            self.stats.started += 1
        self.start()
        assert self._template is not None
        worker = _Worker(self._template)
        with self._lock:
            self._busy.add(worker)
        return worker

    def _give(self, worker: _Worker, answer: dict[str, Any] | None) -> None:
        """Take a worker back; it lives on only where it answered properly and is not worn out."""
        worker.calls += 1
        healthy = answer is not None and answer.get("status") in ("ok", "error")
        if answer is not None:
            worker.rss_mb = int(answer.get("rss_mb", 0))
        worn = worker.calls >= self.max_calls or worker.rss_mb > self.max_rss_mb
        with self._lock:
            self._busy.discard(worker)
            if healthy and not worn:
                self._idle.append(worker)
                return
            if healthy:
                self.stats.recycled += 1
            else:
                self.stats.killed += 1
        worker.kill()

    @property
    def workers(self) -> int:
        """Number of live workers."""
        with self._lock:
            return len(self._idle) + len(self._busy)

    def close(self) -> None:
        """End all processes; a later call starts new ones."""
        if not hasattr(self, "_lock"):
            return
        with self._lock:
            workers, self._idle = self._idle, []
            template, self._template = self._template, None
        for worker in workers:
            worker.drop()
        if template is not None:
            template.end()

    def _after_fork(self) -> None:
        for worker in [*self._idle, *self._busy]:
            worker.drop()
        if self._template is not None:
            self._template.forget()
        self._reset()
        self.stats = PoolStats()


def _after_fork() -> None:
    for pool in list(_POOLS):
        pool._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
