"""The trees that go into a page: which ones, with which labels, and how many stay outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treerl.advantage.registry import Estimator, estimator
from treerl.errors import StoreError
from treerl.prm.formats.paths import policy_name, trees_with_labels
from treerl.prm.label import StepLabel
from treerl.store import RunReader
from treerl.tree import Tree
from treerl.treefile import read_trees
from treerl.viewer.records import node_advantages, tree_record

__all__ = ["NODES", "TREES", "PageTrees", "gather"]

TREES = 20
"""Trees in a page where nothing else is asked for."""

NODES = 50_000
"""No further tree goes into a page that would then hold more nodes; the first one always does."""

Labelled = tuple[Tree, Mapping[int, StepLabel] | None]


@dataclass(frozen=True, slots=True)
class PageTrees:
    """What a page shows.

    Attributes:
        source: Where the trees were read, for the page's heading.
        trees: JSON records, each with its ``number`` in the source.
        more: The source holds trees that are not in the page.
        held: Trees in the source; None where they were not counted.
        run: What is said of the run: kind, model, method, totals; empty for a single file.
    """

    source: str
    trees: tuple[dict[str, Any], ...]
    more: bool
    held: int | None
    run: dict[str, Any]

    @property
    def nodes(self) -> int:
        """Nodes in the page, roots included."""
        return sum(len(tree["nodes"]) for tree in self.trees)

    def to_json(self) -> dict[str, Any]:
        """Return the object that the page reads."""
        return {
            "source": self.source,
            "trees": list(self.trees),
            "more": self.more,
            "held": self.held,
            "run": self.run,
        }


def gather(
    source: str | Path,
    *,
    problem: str | None = None,
    index: int | None = None,
    limit: int = TREES,
    advantage: Estimator | None = None,
) -> PageTrees:
    """Read the trees of a run folder or a tree file.

    Args:
        source: A run folder, finished or still growing, or one file of trees.
        problem: Take the trees of this problem only.
        index: Take the tree with this number only, from 0.
        limit: Take so many trees at most.
        advantage: Add what this estimator gives each segment; by default that of a rollout run.

    Raises:
        StoreError: There is nothing to read, or no such tree.
    """
    path = Path(source)
    run = None if path.is_file() else RunReader(path)
    manifest = {} if run is None else run.manifest
    advantage = advantage or _own_estimator(manifest)
    right_above = _right_above(manifest)
    taken: list[dict[str, Any]] = []
    nodes = seen = 0
    more = False
    for number, (tree, labels) in enumerate(_labelled(path, run)):
        seen = number + 1
        if (problem is not None and tree.problem.id != problem) or index not in (None, number):
            more = True
            continue
        if len(taken) == limit or (taken and nodes + len(tree) > NODES):
            more = True
            break
        estimate = None if advantage is None else node_advantages(tree, advantage)
        record = tree_record(tree, labels, estimate, right_above=right_above)
        taken.append({"number": number, **record})
        nodes += len(tree)
        if index is not None:
            more = True
            break
    if not taken:
        raise StoreError(_nothing(path, seen, problem, index))
    held = _held(run)
    if held is not None:
        more = held > len(taken)
    about = _about(run)
    if advantage is not None:
        about["advantage"] = advantage.name
    return PageTrees(path.name or str(path), tuple(taken), more, held, about)


def _labelled(path: Path, run: RunReader | None) -> Iterator[Labelled]:
    if run is None:
        yield from ((tree, None) for tree in read_trees(path))
    elif run.manifest.get("kind") != "label":
        yield from ((tree, None) for tree in run.trees())
    else:
        for tree, labels in trees_with_labels(run):
            yield tree, {label.node: label for label in labels}


def _own_estimator(manifest: Mapping[str, Any]) -> Estimator | None:
    """Return the estimator of a rollout run, where one tree alone gives what it gave the run."""
    own = manifest.get("advantage")
    if not isinstance(own, Mapping) or own.get("whiten"):
        return None
    try:
        return estimator(own["name"], whiten=False, **own["options"])
    except (KeyError, TypeError, ValueError):
        return None  # one of another version: the page does without


def _right_above(manifest: Mapping[str, Any]) -> float:
    search = manifest.get("search")
    inner = search.get("right_above") if isinstance(search, Mapping) else None
    found = manifest.get("right_above", inner)
    return 0.5 if found is None else float(found)


def _nothing(path: Path, seen: int, problem: str | None, index: int | None) -> str:
    if not seen:
        return f"{path} holds no tree yet"
    if problem is not None:
        return f"{path} has no tree of a problem '{problem}'"
    return f"{path} holds {seen} trees, numbered from 0; there is no number {index}"


def _held(run: RunReader | None) -> int | None:
    """Return how many trees a finished run holds, None where that cannot be told yet."""
    if run is None or not run.finished:
        return None
    import pyarrow.parquet as pq

    count = 0
    for part in (run.path / "trees").glob("part-*.parquet"):
        with pq.ParquetFile(part) as file:  # a row group a tree
            count += int(file.num_row_groups)
    return count


def _about(run: RunReader | None) -> dict[str, Any]:
    if run is None:
        return {}
    manifest = run.manifest
    search = manifest.get("search")
    about: dict[str, Any] = {
        "kind": manifest.get("kind"),
        "finished": run.finished,
        "model": policy_name(run),
        "method": search.get("method", search.get("kind")) if isinstance(search, Mapping) else None,
        "reward": manifest.get("reward"),
        "verifier": manifest.get("verifier"),
        "seed": manifest.get("seed"),
        "treerl": manifest.get("treerl"),
    }
    totals = run.summary() or {}
    about["ledger"] = totals.get("ledger")
    return {name: value for name, value in about.items() if value is not None}
