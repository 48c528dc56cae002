"""From problems to a run folder of rollouts: trees, and a row a leaf for trainers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treerl import __version__
from treerl.advantage import Advantages, Estimator, estimator
from treerl.arrays import FloatArray, TreeArrays
from treerl.config import to_jsonable
from treerl.engines.base import Engine, Tokenizer
from treerl.errors import ConfigError
from treerl.problem import Problem
from treerl.protocols import JudgeStep, Reward, StepScorer
from treerl.search.growth import Judges, run_coroutine
from treerl.search.rollout_rows import leaf_records, rows_schema, write_rows
from treerl.search.rollout_totals import RolloutTotals
from treerl.search.runs import (
    RunPlan,
    check_unique,
    name_of,
    problems_digest,
    reward_name,
    tree_failures,
)
from treerl.search.treepo import TreePO
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_path import Decode
from treerl.search.treepo_presets import preset
from treerl.search.treepo_summary import segment_texts, sibling_shares
from treerl.store import PROBLEMS_A_PART, ProblemResult, RunFolder
from treerl.tree import Node, RunInfo, Tree

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rollouts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """Grows a segment tree a problem, scores its leaves and writes training rows.

    Attributes:
        reward: Scores leaves.
        search: How trees grow.
        advantage: An estimator's name, an estimator with options of its own, or None for rows
            without advantages. What whitens does so over all trees of the run; all others look at
            one problem at a time.
        right_above: A reward above it is a right answer.
        verifier, scorer: Asked by a gate of the search, if it has one.
        seed: The run's seed.
        system: System prompt for problems without their own.
        template_options: Passed to the chat template.
        active: Problems that grow at the same time; no result depends on it.
        command: JSON values to keep in the manifest, e.g. the options of the command line.

    Raises:
        ConfigError: There is no such estimator, or the search's gate has nobody to ask.

    Example:
        >>> rollouts = Rollouts(reward=my_reward, advantage="treepo")  # doctest: +SKIP
        >>> rollouts.run(problems, engine, out="runs/first")  # doctest: +SKIP
    """

    reward: Reward
    search: TreePOConfig = field(default_factory=lambda: preset("treerl"))
    advantage: str | Estimator | None = "omega"
    right_above: float = 0.5
    verifier: JudgeStep | None = None
    scorer: StepScorer | None = None
    seed: int = 0
    system: str | None = None
    template_options: dict[str, Any] | None = None
    active: int = 64
    command: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.estimator()
        gate = self.search.gate
        if gate is not None and getattr(self, gate.role) is None:
            raise ConfigError(f"the search's gate asks a {gate.role}; give Rollouts one")

    def estimator(self) -> Estimator | None:
        """Return the estimator of the rows' advantages."""
        if not isinstance(self.advantage, str):
            return self.advantage
        try:
            return estimator(self.advantage)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def run(
        self,
        problems: Sequence[Problem],
        engine: Engine,
        out: str | Path,
        *,
        on_result: Callable[[ProblemResult], None] | None = None,
    ) -> dict[str, Any]:
        """Grow trees into a run folder, or go on with a run that was interrupted.

        Args:
            problems: With unique ids; the same ones when a run goes on.
            engine: The policy.
            out: The run folder.
            on_result: Called after each problem, once its result is safe on disk.

        Returns:
            The run's summary, as in summary.json.

        Raises:
            ConfigError: The estimator cannot read these trees.
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
        decode = engine.tokenizer.decode
        plan = RunPlan(
            manifest=self.manifest(problems, engine),
            judges=Judges(reward=self.reward, verifier=self.verifier, scorer=self.scorer),
            start=lambda problem: self._start(problem, engine),
            result=lambda index, tree, times: self._result(index, tree, times, engine.tokenizer),
            summarise=lambda folder, results: self._seal(folder, results, decode),
            active=self.active,
            on_result=on_result,
        )
        return await plan.fill(problems, engine, out)

    def manifest(self, problems: Sequence[Problem], engine: Engine) -> dict[str, Any]:
        """Return every parameter of the run; equal manifests mean equal runs."""
        chosen = self.estimator()
        return {
            "kind": "rollout",
            "treerl": __version__,
            "problems": {"count": len(problems), "sha256": problems_digest(problems)},
            "engine": to_jsonable(engine.capabilities.detail),
            "search": _described(self.search),
            "advantage": None if chosen is None else to_jsonable(chosen),
            "reward": reward_name(self.reward),
            "right_above": self.right_above,
            "verifier": None if self.verifier is None else name_of(self.verifier),
            "scorer": None if self.scorer is None else name_of(self.scorer),
            "seed": self.seed,
            "system": self.system,
            "template_options": to_jsonable(self.template_options),
            **({} if self.command is None else {"command": to_jsonable(self.command)}),
        }

    def _start(self, problem: Problem, engine: Engine) -> TreePO:
        return TreePO(
            problem,
            engine.tokenizer,
            self.search,
            run=RunInfo(seed=self.seed, sampler="treepo"),
            system=self.system,
            template_options=self.template_options,
            max_context=engine.capabilities.max_context,
            eos_ids=engine.eos_ids,
        )

    def _result(
        self, index: int, tree: Tree, volatile: dict[str, Any], tokenizer: Tokenizer
    ) -> ProblemResult:
        chosen = self.estimator()
        if chosen is not None:  # what it cannot read is said at the first tree, not at the end
            _estimate(chosen, [tree.arrays()], [sibling_shares(tree)])
        self._annotate(tree, tokenizer)
        return ProblemResult(
            index=index,
            tree=tree,
            failures=list(tree_failures(index, tree)),
            volatile={**volatile, "cached_tokens": tree.ledger.cached},
        )

    def _annotate(self, tree: Tree, tokenizer: Tokenizer) -> None:
        """Give nodes text and counts, for those who look at the tree without its model."""
        for node, text in zip(tree.nodes[1:], segment_texts(tree, tokenizer)[1:], strict=True):
            node.text = text
        for leaf in tree.leaves():
            node_above: Node | None = leaf if leaf.reward is not None else None
            while node_above is not None:
                node_above.total += leaf.multiplicity
                node_above.correct += leaf.multiplicity * ((leaf.reward or 0.0) > self.right_above)
                node_above = node_above.parent

    def _seal(
        self, folder: RunFolder, results: Iterable[ProblemResult], decode: Decode
    ) -> dict[str, Any]:
        """Write the rows and return the totals."""
        chosen, totals = self.estimator(), RolloutTotals(right_above=self.right_above)
        whole = _whitened(chosen, folder) if chosen is not None and chosen.whiten else None
        schema = rows_schema(chosen is not None)

        def tables(those: Iterable[ProblemResult]) -> Iterator[pa.Table]:
            import pyarrow as pa

            for result in those:
                records: list[dict[str, Any]] = []
                if result.tree is not None:
                    own = None if chosen is None else _advantages(chosen, result.tree, whole)
                    name = None if chosen is None else chosen.name
                    records = leaf_records(result.tree, own, name, decode)
                totals.add(result, {record["leaf"]: record["text"] for record in records})
                if records:
                    yield pa.Table.from_pylist(records, schema=schema)

        for part, those in groupby(results, key=lambda result: result.index // PROBLEMS_A_PART):
            write_rows(folder.path / "rows" / f"part-{part:05d}.parquet", schema, tables(those))
        return totals.to_json()


def _advantages(chosen: Estimator, tree: Tree, whole: Iterator[Advantages] | None) -> Advantages:
    """Return a tree's advantages: the next of the whole run's, or its own."""
    if whole is not None:
        return next(whole)
    return _estimate(chosen, [tree.arrays()], [sibling_shares(tree)])


def _whitened(chosen: Estimator, folder: RunFolder) -> Iterator[Advantages]:
    """Yield the advantages of each tree, estimated and whitened over the whole run."""
    arrays: list[TreeArrays] = []
    shares: list[FloatArray] = []
    for result in folder.results():
        if result.tree is not None:
            arrays.append(result.tree.arrays())
            shares.append(sibling_shares(result.tree))
    if not arrays:
        return
    estimated = _estimate(chosen, arrays, shares)
    for i in range(len(arrays)):
        own: dict[str, Any] = {}
        for name in ("values", "mask", "leaf_mask", "first_token"):
            values = getattr(estimated, name, None)
            if values is not None:
                own[name] = values[i : i + 1]
        yield replace(estimated, **own)


def _estimate(
    chosen: Estimator, trees: Sequence[TreeArrays], shares: Sequence[FloatArray]
) -> Advantages:
    try:
        return chosen(trees, shares)
    except ValueError as error:
        raise ConfigError(f"the estimator '{chosen.name}' cannot read these trees: {error}") from (
            error
        )


def _described(value: Any) -> Any:
    """Return a configuration as JSON values that name their classes.

    Policies of different classes may have equal fields; they are different runs all the same.
    """
    if is_dataclass(value) and not isinstance(value, type):
        inner: Mapping[str, Any] = {
            f.name: _described(getattr(value, f.name)) for f in fields(value)
        }
        return {"kind": type(value).__name__, **inner}
    return to_jsonable(value)
