"""What a labelling run shows while it goes on."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from treerl.cli.console import output, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from treerl.store import ProblemResult

__all__ = ["LabelProgress", "duration"]

QUIET_S = 30.0
"""Without a terminal a line is written at most this often."""


class LabelProgress:
    """Problems done, rate, time left and label counts: a live bar, or lines where no terminal is.

    Args:
        total: Problems of the run.
        done: Of those, problems that an earlier process finished.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        self.total = total
        self.done = self._done_before = done
        self.right = self.wrong = self.unlabelled = 0
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
        for label in result.labels:
            self.right += label["label"] == 1
            self.wrong += label["label"] == 0
            self.unlabelled += label["label"] is None
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, description=self.line())
        elif self.done == self.total or now - self._said >= QUIET_S:
            self._said = now
            say(self.line())

    def line(self) -> str:
        """Return the state as one line."""
        text = f"{self.done}/{self.total} problems"
        seconds = time.monotonic() - self._began
        new = self.done - self._done_before
        if new:
            text += f", {new / seconds * 60:.1f} a minute"
            left = (self.total - self.done) * seconds / new
            if self.done < self.total:
                text += f", {duration(left)} left"
        return f"{text}; {self.right} right, {self.wrong} wrong, {self.unlabelled} unlabelled steps"


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
