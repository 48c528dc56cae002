r"""GroundedPRM's steps: JSON objects with an objective and an action (groundedprm.md §1.1).

A step reads ``{"step objective": "...", "action": "... \\boxed{parameter = result}"}``; the action
of the last one ends with ``<end>``. What models really write is read as far as its meaning is
plain: LaTeX with single backslashes, line breaks inside strings, fences and prose around the
objects, a trailing comma. Anything else stays a step, with the reason in its node's ``meta``:
nothing is guessed, and nothing that the policy wrote is lost. Text is only ever parsed as JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from treerl.engines.base import Tokenizer
from treerl.steps import (
    CONTEXT_TOKENS,
    STEP_ERROR,
    GivenStep,
    StepContext,
    StepCut,
    token_ends,
)

__all__ = [
    "END",
    "EXAMPLES",
    "STEP_INSTRUCTION",
    "ObjectiveSteps",
    "last_box",
    "read_object",
    "read_step",
]

END = "<end>"
"""What the action of a solution's last step ends with."""

STEP_INSTRUCTION = r"""
Solve the problem step by step. Write every step as one JSON object on a line of its own, with
exactly these two keys:
"step objective": the one quantity or fact that this step establishes;
"action": the reasoning that establishes it from the problem and the earlier steps. Close it with
the conclusion as \\boxed{parameter = result}.
Write nothing outside the objects. When a step answers the problem, put <end> behind its box and
stop.
""".strip()
"""The system prompt that asks for the format, where the caller has none."""

EXAMPLES = (
    (
        "A shelf holds 7 rows of 12 jars. 15 jars break. How many are left?",
        (
            r'{"step objective": "Find how many jars the shelf holds", '
            r'"action": "7 rows of 12 jars are 7 * 12 = 84 jars. \\boxed{jars = 84}"}',
            r'{"step objective": "Find how many jars are left", '
            r'"action": "15 of them break, so 84 - 15 = 69 are left. \\boxed{left = 69} <end>"}',
        ),
    ),
    (
        "Mia reads 20 pages a day, Ben half as many. How many pages do both read in 3 days?",
        (
            r'{"step objective": "Find how many pages Ben reads a day", '
            r'"action": "Half of 20 is 20 / 2 = 10 pages. \\boxed{pages of Ben = 10}"}',
            r'{"step objective": "Find how many pages both read a day", '
            r'"action": "Together they read 20 + 10 = 30 pages. \\boxed{pages a day = 30}"}',
            r'{"step objective": "Find how many pages both read in 3 days", '
            r'"action": "In 3 days they read 3 * 30 = 90 pages. \\boxed{pages = 90} <end>"}',
        ),
    ),
)
"""Worked examples, a problem and its steps, shown as earlier turns of the conversation."""

