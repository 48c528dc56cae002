"""A tree as flat arrays: the one input of every advantage estimator.

Text trees and denoising trees both make a :class:`TreeArrays`, so one library of estimators serves
both. N is the number of nodes; nodes stand in creation order and a parent precedes its children.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FloatArray", "IntArray", "TreeArrays"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NO_PARENT = -1


@dataclass(frozen=True)
class TreeArrays:
    """One tree, node 0 being the root.

    Attributes:
        parent: (N,) index of the parent, -1 for the root.
        depth: (N,) 0 for the root.
        n_tokens: (N,) trained tokens in the node's segment, 0 for the root.
        reward: (N,) reward of a leaf; NaN where unscored, unscorable or not a leaf.
        is_leaf: (N,) a path that ended here.
        logprob_sum: (N,) summed behaviour log-prob of the segment, nats.
        multiplicity: (N,) how many samples the node stands for: duplicates are folded into the
            first of them, a failed request stands for none.
        group: Id of the group that baselines are taken over: the problem's id.
    """

    parent: IntArray  # (N,)
    depth: IntArray  # (N,)
    n_tokens: IntArray  # (N,)
    reward: FloatArray  # (N,)
    is_leaf: BoolArray  # (N,)
    logprob_sum: FloatArray  # (N,)
    multiplicity: IntArray  # (N,)
    group: str

    def __post_init__(self) -> None:
        n = len(self.parent)
        for name in ("depth", "n_tokens", "reward", "is_leaf", "logprob_sum", "multiplicity"):
            array: npt.NDArray[Any] = getattr(self, name)
            if array.shape != (n,):
                raise ValueError(f"TreeArrays.{name} has shape {array.shape}, expected ({n},)")
        if n == 0 or self.parent[0] != NO_PARENT:
            raise ValueError("TreeArrays needs a root at index 0 with parent -1")
        if n > 1 and not np.all((self.parent[1:] >= 0) & (self.parent[1:] < np.arange(1, n))):
            raise ValueError("TreeArrays.parent must point to earlier nodes")

    @property
    def leaves(self) -> IntArray:
        """(L,) indices of the leaves, in creation order."""
        return np.flatnonzero(self.is_leaf).astype(np.int64)

    def weights(self) -> FloatArray:
        """(N,) branch weight ω: the product over the path of multiplicity share among siblings.

        With equal multiplicities this is the product of 1/number of children (treepo.md §2): a leaf
        drawn by walking down at random has probability ω, so Σ ω·reward is unbiased, while the
        uniform mean over leaves is not.
        """
        total = np.zeros(len(self.parent), dtype=np.float64)
        np.add.at(total, self.parent[1:], self.multiplicity[1:])
        omega = np.ones(len(self.parent), dtype=np.float64)
        # A level at a time: every parent of a level is final before the level is touched.
        order = np.argsort(self.depth, kind="stable")
        bounds = np.searchsorted(self.depth[order], np.arange(1, self.depth.max(initial=0) + 2))
        for start, stop in pairwise(bounds):
            level = order[start:stop]
            up = self.parent[level]
            share = np.divide(
                self.multiplicity[level],
                total[up],
                out=np.zeros(len(level)),
                where=total[up] > 0,  # every child failed: nothing below carries weight
            )
            omega[level] = omega[up] * share
        return omega
