"""Grow trees of rollouts, check them with tools, and turn them into training signals.

Importing treerl loads nothing heavy; names below are resolved when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treerl.loading import load_problems
    from treerl.problem import Problem
    from treerl.store import RunReader
    from treerl.tree import Node, Tree

__version__ = "0.1.0"

__all__ = ["Node", "Problem", "RunReader", "Tree", "__version__", "load_problems"]

_HOME = {
    "Node": "treerl.tree",
    "Problem": "treerl.problem",
    "RunReader": "treerl.store",
    "Tree": "treerl.tree",
    "load_problems": "treerl.loading",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'treerl' has no attribute '{name}'")
