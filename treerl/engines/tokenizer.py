"""Tokenizers: an adapter for transformers' and one of bytes for tests.

Control tokens written by a user stay plain text: a prompt "say <|im_end|>" must not end a turn.
transformers recognises them in text by default, so messages are rendered with private marks in
their place and the marked stretches are encoded without recognising anything.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from treerl.errors import ConfigError, MissingExtra

__all__ = ["ByteTokenizer", "HFTokenizer"]

# Two private-use characters around a number stand for one control string of a message.
_OPEN, _CLOSE = "\U000f7e1a", "\U000f7e1b"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


class ByteTokenizer:
    """Ids 0 to 255 are bytes of UTF-8; three more begin, end and pad.

    Attributes:
        bos_id: 256.
        eos_id: 257.
        pad_id: 258.
        vocab_size: 259.
    """

    bos_id = 256
    eos_id = 257
    pad_id = 258
    vocab_size = 259

    def encode(self, text: str) -> list[int]:
        """Return the bytes of ``text``."""
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids; half characters become U+FFFD, ids above 255 are left out."""
        try:
            return bytes(token_ids).decode(errors="replace")
        except ValueError:  # special tokens among them: mostly one, at the end
            if max(token_ids[:-1], default=0) < 256:
                return bytes(token_ids[:-1]).decode(errors="replace")
            return bytes([t for t in token_ids if t < 256]).decode(errors="replace")

    def encode_prompt(
        self, messages: Sequence[dict[str, str]], *, options: dict[str, Any] | None = None
    ) -> list[int]:
        """Return bos and the contents, a newline after each; there is no template to configure."""
        return [self.bos_id, *"".join(f"{m['content']}\n" for m in messages).encode()]


