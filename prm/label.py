"""Process labels: one record a step, with the evidence that made it.

A label is about a *prefix*: 1 says that the steps up to and including this one still lead to a
right answer, 0 that this step is where they stopped to, None that it is unknown or stands behind
an error already found (masked). A label without evidence does not exist.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from treerl.errors import StoreError
from treerl.prm.consensus import consensus_of_tree, kept_steps
from treerl.prm.fuse import Evidence, Fused, Fusion, LabelSource
from treerl.prm.rationale import write_rationale
from treerl.runfiles import DAMAGE, short_json
from treerl.runreader import Line
from treerl.search.restmcts import value_targets_of_tree
from treerl.steps import STEP_ERROR
from treerl.store import RunReader
from treerl.tree import Node, Tree
from treerl.verdict import StepVerdict, Verdict

__all__ = [
    "LABEL_SCHEMA",
    "LabelLine",
    "StepLabel",
    "evidence_of",
    "label_tree",
    "parse_label",
    "read_labels",
]

LABEL_SCHEMA = "treerl.label/1"


@dataclass(frozen=True, slots=True)
class StepLabel:
    """The label of one step.

    Attributes:
        id: Hash of (statement, prefix, step): equal for equal content, the key for deduplication.
        problem_id, statement, answer: The problem.
        node, parent: Indices in the tree; the parent of a first step is 0.
        index: 0-based position of the step in its solution.
        prefix: The steps before it.
        step: The step.
        terminal: The step ends a solution.
        label: 1 right, 0 wrong, None unknown or masked.
        soft: In [0, 1]; None where there is no belief at all.
        source: What made the label.
        masked: An earlier step of the path is wrong, so this one is not labelled.
        verdict: The tool's evidence, None where no tool was asked.
        correct, total: The Monte-Carlo evidence.
        visits, value_sum: The search's statistics.
        rationale: Why, in words, written from the evidence.
    """

    id: str
    problem_id: str
    statement: str
    answer: str | None
    node: int
    parent: int
    index: int
    prefix: tuple[str, ...]
    step: str
    terminal: bool
    label: int | None
    soft: float | None
    source: LabelSource
    masked: bool
    verdict: StepVerdict | None
    correct: int
    total: int
    visits: int
    value_sum: float
    rationale: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that stands in ``labels/``."""
        return {
            "schema": LABEL_SCHEMA,
            "id": self.id,
            "problem": {
                "id": self.problem_id,
                "statement": self.statement,
                "answer": self.answer,
            },
            "prefix": list(self.prefix),
            "step": {"index": self.index, "text": self.step, "terminal": self.terminal},
            "label": self.label,
            "soft_label": self.soft,
            "label_source": self.source,
            "masked": self.masked,
            "evidence": {
                "tool": None if self.verdict is None else self.verdict.to_json(),
                "mc": {"correct": self.correct, "total": self.total},
                "tree": {
                    "node": self.node,
                    "parent": self.parent,
                    "N": self.visits,
                    "W": self.value_sum,
                },
            },
            "rationale": self.rationale,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StepLabel:
        """Restore a label from :meth:`to_json`.

        Raises:
            StoreError: The object is no label record.
        """
        get = _Fields(data)
        return cls(
            id=get("a string", "id"),
            problem_id=get("a string", "problem", "id"),
            statement=get("a string", "problem", "statement"),
            answer=get("a string or null", "problem", "answer"),
            node=get("a whole number", "evidence", "tree", "node"),
            parent=get("a whole number", "evidence", "tree", "parent"),
            index=get("a whole number", "step", "index"),
            prefix=tuple(get("a list of strings", "prefix")),
            step=get("a string", "step", "text"),
            terminal=get("true or false", "step", "terminal"),
            label=get("1, 0 or null", "label"),
            soft=get("a number from 0 to 1 or null", "soft_label"),
            source=get("a string", "label_source"),
            masked=get("true or false", "masked"),
            verdict=_verdict(get("an object or null", "evidence", "tool")),
            correct=get("a whole number", "evidence", "mc", "correct"),
            total=get("a whole number", "evidence", "mc", "total"),
            visits=get("a whole number", "evidence", "tree", "N"),
            value_sum=get("a number", "evidence", "tree", "W"),
            rationale=get("a string", "rationale"),
        )


class _Fields:
    """The fields of a label record, each of its kind or an error that names it."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def __call__(self, kind: str, *path: str) -> Any:
        value: Any = self._data
        for i, key in enumerate(path):
            if not isinstance(value, dict):
                raise StoreError(f"not a label record: '{'.'.join(path[:i])}' is no object")
            if key not in value:
                raise StoreError(f"not a label record: '{'.'.join(path[: i + 1])}' is missing")
            value = value[key]
        if not _KINDS[kind](value):
            name = ".".join(path)
            raise StoreError(f"not a label record: '{name}' is {short_json(value)}, not {kind}")
        return value


def _verdict(tool: dict[str, Any] | None) -> StepVerdict | None:
    try:
        return None if tool is None else StepVerdict.from_json(tool)
    except DAMAGE as error:
        raise StoreError(
            f"not a label record: 'evidence.tool' is no verdict ({type(error).__name__}: {error})"
        ) from error


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


# type() and not isinstance(): to Python a true is a 1, to a reader of the file it is not.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "a string": lambda value: type(value) is str,
    "a string or null": lambda value: value is None or type(value) is str,
    "a list of strings": lambda value: (
        type(value) is list and all(type(item) is str for item in value)
    ),
    "a whole number": lambda value: type(value) is int and abs(value) < 2**63,
    "a number": _is_number,
    "a number from 0 to 1 or null": lambda value: (
        value is None or (_is_number(value) and 0 <= value <= 1)
    ),
    "an object or null": lambda value: value is None or type(value) is dict,
    "true or false": lambda value: type(value) is bool,
    "1, 0 or null": lambda value: value is None or (type(value) is int and value in (0, 1)),
}


class LabelLine(NamedTuple):
    """A label as it is stored: where, the JSON object, and what it says."""

    line: Line
    label: StepLabel


def read_labels(run: RunReader) -> Iterator[LabelLine]:
    """Yield the labels of a run with the places where they stand.

    Raises:
        StoreError: A line is damaged; the error names it.
    """
    return map(parse_label, run.lines("labels"))


def parse_label(line: Line) -> LabelLine:
    """Return the label of a line.

    Raises:
        StoreError: The line holds none; the error names it.
    """
    try:
        return LabelLine(line, StepLabel.from_json(line.record))
    except StoreError as error:
        raise StoreError(f"{line.file}, line {line.number}: {error}") from error


def label_tree(tree: Tree, fusion: Fusion) -> list[StepLabel]:
    """Label every step of a tree, in creation order.

    Nodes without text (an end token of its own) and failed requests carry no label. Where the tree
    serves given or sampled solutions (prefix Monte Carlo), only their steps are labelled: the
    rollouts below them are evidence. The rule "consensus" drops the labels of solutions without
    consensus; a step that stands on a kept solution too keeps its label.
    """
    labels: list[StepLabel] = []
    chosen = _solution_nodes(tree)
    judge = _judge_of(tree, fusion)
    fused_of = {node.index: judge(node) for node in tree.nodes[1:] if _is_step(node)}
    if fusion.rule == "consensus":
        hard = {index: fused.label for index, fused in fused_of.items()}
        kept = kept_steps(tree, consensus_of_tree(tree, hard))
        fused_of = {
            index: fused if index in kept else Fused(None, None, "no_consensus")
            for index, fused in fused_of.items()
        }
    prefixes: dict[int, tuple[str, ...]] = {0: ()}  # node -> the steps up to and including it
    wrong: set[int] = set()  # nodes at or below a step labelled 0
    for node in tree.nodes[1:]:
        assert node.parent is not None
        prefix = prefixes[node.parent.index]
        masked = node.parent.index in wrong
        if masked:
            wrong.add(node.index)
        if not _is_step(node):
            prefixes[node.index] = prefix
            continue
        assert node.text is not None
        prefixes[node.index] = (*prefix, node.text)
        fused = fused_of[node.index]
        if fused.label == 0:
            wrong.add(node.index)
        if chosen is None or node.index in chosen:
            labels.append(_label(tree, node, prefix, fused, masked=masked))
    return labels


def _is_step(node: Node) -> bool:
    return bool(node.text) and node.error is None


def _judge_of(tree: Tree, fusion: Fusion) -> Callable[[Node], Fused]:
    """Return the fusion with whatever its rule must know about the tree as a whole."""
    targets = value_targets_of_tree(tree) if fusion.rule == "restmcts" else {}

    def judge(node: Node) -> Fused:
        if (node.meta or {}).get(STEP_ERROR) is not None:
            return Fused(None, None, "malformed")
        evidence = evidence_of(node)
        if (target := targets.get(node.index)) is not None:
            evidence = replace(evidence, value_target=target.value, reaches_right=target.reaches)
        return fusion(evidence)

    return judge


def _solution_nodes(tree: Tree) -> set[int] | None:
    """Return the nodes on the tree's solutions, None where all nodes are of one kind."""
    ends = (tree.root.meta or {}).get("solutions")
    if ends is None:
        return None
    return {node.index for end in ends for node in tree.path(tree.nodes[end])}


def evidence_of(node: Node) -> Evidence:
    """Collect what the tree knows about a step."""
    verdict, parent = node.verdict, node.parent
    return Evidence(
        verdict=Verdict.UNVERIFIABLE if verdict is None else verdict.verdict,
        strength=None if verdict is None else verdict.strength,
        correct=node.correct,
        total=node.total,
        # A path that a cap cut off has an outcome too, but its last step is only half a step.
        terminal=node.finish_reason in ("eos", "stop", "answer") and node.reward is not None,
        value_sum=node.value_sum,
        correct_before=0 if parent is None else parent.correct,
        total_before=0 if parent is None else parent.total,
    )


def _label(
    tree: Tree, node: Node, prefix: tuple[str, ...], fused: Fused, *, masked: bool
) -> StepLabel:
    problem = tree.problem
    assert node.parent is not None
    assert node.text is not None
    label = None if masked else fused.label
    # Without a rollout the posterior is its prior, and a prior is no evidence.
    soft = None if label is None and not node.total else fused.soft
    return StepLabel(
        id=_content_hash(problem.text, prefix, node.text),
        problem_id=problem.id,
        statement=problem.text,
        answer=problem.answer,
        node=node.index,
        parent=node.parent.index,
        index=len(prefix),
        prefix=prefix,
        step=node.text,
        terminal=node.is_leaf,
        label=label,
        soft=None if masked else soft,
        source=fused.source,
        masked=masked,
        verdict=node.verdict,
        correct=node.correct,
        total=node.total,
        visits=node.visits,
        value_sum=node.value_sum,
        rationale=write_rationale(label, evidence_of(node), node.verdict, masked=masked),
    )


def _content_hash(statement: str, prefix: tuple[str, ...], step: str) -> str:
    digest = hashlib.sha256()
    for part in (statement, *prefix, step):
        words = " ".join(part.split()).encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(words) + words)
    return digest.hexdigest()[:32]
