"""`treerl export`: its formats, what they cannot hold, soft labels, and the way to the hub."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from treerl.cli.export import ALWAYS_SOFT, CAN_BE_SOFT, export
from treerl.prm.formats import FORMATS
from treerl.prm.formats.writing import make_format

if TYPE_CHECKING:
    from conftest import Treerl


def test_the_help_has_a_line_for_each_format(quick: Treerl) -> None:
    listed = re.findall(r"^    - \*\*([\w-]+)\*\*: \S.*$", export.__doc__ or "", re.MULTILINE)
    assert listed == list(FORMATS)
    shown = quick("export", "--help").stdout
    assert all(f"{name}: " in shown for name in FORMATS)


def test_losses_of_all_formats_and_of_one(quick: Treerl, run_dir: Path) -> None:
    done = quick("export", "--losses")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for name in FORMATS:
        assert re.search(rf"^{name} +\S", done.stdout, re.MULTILINE)
        assert all(" ".join(loss.split()) in said for loss in make_format(name).losses()[:1])
    one = quick("export", run_dir, "processbench", "--losses")
    assert one.returncode == 0
    assert one.stdout == quick("export", "processbench", "--losses").stdout
    assert len(one.stdout.splitlines()) == 1 + len(make_format("processbench").losses())
    assert quick("export", run_dir, "xml", "--losses").returncode == 1


def test_hard_and_soft_labels_from_one_run(quick: Treerl, run_dir: Path, tmp_path: Path) -> None:
    kinds: dict[bool, set[type]] = {}
    for soft in (False, True):
        out = tmp_path / f"{soft}.jsonl"
        args = ["export", run_dir, "trl", "--out", out, *(["--soft"] if soft else [])]
        assert quick(*args).returncode == 0
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        kinds[soft] = {type(label) for row in rows for label in row["labels"]}
    assert kinds == {False: {bool}, True: {float}}
    always = tmp_path / "openr.jsonl"
    assert quick("export", run_dir, "openr", "--out", always, "--soft").returncode == 0
    done = quick("export", run_dir, "prm800k", "--out", tmp_path / "x", "--soft")
    assert done.returncode == 1
    assert "prm800k holds no soft labels; there are trl, qwen with --soft" in done.stderr
    for name in CAN_BE_SOFT:
        assert make_format(name, {"soft": True}).losses() != make_format(name).losses()
    assert set(ALWAYS_SOFT) | set(CAN_BE_SOFT) <= set(FORMATS)


def test_wrong_calls(quick: Treerl, run_dir: Path, tmp_path: Path) -> None:
    for args, said in (
        ([], "DIR is missing"),
        ([run_dir], "FORMAT is missing"),
        ([run_dir, "trl"], "--out is missing"),
        ([run_dir, "trl", "--out", tmp_path / "x", "--private"], "--private needs --push-to-hub"),
    ):
        done = quick("export", *args)
        assert done.returncode == 2
        assert said in done.stderr
        assert "--help" in done.stderr


def test_pushing_sends_the_file_and_its_card(
    quick: Treerl, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import treerl.prm.formats

    sent: list[tuple[Any, ...]] = []

    def publish(path: Path, repo: str, card: str, *, private: bool = False) -> str:
        sent.append((path, repo, card, private))
        return f"https://hub/{repo}"

    monkeypatch.setattr(treerl.prm.formats, "publish", publish)
    out = tmp_path / "train.jsonl"
    args = ["export", run_dir, "trl", "--out", out, "--push-to-hub", "me/sums", "--private"]
    done = quick(*args)
    assert done.returncode == 0, done.stderr
    assert "Pushed with its card to https://hub/me/sums" in done.stdout
    ((path, repo, card, private),) = sent
    assert (path, repo, private) == (out, "me/sums", True)
    assert "### trl: " in card
    assert "### chat: " not in card


def test_pushing_without_a_token_is_an_error(
    quick: Treerl, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    out = tmp_path / "train.jsonl"
    done = quick("export", run_dir, "trl", "--out", out, "--push-to-hub", "me/sums")
    assert done.returncode == 1
    assert "HF_TOKEN" in done.stderr
    assert out.exists()
