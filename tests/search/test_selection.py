"""Selection scores, back-up and rollout rewards against the numeric oracle."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.problem import Problem
from treerl.search.backup import back_up
from treerl.search.restmcts import mean_of_children, mix_rollout
from treerl.search.rollout_reward import RolloutReward
from treerl.search.selection import prior_shares, puct, ucb_restmcts, uct, uct_published
from treerl.tree import Node, Tree

ORACLE = Path(__file__).parents[1] / "data" / "groundedprm_oracle.json"
CASES = {case["name"]: case for case in json.loads(ORACLE.read_text())["cases"]}
TREES = [name for name in CASES if name.startswith("groundedprm.tree")]
PUBLISHED = RolloutReward()
WITH_OWN = RolloutReward(include_own_verdict=True)
TOLERANCE = 1e-12


def test_the_oracle_holds_four_trees() -> None:
    assert len(TREES) == 4


@pytest.mark.parametrize("row", CASES["groundedprm.rollout_reward"]["rows"])
def test_rollout_rewards(row: dict[str, Any]) -> None:
    value = PUBLISHED(row["verdicts"], row["outcome"])
    assert value == pytest.approx(float(Fraction(row["u_exact"])), abs=TOLERANCE)
    assert abs(value) <= row["bound"] + TOLERANCE
    normal = RolloutReward(normalise=True)(row["verdicts"], row["outcome"])
    assert normal == pytest.approx(row["u"] / row["bound"], abs=TOLERANCE)


VERDICTS = st.lists(st.sampled_from([-1, 0, 1]), max_size=12)
RULES = st.builds(
    RolloutReward,
    verdicts=st.booleans(),
    outcome_weight=st.just("1/N") | st.floats(0.1, 2),
    position_weight=st.sampled_from(["linear", "uniform", "exp"]),
    normalise=st.just(True),
    include_own_verdict=st.booleans(),
)


@given(RULES, VERDICTS, st.sampled_from([-1, 1]), st.sampled_from([-1, 0, 1]))
def test_normalised_rewards_stay_within_one(rule, verdicts, outcome, own) -> None:
    assert abs(rule(verdicts, outcome, own)) <= 1 + TOLERANCE


def test_without_verdicts_the_value_is_the_outcome() -> None:
    assert RolloutReward(verdicts=False)([1, -1, 1], -1, 1) == -1.0


def grow(case: dict[str, Any], rule: RolloutReward) -> dict[str, Node]:
    """Build an oracle tree and back its rollouts up with γ = 0.9."""
    tree = Tree(Problem.from_text("o", "?"), (1,))
    own, nodes = {}, {}
    for name, parent, verdict in case["input"]["nodes"]:
        nodes[name] = tree.root if parent is None else tree.add(nodes[parent], (0,))
        own[name] = verdict
    for rollout in case["input"]["rollouts"]:
        start = rollout["from"]
        value = rule(rollout["verdicts"], rollout["outcome"], own[start])
        back_up([nodes[start]], [value], 0.9)
    return nodes


@pytest.mark.parametrize("name", TREES)
def test_back_up(name: str) -> None:
    case = CASES[name]
    nodes, with_own = grow(case, PUBLISHED), grow(case, WITH_OWN)
    for key, want in case["nodes"].items():
        node = nodes[key]
        assert node.value_sum == pytest.approx(want["W_sum"], abs=TOLERANCE)
        assert node.visits == want["N_standard"]
        assert node.visits - node.own == want["N_published"]
        assert with_own[key].value_sum == pytest.approx(want["W_with_own"], abs=TOLERANCE)
        if want["Q_mean"] is not None:
            assert node.value == pytest.approx(want["Q_mean"], abs=TOLERANCE)


@pytest.mark.parametrize("name", TREES)
def test_selection_scores_and_picks(name: str) -> None:
    case = CASES[name]
    nodes = grow(case, PUBLISHED)
    for row in case["selection"]:
        parent, c = nodes[row["at"]], row["c"]
        children = {key: nodes[key] for key in row["standard"]}
        scores = {
            "standard": {
                k: uct(n.value_sum, n.visits, parent.visits, c) for k, n in children.items()
            },
            "published_positive": {
                k: uct_published(n.value_sum, n.visits - n.own, parent.visits - parent.own, c)
                for k, n in children.items()
            },
            "published_negative": {
                k: uct_published(
                    n.value_sum,
                    n.visits - n.own,
                    parent.visits - parent.own,
                    c,
                    negative_phase=True,
                )
                for k, n in children.items()
            },
        }
        for form, got in scores.items():
            for key, want in row[form].items():
                want = math.inf if want == "inf" else want
                assert got[key] == pytest.approx(want, abs=TOLERANCE), (form, key)
        for form in ("standard", "published_positive"):
            got, pick = scores[form], row[f"pick_{form}"]
            best = max(got.values())
            assert sorted(k for k, v in got.items() if v == pytest.approx(best, abs=1e-15)) == pick


def test_openr_puct() -> None:
    case = CASES["openr.puct"]
    for child in case["children"]:
        score = puct(child["q"], child["p"], child["n"], case["parent_visits"])
        assert score == pytest.approx(case["scores"][child["id"]], abs=TOLERANCE)
    best = max(case["scores"], key=case["scores"].__getitem__)
    assert best == case["pick"]


def restmcts_scores(row: dict[str, Any], parent_visits: int, c: float = 0.7) -> dict[str, float]:
    return {x["id"]: ucb_restmcts(x["V"], x["n"], parent_visits, c) for x in row["children"]}


def test_restmcts_back_up_and_selection() -> None:
    case = CASES["restmcts.backup_and_select"]
    given_row = case["input"]
    children = given_row["children"]
    value = mean_of_children([x["V"] for x in children], [x["n"] for x in children])
    assert value == pytest.approx(case["parent_V"], abs=TOLERANCE)
    mix = case["greedy_rollout_mix"]
    mixed = mix_rollout(mix["node_V"], mix["best_rollout_V"], mix["alpha"])
    assert mixed == pytest.approx(mix["new_V"], abs=TOLERANCE)
    scores = restmcts_scores(given_row, given_row["parent_n"], given_row["c"])
    assert scores == pytest.approx(case["ucb"], abs=TOLERANCE)
    assert max(scores, key=scores.__getitem__) == case["pick"]
    second = case["second"]
    scores = restmcts_scores(second, second["parent_n"])
    assert scores == pytest.approx(second["ucb"], abs=TOLERANCE)
    assert max(scores, key=scores.__getitem__) == second["pick"]


def test_a_parent_without_visits_has_no_mean() -> None:
    assert mean_of_children([0.5], [0]) is None


def siblings() -> list[Node]:
    tree = Tree(Problem.from_text("o", "?"), (1,))
    often = tree.add(tree.root, (1, 2), (-1.0, -3.0), text="a")
    often.multiplicity = 3
    tree.add(tree.root, (3,), (-1.0,), text="b")
    failed = tree.add(tree.root, (), finish_reason="error")
    failed.error, failed.multiplicity = "EngineError: slow", 0
    return tree.root.children


def test_priors_are_shares_of_what_was_sampled() -> None:
    children = siblings()
    assert prior_shares(children) == [0.75, 0.25, 0.0]
    assert prior_shares(children, "uniform") == [0.5, 0.5, 0.0]
    share = math.exp(-2) / (math.exp(-2) + math.exp(-1))
    assert prior_shares(children, "logprob") == pytest.approx([share, 1 - share, 0.0])
    assert prior_shares([]) == []
