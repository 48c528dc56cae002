"""Repeated and leaked text: near-duplicate steps, and problems that a test set holds too.

::

    report = near_duplicates(solutions_of_run(RunReader("runs/first")))
    report.rate                                   # share of steps that repeat an earlier one
    leaks = contamination({p.id: p.text for p in problems}, ["MATH/test500.jsonl"])
    leaks.files[0].hits

Both are exact and deterministic, and near linear in the text: candidates come from an inverted
index, not from comparing everything with everything.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from treerl.loading import load_problems
from treerl.prm.formats.paths import labelled_trees
from treerl.prm.formats.solutions import LabelledSolution, solutions_of
from treerl.store import RunReader

__all__ = [
    "Contamination",
    "FileOverlap",
    "NearDuplicate",
    "NearDuplicates",
    "Overlap",
    "contamination",
    "near_duplicates",
    "solutions_of_run",
]

Gram = tuple[str, ...]

_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A step that nearly repeats an earlier one of its problem."""

    problem_id: str
    step: str
    earlier: str
    jaccard: float


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """How much the steps of a data set repeat each other, problem by problem.

    Attributes:
        n, threshold: What counts as near: a Jaccard index of n-grams above the threshold.
        problems, steps: What was looked at; equal steps behind equal steps are one.
        equal: Steps with the same words as an earlier one of their problem.
        near: Others that are near an earlier one.
        examples: The first of the latter.
    """

    n: int
    threshold: float
    problems: int
    steps: int
    equal: int
    near: int
    examples: tuple[NearDuplicate, ...]

    @property
    def rate(self) -> float:
        """Share of the steps that repeat an earlier one, equal or near."""
        return (self.equal + self.near) / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Overlap:
    """A problem that a file holds too, wholly or in part.

    Attributes:
        problem_id: Ours.
        file, other_id: Theirs; the file by its name in the report.
        shared, of: How many of our problem's n-grams stand there too.
    """

    problem_id: str
    file: str
    other_id: str
    shared: int
    of: int


@dataclass(frozen=True, slots=True)
class FileOverlap:
    """How many problems a file has, and how many of ours share an n-gram with one of them."""

    file: str
    problems: int
    hits: int


@dataclass(frozen=True, slots=True)
class Contamination:
    """Problems that stand in other files too.

    Attributes:
        n: Words of an n-gram.
        problems: Ours.
        files: A record a file, in the order given.
        overlaps: By file, then by problem; for each of ours the one with the most in common.
    """

    n: int
    problems: int
    files: tuple[FileOverlap, ...]
    overlaps: tuple[Overlap, ...]


def solutions_of_run(run: RunReader) -> Iterator[LabelledSolution]:
    """Yield all paths of a run as solutions.

    Raises:
        ConfigError: The run has no labels.
    """
    for tree in labelled_trees(run):
        yield from solutions_of(tree)


def near_duplicates(
    solutions: Iterable[LabelledSolution],
    *,
    n: int = 5,
    threshold: float = 0.9,
    examples: int = 20,
) -> NearDuplicates:
    """Count steps that repeat an earlier step of the same problem.

    Steps are compared as sets of n-grams of words, numbers and signs, without regard to case; a
    step of fewer is one gram, so short steps are near only where they are equal.

    Args:
        solutions: Those of one problem one behind the other.
        n: Length of a gram.
        threshold: The Jaccard index above which two steps are near.
        examples: How many pairs to keep.
    """
    if n < 1 or not 0 < threshold <= 1:
        raise ValueError(f"n must be at least 1 and threshold in (0, 1], not {n} and {threshold}")
    counts: Counter[str] = Counter()
    pairs: list[NearDuplicate] = []
    for problem_id, group in groupby(solutions, key=lambda s: s.problem_id):
        counts["problems"] += 1
        texts: dict[Gram, str] = {}
        for step in _distinct_steps(group):
            counts["steps"] += 1
            words = tuple(_TOKEN.findall(step.casefold()))
            if words in texts:
                counts["equal"] += 1
            else:
                texts[words] = step
        for step, earlier, jaccard in _near_pairs(texts, n, threshold):
            counts["near"] += 1
            if len(pairs) < examples:
                pairs.append(NearDuplicate(problem_id, step, earlier, jaccard))
    return NearDuplicates(
        n=n,
        threshold=threshold,
        problems=counts["problems"],
        steps=counts["steps"],
        equal=counts["equal"],
        near=counts["near"],
        examples=tuple(pairs),
    )


