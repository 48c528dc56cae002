"""The run folder: what a night's work leaves behind, and how it survives the night.

::

    manifest.json         every parameter and version; the same command goes on with the run
    trees/part-*.parquet  sealed shards of 64 problems, a row a node
    labels/part-*.jsonl   (labelling) a JSON object a labelled step
    rows/part-*.parquet   (rollouts) a row a leaf
    conflicts.jsonl       labels on which tool and Monte Carlo disagree, with both sides' evidence
    failures.jsonl        failed requests, judges and problems, each with its reason
    summary.json          totals; written last, so its presence says that the run is whole
    volatile.jsonl        times and cache counts: what differs between runs of equal completions
    journal.jsonl         while the run goes on: one line a finished problem
    LOCK                  held while a process writes

A problem counts once its line stands in the journal, whole and flushed. After a kill the torn last
line is cut off and the other problems go on. At the end everything is sorted by problem index into
shards, so two runs of the same manifest and equal completions end in the same bytes, whatever
happened in between.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from treerl.errors import StoreError
from treerl.locking import FolderLock
from treerl.runfiles import (
    RUN_SCHEMA,
    ProblemResult,
    check_same,
    index_of,
    is_finished,
    json_line,
    read_json,
    refuse_strangers,
    write_json,
)
from treerl.runreader import RunReader
from treerl.treefile import replace_file, write_trees

__all__ = ["RUN_SCHEMA", "ProblemResult", "RunFolder", "RunReader"]

_log = logging.getLogger(__name__)

PROBLEMS_A_PART = 64
_PART_FOLDERS = ("trees", "labels", "rows")


class RunFolder:
    """A run folder opened for writing.

    Args:
        path: The folder; made if missing.
        manifest: Every parameter of the run, JSON values only and the same for equal runs.

    Raises:
        StoreLocked: Another process writes there.
        StoreMismatch: The folder holds another run, another schema, or no run at all.
        StoreError: The folder cannot be written.
    """

    def __init__(self, path: str | Path, manifest: dict[str, Any]) -> None:
        self.path = Path(path)
        self.manifest = {"schema": RUN_SCHEMA, **manifest}
        self._journal: int | None = None  # file descriptor: nothing is buffered on our side
        self._offsets: dict[int, tuple[int, int]] = {}  # problem index -> (offset, length)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            refuse_strangers(self.path)
            self._lock = FolderLock(self.path / "LOCK")
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error
        try:
            self._adopt()
        except OSError as error:
            self._lock.release()
            raise self._write_error(error) from error
        except BaseException:
            self._lock.release()
            raise

    @property
    def finished(self) -> bool:
        """True where an earlier process finished the run."""
        return is_finished(self.path)

    @property
    def done(self) -> frozenset[int]:
        """Indices of the problems that need no more work."""
        return frozenset(self._offsets)

    def add(self, result: ProblemResult) -> None:
        """Make a problem's result durable.

        Raises:
            StoreError: The disk is full or the folder is gone. What was added before is safe.
        """
        if result.index in self._offsets:
            raise ValueError(f"problem {result.index} was added before")
        assert self._journal is not None
        line = result.to_line()
        offset = os.lseek(self._journal, 0, os.SEEK_END)
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._journal, rest) :]
            os.fsync(self._journal)
        except OSError as error:
            os.ftruncate(self._journal, offset)
            raise self._write_error(error) from error
        self._offsets[result.index] = (offset, len(line))

    def results(self) -> Iterator[ProblemResult]:
        """Yield what the journal holds, by problem index, one at a time."""
        for index in sorted(self._offsets):
            yield self._read(index)

    def finish(self, summarise: Callable[[Iterable[ProblemResult]], dict[str, Any]]) -> None:
        """Sort everything into its final files and drop the journal.

        May be interrupted anywhere and called again: every file is a function of the journal.

        Args:
            summarise: Makes summary.json of all results; called once with an iterator.
        """
        if self.finished:
            return
        try:
            self._seal_parts()
            for name in ("conflicts", "failures", "volatile"):
                self._write_lines(self.path / f"{name}.jsonl", name)
            summary = summarise(self.results())
            write_json(self.path / "summary.json", summary)
        except OSError as error:
            raise self._write_error(error) from error
        self._close_journal()
        (self.path / "journal.jsonl").unlink()

    def close(self) -> None:
        """Release the folder."""
        try:
            self._close_journal()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _adopt(self) -> None:
        """Check the manifest, clean up behind a killed writer and read the journal."""
        path = self.path / "manifest.json"
        if path.exists():
            check_same(read_json(path), self.manifest, self.path)
        # Without a manifest too: a writer killed at its first write left a part of one.
        for folder in (self.path, *(self.path / name for name in _PART_FOLDERS)):
            for stale in folder.glob(".*.[0-9]*.part"):
                stale.unlink()
        if not path.exists():
            write_json(path, self.manifest)
        journal = self.path / "journal.jsonl"
        if self.finished:
            journal.unlink(missing_ok=True)  # killed between the last steps
            return
        self._journal = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._scan()

    def _scan(self) -> None:
        """Find the results in the journal; cut a torn last line, drop damaged ones with a word."""
        assert self._journal is not None
        count = self.manifest.get("problems", {}).get("count")
        offset, good_end, damaged = 0, 0, 0
        with (self.path / "journal.jsonl").open("rb") as lines:
            for line in lines:
                index = index_of(line, count)
                if index is not None and index not in self._offsets:
                    self._offsets[index] = (offset, len(line))
                elif line.endswith(b"\n"):
                    damaged += 1
                offset += len(line)
                good_end = offset if line.endswith(b"\n") else good_end
        if damaged:
            _log.warning(
                "%s: %d damaged journal lines are passed over, their problems done again",
                self.path,
                damaged,
            )
        os.ftruncate(self._journal, good_end)

    def _read(self, index: int) -> ProblemResult:
        assert self._journal is not None
        offset, length = self._offsets[index]
        return ProblemResult.from_line(os.pread(self._journal, length, offset))

    def _seal_parts(self) -> None:
        parts: dict[int, list[int]] = {}
        for index in sorted(self._offsets):
            parts.setdefault(index // PROBLEMS_A_PART, []).append(index)
        for part, indices in parts.items():
            trees = (r.tree for r in map(self._read, indices) if r.tree is not None)
            write_trees(trees, self.path / "trees" / f"part-{part:05d}.parquet")
            if self.manifest.get("kind") != "rollout":  # rollouts have no labels
                labels = self.path / "labels" / f"part-{part:05d}.jsonl"
                self._write_lines(labels, "labels", indices)

    def _write_lines(self, path: Path, name: str, indices: Iterable[int] | None = None) -> None:
        """Write one field of the results, a line an object, in the order of the problems."""
        chosen = sorted(self._offsets) if indices is None else indices

        def write(part: Path) -> None:
            with part.open("wb") as file:
                for index in chosen:
                    value = getattr(self._read(index), name)
                    rows = value if isinstance(value, list) else [{"index": index, **value}]
                    file.writelines(json_line(row) for row in rows)

        replace_file(path, write)

    def _write_error(self, error: OSError) -> StoreError:
        done = f"{len(self._offsets)} finished problems are safe"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreError(
                f"no space left in {self.path}; {done}: free some space and run the same command "
                "again to go on"
            )
        return StoreError(f"cannot write to {self.path}: {error.strerror or error}; {done}")

    def _close_journal(self) -> None:
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None
