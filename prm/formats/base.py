"""What every format shares: what goes in, what comes out, and what is said about the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from treerl.prm.label import StepLabel

__all__ = ["ExportReport", "Format", "LabelledPath", "LabelledTree", "LeftOut", "Row"]

Row = dict[str, Any]
"""One JSON object of an export."""


@dataclass(frozen=True, slots=True)
class LabelledPath:
    """A path from the problem to a tip of its tree, with the labels of its steps.

    Attributes:
        node: Index of the tip in the tree.
        steps: At least one.
        ended: The policy ended it; False where the search left it unfinished or a cap cut it off.
        outcome: Whether its final answer is right, None where that is unknown.
    """

    node: int
    steps: tuple[StepLabel, ...]
    ended: bool
    outcome: bool | None


@dataclass(frozen=True, slots=True)
class LabelledTree:
    """A problem with all its labelled paths: what an exporter is given at a time.

    Attributes:
        problem_id, statement, answer: The problem.
        policy: Name of the model that wrote the steps.
        paths: In creation order of their tips; together they hold every step.
    """

    problem_id: str
    statement: str
    answer: str | None
    policy: str
    paths: tuple[LabelledPath, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A path that a format cannot hold, and why."""

    reason: str


class Format(Protocol):
    """A way to write labelled trees as rows. Stateless: rows of one tree depend on it alone."""

    @property
    def name(self) -> str:
        """The name it is registered under."""

    def losses(self) -> tuple[str, ...]:
        """Say what of a label the format cannot hold, a sentence each."""

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield the tree's rows, and a :class:`LeftOut` for each path that becomes none."""


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did.

    Attributes:
        format: Name of the format.
        path: The file written.
        rows: Rows in it.
        problems: Problems read.
        left_out: Paths that became no row, counted by reason.
        losses: What the format cannot hold.
    """

    format: str
    path: Path
    rows: int
    problems: int
    left_out: dict[str, int]
    losses: tuple[str, ...]
