"""Monte-Carlo tree search on reasoning steps.

One simulation selects a node from the root down, gives it children where it was visited before,
rolls out to the end from one node, and backs the rollout's value up. Three choices set it apart
from the published searches (groundedprm.md §1.2, §6.1):

* **Nothing is thrown away.** A rollout is one request to the end; its steps become nodes like any
  others, and later expansions count them among their children. Duplicates are folded into the kept
  node's multiplicity.
* **No gold answer in the tree's shape.** A path ends where the policy ends it (an end token, a
  final-answer line) or a cap does; the gold answer only scores leaves.
* **Waves.** Simulations run in fixed waves: all are selected with virtual loss, all are awaited,
  then their nodes enter the tree and their values are backed up in creation order. The tree is a
  function of the completions, whatever order they arrive in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Literal, get_args

from treerl.config import check_finite
from treerl.engines.base import Request, Tokenizer
from treerl.problem import Problem
from treerl.search.backup import back_up, back_up_counts
from treerl.search.growth import Answer, JudgeRequest
from treerl.search.rollout_reward import RolloutReward
from treerl.search.sampling import Draw, SampleTree, Sampling
from treerl.search.selection import (
    PriorKind,
    Selection,
    prior_shares,
    puct,
    ucb_restmcts,
    uct_published,
)
from treerl.tree import Node, RunInfo, Tree
from treerl.verdict import Verdict

__all__ = ["MCTS", "MCTSConfig"]

_VOTE = {Verdict.SUPPORTED: 1, Verdict.REFUTED: -1, Verdict.UNVERIFIABLE: 0}

_RIGHT_PATHS_WANTED = 3
"""Right paths that GroundedPRM's released search collects before it turns to wrong ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MCTSConfig:
    """How to search.

    Attributes:
        simulations: Simulations a tree.
        wave: Simulations that are in flight together; part of the result, like a batch size.
        children: Samples that make a node expanded; rollouts through it count among them. A step
            just before the answers is closed after so many, so keep it >= the fusion's n_min.
        expand_after: Visits before a node is expanded: 1 rolls out first, 0 expands at once.
        max_steps: Nodes at this depth are rolled out from, but not expanded.
        selection: Which child is visited next (docs/search.md has the formulas): "uct" on Q;
            "puct", openr's; "restmcts", the bound of ReST-MCTS* on V = (1 + Q) / 2;
            "uct_published", GroundedPRM's released form on W, for reproduction only.
        exploration: c, in units of the value ("puct" has none); the constant that each form was
            published with is ``PUBLISHED_EXPLORATION[selection]``.
        prior: PUCT's P.
        rollout_reward: The value of a rollout.
        discount: γ: an ancestor d levels above the rollout's start gets γ^d of its value.
        right_above: A reward above it is a right answer.
        sampling: How the policy is sampled.
    """

    simulations: int = 32
    wave: int = 4
    children: int = 4
    expand_after: int = 1
    max_steps: int = 32
    selection: Selection = "uct"
    exploration: float = 1.414
    prior: PriorKind = "multiplicity"
    rollout_reward: RolloutReward = field(
        default_factory=lambda: RolloutReward(normalise=True, include_own_verdict=True)
    )
    discount: float = 0.9
    right_above: float = 0.5
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        check_finite(self, "discount", "exploration", "right_above")
        for name in ("simulations", "wave", "children", "max_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"MCTSConfig.{name} must be at least 1, got {getattr(self, name)}")
        if self.expand_after < 0:
            raise ValueError(f"MCTSConfig.expand_after must be >= 0, got {self.expand_after}")
        for name, known in (("selection", get_args(Selection)), ("prior", get_args(PriorKind))):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"MCTSConfig.{name} is one of {', '.join(known)}, got '{getattr(self, name)}'"
                )
        if not 0.0 < self.discount <= 1.0:
            raise ValueError(f"MCTSConfig.discount must be in (0, 1], got {self.discount}")
        if self.sampling.temperature == 0 and self.children > 1:
            raise ValueError(
                "at temperature 0 all children are the same; set temperature > 0 or children = 1"
            )


class _Simulation:
    """One simulation of a wave.

    ``start`` is the node whose value it estimates: the selected node, or the child it took after
    that node's expansion. ``chain`` are the rollout's nodes below it, the last one a leaf.
    """

    __slots__ = ("chain", "draw", "selected", "start")

    def __init__(self, selected: Node) -> None:
        self.selected = selected
        self.start: Node | None = None
        self.draw: Draw | None = None
        self.chain: list[Node] = []


