"""A tree as the JSON record that the page draws: what a reader asks about, and no token ids."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from treerl.advantage.paths import path_nodes
from treerl.advantage.registry import Estimator
from treerl.advantage.results import NodeAdvantages, PathAdvantages
from treerl.arrays import FloatArray
from treerl.prm.label import StepLabel
from treerl.tree import Node, Tree

__all__ = ["node_advantages", "tree_record"]


def tree_record(
    tree: Tree,
    labels: Mapping[int, StepLabel] | None = None,
    advantages: FloatArray | None = None,
    *,
    right_above: float = 0.5,
) -> dict[str, Any]:
    """Return a tree as a JSON object; fields without a value are left out.

    Args:
        tree: The tree.
        labels: By node; None where the tree was never labelled.
        advantages: (N,) one a node, NaN where there is none.
        right_above: A reward above it is a right answer.
    """
    right, scored = tree.samples(right_above)
    weights = tree.weights()
    nodes = []
    for node in tree.nodes:
        record = _node(node)
        record["omega"] = _number(weights[node.index])
        label = None if labels is None else labels.get(node.index)
        if label is not None:
            record["label"] = _label(label)
        if advantages is not None:
            record["advantage"] = _number(advantages[node.index])
        nodes.append(_without_none(record))
    problem, run = tree.problem, tree.run
    return {
        "id": problem.id,
        "messages": [
            {"role": str(m.get("role", "")), "text": str(m.get("content", ""))}
            for m in problem.messages
        ],
        "answer": problem.answer,
        "labelled": labels is not None,
        "right": right,
        "scored": scored,
        "leaves": len(tree.leaves()),
        "run": {
            "sampler": run.sampler,
            "policy": run.policy,
            "seed": run.seed,
            "visit": run.visit,
            "tree_index": run.tree_index,
        },
        "ledger": {**tree.ledger.to_json(), "kept": tree.kept_tokens()},
        "nodes": nodes,
    }


def node_advantages(tree: Tree, estimator: Estimator) -> FloatArray:
    """Return what an estimator gives each segment of a tree, compared within this tree alone.

    Of an estimator that values leaves, or leaves and segments, a node gets the mean over the leaves
    below it, which is what its tokens get on average over their training rows; what some add on a
    segment's first token alone is left out.

    Returns:
        (N,) one a node; NaN at the root and where the estimator masks it.
    """
    arrays = tree.arrays()
    given = estimator(arrays)
    if isinstance(given, NodeAdvantages):
        return np.where(given.mask[0], given.values[0], np.nan)
    nodes, offsets = path_nodes(arrays.parent, arrays.depth, arrays.leaves)
    lengths = np.diff(offsets)
    values = given.values[0]
    if not isinstance(given, PathAdvantages):
        values = np.repeat(values, lengths)
    used = np.repeat(given.mask[0], lengths)
    total = np.bincount(nodes[used], values[used], minlength=len(tree))
    count = np.bincount(nodes[used], minlength=len(tree))
    mean = np.full(len(tree), np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def _node(node: Node) -> dict[str, Any]:
    return {
        "parent": None if node.parent is None else node.parent.index,
        "text": node.text,
        "tokens": len(node.token_ids),
        "logprob": _number(math.fsum(node.logprobs)) if node.logprobs else None,
        "kind": node.kind if node.kind != "policy" else None,
        "end": node.finish_reason,
        "error": node.error,
        "samples": node.multiplicity,
        "visits": node.visits or None,
        "value": _number(node.value),
        "prior": _number(node.prior) if node.prior else None,
        "correct": node.correct if node.total else None,
        "total": node.total or None,
        "reward": _number(node.reward),
        "version": node.policy_version or None,
        # A seed needs all its 63 bits, and a number of JavaScript has 53.
        "seed": None if node.seed is None else str(node.seed),
        "verdict": None if node.verdict is None else node.verdict.to_json(),
        "meta": None if not node.meta else json.dumps(node.meta, indent=1, default=str),
    }


def _label(label: StepLabel) -> dict[str, Any]:
    return _without_none(
        {
            "value": label.label,
            "soft": _number(label.soft),
            "source": label.source,
            "masked": label.masked or None,
            "why": label.rationale,
        }
    )


def _number(value: float | np.floating[Any] | None) -> float | None:
    """Return a number in six digits; JSON has neither infinities nor NaN, so they are left out."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def _without_none(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}
