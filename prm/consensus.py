"""The consensus filter of Qwen2.5-Math-PRM: keep what rollouts and a judge agree on.

A solution is kept where the hard labels of Monte Carlo and a judge's verdicts name the same first
wrong step, or both none (groundedprm.md §1.6). Published with a language model as the judge, which
has an opinion on every step. Here any step verifier is one: its first refuted step is its first
error, and a step that it cannot check counts as not refuted. With tools alone that means: a wrong
solution is kept where the tool sees its error, a right one where the tool sees none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from treerl.tree import Node, Tree
from treerl.verdict import StepVerdict, Verdict

__all__ = [
    "NO_ERROR",
    "SolutionConsensus",
    "agree",
    "consensus_of_path",
    "consensus_of_tree",
    "first_error",
    "judge_first_error",
    "kept_steps",
]

NO_ERROR = -1
"""The index of the first error where there is none, as in ProcessBench."""

Reason = Literal[
    "agree",  # kept
    "disagree",  # two different first errors, or only one side sees one
    "mc_unknown",  # too few rollouts to tell where the first error is
    "judge_unknown",  # a step that had to be judged was not
]


@dataclass(frozen=True, slots=True)
class SolutionConsensus:
    """The decision on one solution.

    Attributes:
        leaf: Index of the solution's last node.
        mc: First wrong step by rollouts, 0-based among the path's steps; NO_ERROR for none, None
            where it is unknown.
        judge: First refuted step, likewise.
        kept: Whether both are known and equal.
        reason: Why.
    """

    leaf: int
    mc: int | None
    judge: int | None
    kept: bool
    reason: Reason


def agree(mc_first_error: int, judge_first_error: int) -> bool:
    """Say whether a solution is kept: two first-error indices, NO_ERROR for none.

    Example:
        >>> agree(4, 4), agree(4, 3), agree(4, NO_ERROR), agree(NO_ERROR, NO_ERROR)
        (True, False, False, True)
    """
    return mc_first_error == judge_first_error


def first_error(labels: Sequence[int | None]) -> int | None:
    """Return the index of the first 0, NO_ERROR where all are 1.

    None where a step without a label stands before the first 0: the error may be there. Labels
    behind the first 0 do not matter, since Monte-Carlo labels need not be monotone.
    """
    for i, label in enumerate(labels):
        if label != 1:
            return i if label == 0 else None
    return NO_ERROR


def judge_first_error(verdicts: Sequence[StepVerdict | None]) -> int | None:
    """Return the index of the first refuted step, NO_ERROR where none is.

    None where a step before it has no verdict at all: nobody asked, or the judge failed.
    """
    for i, verdict in enumerate(verdicts):
        if verdict is None:
            return None
        if verdict.verdict is Verdict.REFUTED:
            return i
    return NO_ERROR


def consensus_of_path(nodes: Sequence[Node], labels: Mapping[int, int | None]) -> SolutionConsensus:
    """Decide on one solution.

    Args:
        nodes: From below the root to the solution's last node; nodes without text are no steps.
        labels: Hard Monte-Carlo label by node index, not masked.
    """
    steps = [node for node in nodes if node.text]
    mc = first_error([labels.get(node.index) for node in steps])
    judge = judge_first_error([node.verdict for node in steps])
    reason: Reason
    if mc is None:
        reason = "mc_unknown"
    elif judge is None:
        reason = "judge_unknown"
    else:
        reason = "agree" if agree(mc, judge) else "disagree"
    return SolutionConsensus(nodes[-1].index, mc, judge, reason == "agree", reason)


def consensus_of_tree(tree: Tree, labels: Mapping[int, int | None]) -> list[SolutionConsensus]:
    """Decide on every solution of a tree, in creation order.

    Solutions are those that the tree was grown for (prefix Monte Carlo), else all ended paths. A
    solution without a step has nothing to decide and is left out.
    """
    ends = (tree.root.meta or {}).get("solutions")
    leaves = tree.leaves() if ends is None else [tree.nodes[end] for end in ends]
    paths = [tree.path(leaf) for leaf in leaves]
    return [consensus_of_path(path, labels) for path in paths if any(node.text for node in path)]


def kept_steps(tree: Tree, decisions: Iterable[SolutionConsensus]) -> set[int]:
    """Return the nodes that stand on at least one kept solution.

    A step that kept and dropped solutions share is kept. That contradicts nothing: up to where the
    two part, rollouts and judge gave the same answers for both, and on the kept one they agree. An
    error before that point would have been the first of both, so that both were kept.
    """
    return {
        node.index
        for decision in decisions
        if decision.kept
        for node in tree.path(tree.nodes[decision.leaf])
    }
