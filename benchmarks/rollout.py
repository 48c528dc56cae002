"""What trees of rollouts cost and give beside flat sampling, and what treerl takes of the engine.

    python benchmarks/rollout.py --engine vllm --out runs/rollout --task words
    python benchmarks/rollout.py --engine vllm --out runs/rollout --task gsm8k \
        --model SmolLM2-135M-Instruct --problems gsm8k_test.jsonl
    python benchmarks/rollout.py --engine hf --out runs/try --task words --limit 4 --seeds 1

For each sampler and seed, under equal caps and stopping rules (treepo.md §6.3, G):

1. treerl rolls out all problems, rewards and run folder included;
2. the same requests are sent to the engine without treerl, each as soon as the ones it depends on
   are answered: its parent's segment, and with the published allocation the rounds before it. For
   ``flat`` that is the engine called directly, a request a sample.

Prefix caches are emptied before each. *Share* is treerl's tokens a second over those of the second
sending: what treerl leaves of the engine; beside it, the share until the last problem was safe,
before rows and trees were written into their final files. Shared tokens count once.

Every sampler and seed is a line of ``rows.jsonl``; interrupted, the run goes on with the same
command. The table, mean ± sd over seeds, is printed and stands in ``table-TASK-ENGINE.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from bias import read_rows
from engine_share import SYSTEM

from treerl.engines.base import Completion, Request
from treerl.lab import words
from treerl.loading import load_problems
from treerl.prm.rewards import AnswerReward
from treerl.problem import Problem
from treerl.search.rollouts import Rollouts
from treerl.search.treepo_allocation import Forks
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_presets import preset
from treerl.search.treepo_stopping import Stopping
from treerl.verifiers import AnswerVerifier

Send = Callable[[int, Request], Awaitable[int]]
"""Sends the n-th request without treerl; returns how many tokens came back."""

TASKS = {  # problems, segment, tokens a path
    "words": (64, 16, 160),
    "gsm8k": (16, 64, 384),
}


def samplers(width: int, segment: int, max_tokens: int) -> dict[str, TreePOConfig]:
    """Return the samplers of the table; loops end no path, or flat would differ."""
    shared: dict[str, Any] = {
        "width": width,
        "max_tokens": max_tokens,
        "max_depth": None,
        "stopping": Stopping(boxed=False, repetition=None),
    }
    trees = {**shared, "segment_tokens": segment}
    return {
        "flat": preset("flat", **shared),
        **{f"treerl, k0 = {k0}": preset("treerl", k0=k0, **trees) for k0 in (2, 4, 8)},
        "treepo_paper": preset("treepo_paper", **trees),
    }


class Recorder:
    """An engine that notes requests, answers, and what was answered when each request came."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.requests: list[Request] = []
        self.completions: dict[int, Completion] = {}
        self.before: list[tuple[int, ...]] = []
        self._answered: dict[str, list[int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, request: Request) -> Completion:
        """Note and pass on."""
        number = len(self.requests)
        answered = self._answered.setdefault(request.tree_id, [])
        self.requests.append(request)
        self.before.append(tuple(answered))
        completion: Completion = await self._engine.generate(request)
        self.completions[number] = completion
        answered.append(number)
        return completion

    def parents(self, config: TreePOConfig) -> list[tuple[int, ...]]:
        """Return the requests that each request had to wait for."""
        if config.fallback is not None or not isinstance(config.allocation, Forks):
            return self.before  # rounds and waves: all that came before, in the same tree
        ends: dict[tuple[str, tuple[int, ...]], int] = {}
        for number, completion in sorted(self.completions.items()):
            request = self.requests[number]
            ends.setdefault((request.tree_id, request.prompt_ids + completion.token_ids), number)
        roots: dict[str, tuple[int, ...]] = {}
        for request in self.requests:
            roots.setdefault(request.tree_id, request.prompt_ids)
        return [
            () if r.prompt_ids == roots[r.tree_id] else (ends[r.tree_id, r.prompt_ids],)
            for r in self.requests
        ]


async def replay(
    requests: Sequence[Request], parents: Sequence[tuple[int, ...]], send: Send
) -> int:
    """Send requests, each once its parents are answered; return the tokens that came back."""
    answered = [asyncio.Event() for _ in requests]

    async def one(i: int) -> int:
        for parent in parents[i]:
            await answered[parent].wait()
        tokens = await send(i, requests[i])
        answered[i].set()
        return tokens

    return sum(await asyncio.gather(*(one(i) for i in range(len(requests)))))


# --- engines: a fresh cache, the engine, and a way around treerl ----------------------------------


class Bench(Protocol):
    """An engine for one task."""

    def fresh(self) -> Any:
        """Return the engine with an empty cache."""

    def resend(self, requests: Sequence[Request], parents: Sequence[tuple[int, ...]]) -> int:
        """Send requests without treerl, on an empty cache; return the tokens."""


class HFBench:
    """transformers, through treerl's own batcher: there only search, judges and store are left."""

    def __init__(self, model: str) -> None:
        self._model = model

    def fresh(self) -> Any:
        """Return an engine with an empty prefix store."""
        from treerl.engines.hf import HFEngine

        return HFEngine.from_pretrained(self._model, dtype="float32", max_batch=64, threads=1)

    def resend(self, requests: Sequence[Request], parents: Sequence[tuple[int, ...]]) -> int:
        """Send to a fresh engine."""
        engine = self.fresh()

        async def send(_: int, request: Request) -> int:
            return len((await engine.generate(request)).token_ids)

        async def all_of_them() -> int:
            try:
                return await replay(requests, parents, send)
            finally:
                await engine.close()

        return asyncio.run(all_of_them())


class VLLMBench:
    """vLLM in this process; the second sending goes to its ``AsyncLLM``."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._llm, self._home = engine._llm, engine._home
        self._sent = 0

    def fresh(self) -> Any:
        """Empty the prefix cache."""
        self._home.call(self._llm.reset_prefix_cache()).result()
        return self._engine

    def resend(self, requests: Sequence[Request], parents: Sequence[tuple[int, ...]]) -> int:
        """Send to vLLM itself."""
        from treerl.engines.vllm_words import parameters_of

        self.fresh()
        self._sent += 1
        jobs = [
            ({"prompt_token_ids": list(r.prompt_ids)},
             parameters_of(r, self._engine.eos_ids, seeds=True))
            for r in requests
        ]  # fmt: skip

        async def send(i: int, _: Request) -> int:
            last: Any = None
            async for output in self._llm.generate(*jobs[i], f"raw-{self._sent}-{i}"):
                last = output
            return len(last.outputs[0].token_ids)

        return int(self._home.call(replay(requests, parents, send)).result())


@contextmanager
def open_bench(args: argparse.Namespace) -> Iterator[Bench]:
    """Load the engine of a task."""
    model = str(args.model or words.model_path())
    if args.engine == "hf":
        yield HFBench(model)
        return
    from treerl.engines.vllm_engine import VLLMEngine

    arguments = {} if args.block_size is None else {"block_size": args.block_size}
    engine = VLLMEngine.from_pretrained(
        model, dtype="float32", max_context=args.max_context, max_num_seqs=args.max_num_seqs,
        **arguments,
    )  # fmt: skip
    try:
        yield VLLMBench(engine)
    finally:
        asyncio.run(engine.close())


# --- measuring ------------------------------------------------------------------------------------


def measure(
    bench: Bench, problems: list[Problem], config: TreePOConfig, reward: Any, args: Any, seed: int
) -> dict[str, Any]:
    """Roll out, send again, and return a row."""
    engine = bench.fresh()
    recorder: Any = Recorder(engine)
    system = SYSTEM if args.task == "gsm8k" else None
    rollouts = Rollouts(
        reward=reward, search=config, seed=seed, system=system, active=len(problems)
    )
    saved: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        summary = rollouts.run(
            problems, recorder, Path(folder, "run"),
            on_result=lambda _: saved.append(time.perf_counter() - began),
        )  # fmt: skip
        seconds = time.perf_counter() - began
    if args.engine == "hf":
        asyncio.run(engine.close())
    parents = recorder.parents(config)
    began = time.perf_counter()
    raw_tokens = bench.resend(recorder.requests, parents)
    raw_seconds = time.perf_counter() - began
    usage = [c.usage for c in recorder.completions.values()]
    generated = sum(u.generated for u in usage)
    prompts = {r.tree_id: len(r.prompt_ids) for r in reversed(recorder.requests)}
    cost = summary["cost"]
    names = ("ess", "first_nodes", "mean_reward", "uniform_mean_reward", "mean_tokens")
    names += ("uniform_mean_tokens", "pass_at_w", "maj_at_w", "leaves", "distinct_leaves")
    return {
        "problems": len(problems),
        "requests": len(recorder.requests),
        "generated": generated,
        "unique_tokens": cost["unique_tokens"],
        "relative_cost": cost["relative_cost"],
        "saved": cost["saved"],
        "prompt_tokens": sum(prompts.values()),
        "computed_prefill": sum(u.prompt - u.cached for u in usage),
        "submitted": sum(u.prompt for u in usage),
        "seconds": round(seconds, 3),
        "growing_seconds": round(saved[-1], 3),
        "raw_tokens": raw_tokens,
        "raw_seconds": round(raw_seconds, 3),
        "share": (generated / seconds) / (raw_tokens / raw_seconds),
        "growing_share": (generated / saved[-1]) / (raw_tokens / raw_seconds),
        "failures": summary["failures"],
        **{name: summary[name] for name in names},
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of one task and engine, in Markdown."""
    flat = {r["seed"]: r for r in rows if r["sampler"] == "flat"}
    head = [
        "sampler", "seeds", "leaves/s", "s a prompt", "leaves/s over flat", "unique tokens/s",
        "share of the engine (bar 0.95)", "the same without the final files",
        "unique tokens/s over flat", "tokens a leaf over flat",
        "prefill over one a prompt", "length bias, uniform", "length bias, ω", "pass@w", "maj@w",
        "effective samples",
    ]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in dict.fromkeys(r["sampler"] for r in rows):
        own = [r for r in rows if r["sampler"] == name]
        both = [(r, flat[r["seed"]]) for r in own if r["seed"] in flat]
        cells = [
            name,
            str(len(own)),
            over([r["leaves"] / r["seconds"] for r in own], ".2f"),
            over([r["seconds"] / r["problems"] for r in own], ".2f"),
            over([_rate(r, "leaves") / _rate(f, "leaves") for r, f in both], ".2f"),
            over([_rate(r, "unique_tokens") for r in own], ".0f"),
            over([r["share"] for r in own], ".3f"),
            over([r["growing_share"] for r in own], ".3f"),
            over([_rate(r, "unique_tokens") / _rate(f, "unique_tokens") for r, f in both], ".2f"),
            over([(r["generated"] / r["leaves"]) / (f["generated"] / f["leaves"])
                  for r, f in both], ".2f"),
            over([r["computed_prefill"] / r["prompt_tokens"] for r in own], ".2f"),
            over([r["uniform_mean_tokens"] / f["mean_tokens"] - 1 for r, f in both], "+.1%"),
            over([r["mean_tokens"] / f["mean_tokens"] - 1 for r, f in both], "+.1%"),
            over([r["pass_at_w"] for r in own], ".3f"),
            over([r["maj_at_w"] for r in own if r["maj_at_w"] is not None], ".3f"),
            over([r["ess"] for r in own], ".1f"),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _rate(row: dict[str, Any], name: str) -> float:
    return float(row[name] / row["seconds"])


def over(values: Sequence[float], form: str) -> str:
    """Return the mean over seeds, with the standard deviation where there are several."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):{form}}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):{form.lstrip('+')}}"


def read_problems(args: argparse.Namespace) -> list[Problem]:
    """Return the problems of a task."""
    if args.task == "words":
        return [Problem.from_text(p.id, p.question, p.answer) for p in words.problems(args.limit)]
    if args.problems is None or args.model is None:
        raise SystemExit("--task gsm8k needs --problems and --model")
    return list(load_problems(args.problems, limit=args.limit).problems)


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--engine", choices=("hf", "vllm"), required=True)
    parser.add_argument("--task", choices=TASKS, default="words")
    parser.add_argument("--model", help="by default the words policy")
    parser.add_argument("--problems", help="with --task gsm8k")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--segment-tokens", type=int)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samplers", nargs="*", help="by default all")
    parser.add_argument("--max-context", type=int, help="of vLLM; by default the model's")
    parser.add_argument("--max-num-seqs", type=int, default=64, help="of vLLM")
    parser.add_argument("--block-size", type=int, help="of vLLM's prefix cache")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    limit, segment, most = TASKS[args.task]
    args.limit = args.limit or limit
    args.segment_tokens, args.max_tokens = args.segment_tokens or segment, args.max_tokens or most
    known = samplers(args.width, args.segment_tokens, args.max_tokens)
    chosen = {name: known[name] for name in args.samplers or known}
    problems = read_problems(args)
    setting = {
        name: getattr(args, name)
        for name in ("engine", "task", "model", "limit", "width", "segment_tokens", "max_tokens",
                     "max_num_seqs", "block_size")
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    journal = args.out / "rows.jsonl"
    rows = [r for r in read_rows(journal) if r["setting"] == setting]
    done = {(r["sampler"], r["seed"]) for r in rows}
    missing = [(n, s) for s in range(args.seeds) for n in chosen if (n, s) not in done]
    if missing:
        with open_bench(args) as bench, AnswerVerifier() as answers, journal.open("a") as lines:
            reward = AnswerReward(answers)
            # Kernels compile and workers start at their first use.
            measure(bench, problems[:2], chosen[missing[0][0]], reward, args, seed=-1)
            for name, seed in missing:
                found = measure(bench, problems, chosen[name], reward, args, seed)
                rows.append({"setting": setting, "sampler": name, "seed": seed, **found})
                lines.write(json.dumps(rows[-1]) + "\n")
                lines.flush()
                print(f"{name}, seed {seed}: {found['seconds']} s, raw {found['raw_seconds']} s, "
                      f"share {found['share']:.3f}", flush=True)  # fmt: skip
    text = table(rows)
    (args.out / f"table-{args.task}-{args.engine}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
