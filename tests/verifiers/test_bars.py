"""The bars on labelled data; they skip where TREERL_DATA is unset.

Every bar is checked on a fixed sample here, so that the unit tests stay fast; the whole files are
measured by benchmarks/step_checks.py and benchmarks/answer_checkers.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from treerl.verdict import Verdict
from treerl.verifiers import AnswerVerifier, StepVerifier

ROOT = Path(__file__).resolve().parents[2]
DATA = os.environ.get("TREERL_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="TREERL_DATA is not set")


def load(name: str) -> ModuleType:
    """Import a script of benchmarks/, which is no package."""
    path = ROOT / "benchmarks" / f"{name}.py"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def data(*parts: str) -> Path:
    path = Path(str(DATA)).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)} is not in TREERL_DATA")
    return path


@pytest.fixture(scope="module")
def rules() -> Iterator[StepVerifier]:
    with StepVerifier(tools=("fraction",)) as made:
        yield made


def test_gold_steps_are_covered_and_not_refuted(rules: StepVerifier) -> None:
    corrupt = load("corrupt")
    listed = {
        (item["train_row"], item["step"]): item["judgement"]
        for item in json.loads(
            (ROOT / "tests" / "data" / "gsm8k_gold_refuted.json").read_text(encoding="utf-8")
        )["steps"]
    }
    count: Counter[str] = Counter()
    false = []
    for i, (row, _, _, step) in enumerate(corrupt.gold_steps(data("GSM8K", "train.jsonl"))):
        if i % 5 and (row, step) not in listed:
            continue
        verdict = rules.verify(step).verdict
        count["all"] += 1
        count[str(verdict)] += 1
        if verdict is Verdict.REFUTED:
            judgement = listed.get((row, step), "unlisted")
            if judgement in ("unlisted", "checker_fault"):
                false.append((row, judgement, step))
    decided = count["SUPPORTED"] + count["REFUTED"]
    assert decided / count["all"] >= 0.90
    assert len(false) / decided <= 0.001, false


def test_corrupted_copies_are_refuted(rules: StepVerifier) -> None:
    corrupt = load("corrupt")
    count: Counter[str] = Counter()
    for i, copy in enumerate(corrupt.corrupted_copies(data("GSM8K", "train.jsonl"), 0)):
        if i % 5 == 0:
            count[str(rules.verify(copy.step).verdict)] += 1
    assert count["REFUTED"] / count.total() >= 0.88
    assert count["SUPPORTED"] / count.total() <= 0.003


def test_bigbench_arithmetic_first_errors_are_refuted(rules: StepVerifier) -> None:
    path = data("BIG-Bench-Mistake", "multistep_arithmetic.jsonl")
    found = total = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["mistake_index"] is not None:
            total += 1
            verdict = rules.verify(row["steps"][row["mistake_index"]], problem=row["input"])
            found += verdict.verdict is Verdict.REFUTED
    assert found / total >= 0.97


def test_human_labels(rules: StepVerifier) -> None:
    rows = json.loads(data("ProcessBench", "gsm8k.json").read_text(encoding="utf-8"))
    alarms = right = 0
    for row in rows:
        end = row["label"] if row["label"] >= 0 else len(row["steps"])
        for step in row["steps"][:end]:
            right += 1
            alarms += rules.verify(step).verdict is Verdict.REFUTED
    assert alarms / right <= 0.003


def test_answers_against_themselves() -> None:
    lines = data("MATH", "test500.jsonl").read_text(encoding="utf-8").splitlines()
    golds = [json.loads(line)["answer"] for line in lines]
    with AnswerVerifier() as verifier:
        same = [verifier.verify(rf"\boxed{{{gold}}}", gold).equal for gold in golds]
        following = golds[1:] + golds[:1]
        crossed = [
            (gold, other)
            for gold, other in zip(golds, following, strict=True)
            if gold != other and verifier.verify(rf"\boxed{{{other}}}", gold).equal
        ]
    assert all(same)
    assert len(golds) == 500
    # "x=5" for the gold "5": a bare name on the left is a listed bridge
    assert crossed == [("5", "x=5")]
