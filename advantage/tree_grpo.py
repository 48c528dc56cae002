"""Tree-GRPO: leaves against the whole group and against their own tree."""

from __future__ import annotations

from typing import Literal

import numpy as np

from treerl.advantage.flat import Parity, group_mask
from treerl.advantage.forest import Forest
from treerl.advantage.raw import OnLeaves
from treerl.advantage.stats import choice, normalise
from treerl.arrays import FloatArray, IntArray

__all__ = ["tree_grpo"]

EPS = 1e-6


def tree_grpo(
    forest: Forest,
    *,
    mode: Literal["inter+intra", "intra", "2norm"] = "inter+intra",
    trees: Literal["first_node", "arrays"] = "first_node",
    parity: Parity = None,
) -> OnLeaves:
    """Tree-GRPO: ``A_i = GRPO(all leaves of the problem)_i + GRPO(leaves of i's tree)_i``.

    Source: arXiv 2509.21240, std over n - 1, eps 1e-6. ``intra`` keeps the second term alone,
    ``2norm`` normalises over the problem and then the result within each tree. (L,) values.
    Unsound: as ``grpo``, and the term within a tree divides by the std of very few leaves.

    Args:
        mode: Which terms.
        trees: What a tree is: the leaves below one depth-1 node, or one TreeArrays.
        parity: ``"official"``: a tree of one leaf adds its raw reward (in a problem where all
            answers are right that leaf gets +1); by default it adds nothing.
    """
    choice("mode", mode, ("inter+intra", "intra", "2norm"))
    choice("trees", trees, ("first_node", "arrays"))
    mask = group_mask(forest, parity)
    key = forest.first_node if trees == "first_node" else forest.leaf_tree
    raw = np.where(forest.scored, forest.reward, 0.0)
    inter = _norm(forest, raw, forest.leaf_group, parity)
    if mode == "2norm":
        return OnLeaves(_norm(forest, inter, key, parity), mask)
    intra = _norm(forest, raw, key, parity)
    return OnLeaves(intra if mode == "intra" else inter + intra, mask)


def _norm(forest: Forest, values: FloatArray, key: IntArray, parity: Parity) -> FloatArray:
    """(L,) normalised within each key; a lone leaf 0, or as it is in published code."""
    size = int(key.max(initial=0)) + 1
    out, alone = normalise(values, key, size, forest.count, std="unbiased", eps=EPS)
    if parity == "official":
        out = np.where(alone[key] & forest.scored, values / (1.0 + EPS), out)
    return out
