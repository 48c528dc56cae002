"""Audits: a whole run replays without a difference, and each kind of tampering is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from worlds import TOKENIZER, dice_policy, ends_in_one, problems, small_search

from treerl.engines.scripted import ScriptedEngine
from treerl.errors import ConfigError, ProblemError
from treerl.prm.audit import LabelQuality, against_gold, audit_run, recount, replay
from treerl.prm.formats import LabelledSolution
from treerl.prm.fuse import Fusion
from treerl.prm.label import label_tree
from treerl.prm.pipeline import Labeler, summarise
from treerl.problem import Problem
from treerl.search.growth import Judges, run_sync
from treerl.search.omega import OmegaPRM, OmegaPRMConfig
from treerl.search.prefix_mc import PrefixMC, PrefixMCConfig
from treerl.search.runs import problems_digest, tree_failures
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.store import ProblemResult, RunFolder, RunReader
from treerl.tree import Tree
from treerl.verdict import StepVerdict, Verdict
from treerl.verifiers import StepVerifier

ORACLE = Path(__file__).parents[1] / "data" / "groundedprm_oracle.json"


class NoFours:
    """Refutes rolls of 4 and supports rolls of 1."""

    name = "test.no_fours/1"

    def verify(
        self, step: str, *, problem: str = "", previous_steps: Sequence[str] = ()
    ) -> StepVerdict:
        assert problem == "Roll."
        if step == "roll 4":
            return StepVerdict(Verdict.REFUTED, "four", "exact", verifier=self.name)
        if step == "roll 1":
            return StepVerdict(Verdict.SUPPORTED, "one", "partial", verifier=self.name)
        return StepVerdict(Verdict.UNVERIFIABLE, "no_claim", verifier=self.name)


class NoThrees(NoFours):
    """A verifier that has changed its mind."""

    def verify(
        self, step: str, *, problem: str = "", previous_steps: Sequence[str] = ()
    ) -> StepVerdict:
        said = super().verify(step, problem=problem, previous_steps=previous_steps)
        if step == "roll 3":
            return StepVerdict(Verdict.REFUTED, "three", "exact", verifier=self.name)
        return said


SAMPLING = Sampling(steps=PlainSteps("\n"), max_tokens=200)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished labelling run with tool verdicts."""
    out = tmp_path_factory.mktemp("audit") / "run"
    search = small_search(sampling=SAMPLING, simulations=24)
    labeler = Labeler(reward=ends_in_one, verifier=NoFours(), search=search)
    labeler.run(problems(5), ScriptedEngine(dice_policy), out)
    return out


def tampered(run: Path, folder: Path, change: Callable[[dict[str, Any]], bool]) -> Path:
    """Copy a run, changing the first label that `change` says it did."""
    import shutil

    copy = folder / "copy"
    shutil.copytree(run, copy)
    for file in sorted((copy / "labels").glob("*.jsonl")):
        labels = [json.loads(line) for line in file.read_text().splitlines()]
        assert any(change(label) for label in labels)
        file.write_text("".join(json.dumps(label) + "\n" for label in labels))
    return copy


# --- replay ---------------------------------------------------------------------------------------


def test_a_whole_run_replays(run: Path) -> None:
    report = replay(run, NoFours())
    labels = list(RunReader(run).labels())
    assert report.ok, report.mismatches[:3]
    assert report.trees == 5
    assert report.labels == report.counts == report.relabelled == len(labels) > 50
    assert report.verdicts == len(labels)
    assert report.bounded == 0
    sources = {label["label_source"] for label in labels if label["label"] is not None}
    assert {"tool", "mc", "tool+mc"} <= sources


def test_a_run_with_faults_replays(tmp_path: Path) -> None:
    engine = ScriptedEngine(dice_policy, faults=0.2, fault_retryable=False)
    search = small_search(sampling=SAMPLING, simulations=24)
    Labeler(reward=ends_in_one, verifier=NoFours(), search=search).run(
        problems(4), engine, tmp_path / "run"
    )
    assert replay(tmp_path / "run", NoFours()).ok


