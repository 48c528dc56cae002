"""The sampler's rules against the published ones (criterion A6), and the stopping rules."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.engines.scripted import ByteTokenizer
from treerl.search.treepo_allocation import (
    BudgetTransfer,
    FullTree,
    LogprobSplit,
    Quota,
    branch_probabilities,
    split_even,
    split_weighted,
    total_branches,
)
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_fallback import fallback_points
from treerl.search.treepo_path import PathView, SegmentDraw
from treerl.search.treepo_stopping import (
    Repetition,
    Stopping,
    has_repetition,
    holds_box,
    stop_string_end,
)

ORACLE = json.loads((Path(__file__).parents[1] / "data" / "treepo_oracle.json").read_text())[
    "sampler"
]
DECODE = ByteTokenizer().decode


def view(*segments: str, logprobs: tuple[float, ...] = ()) -> PathView:
    """Return a path of these segments."""
    draw = SegmentDraw()
    for text in segments:
        draw = SegmentDraw(draw, len(draw.ids))
        draw.ids = tuple(text.encode())
        draw.logprobs = logprobs or (-1.0,) * len(draw.ids)
    return PathView(draw, DECODE)


# --- A6: oracles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ORACLE["total_divergence"], ids=str)
def test_a6_total_branches(case: dict[str, int]) -> None:
    args = (case[k] for k in ("width", "finished_total", "finished_this_round", "active", "b"))
    assert total_branches(*args) == case["total"]


@pytest.mark.parametrize("case", ORACLE["alloc_even"], ids=str)
def test_a6_even_split(case: dict[str, Any]) -> None:
    assert split_even(case["total"], case["active"]) == case["fair"]
    assert split_even(case["total"], case["active"], remainder="last") == case["official"]


@pytest.mark.parametrize("case", ORACLE["alloc_weighted"], ids=str)
def test_a6_weighted_split(case: dict[str, Any]) -> None:
    assert split_weighted(case["weights"], case["total"]) == case["alloc"]


PUBLISHED = {
    "logprob_weighted_div": ("sum", False),
    "inverse_logprob_weighted_div": ("sum", True),
    "norm_logprob_weighted_div": ("mean", False),
    "norm_inv_logprob_weighted_div": ("mean", True),
    "node_logprob_weighted_div": ("last", False),
    "inverse_node_logprob_weighted_div": ("last", True),
}


@pytest.mark.parametrize("case", ORACLE["prob_branching"], ids=str)
def test_a6_log_probability_split(case: dict[str, Any]) -> None:
    score, likelier = PUBLISHED[case["policy"]]
    weights = branch_probabilities(
        ORACLE["prob_branching_input_logprobs"],
        score=score,  # type: ignore[arg-type]
        likelier=likelier,
        segment=case["seg"],
        temperature=case["temperature"],
    )
    assert weights == pytest.approx(case["weights"], abs=1e-6)
    assert split_weighted(weights, case["total"]) == case["alloc"]


def test_a6_repetition_thresholds() -> None:
    (cases,) = (cases for name, cases in ORACLE.items() if name.startswith("repetition"))
    assert len(cases) == 10
    for case in cases:
        unit = "".join(chr(33 + (i * 7) % 90) for i in range(case["period"]))
        text = (unit * (case["length"] // case["period"] + 1))[: case["length"]]
        assert has_repetition(text) == case["repetitive"], case


@pytest.mark.parametrize("case", ORACLE["fallback_points"], ids=str)
def test_a6_fallback_points(case: dict[str, Any]) -> None:
    most = case["max_blocks"] if case["max_blocks"] > 0 else None
    assert fallback_points(case["out_len"], case["window"], most) == case["points"]


# --- allocation -----------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(1, 60))
def test_an_even_split_shares_a_quota_without_loss(quota: int, k: int) -> None:
    shares = split_even(quota, min(k, quota))
    assert sum(shares) == quota
    assert max(shares) - min(shares) <= 1


@given(
    st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=20),
    st.integers(0, 100),
)
def test_a_weighted_split_gives_everyone_one_and_loses_nothing(
    weights: list[float], more: int
) -> None:
    shares = split_weighted(weights, len(weights) + more)
    assert sum(shares) == len(weights) + more
    assert min(shares) >= 1


def test_too_few_branches_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 branches are too few for 3 paths"):
        split_weighted([0.5, 0.3, 0.2], 2)


def test_a_confident_segment_carries_its_whole_quota_on() -> None:
    draw = SegmentDraw(SegmentDraw(), 0, quota=6)
    draw.ids, draw.logprobs = (1, 2), (-0.1, -0.3)
    path = PathView(draw, DECODE)
    assert list(Quota(b=2).shares(path)) == [3, 3]
    assert list(Quota(b=2, min_surprisal=0.19).shares(path)) == [3, 3]
    assert list(Quota(b=2, min_surprisal=0.21).shares(path)) == [6]


def test_initial_divergence_is_drawn_within_its_bounds_and_the_width() -> None:
    policy = BudgetTransfer(b=2, k0=(2, 8))
    drawn = {len(policy.first(16, Random(seed))) for seed in range(100)}
    assert drawn == set(range(2, 9))
    assert max(len(policy.first(4, Random(seed))) for seed in range(100)) == 4
    assert len(BudgetTransfer(b=3).first(16, Random(0))) == 3
    assert list(Quota(k0=8).first(16, Random(0))) == [2] * 8
    assert list(Quota(k0=None).first(3, Random(0))) == [1] * 3


def test_a_full_tree_forks_by_depth() -> None:
    policy = FullTree(factors=(3, 2))
    assert len(policy.first(6, Random(0))) == 3
    assert len(policy.shares(view("a"))) == 2
    assert len(policy.shares(view("a", "b"))) == 1
    assert [policy.tokens(level, 600) for level in (1, 2, 3)] == [600, None, None]
    assert policy.leaves == 6


def test_log_probability_splits_prefer_what_they_say() -> None:
    sure, unsure = view("ab", logprobs=(-0.1, -0.1)), view("ab", logprobs=(-3.0, -3.0))
    assert LogprobSplit(temperature=0.5)(8, [sure, unsure]) == [1, 7]
    assert LogprobSplit(temperature=0.5, likelier=True)(8, [sure, unsure]) == [7, 1]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Quota(k0=0), "k0 >= 1"),
        (lambda: Quota(b=0), "b >= 1"),
        (lambda: BudgetTransfer(k0=(3, 2)), "k0 must be"),
        (lambda: FullTree(factors=()), "factors"),
        (lambda: LogprobSplit(temperature=0), "temperature"),
        (lambda: Repetition(count=1), "count >= 2"),
        (lambda: TreePOConfig(width=0), "width must be at least 1"),
        (lambda: TreePOConfig(top_p=0), "top_p"),
        (lambda: TreePOConfig(max_depth=3, segment_tokens=None), "set segment_tokens"),
        (lambda: TreePOConfig(stop=("",)), "empty string"),
    ],
)
def test_options_are_checked(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


# --- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (r"so \boxed{7}", True),
        (r"\boxed{\frac{1}{2}} ", True),
        (r"\boxed {a{b{c{d}}}}", True),
        (r"\boxed{\{1, 2\}}", True),
        (r"\boxed{7", False),
        (r"\boxed{\{7\}", False),
        (r"boxed{7}", False),
        (r"\boxed{ \boxed{3}", True),
        ("", False),
    ],
)
def test_boxes_are_found_whole(text: str, whole: bool) -> None:
    assert holds_box(text) is whole


def finish(path: PathView, rule: Stopping, **known: Any) -> str | None:
    return rule.finish(path, **{"ended": None, "full": False, "deep": False, **known})


def test_a_box_across_segments_ends_a_path() -> None:
    assert finish(view("x \\box", "ed{7} y"), Stopping()) == "answer"
    assert finish(view("x \\box", "ed{7"), Stopping()) is None
    assert finish(view("x \\box", "ed{7} y"), Stopping(boxed=False)) is None


def test_precedence_of_reasons() -> None:
    loop = view("ab" * 40)
    boxed = view("\\boxed{1}" + "ab" * 40)
    rule = Stopping()
    assert finish(boxed, rule, ended="eos") == "answer"
    assert finish(loop, rule, ended="eos", full=True) == "eos"
    assert finish(loop, rule, full=True, deep=True) == "length"
    assert finish(loop, rule, deep=True) == "depth"
    assert finish(loop, rule) == "repetition"
    assert finish(boxed, Stopping(repetition_first=True), ended="eos") == "repetition"
    assert finish(loop, Stopping(repetition=None)) is None
    assert finish(loop, Stopping(repetition=None, predicate=lambda p: len(p) == 80)) == "stop"


def test_loops_spread_over_segments_are_found_by_the_tail_only() -> None:
    unit = "".join(chr(33 + i) for i in range(64))
    path = view(*[unit] * 8)
    assert finish(path, Stopping()) == "repetition"
    assert finish(path, Stopping(repetition=Repetition(tail_tokens=0))) is None


@given(
    st.text("abc", min_size=1, max_size=12),
    st.text("abc", max_size=12),
    st.text("abc", min_size=2, max_size=4),
)
def test_a3_stop_strings_across_a_boundary(before: str, after: str, stop: str) -> None:
    """Where the engine, which sees `after` only, misses the stop, the earliest end is found."""
    ids = (before + after).encode()
    at = before.find(stop)
    if at >= 0 or stop in after:
        return
    found = (before + after).find(stop)
    want = None if found < 0 else found + len(stop)
    assert stop_string_end(ids, len(before), (stop,), DECODE) == want


def test_a_place_on_a_path_is_found_from_below() -> None:
    path = view("abc", "def", "gh")
    draw = path._draw
    assert [draw.place(n)[1] for n in range(9)] == [0, 1, 2, 3, 1, 2, 3, 1, 2]
    assert draw.place(0)[0].parent is None
    with pytest.raises(ValueError, match="no prefix of 9"):
        draw.place(9)
