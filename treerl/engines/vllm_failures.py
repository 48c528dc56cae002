"""Why vLLM did not start, in words that help; no vLLM is needed to read them."""

from __future__ import annotations

import re
import signal

__all__ = ["start_failure"]

_CODES = re.compile(r"'(?:EngineCore|Worker|Api)[^']*': -(\d+)", re.IGNORECASE)
"""vLLM names its dead processes with their exit codes; a negative one is the signal that killed."""


def start_failure(error: BaseException) -> str:
    """Return vLLM's words, and what a killed process means.

    Args:
        error: What starting it raised, e.g. with "Failed core proc(s): {'EngineCore': -9}".
    """
    words = str(error).strip() or type(error).__name__
    found = _CODES.search(words)
    if found is None:
        return words
    if int(found[1]) == signal.SIGKILL:
        return (
            "its engine process was killed from outside, most often because the machine's memory "
            "was full: free some, take a smaller model or max_context, or on a CPU a smaller "
            f"VLLM_CPU_KVCACHE_SPACE (vLLM says: {words})"
        )
    try:
        name = signal.Signals(int(found[1])).name
    except ValueError:
        name = f"signal {found[1]}"
    return f"its engine process was ended by {name} (vLLM says: {words})"
