"""Several rewards, dropped leaves, filters."""

from __future__ import annotations

import numpy as np
import pytest

from treerl.advantage import combine_rewards, dapo_filter, drop_leaves, estimator, with_rewards
from treerl.arrays import FloatArray, TreeArrays


def star(n: int, group: str) -> TreeArrays:
    return TreeArrays(
        parent=np.array([-1] + [0] * n),
        depth=np.array([0] + [1] * n),
        n_tokens=np.array([0] + [5] * n),
        reward=np.full(n + 1, np.nan),
        is_leaf=np.arange(n + 1) > 0,
        logprob_sum=np.zeros(n + 1),
        multiplicity=np.ones(n + 1, dtype=np.int64),
        group=group,
    )


def rewards(*rows: list[float]) -> list[FloatArray]:
    return [np.array(row) for row in rows]


def test_a_weighted_sum() -> None:
    trees = [star(2, "a"), star(3, "b")]
    right, short = rewards([1, 0], [1, 1, 0]), rewards([0.5, 0.2], [0, 1, np.nan])
    out = combine_rewards(
        trees, {"right": right, "short": short}, weights={"right": 1.0, "short": 2.0}
    )
    assert out[0].reward[1:].tolist() == [2.0, 0.4]
    assert out[1].reward[1:3].tolist() == [1.0, 3.0]
    assert np.isnan(out[1].reward[3])
    assert [tree.group for tree in out] == ["a", "b"]


def test_gdpo_normalises_each_reward_within_its_group() -> None:
    # Two trees of one problem stand apart: the group is theirs together.
    trees = [star(2, "a"), star(2, "b"), star(2, "a")]
    right = rewards([1, 0], [1, 0], [0, 0])
    style = rewards([300, 100], [5, 5], [200, 200])
    out = combine_rewards(trees, {"right": right, "style": style}, how="gdpo", eps=0.0)

    def normal(xs: list[float]) -> FloatArray:
        values = np.array(xs)
        return (values - values.mean()) / values.std(ddof=1)

    want = normal([1, 0, 0, 0]) + normal([300, 100, 200, 200])
    got = np.concatenate([out[0].reward[1:], out[2].reward[1:]])
    assert got == pytest.approx(want)
    # A reward that does not tell the answers apart adds exactly nothing.
    assert out[1].reward[1:].tolist() == normal([1, 0]).tolist()
    # The sums are centred already: Dr. GRPO hands them on, and whitening finishes GDPO.
    final = estimator("dr_grpo")(out)
    assert np.concatenate([final.values[0], final.values[2]]) == pytest.approx(want)
    white = np.concatenate(estimator("dr_grpo", whiten=True)(out).values)
    assert white.mean() == pytest.approx(0, abs=1e-12)


def test_gdpo_keeps_mixtures_apart_that_a_sum_confuses() -> None:
    trees = [star(4, "a")]
    parts = {"right": rewards([1, 0, 1, 0]), "form": rewards([0, 1, 1, 0])}
    parts["form"][0] = parts["form"][0] * 0.1
    summed, own = (
        estimator("dr_grpo")(combine_rewards(trees, parts, how=how, eps=0.0)).values[0]  # type: ignore[arg-type]
        for how in ("sum", "gdpo")
    )
    assert summed[1] - summed[3] == pytest.approx(0.1)
    assert own[1] - own[3] == pytest.approx(own[0] - own[3])


def test_an_unscorable_part_takes_the_leaf_out_of_every_statistic() -> None:
    trees = [star(3, "a")]
    parts = {"right": rewards([1, 0, 1]), "short": rewards([2, 4, np.nan])}
    (out,) = combine_rewards(trees, parts, how="gdpo", eps=0.0)
    assert np.isnan(out.reward[3])
    # Over the two leaves that both rewards know: ±1/√2 each, in opposite directions.
    assert out.reward[1:3] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert estimator("rloo")(out).groups[0].unscored == 1


def test_mistakes_are_named() -> None:
    tree = star(2, "a")
    with pytest.raises(ValueError, match=r"shape \(3,\), but the tree of group 'a' has 2 leaves"):
        with_rewards(tree, np.zeros(3))
    with pytest.raises(ValueError, match="no rewards"):
        combine_rewards([tree], {})
    with pytest.raises(ValueError, match="'x' has 2 arrays for 1 trees"):
        combine_rewards([tree], {"x": rewards([0, 0], [0, 0])})
    with pytest.raises(ValueError, match=r"weights are for \['y'\], but the rewards are \['x'\]"):
        combine_rewards([tree], {"x": rewards([0, 0])}, weights={"y": 1.0})
    with pytest.raises(ValueError, match="how='mean' does not exist"):
        combine_rewards([tree], {"x": rewards([0, 0])}, how="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"nodes \[0\] of the tree of group 'a' are no leaves"):
        drop_leaves(tree, {0, 1})


def test_dropped_leaves_leave_the_baseline() -> None:
    tree = with_rewards(star(3, "a"), np.array([1.0, 0.0, 0.0]))
    out = estimator("dr_grpo")(drop_leaves(tree, {3}))
    assert out.values[0].tolist() == [0.5, -0.5, 0.0]
    assert out.mask[0].tolist() == [True, True, False]
    assert not np.isnan(tree.reward[3])  # the tree given is as it was


def test_the_filter_goes_by_group() -> None:
    a, a2, b = star(2, "a"), star(2, "a"), star(2, "b")
    a, a2, b = (with_rewards(t, np.array(r)) for t, r in [(a, [1, 1]), (a2, [1, 0]), (b, [0, 0])])
    kept, dropped = dapo_filter([a, b, a2])
    assert [id(tree) for tree in kept] == [id(a), id(a2)]
    assert dropped == ("b",)
    out = estimator("dapo")([a, b, a2])
    assert [m.all() for m in out.mask] == [True, False, True]
