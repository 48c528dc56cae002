"""A tree for the eye: a line a step, its label in colour, its evidence at the right edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from treerl.cli.console import clean
from treerl.prm.label import StepLabel
from treerl.tree import Node, Tree

__all__ = ["LEGEND", "TreeView"]

LEGEND = (
    "✓ right  ✗ wrong  · no label   mc: right answers / solutions through the step   "
    "Q: the search's value"
)
LEAD_CELLS = 48
"""A deeper step is not indented further; its line would hold nothing else."""

LEAST_CELLS = 24
"""Of a step's text; where a line has no room for them, its rarer facts are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeView:
    """How to draw.

    Attributes:
        width: Cells a line.
        steps: Draw only so many levels; None draws all.
        max_nodes: Draw only so many steps; None draws all.
    """

    width: int = 100
    steps: int | None = None
    max_nodes: int | None = None

    def header(self, tree: Tree) -> Iterator[Text]:
        """Yield the problem, its gold answer and what the tree cost."""
        yield Text(f"problem {clean(tree.problem.id)}", "bold")
        for line in _wrapped(clean(tree.problem.text), self.width - 2):
            yield Text(f"  {line}")
        gold = "unknown" if tree.problem.answer is None else clean(tree.problem.answer)
        right, scored = tree.samples()
        yield Text(f"  gold answer: {gold}")
        yield Text(
            f"{len(tree) - 1:,} steps, {len(tree.leaves()):,} solutions in the tree, "
            f"{right:,} of {scored:,} sampled ones right",
            "dim",
        )
        ledger = tree.ledger
        yield Text(
            f"{ledger.requests:,} requests, {ledger.generated:,} tokens generated "
            f"({ledger.discarded:,} repeats), {ledger.submitted:,} prompt tokens, "
            f"{ledger.judged:,} judgements",
            "dim",
        )

    def lines(self, tree: Tree, labels: Mapping[int, StepLabel] | None) -> Iterator[Text]:
        """Yield the steps, depth first.

        Args:
            tree: The tree.
            labels: By node; None where the tree was never labelled.
        """
        drawn = hidden = 0
        stack = [(node, *_branch("", last)) for node, last in _children(tree.root)]
        while stack:
            node, lead, below = stack.pop()
            if self.max_nodes is not None and drawn == self.max_nodes:
                yield Text(f"… {len(tree) - 1 - drawn:,} more steps (--max-nodes)", "dim")
                return
            drawn += 1
            yield self._line(node, lead, labels)
            if self.steps is None or node.depth < self.steps:
                stack += [(child, *_branch(below, last)) for child, last in _children(node)]
            elif node.children:
                hidden += 1
        if hidden:
            yield Text(f"… {hidden:,} steps have more below them (--steps)", "dim")

    def _line(self, node: Node, lead: str, labels: Mapping[int, StepLabel] | None) -> Text:
        label = None if labels is None else labels.get(node.index)
        sign, style = _sign(node, label)
        facts = _facts(node, label, labelled=labels is not None)
        body = clean(node.error or node.text or "(end)")
        room = self.width - cell_len(lead) - 4  # for the step and its facts
        if room - cell_len(facts) < LEAST_CELLS:
            facts = _counts(node)
        room = max(LEAST_CELLS, room - cell_len(facts))
        fitted = set_cell_size(_shorten(body, room), room)
        line = Text(no_wrap=True)
        line.append(lead, "dim").append(f"{sign} ", style).append(fitted, style)
        return line.append(f"  {facts.rstrip()}", "dim")


def _children(node: Node) -> list[tuple[Node, bool]]:
    """Return (child, is last) in the order in which a stack needs them."""
    return [(child, i == 0) for i, child in enumerate(reversed(node.children))]


def _branch(below: str, last: bool) -> tuple[str, str]:
    lead = below + ("└─ " if last else "├─ ")
    under = below + ("   " if last else "│  ")
    if cell_len(under) > LEAD_CELLS:
        under = "⋯" + under[4:]
    return lead, under


def _sign(node: Node, label: StepLabel | None) -> tuple[str, str]:
    if node.error is not None:
        return "!", "yellow"
    if label is None or label.label is None:
        return "·", "dim"
    return ("✓", "green") if label.label == 1 else ("✗", "red")


def _facts(node: Node, label: StepLabel | None, *, labelled: bool) -> str:
    """Return what is known about a step; the counts stand below each other from line to line."""
    rare = []
    if node.verdict is not None and node.verdict.strength is not None:
        rare.append(f"{node.verdict.verdict.lower()} ({node.verdict.strength})")
    if node.finish_reason is not None:
        rare.append(f"ends: {node.finish_reason}")
    if node.reward is not None:
        rare.append(f"reward {node.reward:g}")
    if node.multiplicity > 1:
        rare.append(f"×{node.multiplicity}")
    value = "" if node.value is None else f"Q {node.value:+.2f}"
    facts = f"{'  '.join(rare)}  {_counts(node)}  {value:7}".lstrip()
    return f"{facts}  {_source(label):10}" if labelled else facts


def _counts(node: Node) -> str:
    return f"mc {f'{node.correct}/{node.total}':>5}"


def _source(label: StepLabel | None) -> str:
    if label is None:
        return ""
    return "masked" if label.masked else _SHORT.get(label.source, label.source)


_SHORT = {"too_few_rollouts": "too few", "tool_support_only": "tool only"}


def _shorten(text: str, cells: int) -> str:
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(20, width)) or [""]
