"""What an audit reads of a run folder: trees with their labels, and the rule that made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from treerl.errors import ConfigError, StoreError
from treerl.prm.formats.paths import check_labelled, trees_with_labels
from treerl.prm.fuse import Fusion
from treerl.prm.label import LabelLine, StepLabel, parse_label, read_labels
from treerl.runfiles import short_json
from treerl.runreader import Line, RunReader
from treerl.tree import Tree

__all__ = [
    "StoredTree",
    "check_labelled",
    "labelled_trees_of",
    "read_fusion",
    "right_above_of",
    "run_fusion",
    "stored_trees",
]


def labelled_trees_of(run: RunReader) -> Iterator[tuple[Tree, tuple[StepLabel, ...]]]:
    """Yield the trees of a run with their labels, one at a time.

    Raises:
        ConfigError: The run has no labels.
        StoreError: Trees and labels do not belong together.
    """
    check_labelled(run, "audit")
    return trees_with_labels(run)


def run_fusion(run: RunReader) -> Fusion | None:
    """Return the fusion that a run's manifest names, None where this treerl has none like it."""
    try:
        return read_fusion(run)
    except ConfigError:
        return None


def read_fusion(run: RunReader) -> Fusion:
    """Return the fusion that a run's manifest names.

    Raises:
        ConfigError: This treerl has none like it; the error says why.
    """
    data = run.manifest.get("fusion")
    if not isinstance(data, dict):
        raise ConfigError("no fusion rule is named")
    known = Fusion().to_json()
    for name, value in data.items():
        if name not in known:
            raise ConfigError(f"a fusion has no '{name}'")
        kinds: tuple[type, ...] = (type(known[name]), *([int] if name == "progress" else []))
        if type(value) not in kinds:
            raise ConfigError(f"'{name}' cannot be {short_json(value)}")
    return Fusion(**data)


def right_above_of(run: RunReader) -> float:
    """Return the reward above which a run counts an answer as right.

    Raises:
        StoreError: The manifest holds no number there.
    """
    value = (run.manifest.get("search") or {}).get("right_above", 0.5)
    if type(value) not in (int, float):
        raise StoreError(
            f"{run.path / 'manifest.json'} is damaged: 'search.right_above' is "
            f"{short_json(value)}, not a number"
        )
    return float(value)


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A tree with everything that is stored about its problem.

    Attributes:
        tree: The tree.
        labels: Its labels, in the order of their file.
        index: Of the problem in the run; None in a finished run, whose shards do not say it.
        conflicts, failures: As the journal holds them; None in a finished run, where they stand in
            files of their own.
    """

    tree: Tree
    labels: list[LabelLine]
    index: int | None = None
    conflicts: list[Line] | None = None
    failures: list[Line] | None = None


def stored_trees(
    run: RunReader, ids: Iterable[str], stray: Callable[[LabelLine], None]
) -> Iterator[StoredTree]:
    """Yield what is stored, a tree at a time.

    Args:
        run: Finished or not.
        ids: The problems of a finished run's trees, in their order.
        stray: Takes each label that stands with no tree of its problem.

    Raises:
        StoreError: A file is damaged.
    """
    if not run.finished:
        yield from _journalled(run)
        return
    left = Counter(ids)
    lines = read_labels(run)
    waiting = next(lines, None)
    for tree in run.trees():
        id = tree.problem.id
        left[id] -= 1
        own: list[LabelLine] = []
        # The labels stand in the order of the trees: one of a later tree ends those of this one.
        while waiting is not None:
            if waiting.label.problem_id == id:
                own.append(waiting)
            elif left[waiting.label.problem_id] > 0:
                break
            else:
                stray(waiting)
            waiting = next(lines, None)
        yield StoredTree(tree, own)
    if waiting is not None:
        for line in chain([waiting], lines):
            stray(line)


def _journalled(run: RunReader) -> Iterator[StoredTree]:
    journal = run.path / "journal.jsonl"
    for number, result in run.results():
        if result.tree is None:
            continue

        def lines(records: Iterable[dict[str, Any]], number: int = number) -> list[Line]:
            return [Line(journal, number, record) for record in records]

        yield StoredTree(
            result.tree,
            [parse_label(line) for line in lines(result.labels)],
            result.index,
            lines(result.conflicts),
            lines(result.failures),
        )