def _distinct_steps(solutions: Iterable[LabelledSolution]) -> Iterator[str]:
    """Yield the steps of a problem's solutions, those that several solutions share once."""
    edges: dict[tuple[int, str], int] = {}  # (number of the steps before, step) -> number
    for solution in solutions:
        at = 0
        for step in solution.steps:
            known = len(edges)
            at = edges.setdefault((at, step), known + 1)
            if len(edges) > known:
                yield step


def _near_pairs(
    texts: Mapping[Gram, str], n: int, threshold: float
) -> Iterator[tuple[str, str, float]]:
    """Yield each text that is near an earlier one, with the first such.

    Prefix filtering (Chaudhuri et al. 2006, Bayardo et al. 2007): of two sets with a Jaccard index
    of at least t, sorted by one order, the first |x| - ceil(t |x|) + 1 members have one in common.
    Rare grams come first, so that few sets share an index entry.
    """
    sets = [frozenset(_grams(words, n)) for words in texts]
    steps = list(texts.values())
    frequency = Counter(gram for grams in sets for gram in grams)
    index: dict[Gram, list[int]] = {}
    for i, grams in enumerate(sets):
        ordered = sorted(grams, key=lambda gram: (frequency[gram], gram))
        ordered = ordered[: len(grams) - math.ceil(threshold * len(grams)) + 1]
        candidates = sorted({j for gram in ordered for j in index.get(gram, ())})
        for j in candidates:
            jaccard = len(grams & sets[j]) / len(grams | sets[j])
            if jaccard > threshold:
                yield steps[i], steps[j], jaccard
                break
        for gram in ordered:
            index.setdefault(gram, []).append(i)


def contamination(
    statements: Mapping[str, str],
    files: Sequence[str | Path] | Mapping[str, str | Path],
    *,
    n: int = 13,
) -> Contamination:
    """Look for problems whose statements share n words in a row with a problem of other files.

    13 words as in the appendix on contamination of the GPT-3 paper (Brown et al. 2020). Case and
    signs do not count. A statement of fewer words is a hit where the other is equal.

    Args:
        statements: Our problems' texts by their ids.
        files: Problem files, as :func:`~treerl.loading.load_problems` reads them; in a mapping by
            the names that the report calls them.
        n: Words of an n-gram.

    Raises:
        ProblemError: A file cannot be read.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    index: dict[Gram, list[str]] = {}
    sizes: dict[str, int] = {}
    for problem_id, text in statements.items():
        grams = set(_grams(tuple(_WORD.findall(text.casefold())), n))
        sizes[problem_id] = len(grams)
        for gram in grams:
            index.setdefault(gram, []).append(problem_id)
    found: list[Overlap] = []
    per_file: list[FileOverlap] = []
    named = files.items() if isinstance(files, Mapping) else [(str(f), f) for f in files]
    for name, file in named:
        others = load_problems(file)
        best: dict[str, Overlap] = {}
        for other in others:
            grams = set(_grams(tuple(_WORD.findall(other.text.casefold())), n))
            shared = Counter(ours for gram in grams for ours in index.get(gram, ()))
            for ours, number in shared.items():
                if ours not in best or number > best[ours].shared:
                    best[ours] = Overlap(ours, name, other.id, number, sizes[ours])
        per_file.append(FileOverlap(name, len(others), len(best)))
        found += [best[ours] for ours in statements if ours in best]
    return Contamination(n, len(statements), tuple(per_file), tuple(found))


def _grams(words: Gram, n: int) -> Iterator[Gram]:
    """Yield the n-grams of a text; a shorter text is one gram, an empty one none."""
    if 0 < len(words) < n:
        yield words
    for i in range(len(words) - n + 1):
        yield words[i : i + n]
