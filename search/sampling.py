"""Samples and how they enter a tree: what every text sampler shares.

A :class:`SampleTree` turns "one more sample below this node" into engine requests, cuts what comes
back into steps, folds duplicates, asks the judges about new nodes and keeps the ledger. Which
samples to take is the business of the algorithms built on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple

from treerl.config import check_finite
from treerl.engines.base import Completion, Request, Tokenizer
from treerl.errors import EngineError, PromptTooLong
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.search.growth import Answer, Judgement, JudgeRequest
from treerl.seeding import TreeSeed
from treerl.steps import PlainSteps, StepContext, StepCut, StepFormat
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
        score_steps: Ask the step scorer about every new node; its score in [0, 1], taken to
            [-1, 1], becomes the node's ``prior``. An unparsed score leaves the prior at 0.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    steps: StepFormat = field(default_factory=PlainSteps)
    dedup: Literal["text", "tokens"] = "text"
    answer_ends: bool = True
    verify_steps: bool = True
    score_steps: bool = False

    def __post_init__(self) -> None:
        check_finite(self, "temperature", "top_p")
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                "Sampling needs temperature >= 0 and 0 < top_p <= 1, got "
                f"temperature={self.temperature} and top_p={self.top_p}"
            )
        if "" in self.stop:
            raise ValueError("Sampling.stop holds an empty string, which would stop everything")
        if self.max_tokens < 1:
            raise ValueError(f"Sampling.max_tokens must be at least 1, got {self.max_tokens}")


_MAX_PARTS = 16
"""Requests a sample may take before a step that does not come to its end is taken as it is."""


class _Origin(NamedTuple):
    """The node that samples continue, with what they all share: one walk up the tree for all.

    Attributes:
        node: The node.
        path_ids: Ids of its path.
        texts: The path's steps.
        seed: Seed of a draw below it.
        room: How many tokens its path has left.
        context: Where the next step begins.
    """

    node: Node
    path_ids: tuple[int, ...]
    texts: tuple[str, ...]
    seed: Callable[[int, int], int]
    room: int
    context: StepContext


class Draw:
    """One sample in the making: a single step, or a rollout to the end.

    Attributes:
        origin: The node it continues.
        index: Which draw below that node; part of its seed.
        seed: Its seed.
        rollout: True goes on to the end of the path, False stops at the end of a step.
        parts: Completions so far; more than one where a request ended before the step did.
        token_ids, logprobs: Of all parts.
        last: The last part.
        cuts: Its steps, once it is whole.
        error: Set where a request failed for good.
    """

    __slots__ = (
        "cuts",
        "error",
        "index",
        "last",
        "logprobs",
        "origin",
        "parts",
        "rollout",
        "seed",
        "token_ids",
    )

    def __init__(self, origin: _Origin, index: int, rollout: bool) -> None:
        self.origin = origin
        self.index = index
        self.seed = origin.seed(index, 0)
        self.rollout = rollout
        self.parts = 0
        self.token_ids: tuple[int, ...] = ()
        self.logprobs: tuple[float, ...] = ()
        self.last: Completion | None = None
        self.cuts: list[StepCut] = []
        self.error: EngineError | None = None


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
            messages = sampling.steps.prompt(problem.conversation(system))
            prompt = tokenizer.encode_prompt(messages, options=template_options)
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
        self._open_scores: set[str] = set()
        self._reserved: dict[int, int] = {}  # draws below a node that have not entered the tree

    @property
    def generating(self) -> bool:
        """True while samples are awaited."""
        return bool(self._open_draws)

    @property
    def judging(self) -> bool:
        """True while judgements are awaited."""
        return bool(self._open_judgements)

    @property
    def scoring(self) -> bool:
        """True while scores of steps are awaited: what is selected next depends on them."""
        return bool(self._open_scores)

    def ready(self) -> list[Request | JudgeRequest]:
        """Return the requests that can go out now."""
        out, self._out = self._out, []
        return out

    def tell(self, request_id: str, answer: Answer) -> bool:
        """Take the answer to one request; return whether samples are still awaited."""
        if isinstance(answer, Judgement):
            self._open_scores.discard(request_id)
            self._take_judgement(self._open_judgements.pop(request_id), answer)
        else:
            self._take_sample(self._open_draws.pop(request_id), answer)
        return bool(self._open_draws)

    def reserved(self, node: Node) -> int:
        """Count the samples below a node that are under way."""
        return self._reserved.get(node.index, 0)

    def draw(self, node: Node, count: int = 1, *, rollout: bool) -> list[Draw]:
        """Start samples below a node."""
        origin = self._origin(node)
        prompt = self.tree.prompt_ids + origin.path_ids
        reserved = self.reserved(node)
        first = node.draws + reserved
        self._reserved[node.index] = reserved + count
        draws = [Draw(origin, index, rollout) for index in range(first, first + count)]
        for draw in draws:
            if origin.room > 0:
                self._request(draw, prompt, origin.room, draw.seed)
            else:
                draw.error = EngineError(f"the path fills its budget of {self._budget} tokens")
        return draws

    def _origin(self, node: Node) -> _Origin:
        path = self.tree.path(node)
        path_ids = tuple(chain.from_iterable([part.token_ids for part in path]))
        return _Origin(
            node,
            path_ids,
            tuple([part.text for part in path if part.text]),
            self._seed.below([part.place for part in path]),
            self._budget - len(path_ids),
            self.sampling.steps.context(self._tokenizer, path_ids),
        )

    def give(self, steps: Sequence[str]) -> list[Node]:
        """Put a solution that somebody else wrote into the tree, a node a step.

        Each step is tokenised once, with its delimiter, and never again. The last one ends the
        path: nothing is generated behind a whole solution.
        """
        node, nodes = self.tree.root, []
        texts: tuple[str, ...] = ()
        for i, step in enumerate(steps):
            last = i == len(steps) - 1
            written, text, meta = self.sampling.steps.given(step, last)
            texts += (text,) if text else ()
            ids = tuple(self._tokenizer.encode(written))
            same = (c for c in node.children if c.token_ids == ids and c.is_leaf == last)
            found = next(same, None)
            if found is None:
                finish: NodeFinish | None = "stop" if last else None
                found = self.tree.add(node, ids, kind="given", finish_reason=finish, text=text)
                found.meta = meta
                self._judge(found, texts, self.tree.path_ids(found))
            node = found
            nodes.append(node)
        return nodes

    def enter(self, draw: Draw) -> list[Node]:
        """Put a finished sample into the tree.

        Returns:
            Its nodes from the top, folded ones included; [] where its request failed.
        """
        origin = draw.origin
        node = origin.node
        self._reserved[node.index] -= 1
        if draw.error is not None:
            node.draws += 1
            failed = self.tree.add(
                node, draw.token_ids, draw.logprobs, finish_reason="error", seed=draw.seed
            )
            failed.error = f"{type(draw.error).__name__}: {draw.error}"
            failed.multiplicity = 0
            return []
        last = draw.last
        assert last is not None
        step_ended = not draw.rollout and last.stop_reason in self._delimiters
        ids = draw.token_ids
        final = draw.cuts[-1]
        texts = origin.texts
        nodes: list[Node] = []
        finish: NodeFinish | None = None
        for cut in draw.cuts:
            if cut is final and not step_ended:
                finish = "aborted" if last.finish_reason == "abort" else last.finish_reason
            elif self.sampling.answer_ends and self.sampling.steps.final(cut):
                finish = "answer"
            elif cut is final and len(ids) >= origin.room:
                finish = "length"  # a whole step, but no room for another token behind it
            texts += (cut.text,) if cut.text else ()
            node = self._enter_step(node, cut, draw, texts, finish)
            nodes.append(node)
            if finish is not None:
                self.tree.ledger.discarded += len(ids) - cut.end
                break
        if finish is not None and finish != "aborted":
            self.samples.append(node)
        return nodes

    def _enter_step(
        self,
        parent: Node,
        cut: StepCut,
        draw: Draw,
        texts: tuple[str, ...],
        finish: NodeFinish | None,
    ) -> Node:
        """Add one step below a node, or fold it into an equal sibling.

        Equal ids always fold. Equal text folds only where nothing hangs below the newcomer, since
        what follows was generated behind the newcomer's own ids.
        """
        step_ids = draw.token_ids[cut.start : cut.end]
        parent.draws += 1
        alone = finish is not None or cut is draw.cuts[-1]
        by_text = self.sampling.dedup == "text" and alone and bool(cut.text)
        ended = finish is not None
        same = self.sampling.steps.same
        for sibling in parent.children:
            if (
                (
                    sibling.token_ids == step_ids
                    or (by_text and same(sibling.text, sibling.meta, cut))
                )
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
            policy_version=draw.last.policy_version if draw.last is not None else "",
            text=cut.text,
        )
        node.meta = cut.meta
        if ended or self.sampling.verify_steps or self.sampling.score_steps:
            self._judge(node, texts, draw.origin.path_ids + draw.token_ids[: cut.end])
        return node

    def _judge(self, node: Node, steps: tuple[str, ...], path_ids: tuple[int, ...]) -> None:
        """Ask for everything that has to be known about a new node."""
        problem = self.tree.problem
        if self.sampling.verify_steps and node.text:
            self._ask(node, JudgeRequest(self._next_id(), "verifier", problem, steps))
        if self.sampling.score_steps and node.text:
            request_id = self._next_id()
            self._open_scores.add(request_id)
            self._ask(node, JudgeRequest(request_id, "scorer", problem, steps))
        if node.finish_reason is not None and node.finish_reason != "aborted":
            leaf = Leaf(node.index, node.finish_reason, path_ids, steps)
            text = self.sampling.steps.response(self._tokenizer.decode(path_ids), steps)
            self._ask(node, JudgeRequest(self._next_id(), "reward", problem, steps, text, leaf))

    def _ask(self, node: Node, request: JudgeRequest) -> None:
        self._open_judgements[request.request_id] = node
        self._out.append(request)

    def _request(self, draw: Draw, prompt: tuple[int, ...], room: int, seed: int) -> None:
        sampling = self.sampling
        self._serial += 1
        request_id = f"{self._tree_id}#{self._serial}"
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
        ids = answer.token_ids
        if not ids:
            # Nothing came back, not even an end token: an abort before the first token.
            draw.error = EngineError(f"an empty completion ({answer.finish_reason})")
            return
        if draw.parts:
            ids = draw.token_ids + ids
            draw.logprobs += answer.logprobs
        else:
            draw.logprobs = answer.logprobs
        draw.parts += 1
        draw.last = answer
        draw.token_ids = ids
        origin = draw.origin
        draw.cuts = self.sampling.steps.split(self._tokenizer, ids, origin.context)
        room = origin.room - len(ids)
        step_ended = not draw.rollout and answer.stop_reason in self._delimiters
        done = not step_ended or self.sampling.steps.complete(draw.cuts[-1])
        if not done and room > 0 and draw.parts < _MAX_PARTS:
            # The stop string stood where no step ends: the same sample goes on.
            prompt = self.tree.prompt_ids + origin.path_ids + ids
            self._request(draw, prompt, room, origin.seed(draw.index, draw.parts))

    def _take_judgement(self, node: Node, judgement: Judgement) -> None:
        self.tree.ledger.judged += 1
        if judgement.error is not None:
            node.meta = {**(node.meta or {}), "judge_error": judgement.error}
        if judgement.verdict is not None:
            node.verdict = judgement.verdict
        if judgement.scores and judgement.scores[-1].parsed:
            node.prior = 2.0 * judgement.scores[-1].value - 1.0
        if judgement.reward is not None:
            node.reward = judgement.reward
