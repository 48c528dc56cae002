"""Running a labeler, or rollouts, under a progress bar, with a Ctrl-C that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from treerl.cli.console import say
from treerl.cli.progress import LabelProgress, Session
from treerl.errors import EngineDied

if TYPE_CHECKING:
    from treerl.engines.base import Engine
    from treerl.problem import Problem
    from treerl.store import ProblemResult

__all__ = ["Interrupted", "count_done", "run_labeler"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_JOURNALLED = re.compile(rb'\{"index":(\d+)[,}]')


class _Runs(Protocol):
    """What fills a run folder: a ``Labeler``, or ``Rollouts``."""

    async def arun(
        self,
        problems: Sequence[Problem],
        engine: Engine,
        out: str | Path,
        *,
        on_result: Callable[[ProblemResult], None] | None = None,
    ) -> dict[str, Any]: ...


class Interrupted(Exception):
    """The user ended a run; its text says what is safe and how to go on."""


def run_labeler(
    labeler: _Runs,
    problems: Sequence[Problem],
    engine: Engine,
    out: Path,
    shown: Callable[[int, int], LabelProgress] = LabelProgress,
) -> tuple[dict[str, Any], Session]:
    """Fill a run folder from problems; return the run's summary and what this process did.

    The first Ctrl-C (or SIGTERM) cancels what is under way and closes the folder; a second one
    ends the process at once, which the folder survives just as well.

    Raises:
        Interrupted: The user ended the run.
        EngineDied: The engine is gone.
        StoreError: The folder is locked, belongs to another run, or cannot be written.
    """
    with shown(len(problems), count_done(out)) as progress:
        stopping = asyncio.Event()
        try:
            work = _run(labeler, problems, engine, out, progress, stopping)
            return asyncio.run(work), progress.session
        except asyncio.CancelledError as error:
            raise _interrupted(progress, out) from error
        except EngineDied as error:
            if stopping.is_set():  # Ctrl-C reaches the processes of an engine too
                raise _interrupted(progress, out) from error
            raise EngineDied(
                f"{error}; {progress.done} of {progress.total} problems are finished and safe in "
                f"{out}, and the same command goes on from there"
            ) from error


def _interrupted(progress: LabelProgress, out: Path) -> Interrupted:
    return Interrupted(
        f"stopped: {progress.done} of {progress.total} problems are finished and safe in "
        f"{out}; the same command goes on from there"
    )


async def _run(
    labeler: _Runs,
    problems: Sequence[Problem],
    engine: Engine,
    out: Path,
    progress: LabelProgress,
    stopping: asyncio.Event,
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        if stopping.is_set():
            os._exit(130)
        stopping.set()
        say("stopping; Ctrl-C again ends at once")
        task.cancel()

    # Signals belong to the main thread; elsewhere Ctrl-C is not ours to handle.
    with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
        for number in SIGNALS:
            loop.add_signal_handler(number, stop)
    try:
        return await labeler.arun(problems, engine, out, on_result=progress.update)
    finally:
        # The handlers stay until the loop closes, so that a second Ctrl-C works here too.
        await engine.close()


def count_done(out: Path) -> int:
    """Count the problems that an interrupted run has finished, each once; a torn line is none."""
    done: set[bytes] = set()
    with contextlib.suppress(OSError), (out / "journal.jsonl").open("rb") as lines:
        for line in lines:
            found = _JOURNALLED.match(line)
            if found is not None and line.endswith(b"}\n"):
                done.add(found[1])
    return len(done)
