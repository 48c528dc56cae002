"""Trees worth looking at: one whose every string attacks the page, and a labelled run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from treerl.prm.fuse import Fusion
from treerl.prm.label import label_tree
from treerl.problem import Problem
from treerl.store import ProblemResult, RunFolder
from treerl.tree import Tree
from treerl.verdict import Claim, ClaimVerdict, StepVerdict, ToolCall, Verdict

HOSTILE = (
    "</script><script>document.title='pwned'</script><!-- <img src=x onerror=\"document.title=1\">"
    " ]]> {{script}} {{policy}} <svg onload=alert(1)> <a href=javascript:alert(1)>x</a>"
    " \u2028\u2029 \ud800 \x00\x1b[31m '\"`&amp; </title><style>*{display:none}</style>"
)


def _refuted(text: str) -> StepVerdict:
    call = ToolCall(text, text, text, text, text, text)
    claim = ClaimVerdict(
        Claim(text, text, (0, 1)), Verdict.REFUTED, text, "exact", text, calls=(call,)
    )
    return StepVerdict(Verdict.REFUTED, text, "exact", (claim,), (text,), text)


def _hostile_tree() -> Tree:
    """Every string of it is HOSTILE; its numbers are those that JSON has no word for."""
    shown = "".join(c for c in HOSTILE if c.isprintable())  # what an id may hold
    messages = ({"role": HOSTILE, "content": HOSTILE}, {"role": "user", "content": HOSTILE})
    tree = Tree(Problem(shown, messages, HOSTILE), (1, 2))
    step = tree.add(tree.root, (3,), (-1.0,), text=HOSTILE, policy_version=HOSTILE)
    step.verdict = _refuted(HOSTILE)
    step.meta = {HOSTILE: [HOSTILE, float("nan")]}
    failed = tree.add(tree.root, (), finish_reason="error")
    failed.error, failed.multiplicity = HOSTILE, 0
    leaf = tree.add(step, (4,), (float("-inf"),), text=HOSTILE, finish_reason="eos")
    leaf.reward, leaf.value_sum, leaf.visits = float("nan"), float("inf"), 1
    return tree


def _sum_tree(number: int) -> Tree:
    """Two solutions of two steps; the second ends wrong."""
    tree = Tree(Problem.from_text(f"p{number}", f"What is {number} + 1?", str(number + 1)), (1, 2))
    first = tree.add(tree.root, (5, 6), (-0.5, -0.25), text=f"{number} + 1 is asked", seed=2**62)
    good = tree.add(first, (7, 11), (-0.1, -0.2), text=f"Answer: {number + 1}", finish_reason="eos")
    bad = tree.add(first, (8, 9, 10), (-1.0,) * 3, text="Answer: 99", finish_reason="length")
    for leaf, reward in ((good, 1.0), (bad, 0.0)):
        leaf.reward, leaf.correct, leaf.total, leaf.visits = reward, int(reward), 1, 1
        leaf.value_sum = 2 * reward - 1
    first.correct, first.total, first.visits = 1, 2, 2
    return tree


def _write_run(
    path: Path, count: int, *, kind: str = "label", finish: bool = True, **more: object
) -> Path:
    manifest = {
        "kind": kind,
        "problems": {"count": count},
        "seed": 3,
        "engine": {"model": "some/model"},
        "search": {"method": "MCTSConfig"},
        **more,
    }
    with RunFolder(path, manifest) as folder:
        for i in range(count):
            tree = _sum_tree(i)
            fusion = Fusion("mathshepherd", n_min=1)
            labels = [label.to_json() for label in label_tree(tree, fusion)]
            folder.add(ProblemResult(i, tree, labels=labels if kind == "label" else []))
        if finish:
            folder.finish(lambda results: {"problems": len(list(results)), "ledger": {}})
    return path


# What follows hands the helpers above to the tests, which cannot import a conftest.


@pytest.fixture(scope="session")
def hostile() -> str:
    """A text with all that could break out of a page."""
    return HOSTILE


@pytest.fixture(scope="session")
def hostile_tree() -> Tree:
    """A tree of hostile text."""
    return _hostile_tree()


@pytest.fixture(scope="session")
def sum_tree() -> Callable[[int], Tree]:
    """Makes a small tree with one right solution."""
    return _sum_tree


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """Writes a run folder: (path, count, kind=, finish=, and more of the manifest)."""
    return _write_run


@pytest.fixture
def labelled_run(tmp_path: Path) -> Path:
    """Five problems, finished."""
    return _write_run(tmp_path / "run", 5)
