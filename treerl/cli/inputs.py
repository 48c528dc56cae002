"""From options to the problems of a run, with their given solutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treerl.cli.console import say

if TYPE_CHECKING:
    from treerl.loading import LoadedProblems
    from treerl.problem import Problem

__all__ = ["InputOptions", "read_input"]

SHOWN = 5
"""Skipped rows that are told one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """What is labelled; the names are those of the command line."""

    problems: str
    limit: int | None = None
    question_field: str | None = None
    answer_field: str | None = None
    id_field: str | None = None
    answer_format: str = "auto"
    split: str | None = None
    on_bad_row: str = "raise"
    solutions: str | None = None
    solution_field: str | None = None
    solution_id_field: str | None = None


def read_input(options: InputOptions, delimiter: str) -> tuple[list[Problem], int]:
    """Read the problems, and the solutions where some are given, and say what was found.

    Args:
        options: What to read.
        delimiter: What ends a step where a solution is one text.

    Returns:
        The problems to label, and how many bad rows were skipped.

    Raises:
        ProblemError: A source cannot be read, or a row is bad.
    """
    from treerl.cli.solutions import join_solutions, without_given
    from treerl.loading import load_problems

    skip: Any = str(options.on_bad_row)
    kind: Any = str(options.answer_format)
    loaded = load_problems(
        options.problems,
        question_field=options.question_field,
        answer_field=options.answer_field,
        id_field=options.id_field,
        split=options.split,
        limit=options.limit,
        on_error=skip,
        answer_format=kind,
    )
    _report(loaded)
    if options.solutions is None:
        return without_given(loaded.problems), len(loaded.errors)
    joined = join_solutions(
        loaded,
        options.solutions,
        split=options.split if options.solutions == options.problems else None,
        solution_field=options.solution_field,
        id_field=options.solution_id_field,
        delimiter=delimiter,
        skip=skip == "skip",
        limited=options.limit is not None,
    )
    say(joined.summary(options.solutions))
    for error in joined.errors[1:SHOWN]:
        say(f"  also skipped: {error}")
    return list(joined.problems), len(loaded.errors) + len(joined.errors)


def _report(loaded: LoadedProblems) -> None:
    say(loaded.summary())
    for error in loaded.errors[1:SHOWN]:
        say(f"  also skipped: {error}")
    if loaded.counts["without_answer"]:
        say("  a problem without an answer gets labels only where a tool refutes a step")
