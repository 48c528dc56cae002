"""Trees as records and as parquet: a row a node, exact to the last bit.

One schema serves both forms: a JSON record (one tree, used by the journal of a run) and a parquet
file (any number of trees). Files are written beside their place and renamed, so half a file never
carries a final name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treerl.errors import StoreError
from treerl.ledger import Ledger
from treerl.problem import Problem
from treerl.tree import Node, RunInfo, Tree
from treerl.verdict import StepVerdict

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SCHEMA",
    "read_single_tree",
    "read_trees",
    "replace_file",
    "tree_from_record",
    "tree_to_record",
    "write_trees",
]

SCHEMA = "treerl.tree/1"

# Plain attributes of a node and their parquet types; parent, verdict and meta are converted apart.
_PLAIN = {
    "kind": "string",
    "token_ids": "list<int32>",
    "logprobs": "list<double>",
    "finish_reason": "string",
    "seed": "int64",
    "policy_version": "string",
    "text": "string",
    "multiplicity": "int32",
    "draws": "int32",
    "visits": "int32",
    "own": "int32",
    "value_sum": "double",
    "prior": "double",
    "correct": "int32",
    "total": "int32",
    "reward": "double",
    "error": "string",
}


def tree_to_record(tree: Tree) -> dict[str, Any]:
    """Return a JSON object that restores the tree exactly."""
    columns: dict[str, list[Any]] = {
        name: [getattr(node, name) for node in tree.nodes] for name in _PLAIN
    }
    columns["parent"] = [-1 if n.parent is None else n.parent.index for n in tree.nodes]
    columns["verdict"] = [n.verdict.to_json() if n.verdict else None for n in tree.nodes]
    columns["meta"] = [n.meta for n in tree.nodes]
    return {"header": _header(tree), "nodes": columns}


def tree_from_record(record: dict[str, Any]) -> Tree:
    """Restore a tree from :func:`tree_to_record`.

    Raises:
        StoreError: The record has another schema or is damaged.
    """
    header = record["header"]
    if header.get("schema") != SCHEMA:
        raise StoreError(
            f"the tree has schema {header.get('schema')!r}, this treerl reads {SCHEMA!r}; "
            "read it with the version that wrote it"
        )
    problem = header["problem"]
    columns = record["nodes"]
    tree = Tree(
        Problem(
            id=problem["id"],
            messages=tuple(problem["messages"]),
            answer=problem["answer"],
            metadata=problem["metadata"],
        ),
        tuple(columns["token_ids"][0]),
        RunInfo(**header["run"]),
        Ledger.from_json(header["ledger"]),
    )
    for i, parent in enumerate(columns["parent"]):
        if i == 0:
            node = tree.root
        elif 0 <= parent < i:
            up = tree.nodes[parent]
            node = Node(i, up, ())
            up.children.append(node)
            tree.nodes.append(node)
        else:
            raise StoreError(f"node {i} of problem '{tree.problem.id}' has parent {parent}")
        for name in _PLAIN:
            setattr(node, name, columns[name][i])
        node.token_ids = tuple(node.token_ids)
        node.logprobs = tuple(node.logprobs)
        verdict = columns["verdict"][i]
        node.verdict = StepVerdict.from_json(verdict) if verdict is not None else None
        node.meta = columns["meta"][i]
    return tree


def write_trees(trees: Iterable[Tree], path: Path) -> None:
    """Write trees to one parquet file, by rename."""
    import pyarrow.parquet as pq

    def write(part: Path) -> None:
        with pq.ParquetWriter(part, _schema(), compression="zstd") as writer:
            for tree in trees:
                writer.write_table(_table(tree))

    replace_file(path, write)


def read_trees(path: Path) -> Iterator[Tree]:
    """Yield the trees of a parquet file, one at a time.

    Raises:
        StoreError: The file is missing, damaged, or not a tree file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            if "header" not in file.schema_arrow.names:
                raise StoreError(f"{path} is a parquet file, but not one of trees")
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                yield tree_from_record(_record(table))
    except FileNotFoundError as error:
        raise StoreError(f"{path} does not exist") from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} cannot be read as trees: {error}") from error


def read_single_tree(path: Path) -> Tree:
    """Read a file that holds exactly one tree."""
    trees = list(read_trees(path))
    if len(trees) != 1:
        raise StoreError(f"{path} holds {len(trees)} trees; use treerl.treefile.read_trees")
    return trees[0]


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a file beside ``path``, flush it to disk and rename it into place."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _header(tree: Tree) -> dict[str, Any]:
    problem = tree.problem
    return {
        "schema": SCHEMA,
        "problem": {
            "id": problem.id,
            "messages": [dict(message) for message in problem.messages],
            "answer": problem.answer,
            "metadata": dict(problem.metadata),
        },
        "run": asdict(tree.run),
        "ledger": tree.ledger.to_json(),
    }


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "list<int32>": pa.list_(pa.int32()),
        "list<double>": pa.list_(pa.float64()),
    }
    fields = [("problem_id", pa.string()), ("node", pa.int32()), ("parent", pa.int32())]
    fields += [(name, types[kind]) for name, kind in _PLAIN.items()]
    # JSON text; the header (problem, run, ledger) stands in the root's row only.
    fields += [(name, pa.string()) for name in ("verdict", "meta", "header")]
    return pa.schema(fields)


def _table(tree: Tree) -> pa.Table:
    import pyarrow as pa

    record = tree_to_record(tree)
    columns: dict[str, Sequence[Any]] = dict(record["nodes"])
    n = len(tree)
    columns["problem_id"] = [tree.problem.id] * n
    columns["node"] = range(n)
    columns["verdict"] = [_dump(v) for v in columns["verdict"]]
    columns["meta"] = [_dump(m) for m in columns["meta"]]
    columns["header"] = [_dump(record["header"])] + [None] * (n - 1)
    for name in ("text", "error"):
        # A lone surrogate has no UTF-8 form; ids, which are what counts, are not touched.
        columns[name] = [
            value if value is None else value.encode("utf-8", "replace").decode()
            for value in columns[name]
        ]
    return pa.table({name: columns[name] for name in _schema().names}, schema=_schema())


def _record(table: pa.Table) -> dict[str, Any]:
    columns = table.to_pydict()
    for name in ("verdict", "meta"):
        columns[name] = [None if text is None else json.loads(text) for text in columns[name]]
    return {"header": json.loads(columns["header"][0]), "nodes": columns}


def _dump(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True)
