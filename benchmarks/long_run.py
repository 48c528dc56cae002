"""A long labelling run on a real engine that is killed on its way, beside one that is not.

    python benchmarks/long_run.py --out runs/long [--problems 2000] [--kills 2] [--engine vllm]

Words lab, its frozen policy in float32, tools and rewards included. The run is killed with kill -9
whenever another equal share of its problems is safe, and started again with the same command until
it is whole; then the same problems are labelled in one go. The two folders must agree: labels,
conflicts, failures and summary to the byte, trees in everything but the last bits of log-probs,
which a real engine rounds by the batch. Prints problems an hour and label yield. Interrupted, it
goes on with the same command.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from endurance import digests, journal_lines

from treerl.lab import words
from treerl.prm import AnswerReward, Labeler
from treerl.problem import Problem
from treerl.search import MCTSConfig, Sampling
from treerl.steps import PlainSteps
from treerl.store import RunReader
from treerl.verifiers import AnswerVerifier, StepVerifier


def label(out: Path, args: argparse.Namespace) -> None:
    """Label into a folder, or go on there."""
    problems = [
        Problem.from_text(p.id, p.question, p.answer, metadata=p.to_record()["metadata"])
        for p in words.problems(args.problems)
    ]
    search = MCTSConfig(
        simulations=args.simulations, sampling=Sampling(steps=PlainSteps("\n"), max_tokens=200)
    )
    with AnswerVerifier() as answers, StepVerifier() as steps:
        labeler = Labeler(reward=AnswerReward(answers), verifier=steps, search=search, active=64)
        labeler.run(problems, open_engine(args.engine), out)


def open_engine(name: str) -> Any:
    """Load the words policy."""
    if name == "hf":
        from treerl.engines.hf import HFEngine

        return HFEngine.from_pretrained(words.model_path(), max_batch=64)
    from treerl.engines.vllm_engine import VLLMEngine

    return VLLMEngine.from_pretrained(words.model_path(), dtype="float32", max_num_seqs=64)


def live(out: Path, args: argparse.Namespace, until: int | None) -> float:
    """Give the run a life that kill -9 ends once ``until`` problems are safe; return seconds."""
    began = time.monotonic()
    command = [sys.executable, __file__, "--out", str(args.out), "--child", str(out)]
    command += ["--problems", str(args.problems), "--simulations", str(args.simulations)]
    command += ["--engine", args.engine]
    with (args.out / "children.log").open("ab") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
        while child.poll() is None:
            if until is not None and journal_lines(out) >= until:
                child.send_signal(signal.SIGKILL)
                child.wait()
                return time.monotonic() - began
            time.sleep(0.2)
    if child.returncode:
        raise SystemExit(f"a child ended with {child.returncode}: see {args.out}/children.log")
    return time.monotonic() - began


def note(out: Path, **row: Any) -> None:
    """Append to the table of lives."""
    print(json.dumps(row), flush=True)
    with (out / "lives.jsonl").open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def same_trees(one: Path, other: Path) -> tuple[bool, float]:
    """Compare two runs' trees; return whether they agree, and the largest log-prob difference."""
    largest = 0.0
    for a, b in zip(RunReader(one).trees(), RunReader(other).trees(), strict=True):
        if len(a) != len(b) or a.problem.id != b.problem.id:
            return False, largest
        for x, y in zip(a.nodes, b.nodes, strict=True):
            if (x.token_ids, x.text, x.reward, x.correct, x.total, x.visits, x.finish_reason) != (
                y.token_ids, y.text, y.reward, y.correct, y.total, y.visits, y.finish_reason
            ):  # fmt: skip
                return False, largest
            if len(x.logprobs):
                largest = max(largest, float(np.abs(np.subtract(x.logprobs, y.logprobs)).max()))
    return True, largest


def main() -> None:
    """Kill, go on, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--simulations", type=int, default=16)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--engine", choices=("vllm", "hf"), default="vllm")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        label(args.child, args)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    cut, straight = args.out / "cut", args.out / "straight"
    for k in range(1, args.kills + 1):
        until = k * args.problems // (args.kills + 1)
        if not (cut / "summary.json").exists() and journal_lines(cut) < until:
            before = journal_lines(cut)
            seconds = live(cut, args, until)
            note(args.out, run="cut", safe=[before, journal_lines(cut)], seconds=round(seconds))
    for run in (cut, straight):
        if not (run / "summary.json").exists():
            before = journal_lines(run)
            seconds = live(run, args, None)
            note(args.out, run=run.name, safe=[before, args.problems], seconds=round(seconds))
    report(args, cut, straight)


def report(args: argparse.Namespace, cut: Path, straight: Path) -> None:
    """Print what the issue asks for."""
    ours, theirs = digests(cut), digests(straight)
    differ = sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )
    trees, largest = same_trees(cut, straight)
    ids = [tree.problem.id for tree in RunReader(cut).trees()]
    summary = json.loads((straight / "summary.json").read_text())
    lives = [json.loads(line) for line in (args.out / "lives.jsonl").read_text().splitlines()]
    seconds = {
        name: sum(x["seconds"] for x in lives if x["run"] == name) for name in ("cut", "straight")
    }
    labels = summary["labels"]
    made = labels["right"] + labels["wrong"]
    text = "\n".join([
        f"problems {len(ids):,}, each once: {len(ids) == len(set(ids)) == args.problems}",
        f"trees agree: {trees} (log-probs within {largest:.1e})",
        f"files with other bytes than the straight run's: {differ or 'none'}",
        f"straight run, start of the engine included: {seconds['straight']:,} s, "
        f"{args.problems / seconds['straight'] * 3600:,.0f} problems/hour, "
        f"{made / seconds['straight'] * 3600:,.0f} labels/hour, "
        f"{summary['ledger']['generated'] / seconds['straight']:,.0f} generated tokens/s",
        f"with {args.kills} kills: {seconds['cut']:,} s in {args.kills + 1} lives",
        f"labels {labels}: {made / sum(labels.values()):.1%} of the steps, "
        f"{summary['ledger']['generated'] / made:.1f} generated tokens a label",
    ])  # fmt: skip
    print(text)
    (args.out / "report.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
