"""Every Python example of the README, the docs and the examples folder runs as it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^]]+\]\(([^)#:]+)\)")


def blocks(page: Path) -> list[str]:
    return [code for language, code in BLOCK.findall(page.read_text()) if language == "python"]


def needs_model(page: Path) -> bool:
    return any("HFEngine.from_pretrained" in code for code in blocks(page))


def run(page: Path) -> None:
    """Run a page's blocks one after another, as a reader would."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(blocks(page), 1):
        exec(compile(code, f"{page.name}[{number}]", "exec"), names)


@pytest.mark.parametrize("page", [p for p in PAGES if not needs_model(p)], ids=lambda p: p.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page)


@pytest.mark.engine
@pytest.mark.parametrize("page", [p for p in PAGES if needs_model(p)], ids=lambda p: p.name)
def test_examples_with_a_model_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page)


@pytest.mark.engine
@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example_scripts_run(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out
    assert len(script.read_text().splitlines()) <= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_blocks_are_whole(page: Path) -> None:
    text = page.read_text()
    for target in LINK.findall(text):
        assert (page.parent / target).exists(), target
    assert text.count("\n```") % 2 == 0
    languages = {language for language, _ in BLOCK.findall(text)}
    assert languages <= {"python", "console", "text"}, "mark each block"


def test_pages_name_commands_and_formats_that_exist() -> None:
    from treerl.cli.main import app
    from treerl.prm.formats import FORMATS

    commands = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    for page in PAGES:
        text = page.read_text()
        assert set(re.findall(r"^\$ treerl (\w+)", text, re.MULTILINE)) <= commands
        assert set(re.findall(r"treerl export \S+ ([a-z]\w*) --out", text)) <= set(FORMATS)