class HFTokenizer:
    """A transformers tokenizer in the words of :class:`treerl.engines.base.Tokenizer`.

    Args:
        tokenizer: A ``PreTrainedTokenizerBase``. Calls are guarded by a lock, since fast
            tokenizers fail when one thread encodes with other options than another.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.hf = tokenizer
        self.vocab_size: int = len(tokenizer)
        self.eos_id: int | None = tokenizer.eos_token_id
        self._lock = threading.Lock()
        added = list(tokenizer.added_tokens_decoder.values())
        template = tokenizer.chat_template
        if isinstance(template, dict):  # several named templates
            template = "\n".join(template.values())
        special = {t.content for t in added if t.special} | set(tokenizer.all_special_tokens)
        # Tokens such as <think> are no special tokens, but where the template writes them they
        # have a meaning that a user must not be able to forge. An assistant's message may hold
        # them: templates look for them there.
        spoken = {t.content for t in added if template and t.content in template} - special
        self._forbidden = _any_of(special | {t for t in spoken if not t.isspace()})
        self._special = _any_of(special)
        self._added = _any_of({t.content for t in added} | special)

    @classmethod
    def from_pretrained(cls, path: str | Path) -> HFTokenizer:
        """Load the tokenizer of a model folder or hub id.

        Raises:
            MissingExtra: transformers is not installed.
            ConfigError: There is no tokenizer.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise MissingExtra("a model's tokenizer", "local") from error
        where = Path(path).expanduser()
        if not where.exists() and (where.is_absolute() or str(path).startswith((".", "~"))):
            raise ConfigError(f"no model folder {path}: check the path")
        if where.is_dir() and not any(
            file.name.startswith(("tokenizer", "vocab", "spiece", "merges", "sentencepiece"))
            or file.suffix in (".tiktoken", ".spm")
            for file in where.iterdir()
        ):
            # Without this look transformers may build an empty tokenizer from config.json.
            raise ConfigError(_no_tokenizer(path))
        try:
            return cls(AutoTokenizer.from_pretrained(str(path)))
        except (OSError, ValueError, TypeError, KeyError, ImportError) as error:
            raise ConfigError(f"{_no_tokenizer(path)} ({_first_line(error)})") from error

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text: no special tokens added, none recognised inside."""
        with self._lock:
            return list(self.hf.encode(text, add_special_tokens=False, split_special_tokens=True))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens left out, spaces as they are."""
        with self._lock:
            return str(
                self.hf.decode(
                    list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
                )
            )

    def encode_prompt(
        self, messages: Sequence[dict[str, str]], *, options: dict[str, Any] | None = None
    ) -> list[int]:
        """Return the ids of a conversation, ready for the assistant's turn.

        Without a chat template: the begin token, if the model uses one, and the contents with a
        blank line between.

        Raises:
            ConfigError: The template refuses the messages.
        """
        if not self.hf.chat_template:
            text = "\n\n".join(message["content"] for message in messages)
            return [*self._begin(), *self.encode(text)]
        found: list[str] = []
        marked = [self._mark(message, found) for message in messages]
        settings = {"add_generation_prompt": True, **(options or {})}
        try:
            with self._lock:
                rendered = self.hf.apply_chat_template(marked, tokenize=False, **settings)
        except Exception as error:  # jinja2 raises its own and whatever the template calls
            raise ConfigError(
                f"the model's chat template refuses these messages: {_first_line(error)}"
            ) from error
        if not found:
            return self._plain_chunk(rendered)
        return [i for chunk in self._chunks(rendered) for i in self._chunk(chunk, found)]

    def _mark(self, message: dict[str, str], found: list[str]) -> dict[str, str]:
        pattern = self._special if message.get("role") == "assistant" else self._forbidden

        def stand_in(match: re.Match[str]) -> str:
            found.append(match.group())
            return f"{_OPEN}{len(found) - 1}{_CLOSE}"

        return {
            key: pattern.sub(stand_in, value) if isinstance(value, str) and key != "role" else value
            for key, value in message.items()
        }

    def _chunks(self, rendered: str) -> Iterator[str]:
        """Cut out the stretches between control tokens that hold marks.

        Everything else stays in one piece, since some control tokens swallow neighbouring spaces.
        """
        begin = end = 0  # the plain text not yet given out, and the end of its last control token
        for match in self._added.finditer(rendered):
            if _MARK.search(between := rendered[end : match.start()]):
                yield rendered[begin:end]
                yield between
                begin = match.start()
            end = match.end()
        if _MARK.search(rendered[end:]):
            yield rendered[begin:end]
            begin = end
        yield rendered[begin:]

    def _chunk(self, text: str, found: list[str]) -> list[int]:
        if not _MARK.search(text):
            return self._plain_chunk(text)
        return self._encode_unrecognised(_MARK.sub(lambda m: found[int(m.group(1))], text))

    def _plain_chunk(self, text: str) -> list[int]:
        if not text:
            return []
        with self._lock:
            return list(self.hf.encode(text, add_special_tokens=False))

    def _encode_unrecognised(self, text: str) -> list[int]:
        """Encode with the bare model of the tokenizer: no added token at all is recognised."""
        backend = getattr(self.hf, "backend_tokenizer", None)
        if backend is None:
            return self.encode(text)
        with self._lock:
            if backend.normalizer is not None:
                text = backend.normalizer.normalize_str(text)
            words = [text]
            if backend.pre_tokenizer is not None:
                words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
            return [token.id for word in words for token in backend.model.tokenize(word)]

    def _begin(self) -> list[int]:
        bos = self.hf.bos_token_id
        if bos is None:
            return []
        with self._lock:
            with_specials = self.hf.encode("a")
        return [bos] if with_specials[:1] == [bos] else []


def _any_of(strings: set[str]) -> re.Pattern[str]:
    """Return a pattern of the strings, longest first; of none it matches nothing."""
    ordered = sorted((s for s in strings if s), key=lambda s: (-len(s), s))
    return re.compile("|".join(map(re.escape, ordered)) or "(?!)")


def _no_tokenizer(path: str | Path) -> str:
    return (
        f"no tokenizer in {path}: copy the model's tokenizer.json and tokenizer_config.json there, "
        "or name a folder or hub id that has them"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
