"""A night's run, hurried: kills, faults, thousands of problems, one slow one, all scripted.

    python benchmarks/endurance.py kills  [--problems 200] [--kills 20]
    python benchmarks/endurance.py faults [--problems 200] [--share 0.1]
    python benchmarks/endurance.py scale  [--problems 5000]
    python benchmarks/endurance.py slow   [--problems 200]

Sums of three numbers, written by a policy that slips in one line of eight; steps are checked by the
real verifier, answers by the real reward, results go through the real store. Each part prints what
was asked of it and what it found, and exits with 1 where the two differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from treerl.engines.base import Request
from treerl.engines.scripted import ScriptedEngine, jitter
from treerl.prm.pipeline import Labeler
from treerl.prm.rewards import AnswerReward
from treerl.problem import Problem
from treerl.runreader import RunReader
from treerl.search.mcts import MCTSConfig
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.verifiers import AnswerVerifier, StepVerifier

NUMBERS = re.compile(r"Add (\d+), (\d+) and (\d+)\.")


def make_problems(n: int) -> list[Problem]:
    """Return n sums of three numbers."""
    out = []
    for i in range(n):
        rng = random.Random(i)
        a, b, c = (rng.randint(10, 99) for _ in range(3))
        out.append(Problem.from_text(f"p{i:05}", f"Add {a}, {b} and {c}.", str(a + b + c)))
    return out


class Adder:
    """Adds from left to right and slips now and then; a function of the request alone."""

    def __init__(self) -> None:
        self.decode = ScriptedEngine(lambda request: "").tokenizer.decode

    def __call__(self, request: Request) -> str:
        text = self.decode(request.prompt_ids)
        found = NUMBERS.search(text)
        assert found is not None
        a, b, c = map(int, found.groups())
        lines = [line for line in text[found.end() :].split("\n") if " = " in line]
        rng = random.Random(request.seed)
        said = ""
        total = int(lines[-1].rsplit("=", 1)[1]) if lines else a
        for x in (b, c)[len(lines) :]:
            slip = rng.choice((0,) * 7 + (10,))
            said += f"{total} + {x} = {total + x + slip}\n"
            total += x + slip
        return f"{said}Answer: {total}\n"


def make_labeler(stack: list[Any], active: int = 64) -> Labeler:
    """Return the labeler of all parts; what it opens stands in ``stack``."""
    answers, steps = AnswerVerifier(), StepVerifier()
    stack += [answers, steps]
    search = MCTSConfig(simulations=8, sampling=Sampling(steps=PlainSteps("\n"), max_tokens=120))
    return Labeler(reward=AnswerReward(answers), verifier=steps, search=search, active=active)


def label(out: Path, n: int, *, active: int = 64, **engine: Any) -> ScriptedEngine:
    """Label n problems into a folder and return the engine with its log."""
    opened: list[Any] = []
    policy = ScriptedEngine(Adder(), **engine)
    try:
        make_labeler(opened, active).run(make_problems(n), policy, out)
    finally:
        for thing in opened:
            thing.close()
    return policy


def digests(run: Path) -> dict[str, str]:
    """Return the hash of every file of a finished run but the one that may differ."""
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != "volatile.jsonl"
    }


def journal_lines(run: Path) -> int:
    """Count the problems whose results are safe."""
    try:
        return (run / "journal.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def kills(args: argparse.Namespace) -> bool:
    """kill -9 at random moments; the end must equal a straight run to the byte."""
    with tempfile.TemporaryDirectory() as folder:
        straight, cut = Path(folder, "straight"), Path(folder, "cut")
        began = time.monotonic()
        requests = len(label(straight, args.problems, active=args.active).log)
        seconds = time.monotonic() - began
        rng = random.Random(args.seed)
        safe: list[int] = []
        # Each life gets its share of the whole time, so that the kills fall all over the run.
        life = seconds / args.kills
        command = [sys.executable, __file__, "child", "--out", str(cut), "--problems"]
        command += [str(args.problems), "--active", str(args.active)]
        for _ in range(args.kills):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0.2, 2.0) * life)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            safe.append(journal_lines(cut))
        early = (cut / "summary.json").exists()
        again = label(cut, args.problems, active=args.active)
        same = digests(cut) == digests(straight)
        ids = [tree.problem.id for tree in RunReader(cut).trees()]
        doubled = len(ids) - len(set(ids))
        print(f"problems safe after each kill: {safe}{' (finished early)' if early else ''}")
        print(f"requests of a straight run {requests:,}, of the last life {len(again.log):,}")
        print(f"problems {len(ids)} of {args.problems}, doubled {doubled}")
        print(f"every file but volatile.jsonl has the bytes of the straight run: {same}")
        return same and len(ids) == args.problems and not doubled


def child(args: argparse.Namespace) -> bool:
    """A life that somebody else ends."""
    print("go", flush=True)
    label(Path(args.out), args.problems, active=args.active)
    return True


def faults(args: argparse.Namespace) -> bool:
    """A share of requests fails for good; the run completes and each failure is a record."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        engine = label(run, args.problems, faults=args.share, fault_retryable=False)
        outcomes = Counter(entry.outcome for entry in engine.log)
        reader = RunReader(run)
        records = [json.loads(line) for line in (run / "failures.jsonl").read_text().splitlines()]
        named = sum("injected" in record["reason"] for record in records)
        failed_nodes = {(r["problem_id"], r["node"]) for r in records if "node" in r}
        labelled = {(x["problem"]["id"], x["evidence"]["tree"]["node"]) for x in reader.labels()}
        summary = json.loads((run / "summary.json").read_text())
        print(f"requests {len(engine.log):,}, failed {outcomes['error']:,}")
        print(f"records in failures.jsonl {len(records):,}, with the fault as reason {named:,}")
        print(f"problems {summary['problems']} of {args.problems}; labels {summary['labels']}")
        print(f"labels made of a failed node: {len(failed_nodes & labelled)}")
        return (
            outcomes["error"] == named == len(records)
            and summary["problems"] == args.problems
            and not failed_nodes & labelled
        )


