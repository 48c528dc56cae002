"""Text to verdicts: answers and reasoning steps judged by tools, with evidence.

Importing this package loads neither sympy nor z3; they live in worker processes that start when a
check first needs them.
"""

if not __name__.startswith("treerl."):
    raise ImportError(
        "this folder is the package treerl.verifiers; import it as `import treerl.verifiers` "
        "(the root of the checkout is on sys.path: run Python from elsewhere, or with -P)"
    )

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treerl.verdict import StepVerdict, Verdict

if TYPE_CHECKING:
    from .answers import AnswerVerifier
    from .execute import ExecutionResult, PythonExecutor
    from .extraction import Extraction, ExtractionPolicy, extract_answer
    from .isolation import IsolationReport, isolation_report
    from .pool import PoolStats, WorkerPool
    from .programs import CodeTest, CodeVerdict, CodeVerifier
    from .rounding import Tolerance
    from .stats import VerifierStats
    from .steps import StepVerifier, Translator

__all__ = [
    "AnswerVerifier",
    "CodeTest",
    "CodeVerdict",
    "CodeVerifier",
    "ExecutionResult",
    "Extraction",
    "ExtractionPolicy",
    "IsolationReport",
    "PoolStats",
    "PythonExecutor",
    "StepVerdict",
    "StepVerifier",
    "Tolerance",
    "Translator",
    "Verdict",
    "VerifierStats",
    "WorkerPool",
    "extract_answer",
    "isolation_report",
]

_PLACES = {
    "AnswerVerifier": "answers",
    "CodeTest": "programs",
    "CodeVerdict": "programs",
    "CodeVerifier": "programs",
    "ExecutionResult": "execute",
    "Extraction": "extraction",
    "ExtractionPolicy": "extraction",
    "IsolationReport": "isolation",
    "PoolStats": "pool",
    "PythonExecutor": "execute",
    "StepVerifier": "steps",
    "Tolerance": "rounding",
    "Translator": "steps",
    "VerifierStats": "stats",
    "WorkerPool": "pool",
    "extract_answer": "extraction",
    "isolation_report": "isolation",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{place}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
