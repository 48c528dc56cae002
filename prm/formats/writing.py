"""The registry of formats, and the one way to write any of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treerl.errors import ConfigError, StoreError
from treerl.prm.formats.base import ExportReport, Format, LeftOut
from treerl.prm.formats.chat import Chat
from treerl.prm.formats.math_shepherd import MathShepherd
from treerl.prm.formats.openr import OpenR
from treerl.prm.formats.openr_converted import OpenRConverted
from treerl.prm.formats.openr_tree import OpenRTree
from treerl.prm.formats.paths import labelled_trees
from treerl.prm.formats.prm800k import PRM800K
from treerl.prm.formats.processbench import ProcessBench
from treerl.prm.formats.qwen import Qwen
from treerl.prm.formats.rlhflow import RLHFlow
from treerl.prm.formats.trl_stepwise import TRLStepwise
from treerl.store import RunReader
from treerl.treefile import replace_file

__all__ = ["FORMATS", "export", "make_format"]

FORMATS: dict[str, Callable[..., Format]] = {
    "trl": TRLStepwise,
    "processbench": ProcessBench,
    "chat": Chat,
    "prm800k": PRM800K,
    "math-shepherd": MathShepherd,
    "qwen": Qwen,
    "openr": OpenR,
    "openr-tree": OpenRTree,
    "openr-converted": OpenRConverted,
    "rlhflow": RLHFlow,
}
"""Every format by name; the value makes one from its options."""


def export(run_dir: str | Path, format: str, out: str | Path, **options: Any) -> ExportReport:
    """Write the labels of a run in a format that other tools read.

    The file holds one JSON object a line and loads with ``datasets.load_dataset("json", …)``. It
    is written beside its place and renamed, so half a file never has the final name. A run that
    is unfinished is exported as far as it is.

    Args:
        run_dir: A run folder of ``treerl label``.
        format: A key of :data:`FORMATS`.
        out: The file to write; an old one is replaced.
        options: Of the format, e.g. ``system`` of "chat".

    Raises:
        ConfigError: There is no such format, the run has no labels, or no path fits the format.
        StoreError: The folder cannot be read, or the file cannot be written.
    """
    writer = make_format(format, options)
    run = RunReader(run_dir)
    _check_place(Path(out), run.path)
    left_out: Counter[str] = Counter()
    counts: Counter[str] = Counter()

    def write(part: Path) -> None:
        with part.open("wb") as file:
            for tree in labelled_trees(run):
                counts["problems"] += 1
                for row in writer.rows(tree):
                    if isinstance(row, LeftOut):
                        left_out[row.reason] += 1
                        continue
                    counts["rows"] += 1
                    file.write(_line(row))
        if not counts["rows"]:
            reasons = "; ".join(f"{n} times {why}" for why, n in left_out.most_common())
            raise ConfigError(
                f"nothing in {run.path} can be written as {format}: {reasons or 'no labelled path'}"
            )

    try:
        replace_file(Path(out), write)
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error.strerror or error}") from error
    return ExportReport(
        format=format,
        path=Path(out),
        rows=counts["rows"],
        problems=counts["problems"],
        left_out=dict(left_out.most_common()),
        losses=writer.losses(),
    )


def _check_place(out: Path, run: Path) -> None:
    """Refuse to replace what is no file of exports: a device, a folder, the run's own files."""
    if out.exists() and not out.is_file():
        raise ConfigError(f"{out} is no regular file; choose another place for the export")
    if run.resolve() in out.resolve().parents:
        raise ConfigError(f"{out} lies in the run folder {run}; choose a place outside it")


def make_format(name: str, options: dict[str, Any] | None = None) -> Format:
    """Return a format by name.

    Raises:
        ConfigError: There is no such format, or it has no such option.
    """
    if name not in FORMATS:
        raise ConfigError(f"no format '{name}'; there are {', '.join(FORMATS)}")
    try:
        return FORMATS[name](**(options or {}))
    except TypeError as error:
        raise ConfigError(f"format '{name}': {error}") from error


def _line(row: dict[str, Any]) -> bytes:
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half a surrogate pair, which a model can write, is no text to other readers.
    return text.encode("utf-8", "replace") + b"\n"
