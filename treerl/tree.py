"""The tree of segments, and everything that is done to a whole tree.

A node is a run of token ids that was generated once, is stored once and is shared by every leaf
below it. The tree is exact: ids, behaviour log-probs, seeds and evidence survive save and load.
Every walk is iterative; a tree of depth 5,000 or of 100,000 nodes is an ordinary tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treerl.arrays import NO_PARENT, FloatArray, TreeArrays
from treerl.errors import TreeRLError
from treerl.ledger import Ledger
from treerl.problem import Problem
from treerl.verdict import StepVerdict

if TYPE_CHECKING:
    import anytree

__all__ = ["Node", "NodeFinish", "NodeKind", "RunInfo", "Tree"]

NodeKind = Literal["policy", "given", "environment"]
"""Who wrote the segment; only ``policy`` segments are trained."""

NodeFinish = Literal["eos", "stop", "answer", "length", "depth", "repetition", "aborted", "error"]
"""Why a path ended at this node."""

ANYTREE_MAX_DEPTH = 500


class Node:
    """One segment.

    Attributes:
        index: Position in ``tree.nodes``; creation order, 0 is the root.
        parent: None for the root.
        children: In creation order.
        place: Position among its siblings; the places along a path are a node's address.
        token_ids: The segment's ids; the prompt's for the root.
        logprobs: Behaviour log-prob of each id, nats; empty for ``given`` segments.
        kind: Who wrote it.
        finish_reason: Why the path ended here; None for a node that a path goes through.
        seed: Seed of the request that generated it; the parts of one completion share it.
        policy_version: Version of the weights that wrote it.
        text: The step as text, a view of the whole path; None until a sampler sets it.
        multiplicity: Samples that this node stands for; 0 for a failed request.
        draws: Samples drawn below it so far, folded and failed ones included; part of seed keys.
        visits: N, simulations that passed through or ended here.
        own: Of those, the ones that ended here; visits == own + Σ visits of the children.
        value_sum: W, the sum of the values backed up into this node.
        prior: Prior probability or score, used by PUCT and for unvisited nodes.
        correct, total: Monte-Carlo counts: right among scored rollouts through this node.
        reward: Reward of a leaf; None where unscored or unscorable.
        verdict: What the step verifier said.
        error: Message of the failed request, for nodes with finish_reason "error".
        meta: Anything an algorithm wants to keep; JSON values only.
    """

    __slots__ = (
        "children",
        "correct",
        "depth",
        "draws",
        "error",
        "finish_reason",
        "index",
        "kind",
        "logprobs",
        "meta",
        "multiplicity",
        "own",
        "parent",
        "place",
        "policy_version",
        "prior",
        "reward",
        "seed",
        "text",
        "token_ids",
        "total",
        "value_sum",
        "verdict",
        "visits",
    )

    def __init__(
        self,
        index: int,
        parent: Node | None,
        token_ids: tuple[int, ...],
        logprobs: tuple[float, ...] = (),
        *,
        kind: NodeKind = "policy",
        finish_reason: NodeFinish | None = None,
        seed: int | None = None,
        policy_version: str = "",
        text: str | None = None,
    ) -> None:
        self.index = index
        self.parent = parent
        if parent is None:
            self.depth, self.place = 0, 0
        else:
            self.depth, self.place = parent.depth + 1, len(parent.children)
        self.children: list[Node] = []
        self.token_ids = token_ids
        self.logprobs = logprobs
        self.kind: NodeKind = kind
        self.finish_reason = finish_reason
        self.seed = seed
        self.policy_version = policy_version
        self.text = text
        self.multiplicity = 1
        self.draws = 0
        self.visits = 0
        self.own = 0
        self.value_sum = 0.0
        self.prior = 0.0
        self.correct = 0
        self.total = 0
        self.reward: float | None = None
        self.verdict: StepVerdict | None = None
        self.error: str | None = None
        self.meta: dict[str, Any] | None = None

    @property
    def is_leaf(self) -> bool:
        """True where a path ended; a failed request is no leaf, since nothing ended there."""
        return self.finish_reason is not None and self.finish_reason != "error"

    @property
    def value(self) -> float | None:
        """Q = W / N, None before the first visit."""
        return self.value_sum / self.visits if self.visits else None

    @property
    def mc(self) -> float | None:
        """Share of right rollouts, None before the first scored one."""
        return self.correct / self.total if self.total else None

    def __repr__(self) -> str:
        end = f", {self.finish_reason}" if self.finish_reason else ""
        return (
            f"Node({self.index}, depth={self.depth}, tokens={len(self.token_ids)}, "
            f"N={self.visits}, mc={self.correct}/{self.total}{end})"
        )


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a tree's seeds were derived from, and who grew it.

    Attributes:
        seed: The run's seed.
        visit: Trainer step or epoch.
        tree_index: Which of the problem's trees.
        sampler: Name of the algorithm or preset.
        policy: Name of the model.
    """

    seed: int = 0
    visit: int = 0
    tree_index: int = 0
    sampler: str = ""
    policy: str = ""


