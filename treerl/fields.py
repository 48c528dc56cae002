"""Which fields of a row make a problem, and what may stand in them."""

from __future__ import annotations

import datetime
import decimal
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from treerl.errors import ProblemError
from treerl.golds import AnswerFormat, UnmarkedAnswer, extract_gold
from treerl.problem import Problem
from treerl.readers import Number, Row

__all__ = [
    "ANSWER_FIELDS",
    "ID_FIELDS",
    "MESSAGES_FIELDS",
    "QUESTION_FIELDS",
    "FieldMap",
    "NoQuestionField",
]

QUESTION_FIELDS = ("question", "problem", "prompt", "input", "query", "instruction", "text")
ANSWER_FIELDS = (
    "answer",
    "final_answer",
    "gold",
    "gold_answer",
    "target",
    "expected_answer",
    "ground_truth",
    "reference_answer",
    "reward_model.ground_truth",
    "solution",
    "reference_solution",
)
ID_FIELDS = ("id", "problem_id", "question_id", "unique_id", "uid", "task_id")
MESSAGES_FIELDS = ("messages", "conversation", "conversations", "chat", "prompt")


class NoQuestionField(ProblemError):
    """No question can be found in the file: going on to the next row is of no use."""


_ABSENT = object()
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


@dataclass
class FieldMap:
    """Turns rows into problems; remembers which fields were found and which ids are taken."""

    file: str
    stem: str
    question_field: str | None
    messages_field: str | None
    answer_field: str | None
    id_field: str | None
    answer_format: AnswerFormat
    found: dict[str, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def problem(self, index: int, row: Row) -> Problem:
        if not self.found:
            self._find_fields(row)
        line, fields = row
        if bad := _bad_text(fields):
            raise self._error(line, bad[1], bad[0], "save the file as UTF-8 text")
        messages, reply = self._messages(line, fields)
        answer, raw = self._answer(line, fields, reply)
        identity = self._id(index, line, fields)
        used = {self.found.get(name) for name in ("question", "messages", "id")}
        if answer == raw and answer is not None:
            used.add(self.found.get("answer"))
        metadata = {key: _plain(value) for key, value in fields.items() if key not in used}
        if reply is not None:
            metadata["reply"] = reply
        try:
            problem = Problem(identity, messages, answer, metadata)
        except ValueError as error:
            name = self.found.get("id")
            raise self._error(line, str(error), name, "give it another id") from error
        self.ids[identity] = line
        return problem

    def _find_fields(self, row: Row) -> None:
        """Settle the names of the fields on the first row."""
        fields = row.fields
        messages = self.messages_field or (
            None if self.question_field else _first(fields, MESSAGES_FIELDS, kind=list)
        )
        question = None if messages else self.question_field or _first(fields, QUESTION_FIELDS)
        if not messages and not question:
            raise NoQuestionField(
                f"no field for the question was found; the fields are {_names(fields)}",
                file=self.file,
                line=row.line,
                mend="name it with question_field or messages_field",
            )
        self.found["messages" if messages else "question"] = cast(str, messages or question)
        if identity := self.id_field or _first(fields, ID_FIELDS):
            self.found["id"] = identity

    def _messages(
        self, line: int, fields: dict[str, Any]
    ) -> tuple[tuple[Mapping[str, str], ...], str | None]:
        """Return the conversation and the assistant's last turn, None without one."""
        if name := self.found.get("messages"):
            try:
                turns = _turns(self._get(line, fields, name))
            except ValueError as error:
                mend = "a conversation is a list of objects with 'role' and 'content'"
                raise self._error(line, str(error), name, mend) from error
            reply = turns.pop()["content"] if turns[-1]["role"] == "assistant" else None
            if not any(m["role"] == "user" and m["content"].strip() for m in turns):
                raise self._error(line, "the conversation holds no question of a user", name)
            return tuple(turns), reply
        name = self.found["question"]
        question = self._get(line, fields, name)
        if not isinstance(question, str) or isinstance(question, Number):
            raise self._error(line, f"the question is {_kind(question)}, not text", name)
        if not question.strip():
            raise self._error(line, "the question is empty", name, "fill it in, or skip bad rows")
        return ({"role": "user", "content": question},), None

    def _answer(
        self, line: int, fields: dict[str, Any], reply: str | None
    ) -> tuple[str | None, str | None]:
        """Return the gold answer and the text it was taken from."""
        name = self.answer_field or self.found.get("answer") or _first(fields, ANSWER_FIELDS)
        worked = name is not None and "solution" in name
        if name is None:
            raw, worked = reply, True
        else:
            self.found["answer"] = name
            try:
                raw = _text(self._get(line, fields, name))
            except ValueError as error:
                mend = "an answer is one string or number"
                raise self._error(line, str(error), name, mend) from error
        if raw is None:
            return None, None
        try:
            return extract_gold(raw, self.answer_format, worked=worked), raw
        except ValueError as error:
            if isinstance(error, UnmarkedAnswer) and not self.answer_field:
                return None, None  # nobody said that this field holds the answer
            mend = "mend the row, skip bad rows, or choose another answer_format or answer_field"
            raise self._error(line, str(error), name, mend) from error

    def _id(self, index: int, line: int, fields: dict[str, Any]) -> str:
        name = self.found.get("id")
        if name is None:
            return f"{self.stem}-{index}"
        try:
            identity = _text(self._get(line, fields, name))
        except ValueError as error:
            raise self._error(line, str(error), name, "an id is one string or number") from error
        if not identity:
            raise self._error(line, "the id is empty", name, "fill it in, or skip bad rows")
        if identity in self.ids:
            raise self._error(
                line,
                f"the id {identity!r} stands on line {self.ids[identity]} already",
                name,
                "make ids unique, or choose another id_field",
            )
        return identity

    def _get(self, line: int, fields: dict[str, Any], name: str) -> Any:
        value = _lookup(fields, name)
        if value is _ABSENT:
            message = f"there is no such field; the fields are {_names(fields)}"
            raise self._error(line, message, name)
        return value

    def _error(
        self, line: int, message: str, name: str | None, mend: str | None = None
    ) -> ProblemError:
        return ProblemError(message, file=self.file, line=line, field=name, mend=mend)


def _lookup(fields: Mapping[str, Any], name: str) -> Any:
    """Find a field; a dot in the name steps into an object unless a field is called so."""
    if name in fields:
        return fields[name]
    head, dot, rest = name.partition(".")
    inner = fields.get(head)
    return _lookup(inner, rest) if dot and isinstance(inner, dict) else _ABSENT


def _first(fields: Mapping[str, Any], names: Sequence[str], kind: type = object) -> str | None:
    for name in names:
        value = _lookup(fields, name)
        if value is not _ABSENT and isinstance(value, kind):
            return name
    return None


def _names(fields: Mapping[str, Any]) -> str:
    shown = [repr(name) for name in itertools.islice(fields, 20)]
    return ", ".join(shown + ["…"] * (len(fields) > len(shown))) or "none"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, Number | int | float | decimal.Decimal):
        return "a number"
    kinds: dict[type, str] = {list: "a list", dict: "an object", bytes: "binary"}
    return kinds.get(type(value), "no text")


