"""What labelling leaves of an engine's own throughput, on real problems and a real model.

    python benchmarks/engine_share.py --engine vllm   --model FOLDER --problems test.jsonl
    python benchmarks/engine_share.py --engine server --model FOLDER --problems test.jsonl
    python benchmarks/engine_share.py --engine hf     --model FOLDER --problems test.jsonl --limit 8

Each round labels the problems, tools and rewards included, and then sends the very requests that
were sent, in the same order, without treerl: to vLLM's ``AsyncLLM``, or over HTTP to its server.
The second sending has nothing to wait for, since every prompt is known beforehand; it keeps as many
requests in flight as the engine takes. Prefix caches are emptied before each. The hf engine is
treerl's own: there the second sending goes to the engine without search, judges and store.

The share is labelling's tokens a second over raw tokens a second of one round; rounds give the
spread. `server` starts vLLM's own server on loopback. Rows are appended to --out as they come.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from treerl.engines.base import Completion, Request
from treerl.loading import load_problems
from treerl.prm.pipeline import Labeler
from treerl.prm.rewards import AnswerReward
from treerl.search.mcts import MCTSConfig
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.verifiers import AnswerVerifier, StepVerifier

SYSTEM = (
    "Solve the problem step by step, one short step a line, each with its calculation. "
    'End with a line "Answer: NUMBER".'
)
WIDTH = 64


class Recorder:
    """An engine that notes every request on its way in."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.requests: list[Request] = []
        self.completions: list[Completion] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, request: Request) -> Completion:
        """Note and pass on."""
        self.requests.append(request)
        completion: Completion = await self._engine.generate(request)
        self.completions.append(completion)
        return completion


async def in_flight(
    jobs: Sequence[Any], send: Callable[[int, Any], Awaitable[int]], width: int
) -> int:
    """Send all jobs in order, ``width`` at once; return the tokens that came back."""
    places = asyncio.Semaphore(width)

    async def one(i: int, job: Any) -> int:
        async with places:
            return await send(i, job)

    return sum(await asyncio.gather(*(one(i, job) for i, job in enumerate(jobs))))


# --- engines: each yields the engine, its raw sender, and a way to empty its cache ----------------


@contextmanager
def open_vllm(args: argparse.Namespace) -> Iterator[tuple[Any, Any, Any]]:
    """vLLM in this process."""
    from treerl.engines.vllm_engine import VLLMEngine
    from treerl.engines.vllm_words import parameters_of

    engine = VLLMEngine.from_pretrained(
        args.model, dtype="float32", max_context=1024, max_num_seqs=WIDTH
    )
    llm, home = engine._llm, engine._home

    def raw(requests: Sequence[Request]) -> Callable[[], int]:
        jobs = [
            ({"prompt_token_ids": list(r.prompt_ids)}, parameters_of(r, engine.eos_ids, seeds=True))
            for r in requests
        ]

        async def send(i: int, job: Any) -> int:
            last = None
            async for output in llm.generate(*job, f"raw-{i}"):
                last = output
            assert last is not None
            return len(last.outputs[0].token_ids)

        return lambda: home.call(in_flight(jobs, send, WIDTH)).result()

    try:
        yield engine, raw, lambda: home.call(llm.reset_prefix_cache()).result()
    finally:
        asyncio.run(engine.close())


