"""The frozen policy: its files, its tokenizer, and that it solves problems."""

import hashlib
import json
from typing import Any

import pytest

from treerl.lab import words
from treerl.lab.words.card import render_card
from treerl.lab.words.templates import VERSION

FILES = {
    "MODEL_CARD.md",
    "config.json",
    "generation_config.json",
    "metrics.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "words.json",
}


def _json(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((words.model_path() / name).read_text(encoding="utf-8"))
    return result


def test_files_and_sizes() -> None:
    found = {path.name for path in words.model_path().iterdir()}
    assert found == FILES
    assert (words.model_path() / "model.safetensors").stat().st_size <= 6_000_000


def test_weights_are_frozen() -> None:
    weights = (words.model_path() / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == _json("words.json")["weights_sha256"]


def test_model_was_trained_on_these_texts() -> None:
    for name in ("words.json", "metrics.json"):
        assert _json(name)["spec_sha256"] == words.SPEC_SHA256
        assert _json(name)["version"] == VERSION


def test_model_is_a_plain_small_llama() -> None:
    config = _json("config.json")
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["head_dim"] >= 32
    assert config["max_position_embeddings"] == 1024
    assert config["tie_word_embeddings"] is True
    assert config["dtype"] == "bfloat16"
    assert _json("words.json")["parameters"] <= 2_900_000
    assert _json("generation_config.json")["eos_token_id"] == config["eos_token_id"]


def test_policy_meets_its_bars() -> None:
    """DESIGN.md, section 6; the figures are those of evaluate.py over 500 held problems."""
    metrics = _json("metrics.json")
    assert metrics["held_problems"] == 500
    sampled = metrics["t1"]
    assert 0.40 <= sampled["accuracy"] <= 0.75
    kinds = sampled["first_error_kinds"]
    assert kinds["slip"] >= 0.2
    assert kinds["operation"] + kinds["operand"] >= 0.2
    assert sampled["right_answers_with_wrong_step"] >= 0.03


def test_card_is_rendered_from_the_metrics() -> None:
    card = (words.model_path() / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert card == render_card(_json("metrics.json"))


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    pytest.importorskip("transformers", reason="needs treerl[local]")
    from treerl.lab.words.evaluate import load

    return load(words.model_path())


@pytest.mark.engine
def test_tokenizer(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    for text in ("12 + 30 = 42.\n", "Ünïcode 日本 \t\n\n  x=3.5, (7)?", " a  b", "Answer: 100"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text
    for token, number in tokenizer.get_vocab().items():
        assert sum(character.isdigit() for character in token) <= 1 or token.startswith("<extra_")
        if any(character.isdigit() for character in token) and not token.startswith("<extra_"):
            assert len(token) == 1, token
        assert number < model.get_input_embeddings().weight.shape[0]
    specials = ["<pad>", "<bos>", "<eos>", *(f"<extra_{i}>" for i in range(8))]
    assert tokenizer.convert_tokens_to_ids(specials) == list(range(11))
    assert len(tokenizer) == model.get_input_embeddings().weight.shape[0]


@pytest.mark.engine
def test_chat_template(loaded: tuple[Any, Any]) -> None:
    _, tokenizer = loaded
    turn = {"role": "user", "content": "How many?"}
    for generate in (True, False):
        text = tokenizer.apply_chat_template([turn], tokenize=False, add_generation_prompt=generate)
        assert text == "<bos>How many?\n"
    reply = {"role": "assistant", "content": "Answer: 4"}
    assert tokenizer.apply_chat_template([turn, reply], tokenize=False).endswith("?\nAnswer: 4")
    # Control tokens written by a user can be kept as text.
    ids = tokenizer("a <eos> b", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenizer.eos_token_id not in ids
    assert tokenizer.decode(ids) == "a <eos> b"


@pytest.mark.engine
def test_policy_solves_held_problems(loaded: tuple[Any, Any]) -> None:
    from treerl.lab.words.evaluate import complete, measure

    asked = words.problems(60)
    metrics = measure(asked, complete(*loaded, asked, temperature=0.0))
    greedy = _json("metrics.json")["greedy"]["accuracy"]
    assert metrics["accuracy"] >= greedy - 0.2  # 60 problems: three standard errors
    assert metrics["unparsed"] <= 0.1


@pytest.mark.engine
def test_samples_repeat_by_seed(loaded: tuple[Any, Any]) -> None:
    from treerl.lab.words.evaluate import complete

    asked = words.problems(8)
    first = complete(*loaded, asked, temperature=1.0, seed=5)
    assert first == complete(*loaded, asked, temperature=1.0, seed=5)
    assert first != complete(*loaded, asked, temperature=1.0, seed=6)
