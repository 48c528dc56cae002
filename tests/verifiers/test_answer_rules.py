r"""AnswerVerifier: rules that people found missing, one case a line (gold, answer, verdict)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.verifiers import AnswerVerifier


@pytest.fixture(scope="module")
def verifier() -> Iterator[AnswerVerifier]:
    with AnswerVerifier(wall_s=20.0) as made:
        yield made


FAR_AWAY = [
    ("|x+100|", "x+100", False),
    ("x+100", "|x+100|", False),
    ("|x+100|", "|-x-100|", True),
    (r"\max(x,-50)", "x", False),
    (r"\min(x,1000)", "x", False),
    ("x", r"\max(x,y-1000)", False),
    (r"\sqrt{(x-500)^2}", "500-x", False),
    (r"\sqrt{(x-500)^2}", "|x-500|", True),
    ("x", "x+e^{-1000}", False),
    ("1", "1+e^{-1000}", False),
    (r"\sqrt{2}+e^{-2000}", r"\sqrt{2}", False),
    (r"e^{-1000}", r"\frac{1}{e^{1000}}", True),
    (r"\lfloor x/1000 \rfloor", "0", False),
]
MODULI = [
    (r"3 \pmod 7", "3", True),
    (r"3 \pmod{7}", r"10 \pmod{7}", True),
    ("3 mod 7", r"10 \pmod{7}", True),
    (r"3 \pmod{7}", r"3 \pmod{5}", False),
    ("3 (mod 7)", "3 mod 5", False),
    ("3 mod 7", "4 mod 7", False),
    ("17 mod 7", "3", True),
    (r"x \equiv 3 \pmod 7", r"x \equiv 10 \pmod 7", True),
    (r"x \equiv 3 \pmod 7", r"x \equiv 3 \pmod 5", False),
    (r"x \equiv 3 \pmod 7", r"y \equiv 3 \pmod 7", False),
    ("3", r"x \equiv 3 \pmod 7", False),
]
UNITS = [
    ("500 cm", "5 m", True),
    ("5 m", "500 cm", True),
    ("5m", "500 cm", True),
    ("5 m", "5m", True),
    ("5m", "5", False),
    ("5 m", "5", True),
    ("5 m", "5 s", False),
    ("5 g", "5 m", False),
    ("2 h", "120 min", True),
    ("5 L", r"5000 \text{ mL}", True),
    (r"\frac{1}{2} m", "50 cm", True),
    ("10 N", "10 N", True),
    ("5x", "5 m", False),
    ("3m+1", "1+3m", True),
    ("20 °C", "68 °F", True),
    (r"68^\circ F", r"20^\circ C", True),
    ("20°C", "20°F", False),
    (r"20^\circ\text{C}", "20", True),
    (r"20^\circ\text{C}", r"20^\circ", True),
    ("20 degrees Celsius", r"20^\circ C", True),
    ("20°C", "20 cm", False),
]
SETS = [
    (r"\mathbb{R} \setminus \{0\}", r"(-\infty,0)\cup(0,\infty)", True),
    (r"\mathbb{R}\setminus\{1\}", r"x \neq 1", True),
    (r"\mathbb{R}\setminus\{1\}", r"x\ne 2", False),
    (r"\mathbb{R}\backslash\{1, 2\}", r"x \neq 1, x \neq 2", True),
    (r"\mathbb{R}\setminus\{1, 2\}", r"x \neq 1", False),
    (r"\mathbb{R}-\{1\}", r"x \neq 1", True),
    (r"\{1,2,3\}\setminus\{3\}", r"\{1,2\}", True),
    (r"\{1,2,3\}\setminus\{3\}", r"\{1,3\}", False),
    (r"[0,5]\setminus\{2\}", r"[0,2)\cup(2,5]", True),
    (r"[0,5]\setminus(1,2)", r"[0,1]\cup[2,5]", True),
    (r"[0,5]\setminus(1,2)", r"[0,1)\cup(2,5]", False),
]
ENDLESS = [
    ("1/3", "0.333...", True),
    (r"\frac13", r"0.333\ldots", True),
    ("0.333...", "1/3", True),
    ("0.333...", "0.333", False),
    ("1/7", r"0.142857142857\dots", True),
    ("1/6", "0.1666...", True),
    ("0.3334", "0.333...", False),
    (r"\pi", "3.14159265...", True),
    (r"\pi", "3.14...", False),
    ("1", "0.999...", True),
    ("1, 2, 3, ...", r"1,2,3,\ldots", True),
    ("1, 2, 3, ...", "1, 2, 3", False),
]
MOMENTS = [
    ("7:30", "7:30", True),
    ("7:30 a.m.", "7:30 p.m.", False),
    ("7:30 AM", r"7:30 \text{ am}", True),
    ("7:30 p.m.", "19:30", True),
    ("19:30", "7:30", False),
    ("5:00 p.m.", "5 pm", True),
    ("5:00 p.m.", "6 pm", False),
    ("2:10", "1:05", False),
    ("12:30", "24:60", False),
    ("10:05", "2:1", False),
    ("3:4", "6:8", True),
    ("1/2/2024", "1/4048", False),
    ("12/25/2020", "2020-12-25", True),
    ("3/4/2021", "4/3/2021", False),
    ("3/4/2021", "3/4/2021", True),
    ("1983", "2020-12-25", False),
    ("3/4", "0.75", True),
    ("5:3", "5/3", True),
    ("8 am", "20:00", False),
    ("2 years", "24 months", True),
    ("2 years", "2 months", False),
]


HABITS = [
    (r"(-\infty,3)\cup(5,\infty)", r"x<3 \text{ or } x>5", True),
    (r"(-\infty,3)\cup(5,\infty)", r"x<3 \text{ and } x>5", False),
    ("(3,5)", r"x>3 \text{ and } x<5", True),
    ("5 hours 30 minutes", r"5.5 \text{ hours}", True),
    ("5 hours 30 minutes", r"5 \text{ hours}", False),
    ("90 minutes", r"1 \text{ hour } 30 \text{ minutes}", True),
    ("5 ft 6 in", r"5 \text{ feet and } 6 \text{ inches}", True),
    ("5 feet, 6 inches", "5 feet 7 inches", False),
    ("18 apples and 3 pears", r"18 \text{ apples and } 3 \text{ pears}", True),
    ("18", r"18 \text{ apples and } 3 \text{ pears}", False),
    (r"\frac13", r"\frac13 \approx 0.333", True),
    (r"\frac13", r"\frac13 \approx 0.5", False),
    ("1.41", r"\sqrt{2} \approx 1.41", True),
    ("7/2", r"x = \frac72 \approx 3.5", True),
    ("7/2", r"x = \frac72 \approx 3.6", False),
    ("3", r"3 \approx \pi", False),
    ("42", r"\approx 42", False),
    ("5", r"\text{length} = 5", True),
    ("5", r"\text{not} = 5", False),
    ("120", r"\angle ABC = 120^\circ", True),
    (r"120^\circ", r"m\angle ABC = 120^{\circ}", True),
    ("5", "5\\ ", True),
    ("5", r"\bf 5", True),
    ("5", r"\color{red}{5}", True),
    ("5", r"\textcolor{red}{5}", True),
    ("1/2", r"1\over 2", True),
    ("1/2", r"{1 \over 2}", True),
    ("(A)", r"\textbf{(A)}\ 5", True),
    ("(A)", r"\textbf{(B)}\ 5", False),
    ("A", r"\text{(A), (B)}", False),
    ("42", r"\text{not }42", False),
    ("42", "42?", False),
    ("42", r"42 \neq 43", False),
    ("5", r"5 \text{ or more}", False),
    ("5", r"\le 5", False),
    ("42", "__import__('os').system('id') or 42", False),
    ("42", "42 if True else 0", False),
    (r"12\text{ cm}^2", r"12\text{ cm}", False),
    (r"12\text{ cm}^2", r"0.0012 \text{ m}^2", True),
    ("60 mph", r"88 \text{ ft/s}", True),
    ("2n+1", "2k+1", False),
    (r"\frac{a}{b+c}", "a/b+c", False),
    (r"2\pm\sqrt3", r"2+\sqrt{3}, 2-\sqrt{3}", True),
    ("3", r"\pm 3", False),
]


CHANGING = (
    "squared", "cubed", "factorial", "tenths", "halves", "thirds", "hundredths", "thousandths",
    "doubled", "halved", "reciprocal", "negative", "quadrillion", "crore", "lakh", "gross", "two",
)  # fmt: skip
SAID = [
    ("5", "$5$ million", False),
    ("5000000", "$5$ million", True),
    ("5", "$5$ and $6$", False),
    ("5", "$5$, $6$", False),
    ("5", "$5$ to $6$", False),
    ("5", "$5$ times $6$", False),
    ("5 m", "$5$ cm", False),
    ("5 minutes", "$5$ hours", False),
    ("5 feet", "$5$ feet $6$ inches", False),
    ("66 inches", "$5$ feet $6$ inches", True),
    ("5", "$x = 5$ and $y = 6$.", False),
    ("1/2", r"$\frac{1}{2}$ of $6$", False),
    ("5", "$5$ because $2+3=5$.", True),
    ("5", "$5$, so we are done.", True),
    ("5", "$5$ and we are done.", True),
    ("5", "$5$ (see above).", True),
    ("5", "$5$ apples.", True),
    ("2x", "$2x$ for all $x$.", True),
    ("5", "$5$ on the left and $6$ on the right", False),
    ("5", "$5$ and the other is $6$", False),
    ("5", "$5$ for every even $n$, or $6$", False),
    ("18", "$18 for the first and $20 for the second", False),
    *[("5", f"5 {word}", False) for word in CHANGING],
    ("0.3", "0.3 repeating", False),
    ("5 years", "5 decades", False),
    ("50 years", "5 decades", True),
    ("5 days", "5 fortnights", False),
    ("5 cm", "5 cm squared", False),
    ("5 cm^2", "5 cm squared", True),
    ("$5", "¥5", False),
    ("5 radians", "5 degrees", False),
    (r"\pi radians", "180 degrees", True),
    ("A", "A: cats", True),
    ("B", "A: cats", False),
    ("C", "C) 45", True),
    ("A", "A) 5 or B) 6", False),
    ("A", "A: 5, B: 6", False),
    ("C", "[C]", True),
    ("-5", "negative 5", True),
    ("5", "negative 5", False),
    ("105", "one hundred and five", True),
    ("100", "one hundred and five", False),
    ("500000", "five hundred thousand", True),
    ("1234", "one thousand two hundred thirty-four", True),
    ("60", "five dozen eggs", True),
    ("5", "five million", False),
    ("11", "five and six", False),
    ("2/3", "two thirds", True),
    ("3/4", "three quarters", True),
    ("1", "one half", False),
    ("1", "1 half", False),
    ("2", "two three", False),
]
NOTATION = [
    ("5", "|x|=5", False),
    ("5", r"\sqrt{x}=5", False),
    ("5", "|AB|=5", True),
    ("3/5", r"\sin A=\frac35", True),
    ("x", "f(x)=x", True),
    ("5", r"\cancel{5}", False),
    ("0 K", "0 °C", False),
    ("20 °C", "20 K", False),
    ("(1,2)", "(a,b)=(1,2)", True),
    ("(1,2)", "(a,b)=(2,1)", False),
    (r"\mathbb{R}", r"\mathbb R", True),
    ("(1,2)", "]1,2[", True),
    ("(1,2]", "]1,2]", True),
    ("[1,2]", "]1,2[", False),
    (r"\pm5", r"x=5 \text{ or } x=-5", True),
    (r"\pm5", r"x=5 \text{ or } x=-6", False),
    ("5", "=5", True),
    ("12", r"\textbf{(B)}\ 12", True),
    ("B", r"\textbf{(B)}\ 12", True),
    ("13", r"\textbf{(B)}\ 12", False),
    ("C", r"\textbf{(B)}\ 12", False),
    ("A", r"\text{(A) or (B)}", False),
    ("2x", r"\frac{dy}{dx}=2x", True),
    ("3x", r"\frac{dy}{dx}=2x", False),
]


@pytest.mark.parametrize(("gold", "answer", "equal"), SAID)
def test_the_whole_sentence_is_the_answer(
    verifier: AnswerVerifier, gold: str, answer: str, equal: bool
) -> None:
    assert verifier.verify(f"The answer is {answer}", gold).equal is equal


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [*HABITS, *FAR_AWAY, *MODULI, *UNITS, *SETS, *ENDLESS, *MOMENTS, *NOTATION],
)
def test_rules(verifier: AnswerVerifier, gold: str, answer: str, equal: bool) -> None:
    assert verifier.verify(rf"\boxed{{{answer}}}", gold).equal is equal


DEEP = "(" * 100 + "3" + ")" * 100


@pytest.mark.parametrize("text", [DEEP, "+".join(["1"] * 400), "1e99999", "9" * 3000, "x" * 5000])
def test_a_limit_says_on_which_side_it_was_hit(verifier: AnswerVerifier, text: str) -> None:
    by_gold = verifier.verify("#### 3", text)
    assert (by_gold.equal, by_gold.reason, by_gold.gold_at_fault) == (None, "gold_limit", True)
    by_answer = verifier.verify(f"#### {text}", "3")
    assert (by_answer.equal, by_answer.reason, by_answer.gold_at_fault) == (None, "limit", False)


def test_values_beyond_the_bounds_say_it_too(verifier: AnswerVerifier) -> None:
    assert verifier.verify(r"\boxed{5}", "9^{9^9}").reason == "gold_limit"
    assert verifier.verify(r"\boxed{9^{9^9}}", "5").reason == "limit"
    assert verifier.verify(r"\boxed{9^{9^9}}", "9^{9^9}").equal is True


@pytest.mark.parametrize("sign", ["\x00", "\u202e", "\u2066", "\x1b"])
def test_signs_that_hide_are_no_answer(verifier: AnswerVerifier, sign: str) -> None:
    assert verifier.verify(f"\\boxed{{{sign}3}}", "3").reason == "control_character"
    assert verifier.verify("\\boxed{3}", f"3{sign}").reason == "gold_control_character"
    assert verifier.verify("\\boxed{\u200b3\u200e}", "3").equal is True


@pytest.mark.parametrize(
    "gold", ["The work is 1+2 #### 3", "We add. The answer is 3.", "Answer: 3", r"So \boxed{3}."]
)
def test_golds_may_mark_their_answer(verifier: AnswerVerifier, gold: str) -> None:
    assert verifier.verify(r"\boxed{3}", gold).equal is True
    assert verifier.verify(r"\boxed{1}", gold).equal is False


@pytest.mark.parametrize(
    "text", ["I don't know", "I have no idea", "No idea.", "maybe 3", "I think 3", "not 3", "3?!"]
)
def test_small_talk_is_no_answer(verifier: AnswerVerifier, text: str) -> None:
    for gold in ("3", "blue", "x"):
        assert verifier.verify(text, gold).reason == "no_answer"


def test_golds_may_be_numbers_and_other_types_are_named(verifier: AnswerVerifier) -> None:
    assert verifier.verify("#### 3", 3).equal is True
    assert verifier.verify("#### 0.5", 0.5).equal is True
    assert verifier.verify("#### 4", 3, gold_alternatives=[4]).equal is True
    for response, gold in ((None, "3"), (3, "3"), ("3", None), ("3", True), ("3", ["3"])):
        with pytest.raises(TypeError, match="must be text"):
            verifier.verify(response, gold)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list of golds"):
        verifier.verify("#### 4", "3", gold_alternatives="4")


@settings(max_examples=150, deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_pieces_are_told_apart_wherever_they_meet(at: int, other: int) -> None:
    whole, part = f"|x - ({at})|", f"x - ({at})"
    assert PLAIN.verify(f"#### {part}", whole).equal is False
    shifted = PLAIN.verify(f"#### |x - ({other})|", whole)
    assert shifted.equal is (at == other)


PLAIN = AnswerVerifier()
