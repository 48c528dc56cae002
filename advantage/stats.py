"""Weighted means, deviations and whitening, exact where all values are equal."""

from __future__ import annotations

from typing import Literal

import numpy as np

from treerl.advantage.forest import BoolArray, ratio
from treerl.arrays import FloatArray, IntArray

__all__ = ["Std", "choice", "normalise", "whiten"]

Std = Literal["unbiased", "population", "none"]
"""Which deviation divides: over n - 1, over n, or none."""

WHITEN_EPS = 1e-8


def choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse an option's value that does not exist.

    Raises:
        ValueError: With the option, the value and what is allowed.
    """
    if value not in allowed:
        raise ValueError(f"{name}={value!r} does not exist; choose from {list(allowed)}")


def normalise(
    values: FloatArray,
    key: IntArray,
    n_keys: int,
    weight: FloatArray,
    *,
    std: Std,
    eps: float,
) -> tuple[FloatArray, BoolArray]:
    """Centre values within groups and divide by the group's deviation.

    Args:
        values: (L,).
        key: (L,) group of each.
        n_keys: How many groups there are.
        weight: (L,) samples that each stands for; 0 leaves it out of the statistics.
        std: Which deviation.
        eps: Added to the deviation.

    Returns:
        (L,) normalised values, exactly 0 where a group's are all equal and where the weight is 0,
        and (n_keys,) groups of at most one sample.
    """
    choice("std", std, ("unbiased", "population", "none"))
    present = weight > 0
    lowest = np.full(n_keys, np.inf)
    np.minimum.at(lowest, key[present], values[present])
    # Counted from the lowest, equal values are 0 to the last bit, and so is their deviation.
    above = np.where(present, values - lowest[key], 0.0)
    n = _totals(weight, key, n_keys)
    mean = ratio(_totals(weight * above, key, n_keys), n)
    centred = np.where(present, above - mean[key], 0.0)
    if std != "none":
        square = _totals(weight * centred * centred, key, n_keys)
        scale = np.sqrt(ratio(square, n - 1 if std == "unbiased" else n)) + eps
        centred = ratio(centred, scale[key])
    return centred, n <= 1


def _totals(values: FloatArray, key: IntArray, n_keys: int) -> FloatArray:
    """(n_keys,) sums of values by key."""
    return np.bincount(key, values, n_keys).astype(np.float64)


def whiten(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Shift to mean 0 and scale to variance 1 over the tokens of the whole batch.

    ``(A - mean) / sqrt(var + 1e-8)`` with the token-weighted mean and the variance over the tokens
    less one, as verl's masked whitening does. Equal values give exactly 0.

    Args:
        values: Any shape (K,).
        weight: (K,) tokens that carry each value; 0 leaves it out and gives 0.

    Unsound where scale matters: it couples the problems of a batch, lets long paths set the mean,
    and moves groups that had nothing to learn from away from 0.
    """
    present = weight > 0
    total = weight.sum()
    if total <= 1 or not present.any():
        return np.zeros(len(values))
    above = np.where(present, values - values[present].min(), 0.0)
    centred = above - (above * weight).sum() / total
    variance = (centred * centred * weight).sum() / (total - 1)
    return np.where(present, centred / np.sqrt(variance + WHITEN_EPS), 0.0)
