"""Conventions of groups and of GiGPO against numbers worked out elsewhere."""

from __future__ import annotations

import json
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treerl.advantage import GiGPOSteps, NodeAdvantages, estimator, gigpo_steps
from treerl.arrays import TreeArrays

DATA = Path(__file__).resolve().parents[1] / "data"
SEED: dict[str, Any] = json.loads((DATA / "seed_oracle.json").read_text())


def star(rewards: list[float], group: str = "g") -> TreeArrays:
    n = len(rewards) + 1
    return TreeArrays(
        parent=np.array([-1] + [0] * (n - 1)),
        depth=np.array([0] + [1] * (n - 1)),
        n_tokens=np.arange(n),
        reward=np.array([np.nan, *rewards]),
        is_leaf=np.arange(n) > 0,
        logprob_sum=np.zeros(n),
        multiplicity=np.ones(n, dtype=np.int64),
        group=group,
    )


def flat(rewards: list[float], std: str) -> list[float]:
    return estimator("grpo", std=std, eps=0.0)(star(rewards)).values[0].tolist()


def test_group_advantage_conventions() -> None:
    case = SEED["common.group_advantage"]
    rewards, out = case["inputs"]["rewards"], case["outputs"]
    assert flat(rewards, "population") == pytest.approx(out["pop_std"])
    assert flat(rewards, "unbiased") == pytest.approx(out["unbiased_std"])
    assert flat(rewards, "none") == pytest.approx(out["no_std(Dr.GRPO/PCL)"])
    assert flat([1.0] * 4, "population") == out["all_equal"]


def test_two_grpo() -> None:
    case = SEED["grpo2.advantage"]
    for key, std in [("pop", "population"), ("unb", "unbiased"), ("none", "none")]:
        for pair, want in zip(case["inputs"]["pairs"], case["outputs"][key], strict=False):
            assert flat([float(r) for r in pair], std) == pytest.approx(want)


def binomial(n: int, p: float) -> list[tuple[float, list[float]]]:
    return [
        (comb(n, k) * p**k * (1 - p) ** (n - k), [1.0] * k + [0.0] * (n - k)) for k in range(n + 1)
    ]


@pytest.mark.parametrize("key", sorted(SEED["common.expected_abs_adv_mass"]["outputs"]))
def test_expected_advantage_mass(key: str) -> None:
    want = SEED["common.expected_abs_adv_mass"]["outputs"][key]
    n, p = int(key[2 : key.index(",")]), float(key[key.index("p=") + 2 :])
    mass = dict.fromkeys(("none", "population"), 0.0)
    for probability, rewards in binomial(n, p):
        for std in mass:
            mass[std] += probability * float(np.abs(flat(rewards, std)).sum())
    assert mass["none"] == pytest.approx(want["closed_form"])
    assert mass["none"] == pytest.approx(want["enumerated"])
    assert mass["population"] == pytest.approx(want["enumerated_std"])


@pytest.mark.parametrize("key", sorted(SEED["common.p_informative"]["outputs"]))
def test_share_of_informative_groups(key: str) -> None:
    for size, want in SEED["common.p_informative"]["outputs"][key].items():
        if int(size) > 16:
            continue
        kept = 0.0
        for probability, rewards in binomial(int(size), float(key[2:])):
            report = estimator("grpo")(star(rewards)).groups[0]
            assert report.samples == int(size)
            kept += probability * (not report.uniform)
        assert kept == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("key", sorted(SEED["grpo2.expected_update_per_rollout"]["outputs"]))
def test_expected_update_per_rollout(key: str) -> None:
    want, p = SEED["grpo2.expected_update_per_rollout"]["outputs"][key], float(key[2:])
    for size in (2, 16):
        for name, std in [("std", "population"), ("nostd", "none")]:
            total = 0.0
            for probability, rewards in binomial(size, p):
                advantages = np.array(flat(rewards, std))
                total += probability * float(np.mean(advantages * (np.array(rewards) - p)))
            assert total == pytest.approx(want[f"G{size}_{name}"])


def flat_gigpo(**options: Any) -> GiGPOSteps:
    trajectories = SEED["gigpo.mean_norm"]["inputs"]["trajs"]
    steps = [step for t in trajectories for step in t["steps"]]
    return gigpo_steps(
        [len(t["steps"]) for t in trajectories],
        [state for state, _ in steps],
        [reward for _, reward in steps],
        [t["R"] for t in trajectories],
        **options,
    )


@pytest.mark.parametrize(
    ("key", "std"), [("gigpo.mean_norm", "none"), ("gigpo.mean_std_norm", "unbiased")]
)
def test_gigpo(key: str, std: str) -> None:
    want = SEED[key]["outputs"]
    got = flat_gigpo(std=std, eps=0.0)
    assert got.episode.tolist() == pytest.approx(want["episode"])
    for name in ("step_returns", "step", "joint"):
        assert getattr(got, name).tolist() == pytest.approx([x for t in want[name] for x in t])


def test_gigpo_weighs_long_episodes_more_in_published_code() -> None:
    want = SEED["gigpo.code_quirk"]["outputs"]
    assert 10 - flat_gigpo().episode[0] == pytest.approx(want["mean_over_trajectories"])
    official = 10 - flat_gigpo(parity="official").episode[0]
    assert official == pytest.approx(want["mean_over_step_rows(default in code)"])


def test_gigpo_on_a_tree() -> None:
    case = SEED["gigpo.tree"]["outputs"]

    def rows(leaf: str) -> list[float]:
        return [case[leaf]["episode"] + step for step in case[leaf]["step"]]

    tree = TreeArrays(
        parent=np.array([-1, 0, 0, 1, 1, 2, 2]),
        depth=np.array([0, 1, 1, 2, 2, 2, 2]),
        n_tokens=np.ones(7, dtype=np.int64),
        reward=np.array([np.nan, np.nan, np.nan, 1.0, 0.0, 0.0, 0.0]),
        is_leaf=np.arange(7) > 2,
        logprob_sum=np.zeros(7),
        multiplicity=np.ones(7, dtype=np.int64),
        group="g",
    )
    out = estimator("gigpo", gamma=1.0)(tree)
    assert isinstance(out, NodeAdvantages)
    a, b = [rows(f"a/a{k}") for k in (1, 2)], [rows(f"b/b{k}") for k in (1, 2)]
    want = [np.mean([r[0] for r in a]), np.mean([r[0] for r in b])] + [r[1] for r in a + b]
    assert out.values[0][1:].tolist() == pytest.approx(want)
    # And the flat form, with the nodes as states, gives each row its own number.
    flat_form = gigpo_steps(
        [2, 2, 2, 2], ["", "a", "", "a", "", "b", "", "b"], [0, 1] + [0] * 6, [1, 0, 0, 0], gamma=1
    )
    assert flat_form.joint.tolist() == pytest.approx([x for r in a + b for x in r])
