"""Scripted worlds shared by tests: policies and rewards whose truth is a function of the text."""

from __future__ import annotations

import random

from treerl.engines.base import Request
from treerl.engines.scripted import ByteTokenizer
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.search.mcts import MCTSConfig
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps

TOKENIZER = ByteTokenizer()


def dice_policy(request: Request) -> str:
    """Say one to three dice rolls, a line each, then an answer of 0 or 1."""
    rng = random.Random(request.seed)
    rolls = "".join(f"roll {rng.randint(1, 4)}\n" for _ in range(rng.randint(1, 3)))
    return f"{rolls}Answer: {rng.randint(0, 1)}\n"


def ends_in_one(problem: Problem, text: str, leaf: Leaf) -> float:
    """Reward answers of 1."""
    return float(text.strip().endswith("Answer: 1"))


def problems(n: int) -> list[Problem]:
    """Return n problems that differ in their ids only."""
    return [Problem.from_text(f"p{i}", "Roll.", "1") for i in range(n)]


def small_search(**options: object) -> MCTSConfig:
    """Return a short search over lines."""
    sampling = Sampling(steps=PlainSteps("\n"), max_tokens=200, verify_steps=False)
    return MCTSConfig(**{"simulations": 12, "sampling": sampling, **options})  # type: ignore[arg-type]