def test_another_verifier_is_noticed(run: Path) -> None:
    report = replay(run, NoThrees())
    threes = sum(label["step"]["text"] == "roll 3" for label in RunReader(run).labels())
    assert {m.what for m in report.mismatches} == {"verdict"}
    assert len(report.mismatches) == threes > 0
    assert report.mismatches[0].stored.startswith("UNVERIFIABLE")
    assert report.mismatches[0].found == "REFUTED (exact, three)"


def test_a_share_is_the_same_share_each_time(run: Path) -> None:
    some = replay(run, NoFours(), share=0.3)
    assert 0 < some.verdicts < some.labels
    assert replay(run, NoFours(), share=0.3) == some
    assert replay(run, NoFours(), share=0).verdicts == replay(run).verdicts == 0
    with pytest.raises(ConfigError, match="share"):
        replay(run, share=2)


def change_counts(label: dict[str, Any]) -> bool:
    label["evidence"]["mc"]["total"] += 1
    return True


def change_label(label: dict[str, Any]) -> bool:
    if label["label"] != 1:
        return False
    label["label"] = 0
    return True


def change_verdict(label: dict[str, Any]) -> bool:
    if label["evidence"]["tool"]["verdict"] != "REFUTED":
        return False
    label["evidence"]["tool"]["strength"] = "partial"
    return True


def change_node(label: dict[str, Any]) -> bool:
    label["evidence"]["tree"]["node"] = 10_000
    return True


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (change_counts, {"evidence", "counts"}),
        (change_label, {"label"}),
        (change_verdict, {"evidence", "verdict"}),
        (change_node, {"evidence", "missing"}),
    ],
)
def test_tampering_is_found(
    run: Path, tmp_path: Path, change: Callable[[dict[str, Any]], bool], found: set[str]
) -> None:
    report = replay(tampered(run, tmp_path, change), NoFours())
    assert {m.what for m in report.mismatches} == found
    assert len({m.problem_id for m in report.mismatches}) == 1


def test_counts_that_are_wrong_in_the_tree_are_found(run: Path) -> None:
    tree = next(iter(RunReader(run).trees()))
    counts = recount(tree)
    assert counts == [(node.correct, node.total) for node in tree.nodes]
    tree.leaves()[0].multiplicity += 1
    assert recount(tree)[0][1] == counts[0][1] + 1


def save(folder: Path, tree: Tree, manifest: dict[str, Any]) -> Path:
    manifest = {"kind": "label", "problems": problems_of(tree), **manifest}
    if any(node.verdict for node in tree.nodes):
        manifest["verifier"] = NoFours.name
    labels = [label.to_json() for label in label_tree(tree, Fusion())]
    conflicts = [label for label in labels if label["label_source"] == "conflict"]
    failures = list(tree_failures(0, tree))
    with RunFolder(folder, manifest) as out:
        out.add(ProblemResult(0, tree, labels, conflicts, failures))
        out.finish(summarise)
    return folder


def problems_of(tree: Tree) -> dict[str, Any]:
    """Return what a manifest says about the one problem of a run."""
    return {"count": 1, "sha256": problems_digest([tree.problem])}


@pytest.mark.parametrize("method", ["omega", "prefix_mc"])
def test_counts_of_other_samplers_are_bounded(method: str, tmp_path: Path) -> None:
    (problem,) = problems(1)
    growth: Any
    if method == "omega":
        growth = OmegaPRM(problem, TOKENIZER, OmegaPRMConfig(sampling=SAMPLING))
    else:
        config = PrefixMCConfig(sampling=SAMPLING, rollouts=4)
        given = [["roll 1", "roll 2", "Answer: 0"], ["roll 3", "roll 4", "Answer: 1"]]
        growth = PrefixMC(problem, TOKENIZER, config, solutions=given)
    judges = Judges(reward=ends_in_one, verifier=NoFours())
    (growth,) = run_sync([growth], ScriptedEngine(dice_policy), judges)
    folder = save(tmp_path / "run", growth.tree, {"fusion": Fusion().to_json()})
    report = replay(folder, NoFours())
    assert report.ok, report.mismatches[:3]
    assert report.counts == 0
    assert report.bounded == report.labels > 5
    # More right rollouts than there are right samples cannot be.
    growth.tree.nodes[1].correct += 1000
    growth.tree.nodes[1].total += 1000
    report = replay(save(tmp_path / "again", growth.tree, {"fusion": Fusion().to_json()}))
    assert [m.what for m in report.mismatches] == ["counts"]


