"""How biased tree estimates of a problem's value are, and what a token of them buys.

    python benchmarks/bias.py --out runs/bias [--problems 100] [--seeds 5] [--engine hf]

Words lab. The reference value of a problem is the mean reward of 256 flat samples. Every sampler
grows a tree of 16 paths a problem and seed; its value is estimated with branch weights and with
equal weights. The table says, over problems and seeds:

* the weighted value's mean error, in standard errors (problems are the sampling units);
* the uniform value's mean error with its 95 % interval;
* the variance of the weighted value at equal cost: variance between seeds times tokens generated a
  tree, as a multiple of flat sampling's. Below 1, a token of the tree buys more than a flat one;
* lengths: the mean path length of the reference against the weighted and the uniform mean.

Every tree is a line of ``rows.jsonl``. Interrupted, the run goes on with the same command;
``table.md`` is written anew after each sampler and seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from treerl.lab import words
from treerl.prm import AnswerReward
from treerl.problem import Problem
from treerl.search.growth import Judges, run
from treerl.search.treepo import TreePO
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_presets import preset
from treerl.search.treepo_stopping import Stopping
from treerl.search.treepo_summary import summarise
from treerl.tree import RunInfo, Tree
from treerl.verifiers import AnswerVerifier

REFERENCE = "reference"


def samplers(width: int, segment: int, max_tokens: int) -> dict[str, TreePOConfig]:
    """Return the samplers of the table, all under the same caps and stopping rules."""
    shared: dict[str, Any] = {
        "width": width,
        "segment_tokens": segment,
        "max_tokens": max_tokens,
        "max_depth": None,
        "stopping": Stopping(boxed=False, repetition=None),
    }
    return {
        "flat": preset("flat", **{**shared, "segment_tokens": None}),
        "treepo, k0 = 2": preset("treepo_paper", k0=2, **shared),
        "treepo, k0 in 2..8": preset("treepo_paper", **shared),
        **{f"quota, k0 = {k0}": preset("treerl", k0=k0, **shared) for k0 in (2, 4, 8)},
    }


def row(sampler: str, seed: int, index: int, tree: Tree) -> dict[str, Any]:
    """Return what the table needs of a tree."""
    summary = summarise(tree)
    return {
        "sampler": sampler,
        "seed": seed,
        "problem": index,
        "value": summary.value,
        "uniform": summary.uniform_value,
        "tokens": summary.cost.generated,
        "leaves": summary.leaves,
        "ess": summary.ess,
        "first_nodes": summary.first_nodes,
        "length": summary.mean_tokens,
        "uniform_length": summary.uniform_mean_tokens,
        "saved": summary.cost.saved,
        "failed": summary.cost.failed_requests,
    }


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a journal; cut off a torn last one."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    if len(whole) < len(raw):
        os.truncate(path, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


async def collect(args: argparse.Namespace, engine: Any, judges: Judges) -> None:
    """Grow what is missing, a sampler and seed at a time."""
    journal = args.out / "rows.jsonl"
    rows = read_rows(journal)
    done = {(r["sampler"], r["seed"], r["problem"]) for r in rows}
    named = samplers(args.width, args.segment, args.max_tokens)
    reference = preset(
        "flat",
        width=args.reference,
        max_tokens=args.max_tokens,
        stopping=Stopping(boxed=False, repetition=None),
    )
    jobs = [(REFERENCE, -1, reference)]
    jobs += [(name, seed, how) for seed in range(args.seeds) for name, how in named.items()]
    asked = [Problem.from_text(p.id, p.question, p.answer) for p in words.problems(args.problems)]
    place = {problem.id: i for i, problem in enumerate(asked)}
    with journal.open("a") as lines:
        for name, seed, how in jobs:

            def growths(
                name: str = name, seed: int = seed, how: TreePOConfig = how
            ) -> Iterator[TreePO]:
                for i, problem in enumerate(asked):
                    if (name, seed, i) not in done:
                        # The reference's seed is its own: it shares no sample with any tree.
                        info = RunInfo(seed=seed + 1, visit=name == REFERENCE, sampler=name)
                        yield TreePO(problem, engine.tokenizer, how, run=info,
                                     max_context=engine.capabilities.max_context,
                                     eos_ids=engine.eos_ids)  # fmt: skip

            new = 0
            async for growth in run(growths(), engine, judges, active=args.active):
                found = row(name, seed, place[growth.tree.problem.id], growth.tree)
                rows.append(found)
                lines.write(json.dumps(found) + "\n")
                lines.flush()
                new += 1
            if new:
                print(f"{name}, seed {seed}: {new} trees", flush=True)
                (args.out / "table.md").write_text(table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of everything that is there, in Markdown."""
    truth = {r["problem"]: r for r in rows if r["sampler"] == REFERENCE and r["value"] is not None}
    grouped: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for r in rows:
        if r["problem"] in truth and r["value"] is not None and r["sampler"] != REFERENCE:
            grouped[r["sampler"]][r["problem"]].append(r)
    lines = [
        "| sampler | trees | weighted error ± s.e. | in s.e. | uniform error [95 %] | variance at "
        "equal tokens | tokens a tree | saved | effective samples | length | uniform length |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    flat: float | None = None
    for name, problems in grouped.items():
        every = [r for found in problems.values() for r in found]
        error, se = by_problem(problems, truth, "value", "value")
        uniform, uniform_se = by_problem(problems, truth, "uniform", "value")
        tokens = float(np.mean([r["tokens"] for r in every]))
        cost = spread(problems) * tokens
        if name == "flat":
            flat = cost
        length, _ = by_problem(problems, truth, "length", "length", relative=True)
        long, _ = by_problem(problems, truth, "uniform_length", "length", relative=True)
        half = 1.96 * uniform_se
        lines.append(
            f"| {name} | {len(every)} | {error:+.4f} ± {se:.4f} | {ratio(error, se)} "
            f"| {uniform:+.4f} [{uniform - half:+.4f}, {uniform + half:+.4f}] "
            f"| {ratio(cost, flat)} | {tokens:.0f} | {np.mean([r['saved'] for r in every]):.1%} "
            f"| {np.mean([r['ess'] for r in every]):.1f} | {length:+.1%} | {long:+.1%} |"
        )
    left_out = sum(r["value"] is None for r in rows)
    samples = sum(r["leaves"] for r in truth.values())
    lines.append("")
    lines.append(
        f"{len(truth)} problems with a reference of {samples} samples in all; mean value "
        f"{np.mean([r['value'] for r in truth.values()]) if truth else math.nan:.3f}. "
        f"Trees without a scored path, left out: {left_out}."
    )
    return "\n".join(lines) + "\n"


def by_problem(
    problems: dict[int, list[dict[str, Any]]],
    truth: dict[int, dict[str, Any]],
    key: str,
    true_key: str,
    *,
    relative: bool = False,
) -> tuple[float, float]:
    """Return the mean error over problems and its standard error (the reference's included)."""
    errors = []
    for problem, found in problems.items():
        true = truth[problem][true_key]
        error = float(np.mean([r[key] for r in found])) - true
        errors.append(error / true if relative else error)
    se = float(np.std(errors, ddof=1)) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
    return float(np.mean(errors)), se


def spread(problems: dict[int, list[dict[str, Any]]]) -> float:
    """Return the variance of the weighted value between seeds, mean over problems."""
    several = [found for found in problems.values() if len(found) > 1]
    if not several:
        return math.nan
    return float(np.mean([np.var([r["value"] for r in found], ddof=1) for found in several]))


def ratio(part: float, whole: float | None) -> str:
    """Return a quotient as text, "–" where there is none."""
    if not whole or math.isnan(whole) or math.isnan(part):
        return "–"
    return f"{part / whole:.2f}"


def open_engine(name: str, threads: int | None) -> Any:
    """Load the words policy."""
    if name == "hf":
        from treerl.engines.hf import HFEngine

        return HFEngine.from_pretrained(words.model_path(), max_batch=64, threads=threads)
    from treerl.engines.vllm_engine import VLLMEngine

    return VLLMEngine.from_pretrained(words.model_path(), dtype="float32", max_num_seqs=64)


def main() -> None:
    """Grow, judge, tabulate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--reference", type=int, default=256, help="flat samples a problem")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--segment", type=int, default=16, help="tokens of a segment")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--active", type=int, default=16, help="trees that grow at once")
    parser.add_argument("--engine", choices=("hf", "vllm"), default="hf")
    parser.add_argument("--threads", type=int, help="torch's CPU threads (hf)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    # More problems or seeds go on with a run; what makes its trees must stay.
    fixed = {
        name: getattr(args, name)
        for name in ("reference", "width", "segment", "max_tokens", "engine")
    }
    settings = args.out / "settings.json"
    if settings.exists() and json.loads(settings.read_text()) != fixed:
        raise SystemExit(f"{args.out} holds a run with other settings: see {settings}")
    settings.write_text(json.dumps(fixed) + "\n")
    engine = open_engine(args.engine, args.threads)
    with AnswerVerifier() as answers:

        async def work() -> None:
            try:
                await collect(args, engine, Judges(reward=AnswerReward(answers)))
            finally:
                await engine.close()

        asyncio.run(work())
    text = table(read_rows(args.out / "rows.jsonl"))
    (args.out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
