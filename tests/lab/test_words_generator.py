"""The generator: determinism, ranges, splits, template sets, and the noise of training data."""

import hashlib
import json
import random
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.lab import words
from treerl.lab.words.generator import main, problem, problems, stream
from treerl.lab.words.noise import NoiseRates, drill, write_solution
from treerl.lab.words.problem import Split, WordsProblem, apply
from treerl.lab.words.stories import LIMIT, MAX_GIVEN, MAX_STEPS, MIN_STEPS
from treerl.lab.words.templates import OBJECTIVE, QUESTION, VARIANTS, TemplateSet

# Frozen with the weights: a change of either means a new VERSION and a new training.
SPEC = "482e57f68ad8c4c24239936c2faa06ab3a26541850c31db8bdeec8a6aa79adbd"
CORPUS = "92474417f906c0ef85a65d1be9b89df2ef5fad2ef880e7da424cbf673dc32df2"

indices = st.integers(0, 10**6)
sets = st.sampled_from(["P", "Q"])
splits = st.sampled_from(["train", "held"])


def test_public_face() -> None:
    assert words.__all__ == [
        "SPEC_SHA256",
        "Quantity",
        "Truth",
        "WordsProblem",
        "judge",
        "model_path",
        "problems",
    ]
    assert all(hasattr(words, name) for name in words.__all__)


def test_import_loads_no_heavy_library() -> None:
    code = "import sys, treerl.lab.words; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "tokenizers", "numpy"} & set(done.stdout.split())


def test_texts_are_frozen() -> None:
    assert words.SPEC_SHA256 == SPEC


def test_stories_are_frozen() -> None:
    drawn = problems(100, split="held") + problems(200, split="train", seed=7)
    text = "\n".join(json.dumps(p.to_record(), sort_keys=True) for p in drawn)
    assert hashlib.sha256(text.encode()).hexdigest() == CORPUS


def test_template_sets_are_disjoint_and_complete() -> None:
    for templates in (QUESTION, OBJECTIVE):
        of_p = [text for template in templates.values() for text in template[0]]
        of_q = [text for template in templates.values() for text in template[1]]
        assert not {t.casefold() for t in of_p} & {t.casefold() for t in of_q}
        assert all(len(side) == VARIANTS for pair in templates.values() for side in pair)


def test_every_wording_states_its_numbers() -> None:
    for key, template in QUESTION.items():
        slots = [
            {name for _, name, _, _ in string.Formatter().parse(text) if name in ("n", "m")}
            for side in template
            for text in side
        ]
        assert all(found == slots[0] for found in slots), key


def test_sets_share_cue_words() -> None:
    """A translator written from P must have a chance on Q: each pair shares a content stem."""
    loners = []
    for key, (of_p, of_q) in QUESTION.items():
        stems = [
            {word[:4] for word in " ".join(texts).lower().split() if "{" not in word}
            for texts in (of_p, of_q)
        ]
        if not stems[0] & stems[1]:
            loners.append(key)
    # What is there needs no cue; `buy` shares its stem, which is shorter than four letters.
    assert set(loners) == {"have", "distractor", "buy"}


@given(index=indices, split=splits, seed=st.integers(0, 50))
def test_problem_is_a_function_of_its_key(index: int, split: Split, seed: int) -> None:
    first = problem(index, split=split, seed=seed)
    assert first == problem(index, split=split, seed=seed)
    assert problems(2, split=split, seed=seed, start=index)[0] == first
    assert WordsProblem.from_record(json.loads(json.dumps(first.to_record()))) == first


@given(index=indices, split=splits)
def test_numbers_are_in_range_and_true(index: int, split: Split) -> None:
    drawn = problem(index, split=split)
    values: dict[str, int] = {}
    for q in drawn.quantities:
        if q.op == "given":
            assert 1 <= q.value <= MAX_GIVEN
        else:
            left, right = (values[key] for key in q.operands)
            assert apply(q.op, left, right) == q.value
            assert 1 <= q.value < LIMIT
        assert q.key not in values
        values[q.key] = q.value
    assert drawn.answer == str(values[drawn.asked])
    assert MIN_STEPS <= len(drawn.plan()) <= MAX_STEPS
    assert drawn.plan()[-1].key == drawn.asked


@given(index=indices)
def test_sets_tell_the_same_story(index: int) -> None:
    of_p, of_q = problem(index, templates="P"), problem(index, templates="Q")
    assert of_p.quantities == of_q.quantities
    assert of_p.question != of_q.question
    assert of_p.solution() != of_q.solution()
    assert of_p.id != of_q.id
    assert problem(index) in (of_p, of_q)


@given(index=indices)
def test_objectives_name_one_quantity(index: int) -> None:
    texts = [
        text.casefold() for q in problem(index).derived() for side in q.objectives for text in side
    ]
    assert len(texts) == len(set(texts))


def test_held_and_train_are_disjoint_whatever_the_seeds() -> None:
    def questions(split: Split, seed: int) -> set[str]:
        drawn = problems(700, split=split, seed=seed, templates="P")
        return {p.question for p in drawn}

    held = questions("held", 0) | questions("held", 3)
    train = questions("train", 0) | questions("train", 3) | questions("train", 4)
    assert not held & train
    assert len(held) > 1350  # and the series hardly repeat themselves


