"""Step verifier on labelled data: coverage, refutations, false alarms.

    TREERL_DATA=… python benchmarks/step_checks.py [section …]

Sections: cases, gsm8k, corrupted, math500, processbench, stepverify, bigbench. Every figure that
the documentation quotes about the step verifier is printed here.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from corrupt import corrupted_copies, gold_steps

from treerl.verdict import StepVerdict, Verdict
from treerl.verifiers import PythonExecutor, StepVerifier

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "data"


def share(part: int, whole: int) -> str:
    """A count with its share."""
    return f"{part}/{whole} = {100 * part / max(whole, 1):.2f} %"


def sentences(text: str) -> list[str]:
    """Split a LaTeX solution at sentence ends outside math."""
    pieces = re.split(r"(\$\$|\$|\\\[|\\\]|\\begin\{align\*?\}|\\end\{align\*?\})", text)
    done: list[str] = []
    current, inside = "", False
    for piece in pieces:
        if piece in ("$", "$$"):
            inside = not inside
            current += piece
        elif piece == "\\[" or piece.startswith("\\begin{align"):
            inside = True
            current += piece
        elif piece == "\\]" or piece.startswith("\\end{align"):
            inside = False
            current += piece
        elif inside:
            current += piece
        else:
            first, *rest = re.split(r"(?<=[.!?])\s+", piece)
            current += first
            for part in rest:
                done.append(current)
                current = part
    done.append(current)
    return [sentence for sentence in done if sentence.strip()]


def cases(verifier: StepVerifier, data: Path) -> None:
    """The open step cases and which tool decided them."""
    outcome: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    for line in (CASES / "steps_open.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        verdict = verifier.verify(
            case["step"], problem=case["problem"], previous_steps=case["previous_steps"]
        )
        word = str(verdict.verdict).lower()
        right = word == case["expected"]
        outcome["right" if right else "undecided" if word == "unverifiable" else "wrong"] += 1
        for claim in verdict.claims:
            if claim.verdict is not Verdict.UNVERIFIABLE:
                tools[claim.calls[-1].tool] += 1
    total = outcome.total()
    print(
        f"cases: as expected {share(outcome['right'], total)}; wrong verdicts"
        f" {share(outcome['wrong'], total)}"
    )
    decided = tools.total()
    print(
        "cases: claims decided by "
        + ", ".join(f"{t} {share(n, decided)}" for t, n in sorted(tools.items()))
    )


def gsm8k(verifier: StepVerifier, data: Path) -> None:
    """Gold steps: coverage, and refutations by what a person said about them."""
    known = {
        (item["train_row"], item["step"]): item["judgement"]
        for item in json.loads((CASES / "gsm8k_gold_refuted.json").read_text(encoding="utf-8"))[
            "steps"
        ]
    }
    count: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    began = time.perf_counter()
    for row, _, _, step in gold_steps(data / "GSM8K" / "train.jsonl"):
        verdict = str(verifier.verify(step).verdict)
        count[verdict] += 1
        if "<<" in step:
            count["annotated"] += 1
            count[f"annotated {verdict}"] += 1
        if verdict == "REFUTED":
            judgement = known.get((row, step), "not in the list")
            judged[judgement] += 1
            if judgement in ("not in the list", "checker_fault"):
                print(f"gsm8k: refuted, {judgement}: row {row}: {step}")
    total = sum(count[word] for word in ("SUPPORTED", "REFUTED", "UNVERIFIABLE"))
    covered = count["SUPPORTED"] + count["REFUTED"]
    annotated = count["annotated SUPPORTED"] + count["annotated REFUTED"]
    false = judged["not in the list"] + judged["checker_fault"]
    print(
        f"gsm8k train gold: coverage {share(covered, total)}; annotated"
        f" {share(annotated, count['annotated'])}"
    )
    print(
        f"gsm8k train gold: refuted {count['REFUTED']}: {dict(judged)}; false or unlisted"
        f" {share(false, covered)}"
    )
    print(
        f"gsm8k train gold: {total / (time.perf_counter() - began):.0f} steps/s, one thread,"
        f" all tools"
    )


def corrupted(verifier: StepVerifier, data: Path) -> None:
    """Copies with one visible number changed (seed 0)."""
    count: Counter[str] = Counter()
    kinds: Counter[tuple[str, str]] = Counter()
    for copy in corrupted_copies(data / "GSM8K" / "train.jsonl", 0):
        verdict = str(verifier.verify(copy.step).verdict)
        count[verdict] += 1
        kinds[(copy.kind, verdict)] += 1
    total = count.total()
    print(
        f"corrupted: {total} copies; refuted {share(count['REFUTED'], total)}; "
        f"supported {share(count['SUPPORTED'], total)}"
    )
    for kind in ("result", "operand"):
        whole = sum(n for (k, _), n in kinds.items() if k == kind)
        print(f"corrupted {kind}: refuted {share(kinds[(kind, 'REFUTED')], whole)}")


def math500(verifier: StepVerifier, data: Path) -> None:
    """Gold solutions split at sentence ends outside math, with problem and earlier sentences."""
    count: Counter[str] = Counter()
    for line in (data / "MATH" / "test500.jsonl").read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        earlier: list[str] = []
        for sentence in sentences(item["solution"]):
            verdict = verifier.verify(sentence, problem=item["problem"], previous_steps=earlier)
            earlier.append(sentence)
            count[str(verdict.verdict)] += 1
            if verdict.verdict is Verdict.REFUTED:
                print(f"math500: refuted: {item['unique_id']}: {sentence[:150]!r}")
    total = count.total()
    print(
        f"math500 gold sentences: supported {share(count['SUPPORTED'], total)}; "
        f"refuted {share(count['REFUTED'], total)}"
    )


def _labelled(
    name: str, verifier: StepVerifier, items: Iterator[tuple[str, list[str], int | None]]
) -> None:
    """Steps up to and including the first error; positive = the wrong step."""
    count: Counter[str] = Counter()
    for problem, steps, mistake in items:
        for i, step in enumerate(steps):
            if mistake is not None and i > mistake:
                break
            verdict: StepVerdict = verifier.verify(step, problem=problem, previous_steps=steps[:i])
            kind = "wrong" if i == mistake else "right"
            count[kind] += 1
            count[f"{kind} {verdict.verdict}"] += 1
    refuted = count["wrong REFUTED"] + count["right REFUTED"]
    print(
        f"{name}: false alarms on right steps {share(count['right REFUTED'], count['right'])}; "
        f"first errors refuted {share(count['wrong REFUTED'], count['wrong'])}, "
        f"supported {share(count['wrong SUPPORTED'], count['wrong'])}; "
        f"precision of refutations {share(count['wrong REFUTED'], refuted)}"
    )


def processbench(verifier: StepVerifier, data: Path) -> None:
    """Human labels; never tuned to."""
    for name in ("gsm8k", "olympiadbench"):
        rows = json.loads((data / "ProcessBench" / f"{name}.json").read_text(encoding="utf-8"))
        items = ((r["problem"], r["steps"], r["label"] if r["label"] >= 0 else None) for r in rows)
        _labelled(f"processbench {name}", verifier, items)


def stepverify(verifier: StepVerifier, data: Path) -> None:
    """Teachers' labels; never tuned to."""
    rows = json.loads(
        (data / "StepVerify" / "dataset" / "dataset.json").read_text(encoding="utf-8")
    )
    items = ((r["problem"], r["student_incorrect_solution"], r["incorrect_index"]) for r in rows)
    _labelled("stepverify", verifier, items)


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def bigbench(verifier: StepVerifier, data: Path) -> None:
    """Arithmetic by the verifier; tracking and sorting replayed by programs in the sandbox."""
    folder = data / "BIG-Bench-Mistake"
    rows = [
        json.loads(x)
        for x in (folder / "multistep_arithmetic.jsonl").read_text("utf-8").splitlines()
    ]
    items = ((r["input"], r["steps"], r["mistake_index"]) for r in rows)
    _labelled("bigbench multistep_arithmetic", verifier, items)
    with PythonExecutor(size=1) as executor:
        for task, program in PROGRAMS.items():
            rows = _lines(folder / f"{task}.jsonl")
            stdin = json.dumps([{"input": r["input"], "steps": r["steps"]} for r in rows])
            run = executor.run(program, stdin=stdin, cpu_s=20, wall_s=30)
            if run.status != "ok":
                print(f"bigbench {task}: {run.status} {run.error}")
                continue
            pairs = [(r["mistake_index"], found) for r, found in zip(rows, run.value, strict=True)]
            wrong = [(gold, found) for gold, found in pairs if gold is not None]
            right = [(gold, found) for gold, found in pairs if gold is None]
            print(
                f"bigbench {task}: first mistake found"
                f" {share(sum(g == f for g, f in wrong), len(wrong))}; "
                f"clean solutions left alone"
                f" {share(sum(f is None for _, f in right), len(right))}; "
                f"all {share(sum(g == f for g, f in pairs), len(pairs))} (isolation"
                f" {run.isolation})"
            )


