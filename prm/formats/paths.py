"""From a run folder to labelled paths, and from paths to prefixes without repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, takewhile
from pathlib import Path

from treerl.errors import ConfigError, StoreError
from treerl.prm.formats.base import LabelledPath, LabelledTree, LeftOut
from treerl.prm.label import StepLabel, read_labels
from treerl.store import RunReader
from treerl.tree import Node, Tree

__all__ = [
    "Trie",
    "check_labelled",
    "label_paths",
    "labelled_prefixes",
    "labelled_trees",
    "policy_name",
    "trees_with_labels",
]

Steps = tuple[StepLabel, ...]


def labelled_trees(run: RunReader) -> Iterator[LabelledTree]:
    """Yield the labelled trees of a run, one at a time.

    Raises:
        ConfigError: The run has no labels.
        StoreError: Trees and labels do not belong together.
    """
    check_labelled(run, "export")
    policy = policy_name(run)
    for tree, labels in trees_with_labels(run):
        yield label_paths(tree, labels, policy)


def trees_with_labels(run: RunReader) -> Iterator[tuple[Tree, Steps]]:
    """Yield the trees of a run with their labels.

    Both stand in the same order in the folder, so both are read as streams.

    Raises:
        StoreError: Trees and labels do not belong together.
    """
    stored = (line.label for line in read_labels(run))
    groups = groupby(stored, key=lambda label: label.problem_id)
    waiting = next(groups, None)
    for tree in run.trees():
        labels: Steps = ()
        if waiting is not None and waiting[0] == tree.problem.id:
            labels = tuple(waiting[1])
            waiting = next(groups, None)
        yield tree, labels
    # A run that still goes on may have grown between the two readings.
    if waiting is not None and run.finished:
        raise StoreError(f"{run.path}: the labels of problem '{waiting[0]}' have no tree")


def check_labelled(run: RunReader, purpose: str) -> None:
    """Refuse a run without labels.

    Raises:
        ConfigError: It has none to serve the purpose, "export".
    """
    if run.manifest.get("kind") != "label":
        kind = run.manifest.get("kind")
        raise ConfigError(f"{run.path} is a run of kind {kind!r}, which has no labels to {purpose}")


def policy_name(run: RunReader) -> str:
    """Return the name of the model that wrote a run's steps."""
    engine = run.manifest.get("engine") or {}
    name = str(engine.get("model") or engine.get("engine") or "unknown")
    # A folder's place on one machine says nothing to the reader of a data set.
    return "/".join(Path(name).parts[-2:]) if Path(name).is_absolute() else name


def label_paths(tree: Tree, labels: Iterable[StepLabel], policy: str = "") -> LabelledTree:
    """Return a tree's paths with the labels of their steps.

    Raises:
        StoreError: A step of the tree has no label record.
    """
    by_node = {label.node: label for label in labels}
    paths: list[LabelledPath] = []
    for node in _tips(tree):
        if node.error is None:
            steps = _steps(tree, node, by_node)
            if steps:
                ended = node.finish_reason in ("eos", "stop", "answer")
                outcome = node.correct > 0 if node.is_leaf and node.total else None
                paths.append(LabelledPath(node.index, steps, ended, outcome))
    problem = tree.problem
    return LabelledTree(problem.id, problem.text, problem.answer, policy, tuple(paths))


def _tips(tree: Tree) -> list[Node]:
    """Return the last nodes of the paths that carry labels."""
    ends = (tree.root.meta or {}).get("solutions")
    if ends is not None:  # prefix Monte Carlo labels its solutions, not the rollouts below them
        return [tree.nodes[end] for end in sorted(set(ends))]
    return [n for n in tree.nodes[1:] if all(child.error is not None for child in n.children)]


def _steps(tree: Tree, tip: Node, by_node: dict[int, StepLabel]) -> Steps:
    """Return the labels along a path; a node without text, such as a lone end token, has none."""
    try:
        return tuple(by_node[node.index] for node in tree.path(tip) if node.text)
    except KeyError as error:
        raise StoreError(
            f"node {error.args[0]} of problem '{tree.problem.id}' has no label: the labels do not "
            "belong to these trees"
        ) from error


def labelled_prefixes(
    tree: LabelledTree, usable: Callable[[StepLabel], bool]
) -> Iterator[Steps | LeftOut]:
    """Cut each path before its first step that is not usable; drop what another one contains.

    Paths that share their first steps and part behind the cut would repeat each other, and a
    prefix of a longer prefix teaches nothing that the longer one does not.
    """
    trie = Trie()
    cuts: list[tuple[Steps, int]] = []
    for path in tree.paths:
        steps = tuple(takewhile(usable, path.steps))
        end = trie.add((step.step, step.label) for step in steps)
        cuts.append((steps, end))
    written: set[int] = set()
    for steps, end in cuts:
        if not steps:
            yield LeftOut("the first step has no usable label")
        elif end in written or trie.is_inner(end):
            yield LeftOut("another row holds the same labelled steps")
        else:
            written.add(end)
            yield steps


class Trie:
    """Numbers for sequences; equal sequences get equal numbers, in linear time."""

    def __init__(self) -> None:
        self._edges: dict[tuple[int, object], int] = {}
        self._inner: set[int] = set()

    def add(self, items: Iterable[object]) -> int:
        """Return the number of a sequence; 0 is that of the empty one."""
        at = 0
        for item in items:
            self._inner.add(at)
            at = self._edges.setdefault((at, item), len(self._edges) + 1)
        return at

    def is_inner(self, number: int) -> bool:
        """Say whether a sequence is the beginning of a longer one."""
        return number in self._inner
