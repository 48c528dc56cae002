"""The whole audit of a run in one record: what `treerl audit` shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from treerl.errors import StoreError
from treerl.prm.audit.against import against_gold
from treerl.prm.audit.figures import CardFigures, card_figures
from treerl.prm.audit.measures import Confusion, FirstErrors, LabelQuality
from treerl.prm.audit.replaying import Replay, replay
from treerl.prm.duplicates import Contamination, contamination
from treerl.prm.formats.solutions import LabelledSolution
from treerl.protocols import JudgeStep
from treerl.runfiles import DAMAGE
from treerl.store import RunReader

__all__ = ["AuditReport", "audit_run"]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All findings about a run.

    Attributes:
        run: The folder.
        finished: False where only the problems that are done were looked at.
        replay: What was computed again.
        figures: Balance, positions, lengths and near-duplicates; None where the labels are too far
            from the trees to be counted, which the replay tells.
        contamination: Problems that other files hold too; None where none were given.
        quality: Labels against human labels; None where none were given.
    """

    run: Path
    finished: bool
    replay: Replay
    figures: CardFigures | None
    contamination: Contamination | None
    quality: LabelQuality | None

    @property
    def ok(self) -> bool:
        """True where everything that is stored follows from the rest."""
        return self.replay.ok

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object, the shares with the counts."""
        quality = self.quality
        leaks = self.contamination
        figures = self.figures
        return {
            "run": str(self.run),
            "finished": self.finished,
            "replay": {"ok": self.ok, **asdict(self.replay)},
            "figures": None if figures is None else _figures(figures),
            "contamination": None if leaks is None else asdict(leaks),
            "quality": None if quality is None else _quality(quality),
        }


def audit_run(
    run: str | Path | RunReader,
    verifier: JudgeStep | None = None,
    *,
    share: float = 1.0,
    gold: str | Path | Iterable[LabelledSolution] | None = None,
    gold_format: str | None = None,
    against: Mapping[str, str | Path] | None = None,
) -> AuditReport:
    """Audit a run folder: replay it, count it, and hold it against what else is given.

    Args:
        run: A run folder with labels; of an unfinished one what is there counts.
        verifier: As for :func:`~treerl.prm.audit.replay`.
        share: Part of the tool verdicts to ask for again.
        gold: Human labels of the same solutions, as for :func:`~treerl.prm.audit.against_gold`.
        gold_format: Format of a gold file; by default its first row tells.
        against: Problem files that must not hold the run's problems, by name.

    Raises:
        ConfigError: The run has no labels, or none of a gold solution.
        ProblemError: A file cannot be read.
        StoreError: The folder cannot be read.
    """
    reader = run if isinstance(run, RunReader) else RunReader(run)
    replayed = replay(reader, verifier, share=share)
    figures = _counted(reader, replayed)
    leaks = None
    if against:
        leaks = contamination({t.problem.id: t.problem.text for t in reader.trees()}, against)
    quality = None if gold is None else against_gold(reader, gold, format=gold_format)
    return AuditReport(
        run=reader.path,
        finished=reader.finished,
        replay=replayed,
        figures=figures,
        contamination=leaks,
        quality=quality,
    )


def _counted(run: RunReader, replayed: Replay) -> CardFigures | None:
    try:
        return card_figures(run, formats=())
    except (StoreError, *DAMAGE):
        if replayed.ok:
            raise
        return None


def _figures(figures: CardFigures) -> dict[str, Any]:
    duplicates = {**asdict(figures.duplicates), "rate": figures.duplicates.rate}
    counted = {name: value for name, value in asdict(figures).items() if name != "formats"}
    return {**counted, "duplicates": duplicates}


def _quality(quality: LabelQuality) -> dict[str, Any]:
    firsts = ("first_error", "always_negative", "first_refuted", "rollouts_alone")
    by_source = {name: _shares(confusion) for name, confusion in quality.by_source.items()}
    return {
        **asdict(quality),
        "coverage": quality.coverage,
        "confusion": _shares(quality.confusion),
        "by_source": by_source,
        **{name: _shares(getattr(quality, name)) for name in firsts},
    }


def _shares(counts: Confusion | FirstErrors | None) -> dict[str, Any] | None:
    """Return counts with the shares that they make."""
    if counts is None:
        return None
    names = ["precision", "recall"]
    if isinstance(counts, FirstErrors):
        names += ["coverage", "error_accuracy", "correct_accuracy", "f1"]
    return {**asdict(counts), **{name: getattr(counts, name) for name in names}}
