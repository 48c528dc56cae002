"""What a worker can be asked; imported inside worker processes only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["TASKS"]


def _echo(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


def _spin(payload: dict[str, Any]) -> dict[str, Any]:
    """Burn time, for tests of the deadline."""
    until = time.monotonic() + float(payload["seconds"])
    while time.monotonic() < until:
        pass
    return {}


def _grow(payload: dict[str, Any]) -> dict[str, Any]:
    """Take memory, for tests of the limit."""
    return {"size": len(bytearray(int(payload["mb"]) << 20))}


TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "echo": _echo,
    "grow": _grow,
    "spin": _spin,
}
for _module in ("symbolic_tasks", "smt_tasks"):
    # where one library is missing, the other's tasks still work and its own fail with a reason
    with contextlib.suppress(ImportError):
        TASKS.update(import_module(f"{__package__}.{_module}").TASKS)
