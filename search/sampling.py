"""Samples and how they enter a tree: what every text sampler shares.

A :class:`SampleTree` turns "one more sample below this node" into engine requests, cuts what comes
back into steps, folds duplicates, asks the judges about new nodes and keeps the ledger. Which
samples to take is the business of the algorithms built on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from treerl.engines.base import Completion, Request, Tokenizer
from treerl.errors import EngineError, PromptTooLong
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.search.growth import Answer, Judgement, JudgeRequest
from treerl.seeding import TreeSeed
from treerl.steps import PlainSteps, StepContext, StepCut, StepFormat, states_answer
from treerl.tree import Node, NodeFinish, RunInfo, Tree

__all__ = ["Draw", "SampleTree", "Sampling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample, and what a node is.

    Attributes:
        temperature, top_p: Of the policy.
        max_tokens: Generated tokens a path.
        stop: Strings that end a path, besides the model's end tokens.
        steps: How the policy writes steps.
        dedup: "text" folds siblings of equal text, "tokens" only those of equal ids.
        answer_ends: A step that states the final answer ends its path.
        verify_steps: Ask the step verifier about every new node.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    steps: StepFormat = field(default_factory=PlainSteps)
    dedup: Literal["text", "tokens"] = "text"
    answer_ends: bool = True
    verify_steps: bool = True

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                "Sampling needs temperature >= 0 and 0 < top_p <= 1, got "
                f"temperature={self.temperature} and top_p={self.top_p}"
            )
        if self.max_tokens < 1:
            raise ValueError(f"Sampling.max_tokens must be at least 1, got {self.max_tokens}")


class Draw:
    """One sample in the making: a single step, or a rollout to the end.

    Attributes:
        node: The node it continues.
        index: Which draw below that node; part of its seed.
        seed: Its seed.
        room: How many tokens the path has left for it.
        rollout: True goes on to the end of the path, False stops at the end of a step.
        context: Where its first step begins.
        parts: The completions so far; more than one where a request gave only white space.
        cuts: Its steps, once it is whole.
        error: Set where a request failed for good.
    """

    __slots__ = ("context", "cuts", "error", "index", "node", "parts", "rollout", "room", "seed")

    def __init__(
        self,
        node: Node,
        index: int,
        seed: int,
        room: int,
        context: StepContext,
        *,
        rollout: bool,
    ) -> None:
        self.node = node
        self.index = index
        self.seed = seed
        self.room = room
        self.context = context
        self.cuts: list[StepCut] = []
        self.rollout = rollout
        self.parts: list[Completion] = []
        self.error: EngineError | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Generated ids of all parts."""
        if len(self.parts) == 1:
            return self.parts[0].token_ids
        return tuple(t for part in self.parts for t in part.token_ids)

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Behaviour log-probs of all parts."""
        if len(self.parts) == 1:
            return self.parts[0].logprobs
        return tuple(x for part in self.parts for x in part.logprobs)


class SampleTree:
    """A tree, its open samples and its open questions.

    Args:
        problem: What to solve.
        tokenizer: The engine's.
        sampling: How to sample.
        run: Where seeds come from.
        system: System prompt, unless the problem has its own.
        template_options: Passed to the chat template.
        max_context: The engine's context in tokens; None is unbounded.
        tree: A tree to go on with instead of a new one.

    Raises:
        PromptTooLong: The prompt leaves no room in the context.
    """

    def __init__(
        self,
        problem: Problem,
        tokenizer: Tokenizer,
        sampling: Sampling,
        *,
        run: RunInfo,
        system: str | None = None,
        template_options: dict[str, Any] | None = None,
        max_context: int | None = None,
        tree: Tree | None = None,
    ) -> None:
        if tree is None:
            prompt = tokenizer.encode_prompt(problem.conversation(system), options=template_options)
            tree = Tree(problem, tuple(prompt), run)
        self.tree = tree
        self.sampling = sampling
        self.samples: list[Node] = []
        """Leaves of the samples entered since the list was last emptied, repeats included."""
        self._tokenizer = tokenizer
        self._budget = sampling.max_tokens
        if max_context is not None:
            self._budget = min(self._budget, max_context - len(tree.prompt_ids))
        if self._budget < 1:
            raise PromptTooLong(
                f"problem '{problem.id}': the prompt has {len(tree.prompt_ids)} tokens and the "
                f"context {max_context}; shorten the prompt or take a model with a longer context"
            )
        # Looked up once, not for every sample.
        self._delimiters = sampling.steps.stop
        self._step_stop = sampling.stop + sampling.steps.stop
        info = tree.run
        self._tree_id = f"{problem.id}/{info.visit}/{info.tree_index}"
        self._seed = TreeSeed(info.seed, problem.id, info.visit, info.tree_index)
        self._serial = 0
        self._out: list[Request | JudgeRequest] = []
        self._open_draws: dict[str, Draw] = {}
        self._open_judgements: dict[str, Node] = {}
        self._reserved: dict[int, int] = {}  # draws below a node that have not entered the tree

    @property
    def generating(self) -> bool:
        """True while samples are awaited."""
        return bool(self._open_draws)

    @property
    def judging(self) -> bool:
        """True while judgements are awaited."""
        return bool(self._open_judgements)

    def ready(self) -> list[Request | JudgeRequest]:
        """Return the requests that can go out now."""
        out, self._out = self._out, []
        return out

    def tell(self, request_id: str, answer: Answer) -> None:
        """Take the answer to one request."""
        if isinstance(answer, Judgement):
            self._take_judgement(self._open_judgements.pop(request_id), answer)
        else:
            self._take_sample(self._open_draws.pop(request_id), answer)

    def reserved(self, node: Node) -> int:
        """Count the samples below a node that are under way."""
        return self._reserved.get(node.index, 0)

    def draw(self, node: Node, count: int = 1, *, rollout: bool) -> list[Draw]:
        """Start samples below a node."""
        path_ids = self.tree.path_ids(node)
        seed_of = self._seed.below(self.tree.child_indices(node))
        prompt = self.tree.prompt_ids + path_ids
        room = self._budget - len(path_ids)
        context = self.sampling.steps.context(self._tokenizer, path_ids)
        reserved = self.reserved(node)
        first = node.draws + reserved
        self._reserved[node.index] = reserved + count
        draws = []
        for index in range(first, first + count):
            draw = Draw(node, index, seed_of(index), room, context, rollout=rollout)
            if room > 0:
                self._request(draw, prompt, room, draw.seed)
            else:
                draw.error = EngineError(f"the path fills its budget of {self._budget} tokens")
            draws.append(draw)
        return draws

    def give(self, steps: Sequence[str]) -> list[Node]:
        """Put a solution that somebody else wrote into the tree, a node a step.

        Each step is tokenised once, with its delimiter, and never again. The last one ends the
        path: nothing is generated behind a whole solution.
        """
        node, nodes = self.tree.root, []
        for i, step in enumerate(steps):
            last = i == len(steps) - 1
            ids = tuple(self._tokenizer.encode(step + ("" if last else self._delimiters[0])))
            same = (c for c in node.children if c.token_ids == ids and c.is_leaf == last)
            found = next(same, None)
            if found is None:
                finish: NodeFinish | None = "stop" if last else None
                found = self.tree.add(
                    node, ids, kind="given", finish_reason=finish, text=step.strip()
                )
                self._judge(found)
            node = found
            nodes.append(node)
        return nodes

    def enter(self, draw: Draw) -> list[Node]:
        """Put a finished sample into the tree.

        Returns:
            Its nodes from the top, folded ones included; [] where its request failed.
        """
        node = draw.node
        self._reserved[node.index] -= 1
        if draw.error is not None:
            node.draws += 1
            failed = self.tree.add(
                node, draw.token_ids, draw.logprobs, finish_reason="error", seed=draw.seed
            )
            failed.error = f"{type(draw.error).__name__}: {draw.error}"
            failed.multiplicity = 0
            return []
        last = draw.parts[-1]
        step_ended = not draw.rollout and last.stop_reason in self._delimiters
        ids = draw.token_ids
        final = draw.cuts[-1]
        chain: list[Node] = []
        for cut in draw.cuts:
            finish: NodeFinish | None = None
            if cut is final and not step_ended:
                finish = "aborted" if last.finish_reason == "abort" else last.finish_reason
            elif self.sampling.answer_ends and states_answer(cut.text):
                finish = "answer"
            elif cut is final and len(ids) >= draw.room:
                finish = "length"  # a whole step, but no room for another token behind it
            node = self._enter_step(node, cut, draw, ids, finish)
            chain.append(node)
            if finish is not None:
                self.tree.ledger.discarded += len(ids) - cut.end
                break
        if node.is_leaf and node.finish_reason != "aborted":
            self.samples.append(node)
        return chain

    def _enter_step(
        self,
        parent: Node,
        cut: StepCut,
        draw: Draw,
        ids: tuple[int, ...],
        finish: NodeFinish | None,
    ) -> Node:
        """Add one step below a node, or fold it into an equal sibling.

        Equal ids always fold. Equal text folds only where nothing hangs below the newcomer, since
        what follows was generated behind the newcomer's own ids.
        """
        step_ids = ids[cut.start : cut.end]
        parent.draws += 1
        alone = not draw.rollout or finish is not None
        by_text = self.sampling.dedup == "text" and alone and bool(cut.text)
        ended = finish is not None
        for sibling in parent.children:
            if (
                (sibling.token_ids == step_ids or (by_text and sibling.text == cut.text))
                and (sibling.finish_reason is not None) == ended
                and sibling.multiplicity  # a failed request is nobody's duplicate
            ):
                sibling.multiplicity += 1
                self.tree.ledger.discarded += len(step_ids)
                return sibling
        node = self.tree.add(
            parent,
            step_ids,
            draw.logprobs[cut.start : cut.end],
            finish_reason=finish,
            seed=draw.seed,
            policy_version=draw.parts[-1].policy_version,
            text=cut.text,
        )
        self._judge(node)
        return node

    def _judge(self, node: Node) -> None:
        """Ask for everything that has to be known about a new node."""
        verify = self.sampling.verify_steps and bool(node.text)
        finished = node.is_leaf and node.finish_reason != "aborted"
        if not verify and not finished:
            return
        problem = self.tree.problem
        steps = tuple(n.text for n in self.tree.path(node) if n.text)
        if verify:
            self._ask(node, JudgeRequest(self._next_id(), "verifier", problem, steps))
        if finished:
            ids = self.tree.path_ids(node)
            leaf = Leaf(node.index, node.finish_reason or "", ids, steps)
            text = self._tokenizer.decode(ids)
            self._ask(node, JudgeRequest(self._next_id(), "reward", problem, steps, text, leaf))

    def _ask(self, node: Node, request: JudgeRequest) -> None:
        self._open_judgements[request.request_id] = node
        self._out.append(request)

    def _request(self, draw: Draw, prompt: tuple[int, ...], room: int, seed: int) -> None:
        sampling = self.sampling
        request_id = self._next_id()
        self._open_draws[request_id] = draw
        self.tree.ledger.requests += 1
        self._out.append(
            Request(
                request_id,
                self._tree_id,
                prompt,
                room,
                sampling.temperature,
                sampling.top_p,
                sampling.stop if draw.rollout else self._step_stop,
                (),
                seed,
            )
        )

    def _next_id(self) -> str:
        self._serial += 1
        return f"{self._tree_id}#{self._serial}"

    def _take_sample(self, draw: Draw, answer: Completion | EngineError) -> None:
        if isinstance(answer, EngineError):
            self.tree.ledger.failed_requests += 1
            draw.error = answer
            return
        self.tree.ledger.book(answer.usage)
        if not answer.token_ids:
            # Nothing came back, not even an end token: an abort before the first token.
            draw.error = EngineError(f"an empty completion ({answer.finish_reason})")
            return
        draw.parts.append(answer)
        ids = draw.token_ids
        draw.cuts = self.sampling.steps.split(self._tokenizer, ids, draw.context)
        room = draw.room - len(ids)
        step_ended = not draw.rollout and answer.stop_reason in self._delimiters
        if step_ended and room > 0 and not draw.cuts[-1].text:
            # A delimiter with nothing before it ends no step: the same sample goes on.
            prompt = self.tree.context_ids(draw.node) + ids
            path = self.tree.child_indices(draw.node)
            seed = self._seed.at(path, draw.index, len(draw.parts))
            self._request(draw, prompt, room, seed)

    def _take_judgement(self, node: Node, judgement: Judgement) -> None:
        self.tree.ledger.judged += 1
        if judgement.error is not None:
            node.meta = {**(node.meta or {}), "judge_error": judgement.error}
        if judgement.verdict is not None:
            node.verdict = judgement.verdict
        if judgement.reward is not None:
            node.reward = judgement.reward
