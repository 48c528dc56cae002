"""Pushing to the hub: what is sent in which order, and that the token stays where it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from treerl.errors import ConfigError, StoreError
from treerl.prm.formats import publish

SECRET = "hf_secret"


@dataclass
class Hub:
    """Stands in for the network: what the two libraries would send."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    refuse: str | None = None


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub()

    class Api:
        def __init__(self, token: str) -> None:
            assert token == SECRET

        def create_repo(self, repo_id: str, **options: Any) -> Any:
            if made.refuse is not None:
                raise huggingface_hub.errors.HFValidationError(made.refuse)
            made.calls.append(("create_repo", {"repo_id": repo_id, **options}))
            return huggingface_hub.RepoUrl(f"https://huggingface.co/datasets/me/{repo_id[3:]}")

        def upload_file(self, **options: Any) -> None:
            made.calls.append(("upload_file", options))

    def push_to_hub(table: datasets.Dataset, repo_id: str, **options: Any) -> None:
        made.calls.append(("push_to_hub", {"rows": list(table), "repo_id": repo_id, **options}))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(datasets.Dataset, "push_to_hub", push_to_hub)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    return made


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"prompt": "Q", "completions": ["a"], "labels": [True]}) + "\n")
    return path


def test_rows_and_card_go_together(hub: Hub, rows: Path) -> None:
    where = publish(rows, "me/steps", "# Steps", private=True)
    assert where.endswith("/datasets/me/steps")
    assert [name for name, _ in hub.calls] == ["create_repo", "upload_file", "push_to_hub"]
    (_, made), (_, card), (_, data) = hub.calls
    assert made == {
        "repo_id": "me/steps",
        "repo_type": "dataset",
        "private": True,
        "exist_ok": True,
    }
    assert (card["path_or_fileobj"], card["path_in_repo"]) == (b"# Steps", "README.md")
    assert data["rows"] == [json.loads(rows.read_text())]
    assert (data["repo_id"], data["private"], data["token"]) == ("me/steps", True, SECRET)


def test_a_refusal_is_one_sentence_without_the_token(hub: Hub, rows: Path) -> None:
    hub.refuse = f"403 for {SECRET}\nmore"
    with pytest.raises(
        StoreError, match=r"cannot be pushed to me/steps .*403 for \*\*\*"
    ) as caught:
        publish(rows, "me/steps", "# Steps")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)
    assert not hub.calls


def test_without_a_token_nothing_is_sent(
    hub: Hub, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigError, match="HF_TOKEN"):
        publish(rows, "me/steps", "# Steps")
    assert not hub.calls
