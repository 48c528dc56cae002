"""Rows of rollouts: one row a leaf, as trainers read them.

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

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treerl.advantage import Advantages, LeafAdvantages, NodeAdvantages, to_rows
from treerl.search.treepo_path import Decode
from treerl.search.treepo_summary import branch_weights
from treerl.tree import Tree
from treerl.treefile import replace_file

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["leaf_records", "rows_schema", "write_rows"]

GROUP_BYTES = 32 * 2**20
"""Of rows in memory before they are written: what a reader of one row group has to hold."""


def _counts_once(advantages: Advantages | None, name: str | None) -> bool:
    """Say whether a token counts once, or once for each leaf below it: as its value was made for.

    Values of nodes are for unique tokens; TreeRL's are made for rows.
    """
    return isinstance(advantages, NodeAdvantages) and name != "treerl"


def leaf_records(
    tree: Tree, advantages: Advantages | None, estimator: str | None, decode: Decode
) -> list[dict[str, Any]]:
    """Return a record a leaf, in the columns of the rows.

    Args:
        tree: Finished.
        advantages: Of this tree alone; None for records without.
        estimator: Name of what made them.
        decode: Ids to text.
    """
    once = _counts_once(advantages, estimator)
    leaves = tree.leaves()
    omega = branch_weights(tree)
    if advantages is None:
        no = np.zeros(len(leaves))
        rows = to_rows(tree, LeafAdvantages((no,), (no == 0,), ()))
    else:
        rows = to_rows(tree, advantages, weight="unique" if once else "leaf")
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


def rows_schema(with_advantages: bool) -> pa.Schema:
    """Return names and types of the columns."""
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


def write_rows(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write the rows of trees to one file by rename, a row group for many trees."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(part: Path) -> None:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            waiting: list[pa.Table] = []
            for table in tables:
                waiting.append(table)
                if sum(waits.nbytes for waits in waiting) >= GROUP_BYTES:
                    writer.write_table(pa.concat_tables(waiting))
                    waiting = []
            if waiting:
                writer.write_table(pa.concat_tables(waiting))

    replace_file(path, write)
