"""`treerl export`: labels as training files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treerl.cli.console import clean, output, plain_table

if TYPE_CHECKING:
    from treerl.prm.formats import ExportReport

__all__ = ["export"]

ALWAYS_SOFT, CAN_BE_SOFT = ("openr", "openr-tree"), ("trl", "qwen")


def export(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="A run folder made by `treerl label`."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Argument(
            metavar="FORMAT",
            help="One of those above.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The .jsonl file to write.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    soft: Annotated[
        bool,
        typer.Option(
            "--soft",
            help="Write soft labels, for trl and qwen; openr and openr-tree always hold them.",
        ),
    ] = False,
    losses: Annotated[
        bool,
        typer.Option(
            "--losses",
            help="Only print what formats cannot hold: `treerl export --losses` for all of them, "
            "`treerl export FORMAT --losses` for one.",
        ),
    ] = False,
    push_to_hub: Annotated[
        str | None,
        typer.Option(
            metavar="REPO",
            help="Push the file and the data set card to this repository of the Hugging Face hub; "
            "the token is that of the environment variable HF_TOKEN.",
        ),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Make the repository private if it is new.")
    ] = False,
) -> None:
    """Write the labels of a run in a format that other tools read.

    - **trl**: TRL's stepwise supervision: prompt, completions, labels
    - **processbench**: whole solutions with their first wrong step
    - **chat**: conversations that judge every step and say why
    - **prm800k**: OpenAI's rows, with ratings of -1, 1 and null
    - **math-shepherd**: a text with a tag behind every step, and its labels
    - **qwen**: chat messages with <extra_0> behind every step, and labels
    - **openr**: OmegaPRM's prefixes with soft labels
    - **openr-tree**: OmegaPRM's trees with soft labels
    - **openr-converted**: question, process with step tags, + or - a step
    - **rlhflow**: a conversation that answers every step with + or -

    Hard and soft labels come from one run: export it twice.

    Example: treerl export runs/first trl --out train.jsonl
    """
    from treerl.errors import ConfigError

    if losses and format is None and run is not None and not run.exists():
        format = str(run)  # `treerl export trl --losses` needs no run
    options = _options(format, soft=soft)
    if losses:
        _show_losses(format, options)
        return
    for name, value in (("DIR", run), ("FORMAT", format), ("--out", out)):
        if value is None:
            raise typer.BadParameter(f"{name} is missing")
    assert run is not None
    assert format is not None
    assert out is not None
    if private and push_to_hub is None:
        raise typer.BadParameter("--private needs --push-to-hub")
    if out.exists() and not force:
        raise ConfigError(f"{out} exists; name another file, or replace it with --force")
    card = None if push_to_hub is None else _card(run, format)
    from treerl.prm.formats import export as write

    _show(write(run, format, out, **options))
    if push_to_hub is not None and card is not None:
        from treerl.prm.formats import publish

        where = publish(out, push_to_hub, card, private=private)
        _say(f"Pushed with its card to {where}")


def _options(format: str | None, *, soft: bool) -> dict[str, Any]:
    from treerl.errors import ConfigError

    if not soft or format in ALWAYS_SOFT:
        return {}
    if format not in CAN_BE_SOFT:
        raise ConfigError(
            f"{format or 'not every format'} holds no soft labels; there are "
            f"{', '.join(CAN_BE_SOFT)} with --soft, and {', '.join(ALWAYS_SOFT)}"
        )
    return {"soft": True}


def _card(run: Path, format: str) -> str:
    """Write the card before the export: an unfinished run has none, and nothing is pushed."""
    from treerl.prm.card import dataset_card

    return dataset_card(run, formats=[format])


def _show_losses(format: str | None, options: dict[str, Any]) -> None:
    from rich.text import Text

    from treerl.prm.formats.writing import FORMATS, make_format

    table = plain_table("format", "does not hold")
    for name in FORMATS if format is None else [format]:
        for i, loss in enumerate(make_format(name, options).losses()):
            table.add_row(Text("" if i else name, "bold"), Text(loss))
    output().print(table)


def _show(report: ExportReport) -> None:
    lines = [
        f"{report.rows:,} rows from {report.problems:,} problems in {clean(str(report.path))}",
        *(f"  {n:,} paths left out: {reason}" for reason, n in report.left_out.items()),
        f"The format {report.format} does not hold:",
        *(f"  {loss}" for loss in report.losses),
        f'Load it with datasets.load_dataset("json", data_files={str(report.path)!r}).',
    ]
    _say("\n".join(lines))


def _say(text: str) -> None:
    from rich.text import Text

    output().print(Text(text), soft_wrap=True)
