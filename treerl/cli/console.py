"""Writing to a terminal: where to, and what model text must not do there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["clean", "complain", "output", "plain_table", "say"]

PIPED_WIDTH = 120


def output(*, stderr: bool = False) -> Console:
    """Return a console; colour and the terminal's width only where there is a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(stderr=stderr, highlight=False, width=width)


def clean(text: str) -> str:
    """Return text as one line that cannot steer a terminal.

    Control characters, escape sequences and marks that turn the writing direction become U+FFFD.
    rich's markup is no danger here: all of it is printed as ``Text``, which is never parsed.
    """
    safe = (c if c.isprintable() or c.isspace() else "�" for c in text)
    return " ".join("".join(safe).split())


def say(text: str) -> None:
    """Tell the user something on stderr, apart from the command's output."""
    sys.stderr.write(f"{clean(text)}\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """Say in one line on stderr why the command ends."""
    say(f"treerl: {text}")


def plain_table(*headers: str) -> Table:
    """Return a table without lines; headers that end in ``>`` are columns of numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(headers))
    for header in headers:
        right = header.endswith(">")
        table.add_column(
            header.removesuffix(">"), justify="right" if right else "left", header_style="dim"
        )
    return table
