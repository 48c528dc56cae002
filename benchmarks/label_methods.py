"""All label methods side by side in the words lab, where the truth is known.

Four searches are run, each as its own method would; every method reads the trees that it needs:

* hard-MC, soft-MC, consensus: prefix Monte Carlo on sampled solutions, labels 1[c > 0],
  1[c/n > 0.5], and 1[c > 0] on the solutions where the tools name the same first error;
* OmegaPRM: binary search of wrong rollouts, labels 1[c > 0];
* GroundedPRM published: its selection, rollout reward and label rule;
* GroundedPRM ours: treerl's defaults.

Methods label different steps, since each grows its own trees, so their shares are of different
steps; "spent" is what the search generated, labels or not. hard-MC, soft-MC and consensus read the
same trees and so spent the same. A step counts where all steps before it are truly right; positive
= a wrong step; a wrong step without a label is not found. Intervals: 95 %, bootstrap over problems,
a problem's seeds taken together.

    python benchmarks/label_methods.py --out runs/methods [--problems 300] [--seeds 0 1 2]

Each search writes as it goes, and the same command goes on with an interrupted run. The table is
written to OUT/table.md, its rows to OUT/rows.jsonl.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from label_scoring import LINES, Labels, label_words, masked, resamples, with_interval

from treerl.lab.words.scoring import Score, score_labels, truth_of_steps
from treerl.prm import Fusion, label_tree
from treerl.prm.pipeline import SearchConfig
from treerl.search import MCTSConfig, RolloutReward
from treerl.search.omega import OmegaPRMConfig
from treerl.search.prefix_mc import PrefixMCConfig
from treerl.search.selection import PUBLISHED_EXPLORATION
from treerl.store import RunReader
from treerl.tree import Tree


class Method(NamedTuple):
    """A row of the table: which search's trees, and how they are labelled."""

    search: str
    label: Callable[[Tree, int], Labels]


