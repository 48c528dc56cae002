"""Fusion rules against the numeric oracle, and their invariants."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.errors import ConfigError
from treerl.prm.fuse import (
    FUSIONS,
    Evidence,
    Fusion,
    mask_after_first_error,
    published_label,
    truncate_published,
)
from treerl.search.restmcts import value_targets
from treerl.verdict import Verdict

ORACLE = Path(__file__).parents[1] / "data" / "groundedprm_oracle.json"
CASES = {case["name"]: case for case in json.loads(ORACLE.read_text())["cases"]}
WORD = {1: Verdict.SUPPORTED, -1: Verdict.REFUTED, 0: Verdict.UNVERIFIABLE}


@pytest.mark.parametrize("row", CASES["treerl.hybrid_fusion"]["rows"])
def test_hybrid_fusion(row: dict[str, Any]) -> None:
    evidence = Evidence(WORD[row["tool"]], row["strength"], row["correct"], row["total"])
    fused = Fusion("groundedprm", n_min=4)(evidence)
    assert (fused.label, fused.source) == (row["label"], row["source"])
    assert fused.soft == pytest.approx(row["soft"], abs=1e-12)


def test_masking() -> None:
    example = CASES["treerl.hybrid_fusion"]["mask_example"]
    assert mask_after_first_error(example["labels"]) == example["masked"]


def test_mathshepherd_hard_and_soft() -> None:
    case = CASES["mathshepherd.labels"]
    fusion = Fusion("mathshepherd", n_min=1)
    fused = [fusion(Evidence(correct=c, total=8)) for c in case["input"]["correct_completions"]]
    assert [f.label for f in fused] == case["hard"]
    assert [f.soft for f in fused] == pytest.approx(case["soft"], abs=1e-12)
    labels = mask_after_first_error([f.label for f in fused])
    assert labels.index(0) == case["first_error_hard"]


def test_genprm_relative_progress() -> None:
    case = CASES["mathshepherd.labels"]
    counts = [case["input"]["first_state"], *case["input"]["correct_completions"]]
    fusion = Fusion("genprm_rpe", n_min=1, progress=case["genprm_rpe"]["epsilon"])
    fused = [
        fusion(Evidence(correct=now, total=8, correct_before=before, total_before=8))
        for before, now in itertools.pairwise(counts)
    ]
    assert [f.label for f in fused] == case["genprm_rpe"]["labels"]


@pytest.mark.parametrize("row", CASES["restmcts.value_targets"]["rows"])
def test_restmcts_takes_the_target_and_the_reach(row: dict[str, Any]) -> None:
    fusion = Fusion("restmcts")
    values = value_targets(row["m"], row["he"])
    fused = [
        fusion(Evidence(value_target=v, reaches_right=bool(he)))
        for v, he in zip(values, row["he"], strict=True)
    ]
    assert [f.soft for f in fused] == pytest.approx(row["v"], abs=1e-12)
    assert [f.label for f in fused] == row["he"]
    assert {f.source for f in fused} == {"value_target"}
    assert fusion(Evidence(correct=8, total=8)).label is None


@pytest.mark.parametrize("row", CASES["groundedprm.published_label_rule"]["rows"])
def test_published_labels(row: dict[str, Any]) -> None:
    words = {"True": Verdict.SUPPORTED, "False": Verdict.REFUTED, "": Verdict.UNVERIFIABLE}
    label = published_label(row["value"], words[row["verdict"]])
    want = None if row["sample"] == "dropped" else {"+": 1, "-": 0}[row["label"]]
    assert label == want
    evidence = Evidence(words[row["verdict"]], value_sum=row["value"])
    fused = Fusion("groundedprm_published")(evidence)
    assert fused.label == want
    assert fused.source == ("dropped" if want is None else "value")


@pytest.mark.parametrize("row", CASES["groundedprm.truncate_negative_paths"]["rows"])
def test_published_truncation(row: dict[str, Any]) -> None:
    kept = row["scores"] if row["path_label"] == "positive" else truncate_published(row["scores"])
    assert kept == row["kept"]


EVIDENCE = st.builds(
    lambda verdict, strength, total, share, terminal: Evidence(
        verdict,
        None if verdict is Verdict.UNVERIFIABLE else strength,
        round(share * total),
        total,
        terminal,
    ),
    st.sampled_from(list(Verdict)),
    st.sampled_from(["exact", "partial"]),
    st.integers(0, 12),
    st.floats(0, 1),
    st.booleans(),
)


@given(EVIDENCE, st.integers(1, 6))
def test_no_label_without_evidence(evidence: Evidence, n_min: int) -> None:
    fused = Fusion("groundedprm", n_min)(evidence)
    if fused.label is not None:
        refuted = evidence.verdict is Verdict.REFUTED and evidence.strength == "exact"
        assert refuted or evidence.total >= (1 if evidence.terminal else n_min)
    if fused.label == 1:
        assert evidence.correct > 0


@given(EVIDENCE)
def test_support_alone_never_changes_a_label(evidence: Evidence) -> None:
    """Arithmetic support enters as partial, and a partial support decides nothing (law 6)."""
    if evidence.verdict is Verdict.SUPPORTED and evidence.strength == "partial":
        silent = Evidence(
            correct=evidence.correct, total=evidence.total, terminal=evidence.terminal
        )
        fusion = Fusion("groundedprm")
        assert fusion(evidence).label == fusion(silent).label


@given(EVIDENCE)
def test_an_exact_refutation_decides_alone(evidence: Evidence) -> None:
    if evidence.verdict is Verdict.REFUTED and evidence.strength == "exact":
        fused = Fusion("groundedprm")(evidence)
        assert (fused.label, fused.soft, fused.source) == (0, 0.0, "tool")


@given(EVIDENCE, st.sampled_from(sorted(FUSIONS)))
def test_soft_labels_are_probabilities(evidence: Evidence, rule: str) -> None:
    fused = Fusion(rule)(evidence)
    assert fused.soft is None or 0 <= fused.soft <= 1


def test_unknown_rules_are_named() -> None:
    with pytest.raises(ConfigError, match="no fusion rule 'magic'; there are groundedprm"):
        Fusion("magic")
    with pytest.raises(ConfigError, match="n_min"):
        Fusion(n_min=0)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="correct <= total"):
        Evidence(correct=3, total=2)
