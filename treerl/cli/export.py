"""`treerl export`: labels as training files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treerl.cli.console import clean, output

if TYPE_CHECKING:
    from treerl.prm.formats import ExportReport

__all__ = ["export"]


def export(
    run: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run folder made by `treerl label`.")
    ],
    format: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="trl (stepwise supervision for TRL), processbench (solutions with their first "
            "wrong step), chat (conversations that train a model to judge and explain), "
            "and more: an unknown name lists all.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The .jsonl file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the labels of a run in a format that other tools read.

    Example: treerl export runs/first trl --out train.jsonl
    """
    from treerl.errors import ConfigError
    from treerl.prm.formats import export as write

    if out.exists() and not force:
        raise ConfigError(f"{out} exists; name another file, or replace it with --force")
    _show(write(run, format, out))


def _show(report: ExportReport) -> None:
    from rich.text import Text

    lines = [
        f"{report.rows:,} rows from {report.problems:,} problems in {clean(str(report.path))}",
        *(f"  {n:,} paths left out: {reason}" for reason, n in report.left_out.items()),
        f"The format {report.format} does not hold:",
        *(f"  {loss}" for loss in report.losses),
        f'Load it with datasets.load_dataset("json", data_files={str(report.path)!r}).',
    ]
    output().print(Text("\n".join(lines)), soft_wrap=True)
