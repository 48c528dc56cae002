"""`treerl demo`: the whole way once, on a little model whose truth is known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treerl.cli.console import complain, output, plain_table, say
from treerl.cli.engines import LAB_WORDS, EngineOptions, open_engine
from treerl.cli.presets import LabelOptions
from treerl.cli.running import Interrupted, run_labeler
from treerl.cli.setup import open_labeler

if TYPE_CHECKING:
    from treerl.lab.words.scoring import Score
    from treerl.prm.fuse import Fusion
    from treerl.problem import Problem
    from treerl.tree import Tree

__all__ = ["demo", "words_problems"]

OPTIONS = LabelOptions(step_delimiter="\n", max_tokens=160, active=12)
"""Of the demo's run, but for the seed."""


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; by default a new one, runs/demo-1, …"),
    ] = None,
    problems: Annotated[int, typer.Option(min=1, help="How many problems.")] = 24,
    seed: Annotated[int, typer.Option(help="Another seed, other solutions.")] = 0,
) -> None:
    """Label word problems with the little model that comes with treerl, in about a minute.

    Everything is real: a language model writes the solutions, a tree search spends its tokens,
    tools check every step. Since this small world knows the truth of every step, the labels are
    also scored.
    """
    from dataclasses import replace

    from treerl.cli.summary import show_summary

    began = time.monotonic()
    out = out or _new_folder()
    options = replace(OPTIONS, seed=seed)
    with open_labeler(options) as labeler:
        say(f"{problems} word problems of the lab, their solutions by {LAB_WORDS}")
        engine = open_engine(EngineOptions(engine="hf", model=LAB_WORDS))
        try:
            summary, session = run_labeler(labeler, words_problems(problems), engine, out)
        except Interrupted as stopped:
            complain(str(stopped))
            raise typer.Exit(130) from stopped
    _show_best_tree(out)
    _show_scores(out, labeler.fusion)
    show_summary(summary, out, session=session, seconds=time.monotonic() - began)


def words_problems(count: int) -> list[Problem]:
    """Return held-out problems of the words lab; their metadata holds the truth."""
    from treerl.lab import words
    from treerl.problem import Problem

    return [
        Problem.from_text(p.id, p.question, p.answer, metadata=p.to_record()["metadata"])
        for p in words.problems(count)
    ]


def _new_folder() -> Path:
    number = 1
    while (path := Path("runs", f"demo-{number}")).exists():
        number += 1
    return path


def _show_best_tree(out: Path) -> None:
    """Show the tree with the most wrong steps among the smaller ones: it has most to tell."""
    from treerl.cli.show import labelled, print_tree

    def interest(tree: Tree, wrong: int) -> tuple[bool, int]:
        return len(tree) <= 45, wrong

    best = max(
        labelled(out),
        key=lambda pair: interest(pair[0], sum(x.label == 0 for x in (pair[1] or {}).values())),
        default=None,
    )
    if best is not None:
        output().print("\nOne of the trees:\n")
        print_tree(*best, max_nodes=45)


def _show_scores(out: Path, fusion: Fusion) -> None:
    from rich.text import Text

    from treerl.cli.show import labelled
    from treerl.lab.words.scoring import Score, score_labels, truth_of_steps
    from treerl.prm.fuse import Fusion
    from treerl.prm.label import label_tree

    counting = Fusion("mathshepherd", fusion.n_min)
    ours = rollouts = Score()
    for tree, labels in labelled(out):
        truth = truth_of_steps(tree)
        ours += score_labels(truth, ((n, x.label) for n, x in (labels or {}).items()))
        counted = label_tree(tree, counting)
        rollouts += score_labels(truth, ((x.node, x.label) for x in counted))
    table = plain_table("labels", "wrong steps found>", "false alarms>", "precision>", "recall>")
    table.add_column("labelled", justify="right", header_style="dim")
    for name, score in (("tools and rollouts", ours), ("the same rollouts alone", rollouts)):
        table.add_row(name, *_cells(score))
    console = output()
    console.print(
        Text(
            f"\nHow good the labels are: {ours.steps:,} steps have a known truth and no error "
            f"before them, {ours.found + ours.missed:,} of them are wrong."
        ),
        soft_wrap=True,
    )
    console.print(table)
    console.print()


def _cells(score: Score) -> tuple[str, ...]:
    shares = [score.precision, score.recall, score.coverage]
    return (
        f"{score.found}/{score.found + score.missed}",
        str(score.false_alarms),
        *("none" if share is None else f"{share:.0%}" for share in shares),
    )
