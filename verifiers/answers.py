"""AnswerVerifier: is a response's final answer the gold answer?

One candidate against one gold. The verdict is True, False or None with a reason, and None names
whose fault it is: a gold that cannot be read is not the response's error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Literal, get_args

from treerl.verdict import AnswerVerdict

from .arithmetic import value_of
from .clock import same_moment
from .compare import Comparer
from .extraction import POLICIES, ExtractionPolicy, extract_answer, gold_text
from .outcome import Budget, Outcome
from .parser.answer import Answer, plain_text, read_answer
from .parser.evaluate import NoValue, is_closed
from .parser.nodes import Node
from .pool import WorkerPool
from .rounding import Tolerance
from .shapes import canonical
from .stats import VerifierStats
from .symbolic import ask_equal

__all__ = ["AnswerVerifier"]

Percent = Literal["strict", "lenient"]
Units = Literal["lenient", "strict"]


class AnswerVerifier:
    """Compares final answers; thread-safe, deterministic, never raises for model text.

    Args:
        extraction: Where the answer stands in a response, see :mod:`.extraction`.
        tolerance: Rounding rules.
        percent: "strict": 50 % equals 0.5; "lenient": also 50.
        units: "lenient": a missing unit is accepted; "strict": it is not.
        decimal_comma: Read ``1,22`` as a decimal.
        think_end: Closing tag of the reasoning; only text after its last occurrence counts.
        pool: Workers to share; one of its own, started when first needed, if None.
        wall_s: Seconds that a symbolic comparison may take; a response with all its comparisons
            takes twice as long at most, without the wait for a free worker.
    """

    name = "treerl.answer/2"

    def __init__(
        self,
        *,
        extraction: ExtractionPolicy = "boxed_or_marker",
        tolerance: Tolerance | None = None,
        percent: Percent = "strict",
        units: Units = "lenient",
        decimal_comma: bool = False,
        think_end: str = "</think>",
        pool: WorkerPool | None = None,
        wall_s: float = 3.0,
    ) -> None:
        if extraction not in POLICIES:
            raise ValueError(f"extraction must be one of {', '.join(POLICIES)}, not {extraction!r}")
        if percent not in get_args(Percent):
            raise ValueError(f"percent must be 'strict' or 'lenient', not {percent!r}")
        if units not in get_args(Units):
            raise ValueError(f"units must be 'lenient' or 'strict', not {units!r}")
        self.extraction: ExtractionPolicy = extraction
        self.tolerance = tolerance or Tolerance()
        self.percent: Percent = percent
        self.units: Units = units
        self.decimal_comma = decimal_comma
        self.think_end = think_end
        self.wall_s = wall_s
        self.stats = VerifierStats()
        self._owns_pool = pool is None
        self._pool = pool if pool is not None else WorkerPool(wall_s=wall_s)

    def __getstate__(self) -> dict[str, Any]:
        names = (
            "extraction",
            "tolerance",
            "percent",
            "units",
            "decimal_comma",
            "think_end",
            "wall_s",
        )
        state = {name: getattr(self, name) for name in names}
        state["pool"] = None if self._owns_pool else self._pool
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __enter__(self) -> AnswerVerifier:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the verifier's own workers; a shared pool is left alone."""
        if self._owns_pool:
            self._pool.close()

    def verify(
        self,
        response: str,
        gold: str | int | float,
        *,
        gold_alternatives: Sequence[str | int | float] = (),
    ) -> AnswerVerdict:
        """Compare a response's final answer with the gold answer.

        Args:
            response: The model's text.
            gold: The right answer, a text or a number.
            gold_alternatives: Further right answers, each as good as ``gold``.

        Returns:
            ``equal`` is None, with a reason, where no answer is found, a limit is hit, or the gold
            is at fault.

        Raises:
            TypeError: The response is no text, or a gold neither text nor a number.
        """
        if not isinstance(response, str):
            raise TypeError(f"the response must be text, not {type(response).__name__}")
        if isinstance(gold_alternatives, str):
            raise TypeError("gold_alternatives must be a list of golds, not one text")
        gold, *others = (_gold_text(given) for given in (gold, *gold_alternatives))
        began = time.perf_counter()
        try:
            verdict = self._verify(response, gold, others)
        except RecursionError:  # deeper than the bounds of the grammar saw
            verdict = AnswerVerdict(None, "limit")
        spent = time.perf_counter() - began
        timed = AnswerVerdict(
            verdict.equal,
            verdict.reason,
            verdict.extracted,
            verdict.extraction,
            verdict.gold_canonical,
            verdict.pred_canonical,
            verdict.calls,
            spent,
        )
        self.stats.count(timed.verdict, timed.reason, timed.calls, spent)
        return timed

    def verify_batch(
        self,
        responses: Sequence[str],
        golds: Sequence[str | int | float],
        *,
        num_workers: int | None = None,
    ) -> list[AnswerVerdict]:
        """Compare many responses; results in order.

        Args:
            responses, golds: Of equal length.
            num_workers: Threads; more than one pays off only where symbolic checks are frequent.
        """
        if len(responses) != len(golds):
            raise ValueError("responses and golds differ in length")
        if not num_workers or num_workers == 1:
            return [self.verify(r, g) for r, g in zip(responses, golds, strict=True)]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(num_workers) as threads:
            return list(threads.map(self.verify, responses, golds))

    def _verify(self, response: str, gold: str, alternatives: Sequence[str]) -> AnswerVerdict:
        golds = [gold, *alternatives]
        readings = [self._read(gold_text(g)) for g in golds]
        if not readings[0].text and readings[0].kind == "text":
            return AnswerVerdict(None, "gold_empty")
        found = extract_answer(response, self.extraction, think_end=self.think_end)
        shown = canonical(readings[0])
        if found.text is None:
            return AnswerVerdict(None, found.reason, None, "", shown, None)
        prediction = self._read(found.text)
        unmarked = found.how == "whole" and self.extraction != "whole"
        known = any(prediction.text == reading.text for reading in readings)
        if unmarked and prediction.kind == "text" and not known:
            # neither marked nor a bare value: a name is accepted only as it stands
            return AnswerVerdict(None, "no_answer", None, "", shown, None)
        outcome = Outcome(None, "undecided")
        budget = Budget(2 * self.wall_s)
        comparer = Comparer(self.tolerance, self.percent, self.units, self._symbolic, budget)
        for reading in readings:
            outcome = self._compare(comparer, reading, prediction)
            if outcome.equal:
                shown = canonical(reading)
                break
        return AnswerVerdict(
            outcome.equal,
            outcome.reason,
            found.text[:1000],
            found.how,
            shown,
            canonical(prediction),
            outcome.calls,
        )

    def _read(self, text: str) -> Answer:
        """Read one side; a text too deep to be read or shown is one that hit a limit."""
        try:
            answer = read_answer(text, decimal_comma=self.decimal_comma)
            canonical(answer)
        except RecursionError:
            words = plain_text(text)
            return Answer("text", Node("text", (), words), "", words, False, text, "limit")
        return answer

    def _compare(self, comparer: Comparer, gold: Answer, prediction: Answer) -> Outcome:
        if _other_words(gold.text, prediction.text):
            return Outcome(False, "not_equal")
        moment = same_moment(gold.source, prediction.source)
        if moment is not None:
            return Outcome(moment, "same_moment" if moment else "not_equal")
        try:
            outcome = comparer.compare(gold, prediction)
        except RecursionError:
            return Outcome(None, "limit")
        if outcome.equal:
            return outcome
        # what could not be read is no wrong answer, and it is said on whose side it stood
        if gold.problem or prediction.problem:
            reason = f"gold_{gold.problem}" if gold.problem else prediction.problem
            return Outcome(None, reason, outcome.calls)
        if outcome.equal is None and outcome.reason == "limit" and _too_large(gold.node):
            return Outcome(None, "gold_limit", outcome.calls)
        return outcome

    def _symbolic(self, gold: Node, prediction: Node, budget: Budget) -> Outcome:
        left = budget.left()
        if not left:
            return Outcome(None, "limit")
        outcome = ask_equal(self._pool, gold, prediction, min(self.wall_s, left))
        budget.charge(sum(call.wall_time_s for call in outcome.calls))
        return outcome


def _gold_text(gold: Any) -> str:
    if isinstance(gold, str):
        return gold
    if isinstance(gold, int | float) and not isinstance(gold, bool):
        return str(gold)
    raise TypeError(f"a gold must be text or a number, not {type(gold).__name__}")


def _too_large(node: Node) -> bool:
    """True where a closed value is beyond the bounds by itself."""
    if not is_closed(node):
        return False
    try:
        value_of(node)
    except NoValue as problem:
        return problem.reason == "limit"
    return False


# Three letters or more, or capitals, are a word or a sequence (an order, true/false marks), not a
# product of variables: "dog" is not "god". Two small letters stay algebra: xy is yx.
_WORD = re.compile(r"(?:\\(?:text|mathrm|textbf)\s*\{)?\s*([A-Za-z]{3,}|[A-Z]{2,})\s*\}?")


def _other_words(gold: str, prediction: str) -> bool:
    """Say whether both are plain words, and different ones."""
    a, b = _WORD.fullmatch(gold.strip(" $")), _WORD.fullmatch(prediction.strip(" $"))
    return a is not None and b is not None and a[1].casefold() != b[1].casefold()
