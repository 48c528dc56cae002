"""Process labels: one record a step, with the evidence that made it.

A label is about a *prefix*: 1 says that the steps up to and including this one still lead to a
right answer, 0 that this step is where they stopped to, None that it is unknown or stands behind
an error already found (masked). A label without evidence does not exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from treerl.errors import StoreError
from treerl.prm.consensus import consensus_of_tree, kept_steps
from treerl.prm.fuse import Evidence, Fused, Fusion, LabelSource
from treerl.prm.rationale import write_rationale
from treerl.search.restmcts import value_targets_of_tree
from treerl.steps import STEP_ERROR
from treerl.tree import Node, Tree
from treerl.verdict import StepVerdict, Verdict

__all__ = ["LABEL_SCHEMA", "StepLabel", "evidence_of", "label_tree"]

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
        try:
            return cls._from_json(data)
        except (KeyError, TypeError) as error:
            raise StoreError(
                f"not a label record: {error!r} is missing or of a wrong type"
            ) from error

    @classmethod
    def _from_json(cls, data: dict[str, Any]) -> StepLabel:
        evidence = data["evidence"]
        tool = evidence["tool"]
        return cls(
            id=data["id"],
            problem_id=data["problem"]["id"],
            statement=data["problem"]["statement"],
            answer=data["problem"]["answer"],
            node=evidence["tree"]["node"],
            parent=evidence["tree"]["parent"],
            index=data["step"]["index"],
            prefix=tuple(data["prefix"]),
            step=data["step"]["text"],
            terminal=data["step"]["terminal"],
            label=data["label"],
            soft=data["soft_label"],
            source=data["label_source"],
            masked=data["masked"],
            verdict=None if tool is None else StepVerdict.from_json(tool),
            correct=evidence["mc"]["correct"],
            total=evidence["mc"]["total"],
            visits=evidence["tree"]["N"],
            value_sum=evidence["tree"]["W"],
            rationale=data["rationale"],
        )


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
        rationale=write_rationale(label, evidence_of(node), node.verdict),
    )


def _content_hash(statement: str, prefix: tuple[str, ...], step: str) -> str:
    digest = hashlib.sha256()
    for part in (statement, *prefix, step):
        words = " ".join(part.split()).encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(words) + words)
    return digest.hexdigest()[:32]
