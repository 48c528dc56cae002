"""The files beside trees and labels: manifest, shards, summary, conflicts and failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from treerl.errors import ConfigError
from treerl.prm.audit.mismatches import Mismatch, difference, file_in
from treerl.prm.audit.runs import StoredTree, read_fusion
from treerl.problem import Problem
from treerl.runfiles import short_json
from treerl.runreader import Line, RunReader
from treerl.search.runs import problems_digest
from treerl.store import PROBLEMS_A_PART, ProblemResult
from treerl.verdict import StepVerdict

__all__ = ["FileChecks"]

Add = Callable[[Mismatch], None]

_RECORDS = ("conflicts", "failures")


class FileChecks:
    """The checks of one run's files.

    Args:
        run: The run.
        add: Takes what does not follow.

    Attributes:
        checked: Files that were held against the trees.
        ids: The problems of a finished run's trees, in their order.
    """

    def __init__(self, run: RunReader, add: Add) -> None:
        self._run = run
        self._add = add
        self._finished = run.finished
        self.checked = 0
        self.ids: list[str] = []
        self._failed = self._failed_problems() if self._finished else {}
        self._check_manifest()
        if self._finished:
            self._check_shards()
            self._check_problems()
        self._indices = self._problem_indices()
        self._records = {name: _Records(run, name, self._stored(name), add) for name in _RECORDS}
        self._judged = False

    def index_of(self, stored: StoredTree) -> int:
        """Return the index of a tree's problem; must be called once a tree, in their order."""
        return next(self._indices) if stored.index is None else stored.index

    def check(self, stored: StoredTree, made: ProblemResult) -> None:
        """Hold what the run says about a tree against what the tree makes.

        Args:
            stored: The tree with what is stored about it.
            made: Conflicts and failures as the tree makes them.
        """
        for name in _RECORDS:
            lines: list[Line] | None = getattr(stored, name)
            if lines is None:
                self._records[name].follow(getattr(made, name))
            else:
                own = _Records(self._run, name, iter(lines), self._add)
                own.follow(getattr(made, name))
                own.end()
        self._check_judge(stored)

    def failed_results(self) -> Iterator[ProblemResult]:
        """Yield a finished run's problems that failed before they had a tree."""
        for index, record in self._failed.items():
            yield ProblemResult(index, None, failures=[record])

    def end(self, summary: dict[str, Any]) -> None:
        """Check what is known once all trees were seen.

        Args:
            summary: The totals of the trees.
        """
        if not self._finished:
            return
        for records in self._records.values():
            self.checked += 1
            records.end()
        self.checked += 1
        found = json.loads(json.dumps(summary))
        stored = self._run.summary() or {}
        if differs := difference("file", stored, found, file="summary.json"):
            self._add(differs)

    def _check_manifest(self) -> None:
        self.checked += 1
        manifest = self._run.manifest
        try:
            read_fusion(self._run)
        except ConfigError as error:
            stored = short_json(manifest.get("fusion"))
            self._manifest("fusion", stored, f"no rule of this treerl ({error})")
        if not isinstance(manifest.get("verifier"), str | None):
            self._manifest("verifier", short_json(manifest["verifier"]), "no name of a verifier")
        count = self._problems().get("count")
        if type(count) is not int or count < 0:
            self._manifest("problems.count", short_json(count), "no number of problems")

    def _check_judge(self, stored: StoredTree) -> None:
        """Say once that there are verdicts though the manifest names no verifier."""
        if self._judged or self._run.manifest.get("verifier") is not None:
            return
        for node in stored.tree.nodes:
            verdict: StepVerdict | None = node.verdict
            if verdict is not None:
                self._judged = True
                who = f"a verdict of '{verdict.verifier}' in the trees"
                self._add(
                    Mismatch(
                        "file",
                        "null",
                        who,
                        "manifest.json",
                        field="verifier",
                        problem_id=stored.tree.problem.id,
                        node=node.index,
                    )
                )
                return

    def _check_shards(self) -> None:
        count = self._problems().get("count")
        if type(count) is not int:
            return
        expected = {f"part-{i:05d}" for i in range(-(-count // PROBLEMS_A_PART))}
        for folder, suffix in (("trees", "parquet"), ("labels", "jsonl")):
            self.checked += 1
            there = {part.stem for part in self._run.parts(folder, suffix)}
            for name in sorted(expected ^ there):
                sides = ("no such shard", f"{count} problems, which fill it")
                if name in there:
                    sides = ("a shard", f"{count} problems, which do not reach it")
                self._add(Mismatch("file", *sides, file=f"{folder}/{name}.{suffix}"))

    def _check_problems(self) -> None:
        """Hold the problems of the trees against the manifest; remember their ids."""
        seen: set[str] = set()

        def problems() -> Iterator[Problem]:
            for tree in self._run.trees():
                id = tree.problem.id
                if id in seen:
                    self._add(Mismatch("file", "a second tree", "one", "trees", problem_id=id))
                seen.add(id)
                self.ids.append(id)
                yield tree.problem

        digest = _digest(problems())
        count, failed = self._problems().get("count"), len(self._failed)
        found = len(self.ids) + failed
        if type(count) is int and found != count:
            without = f" and {failed} problems that failed" if failed else ""
            there = f"{len(self.ids)} trees{without}"
            self._manifest("problems.count", str(count), there)
        elif not failed:  # else some of the problems are nowhere in the run
            stored = self._problems().get("sha256")
            if stored != digest:
                self._manifest("problems.sha256", short_json(stored), f"{digest} of the trees")

    def _failed_problems(self) -> dict[int, dict[str, Any]]:
        """Return the failures of a finished run that stand for a whole problem, by its index."""
        failed: dict[int, dict[str, Any]] = {}
        if not (self._run.path / "failures.jsonl").is_file():
            return failed
        for line in self._run.lines("failures"):
            index = line.record.get("index")
            if "node" in line.record:
                continue
            if type(index) is not int or index < 0 or index in failed:
                self._add(
                    Mismatch(
                        "file",
                        short_json(line.record),
                        "no problem that can have failed so",
                        "failures.jsonl",
                        line.number,
                    )
                )
            else:
                failed[index] = line.record
        return failed

    def _problem_indices(self) -> Iterator[int]:
        index = 0
        while True:
            if index not in self._failed:
                yield index
            index += 1

    def _stored(self, name: str) -> Iterator[Line]:
        """Yield the lines of a finished run's file that trees make."""
        if not self._finished or not (self._run.path / f"{name}.jsonl").is_file():
            return
        for line in self._run.lines(name):
            if name != "failures" or "node" in line.record:
                yield line

    def _problems(self) -> dict[str, Any]:
        return self._run.manifest.get("problems") or {}

    def _manifest(self, field: str, stored: str, found: str) -> None:
        self._add(Mismatch("file", stored, found, "manifest.json", field=field))


class _Records:
    """Stored records held against made ones; the first that differs is told, the rest is not."""

    def __init__(self, run: RunReader, name: str, lines: Iterator[Line], add: Add) -> None:
        self._run = run
        self._file = f"{name}.jsonl"
        self._noun = {"conflicts": "conflict", "failures": "failure"}[name]
        self._lines = lines
        self._add = add
        self._differs = False

    def follow(self, made: Iterable[dict[str, Any]]) -> None:
        """Compare the next records."""
        for record in made:
            if self._differs:
                return
            line = next(self._lines, None)
            if line is None:
                there = (self._run.path / self._file).is_file() or not self._run.finished
                stored = f"no further {self._noun}" if there else "no such file"
                self._say(Mismatch("file", stored, short_json(record), self._file))
            else:
                place = {"file": file_in(self._run.path, line), "line": line.number}
                if differs := difference("file", line.record, record, **place):
                    self._say(differs)

    def end(self) -> None:
        """Complain of records behind the last one, and of a file that is gone."""
        line = None if self._differs else next(self._lines, None)
        if line is not None:
            stored, file = short_json(line.record), file_in(self._run.path, line)
            self._say(
                Mismatch("file", stored, f"no such {self._noun} in the trees", file, line.number)
            )
        gone = self._run.finished and not (self._run.path / self._file).is_file()
        if gone and not self._differs:
            self._say(Mismatch("file", "no such file", "a file of every finished run", self._file))

    def _say(self, mismatch: Mismatch) -> None:
        self._differs = True
        self._add(mismatch)


def _digest(problems: Iterable[Problem]) -> str:
    """Return the digest, or why there is none; looks at every problem in any case."""
    rest = iter(problems)
    try:
        return problems_digest(rest)
    except ConfigError as error:
        for _ in rest:
            pass
        return f"none ({error})"