_GIVEN_OBJECTIVE = "Continue the solution"
_MAX_CHARS = 20_000
_FROM_THE_TOP = StepContext()
_STOP = ('"}', '"\n}', '" }', "}\n")
_OBJECTIVE_KEYS, _ACTION_KEY = ("step objective", "objective"), "action"
_START = re.compile(r'\{\s*"(?:(?:step[ _-]?)?objective|action)"\s*:', re.IGNORECASE)
_FILLER = re.compile(r"[\s`,;}\[\]]*(?:json)?[\s`,;}\[\]]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ObjectiveSteps:
    """Steps as JSON objects.

    Attributes:
        dedup: "text" folds siblings of equal text; "conclusion" also those that reach the same
            conclusion under the same objective, both compared as words. Only where
            ``Sampling.dedup`` is "text".
        root_call: Ask the policy once, before the first step, for the problem's conditions and its
            objective, and put them into the prompt of the steps
            (:mod:`treerl.search.root_call`).
        examples: Show worked examples as earlier turns of the conversation.
    """

    dedup: Literal["text", "conclusion"] = "text"
    root_call: bool = False
    examples: bool = True

    def __post_init__(self) -> None:
        if self.dedup not in ("text", "conclusion"):
            raise ValueError(f"ObjectiveSteps.dedup is text or conclusion, got '{self.dedup}'")

    @property
    def stop(self) -> tuple[str, ...]:
        """Ends of objects as models write them; a box inside a string may match one too."""
        return _STOP

    def prompt(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        """Put the instruction in front, unless there is a system prompt, then the examples.

        Small models follow examples that stand as turns of their own, and hardly any instruction.
        """
        own = bool(messages) and messages[0]["role"] == "system"
        front = messages[:1] if own else [{"role": "system", "content": STEP_INSTRUCTION}]
        if self.examples:
            for question, steps in EXAMPLES:
                front.append({"role": "user", "content": question})
                front.append({"role": "assistant", "content": "\n".join(steps)})
        return front + messages[own:]

    def to_json(self) -> dict[str, Any]:
        """Describe the format for a manifest."""
        shown = json.dumps([STEP_INSTRUCTION, EXAMPLES])
        return {
            "format": "objective",
            "dedup": self.dedup,
            "root_call": self.root_call,
            "examples": self.examples,
            "instruction_sha256": hashlib.sha256(shown.encode()).hexdigest(),
        }

    def context(self, tokenizer: Tokenizer, before: Sequence[int]) -> StepContext:
        """Say where the next step begins: behind the last object."""
        if not before:
            return StepContext()
        window = tuple(before[-CONTEXT_TOKENS:])
        text = tokenizer.decode(window)
        at = text.rfind("}")
        if at >= 0:
            return StepContext(window, at + 1)
        # A broken step ended without its brace: what opens at the very end is the next one.
        opened = text.rfind("{")
        return StepContext(window, opened if opened >= 0 else len(text.rstrip("�")))

    def split(
        self,
        tokenizer: Tokenizer,
        token_ids: Sequence[int],
        context: StepContext = _FROM_THE_TOP,
    ) -> list[StepCut]:
        """Cut ids into steps, an object each; what is behind the last one is an open step.

        White space and fences behind the last object join its step.
        """
        if not token_ids:
            return []
        window = len(context.window)
        ids = context.window + tuple(token_ids)
        text = tokenizer.decode(ids)
        ends = token_ends(tokenizer, ids)
        cuts: list[StepCut] = []
        token, char = window, context.start
        for found in _objects(text, context.start):
            char = found.end
            end = bisect_left(ends, found.end, lo=window) + 1
            if window and ends[window - 1] >= found.end:
                continue  # it belongs to a step of the path so far
            body, meta = read_step(text[found.start : found.end])
            if end <= token and cuts:
                # A second object inside the token that closed the last one: it has no token.
                last = cuts.pop()
                meta = {STEP_ERROR: "two objects end in one token"}
                cuts.append(last._replace(text=f"{last.text}\n{body}", meta=meta))
                continue
            cuts.append(StepCut(token - window, end - window, body, complete=True, meta=meta))
            token = end
        if token < len(ids):
            tail = text[char:]
            if cuts and _FILLER.fullmatch(tail):
                cuts.append(cuts.pop()._replace(end=len(token_ids)))
            else:
                cuts.append(_open(tail, token - window, len(token_ids)))
        return cuts

    def complete(self, cut: StepCut) -> bool:
        """Say whether the object is closed; a stop string may stand inside it."""
        return cut.complete

    def final(self, cut: StepCut) -> bool:
        """Say whether the action says that the problem is answered."""
        return bool((cut.meta or {}).get("end")) or END in cut.text

    def same(self, text: str | None, meta: Mapping[str, Any] | None, cut: StepCut) -> bool:
        """Compare texts or, where asked to, objectives and conclusions."""
        if text == cut.text:
            return True
        if self.dedup == "text":
            return False
        ours, theirs = _conclusion_key(meta), _conclusion_key(cut.meta)
        return ours is not None and ours == theirs

    def given(self, step: str, last: bool) -> GivenStep:
        """Take a JSON step as it is; wrap anything else as the action of a step."""
        step = step.strip()
        if step.startswith("{"):
            text, meta = read_step(step)
            if STEP_ERROR not in meta:
                return GivenStep(step if last else step + "\n", text, meta)
        action = f"{step} {END}" if last else step
        row = {"step objective": _GIVEN_OBJECTIVE, "action": action}
        written = json.dumps(row, ensure_ascii=False)
        meta = {"objective": None, "conclusion": last_box(step), "end": last}
        return GivenStep(written if last else written + "\n", step, meta)

    def response(self, text: str, steps: Sequence[str]) -> str:
        r"""Return the steps as text, closed by the last result in a box of its own.

        The conclusion names its parameter, which is no part of an answer: of ``\boxed{x = 5}`` it
        is the 5 that a grader compares with gold.
        """
        body = "\n\n".join(steps)
        conclusion = last_box(steps[-1]) if steps else None
        if conclusion is None:
            return body
        return f"{body}\n\n\\boxed{{{_result_of(conclusion)}}}"


def read_step(raw: str) -> tuple[str, dict[str, Any]]:
    """Read one JSON object as a step. Never raises.

    Returns:
        The readable text and ``{"objective", "conclusion", "end"}``; for an object that is no step
        the raw text and ``{"step_error": reason}``.
    """
    try:
        row = read_object(raw)
        keys = {" ".join(re.split(r"[\s_-]+", key.strip().lower())): key for key in row}
        objective_key = next((keys[k] for k in _OBJECTIVE_KEYS if k in keys), None)
        if objective_key is None:
            raise ValueError('the step has no "step objective"')
        if _ACTION_KEY not in keys:
            raise ValueError('the step has no "action"')
        objective, action = _text(row, objective_key), _text(row, keys[_ACTION_KEY])
    except ValueError as error:
        return raw.strip(), {STEP_ERROR: str(error)}
    end = END in action
    action = action.replace(END, "").strip()
    meta = {"objective": objective, "conclusion": last_box(action), "end": end}
    return f"{objective}\n{action}".strip(), meta


def read_object(raw: str) -> dict[str, Any]:
    """Parse one JSON object as models write it.

    Raises:
        ValueError: It is none, with the reason.
    """
    if len(raw) > _MAX_CHARS:
        raise ValueError(f"the JSON object is longer than {_MAX_CHARS} characters")
    mended = re.sub(r",\s*\}\s*\Z", "}", _ESCAPE.sub(_mend_escape, raw))
    try:
        row = json.loads(mended, strict=False)
    except RecursionError as error:
        raise ValueError("the JSON object is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"no JSON object: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"no JSON object but a {type(row).__name__}")
    return row


_ESCAPE = re.compile(r'\\(?:([\\"/]|u[0-9a-fA-F]{4})|([bfnrt])([A-Za-z]*)|)')
_LATEX = re.compile(
    "nabla|natural|nearrow|neq?|neg|ni|nmid|nolimits|nonumber|not|notin|nu|"
    "rangle|rbrace|rceil|rfloor|rho|right|rightarrow|rm|root|"
    "tanh?|tau|text|textbf|textit|textrm|tfrac|therefore|theta|tilde|times|top?|triangle"
)


def _mend_escape(match: re.Match[str]) -> str:
    r"""Double the backslash of a LaTeX command; leave what JSON means as an escape.

    ``\b`` and ``\f`` in front of a letter are always commands (\boxed, \frac): nobody writes a
    backspace. After n, r and t the whole word decides, since ``\nThen`` is a line break.
    """
    known, letter, rest = match.groups()
    if known is not None:
        return match.group()
    if letter is None:
        return r"\\"
    command = bool(rest) if letter in "bf" else _LATEX.fullmatch(letter + rest) is not None
    return f"\\\\{letter}{rest}" if command else match.group()


def _text(row: dict[str, Any], key: str) -> str:
    value = row[key]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f'"{key}" of the step is no text')
    # JSON can spell half a surrogate pair, which no file can hold.
    return value.strip().encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def last_box(text: str) -> str | None:
    r"""Return what stands in the last ``\boxed{...}``, braces balanced; None without one."""
    at = text.rfind(r"\boxed{")
    if at < 0:
        return None
    start, depth = at + len(r"\boxed{"), 1
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start:i].strip() or None
    return None


