"""Audits of a run: do its labels follow from its evidence, what are they like, are they right?

::

    report = replay("runs/first", StepVerifier())
    report.ok, report.mismatches
    quality = against_gold("runs/first", "ProcessBench/gsm8k.json")
    quality.first_error.f1, quality.by_source["mc"].precision
    audit_run("runs/first", verifier, gold="ProcessBench/gsm8k.json").to_json()
"""

from treerl.prm.audit.against import against_gold
from treerl.prm.audit.figures import CardFigures, FormatFigures, LengthBin, card_figures
from treerl.prm.audit.measures import (
    Calibration,
    CalibrationBin,
    Confusion,
    FirstErrors,
    LabelQuality,
)
from treerl.prm.audit.mismatches import Mismatch
from treerl.prm.audit.replaying import Replay, recount, replay
from treerl.prm.audit.report import AuditReport, audit_run

__all__ = [
    "AuditReport",
    "Calibration",
    "CalibrationBin",
    "CardFigures",
    "Confusion",
    "FirstErrors",
    "FormatFigures",
    "LabelQuality",
    "LengthBin",
    "Mismatch",
    "Replay",
    "against_gold",
    "audit_run",
    "card_figures",
    "recount",
    "replay",
]