def _text(value: Any) -> str | None:
    """Return a value's exact text; null and the not-a-number of missing cells are None."""
    if value is None or (isinstance(value, Number | float) and str(value).lower() == "nan"):
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | decimal.Decimal | datetime.date | datetime.time):
        return str(value)
    raise ValueError(f"the value is {_kind(value)}")


def _turns(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"the conversation is {'empty' if value == [] else _kind(value)}")
    turns = []
    for number, turn in enumerate(value, start=1):
        if not isinstance(turn, dict):
            raise ValueError(f"turn {number} is {_kind(turn)}")
        role, content = turn.get("role"), turn.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise ValueError(f"turn {number} lacks a role or a text as its content")
        turns.append({"role": str(role), "content": str(content)})
    return turns


def _bad_text(value: Any, name: str | None = None) -> tuple[str | None, str] | None:
    """Find text that cannot be written: (field, what is wrong)."""
    if isinstance(value, str):
        if not (bad := _UNWRITABLE.search(value)):
            return None
        char = bad[0]
        if char == "\0":
            return name, "the text holds a NUL character"
        # Readers turn bytes that are not UTF-8 into this range.
        is_byte = "\udc80" <= char <= "\udcff"
        return name, "the text is not UTF-8" if is_byte else "the text holds half a surrogate pair"
    if isinstance(value, dict):
        found = (_bad_text(key) or _bad_text(item, name or key) for key, item in value.items())
        return next(filter(None, found), None)
    if isinstance(value, list):
        return next(filter(None, (_bad_text(item, name) for item in value)), None)
    return None


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; numbers that it cannot hold exactly stay text."""
    if isinstance(value, Number):
        return _number(value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return str(value)


def _number(text: Number) -> int | float | str:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == str(text):
            return value
    return str(text)
