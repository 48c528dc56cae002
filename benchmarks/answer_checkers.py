"""Answer checkers on the same cases in the same run: treerl beside math-verify.

    TREERL_DATA=… python benchmarks/answer_checkers.py

math-verify is optional (pip install math-verify==0.9.0). Each of its answers is computed in a child
process with a limit of its own, because it may hang.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treerl.verifiers import AnswerVerifier

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "data" / "answers_open.jsonl"
LIMIT_S = 20.0
Check = Callable[[str, str], bool | None]


def share(part: int, whole: int) -> str:
    """A count with its share."""
    return f"{part}/{whole} = {100 * part / max(whole, 1):.1f} %"


def _math_verify(prediction: str, gold: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(f"${gold}$"), parse(prediction)))


def _child(pipe: Any) -> None:
    while True:
        prediction, gold = pipe.recv()
        try:
            pipe.send(_math_verify(prediction, gold))
        except Exception as problem:  # the other checker's failure is its answer
            pipe.send(f"{type(problem).__name__}")


class Guarded:
    """math-verify in a process that is replaced when it hangs."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.hangs = 0
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_child, args=(theirs,), daemon=True)
        self.process.start()

    def __call__(self, prediction: str, gold: str) -> bool | None:
        self.pipe.send((prediction, gold))
        if not self.pipe.poll(LIMIT_S):
            self.hangs += 1
            self.close()
            self._start()
            return None
        answer = self.pipe.recv()
        return answer if isinstance(answer, bool) else None

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def on_cases(name: str, check: Check) -> dict[str, Counter[str]]:
    """Run a checker over the cases; returns counts by kind."""
    kinds: dict[str, Counter[str]] = {}
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        right = (check(case["prediction"], case["gold"]) is True) == case["expected"]
        counter = kinds.setdefault(case["kind"], Counter())
        group = "policy" if case["policy"] else "plain"
        counter[f"{group} right"] += right
        counter[f"{group} all"] += 1
        if not case["policy"]:
            counter["negatives"] += not case["expected"]
            counter["positives"] += case["expected"]
            counter["false positive"] += not right and not case["expected"]
            counter["false negative"] += not right and case["expected"]
    total: Counter[str] = sum(kinds.values(), Counter())
    print(
        f"{name}: non-policy {share(total['plain right'], total['plain all'])}; "
        f"false positives {share(total['false positive'], total['negatives'])}; "
        f"false negatives {share(total['false negative'], total['positives'])}; "
        f"policy {share(total['policy right'], total['policy all'])}"
    )
    return kinds


def on_math500(name: str, check: Check, data: Path) -> None:
    """Gold against itself and against the next problem's gold."""
    path = data / "MATH" / "test500.jsonl"
    golds = [json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines()]
    began = time.perf_counter()
    same = [gold for gold in golds if check(rf"\boxed{{{gold}}}", gold) is not True]
    spent = time.perf_counter() - began
    print(
        f"{name}: MATH-500 gold against itself {share(len(golds) - len(same), len(golds))}, "
        f"{1000 * spent / len(golds):.2f} ms each; not equal: {same}"
    )
    crossed = [
        (gold, other)
        for gold, other in zip(golds, golds[1:] + golds[:1], strict=True)
        if check(rf"\boxed{{{other}}}", gold) is True
    ]
    unexplained = [(a, b) for a, b in crossed if a != b]
    print(
        f"{name}: MATH-500 gold against the next gold: {len(crossed)} equal, "
        f"{len(crossed) - len(unexplained)} of them the same text; others: {unexplained}"
    )


def on_gsm8k(name: str, check: Check, data: Path) -> None:
    """Test golds behind '####' against themselves and the next."""
    path = data / "GSM8K" / "test.jsonl"
    answers = [json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines()]
    golds = [answer.rsplit("####", 1)[1].strip() for answer in answers]
    same = sum(check(a, g) is True for a, g in zip(answers, golds, strict=True))
    crossed = sum(
        check(a, g) is True and g != h
        for a, g, h in zip(answers, golds[1:] + golds[:1], golds, strict=True)
    )
    print(
        f"{name}: GSM8K test solutions against their gold {share(same, len(golds))}; "
        f"against the next, equal though different: {crossed}"
    )


def main() -> None:
    """Print the tables."""
    with AnswerVerifier() as verifier:

        def treerl(prediction: str, gold: str) -> bool | None:
            return verifier.verify(prediction, gold).equal

        tables = {"treerl": on_cases("treerl", treerl)}
        checkers: dict[str, Check] = {"treerl": treerl}
        guarded: Guarded | None = None
        try:
            import math_verify  # noqa: F401
        except ImportError:
            print("math-verify: not installed (pip install math-verify==0.9.0)")
        else:
            guarded = Guarded()
            checkers["math-verify"] = guarded
            tables["math-verify"] = on_cases("math-verify", guarded)
            print(f"math-verify: {guarded.hangs} cases ran into the {LIMIT_S:.0f} s limit")
        print(f"{'kind':24}" + "".join(f"{name:>16}" for name in tables))
        for kind in next(iter(tables.values())):
            row = [tables[name][kind] for name in tables]
            print(
                f"{kind:24}" + "".join(f"{c['plain right']:>10}/{c['plain all']:<5}" for c in row)
            )
        folder = os.environ.get("TREERL_DATA")
        if folder:
            for name, check in checkers.items():
                on_math500(name, check, Path(folder))
            on_gsm8k("treerl", treerl, Path(folder))
        if guarded is not None:
            guarded.close()
        print(f"treerl: {verifier.stats.to_dict()}")


if __name__ == "__main__":
    main()
