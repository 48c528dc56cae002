"""From problems to a run folder of rollouts: trees, and a row a leaf for trainers.

``rows/part-*.parquet`` hold, in the order of the problems and the nodes of their trees:

=============== ============= ====================================================================
column          type          what it holds
=============== ============= ====================================================================
problem_id      string        the problem
group           string        what baselines are taken over: the problem
leaf            int32         index of the leaf's node in its tree
multiplicity    int32         samples that the row stands for: equal ones are one row
late            int32         of those, samples that a fallback started; they carry no weight
omega           float64       branch weight ω; a tree's sum to 1 unless requests failed
reward          float64       null where unscored
finish_reason   string        why the path ended; "aborted" paths have no reward
text            string        the completion
prompt_ids      list<int32>   ids of the prompt
completion_ids  list<int32>   ids as generated, T of them
nodes           list<int32>   (T,) node that each token stands in: equal nodes, shared tokens
logprobs        list<float64> (T,) behaviour log-probs, nats; null where unknown
loss_mask       list<bool>    (T,) tokens to train; with an estimator
advantages      list<float64> (T,) 0 where the mask is false; with an estimator
weights         list<float64> (T,) loss weight of the token; with an estimator
=============== ============= ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treerl import __version__
from treerl.advantage import (
    Advantages,
    Estimator,
    LeafAdvantages,
    NodeAdvantages,
    estimator,
    to_rows,
)
from treerl.arrays import FloatArray, TreeArrays
from treerl.config import to_jsonable
from treerl.engines.base import Engine
from treerl.errors import ConfigError
from treerl.problem import Problem
from treerl.protocols import JudgeStep, Reward, StepScorer
from treerl.search.growth import Judges, run_coroutine
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
from treerl.search.treepo_summary import branch_weights, sibling_shares
from treerl.store import PROBLEMS_A_PART, ProblemResult, RunFolder
from treerl.tree import RunInfo, Tree
from treerl.treefile import replace_file

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
            result=self._result,
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

    def _result(self, index: int, tree: Tree, volatile: dict[str, Any]) -> ProblemResult:
        chosen = self.estimator()
        if chosen is not None:  # what it cannot read is said at the first tree, not at the end
            _estimate(chosen, [tree.arrays()], [sibling_shares(tree)])
        return ProblemResult(
            index=index,
            tree=tree,
            failures=list(tree_failures(index, tree)),
            volatile={**volatile, "cached_tokens": tree.ledger.cached},
        )

    def _seal(
        self, folder: RunFolder, results: Iterable[ProblemResult], decode: Decode
    ) -> dict[str, Any]:
        """Write the rows and return the totals."""
        chosen, totals = self.estimator(), RolloutTotals(right_above=self.right_above)
        whole = _whitened(chosen, folder) if chosen is not None and chosen.whiten else None
        schema = _schema(chosen is not None)

        def tables(those: Iterable[ProblemResult]) -> Iterator[pa.Table]:
            import pyarrow as pa

            for result in those:
                records: list[dict[str, Any]] = []
                if result.tree is not None:
                    own = None if chosen is None else _advantages(chosen, result.tree, whole)
                    records = _records(result.tree, own, decode)
                totals.add(result, {record["leaf"]: record["text"] for record in records})
                if records:
                    yield pa.Table.from_pylist(records, schema=schema)

        for part, those in groupby(results, key=lambda result: result.index // PROBLEMS_A_PART):
            _write_tables(folder.path / "rows" / f"part-{part:05d}.parquet", schema, tables(those))
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


def _records(tree: Tree, advantages: Advantages | None, decode: Decode) -> list[dict[str, Any]]:
    """Return a record a leaf, in the columns of the rows."""
    leaves = tree.leaves()
    omega = branch_weights(tree)
    if advantages is None:
        no = np.zeros(len(leaves))
        rows = to_rows(tree, LeafAdvantages((no,), (no == 0,), ()))
    else:
        # A token counts once for each leaf below it, or once: as the values were made for.
        by_node = isinstance(advantages, NodeAdvantages)
        rows = to_rows(tree, advantages, weight="unique" if by_node else "leaf")
    records = []
    for leaf, row in zip(leaves, rows, strict=True):
        plain = row.to_record()
        text = decode(tuple(plain["token_ids"]))
        record = {
            "problem_id": tree.problem.id,
            "group": row.group,
            "leaf": leaf.index,
            "multiplicity": leaf.multiplicity,
            "late": (leaf.meta or {}).get("late", 0),
            "omega": float(omega[leaf.index]),
            "reward": plain["reward"],
            "finish_reason": leaf.finish_reason,
            # A lone surrogate has no UTF-8 form; ids, which are what counts, are not touched.
            "text": text.encode("utf-8", "replace").decode(),
            "completion_ids": plain["token_ids"],
        }
        for name in ("prompt_ids", "nodes", "logprobs"):
            record[name] = plain[name]
        if advantages is not None:
            for name in ("loss_mask", "advantages", "weights"):
                record[name] = plain[name]
        records.append(record)
    return records


def _schema(with_advantages: bool) -> pa.Schema:
    import pyarrow as pa

    ids, numbers = pa.list_(pa.int32()), pa.list_(pa.float64())
    columns = {
        "problem_id": pa.string(),
        "group": pa.string(),
        "leaf": pa.int32(),
        "multiplicity": pa.int32(),
        "late": pa.int32(),
        "omega": pa.float64(),
        "reward": pa.float64(),
        "finish_reason": pa.string(),
        "text": pa.string(),
        "prompt_ids": ids,
        "completion_ids": ids,
        "nodes": ids,
        "logprobs": numbers,
    }
    if with_advantages:
        columns |= {"loss_mask": pa.list_(pa.bool_()), "advantages": numbers, "weights": numbers}
    return pa.schema(list(columns.items()))


def _write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    import pyarrow.parquet as pq

    def write(part: Path) -> None:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)

    replace_file(path, write)


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
