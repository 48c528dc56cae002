"""The data set card: its figures are those of the run, and it says them all."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from worlds import dice_policy, ends_in_one, problems, small_search

from treerl.engines.scripted import ScriptedEngine
from treerl.errors import ConfigError, StoreError
from treerl.prm.audit import card_figures
from treerl.prm.card import dataset_card
from treerl.prm.duplicates import contamination
from treerl.prm.formats import FORMATS, export
from treerl.prm.fuse import Fusion
from treerl.prm.label import StepLabel, label_tree
from treerl.prm.pipeline import Labeler
from treerl.problem import Problem
from treerl.store import ProblemResult, RunFolder, RunReader
from treerl.tree import Tree
from treerl.verdict import StepVerdict, Verdict


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("card") / "run"
    labeler = Labeler(reward=ends_in_one, search=small_search(simulations=24))
    labeler.run(problems(5), ScriptedEngine(dice_policy), out)
    return out


def test_figures_are_those_of_the_run(run: Path) -> None:
    figures = card_figures(run)
    labels = [StepLabel.from_json(label) for label in RunReader(run).labels()]
    summary = RunReader(run).summary()
    assert summary is not None
    kinds = ("right", "wrong", "unlabelled")
    assert {kind: figures.labels[kind] for kind in kinds} == summary["labels"]
    assert figures.labels["masked"] == sum(label.masked for label in labels)
    assert figures.sources["labelled"] == summary["label_sources"]
    assert sum(figures.sources["unlabelled"].values()) == figures.labels["unlabelled"]
    assert figures.sources["unlabelled"].get("masked", 0) == figures.labels["masked"]
    by_position = Counter((label.index, label.label) for label in labels)
    for i, (right, wrong, none) in enumerate(figures.positions):
        assert (right, wrong, none) == tuple(by_position[i, label] for label in (1, 0, None))
    assert len(figures.positions) == 1 + max(label.index for label in labels)
    assert figures.problems == 5
    assert figures.duplicates.problems == 5
    assert figures.repeated == sum(
        n - 1 for n in Counter((label.problem_id, label.id) for label in labels).values()
    )
    assert sum(length.steps for length in figures.lengths) == len(labels)


def test_formats_are_counted_as_export_counts_them(run: Path, tmp_path: Path) -> None:
    figures = card_figures(run)
    assert [format.name for format in figures.formats] == list(FORMATS)
    for format in figures.formats:
        report = export(run, format.name, tmp_path / "out.jsonl")
        assert (format.rows, format.losses) == (report.rows, report.losses)
        assert format.left_out == report.left_out


def masked_world(folder: Path) -> Path:
    """A long step refuted by the tool, and a short one behind it that no rollout finishes."""
    tree = Tree(Problem.from_text("p", "Q", "1"), (1,))
    long = tree.add(tree.root, (2,), text=" ".join(["word"] * 15))
    long.verdict = StepVerdict(Verdict.REFUTED, "unequal", "exact", verifier="test/1")
    long.correct, long.total = 4, 8
    short = tree.add(long, (3,), text="short")
    short.correct, short.total = 0, 4
    right = tree.add(long, (4,), text="also short")
    right.correct, right.total = 4, 4
    manifest = {"kind": "label", "fusion": Fusion().to_json(), "search": {"simulations": 8}}
    with RunFolder(folder, manifest) as out:
        labels = [label.to_json() for label in label_tree(tree, Fusion())]
        out.add(ProblemResult(0, tree, labels))
        out.finish(lambda results: {"problems": len(list(results))})
    return folder


def test_error_by_length_before_and_after_masking(tmp_path: Path) -> None:
    figures = card_figures(masked_world(tmp_path / "run"), ["trl"])
    ten, twenty = figures.lengths[:2]
    assert (figures.labels["masked"], figures.sources["unlabelled"]) == (2, {"masked": 2})
    assert (ten.longest, ten.steps, ten.before, ten.after) == (10, 2, (2, 1), (0, 0))
    assert (twenty.longest, twenty.steps, twenty.before, twenty.after) == (20, 1, (1, 1), (1, 1))
    text = dataset_card(tmp_path / "run", formats=["trl"])
    assert "| 0-10 | 2 | 50.0 % | n/a |" in text
    assert "| 11-20 | 1 | 100.0 % | 100.0 % |" in text
    assert "| search: simulations | `8` |" in text


def test_the_card_says_everything(run: Path, tmp_path: Path) -> None:
    (tmp_path / "held.jsonl").write_text(json.dumps({"question": "Roll."}) + "\n")
    leaks = contamination({p.id: p.text for p in problems(5)}, [tmp_path / "held.jsonl"])
    text = dataset_card(run, title="Dice", contamination=leaks)
    assert text.startswith("---\ntags:\n")
    assert "\n# Dice\n" in text
    for heading in (
        "Class balance",
        "Sources",
        "Positions",
        "Length and error",
        "Near-duplicates",
        "Contamination",
        "Formats",
    ):
        assert f"\n## {heading}\n" in text
    assert "/held.jsonl | 1 | 5 |" in text
    assert str(tmp_path) not in text
    for name in FORMATS:
        assert f"\n### {name}: " in text
    assert "\n## Contamination\n" not in dataset_card(run)
    assert r'| search: sampling.steps.delimiter | `"\n"` |' in text
    assert dataset_card(run) == dataset_card(RunReader(run))


def test_half_a_run_and_other_runs_get_no_card(tmp_path: Path, run: Path) -> None:
    with RunFolder(tmp_path / "half", {"kind": "label"}):
        pass
    with pytest.raises(StoreError, match="is not finished"):
        dataset_card(tmp_path / "half")
    with RunFolder(tmp_path / "rollout", {"kind": "rollout"}) as out:
        out.finish(lambda results: {"problems": 0})
    with pytest.raises(ConfigError, match="no labels"):
        dataset_card(tmp_path / "rollout")
    with pytest.raises(ConfigError, match="no format 'xml'"):
        dataset_card(run, formats=["xml"])


def licensed(folder: Path, *rows: dict[str, str]) -> str:
    """Return the card of a run over problems whose rows say this."""
    with RunFolder(folder, {"kind": "label", "fusion": Fusion().to_json()}) as out:
        for i, row in enumerate(rows):
            tree = Tree(Problem.from_text(f"p{i}", f"Q{i}", "1", metadata=row), (1,))
            node = tree.add(tree.root, (2,), text="wrong")
            node.correct, node.total = 0, 4
            labels = [label.to_json() for label in label_tree(tree, Fusion())]
            out.add(ProblemResult(i, tree, labels))
        out.finish(lambda results: {"problems": len(list(results))})
    return dataset_card(folder, formats=["trl"])


def test_the_terms_of_the_problems_stand_in_the_card(tmp_path: Path) -> None:
    mit = {"license": "MIT", "source": "a book"}
    text = licensed(tmp_path / "one", mit, mit)
    head = text.split("---")[1]
    assert "license: mit\n" in head
    assert "- n<1K\n" in head
    assert "| license | MIT (2 problems) |" in text
    assert "| source | a book (2 problems) |" in text
    assert "before you publish" not in text
    mixed = licensed(tmp_path / "mixed", mit, {"licence": "my own terms"}, {})
    assert "license:" not in mixed.split("---")[1]
    assert "| license | my own terms (1 problems) |" in mixed
    assert "| license | unknown (1 problems) |" in mixed
    assert "before you publish" in mixed
    # Words that are no name of the hub's stand in the text only.
    own = licensed(tmp_path / "own", {"license": "see\nthe | README"})
    assert "license:" not in own.split("---")[1]
    assert "| license | see the \\| README (1 problems) |" in own


def test_the_card_tells_the_run_but_no_place_on_a_machine(run: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["engine"] = {"engine": "hf", "model": "/home/me/models/tiny"}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    text = dataset_card(copy, formats=["trl"])
    assert '| engine: model | `"models/tiny"` |' in text
    assert "/home/me" not in text
    assert manifest["problems"]["sha256"] in text
    summary = RunReader(run).summary()
    assert summary is not None
    assert f"| rollouts | {summary['rollouts']:,} |" in text
    assert f"| ledger: generated | {summary['ledger']['generated']:,} |" in text


def test_labels_with_equal_ids_are_counted(tmp_path: Path) -> None:
    tree = Tree(Problem.from_text("p", "Q", "1"), (1,))
    for token, text in ((2, "a"), (3, " a"), (4, "b")):
        node = tree.add(tree.root, (token,), text=text)
        node.correct, node.total = 4, 4
    with RunFolder(tmp_path / "run", {"kind": "label"}) as out:
        labels = [label.to_json() for label in label_tree(tree, Fusion())]
        out.add(ProblemResult(0, tree, labels))
        out.finish(lambda results: {"problems": len(list(results))})
    assert card_figures(tmp_path / "run").repeated == 1
    assert "1 labels have the id of another one" in dataset_card(tmp_path / "run")
