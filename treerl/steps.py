"""Where reasoning steps end.

A step end is found on decoded text and mapped back to tokens: the same blank line can be one token
or two, a delimiter can lie inside a token, and a character can straddle a segment's end, so neither
token ids nor the text of a single segment can tell. Three rules:

* The token that completes a delimiter belongs to the ending step.
* Nodes are cut only between tokens; characters of that token behind the delimiter are kept and
  belong to the next step's text.
* A delimiter with nothing but white space before it ends no step.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from treerl.engines.base import Tokenizer

__all__ = [
    "STEP_ERROR",
    "GivenStep",
    "PlainSteps",
    "StepContext",
    "StepCut",
    "StepFormat",
    "states_answer",
    "token_ends",
]

STEP_ERROR = "step_error"
"""Key of a node's ``meta``: why its step could not be read in the format that was asked for."""

CONTEXT_TOKENS = 16
"""Tokens of the path so far that are decoded along: enough to hold the last delimiter, to finish a
character that straddles the cut, and for tokenizers whose first token decodes differently."""

_ANSWER = re.compile(
    r"\\boxed\s*\{|^\W*(?:the\s+)?(?:final\s+)?answer\s*(?:is\b|[:=])|^####\s*\S",
    re.IGNORECASE | re.MULTILINE,
)


class StepCut(NamedTuple):
    """One step of a path.

    Attributes:
        start, end: Token range, end exclusive. Consecutive steps tile the tokens.
        text: The step's text, stripped, without its delimiter.
        complete: True where a delimiter closed the step, False for an open tail.
        meta: What the format read besides the text: kept in the node's ``meta``, JSON values only.
    """

    start: int
    end: int
    text: str
    complete: bool
    meta: dict[str, Any] | None = None


class GivenStep(NamedTuple):
    """A step that somebody else wrote, put into a format.

    Attributes:
        written: What is tokenised, with whatever ends a step that is not the last.
        text: The step's text, as of :class:`StepCut`.
        meta: As of :class:`StepCut`.
    """

    written: str
    text: str
    meta: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StepContext:
    """Where on a path the next step begins; made once for all samples below a node.

    Attributes:
        window: The path's last ids, decoded along.
        start: Where in the window's text the next step begins: behind the last delimiter.
    """

    window: tuple[int, ...] = ()
    start: int = 0


