"""Finding the final answer in a response: a policy, never a search for the gold.

The last marked answer after the reasoning counts, and nothing else. A text without a mark has no
answer, unless it is nothing but an answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["Extraction", "ExtractionPolicy", "extract_answer", "gold_text", "last_boxed"]

ExtractionPolicy = Literal["boxed_or_marker", "boxed", "marker", "last_number", "whole"]
"""``boxed_or_marker`` is the default; ``last_number`` takes the last number of any text and is
easily gamed; ``whole`` takes the response as it is."""

POLICIES: tuple[str, ...] = get_args(ExtractionPolicy)
MAX_ANSWER_CHARS = 4_000
MAX_BOXES = 20


@dataclass(frozen=True, slots=True)
class Extraction:
    """An answer's text and where it came from.

    Attributes:
        text: The answer, None if the response has none.
        how: "boxed", "hash", "marker", "last_number", "whole" or "" with ``reason`` set.
        reason: Why there is none: "no_answer", "unclosed_think", "unclosed_box", "limit".
        n_boxed: How many different boxes stood after the reasoning.
    """

    text: str | None
    how: str = ""
    reason: str = ""
    n_boxed: int = 0


_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_BRACE = re.compile(r"(?<!\\)[{}]")
_HASHES_ANY = re.compile(r"####[ \t]*([^\n]+)")
_MARKER = re.compile(
    r"(?:final\s+answer|correct\s+answer|the\s+answer|answer)\b(?P<link>\s*(?:\*\*|\*|__)?\s*"
    r"(?:is|was|=|:|will be|would be|equals|is:|\$\$)\s*(?:\*\*|:)?\s*|\s*(?=\$\$))",
    re.IGNORECASE,
)
_SAID = re.compile(r"\b(?:the\s+(?:final\s+)?answer\s+is|answer\s*:)[\s:]*", re.IGNORECASE)
_NUMBER = re.compile(r"[-−]?\$?\d[\d,]*(?:\.\d+)?%?")


def _content(text: str, match: re.Match[str]) -> tuple[str | None, bool]:
    """Return (content of the box that starts here, whether it is unclosed)."""
    start = match.end()
    if start >= len(text):
        return None, False
    if text[start] == "{":
        depth = 0
        for brace in _BRACE.finditer(text, start, start + MAX_ANSWER_CHARS + 2):
            depth += 1 if brace.group() == "{" else -1
            if depth == 0:
                return text[start + 1 : brace.start()], False
        return None, True
    if text[start - 1].isspace():  # \boxed 5
        token = re.compile(r"[0-9]+(?:\.[0-9]+)?|[A-Za-z](?![A-Za-z])").match(text, start)
        if token is not None:
            return token.group(), False
    return None, False


def last_boxed(text: str) -> tuple[str | None, int, bool]:
    """Return (content of the last box, number of different boxes, whether the last is unclosed).

    Only the last boxes are looked at, so that a text full of them costs no more than a few.
    """
    contents: list[str] = []
    end = len(text)
    for match in reversed(list(_BOX.finditer(text))[-MAX_BOXES:]):
        content, unclosed = _content(text, match)
        if unclosed and not contents:
            return None, 0, True
        if content is None or match.start() >= end:
            continue
        if contents and match.end() + len(content) >= end:
            continue  # it holds the box found before
        contents.append(content)
        end = match.start()
    if not contents:
        return None, 0, False
    return contents[0], len({content.strip() for content in contents}), False


def _cut_sentence(text: str) -> str:
    """The answer behind a marker: up to the end of the line or sentence, outside math."""
    line = text.lstrip()
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$")):
        if line.startswith(opening):
            end = line.find(closing, len(opening))
            if end > 0:
                rest = line[end + len(closing) :]
                money = opening == "$" and re.match(r"\d", line[1:])
                if money and not re.match(r"[\s.,;:!?)*]|$", rest):
                    break
                return (line[: end + len(closing)] + _behind_math(rest)).rstrip(" ,;:")
    return _sentence(line.split("\n")[0].strip())


# Words that go on about an answer instead of naming it: a reason, and what an answer may depend on.
_REASON = re.compile(r"\s(?:because|since|thus|hence|therefore|so|respectively)\b|^[:;] ")
_ASIDE = re.compile(
    r"\s(?:as|which|where)\b|\s(?:by|using|from|after|via) (?=[A-Za-z])"
    r"|\s(?:and|but) (?:the|this|that|we|it|he|she|they|I|you)\b"
    r"|\sfor (?:all|every|any|the|this|each)\b|\son the\b"
    r"|\sin (?:total|all|simplest|lowest|interval)\b"
    r"|\s\((?:see|since|because|as|by|which|from|rounded|approx)"
)
_SECOND = re.compile(r"\b(?:and|or|but|otherwise|else)\b.*[\d$\\]")


def _behind_math(rest: str) -> str:
    """What stands behind an answer in math, up to the end of its sentence: a unit, a second part.

    "$5$ million" and "$x = 5$ and $y = 6$" are answers of which the math is only a part.
    """
    line = _sentence(rest.split("\n")[0].replace("**", ""))
    reason = _REASON.search(line)
    line = line[: reason.start()] if reason is not None else line
    aside = _ASIDE.search(line)
    if aside is not None and not _SECOND.search(line, aside.start()):
        return line[: aside.start()]
    return line


def _sentence(line: str) -> str:
    """A line up to the end of its first sentence, or of its first clause."""
    depth = 0
    for at, char in enumerate(line):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "." and depth <= 0 and (at + 1 == len(line) or line[at + 1].isspace()):
            return line[:at]
        elif char in ",;" and depth <= 0 and re.match(r"[,;]\s+[a-z]{2,}", line[at:]):
            word = re.match(r"[,;]\s+([a-z]+)", line[at:])
            if word is not None and word.group(1) not in ("or", "and"):
                return line[:at]
    return line


def extract_answer(
    response: str, policy: ExtractionPolicy = "boxed_or_marker", *, think_end: str = "</think>"
) -> Extraction:
    """Return the final answer of a response.

    Args:
        response: The model's text.
        policy: Where to look.
        think_end: Closing tag of the reasoning; only what follows its last occurrence counts.
    """
    if policy == "whole":
        return Extraction(response[:MAX_ANSWER_CHARS], "whole")
    text = response
    if think_end:
        opening = think_end.replace("/", "", 1)
        cut = text.rfind(think_end)
        if cut >= 0:
            text = text[cut + len(think_end) :]
        elif opening in text:
            return Extraction(None, reason="unclosed_think")
    if policy in ("boxed_or_marker", "boxed"):
        content, count, unclosed = last_boxed(text)
        if content is not None:
            if len(content) > MAX_ANSWER_CHARS:
                return Extraction(None, reason="limit", n_boxed=count)
            return Extraction(content, "boxed", n_boxed=count)
        if unclosed:
            return Extraction(None, reason="unclosed_box", n_boxed=count)
    if policy in ("boxed_or_marker", "marker"):
        found = _marked(text)
        if found is not None:
            return found
        stripped = text.strip()
        if stripped and len(stripped) <= 80 and "\n" not in stripped and "boxed" not in stripped:
            return Extraction(stripped, "whole")
    if policy == "last_number":
        numbers = _NUMBER.findall(text[-20_000:])
        if numbers:
            return Extraction(numbers[-1].rstrip(","), "last_number")
    return Extraction(None, reason="no_answer")


def _marked(text: str) -> Extraction | None:
    tail = text[-20_000:]
    hashes = list(_HASHES_ANY.finditer(tail))
    if hashes:
        return _found(hashes[-1].group(1).strip(), "hash")
    for match in reversed(list(_MARKER.finditer(tail))):
        content = _cut_sentence(tail[match.end() :])
        content = content.strip().strip("*_").strip().strip("\"'“”").strip()
        if content:
            return _found(content, "marker")
    return None


def _found(text: str, how: str) -> Extraction:
    if len(text) > MAX_ANSWER_CHARS:
        return Extraction(None, reason="limit")
    return Extraction(text, how)


def gold_text(gold: str) -> str:
    """Return a gold answer without its wrapping: a box, ``####`` or "the answer is"."""
    content, _, _ = last_boxed(gold)
    if content is not None:
        return content
    hashes = list(_HASHES_ANY.finditer(gold))
    if hashes:
        return hashes[-1].group(1).strip()
    said = list(_SAID.finditer(gold))
    if said:
        answer = _cut_sentence(gold[said[-1].end() :]).strip().strip("*_").strip()
        return answer or gold.strip()
    return gold.strip()
