"""Template of the worker processes; run as a file, never imported by the caller.

The template loads sympy and z3 once and then forks a worker whenever the caller asks for one, so
that replacing a killed worker costs milliseconds. Caller and template talk over one socket; each
worker gets a pair of pipes of its own through that socket. When the caller ends, the template ends,
and the kernel ends its workers with it, whatever they are computing.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import sys
from typing import Any, NoReturn

_HEADER = struct.Struct(">I")


def _read(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(fd, size - len(data))
        if not chunk:
            os._exit(0)  # the caller is gone
        data += chunk
    return data


def _send(fd: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    data = _HEADER.pack(len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def _limit(memory_mb: int) -> None:
    """Bound a worker's memory beyond what the template has mapped; no files, no core dumps."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as statm:
            base = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        size = base + (memory_mb << 20)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # a platform without rlimits still has the deadline


def _cpu_guard(seconds: int) -> None:
    """A second net: CPU time counted from now ends a worker that nobody kills."""
    try:
        import resource
    except ImportError:
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime) + seconds
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _rss_mb() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except (OSError, ValueError):
        return 0


def _die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _end(pid: int) -> None:
    """Kill and reap one of our children; until it is reaped its number cannot be another's."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except OSError:
        pass


def serve(reader: int, writer: int, tasks: dict[str, Any]) -> NoReturn:
    """Answer requests until the pipe closes."""
    while True:
        (size,) = _HEADER.unpack(_read(reader, 4))
        request = json.loads(_read(reader, size))
        _cpu_guard(int(request.get("cpu_s", 10)))
        reply: dict[str, Any]
        try:
            reply = {"status": "ok", "result": tasks[request["task"]](request["payload"])}
        except MemoryError:
            reply = {"status": "memory", "detail": "memory limit"}
        except RecursionError:
            reply = {"status": "error", "detail": "recursion"}
        except Exception as problem:
            # whatever a library raises is this request's outcome, not the worker's end
            reply = {"status": "error", "detail": f"{type(problem).__name__}: {problem}"[:500]}
        reply["rss_mb"] = _rss_mb()
        _send(writer, reply)


def main() -> None:
    """Load the libraries, then fork workers on request."""
    line = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)  # whatever libraries print goes nowhere
    (size,) = _HEADER.unpack(_read(line.fileno(), 4))
    start = json.loads(_read(line.fileno(), size))
    for path in [*start["paths"], start["root"]]:
        if path not in sys.path:
            sys.path.append(path)
    from treerl.verifiers.tasks import TASKS

    gc.collect()
    gc.freeze()
    _send(line.fileno(), {"status": "ok"})
    while True:
        data, fds, _, _ = socket.recv_fds(line, 64, 2)
        if not data:
            os._exit(0)
        order = json.loads(data)
        if "kill" in order:
            _end(int(order["kill"]))
            _send(line.fileno(), {"status": "ok"})
            continue
        reader, writer = fds
        pid = os.fork()
        if pid == 0:
            _die_with_parent()
            line.close()
            _limit(int(start["memory_mb"]))
            serve(reader, writer, TASKS)
        os.close(reader)
        os.close(writer)
        _send(line.fileno(), {"status": "ok", "pid": pid})


if __name__ == "__main__":
    main()