@dataclass(slots=True)
class Tree:
    """A problem's tree.

    Attributes:
        problem: What it grows from.
        prompt_ids: Ids of the templated prompt; the root's segment.
        run: Where its seeds come from.
        ledger: What it cost.
        nodes: All nodes in creation order; ``nodes[0]`` is the root.
    """

    problem: Problem
    prompt_ids: tuple[int, ...]
    run: RunInfo = field(default_factory=RunInfo)
    ledger: Ledger = field(default_factory=Ledger)
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.nodes:
            self.nodes.append(Node(0, None, self.prompt_ids, kind="given"))

    @property
    def root(self) -> Node:
        """The node that holds the prompt."""
        return self.nodes[0]

    def __len__(self) -> int:
        return len(self.nodes)

    def add(
        self,
        parent: Node,
        token_ids: tuple[int, ...],
        logprobs: tuple[float, ...] = (),
        *,
        kind: NodeKind = "policy",
        finish_reason: NodeFinish | None = None,
        seed: int | None = None,
        policy_version: str = "",
        text: str | None = None,
    ) -> Node:
        """Append a child segment and return it.

        Raises:
            ValueError: The parent ended its path, or ids and log-probs differ in number.
        """
        if parent.finish_reason is not None:
            raise ValueError(f"nothing is generated below an ended path: {parent!r}")
        if logprobs and len(logprobs) != len(token_ids):
            raise ValueError(f"{len(token_ids)} ids but {len(logprobs)} log-probs")
        node = Node(
            len(self.nodes),
            parent,
            token_ids,
            logprobs,
            kind=kind,
            finish_reason=finish_reason,
            seed=seed,
            policy_version=policy_version,
            text=text,
        )
        parent.children.append(node)
        self.nodes.append(node)
        return node

    def path(self, node: Node) -> list[Node]:
        """Return the nodes from below the root down to ``node``; [] for the root."""
        out = []
        current = node
        while current.parent is not None:
            out.append(current)
            current = current.parent
        out.reverse()
        return out

    def path_ids(self, node: Node) -> tuple[int, ...]:
        """Return the generated ids from the root (excluded) to the end of ``node``."""
        parts = []
        current = node
        while current.parent is not None:
            parts.append(current.token_ids)
            current = current.parent
        parts.reverse()
        return tuple(chain.from_iterable(parts))

    def context_ids(self, node: Node) -> tuple[int, ...]:
        """Return prompt ids + path ids: what a request below ``node`` must send (law 1)."""
        return self.prompt_ids + self.path_ids(node)

    def address(self, node: Node) -> tuple[int, ...]:
        """Return the place at each depth down to the node: part of every seed key."""
        out = []
        current = node
        while current.parent is not None:
            out.append(current.place)
            current = current.parent
        out.reverse()
        return tuple(out)

    def samples(self, right_above: float = 0.5) -> tuple[int, int]:
        """Count the sampled solutions: (right ones, all scored ones), duplicates included.

        Args:
            right_above: A reward above it is a right answer.
        """
        right = scored = 0
        for leaf in self.leaves():
            if leaf.reward is not None:
                # A given solution is nobody's sample; samples that were folded into it are.
                count = leaf.multiplicity - (leaf.kind == "given")
                scored += count
                right += count * (leaf.reward > right_above)
        return right, scored

    def leaves(self) -> list[Node]:
        """Return the ended paths in creation order."""
        return [node for node in self.nodes if node.is_leaf]

    def weights(self) -> FloatArray:
        """(N,) branch weight ω of every node; see :meth:`TreeArrays.weights`."""
        return self.arrays().weights()

    def arrays(self) -> TreeArrays:
        """Return the tree as flat arrays for the estimators."""
        nodes = self.nodes
        return TreeArrays(
            parent=np.array([NO_PARENT if n.parent is None else n.parent.index for n in nodes]),
            depth=np.array([n.depth for n in nodes]),
            n_tokens=np.array([len(n.token_ids) if n.kind == "policy" else 0 for n in nodes]),
            reward=np.array(
                [n.reward if n.is_leaf and n.reward is not None else np.nan for n in nodes],
                dtype=np.float64,
            ),
            is_leaf=np.array([n.is_leaf for n in nodes]),
            logprob_sum=np.array([sum(n.logprobs) for n in nodes], dtype=np.float64),
            multiplicity=np.array([n.multiplicity for n in nodes]),
            group=self.problem.id,
        )

    def kept_tokens(self) -> int:
        """Count the policy tokens that stand in nodes; ``generated == kept + discarded``."""
        return sum(len(node.token_ids) for node in self.nodes if node.kind == "policy")

    def walk(self) -> Iterator[Node]:
        """Yield all nodes depth first, children in creation order."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def copy(self) -> Tree:
        """Return a tree that shares no mutable state with this one."""
        twin = Tree(self.problem, self.prompt_ids, self.run, Ledger(**asdict(self.ledger)))
        for node in self.nodes[1:]:
            assert node.parent is not None
            parent = twin.nodes[node.parent.index]
            clone = Node(node.index, parent, node.token_ids, node.logprobs)
            parent.children.append(clone)
            twin.nodes.append(clone)
        for node, clone in zip(self.nodes, twin.nodes, strict=True):
            for name in _COPIED:
                setattr(clone, name, getattr(node, name))
            clone.meta = dict(node.meta) if node.meta is not None else None
        return twin

    def render(self, *, width: int = 100, max_nodes: int | None = None) -> str:
        """Return the tree as text, a node a line.

        Args:
            width: Characters a line; longer text is cut with an ellipsis.
            max_nodes: Stop after so many nodes and say how many were left out.
        """
        lines: list[str] = []
        stack: list[tuple[Node, str, str]] = [(self.root, "", "")]
        while stack:
            if max_nodes is not None and len(lines) == max_nodes:
                lines.append(f"… {len(self.nodes) - max_nodes} more nodes")
                break
            node, lead, below = stack.pop()
            lines.append(_fit(lead + _describe(self, node), width))
            for i, child in enumerate(reversed(node.children)):
                last = i == 0
                stack.append(
                    (
                        child,
                        below + ("└─ " if last else "├─ "),
                        below + ("   " if last else "│  "),
                    )
                )
        return "\n".join(lines)

    def to_anytree(self) -> anytree.Node:
        """Build a mirror for anytree's search, RenderTree and exporters.

        Each mirror node has ``name`` (the index) and ``node`` (ours).

        Raises:
            TreeRLError: The tree is deeper than 500, where anytree's recursion would overflow.
        """
        depth = max(node.depth for node in self.nodes)
        if depth > ANYTREE_MAX_DEPTH:
            raise TreeRLError(
                f"the tree is {depth} deep, but anytree recurses and is safe to "
                f"{ANYTREE_MAX_DEPTH}; use tree.walk(), tree.render() or tree.save() instead"
            )
        from anytree import Node as Mirror

        mirrors: list[Mirror] = []
        for node in self.nodes:
            up = None if node.parent is None else mirrors[node.parent.index]
            mirrors.append(Mirror(str(node.index), parent=up, node=node))
        return mirrors[0]

    def save(self, path: str | Path) -> None:
        """Write the tree to one parquet file, by rename: half a file never exists."""
        from treerl.treefile import write_trees

        write_trees([self], Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Tree:
        """Read a file that holds one tree.

        Raises:
            StoreError: The file is missing, damaged, or holds several trees.
        """
        from treerl.treefile import read_single_tree

        return read_single_tree(Path(path))


# Everything of a node except its place in the tree; `meta` is copied apart, being mutable.
_COPIED = tuple(
    name
    for name in Node.__slots__
    if name not in ("children", "depth", "index", "meta", "parent", "place")
)


def _describe(tree: Tree, node: Node) -> str:
    if node.parent is None:
        return f"[{tree.problem.id}] {_one_line(tree.problem.text)}"
    marks = [f"N={node.visits}", f"mc={node.correct}/{node.total}"]
    if node.value is not None:
        marks.append(f"Q={node.value:+.2f}")
    if node.multiplicity != 1:
        marks.append(f"×{node.multiplicity}")
    if node.verdict is not None:
        marks.append(str(node.verdict.verdict))
    if node.finish_reason is not None:
        marks.append(node.finish_reason)
    if node.reward is not None:
        marks.append(f"reward={node.reward:g}")
    body = node.error if node.error is not None else node.text
    return f"({', '.join(marks)}) {_one_line(body or f'{len(node.token_ids)} tokens')}"


def _one_line(text: str) -> str:
    # Control characters would let model text move the cursor of a terminal.
    return " ".join("".join(c if c.isprintable() or c.isspace() else "�" for c in text).split())


def _fit(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"
