"""Deterministic series of problems of the words lab, one random stream for each problem.

A problem depends on (seed, split, index) alone, never on the others that are drawn. Train and held
problems are disjoint for every pair of seeds: which split a story may serve is read off a hash of
its structure (kind, names, numbers), which is the same for both template sets.
"""

import hashlib
import json
import random
from collections.abc import Iterator
from typing import Final, Literal

from treerl.lab.words import stories
from treerl.lab.words.problem import Quantity, Split, WordsProblem
from treerl.lab.words.templates import (
    ANSWER,
    NAMES,
    OBJECTIVE,
    QUESTION,
    THINGS,
    VERSION,
    TemplateSet,
)

Templates = Literal["PQ", "P", "Q"]
HELD_SHARE: Final = 0.1
"""Share of all stories that are reserved for the held split."""
MAX_ATTEMPTS: Final = 10_000


def _spec_sha256() -> str:
    """Hash the texts and the code that tells the stories: what the frozen weights were made for."""
    spec = {
        "version": VERSION,
        "names": NAMES,
        "things": THINGS,
        "question": QUESTION,
        "objective": OBJECTIVE,
        "answer": ANSWER,
        "held_share": HELD_SHARE,
        "stories": [[name, weight] for name, _, weight in stories.STORIES],
        "limits": [
            stories.LIMIT,
            stories.MAX_GIVEN,
            stories.MIN_STEPS,
            stories.MAX_STEPS,
            stories.DISTRACTOR_RATE,
        ],
    }
    text = json.dumps(spec, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


SPEC_SHA256: Final = _spec_sha256()


def _needed(quantities: list[Quantity], asked: str) -> frozenset[str]:
    """Return the keys of all quantities the asked one depends on, itself included."""
    by_key = {q.key: q for q in quantities}
    needed: set[str] = set()
    todo = [asked]
    while todo:
        key = todo.pop()
        if key not in needed:
            needed.add(key)
            todo.extend(by_key[key].operands)
    return frozenset(needed)


def _split_of(kind: str, draft: stories.Draft) -> Split:
    """Return the split a story belongs to; a function of its structure, not of its wording."""
    graph = [[q.key, q.op, q.operands, q.value] for q in draft.quantities]
    names = [draft.slots["name"], draft.slots["friend"], draft.slots["things"]]
    digest = hashlib.sha256(json.dumps([kind, names, graph]).encode()).digest()
    return "held" if int.from_bytes(digest[:4], "big") < HELD_SHARE * 2**32 else "train"


def problem(
    index: int, *, split: Split = "held", seed: int = 0, templates: Templates = "PQ"
) -> WordsProblem:
    """Return one problem.

    Args:
        index: Number of the problem, from 0.
        split: `train` or `held`; no problem is in both.
        seed: Another seed, another series.
        templates: `P` or `Q` forces the template set; `PQ` draws it. The story, its numbers and
            the variants of the wording do not depend on it.

    Raises:
        ValueError: `index` is negative, or `split` or `templates` is unknown.
    """
    if index < 0 or split not in ("train", "held") or templates not in ("PQ", "P", "Q"):
        raise ValueError(f"no such problem: {index=}, {split=}, {templates=}")
    rng = random.Random(f"treerl words {VERSION}|{seed}|{split}|{index}")
    drawn: TemplateSet = "P" if rng.random() < 0.5 else "Q"
    which: TemplateSet = drawn if templates == "PQ" else "P" if templates == "P" else "Q"
    weights = [weight for _, _, weight in stories.STORIES]
    for _ in range(MAX_ATTEMPTS):
        kind, tell, _ = rng.choices(stories.STORIES, weights)[0]
        draft = stories.Draft(rng, which)
        try:
            asked = tell(draft)
        except stories.Reject:
            continue
        needed = _needed(draft.quantities, asked)
        quantities = tuple(
            Quantity(q.key, q.op, q.operands, q.value, q.objectives, q.key in needed)
            for q in draft.quantities
        )
        steps = sum(q.needed and q.op != "given" for q in quantities)
        if not stories.MIN_STEPS <= steps <= stories.MAX_STEPS:
            continue
        if _split_of(kind, draft) != split:
            continue
        series = "" if seed == 0 else f"s{seed}-"
        return WordsProblem(
            id=f"words-{split}-{series}{index:06d}{which}",
            question=" ".join(draft.sentences),
            answer=str(draft.value(asked)),
            quantities=quantities,
            asked=asked,
            templates=which,
            kind=kind,
        )
    raise AssertionError("unreachable: a draw is accepted with a probability of some percent")


def problems(
    n: int,
    *,
    split: Split = "held",
    seed: int = 0,
    templates: Templates = "PQ",
    start: int = 0,
) -> list[WordsProblem]:
    """Return the problems `start .. start + n - 1` of a series (see `problem`).

    Raises:
        ValueError: `n` or `start` is negative, or `split` or `templates` is unknown.
    """
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    return [problem(start + i, split=split, seed=seed, templates=templates) for i in range(n)]


def stream(
    *, split: Split, seed: int = 0, templates: Templates = "PQ", start: int = 0
) -> Iterator[WordsProblem]:
    """Yield the problems of a series from `start` on, without end."""
    index = start
    while True:
        yield problem(index, split=split, seed=seed, templates=templates)
        index += 1
