"""Drawing tokens so that a sample depends on (logits, temperature, top-p, seed, position) alone.

Gumbel-max with counter-based noise: token v of position t in the request with seed s gets the noise
``G(s, t, v)``, a hash, and the largest ``logprob + noise`` wins, which is an exact sample [Gumbel
1954; Maddison et al. 2014]. The other usual way, one uniform number through the cumulated
probabilities, is as exact but fragile: batches of another shape change logits by 1e-6, all later
sums move with them, and with 50,000 tokens a sum is crossed now and then. Here two runs differ only
where two tokens tie to 1e-6.

Only the HEAD likeliest tokens get noise of their own. The rest takes part as one candidate with its
joint mass; the maximum over a group of Gumbels is a Gumbel at the group's log-sum-exp, so this is
exact too. If it wins, a second number chooses inside it.

Letters: B rows (requests), V vocabulary, K head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from treerl.seeding import derive_seed

__all__ = ["Draw", "Wish", "draw", "noise"]

HEAD = 64
_Floats = npt.NDArray[np.float64]
_Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Wish:
    """How one row is to be drawn.

    Attributes:
        temperature: 0 takes the likeliest token; log-probs are then those of temperature 1.
        top_p: Nucleus mass.
        key: The request's seed, hashed.
        position: Number of tokens that the request has generated.
        top_logprobs: Alternatives to report, at most HEAD.
        chosen_ids: Ids whose log-probs to report.
    """

    temperature: float
    top_p: float
    key: int
    position: int
    top_logprobs: int = 0
    chosen_ids: tuple[int, ...] = ()

    @staticmethod
    def key_of(seed: int) -> int:
        """Hash a seed to a noise key, so that neighbouring seeds are unrelated."""
        return derive_seed("sample", seed)


@dataclass(frozen=True, slots=True)
class Draw:
    """One drawn token; log-probs in nats after temperature and top-p.

    Attributes:
        alternatives: {id: log-prob}, the token itself included where alternatives were asked for.
        finite: False where the model's logits were not finite; the token is then meaningless.
    """

    token_id: int
    logprob: float
    alternatives: dict[int, float] | None = None
    finite: bool = True


def noise(keys: _Keys, counters: _Keys) -> _Floats:
    """Return uniforms in (0, 1) for pairs of key and counter (the finaliser of splitmix64).

    Args:
        keys: One a row, shape (B, 1) or (B,).
        counters: Token ids or other small numbers, broadcast against keys.
    """
    z = keys + (counters + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.asarray(((z >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)


def _gumbel(uniform: _Floats) -> _Floats:
    return np.asarray(-np.log(-np.log(uniform)))


def _keys(wishes: Sequence[Wish]) -> _Keys:
    """Return one key a row for its position, shape (B,)."""
    seeds = np.array([w.key for w in wishes], dtype=np.uint64)
    places = np.array([w.position for w in wishes], dtype=np.uint64)
    # One round of the finaliser keeps (key, position) pairs from sliding into each other.
    mixed = noise(seeds, places + np.uint64(1 << 40))
    return (mixed * 2.0**53).astype(np.uint64) * np.uint64(2048)


def draw(logits: Any, wishes: Sequence[Wish]) -> list[Draw]:
    """Draw one token a row.

    Args:
        logits: Tensor (B, V) of the model, any float type.
        wishes: B of them.
    """
    scale = torch.tensor(
        [w.temperature if w.temperature > 0 else 1.0 for w in wishes],
        dtype=torch.float32,
        device=logits.device,
    )
    scaled = logits.float() / scale[:, None]  # (B, V)
    total = torch.logsumexp(scaled, dim=-1)  # (B,)
    top, top_ids = torch.topk(scaled, min(HEAD, scaled.shape[-1]), dim=-1)  # (B, K) descending
    head = (top - total[:, None]).double().cpu().numpy()
    ids = top_ids.cpu().numpy()
    finite = torch.isfinite(total).cpu().numpy()
    keys = _keys(wishes)
    race = head + _gumbel(noise(keys[:, None], ids.astype(np.uint64)))
    mass = 1.0 - np.exp(head).sum(axis=-1)  # (B,) of all tokens outside the head
    vocabulary = scaled.shape[-1]
    rest = _gumbel(noise(keys, np.full_like(keys, vocabulary)))
    winners = race.argmax(axis=-1)
    draws: list[Draw] = []
    for row, wish in enumerate(wishes):
        if not finite[row]:
            draws.append(Draw(0, float("nan"), finite=False))
            continue
        line = _Line(scaled[row], float(total[row]), head[row], ids[row], int(keys[row]))
        if wish.temperature == 0:
            place = _Place(int(ids[row, 0]), float(head[row, 0]))
        elif wish.top_p < 1:
            place = line.nucleus(wish.top_p)
        else:
            winner = int(winners[row])
            outside = vocabulary > HEAD and mass[row] > 0
            if outside and np.log(mass[row]) + rest[row] > race[row, winner]:
                place = line.tail()
            else:
                place = _Place(int(ids[row, winner]), float(head[row, winner]))
        draws.append(Draw(place.token_id, place.logprob, line.report(wish, place)))
    return draws


@dataclass(slots=True)
class _Place:
    """A drawn token, and the nucleus it came from: what was kept and the log of its mass."""

    token_id: int
    logprob: float
    kept: frozenset[int] | None = None
    norm: float = 0.0


@dataclass(slots=True)
class _Line:
    """One row of logits: the rare ways of drawing from it, and reports."""

    scaled: Any
    total: float
    head: _Floats
    ids: npt.NDArray[np.int64]
    key: int

    def tail(self) -> _Place:
        """Draw outside the head by inverting the cumulated probabilities."""
        weights = torch.exp(self.scaled.double() - self.total).cpu().numpy()
        weights[self.ids] = 0.0
        cumulated = np.cumsum(weights)
        if not cumulated[-1] > 0:  # the head's mass fell short of 1 by rounding only
            return _Place(int(self.ids[0]), float(self.head[0]))
        counter = np.uint64(len(weights) + 1)
        u = float(noise(np.array([self.key], dtype=np.uint64), np.array([counter]))[0])
        token_id = int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))
        token_id = min(token_id, int(np.flatnonzero(weights)[-1]))
        return _Place(token_id, float(self.scaled[token_id]) - self.total)

    def nucleus(self, top_p: float) -> _Place:
        """Draw from the smallest set of likeliest tokens whose mass reaches top_p."""
        logprobs, ids = self.head, self.ids
        before = np.cumsum(np.exp(logprobs)) - np.exp(logprobs)
        if before[-1] < top_p and len(ids) < self.scaled.shape[-1]:  # wider than the head
            ordered, order = torch.sort(self.scaled, descending=True)
            logprobs = ordered.double().cpu().numpy() - self.total
            ids = order.cpu().numpy()
            before = np.cumsum(np.exp(logprobs)) - np.exp(logprobs)
        size = max(1, int(np.searchsorted(before, top_p, side="left")))
        kept, kept_ids = logprobs[:size], ids[:size]
        norm = float(np.log(np.exp(kept).sum()))
        keys = np.full(size, self.key, dtype=np.uint64)
        winner = int((kept + _gumbel(noise(keys, kept_ids.astype(np.uint64)))).argmax())
        logprob = float(kept[winner]) - norm
        return _Place(int(kept_ids[winner]), logprob, frozenset(map(int, kept_ids)), norm)

    def report(self, wish: Wish, place: _Place) -> dict[int, float] | None:
        """Return what the request wants to know besides the token; None if nothing."""
        if not wish.top_logprobs and not wish.chosen_ids:
            return None
        found: dict[int, float] = {}
        if wish.top_logprobs:
            for token_id, logprob in zip(
                self.ids[: wish.top_logprobs], self.head[: wish.top_logprobs], strict=True
            ):
                if place.kept is None or int(token_id) in place.kept:
                    found[int(token_id)] = float(logprob) - place.norm
            found[place.token_id] = place.logprob
        for token_id in wish.chosen_ids:
            inside = place.kept is None or token_id in place.kept
            logprob = float(self.scaled[token_id]) - self.total - place.norm
            found[token_id] = logprob if inside else float("-inf")
        return found
