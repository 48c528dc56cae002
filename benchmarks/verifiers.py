"""Throughput of the verifiers: rule layer, sandbox, worker pool.

    TREERL_DATA=… python benchmarks/verifiers.py
    python benchmarks/verifiers.py --fuzz 600

Wall and CPU figures are printed side by side, because a busy machine stretches the former only.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
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
from treerl.verifiers.parser.answer import read_answer

ROOT = Path(__file__).resolve().parents[1]

BARE = """
import os, resource, sys, time
n = int(sys.argv[1])
began = time.perf_counter()
for _ in range(n):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
wall = time.perf_counter() - began
both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(wall / n, sum(usage.ru_utime + usage.ru_stime for usage in both) / n)
"""


def _spent(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


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


def sandbox(rounds: int = 8, calls: int = 50) -> None:
    """Trivial snippets with full isolation beside bare fork+wait, in turns."""
    walls: dict[str, list[float]] = {"bare": [], "full": [], "sympy": []}
    cpu = dict.fromkeys(walls, 0.0)
    with PythonExecutor(size=1) as executor, PythonExecutor(size=1, preload=("sympy",)) as heavy:
        level = executor.run("1").isolation
        heavy.run("1")
        for _ in range(rounds):
            out = subprocess.run(
                [sys.executable, "-I", "-S", "-c", BARE, str(calls)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            wall, spent = map(float, out.stdout.split())
            walls["bare"].append(wall)
            cpu["bare"] += spent / rounds
            for name, runner in (("full", executor), ("sympy", heavy)):
                pid = runner._idle[0].process.pid
                spent = _spent(pid) + time.process_time()
                began = time.perf_counter()
                for i in range(calls):
                    runner.run(f"result = {i}")
                walls[name].append((time.perf_counter() - began) / calls)
                cpu[name] += (_spent(pid) + time.process_time() - spent) / calls / rounds
    best = {name: min(times) for name, times in walls.items()}
    print(
        f"sandbox, wall, best of {rounds} rounds of {calls}: "
        f"bare fork+wait {1000 * best['bare']:.2f} ms; "
        f"a snippet with {level} {1000 * best['full']:.2f} ms = {1 / best['full']:.0f}/s, "
        f"{best['bare'] / best['full']:.2f} of bare; sympy preloaded {1000 * best['sympy']:.2f} ms"
    )
    print(
        f"sandbox, CPU of all processes: bare {1000 * cpu['bare']:.2f} ms; a snippet "
        f"{1000 * cpu['full']:.2f} ms, {cpu['bare'] / cpu['full']:.2f} of bare; "
        f"sympy preloaded {1000 * cpu['sympy']:.2f} ms"
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


_PIECES = r"""0 1 2 12 3.5 1,234 .5 % $ \frac{1}{2} \sqrt{2} \frac { } ( ) [ ] \{ \} | + - * / ^ _ =
< > \le ! , ; : . ' " x y n pi \pi e i sin \cos log \int_0^1 dx \sum_{k=1}^{5} k \lim_{x\to0} & \\
\begin{pmatrix} \end{pmatrix} of and or is not if hours minutes cm dozen million per each about
remainder 9^9^9 1e99999 << >> ½ ² √ ≈ × − \text{cm} \boxed{ #### 2/3 7:30 \pmod{7} prime divisible
by square root twice percent more than `` ``` >>> \quad $$ \[ \] \| 1{,}234 0.\overline{3} f'(x)"""
PIECES = [*_PIECES.split(), "\n", " ", "  "]


def fuzz(seconds: float) -> None:
    """Random texts from pieces of mathematics and mutations of the cases: no crash, no hang."""
    draw = random.Random(0)
    cases = [
        json.loads(line)
        for name in ("answers_open", "steps_open")
        for line in (ROOT / "tests" / "data" / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]
    corpus = [case.get("step") or case["prediction"] for case in cases]
    count, slowest, worst = 0, 0.0, ""
    until = time.monotonic() + seconds
    with (
        StepVerifier(tools=("fraction",)) as steps,
        AnswerVerifier() as answers_,
    ):
        while time.monotonic() < until:
            if draw.random() < 0.5:
                text = draw.choice(("", " ")).join(draw.choices(PIECES, k=draw.randint(1, 40)))
            else:
                text = draw.choice(corpus)
                for _ in range(draw.randint(1, 6)):
                    at = draw.randint(0, len(text))
                    piece = draw.choice([*PIECES, chr(draw.randint(1, 0x2FFF)), ""])
                    text = text[:at] + piece + text[at + draw.randint(0, 4) :]
            cpu = time.process_time()
            parse_expression(text)
            read_answer(text)
            steps.verify(text, problem=text, previous_steps=[text])
            answers_.verify(f"#### {text}", "42")
            spent = time.process_time() - cpu
            count += 1
            if spent > slowest:
                slowest, worst = spent, text
    print(
        f"fuzz: {count} texts in {seconds:.0f} s, no exception; "
        f"the slowest took {slowest:.3f} CPU s: {worst[:300]!r}"
    )


def main() -> None:
    """Print all figures."""
    if sys.argv[1:2] == ["--fuzz"]:
        fuzz(float(sys.argv[2]))
        return
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
