"""A vLLM ``LLM`` that somebody else owns, driven step by step.

This is TRL's colocate mode: the trainer holds a synchronous engine, hands it over for a rollout and
updates its weights in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treerl.engines.base import Capabilities, Completion, Request
from treerl.engines.checks import check_request, collect_eos_ids
from treerl.engines.tokenizer import HFTokenizer
from treerl.engines.vllm_words import (
    PROCESSED,
    completion_of,
    on_cpu,
    parameters_of,
    translated,
    versions_of,
)
from treerl.errors import EngineDied, EngineError

__all__ = ["VLLMStepEngine"]


class VLLMStepEngine:
    """Drives a synchronous ``LLM`` of somebody else; closing it is theirs too.

    Args:
        llm: A vLLM ``LLM``.
        tokenizer: Its tokenizer; taken from it by default.
        eos_ids: The end tokens; collected from its model by default.
        seeds: Whether to send seeds. By default yes, except where a seeded chunked prefill would
            kill the engine (on a CPU with chunked prefill); ``capabilities.seeds`` says so.
        lora_request: An adapter for all requests.
        policy_version: Written into completions.
    """

    def __init__(
        self,
        llm: Any,
        *,
        tokenizer: HFTokenizer | None = None,
        eos_ids: frozenset[int] | None = None,
        seeds: bool | None = None,
        lora_request: Any = None,
        policy_version: str = "",
    ) -> None:
        self.llm = llm
        self.lora_request = lora_request
        self.policy_version = policy_version
        self._engine = llm.llm_engine
        config = self._engine.vllm_config
        model = config.model_config
        self.tokenizer = tokenizer or HFTokenizer(llm.get_tokenizer())
        self.eos_ids = (
            collect_eos_ids(_Generation(model), model.hf_config, self.tokenizer.hf)
            if eos_ids is None
            else eos_ids
        )
        chunked = bool(config.scheduler_config.enable_chunked_prefill)
        self._seeds = not (on_cpu() and chunked) if seeds is None else seeds
        self._prioritised = config.scheduler_config.policy == "priority"
        self._vocab_size = model.get_vocab_size()
        self.capabilities = Capabilities(
            logprobs=model.logprobs_mode == PROCESSED,
            seeds=self._seeds,
            score=False,
            logprob_token_ids=True,
            max_context=model.max_model_len,
            detail=versions_of(model.model, model.dtype),
        )
        self._inside: dict[str, tuple[Request, str]] = {}
        self._failed: list[tuple[str, Completion | EngineError]] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests; what is wrong with one comes back from the next step."""
        for request in requests:
            name = request.request_id
            try:
                bound = self.capabilities.max_context
                check_request(request, max_context=bound, vocab_size=self._vocab_size)
                self._engine.add_request(
                    name,
                    {"prompt_token_ids": list(request.prompt_ids)},
                    parameters_of(request, self.eos_ids, seeds=self._seeds),
                    lora_request=self.lora_request,
                    priority=request.priority if self._prioritised else 0,
                )
            except Exception as error:
                self._failed.append((name, translated(error, name)))
            else:
                self._inside[name] = (request, self.policy_version)

    def step(self) -> list[tuple[str, Completion | EngineError]]:
        """Work until at least one queued request is finished; return the finished ones."""
        done, self._failed = self._failed, []
        while not done and self._inside:
            try:
                outputs = self._engine.step()
            except Exception as error:
                # A step that fails leaves nobody knowing what the engine holds.
                failure = EngineDied(f"vLLM failed in a step: {type(error).__name__}: {error}")
                done = [(name, failure) for name in self._inside]
                self._inside.clear()
                return done
            for output in outputs:
                if output.finished and (found := self._inside.pop(output.request_id, None)):
                    done.append((output.request_id, self._result(output, *found)))
        return done

    def _result(self, output: Any, request: Request, version: str) -> Completion | EngineError:
        try:
            return completion_of(output, request, self.eos_ids, version)
        except EngineError as error:
            return error

    def abort(self, request_id: str) -> None:
        """Drop a request; nothing comes back for it."""
        if self._inside.pop(request_id, None) is not None:
            self._engine.abort_request([request_id])


class _Generation:
    """The generation config of a vLLM model, as far as end tokens go."""

    def __init__(self, model_config: Any) -> None:
        self.eos_token_id = model_config.try_get_generation_config().get("eos_token_id")
