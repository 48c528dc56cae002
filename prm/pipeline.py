"""From problems to a run folder of process labels."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treerl import __version__
from treerl.config import to_jsonable
from treerl.engines.base import Engine
from treerl.errors import ConfigError, PromptTooLong
from treerl.ledger import Ledger
from treerl.prm.fuse import Fusion
from treerl.prm.label import label_tree
from treerl.problem import GIVEN, Problem
from treerl.protocols import JudgeStep, Reward, StepScorer
from treerl.search.growth import Growth, Judges, run, run_coroutine
from treerl.search.mcts import MCTS, MCTSConfig
from treerl.search.omega import OmegaPRM, OmegaPRMConfig
from treerl.search.prefix_mc import PrefixMC, PrefixMCConfig
from treerl.search.root_call import ROOT_CALL_ERROR, RootCall
from treerl.steps import STEP_ERROR
from treerl.steps_json import ObjectiveSteps
from treerl.store import ProblemResult, RunFolder
from treerl.tree import RunInfo, Tree

__all__ = ["Labeler", "SearchConfig", "summarise"]

SearchConfig = MCTSConfig | OmegaPRMConfig | PrefixMCConfig
"""How to search; its type chooses the algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labeler:
    """Grows a tree a problem, judges it and labels every step.

    Attributes:
        reward: Scores leaves against gold.
        verifier: Judges steps with tools; None labels from rollouts alone.
        scorer: Scores steps for a search that asks for it (``Sampling.score_steps``).
        search: How to search; the type of the configuration chooses the algorithm.
        fusion: How evidence becomes a label.
        seed: The run's seed.
        system: System prompt for problems without their own.
        template_options: Passed to the chat template.
        active: Problems that grow at the same time; no result depends on it.
        command: JSON values to keep in the manifest, e.g. the options of the command line.

    Example:
        >>> labeler = Labeler(reward=my_reward, verifier=my_verifier)  # doctest: +SKIP
        >>> labeler.run(problems, engine, out="runs/first")  # doctest: +SKIP
    """

    reward: Reward
    verifier: JudgeStep | None = None
    search: SearchConfig = field(default_factory=MCTSConfig)
    fusion: Fusion = field(default_factory=Fusion)
    seed: int = 0
    system: str | None = None
    template_options: dict[str, Any] | None = None
    active: int = 64
    command: dict[str, Any] | None = None
    scorer: StepScorer | None = None

    def __post_init__(self) -> None:
        if self.search.sampling.score_steps and self.scorer is None:
            raise ConfigError("Sampling.score_steps needs a scorer; give the Labeler one")
        judged = self.verifier is not None and self.search.sampling.verify_steps
        if self.fusion.rule == "consensus" and not judged:
            raise ConfigError(
                "the fusion rule 'consensus' compares rollouts with a judge and would drop every "
                "solution without one; give the Labeler a verifier and leave verify_steps on"
            )

    def run(
        self,
        problems: Sequence[Problem],
        engine: Engine,
        out: str | Path,
        *,
        on_result: Callable[[ProblemResult], None] | None = None,
    ) -> dict[str, Any]:
        """Label problems into a run folder, or go on with a run that was interrupted.

        Args:
            problems: With unique ids; the same ones when a run goes on.
            engine: The policy.
            out: The run folder.
            on_result: Called after each problem, once its result is safe on disk.

        Returns:
            The run's summary, as in summary.json.

        Raises:
            StoreError: The folder is locked, belongs to another run, or cannot be written.
            EngineDied: The engine is gone; call again to go on.
        """
        return run_coroutine(lambda: self.arun(problems, engine, out, on_result=on_result))

    async def arun(
        self,
        problems: Sequence[Problem],
        engine: Engine,
        out: str | Path,
        *,
        on_result: Callable[[ProblemResult], None] | None = None,
    ) -> dict[str, Any]:
        """:meth:`run` for callers with an event loop of their own."""
        _check_unique(problems)
        if isinstance(self.search, PrefixMCConfig):
            for problem in problems:
                _given_solutions(problem)
        judges = Judges(reward=self.reward, verifier=self.verifier, scorer=self.scorer)
        with closing(RunFolder(out, self.manifest(problems, engine))) as folder:
            growths = _Growths(self, problems, engine, folder, on_result)
            if not folder.finished:
                async for growth in run(growths, engine, judges, active=self.active):
                    growths.finish(growth.tree)
                right_above = self.search.right_above
                folder.finish(lambda results: summarise(results, right_above=right_above))
            return json.loads((folder.path / "summary.json").read_text())  # type: ignore[no-any-return]

    def manifest(self, problems: Sequence[Problem], engine: Engine) -> dict[str, Any]:
        """Return every parameter of the run; equal manifests mean equal runs."""
        return {
            "kind": "label",
            "treerl": __version__,
            "problems": {"count": len(problems), "sha256": _digest(problems)},
            "engine": to_jsonable(engine.capabilities.detail),
            "search": {"method": type(self.search).__name__, **to_jsonable(self.search)},
            "fusion": to_jsonable(self.fusion),
            "verifier": getattr(self.verifier, "name", None),
            "reward": getattr(self.reward, "name", None) or to_jsonable(self.reward),
            "seed": self.seed,
            "system": self.system,
            "template_options": to_jsonable(self.template_options),
            **({} if self.scorer is None else {"scorer": _name_of(self.scorer)}),
            **({} if self.command is None else {"command": to_jsonable(self.command)}),
        }

    def label(self, index: int, tree: Tree, volatile: dict[str, Any]) -> ProblemResult:
        """Label a finished tree."""
        labels = [label.to_json() for label in label_tree(tree, self.fusion)]
        return ProblemResult(
            index=index,
            tree=tree,
            labels=labels,
            conflicts=[label for label in labels if label["label_source"] == "conflict"],
            failures=list(_failures(index, tree)),
            volatile={**volatile, "cached_tokens": tree.ledger.cached},
        )


