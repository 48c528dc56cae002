"""`treerl audit`: what it finds, what it says, and that a run that does not match ends in 1."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from treerl.engines import ByteTokenizer, Request, ScriptedEngine
from treerl.prm.pipeline import Labeler
from treerl.problem import Problem
from treerl.protocols import Leaf
from treerl.search.mcts import MCTSConfig
from treerl.search.prefix_mc import PrefixMCConfig
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.store import RunFolder, RunReader
from treerl.verifiers import StepVerifier

if TYPE_CHECKING:
    from conftest import Treerl

SAMPLING = Sampling(max_tokens=100, steps=PlainSteps("\n"))


def adds(request: Request) -> str:
    """Add three numbers in two steps, slipping in every fourth: a function of the request alone."""
    question, _, done = ByteTokenizer().decode(request.prompt_ids).partition("\n")
    a, b, c = (int(word) for word in question.split() if word.isdigit())
    rng, lines = random.Random(request.seed), done.splitlines()
    x = int(lines[0].split()[-1]) if lines else a + b + (rng.random() < 0.25)
    y = int(lines[1].split()[-1]) if len(lines) > 1 else x + c - (rng.random() < 0.25)
    return "\n".join([f"{a} + {b} = {x}", f"{x} + {c} = {y}", f"Answer: {y}"][len(lines) :])


def right(problem: Problem, text: str, leaf: Leaf) -> float:
    return float(text.split()[-1] == problem.answer)


def sums(count: int) -> list[Problem]:
    return [
        Problem.from_text(f"sum-{i}", f"What is {i} + {i + 3} + {2 * i} ?", str(4 * i + 3))
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose steps the real verifier judged."""
    out = tmp_path_factory.mktemp("audits") / "checked"
    search = MCTSConfig(simulations=12, sampling=SAMPLING)
    with StepVerifier() as verifier:
        labeler = Labeler(reward=right, verifier=verifier, search=search)
        labeler.run(sums(3), ScriptedEngine(adds), out)
    return out


