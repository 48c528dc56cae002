"""The training script: a run that is interrupted and continued ends as one that is not."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs treerl[local]")


@pytest.fixture(autouse=True)
def small_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treerl.lab.words.train.TOKENIZER_PROBLEMS", 200)


def _config(**changes: Any) -> Any:
    from treerl.lab.words.train import TrainConfig

    small = {"updates": 6, "batch": 3, "pool": 2, "warmup": 2, "learn_share": 0.7}
    shape = {"hidden": 64, "intermediate": 64, "layers": 1, "heads": 2}
    return TrainConfig(**{**small, **shape, **changes})


@pytest.mark.engine
def test_interrupted_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    from treerl.lab.words.train import train

    assert train(_config(), tmp_path / "whole", checkpoint_every=3)
    assert not train(_config(), tmp_path / "torn", minutes=0, checkpoint_every=3)
    assert not (tmp_path / "torn" / "model.safetensors").exists()
    assert train(_config(), tmp_path / "torn", checkpoint_every=4)
    hashes = [
        json.loads((tmp_path / name / "words.json").read_text())["weights_sha256"]
        for name in ("whole", "torn")
    ]
    assert hashes[0] == hashes[1]


@pytest.mark.engine
def test_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    from treerl.lab.words.train import train

    assert not train(_config(), tmp_path, minutes=0, checkpoint_every=3)
    with pytest.raises(ValueError, match="another seed"):
        train(_config(seed=1), tmp_path)


@pytest.mark.engine
def test_a_run_may_go_on_with_another_mixture_and_says_so(tmp_path: Path) -> None:
    from treerl.lab.words.train import train

    assert not train(_config(), tmp_path, minutes=0, checkpoint_every=3)
    assert train(_config(drill_share=0.1), tmp_path)
    history = json.loads((tmp_path / "words.json").read_text())["history"]
    assert [entry["from_update"] for entry in history] == [0, 3]
    assert [entry["config"]["drill_share"] for entry in history] == [0.5, 0.1]


@pytest.mark.engine
@pytest.mark.parametrize("drill_share", [0.0, 1.0])
def test_loss_is_on_the_solution_only(drill_share: float) -> None:
    from treerl.lab.words.train import IGNORED, _batches, train_tokenizer

    tokenizer = train_tokenizer(0)
    config = _config(updates=2, learn_share=1.0, drill_share=drill_share)
    for inputs, labels in _batches(config, tokenizer, 0):
        assert inputs.shape == labels.shape
        for ids, wanted in zip(inputs.tolist(), labels.tolist(), strict=True):
            pairs = list(zip(ids, wanted, strict=True))
            assert all(label in (IGNORED, token) for token, label in pairs)
            shown = tokenizer.decode([token for token, label in pairs if label == IGNORED])
            learned = [label for label in wanted if label != IGNORED]
            assert shown.startswith(tokenizer.bos_token)
            assert learned[-1] == tokenizer.eos_token_id
            # A story's equations are learned whole; of a bare sum, only the result is.
            assert ("=" in shown) is (drill_share == 1.0)
            assert ("=" in tokenizer.decode(learned)) is (drill_share == 0.0)
