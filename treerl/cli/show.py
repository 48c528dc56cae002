"""`treerl show`: a tree in the terminal."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treerl.cli.console import PIPED_WIDTH, clean, output, plain_table

if TYPE_CHECKING:
    from treerl.prm.label import StepLabel
    from treerl.store import RunReader
    from treerl.tree import Tree

    Labelled = tuple[Tree, "dict[int, StepLabel] | None"]

__all__ = ["labelled", "print_tree", "show"]

LISTED = 20
"""Problems in the list that stands before the first tree."""


def show(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR_OR_PARQUET", help="A run folder, or one file of its trees/ folder."
        ),
    ],
    problem: Annotated[str | None, typer.Option(help="Show the tree of this problem.")] = None,
    index: Annotated[
        int | None, typer.Option(min=0, help="Show the tree with this number, from 0.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Show only so many levels of steps.")
    ] = None,
    max_nodes: Annotated[
        int, typer.Option(min=0, help="Show only so many steps; 0 shows all.")
    ] = 60,
    width: Annotated[
        int | None,
        typer.Option(min=40, help="Characters a line; by default those of the terminal."),
    ] = None,
) -> None:
    """Show a tree of solutions: each step with its label and its evidence.

    Without --problem or --index the problems are listed and the first tree is shown. A run that
    still goes on can be looked at too.
    """
    if problem is not None and index is not None:
        raise typer.BadParameter("give --problem or --index, not both")
    width = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH)
    if problem is None and index is None:
        _list(source)
    tree, labels = _find(source, problem, index or 0)
    print_tree(tree, labels, width=width, steps=steps, max_nodes=max_nodes)


def print_tree(
    tree: Tree,
    labels: dict[int, StepLabel] | None,
    *,
    width: int = PIPED_WIDTH,
    steps: int | None = None,
    max_nodes: int = 60,
) -> None:
    """Print a tree with its header and legend."""
    from rich.text import Text

    from treerl.cli.treeview import LEGEND, TreeView

    view = TreeView(width=width, steps=steps, max_nodes=max_nodes or None)
    console = output()
    for line in view.header(tree):
        console.print(line, soft_wrap=True)
    console.print()
    for line in view.lines(tree, labels):
        console.print(line, soft_wrap=True)
    console.print()
    console.print(Text(LEGEND, "dim"), soft_wrap=True)


def labelled(source: Path) -> Iterator[Labelled]:
    """Yield the trees of a run folder with their labels, or those of a file without any.

    Raises:
        StoreError: There is neither.
    """
    if source.is_file():
        from treerl.treefile import read_trees

        yield from ((tree, None) for tree in read_trees(source))
        return
    from treerl.store import RunReader

    yield from _with_labels(RunReader(source))


def _with_labels(run: RunReader) -> Iterator[Labelled]:
    from treerl.prm.label import read_labels

    if run.manifest.get("kind") != "label":
        yield from ((tree, None) for tree in run.trees())
        return
    # Both stand in the order of the problems, so neither has to be held whole.
    stored = (line.label for line in read_labels(run))
    groups = groupby(stored, key=lambda label: label.problem_id)
    waiting = next(groups, None)
    for tree in run.trees():
        own: dict[int, StepLabel] = {}
        if waiting is not None and waiting[0] == tree.problem.id:
            own = {label.node: label for label in waiting[1]}
            waiting = next(groups, None)
        yield tree, own


def _find(source: Path, problem: str | None, index: int) -> Labelled:
    from treerl.errors import StoreError

    count = 0
    for tree, labels in labelled(source):
        if tree.problem.id == problem or (problem is None and count == index):
            return tree, labels
        count += 1
    if problem is not None:
        raise StoreError(f"{source} has no tree of a problem '{problem}'")
    if not count:
        raise StoreError(f"{source} holds no tree yet")
    raise StoreError(f"{source} holds {count} trees, numbered from 0; there is no number {index}")


def _list(source: Path) -> None:
    """Print a line a problem, for the first ones."""
    from rich.text import Text

    trees = labelled(source)
    first = list(islice(trees, LISTED))
    # Rollouts and files of trees have no labels to count.
    judged = () if all(own is None for _, own in first) else ("right>", "wrong>", "none>")
    table = plain_table("#>", "problem", "solutions right>", "steps>", *judged)
    for number, (tree, labels) in enumerate(first):
        right, scored = tree.samples()
        counts = Counter(label.label for label in (labels or {}).values())
        cells = [""] * len(judged)
        if labels is not None:
            cells = [f"{counts[value]:,}" for value in (1, 0, None)]
        table.add_row(
            str(number),
            Text(clean(tree.problem.id)),
            f"{right}/{scored}",
            f"{len(tree) - 1:,}",
            *cells,
        )
    console = output()
    console.print(table)
    if next(trees, None) is not None:
        console.print(Text(f"… and more; any is shown with --problem or --index {LISTED}", "dim"))
    console.print()
