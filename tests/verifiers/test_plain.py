"""Values as plain data: nothing is lost, nothing is mistaken for something else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.verifiers.plain import TooLarge, literal, plain, same_value

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
