"""Scores for verl; neither verl nor torch is loaded.

In verl's configuration, ``reward.custom_reward_function.path`` is this file (older versions leave
out ``reward.``), ``name`` is ``compute_score`` or ``compute_code_score``, and options go into
``reward_kwargs``.

Every score is a number, since verl knows no missing one: a row whose gold is at fault scores 0.0
like a wrong answer, and its ``verdict`` says UNVERIFIABLE. :func:`stats` counts the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treerl.integrations import PerProcess, judge_answer, read_tests

if TYPE_CHECKING:
    from treerl.verdict import Verdict
    from treerl.verifiers import AnswerVerifier, CodeVerifier

__all__ = ["compute_code_score", "compute_score", "stats"]

_ANSWER_OPTIONS = ("extraction", "percent", "units", "decimal_comma", "think_end", "wall_s")
_CODE_OPTIONS = ("wall_s", "cpu_s", "memory_mb", "require_isolation")


def _new_verifiers() -> dict[tuple[Any, ...], Any]:
    return {}


_VERIFIERS = PerProcess(_new_verifiers)
"""This process's verifiers by kind and options: one, unless two sets of options are in use."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Score a final answer.

    Args:
        data_source: Not looked at.
        solution_str: The model's text.
        ground_truth: The gold: text, a number, a list of just one, or a worked solution that
            marks its answer.
        extra_info: Not looked at.
        kwargs: ``extraction``, ``percent``, ``units``, ``decimal_comma``, ``think_end`` and
            ``wall_s`` of :class:`AnswerVerifier`; verl's own are ignored.

    Returns:
        ``score`` and ``acc``, 1.0 or 0.0; ``pred``, the answer found or ""; ``verdict``, one of
        SUPPORTED, REFUTED and UNVERIFIABLE.
    """
    verdict = judge_answer(_answers(kwargs), solution_str, ground_truth)
    return _scored(verdict.verdict, verdict.extracted)


def compute_code_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Score a program by its tests: 1.0 if it passes all.

    Args:
        data_source: Not looked at.
        solution_str: The model's text with a code block.
        ground_truth: The tests, see :func:`treerl.integrations.read_tests`.
        extra_info: Not looked at.
        kwargs: ``wall_s``, ``cpu_s``, ``memory_mb`` and ``require_isolation`` of
            :class:`CodeVerifier`; verl's own are ignored.

    Returns:
        As :func:`compute_score`; ``pred`` is the program.
    """
    from treerl.verdict import Verdict

    try:
        tests = read_tests(ground_truth)
    except ValueError:
        return _scored(Verdict.UNVERIFIABLE, None)
    verdict = _programs(kwargs).verify(solution_str, tests)
    return _scored(verdict.verdict, verdict.program)


def stats() -> dict[str, Any]:
    """Return this process's counts by verdict and reason, summed over its verifiers."""
    total: dict[str, Any] = {}
    for verifier in list(_VERIFIERS.get().values()):
        for name, value in verifier.stats.to_dict().items():
            total[name] = total.get(name, 0) + value
    return total


def _scored(verdict: Verdict, pred: str | None) -> dict[str, Any]:
    score = float(verdict == "SUPPORTED")
    return {"score": score, "acc": score, "pred": pred or "", "verdict": str(verdict)}


def _answers(kwargs: dict[str, Any]) -> AnswerVerifier:
    from treerl.verifiers import AnswerVerifier

    options = {name: kwargs[name] for name in _ANSWER_OPTIONS if name in kwargs}
    verifiers, key = _VERIFIERS.get(), ("answers", *sorted(options.items()))
    found: AnswerVerifier | None = verifiers.get(key)
    return found or verifiers.setdefault(key, AnswerVerifier(**options))


def _programs(kwargs: dict[str, Any]) -> CodeVerifier:
    from treerl.verifiers import CodeVerifier

    options = {name: kwargs[name] for name in _CODE_OPTIONS if name in kwargs}
    verifiers, key = _VERIFIERS.get(), ("programs", *sorted(options.items()))
    found: CodeVerifier | None = verifiers.get(key)
    return found or verifiers.setdefault(key, CodeVerifier(**options))
