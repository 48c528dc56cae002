"""`treerl view`: one command from a run or a file to a page."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from treerl.cli.main import main
from treerl.store import RunReader
from treerl.viewer import TREES

if TYPE_CHECKING:
    from conftest import Treerl


def data_of(page: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    return json.loads(found[1])


def test_a_run_becomes_a_page(quick: Treerl, run_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = quick("view", run_dir, "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    data = data_of(out)
    assert [tree["id"] for tree in data["trees"]] == [f"sum-{i}" for i in range(5)]
    trees = list(RunReader(run_dir).trees())
    assert [len(tree["nodes"]) for tree in data["trees"]] == [len(tree) for tree in trees]
    nodes = sum(map(len, trees))
    assert f"5 trees with {nodes:,} nodes in {out} (" in done.stdout
    labels = [label["label"] for label in RunReader(run_dir).labels()]
    shown = [n["label"].get("value") for t in data["trees"] for n in t["nodes"] if "label" in n]
    assert shown == labels


def test_trees_are_chosen_and_the_rest_is_counted(
    quick: Treerl, run_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    assert quick("view", run_dir, "--out", out, "--limit", "2").stdout.startswith("2 of 5 trees ")
    assert (data_of(out)["more"], data_of(out)["held"]) == (True, 5)
    for choice in (("--problem", "sum-3"), ("--index", "3")):
        assert quick("view", run_dir, "--out", out, "--force", *choice).returncode == 0
        assert [tree["number"] for tree in data_of(out)["trees"]] == [3]


def test_a_single_tree_lands_beside_its_file(quick: Treerl, run_dir: Path, tmp_path: Path) -> None:
    next(RunReader(run_dir).trees()).save(tmp_path / "tree.parquet")
    assert quick("view", tmp_path / "tree.parquet").returncode == 0
    assert data_of(tmp_path / "tree.html")["trees"][0]["labelled"] is False


def test_a_page_is_replaced_only_with_force(quick: Treerl, run_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("mine")
    done = quick("view", run_dir, "--out", out)
    assert (done.returncode, out.read_text()) == (1, "mine")
    assert done.stderr.count("\n") == 1
    assert "--force" in done.stderr
    assert quick("view", run_dir, "--out", out, "--force").returncode == 0
    assert data_of(out)["trees"]


def test_advantages_are_added_by_name(quick: Treerl, run_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert quick("view", run_dir, "--out", out, "--advantage", "treepo").returncode == 0
    assert any("advantage" in node for tree in data_of(out)["trees"] for node in tree["nodes"])
    done = quick("view", run_dir, "--out", out, "--force", "--advantage", "trepo")
    assert done.returncode == 2
    assert "did you mean 'treepo'?" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["nowhere"], 1, "nowhere does not exist"),
        (["{run}", "--problem", "nobody"], 1, "no tree of a problem 'nobody'"),
        (["{run}", "--index", "9"], 1, "there is no number 9"),
        (["{run}", "--index", "0", "--problem", "x"], 2, "not both"),
    ],
)
def test_a_wrong_call_is_one_sentence(
    quick: Treerl, run_dir: Path, tmp_path: Path, args: list[str], code: int, words: str
) -> None:
    out = tmp_path / "page.html"
    given = [arg.replace("{run}", str(run_dir)) for arg in args]
    done = quick("view", *given, "--out", out)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert words in done.stderr
    assert not out.exists()


def test_the_default_bound_is_that_of_the_viewer() -> None:
    from inspect import signature

    from treerl.cli.view import view

    assert signature(view).parameters["limit"].default == TREES


@pytest.mark.skipif(os.name != "posix", reason="the browser of this test is a shell script")
def test_the_page_is_opened_in_the_browser_of_the_user(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.delitem(sys.modules, "webbrowser", raising=False)  # it reads BROWSER only once
    out = tmp_path / "a page.html"
    assert main(["view", str(run_dir), "--out", str(out), "--open"]) == 0
    assert (tmp_path / "opened").read_text() == out.as_uri()
