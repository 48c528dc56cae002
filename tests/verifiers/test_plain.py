"""Values as plain data: nothing is lost, nothing is mistaken for something else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.verifiers.plain import (
    TooLarge,
    literal,
    plain,
    printed_number,
    same_printed,
    same_value,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**290, 10**320)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["__set__", "__int__", "nan", "1/2"])
    | st.binary(max_size=3)
)
keys = st.integers() | st.text(max_size=3) | st.sampled_from(["__set__", "__dict__"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(keys, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(values)
def test_a_value_equals_itself_through_json(value: Any) -> None:
    assert same_value(json.loads(json.dumps(plain(value))), value)


@settings(max_examples=300, deadline=None)
@given(values, values)
def test_only_equal_values_share_a_form(one: Any, two: Any) -> None:
    if json.dumps(plain(one)) == json.dumps(plain(two)):
        assert same_value(plain(one), two)
        assert same_value(plain(two), one)
        assert isinstance(one, set) == isinstance(two, set)
        assert isinstance(one, str) == isinstance(two, str)


@settings(max_examples=300, deadline=None)
@given(values)
def test_source_of_a_value_means_the_value(value: Any) -> None:
    made = eval(literal(value), {"__builtins__": {}})
    assert same_value(plain(made), value)
    assert type(made) is type(value)


@pytest.mark.parametrize(
    "forged",
    [
        {"__int__": "nonsense"},
        {"__fraction__": [1, 0]},
        {"__fraction__": "x"},
        {"__decimal__": "1e99999999"},
        {"__complex__": [1]},
        {"__set__": 3},
        {"__dict__": [[1]]},
        {"__float__": []},
    ],
)
def test_a_forged_form_is_no_value(forged: Any) -> None:
    for value in (1, 1.5, {1}, {1: 2}, [], None, "x"):
        assert same_value(forged, value) is False


def test_what_is_too_large_says_so() -> None:
    deep: list[Any] = []
    for _ in range(101):
        deep = [deep]
    for value in (deep, [0] * 200_001, 1 << (1 << 20)):
        with pytest.raises(TooLarge):
            plain(value)
    with pytest.raises(TypeError, match="type object"):
        plain([object()], strict=True)
    assert plain(object()) == {"__type__": "object"}


@settings(max_examples=300, deadline=None)
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_is_the_number(value: float) -> None:
    read = printed_number(str(value))
    assert read is not None
    assert type(value)(read) == value
    assert same_printed(f"{value}\n", f" {value}")


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789+-*/!%.()e", max_size=6), st.integers(-99, 99))
def test_only_the_literal_of_an_integer_is_that_integer(text: str, value: int) -> None:
    if same_printed(text, str(value)):
        assert text.split() == [str(value)] or float(text) == value


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("1 2\n3\n", "1\n2 3", True),
        ("1 2", "12", False),
        ("", "", True),
        ("", "0", False),
        ("7.0", "7", True),
        ("3", "3.0", True),
        ("+3", "3", True),
        ("007", "7", False),
        ("1,000", "1000", False),
        ("7.0000000001", "7", False),
        ("0.30000000000000004", "0.3", True),
        ("0.300001", "0.3", False),
        ("1e-5", "0.00001", True),
        ("1e-13", "0.0", True),
        ("1e-13", "2e-13", False),
        ("1e-9", "0.0", False),
        ("9" * 30, "9" * 29 + "8", False),
        ("1e999999999", "1e999999999", True),
        ("1e999999999", "1e999999998", False),
        ("\u0663", "3", False),
        ("nan", "nan", True),
        ("nan", "inf", False),
        ("Yes", "yes", False),
    ],
)
def test_printed_words_are_compared_as_they_stand(actual: str, expected: str, same: bool) -> None:
    assert same_printed(actual, expected) is same
