"""Throughput of the verifiers: rule layer, sandbox, worker pool.

    TREERL_DATA=… python benchmarks/verifiers.py

Wall and CPU figures are printed side by side, because a busy machine stretches the former only.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

from corrupt import gold_steps

from treerl.verifiers import (
    AnswerVerifier,
    PythonExecutor,
    StepVerifier,
    WorkerPool,
    isolation_report,
)
from treerl.verifiers.parser import parse_expression, to_wire

BARE = """
import os, sys, time
n = int(sys.argv[1])
began = time.perf_counter()
for _ in range(n):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print((time.perf_counter() - began) / n)
"""


def _share(path: str, part: int, parts: int) -> tuple[int, float, float]:
    """Judge every ``parts``-th gold step; returns (steps, wall, CPU seconds)."""
    steps = [step for i, (_, _, _, step) in enumerate(gold_steps(Path(path))) if i % parts == part]
    with StepVerifier(tools=("fraction",)) as verifier:
        wall, cpu = time.perf_counter(), time.process_time()
        for step in steps:
            verifier.verify(step)
        return len(steps), time.perf_counter() - wall, time.process_time() - cpu


def rule_layer(path: Path) -> None:
    """Gold steps a second on two processes, exact arithmetic only."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        results = pool.starmap(_share, [(str(path), 0, 2), (str(path), 1, 2)])
    steps = sum(n for n, _, _ in results)
    wall = max(w for _, w, _ in results)
    cpu = sum(c for _, _, c in results)
    print(
        f"rule layer: {steps} GSM8K gold steps, {steps / wall:.0f} steps/s on 2 processes (wall), "
        f"{2 * steps / cpu:.0f} steps/s per 2 CPU cores; {1000 * cpu / steps:.3f} ms CPU a step"
    )


def answers(path: Path) -> None:
    """Answer comparisons a second on one thread."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    golds = [row["answer"].rsplit("####", 1)[1].strip() for row in rows]
    with AnswerVerifier() as verifier:
        cpu = time.process_time()
        for row, gold in zip(rows, golds, strict=True):
            verifier.verify(row["answer"], gold)
        cpu = time.process_time() - cpu
    print(f"answers: {len(rows)} GSM8K test answers, {len(rows) / cpu:.0f} a CPU second")


def sandbox(rounds: int = 5, calls: int = 60) -> None:
    """Trivial snippets with full isolation beside bare fork+wait, in turns."""
    bare: list[float] = []
    ours: list[float] = []
    with PythonExecutor(size=1) as executor, PythonExecutor(size=1, preload=("sympy",)) as heavy:
        executor.run("1")
        heavy.run("1")
        loaded: list[float] = []
        for _ in range(rounds):
            out = subprocess.run(
                [sys.executable, "-I", "-S", "-c", BARE, str(calls)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            bare.append(float(out.stdout))
            for runner, times in ((executor, ours), (heavy, loaded)):
                began = time.perf_counter()
                for i in range(calls):
                    runner.run(f"result = {i}")
                times.append((time.perf_counter() - began) / calls)
        level = executor.run("1").isolation
    b, o, h = (sorted(times)[len(times) // 2] for times in (bare, ours, loaded))
    print(
        f"sandbox: bare fork+wait {1000 * b:.2f} ms; a snippet with {level} {1000 * o:.2f} ms = "
        f"{1 / o:.0f}/s, {b / o:.2f} of bare (medians of {rounds} rounds of {calls}); "
        f"with sympy preloaded {1000 * h:.2f} ms"
    )
    print(f"sandbox: {isolation_report().to_json()}")


def pool(calls: int = 100) -> None:
    """Calls through the worker pool: transport, sympy, z3, and the cost of a kill."""
    left, right = parse_expression(r"\int_0^1 x^2 dx"), parse_expression("1/3")
    x = ["name", "x"]
    premise = [
        "rel",
        "=",
        ["add", None, ["mul", None, ["num", "3/1"], x], ["num", "7/1"]],
        ["num", "22/1"],
    ]
    claim = ["rel", "=", x, ["num", "5/1"]]
    assert left is not None
    assert right is not None
    tasks = {
        "echo": ("echo", {}),
        "sympy integral": ("equal", {"left": to_wire(left), "right": to_wire(right)}),
        "z3 linear entailment": (
            "entail", {"problem": [premise], "context": [], "claim": claim, "integers": []},
        ),
    }  # fmt: skip
    with WorkerPool(size=1, wall_s=30) as workers:
        began = time.perf_counter()
        workers.start()
        print(f"pool: libraries loaded in {time.perf_counter() - began:.2f} s, once a pool")
        for name, (task, payload) in tasks.items():
            assert workers.call(task, payload).status == "ok"
            began = time.perf_counter()
            for _ in range(calls):
                workers.call(task, payload)
            print(f"pool: {name} {1000 * (time.perf_counter() - began) / calls:.2f} ms a call")
        began = time.perf_counter()
        for _ in range(10):
            workers.call("spin", {"seconds": 9}, wall_s=0.05)
        spent = (time.perf_counter() - began) / 10
        print(f"pool: a call killed after 50 ms takes {1000 * spent:.0f} ms, replacement included")


def main() -> None:
    """Print all figures."""
    print(
        f"load average {os.getloadavg()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}"
    )
    folder = os.environ.get("TREERL_DATA")
    if folder:
        rule_layer(Path(folder) / "GSM8K" / "train.jsonl")
        answers(Path(folder) / "GSM8K" / "test.jsonl")
    else:
        print("TREERL_DATA is not set: rule layer and answers skipped")
    sandbox()
    pool()
    print(f"load average {os.getloadavg()}")


if __name__ == "__main__":
    main()
