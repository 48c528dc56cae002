"""TreePO: trees of token segments, grown without a barrier between prompts.

A prompt's paths grow in segments of a fixed number of tokens. Where a segment ends and its path
does not, the path forks; an allocation policy says how often. What the paths share is generated
once. Once the tree is quiet, a fallback policy may re-enter it until enough paths are finished.

Exactness (treepo.md §6.3): a request's ids are the prompt's and the path's, always; a draw's seed
depends on its lineage alone; nodes are numbered once the tree is quiet. So the tree is a function
of the completions, whatever order they arrive in.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Any

from treerl.engines.base import Completion, Request, Tokenizer
from treerl.errors import EngineError, PromptTooLong
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.search.growth import Answer, Judgement, JudgeRequest
from treerl.search.treepo_allocation import Forks
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_fallback import Grown
from treerl.search.treepo_nodes import NodeMap, build_nodes
from treerl.search.treepo_path import PathView, SegmentDraw
from treerl.search.treepo_stopping import stop_string_end
from treerl.seeding import TreeSeed, derive_seed
from treerl.tree import Node, NodeFinish, RunInfo, Tree
from treerl.verdict import Verdict

__all__ = ["TreePO"]


class TreePO:
    """The growth of one problem's tree, as a :class:`~treerl.search.growth.Growth`.

    ``tree`` gets its nodes when it is quiet: before each wave of the fallback and at the end.
    Rewards see a number in ``Leaf.node`` that is the path's own (a hash of its ids): a node's index
    is not known while the tree grows.

    Args:
        problem: What to solve.
        tokenizer: The engine's.
        config: How to grow.
        run: Where seeds come from.
        system: System prompt, unless the problem has its own.
        template_options: Passed to the chat template.
        max_context: The engine's context in tokens; None is unbounded.
        eos_ids: The engine's end tokens. Engines stop there themselves; this guards against those
            that overlook one.

    Raises:
        PromptTooLong: The prompt leaves no room in the context.
    """

    def __init__(
        self,
        problem: Problem,
        tokenizer: Tokenizer,
        config: TreePOConfig | None = None,
        *,
        run: RunInfo | None = None,
        system: str | None = None,
        template_options: dict[str, Any] | None = None,
        max_context: int | None = None,
        eos_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.config = config = config or TreePOConfig()
        prompt = tokenizer.encode_prompt(problem.conversation(system), options=template_options)
        self.tree = Tree(problem, tuple(prompt), run or RunInfo(sampler="treepo"))
        self._budget = config.max_tokens
        if max_context is not None:
            self._budget = min(self._budget, max_context - len(prompt))
        if self._budget < 1:
            raise PromptTooLong(
                f"problem '{problem.id}': the prompt has {len(prompt)} tokens and the context "
                f"{max_context}; shorten the prompt or take a model with a longer context"
            )
        self._decode = tokenizer.decode
        self._eos = eos_ids
        info = self.tree.run
        self._key = (info.seed, problem.id, info.visit, info.tree_index)
        self._tree_id = f"{problem.id}/{info.visit}/{info.tree_index}"
        self._seed = TreeSeed(*self._key)
        self._serial = 0
        self._out: list[Request | JudgeRequest] = []
        self._open: dict[str, SegmentDraw] = {}  # generation, and judgements that paths wait for
        self._judging: dict[str, tuple[tuple[int, ...], NodeFinish]] = {}
        self._judged: dict[tuple[tuple[int, ...], NodeFinish], Judgement | None] = {}
        self._root = SegmentDraw()
        self._round: list[SegmentDraw] = []  # this round's draws
        self._round_number = 0
        self._finished, self._finished_before = 0, -1
        self._surplus = 0
        self._wave = -1
        self._grown = self._done = False
        # Looked up once: whether paths fork one by one or in rounds.
        self._forks = config.allocation if isinstance(config.allocation, Forks) else None
        self._rounds = None if isinstance(config.allocation, Forks) else config.allocation
        self._spawn(self._root, 0, config.allocation.first(config.width, self._rng("first", 0)))
        self._advance()

    @property
    def done(self) -> bool:
        """True once all paths have ended and are judged."""
        return self._done

    def ready(self) -> list[Request | JudgeRequest]:
        """Return the requests that can go out now."""
        out, self._out = self._out, []
        return out

    def tell(self, request_id: str, answer: Answer) -> None:
        """Take the answer to one request."""
        path = self._judging.pop(request_id, None)
        if path is not None:
            assert isinstance(answer, Judgement)
            self.tree.ledger.judged += 1
            self._judged[path] = answer
        else:
            draw = self._open.pop(request_id)
            if isinstance(answer, Judgement):
                self._pass_gate(draw, answer)
            else:
                self._take(draw, answer)
        self._advance()

    # --- asking -----------------------------------------------------------------------------------

    def _spawn(self, parent: SegmentDraw, offset: int, quotas: Any, *, late: bool = False) -> None:
        """Start one draw a quota behind so many ids of a draw."""
        config, tree = self.config, self.tree
        new = [SegmentDraw(parent, offset, quota) for quota in quotas]
        first = new[0]
        seed = self._seed.below(first.address())
        prompt = tree.prompt_ids + PathView(first, self._decode).ids
        tokens = self._asked(first)
        for draw in new:
            draw.seed = seed(draw.index, 0)
            draw.late = draw.late or late
            tree.ledger.requests += 1
            request = Request(
                self._next_id(),
                self._tree_id,
                prompt,
                tokens,
                config.temperature,
                config.top_p,
                config.stop,
                config.stop_token_ids,
                draw.seed,
            )
            self._open[request.request_id] = draw
            self._out.append(request)
        if self._rounds is not None:
            self._round += new

    def _next_id(self) -> str:
        self._serial += 1
        return f"{self._tree_id}#{self._serial}"

    def _rng(self, purpose: str, number: int) -> Random:
        return Random(derive_seed(*self._key, purpose, number))

    # --- taking -----------------------------------------------------------------------------------

    def _take(self, draw: SegmentDraw, answer: Completion | EngineError) -> None:
        if isinstance(answer, Completion):
            self.tree.ledger.book(answer.usage)
            if not answer.token_ids:
                answer = EngineError(f"an empty completion ({answer.finish_reason})")
        else:
            self.tree.ledger.failed_requests += 1
        if isinstance(answer, EngineError):
            draw.finish, draw.error = "error", f"{type(answer).__name__}: {answer}"
            return
        draw.policy_version = answer.policy_version
        path, ended = self._cut(draw, answer)
        if answer.finish_reason == "abort" and ended is None:
            draw.finish = "aborted"
            return
        full = draw.end >= self._budget or (
            # The engine had no more room than this.
            answer.finish_reason == "length" and len(draw.ids) < self._asked(draw)
        )
        draw.finish = self.config.stopping.finish(
            path, ended=ended, full=full, deep=self._deep(draw)
        )
        if draw.finish is None and self.config.abort is not None and self.config.abort(path):
            draw.finish = "aborted"
        gate = self.config.gate
        if gate is not None and draw.finish != "aborted":
            request = JudgeRequest(self._next_id(), gate.role, self.tree.problem, path.segments())
            self._open[request.request_id] = draw
            self._out.append(request)
        else:
            self._settle(draw, path)

    def _asked(self, draw: SegmentDraw) -> int:
        """Return how many tokens a draw may have."""
        segment = self.config.segment_tokens
        if self._forks is not None:
            segment = self._forks.tokens(draw.level, segment)
        room = self._budget - draw.start
        return room if segment is None else min(segment, room)

    def _deep(self, draw: SegmentDraw) -> bool:
        config = self.config
        if config.max_depth is None or config.segment_tokens is None:
            return False
        return -(-draw.end // config.segment_tokens) >= config.max_depth

    def _cut(self, draw: SegmentDraw, answer: Completion) -> tuple[PathView, NodeFinish | None]:
        """Store what was generated up to its end; say whether an end token or string ended it."""
        ids = answer.token_ids[: self._asked(draw)]
        ended: NodeFinish | None = None
        if not self._eos.isdisjoint(ids):
            at = next(i for i, token in enumerate(ids, start=1) if token in self._eos)
            ids, ended = ids[:at], "eos"
        whole = len(ids) == len(answer.token_ids)
        if ended is None and whole and answer.finish_reason in ("eos", "stop"):
            ended = "eos" if answer.finish_reason == "eos" else "stop"
        draw.ids = ids
        path = PathView(draw, self._decode)
        if self.config.stop:
            end = stop_string_end(path.ids, draw.start, self.config.stop, self._decode)
            if end is not None:
                draw.ids, ended = ids[: end - draw.start], "stop"
                path = PathView(draw, self._decode)
        draw.logprobs = answer.logprobs[: len(draw.ids)]
        self._surplus += len(answer.token_ids) - len(draw.ids)
        return path, ended

    def _pass_gate(self, draw: SegmentDraw, judgement: Judgement) -> None:
        self.tree.ledger.judged += 1
        gate = self.config.gate
        assert gate is not None
        draw.judge_error, draw.verdict = judgement.error, judgement.verdict
        refuted = judgement.verdict is not None and judgement.verdict.verdict is Verdict.REFUTED
        if refuted or (judgement.scores and judgement.scores[-1].value < gate.below):
            draw.finish = "aborted"
        self._settle(draw, PathView(draw, self._decode))

    def _settle(self, draw: SegmentDraw, path: PathView) -> None:
        """Go on with a path whose last segment is whole: fork it, or have it judged."""
        if draw.finish is None:
            if self._forks is not None:
                self._spawn(draw, len(draw.ids), self._forks.shares(path))
        elif draw.finish != "aborted":
            self._finished += 1
            if self.config.rewards:
                self._ask_reward(path, draw.finish)

    def _ask_reward(self, path: PathView, finish: NodeFinish) -> None:
        ids = path.ids
        if (ids, finish) in self._judged:
            return  # a duplicate of a path that is judged already
        self._judged[ids, finish] = None
        digest = blake2b(repr(ids).encode(), digest_size=8).digest()
        leaf = Leaf(int.from_bytes(digest, "little") >> 1, finish, ids, ())
        request = JudgeRequest(
            self._next_id(), "reward", self.tree.problem, (), self._decode(ids), leaf
        )
        self._judging[request.request_id] = (ids, finish)
        self._out.append(request)

    # --- going on ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        while not self._open and not self._done:
            if self._grown:
                if not self._judging:
                    self._build()
                    self._done = True
                return
            if not self._next_round():
                if self.config.enough is not None and self._judging:
                    return
                self._grown = not self._next_wave()

    def _next_round(self) -> bool:
        """Fork the live paths of a round that is complete; False where there are none."""
        if self._rounds is None:
            return False
        live = [draw for draw in self._round if draw.finish is None]
        if not live:
            return False
        finished = sum(draw.finish not in (None, "aborted", "error") for draw in self._round)
        self._round_number += 1
        counts = self._rounds.plan(
            self.config.width,
            self._finished,
            finished,
            [PathView(draw, self._decode) for draw in live],
            self._rng("round", self._round_number),
        )
        self._round = []
        for draw, count in zip(live, counts, strict=True):
            self._spawn(draw, len(draw.ids), (1,) * count)
        return True

    def _next_wave(self) -> bool:
        """Let the fallback re-enter the quiet tree; False where it is done."""
        config = self.config
        if config.fallback is None or not self._progressed():
            return False
        places = self._build().places
        if config.enough is not None and config.enough(self.tree):
            return False
        self._wave += 1
        grown = Grown(
            self.tree,
            self._wave,
            config.width - self._finished,
            config.segment_tokens,
            self._rng("wave", self._wave),
            self._decode,
        )
        self._round = []
        starts = []
        for point in config.fallback.points(grown):
            draw, offset = places[point.node.index]
            starts.append((*self._start(draw, offset, point.tokens), point))
        for draw, offset, point in starts:
            self._spawn(draw, offset, (1,) * point.copies, late=True)
            if point.chain is not None:
                for new in draw.children[offset][-point.copies :]:
                    new.chain = point.chain
        return bool(starts)

    def _start(self, draw: SegmentDraw, offset: int, tokens: int) -> tuple[SegmentDraw, int]:
        """Return where a path of so many ids ends, above or at a place in a draw."""
        end = draw.start + offset
        if not 0 <= tokens <= end:
            raise ValueError(f"a branch point at {tokens} ids on a path of {end}")
        draw, offset = draw.place(tokens)
        if offset == len(draw.ids) and draw.finish is not None:
            raise ValueError(f"a branch point behind the end of a path: {tokens} ids")
        return draw, offset

    def _progressed(self) -> bool:
        """Say whether the last wave, if any, finished a path: failures must not go on for ever."""
        before, self._finished_before = self._finished_before, self._finished
        return self._finished > before

    def _build(self) -> NodeMap:
        tree = self.tree
        nodes = build_nodes(self._root, tree)
        ledger = tree.ledger
        ledger.discarded = self._surplus + nodes.folded
        if ledger.discarded:
            split = {"duplicates": nodes.folded, "surplus": self._surplus}
            tree.root.meta = {**(tree.root.meta or {}), "discarded": split}
        if self._judged:
            for leaf in tree.leaves():
                self._reward(leaf)
        return nodes

    def _reward(self, leaf: Node) -> None:
        assert leaf.finish_reason is not None
        judgement = self._judged.get((self.tree.path_ids(leaf), leaf.finish_reason))
        if judgement is None:
            return
        leaf.reward = judgement.reward
        if judgement.error is not None:
            leaf.meta = {**(leaf.meta or {}), "judge_error": judgement.error}
