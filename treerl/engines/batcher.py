"""The batching loop of the hf engine: which rows run, what a tick computes, when a row ends.

One tick lets waiting requests join and then advances every row by one token. A joining request
computes only what the prefix store does not know; requests with equal prompts compute it once.
Everything here is synchronous and belongs to one thread.
"""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import torch

from treerl.engines.base import Completion, FinishReason, Request
from treerl.engines.checks import check_request, room_for
from treerl.engines.kv_slots import KVSlots
from treerl.engines.prefix_store import Match, PrefixStore
from treerl.engines.rows import Row
from treerl.engines.sampling import Draw, draw
from treerl.engines.stops import StopFinder
from treerl.errors import EngineDied, EngineError

__all__ = ["Batcher", "Limits"]

Result = Completion | EngineError

_WORTH_SHARING = 16  # tokens; a shorter common prefix is not worth a forward pass of its own
_FATAL_FAILURES = 3  # forward passes that fail in a row before the engine counts as dead


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the batch.

    Attributes:
        rows: Requests that run at once.
        context: Prompt plus generated tokens of a request, None if unbounded.
        cells: Tokens that the batch may hold, padding included; a lone request is always let in.
        prefill: Tokens a prefill pass computes at most (a longer prompt alone is one pass).
        prefixes: Tokens of the prefix store, 0 for none.
    """

    rows: int = 32
    context: int | None = None
    cells: int = 65_536
    prefill: int = 2_048
    prefixes: int = 16_384


class Batcher:
    """Runs requests on a transformers model.

    Args:
        model: A causal language model in eval mode whose layers are all attention layers.
        decode: Ids to text, for stop strings.
        eos_ids: The model's end tokens.
        limits: Bounds of the batch.
        version: Written into completions as ``policy_version``.

    Attributes:
        dead: Why no request can succeed any more, None while it lives.
    """

    def __init__(
        self,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        eos_ids: frozenset[int],
        limits: Limits,
        version: str = "",
    ) -> None:
        self._model = model
        self._decode = decode
        self._eos_ids = eos_ids
        self._limits = limits
        self._version = version
        config = model.config.get_text_config(decoder=True)
        self._vocab_size = model.get_input_embeddings().num_embeddings
        self._slots = KVSlots(config.num_hidden_layers)
        self._store = PrefixStore(limits.prefixes)
        self._rows: list[Row] = []
        self._waiting: list[tuple[int, int, Request]] = []
        self._order = count()
        self._done: list[tuple[str, Result]] = []
        self._failures = 0
        self.dead: EngineDied | None = None
        accepted = inspect.signature(model.forward).parameters
        # transformers renamed the argument in 5.20.
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._keeps = "logits_to_keep" in accepted

    @property
    def busy(self) -> bool:
        """Whether a tick would do or deliver anything."""
        return bool(self._rows or self._waiting or self._done)

    def add(self, request: Request) -> None:
        """Queue a request; what is wrong with it comes back from the next tick."""
        try:
            if self.dead is not None:
                raise self.dead
            check_request(request, max_context=self._limits.context, vocab_size=self._vocab_size)
        except EngineError as error:
            self._done.append((request.request_id, error))
            return
        heapq.heappush(self._waiting, (request.priority, next(self._order), request))

    def abort(self, request_id: str) -> None:
        """End a request with what it has."""
        for index, row in enumerate(self._rows):
            if row.request.request_id == request_id:
                self._finish(row, "abort", None)
                with torch.inference_mode():
                    self._drop(index)
                return
        for place in self._waiting:
            if place[2].request_id == request_id:
                self._waiting.remove(place)
                heapq.heapify(self._waiting)
                self._finish(self._new_row(place[2]), "abort", None)
                return

    def fail_all(self, error: EngineError) -> list[tuple[str, Result]]:
        """Fail everything inside; return what was not yet delivered."""
        self._fail([row.request for row in self._rows] + [p[2] for p in self._waiting], error)
        self._waiting.clear()
        self._reset()
        done, self._done = self._done, []
        return done

    def tick(self) -> list[tuple[str, Result]]:
        """Let requests join, advance all rows by a token; return the finished requests."""
        with torch.inference_mode():
            if joining := self._take():
                self._guard(self._join, joining)
            if self._rows:
                self._guard(self._advance, [])
        done, self._done = self._done, []
        return done

    def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Return log-probs at temperature 1 of ``token_ids[start:]``.

        Raises:
            EngineError: The sequence does not fit, or the model failed.
        """
        bound = self._limits.context
        if not 1 <= start <= len(token_ids):
            raise EngineError(f"score needs 1 <= start <= {len(token_ids)}, not {start}")
        if bound is not None and len(token_ids) > bound:
            raise EngineError(f"{len(token_ids)} tokens do not fit the context of {bound} tokens")
        if bad := [t for t in token_ids if not 0 <= t < self._vocab_size]:
            raise EngineError(f"id {bad[0]} is outside the vocabulary of {self._vocab_size} ids")
        ids = torch.tensor([list(token_ids)], device=self._model.device)
        keep = len(token_ids) - start + 1
        try:
            with torch.inference_mode():
                kept = {"logits_to_keep": keep} if self._keeps else {}
                logits = self._model(input_ids=ids, use_cache=False, **kept).logits[0, -keep:-1]
                found = torch.log_softmax(logits.float(), -1).gather(1, ids[0, start:, None])
        except Exception as error:
            raise _wrapped(error) from error
        return [float(x) for x in found[:, 0].cpu()]

    # Joining --------------------------------------------------------------------------------------

    def _take(self) -> list[Request]:
        """Take the waiting requests that fit, in order of priority and arrival."""
        taken: list[Request] = []
        width = self._slots.width
        while self._waiting and len(self._rows) + len(taken) < self._limits.rows:
            request = self._waiting[0][2]
            width = max(width, len(request.prompt_ids))
            rows = len(self._rows) + len(taken)
            if rows and (rows + 1) * width > self._limits.cells:
                break
            taken.append(heapq.heappop(self._waiting)[2])
        return taken

    def _join(self, joining: list[Request]) -> None:
        groups: dict[tuple[int, ...], list[Request]] = {}
        for request in joining:
            groups.setdefault(request.prompt_ids, []).append(request)
        payer, paid = self._share_prefix(list(groups))
        known = {prompt: self._store.find(prompt) for prompt in groups}
        for chunk in self._chunks(known):
            extra = sum(len(groups[prompt]) for prompt in chunk)
            first, logits, cached = self._prefill(chunk, known, extra)
            if payer in chunk:  # what was computed for all counts as computed once
                cached[chunk.index(payer)] -= paid
            self._begin(first, logits, cached, [groups[prompt] for prompt in chunk])
            joining[:] = [r for r in joining if r.prompt_ids not in chunk]

    def _share_prefix(self, prompts: list[tuple[int, ...]]) -> tuple[tuple[int, ...], int]:
        """Compute a beginning that all new prompts share once, where the store lacks it.

        Returns:
            A prompt to charge it to, and the tokens computed.
        """
        if len(prompts) < 2 or not self._limits.prefixes:
            return (), 0
        low, high = min(prompts), max(prompts)
        shared = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), None)
        shared = min(len(low), len(high)) if shared is None else shared
        lacking = [shared - self._store.find(p).length for p in prompts]
        if sum(n >= _WORTH_SHARING for n in lacking) < 2:
            return (), 0
        prefix = low[:shared]
        first, _, (cached,) = self._prefill([prefix], {prefix: self._store.find(prefix)}, 1)
        self._slots.remove(first)
        return low, shared - cached

    def _chunks(self, known: dict[tuple[int, ...], Match]) -> list[list[tuple[int, ...]]]:
        """Group prompts into forward passes, those with as much to compute together."""

        def fresh(prompt: tuple[int, ...]) -> int:
            return len(prompt) - min(known[prompt].length, len(prompt) - 1)

        chunks: list[list[tuple[int, ...]]] = []
        for prompt in sorted(known, key=lambda p: (fresh(p), p)):
            # Sorted, so this prompt decides the width of the pass; 2x more padding than work is
            # worse than another pass.
            last = chunks[-1] if chunks else []
            if (
                last
                and (len(last) + 1) * fresh(prompt) <= self._limits.prefill
                and fresh(prompt) <= max(2 * fresh(last[0]), _WORTH_SHARING)
            ):
                last.append(prompt)
            else:
                chunks.append([prompt])
        return chunks

    def _prefill(
        self, prompts: list[tuple[int, ...]], known: dict[tuple[int, ...], Match], extra: int
    ) -> tuple[int, Any, list[int]]:
        """Compute new rows for prompts.

        Args:
            extra: Rows to make room for, the prompts' own included.

        Returns:
            The first row's index, the last logits (rows, V), and the cached tokens of each row.
        """
        slots, lengths = self._slots, [len(p) for p in prompts]
        # All rows compute as many columns as the neediest; the others do a little again.
        queries = max(
            n - min(known[p].length, n - 1) for p, n in zip(prompts, lengths, strict=True)
        )
        slots.reserve(len(self._rows) + extra, max(lengths))
        mask, first = slots.open_rows(lengths, queries)
        cached = [
            slots.write(first + i, n, known[p].pieces(max(0, n - queries)))
            for i, (p, n) in enumerate(zip(prompts, lengths, strict=True))
        ]
        ids = torch.zeros((len(prompts), queries), dtype=torch.long)
        for i, prompt in enumerate(prompts):
            tail = prompt[-queries:]
            ids[i, queries - len(tail) :] = torch.tensor(tail)
        columns = torch.arange(-queries, 0)
        positions = (torch.tensor(lengths)[:, None] + columns[None, :]).clamp(min=0)
        logits = self._forward(ids, mask, positions)
        for i, prompt in enumerate(prompts):
            self._store.add(prompt, partial(slots.read, first + i))
        return first, logits, cached

    def _begin(
        self, first: int, logits: Any, cached: list[int], groups: list[list[Request]]
    ) -> None:
        """Draw the first tokens; give every request that goes on a row of its own."""
        rows = [[self._new_row(request) for request in group] for group in groups]
        for group, n in zip(rows, cached, strict=True):
            for row in group:  # only the first one's prompt was computed
                row.cached = n if row is group[0] else len(row.request.prompt_ids)
        source = [i for i, group in enumerate(rows) for _ in group]
        flat = [row for group in rows for row in group]
        draws = draw(logits[source], [row.wish() for row in flat])
        ended = {id(row) for row, d in zip(flat, draws, strict=True) if self._accept(row, d)}
        going = [[row for row in group if id(row) not in ended] for group in rows]
        self._rows.extend(group[0] if group else rows[i][0] for i, group in enumerate(going))
        for i, group in enumerate(going):
            for row in group[1:]:
                self._slots.duplicate(first + i)
                self._rows.append(row)
        for i in reversed(range(len(groups))):
            if not going[i]:
                self._drop(first + i)

    # Running --------------------------------------------------------------------------------------

    def _advance(self, _: list[Request]) -> None:
        """Compute one token of every row."""
        mask = self._slots.open_column()
        ids = torch.tensor([[row.ids[-1]] for row in self._rows])
        positions = torch.tensor(self._slots.lengths)[:, None] - 1
        logits = self._forward(ids, mask, positions)
        draws = draw(logits, [row.wish() for row in self._rows])
        ended = [i for i, row in enumerate(self._rows) if self._accept(row, draws[i])]
        for index in reversed(ended):
            self._drop(index)

    def _forward(self, ids: Any, mask: Any, positions: Any) -> Any:
        """Return the logits of the last column, (rows, V)."""
        device = self._model.device
        kept = {"logits_to_keep": 1} if self._keeps else {}
        out = self._model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            use_cache=True,
            **{self._cache_name: self._slots},
            **kept,
        )
        self._failures = 0
        return out.logits[:, -1]

    # Rows -----------------------------------------------------------------------------------------

    def _new_row(self, request: Request) -> Row:
        finder = StopFinder(self._decode, request.stop)
        return Row(request, finder, room_for(request, self._limits.context))

    def _accept(self, row: Row, drawn: Draw) -> bool:
        """Give a row its token; return whether it ends with it, its result then being delivered."""
        if not drawn.finite:
            text = f"request {row.request.request_id!r}: the model's logits are not finite numbers"
            self._done.append((row.request.request_id, EngineError(text)))
            return True
        end = row.accept(drawn, self._eos_ids)
        if end is not None:
            self._finish(row, *end)
        return end is not None

    def _finish(self, row: Row, reason: FinishReason, stop: str | int | None) -> None:
        self._done.append((row.request.request_id, row.completion(reason, stop, self._version)))

    def _drop(self, index: int) -> None:
        """Take a row out of the batch; its keys go to the store for the requests below it."""
        row = self._rows[index]
        known = row.computed[: self._slots.lengths[index]]
        self._store.add(known, partial(self._slots.read, index))
        self._slots.remove(index)
        last = self._rows.pop()
        if index < len(self._rows):
            self._rows[index] = last

    # Failures -------------------------------------------------------------------------------------

    def _guard(self, work: Callable[[list[Request]], None], joining: list[Request]) -> None:
        """Do a part of a tick; what fails in it takes only its own requests along.

        A failed join leaves the running rows alone, unless memory ran out, when nobody knows which
        buffers are whole.
        """
        try:
            work(joining)
        except Exception as error:
            self._failures += 1
            failure = _wrapped(error)
            if self._failures >= _FATAL_FAILURES:
                self.dead = EngineDied(f"the model failed {self._failures} times in a row: {error}")
                self._done = self.fail_all(self.dead)
                self._fail(joining, self.dead)
            elif joining and not failure.retryable and self._apart(joining):
                self._fail(joining, failure)
                del self._slots.lengths[len(self._rows) :]
            else:
                self._fail([row.request for row in self._rows] + joining, failure)
                self._reset()

    def _apart(self, joining: list[Request]) -> bool:
        """Whether the joining requests have not touched the running rows yet."""
        names = {request.request_id for request in joining}
        return not any(row.request.request_id in names for row in self._rows)

    def _fail(self, requests: Sequence[Request], error: EngineError) -> None:
        finished = {request_id for request_id, _ in self._done}
        for request in requests:
            if request.request_id not in finished:
                self._done.append((request.request_id, error))

    def _reset(self) -> None:
        self._rows.clear()
        self._slots.clear()
        self._store.clear()


def _wrapped(error: Exception) -> EngineError:
    """Return the error for requests: running out of memory may pass, a broken model does not."""
    text = f"the model failed: {type(error).__name__}: {error}"
    memory = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    found = EngineError(text, retryable=memory or "can't allocate memory" in str(error))
    found.__cause__ = error
    return found
