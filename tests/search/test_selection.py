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
from treerl.search.rollout_reward import RolloutReward
from treerl.search.selection import puct, uct, uct_published
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