@contextmanager
def open_server(args: argparse.Namespace) -> Iterator[tuple[Any, Any, Any]]:
    """vLLM's server on loopback."""
    import httpx

    from treerl.engines.server import ServerEngine

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", args.model,
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--max-model-len", "1024", "--max-num-seqs", str(WIDTH), "--block-size", "32",
        "--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048",
        "--logprobs-mode", "processed_logprobs", "--enable-prefix-caching",
    ]  # fmt: skip
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        **os.environ,
        "VLLM_SERVER_DEV_MODE": "1",  # opens /reset_prefix_cache
    }
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(f"{url}/health", server)
            engine = ServerEngine.connect(url, concurrency=WIDTH, tokenizer=args.model)

            def raw(requests: Sequence[Request]) -> Callable[[], int]:
                jobs = [
                    json.dumps({
                        "model": args.model, "prompt": list(r.prompt_ids), "seed": r.seed,
                        "max_tokens": r.max_tokens, "temperature": r.temperature,
                        "top_p": r.top_p, "stop": list(r.stop), "logprobs": 0,
                        "include_stop_str_in_output": True, "return_token_ids": True,
                    }).encode()
                    for r in requests
                ]  # fmt: skip

                async def all_of_them() -> int:
                    limits = httpx.Limits(max_connections=WIDTH)
                    async with httpx.AsyncClient(timeout=600, limits=limits) as client:

                        async def send(i: int, body: bytes) -> int:
                            headers = {"Content-Type": "application/json"}
                            reply = await client.post(
                                f"{url}/v1/completions", content=body, headers=headers
                            )
                            return int(
                                reply.raise_for_status().json()["usage"]["completion_tokens"]
                            )

                        return await in_flight(jobs, send, WIDTH)

                return lambda: asyncio.run(all_of_them())

            def empty() -> None:
                urllib.request.urlopen(f"{url}/reset_prefix_cache", data=b"", timeout=60).close()

            yield engine, raw, empty
            asyncio.run(engine.close())
        finally:
            server.terminate()
            server.wait(60)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers."""
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit(f"vLLM's server ended with {server.returncode}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(1)
        else:
            return
    raise SystemExit("vLLM's server did not start within ten minutes")


@contextmanager
def open_hf(args: argparse.Namespace) -> Iterator[tuple[Any, Any, Any]]:
    """transformers, through treerl's own batcher."""
    from treerl.engines.hf import HFEngine

    def make() -> Any:
        return HFEngine.from_pretrained(args.model, dtype="float32", max_batch=WIDTH)

    engine = make()

    def raw(requests: Sequence[Request]) -> Callable[[], int]:
        async def send(i: int, request: Request) -> int:
            return len((await fresh.generate(request)).token_ids)

        async def all_of_them() -> int:
            try:
                return await in_flight(requests, send, len(requests))
            finally:
                await fresh.close()

        fresh = make()  # its prefix store is empty
        return lambda: asyncio.run(all_of_them())

    try:
        yield engine, raw, lambda: None
    finally:
        asyncio.run(engine.close())


ENGINES = {"vllm": open_vllm, "server": open_server, "hf": open_hf}


def main() -> None:
    """Label, send again, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--problems", required=True)
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--simulations", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    problems = load_problems(args.problems, limit=args.limit).problems
    sampling = Sampling(temperature=0.6, max_tokens=args.max_tokens, steps=PlainSteps("\n"))
    search = MCTSConfig(simulations=args.simulations, sampling=sampling)
    with (
        ENGINES[args.engine](args) as (engine, raw, empty_cache),
        AnswerVerifier() as answers,
        StepVerifier() as steps,
    ):
        warm_up = MCTSConfig(simulations=1, sampling=sampling)
        with tempfile.TemporaryDirectory() as folder:  # kernels compile at their first use
            reward = AnswerReward(answers)
            Labeler(reward=reward, verifier=steps, search=warm_up, system=SYSTEM).run(
                problems[:2], engine, folder
            )
        for n in range(args.rounds):
            labeler = Labeler(
                    reward=AnswerReward(answers), verifier=steps, search=search, system=SYSTEM,
                    seed=n, active=64,
                )  # fmt: skip
            empty_cache()
            recorder = Recorder(engine)
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                summary = labeler.run(problems, recorder, Path(folder, "run"))
                seconds = time.perf_counter() - began
            send = raw(recorder.requests)
            empty_cache()
            began = time.perf_counter()
            tokens = send()
            raw_seconds = time.perf_counter() - began
            generated = sum(len(c.token_ids) for c in recorder.completions)
            row = {
                    "engine": args.engine, "round": n, "problems": len(problems),
                    "requests": len(recorder.requests), "labels": summary["labels"],
                    "rollouts": summary["rollouts"], "right_rollouts": summary["right_rollouts"],
                    "ledger": summary["ledger"],
                    "cached": sum(c.usage.cached for c in recorder.completions),
                    "tokens": generated, "seconds": round(seconds, 1),
                    "raw_tokens": tokens, "raw_seconds": round(raw_seconds, 1),
                    "tokens_per_second": round(generated / seconds, 1),
                    "raw_tokens_per_second": round(tokens / raw_seconds, 1),
                    "share": round((generated / seconds) / (tokens / raw_seconds), 3),
                    "detail": asdict(engine.capabilities)["detail"],
                }  # fmt: skip
            print(json.dumps(row, indent=1), flush=True)
            if args.out is not None:
                with args.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