def _result_of(conclusion: str) -> str:
    """Return the right-hand side of ``parameter = result``."""
    return conclusion.rpartition("=")[2].strip() or conclusion


def _conclusion_key(meta: Mapping[str, Any] | None) -> tuple[str, str] | None:
    objective, conclusion = (meta or {}).get("objective"), (meta or {}).get("conclusion")
    if not isinstance(objective, str) or not isinstance(conclusion, str):
        return None
    return " ".join(objective.casefold().split()), "".join(conclusion.casefold().split())


class _Span(NamedTuple):
    start: int
    end: int


def _objects(text: str, start: int) -> Iterator[_Span]:
    """Yield the closed objects of a text in order, and broken ones that another one follows."""
    at = start
    while (brace := text.find("{", at)) >= 0:
        begins = _START.search(text, brace)
        if begins is not None and _closing(text, brace, begins.start()) is None:
            # A first brace that opens no step of its own is prose, or a list around the steps.
            brace = begins.start()
        again = _START.search(text, brace + 1)
        limit = len(text) if again is None else again.start()
        end = _closing(text, brace, limit)
        if end is None:
            if again is None:
                return
            end = limit  # the object never closed: the next one begins inside it
        yield _Span(brace, end)
        at = end


def _closing(text: str, start: int, limit: int) -> int | None:
    """Return the end of the object that opens at ``start``, None if it is open at ``limit``."""
    depth, quoted, i = 0, False, start
    while i < limit:
        c = text[i]
        if quoted:
            if c == "\\":
                i += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return None


def _open(tail: str, start: int, end: int) -> StepCut:
    """Return the step that is not closed; without any visible character it is no fault yet."""
    body = tail.strip()
    meta: dict[str, Any] | None = None
    if body:
        reason = "the JSON object does not end" if "{" in body else "no JSON object"
        meta = {STEP_ERROR: reason}
    return StepCut(start, end, body, complete=False, meta=meta)
