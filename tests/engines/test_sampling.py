"""Drawing: the right distribution, and the same token whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="sampling needs treerl[local]")

from treerl.engines.sampling import HEAD, Wish, draw, noise  # noqa: E402


def wishes(n: int, **options: float) -> list[Wish]:
    settings = {"temperature": 1.0, "top_p": 1.0, **options}
    return [Wish(key=Wish.key_of(i), position=3, **settings) for i in range(n)]


@pytest.mark.parametrize(("vocabulary", "spread"), [(16, 2.0), (300, 0.5), (300, 3.0)])
def test_frequencies_follow_the_probabilities(vocabulary: int, spread: float) -> None:
    """Pearson's chi-square of 20,000 draws; with 300 tokens much of the mass is in the tail."""
    logits = torch.tensor(np.random.default_rng(0).normal(0, spread, vocabulary))
    counts = np.zeros(vocabulary)
    for begin in range(0, 20_000, 2_000):
        asked = [Wish(1.0, 1.0, Wish.key_of(begin + i), 0) for i in range(2_000)]
        for drawn in draw(logits.expand(2_000, -1), asked):
            counts[drawn.token_id] += 1
    wanted = torch.softmax(logits, -1).numpy() * 20_000
    common = wanted > 5
    chi2 = ((counts - wanted) ** 2 / wanted)[common].sum()
    degrees = common.sum()
    assert abs(chi2 - degrees) < 5 * np.sqrt(2 * degrees)
    if vocabulary > HEAD and spread < 1:
        tail = np.argsort(-wanted)[HEAD:]
        assert counts[tail].sum() == pytest.approx(wanted[tail].sum(), rel=0.05)


def test_the_nucleus_is_the_smallest_set_that_reaches_the_mass() -> None:
    logits = torch.log(torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05]))
    found = {d.token_id: d.logprob for d in draw(logits.expand(500, -1), wishes(500, top_p=0.8))}
    assert set(found) == {0, 1, 2}
    assert found[0] == pytest.approx(np.log(0.5 / 0.85), abs=1e-5)


def test_a_nucleus_wider_than_the_head_is_found_too() -> None:
    logits = torch.zeros(1000)
    found = {d.token_id for d in draw(logits.expand(3000, -1), wishes(3000, top_p=0.5))}
    assert 400 < len(found) <= 501  # 500 sum to half only up to rounding
    for drawn in draw(logits.expand(9, -1), wishes(9, top_p=0.5)):
        assert drawn.logprob == pytest.approx(-np.log(500), abs=0.003)


def test_a_draw_depends_on_its_own_row_only() -> None:
    torch.manual_seed(0)
    logits = torch.randn(32, 500)
    asked = [Wish((0.0, 0.7, 1.0)[i % 3], (1.0, 0.9)[i % 2], Wish.key_of(i), i) for i in range(32)]
    together = draw(logits, asked)
    assert [draw(logits[i : i + 1], asked[i : i + 1])[0] for i in range(32)] == together


def test_rounding_of_the_logits_moves_almost_no_draw() -> None:
    """1e-5 of noise on logits, as another batch shape makes: inversion would flip about 1 %."""
    torch.manual_seed(0)
    logits = torch.randn(1, 5_000).expand(2_000, -1)
    other = logits + 1e-5 * torch.randn(5_000)
    asked = wishes(2_000)
    pairs = zip(draw(logits, asked), draw(other, asked), strict=True)
    assert sum(a.token_id != b.token_id for a, b in pairs) <= 2


def test_greedy_takes_the_best_and_reports_temperature_one() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    drawn = draw(logits, wishes(1, temperature=0.0))[0]
    assert drawn.token_id == 1
    assert drawn.logprob == pytest.approx(float(torch.log_softmax(logits, -1)[0, 1]))


def test_positions_and_keys_give_unrelated_noise() -> None:
    keys = np.arange(200, dtype=np.uint64)[:, None]
    table = noise(keys, np.arange(200, dtype=np.uint64)[None, :])
    assert 0 < table.min() < table.max() < 1
    assert abs(table.mean() - 0.5) < 0.01
    centred = table - 0.5
    for other in (np.roll(centred, 1, axis=0), np.roll(centred, 1, axis=1)):
        assert abs((centred * other).mean()) < 0.01 / 12


def test_logits_that_are_no_numbers_are_reported() -> None:
    logits = torch.tensor([[0.0, float("nan")], [0.0, 1.0]])
    assert [d.finite for d in draw(logits, wishes(2))] == [False, True]


def test_reports_leave_out_what_the_nucleus_left_out() -> None:
    logits = torch.log(torch.tensor([[0.6, 0.3, 0.1]]))
    asked = Wish(1.0, 0.8, 1, 0, top_logprobs=3, chosen_ids=(2,))
    report = draw(logits, [asked])[0].alternatives
    assert report is not None
    assert report[2] == float("-inf")
    assert report[0] == pytest.approx(np.log(0.6 / 0.9), abs=1e-5)
