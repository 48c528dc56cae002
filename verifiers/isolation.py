"""Which promises about untrusted programs hold on this machine, found by trying."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from .execute import PythonExecutor

__all__ = ["IsolationReport", "isolation_report"]


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """Which promises hold on this machine, found by trying.

    Attributes:
        platform: Operating system and machine.
        landlock_abi: 0 where the kernel has none.
        seccomp: Whether the system-call filter is in force.
        level: "full", "partial" (no file confinement) or "rlimit".
        network_blocked, writes_blocked, reads_confined, processes_blocked, signals_blocked: What
            a probe snippet could not do.
    """

    platform: str
    landlock_abi: int
    seccomp: bool
    level: str
    network_blocked: bool
    writes_blocked: bool
    reads_confined: bool
    processes_blocked: bool
    signals_blocked: bool

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


_PROBES = {
    "network": "import socket; socket.create_connection(('127.0.0.1', 9), 1)",
    "writes": "open('/tmp/treerl-probe', 'w')",
    "reads": "open('/etc/passwd').read()",
    "processes": "import os; os.fork()",
    "signals": "import os; os.kill(os.getppid(), 0)",
}


@lru_cache(maxsize=1)
def isolation_report() -> IsolationReport:
    """Try what a snippet can do here and report it; the result is kept for the process's life."""
    with PythonExecutor(size=1) as executor:
        outcomes = {}
        for name, code in _PROBES.items():
            run = executor.run(code + "\nresult = 'done'", wall_s=3)
            refused = "PermissionError" in run.error or "not permitted" in run.error
            outcomes[name] = run.value != "done" and refused
        applied = executor.applied()
    full = all(outcomes.values()) and applied["landlock"] and applied["seccomp"]
    return IsolationReport(
        f"{platform.system()} {platform.release()} {platform.machine()}",
        int(applied["landlock"]),
        bool(applied["seccomp"]),
        "full" if full else "partial" if applied["seccomp"] else "rlimit",
        outcomes["network"],
        outcomes["writes"],
        outcomes["reads"],
        outcomes["processes"],
        outcomes["signals"],
    )
