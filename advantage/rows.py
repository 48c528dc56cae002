"""Trees and advantages as training rows: one row a leaf, root to leaf."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from treerl.advantage.forest import BoolArray
from treerl.advantage.paths import path_nodes
from treerl.advantage.results import Advantages, LeafAdvantages, NodeAdvantages, PathAdvantages
from treerl.advantage.stats import choice
from treerl.arrays import FloatArray, IntArray, TreeArrays
from treerl.tree import Tree

__all__ = ["Row", "expand", "to_rows"]


@dataclass(frozen=True, slots=True)
class Row:
    """One leaf's path. T is the number of its tokens behind the prompt.

    Attributes:
        group: The problem's id.
        tree: Position of the tree in the input.
        leaf: Index of the leaf's node in its tree.
        reward: Of the leaf, NaN where unscored.
        prompt_ids: Ids of the prompt.
        token_ids: (T,) ids as generated; nothing is re-tokenised.
        loss_mask: (T,) tokens that are trained: written by the policy and given an advantage.
        logprobs: (T,) behaviour log-probs, nats; NaN where unknown.
        advantages: (T,) 0 where the mask is False.
        weights: (T,) loss weight of each token, 0 where the mask is False.
        nodes: (T,) index of the node that each token stands in.
    """

    group: str
    tree: int
    leaf: int
    reward: float
    prompt_ids: tuple[int, ...]
    token_ids: IntArray  # (T,)
    loss_mask: BoolArray  # (T,)
    logprobs: FloatArray  # (T,)
    advantages: FloatArray  # (T,)
    weights: FloatArray  # (T,)
    nodes: IntArray  # (T,)

    def to_record(self) -> dict[str, Any]:
        """Return plain lists and numbers, as parquet and JSON lines take them."""
        return {
            "group": self.group,
            "tree": self.tree,
            "leaf": self.leaf,
            "reward": None if np.isnan(self.reward) else self.reward,
            "prompt_ids": list(self.prompt_ids),
            "token_ids": self.token_ids.tolist(),
            "loss_mask": self.loss_mask.tolist(),
            "logprobs": [None if np.isnan(x) else x for x in self.logprobs.tolist()],
            "advantages": self.advantages.tolist(),
            "weights": self.weights.tolist(),
            "nodes": self.nodes.tolist(),
        }


def to_rows(
    trees: Tree | Sequence[Tree],
    advantages: Advantages,
    *,
    weight: Literal["leaf", "unique"] = "leaf",
    max_prob: float | None = None,
    no_loss: Sequence[Collection[int]] | None = None,
) -> list[Row]:
    """Write one row a leaf, tree after tree, in creation order.

    Args:
        trees: The trees that the advantages were estimated on, in the same order.
        advantages: What an estimator returned for their arrays.
        weight: ``"leaf"``: every row weighs its multiplicity on all its tokens, so a shared token
            counts once for each leaf below it: what leaf advantages are made for. ``"unique"``: a
            token's weights over all rows add up to 1: what node advantages are made for.
        max_prob: Leave tokens out whose behaviour probability was at least this (SPO: 0.9).
        no_loss: For each tree the leaf nodes that stay in the baselines but are not trained.

    Raises:
        ValueError: The advantages belong to other trees.
    """
    choice("weight", weight, ("leaf", "unique"))
    if isinstance(trees, Tree):
        trees = (trees,)
    if len(advantages.values) != len(trees):
        raise ValueError(f"advantages of {len(advantages.values)} trees for {len(trees)} trees")
    if no_loss is not None and len(no_loss) != len(trees):
        raise ValueError(f"no_loss is for {len(no_loss)} trees, but there are {len(trees)}")
    rows: list[Row] = []
    for i, tree in enumerate(trees):
        arrays = tree.arrays()
        plan = _Plan((arrays,), advantages, i, () if no_loss is None else no_loss[i])
        rows += _tree_rows(tree, arrays, plan, i, weight == "unique", max_prob)
    return rows


class _Plan:
    """The paths of trees and what stands on them: S places, one a leaf and segment.

    The nodes of the trees are counted through; of one tree they keep their indices.
    """

    def __init__(
        self,
        trees: Sequence[TreeArrays],
        advantages: Advantages,
        start: int,
        no_loss: Collection[int] = (),
    ) -> None:
        sizes = [len(tree.parent) for tree in trees]
        bases = np.cumsum([0, *sizes[:-1]])
        self.n_nodes = sum(sizes)
        self.leaves: IntArray = _join(
            [tree.leaves + base for tree, base in zip(trees, bases, strict=True)], np.int64
        )
        parent = _join([t.parent + base for t, base in zip(trees, bases, strict=True)], np.int64)
        depth = _join([tree.depth for tree in trees], np.int64)
        self.nodes, self.offsets = path_nodes(parent, depth, self.leaves)
        self._samples = _join([tree.multiplicity for tree in trees], np.int64)[self.leaves]
        length = np.diff(self.offsets)
        these = slice(start, start + len(trees))
        values = _join(list(advantages.values[these]), np.float64)
        by_leaf = (
            advantages.leaf_mask if isinstance(advantages, NodeAdvantages) else advantages.mask
        )
        trained = _join(list(by_leaf[these]), np.bool_)
        expected = {
            NodeAdvantages: self.n_nodes,
            LeafAdvantages: len(self.leaves),
            PathAdvantages: len(self.nodes),
        }[type(advantages)]
        if len(values) != expected or len(trained) != len(self.leaves):
            raise ValueError(
                f"the advantages of tree {start} are for {len(values)} places and {len(trained)} "
                f"leaves, but it has {expected} and {len(self.leaves)}; has it grown since?"
            )
        if no_loss:
            trained = trained & ~np.isin(self.leaves, np.array(sorted(no_loss)))
        self.mask: BoolArray = np.repeat(trained, length)
        self.first: FloatArray | None = None
        if isinstance(advantages, LeafAdvantages):
            values = np.repeat(values, length)
            if advantages.first_token is not None:
                self.first = _join(list(advantages.first_token[these]), np.float64)[self.nodes]
        elif isinstance(advantages, NodeAdvantages):
            self.mask &= _join(list(advantages.mask[these]), np.bool_)[self.nodes]
            values = values[self.nodes]
        self.values: FloatArray = np.where(self.mask, values, 0.0)

    def weights(self, unique: bool) -> FloatArray:
        """(S,) loss weight of a token of each place."""
        # A trained leaf stands for at least one sample: a failed request is no leaf.
        out = np.where(self.mask, np.repeat(self._samples, np.diff(self.offsets)), 0)
        if not unique:
            return out.astype(np.float64)
        total = np.bincount(self.nodes, out, minlength=self.n_nodes)[self.nodes]
        shares: FloatArray = np.divide(out, total, out=np.zeros(len(out)), where=total > 0)
        return shares


def _tree_rows(
    tree: Tree,
    arrays: TreeArrays,
    plan: _Plan,
    index: int,
    unique: bool,
    max_prob: float | None,
) -> list[Row]:
    segments = [_segment(tree, i) for i in range(len(tree.nodes))]
    size = np.array([len(ids) for ids, _, _ in segments])
    weights = plan.weights(unique)
    rows = []
    for leaf, start, stop in zip(
        plan.leaves.tolist(), plan.offsets[:-1].tolist(), plan.offsets[1:].tolist(),
        strict=True,
    ):  # fmt: skip
        nodes = plan.nodes[start:stop]
        times = size[nodes]
        path = [segments[n] for n in nodes.tolist()]
        logprobs = _join([x for _, x, _ in path], np.float64)
        mask = _join([x for _, _, x in path], np.bool_) & np.repeat(plan.mask[start:stop], times)
        if max_prob is not None:
            mask &= ~(np.exp(logprobs) >= max_prob)
        values = np.repeat(plan.values[start:stop], times)
        if plan.first is not None:
            at = np.cumsum(times) - times
            values[at[times > 0]] += plan.first[start:stop][times > 0]
        rows.append(
            Row(
                group=arrays.group,
                tree=index,
                leaf=leaf,
                reward=float(arrays.reward[leaf]),
                prompt_ids=tree.prompt_ids,
                token_ids=_join([x for x, _, _ in path], np.int64),
                loss_mask=mask,
                logprobs=logprobs,
                advantages=np.where(mask, values, 0.0),
                weights=np.where(mask, np.repeat(weights[start:stop], times), 0.0),
                nodes=np.repeat(nodes, times),
            )
        )
    return rows


def _segment(tree: Tree, index: int) -> tuple[IntArray, FloatArray, BoolArray]:
    """Return a node's ids, log-probs (NaN if it has none) and which tokens the policy wrote."""
    node = tree.nodes[index]
    n = len(node.token_ids)
    logprobs = np.array(node.logprobs) if node.logprobs else np.full(n, np.nan)
    return np.array(node.token_ids, dtype=np.int64), logprobs, np.full(n, node.kind == "policy")


def _join(parts: list[Any], dtype: type) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


def expand(
    trees: TreeArrays | Sequence[TreeArrays], advantages: Advantages, start: int = 0
) -> tuple[FloatArray, IntArray]:
    """Return the advantage of every trained token of every leaf's path, without ids.

    Args:
        trees: Trees that the advantages were estimated on, one after another.
        advantages: What an estimator returned.
        start: Position of the first of them in the estimator's input.

    Returns:
        (R,) values, row after row in the order of each tree's ``leaves``, 0 where masked; and
        (rows + 1,) where each row starts.
    """
    if isinstance(trees, TreeArrays):
        trees = (trees,)
    plan = _Plan(trees, advantages, start)
    times = _join([tree.n_tokens for tree in trees], np.int64)[plan.nodes]
    ends = np.concatenate([[0], np.cumsum(times)])
    out = np.repeat(plan.values, times)
    if plan.first is not None:
        out[ends[:-1][times > 0]] += np.where(plan.mask, plan.first, 0.0)[times > 0]
    return out, ends[plan.offsets]
