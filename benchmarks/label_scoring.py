"""What the label benchmarks share: the words lab as data, and shares with bootstrap intervals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from treerl.engines import HFEngine
from treerl.lab import words
from treerl.lab.words.scoring import Score
from treerl.prm import AnswerReward, Fusion, Labeler
from treerl.prm.fuse import mask_after_first_error
from treerl.prm.pipeline import SearchConfig
from treerl.problem import Problem
from treerl.search import Sampling
from treerl.steps import PlainSteps
from treerl.tree import Tree
from treerl.verifiers import AnswerVerifier, StepVerifier

__all__ = [
    "LINES",
    "Labels",
    "difference",
    "label_words",
    "masked",
    "percent",
    "resamples",
    "with_interval",
]

Labels = list[tuple[int, int | None]]
"""(node, label) of one tree."""

LINES = Sampling(steps=PlainSteps("\n"), max_tokens=200)
"""How the lab's model writes: a line a step."""

RESAMPLES = 2000


def label_words(
    out: Path, search: SearchConfig, fusion: Fusion, *, problems: int, seed: int
) -> None:
    """Label problems of the lab into a run folder; a finished folder is left as it is."""
    asked = [
        Problem.from_text(p.id, p.question, p.answer, metadata=p.to_record()["metadata"])
        for p in words.problems(problems)
    ]
    engine = HFEngine.from_pretrained(words.model_path(), max_batch=64)
    start = time.monotonic()
    with AnswerVerifier() as answers, StepVerifier() as steps:
        labeler = Labeler(
            reward=AnswerReward(answers), verifier=steps, search=search, fusion=fusion, seed=seed
        )
        summary = labeler.run(asked, engine, out)
    seconds = time.monotonic() - start
    print(f"{out}: {seconds:.0f} s; {json.dumps(summary)}", flush=True)


def masked(tree: Tree, by_node: dict[int, int | None]) -> Labels:
    """Mask what stands behind a step labelled wrong, as the labeller does."""
    out: Labels = []
    for node in tree.nodes[1:]:
        path = [n.index for n in tree.path(node)]
        out.append((node.index, mask_after_first_error([by_node.get(i) for i in path])[-1]))
    return out


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
