"""`treerl view`: trees as a page for the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treerl.cli.console import clean, output, say

if TYPE_CHECKING:
    from treerl.advantage import Estimator

__all__ = ["view"]


def view(
    source: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A run folder, or one file of trees."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The .html file to write; by default view.html in the folder, or beside the file "
            "under its name.",
        ),
    ] = None,
    problem: Annotated[str | None, typer.Option(help="Only the tree of this problem.")] = None,
    index: Annotated[
        int | None, typer.Option(min=0, help="Only the tree with this number, from 0.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many trees at most.")] = 20,
    advantage: Annotated[
        str | None,
        typer.Option(
            metavar="ESTIMATOR",
            help="Add what this estimator gives each segment, compared within its tree, "
            "e.g. treepo; by default that of a rollout run.",
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write trees as one HTML file that a browser opens offline.

    It shows each tree as a drawing, and of the step that is chosen in it text, label, evidence and
    the whole path. A run that still goes on can be looked at too.

    Example: treerl view runs/first --open
    """
    if problem is not None and index is not None:
        raise typer.BadParameter("give --problem or --index, not both")
    estimator = None if advantage is None else _estimator(advantage)
    from treerl.errors import ConfigError
    from treerl.viewer import default_path, gather, write_page

    path = default_path(source) if out is None else out
    if path.exists() and not force:
        # Said before the trees are read, which may take a while.
        raise ConfigError(f"{path} exists; name another file, or replace it with --force")
    trees = gather(source, problem=problem, index=index, limit=limit, advantage=estimator)
    size = write_page(trees, path, force=force)
    held = "" if trees.held is None else f" of {trees.held:,}"
    which = f"{len(trees.trees):,}{held} trees" if trees.more else f"{len(trees.trees):,} trees"
    output().print(
        clean(f"{which} with {trees.nodes:,} nodes in {path} ({size / 1e6:.1f} MB)"),
        markup=False,
        soft_wrap=True,
    )
    if open_:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            say(f"no browser could be started; open {path} in one")


def _estimator(name: str) -> Estimator:
    from treerl.advantage import estimator

    try:
        return estimator(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--advantage") from error