SECTIONS: dict[str, Callable[[StepVerifier, Path], None]] = {
    "cases": cases,
    "gsm8k": gsm8k,
    "corrupted": corrupted,
    "math500": math500,
    "processbench": processbench,
    "stepverify": stepverify,
    "bigbench": bigbench,
}


# Programs that replay two tasks and name the first wrong step, as a user would write them: each
# reads a JSON list of items from stdin and leaves the indices, None where it finds none.
TRACKING = r"""
import json, re

def pairs(text, people):
    names = "|".join(people) + "|" + "|".join(sorted({p[0] for p in people}))
    sign = r"\b(%s)\s*(?::|=|->|(?<=[a-z]) has(?: an?| the)?\b)" % names
    found = {}
    spots = list(re.finditer(sign, text))
    for i, spot in enumerate(spots):
        stop = spots[i + 1].start() if i + 1 < len(spots) else len(text)
        who = next(p for p in people if p == spot.group(1) or p[0] == spot.group(1))
        what = text[spot.end():stop].strip().strip(".,;").removesuffix(" and")
        found[who] = what.strip().strip(",")
    return found

def same(said, thing):
    said, thing = said.lower(), thing.lower()
    return bool(said) and (said in thing or thing in said or said.split()[-1] in thing.split()[-2:])

def first_mistake(item):
    question, steps = item["input"], item["steps"]
    people = re.findall(r"[A-Z][a-z]+", question.split(" are ")[0])
    swaps = re.findall(r"(?:First|Then|Finally), (\w+) and (\w+) ", question)
    start = question.split("\n")[0]
    state = {}
    for who in people:
        held = re.search(
            r"\b%s (?:has|gets|is|buys|have)"
            r"(?: (?:dancing with|playing|holding|buys?|an?|the))* ([^,.]+)" % who,
            start.split(": ")[-1],
        )
        state[who] = held.group(1).strip() if held else ""
    options = dict(re.findall(r"\(([A-Z])\) ([^\n]+?)\.?(?:\n|$)", question))
    ending = question.split("Options:")[0].rsplit("At the end", 1)[-1]
    asked = re.findall(r"\b(%s)\b" % "|".join(people), ending)
    at = 0
    for i, step in enumerate(steps):
        answer = re.search(r"answer is \(?([A-Z])\)?", step)
        said = pairs(step, people)
        if said and not answer:
            verb = re.search(r"swap|switch|trade|exchange", step)
            fits = all(same(what, state[who]) for who, what in said.items())
            if not (i == 0 and not verb and fits):
                if at >= len(swaps):
                    return None if fits else i
                a, b = swaps[at]
                at += 1
                state = dict(state)
                state[a], state[b] = state[b], state[a]
                if verb:
                    head = step.split(":")[0]
                    named = {p for p in people if re.search(r"\b(?:%s|%s)\b" % (p, p[0]), head)}
                    if len(named) == 2 and named != {a, b}:
                        return i
            if not all(same(what, state[who]) for who, what in said.items()):
                return i
            continue
        if answer and asked:
            if at != len(swaps):
                return i
            held = state[asked[-1]]
            if not same(options.get(answer.group(1), ""), held):
                return i
    return None

result = [first_mistake(item) for item in json.loads(input())]
"""

