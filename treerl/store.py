"""The run folder: what a night's work leaves behind, and how it survives the night.

::

    manifest.json         every parameter and version; the same command goes on with the run
    trees/part-*.parquet  sealed shards of 64 problems, a row a node
    labels/part-*.jsonl   (labelling) a JSON object a labelled step
    rows/part-*.parquet   (rollouts) a row a leaf
    conflicts.jsonl       labels on which tool and Monte Carlo disagree, with both sides' evidence
    failures.jsonl        failed requests, judges and problems, each with its reason
    summary.json          totals; written last, so its presence says that the run is whole
    volatile.jsonl        times and cache counts: all that differs between equal runs
    journal.jsonl         while the run goes on: one line a finished problem
    LOCK                  held while a process writes

A problem counts once its line stands in the journal, whole and flushed. After a kill the torn last
line is cut off and the other problems go on. At the end everything is sorted by problem index into
shards, so two runs of the same manifest end in the same bytes, whatever happened in between.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from treerl.errors import StoreError, StoreLocked, StoreMismatch
from treerl.tree import Tree
from treerl.treefile import (
    read_trees,
    replace_file,
    tree_from_record,
    tree_to_record,
    write_trees,
)

__all__ = ["RUN_SCHEMA", "ProblemResult", "RunFolder", "RunReader"]

RUN_SCHEMA = "treerl.run/1"
PROBLEMS_A_PART = 64


@dataclass(frozen=True, slots=True)
class ProblemResult:
    """Everything a run knows about one problem.

    Attributes:
        index: Position of the problem in the input; decides its place in the shards.
        tree: Its tree, None where the problem failed before it had one.
        labels, conflicts, failures: JSON objects, written as they are.
        volatile: JSON object of times and cache counts.
    """

    index: int
    tree: Tree | None
    labels: list[dict[str, Any]] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    volatile: dict[str, Any] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """Return the journal line, newline included."""
        record = {
            "index": self.index,
            "tree": None if self.tree is None else tree_to_record(self.tree),
            "labels": self.labels,
            "conflicts": self.conflicts,
            "failures": self.failures,
            "volatile": self.volatile,
        }
        return _line(record)

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Restore a result from :meth:`to_line`."""
        record = json.loads(line)
        tree = record["tree"]
        return cls(**{**record, "tree": None if tree is None else tree_from_record(tree)})


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
        self._journal: BinaryIO | None = None
        self._offsets: dict[int, tuple[int, int]] = {}  # problem index -> (offset, length)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _Lock(self.path / "LOCK")
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error
        try:
            self._adopt()
        except BaseException:
            self._lock.release()
            raise

    @property
    def finished(self) -> bool:
        """True where an earlier process finished the run."""
        return (self.path / "summary.json").exists()

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
        offset = self._journal.seek(0, os.SEEK_END)
        try:
            self._journal.write(line)
            self._journal.flush()
            os.fsync(self._journal.fileno())
        except OSError as error:
            self._truncate(offset)
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
            _write_json(self.path / "summary.json", summary)
        except OSError as error:
            raise self._write_error(error) from error
        self._close_journal()
        (self.path / "journal.jsonl").unlink()

    def close(self) -> None:
        """Release the folder."""
        self._close_journal()
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
        """Check the manifest and read the journal, cutting a torn last line off."""
        path = self.path / "manifest.json"
        for stale in self.path.rglob(".*.part"):  # of a process that was killed while it wrote
            stale.unlink()
        if path.exists():
            _check_same(_read_json(path), self.manifest, self.path)
        else:
            strangers = [p.name for p in self.path.iterdir() if p.name != "LOCK"]
            if strangers:
                raise StoreMismatch(
                    f"{self.path} is not empty and no run folder (it holds '{strangers[0]}'); "
                    "choose a new folder"
                )
            _write_json(path, self.manifest)
        if self.finished:
            (self.path / "journal.jsonl").unlink(missing_ok=True)  # killed between the last steps
            return
        self._journal = (self.path / "journal.jsonl").open("a+b")
        self._journal.seek(0)
        offset = 0
        for line in self._journal:
            index = _index_of(line)
            if index is None:
                break
            self._offsets[index] = (offset, len(line))
            offset += len(line)
        self._truncate(offset)

    def _read(self, index: int) -> ProblemResult:
        assert self._journal is not None
        offset, length = self._offsets[index]
        self._journal.seek(offset)
        return ProblemResult.from_line(self._journal.read(length))

    def _truncate(self, offset: int) -> None:
        if self._journal is not None:
            self._journal.truncate(offset)
            self._journal.seek(0, os.SEEK_END)

    def _seal_parts(self) -> None:
        parts: dict[int, list[int]] = {}
        for index in sorted(self._offsets):
            parts.setdefault(index // PROBLEMS_A_PART, []).append(index)
        for part, indices in parts.items():
            trees = (r.tree for r in map(self._read, indices) if r.tree is not None)
            write_trees(trees, self.path / "trees" / f"part-{part:05d}.parquet")
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
                    file.writelines(_line(row) for row in rows)

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
            self._journal.close()
            self._journal = None


class RunReader:
    """A run folder opened for reading: finished, interrupted or still growing.

    Raises:
        StoreError: There is no run folder at the path.
        StoreMismatch: The folder has another schema.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        manifest = self.path / "manifest.json"
        if not manifest.exists():
            kind = "is no run folder" if self.path.exists() else "does not exist"
            raise StoreError(f"{self.path} {kind}: there is no manifest.json in it")
        self.manifest: dict[str, Any] = _read_json(manifest)
        if self.manifest.get("schema") != RUN_SCHEMA:
            raise StoreMismatch(
                f"{self.path} has schema {self.manifest.get('schema')!r}, this treerl reads "
                f"{RUN_SCHEMA!r}"
            )

    @property
    def finished(self) -> bool:
        """True once all problems are sealed."""
        return (self.path / "summary.json").exists()

    def summary(self) -> dict[str, Any] | None:
        """Return the totals of a finished run, None of an unfinished one."""
        return _read_json(self.path / "summary.json") if self.finished else None

    def trees(self) -> Iterator[Tree]:
        """Yield all trees: by problem index once finished, in finishing order before."""
        if not self.finished:
            yield from (r.tree for r in self._journalled() if r.tree is not None)
            return
        for part in sorted((self.path / "trees").glob("part-*.parquet")):
            yield from read_trees(part)

    def labels(self) -> Iterator[dict[str, Any]]:
        """Yield all labels as JSON objects."""
        return self._lines("labels")

    def conflicts(self) -> Iterator[dict[str, Any]]:
        """Yield the conflicts between tool and Monte Carlo."""
        return self._lines("conflicts")

    def failures(self) -> Iterator[dict[str, Any]]:
        """Yield the recorded failures."""
        return self._lines("failures")

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        if not self.finished:
            for result in self._journalled():
                yield from getattr(result, name)
            return
        single = self.path / f"{name}.jsonl"
        files = [single] if single.exists() else sorted((self.path / name).glob("part-*.jsonl"))
        for file in files:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    try:
                        yield json.loads(line)
                    except ValueError as error:
                        raise StoreError(f"{file}, line {number} is damaged: {error}") from error

    def _journalled(self) -> Iterator[ProblemResult]:
        journal = self.path / "journal.jsonl"
        if not journal.exists():
            return
        with journal.open("rb") as lines:
            for line in lines:
                if _index_of(line) is None:
                    return
                yield ProblemResult.from_line(line)


class _Lock:
    """An advisory lock that the kernel drops with the process, so a kill leaves no stale lock."""

    def __init__(self, path: Path) -> None:
        import fcntl

        self._path = path
        while True:
            self._file = path.open("a+")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self._file.seek(0)
                holder = self._file.read().strip() or "another process"
                self._file.close()
                raise StoreLocked(
                    f"{path.parent} is being written by {holder}; wait for it to end, or choose "
                    "another folder"
                ) from error
            if self._still_there():
                break
            self._file.close()  # its last holder removed it between our open and our lock
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()

    def _still_there(self) -> bool:
        try:
            return self._path.stat().st_ino == os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Drop the lock."""
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            self._file.close()


def _index_of(line: bytes) -> int | None:
    """Return a journal line's problem index, None for a torn line."""
    if not line.endswith(b"\n"):
        return None
    try:
        return int(json.loads(line)["index"])
    except (ValueError, KeyError, TypeError):
        return None


def _check_same(old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    if old.get("schema") != new["schema"]:
        raise StoreMismatch(
            f"{path} has schema {old.get('schema')!r}, this treerl writes {new['schema']!r}; "
            "choose a new folder"
        )
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            raise StoreMismatch(
                f"{path} belongs to another run: '{key}' is {_short(old.get(key))} there and "
                f"{_short(new.get(key))} now; choose a new folder, or repeat the run's own options"
            )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    replace_file(path, lambda part: _write_text(part, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} holds no JSON object")
    return value
