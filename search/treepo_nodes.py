"""From draws to nodes: each place at which some segment ends becomes exactly one node.

Two paths share a node if and only if they share its tokens. Equal draws fold into one node with a
multiplicity; a draw that was re-entered in the middle is two nodes, the shared part and the rest.
The result depends on the draws alone, so a tree can be made anew after every wave.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treerl.search.treepo_path import SegmentDraw
from treerl.tree import Node, NodeFinish, Tree

__all__ = ["NodeMap", "build_nodes"]


class _Part:
    """A node in the making.

    Attributes:
        draw, end: The first draw that covers it, and how many of its ids lie before the end.
        count, late: Draws that cover it, and those of them that must not carry weight.
        begun: Draws that start at its end.
    """

    __slots__ = ("begun", "children", "count", "draw", "end", "finish", "ids", "late", "logprobs")

    def __init__(self, draw: SegmentDraw, start: int, end: int, finish: NodeFinish | None) -> None:
        self.draw = draw
        self.end = end
        self.ids = draw.ids[start:end]
        self.logprobs = draw.logprobs[start:end]
        self.finish: NodeFinish | None = finish
        self.count = self.late = self.begun = 0
        self.children: list[_Part] = []


@dataclass(slots=True)
class NodeMap:
    """What became of the draws.

    Attributes:
        places: By node index, a draw that runs through the node and how many of its ids lie before
            the node's end.
        folded: Tokens of draws that fell into nodes which others had made.
    """

    places: list[tuple[SegmentDraw, int]] = field(default_factory=list)
    folded: int = 0


def build_nodes(root: SegmentDraw, tree: Tree) -> NodeMap:
    """Make the nodes of a tree from its draws, replacing those that it has.

    Nodes stand depth first, children in the order of their first draws. ``meta["late"]`` counts
    the draws of a node that carry no weight, where there are any.

    Args:
        root: The draw that stands for the prompt.
        tree: Receives the nodes.
    """
    top = _Part(root, 0, 0, None)
    out = NodeMap()
    ends: dict[tuple[int, int], _Part] = {(id(root), 0): top}
    stack = [root]
    while stack:
        draw = stack.pop()
        if draw.parent is not None:
            part = ends[id(draw.parent), draw.offset]
            part.begun += 1
            cuts = sorted(offset for offset in draw.children if offset < len(draw.ids))
            start = 0
            for end in (*cuts, len(draw.ids)):
                finish = draw.finish if end == len(draw.ids) else None
                part = _enter(part, draw, start, end, finish, out)
                ends[id(draw), end] = part
                start = end
        # Last in, first out: what follows the whole segment comes before what re-entered it.
        for offset in sorted(draw.children):
            stack.extend(reversed(draw.children[offset]))
    _emit(top, tree, out)
    return out


def _enter(
    part: _Part, draw: SegmentDraw, start: int, end: int, finish: NodeFinish | None, out: NodeMap
) -> _Part:
    """Lead a stretch of a draw down from a node; return the node at its end."""
    if finish == "error":
        failed = _Part(draw, start, end, finish)
        part.children.append(failed)
        return failed
    while True:
        ids = draw.ids[start:end]
        child = _step(part, ids, finish)
        if child is None:
            child = _Part(draw, start, end, finish)
            part.children.append(child)
        else:
            if len(child.ids) > len(ids):
                child = _split(part, ids, out)
            out.folded += len(child.ids)
        child.count += 1
        child.late += draw.late
        start += len(child.ids)
        part = child
        if start >= end:
            return part


def _step(part: _Part, ids: tuple[int, ...], finish: NodeFinish | None) -> _Part | None:
    """Return the child that holds the beginning of ``ids``, or begins with them."""
    for child in part.children:
        n = len(child.ids)
        if child.finish == "error" or child.ids[: len(ids)] != ids[:n]:
            continue
        if n == len(ids):
            if child.finish == finish:
                return child
        elif (n < len(ids) and child.finish is None) or (n > len(ids) and finish is None):
            return child
    return None


def _split(part: _Part, ids: tuple[int, ...], out: NodeMap) -> _Part:
    """Cut the shared beginning ``ids`` out of all children of a node that begin with it."""
    n = len(ids)
    longer = [c for c in part.children if len(c.ids) > n and c.ids[:n] == ids]
    first = longer[0]
    top = _Part(first.draw, first.end - len(first.ids), first.end - len(first.ids) + n, None)
    top.children = longer
    out.folded += n * (len(longer) - 1)
    for rest in longer:
        top.count += rest.count
        top.late += rest.late
        rest.ids, rest.logprobs = rest.ids[n:], rest.logprobs[n:]
    place = part.children.index(first)
    part.children[place] = top
    part.children = [c for c in part.children if c is top or c not in longer]
    return top


def _emit(top: _Part, tree: Tree, out: NodeMap) -> None:
    del tree.nodes[1:]
    tree.root.children.clear()
    stack = [(part, tree.root) for part in reversed(top.children)]
    tree.root.draws = top.begun
    out.places.append((top.draw, 0))
    while stack:
        part, parent = stack.pop()
        draw = part.draw
        node = tree.add(
            parent,
            part.ids,
            part.logprobs,
            finish_reason=part.finish,
            seed=draw.seed,
            policy_version=draw.policy_version,
        )
        node.multiplicity, node.draws = part.count, part.begun
        _annotate(node, part)
        out.places.append((draw, part.end))
        stack.extend((child, node) for child in reversed(part.children))


def _annotate(node: Node, part: _Part) -> None:
    draw = part.draw
    meta: dict[str, int | str] = {}
    if part.finish == "error":
        node.error = draw.error
        return
    if part.late:
        meta["late"] = part.late
    if draw.chain is not None:
        meta["chain"] = draw.chain
    if part.end == len(draw.ids):
        node.verdict = draw.verdict
        if draw.judge_error is not None:
            meta["judge_error"] = draw.judge_error
    node.meta = meta or None
