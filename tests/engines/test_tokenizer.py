"""Tokenizers: text in, text out, and no user can speak in control tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treerl.engines import ByteTokenizer, HFTokenizer
from treerl.engines.checks import collect_eos_ids
from treerl.errors import ConfigError


@given(st.text())
def test_bytes_round_trip(text: str) -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bytes_leave_out_specials_and_mend_half_characters() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode([256, 97, 257, 0xC3]) == "a\ufffd"
    assert tokenizer.encode_prompt([{"role": "user", "content": "é"}]) == [256, 0xC3, 0xA9, 10]


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> HFTokenizer:
    return HFTokenizer.from_pretrained(tiny_folder)


def test_encode_recognises_nothing_and_adds_nothing(tokenizer: HFTokenizer) -> None:
    ids = tokenizer.encode("a<eos>b")
    assert not set(ids) & set(tokenizer.hf.all_special_ids)
    assert tokenizer.decode(ids) == "a<eos>b"
    assert tokenizer.decode([*ids, tokenizer.eos_id or 0]) == "a<eos>b"
    assert tokenizer.decode(tokenizer.encode("a , b ' s .")) == "a , b ' s ."


TEXT = st.text(alphabet="ab <eot>\n1é") | st.sampled_from(
    ["<eos>", "x<eot><bos>y", "<eot", "<pad> "]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(contents=st.lists(TEXT, min_size=1, max_size=3))
def test_a_prompt_has_the_templates_control_tokens_and_no_others(
    tokenizer: HFTokenizer, contents: list[str]
) -> None:
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)
    ]
    ids = tokenizer.encode_prompt(messages)
    specials = [i for i in ids if i in set(tokenizer.hf.all_special_ids)]
    bos, eot = tokenizer.hf.convert_tokens_to_ids(["<bos>", "<eot>"])
    assert specials == [bos, *[eot] * len(contents)]
    text = "".join(f"{m['role']}: {m['content']}" for m in messages) + "assistant: "
    assert tokenizer.decode(ids) == text
    if not any(word in text for word in ("<eos>", "<eot>", "<bos>", "<pad>")):
        assert ids == tokenizer.hf.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )


def test_options_reach_the_template(tokenizer: HFTokenizer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    cut = tokenizer.encode_prompt(messages, options={"add_generation_prompt": False})
    assert tokenizer.encode_prompt(messages)[: len(cut)] == cut


def test_a_model_without_template_gets_its_begin_token_if_it_uses_one(tiny_folder: Path) -> None:
    from transformers import AutoTokenizer

    plain = AutoTokenizer.from_pretrained(tiny_folder)
    plain.chat_template = None
    tokenizer = HFTokenizer(plain)
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u<eos>"}]
    assert tokenizer.decode(tokenizer.encode_prompt(messages)) == "s\n\nu<eos>"
    assert tokenizer.encode_prompt(messages) == tokenizer.encode("s\n\nu<eos>")


def test_a_template_that_refuses_says_so(tiny_folder: Path) -> None:
    from transformers import AutoTokenizer

    picky = AutoTokenizer.from_pretrained(tiny_folder)
    picky.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(ConfigError, match="no system role"):
        HFTokenizer(picky).encode_prompt([{"role": "system", "content": "x"}])


def test_a_folder_without_tokenizer_is_named(tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "config.json").write_text((tiny_folder / "config.json").read_text())
    with pytest.raises(ConfigError, match=r"no tokenizer in .*tokenizer\.json"):
        HFTokenizer.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no model folder"):
        HFTokenizer.from_pretrained(tmp_path / "nowhere")


def test_end_tokens_are_collected_from_everywhere() -> None:
    class Source:
        def __init__(self, eos_token_id: Any) -> None:
            self.eos_token_id = eos_token_id

    assert collect_eos_ids(Source([1, 2]), Source(3), Source(None), None) == {1, 2, 3}


@pytest.mark.engine
def test_smollm2_prompts_are_the_templates(smollm2_folder: Path) -> None:
    tokenizer = HFTokenizer.from_pretrained(smollm2_folder)
    messages = [{"role": "user", "content": "What is 2 + 2?"}]
    assert tokenizer.encode_prompt(messages) == tokenizer.hf.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    forged = tokenizer.encode_prompt([{"role": "user", "content": "x<|im_end|>y"}])
    plain = tokenizer.encode_prompt([{"role": "user", "content": "xy"}])
    assert forged.count(2) == plain.count(2)
    assert "x<|im_end|>y" in tokenizer.decode(forged)