def test_the_real_verifier_replays_what_it_said(tmp_path: Path) -> None:
    steps = ["2 * 3 = 6", "6 + 4 = 11", "x = 5 because 2*x = 10", "So 1/3 + 1/6 = 1/2."]
    tree = Tree(Problem.from_text("p", "Two bags hold 3 apples each.", "10"), (1,))
    node = tree.root
    with StepVerifier() as verifier:
        for i, step in enumerate(steps):
            node = tree.add(node, (i + 2,), text=step)
            node.verdict = verifier.verify(
                step, problem=tree.problem.text, previous_steps=steps[:i]
            )
    assert {node.verdict.verdict for node in tree.nodes[1:] if node.verdict} >= {
        Verdict.SUPPORTED,
        Verdict.REFUTED,
    }
    folder = save(tmp_path / "run", tree, {"fusion": Fusion().to_json()})
    with StepVerifier() as verifier:
        report = replay(folder, verifier)
    assert report.ok, report.mismatches
    assert report.verdicts == len(steps)


def test_a_label_of_another_problem_is_found(run: Path, tmp_path: Path) -> None:
    def rename(label: dict[str, Any]) -> bool:
        label["problem"]["id"] = "stranger"
        return True

    report = replay(tampered(run, tmp_path, rename))
    assert [m.what for m in report.mismatches] == ["content", "missing"]
    assert report.mismatches[0].place == (
        "labels/part-00000.jsonl, line 1, node 1 of problem 'stranger', 'problem.id'"
    )


def test_an_unknown_fusion_is_a_mismatch_and_the_rest_is_replayed(
    tmp_path: Path, run: Path
) -> None:
    tree = next(iter(RunReader(run).trees()))
    for i, fusion in enumerate(
        [None, {"rule": "of tomorrow"}, {"other": 1}, {"n_min": "x"}, {"n_min": True}, [1]]
    ):
        folder = save(tmp_path / str(i), tree, {"fusion": fusion})
        report = replay(folder, NoFours())
        assert report.relabelled == 0
        (mismatch,) = report.mismatches
        assert (mismatch.what, mismatch.place) == ("file", "manifest.json, 'fusion'")
        assert mismatch.found.startswith("no rule of this treerl")
        (file,) = (folder / "labels").glob("*.jsonl")
        file.write_text(file.read_text().replace("roll 1", "roll 9", 1))
        assert len(replay(folder, NoFours()).mismatches) == 2


def test_runs_without_labels_are_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path, {"kind": "rollout"}):
        pass
    with pytest.raises(ConfigError, match="no labels to audit"):
        replay(tmp_path)


# --- against human labels -------------------------------------------------------------------------

Labels = Sequence["int | None"]


def solution(
    id: str,
    labels: Labels,
    *,
    soft: Sequence[float | None] | None = None,
    source: str | Sequence[str] = "mc",
    verdicts: Sequence[str | None] | None = None,
) -> LabelledSolution:
    n = len(labels)
    return LabelledSolution(
        problem_id=id,
        statement=f"Problem {id}",
        answer=None,
        steps=tuple(f"step {i}" for i in range(n)),
        labels=tuple(labels),
        soft=tuple(soft or (None,) * n),
        source=(source,) * n if isinstance(source, str) else tuple(source),
        metadata={} if verdicts is None else {"verdicts": tuple(verdicts)},
    )


def first(index: int | None, n: int = 6) -> list[int | None]:
    """Return labels that name this first error; -1 for none, None for no prediction."""
    if index is None:
        return [None] * n
    if index == -1:
        return [1] * n
    return [1] * index + [0] + [None] * (n - index - 1)


def test_the_first_error_measure_is_the_oracles() -> None:
    cases = json.loads(ORACLE.read_text())["cases"]
    (case,) = [case for case in cases if case["name"] == "processbench.f1"]
    assert len(case["rows"]) == 6
    for row in case["rows"]:
        gold = [solution(str(i), first(x)) for i, x in enumerate(row["labels"])]
        own = [solution(str(i), first(x)) for i, x in enumerate(row["predictions"])]
        found = against_gold(own, gold).first_error
        assert found.error_accuracy == row["error_acc"]
        assert found.correct_accuracy == row["correct_acc"]
        assert found.f1 == row["f1"]
        assert found.undetermined == row["predictions"].count(None)


