"""Which trees go into a page, and what is said of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from treerl.advantage import estimator
from treerl.errors import ConfigError, StoreError
from treerl.tree import Tree
from treerl.treefile import write_trees
from treerl.viewer import default_path, gather, source, write_page

MakeTree = Callable[[int], Tree]
WriteRun = Callable[..., Path]


def ids(page: source.PageTrees) -> list[str]:
    return [tree["id"] for tree in page.trees]


def test_a_labelled_run_is_gathered_with_its_labels(labelled_run: Path) -> None:
    page = gather(labelled_run)
    assert ids(page) == [f"p{i}" for i in range(5)]
    assert [tree["number"] for tree in page.trees] == list(range(5))
    assert (page.more, page.held, page.nodes) == (False, 5, 20)
    assert all("label" in node for tree in page.trees for node in tree["nodes"][1:])
    assert page.run["kind"] == "label"
    assert page.run["model"] == "some/model"
    assert page.run["finished"] is True


def test_a_bound_is_kept_and_said(labelled_run: Path) -> None:
    page = gather(labelled_run, limit=2)
    assert (ids(page), page.more, page.held) == (["p0", "p1"], True, 5)


@pytest.mark.parametrize("choice", [{"problem": "p3"}, {"index": 3}])
def test_one_tree_is_chosen(labelled_run: Path, choice: dict[str, str | int]) -> None:
    page = gather(labelled_run, **choice)  # type: ignore[arg-type]
    assert (ids(page), page.trees[0]["number"], page.more) == (["p3"], 3, True)


def test_a_page_does_not_grow_without_bound(
    labelled_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "NODES", 9)
    page = gather(labelled_run)
    assert (ids(page), page.more) == (["p0", "p1"], True)
    monkeypatch.setattr(source, "NODES", 1)
    assert ids(gather(labelled_run)) == ["p0"]


def test_rollouts_have_no_labels_and_may_still_go_on(tmp_path: Path, write_run: WriteRun) -> None:
    page = gather(write_run(tmp_path / "a", 3, kind="rollout"))
    assert (ids(page), page.trees[0]["labelled"], page.held) == (["p0", "p1", "p2"], False, 3)
    page = gather(write_run(tmp_path / "b", 3, kind="rollout", finish=False))
    assert (len(ids(page)), page.held, page.run["finished"]) == (3, None, False)
    page = gather(write_run(tmp_path / "c", 2, finish=False))
    assert page.trees[1]["labelled"]


def test_files_of_one_and_of_several_trees(tmp_path: Path, sum_tree: MakeTree) -> None:
    sum_tree(7).save(tmp_path / "one.parquet")
    page = gather(tmp_path / "one.parquet")
    assert (page.source, ids(page), page.more, page.held) == ("one.parquet", ["p7"], False, None)
    write_trees(map(sum_tree, range(3)), tmp_path / "three.parquet")
    page = gather(tmp_path / "three.parquet", limit=2)
    assert (ids(page), page.more) == (["p0", "p1"], True)


def test_advantages_are_added_where_they_are_asked_for(labelled_run: Path) -> None:
    page = gather(labelled_run, limit=1, advantage=estimator("dr_grpo"))
    assert [node.get("advantage") for node in page.trees[0]["nodes"]] == [None, 0.0, 0.5, -0.5]


def test_a_rollout_run_brings_its_own_estimator_and_bar(
    write_run: WriteRun, tmp_path: Path
) -> None:
    own = {"advantage": {"name": "dr_grpo", "options": {}, "whiten": False}, "right_above": 1.5}
    page = gather(write_run(tmp_path / "a", 1, kind="rollout", **own))
    assert page.run["advantage"] == "dr_grpo"
    assert [node.get("advantage") for node in page.trees[0]["nodes"]] == [None, 0.0, 0.5, -0.5]
    assert (page.trees[0]["right"], page.trees[0]["scored"]) == (0, 2)
    unknown = {"advantage": {"name": "of tomorrow", "options": {}, "whiten": False}}
    page = gather(write_run(tmp_path / "b", 1, kind="rollout", **unknown))
    assert "advantage" not in page.run


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"problem": "nobody"}, "no tree of a problem 'nobody'"),
        ({"index": 5}, "holds 5 trees, numbered from 0; there is no number 5"),
    ],
)
def test_what_is_not_there_is_said(
    labelled_run: Path, choice: dict[str, str | int], words: str
) -> None:
    with pytest.raises(StoreError, match=words):
        gather(labelled_run, **choice)  # type: ignore[arg-type]


def test_nothing_to_look_at(tmp_path: Path, write_run: WriteRun) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        gather(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="holds no tree yet"):
        gather(write_run(tmp_path / "fresh", 0, finish=False))


def test_where_a_page_goes(labelled_run: Path, tmp_path: Path, sum_tree: MakeTree) -> None:
    sum_tree(1).save(tmp_path / "tree.parquet")
    assert default_path(labelled_run) == labelled_run / "view.html"
    assert default_path(tmp_path / "tree.parquet") == tmp_path / "tree.html"


def test_a_page_is_replaced_only_on_demand(labelled_run: Path, tmp_path: Path) -> None:
    page, out = gather(labelled_run), tmp_path / "new" / "page.html"
    assert write_page(page, out) == len(out.read_bytes())
    with pytest.raises(ConfigError, match="--force"):
        write_page(page, out)
    write_page(page, out, force=True)
    with pytest.raises(ConfigError, match="is a folder"):
        write_page(page, tmp_path, force=True)


def test_equal_trees_give_equal_bytes(tmp_path: Path, write_run: WriteRun) -> None:
    run = write_run(tmp_path / "run", 2)
    first, second = tmp_path / "1.html", tmp_path / "2.html"
    write_page(gather(run), first)
    write_page(gather(run), second)
    assert first.read_bytes() == second.read_bytes()
