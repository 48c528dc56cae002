"""Reading a run folder: finished, interrupted or still growing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from treerl.errors import StoreError, StoreMismatch
from treerl.runfiles import (
    DAMAGE,
    RUN_SCHEMA,
    ProblemResult,
    index_of,
    is_finished,
    read_json,
    short_json,
)
from treerl.tree import Tree
from treerl.treefile import read_trees

__all__ = ["Line", "RunReader"]

_SECTIONS = ("problems", "engine", "search")


class Line(NamedTuple):
    """A record of a run folder: its file, its 1-based line there, and its JSON object."""

    file: Path
    number: int
    record: dict[str, Any]


class RunReader:
    """A run folder opened for reading: finished, interrupted or still growing.

    Raises:
        StoreError: There is no run folder at the path, or its manifest is damaged.
        StoreMismatch: The folder has another schema.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        manifest = self.path / "manifest.json"
        if not manifest.exists():
            kind = "is no run folder" if self.path.exists() else "does not exist"
            raise StoreError(f"{self.path} {kind}: there is no manifest.json in it")
        self.manifest: dict[str, Any] = read_json(manifest)
        if self.manifest.get("schema") != RUN_SCHEMA:
            raise StoreMismatch(
                f"{self.path} has schema {self.manifest.get('schema')!r}, this treerl reads "
                f"{RUN_SCHEMA!r}"
            )
        for name in _SECTIONS:
            section = self.manifest.get(name)
            if not isinstance(section, dict | None):
                raise StoreError(
                    f"{manifest} is damaged: '{name}' is {short_json(section)} and no object"
                )

    @property
    def finished(self) -> bool:
        """True once all problems are sealed."""
        return is_finished(self.path)

    def summary(self) -> dict[str, Any] | None:
        """Return the totals of a finished run, None of an unfinished one."""
        return read_json(self.path / "summary.json") if self.finished else None

    def trees(self) -> Iterator[Tree]:
        """Yield all trees: by problem index once finished, in finishing order before.

        Raises:
            StoreError: A file is gone or damaged.
        """
        if not self.finished:
            yield from (r.tree for _, r in self.results() if r.tree is not None)
            return
        for part in self.parts("trees", "parquet"):
            try:
                yield from read_trees(part)
            except DAMAGE as error:
                raise StoreError(f"{part} is damaged: {error!r}") from error
            except StoreError as error:
                known = str(part) in str(error)
                raise error if known else StoreError(f"{part}: {error}") from error

    def labels(self) -> Iterator[dict[str, Any]]:
        """Yield all labels as JSON objects."""
        return (line.record for line in self.lines("labels"))

    def conflicts(self) -> Iterator[dict[str, Any]]:
        """Yield the conflicts between tool and Monte Carlo."""
        return (line.record for line in self.lines("conflicts"))

    def failures(self) -> Iterator[dict[str, Any]]:
        """Yield the recorded failures."""
        return (line.record for line in self.lines("failures"))

    def lines(self, name: str) -> Iterator[Line]:
        """Yield the records of a kind with the places where they stand.

        Args:
            name: "labels", "conflicts" or "failures".

        Raises:
            StoreError: A file is gone or a line damaged.
        """
        if not self.finished:
            for number, result in self.results():
                for record in getattr(result, name):
                    yield Line(self._journal, number, record)
            return
        single = self.path / f"{name}.jsonl"
        for file in self.parts(name, "jsonl") if name == "labels" else [single]:
            if not file.is_file():
                raise StoreError(f"{file} is gone or no file, though the run is finished")
            with file.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    yield Line(file, number, _record(file, number, line))

    def parts(self, name: str, suffix: str) -> list[Path]:
        """Return a finished run's shards.

        Args:
            name: Of their folder: "trees", "labels" or "rows".
            suffix: Of their names, without the dot.

        Raises:
            StoreError: They are gone.
        """
        parts = sorted((self.path / name).glob(f"part-*.{suffix}"))
        if not parts and (self.summary() or {}).get("problems"):
            raise StoreError(f"{self.path} is a finished run, but its folder '{name}' is gone")
        return parts

    def results(self) -> Iterator[tuple[int, ProblemResult]]:
        """Yield the problems of an unfinished run's journal, each with its 1-based line.

        Raises:
            StoreError: A line is damaged, or the run was finished and lost its summary.
        """
        if not self._journal.exists():
            sealed = next(self.path.glob("*/part-*"), None)
            if sealed is not None:
                raise StoreError(
                    f"{self.path / 'summary.json'} is gone, though the run was finished (there is "
                    f"{sealed.relative_to(self.path)} and no journal); put the file back, or make "
                    "the run again"
                )
            return
        seen: set[int] = set()
        with self._journal.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                index = index_of(line)
                if index is None or index in seen:  # torn or damaged, as the writer sees it
                    continue
                seen.add(index)
                try:
                    result = ProblemResult.from_line(line)
                except StoreError as error:
                    raise StoreError(f"{self._journal}, line {number}: {error}") from error
                yield number, result

    @property
    def _journal(self) -> Path:
        return self.path / "journal.jsonl"


def _record(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise StoreError(f"{file}, line {number} is damaged: {error}") from error
    except RecursionError as error:
        raise StoreError(f"{file}, line {number} is damaged: nested too deeply") from error
    if not isinstance(record, dict):
        raise StoreError(f"{file}, line {number} is damaged: it holds no JSON object")
    return record
