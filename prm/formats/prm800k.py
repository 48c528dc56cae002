"""PRM800K: OpenAI's human labels, and rows of the same shape.

A row is a chain of steps; each step lists the completions that were rated (-1, 0, 1, or null where
nobody rated), and which of them the next step goes on from. An alternative's context is the chosen
completions before it, not the alternatives before it (openai/prm800k #10), so a row is read as one
solution a completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from treerl.prm.formats.base import LabelledTree, LeftOut, Row
from treerl.prm.formats.cells import Cell
from treerl.prm.formats.paths import Trie
from treerl.prm.formats.solutions import (
    NO_LABEL,
    SAME_STEPS,
    LabelledSolution,
    solutions_of,
    statement_id,
)

__all__ = ["PRM800K", "read_prm800k"]

_RATINGS = {1: 1, 0: -1, None: None}


@dataclass(frozen=True, slots=True)
class PRM800K:
    """The fields of PRM800K's own rows; a row a path, with one completion a step.

    Unlabelled steps have the rating null. Solutions that were read from PRM800K become the rows
    that they were, neutral ratings and alternatives included.

    Attributes:
        labeler: Who is named as the labeler.
    """

    labeler: str = "treerl"

    name = "prm800k"

    def losses(self) -> tuple[str, ...]:
        """Say what the format cannot hold."""
        return (
            "paths without any label",
            "soft labels: only the ratings -1, 1 and null are kept",
            "evidence, sources of labels and rationales",
            "ids of problems and whether the final answer is right",
            "times: timestamp is the epoch and total_time 0, so that equal runs give equal files",
        )

    def rows(self, tree: LabelledTree) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct path that has a label."""
        return self.solution_rows(solutions_of(tree))

    def solution_rows(self, solutions: Iterable[LabelledSolution]) -> Iterator[Row | LeftOut]:
        """Yield a row for each distinct solution of one problem, or each row that was read."""
        paths: list[LabelledSolution] = []
        for line, group in groupby(solutions, key=lambda s: s.metadata.get("prm800k.line")):
            if line is None:
                paths.extend(group)
            else:
                yield _row_again(list(group))
        yield from self._path_rows(paths)

    def _path_rows(self, paths: list[LabelledSolution]) -> Iterator[Row | LeftOut]:
        trie, seen = Trie(), set[int]()
        ends = [trie.add(zip(path.steps, path.labels, strict=True)) for path in paths]
        for path, end in zip(paths, ends, strict=True):
            if all(label is None for label in path.labels):
                yield LeftOut("no step has a label") if path.steps else NO_LABEL
            elif end in seen or trie.is_inner(end):
                yield SAME_STEPS
            else:
                seen.add(end)
                yield self._path_row(path)

    def _path_row(self, path: LabelledSolution) -> Row:
        wrong, ended = 0 in path.labels, path.metadata.get("ended", False)
        steps = []
        for text, label in zip(path.steps, path.labels, strict=True):
            completion = {"text": text, "rating": _RATINGS[label], "flagged": None}
            steps.append(_step([completion], None, 0))
        return {
            "labeler": self.labeler,
            "timestamp": "1970-01-01T00:00:00.000000",
            "generation": None,
            "is_quality_control_question": False,
            "is_initial_screening_question": False,
            "question": {"problem": path.statement, "ground_truth_answer": path.answer},
            "label": {
                "steps": steps,
                "total_time": 0,
                "finish_reason": "found_error" if wrong else "solution" if ended else "give_up",
            },
        }


def _step(completions: list[Row] | None, human: Row | None, chosen: int | None) -> dict[str, Any]:
    return {
        "completions": completions,
        "human_completion": human,
        "chosen_completion": chosen,
    }


