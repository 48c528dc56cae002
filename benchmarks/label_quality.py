"""First-error precision and recall of process labels in the words lab, where the truth is known.

One run of trees is grown and judged once; all label methods read the same trees:

* hard-MC: 1[c > 0] where n >= n_min, from the trees' own rollouts;
* tool-only: refuted 0, supported 1, else nothing (a baseline, never exported);
* fused: treerl's rules on both.

A step counts where all steps before it are truly right; positive = a wrong step; a step without a
label is not found. Intervals: 95 %, bootstrap over problems, paired for the differences.

    python benchmarks/label_quality.py --out runs/quality [--problems 200] [--simulations 32]

Interrupted runs go on with the same command; the table is written to OUT/table.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from treerl.engines import HFEngine
from treerl.lab import words
from treerl.lab.words import WordsProblem, judge
from treerl.lab.words.scoring import Score, score_labels, truth_of_steps
from treerl.prm import AnswerReward, Fusion, Labeler, label_tree
from treerl.prm.fuse import mask_after_first_error
from treerl.problem import Problem
from treerl.search import MCTSConfig, Sampling
from treerl.steps import PlainSteps
from treerl.store import RunReader
from treerl.tree import Tree
from treerl.verdict import Verdict
from treerl.verifiers import AnswerVerifier, StepVerifier

Labels = list[tuple[int, int | None]]
METHODS: dict[str, Callable[[Tree, int], Labels]] = {}
RESAMPLES = 2000


def main() -> None:
    """Grow the trees, score the methods, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--simulations", type=int, default=32)
    parser.add_argument("--children", type=int, default=4)
    parser.add_argument("--n-min", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    grow(args)
    report = table(args)
    (args.out / "table.md").write_text(report)
    print(report)


def grow(args: argparse.Namespace) -> None:
    """Run the labeller; a finished folder is left as it is."""
    asked = [
        Problem.from_text(p.id, p.question, p.answer, metadata=p.to_record()["metadata"])
        for p in words.problems(args.problems)
    ]
    search = MCTSConfig(
        simulations=args.simulations,
        children=args.children,
        sampling=Sampling(steps=PlainSteps("\n"), max_tokens=200),
    )
    engine = HFEngine.from_pretrained(words.model_path(), max_batch=64)
    start = time.monotonic()
    with AnswerVerifier() as answers, StepVerifier() as steps:
        labeler = Labeler(
            reward=AnswerReward(answers),
            verifier=steps,
            search=search,
            fusion=Fusion("groundedprm", args.n_min),
            seed=args.seed,
        )
        summary = labeler.run(asked, engine, args.out)
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} s; {json.dumps(summary)}", flush=True)


def hard_mc(tree: Tree, n_min: int) -> Labels:
    """Monte-Carlo counts alone, with the labeller's masking."""
    labels = label_tree(tree, Fusion("mathshepherd", n_min))
    # The labeller knows a finished path's outcome; the plain baseline asks for n_min everywhere.
    by_node = {x.node: x.label if x.total >= n_min else None for x in labels}
    return masked(tree, by_node)


def hard_mc_terminal(tree: Tree, n_min: int) -> Labels:
    """The same with a finished path's own outcome as its last step's label."""
    return [(x.node, x.label) for x in label_tree(tree, Fusion("mathshepherd", n_min))]


def tool_only(tree: Tree, n_min: int) -> Labels:
    """The tool's word alone."""
    word = {Verdict.REFUTED: 0, Verdict.SUPPORTED: 1, Verdict.UNVERIFIABLE: None}
    by_node = {n.index: word[n.verdict.verdict] for n in tree.nodes if n.verdict is not None}
    return masked(tree, by_node)


def fused(tree: Tree, n_min: int) -> Labels:
    """treerl's fusion."""
    return [(x.node, x.label) for x in label_tree(tree, Fusion("groundedprm", n_min))]


METHODS.update(
    {
        "hard-MC": hard_mc,
        "hard-MC, outcome at the last step": hard_mc_terminal,
        "tool-only": tool_only,
        "fused": fused,
    }
)


def masked(tree: Tree, by_node: dict[int, int | None]) -> Labels:
    """Mask what stands behind a step labelled wrong, as the labeller does."""
    out: Labels = []
    for node in tree.nodes[1:]:
        path = [n.index for n in tree.path(node)]
        out.append((node.index, mask_after_first_error([by_node.get(i) for i in path])[-1]))
    return out