def main() -> None:
    """Run the searches, score the methods, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--simulations", type=int, default=32, help="of the tree searches")
    parser.add_argument("--rollouts", type=int, default=8, help="a prefix or state")
    parser.add_argument("--solutions", type=int, default=4, help="of prefix Monte Carlo")
    parser.add_argument("--rollout-budget", type=int, default=100, help="of OmegaPRM, a problem")
    parser.add_argument("--n-min", type=int, default=4)
    args = parser.parse_args()
    for seed in args.seeds:
        for name, (search, fusion) in searches(args).items():
            folder = args.out / f"seed-{seed}" / name
            label_words(folder, search, fusion, problems=args.problems, seed=seed)
    results = {name: score(args, method) for name, method in METHODS.items()}
    with (args.out / "rows.jsonl").open("w") as file:
        file.writelines(f"{json.dumps(row(name, r))}\n" for name, r in results.items())
    report = render(args, results)
    (args.out / "table.md").write_text(report)
    print(report)


def searches(args: argparse.Namespace) -> dict[str, tuple[SearchConfig, Fusion]]:
    """Return each search with the fusion that its run folder is labelled by."""
    published = MCTSConfig(
        simulations=args.simulations,
        children=3,
        selection="uct_published",
        exploration=PUBLISHED_EXPLORATION["uct_published"],
        rollout_reward=RolloutReward(),
        sampling=LINES,
    )
    prefix = PrefixMCConfig(rollouts=args.rollouts, solutions=args.solutions, sampling=LINES)
    omega = OmegaPRMConfig(
        rollouts=args.rollouts, rollout_budget=args.rollout_budget, sampling=LINES
    )
    ours = MCTSConfig(simulations=args.simulations, sampling=LINES)
    return {
        "prefix_mc": (prefix, Fusion("mathshepherd", args.n_min)),
        "omegaprm": (omega, Fusion("mathshepherd", args.n_min)),
        "groundedprm_published": (published, Fusion("groundedprm_published", args.n_min)),
        "groundedprm": (ours, Fusion("groundedprm", args.n_min)),
    }


def by_rule(rule: str) -> Callable[[Tree, int], Labels]:
    """Return the labels of a fusion rule."""

    def label(tree: Tree, n_min: int) -> Labels:
        return [(x.node, x.label) for x in label_tree(tree, Fusion(rule, n_min))]

    return label


def soft_mc(tree: Tree, n_min: int) -> Labels:
    """Return 1[c/n > 0.5]; a step behind a hard 0 is behind a soft one too."""
    labels = label_tree(tree, Fusion("mathshepherd", n_min))
    half = {
        x.node: None if x.label is None or x.soft is None else int(x.soft > 0.5) for x in labels
    }
    recorded = {x.node for x in labels}
    return [(node, label) for node, label in masked(tree, half) if node in recorded]


METHODS = {
    "hard-MC": Method("prefix_mc", by_rule("mathshepherd")),
    "soft-MC, threshold 0.5": Method("prefix_mc", soft_mc),
    "consensus (MC and tools)": Method("prefix_mc", by_rule("consensus")),
    "OmegaPRM": Method("omegaprm", by_rule("mathshepherd")),
    "GroundedPRM, published": Method("groundedprm_published", by_rule("groundedprm_published")),
    "GroundedPRM, ours": Method("groundedprm", by_rule("groundedprm")),
}


class Result(NamedTuple):
    """What one method did, problem by problem.

    Attributes:
        scores: Against the truth, a problem's seeds summed.
        tokens: (n,) generated tokens.
        labels: (n,) labels, those without a known truth too.
    """

    scores: list[Score]
    tokens: np.ndarray
    labels: np.ndarray


def score(args: argparse.Namespace, method: Method) -> Result:
    """Score a method on the trees of its search."""
    scores: dict[str, Score] = {}
    spent: dict[str, list[int]] = {}  # problem -> tokens, labels
    for seed in args.seeds:
        for tree in RunReader(args.out / f"seed-{seed}" / method.search).trees():
            key = tree.problem.id
            labels = method.label(tree, args.n_min)
            asked = {node for node, _ in labels}  # a rollout below a solution is nobody's step
            truth = {i: right for i, right in truth_of_steps(tree).items() if i in asked}
            scores[key] = scores.get(key, Score()) + score_labels(truth, labels)
            old = spent.get(key, [0, 0])
            made = sum(label is not None for _, label in labels)
            spent[key] = [old[0] + tree.ledger.generated, old[1] + made]
    tokens, made_labels = np.array([spent[key] for key in scores]).reshape(-1, 2).T
    return Result(list(scores.values()), tokens, made_labels)


def row(name: str, result: Result) -> dict[str, object]:
    """Return a method's totals as a JSON object."""
    total = sum(result.scores, Score())
    return {
        "method": name,
        "search": METHODS[name].search,
        "problems": len(result.scores),
        "steps": total.steps,
        "wrong_steps": total.found + total.missed,
        "found": total.found,
        "false_alarms": total.false_alarms,
        "labelled": total.labelled,
        "labels": int(result.labels.sum()),
        "generated_tokens": int(result.tokens.sum()),
    }


def render(args: argparse.Namespace, results: dict[str, Result]) -> str:
    """Return the table as markdown."""
    lines = [
        f"words lab, {args.problems} problems, seeds {' '.join(map(str, args.seeds))}, "
        f"{args.simulations} simulations a tree, {args.solutions} solutions with {args.rollouts} "
        f"rollouts a prefix, {args.rollout_budget} rollouts a problem for OmegaPRM, "
        f"n_min {args.n_min}",
        "",
        "| method | precision | recall | coverage | steps, wrong ones | spent: generated tokens | "
        "labels | tokens a label |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        total = sum(result.scores, Score())
        cells = [
            with_interval(total.precision, result.scores, lambda s: s.precision),
            with_interval(total.recall, result.scores, lambda s: s.recall),
            with_interval(total.coverage, result.scores, lambda s: s.coverage),
            f"{total.steps:,}, {total.found + total.missed:,}",
            f"{int(result.tokens.sum()):,}",
            f"{int(result.labels.sum()):,}",
            tokens_a_label(result),
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def tokens_a_label(result: Result) -> str:
    """Render the price of a label with its interval."""
    if not result.labels.sum():
        return "no label"
    draws = []
    for pick in resamples(len(result.scores)):
        labels = result.labels[pick].sum()
        if labels:
            draws.append(result.tokens[pick].sum() / labels)
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{result.tokens.sum() / result.labels.sum():.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