def scale(args: argparse.Namespace) -> bool:
    """Thousands of problems in flat memory."""
    readings: list[tuple[int, float]] = []
    done = 0

    def watch(_: Any) -> None:
        nonlocal done
        done += 1
        if done % max(1, args.problems // 50) == 0:
            readings.append((done, resident_mb()))

    opened: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        try:
            labeler = make_labeler(opened)
            engine = ScriptedEngine(Adder())
            problems = make_problems(args.problems)
            summary = labeler.run(problems, engine, Path(folder, "run"), on_result=watch)
        finally:
            for thing in opened:
                thing.close()
        seconds = time.monotonic() - began
        finished = resident_mb()
        size = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()) / 2**20
    early = next(mb for n, mb in readings if n >= args.problems / 5)
    late = max(mb for n, mb in readings if n >= args.problems / 5)
    print("problems done: resident MB")
    for n, mb in readings[:: max(1, len(readings) // 10)]:
        print(f"{n:8,}: {mb:7.1f}")
    print(f"after sealing: {finished:.1f} MB; folder {size:.1f} MB; {seconds:.0f} s; "
          f"{summary['nodes']:,} nodes")  # fmt: skip
    # The engine's own log of every request is part of the process: the script takes it off.
    log = len(engine.log)
    print(f"growth over the last 80 %: {late - early:+.1f} MB, of which the scripted engine's log "
          f"of {log:,} requests is about {log * 0.8 * LOG_ENTRY_BYTES / 2**20:.1f} MB")  # fmt: skip
    return max(late, finished) < 1024


LOG_ENTRY_BYTES = 240
"""A LogEntry with its strings and floats, by sys.getsizeof of its parts."""


def resident_mb() -> float:
    """Return this process's resident memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this part needs Linux's /proc")


def slow(args: argparse.Namespace) -> bool:
    """One problem whose requests take a thousand times as long, in virtual time."""
    ends = {}
    for name, factor in (("even", 1.0), ("one slow", 1000.0)):
        usual = jitter(0.5, 1.5)

        def latency(request: Request, factor: float = factor, usual: Any = usual) -> float:
            return usual(request) * (factor if request.tree_id.startswith("p00000/") else 1.0)

        with tempfile.TemporaryDirectory() as folder:
            engine = label(Path(folder, "run"), args.problems, active=64, latency=latency)
        last: dict[str, float] = {}
        for entry in engine.log:
            assert entry.ended is not None
            problem = entry.request_id.split("/")[0]
            last[problem] = max(last.get(problem, 0.0), entry.ended)
        ends[name] = last
        others = max(t for problem, t in last.items() if problem != "p00000")
        print(f"{name:>8}: the slow one ends at {last['p00000']:,.1f}, all others by {others:,.1f}"
              " virtual seconds")  # fmt: skip
    later = sum(ends["one slow"][p] > ends["even"][p] + 1e-9 for p in ends["even"]) - 1
    a, b = (max(t for p, t in e.items() if p != "p00000") for e in ends.values())
    print(f"problems besides it that end later: {later} (one of 64 places is taken); the others' "
          f"end moves by a factor of {b / a:.3f}")  # fmt: skip
    return b / a < 1.1


PARTS = {"kills": kills, "faults": faults, "scale": scale, "slow": slow, "child": child}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--problems", type=int)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--active", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.problems is None:
        args.problems = 5000 if args.part == "scale" else 200
    sys.exit(0 if PARTS[args.part](args) else 1)


if __name__ == "__main__":
    main()
