"""Answers as typed structures: an answer is read whole or not at all.

What cannot be read as mathematics is a text; what is too large to be read says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .nodes import Node, ParseFailure, strip
from .structures import StructureReader
from .tokens import Token, tokenize

__all__ = ["Answer", "plain_text", "read_answer"]

MAX_ANSWER_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Answer:
    """A read answer.

    Attributes:
        kind: expression, relation, list, tuple, set, interval, union, matrix, ratio, text.
        node: The tree; for text a node that holds it.
        unit: Unit phrase of a lone value, "" if it has none.
        text: Normalised text for comparison of words.
        hedged: Alternatives are offered ("or"), which no scalar gold equals.
        source: The text as it was read.
        problem: Why it was not read although it may be mathematics: "limit", or
            "control_character" for signs that make a text look other than it is; else "".
    """

    kind: str
    node: Node
    unit: str = ""
    text: str = ""
    hedged: bool = False
    source: str = ""
    problem: str = ""


_WRAPPING = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"), ("**", "**"), ("`", "`"))
_COMMAND_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mbox|operatorname|mathbf|texttt|textsf)\s*\{([^{}]*)\}"
)
_NOISE = re.compile(r"\\[,;:! ]|\\quad|\\left|\\right|\\displaystyle|[\s$\"'`*{}]+|\\\\")
_ANNOUNCED = re.compile(r"^\\text\{\s*(?:[Tt]he )?(?:final )?answer is:?\s*\}\s*")
_LEAD = re.compile(
    r"^(?:so\s+)?(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|option|choice)(?:\s+is)?\s*:?\s*(?=\S)",
    re.I,
)


def plain_text(text: str) -> str:
    """Return text without markup, case and spacing, for comparing words."""
    bare = _COMMAND_TEXT.sub(r"\1", text)
    bare = _COMMAND_TEXT.sub(r"\1", bare)
    bare = _LEAD.sub("", bare.strip())
    bare = re.sub(r"(?<=\d)\s+(?=\d)", "_", bare)  # "1 2" is not 12
    bare = _NOISE.sub("", bare).rstrip(".").lower()
    if re.fullmatch(r"\([a-z]\)", bare):
        bare = bare[1:-1]
    return bare


def _unwrap(text: str) -> str:
    """Remove math delimiters, emphasis and closing punctuation around the whole answer."""
    text = re.sub(r"(?<!\\)\\$", "", _ANNOUNCED.sub("", text.strip()))
    for _ in range(4):
        before = text
        text = text.rstrip(" .") if not text.endswith("...") else text
        text = text.strip()
        for opening, closing in _WRAPPING:
            inner = text[len(opening) : -len(closing)]
            if (
                text.startswith(opening)
                and text.endswith(closing)
                and len(text) > len(opening) + len(closing)
                and opening not in inner
            ):
                text = inner.strip()
        match = re.fullmatch(
            r"\\(?:text|textbf|mathrm|textrm|mbox|mathbf|textit)\s*\{([^{}]*)\}", text
        )
        if match is not None:
            text = match.group(1).strip()
        if text == before:
            break
    return text


_INFINITE = Node("const", (), "inf")
_ALL_REALS = Node("interval", (Node("neg", (_INFINITE,)), _INFINITE), "()")


# Characters that show nothing, or turn the order in which the rest is shown.
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_MARKS = re.compile("[\u200b-\u200f\u2060\ufeff]")


def _text_answer(text: str, problem: str = "") -> Answer:
    shown = plain_text(text)
    if shown in ("allrealnumbers", "allreals"):
        return Answer("interval", _ALL_REALS, "", shown, False, text)
    return Answer("text", Node("text", (), shown), "", shown, False, text, problem)


def _temperature(tokens: list[Token]) -> str:
    """Take ``°C`` or ``degrees Fahrenheit`` off the end; returns the scale, "" if there is none."""
    if len(tokens) < 3 or tokens[-1].kind not in ("word", "text"):
        return ""
    sign, scale = tokens[-2], tokens[-1].text.strip().lower()
    degrees = sign.kind == "deg" or sign.text.strip().lower() in ("degree", "degrees")
    name = {"c": "°C", "f": "°F", "celsius": "°C", "fahrenheit": "°F"}.get(scale, "")
    if name and degrees:
        del tokens[-2:]
        return name
    if sign.kind in ("num", "op") and scale in ("celsius", "fahrenheit"):
        del tokens[-1:]
        return name
    return ""


# m, g, s, h, L, l and the letters of physics: units after a number and a space, else variables
UNIT_LETTERS = frozenset("mgshLlNJWVA")


def _letter_unit(tokens: list[Token]) -> str:
    """Take the ``m`` of ``5 m`` off the end; returns it, "" where it may be a variable."""
    last = tokens[-1]
    if last.kind != "word" or last.text not in UNIT_LETTERS or not last.gap or len(tokens) < 2:
        return ""
    before = tokens[-2]
    ends = before.kind == "num" or before.text in (")", "}", "π") or before.text == "pi"
    if not ends or any(t.kind in ("word", "text", "rel") for t in tokens[:-1]):
        return ""
    del tokens[-1:]
    return last.text


_ENDS_OUTWARDS = re.compile(r"([\[\]])([^\[\]]+[,;][^\[\]]+)([\[\]])")
_DERIVATIVE = re.compile(r"^\\[dt]?frac\s*\{\s*d([a-z])\s*\}\s*\{\s*d[a-z]\s*\}\s*=")


def _usual_form(text: str) -> str:
    """Rewrite a few notations of whole answers into the usual ones."""
    text = re.sub(r"^=\s*(?=[^=\s])", "", text)
    text = re.sub(r"\\mathbb\s*([RZNQC])(?![A-Za-z])", r"\\mathbb{\1}", text)
    text = _DERIVATIVE.sub(r"\1'=", text)
    if re.fullmatch(r"\[[A-J]\]", text):  # a choice
        return text[1]
    ends = _ENDS_OUTWARDS.fullmatch(text) if text[:1] in "[]" and text[-1:] in "[]" else None
    if ends is not None and (ends[1], ends[3]) != ("[", "]"):  # ]1, 2[
        left, right = ("[" if ends[1] == "[" else "("), ("]" if ends[3] == "]" else ")")
        return f"{left}{ends[2]}{right}"
    return text


def read_answer(text: str, *, decimal_comma: bool = False) -> Answer:
    """Read an answer's text; what cannot be read as mathematics is a text.

    Args:
        text: The answer without its box or marker.
        decimal_comma: Read ``1,22`` as one number.
    """
    inner = _unwrap(_MARKS.sub("", text))
    if _UNSHOWN.search(inner):
        return _text_answer(inner[:MAX_ANSWER_CHARS], "control_character")
    if decimal_comma:
        inner = re.sub(r"(?<=\d),(?=\d+(?:\D|$))", ".", inner)
    if not inner or len(inner) > MAX_ANSWER_CHARS:
        return _text_answer(inner[:MAX_ANSWER_CHARS], "limit" if inner else "")
    inner = _usual_form(inner)
    inner = inner.replace("...", "…")  # a full stop at the end is none of the answer's
    tokens = [t for t in tokenize(inner, spaced_thousands=True, math=True) if t.kind != "math"]
    while tokens and tokens[-1].kind == "op" and tokens[-1].text in (".", ","):
        tokens.pop()
    if not tokens:
        return _text_answer(inner)
    unit = _temperature(tokens) or _letter_unit(tokens)
    reader = StructureReader(tokens)
    try:
        node = strip(reader.answer())
    except (ParseFailure, ZeroDivisionError):
        large = reader.limited or any(t.kind == "other" and t.text == "#long" for t in tokens)
        return _text_answer(inner, "limit" if large else "")
    if node.kind == "qty" and not unit:
        unit, node = str(node.value), node.args[0]
    kind = {
        "rel": "relation", "list": "list", "tuple": "tuple", "set": "set", "interval": "interval",
        "union": "union", "without": "union", "matrix": "matrix", "ratio": "ratio", "text": "text",
    }.get(node.kind, "expression")  # fmt: skip
    if node.kind == "text" and node.value == "ℝ":
        kind, node = "interval", _ALL_REALS
    hedged = node.kind == "list" and node.value == "or"
    return Answer(kind, node, unit, plain_text(inner), hedged, inner)