def test_ids_are_unique_over_series() -> None:
    ids = [
        p.id
        for split in ("train", "held")
        for seed in (0, 1)
        for templates in ("P", "Q")
        for p in problems(20, split=split, seed=seed, templates=templates)
    ]
    assert len(ids) == len(set(ids)) == 160
    assert problem(17, templates="Q").id == "words-held-000017Q"


def test_both_sets_and_all_kinds_occur() -> None:
    drawn = problems(300)
    assert {p.kind for p in drawn} == {"collection", "pair", "shop", "wage"}
    assert 100 < sum(p.templates == "P" for p in drawn) < 200
    assert {len(p.plan()) for p in drawn} == {2, 3, 4, 5}


def test_stream_is_the_series() -> None:
    endless = stream(split="train", start=5)
    assert [next(endless) for _ in range(3)] == problems(3, split="train", start=5)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="no such problem"):
        problem(-1)
    with pytest.raises(ValueError, match="no such problem"):
        problem(0, split="test")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        problems(-3)
    with pytest.raises(ValueError, match="not a record"):
        WordsProblem.from_record({"id": "x"})
    record = problem(0).to_record()
    record["metadata"]["world"] = "digits"
    with pytest.raises(ValueError, match="not a words problem"):
        WordsProblem.from_record(record)
    with pytest.raises(KeyError, match="no quantity"):
        problem(0).quantity("nothing")


def test_command_writes_problems(tmp_path: Path) -> None:
    out = tmp_path / "held.jsonl"
    main(["--n", "7", "--split", "held", "--templates", "Q", "--start", "3", "--out", str(out)])
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert set(records[0]) == {"id", "question", "answer", "metadata"}
    restored = [WordsProblem.from_record(record) for record in records]
    assert restored == problems(7, templates="Q", start=3)


@given(index=indices, which=sets, split=splits)
def test_clean_solutions_are_right(index: int, which: TemplateSet, split: Split) -> None:
    drawn = problem(index, split=split, templates=which)
    truth = words.judge(drawn, drawn.solution())
    assert truth.verdicts == (True,) * (len(drawn.plan()) + 1)
    assert (truth.first_error, truth.kind, truth.final) == (None, None, True)


@given(index=indices, which=sets, seed=indices)
def test_varied_solutions_are_right(index: int, which: TemplateSet, seed: int) -> None:
    drawn = problem(index, split="train", templates=which)
    rates = NoiseRates(error=0.0, reorder=1.0, side=1.0)
    written = write_solution(drawn, random.Random(seed), rates)
    truth = words.judge(drawn, written.text)
    assert truth.first_error is None
    assert all(truth.verdicts)
    assert len(truth.verdicts) == len(drawn.derived()) + 1


@given(index=indices, which=sets, seed=indices)
def test_errors_are_found_at_their_line_with_their_kind(
    index: int, which: TemplateSet, seed: int
) -> None:
    drawn = problem(index, split="train", templates=which)
    written = write_solution(drawn, random.Random(seed), NoiseRates(error=1.0, reorder=0.3))
    truth = words.judge(drawn, written.text)
    assert (truth.first_error, truth.kind) == (written.error_line, written.error_kind)
    if written.error_line is None:  # all draws failed: rare, and then the solution is right
        return
    after = len(written.lines) - written.error_line - 1
    assert truth.verdicts == (True,) * written.error_line + (False,) + (None,) * after
    if written.error_kind == "answer":
        assert truth.final is False
    elif not written.carried:
        assert truth.final is True


def test_noise_has_all_kinds_at_the_stated_rates() -> None:
    rng = random.Random(0)
    rates = NoiseRates()
    written = [write_solution(p, rng, rates) for p in problems(6000, split="train")]
    wrong = [w for w in written if w.error_kind is not None]
    assert abs(len(wrong) / len(written) - rates.error) < 0.03
    for kind, weight in zip(("slip", "operation", "operand", "answer"), rates.kinds, strict=True):
        # A draw whose numbers do not work out is drawn again, which favours slips.
        assert 0.6 < sum(w.error_kind == kind for w in wrong) / len(wrong) / weight < 2
    steps = [w for w in wrong if w.error_kind != "answer"]
    assert sum(not w.carried for w in steps) / len(steps) > 0.1


@given(seed=indices, n=st.integers(1, 12))
def test_drills_are_true_sums(seed: int, n: int) -> None:
    _, lines = drill(random.Random(seed), n, ("+", "-", "*", "/"))
    assert len(lines) == n
    assert all(result.endswith(".\n") for _, result in lines[:-1])
    for number, (shown, result) in enumerate(lines, 1):
        head, left, op, right, equals = shown.split()
        assert (head, equals) == (f"{number}:", "=")
        assert op in ("+", "-", "*", "/")
        assert apply(op, int(left), int(right)) == int(result.strip(".\n"))  # type: ignore[arg-type]