def gold_of(run: Path, path: Path) -> Path:
    """Write the truth of a run's sums in ProcessBench's form."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for tree in RunReader(run).trees():
        for leaf in tree.leaves():
            steps = tuple(node.text for node in tree.path(leaf) if node.text)
            wrong = [i for i, step in enumerate(steps) if not holds(step, tree.problem.answer)]
            label = wrong[0] if wrong else -1
            row = {"id": "x", "problem": tree.problem.text, "steps": list(steps), "label": label}
            rows[tree.problem.id, *steps] = row
    path.write_text(json.dumps(list(rows.values())))
    return path


def holds(step: str, answer: str | None) -> bool:
    words = step.split()
    return (
        words[-1] == answer if len(words) != 5 else int(words[0]) + int(words[2]) == int(words[4])
    )


def test_a_run_that_matches(quick: Treerl, checked: Path, tmp_path: Path) -> None:
    done = quick("audit", checked)
    assert done.returncode == 0, done.stderr
    labels = len(list(RunReader(checked).labels()))
    assert "Replay  everything follows" in done.stdout
    for name in ("tool verdicts, asked for again", "labels, fused again", "evidence, as in"):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(name)]
        assert line.split()[-2:] == [str(labels), "0"]
    for section in ("Labels", "Positions", "Length and error", "Near-duplicates"):
        assert f"\n{section}" in done.stdout
    assert "Contamination" not in done.stdout
    assert "human labels" not in done.stdout
    assert "\x1b" not in done.stdout, "colour where there is no terminal"
    assert done.stderr == ""


def test_a_run_that_does_not_match_ends_in_1(quick: Treerl, checked: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checked, copy)
    (file,) = (copy / "labels").glob("*.jsonl")
    labels = [json.loads(line) for line in file.read_text().splitlines()]
    labels[0]["evidence"]["mc"]["correct"] += 1
    labels[0]["evidence"]["mc"]["total"] += 1
    file.write_text("".join(json.dumps(label) + "\n" for label in labels))
    done = quick("audit", copy, "--share", "0")
    assert done.returncode == 1
    assert "it does not follow" in done.stdout
    assert done.stderr.startswith("treerl: 2 stored records do not follow")
    assert "of problem 'sum-0'" in done.stderr
    assert done.stderr.count("\n") == 1
    done = quick("audit", copy, "--share", "0", "--json")
    assert done.returncode == 1
    whats = [m["what"] for m in json.loads(done.stdout)["replay"]["mismatches"]]
    assert sorted(whats) == ["counts", "evidence"]


def test_gold_and_test_sets(quick: Treerl, checked: Path, tmp_path: Path) -> None:
    gold = gold_of(checked, tmp_path / "gold.json")
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps({"id": "h", "question": "What is 1 + 4 + 2 ?"}) + "\n")
    args = ("audit", checked, "--gold", gold, "--against", f"held={held}")
    done = quick(*args)
    assert done.returncode == 0, done.stderr
    assert "sum-1 stands in held as h" in done.stdout
    lines = done.stdout.splitlines()
    for name in ("these labels", "rollouts alone", "first refuted", "always -1"):
        assert any(line.startswith(name) for line in lines), name
    assert any(line.startswith("tool ") for line in lines)
    assert "expected calibration error" in done.stdout
    data = json.loads(quick(*args, "--json").stdout)
    assert data["contamination"]["files"][0]["hits"] == 1
    # The tool refutes every wrong sum of this policy, and nothing else.
    assert data["quality"]["by_source"]["tool"]["precision"] == 1.0
    assert data["quality"]["first_refuted"]["precision"] == 1.0
    assert data["quality"]["always_negative"]["f1"] == 0.0
    done = quick("audit", checked, "--gold", gold, "--gold-format", "trl")
    assert (done.returncode, "prompt" in done.stderr) == (1, True)


def test_the_card(quick: Treerl, checked: Path, tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps({"question": "What is 1 + 4 + 2 ?"}) + "\n")
    args = ("audit", checked, "--card", card, "--share", "0")
    assert quick(*args, "--against", f"held={held}").returncode == 0
    assert card.read_text().startswith("---\ntags:")
    assert "| held | 1 | 1 |" in card.read_text()
    done = quick(*args)
    assert (done.returncode, "exists" in done.stderr) == (1, True)
    assert quick(*args, "--force").returncode == 0
    assert "## Contamination" not in card.read_text()


def test_given_solutions_are_audited(quick: Treerl, tmp_path: Path) -> None:
    """A run over given solutions: the steps labelled are those that people judged."""
    given = [["2 + 5 = 7", "7 + 4 = 11", "Answer: 11"], ["2 + 5 = 8", "8 + 4 = 12", "Answer: 12"]]
    text = "What is 2 + 5 + 4 ?"
    problem = Problem.from_text("p", text, "11", metadata={"solutions": given})
    with StepVerifier() as verifier:
        search = PrefixMCConfig(sampling=SAMPLING, rollouts=4)
        labeler = Labeler(reward=right, verifier=verifier, search=search)
        labeler.run([problem], ScriptedEngine(adds), tmp_path / "run")
    gold = tmp_path / "gold.json"
    rows = [
        {"id": str(i), "problem": text, "steps": steps, "label": label}
        for i, (steps, label) in enumerate(zip(given, [-1, 0], strict=True))
    ]
    gold.write_text(json.dumps(rows))
    done = quick("audit", tmp_path / "run", "--gold", gold, "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["replay"]["bounded"] == data["replay"]["verdicts"] == data["replay"]["labels"]
    quality = data["quality"]
    assert (quality["gold"], quality["matched"], quality["steps"]) == (2, 2, 4)
    assert quality["first_error"]["wrong_hits"] == 1
    assert "rollout counts, as a bound" in quick("audit", tmp_path / "run").stdout


def test_verdicts_of_another_verifier_are_left_alone(quick: Treerl, run_dir: Path) -> None:
    done = quick("audit", run_dir)
    assert done.returncode == 0, done.stderr
    assert "the verdicts are those of test.adder/1" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_judge_of_ones_own_is_named(quick: Treerl, mine: Path, run_dir: Path) -> None:
    done = quick("audit", run_dir, "--verifier", "mine:Adder", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    replay = json.loads(done.stdout)["replay"]
    assert replay["verdicts"] == replay["labels"] > 0
    (mine / "stern.py").write_text(
        "from mine import Adder\n"
        "class Stern(Adder):\n"
        "    def verify(self, step, *, problem='', previous_steps=()):\n"
        "        return super().verify('1 + 1 = 3')\n"
        "class Other(Adder):\n"
        "    name = 'other/1'\n"
    )
    done = quick("audit", run_dir, "--verifier", "stern:Stern")
    assert done.returncode == 1
    assert "'evidence.tool': stored is SUPPORTED" in done.stderr
    done = quick("audit", run_dir, "--verifier", "stern:Other")
    assert done.returncode == 1
    assert "is 'other/1', but the verdicts are those of 'test.adder/1'" in done.stderr


def test_no_verifier_where_none_judged(quick: Treerl, mine: Path, tmp_path: Path) -> None:
    search = MCTSConfig(simulations=2, sampling=replace(SAMPLING, verify_steps=False))
    Labeler(reward=right, search=search).run(sums(1), ScriptedEngine(adds), tmp_path / "run")
    assert quick("audit", tmp_path / "run").returncode == 0
    done = quick("audit", tmp_path / "run", "--verifier", "mine:Adder")
    assert done.returncode == 1
    assert "was judged by no verifier; leave --verifier out" in done.stderr


def test_a_run_without_trees_is_one_sentence(quick: Treerl, tmp_path: Path) -> None:
    search = MCTSConfig(simulations=2, sampling=replace(SAMPLING, verify_steps=False))
    labeler = Labeler(reward=right, search=search)
    engine = ScriptedEngine(adds, max_context=300)
    long = [Problem.from_text("long", "What is 1 + 2 ? " * 100, "3")]
    labeler.run(long, engine, tmp_path / "failed")
    with RunFolder(tmp_path / "begun", labeler.manifest(long, engine)):
        pass
    for name, said in (("failed", "every problem failed"), ("begun", "no problem is done yet")):
        done = quick("audit", tmp_path / name)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"holds no tree to audit: {said}" in done.stderr
        assert done.stderr.count("\n") == 1


def test_labels_that_do_not_fit_the_trees(quick: Treerl, checked: Path, tmp_path: Path) -> None:
    """There is nothing to count, so only the differences are shown."""
    shutil.copytree(checked, tmp_path / "copy")
    (file,) = (tmp_path / "copy" / "labels").glob("*.jsonl")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    (tmp_path / "copy" / "conflicts.jsonl").unlink()
    card = tmp_path / "README.md"
    done = quick("audit", tmp_path / "copy", "--share", "0", "--card", card)
    assert done.returncode == 1
    assert "node 1 of problem 'sum-0': stored is no label, found" in done.stdout
    assert "conflicts.jsonl: stored is no such file" in done.stdout
    assert "Positions" not in done.stdout
    assert done.stderr.startswith("treerl: 2 stored records do not follow")
    assert not card.exists()


def test_a_share_of_nothing_is_not_a_share(quick: Treerl, checked: Path, tmp_path: Path) -> None:
    gold = tmp_path / "gold.json"
    rows = json.loads(gold_of(checked, gold).read_text())
    gold.write_text(json.dumps([row for row in rows if row["label"] == -1]))
    done = quick("audit", checked, "--gold", gold, "--share", "0")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("always -1")]
    assert "n/a" in line
    assert "none" not in line


def test_wrong_calls(quick: Treerl, run_dir: Path, tmp_path: Path) -> None:
    for args, code, said in (
        (["audit"], 2, "DIR"),
        (["audit", run_dir, "--share", "2"], 2, "--share"),
        (["audit", run_dir, "--against", "x.jsonl"], 2, "NAME=FILE"),
        (["audit", run_dir, "--against", "a=x", "--against", "a=y"], 2, "twice"),
        (["audit", run_dir, "--against", f"a={tmp_path / 'x.jsonl'}"], 1, "no such file"),
        (["audit", run_dir, "--gold", tmp_path / "x.json"], 1, "cannot be read"),
        (["audit", tmp_path], 1, "is no run folder"),
    ):
        done = quick(*args)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        assert done.stdout == ""
