"""The words tokenizer: byte-level BPE of about a thousand tokens, digits always alone.

Built once from the training texts and saved with the model; a user of the model needs only
`AutoTokenizer`. Punctuation merges with a neighbouring blank or newline (" = ", ".\n"), as in real
vocabularies: a step therefore ends *inside* a token now and then, which the step code must bear.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCAB_SIZE: Final = 1024
CONTEXT: Final = 1024
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
EXTRA: Final = tuple(f"<extra_{i}>" for i in range(8))
"""Spare special tokens, for the markers of process-reward models trained on this policy."""

# One digit | punctuation with at most one blank or newline on either side | a word with the blank
# before it | other white space. A digit never shares a piece with anything, so it never merges.
PIECES: Final = r"\d| ?[^\s\p{L}\d]+[ \n]?| ?\p{L}+|\s"

# A user or system turn is a line of its own, an assistant turn stands verbatim. The template ends
# no turn and adds no generation prompt: what follows the question's newline *is* the solution.
CHAT_TEMPLATE: Final = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ message['content'] }}"
    "{% if message['role'] != 'assistant' %}{{ '\\n' }}{% endif %}"
    "{% endfor %}"
)


def build_tokenizer(texts: Iterable[str]) -> "PreTrainedTokenizerFast":
    """Learn the merges from `texts` and return the tokenizer, ready to be saved.

    Args:
        texts: Training texts; the result depends on nothing else.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[PAD, BOS, EOS, *EXTRA],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=list(EXTRA),
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tokenizer(tokenizer: "PreTrainedTokenizerFast", folder: Path) -> None:
    """Save the tokenizer in the form that every version of `transformers` reads.

    Version 5 names its classes and special tokens in a way that version 4 (and engines built on
    it) refuse, and puts the chat template into a file of its own; the older form loads in both.
    """
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("backend", "is_local", "local_files_only", "extra_special_tokens"):
        config.pop(key, None)
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["additional_special_tokens"] = list(EXTRA)
    config["chat_template"] = CHAT_TEMPLATE
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
