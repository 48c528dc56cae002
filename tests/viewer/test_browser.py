"""The page in a real browser, where there is one: drawn, walked, and deaf to hostile text.

Keys and clicks come from a script that is added to the page; its content security policy, which
would refuse that script, is tested in test_document.py and taken out here.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from treerl.problem import Problem
from treerl.tree import Tree
from treerl.viewer import gather, page_html, tree_record, write_page

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium to open pages with")

HELPERS = """
const said = {}, stage = document.getElementById("stage");
const press = (key) => stage.dispatchEvent(new KeyboardEvent("keydown", {key, cancelable: true}));
const panel = () => document.getElementById("panel").textContent;
const drawn = () => document.querySelectorAll("[data-node]").length;
"""

Open = Callable[..., str]
Ask = Callable[[str, str], dict[str, Any]]
MakeTree = Callable[[int], Tree]
WriteRun = Callable[..., Path]


class Markup(HTMLParser):
    """What of a document is markup: its tags, and the names and values of its attributes."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts = 0
        self.title = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.scripts += tag == "script"
        self.attributes |= {text for pair in attrs for text in pair if text is not None}

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() == "<title>" and not self.title:
            self.title = data


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Open a page and return the document that it became."""

    def call(page: Path, anchor: str = "", size: str = "1280,900") -> str:
        assert BROWSER is not None
        command = [
            BROWSER,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
            *(f"--window-size={size}", "--dump-dom", f"{page.as_uri()}#{anchor}"),
        ]
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
        log = done.stderr.decode(errors="replace")
        assert "CONSOLE" not in log, log
        return done.stdout.decode(errors="replace")

    return call


@pytest.fixture
def asked(opened: Open, tmp_path: Path) -> Ask:
    """Run a script in a page and return what it put into ``said``."""

    def call(page: str, script: str) -> dict[str, Any]:
        free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        code = f"{HELPERS}{script}\ndocument.title = JSON.stringify(said);"
        path = tmp_path / "asked.html"
        path.write_text(free.replace("</body>", f"<script>{code}</script></body>"))
        found = re.search("<title>(.*?)</title>", opened(path), re.DOTALL)
        assert found is not None
        answer: dict[str, Any] = json.loads(html.unescape(found[1]))
        return answer

    return call


def page_of(*trees: Tree) -> str:
    records = [{"number": i, **tree_record(tree)} for i, tree in enumerate(trees)]
    return page_html({"source": "s", "trees": records, "more": False, "held": None, "run": {}})


def test_a_run_is_drawn_and_a_link_leads_to_a_step(
    opened: Open, tmp_path: Path, write_run: WriteRun
) -> None:
    out = tmp_path / "page.html"
    write_page(gather(write_run(tmp_path / "run", 3)), out)
    document = opened(out, "tree=1&node=3")
    assert len(re.findall(r'data-node="\d+"', document)) == 4
    panel = re.search(r'<aside id="panel".*?</aside>', document, re.DOTALL)
    assert panel is not None
    assert "Answer: 99" in panel[0]
    assert "✗ wrong" in panel[0]
    path = re.search(r'<section id="path".*?</section>', document, re.DOTALL)
    assert path is not None
    assert "1 + 1 is asked" in path[0]


def test_keys_and_clicks_choose_steps(asked: Ask, sum_tree: MakeTree) -> None:
    said = asked(
        page_of(sum_tree(1), sum_tree(2)),
        """
        press("ArrowRight"); said.right = panel();
        press("ArrowRight"); press("ArrowDown"); said.down = panel();
        press("ArrowLeft"); press("f"); said.folded = drawn();
        press("f"); said.unfolded = drawn();
        const box = document.querySelector('[data-node="2"]').getBoundingClientRect();
        const at = {clientX: box.x + 40, clientY: box.y + 9, pointerId: 1, button: 0};
        stage.setPointerCapture = () => {};  // there is no real pointer to capture
        stage.dispatchEvent(new PointerEvent("pointerdown", at));
        stage.dispatchEvent(new PointerEvent("pointerup", at));
        said.clicked = panel();
        document.querySelectorAll("#list button")[1].click();
        said.other = document.getElementById("problem").textContent;
        """,
    )
    assert "1 + 1 is asked" in said["right"]
    assert "Answer: 99" in said["down"]
    assert (said["folded"], said["unfolded"]) == (2, 4)
    assert "Answer: 2" in said["clicked"]
    assert "What is 2 + 1?" in said["other"]


def test_hostile_text_is_inert(opened: Open, tmp_path: Path, hostile_tree: Tree) -> None:
    page = tmp_path / "hostile.html"
    page.write_text(page_of(hostile_tree))
    for node in range(4):
        document = opened(page, f"node={node}")
        parsed = Markup(document)
        assert parsed.title == "s: treerl view"
        assert parsed.scripts == 2
        assert not parsed.tags & {"img", "a", "iframe", "object", "embed", "link", "form"}
        assert not [text for text in parsed.attributes if "onerror" in text or "<" in text]
        assert document.count("&lt;img src=x") >= 2


def test_hostile_text_is_shown_as_it_is(asked: Ask, hostile: str, hostile_tree: Tree) -> None:
    said = asked(page_of(hostile_tree), 'press("ArrowRight"); said.panel = panel();')
    kept = hostile.split("\u2028")[0].strip()
    assert said["panel"].count(kept) >= 5


def test_a_deep_and_a_wide_tree_of_5000_nodes(asked: Ask) -> None:
    deep = Tree(Problem.from_text("deep", "?"), (1,))
    for i in range(5000):
        deep.add(deep.nodes[-1], (2,), (-1.0,), text=f"step {i}")
    wide = Tree(Problem.from_text("wide", "?"), (1,))
    for i in range(5000):
        wide.add(wide.nodes[i // 3], (2,), (-1.0,), text=f"step {i}")
    said = asked(
        page_of(deep, wide),
        """
        said.deep = drawn();
        for (let i = 0; i < 30; i++) press("ArrowRight");
        said.far = panel(); press("0"); said.fit = drawn();
        said.paths = document.querySelectorAll("#stage path").length;
        document.querySelectorAll("#list button")[1].click();
        said.wide = drawn();
        press("0"); said.dots = document.querySelectorAll("#stage path").length;
        """,
    )
    assert 0 < said["deep"] < 30
    assert "step 29" in said["far"]
    assert said["fit"] == 0  # far out nodes are drawn together
    assert 0 < said["paths"] < 50
    assert 0 < said["wide"] < 200
    assert 0 < said["dots"] < 50


@pytest.mark.parametrize("size", ["1280,900", "500,900"])
def test_nothing_runs_over_the_side(asked: Ask, size: str) -> None:
    long = Tree(Problem.from_text("x" * 300, "y" * 3000, "z" * 300), (1,))
    long.add(long.root, (2,), (-1.0,), text="w" * 3000)
    said = asked(
        page_of(long),
        """
        press("ArrowRight");
        document.body.style.width = "390px";
        said.over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
        """,
    )
    assert said["over"] <= 0
