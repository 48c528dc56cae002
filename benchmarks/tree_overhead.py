"""Book-keeping of a tree search in nodes a second, beside treequest, in one process and one run.

The generator costs next to nothing, so what is measured is the library's own work. Both sides make
4 children a simulation. treerl is driven through ``ready()`` and ``tell()`` of its real MCTS:
seeds, requests, completions, step cutting, folding, judge requests and the ledger are all in.

    python benchmarks/tree_overhead.py [--sizes 100,1000,10000,100000] [--repeat 3] [--cap 60]

Prints CPU seconds (``time.process_time``). treequest is optional: ``pip install treequest==0.3.3``.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from treerl.engines.base import Completion, Request, Usage
from treerl.engines.scripted import ByteTokenizer
from treerl.problem import Problem
from treerl.search.growth import Judgement
from treerl.search.mcts import MCTS, MCTSConfig
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps

Step = Callable[[], None]
Count = Callable[[], int]


class Lcg:
    """A 32-bit linear congruential generator: constant time, reproducible."""

    __slots__ = ("x",)

    def __init__(self, seed: int = 1) -> None:
        self.x = seed & 0xFFFFFFFF

    def __call__(self) -> int:
        self.x = (1664525 * self.x + 1013904223) & 0xFFFFFFFF
        return self.x


def make_treerl() -> tuple[Step, Count]:
    """A search of 4 children a simulation, plus the leaf of each simulation's rollout."""
    config = MCTSConfig(
        simulations=10**9,
        wave=1,
        children=4,
        expand_after=0,
        max_steps=10**6,
        sampling=Sampling(steps=PlainSteps("\n"), max_tokens=10**9, verify_steps=False),
    )
    search = MCTS(Problem.from_text("p", "?", "1"), ByteTokenizer(), config)
    random = Lcg(7)
    # Four bytes of a step: enough different texts that children are rarely folded.
    logprobs = (-1.0,) * 5

    def answer(request: Request) -> Completion:
        x = random()
        body = (97 + x % 23, 97 + (x >> 8) % 23, 97 + (x >> 16) % 23, 97 + (x >> 24) % 23)
        usage = Usage(len(request.prompt_ids), 0, 5)
        if request.stop:
            return Completion((*body, 10), logprobs, "stop", "\n", usage=usage)
        return Completion((*body, 257), logprobs, "eos", usage=usage)

    root = search.tree.root

    def step() -> None:
        visits = root.visits
        while root.visits == visits:
            for request in search.ready():
                if isinstance(request, Request):
                    search.tell(request.request_id, answer(request))
                else:
                    search.tell(request.request_id, Judgement(reward=float(random() >> 31)))

    return step, lambda: len(search.tree)


def make_treequest() -> tuple[Step, Count]:
    """treequest's StandardMCTS, its cheapest form: four actions a step, changed in place."""
    import logging

    import treequest as tq

    logging.getLogger("treequest").setLevel(logging.ERROR)
    random = Lcg(7)

    def generate(parent: object) -> tuple[str, float]:
        return "s", random() / 2**32

    functions = dict.fromkeys("abcd", generate)
    search = tq.StandardMCTS(samples_per_action=1)
    state = [search.init_tree()]

    def step() -> None:
        state[0] = search.step(state[0], functions, inplace=True)

    return step, lambda: len(state[0].tree) - 1


@dataclass
class Point:
    """CPU seconds at a number of nodes."""

    nodes: int
    seconds: float


def grow(make: Callable[[], tuple[Step, Count]], sizes: list[int], cap_s: float) -> list[Point]:
    """Grow a tree; note the CPU time at each size, or stop after ``cap_s`` seconds."""
    step, count = make()
    gc.collect()
    points = []
    start = time.process_time()
    for size in sizes:
        while count() < size:
            step()
            if time.process_time() - start > cap_s:
                points.append(Point(count(), time.process_time() - start))
                return points
        points.append(Point(count(), time.process_time() - start))
    return points


def main() -> None:
    """Measure and print one line a size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000,100000")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cap", type=float, default=60.0, help="CPU seconds a run")
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    makers = {"treerl/MCTS": make_treerl}
    try:
        makers[f"treequest {version('treequest')}/StandardMCTS"] = make_treequest
    except PackageNotFoundError:
        print("# treequest is not installed: pip install treequest==0.3.3")
    print(f"# python {platform.python_version()}, CPU seconds, median of {args.repeat} runs")
    for name, make in makers.items():
        runs = [grow(make, sizes, args.cap) for _ in range(args.repeat)]
        for i in range(max(map(len, runs))):
            reached = [run[i] for run in runs if len(run) > i]
            nodes = reached[0].nodes
            rates = sorted(point.nodes / point.seconds for point in reached)
            us = statistics.median(
                1e6
                * (run[i].seconds - (run[i - 1].seconds if i else 0.0))
                / (run[i].nodes - (run[i - 1].nodes if i else 0))
                for run in runs
                if len(run) > i
            )
            capped = " (stopped: time cap)" if i >= len(sizes) or nodes < sizes[i] else ""
            print(
                f"{name}: {nodes} nodes, {statistics.median(rates):,.0f} nodes/s "
                f"({rates[0]:,.0f}..{rates[-1]:,.0f}), {us:.2f} us a node since the last size"
                f"{capped}",
                flush=True,
            )


if __name__ == "__main__":
    main()