def kinds_of_errors(tree: Tree, truth: dict[int, bool]) -> dict[int, str]:
    """Return the kind of each first error, by node."""
    problem = tree.problem
    record = {"id": problem.id, "question": problem.text, "answer": problem.answer}
    asked = WordsProblem.from_record({**record, "metadata": problem.metadata})
    kinds = {}
    for index, right in truth.items():
        if not right:
            steps = [n.text for n in tree.path(tree.nodes[index]) if n.text]
            kinds[index] = str(judge(asked, steps).kind)
    return kinds


def table(args: argparse.Namespace) -> str:
    """Score every method on every tree and render the comparison."""
    scores: dict[str, list[Score]] = {name: [] for name in METHODS}
    by_kind: dict[str, dict[str, Score]] = {name: {} for name in METHODS}
    tokens = 0
    for tree in RunReader(args.out).trees():
        truth = truth_of_steps(tree)
        kinds = kinds_of_errors(tree, truth)
        tokens += tree.ledger.generated
        for name, method in METHODS.items():
            labels = method(tree, args.n_min)
            scores[name].append(score_labels(truth, labels))
            for kind in set(kinds.values()):
                part = {i: r for i, r in truth.items() if kinds.get(i) == kind}
                old = by_kind[name].get(kind, Score())
                by_kind[name][kind] = old + score_labels(part, labels)
    return render(args, scores, by_kind, tokens)


def render(
    args: argparse.Namespace,
    scores: dict[str, list[Score]],
    by_kind: dict[str, dict[str, Score]],
    tokens: int,
) -> str:
    """Return the tables as markdown."""
    total = sum(scores["fused"], Score())
    wrong = total.found + total.missed
    kinds = sorted(by_kind["fused"], key=lambda k: -by_kind["fused"][k].found)
    lines = [
        f"words lab, {len(scores['fused'])} problems, {args.simulations} simulations a tree, "
        f"n_min {args.n_min}, seed {args.seed}: {total.steps} steps count, {wrong} of them wrong; "
        f"{tokens} generated tokens",
        "",
        "| method | precision | recall | coverage | recall by kind: " + " | ".join(kinds) + " |",
        "|---|---|---|---|" + "---|" * len(kinds),
    ]
    for name, parts in scores.items():
        score = sum(parts, Score())
        cells = [
            with_interval(score.precision, parts, lambda s: s.precision),
            with_interval(score.recall, parts, lambda s: s.recall),
            with_interval(score.coverage, parts, lambda s: s.coverage),
        ]
        for kind in kinds:
            part = by_kind[name][kind]
            cells.append(f"{percent(part.recall)} of {part.found + part.missed}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Differences in points, fused minus the other (paired):", ""]
    for name in METHODS:
        if name != "fused":
            for what in ("precision", "recall"):
                low, mid, high = difference(scores["fused"], scores[name], what)
                lines.append(f"- {what} against {name}: {mid:+.1f} [{low:+.1f}, {high:+.1f}]")
    return "\n".join(lines) + "\n"


def percent(share: float | None) -> str:
    """Render a share."""
    return "none" if share is None else f"{100 * share:.1f} %"


def resamples(n: int) -> Iterable[np.ndarray]:
    """Yield bootstrap draws of n problems; the same ones for every method."""
    rng = np.random.default_rng(0)
    for _ in range(RESAMPLES):
        yield rng.integers(0, n, n)


def totals(parts: list[Score]) -> np.ndarray:
    """(n, 5) counts a problem."""
    return np.array([[s.found, s.missed, s.false_alarms, s.labelled, s.steps] for s in parts])


def with_interval(
    value: float | None, parts: list[Score], read: Callable[[Score], float | None]
) -> str:
    """Render a share with its interval."""
    counts = totals(parts)
    draws = [read(Score(*counts[pick].sum(0))) for pick in resamples(len(parts))]
    known = [x for x in draws if x is not None]
    if not known:
        return percent(value)
    low, high = np.percentile(known, [2.5, 97.5])
    return f"{percent(value)} [{100 * low:.1f}, {100 * high:.1f}]"


def difference(ours: list[Score], other: list[Score], what: str) -> tuple[float, float, float]:
    """Return the paired difference of a share in points: low, value, high."""
    a, b = totals(ours), totals(other)

    def delta(pick: np.ndarray) -> float:
        left = getattr(Score(*a[pick].sum(0)), what)
        right = getattr(Score(*b[pick].sum(0)), what)
        return 100 * ((left or 0.0) - (right or 0.0))

    draws = [delta(pick) for pick in resamples(len(ours))]
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), delta(np.arange(len(ours))), float(high)


if __name__ == "__main__":
    main()
