"""Corrupted copies of GSM8K gold steps: one visible number of a true equation is changed.

    python benchmarks/corrupt.py --data "$TREERL_DATA" --out corrupted.jsonl

Each annotated step (``48/2 = <<48/2=24>>24``) gives at most one copy. The annotation is removed,
one of its equations is chosen, and either its visible result or one of its visible operands gets
another value; a copy whose equation stays true (within half a percent) is drawn again.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

from treerl.verifiers.parser import parse_expression
from treerl.verifiers.parser.evaluate import NoValue, evaluate

ANNOTATION = re.compile(r"<<([^<>=]+)=([^<>]+)>>")
NUMBER = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+")
# up to four words of unit, then an operator right before the next operand
JOINED = re.compile(r"[)%\s]*(?:[A-Za-z]+[\s/)]*){0,4}(?:[-+*/x×÷]|times)[\s$(]*|[%\s]*of[\s$(]*")


@dataclass(frozen=True)
class Corrupted:
    """A corrupted step: which row and line it comes from, the text before and after."""

    row: int
    line: int
    step: str
    original: str
    kind: str
    old: str
    new: str


def gold_steps(path: Path) -> Iterator[tuple[int, int, str, str]]:
    """Yield (row, line, question, step) of a GSM8K file; the ``####`` line is no step."""
    with path.open(encoding="utf-8") as lines:
        for row, line in enumerate(lines):
            item = json.loads(line)
            for number, step in enumerate(item["answer"].split("\n")):
                if step.strip() and not step.startswith("####"):
                    yield row, number, item["question"], step


def _changed(text: str, rng: random.Random) -> str:
    """Another number of about the same look."""
    digits = [i for i, char in enumerate(text) if char.isdigit()]
    value = Fraction(text.replace(",", ""))
    for _ in range(20):
        if rng.random() < 0.5 and value.denominator == 1 and "," not in text and "." not in text:
            new = str(int(value) + rng.choice((-10, -2, -1, 1, 2, 10)))
            if new.startswith("-"):
                continue
        else:
            at = rng.choice(digits)
            new = text[:at] + rng.choice("0123456789") + text[at + 1 :]
        if Fraction(new.replace(",", "")) != value and not (
            len(new) > 1 and new[0] == "0" != text[0]
        ):
            return new
    return text


def _value(text: str) -> Fraction | None:
    node = parse_expression(text, math=False)
    try:
        return evaluate(node) if node is not None else None
    except NoValue:
        return None


def corrupt(step: str, rng: random.Random) -> tuple[str, str, str, str] | None:
    """Return (corrupted text, kind, old, new), None where the step offers nothing to change."""
    marks = list(ANNOTATION.finditer(step))
    rng.shuffle(marks)
    for mark in marks:
        if not re.search(r"\d\s*[-+*/]", mark.group(1)):
            continue  # no operation: the visible text states no equation
        before_from = max(
            (m.end() for m in ANNOTATION.finditer(step) if m.end() <= mark.start()), default=0
        )
        result = NUMBER.match(step, mark.end())
        wanted = {Fraction(n.replace(",", "")) for n in NUMBER.findall(mark.group(1))}
        visible = step.rfind("=", before_from, mark.start())
        operands = [
            m
            for m in NUMBER.finditer(step, before_from, visible if visible > 0 else mark.start())
            if Fraction(m.group().replace(",", "")) in wanted
        ]
        # only what stands in the equation itself, behind the last words of prose
        choices = []
        if result is not None:
            choices.append("result")
        if operands and visible > 0:
            choices.append("operand")
        if not choices or visible <= 0:
            continue
        kind = rng.choice(choices)
        target = result if kind == "result" else _last_run(step, operands, rng)
        if target is None:
            continue
        for _ in range(10):
            new = _changed(target.group(), rng)
            if new == target.group():
                continue
            left, right = mark.group(1), mark.group(2)
            old_plain, new_plain = target.group().replace(",", ""), new.replace(",", "")
            if kind == "result":
                a, b = _value(left), _value(new_plain)
            else:
                pattern = rf"(?<![\d.]){re.escape(old_plain)}(?![\d.])"
                changed, count = re.subn(pattern, new_plain, left, count=1)
                a, b = (_value(changed) if count else None), _value(right)
            if a is not None and b is not None and abs(a - b) * 200 <= max(abs(a), abs(b)):
                continue
            text = step[: target.start()] + new + step[target.end() :]
            return ANNOTATION.sub("", text), kind, target.group(), new
    return None


def _last_run(step: str, operands: list[re.Match[str]], rng: random.Random) -> re.Match[str] | None:
    """Choose among the operands that are joined by operators, going back from the last."""
    run = [operands[-1]]
    for earlier in reversed(operands[:-1]):
        between = step[earlier.end() : run[-1].start()]
        if not JOINED.fullmatch(between):
            break
        run.append(earlier)
    return rng.choice(run)


def corrupted_copies(path: Path, seed: int = 0) -> Iterator[Corrupted]:
    """Yield a corrupted copy of every annotated gold step that allows one."""
    rng = random.Random(seed)
    for row, line, _, step in gold_steps(path):
        if "<<" not in step:
            continue
        made = corrupt(step, rng)
        if made is not None:
            text, kind, old, new = made
            yield Corrupted(row, line, text, step, kind, old, new)


def main() -> None:
    """Write the copies as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder that holds GSM8K/train.jsonl"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = 0
    with options.out.open("w", encoding="utf-8") as out:
        for copy in corrupted_copies(options.data / "GSM8K" / "train.jsonl", options.seed):
            out.write(json.dumps(asdict(copy), ensure_ascii=False) + "\n")
            count += 1
    print(f"{count} corrupted steps, seed {options.seed} -> {options.out}")


if __name__ == "__main__":
    main()
