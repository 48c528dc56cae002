"""The parser: what is read, what is refused, and that no text makes it fail otherwise."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.verifiers.parser import from_wire, parse_expression, render, to_wire, tokenize
from treerl.verifiers.parser.answer import read_answer
from treerl.verifiers.parser.enclose import compare, enclose
from treerl.verifiers.parser.evaluate import NoValue, evaluate
from treerl.verifiers.parser.nodes import Node, strip
from treerl.verifiers.parser.numerals import spelled_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("48/2", 24),
        ("1,234", 1234),
        (r"1{,}234", 1234),
        (r"1\,234", 1234),
        (r"7,\!425,\!000", 7425000),
        ("2 1/2", Fraction(5, 2)),
        ("2½", Fraction(5, 2)),
        (r"10\frac{1}{12}", Fraction(121, 12)),
        (r"\frac12", Fraction(1, 2)),
        (r"\frac{99(100)}{2}", 4950),
        ("2(5)", 10),
        ("(8)(4)", 32),
        ("-2^2", -4),
        ("2^3^2", 512),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"\sqrt{144}", 12),
        ("sqrt(16)", 4),
        (r"\sqrt[3]{27}", 3),
        (r"\log_2 256", 8),
        (r"\binom{5}{2}", 10),
        ("5!", 120),
        ("1.2e6", 1200000),
        ("3.2 × 10⁻⁴", Fraction(1, 3125)),
        ("1 million", 1000000),
        ("50%", Fraction(1, 2)),
        (r"\sum_{k=1}^{100} k", 5050),
        (r"\det\begin{pmatrix}1&2\\3&4\end{pmatrix}", -2),
        (r"3^{34} \bmod 11", 4),
        ("204_5", 54),
        ("gcd(48, 36)", 12),
        (r"\lfloor 7/2 \rfloor", 3),
        ("|−5|", 5),
    ],
)
def test_exact_values(text: str, value: Fraction | int) -> None:
    node = parse_expression(text)
    assert node is not None
    assert evaluate(node) == value


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^9}", "((9^9)^9999)^9999", "(10^9)!", r"\prod_{k=1}^{10^9} k", "1.3^{6472416997}",
        r"\sum_{i=1}^{900}\sum_{j=1}^{900} 1", "2^(2^(2^(2^100)))", r"\binom{10^9}{10^8}",
        "10^(10^10)", "(((((9^999)^999)^999)^999)^999)",
    ],
)  # fmt: skip
def test_size_is_bounded_before_evaluation(text: str) -> None:
    node = parse_expression(text)
    assert node is not None
    with pytest.raises(NoValue) as caught:
        evaluate(node)
    assert caught.value.reason == "limit"
    with pytest.raises(NoValue):
        enclose(node)


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (r"\sqrt{50}", r"5\sqrt{2}", 0),
        (r"\sqrt{50}", r"2\sqrt{5}", 1),
        (r"\sin 30^\circ", "1/2", 0),
        (r"\pi", "22/7", -1),
        ("e^{-1000}", "e^{-1001}", 1),
        (r"1/e^{1000}", "0", 1),
        (r"\arctan 1", r"\pi/4", 0),
        (r"\ln 2", r"\log_2 e", -1),
    ],
)
def test_enclosures_compare(left: str, right: str, order: int) -> None:
    a, b = parse_expression(left), parse_expression(right)
    assert a is not None
    assert b is not None
    assert compare(a, b) == order


@pytest.mark.parametrize(
    "text", ["(" * 500, "-" * 500 + "1", r"\sqrt{" * 300, "1+" * 5000, "{" * 90]
)
def test_deep_and_endless_text_is_refused(text: str) -> None:
    assert parse_expression(text) is None


def test_dangerous_names_are_only_letters() -> None:
    for text in ("__import__('os')", "x.__class__", "eval(1)", "lambda: 0"):
        node = parse_expression(text)
        assert node is None or all(
            n.kind in ("name", "const", "num", "mul", "call", "paren") for n in node.walk()
        )


def test_spans_point_into_the_text() -> None:
    text = "total − ½ ≈ 3 × 4"
    for token in tokenize(text):
        assert len(text[token.start : token.end]) == token.end - token.start > 0
    number = next(t for t in tokenize("costs $1,234.50 now") if t.kind == "num")
    assert (number.start, number.end) == (7, 15)


numbers = st.fractions(min_value=-50, max_value=50, max_denominator=40).map(
    lambda f: Node("num", (), f) if f >= 0 else Node("neg", (Node("num", (), -f),))
)
trees = st.recursive(
    numbers | st.sampled_from("xyz").map(lambda n: Node("name", (), n)),
    lambda inner: st.tuples(st.sampled_from(["add", "sub", "mul", "div"]), inner, inner).map(
        lambda parts: Node(parts[0], (parts[1], parts[2]))
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(trees)
def test_render_reads_back_to_the_same_value(tree: Node) -> None:
    env = {"x": Fraction(3, 7), "y": Fraction(-5, 2), "z": Fraction(11, 13)}
    again = parse_expression(render(tree))
    assert again is not None
    try:
        value = evaluate(tree, env)
    except NoValue:
        return
    assert evaluate(again, env) == value


@settings(max_examples=100, deadline=None)
@given(trees)
def test_wire_round_trip(tree: Node) -> None:
    assert from_wire(to_wire(tree)) == tree
    assert strip(tree) == tree


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=60)
    | st.text(alphabet=r"0123456789+-*/^()[]{}\$%,.=<>xyfracsqtle_ &!|", max_size=60)
)
def test_no_text_breaks_the_readers(text: str) -> None:
    tokens = tokenize(text)
    assert all(0 <= t.start < t.end <= len(text) for t in tokens)
    node = parse_expression(text)
    if node is not None:
        assert render(node)
        with contextlib.suppress(NoValue):
            evaluate(node)
    assert read_answer(text).kind


_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
_TENS = (
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
)  # fmt: skip


def spell(n: int, joined: str) -> str:
    """English words of a number below 10^12."""
    for power, word in ((10**9, "billion"), (10**6, "million"), (1000, "thousand")):
        if n >= power:
            rest = f" {spell(n % power, joined)}" if n % power else ""
            return f"{spell(n // power, joined)} {word}{rest}"
    if n >= 100:
        return f"{_ONES[n // 100]} hundred" + (joined + spell(n % 100, joined) if n % 100 else "")
    if n >= 20:
        return _TENS[n // 10 - 2] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    return _ONES[n]


@given(st.integers(0, 10**12 - 1), st.sampled_from([" ", " and "]))
def test_numbers_in_words(n: int, joined: str) -> None:
    words = spell(n, joined).split()
    assert spelled_number(words) == (n, len(words))
    assert spelled_number([*words[:1], "apples"])[1] == 1


def test_words_that_are_two_numbers() -> None:
    assert spelled_number(["five", "and", "six"]) == (5, 1)
    assert spelled_number(["two", "three"]) == (2, 1)
    assert spelled_number(["one", "hundred", "and", "more"]) == (100, 2)
    assert spelled_number(["apples"]) == (None, 0)


@pytest.mark.parametrize("space", ["\n", "\t", "\u2009", " "])
def test_a_number_may_break_behind_its_thousands_mark(space: str) -> None:
    (token, *_) = tokenize(f"1\\,{space}234", math=True)
    assert (token.kind, token.value) == ("num", 1234)
