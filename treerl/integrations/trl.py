r"""Reward functions for TRL's trainers; neither TRL nor torch is loaded.

::

    from treerl.integrations.trl import make_accuracy_reward

    trainer = GRPOTrainer(..., reward_funcs=[make_accuracy_reward(answer_column="solution")])

A reward is 1.0 for a right answer, 0.0 for a wrong or unreadable one, and None where the row's
gold is missing or at fault: TRL leaves such a row out of the baseline.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from treerl.errors import ConfigError
from treerl.integrations import PerProcess, completion_text, judge_answer, read_tests

if TYPE_CHECKING:
    from treerl.verdict import Verdict
    from treerl.verifiers import AnswerVerifier, CodeVerifier, VerifierStats

__all__ = ["AccuracyReward", "CodeReward", "make_accuracy_reward", "make_code_reward"]

V = TypeVar("V", "AnswerVerifier", "CodeVerifier")
Scored = tuple[float | None, str, str]
"""A row's reward, the reason behind it, and what was judged."""


class _Reward(ABC):
    """What both reward functions share: columns, threads, logging."""

    def __init__(self, name: str, column: str, num_workers: int) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, not {num_workers}")
        self.__name__ = name
        self.column = column
        self.num_workers = num_workers

    def __repr__(self) -> str:
        return f"<{self.__name__}: column {self.column!r}>"

    @property
    @abstractmethod
    def stats(self) -> VerifierStats:
        """Counts by verdict and reason of this process."""

    @abstractmethod
    def _score(self, response: str, given: Any) -> Scored:
        """Judge one completion."""

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Return one reward a completion.

        Args:
            prompts: Not looked at.
            completions: Strings, or chats, whose last turn of the assistant counts.
            columns: The data set's columns, a value a completion. TRL's ``log_extra`` and
                ``log_metric`` get the reasons and the share of completions without a verdict.

        Raises:
            ConfigError: The data set has no such column.
            ValueError: The column is not as long as the completions.
        """
        if self.column not in columns:
            there = ", ".join(n for n, v in columns.items() if isinstance(v, list)) or "none"
            raise ConfigError(f"the rows have no column '{self.column}'; there are: {there}")
        texts = [completion_text(completion) for completion in completions]
        given = list(columns[self.column])
        if len(given) != len(texts):
            raise ValueError(
                f"{len(texts)} completions, but {len(given)} values of '{self.column}'"
            )
        if self.num_workers == 1 or len(texts) < 2:
            scored = [self._score(text, value) for text, value in zip(texts, given, strict=True)]
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(self.num_workers, len(texts))) as threads:
                scored = list(threads.map(self._score, texts, given))
        self._log(scored, columns.get("log_extra"), columns.get("log_metric"))
        return [reward for reward, _, _ in scored]

    def _log(self, scored: list[Scored], log_extra: Any, log_metric: Any) -> None:
        if callable(log_extra):
            log_extra(f"{self.__name__}/judged", [judged for _, _, judged in scored])
            log_extra(f"{self.__name__}/reason", [reason for _, reason, _ in scored])
        if callable(log_metric) and scored:
            missing = sum(reward is None for reward, _, _ in scored)
            log_metric(f"{self.__name__}/gold_at_fault", missing / len(scored))


class AccuracyReward(_Reward):
    """Is the final answer right? Made by :func:`make_accuracy_reward`."""

    def __init__(
        self, verifier: AnswerVerifier | None, name: str, column: str, num_workers: int
    ) -> None:
        super().__init__(name, column, num_workers)
        self._verifier = _per_process(verifier, _answer_verifier)

    @property
    def stats(self) -> VerifierStats:
        """Counts by verdict and reason of this process."""
        return self._verifier.get().stats

    def _score(self, response: str, given: Any) -> Scored:
        verdict = judge_answer(self._verifier.get(), response, given)
        reward = _reward(verdict.verdict, at_fault=verdict.gold_at_fault)
        return reward, verdict.reason, verdict.extracted or ""


class CodeReward(_Reward):
    """Does the program pass its tests? Made by :func:`make_code_reward`."""

    def __init__(
        self, verifier: CodeVerifier | None, name: str, column: str, num_workers: int
    ) -> None:
        super().__init__(name, column, num_workers)
        self._verifier = _per_process(verifier, _code_verifier)

    @property
    def stats(self) -> VerifierStats:
        """Counts by verdict and reason of this process."""
        return self._verifier.get().stats

    def _score(self, response: str, given: Any) -> Scored:
        try:
            tests = read_tests(given)
        except ValueError as error:
            return None, f"tests: {error}", ""
        verdict = self._verifier.get().verify(response, tests)
        judged = f"{verdict.n_passed}/{verdict.n_tests} tests"
        return _reward(verdict.verdict, at_fault=False), verdict.reason, judged


def make_accuracy_reward(
    verifier: AnswerVerifier | None = None,
    *,
    answer_column: str = "solution",
    name: str = "accuracy_reward",
    num_workers: int = 1,
) -> AccuracyReward:
    """Return a reward function that compares final answers with a column of golds.

    Args:
        verifier: With its policies; the default one, made when first needed, if None.
        answer_column: Column of the golds: answers, or worked solutions that mark them.
        name: What the trainer's logs call it.
        num_workers: Threads; more than one pays off only where symbolic checks are frequent.
    """
    return AccuracyReward(verifier, name, answer_column, num_workers)


def make_code_reward(
    verifier: CodeVerifier | None = None,
    *,
    tests_column: str = "tests",
    name: str = "code_reward",
    num_workers: int = 4,
) -> CodeReward:
    """Return a reward function that runs the last code block against a column of tests.

    Args:
        verifier: With its limits and the isolation that it requires; the default one if None.
        tests_column: Column of the tests, see :func:`treerl.integrations.read_tests`.
        name: What the trainer's logs call it.
        num_workers: Programs that run at the same time.
    """
    return CodeReward(verifier, name, tests_column, num_workers)


def _reward(verdict: Verdict, *, at_fault: bool) -> float | None:
    return None if at_fault else float(verdict == "SUPPORTED")


def _per_process(verifier: V | None, default: Callable[[], V]) -> PerProcess[V]:
    """Use a given verifier here and copies with its options in other processes."""
    if verifier is None:
        return PerProcess(default)
    return PerProcess(partial(_copy, verifier), verifier)


def _copy(verifier: V) -> V:
    copy: V = pickle.loads(pickle.dumps(verifier))  # its options: no model text is in it
    return copy


def _answer_verifier() -> AnswerVerifier:
    from treerl.verifiers import AnswerVerifier

    return AnswerVerifier()


def _code_verifier() -> CodeVerifier:
    from treerl.verifiers import CodeVerifier

    return CodeVerifier()
