"""The totals of a run of rollouts: what its trees say, and what they cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from treerl.ledger import Ledger
from treerl.search.treepo_summary import TreeSummary, summarise
from treerl.store import ProblemResult
from treerl.tree import Tree

__all__ = ["RolloutTotals", "majority_right", "readable_answer"]

_RIGHT = object()
_COUNTS = (
    *("problems", "trees", "nodes", "leaves", "distinct_leaves", "scored_leaves", "right_leaves"),
    *("scored_problems", "without_contrast", "failures"),
)
_MEANS = (
    *("ess", "first_nodes", "mean_reward", "uniform_mean_reward"),
    *("mean_tokens", "uniform_mean_tokens", "pass_at_w", "maj_at_w"),
)
_TOKENS = (
    *("requests", "failed_requests", "generated", "kept", "duplicates", "surplus", "aborted"),
    *("flat_equivalent", "unique_tokens", "row_tokens"),
)


class RolloutTotals:
    """Adds up the problems of a run; equal runs in equal order give equal totals.

    Args:
        right_above: A reward above it is a right answer.
    """

    def __init__(self, *, right_above: float = 0.5) -> None:
        self._right_above = right_above
        self._counts: Counter[str] = Counter()
        self._finish: Counter[str] = Counter()
        self._cost: Counter[str] = Counter()
        self._flat_tokens: list[float] = []
        self._means: dict[str, list[float]] = {}
        self._ledger = Ledger()

    def add(self, result: ProblemResult, texts: Mapping[int, str]) -> None:
        """Count a problem.

        Args:
            result: What the run knows about it.
            texts: Completion of each leaf, by its node's index.
        """
        self._counts["problems"] += 1
        self._counts["failures"] += len(result.failures)
        tree = result.tree
        if tree is None:
            return
        summary = summarise(tree)
        self._counts["trees"] += 1
        self._counts["nodes"] += len(tree)
        self._counts["leaves"] += summary.leaves
        self._counts["distinct_leaves"] += summary.distinct_leaves
        self._finish.update(summary.finish)
        self._ledger += tree.ledger
        for name in _TOKENS:
            self._cost[name] += getattr(summary.cost, name)
        if summary.mean_tokens is not None:
            self._flat_tokens.append(summary.leaves * summary.mean_tokens)
        self._note(summary)
        self._judge(tree, texts)

    def _note(self, summary: TreeSummary) -> None:
        for name, value in (
            ("ess", summary.ess),
            ("first_nodes", summary.first_nodes),
            ("mean_reward", summary.value),
            ("uniform_mean_reward", summary.uniform_value),
            ("mean_tokens", summary.mean_tokens),
            ("uniform_mean_tokens", summary.uniform_mean_tokens),
        ):
            if value is not None:
                self._means.setdefault(name, []).append(float(value))

    def _judge(self, tree: Tree, texts: Mapping[int, str]) -> None:
        """Count right leaves and the problem's pass and majority."""
        scored = [leaf for leaf in tree.leaves() if leaf.reward is not None]
        if not scored:
            return
        right = [leaf for leaf in scored if (leaf.reward or 0.0) > self._right_above]
        self._counts["scored_leaves"] += sum(leaf.multiplicity for leaf in scored)
        self._counts["right_leaves"] += sum(leaf.multiplicity for leaf in right)
        self._counts["scored_problems"] += 1
        self._counts["without_contrast"] += len({leaf.reward for leaf in scored}) == 1
        self._means.setdefault("pass_at_w", []).append(float(bool(right)))
        votes = [
            (readable_answer(texts[leaf.index]), leaf in right, leaf.multiplicity)
            for leaf in scored
        ]
        self._counts["answers"] += sum(answer is not None for answer, _, _ in votes)
        self._means.setdefault("maj_at_w", []).append(majority_right(votes))

    def to_json(self) -> dict[str, Any]:
        """Return the totals as summary.json holds them; None where there was nothing to count."""
        means = {name: math.fsum(values) / len(values) for name, values in self._means.items()}
        if not self._counts["answers"]:
            means.pop("maj_at_w", None)
        flat = self._cost["flat_equivalent"]
        flat_tokens = math.fsum(self._flat_tokens)
        return {
            **{name: self._counts[name] for name in _COUNTS},
            **{name: means.get(name) for name in _MEANS},
            "finish": dict(sorted(self._finish.items())),
            "cost": {
                **{name: self._cost[name] for name in _TOKENS},
                "saved": 1 - self._cost["generated"] / flat if flat else None,
                "relative_cost": self._cost["generated"] / flat_tokens if flat_tokens else None,
            },
            "ledger": self._ledger.to_json(),
        }


def majority_right(votes: list[tuple[str | None, bool, int]]) -> float:
    """Return the probability that the most voted answer is right, ties broken by lot.

    All right votes are for one answer, however it is written.

    Args:
        votes: (answer, whether it is right, how many samples said it); no answer is no vote.

    Example:
        >>> majority_right([("7", True, 2), ("8", False, 2), (None, False, 9)])
        0.5
    """
    counts: Counter[object] = Counter()
    for answer, right, n in votes:
        if answer is not None:
            counts[_RIGHT if right else answer] += n
    most = max(counts.values(), default=0)
    if not most or counts[_RIGHT] < most:
        return 0.0
    return 1 / sum(n == most for n in counts.values())


def readable_answer(text: str) -> str | None:
    """Return the canonical form of a completion's final answer, None where it has none."""
    from treerl.verifiers.extraction import extract_answer
    from treerl.verifiers.parser.answer import read_answer
    from treerl.verifiers.shapes import canonical

    found = extract_answer(text)
    if found.text is None:
        return None
    answer = read_answer(found.text)
    # As the answer verifier has it: unmarked words are no answer.
    return None if found.how == "whole" and answer.kind == "text" else canonical(answer)
