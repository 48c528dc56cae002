"""What a labelling run shows while it goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from treerl.cli.console import output, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from treerl.store import ProblemResult

__all__ = ["LabelProgress", "Session", "duration"]

QUIET_S = 30.0
"""Without a terminal a line is written at most this often."""


@dataclass(slots=True)
class Session:
    """What this process did of a run; an earlier one's part is not in it.

    Attributes:
        problems: Problems finished.
        failures: Of those, problems that have no tree.
        right, wrong, unlabelled: Steps.
        generated: Tokens from the model.
        seconds: From the first request to the last problem, without loading the model.
    """

    problems: int = 0
    failures: int = 0
    right: int = 0
    wrong: int = 0
    unlabelled: int = 0
    generated: int = 0
    seconds: float = 0.0

    def add(self, result: ProblemResult) -> None:
        """Count a finished problem."""
        self.problems += 1
        self.failures += result.tree is None
        for label in result.labels:
            self.right += label["label"] == 1
            self.wrong += label["label"] == 0
            self.unlabelled += label["label"] is None
        if result.tree is not None:
            self.generated += result.tree.ledger.generated


class LabelProgress:
    """Problems done, rate, time left and label counts: a live bar, or lines where no terminal is.

    Rate, time left and label counts are of this process alone.

    Args:
        total: Problems of the run.
        done: Of those, problems that an earlier process finished.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        self.total = total
        self.done = self._done_before = min(done, total)
        self.session = Session()
        self._began = self._said = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        console = output(stderr=True)
        if console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
                console=console,
            )
            self._bar.add_task(self.line(), total=self.total, completed=self.done)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, result: ProblemResult) -> None:
        """Count a problem that is done and safe on disk."""
        self.done += 1
        self.session.add(result)
        now = time.monotonic()
        self.session.seconds = now - self._began
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, description=self.line())
        elif self.done == self.total or now - self._said >= QUIET_S:
            self._said = now
            say(self.line())

    def line(self) -> str:
        """Return the state as one line."""
        new, text = self.session, f"{self.done}/{self.total} problems"
        if self._done_before:
            text += f" ({self._done_before} before)"
        if new.problems:
            text += f", {new.problems / new.seconds * 60:.1f} a minute"
            text += f", {new.generated / new.seconds:,.0f} tokens/s"
            if self.done < self.total:
                left = (self.total - self.done) * new.seconds / new.problems
                text += f", {duration(left)} left"
        if new.failures:
            text += f", {new.failures} without a tree"
        only = "new: " if self._done_before else ""
        return (
            f"{text}; {only}{new.right} right, {new.wrong} wrong, {new.unlabelled} unlabelled steps"
        )


def duration(seconds: float) -> str:
    """Write a time as 5 s, 2:05 or 1:02:05.

    Example:
        >>> duration(4.6), duration(125), duration(3725)
        ('5 s', '2:05', '1:02:05')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
