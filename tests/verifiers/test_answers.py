"""AnswerVerifier: the open cases with their bars, and the rules one by one."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from treerl.verdict import AnswerVerdict
from treerl.verifiers import AnswerVerifier

CASES = Path(__file__).parents[1] / "data" / "answers_open.jsonl"


@pytest.fixture(scope="module")
def verifier() -> Iterator[AnswerVerifier]:
    with AnswerVerifier() as made:
        yield made


def load() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


def test_open_cases(verifier: AnswerVerifier) -> None:
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    false_positives = []
    for case in load():
        if case["policy"]:
            continue
        verdict = verifier.verify(case["prediction"], case["gold"])
        total[case["kind"]] += 1
        right[case["kind"]] += (verdict.equal is True) == case["expected"]
        if verdict.equal and not case["expected"]:
            false_positives.append(case["id"])
    negatives = sum(not case["expected"] and not case["policy"] for case in load())
    assert right.total() / total.total() >= 0.95
    assert len(false_positives) / negatives <= 0.01, false_positives
    assert right["hedging"] == total["hedging"]
    assert right["implicit_product"] == total["implicit_product"]


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        ("18", "342.", False),
        ("342", "342.", True),
        ("1234", r"1\,234", True),
        ("1234", "1{,}234", True),
        ("3/2", "1 1/2", True),
        (r"30^\circ", "30 degrees", True),
        (r"5\%", "5 percent", True),
        ("10", "10 weeks", True),
        (r"\sqrt{3}", "sqrt(3)", True),
        ("10^{-40}", "10^{-41}", False),
        ("10^{400}", "10^{400}+1", False),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}", False),
        ("101_2", "101_3", False),
        ("5", "5 or 6", False),
        ("5", "not 5", False),
        ("5", "5 or any other number", False),
        ("5", "5, 6", False),
        ("5", "x = y = 5", True),
        ("5", "4 = 5", False),
        ("0.5", "50%", True),
        ("50", "50%", False),
        ("1234567", "1234568", False),
        ("(0,1)", "[0,1]", False),
        ("(0,1)", "(0,1]", False),
        (r"\{1,2\}", "2, 1", True),
        (r"x^2-1", "(x-1)(x+1)", True),
        ("2", "{2}", True),
        ("7", "2(5)", False),
        ("12", "1 2", False),
        (r"\frac{\pi}{2}", "1.5707963", True),
        (r"\frac{\pi}{2}", "1.57", False),
        ("A", "a", False),
        ("1", r"\int_0^1 2x dx", True),
        ("x+C", "x", False),
    ],
)  # fmt: skip
def test_rules(verifier: AnswerVerifier, gold: str, answer: str, equal: bool) -> None:
    assert (verifier.verify(rf"So $\boxed{{{answer}}}$.", gold).equal is True) == equal


def test_absent_answers_are_nobodys(verifier: AnswerVerifier) -> None:
    for response in (
        "",
        "I think it is about 5 apples but not sure at all.",
        r"\boxed{5",
        "<think>\\boxed{5}",
    ):
        verdict = verifier.verify(response, "5")
        assert verdict.equal is None
        assert not verdict.gold_at_fault
    assert verifier.verify(r"\boxed{5}", "  ").gold_at_fault


def test_only_what_follows_the_reasoning_counts(verifier: AnswerVerifier) -> None:
    assert verifier.verify(r"<think>\boxed{5}</think> \boxed{6}", "5").equal is False
    assert (
        verifier.verify(r"<think>\boxed{5}</think> hm, no box here at all then", "5").equal is None
    )
    assert verifier.verify(r"\boxed{4} no: \boxed{5}", "5").equal is True


def test_alternatives_are_the_callers_choice(verifier: AnswerVerifier) -> None:
    assert verifier.verify("#### 7", "5", gold_alternatives=("6", "7")).equal is True
    assert verifier.verify("#### 8", "5", gold_alternatives=("6", "7")).equal is False


def test_policies() -> None:
    with AnswerVerifier(percent="lenient", units="strict", extraction="last_number") as lenient:
        assert lenient.verify("so 50", "50%").equal is True
        assert lenient.verify("first 3 then 4", "4").equal is True
    with AnswerVerifier(decimal_comma=True) as comma:
        assert comma.verify(r"\boxed{1,22}", "1.22").equal is True
    with pytest.raises(ValueError, match="extraction"):
        AnswerVerifier(extraction="everywhere")  # type: ignore[arg-type]


def test_records_survive_json_and_repeat(verifier: AnswerVerifier) -> None:
    for case in load()[:60]:
        verdict = verifier.verify(case["prediction"], case["gold"])
        assert AnswerVerdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict
        assert verifier.verify(case["prediction"], case["gold"]) == verdict


def test_threads_and_pickle_agree_with_the_main_thread(verifier: AnswerVerifier) -> None:
    cases = load()[:120]
    one = [verifier.verify(c["prediction"], c["gold"]).equal for c in cases]
    with ThreadPoolExecutor(8) as threads:
        many = list(threads.map(lambda c: verifier.verify(c["prediction"], c["gold"]).equal, cases))
    assert one == many
    copy = pickle.loads(pickle.dumps(verifier))
    assert copy.verify(r"\boxed{1/2}", "0.5").equal is True
    copy.close()


def test_statistics(verifier: AnswerVerifier) -> None:
    with AnswerVerifier() as counted:
        counted.verify("#### 5", "5")
        counted.verify("nothing to see here, really nothing", "5")
        assert counted.stats.to_dict()["verdict/UNVERIFIABLE/no_answer"] == 1
        assert counted.stats.total == 2


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("god", "dog"),
        ("\\text{god}", "\\text{dog}"),
        ("FTT", "TTF"),
        ("DCBA", "ABCD"),
        ("BGR", "RGB"),
    ],
)
def test_words_are_no_products_of_variables(gold: str, said: str) -> None:
    with AnswerVerifier() as verifier:
        assert verifier.verify(f"\\boxed{{{said}}}", gold).equal is False
        assert verifier.verify(f"\\boxed{{{gold}}}", gold).equal is True


def test_two_small_letters_stay_algebra() -> None:
    with AnswerVerifier() as verifier:
        assert verifier.verify("\\boxed{yx}", "xy").equal is True
