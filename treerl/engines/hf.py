"""Generation with transformers models, exact before fast.

Made for small models, tests, and machines without vLLM: it runs any decoder of transformers that
keeps its memory in attention, on CPU or GPU, in one worker thread, with continuous batching and
prefix reuse (see :mod:`treerl.engines.batcher`).
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import queue
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treerl.engines.base import Capabilities, Completion, Request
from treerl.engines.checks import collect_eos_ids
from treerl.engines.tokenizer import HFTokenizer
from treerl.errors import ConfigError, EngineDied, EngineError, MissingExtra

try:
    import torch
    import transformers

    from treerl.engines.batcher import Batcher, Limits
except ImportError as missing:
    raise MissingExtra("the hf engine", "local") from missing

__all__ = ["HFEngine"]

_log = logging.getLogger(__name__)

# An idle engine waits this long (seconds) for a request's siblings, which arrive a moment later and
# whose common prompt is then computed once.
_GATHER = 0.002


class HFEngine:
    """A transformers model as an engine.

    The sample of a request is a function of (prompt, sampling parameters, seed): in float32 it is
    the same alone and in any batch, up to ties of about 1e-6 in log-prob. In bfloat16 other batches
    round differently and samples may part.

    Args:
        model: A causal language model; it is switched to eval mode.
        tokenizer: Its tokenizer.
        eos_ids: The end tokens; collected from model and tokenizer by default.
        max_batch: Requests that run at once.
        max_context: Prompt plus generated tokens; the model's own bound by default.
        prefix_cache: Tokens whose keys and values are kept for later requests; 0 for none.
        batch_tokens: Tokens that the batch may hold, padding included.
        policy_version: Written into completions.

    Raises:
        ConfigError: The model keeps its memory in something else than attention.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: HFTokenizer,
        *,
        eos_ids: frozenset[int] | None = None,
        max_batch: int = 32,
        max_context: int | None = None,
        prefix_cache: int = 16_384,
        batch_tokens: int = 65_536,
        policy_version: str = "",
    ) -> None:
        config = model.config.get_text_config(decoder=True)
        _refuse_other_memory(config)
        bound = getattr(config, "max_position_embeddings", None)
        if max_context is not None and bound is not None and max_context > bound:
            raise ConfigError(f"max_context={max_context}, but the model reaches {bound} tokens")
        context = bound if max_context is None else max_context
        self.tokenizer = tokenizer
        self.eos_ids = (
            collect_eos_ids(model.generation_config, model.config, tokenizer.hf)
            if eos_ids is None
            else eos_ids
        )
        self.capabilities = Capabilities(
            logprob_token_ids=True,
            max_context=context,
            detail={
                "engine": "hf",
                "model": str(model.config._name_or_path),
                "dtype": str(model.dtype).removeprefix("torch."),
                "device": str(model.device),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        )
        limits = Limits(max_batch, context, batch_tokens, prefixes=prefix_cache)
        self._batcher = Batcher(
            model.eval(), tokenizer.decode, self.eos_ids, limits, policy_version
        )
        self._inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._futures: dict[str, Future[Completion]] = {}
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()
        self._closed = False

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        dtype: str = "float32",
        device: str | None = None,
        max_batch: int = 32,
        max_context: int | None = None,
        prefix_cache: int = 16_384,
        batch_tokens: int = 65_536,
        policy_version: str = "",
        threads: int | None = None,
    ) -> HFEngine:
        """Load a model folder or hub id.

        Args:
            path: Folder or hub id.
            dtype: "float32", "bfloat16" or "float16".
            device: A torch device; the first GPU, else the CPU, by default.
            threads: CPU threads of torch, for the whole process; torch's choice (one a core) by
                default. One less is much faster where other processes keep the cores busy: torch
                splits each product evenly, so every layer waits for the thread that has to queue
                for a core (measured: 2 threads on 2 busy cores ran at a tenth of 1 thread's speed).

        Raises:
            ConfigError: No model or no tokenizer there.
        """
        tokenizer = HFTokenizer.from_pretrained(path)
        if threads is not None:
            torch.set_num_threads(threads)
        if dtype not in ("float32", "bfloat16", "float16"):
            raise ConfigError(f"dtype {dtype!r} is none of float32, bfloat16, float16")
        try:
            with _quiet():
                model = transformers.AutoModelForCausalLM.from_pretrained(
                    str(path), dtype=getattr(torch, dtype)
                )
        except (OSError, ValueError, KeyError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"no causal language model in {path}: {reason}") from error
        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(
            model.to(where),
            tokenizer,
            max_batch=max_batch,
            max_context=max_context,
            prefix_cache=prefix_cache,
            batch_tokens=batch_tokens,
            policy_version=policy_version,
        )

    # The async engine -----------------------------------------------------------------------------

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; may be awaited from any event loop."""
        future: Future[Completion] = Future()
        with self._guard:
            self._refuse_if_gone()
            if request.request_id in self._futures:
                raise EngineError(f"request {request.request_id!r} is already running")
            self._futures[request.request_id] = future
            self._post("add", request)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._inbox.put(("abort", request.request_id))
            raise

    async def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Return log-probs (nats, temperature 1) of ``token_ids[start:]`` given what precedes."""
        future: Future[list[float]] = Future()
        with self._guard:
            self._refuse_if_gone()
            self._post("score", list(token_ids), start, future)
        return await asyncio.wrap_future(future)

    async def abort(self, request_id: str) -> None:
        """End a request with what it has; one that is unknown or finished is left alone."""
        self._inbox.put(("abort", request_id))

    async def close(self) -> None:
        """Stop the worker; requests inside fail with EngineError."""
        if self._stop():
            await asyncio.to_thread(self._join)

    def _stop(self) -> bool:
        with self._guard:
            self._closed = True
            if self._thread is not None:
                self._inbox.put(("close",))
            return self._thread is not None

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _refuse_if_gone(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed")
        if self._batcher.dead is not None:
            raise self._batcher.dead

    def _post(self, *message: Any) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="treerl-hf", daemon=True)
            self._thread.start()
            # A daemon thread inside torch while the interpreter is torn down may crash it.
            atexit.register(_stop_at_exit, weakref.ref(self))
        self._inbox.put(message)

    # The step engine ------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests for :meth:`step`.

        Raises:
            RuntimeError: The engine is already in use from asyncio.
        """
        if self._thread is not None:
            raise RuntimeError("this engine runs in its own thread already: await generate() there")
        self._refuse_if_gone()
        for request in requests:
            self._batcher.add(request)

    def step(self) -> list[tuple[str, Completion | EngineError]]:
        """Work until at least one queued request is finished; return the finished ones."""
        while self._batcher.busy:
            if done := self._batcher.tick():
                return done
        return []

    # The worker thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        error: EngineError = EngineError("the engine is closed")
        try:
            while self._receive():
                for request_id, result in self._batcher.tick():
                    self._deliver(request_id, result)
        except BaseException as crash:  # a fault of this loop itself: nobody may wait for ever
            _log.exception("the hf engine's worker failed")
            error = EngineDied(f"the hf engine's worker failed: {crash!r}")
            self._batcher.dead = error
        with self._guard:
            self._closed = self._closed or self._batcher.dead is None
            self._drain_scores(error)
        for request_id, result in self._batcher.fail_all(error):
            self._deliver(request_id, result)
        for request_id in list(self._futures):
            self._deliver(request_id, error)

    def _receive(self) -> bool:
        """Take the messages that are there, waiting for one if there is nothing to do."""
        idle = not self._batcher.busy
        if idle:
            if not self._handle(self._inbox.get()):
                return False
            time.sleep(_GATHER)
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                return True
            if not self._handle(message):
                return False

    def _handle(self, message: tuple[Any, ...]) -> bool:
        kind, *rest = message
        if kind == "add":
            self._batcher.add(rest[0])
        elif kind == "abort":
            self._batcher.abort(rest[0])
        elif kind == "score":
            ids, start, future = rest
            try:
                _resolve(future, self._batcher.score(ids, start))
            except EngineError as error:
                _resolve(future, error)
        return bool(kind != "close")

    def _drain_scores(self, error: EngineError) -> None:
        """Fail the scores still in the inbox; requests there are failed through their futures."""
        while not self._inbox.empty():
            kind, *rest = self._inbox.get()
            if kind == "score":
                _resolve(rest[2], error)

    def _deliver(self, request_id: str, result: Completion | EngineError) -> None:
        future = self._futures.pop(request_id, None)
        if future is not None:
            _resolve(future, result)


def _resolve(future: Future[Any], result: Any) -> None:
    """Settle a future unless its waiter is gone."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(result, EngineError):
        future.set_exception(result)
    else:
        future.set_result(result)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide transformers' progress bars, which would tear a caller's own display."""
    settings = transformers.utils.logging
    shown = settings.is_progress_bar_enabled()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            settings.enable_progress_bar()


def _stop_at_exit(reference: weakref.ref[HFEngine]) -> None:
    engine = reference()
    if engine is not None and engine._stop():
        engine._join()


def _refuse_other_memory(config: Any) -> None:
    """Refuse recurrent and other layers whose state cannot be cut at a token."""
    kinds = set(getattr(config, "layer_types", None) or ())
    odd = kinds - {"full_attention", "sliding_attention"}
    if odd or getattr(config, "is_encoder_decoder", False):
        what = ", ".join(sorted(odd)) or "an encoder"
        raise ConfigError(f"the hf engine runs decoders with attention layers only, not {what}")
