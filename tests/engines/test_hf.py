"""The hf engine: batches, caches and arrival change nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the hf engine needs treerl[local]")
transformers = pytest.importorskip("transformers", reason="the hf engine needs treerl[local]")

from treerl.engines import HFEngine, HFTokenizer  # noqa: E402
from treerl.engines.base import Completion, Request  # noqa: E402
from treerl.engines.sampling import Wish, draw  # noqa: E402
from treerl.errors import ConfigError, EngineError  # noqa: E402


def plain_sample(model: Any, request: Request, ends: frozenset[int]) -> tuple[int, ...]:
    """Sample with whole forward passes only: no cache, no batch, no padding."""
    ids: list[int] = []
    while len(ids) < request.max_tokens and not (ids and ids[-1] in ends):
        with torch.no_grad():
            whole = torch.tensor([[*request.prompt_ids, *ids]])
            logits = model(whole, use_cache=False).logits[:, -1]
        wish = Wish(request.temperature, request.top_p, Wish.key_of(request.seed or 0), len(ids))
        ids.append(draw(logits, [wish])[0].token_id)
    return tuple(ids)


def serve(engine: HFEngine, requests: list[Request]) -> dict[str, Completion]:
    """Run through the step engine, requests arriving a few at a time."""
    found: dict[str, Any] = {}
    waiting = list(requests)
    while waiting or engine._batcher.busy:
        engine.submit(waiting[:3])
        del waiting[:3]
        found.update(engine._batcher.tick())
    return found


def tree_requests(n: int, vocabulary: int, rng: np.random.Generator) -> list[Request]:
    """Return requests as trees make them: equal, grown and strange prompts, long and short."""
    prompts = [tuple(map(int, rng.integers(0, vocabulary, rng.integers(1, 30)))) for _ in range(3)]
    requests = []
    for i in range(n):
        prompt = prompts[int(rng.integers(len(prompts)))]
        if rng.random() < 0.5:
            prompt = (*prompt, *map(int, rng.integers(0, vocabulary, rng.integers(1, 20))))
            prompts.append(prompt)
        requests.append(
            Request(
                f"r{i}", "t", prompt[:100], int(rng.integers(1, 25)), seed=i, top_p=(1, 0.9)[i % 2]
            )
        )
    return requests


FAMILIES = {
    "llama": lambda: transformers.LlamaConfig(num_key_value_heads=1),
    "qwen3": lambda: transformers.Qwen3Config(num_key_value_heads=2, head_dim=16),
    "mistral, window 8": lambda: transformers.MistralConfig(
        num_key_value_heads=1, sliding_window=8
    ),
    "gemma3, mixed windows": lambda: transformers.Gemma3TextConfig(
        num_key_value_heads=1, head_dim=16, sliding_window=8, num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "gpt2, learned positions": lambda: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2),
    "llama, eager": lambda: transformers.LlamaConfig(
        num_key_value_heads=1, attn_implementation="eager"
    ),
}  # fmt: skip


def tiny(family: str) -> Any:
    config = FAMILIES[family]()
    for name, value in {
        "vocab_size": 90, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 256,
        "bos_token_id": None, "eos_token_id": 5, "pad_token_id": None,
    }.items():  # fmt: skip
        if not (family.startswith("gpt2") and name in ("hidden_size", "num_hidden_layers")):
            setattr(config, name, value)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.normal_(std=0.3)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prefix_cache", [0, 200, 16_384])
def test_batches_equal_plain_sampling(family: str, prefix_cache: int, tiny_folder: Path) -> None:
    model = tiny(family)
    tokenizer = HFTokenizer.from_pretrained(tiny_folder)
    ends = frozenset({5})
    engine = HFEngine(
        model, tokenizer, eos_ids=ends, max_batch=5, prefix_cache=prefix_cache, batch_tokens=400
    )
    requests = tree_requests(25, 90, np.random.default_rng(3))
    found = serve(engine, requests)
    for request in requests:
        assert found[request.request_id].token_ids == plain_sample(model, request, ends)
    cached = sum(c.usage.cached for c in found.values())
    assert cached > 0 or not prefix_cache


def test_equal_prompts_are_computed_once(tiny_model: Any, tiny_folder: Path) -> None:
    engine = HFEngine(tiny_model, HFTokenizer.from_pretrained(tiny_folder), prefix_cache=0)
    prompt = tuple(range(40, 60))
    engine.submit([Request(f"r{i}", "t", prompt, 4, seed=i) for i in range(6)])
    found: dict[str, Any] = {}
    while done := engine.step():
        found.update(done)
    assert sorted(c.usage.cached for c in found.values()) == [0, 20, 20, 20, 20, 20]


def test_a_child_computes_only_what_its_parent_did_not(tiny_model: Any, tiny_folder: Path) -> None:
    engine = HFEngine(tiny_model, HFTokenizer.from_pretrained(tiny_folder), eos_ids=frozenset())
    prompt = tuple(range(40, 60))
    parent = serve(engine, [Request("p", "t", prompt, 8, seed=0)])["p"]
    child = serve(engine, [Request("c", "t", prompt + parent.token_ids, 8, seed=1)])["c"]
    assert parent.usage.cached == 0
    # The parent's last token was drawn, never computed.
    assert child.usage.cached == len(prompt) + len(parent.token_ids) - 1


def test_a_common_beginning_of_new_prompts_is_computed_once(
    tiny_model: Any, tiny_folder: Path
) -> None:
    engine = HFEngine(tiny_model, HFTokenizer.from_pretrained(tiny_folder))
    system = tuple(range(30, 70))
    engine.submit([Request(f"r{i}", "t", (*system, 100 + i), 2, seed=i) for i in range(4)])
    found: dict[str, Any] = {}
    while done := engine.step():
        found.update(done)
    computed = sum(c.usage.prompt - c.usage.cached for c in found.values())
    assert computed == len(system) + 4


def test_a_failing_pass_takes_only_its_own_requests_along(
    tiny_model: Any, tiny_folder: Path
) -> None:
    engine = HFEngine(tiny_model, HFTokenizer.from_pretrained(tiny_folder), eos_ids=frozenset())
    real = engine._batcher._forward

    def forward(ids: Any, *rest: Any) -> Any:
        if ids.shape[1] > 1 and (ids == 77).any():
            raise ValueError("a poisoned prompt")
        return real(ids, *rest)

    engine._batcher._forward = forward  # type: ignore[method-assign]
    requests = [Request(f"r{i}", "t", (50 + i, 60, 61), 12, seed=i) for i in range(3)]
    engine.submit(requests)
    found: dict[str, Any] = dict(engine._batcher.tick())
    engine.submit([Request("poison", "t", (77, 1, 2), 4)])
    while done := engine.step():
        found.update(done)
    assert isinstance(found["poison"], EngineError)
    assert "poisoned prompt" in str(found["poison"])
    for request in requests:
        assert found[request.request_id].token_ids == plain_sample(tiny_model, request, frozenset())


def test_loops_may_come_and_go(tiny_model: Any, tiny_folder: Path) -> None:
    engine = HFEngine(tiny_model, HFTokenizer.from_pretrained(tiny_folder))
    ask = Request("r", "t", (50, 60), 5, seed=1)
    first = asyncio.run(engine.generate(ask))
    assert asyncio.run(engine.generate(ask)).token_ids == first.token_ids
    with pytest.raises(RuntimeError, match="thread"):
        engine.submit([ask])
    asyncio.run(engine.close())


def test_what_cannot_be_loaded_is_named(tmp_path: Path, tiny_folder: Path) -> None:
    for file in tiny_folder.iterdir():
        if "tokenizer" in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ConfigError, match="no causal language model in"):
        HFEngine.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="float8"):
        HFEngine.from_pretrained(tiny_folder, dtype="float8")
    with pytest.raises(ConfigError, match="max_context=999"):
        HFEngine.from_pretrained(tiny_folder, max_context=999)


def test_recurrent_models_are_refused(tiny_folder: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=90, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ConfigError, match="linear_attention"):
        HFEngine(model, HFTokenizer.from_pretrained(tiny_folder))


@pytest.mark.engine
def test_smollm2_speaks_and_is_exact(smollm2_engine: Any) -> None:
    tokenizer = smollm2_engine.tokenizer
    prompt = tuple(tokenizer.encode_prompt([{"role": "user", "content": "What is 2 + 3?"}]))

    async def ask() -> list[Completion]:
        asked = [Request("greedy", "t", prompt, 16, temperature=0.0)]
        asked += [Request(f"s{i}", "t", prompt, 24, seed=i, stop=("\n",)) for i in range(7)]
        return list(await asyncio.gather(*map(smollm2_engine.generate, asked)))

    greedy, *sampled = asyncio.run(ask())
    assert "5" in tokenizer.decode(greedy.token_ids)
    assert greedy.finish_reason == "eos"
    again = asyncio.run(
        smollm2_engine.generate(Request("x", "t", prompt, 24, seed=3, stop=("\n",)))
    )
    assert again.token_ids == sampled[3].token_ids
    for completion in (greedy, *sampled):
        scores = asyncio.run(smollm2_engine.score([*prompt, *completion.token_ids], len(prompt)))
        assert np.abs(np.subtract(scores, completion.logprobs)).max() < 1e-3
