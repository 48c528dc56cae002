"""The labelling run: whole, resumable, the same bytes whatever happened on the way."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from worlds import dice_policy, ends_in_one, problems, small_search

from treerl.engines.base import Request
from treerl.engines.scripted import ScriptedEngine, jitter
from treerl.errors import ConfigError, EngineDied, StoreMismatch
from treerl.prm.fuse import Fusion
from treerl.prm.label import StepLabel
from treerl.prm.pipeline import Labeler
from treerl.problem import Problem
from treerl.protocols import Leaf, StepScore
from treerl.search.mcts import MCTSConfig
from treerl.search.omega import OmegaPRMConfig
from treerl.search.prefix_mc import PrefixMCConfig
from treerl.search.root_call import ROOT_INSTRUCTION
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.steps_json import ObjectiveSteps
from treerl.store import RunReader
from treerl.verdict import StepVerdict, Verdict

LABELER = Labeler(reward=ends_in_one, search=small_search())


def digests(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "volatile.jsonl")
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def label(out: Path, n: int = 6, **engine: object) -> dict[str, str]:
    LABELER.run(problems(n), ScriptedEngine(dice_policy, **engine), out)
    return digests(out)


def test_the_summary_counts_what_the_folder_holds(tmp_path) -> None:
    seen = []
    summary = LABELER.run(
        problems(6), ScriptedEngine(dice_policy), tmp_path / "run", on_result=seen.append
    )
    reader = RunReader(tmp_path / "run")
    trees = list(reader.trees())
    labels = [StepLabel.from_json(x) for x in reader.labels()]
    assert summary == reader.summary()
    assert summary["problems"] == len(trees) == len(seen) == 6
    assert summary["nodes"] == sum(map(len, trees))
    assert summary["labels"]["right"] == sum(x.label == 1 for x in labels)
    assert summary["labels"]["wrong"] == sum(x.label == 0 for x in labels)
    assert sum(summary["labels"].values()) == len(labels)
    ledger = summary["ledger"]
    assert ledger["generated"] == sum(t.kept_tokens() for t in trees) + ledger["discarded"]
    assert summary["rollouts"] == sum(t.root.total for t in trees) > 0


def test_arrival_order_and_concurrency_leave_no_trace(tmp_path) -> None:
    want = label(tmp_path / "a")
    assert label(tmp_path / "b", latency=jitter(0.1, 9.0), max_concurrency=2) == want


def test_a_dead_engine_leaves_a_folder_to_go_on_with(tmp_path) -> None:
    want = label(tmp_path / "straight")
    with pytest.raises(EngineDied):
        label(tmp_path / "run", dies_after=90, latency=jitter(0.1, 3.0))
    assert not RunReader(tmp_path / "run").finished
    assert label(tmp_path / "run") == want


def test_failures_are_records_and_problems_are_not_lost(tmp_path) -> None:
    engine = ScriptedEngine(dice_policy, faults=0.3, fault_retryable=False)
    summary = LABELER.run(problems(8), engine, tmp_path / "run")
    failures = list(RunReader(tmp_path / "run").failures())
    assert summary["problems"] == 8
    assert summary["failures"] == len(failures) == summary["ledger"]["failed_requests"] > 0
    assert all(f["reason"] and f["problem_id"] and "node" in f for f in failures)


def test_a_prompt_without_room_is_a_record_and_the_run_goes_on(tmp_path) -> None:
    long = Problem.from_text("long", "Roll. " * 200, "1")
    engine = ScriptedEngine(dice_policy, max_context=300)
    summary = LABELER.run([*problems(2), long], engine, tmp_path / "run")
    (failure,) = RunReader(tmp_path / "run").failures()
    assert failure["problem_id"] == "long"
    assert "context 300" in failure["reason"]
    assert summary["problems"] == 3
    assert summary["failures"] == 1


def test_duplicate_ids_are_refused_before_anything_is_written(tmp_path) -> None:
    with pytest.raises(ConfigError, match="two problems have the id 'p0'"):
        LABELER.run(problems(1) * 2, ScriptedEngine(dice_policy), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_configuration_or_other_problems_are_refused(tmp_path) -> None:
    label(tmp_path / "run")
    other = Labeler(reward=ends_in_one, search=small_search(), seed=1)
    with pytest.raises(StoreMismatch, match="'seed' is 0 there and 1 now"):
        other.run(problems(6), ScriptedEngine(dice_policy), tmp_path / "run")
    with pytest.raises(StoreMismatch, match="'problems.count' is 6 there and 7 now"):
        LABELER.run(problems(7), ScriptedEngine(dice_policy), tmp_path / "run")


def test_other_solutions_of_the_same_problem_are_another_run(tmp_path) -> None:
    search = PrefixMCConfig(rollouts=2, sampling=LABELER.search.sampling)
    labeler = Labeler(reward=ends_in_one, search=search)
    for i, steps in enumerate([["a", "Answer: 1"], ["b", "Answer: 0"]]):
        given = Problem.from_text("g", "Roll.", "1", metadata={"solutions": [steps]})
        if i == 0:
            labeler.run([given], ScriptedEngine(dice_policy), tmp_path / "run")
        else:
            with pytest.raises(StoreMismatch, match="problems"):
                labeler.run([given], ScriptedEngine(dice_policy), tmp_path / "run")


@pytest.mark.parametrize("value", [float("nan"), {1, 2}])
def test_metadata_without_json_form_is_refused_before_anything_is_grown(tmp_path, value) -> None:
    problem = Problem.from_text("odd", "Roll.", "1", metadata={"x": value})
    with pytest.raises(ConfigError, match="metadata of problem 'odd' has no JSON form"):
        LABELER.run([problem], ScriptedEngine(dice_policy), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_prompt_that_cannot_be_encoded_is_a_record(tmp_path) -> None:
    odd = Problem.from_text("odd", "half a pair: \ud800", "1")
    summary = LABELER.run([*problems(1), odd], ScriptedEngine(dice_policy), tmp_path / "run")
    (failure,) = RunReader(tmp_path / "run").failures()
    assert failure["problem_id"] == "odd"
    assert summary["problems"] == 2


def test_the_manifest_holds_every_parameter(tmp_path) -> None:
    label(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["search"]["simulations"] == 12
    assert manifest["search"]["sampling"]["steps"] == {"format": "plain", "delimiter": "\n"}
    assert manifest["fusion"] == {"rule": "groundedprm", "n_min": 4, "progress": 0.8}
    assert manifest["engine"] == {"engine": "scripted"}
    assert manifest["reward"] == "worlds:ends_in_one"


def test_a_reward_object_is_named_by_its_class(tmp_path) -> None:
    class Nameless:
        def __call__(self, problem: Problem, text: str, leaf: Leaf) -> float:
            return 1.0

    manifest = replace(LABELER, reward=Nameless()).manifest(
        problems(1), ScriptedEngine(dice_policy)
    )
    assert manifest["reward"].endswith("Nameless")


@pytest.mark.parametrize("name", ["right_above", "discount", "exploration"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_search_options_are_finite(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        MCTSConfig(**{name: value})


def test_a_label_without_evidence_has_no_belief(tmp_path) -> None:
    given = Problem.from_text("g", "Roll.", "1", metadata={"solutions": [["roll 1", "Answer: 1"]]})
    search = PrefixMCConfig(rollouts=0, sampling=LABELER.search.sampling)
    Labeler(reward=ends_in_one, search=search).run(
        [given], ScriptedEngine(dice_policy), tmp_path / "run"
    )
    first, last = [StepLabel.from_json(x) for x in RunReader(tmp_path / "run").labels()]
    assert (first.label, first.soft) == (None, None)
    assert last.soft is not None


def test_prefix_monte_carlo_labels_given_solutions_and_nothing_else(tmp_path) -> None:
    given = Problem.from_text(
        "g", "Roll.", "1", metadata={"solutions": [["roll 1", "roll 2", "Answer: 0"]]}
    )
    search = PrefixMCConfig(rollouts=6, sampling=LABELER.search.sampling)
    labeler = Labeler(reward=ends_in_one, search=search)
    labeler.run([given], ScriptedEngine(dice_policy), tmp_path / "run")
    labels = [StepLabel.from_json(x) for x in RunReader(tmp_path / "run").labels()]
    assert [x.step for x in labels] == ["roll 1", "roll 2", "Answer: 0"]
    assert [x.total for x in labels] == [6, 6, 1]
    assert labels[-1].label in (0, None)


def test_the_summary_counts_rollouts_and_no_given_solution(tmp_path) -> None:
    given = Problem.from_text("g", "Roll.", "1", metadata={"solutions": [["roll 1", "Answer: 1"]]})
    search = PrefixMCConfig(rollouts=6, sampling=LABELER.search.sampling)
    labeler = Labeler(reward=ends_in_one, search=search)
    summary = labeler.run([given], ScriptedEngine(dice_policy), tmp_path / "run")
    (tree,) = RunReader(tmp_path / "run").trees()
    right = sum(leaf.multiplicity for leaf in tree.leaves() if leaf.reward == 1)
    assert summary["rollouts"] == 6
    assert summary["right_rollouts"] == right - 1


def test_without_rollouts_given_solutions_are_scored_and_nothing_is_generated(tmp_path) -> None:
    given = Problem.from_text("g", "Roll.", "1", metadata={"solutions": [["roll 1", "Answer: 1"]]})
    search = PrefixMCConfig(rollouts=0, sampling=LABELER.search.sampling)
    labeler = Labeler(reward=ends_in_one, search=search)
    summary = labeler.run([given], ScriptedEngine(dice_policy), tmp_path / "run")
    assert summary["ledger"]["requests"] == summary["rollouts"] == 0
    labels = [StepLabel.from_json(x) for x in RunReader(tmp_path / "run").labels()]
    assert [(x.correct, x.total) for x in labels] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("solutions", ["roll 1", ["roll 1"], [[]], [[1]], [["a"], "b"], {"a": []}])
def test_given_solutions_of_another_shape_are_refused(tmp_path, solutions) -> None:
    given = Problem.from_text("g", "Roll.", "1", metadata={"solutions": solutions})
    search = PrefixMCConfig(rollouts=2, sampling=LABELER.search.sampling)
    with pytest.raises(ConfigError, match="'g' must be a list of solutions"):
        Labeler(reward=ends_in_one, search=search).run(
            [given], ScriptedEngine(dice_policy), tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_omegaprm_labels_what_it_searched(tmp_path) -> None:
    search = OmegaPRMConfig(rollouts=6, sampling=LABELER.search.sampling)
    labeler = Labeler(reward=ends_in_one, search=search)
    summary = labeler.run(problems(4), ScriptedEngine(dice_policy), tmp_path / "run")
    assert summary["labels"]["right"] > 0
    assert summary["labels"]["wrong"] > 0


KILLED = """
import sys
from worlds import dice_policy, ends_in_one, problems, small_search
from treerl.engines.scripted import ScriptedEngine
from treerl.prm.pipeline import Labeler
import time
labeler = Labeler(reward=ends_in_one, search=small_search(), active=4)
print("go", flush=True)
labeler.run(problems(60), ScriptedEngine(dice_policy), sys.argv[1])
"""


def test_kill_9_at_random_moments_loses_and_doubles_nothing(tmp_path) -> None:
    want = label(tmp_path / "straight", 60)
    rng = random.Random(0)
    support = str(Path(__file__).parents[1] / "support")
    run = tmp_path / "run"
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(run)],
            env={"PYTHONPATH": support, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        time.sleep(rng.uniform(0.0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert label(run, 60) == want


class ByLength:
    """A judge that refutes every step of three characters, and knows nothing of others."""

    name = "by-length/1"

    def verify(self, step: str, *, problem: str = "", previous_steps=()) -> StepVerdict:
        refuted = len(step) == 6 and step.endswith("4")
        word = Verdict.REFUTED if refuted else Verdict.UNVERIFIABLE
        return StepVerdict(word, "by length", "exact" if refuted else None)


def test_a_consensus_run_drops_whole_solutions(tmp_path) -> None:
    sampling = Sampling(steps=PlainSteps("\n"), max_tokens=200)
    labeler = Labeler(
        reward=ends_in_one,
        verifier=ByLength(),
        search=PrefixMCConfig(rollouts=4, solutions=4, sampling=sampling),
        fusion=Fusion("consensus"),
    )
    labeler.run(problems(8), ScriptedEngine(dice_policy), tmp_path)
    labels = list(RunReader(tmp_path).labels())
    sources = {x["label_source"] for x in labels}
    assert sources >= {"mc", "no_consensus"}
    assert {x["label"] for x in labels if x["label_source"] == "no_consensus"} == {None}
    assert json.loads((tmp_path / "manifest.json").read_text())["fusion"]["rule"] == "consensus"


def test_consensus_without_a_judge_is_refused() -> None:
    with pytest.raises(ConfigError, match="give the Labeler a verifier"):
        Labeler(reward=ends_in_one, search=PrefixMCConfig(), fusion=Fusion("consensus"))
    with pytest.raises(ConfigError, match="leave verify_steps on"):
        Labeler(
            reward=ends_in_one,
            verifier=ByLength(),
            search=small_search(),
            fusion=Fusion("consensus"),
        )


@pytest.mark.parametrize(
    "search", [MCTSConfig(simulations=6), PrefixMCConfig(estimate_root=True), OmegaPRMConfig()]
)
def test_objective_steps_with_a_root_call_run_under_every_search(tmp_path, search) -> None:
    def policy(request: Request) -> str:
        prompt = bytes(t for t in request.prompt_ids if t < 256).decode()
        if ROOT_INSTRUCTION in prompt:
            return json.dumps({"conditions": ["There is a die."], "global_objective": "Roll."})
        rng = random.Random(request.seed)
        last = ("Answer", f"c = {rng.randint(0, 1)}")
        rows = [("Roll", "a = 1"), ("Roll again", "b = 2"), last]
        cut = rng.randint(0, 9) == 0
        texts = [
            json.dumps(
                {"step objective": o, "action": f"\\boxed{{{c}}}{' <end>' * (o == 'Answer')}"}
            )
            for o, c in rows[rng.randint(0, 2) :]
        ]
        return "\n".join([*(['{"step objective": "x"}'] if cut else []), *texts])

    def last_is_one(problem: Problem, text: str, leaf: Leaf) -> float:
        return float(text.endswith("\\boxed{1}"))

    steps = ObjectiveSteps(root_call=True)
    sampling = Sampling(steps=steps, max_tokens=600, verify_steps=False)
    labeler = Labeler(reward=last_is_one, search=replace(search, sampling=sampling))
    summary = labeler.run(problems(6), ScriptedEngine(policy), tmp_path)
    assert summary["labels"]["right"] > 0
    assert summary["labels"]["wrong"] > 0
    reader = RunReader(tmp_path)
    for tree in reader.trees():
        assert tree.root.meta["conditions"] == ["There is a die."]
        assert tree.ledger.generated == tree.kept_tokens() + tree.ledger.discarded
    shown = json.loads((tmp_path / "manifest.json").read_text())["search"]["sampling"]["steps"]
    assert (shown["format"], shown["root_call"]) == ("objective", True)
    labels = list(reader.labels())
    broken = [x for x in labels if x["label_source"] == "malformed"]
    assert {x["label"] for x in broken} == {None}
    reasons = [x["reason"] for x in reader.failures()]
    assert len(reasons) >= len(broken) > 0
    assert any('no "action"' in reason for reason in reasons)


class Even:
    """A scorer that likes even rolls."""

    name = "even/1"

    def score(self, problem: Problem, steps) -> list[StepScore]:
        return [StepScore(float(step[-1] in "024")) for step in steps]


def test_a_scorer_guides_the_search_and_stands_in_the_manifest(tmp_path) -> None:
    search = small_search(selection="puct")
    search = replace(search, sampling=replace(search.sampling, score_steps=True))
    labeler = Labeler(reward=ends_in_one, search=search, scorer=Even())
    labeler.run(problems(2), ScriptedEngine(dice_policy), tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["scorer"] == "even/1"
    (first, _) = RunReader(tmp_path).trees()
    assert {n.prior for n in first.nodes[1:] if n.text} == {-1.0, 1.0}
    with pytest.raises(ConfigError, match="give the Labeler one"):
        Labeler(reward=ends_in_one, search=search)
