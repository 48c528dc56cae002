"""Audits of changed runs: whatever is edited, copied or lost is told with its place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from worlds import dice_policy, ends_in_one, problems, small_search

from treerl.engines.scripted import ScriptedEngine
from treerl.errors import StoreError
from treerl.prm.audit import Mismatch, audit_run, replay
from treerl.prm.fuse import Fusion
from treerl.prm.label import label_tree
from treerl.prm.pipeline import Labeler, summarise
from treerl.problem import Problem
from treerl.search.runs import tree_failures
from treerl.search.sampling import Sampling
from treerl.steps import PlainSteps
from treerl.store import ProblemResult, RunFolder, RunReader
from treerl.tree import Tree
from treerl.treefile import read_trees, write_trees
from treerl.verifiers import StepVerifier

SAMPLING = Sampling(steps=PlainSteps("\n"), max_tokens=200)
COUNT = 70
"""Problems: more than one shard."""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two shards, with faults and conflicts."""
    out = tmp_path_factory.mktemp("files") / "run"
    search = small_search(sampling=SAMPLING, simulations=8)
    engine = ScriptedEngine(dice_policy, faults=0.1, fault_retryable=False)
    with StepVerifier() as verifier:
        labeler = Labeler(reward=ends_in_one, verifier=verifier, search=search)
        labeler.run(problems(COUNT), engine, out)
    assert sum(1 for _ in RunReader(out).failures()) > 3
    return out


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "copy")
    return tmp_path / "copy"


def edit(path: Path, change: Callable[[Json], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def edit_label(run: Path, change: Callable[[Json], object], number: int = 2) -> None:
    """Change one line of the first shard of labels."""
    file = run / "labels" / "part-00000.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    record = json.loads(lines[number - 1])
    change(record)
    lines[number - 1] = json.dumps(record) + "\n"
    file.write_text("".join(lines))


def found(run: Path) -> tuple[Mismatch, ...]:
    return replay(run).mismatches


def test_the_whole_run_follows(run: Path) -> None:
    report = replay(run)
    assert report.ok, report.mismatches[:3]
    assert (report.trees, report.files) == (COUNT, 6)


# --- labels ---------------------------------------------------------------------------------------


def put(*path: str, value: Any) -> Callable[[Json], None]:
    def change(record: Json) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        (("schema",), "treerl.label/2", "content"),
        (("id",), "0" * 32, "content"),
        (("problem", "statement"), "Roll twice.", "content"),
        (("problem", "answer"), "99", "content"),
        (("prefix",), ["roll 6"], "content"),
        (("step", "text"), "roll 7", "content"),
        (("step", "index"), 7, "content"),
        (("step", "terminal"), True, "content"),
        (("extra",), None, "content"),
        (("evidence", "tree", "parent"), 5, "evidence"),
        (("evidence", "tree", "N"), 999, "evidence"),
        (("evidence", "tree", "W"), 999.5, "evidence"),
        (("evidence", "extra"), None, "evidence"),
        (("evidence", "tool"), None, "evidence"),
        (("label_source",), "oracle", "label"),
        (("soft_label",), 0.125, "label"),
        (("masked",), True, "label"),
        (("rationale",), "Because.", "label"),
    ],
)
def test_any_edited_field_of_a_label_is_named(
    copy: Path, path: tuple[str, ...], value: Any, what: str
) -> None:
    edit_label(copy, put(*path, value=value))
    (mismatch,) = found(copy)
    assert (mismatch.what, mismatch.file, mismatch.line) == (what, "labels/part-00000.jsonl", 2)
    assert mismatch.field.startswith(".".join(path))
    assert mismatch.stored != mismatch.found


def test_long_texts_are_shown_where_they_part(copy: Path) -> None:
    edit_label(copy, lambda x: x.update(rationale="x" * 300))
    (mismatch,) = found(copy)
    assert len(mismatch.stored) <= 80
    edit_label(copy, lambda x: x["problem"].update(statement=x["problem"]["statement"] + "!"))
    assert any(m.stored.endswith('!"') for m in found(copy))


@pytest.mark.parametrize("changed", [False, True])
def test_a_second_label_of_a_step_is_found(copy: Path, changed: bool) -> None:
    file = copy / "labels" / "part-00000.jsonl"
    first, *rest = file.read_text().splitlines(keepends=True)
    again = json.loads(first)
    if changed:
        again["step"]["text"] = "roll 7"
    file.write_text("".join([first, json.dumps(again) + "\n", *rest]))
    (mismatch,) = found(copy)
    assert (mismatch.what, mismatch.line) == ("repeated", 2)


