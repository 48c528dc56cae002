"""The process that untrusted Python is forked from; run as a file, never imported.

It preloads modules, confines itself with landlock, and then forks one child a snippet. A child
gives up everything else, runs its snippet once and reports one JSON record; no state outlives it.
"""

from __future__ import annotations

import gc
import io
import json
import os
import select
import signal
import struct
import sys
import time
from typing import Any

_HEADER = struct.Struct(">I")
# A larger process forks more slowly: only what most snippets import is loaded beforehand.
_STANDARD = """resource math cmath fractions itertools functools collections random re json heapq
bisect operator copy typing string"""
MAX_RECORD = 1 << 22


class OutputLimit(Exception):
    """The snippet wrote more than it may."""


class _Capped(io.TextIOBase):
    """A text stream that keeps a bounded amount and then refuses."""

    def __init__(self, limit: int) -> None:
        self.parts: list[str] = []
        self.left = limit

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("text expected")
        self.parts.append(text[: max(self.left, 0)])
        self.left -= len(text)
        if self.left < 0:
            raise OutputLimit("output limit")
        return len(text)

    def flush(self) -> None:
        pass

    def text(self) -> str:
        return "".join(self.parts)


def _child(request: dict[str, Any], writer: int, confine: Any, plain: Any) -> None:
    """Run one snippet; never returns."""
    out, err = _Capped(int(request["max_output"])), _Capped(65_536)
    record: dict[str, Any] = {"status": "ok", "error": None, "value": None}
    names = request["result_names"]
    sys.stdin = io.StringIO(request["stdin"])
    sys.stdout, sys.stderr = out, err
    confine(request)
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    # taken now: the snippet shares these names and may put something else there
    run, build, check = exec, compile, str(request["check"])
    if check:
        # a trace function may move any frame to another line, this one too: past the assertions
        sys.addaudithook(_no_tracing)
    try:
        run(build(request["code"], "<snippet>", "exec", dont_inherit=True), space)
        for name in names:
            if name in space:
                record["value"] = plain.plain(space[name])
                record["value_name"] = name
                break
        if check:
            run(build(check, "<check>", "exec", dont_inherit=True), space)
            record["checked"] = True
    except OutputLimit:
        record["status"], record["error"] = "limit", "OutputLimit: output limit"
    except MemoryError:
        record["status"], record["error"] = "limit", "MemoryError"
    except plain.TooLarge:
        record["status"], record["error"] = "limit", "the value is too large"
    except BaseException as problem:  # SystemExit and KeyboardInterrupt of the snippet included
        record["status"] = "error"
        try:
            record["error"] = f"{type(problem).__name__}: {problem}"[:2000]
        except BaseException:
            record["error"] = "an exception that cannot be shown"
    try:
        record["stdout"], record["stderr"] = out.text(), err.text()
        data = json.dumps(record).encode("utf-8", "replace")
        if len(data) > MAX_RECORD:
            data = b'{"status": "limit", "error": "the record is too large"}'
    except BaseException:
        data = b'{"status": "error", "error": "the record could not be written"}'
    try:
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _no_tracing(event: str, args: Any) -> None:
    """Audit hook: no tracing, and no new code for a function, this one included.

    Python offers no way to take a hook away. It looks up no name before it decides, so that nothing
    put elsewhere changes it. A program that writes to memory through ctypes still gets past it.
    """
    if event == "sys.settrace" or event == "sys.setprofile":
        raise RuntimeError("a program is not traced while assertions judge it")
    if event == "object.__setattr__" and args[1] == "__code__":
        raise RuntimeError("no function gets other code while assertions judge a program")


def _seed_random() -> None:
    """Import ``random`` with one seed and without its hook that seeds every fork anew.

    A program that draws numbers is then judged the same way twice, and a fork is cheaper.
    """
    register, os.register_at_fork = os.register_at_fork, lambda **_: None
    try:
        import random
    finally:
        os.register_at_fork = register
    random.seed(0)


def _warm_up() -> None:
    """Do once what every child does.

    The first compile of a process builds the types of the syntax tree: over a millisecond that
    every child would pay again.
    """
    exec(compile("import math\nresult = [math.pi, 'x' * 2]", "<warm>", "exec"), {})
    json.loads(json.dumps({"stdin": io.StringIO("").read(), "value": [1, 2.5, None, True]}))


def _read(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(fd, size - len(data))
        if not chunk:
            os._exit(0)
        data += chunk
    return data


def _collect(reader: int, deadline: float) -> tuple[bytes, bool]:
    """Read a child's record until it closes the pipe; (data, whether time ran out)."""
    data = bytearray()
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(int(left * 1000) + 1):
            return bytes(data), True
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return bytes(data), False
        data += chunk
        if len(data) > MAX_RECORD:
            return bytes(data), True


def main() -> None:
    """Serve snippets until the channel closes."""
    reader, writer = os.dup(0), os.dup(1)
    os.set_inheritable(reader, False)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    (size,) = _HEADER.unpack(_read(reader, 4))
    start = json.loads(_read(reader, size))
    added = [path for path in [*start["paths"], start["root"]] if path not in sys.path]
    sys.path.extend(added)
    from treerl.verifiers import lockdown, plain

    _seed_random()
    for module in [*_STANDARD.split(), *start["preload"]]:
        try:
            __import__(module)
        except ImportError:
            continue
    if start["warm"]:
        exec(start["warm"], {"__name__": "warm"})
    for name in [n for n in sys.modules if n.partition(".")[0] == "treerl"]:
        del sys.modules[name]
    if start["root"] in added:
        sys.path.remove(start["root"])
    seccomp = lockdown.Filter(child=True)
    applied = {"landlock": 0, "seccomp": False, "rlimit": True}
    if start["isolation"] != "rlimit":
        lockdown.no_new_privileges()
        readable = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
        readable |= {os.path.realpath(p) for p in sys.path if "site-packages" in p}
        readable |= {"/usr/lib", "/lib", "/lib64", "/dev/urandom", "/dev/null", "/etc/localtime"}
        applied["landlock"] = lockdown.apply_landlock(sorted(readable))
        applied["seccomp"] = seccomp.ready and lockdown.Filter(child=False).install()
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            base = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        base = int(start["base_bytes"])

    def confine(request: dict[str, Any]) -> None:
        lockdown.limit_child(int(request["cpu_s"]), base + (int(request["memory_mb"]) << 20))
        if applied["seccomp"] and not seccomp.install():
            os._exit(99)  # better no answer than an unconfined one

    _warm_up()
    gc.collect()
    gc.freeze()
    _send(writer, {"status": "ok", "applied": applied})
    while True:
        (size,) = _HEADER.unpack(_read(reader, 4))
        request = json.loads(_read(reader, size))
        began = time.monotonic()
        child_reader, child_writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(child_reader)
            os.close(child_writer)
            _send(writer, {"status": "error", "error": "the sandbox could not fork"})
            continue
        if pid == 0:
            lockdown.die_with_parent()
            for fd in (reader, writer, child_reader):
                os.close(fd)
            _child(request, child_writer, confine, plain)
        os.close(child_writer)
        data, late = _collect(child_reader, began + float(request["wall_s"]))
        if late:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        os.close(child_reader)
        _send(
            writer,
            {
                "record": data.decode("utf-8", "replace") if not late else "",
                "late": late,
                "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
                "cpu_s": usage.ru_utime + usage.ru_stime,
                "wall_s": time.monotonic() - began,
            },
        )


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _send(fd: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    _write(fd, _HEADER.pack(len(data)) + data)


if __name__ == "__main__":
    main()
