"""Engines: what samplers ask for tokens.

``base`` holds the protocol; each engine is a module of its own and is imported when it is first
named, so that ``import treerl.engines`` loads neither torch nor transformers nor vllm.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treerl.engines.base import (
    Capabilities,
    Completion,
    Engine,
    FinishReason,
    Request,
    StepEngine,
    Tokenizer,
    Usage,
)

if TYPE_CHECKING:
    from treerl.engines.clock import VirtualClock
    from treerl.engines.guarded import GuardedEngine
    from treerl.engines.hf import HFEngine
    from treerl.engines.scripted import ScriptedEngine
    from treerl.engines.server import ServerEngine
    from treerl.engines.tokenizer import ByteTokenizer, HFTokenizer
    from treerl.engines.vllm_engine import VLLMEngine
    from treerl.engines.vllm_step import VLLMStepEngine

__all__ = [
    "ByteTokenizer",
    "Capabilities",
    "Completion",
    "Engine",
    "FinishReason",
    "GuardedEngine",
    "HFEngine",
    "HFTokenizer",
    "Request",
    "ScriptedEngine",
    "ServerEngine",
    "StepEngine",
    "Tokenizer",
    "Usage",
    "VLLMEngine",
    "VLLMStepEngine",
    "VirtualClock",
]

_HOMES = {
    "ByteTokenizer": "treerl.engines.tokenizer",
    "GuardedEngine": "treerl.engines.guarded",
    "HFEngine": "treerl.engines.hf",
    "HFTokenizer": "treerl.engines.tokenizer",
    "ScriptedEngine": "treerl.engines.scripted",
    "ServerEngine": "treerl.engines.server",
    "VLLMEngine": "treerl.engines.vllm_engine",
    "VLLMStepEngine": "treerl.engines.vllm_step",
    "VirtualClock": "treerl.engines.clock",
}


def __getattr__(name: str) -> Any:
    """Import an engine when it is first asked for.

    Raises:
        MissingExtra: The engine's libraries are not installed.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