class _Growths:
    """The searches of the problems that are not done yet, made as the driver asks for them."""

    def __init__(
        self,
        labeler: Labeler,
        problems: Sequence[Problem],
        engine: Engine,
        folder: RunFolder,
        on_result: Callable[[ProblemResult], None] | None,
    ) -> None:
        self._labeler = labeler
        self._problems = problems
        self._engine = engine
        self._folder = folder
        self._on_result = on_result
        self._started: dict[str, tuple[int, float]] = {}  # problem id -> index, start time

    def __iter__(self) -> Iterator[Growth]:
        done = self._folder.done
        for index, problem in enumerate(self._problems):
            if index in done:
                continue
            try:
                growth = self._start(problem)
            except (PromptTooLong, UnicodeError) as error:
                failure = {"index": index, "problem_id": problem.id, "reason": str(error)}
                self._save(ProblemResult(index, None, failures=[failure]))
                continue
            self._started[problem.id] = index, time.time()
            yield growth

    def _start(self, problem: Problem) -> Growth:
        labeler, engine = self._labeler, self._engine
        search, seed = labeler.search, labeler.seed
        options: dict[str, Any] = {
            "system": labeler.system,
            "template_options": labeler.template_options,
            "max_context": engine.capabilities.max_context,
        }
        info = RunInfo(seed=seed, sampler=_sampler(search))

        def start(tree: Tree | None = None) -> Growth:
            growth = {**options, "run": info, "tree": tree}
            if isinstance(search, OmegaPRMConfig):
                return OmegaPRM(problem, engine.tokenizer, search, **growth)
            if isinstance(search, PrefixMCConfig):
                given = _given_solutions(problem)
                return PrefixMC(problem, engine.tokenizer, search, solutions=given, **growth)
            return MCTS(problem, engine.tokenizer, search, **growth)

        steps = search.sampling.steps
        if isinstance(steps, ObjectiveSteps) and steps.root_call:
            sampling = search.sampling
            return RootCall(problem, engine.tokenizer, sampling, start, run=info, **options)
        return start()

    def finish(self, tree: Tree) -> None:
        """Label a finished tree and save it."""
        index, start = self._started.pop(tree.problem.id)
        volatile = {"started": start, "seconds": time.time() - start}
        self._save(self._labeler.label(index, tree, volatile))

    def _save(self, result: ProblemResult) -> None:
        self._folder.add(result)
        if self._on_result is not None:
            self._on_result(result)


def _name_of(scorer: StepScorer) -> str:
    return str(getattr(scorer, "name", type(scorer).__qualname__))


def _sampler(search: SearchConfig) -> str:
    if isinstance(search, OmegaPRMConfig):
        return "omegaprm"
    return "prefix_mc" if isinstance(search, PrefixMCConfig) else "mcts"


def summarise(results: Iterable[ProblemResult], *, right_above: float = 0.5) -> dict[str, Any]:
    """Return a run's totals; everything in it is the same for equal runs.

    Args:
        results: Of the run's problems, by index.
        right_above: A reward above it is a right answer.
    """
    counts: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    ledger = Ledger()
    for result in results:
        counts["problems"] += 1
        counts["failures"] += len(result.failures)
        counts["conflicts"] += len(result.conflicts)
        for label in result.labels:
            name = {1: "right", 0: "wrong"}.get(label["label"], "unlabelled")
            labels[name] += 1
            if label["label"] is not None:
                sources[label["label_source"]] += 1
        if result.tree is not None:
            tree = result.tree
            ledger += tree.ledger
            counts["nodes"] += len(tree)
            leaves = tree.leaves()
            counts["leaves"] += len(leaves)
            for leaf in leaves:
                if leaf.reward is not None and leaf.kind != "given":
                    counts["rollouts"] += leaf.multiplicity
                    counts["right_rollouts"] += leaf.multiplicity * (leaf.reward > right_above)
    names = ("problems", "nodes", "leaves", "rollouts", "right_rollouts", "conflicts", "failures")
    return {
        **{name: counts[name] for name in names},
        "labels": {name: labels[name] for name in ("right", "wrong", "unlabelled")},
        "label_sources": dict(sorted(sources.items())),
        "ledger": ledger.to_json(),
    }


def _failures(index: int, tree: Tree) -> Iterator[dict[str, Any]]:
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


def _check_unique(problems: Sequence[Problem]) -> None:
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise ConfigError(f"two problems have the id '{problem.id}'; ids must be unique")
        seen.add(problem.id)


def _given_solutions(problem: Problem) -> list[list[str]] | None:
    """Return the solutions in a problem's metadata, each a list of steps; None without any.

    Raises:
        ConfigError: The field holds something else.
    """
    given = problem.metadata.get(GIVEN)
    if given is None:
        return None
    solutions = given if isinstance(given, list | tuple) else None
    if solutions is None or not all(
        isinstance(steps, list | tuple) and steps and all(isinstance(s, str) for s in steps)
        for steps in solutions
    ):
        raise ConfigError(
            f"metadata['{GIVEN}'] of problem '{problem.id}' must be a list of solutions, each a "
            "list of at least one step of text"
        )
    return [list(steps) for steps in solutions]


def _digest(problems: Iterable[Problem]) -> str:
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
