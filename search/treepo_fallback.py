"""Where a quiet tree grows on: fallback and branch-point policies of segment trees.

Asked whenever nothing of the tree is being generated any more. A policy sees the whole tree, nodes
in their final order, so its choice depends on what was said and never on what came first. What it
starts was chosen after its surroundings were seen and carries no branch weight (treepo.md §5.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple, Protocol

from treerl.search.treepo_path import Decode
from treerl.tree import Node, Tree

__all__ = [
    "BranchPoint",
    "EPTree",
    "Fallback",
    "FromStart",
    "Grown",
    "MinLogprobToken",
    "RandomSegment",
    "TreeGRPO",
    "fallback_points",
]


class BranchPoint(NamedTuple):
    """Where new paths leave the tree.

    Attributes:
        node: A node whose path is followed.
        tokens: Generated ids of that path that are kept; a node that they end inside is split.
        copies: New paths.
        chain: Which chain they count to, for policies that keep chains apart.
    """

    node: Node
    tokens: int
    copies: int
    chain: int | None = None


class Grown(NamedTuple):
    """A quiet tree.

    Attributes:
        tree: The tree, in its final order; rewards may still be missing.
        wave: How often the policy was asked before.
        missing: Finished paths that are still wanted.
        segment: Tokens of a segment, None without a bound.
        rng: Seeded by the tree's key and the wave.
        decode: Ids to text.
    """

    tree: Tree
    wave: int
    missing: int
    segment: int | None
    rng: Random
    decode: Decode


class Fallback(Protocol):
    """Says where a quiet tree grows on."""

    def points(self, grown: Grown) -> Sequence[BranchPoint]:
        """Return branch points; none ends the tree."""


Sources = Literal["answered", "any"]
_ANSWERED = ("answer", "eos", "stop")


def fallback_points(length: int, window: int, max_blocks: int | None = None) -> list[int]:
    """Return the places at which a path of so many tokens may be re-entered, latest first.

    Args:
        length: Tokens of the path.
        window: Tokens between places.
        max_blocks: How many of the latest places count; None is all.
    """
    blocks = -(-length // window)
    return [(blocks - k) * window for k in range(1, min(max_blocks or blocks, blocks) + 1)]


def _refill(
    grown: Grown,
    sources: Sources,
    copies: int,
    point: Callable[[Node], int],
    keep: Callable[[Node], bool] = lambda leaf: True,
) -> list[BranchPoint]:
    """Walk through the sources in random order until enough paths are started, once at most."""
    leaves = [
        leaf
        for leaf in grown.tree.leaves()
        if (sources == "any" or leaf.finish_reason in _ANSWERED) and keep(leaf)
    ]
    grown.rng.shuffle(leaves)
    out, missing = [], grown.missing
    for leaf in leaves:
        if missing <= 0:
            break
        n = min(copies, missing)
        out.append(BranchPoint(leaf, point(leaf), n))
        missing -= n
    if not out and missing > 0:
        out.append(BranchPoint(grown.tree.root, 0, 1))
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSegment:
    """Re-enter finished paths at the start of a random segment, until the width is reached.

    Attributes:
        copies: New paths a source.
        sources: Paths that ended with an answer or an end token, or any.
        window: Tokens between entry points; None is the segment. Anything else cuts segments apart
            (the paper's "misaligned fallback", worse and longer).
        max_blocks: How many of the latest entry points count; None is all.
    """

    copies: int = 2
    sources: Sources = "answered"
    window: int | None = None
    max_blocks: int | None = None

    def points(self, grown: Grown) -> Sequence[BranchPoint]:
        """See :class:`Fallback`."""
        window = self.window or grown.segment

        def point(leaf: Node) -> int:
            length = sum(len(node.token_ids) for node in grown.tree.path(leaf))
            return grown.rng.choice(fallback_points(length, window or length, self.max_blocks))

        return _refill(grown, self.sources, self.copies, point)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinLogprobToken:
    """Re-enter finished paths before their least likely token, until the width is reached.

    Attributes:
        copies, sources: As of :class:`RandomSegment`.
    """

    copies: int = 2
    sources: Sources = "answered"

    def points(self, grown: Grown) -> Sequence[BranchPoint]:
        """See :class:`Fallback`."""

        def point(leaf: Node) -> int:
            logprobs = [x for node in grown.tree.path(leaf) for x in node.logprobs]
            return logprobs.index(min(logprobs)) if logprobs else 0

        return _refill(grown, self.sources, self.copies, point)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromStart:
    """Start fresh paths at the root, until the width is reached.

    Attributes:
        copies: New paths a wave.
    """

    copies: int = 2

    def points(self, grown: Grown) -> Sequence[BranchPoint]:
        """See :class:`Fallback`."""
        n = min(self.copies, grown.missing)
        return [BranchPoint(grown.tree.root, 0, n)] if n > 0 else []


@dataclass(frozen=True, slots=True, kw_only=True)
class EPTree:
    """TreeRL's branch points: the most surprising tokens of each chain, again and again.

    Attributes:
        branch_tokens: N, tokens a chain and wave, by surprisal -log p of the sampled token.
        waves: L.
        copies: T, new paths a branch token.
        mask_words: Nothing branches behind a token that holds one of these, in lower case.
    """

    branch_tokens: int = 2
    waves: int = 1
    copies: int = 2
    mask_words: tuple[str, ...] = ("answer", "conclusion")

    def points(self, grown: Grown) -> Sequence[BranchPoint]:
        """See :class:`Fallback`."""
        if grown.wave >= self.waves:
            return []
        tree = grown.tree
        masked = self._masked(grown) if self.mask_words else {}
        candidates: dict[int, list[tuple[float, int, int]]] = {}  # chain -> (log p, node, position)
        begin = [0] * len(tree)
        for node in tree.nodes[1:]:
            assert node.parent is not None
            up = node.parent
            begin[node.index] = begin[up.index] + (len(up.token_ids) if up.parent else 0)
            found = candidates.setdefault(_chain(tree, node), [])
            # The first token of a branch is where the tree has branched already.
            for at in range(1, min(masked.get(node.index, len(node.logprobs)), len(node.logprobs))):
                found.append((node.logprobs[at], node.index, at))
        return [
            BranchPoint(tree.nodes[index], begin[index] + at, self.copies)
            for chain in sorted(candidates)
            for _, index, at in sorted(candidates[chain])[: self.branch_tokens]
        ]

    def _masked(self, grown: Grown) -> dict[int, int]:
        """Return, by node, the position of the first token behind a masking word, if any."""
        holds: dict[int, bool] = {}
        out: dict[int, int] = {}
        for node in grown.tree.nodes[1:]:
            assert node.parent is not None
            if out.get(node.parent.index) is not None:
                out[node.index] = 0  # the whole branch lies behind it
                continue
            for at, token in enumerate(node.token_ids):
                if token not in holds:
                    text = grown.decode((token,)).lower()
                    holds[token] = any(word in text for word in self.mask_words)
                if holds[token]:
                    out[node.index] = at + 1
                    break
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeGRPO:
    """Tree-GRPO's expansion: random inner nodes of each chain, the root among them.

    A new path from the root counts to the chain that it was drawn for (``meta["chain"]``).

    Attributes:
        nodes: N, nodes a chain and wave, drawn with replacement.
        waves: L.
    """

    nodes: int = 2
    waves: int = 1

    def points(self, grown: Grown) -> Sequence[BranchPoint]:
        """See :class:`Fallback`."""
        if grown.wave >= self.waves:
            return []
        tree = grown.tree
        inner: dict[int, list[Node]] = {}
        for node in tree.nodes[1:]:
            found = inner.setdefault(_chain(tree, node), [tree.root])
            if node.finish_reason is None:
                found.append(node)
        out = []
        for chain in sorted(inner):
            for _ in range(self.nodes):
                node = grown.rng.choice(inner[chain])
                tokens = sum(len(part.token_ids) for part in tree.path(node))
                out.append(BranchPoint(node, tokens, 1, chain))
        return out


def _chain(tree: Tree, node: Node) -> int:
    """Return which chain a node belongs to: as marked, or that of its first node."""
    if node.meta is not None and "chain" in node.meta:
        return int(node.meta["chain"])
    while node.depth > 1:
        assert node.parent is not None
        node = node.parent
    return node.place
