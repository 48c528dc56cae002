"""Runs of rollouts: exact rows, honest totals, the same bytes whatever happened on the way."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from treerl.advantage import ESTIMATORS, estimator
from treerl.engines.base import Request
from treerl.engines.scripted import ByteTokenizer, ScriptedEngine, jitter
from treerl.errors import ConfigError, EngineDied, StoreMismatch
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.runreader import RunReader
from treerl.search.rollout_totals import majority_right, readable_answer
from treerl.search.rollouts import Rollouts
from treerl.search.treepo_config import Gate
from treerl.search.treepo_presets import preset
from treerl.search.treepo_summary import branch_weights, sibling_shares, summarise
from treerl.tree import Tree

TOKENIZER = ByteTokenizer()
SEARCH = preset("treerl", width=8, k0=4, segment_tokens=6, max_tokens=90)


def walks(request: Request) -> list[int]:
    """Add dice to a sum until it passes 9, then say it: a function of context and seed."""
    text = TOKENIZER.decode(request.prompt_ids).partition("\n")[2]
    rng, said = Random(request.seed), ""
    while True:
        whole = text + said
        if "Answer" in whole:
            target = "Answer: " + ("1" if whole.count("+") % 2 else "0")
            rest = target[len(whole) - whole.index("Answer") :]
            return [*TOKENIZER.encode(said + rest), TOKENIZER.eos_id]
        said += "Answer" if rng.random() < 0.15 else f"+{rng.randint(1, 2)}"


def is_one(problem: Problem, text: str, leaf: Leaf) -> float:
    return float(text.endswith("Answer: 1"))


def problems(n: int) -> list[Problem]:
    return [Problem.from_text(f"p{i}", "Roll.", "1") for i in range(n)]


def roll(out: Path, n: int = 6, *, engine: Any = None, **options: Any) -> dict[str, Any]:
    rollouts = Rollouts(**{"reward": is_one, "search": SEARCH, **options})
    return rollouts.run(problems(n), engine or ScriptedEngine(walks), out)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "rows").to_pylist()
    return found


def digests(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "volatile.jsonl")
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    roll(out)
    return out


# --- rows -----------------------------------------------------------------------------------------


def test_a_row_holds_its_leafs_path_exactly(whole: Path) -> None:
    rows = iter(rows_of(whole))
    shared = 0
    for tree in RunReader(whole).trees():
        omega = branch_weights(tree)
        for leaf in tree.leaves():
            row = next(rows)
            path, node = [], leaf
            while node.parent is not None:
                path.append(node)
                node = node.parent
            path.reverse()
            assert row["problem_id"] == row["group"] == tree.problem.id
            assert row["leaf"] == leaf.index
            assert tuple(row["prompt_ids"]) == tree.prompt_ids
            assert tuple(row["completion_ids"]) == tree.path_ids(leaf)
            assert row["logprobs"] == [x for n in path for x in n.logprobs]
            assert row["nodes"] == [n.index for n in path for _ in n.token_ids]
            assert row["text"] == TOKENIZER.decode(tree.path_ids(leaf))
            assert row["text"] == "".join(n.text or "" for n in path)
            assert row["omega"] == omega[leaf.index]
            assert (row["reward"], row["finish_reason"]) == (leaf.reward, leaf.finish_reason)
            assert row["multiplicity"] == leaf.multiplicity
            shared += len(path) > 1
    assert next(rows, None) is None
    assert shared


def test_the_weights_of_a_tree_add_up_to_one(whole: Path) -> None:
    total: dict[str, float] = defaultdict(float)
    for row in rows_of(whole):
        total[row["problem_id"]] += row["omega"]
    assert len(total) == 6
    assert list(total.values()) == pytest.approx([1.0] * 6)


def test_omega_advantages_are_the_estimators_own(whole: Path) -> None:
    """Each shared token counts once, with the value of its node."""
    rows = rows_of(whole)
    for tree in RunReader(whole).trees():
        expected = estimator("omega")(tree.arrays(), sibling_shares(tree))
        own = [row for row in rows if row["group"] == tree.problem.id]
        weight: dict[int, float] = defaultdict(float)
        for row in own:
            for n, a, w in zip(row["nodes"], row["advantages"], row["weights"], strict=True):
                assert a == expected.values[0][n]
                weight[n] += w
        for node in {n for row in own for n in row["nodes"]}:
            times = len(tree.nodes[node].token_ids) * expected.mask[0][node]
            assert weight[node] == pytest.approx(times)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_writes_rows(name: str, tmp_path: Path) -> None:
    roll(tmp_path / "run", 3, advantage=name)
    rows = rows_of(tmp_path / "run")
    assert len({row["problem_id"] for row in rows}) == 3
    for row in rows:
        masked = [a for a, m in zip(row["advantages"], row["loss_mask"], strict=True) if not m]
        assert not any(masked)
        assert len(row["advantages"]) == len(row["completion_ids"]) == len(row["weights"])
    assert any(a for row in rows for a in row["advantages"])


def test_whitening_is_over_the_whole_run(tmp_path: Path) -> None:
    """One problem alone would be whitened to mean 0; the run is, its problems are not."""
    roll(tmp_path / "run", 6, advantage="reinforce_pp")
    rows = rows_of(tmp_path / "run")
    values = np.concatenate([row["advantages"] for row in rows])
    weights = np.concatenate([row["weights"] for row in rows])
    assert np.average(values, weights=weights) == pytest.approx(0.0, abs=1e-9)
    assert np.average(values**2, weights=weights) == pytest.approx(1.0, rel=1e-2)
    by_problem = [
        np.average(
            np.concatenate([r["advantages"] for r in rows if r["group"] == name]),
            weights=np.concatenate([r["weights"] for r in rows if r["group"] == name]),
        )
        for name in sorted({row["group"] for row in rows})
    ]
    assert max(map(abs, by_problem)) > 0.01


def test_without_an_estimator_there_are_no_advantages(tmp_path: Path) -> None:
    roll(tmp_path / "run", 2, advantage=None)
    names = set(rows_of(tmp_path / "run")[0])
    assert not names & {"advantages", "weights", "loss_mask"}
    assert {"completion_ids", "logprobs", "reward", "omega"} <= names


def test_late_samples_have_rows_without_weight(tmp_path: Path) -> None:
    search = preset("tree_grpo", segment_tokens=6, max_tokens=90)
    summary = roll(tmp_path / "run", 6, search=search)
    rows = rows_of(tmp_path / "run")
    late = [row for row in rows if row["late"] == row["multiplicity"]]
    assert late
    assert all(row["omega"] == 0 for row in late)
    assert all(row["omega"] > 0 for row in rows if row not in late)
    assert sum(row["multiplicity"] for row in rows) == summary["leaves"] > 6 * 2


def test_datasets_reads_the_rows(whole: Path, tmp_path: Path) -> None:
    import datasets

    files = sorted(map(str, (whole / "rows").glob("*.parquet")))
    loaded = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path)
    )
    assert loaded[0]["completion_ids"] == rows_of(whole)[0]["completion_ids"]
    assert len(loaded) == len(rows_of(whole))


# --- totals ---------------------------------------------------------------------------------------


def test_the_summary_counts_what_the_folder_holds(whole: Path) -> None:
    reader = RunReader(whole)
    summary = reader.summary()
    assert summary is not None
    trees = list(reader.trees())
    each = [summarise(tree) for tree in trees]
    cost = summary["cost"]
    assert summary["problems"] == summary["trees"] == 6
    assert summary["leaves"] == sum(s.leaves for s in each)
    assert cost["generated"] == sum(s.cost.generated for s in each)
    assert cost["generated"] == cost["kept"] + cost["duplicates"] + cost["surplus"]
    assert cost["saved"] == 1 - cost["generated"] / cost["flat_equivalent"]
    flat = sum(s.leaves * (s.mean_tokens or 0.0) for s in each)
    assert cost["relative_cost"] == pytest.approx(cost["generated"] / flat)
    assert summary["mean_reward"] == pytest.approx(np.mean([s.value for s in each]))
    assert summary["uniform_mean_reward"] == pytest.approx(np.mean([s.uniform_value for s in each]))
    assert summary["ess"] == pytest.approx(np.mean([s.ess for s in each]))
    assert summary["pass_at_w"] == np.mean([_best(tree) for tree in trees])
    assert summary["maj_at_w"] == pytest.approx(np.mean([_majority(tree) for tree in trees]))
    assert sum(summary["finish"].values()) == summary["leaves"]
    assert set(summary["finish"]) == {"eos", "length"}


def _best(tree: Tree) -> float:
    return max(leaf.reward or 0.0 for leaf in tree.leaves())


def _majority(tree: Tree) -> float:
    """Return whether 1 is said more often than 0; paths cut short say neither."""
    said = {"0": 0, "1": 0}
    for leaf in tree.leaves():
        _, marker, answer = TOKENIZER.decode(tree.path_ids(leaf)).partition("Answer: ")
        if marker:
            said[answer] += leaf.multiplicity
    return 0.5 if said["0"] == said["1"] else float(said["1"] > said["0"])


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([], 0.0),
        ([(None, True, 5)], 0.0),
        ([("7", True, 2), ("8", False, 1), ("9", False, 1)], 1.0),
        ([("7", True, 1), ("7.0", True, 1), ("8", False, 2)], 0.5),
        ([("7", True, 1), ("8", False, 1), ("9", False, 1)], 1 / 3),
        ([("7", True, 1), ("8", False, 2)], 0.0),
    ],
)
def test_the_majority_by_hand(votes: list[tuple[str | None, bool, int]], expected: float) -> None:
    assert majority_right(votes) == pytest.approx(expected)


def test_answers_are_read_as_the_verifier_reads_them() -> None:
    assert readable_answer("so\nAnswer: 1,000") == readable_answer(r"thus \boxed{1000}") == "1000"
    assert readable_answer("I do not know") is None
    assert readable_answer("a\nb\nc") is None


def test_rewards_that_nobody_gave_are_no_zeros(tmp_path: Path) -> None:
    def none(problem: Problem, text: str, leaf: Leaf) -> None:
        return None

    summary = roll(tmp_path / "run", 2, reward=none)
    assert summary["mean_reward"] is summary["pass_at_w"] is summary["maj_at_w"] is None
    assert all(row["reward"] is None for row in rows_of(tmp_path / "run"))


# --- resume and failures --------------------------------------------------------------------------


def test_arrival_order_and_concurrency_leave_no_trace(whole: Path, tmp_path: Path) -> None:
    slow = ScriptedEngine(walks, latency=jitter(0.1, 9.0), max_concurrency=2)
    roll(tmp_path / "run", engine=slow, active=3)
    assert digests(tmp_path / "run") == digests(whole)


def test_a_dead_engine_leaves_a_folder_to_go_on_with(whole: Path, tmp_path: Path) -> None:
    dying = ScriptedEngine(walks, dies_after=150, latency=jitter(0.1, 3.0))
    with pytest.raises(EngineDied):
        roll(tmp_path / "run", engine=dying, active=2)
    assert not RunReader(tmp_path / "run").finished
    done = sum(1 for _ in RunReader(tmp_path / "run").trees())
    assert 0 < done < 6
    roll(tmp_path / "run")
    assert digests(tmp_path / "run") == digests(whole)


def test_a_run_killed_while_its_rows_were_written_ends_the_same(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treerl.search import rollouts

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rollouts, "write_rows", stop)
        with pytest.raises(KeyboardInterrupt):
            roll(tmp_path / "run")
    assert not RunReader(tmp_path / "run").finished
    roll(tmp_path / "run", engine=ScriptedEngine(walks, dies_after=0))  # nothing is asked again
    assert digests(tmp_path / "run") == digests(whole)


def test_failures_are_records_and_problems_are_not_lost(tmp_path: Path) -> None:
    def fails(problem: Problem, text: str, leaf: Leaf) -> float:
        raise ValueError("no idea")

    mixed = [*problems(2), Problem.from_text("long", "x" * 300, "1")]
    engine = ScriptedEngine(walks, max_context=120)
    summary = Rollouts(reward=fails, search=SEARCH).run(mixed, engine, tmp_path / "run")
    reasons = [str(f["reason"]) for f in RunReader(tmp_path / "run").failures()]
    assert summary["problems"] == 3
    assert summary["trees"] == 2
    assert summary["failures"] == len(reasons)
    assert any("prompt has" in reason for reason in reasons)
    assert any("no idea" in reason for reason in reasons)
    assert {row["problem_id"] for row in rows_of(tmp_path / "run")} == {"p0", "p1"}


def test_a_run_without_a_tree_is_whole_too(tmp_path: Path) -> None:
    engine = ScriptedEngine(walks, max_context=3)
    summary = roll(tmp_path / "run", 2, engine=engine)
    assert summary["trees"] == summary["leaves"] == 0
    assert summary["cost"]["saved"] is summary["mean_reward"] is None
    assert rows_of(tmp_path / "run") == []
    assert roll(tmp_path / "run", 2, engine=engine) == summary


# --- what is refused ------------------------------------------------------------------------------


def test_policies_with_equal_fields_are_different_runs(tmp_path: Path) -> None:
    """A manifest names the classes of a search's policies, not their numbers alone."""
    from treerl.search.treepo_fallback import MinLogprobToken, RandomSegment

    manifests = [
        json.dumps(
            Rollouts(reward=is_one, search=preset("treepo_paper", fallback=fallback)).manifest(
                problems(1), ScriptedEngine(walks)
            )
        )
        for fallback in (RandomSegment(copies=2), MinLogprobToken(copies=2))
    ]
    assert "RandomSegment" in manifests[0]
    assert "MinLogprobToken" in manifests[1]


def test_another_estimator_is_another_run(whole: Path) -> None:
    with pytest.raises(StoreMismatch, match="advantage"):
        roll(whole, advantage="grpo")


def test_what_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'omega'"):
        Rollouts(reward=is_one, advantage="omegaa")
    with pytest.raises(ConfigError, match="asks a scorer"):
        Rollouts(reward=is_one, search=preset("treerl", gate=Gate(role="scorer")))
    with pytest.raises(ConfigError, match="ids must be unique"):
        Rollouts(reward=is_one).run(
            [*problems(1), *problems(1)], ScriptedEngine(walks), tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()
