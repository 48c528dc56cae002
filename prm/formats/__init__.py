"""Formats: labels as other tools read them.

::

    from treerl.prm.formats import export

    report = export("runs/first", "trl", "train.jsonl")
    report.rows, report.left_out, report.losses

    for solution in import_format("phase2_train.jsonl", "prm800k"):
        solution.steps, solution.labels
"""

from treerl.prm.formats.base import (
    ExportReport,
    Format,
    LabelledPath,
    LabelledTree,
    LeftOut,
    Row,
)
from treerl.prm.formats.guessing import guess_format
from treerl.prm.formats.publishing import publish
from treerl.prm.formats.reading import IMPORTERS, import_format, solution_rows
from treerl.prm.formats.solutions import LabelledSolution, solutions_of
from treerl.prm.formats.writing import FORMATS, export

__all__ = [
    "FORMATS",
    "IMPORTERS",
    "ExportReport",
    "Format",
    "LabelledPath",
    "LabelledSolution",
    "LabelledTree",
    "LeftOut",
    "Row",
    "export",
    "guess_format",
    "import_format",
    "publish",
    "solution_rows",
    "solutions_of",
]