class MCTS:
    """The search of one problem, as a :class:`~treerl.search.growth.Growth`.

    Args:
        problem: What to solve.
        tokenizer: The engine's.
        config: How to search.
        run: Where seeds come from.
        system: System prompt, unless the problem has its own.
        template_options: Passed to the chat template.
        max_context: The engine's context in tokens; None is unbounded.
        tree: A tree of an earlier search to go on from. Where its number of simulations is a
            multiple of ``wave``, the result equals that of one longer search.

    Raises:
        PromptTooLong: The prompt leaves no room in the context.
    """

    def __init__(
        self,
        problem: Problem,
        tokenizer: Tokenizer,
        config: MCTSConfig | None = None,
        *,
        run: RunInfo | None = None,
        system: str | None = None,
        template_options: dict[str, Any] | None = None,
        max_context: int | None = None,
        tree: Tree | None = None,
    ) -> None:
        self.config = config or MCTSConfig()
        self._samples = SampleTree(
            problem,
            tokenizer,
            self.config.sampling,
            run=run or RunInfo(sampler="mcts"),
            system=system,
            template_options=template_options,
            max_context=max_context,
            tree=tree,
        )
        self.tree = self._samples.tree
        self._children = self.config.children
        self._closed: set[int] = set()  # nodes below which nothing is left to explore
        for node in reversed(self.tree.nodes):
            self._update_closed(node)
        self._stage: Literal["expand", "choose", "roll", "judge"] = "judge"
        self._wave: list[_Simulation] = []
        self._expansions: dict[int, list[Draw]] = {}
        self._virtual: dict[int, int] = {}  # simulations of the wave through a node
        self._negative = False  # "uct_published" alone: wrong paths are being collected
        self._start_wave()
        self._advance()

    @property
    def done(self) -> bool:
        """True once all simulations are backed up, or nothing is left to explore."""
        return not self._wave

    def ready(self) -> list[Request | JudgeRequest]:
        """Return the requests that can go out now."""
        return self._samples.ready()

    def tell(self, request_id: str, answer: Answer) -> None:
        """Take the answer to one request."""
        if not self._samples.tell(request_id, answer):
            self._advance()

    def _advance(self) -> None:
        """Pass every stage whose requests are all answered."""
        while self._wave and not self._samples.generating:
            if self._stage == "expand":
                for draws in self._expansions.values():
                    self._enter(draws)
                self._stage = "choose"
            elif self._stage == "choose":
                if self._samples.scoring:
                    return
                self._choose_children()
                self._stage = "roll"
            elif self._stage == "roll":
                self._enter_rollouts()
                self._stage = "judge"
            elif self._samples.judging:
                return
            else:
                self._back_up_wave()
                self._start_wave()

    # -- select ---------------------------------------------------------------------------------

    def _start_wave(self) -> None:
        self._wave, self._expansions, self._virtual = [], {}, {}
        self._stage = "expand"
        if self.config.selection == "uct_published":
            self._negative = self._right_paths() >= _RIGHT_PATHS_WANTED
        left = self.config.simulations - self.tree.root.visits - self._failed()
        for _ in range(min(self.config.wave, left)):
            if self.tree.root.index in self._closed:
                break
            simulation = _Simulation(self._select())
            self._wave.append(simulation)
            node = simulation.selected
            if node.index not in self._expansions:
                visits = node.visits + self._virtual.get(node.index, 0)
                free = self.config.children - node.draws - self._samples.reserved(node)
                if visits >= self.config.expand_after and free > 0 and self._may_expand(node):
                    self._expansions[node.index] = self._samples.draw(node, free, rollout=False)
                else:
                    self._roll_out(simulation, node)
            self._mark(node)

    def _may_expand(self, node: Node) -> bool:
        return node.depth < self.config.max_steps

    def _select(self) -> Node:
        """Walk down to the first node that is not expanded, or is being expanded by this wave."""
        node = self.tree.root
        while node.draws >= self._children:
            best = self._best_child(node)
            if best is None:
                break
            node = best
        return node

    def _best_child(self, node: Node) -> Node | None:
        """Return the open child of the highest score; ties go to the older one."""
        if self.config.selection != "uct":
            return self._best_by_score(node)
        closed, virtual = self._closed, self._virtual
        exploration = self.config.exploration
        parent_visits = node.visits + virtual.get(node.index, 0)
        log_n = math.log(parent_visits) if parent_visits else 0.0
        best, best_score = None, -math.inf
        for child in node.children:
            index = child.index
            if index in closed:
                continue
            visits, value_sum = child.visits, child.value_sum
            if virtual:
                # Virtual loss: a simulation in flight counts as one of value -1.
                lost = virtual.get(index, 0)
                visits += lost
                value_sum -= lost
            if visits == 0:
                return child
            # uct(), written out: this line runs for every child of every node on the way down.
            score = value_sum / visits + exploration * sqrt(log_n / visits)
            if score > best_score:
                best, best_score = child, score
        return best

    def _best_by_score(self, node: Node) -> Node | None:
        """:meth:`_best_child` for the other selection scores."""
        selection, exploration = self.config.selection, self.config.exploration
        parent_visits = node.visits + self._virtual.get(node.index, 0)
        priors = prior_shares(node.children, self.config.prior) if selection == "puct" else []
        best, best_score = None, -math.inf
        for child in node.children:
            if child.index in self._closed:
                continue
            lost = self._virtual.get(child.index, 0)
            visits = child.visits + lost
            q = (child.value_sum - lost) / visits if visits else child.prior
            if selection == "puct":
                score = puct(q, priors[child.place], visits, parent_visits)
            elif selection == "restmcts":
                score = ucb_restmcts((1.0 + q) / 2.0, visits, parent_visits, exploration)
            else:
                # The released code counts a simulation above the node it ended in only; while it
                # collects wrong paths the sum's sign turns, and virtual loss still repels.
                value = child.value_sum + (lost if self._negative else -lost)
                score = uct_published(
                    value,
                    visits - child.own,
                    parent_visits - node.own,
                    exploration,
                    negative_phase=self._negative,
                )
            if score > best_score:
                best, best_score = child, score
        return best

    def _mark(self, node: Node) -> None:
        current: Node | None = node
        while current is not None:
            self._virtual[current.index] = self._virtual.get(current.index, 0) + 1
            current = current.parent

    # -- expand and roll out --------------------------------------------------------------------

    def _roll_out(self, simulation: _Simulation, node: Node) -> None:
        simulation.start = node
        (simulation.draw,) = self._samples.draw(node, rollout=True)

    def _choose_children(self) -> None:
        """Start a rollout from the best new child of each expansion."""
        for simulation in self._wave:
            if simulation.start is None:
                child = self._best_child(simulation.selected) or self._last_leaf(simulation)
                if child is None:
                    continue
                self._virtual[child.index] = self._virtual.get(child.index, 0) + 1
                simulation.start = child
                if not child.is_leaf:
                    self._roll_out(simulation, child)

    def _last_leaf(self, simulation: _Simulation) -> Node | None:
        """Return the youngest child whose path ended: a finished sample needs no rollout."""
        children = reversed(simulation.selected.children)
        return next((child for child in children if child.is_leaf), None)

    def _enter_rollouts(self) -> None:
        for simulation in self._wave:
            if simulation.draw is not None:
                (simulation.chain,) = self._enter([simulation.draw])

    def _enter(self, draws: list[Draw]) -> list[list[Node]]:
        """Put samples of one node into the tree; return their nodes."""
        node = draws[0].origin.node
        chains = []
        for draw in draws:
            chain = self._samples.enter(draw)
            chains.append(chain)
            # A failed request made a node too, the youngest child.
            for entered in reversed(chain or node.children[-1:]):
                if entered.draws or entered.finish_reason is not None:  # else new, thus open
                    self._update_closed(entered)
        # Above the samples' start, only a change can change anything.
        current: Node | None = node
        while current is not None and self._update_closed(current):
            current = current.parent
        return chains

    def _update_closed(self, node: Node) -> bool:
        """Note whether anything is left to explore at or below a node; say if that changed.

        A closed node opens again where a rollout from above adds a new branch below it.
        """
        closed = node.finish_reason is not None or (
            node.draws >= self._children
            and all(child.index in self._closed for child in node.children)
        )
        if closed == (node.index in self._closed):
            return False
        if closed:
            self._closed.add(node.index)
        else:
            self._closed.discard(node.index)
        return True

    # -- back up --------------------------------------------------------------------------------

    def _back_up_wave(self) -> None:
        for leaf in self._samples.samples:
            if leaf.reward is not None:
                back_up_counts(leaf, leaf.reward > self.config.right_above)
        self._samples.samples.clear()
        for simulation in self._wave:
            if not self._back_up(simulation):
                root = self.tree.root
                root.meta = {**(root.meta or {}), "failed_simulations": self._failed() + 1}

    def _back_up(self, simulation: _Simulation) -> bool:
        """Back up one simulation; False if its requests failed."""
        if simulation.start is None:
            return False
        nodes = [simulation.start, *simulation.chain]
        leaf = nodes[-1]
        if not leaf.is_leaf or leaf.finish_reason == "aborted":
            return False
        outcome = 0
        if leaf.reward is not None:
            outcome = 1 if leaf.reward > self.config.right_above else -1
        votes = [0 if node.verdict is None else _VOTE[node.verdict.verdict] for node in nodes]
        rule = self.config.rollout_reward
        # A node of the chain is worth what the rest of the rollout is worth from there.
        values = [rule(votes[i + 1 : -1], outcome, votes[i]) for i in range(len(nodes))]
        back_up(nodes, values, self.config.discount)
        return True

    def _right_paths(self) -> int:
        return sum((leaf.reward or 0.0) > self.config.right_above for leaf in self.tree.leaves())

    def _failed(self) -> int:
        """Count the simulations that failed; kept in the tree, so that a search can go on."""
        meta = self.tree.root.meta or {}
        return int(meta.get("failed_simulations", 0))
