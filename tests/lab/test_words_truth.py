"""The truth checker against verdicts worked out by hand; labels are measured against it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.lab.words import Quantity, Truth, WordsProblem, judge, problems
from treerl.lab.words.arithmetic import NotArithmetic, read_equation, read_expression

# Tom has 12 apples. Tom has 7 pens too. Tom buys 30 apples, gets 5 bags of 8, sells half of them.
TOM = WordsProblem(
    id="by-hand",
    question="-",
    answer="41",
    asked="half",
    templates="P",
    kind="collection",
    quantities=(
        Quantity("start", "given", (), 12),
        Quantity("pens", "given", (), 7, needed=False),
        Quantity("side", "+", ("start", "pens"), 19, (("Apples and pens",), ("Sum",)), False),
        Quantity("bought", "given", (), 30),
        Quantity("buy", "+", ("start", "bought"), 42, (("Apples after buying",), ("Now",))),
        Quantity("n", "given", (), 5),
        Quantity("m", "given", (), 8),
        Quantity("all", "*", ("n", "m"), 40, (("Apples in the bags",), ("Bags hold",))),
        Quantity("bags", "+", ("buy", "all"), 82, (("Apples after the bags",), ("With bags",))),
        Quantity("two", "given", (), 2),
        Quantity("half", "/", ("bags", "two"), 41, (("Apples after selling half",), ("Half",))),
    ),
)
BUY = "Apples after buying: 12 + 30 = 42."
ALL = "Apples in the bags: 5 * 8 = 40."
BAGS = "Apples after the bags: 42 + 40 = 82."
HALF = "Apples after selling half: 82 / 2 = 41."
ANSWER = "Answer: 41"

RIGHT = {
    "story order": [BUY, ALL, BAGS, HALF, ANSWER],
    "independent steps swapped": [ALL, BUY, BAGS, HALF, ANSWER],
    "other template set": [
        "Now: 12 + 30 = 42.",
        "Bags hold: 5 * 8 = 40.",
        "With bags: 42 + 40 = 82.",
    ],
    "a prefix": [BUY],
    "nothing": [],
    "blank steps": ["", BUY, "  "],
    "commuted": ["Apples after buying: 30 + 12 = 42."],
    "redundant side step": ["Apples and pens: 12 + 7 = 19.", BUY, ALL, BAGS, HALF, ANSWER],
    "side step between": [BUY, "Sum: 7 + 12 = 19", ALL],
    "step repeated": [BUY, BUY, ALL, BAGS],
    "restated value": [BUY, "Apples after buying: 42 = 42."],
    "bare value": ["Apples after buying: 42."],
    "steps skipped": [BAGS, HALF, ANSWER],
    "answer alone": [ANSWER],
    "steps merged": ["Apples after the bags: 12 + 30 + 5 * 8 = 82."],
    "merged with parentheses": ["Apples after selling half: (42 + 40) / 2 = 41."],
    "another way over known numbers": ["Apples after buying: 40 + 2 = 42."],
    "chain": ["Apples after the bags: 42 + 40 = 40 + 42 = 82."],
    "check of a step": [BUY, "Check: 42 - 30 = 12.", "Check: 42 - 12 = 30."],
    "check of a product": [ALL, "Check: 40 / 8 = 5.", "Half again: 41 * 2 = 82."],
    "no objective": ["12 + 30 = 42."],
    "unknown objective, right derivation": ["Fruit so far: 12 + 30 = 42."],
    "unknown objective, known number": ["Tom has: 12 = 12.", "He gets 30."],
    "numbered steps": ["Step 1: " + BUY, "2. Apples in the bags: 5 * 8 = 40."],
    "only numbered": ["Step 1: 12 + 30 = 42."],
    "other signs, units, case": ["apples AFTER  buying: 12 apples + 30 apples = 42 apples"],
    "times as a letter": ["Apples in the bags: 5 x 8 = 40"],
    "times as a sign": ["Apples in the bags: 5 × 8 = 40"],
    "answers": ["Answer: 41.", "Final answer: 41", "The answer is 41", "answer = 41 apples"],
    "answer with its sum": ["Answer: 82 / 2 = 41"],
    "objective that begins like an answer": ["Answered: 12 + 30 = 42."],
    "two lines a step": [BUY + "\n" + ALL, BAGS],
    "trailing newline": [BUY + "\n", ALL + "\r\n"],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    truth = judge(TOM, RIGHT[name])
    assert truth.first_error is None, truth
    assert truth.kind is None
    assert truth.verdicts == (True,) * len(RIGHT[name])


WRONG = {
    "slip": ([BUY, "Apples in the bags: 5 * 8 = 45.", BAGS], 1, "slip"),
    "slip not carried on": (["Apples after buying: 12 + 30 = 52.", ALL, BAGS, HALF], 0, "slip"),
    "slip in a chain": (["Apples after the bags: 42 + 40 = 72 + 10 = 83."], 0, "slip"),
    "false equation, right value": (["Apples after buying: 12 + 31 = 42."], 0, "slip"),
    "slip under an unknown objective": (["Fruit: 12 + 30 = 43."], 0, "slip"),
    "slip in a side step": (["Apples and pens: 12 + 7 = 18.", BUY], 0, "slip"),
    "division by zero": (["Apples after buying: 12 / 0 = 42."], 0, "slip"),
    "rounded division": (["Apples in the bags: 5 / 8 = 0."], 0, "slip"),
    "operation": ([BUY, "Apples in the bags: 5 + 8 = 13."], 1, "operation"),
    "operation, negative": (["Apples after buying: 12 - 30 = -18."], 0, "operation"),
    "operation, fraction": (["Apples in the bags: 5 / 8 = 0.625."], 0, "operation"),
    "operation, no objective": (["5 + 8 = 13."], 0, "operation"),
    "operation in a side step": (["Apples and pens: 12 - 7 = 5.", BUY], 0, "operation"),
    "operand: distractor": (["Apples after buying: 12 + 7 = 19."], 0, "operand"),
    "operand: stale amount": ([BUY, ALL, "Apples after the bags: 12 + 40 = 52."], 2, "operand"),
    "operand: misread": (["Apples in the bags: 5 * 9 = 45."], 0, "operand"),
    "operation and operands": (["Apples after buying: 42 - 82 = -40."], 0, "operation"),
    "conclusion is no number": ([BUY, ALL, BAGS, "Half: 2 / 82 = 1 / 41."], 3, "format"),
    "operand: foreign numbers": (["Apples after buying: 41 + 1 = 42."], 0, "operand"),
    "operand: circular": (["Apples after buying: 82 - 40 = 42."], 0, "operand"),
    "operand: wrong bare value": (["Apples after buying: 40."], 0, "operand"),
    "operand: unknown objective": (["Fruit: 12 + 12 = 24."], 0, "operand"),
    "wrong quantity": (["Apples after buying: 5 * 8 = 40."], 0, "operation"),
    "merged, a step left out": (["Apples after the bags: 12 + 5 * 8 = 52."], 0, "operand"),
    "answer": ([BUY, ALL, BAGS, HALF, "Answer: 82"], 4, "answer"),
    "answer too early": ([BUY, "Answer: 42", ALL], 1, "answer"),
    "second answer": ([ANSWER, "Answer: 40"], 1, "answer"),
    "no number in the answer": ([BUY, "Answer: many"], 1, "format"),
    "two numbers in the answer": (["Answer: 41 42"], 0, "format"),
    "answer with a false sum": (["Answer: 82 / 2 = 40"], 0, "slip"),
    "sum in the answer": (["Answer: 82 / 2"], 0, "format"),
    "prose": ([BUY, "So Tom is happy."], 1, "format"),
    "torn line": ([BUY, "Apples in the bags: 5 *"], 1, "format"),
    "no conclusion": (["Apples after buying: 12 + 30"], 0, "format"),
    "no first side": (["Apples after buying: = 42"], 0, "format"),
    "second line of a step": ([BUY, ALL + "\n" + "With bags: 42 + 40 = 80"], 1, "slip"),
    "code": (["Now: __import__('os').system('true') = 1"], 0, "format"),
    "much too long": (["Now: " + "1+" * 5000 + "1 = 5001"], 0, "format"),
    "deeply nested": (["Now: " + "(" * 100 + "42" + ")" * 100 + " = 42"], 0, "format"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    steps, index, kind = WRONG[name]
    truth = judge(TOM, steps)
    assert (truth.first_error, truth.kind) == (index, kind)
    assert truth.verdicts == (True,) * index + (False,) + (None,) * (len(steps) - index - 1)


def test_circular_numbers_are_known_once_established() -> None:
    again = "Apples after buying: 82 - 40 = 42."
    assert judge(TOM, [BUY, ALL, BAGS, again]).first_error is None


def test_final_answer_is_judged_apart_from_the_steps() -> None:
    slip = "Apples after buying: 12 + 30 = 52."
    assert judge(TOM, [slip, ALL, BAGS, HALF, ANSWER]) == Truth(
        (False, None, None, None, None), 0, "slip", True
    )
    assert judge(TOM, [slip, "Answer: 46"]).final is False
    assert judge(TOM, [slip]).final is None
    assert judge(TOM, ["Answer: 3", ANSWER]).final is True
    assert judge(TOM, [ANSWER, "Answer: what"]).final is True


def test_text_is_split_at_lines() -> None:
    text = "\n".join([BUY, "", ALL, BAGS, HALF, ANSWER]) + "\n"
    assert judge(TOM, text) == judge(TOM, [BUY, ALL, BAGS, HALF, ANSWER])


@given(
    numbers=st.lists(st.integers(0, 999), min_size=1, max_size=8),
    operations=st.lists(st.sampled_from("+-*/"), min_size=7, max_size=7),
)
def test_reader_agrees_with_python(numbers: list[int], operations: list[str]) -> None:
    pieces = [str(numbers[0])]
    fractions = [f"Fraction({numbers[0]})"]
    for operation, number in zip(operations, numbers[1:], strict=False):
        pieces += [operation, str(number)]
        fractions += [operation, f"Fraction({number})"]
    read = read_expression(" ".join(pieces))
    try:
        expected = eval(" ".join(fractions), {"Fraction": Fraction})
    except ZeroDivisionError:
        expected = None
    assert read.value == expected
    assert read.numbers == tuple(map(Fraction, numbers))
    assert len(read.operations) == len(numbers) - 1


def test_reader_details() -> None:
    assert read_expression("1,234 + $5").value == 1239
    assert read_expression("2.50 * 4").value == 10
    assert read_expression("-3 - (-4)").value == 1
    assert [side.value for side in read_equation("1 + 1 = 2.")] == [2, 2]
    for text in ("", "1 +", "(1", "1)", "1 2", "2 ** 3", "5 % 2", "+3", "1,23"):
        with pytest.raises(NotArithmetic):
            read_expression(text)


@given(st.text(max_size=80) | st.text("0123456789+-*/()=:. Answer\n", max_size=80))
def test_any_text_is_judged(text: str) -> None:
    truth = judge(TOM, [text])
    assert len(truth.verdicts) == 1
    assert (truth.first_error is None) == (truth.kind is None) == (truth.verdicts[0] is True)


@given(index=st.integers(0, 10**5), line=st.integers(0, 5), change=st.integers(-30, 30))
def test_a_changed_conclusion_is_a_slip_at_its_line(index: int, line: int, change: int) -> None:
    drawn = problems(1, start=index)[0]
    lines = drawn.solution()[:-1]
    line %= len(lines)
    head, _, value = lines[line].rstrip(".").rpartition(" = ")
    lines[line] = f"{head} = {int(value) + change}."
    truth = judge(drawn, lines)
    if change == 0:
        assert truth.first_error is None
    else:
        assert (truth.first_error, truth.kind) == (line, "slip")