def test_confusion_counts_steps_up_to_the_first_error() -> None:
    gold = [solution("a", first(2)), solution("b", first(-1)), solution("c", first(0))]
    own = [
        # Right, wrong by the tool (no), none, and what stands behind the error does not count.
        solution("a", [1, 0, None, 0, 0, 0], source=["mc", "tool", "mc", "mc", "mc", "mc"]),
        solution("b", [1, 1, 0, 1, 1, None], source=["mc", "tool+mc", "mc", "mc", "mc", "mc"]),
        solution("c", first(0), source="tool"),
    ]
    found = against_gold(own, gold)
    assert (found.gold, found.matched, found.steps, found.labelled) == (3, 3, 3 + 6 + 1, 2 + 5 + 1)
    assert found.coverage == 0.8
    assert list(found.by_source) == ["mc", "tool", "tool+mc"]
    mc, tool = found.by_source["mc"], found.by_source["tool"]
    assert (mc.true_negative, mc.false_positive, mc.false_negative) == (4, 1, 0)
    assert (tool.true_positive, tool.false_positive) == (1, 1)
    assert tool.precision == 0.5
    assert tool.recall == 1.0
    assert found.by_source["tool+mc"].true_negative == 1
    assert found.by_source["tool+mc"].precision is None
    assert found.confusion.false_positive == 2
    assert found.first_error.wrong_hits == 1  # of "a", step 1 is blamed
    assert found.first_error.right_hits == 0


def test_a_missed_error_is_a_false_negative() -> None:
    found = against_gold([solution("a", first(-1))], [solution("a", first(1))])
    assert found.confusion.false_negative == 1
    assert found.confusion.true_negative == 1
    assert found.confusion.recall == 0


def test_baselines_stand_beside() -> None:
    gold = [solution("a", first(2)), solution("b", first(-1)), solution("c", first(1))]
    refuted: list[str | None] = ["SUPPORTED", None, "REFUTED", "REFUTED", None, None]
    own = [
        solution("a", first(None), verdicts=refuted),
        solution("b", first(-1), verdicts=[None] * 6),
        solution("c", first(1), verdicts=refuted),
    ]
    found = against_gold(own, gold)
    assert found.always_negative.f1 == 0
    assert found.always_negative.correct_accuracy == 1
    assert found.first_refuted is not None
    assert found.first_refuted.error_accuracy == 0.5
    assert found.first_refuted.f1 == pytest.approx(2 / 3)
    assert against_gold([solution("a", first(1))], gold).first_refuted is None


def test_soft_labels_are_calibrated_against_the_truth() -> None:
    gold = [solution("a", first(2)), solution("b", first(-1))]
    own = [
        solution("a", first(2), soft=[0.9, 0.9, 0.1, 0.5, 0.5, 0.5]),
        solution("b", first(-1), soft=[1.0, None, None, None, 0.15, None]),
    ]
    found = against_gold(own, gold).calibration
    assert found.steps == 5
    assert found.brier == pytest.approx((0.01 + 0.01 + 0.01 + 0 + 0.85**2) / 5)
    assert [(b.low, b.steps, b.right) for b in found.bins] == [(0.1, 2, 0.5), (0.9, 3, 1.0)]
    assert found.bins[0].belief == pytest.approx(0.125)
    assert found.error == pytest.approx((2 * 0.375 + 3 * (1 - 2.8 / 3)) / 5)
    nothing = against_gold([solution("a", first(2))], gold).calibration
    assert (nothing.steps, nothing.brier, nothing.error, nothing.bins) == (0, None, None, ())


def test_only_what_was_labelled_counts() -> None:
    gold = [solution("a", first(2)), solution("b", first(-1))]
    found = against_gold([solution("a", first(2)), solution("z", first(0))], gold)
    assert (found.gold, found.matched) == (2, 1)
    assert found.first_error.f1 is None  # no solution without an error
    # A begun solution is matched as far as it goes.
    found = against_gold([solution("b", [1, 1])], gold)
    assert (found.matched, found.labelled, found.coverage) == (1, 2, 2 / 6)
    assert found.first_error.undetermined == 1
    with pytest.raises(ConfigError, match="none of the 2 solutions"):
        against_gold([solution("z", first(0))], gold)