def test_a_lost_label_is_found_and_the_report_goes_without_figures(copy: Path) -> None:
    file = copy / "labels" / "part-00000.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    report = audit_run(copy)
    (mismatch,) = report.replay.mismatches
    assert (mismatch.what, mismatch.problem_id, mismatch.node) == ("missing", "p0", 1)
    assert report.figures is None
    assert json.loads(json.dumps(report.to_json()))["figures"] is None


def test_labels_out_of_order_are_found(copy: Path) -> None:
    file = copy / "labels" / "part-00000.jsonl"
    first, second, *rest = file.read_text().splitlines(keepends=True)
    file.write_text("".join([second, first, *rest]))
    assert [m.what for m in found(copy)] == ["content"]


def test_a_lone_surrogate_in_a_step_is_no_difference(tmp_path: Path) -> None:
    """Labels hold it, and parquet cannot."""
    tree = Tree(Problem.from_text("p0", "Roll.", "1"), (1,))
    node = tree.add(tree.root, (2,), text="roll \ud800")
    tree.add(node, (3,), text="Answer: 1", finish_reason="eos").reward = 1.0
    for node in tree.nodes:
        node.correct = node.total = 1
    labeler = Labeler(reward=ends_in_one, search=small_search())
    manifest = labeler.manifest([tree.problem], ScriptedEngine(dice_policy))
    with RunFolder(tmp_path / "run", manifest) as folder:
        folder.add(labeler.label(0, tree, {}))
        folder.finish(summarise)
    first, _ = RunReader(tmp_path / "run").labels()
    assert first["step"]["text"] == "roll \ud800"
    (held,) = RunReader(tmp_path / "run").trees()
    assert held.nodes[1].text == "roll ?"
    assert found(tmp_path / "run") == ()


# --- other files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "path", "value", "field"),
    [
        ("summary.json", ("labels", "right"), 9999, "labels.right"),
        ("summary.json", ("problems",), 9999, "problems"),
        ("summary.json", ("ledger",), {}, "ledger.discarded"),
        ("summary.json", ("conflicts",), False, "conflicts"),
        ("summary.json", ("extra",), None, "extra"),
        ("manifest.json", ("problems", "count"), COUNT - 1, "problems.count"),
        ("manifest.json", ("problems", "sha256"), "0", "problems.sha256"),
        ("manifest.json", ("problems", "count"), "70", "problems.count"),
        ("manifest.json", ("problems",), None, "problems.count"),
        ("manifest.json", ("fusion", "foo"), 1, "fusion"),
        ("manifest.json", ("verifier",), None, "verifier"),
        ("manifest.json", ("verifier",), 5, "verifier"),
    ],
)
def test_an_edited_summary_or_manifest_is_found(
    copy: Path, file: str, path: tuple[str, ...], value: Any, field: str
) -> None:
    edit(copy / file, put(*path, value=value))
    assert any((m.what, m.file, m.field) == ("file", file, field) for m in found(copy))


def test_a_rule_that_is_another_one_makes_other_labels(copy: Path) -> None:
    edit(copy / "manifest.json", put("fusion", "n_min", value=2))
    assert {m.what for m in found(copy)} >= {"label", "file"}


def test_lost_and_copied_shards_are_found(copy: Path) -> None:
    shards = [copy / "trees" / "part-00001.parquet", copy / "labels" / "part-00001.jsonl"]
    for shard in shards:
        shutil.copy(shard, shard.with_name(f"part-00005{shard.suffix}"))
    files = {m.file for m in found(copy)}
    assert {"trees/part-00005.parquet", "labels/part-00005.jsonl"} <= files
    assert any(m.stored == "a second tree" for m in found(copy))
    for shard in shards:
        shard.with_name(f"part-00005{shard.suffix}").unlink()
        shard.unlink()
    files = {m.file for m in found(copy)}
    assert {"trees/part-00001.parquet", "labels/part-00001.jsonl", "manifest.json"} <= files
    assert any((m.field, m.found) == ("problems.count", "64 trees") for m in found(copy))