class StepFormat(Protocol):
    """How a policy writes steps."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Stop strings that end a step's request; some may occur inside a step."""

    def prompt(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        """Return the conversation with whatever asks the policy for the format."""

    def context(self, tokenizer: Tokenizer, before: Sequence[int]) -> StepContext:
        """Say where the next step begins on a path that is () or ends at a step end.

        ``before`` holds at least the path's last CONTEXT_TOKENS ids, prompt excluded.
        """

    def split(
        self, tokenizer: Tokenizer, token_ids: Sequence[int], context: StepContext = ...
    ) -> list[StepCut]:
        """Cut ids that continue a path into steps."""

    def complete(self, cut: StepCut) -> bool:
        """Say whether a request that a stop string ended has ended this step.

        If not, the same sample goes on behind it.
        """

    def final(self, cut: StepCut) -> bool:
        """Say whether the step ends its solution by what it says."""

    def same(self, text: str | None, meta: Mapping[str, Any] | None, cut: StepCut) -> bool:
        """Say whether a node's text and meta are the same step as one newly cut, in other words."""

    def given(self, step: str, last: bool) -> GivenStep:
        """Write a given step in the format; ``last`` ends the solution."""

    def response(self, text: str, steps: Sequence[str]) -> str:
        """Return a whole solution as rewards read it.

        Args:
            text: The decoded path.
            steps: The texts of its steps.
        """

    def to_json(self) -> dict[str, Any]:
        """Describe the format for a manifest."""


@dataclass(frozen=True, slots=True)
class PlainSteps:
    r"""Steps as plain text, ended by a delimiter.

    Attributes:
        delimiter: "\n\n" for most instruction-tuned models, "\n" for one line a step.
    """

    delimiter: str = "\n\n"

    def __post_init__(self) -> None:
        if not self.delimiter:
            raise ValueError("the step delimiter must not be empty")

    @property
    def stop(self) -> tuple[str, ...]:
        """The delimiter is the stop string."""
        return (self.delimiter,)

    def prompt(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        """Return the conversation as it is: policies write plain steps by themselves."""
        return messages

    def to_json(self) -> dict[str, Any]:
        """Describe the format for a manifest."""
        return {"format": "plain", "delimiter": self.delimiter}

    def complete(self, cut: StepCut) -> bool:
        """A delimiter with nothing before it ends no step."""
        return bool(cut.text)

    def final(self, cut: StepCut) -> bool:
        """See :func:`states_answer`."""
        return states_answer(cut.text)

    def same(self, text: str | None, meta: Mapping[str, Any] | None, cut: StepCut) -> bool:
        """Compare texts."""
        return text == cut.text

    def given(self, step: str, last: bool) -> GivenStep:
        """Write the delimiter behind every step but the last."""
        return GivenStep(step if last else step + self.delimiter, step.strip())

    def response(self, text: str, steps: Sequence[str]) -> str:
        """Return the text as the policy wrote it."""
        return text

    def context(self, tokenizer: Tokenizer, before: Sequence[int]) -> StepContext:
        """Say where the next step begins; see :meth:`StepFormat.context`."""
        if not before:
            return StepContext()
        window = tuple(before[-CONTEXT_TOKENS:])
        text = tokenizer.decode(window)
        if text.endswith(self.delimiter):
            # Nothing is left over. What a tokenizer does to the first token of a text concerns
            # white space only, which no step keeps; so the next step can be decoded on its own.
            return StepContext()
        at = text.rfind(self.delimiter)
        start = len(text.rstrip("�")) if at < 0 else at + len(self.delimiter)
        return StepContext(window, start)

    def split(
        self,
        tokenizer: Tokenizer,
        token_ids: Sequence[int],
        context: StepContext = StepContext(),
    ) -> list[StepCut]:
        """Cut ids into steps; the rest behind the last delimiter is an open step of its own.

        A rest of white space joins the step before it. Ids that hold no visible character at all
        make one open step with empty text.

        Args:
            tokenizer: Decodes ids.
            token_ids: What to cut.
            context: Of the path that they continue.
        """
        if not token_ids:
            return []
        ids = context.window + tuple(token_ids)
        text = tokenizer.decode(ids)
        char = context.start
        first = text.find(self.delimiter, char)
        if first < 0:
            return [StepCut(0, len(token_ids), text[char:].strip(), complete=False)]
        stop = first + len(self.delimiter)
        if stop == len(text) or stop > len(tokenizer.decode(ids[:-1])):
            # The usual case of one generated step: its last token completes the delimiter.
            body = text[char:first].strip()
            return [StepCut(0, len(token_ids), body, complete=bool(body))]
        return self._split_many(token_ends(tokenizer, ids), text, char, len(context.window))

    def _split_many(self, ends: Sequence[int], text: str, char: int, window: int) -> list[StepCut]:
        cuts: list[StepCut] = []
        token = window  # first token of the step in progress
        search = char
        while (at := text.find(self.delimiter, search)) >= 0:
            search = at + len(self.delimiter)
            body = text[char:at].strip()
            if not body:
                char = search
                continue
            end = bisect_left(ends, search, lo=window) + 1
            if end <= token:
                continue  # a second delimiter inside the token that closed the last step
            cuts.append(StepCut(token - window, end - window, body, complete=True))
            token, char = end, search
        if token < len(ends):
            tail = text[char:].strip()
            if tail or not cuts:
                cuts.append(StepCut(token - window, len(ends) - window, tail, complete=False))
            else:
                last = cuts.pop()
                cuts.append(StepCut(last.start, len(ends) - window, last.text, last.complete))
        return cuts


def token_ends(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[int]:
    """Return, for each token, how many characters of the text are complete once it is read.

    A token that ends inside a character completes nothing of it: the character counts where its
    last byte stands. Linear in the number of tokens: only a short window is decoded anew.

    Returns:
        (n,) non-decreasing counts; the last one is the length of the whole decoded text.
    """
    ends: list[int] = []
    done = 0  # characters of the tokens before `read`
    start = 0  # first token of the decoding window
    read = 0  # tokens whose characters are all counted
    for i in range(len(token_ids)):
        context = tokenizer.decode(token_ids[start:read])
        window = tokenizer.decode(token_ids[start : i + 1])
        # No character has more than four bytes: a longer wait is for text that is broken for good.
        whole = not window.endswith("�") or i - read >= 4
        if len(window) > len(context) and whole:
            done += len(window) - len(context)
            start, read = read, i + 1
        ends.append(done)
    if ends:
        # Bytes that never become a character show as a replacement at the very end.
        ends[-1] = max(done, len(tokenizer.decode(token_ids)))
    return ends


def states_answer(step: str) -> bool:
    r"""Say whether a step states the final answer: a box, an ``Answer:`` line or ``####``."""
    # Four plain searches rule nearly every step out at a tenth of the expression's cost.
    if "nswer" in step or "boxed" in step or "####" in step or "NSWER" in step:
        return _ANSWER.search(step) is not None
    return False