def _row_again(group: list[LabelledSolution]) -> Row:
    """Put the completions of one row back into it."""
    whole = group[0].metadata["prm800k.row"]
    steps = [_step(None, None, chosen) for chosen in group[0].metadata["prm800k.chosen"]]
    for solution in group:
        step, rest = steps[len(solution.steps) - 1], solution.metadata["prm800k.completion"]
        completion = {"text": solution.steps[-1], **rest}
        if rest.get("source") == "human":
            step["human_completion"] = completion
        else:
            step["completions"] = [*(step["completions"] or []), completion]
    question = {"problem": group[0].statement, **whole["question"]}
    return {**whole, "question": question, "label": {"steps": steps, **whole["label"]}}


def read_prm800k(row: Cell, *, neutral: int | None = 1) -> Iterator[LabelledSolution]:
    """Read a row: one solution a completion, with the chosen ones before it.

    Args:
        row: The row.
        neutral: The label of the rating 0: 1 as in "Let's verify step by step" (and openr), 0 as
            in TRL's conversion, None to leave it unlabelled. The rating stays in the metadata.

    Raises:
        ProblemError: A field is missing, a rating is none, or a step follows no chosen one.
    """
    question, label = row["question"], row["label"]
    problem, answer = question["problem"].text(), question.get("ground_truth_answer")
    cells = label["steps"].items()
    all_chosen = tuple(map(_chosen, cells))
    shared = {
        "prm800k.line": row.line,
        "prm800k.chosen": all_chosen,
        "prm800k.row": _without_steps(row),
    }
    texts: tuple[str, ...] | None = ()
    labels: tuple[int | None, ...] = ()
    for cell, chosen in zip(cells, all_chosen, strict=True):
        alternatives = _completions(cell, neutral)
        if alternatives and texts is None:
            raise cell.error("the step before it chose no completion", "correct the row")
        if chosen is not None and chosen >= len(cell["completions"].items()):
            raise cell["chosen_completion"].error(
                f"there is no completion {chosen}", "correct the row"
            )
        for text, hard, rest in alternatives:
            steps = (*(texts or ()), text)
            yield LabelledSolution(
                problem_id=statement_id(problem),
                statement=problem,
                answer=None if answer is None else answer.text(),
                steps=steps,
                labels=(*labels, hard),
                soft=(None,) * len(steps),
                source=("prm800k",) * len(steps),
                metadata={**shared, "prm800k.completion": rest},
            )
        going_on = _going_on(alternatives, chosen)
        if going_on is None or texts is None:
            texts = None
        else:
            texts, labels = (*texts, going_on[0]), (*labels, going_on[1])


_Completion = tuple[str, "int | None", dict[str, Any]]


def _completions(step: Cell, neutral: int | None) -> list[_Completion]:
    """Return text, label and the other fields of a step's completions, the human's last."""
    listed, human = step.get("completions"), step.get("human_completion")
    found = [_completion(cell, neutral) for cell in (listed.items() if listed else [])]
    if human is not None:
        text, label, rest = _completion(human, neutral)
        found.append((text, label, {**rest, "source": "human"}))
    return found


def _completion(cell: Cell, neutral: int | None) -> _Completion:
    rating = cell.get("rating")
    value = None if rating is None else rating.integer()
    if rating is not None and value not in (-1, 0, 1):
        raise rating.error(f"the rating is {value}", "it must be -1, 0, 1 or null")
    label = {1: 1, 0: neutral, -1: 0, None: None}[value]
    rest = {key: item for key, item in cell.plain().items() if key != "text"}
    return cell["text"].text(), label, rest


def _going_on(found: list[_Completion], chosen: int | None) -> _Completion | None:
    """Return what the next step goes on from."""
    if chosen is not None:
        return found[chosen]
    return found[-1] if found and found[-1][2].get("source") == "human" else None


def _chosen(step: Cell) -> int | None:
    cell = step.get("chosen_completion")
    if cell is None:
        return None
    if (chosen := cell.integer()) < 0:
        raise cell.error(f"there is no completion {chosen}", "correct the row")
    return chosen


def _without_steps(row: Cell) -> dict[str, Any]:
    """Return everything of a row that its solutions do not say."""
    whole = row.plain()
    return {
        **whole,
        "question": {key: item for key, item in whole["question"].items() if key != "problem"},
        "label": {key: item for key, item in whole["label"].items() if key != "steps"},
    }
