"""From problems to a run folder of process labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treerl import __version__
from treerl.config import to_jsonable
from treerl.engines.base import Engine
from treerl.errors import ConfigError, StoreError
from treerl.ledger import Ledger
from treerl.prm.fuse import Fusion
from treerl.prm.label import label_tree
from treerl.problem import GIVEN, Problem
from treerl.protocols import JudgeStep, Reward, StepScorer
from treerl.search.growth import Growth, Judges, run_coroutine
from treerl.search.mcts import MCTS, MCTSConfig
from treerl.search.omega import OmegaPRM, OmegaPRMConfig
from treerl.search.prefix_mc import PrefixMC, PrefixMCConfig
from treerl.search.root_call import RootCall
from treerl.search.runs import (
    RunPlan,
    check_unique,
    name_of,
    problems_digest,
    reward_name,
    tree_failures,
)
from treerl.steps_json import ObjectiveSteps
from treerl.store import ProblemResult
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
        check_unique(problems)
        if isinstance(self.search, PrefixMCConfig):
            for problem in problems:
                _given_solutions(problem)
        right_above = self.search.right_above
        plan = RunPlan(
            manifest=self.manifest(problems, engine),
            judges=Judges(reward=self.reward, verifier=self.verifier, scorer=self.scorer),
            start=lambda problem: self._start(problem, engine),
            result=self.label,
            summarise=lambda _, results: summarise(results, right_above=right_above),
            active=self.active,
            on_result=on_result,
        )
        return await plan.fill(problems, engine, out)

    def manifest(self, problems: Sequence[Problem], engine: Engine) -> dict[str, Any]:
        """Return every parameter of the run; equal manifests mean equal runs."""
        return {
            "kind": "label",
            "treerl": __version__,
            "problems": {"count": len(problems), "sha256": problems_digest(problems)},
            "engine": to_jsonable(engine.capabilities.detail),
            "search": {"method": type(self.search).__name__, **to_jsonable(self.search)},
            "fusion": to_jsonable(self.fusion),
            "verifier": getattr(self.verifier, "name", None),
            "reward": reward_name(self.reward),
            "seed": self.seed,
            "system": self.system,
            "template_options": to_jsonable(self.template_options),
            **({} if self.scorer is None else {"scorer": name_of(self.scorer)}),
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
            failures=list(tree_failures(index, tree)),
            volatile={**volatile, "cached_tokens": tree.ledger.cached},
        )

    def _start(self, problem: Problem, engine: Engine) -> Growth:
        search = self.search
        options: dict[str, Any] = {
            "system": self.system,
            "template_options": self.template_options,
            "max_context": engine.capabilities.max_context,
        }
        info = RunInfo(seed=self.seed, sampler=_sampler(search))

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


def _sampler(search: SearchConfig) -> str:
    if isinstance(search, OmegaPRMConfig):
        return "omegaprm"
    return "prefix_mc" if isinstance(search, PrefixMCConfig) else "mcts"


_NAMES: dict[int | None, str] = {1: "right", 0: "wrong"}


def _of_label(index: int, label: dict[str, Any]) -> tuple[int | None, str]:
    """Return a label and its source; a journal may hold what somebody has changed."""
    made, source = label.get("label"), label.get("label_source")
    if not isinstance(made, int | None) or not isinstance(source, str):
        raise StoreError(
            f"the journal holds a damaged label of problem {index}; remove the problem's line, and "
            "the problem is done again"
        )
    return made, source


def summarise(results: Iterable[ProblemResult], *, right_above: float = 0.5) -> dict[str, Any]:
    """Return a run's totals; everything in it is the same for equal runs.

    Args:
        results: Of the run's problems, by index.
        right_above: A reward above it is a right answer.

    Raises:
        StoreError: A label is damaged.
    """
    counts: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    ledger = Ledger()
    for result in results:
        counts["problems"] += 1
        counts["failures"] += len(result.failures)
        counts["conflicts"] += len(result.conflicts)
        for made, source in (_of_label(result.index, label) for label in result.labels):
            labels[_NAMES.get(made, "unlabelled")] += 1
            if made is not None:
                sources[source] += 1
        if result.tree is not None:
            tree = result.tree
            ledger += tree.ledger
            counts["nodes"] += len(tree)
            counts["leaves"] += len(tree.leaves())
            right, scored = tree.samples(right_above)
            counts["rollouts"] += scored
            counts["right_rollouts"] += right
    names = ("problems", "nodes", "leaves", "rollouts", "right_rollouts", "conflicts", "failures")
    return {
        **{name: counts[name] for name in names},
        "labels": {name: labels[name] for name in ("right", "wrong", "unlabelled")},
        "label_sources": dict(sorted(sources.items())),
        "ledger": ledger.to_json(),
    }


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
