"""The page as a document: whole, offline, and nothing of a run in it as markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.prm.fuse import Fusion
from treerl.prm.label import label_tree
from treerl.problem import Problem
from treerl.tree import Tree
from treerl.viewer import page_html, tree_record

MakeTree = Callable[[int], Tree]


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the text inside each script and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.comments: list[str] = []
        self.texts: dict[int, str] = {}
        self.open = True
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, attrs))
        self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = False

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        if self.open:
            at = len(self.elements) - 1
            self.texts[at] = self.texts.get(at, "") + data

    def inside(self, tag: str) -> list[str]:
        return [self.texts.get(i, "") for i, (name, _) in enumerate(self.elements) if name == tag]


def page_of(*trees: Tree, source: str = "s") -> str:
    records = []
    for number, tree in enumerate(trees):
        labels = {label.node: label for label in label_tree(tree, Fusion(n_min=1))}
        records.append({"number": number, **tree_record(tree, labels)})
    return page_html(
        {"source": source, "trees": records, "more": True, "held": None, "run": {source: source}}
    )


def data_of(page: str) -> Any:
    return json.loads(Parsed(page).inside("script")[0])


def test_no_element_or_attribute_comes_from_a_run(
    hostile: str, hostile_tree: Tree, sum_tree: MakeTree
) -> None:
    calm, other = Parsed(page_of(sum_tree(1))), Parsed(page_of(hostile_tree, source=hostile))
    assert other.elements == calm.elements
    assert other.comments == calm.comments == []
    assert other.inside("script")[1] == calm.inside("script")[1]


def test_what_went_in_is_read_by_the_page(hostile: str, hostile_tree: Tree) -> None:
    data = data_of(page_of(hostile_tree, source=hostile))
    whole = hostile.replace("\ud800", "?")
    assert data["source"] == whole
    node = data["trees"][0]["nodes"][1]
    assert node["text"] == node["verdict"]["claims"][0]["calls"][0]["query"] == whole


@given(text=st.text())
def test_any_text_survives_and_stays_text(text: str, sum_tree: MakeTree) -> None:
    tree = Tree(Problem.from_text("p", text, text), (1,))
    tree.add(tree.root, (2,), (-1.0,), text=text)
    page = page_html({"source": text, "trees": [tree_record(tree)]})
    assert data_of(page)["trees"][0]["nodes"][1]["text"] == text
    assert Parsed(page).elements == Parsed(page_of(sum_tree(0))).elements


def test_the_data_block_holds_no_markup(hostile_tree: Tree) -> None:
    block = Parsed(page_of(hostile_tree)).inside("script")[0]
    assert not set("<>&\n\0\u2028\u2029\ud800") & set(block)


def test_the_policy_allows_this_script_and_style_and_no_request(hostile_tree: Tree) -> None:
    page = page_of(hostile_tree)
    parsed = Parsed(page)
    (policy,) = [
        dict(attributes)["content"] or ""
        for tag, attributes in parsed.elements
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attributes
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name, text in (
        ("script-src", parsed.inside("script")[1]),
        ("style-src", parsed.inside("style")[0]),
    ):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_the_page_asks_for_nothing(sum_tree: MakeTree) -> None:
    page = page_of(sum_tree(1))
    parsed = Parsed(page)
    for tag, attributes in parsed.elements:
        assert not {"src", "href", "action", "style"} & {name for name, _ in attributes}, tag
        assert not [name for name, _ in attributes if name.startswith("on")], tag
    script, style = parsed.inside("script")[1], parsed.inside("style")[0]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(", script)
    assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|import\(|sendBeacon", script)
    assert "url(" not in style
    assert "@import" not in style
    assert set(re.findall(r"https?://[^\"' ]+", script + style)) == {"http://www.w3.org/2000/svg"}


def test_numbers_without_a_word_in_json_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        page_html({"trees": [float("nan")]})