@pytest.mark.parametrize("folder", ["trees", "labels"])
def test_a_shard_lost_on_one_side_is_found(copy: Path, folder: str) -> None:
    (shard,) = (copy / folder).glob("part-00001.*")
    shard.unlink()
    kinds = {m.what for m in audit_run(copy).replay.mismatches}
    assert kinds == ({"file", "missing"} if folder == "labels" else {"file", "content"})


@pytest.mark.parametrize("name", ["conflicts", "failures"])
def test_lost_and_edited_records_are_found(copy: Path, name: str, run: Path) -> None:
    file = copy / f"{name}.jsonl"
    text = file.read_text()
    file.write_text(text + '{"node": 1}\n')
    assert [(m.file, m.line) for m in found(copy)] == [(file.name, text.count("\n") + 1)]
    if text:
        first, _, rest = text.partition("\n")
        record = json.loads(first)
        field = "reason" if name == "failures" else "rationale"
        file.write_text(json.dumps({**record, field: "none"}) + "\n" + rest)
        assert [(m.file, m.line, m.field) for m in found(copy)] == [(file.name, 1, field)]
        file.write_text(rest)
        assert file.name in {m.file for m in found(copy)}
    file.unlink()
    assert ("no such file", file.name) in {(m.stored, m.file) for m in found(copy)}


def test_problems_that_failed_before_they_had_a_tree_are_counted(tmp_path: Path) -> None:
    engine = ScriptedEngine(dice_policy, max_context=300)
    many = [*problems(2), Problem.from_text("long", "Roll. " * 200, "1"), *problems(4)[2:]]
    search = small_search(simulations=8)
    Labeler(reward=ends_in_one, search=search).run(many, engine, tmp_path / "run")
    assert [f["problem_id"] for f in RunReader(tmp_path / "run").failures()] == ["long"]
    assert found(tmp_path / "run") == ()
    file = tmp_path / "run" / "failures.jsonl"
    file.write_text(file.read_text() * 2)
    assert [m.file for m in found(tmp_path / "run")] == ["failures.jsonl"]
    file.write_text("")
    assert {m.file for m in found(tmp_path / "run")} == {"manifest.json", "summary.json"}


def test_a_lost_summary_is_told_to_every_reader(copy: Path) -> None:
    (copy / "summary.json").unlink()
    for read in (RunReader.trees, RunReader.labels):
        with pytest.raises(StoreError, match=r"summary\.json is gone, though the run was finished"):
            list(read(RunReader(copy)))
    with pytest.raises(StoreError, match=r"summary\.json is gone"):
        audit_run(copy)


# --- unfinished runs ------------------------------------------------------------------------------


@pytest.fixture
def begun(run: Path, tmp_path: Path) -> Path:
    """The first three problems of the run, in a journal."""
    reader = RunReader(run)
    with RunFolder(tmp_path / "begun", reader.manifest) as folder:
        for index, tree in zip(range(3), reader.trees(), strict=False):
            labels = [label.to_json() for label in label_tree(tree, Fusion())]
            conflicts = [label for label in labels if label["label_source"] == "conflict"]
            failures = list(tree_failures(index, tree))
            folder.add(ProblemResult(index, tree, labels, conflicts, failures))
    return tmp_path / "begun"


def edit_journal(run: Path, change: Callable[[Json], object], number: int = 2) -> None:
    lines = (run / "journal.jsonl").read_text().splitlines()
    record = json.loads(lines[number - 1])
    change(record)
    lines[number - 1] = json.dumps(record)
    (run / "journal.jsonl").write_text("\n".join(lines) + "\n")


def test_a_journal_is_audited_as_shards_are(begun: Path) -> None:
    report = replay(begun)
    assert report.ok, report.mismatches[:3]
    assert (report.trees, report.files) == (3, 1)
    edit_journal(begun, lambda x: x["labels"][0]["step"].update(text="roll 7"))
    (mismatch,) = found(begun)
    assert (mismatch.file, mismatch.line, mismatch.field) == ("journal.jsonl", 2, "step.text")
    edit_journal(begun, lambda x: x["failures"].append({"index": 1, "node": 1}))
    edit_journal(begun, lambda x: x["conflicts"].append(x["labels"][0]))
    places = [(m.what, m.file, m.line) for m in found(begun)[1:]]
    assert places == [("file", "journal.jsonl", 2)] * 2


