"""PythonExecutor: untrusted Python, confined, one fresh process a snippet.

What a snippet says is data: its exit code, its output and the value it leaves behind never are a
verdict by themselves; whoever asked compares them in this process.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from treerl.errors import ConfigError
from treerl.verdict import ToolCall

from .frames import Channel
from .pool import package_root

__all__ = ["ExecutionResult", "PythonExecutor"]

Isolation = Literal["auto", "rlimit"]
Required = Literal["none", "full"]
START_S = 60.0
_ZYGOTE = Path(__file__).with_name("zygote.py")


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """What came of a snippet.

    Attributes:
        status: "ok", "error" (it raised, exited or died), "timeout", "limit" (memory, output).
        value: JSON data of the variable ``result`` (or ``answer``), None where there is none; what
            JSON lacks is tagged, see :func:`treerl.verifiers.plain.plain`.
        checked: Whether the code of ``check`` ran to its end.
        stdout, stderr: Captured text, capped.
        error: Exception text, "" if none.
        exit_signal: Signal that ended the process, 0 if none.
        cpu_time_s, wall_time_s: Seconds.
        isolation: "landlock+seccomp", "seccomp" or "rlimit": what confined it.
    """

    status: str
    value: Any = None
    stdout: str = ""
    stderr: str = ""
    error: str = ""
    exit_signal: int = 0
    cpu_time_s: float = 0.0
    wall_time_s: float = 0.0
    isolation: str = ""
    checked: bool = False

    def to_call(self, code: str) -> ToolCall:
        """Record this run as a tool call."""
        output = self.stdout if self.value is None else f"{self.value!r}"
        if self.error:
            output = self.error
        return ToolCall(
            "python",
            platform.python_version(),
            code[:8000],
            output[:2000],
            {"limit": "memory"}.get(self.status, self.status),
            self.isolation,
            self.wall_time_s,
        )


class _Zygote:
    """One zygote process and its channel."""

    def __init__(self, preload: Sequence[str], warm: str, isolation: str) -> None:
        self.process = subprocess.Popen(
            # -I without its -E: the environment is ours, and its hash seed keeps the order of sets
            [sys.executable, "-s", "-P", str(_ZYGOTE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                "PATH": "/usr/bin:/bin",
                "OPENBLAS_NUM_THREADS": "1",
                "LANG": "C.UTF-8",
                "PYTHONHASHSEED": "0",
            },
            cwd=os.path.abspath(os.sep),
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.channel = Channel(self.process.stdout.fileno(), self.process.stdin.fileno())
        start = {
            "paths": [p for p in sys.path if p and os.path.isabs(p) and "site-packages" in p],
            "root": package_root(),
            "preload": list(preload),
            "warm": warm,
            "isolation": isolation,
            "base_bytes": 1 << 30,
        }
        deadline = time.monotonic() + START_S
        hello = self.channel.receive(deadline) if self.channel.send(start, deadline) else None
        if hello is None:
            self.kill()
            raise OSError("the Python sandbox did not start")
        self.applied: dict[str, Any] = hello["applied"]

    @property
    def level(self) -> str:
        if self.applied["landlock"] and self.applied["seccomp"]:
            return "landlock+seccomp"
        return "seccomp" if self.applied["seccomp"] else "rlimit"

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(Exception):
            self.process.wait(timeout=10)

    def forget(self) -> None:
        """Drop a zygote inherited by fork."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.process.returncode = 0


_EXECUTORS: weakref.WeakSet[PythonExecutor] = weakref.WeakSet()


