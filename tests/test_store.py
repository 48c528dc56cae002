"""Run folders: nothing finished is lost, nothing torn counts, equal runs are equal bytes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treerl.errors import StoreError, StoreLocked, StoreMismatch
from treerl.problem import Problem
from treerl.store import ProblemResult, RunFolder, RunReader
from treerl.tree import Tree

MANIFEST = {"kind": "test", "seed": 1}


def result(index: int) -> ProblemResult:
    tree = Tree(Problem.from_text(f"p{index}", "q\u2028 ü", "1"), (1, 2))
    tree.add(tree.root, (3, index), (-0.1, -0.25), finish_reason="eos", text="é")
    label = {"node": 1, "problem": index}
    failures = [{"index": index, "reason": "slow"}] if index % 3 == 0 else []
    return ProblemResult(index, tree, [label], [], failures, {"seconds": 0.5 * index})


def summary(results: Any) -> dict[str, Any]:
    return {"problems": sum(1 for _ in results)}


def digests(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "volatile.jsonl")
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def filled(path: Path, order: list[int]) -> dict[str, str]:
    with RunFolder(path, MANIFEST) as folder:
        for index in order:
            folder.add(result(index))
        folder.finish(summary)
    return digests(path)


@settings(max_examples=10)
@given(order=st.permutations(range(70)))
def test_the_order_of_arrival_leaves_no_trace(tmp_path_factory, order: list[int]) -> None:
    base = tmp_path_factory.mktemp("runs")
    assert filled(base / "a", order) == filled(base / "b", list(range(70)))


def test_final_files(tmp_path) -> None:
    files = filled(tmp_path / "run", [2, 0, 1, 65])
    assert sorted(files) == [
        "conflicts.jsonl",
        "failures.jsonl",
        "labels/part-00000.jsonl",
        "labels/part-00001.jsonl",
        "manifest.json",
        "summary.json",
        "trees/part-00000.parquet",
        "trees/part-00001.parquet",
    ]
    reader = RunReader(tmp_path / "run")
    assert [t.problem.id for t in reader.trees()] == ["p0", "p1", "p2", "p65"]
    assert [x["problem"] for x in reader.labels()] == [0, 1, 2, 65]
    assert [x["index"] for x in reader.failures()] == [0]
    assert reader.summary() == {"problems": 4}


def test_an_interrupted_run_can_be_read_and_continued(tmp_path) -> None:
    path = tmp_path / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.add(result(1))
    assert [t.problem.id for t in RunReader(path).trees()] == ["p1"]
    with RunFolder(path, MANIFEST) as folder:
        assert folder.done == {1}
        folder.add(result(0))
        folder.finish(summary)
    assert digests(path) == filled(tmp_path / "straight", [0, 1])


@pytest.mark.parametrize("cut", [1, 20, 400])
def test_a_torn_last_line_is_cut_off_and_only_it(tmp_path, cut: int) -> None:
    path = tmp_path / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.add(result(0))
        folder.add(result(1))
    journal = path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-cut])
    assert [t.problem.id for t in RunReader(path).trees()] == ["p0"]
    with RunFolder(path, MANIFEST) as folder:
        assert folder.done == {0}
        folder.add(result(1))
        folder.finish(summary)
    assert digests(path) == filled(tmp_path / "straight", [0, 1])


def test_finish_may_be_killed_anywhere_and_repeated(tmp_path, monkeypatch) -> None:
    want = filled(tmp_path / "straight", [0, 1, 70])
    for fatal in range(8):  # the n-th rename of finish() is the last thing the process does
        path = tmp_path / f"run{fatal}"
        with RunFolder(path, MANIFEST) as folder:
            for index in (70, 0, 1):
                folder.add(result(index))
            renames = 0
            real = Path.replace

            def replace(self: Path, target: Path, fatal: int = fatal, real=real) -> Path:
                nonlocal renames
                if renames == fatal:
                    raise KeyboardInterrupt
                renames += 1
                return real(self, target)

            with monkeypatch.context() as patch:
                patch.setattr(Path, "replace", replace)
                with pytest.raises(KeyboardInterrupt):
                    folder.finish(summary)
        with RunFolder(path, MANIFEST) as folder:
            folder.finish(summary)
        assert digests(path) == want


def test_a_finished_run_stays_as_it_is(tmp_path) -> None:
    before = filled(tmp_path / "run", [0, 1])
    with RunFolder(tmp_path / "run", MANIFEST) as folder:
        assert folder.finished
        folder.finish(summary)
    assert digests(tmp_path / "run") == before


def test_another_run_is_refused_and_the_difference_named(tmp_path) -> None:
    filled(tmp_path / "run", [0])
    with pytest.raises(StoreMismatch, match="'seed' is 1 there and 2 now"):
        RunFolder(tmp_path / "run", {"kind": "test", "seed": 2})
    RunFolder(tmp_path / "run", MANIFEST).close()  # the refusal left no lock


def test_another_schema_is_refused(tmp_path) -> None:
    filled(tmp_path / "run", [0])
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps({**MANIFEST, "schema": "treerl.run/99"}))
    with pytest.raises(StoreMismatch, match="treerl.run/99"):
        RunFolder(tmp_path / "run", MANIFEST)
    with pytest.raises(StoreMismatch, match="treerl.run/99"):
        RunReader(tmp_path / "run")


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path) -> None:
    strange = {"thesis.tex": "x", ".draft.7.part": "precious", "LOCK": "mine, not treerl's"}
    (tmp_path / "deep").mkdir()
    for name, text in strange.items():
        (tmp_path / name).write_text(text)
        (tmp_path / "deep" / name).write_text(text)
    with pytest.raises(StoreMismatch, match="is not empty and no run folder"):
        RunFolder(tmp_path, MANIFEST)
    for name, text in strange.items():
        assert (tmp_path / name).read_text() == (tmp_path / "deep" / name).read_text() == text


def test_a_strangers_lock_alone_is_left_alone(tmp_path) -> None:
    (tmp_path / "LOCK").write_text("mine")
    with pytest.raises(StoreMismatch, match="'LOCK'"):
        RunFolder(tmp_path, MANIFEST)
    assert (tmp_path / "LOCK").read_text() == "mine"


BAD_LINES = [
    b"garbage\n",
    b"\n",
    b"\xff\n",
    b'{"index":0}\n',
    b"[" * 100_000 + b"\n",
    b'{"index":-1,"tree":null,"labels":[],"conflicts":[],"failures":[],"volatile":{}}\n',
]


@pytest.mark.parametrize("bad", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_damaged_line_costs_its_own_problem_only(tmp_path, caplog, bad, where) -> None:
    path = tmp_path / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.add(result(0))
        folder.add(result(1))
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (path / "journal.jsonl").write_bytes(b"".join([*lines[:where], bad, *lines[where:]]))
    assert [t.problem.id for t in RunReader(path).trees()] == ["p0", "p1"]
    with RunFolder(path, MANIFEST) as folder:
        assert folder.done == {0, 1}
        assert "1 damaged journal lines are passed over" in caplog.text
        folder.finish(summary)
    assert digests(path) == filled(tmp_path / "straight", [0, 1])


ODD_FIELDS = [
    {"labels": "x"},
    {"labels": [1]},
    {"conflicts": None},
    {"failures": {"a": 1}},
    {"volatile": [1]},
    {"tree": []},
]


@pytest.mark.parametrize("odd", ODD_FIELDS, ids=str)
def test_a_line_with_fields_of_other_types_is_damage(tmp_path, odd) -> None:
    path = tmp_path / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.add(result(0))
        folder.add(result(1))
    first, second = (path / "journal.jsonl").read_bytes().splitlines()
    changed = json.dumps({**json.loads(first), **odd}).encode()
    (path / "journal.jsonl").write_bytes(changed + b"\n" + second + b"\n")
    assert [t.problem.id for t in RunReader(path).trees()] == ["p1"]
    with RunFolder(path, MANIFEST) as folder:
        assert folder.done == {1}
        folder.add(result(0))
        folder.finish(summary)
    assert digests(path) == filled(tmp_path / "straight", [0, 1])


def test_a_damaged_tree_in_the_journal_is_one_sentence(tmp_path) -> None:
    path = tmp_path / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.add(result(0))
    record = json.loads((path / "journal.jsonl").read_bytes())
    record["tree"]["nodes"]["verdict"][1] = {"verdict": "X"}
    (path / "journal.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(StoreError, match=r"journal\.jsonl, line 1: .*problem 0 is damaged"):
        list(RunReader(path).trees())
    with RunFolder(path, MANIFEST) as folder, pytest.raises(StoreError, match="remove the line"):
        folder.finish(summary)


def test_a_problem_that_stands_twice_is_read_once(tmp_path) -> None:
    path = tmp_path / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.add(result(0))
    journal = path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() * 2)
    assert [t.problem.id for t in RunReader(path).trees()] == ["p0"]


@pytest.mark.parametrize("state", ["new", "begun", "finished"])
def test_parts_of_a_killed_writer_are_swept(tmp_path, state: str) -> None:
    path = tmp_path / "run"
    path.mkdir()
    if state != "new":
        with RunFolder(path, MANIFEST) as folder:
            folder.add(result(0))
            if state == "finished":
                folder.finish(summary)
    (path / ".manifest.json.4711.part").write_text('{"schema"')
    with RunFolder(path, MANIFEST) as folder:
        if not folder.finished:
            if 0 not in folder.done:
                folder.add(result(0))
            folder.finish(summary)
    assert digests(path) == filled(tmp_path / "straight", [0])


def test_a_first_write_that_fails_is_one_sentence_and_leaves_no_lock(tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(full))
        with pytest.raises(StoreError, match="no space left"):
            RunFolder(tmp_path / "run", MANIFEST)
    assert filled(tmp_path / "run", [0]) == filled(tmp_path / "straight", [0])


@pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
def test_a_deep_nest_is_one_sentence(tmp_path, name: str) -> None:
    filled(tmp_path / "run", [0])
    (tmp_path / "run" / name).write_text("[" * 100_000)
    with pytest.raises(StoreError, match=rf"{name} cannot be read: its JSON is nested too deeply"):
        RunFolder(tmp_path / "run", MANIFEST)


def test_a_finished_run_without_its_summary_is_told(tmp_path) -> None:
    filled(tmp_path / "run", [0])
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(StoreError, match=r"summary\.json is gone, though the run was finished"):
        list(RunReader(tmp_path / "run").trees())


@pytest.mark.parametrize("section", ["problems", "engine", "search"])
def test_a_manifest_whose_sections_are_no_objects_is_damaged(tmp_path, section: str) -> None:
    filled(tmp_path / "run", [0])
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), section: "x"}))
    with pytest.raises(StoreError, match=f"'{section}' is \"x\" and no object"):
        RunReader(tmp_path / "run")


def test_an_index_beyond_the_problems_is_damage(tmp_path) -> None:
    manifest = {**MANIFEST, "problems": {"count": 2}}
    with RunFolder(tmp_path / "run", manifest) as folder:
        folder.add(result(1))
    with RunFolder(tmp_path / "run", manifest) as folder:
        assert folder.done == {1}
    line = (tmp_path / "run" / "journal.jsonl").read_bytes()
    (tmp_path / "run" / "journal.jsonl").write_bytes(line + result(99).to_line())
    with RunFolder(tmp_path / "run", manifest) as folder:
        assert folder.done == {1}


def test_a_lost_shard_folder_of_a_finished_run_is_named(tmp_path) -> None:
    filled(tmp_path / "run", [0, 1])
    for name, read in (("labels", RunReader.labels), ("trees", RunReader.trees)):
        shutil.rmtree(tmp_path / "run" / name)
        with pytest.raises(StoreError, match=f"its folder '{name}' is gone"):
            list(read(RunReader(tmp_path / "run")))


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
def test_a_damaged_summary_is_an_error_and_the_journal_stays(tmp_path, content: str) -> None:
    path = tmp_path / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.add(result(0))
    (path / "summary.json").write_text(content)
    with pytest.raises(StoreError, match=r"summary\.json"):
        RunFolder(path, MANIFEST)
    assert (path / "journal.jsonl").stat().st_size > 0
    (path / "summary.json").unlink()
    with RunFolder(path, MANIFEST) as folder:
        assert folder.done == {0}


HOLD = """
import sys
from treerl.store import RunFolder
with RunFolder(sys.argv[1], {"kind": "test", "seed": 1}):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder_of(path: Path) -> subprocess.Popen[str]:
    """Start a process that holds a run folder until its standard input closes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_locked_folder_names_its_holder(tmp_path) -> None:
    with holder_of(tmp_path / "run") as holder:
        with pytest.raises(StoreLocked, match=f"being written by process {holder.pid}"):
            RunFolder(tmp_path / "run", MANIFEST)
        holder.communicate("")
    RunFolder(tmp_path / "run", MANIFEST).close()


def test_a_killed_process_leaves_no_lock(tmp_path) -> None:
    with holder_of(tmp_path / "run") as holder:
        holder.kill()
    RunFolder(tmp_path / "run", MANIFEST).close()


def test_a_full_disk_loses_nothing_and_says_what_to_do(tmp_path, monkeypatch) -> None:
    path = tmp_path / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.add(result(0))
        with monkeypatch.context() as patch:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            patch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(full))
            with pytest.raises(StoreError, match="no space left.*1 finished problems are safe"):
                folder.add(result(1))
        assert folder.done == {0}
        folder.add(result(1))  # space again: the torn line is gone
        folder.finish(summary)
    assert digests(path) == filled(tmp_path / "straight", [0, 1])


def test_a_problem_is_added_once(tmp_path) -> None:
    with RunFolder(tmp_path / "run", MANIFEST) as folder:
        folder.add(result(0))
        with pytest.raises(ValueError, match="problem 0 was added before"):
            folder.add(result(0))


def test_no_run_folder_is_one_clear_error(tmp_path) -> None:
    with pytest.raises(StoreError, match="is no run folder"):
        RunReader(tmp_path)
    with pytest.raises(StoreError, match="does not exist"):
        RunReader(tmp_path / "nowhere")


def test_a_damaged_label_file_names_file_and_line(tmp_path) -> None:
    filled(tmp_path / "run", [0, 1])
    labels = tmp_path / "run" / "labels" / "part-00000.jsonl"
    labels.write_text('{"node": 1}\n{"node": \n')
    with pytest.raises(StoreError, match=r"part-00000\.jsonl, line 2 is damaged"):
        list(RunReader(tmp_path / "run").labels())


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/bin/mount").exists(), reason="needs to mount")
def test_a_really_full_disk_loses_nothing(tmp_path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        done = 0

        def fill(folder: RunFolder) -> None:
            nonlocal done
            while done < 1000:
                folder.add(result(done))
                done += 1

        with (
            RunFolder(disk / "run", MANIFEST) as folder,
            pytest.raises(StoreError, match="no space left"),
        ):
            fill(folder)
        assert done > 0
        remount = ["mount", "-o", "remount,size=8m", str(disk)]
        assert subprocess.run(remount, capture_output=True).returncode == 0
        with RunFolder(disk / "run", MANIFEST) as folder:  # the lock was released
            assert folder.done == set(range(done))
            folder.add(result(done))
            folder.finish(summary)
        assert digests(disk / "run") == filled(tmp_path / "straight", list(range(done + 1)))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
