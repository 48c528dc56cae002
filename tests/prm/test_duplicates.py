"""Near-duplicates and contamination: exact counts, against all pairs, and in little time."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path

import pytest

from treerl.errors import ProblemError
from treerl.prm.duplicates import contamination, near_duplicates
from treerl.prm.formats import LabelledSolution


def solution(*steps: str, id: str = "p") -> LabelledSolution:
    n = len(steps)
    return LabelledSolution(id, "Q", None, steps, (1,) * n, (None,) * n, ("mc",) * n)


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(["cat", "dog", "sum", "seven", "is", "the"]) for _ in range(words))


LONG = " ".join(f"w{i}" for i in range(30))


def test_equal_and_near_steps() -> None:
    report = near_duplicates(
        [
            solution("First, 2 * 3 = 6.", LONG),
            solution("First, 2 * 3 = 6.", f"{LONG} more"),  # its first step is that of the other
            solution("first,  2 * 3 = 6.", "Something else."),
            solution(LONG, id="another problem"),
        ]
    )
    assert (report.problems, report.steps, report.equal, report.near) == (2, 6, 1, 1)
    assert report.rate == pytest.approx(2 / 6)
    (pair,) = report.examples
    assert (pair.step, pair.earlier) == (f"{LONG} more", LONG)
    assert pair.jaccard == pytest.approx(26 / 27)


def test_short_steps_are_near_only_where_equal() -> None:
    report = near_duplicates([solution("2 + 2 = 4", "2 + 2 = 5", "a b", "a b c")])
    assert (report.equal, report.near) == (0, 0)


def test_the_threshold_is_exclusive() -> None:
    # 10 and 9 grams, 9 in common: exactly 0.9.
    text = " ".join(f"w{i}" for i in range(14))
    pair = [solution(text, text.rpartition(" ")[0])]
    assert near_duplicates(pair).near == 0
    assert near_duplicates(pair, threshold=0.899).near == 1


@pytest.mark.parametrize("seed", range(20))
def test_the_index_finds_what_all_pairs_find(seed: int) -> None:
    rng = random.Random(seed)
    n, threshold = rng.choice([1, 2, 5]), rng.choice([0.3, 0.5, 0.9])
    steps = [sentence(rng, rng.randint(1, 12)) for _ in range(40)]
    report = near_duplicates([solution(*steps)], n=n, threshold=threshold)
    distinct = list(dict.fromkeys(steps))
    grams = []
    for step in distinct:
        words = re.findall(r"\w+", step)
        count = max(len(words) - n + 1, 1)
        grams.append({tuple(words[i : i + n]) for i in range(count)})
    near = sum(
        any(len(a & b) / len(a | b) > threshold for b in grams[:i]) for i, a in enumerate(grams)
    )
    assert report.equal == len(steps) - len(distinct)
    assert report.near == near


def test_many_steps_take_little_time() -> None:
    rng = random.Random(0)
    words = [f"w{i}" for i in range(2000)]
    steps = [" ".join(rng.choices(words, k=40)) for _ in range(5000)]
    start = time.process_time()
    assert near_duplicates([solution(*steps)]).near == 0
    assert time.process_time() - start < 20


def test_examples_are_bounded_and_calls_checked() -> None:
    steps = [f"{LONG} {i}" for i in range(10)]
    report = near_duplicates([solution(*steps)], examples=3)
    assert (report.near, len(report.examples)) == (9, 3)
    assert near_duplicates([]).rate == 0
    with pytest.raises(ValueError, match="threshold"):
        near_duplicates([], threshold=0)
    with pytest.raises(ValueError, match="at least 1"):
        contamination({}, [], n=0)


# --- contamination --------------------------------------------------------------------------------


def test_thirteen_words_in_a_row(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(20)]
    held = " ".join(words)
    ours = {
        "same": held.upper() + "?",
        "thirteen": "Now " + ", ".join(words[3:16]) + " ends.",
        "twelve": "Now " + " ".join(words[3:15]) + " ends here with some more of other words.",
        "short": "What is 2 + 2?",
        "shorter": "What is 2?",
    }
    rows = [{"id": "t0", "question": held}, {"id": "t1", "question": "what is 2+2"}]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "clean.jsonl").write_text(json.dumps({"question": "Nothing in common."}) + "\n")
    report = contamination(ours, [tmp_path / "test.jsonl", tmp_path / "clean.jsonl"])
    assert report.problems == 5
    assert [(f.problems, f.hits) for f in report.files] == [(2, 3), (1, 0)]
    assert [(o.problem_id, o.other_id, o.shared, o.of) for o in report.overlaps] == [
        ("same", "t0", 8, 8),
        ("thirteen", "t0", 1, 3),
        ("short", "t1", 1, 1),
    ]
    assert contamination(ours, [], n=13).files == ()
    with pytest.raises(ProblemError, match="no such file"):
        contamination(ours, [tmp_path / "missing.jsonl"])


def test_processbench_is_gsm8k_test(data_dir: Path) -> None:
    from treerl.loading import load_problems

    problems = load_problems(data_dir / "ProcessBench" / "gsm8k.json")
    statements = {p.id: p.text for p in problems}
    gsm8k = [data_dir / "GSM8K" / "test.jsonl", data_dir / "contests" / "aime24" / "test.jsonl"]
    held, apart = contamination(statements, gsm8k).files
    assert held.hits >= 0.95 * len(statements)
    assert apart.hits == 0
