"""Gold answers out of the fields that hold them."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["AnswerFormat", "UnmarkedAnswer", "extract_gold"]

AnswerFormat = Literal["auto", "plain", "gsm8k", "boxed"]
"""How the gold stands in its field: see :func:`extract_gold`."""

_SHORT = 100
"""A "solution" of one line up to this length is an answer and no worked solution."""

_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_BOX = re.compile(r"\\(?:boxed|fbox)\b\s*")


class UnmarkedAnswer(ValueError):
    """A worked solution does not say which part of it is the answer."""


def extract_gold(text: str, answer_format: AnswerFormat = "auto", *, worked: bool = False) -> str:
    r"""Take the final answer out of a field.

    "gsm8k" takes the text after the last ``####``, as it is written ("1,000" keeps its comma),
    "boxed" the content of the last ``\boxed{}`` with its braces balanced, and "plain" the field
    itself. "auto" takes a last line that starts with ``####``, else the last box, else the field.

    Args:
        text: The field.
        answer_format: How the gold stands in it.
        worked: The field holds a worked solution: long text without a marked answer is an error.

    Raises:
        UnmarkedAnswer: A worked solution, and no answer marked in it.
        ValueError: The format's mark is not there, or nothing stands behind it.
    """
    if answer_format == "plain":
        return _not_empty(text, "the answer is empty", strip=False)
    if answer_format == "gsm8k":
        if not (found := _HASHES.findall(text)):
            raise ValueError("the answer holds no '#### x'")
        return _not_empty(found[-1], "nothing follows '####'")
    if answer_format == "boxed":
        if (box := _last_box(text)) is None:
            raise ValueError("the answer holds no \\boxed{x}")
        return _not_empty(box, "the box is empty")
    last_line = text.rstrip().rpartition("\n")[2].strip()
    if last_line.startswith("####") and not last_line.startswith("#####"):
        return _not_empty(last_line[4:], "nothing follows '####'")
    if (box := _last_box(text)) is not None:
        return _not_empty(box, "the box is empty")
    if worked and ("\n" in text.strip() or len(text) > _SHORT):
        raise UnmarkedAnswer("the worked solution marks no final answer ('#### x' or \\boxed{x})")
    return _not_empty(text, "the answer is empty", strip=False)


def _not_empty(text: str, message: str, *, strip: bool = True) -> str:
    if not text.strip():
        raise ValueError(message)
    return text.strip() if strip else text


def _last_box(text: str) -> str | None:
    """Return the content of the last box, None without one."""
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    start = boxes[-1].end()
    if text[start : start + 1] != "{":
        # TeX boxes a single token: "\boxed 5".
        return re.split(r"[$\s]", text[start:], maxsplit=1)[0].rstrip(".,")
    depth, position = 0, start
    while position < len(text):
        char = text[position]
        if char == "\\":  # an escaped brace is a sign, not a bracket
            position += 1
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if depth == 0:
                return text[start + 1 : position]
        position += 1
    raise ValueError("a \\boxed{ is never closed")