class PythonExecutor:
    """Runs untrusted snippets; thread-safe, lazily started, picklable as its options.

    Args:
        size: Most snippets at once; the number of cores if None.
        preload: Modules every snippet finds already imported ("sympy", "numpy").
        warm: Code run once before the first snippet, to fill caches of preloaded modules.
        isolation: "auto" applies all the kernel has; "rlimit" only limits (for measurements).
        require_isolation: "full" refuses to run where landlock or seccomp are missing.

    Raises:
        ConfigError: On first use, where ``require_isolation="full"`` cannot be met.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        preload: Sequence[str] = (),
        warm: str = "",
        isolation: Isolation = "auto",
        require_isolation: Required = "none",
    ) -> None:
        if isolation not in get_args(Isolation):
            raise ValueError(f"isolation must be 'auto' or 'rlimit', not {isolation!r}")
        if require_isolation not in get_args(Required):
            raise ValueError(
                f"require_isolation must be 'none' or 'full', not {require_isolation!r}"
            )
        self.size = size or max(os.cpu_count() or 1, 1)
        self.preload = tuple(preload)
        self.warm = warm
        self.isolation: Isolation = isolation
        self.require_isolation: Required = require_isolation
        self._reset()
        _EXECUTORS.add(self)

    def _reset(self) -> None:
        self._idle: list[_Zygote] = []
        self._busy: set[_Zygote] = set()
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self.size)

    def __getstate__(self) -> dict[str, Any]:
        names = ("size", "preload", "warm", "isolation", "require_isolation")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __enter__(self) -> PythonExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:  # at interpreter exit even contextlib may be gone
            self.close()
        except Exception:
            return

    def run(
        self,
        code: str,
        *,
        stdin: str = "",
        cpu_s: int = 2,
        wall_s: float = 4.0,
        memory_mb: int = 512,
        max_output: int = 65_536,
        result_names: Sequence[str] = ("result", "answer"),
        check: str = "",
    ) -> ExecutionResult:
        """Run a snippet in a fresh, confined process.

        Args:
            code: Python source.
            stdin: Text that the snippet may read.
            cpu_s: CPU seconds.
            wall_s: Wall seconds; the process is killed then, whatever it does.
            memory_mb: Memory beyond what the zygote itself has mapped.
            max_output: Characters of output; one more ends the snippet.
            result_names: Variables whose value is reported, the first that exists.
            check: Code that runs after the snippet in its name space, and cannot be traced by it.

        Returns:
            A result; it never raises for what the snippet does.
        """
        request = {
            "code": code, "stdin": stdin, "cpu_s": max(int(cpu_s), 1), "wall_s": wall_s,
            "memory_mb": memory_mb, "max_output": max_output, "result_names": list(result_names),
            "check": check,
        }  # fmt: skip
        with self._slots:
            zygote = self._take()
            began = time.monotonic()
            reply: dict[str, Any] | None = None
            try:
                deadline = began + wall_s + 2.0  # the zygote kills first; this is the net below it
                if zygote.channel.send(request, deadline):
                    reply = zygote.channel.receive(deadline)
            finally:
                self._give(zygote, healthy=reply is not None)
            spent = time.monotonic() - began
        return _result(reply, spent, zygote.level)

    def applied(self) -> dict[str, Any]:
        """Return what confines the snippets: "landlock" (its ABI), "seccomp", "rlimit"."""
        zygote = self._take()
        self._give(zygote, healthy=True)
        return zygote.applied

    def _take(self) -> _Zygote:
        with self._lock:
            while self._idle:
                zygote = self._idle.pop()
                if zygote.process.poll() is None:
                    self._busy.add(zygote)
                    return zygote
                zygote.kill()
        zygote = _Zygote(self.preload, self.warm, self.isolation)
        if self.require_isolation == "full" and zygote.level != "landlock+seccomp":
            zygote.kill()
            raise ConfigError(
                f"full isolation was required, but this machine offers only {zygote.level}; "
                "run on Linux 5.13 or later, or set require_isolation='none'"
            )
        with self._lock:
            self._busy.add(zygote)
        return zygote

    def _give(self, zygote: _Zygote, *, healthy: bool) -> None:
        with self._lock:
            self._busy.discard(zygote)
            if healthy:
                self._idle.append(zygote)
                return
        zygote.kill()

    def close(self) -> None:
        """End all zygotes; a later run starts new ones."""
        if not hasattr(self, "_lock"):
            return
        with self._lock:
            zygotes, self._idle = self._idle, []
        for zygote in zygotes:
            zygote.kill()

    def _after_fork(self) -> None:
        for zygote in [*self._idle, *self._busy]:
            zygote.forget()
        self._reset()


def _result(reply: dict[str, Any] | None, spent: float, level: str) -> ExecutionResult:
    """Turn a zygote's reply into a result; nothing in the child's record is trusted as a type."""
    import json

    if reply is None:
        return ExecutionResult(
            "timeout", error="the sandbox was killed", wall_time_s=spent, isolation=level
        )
    if "record" not in reply:
        return ExecutionResult("error", error=str(reply.get("error", ""))[:500], isolation=level)
    cpu, wall = float(reply["cpu_s"]), float(reply["wall_s"])
    signal_number = int(reply["signal"])
    if reply["late"]:
        return ExecutionResult(
            "timeout", exit_signal=signal_number, cpu_time_s=cpu, wall_time_s=wall, isolation=level
        )
    record: Any = None
    if reply["record"]:
        try:
            record = json.loads(reply["record"])
        except (ValueError, RecursionError):
            record = None
    if not isinstance(record, dict):
        # no record: killed, or it left without one (os._exit); SIGXCPU and SIGKILL are limits
        limited = signal_number in (9, 24)
        return ExecutionResult(
            "timeout" if limited else "error",
            error=""
            if limited
            else f"ended without a record (exit {reply['exit']}, signal {signal_number})",
            exit_signal=signal_number,
            cpu_time_s=cpu,
            wall_time_s=wall,
            isolation=level,
        )
    status = record.get("status")
    return ExecutionResult(
        status if status in ("ok", "error", "limit") else "error",
        record.get("value"),
        str(record.get("stdout", "")),
        str(record.get("stderr", "")),
        str(record.get("error") or ""),
        signal_number,
        cpu,
        wall,
        level,
        record.get("checked") is True,
    )


def _after_fork() -> None:
    for executor in list(_EXECUTORS):
        executor._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