@pytest.mark.parametrize("value", ["1", [], {}, 2.5])
def test_a_damaged_label_in_the_journal_is_one_sentence(begun: Path, value: Any) -> None:
    edit_journal(begun, lambda x: x["labels"][0].update(label=value))
    with pytest.raises(StoreError, match=r"journal\.jsonl, line 2: not a label record: 'label'"):
        audit_run(begun)
    with (
        RunFolder(begun, RunReader(begun).manifest) as folder,
        pytest.raises(StoreError, match="a damaged label of problem 1; remove the problem's line"),
    ):
        folder.finish(summarise)


# --- damage: one sentence -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("label",), "1", "'label' is \"1\", not 1, 0 or null"),
        (("label",), 2, "'label' is 2"),
        (("label",), True, "'label' is true"),
        (("soft_label",), float("nan"), "'soft_label' is NaN"),
        (("soft_label",), 1.5, "'soft_label' is 1.5"),
        (("step", "text"), None, "'step.text' is null, not a string"),
        (("step",), None, "'step' is no object"),
        (("problem",), {}, "'problem.id' is missing"),
        (("prefix",), "abc", "'prefix' is \"abc\", not a list of strings"),
        (("evidence", "tree", "node"), "x", "'evidence.tree.node' is \"x\""),
        (("evidence", "tree", "node"), 1.0, "'evidence.tree.node' is 1.0"),
        (("evidence", "tree", "node"), 10**30, "not a whole number"),
        (("evidence", "mc", "total"), "x", "'evidence.mc.total' is \"x\""),
        (("evidence", "tool", "verdict"), "X", "'evidence.tool' is no verdict"),
        (("evidence", "tool"), "X", "'evidence.tool' is \"X\""),
    ],
)
def test_a_damaged_label_names_file_line_and_field(
    copy: Path, path: tuple[str, ...], value: Any, said: str
) -> None:
    edit_label(copy, put(*path, value=value))
    with pytest.raises(StoreError, match=r"part-00000\.jsonl, line 2: not a label record") as info:
        audit_run(copy)
    assert said in str(info.value)


@pytest.mark.parametrize("line", ["[" * 100_000, "[1]", "", "\ud800"])
def test_a_line_without_an_object_is_one_sentence(copy: Path, line: str) -> None:
    file = copy / "labels" / "part-00000.jsonl"
    file.write_bytes(f"{line}\n".encode("utf-8", "surrogatepass") + file.read_bytes())
    with pytest.raises(StoreError, match=r"part-00000\.jsonl, line 1 is damaged"):
        audit_run(copy)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("engine",), "x", "'engine' is \"x\" and no object"),
        (("search",), [1], "'search' is"),
        (("search", "right_above"), "x", "'search.right_above' is \"x\", not a number"),
    ],
)
def test_a_damaged_manifest_is_one_sentence(
    copy: Path, path: tuple[str, ...], value: Any, said: str
) -> None:
    edit(copy / "manifest.json", put(*path, value=value))
    with pytest.raises(StoreError, match=r"manifest\.json is damaged") as info:
        audit_run(copy)
    assert said in str(info.value)


@pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
def test_a_deep_nest_is_one_sentence(copy: Path, name: str) -> None:
    (copy / name).write_text("[" * 100_000)
    with pytest.raises(StoreError, match=rf"{name} cannot be read: its JSON is nested too deeply"):
        audit_run(copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [("correct", 10**6), ("multiplicity", -3), ("multiplicity", 0)],
)
def test_a_changed_tree_does_not_pass(copy: Path, name: str, value: int) -> None:
    file = copy / "trees" / "part-00001.parquet"
    trees = list(read_trees(file))
    for node in trees[0].leaves()[:1]:
        setattr(node, name, value)
    write_trees(trees, file)
    try:
        assert found(copy)
    except StoreError as error:
        assert "is damaged" in str(error)  # noqa: PT017


# --- judges ---------------------------------------------------------------------------------------


class Raises:
    """A judge that fails, as one of the user's own may."""

    name = StepVerifier.name

    def verify(self, step: str, *, problem: str = "", previous_steps: Any = ()) -> Any:
        raise ZeroDivisionError("no luck")


def test_a_judge_that_raises_is_a_mismatch(run: Path) -> None:
    report = replay(run, Raises(), share=0.01)
    assert 0 < report.verdicts == len(report.mismatches)
    assert report.mismatches[0].found == "ZeroDivisionError: no luck"
