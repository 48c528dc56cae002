"""Questions to sympy: asked as syntax trees, answered in a worker.

Nothing here imports sympy. A question names its task and carries trees as nested lists; the worker
builds sympy objects from them, so no text is ever evaluated.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from treerl.verdict import ToolCall

from .outcome import Outcome
from .parser.nodes import Node, render, to_wire
from .pool import Reply, WorkerPool

__all__ = ["ask", "ask_equal", "tool_version"]

_VERSIONS: dict[str, str] = {}


def tool_version(tool: str) -> str:
    """Installed version of the library behind a tool, "" where it is missing."""
    if tool not in _VERSIONS:
        package = {"z3": "z3-solver"}.get(tool, tool)
        try:
            _VERSIONS[tool] = version(package)
        except PackageNotFoundError:
            _VERSIONS[tool] = ""
    return _VERSIONS[tool]


def ask(
    pool: WorkerPool, tool: str, task: str, payload: dict[str, Any], query: str, wall_s: float
) -> tuple[Reply, ToolCall]:
    """Send a task to a worker; returns its reply and the record of the call.

    Args:
        pool: Where to ask.
        tool: "sympy" or "z3".
        task: The task's name.
        payload: Its data.
        query: The question in readable canonical form, kept in the record.
        wall_s: Seconds it may take.
    """
    reply = pool.call(task, payload, wall_s=wall_s)
    output = str(reply.result.get("output", reply.detail))[:2000]
    call = ToolCall(
        tool, tool_version(tool), query[:4000], output, reply.status, "worker", reply.wall_time_s
    )
    return reply, call


def ask_equal(pool: WorkerPool, left: Node, right: Node, wall_s: float) -> Outcome:
    """Are two expressions equal, complex numbers, integrals and limits included?"""
    payload = {"left": to_wire(left), "right": to_wire(right)}
    reply, call = ask(pool, "sympy", "equal", payload, f"{render(left)} = {render(right)}", wall_s)
    if reply.status != "ok":
        return Outcome(None, "limit" if reply.status != "error" else "undecided", (call,))
    equal = reply.result.get("equal")
    if equal is None:
        return Outcome(None, "undecided", (call,))
    return Outcome(bool(equal), str(reply.result.get("reason", "sympy")), (call,))
