"""Reading a run folder: finished, interrupted or still growing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treerl.errors import StoreError, StoreMismatch
from treerl.runfiles import RUN_SCHEMA, ProblemResult, index_of, is_finished, read_json
from treerl.tree import Tree
from treerl.treefile import read_trees

__all__ = ["RunReader"]


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
        self.manifest: dict[str, Any] = read_json(manifest)
        if self.manifest.get("schema") != RUN_SCHEMA:
            raise StoreMismatch(
                f"{self.path} has schema {self.manifest.get('schema')!r}, this treerl reads "
                f"{RUN_SCHEMA!r}"
            )

    @property
    def finished(self) -> bool:
        """True once all problems are sealed."""
        return is_finished(self.path)

    def summary(self) -> dict[str, Any] | None:
        """Return the totals of a finished run, None of an unfinished one."""
        return read_json(self.path / "summary.json") if self.finished else None

    def trees(self) -> Iterator[Tree]:
        """Yield all trees: by problem index once finished, in finishing order before."""
        if not self.finished:
            yield from (r.tree for r in self._journalled() if r.tree is not None)
            return
        for part in self._parts("trees", "parquet"):
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
        files = [single] if single.exists() else self._parts(name, "jsonl")
        for file in files:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    try:
                        yield json.loads(line)
                    except ValueError as error:
                        raise StoreError(f"{file}, line {number} is damaged: {error}") from error

    def _parts(self, name: str, suffix: str) -> list[Path]:
        """Return a finished run's shards.

        Raises:
            StoreError: They are gone.
        """
        parts = sorted((self.path / name).glob(f"part-*.{suffix}"))
        if not parts and (self.summary() or {}).get("problems"):
            raise StoreError(f"{self.path} is a finished run, but its folder '{name}' is gone")
        return parts

    def _journalled(self) -> Iterator[ProblemResult]:
        journal = self.path / "journal.jsonl"
        if not journal.exists():
            return
        with journal.open("rb") as lines:
            for line in lines:
                if index_of(line) is not None:  # else torn or damaged
                    yield ProblemResult.from_line(line)
