"""Prefix Monte Carlo: the value of every prefix of a solution, from rollouts of its own.

What Math-Shepherd, VinePPO, SPO-chain and GenPRM's relative progress are made of. Solutions are
given, or sampled first. A prefix's counts are those of the rollouts that start at it, so they are
unbiased, unlike counts of a tree search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treerl.config import check_finite
from treerl.engines.base import Request, Tokenizer
from treerl.problem import Problem
from treerl.search.backup import back_up
from treerl.search.growth import Answer, JudgeRequest
from treerl.search.sampling import Draw, SampleTree, Sampling
from treerl.tree import Node, RunInfo, Tree

__all__ = ["PrefixMC", "PrefixMCConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMCConfig:
    """How to estimate.

    Attributes:
        rollouts: Rollouts a prefix; 0 leaves given solutions to the tools and their outcome.
        solutions: Solutions to sample where none are given.
        estimate_root: Estimate the empty prefix too (relative progress needs it).
        until_first_zero: Go step by step and stop at the first prefix without a right rollout:
            labels behind it are masked anyway.
        right_above: A reward above it is a right answer.
        sampling: How the policy is sampled.
    """

    rollouts: int = 8
    solutions: int = 1
    estimate_root: bool = False
    until_first_zero: bool = False
    right_above: float = 0.5
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        check_finite(self, "right_above")
        if self.rollouts < 0 or self.solutions < 1:
            raise ValueError("PrefixMCConfig needs rollouts >= 0 and solutions >= 1")


class PrefixMC:
    """The estimation of one problem, as a :class:`~treerl.search.growth.Growth`.

    The solutions' last nodes stand in ``tree.root.meta["solutions"]``; their values as arrays are
    :func:`treerl.search.chain_values.chain_values`.

    Args:
        solutions: Steps of given solutions; None samples them.
        tree: A tree without steps to go on with instead of a new one.
        Others: as of :class:`~treerl.search.mcts.MCTS`.
    """

    def __init__(
        self,
        problem: Problem,
        tokenizer: Tokenizer,
        config: PrefixMCConfig | None = None,
        *,
        solutions: Sequence[Sequence[str]] | None = None,
        run: RunInfo | None = None,
        system: str | None = None,
        template_options: dict[str, Any] | None = None,
        max_context: int | None = None,
        tree: Tree | None = None,
    ) -> None:
        self.config = config or PrefixMCConfig()
        self._samples = SampleTree(
            problem,
            tokenizer,
            self.config.sampling,
            run=run or RunInfo(sampler="prefix_mc"),
            system=system,
            template_options=template_options,
            max_context=max_context,
            tree=tree,
        )
        self.tree = self._samples.tree
        self._paths: list[list[Node]] = []  # prefixes still to estimate, a list a solution
        self._estimated: set[int] = set()
        self._sampling: list[Draw] = []
        self._probes: dict[int, list[Draw]] = {}  # prefix -> its rollouts
        self._chains: dict[int, list[list[Node]]] = {}
        self._done = False
        if solutions is None:
            self._sampling = self._samples.draw(self.tree.root, self.config.solutions, rollout=True)
        else:
            self._take_solutions([self._samples.give(steps) for steps in solutions])
        self._advance()

    @property
    def done(self) -> bool:
        """True once every prefix is estimated."""
        return self._done

    def ready(self) -> list[Request | JudgeRequest]:
        """Return the requests that can go out now."""
        return self._samples.ready()

    def tell(self, request_id: str, answer: Answer) -> None:
        """Take the answer to one request."""
        self._samples.tell(request_id, answer)
        self._advance()

    def _advance(self) -> None:
        while not self._done and not self._samples.generating:
            if self._sampling:
                draws, self._sampling = self._sampling, []
                self._take_solutions([self._samples.enter(draw) for draw in draws])
            for index, draws in self._probes.items():
                self._chains[index] = [self._samples.enter(draw) for draw in draws]
            self._probes = {}
            if self._samples.judging:
                return
            for index, chains in self._chains.items():
                self._count(self.tree.nodes[index], chains)
            self._chains = {}
            self._start_probes()

    def _take_solutions(self, chains: list[list[Node]]) -> None:
        whole = [chain for chain in chains if chain]
        ends = [chain[-1].index for chain in whole]
        self.tree.root.meta = {**(self.tree.root.meta or {}), "solutions": ends}
        root = [self.tree.root] if self.config.estimate_root else []
        # A whole solution needs no rollouts: its outcome is known.
        self._paths = [root + [n for n in chain if n.text and not n.is_leaf] for chain in whole]
        self._outcomes = [chain[-1] for chain in whole]

    def _start_probes(self) -> None:
        """Start the rollouts of the next prefixes: all, or one a solution."""
        step_by_step = self.config.until_first_zero
        for path in self._paths:
            while path:
                node = path.pop(0)
                if node.index in self._estimated:
                    if step_by_step and node.total and not node.correct:
                        path.clear()
                    continue
                self._estimated.add(node.index)
                draws = self._samples.draw(node, self.config.rollouts, rollout=True)
                self._probes[node.index] = draws
                if step_by_step:
                    path.insert(0, node)  # looked at again once it is estimated
                    break
        if not self._probes:
            self._finish()

    def _count(self, start: Node, chains: list[list[Node]]) -> None:
        for chain in chains:
            if chain and chain[-1].reward is not None:
                right = chain[-1].reward > self.config.right_above
                start.total += 1
                start.correct += right
                back_up([start, *chain], [float(right)] * (len(chain) + 1))

    def _finish(self) -> None:
        for leaf in self._outcomes:
            if leaf.reward is not None and not leaf.total:
                leaf.total, leaf.correct = 1, int(leaf.reward > self.config.right_above)
        self._done = True