def test_white_space_does_not_hide_a_step_and_the_first_of_equals_counts() -> None:
    gold = [solution("a", first(0, 2))]
    spaced = LabelledSolution(
        "a", "Problem  a\n", None, (" step 0\n", "step 1"), (0, None), (0.0, None), ("tool",) * 2
    )
    found = against_gold([spaced, solution("a", first(-1, 2))], gold)
    assert found.first_error.wrong_hits == 1


def test_given_solutions_are_measured_by_their_labels(tmp_path: Path) -> None:
    """Prefix Monte Carlo labels the given steps only; the rollouts below them are no solutions."""
    given = [["roll 1", "roll 2", "Answer: 1"], ["roll 1", "roll 4", "Answer: 1"]]
    problem = Problem.from_text("p0", "Roll.", "1", metadata={"solutions": given})
    search = PrefixMCConfig(sampling=SAMPLING, rollouts=4)
    labeler = Labeler(reward=ends_in_one, verifier=NoFours(), search=search)
    labeler.run([problem], ScriptedEngine(dice_policy), tmp_path / "run")
    assert replay(tmp_path / "run", NoFours()).ok
    gold = [
        LabelledSolution("x", "Roll.", None, tuple(steps), labels, (None,) * 3, ("gold",) * 3)
        for steps, labels in zip(given, [(1, 1, 1), (1, 0, None)], strict=True)
    ]
    found = against_gold(tmp_path / "run", gold)
    # The first step of both is one step.
    assert (found.matched, found.steps) == (2, 4)
    assert found.by_source["tool"].true_positive == 1


