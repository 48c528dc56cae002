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
from collections.abc import Callable
from pathlib import Path

from label_scoring import (
    LINES,
    Labels,
    difference,
    label_words,
    masked,
    percent,
    with_interval,
)

from treerl.lab.words import WordsProblem, judge
from treerl.lab.words.scoring import Score, score_labels, truth_of_steps
from treerl.prm import Fusion, label_tree
from treerl.search import MCTSConfig
from treerl.store import RunReader
from treerl.tree import Tree
from treerl.verdict import Verdict

METHODS: dict[str, Callable[[Tree, int], Labels]] = {}


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
    search = MCTSConfig(
        simulations=args.simulations,
        children=args.children,
        sampling=LINES,
    )
    fusion = Fusion("groundedprm", args.n_min)
    label_words(args.out, search, fusion, problems=args.problems, seed=args.seed)


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


if __name__ == "__main__":
    main()
