r"""Problem files in, :class:`~treerl.problem.Problem` objects out.

::

    problems = load_problems("GSM8K/test.jsonl", limit=8)
    problems[0].answer          # "18": the text after "####"
    problems.summary()          # "8 problems from GSM8K/test.jsonl (question, answer)"

A row's fields are found by name, in the order of :mod:`treerl.fields`, unless they are given. Golds
are strings and stay as they are written: "007", "1e3" and "1.0" are never turned into numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

from treerl.errors import ProblemError
from treerl.fields import (
    ANSWER_FIELDS,
    ID_FIELDS,
    MESSAGES_FIELDS,
    QUESTION_FIELDS,
    FieldMap,
    NoQuestionField,
)
from treerl.golds import AnswerFormat, extract_gold
from treerl.problem import Problem
from treerl.readers import Row
from treerl.sources import open_source

__all__ = [
    "ANSWER_FIELDS",
    "ID_FIELDS",
    "MESSAGES_FIELDS",
    "QUESTION_FIELDS",
    "AnswerFormat",
    "LoadedProblems",
    "OnError",
    "extract_gold",
    "load_problems",
]

OnError = Literal["raise", "skip"]
"""A bad row ends the load, or is left out and counted."""

_GIVE_UP_AFTER = 100
"""So many rows without a single good one: the options do not fit the file."""


@dataclass(frozen=True)
class LoadedProblems(Sequence[Problem]):
    """The problems of a file, in its order; a read-only list.

    Attributes:
        problems: The good rows.
        errors: One for each row that was skipped.
        counts: "rows" read, of them "problems" and "skipped", and problems "without_answer".
        fields: Which field of the rows was taken for "question" or "messages", "answer", "id".
        source: What was loaded.
    """

    problems: tuple[Problem, ...]
    errors: tuple[ProblemError, ...]
    counts: Mapping[str, int]
    fields: Mapping[str, str]
    source: str

    def __len__(self) -> int:
        return len(self.problems)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | Sequence[Problem]:
        return self.problems[index]

    def summary(self) -> str:
        """Say in one sentence what was loaded, from which fields, and what was left out."""
        n, skipped = len(self.problems), self.counts["skipped"]
        text = f"{n} problem{'s' * (n != 1)} from {self.source} ({', '.join(self.fields.values())})"
        if self.counts["without_answer"]:
            text += f", {self.counts['without_answer']} without an answer"
        if skipped:
            text += f", {skipped} bad row{'s' * (skipped != 1)} skipped (first: {self.errors[0]})"
        return text


def _problem(mapper: FieldMap, index: int, row: Row, file: str) -> Problem:
    try:
        return mapper.problem(index, row)
    except RecursionError as error:
        raise ProblemError(
            "the row is nested too deeply",
            file=file,
            line=row.line,
            mend="no more than a few hundred levels of lists or objects can be read",
        ) from error


def load_problems(
    source: str | Path,
    *,
    question_field: str | None = None,
    answer_field: str | None = None,
    id_field: str | None = None,
    messages_field: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    on_error: OnError = "raise",
    answer_format: AnswerFormat = "auto",
) -> LoadedProblems:
    """Load problems from a file, a folder or the Hugging Face hub.

    Args:
        source: A .jsonl, .json, .csv, .tsv or .parquet file, a folder of such files or one written
            by ``save_to_disk``, or a hub id ("openai/gsm8k:main" names a configuration too).
        question_field: Field of the question. A dot steps into an object: "extra.question".
        answer_field: Field of the gold answer; null or absent means that it is unknown.
        id_field: Field of the id. Without one the id is "<name of the file>-<index of the row>".
        messages_field: Field of a conversation, used instead of a question. A last assistant turn
            is cut off; it is the worked solution where the row has no answer field.
        split: Which split of a folder or a hub data set.
        limit: Stop after so many problems; the rest of the file is not read.
        on_error: "raise" at the first bad row, or "skip" and count bad rows.
        answer_format: How the gold stands in its field, see :func:`extract_gold`.

    Raises:
        ProblemError: The source cannot be read, a row is bad, or no row is good.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is 'raise' or 'skip', not {on_error!r}")
    if answer_format not in ("auto", "plain", "gsm8k", "boxed"):
        raise ValueError(f"answer_format is auto, plain, gsm8k or boxed, not {answer_format!r}")
    if question_field and messages_field:
        raise ValueError("give question_field or messages_field, not both")
    file, stem, rows = open_source(source, split)
    mapper = FieldMap(
        file, stem, question_field, messages_field, answer_field, id_field, answer_format
    )
    problems: list[Problem] = []
    errors: list[ProblemError] = []
    for index, row in enumerate(rows):
        try:
            if isinstance(row, ProblemError):
                raise row
            problems.append(_problem(mapper, index, row, file))
        except ProblemError as error:
            if on_error == "raise" or isinstance(error, NoQuestionField):
                raise
            errors.append(error)
            if not problems and len(errors) == _GIVE_UP_AFTER:
                break
        if len(problems) == limit:
            break
    if not problems:
        _raise_for_nothing(file, errors)
    counts = {
        "rows": len(problems) + len(errors),
        "problems": len(problems),
        "skipped": len(errors),
        "without_answer": sum(p.answer is None for p in problems),
    }
    return LoadedProblems(tuple(problems), tuple(errors), counts, dict(mapper.found), str(source))


def _raise_for_nothing(file: str, errors: list[ProblemError]) -> None:
    if not errors:
        raise ProblemError("the file holds no row", file=file, mend="write rows into it")
    first = errors[0]
    message = f"none of the first {len(errors)} rows can be used" if len(errors) > 1 else ""
    raise ProblemError(
        f"{message}; the first: {first.message}" if message else first.message,
        file=first.file,
        line=first.line,
        field=first.field,
        mend=first.mend,
    )