def test_a_run_is_measured_from_its_folder(run: Path, tmp_path: Path) -> None:
    """The truth of the dice: a roll of 4 is the error; gold is a file in ProcessBench's form."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for tree in RunReader(run).trees():
        for leaf in tree.leaves():
            steps = [node.text or "" for node in tree.path(leaf) if node.text]
            label = steps.index("roll 4") if "roll 4" in steps else -1
            rows[tuple(steps)] = {"id": "x", "problem": "Roll.", "steps": steps, "label": label}
    path = tmp_path / "gold.json"
    path.write_text(json.dumps(list(rows.values())))
    found: LabelQuality = against_gold(run, path)
    assert found.matched == found.gold == len(rows)
    assert found.by_source["tool"].precision == 1.0
    assert found.first_refuted is not None
    assert found.first_refuted.f1 == 1.0
    assert found.coverage is not None
    assert 0 < found.coverage <= 1
    assert found == against_gold(RunReader(run), path)


def test_precision_recall_and_coverage_of_first_errors() -> None:
    gold = [solution(str(i), first(x)) for i, x in enumerate([2, 3, 0, -1, -1])]
    own = [solution(str(i), first(x)) for i, x in enumerate([2, 1, None, 4, -1])]
    found = against_gold(own, gold).first_error
    assert (found.wrong, found.right, found.named, found.undetermined) == (3, 2, 3, 1)
    assert found.precision == found.recall == found.error_accuracy == 1 / 3
    assert found.correct_accuracy == 0.5
    assert found.coverage == 4 / 5
    nothing = against_gold([solution("3", first(-1))], gold).first_error
    assert (nothing.precision, nothing.recall) == (None, None)


def test_rollouts_alone_are_a_baseline_of_their_own(tmp_path: Path) -> None:
    """What the counts say without the tool, which refutes a step that many rollouts survive."""
    tree = Tree(Problem.from_text("p", "Roll.", "1"), (1,))

    def add(above: int, text: str, right: int, total: int) -> int:
        ends = "answer" if text == "end" else None
        node = tree.add(tree.nodes[above], (len(tree) + 1,), text=text, finish_reason=ends)
        node.correct, node.total = right, total
        return node.index

    start = add(0, "start", 6, 12)
    refuted = add(start, "refuted", 4, 6)
    tree.nodes[refuted].verdict = StepVerdict(Verdict.REFUTED, "no", "exact", verifier="test/1")
    add(refuted, "end", 1, 1)
    hopeless = add(start, "hopeless", 0, 4)
    add(hopeless, "end", 0, 1)
    rare = add(start, "rare", 0, 1)  # too few rollouts to say anything
    add(rare, "end", 0, 1)
    run = save(tmp_path / "run", tree, {"fusion": Fusion().to_json()})
    gold = [
        LabelledSolution(
            "x", "Roll.", None, ("start", text, "end"), labels, (None,) * 3, ("g",) * 3
        )
        for text, labels in (
            ("refuted", (1, 0, None)),
            ("hopeless", (1, 0, None)),
            ("rare", (1, 0, None)),
        )
    ]
    found = against_gold(run, gold)
    counted, own = found.rollouts_alone, found.first_error
    assert counted is not None
    assert (counted.wrong_hits, counted.named, counted.undetermined) == (1, 1, 1)
    assert (own.wrong_hits, own.named, own.undetermined) == (2, 2, 1)
    nothing = against_gold([solution("a", first(1))], [solution("a", first(1))])
    assert nothing.rollouts_alone is None


def test_gold_of_prm800k_counts_each_step_once(tmp_path: Path) -> None:
    """A file of alternatives: the beginnings that they share are no solutions of their own."""

    def step(rated: dict[str, int], chosen: int | None) -> dict[str, Any]:
        completions = [{"text": text, "rating": rating} for text, rating in rated.items()]
        return {"completions": completions, "chosen_completion": chosen}

    steps = [step({"a": 1}, 0), step({"b": -1, "c": 1}, 1), step({"d": 1, "e": -1}, None)]
    row = {"question": {"problem": "Q", "ground_truth_answer": "1"}, "label": {"steps": steps}}
    path = tmp_path / "human.jsonl"
    path.write_text(json.dumps(row) + "\n")
    own = [
        LabelledSolution(
            "x", "Q", None, tuple(text), labels, (None,) * len(text), ("mc",) * len(text)
        )
        for text, labels in (("ab", (1, 1)), ("acd", (1, 1, 0)), ("ace", (1, 1, 0)))
    ]
    found = against_gold(own, path)
    assert (found.gold, found.matched, found.steps) == (3, 3, 5)
    counts = found.confusion
    assert (counts.true_negative, counts.false_negative) == (2, 1)
    assert (counts.false_positive, counts.true_positive) == (1, 1)
    assert against_gold(own, path, format="prm800k") == found
    with pytest.raises(ProblemError):
        against_gold(own, path, format="trl")


# --- the whole report -----------------------------------------------------------------------------


def test_a_report_holds_everything(run: Path, tmp_path: Path) -> None:
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps({"question": "Roll."}) + "\n")
    gold = [LabelledSolution("x", "Roll.", None, ("roll 4",), (0,), (None,), ("gold",))]
    report = audit_run(run, NoFours(), gold=gold, against={"held out": held})
    assert report.ok
    assert report.finished
    assert report.replay == replay(run, NoFours())
    assert report.quality == against_gold(run, gold)
    assert report.contamination is not None
    assert [(f.file, f.hits) for f in report.contamination.files] == [("held out", 5)]
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["replay"]["ok"] is True
    assert data["replay"]["verdicts"] == report.replay.verdicts
    assert data["figures"]["duplicates"]["rate"] == report.figures.duplicates.rate
    assert sum(map(sum, data["figures"]["positions"])) == report.replay.labels
    assert data["quality"]["first_error"]["recall"] == 1.0
    assert data["quality"]["by_source"]["tool"]["precision"] == 1.0
    bare = audit_run(run)
    assert (bare.contamination, bare.quality, bare.replay.verdicts) == (None, None, 0)


def test_half_a_run_is_audited_as_far_as_it_is(run: Path, tmp_path: Path) -> None:
    tree = next(iter(RunReader(run).trees()))
    manifest = {
        "kind": "label",
        "fusion": Fusion().to_json(),
        "problems": {"count": 5, "sha256": "of five problems"},
        "verifier": NoFours.name,
    }
    with RunFolder(tmp_path / "half", manifest) as out:
        labels = [label.to_json() for label in label_tree(tree, Fusion())]
        out.add(ProblemResult(0, tree, labels))
    report = audit_run(tmp_path / "half", NoFours())
    assert report.ok
    assert not report.finished
    assert report.figures.problems == 1
    assert report.replay.verdicts == len(labels)
