"""What every run over problems does: a search a problem, each result safe before the next counts.

Labelling and rollouts differ in how they search, in what they make of a finished tree and in their
totals. The rest is the same: unique ids, a manifest, going on where an earlier process stopped, a
record of every failure. That rest is here.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treerl.config import to_jsonable
from treerl.engines.base import Engine
from treerl.errors import ConfigError, PromptTooLong
from treerl.problem import Problem
from treerl.protocols import Reward
from treerl.search.growth import Growth, Judges, run
from treerl.search.root_call import ROOT_CALL_ERROR
from treerl.steps import STEP_ERROR
from treerl.store import ProblemResult, RunFolder
from treerl.tree import Tree

__all__ = ["RunPlan", "check_unique", "name_of", "problems_digest", "reward_name", "tree_failures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run over problems, apart from its engine and its folder.

    Attributes:
        manifest: Every parameter; equal manifests mean equal runs.
        judges: Answer the searches' judge requests.
        start: Makes the search of a problem.
        result: Makes a finished tree's result of its index, the tree, and times.
        summarise: Makes summary.json of the folder and all results by index. It may write files
            into the folder: summary.json comes after them, and says that they are whole.
        active: Problems that grow at the same time.
        on_result: Called after each problem, once its result is safe on disk.
    """

    manifest: dict[str, Any]
    judges: Judges
    start: Callable[[Problem], Growth]
    result: Callable[[int, Tree, dict[str, Any]], ProblemResult]
    summarise: Callable[[RunFolder, Iterable[ProblemResult]], dict[str, Any]]
    active: int = 64
    on_result: Callable[[ProblemResult], None] | None = None

    async def fill(
        self, problems: Sequence[Problem], engine: Engine, out: str | Path
    ) -> dict[str, Any]:
        """Fill a run folder, or go on with one; return its summary.

        Raises:
            StoreError: The folder is locked, belongs to another run, or cannot be written.
            EngineDied: The engine is gone; call again to go on.
        """
        with closing(RunFolder(out, self.manifest)) as folder:
            growths = _Growths(self, problems, folder)
            if not folder.finished:
                async for growth in run(growths, engine, self.judges, active=self.active):
                    growths.finish(growth.tree)
                folder.finish(lambda results: self.summarise(folder, results))
            return json.loads((folder.path / "summary.json").read_text())  # type: ignore[no-any-return]


class _Growths:
    """The searches of the problems that are not done yet, made as the driver asks for them."""

    def __init__(self, plan: RunPlan, problems: Sequence[Problem], folder: RunFolder) -> None:
        self._plan = plan
        self._problems = problems
        self._folder = folder
        self._started: dict[str, tuple[int, float]] = {}  # problem id -> index, start time

    def __iter__(self) -> Iterator[Growth]:
        done = self._folder.done
        for index, problem in enumerate(self._problems):
            if index in done:
                continue
            try:
                growth = self._plan.start(problem)
            except (PromptTooLong, UnicodeError) as error:
                failure = {"index": index, "problem_id": problem.id, "reason": str(error)}
                self._save(ProblemResult(index, None, failures=[failure]))
                continue
            self._started[problem.id] = index, time.time()
            yield growth

    def finish(self, tree: Tree) -> None:
        """Save what a finished tree gives."""
        index, start = self._started.pop(tree.problem.id)
        volatile = {"started": start, "seconds": time.time() - start}
        self._save(self._plan.result(index, tree, volatile))

    def _save(self, result: ProblemResult) -> None:
        self._folder.add(result)
        if self._plan.on_result is not None:
            self._plan.on_result(result)


def tree_failures(index: int, tree: Tree) -> Iterator[dict[str, Any]]:
    """Yield a record for each failed request and judge of a tree.

    Args:
        index: Of the problem in the run.
        tree: Finished.
    """
    for node in tree.nodes:
        meta = node.meta or {}
        noted = (meta.get(key) for key in ("judge_error", STEP_ERROR, ROOT_CALL_ERROR))
        for reason in (node.error, *noted):
            if reason is not None:
                yield {
                    "index": index,
                    "problem_id": tree.problem.id,
                    "node": node.index,
                    "reason": reason,
                }


def check_unique(problems: Sequence[Problem]) -> None:
    """Refuse problems of equal ids.

    Raises:
        ConfigError: Two problems share an id.
    """
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise ConfigError(f"two problems have the id '{problem.id}'; ids must be unique")
        seen.add(problem.id)


def problems_digest(problems: Iterable[Problem]) -> str:
    """Return the SHA-256 of the problems: ids, messages, answers and metadata, in order.

    Raises:
        ConfigError: A problem's metadata has no JSON form.
    """
    digest = hashlib.sha256()
    for problem in problems:
        row = [problem.id, [dict(m) for m in problem.messages], problem.answer, problem.metadata]
        try:
            digest.update(json.dumps(row, allow_nan=False, sort_keys=True).encode() + b"\n")
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the metadata of problem '{problem.id}' has no JSON form: {error}"
            ) from error
    return digest.hexdigest()


def name_of(judge: Any) -> str:
    """Return what the manifest calls a judge: its ``name``, or its class."""
    return str(getattr(judge, "name", type(judge).__qualname__))


def reward_name(reward: Reward) -> Any:
    """Return what the manifest calls a reward: its ``name``, or its parameters or place."""
    name = getattr(reward, "name", None)
    return name if isinstance(name, str) and name else to_jsonable(reward)
