"""OmegaPRM: find the first wrong step of wrong rollouts by binary search.

Every state (a prefix with k rollouts from it) keeps its Monte-Carlo value. Of all wrong rollouts
of states with 0 < MC < 1 the one with the highest Q + U is picked, once and for all, and its first
error is located with ceil(log2 M) probes instead of M; every probed prefix is a new state. What the
published codes get wrong (groundedprm.md §1.5) is not repeated: the picked rollout leaves the pool,
the selection counts in N(s), all scores are recomputed, lengths are tokens, answers are verified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from treerl.config import check_finite
from treerl.engines.base import Request, Tokenizer
from treerl.problem import Problem
from treerl.search.backup import back_up, back_up_counts
from treerl.search.growth import Answer, JudgeRequest
from treerl.search.sampling import Draw, SampleTree, Sampling
from treerl.tree import Node, RunInfo, Tree

__all__ = ["BinarySearch", "OmegaPRM", "OmegaPRMConfig", "omega_q", "omega_u"]


def omega_q(
    mc: float, length: int, *, alpha: float = 0.5, beta: float = 0.9, scale: int = 500
) -> float:
    """Return Q(s, r) = α^(1 - MC(s)) · β^(len(r) / L): long rollouts of good states first."""
    return float(alpha ** (1.0 - mc) * beta ** (length / scale))


def omega_u(total_visits: int, visits: int, *, c_puct: float = 0.125) -> float:
    """Return U(s) = c_puct · sqrt(Σ N) / (1 + N(s))."""
    return c_puct * math.sqrt(total_visits) / (1 + visits)


class BinarySearch:
    """The search for the first wrong step of a rollout of ``steps`` steps that ended wrong.

    Invariant: the prefix of ``low`` steps still reaches a right answer, that of ``high`` does not.

    Args:
        steps: Of the rollout.
        trust_outcome: The rollout itself is known to be wrong and is never probed. False is openr's
            order, which takes nothing for granted and may spend a probe on the whole rollout.
    """

    def __init__(self, steps: int, *, trust_outcome: bool = True) -> None:
        if steps < 1:
            raise ValueError("a rollout has at least one step")
        self.low, self.high = 0, steps if trust_outcome else steps + 1

    @property
    def probe(self) -> int | None:
        """Length of the prefix to estimate next, None once the error is found."""
        return None if self.high - self.low <= 1 else (self.low + self.high) // 2

    @property
    def first_error(self) -> int:
        """0-based index of the first wrong step; meaningful once ``probe`` is None."""
        return self.high - 1

    def tell(self, reachable: bool) -> None:
        """Say whether some rollout from the probed prefix is right."""
        probe = self.probe
        assert probe is not None
        if reachable:
            self.low = probe
        else:
            self.high = probe


@dataclass(frozen=True, slots=True, kw_only=True)
class OmegaPRMConfig:
    """How to search.

    Attributes:
        rollouts: k, rollouts a state.
        searches: Binary searches a problem, at most.
        rollout_budget: Rollouts a problem, at most; a search that would pass it does not start.
        alpha, beta, length_scale, c_puct: Of Q and U; the length in tokens.
        right_above: A reward above it is a right answer.
        sampling: How the policy is sampled.
    """

    rollouts: int = 8
    searches: int = 20
    rollout_budget: int = 200
    alpha: float = 0.5
    beta: float = 0.9
    length_scale: int = 500
    c_puct: float = 0.125
    right_above: float = 0.5
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        check_finite(self, "alpha", "beta", "c_puct", "right_above")
        for name in ("rollouts", "searches", "rollout_budget", "length_scale"):
            if getattr(self, name) < 1:
                raise ValueError(f"OmegaPRMConfig.{name} must be at least 1")


class _State:
    """A prefix with its rollouts; ``wrong`` holds those that nobody has searched yet."""

    __slots__ = ("correct", "node", "total", "visits", "wrong")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.correct = self.total = self.visits = 0
        self.wrong: list[list[Node]] = []

    @property
    def mc(self) -> float:
        return self.correct / self.total if self.total else 0.0


class OmegaPRM:
    """The search of one problem, as a :class:`~treerl.search.growth.Growth`.

    Args are those of :class:`~treerl.search.mcts.MCTS`; a given tree has no steps yet.
    """

    def __init__(
        self,
        problem: Problem,
        tokenizer: Tokenizer,
        config: OmegaPRMConfig | None = None,
        *,
        run: RunInfo | None = None,
        system: str | None = None,
        template_options: dict[str, Any] | None = None,
        max_context: int | None = None,
        tree: Tree | None = None,
    ) -> None:
        self.config = config or OmegaPRMConfig()
        self._samples = SampleTree(
            problem,
            tokenizer,
            self.config.sampling,
            run=run or RunInfo(sampler="omegaprm"),
            system=system,
            template_options=template_options,
            max_context=max_context,
            tree=tree,
        )
        self.tree = self._samples.tree
        self.searches: list[tuple[Node, ...]] = []
        """The searched rollouts, each with its steps up to and including the first wrong one."""
        self._states: dict[int, _State] = {}
        self._rollout: list[Node] = []  # steps of the rollout under search
        self._binary: BinarySearch | None = None
        self._state = _State(self.tree.root)  # the state whose rollouts are awaited
        self._draws: list[Draw] = []
        self._chains: list[list[Node]] = []
        self._started = 0
        self._done = False
        self._estimate(self.tree.root)

    @property
    def done(self) -> bool:
        """True once the budget is spent or no wrong rollout is left to search."""
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
            if self._draws:
                self._chains = [self._samples.enter(draw) for draw in self._draws]
                self._draws = []
            if self._samples.judging:
                return
            self._take_rollouts()
            self._go_on()

    def _estimate(self, node: Node) -> None:
        """Start the rollouts of a new state."""
        self._state = self._states[node.index] = _State(node)
        self._draws = self._samples.draw(node, self.config.rollouts, rollout=True)

    def _take_rollouts(self) -> None:
        """Count the finished rollouts of the state under estimation."""
        state = self._state
        for chain in self._chains:
            if not chain or chain[-1].reward is None:
                continue
            right = chain[-1].reward > self.config.right_above
            state.total += 1
            state.correct += right
            back_up([state.node, *chain], [float(right)] * (len(chain) + 1))
            back_up_counts(chain[-1], right)
            if not right:
                state.wrong.append([node for node in chain if node.text])
        self._chains = []
        self._samples.samples.clear()

    def _go_on(self) -> None:
        """Feed the binary search until it needs a new state; then pick the next rollout."""
        while True:
            if self._binary is None and not self._pick():
                self._finish()
                return
            assert self._binary is not None
            probe = self._binary.probe
            if probe is None:
                self.searches.append(tuple(self._rollout[: self._binary.first_error + 1]))
                self._binary = None
                continue
            node = self._rollout[probe - 1]
            known = self._states.get(node.index)
            if known is None:
                self._estimate(node)
                return
            self._binary.tell(known.correct > 0)

    def _pick(self) -> bool:
        """Choose the next wrong rollout; False if there is none, or no budget for its search."""
        config = self.config
        if len(self.searches) >= config.searches:
            return False
        total = sum(state.visits for state in self._states.values())
        best: tuple[float, _State, int] | None = None
        for state in self._states.values():
            if not 0 < state.mc < 1:
                continue
            u = omega_u(total, state.visits, c_puct=config.c_puct)
            for i, rollout in enumerate(state.wrong):
                length = sum(len(node.token_ids) for node in rollout)
                q = omega_q(
                    state.mc,
                    length,
                    alpha=config.alpha,
                    beta=config.beta,
                    scale=config.length_scale,
                )
                if rollout and (best is None or q + u > best[0]):
                    best = q + u, state, i
        if best is None:
            return False
        _, state, i = best
        probes = math.ceil(math.log2(len(state.wrong[i])))
        used = sum(s.total for s in self._states.values())
        if used + probes * config.rollouts > config.rollout_budget:
            return False
        state.visits += 1
        self._rollout = state.wrong.pop(i)
        self._binary = BinarySearch(len(self._rollout))
        return True

    def _finish(self) -> None:
        """Give each state its own counts; a state's value is that of rollouts from it alone."""
        for index, state in self._states.items():
            self.tree.nodes[index].correct = state.correct
            self.tree.nodes[index].total = state.total
        self._done = True