SORTING = r"""
import json, re

ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()

def groups(text):
    found = []
    for part in text.split(" < "):
        words = re.findall(r'"([^"]+)"', part)
        number = re.match(r"\W*\((\d+)\)", part)
        if not words:
            return None
        found.append((frozenset(words), int(number.group(1)) if number else None, len(words)))
    return found

def letter(word, at):
    return word[at] if at < len(word) else ""

def expected(words, at):
    buckets = {}
    for word in words:
        buckets.setdefault(letter(word, at), set()).add(word)
    return [(frozenset(buckets[key]), key) for key in sorted(buckets)]

def first_mistake(item):
    words = item["input"].split()
    state = [frozenset(words)]
    depth = {frozenset(words): 0}
    part, at = frozenset(words), 0
    for i, step in enumerate(item["steps"]):
        if "letter" in step and "We now have" not in step and "The answer is" not in step:
            named = re.search(r"subpart \[([^\]]*)\]", step)
            if named:
                part = frozenset(re.findall(r'"([^"]+)"', named.group(1)))
                waiting = [group for group in state if len(group) > 1]
                if not waiting or part != waiting[0]:
                    return i
            position = re.search(r"(?:their|[Tt]he) (\w+) letters?\b", step)
            if position and position.group(1) in ORDINALS:
                at = ORDINALS.index(position.group(1))
            if depth.get(part, 0) != at:
                return i
            listed = re.findall(r'"([^"]+)": "([^"]*)" \((\d+)\)', step)
            if i == 0:  # the words as the solution copied them
                part = frozenset(word for word, _, _ in listed)
                state, depth = [part], {part: 0}
            if frozenset(word for word, _, _ in listed) != part:
                return i
            for word, char, number in listed:
                if letter(word, at) != char or ord(char) - 96 != int(number):
                    return i
            continue
        if "We now have" in step:
            body = step.split("We now have:", 1)[1]
            local, _, rest = body.partition("for the subpart")
            said = groups(local)
            want = expected(part, at)
            if said is None or [g[0] for g in said] != [g[0] for g in want]:
                return i
            if sum(g[2] for g in said) != len(part):
                return i
            where = state.index(part)
            state = state[:where] + [g[0] for g in want] + state[where + 1:]
            for group, _ in want:
                depth[group] = at + 1
            if "we have" in rest:
                full = groups(rest.split("we have", 1)[1])
                if full is None or [g[0] for g in full] != state:
                    return i
            continue
        if "answer is" in step:
            said = step.split("answer is", 1)[1].strip().rstrip(".").split()
            if any(len(group) > 1 for group in state):
                return i
            if said != [next(iter(group)) for group in state]:
                return i
    return None

result = [first_mistake(item) for item in json.loads(input())]
"""

PROGRAMS = {"tracking_shuffled_objects": TRACKING, "word_sorting": SORTING}


def main() -> None:
    """Run the sections named on the command line, all of them if none is."""
    folder = os.environ.get("TREERL_DATA")
    if not folder:
        sys.exit("set TREERL_DATA to the folder that holds GSM8K/, MATH/, ProcessBench/, …")
    chosen = sys.argv[1:] or list(SECTIONS)
    unknown = set(chosen) - set(SECTIONS)
    if unknown:
        sys.exit(f"unknown sections {sorted(unknown)}; choose from {', '.join(SECTIONS)}")
    with StepVerifier() as verifier:
        for name in chosen:
            SECTIONS[name](verifier, Path(folder))
        stats = verifier.stats.to_dict()
        print(
            "verdicts: " + ", ".join(f"{k} {v}" for k, v in stats.items() if k.startswith("tool/"))
        )


if __name__ == "__main__":
    main()
