"""The nodes on the way from the root to each leaf."""

from __future__ import annotations

import numpy as np

from treerl.arrays import IntArray

__all__ = ["path_nodes"]


def path_nodes(parent: IntArray, depth: IntArray, leaf: IntArray) -> tuple[IntArray, IntArray]:
    """Return every leaf's path, root excluded, one after another.

    All leaves climb together, so the work is that of writing the answer down.

    Args:
        parent: (N,).
        depth: (N,) 0 for a root.
        leaf: (L,) nodes whose paths are wanted.

    Returns:
        (S,) nodes from depth 1 to the leaf, leaf after leaf, and (L+1,) where each path starts.
    """
    offsets = np.concatenate([[0], np.cumsum(depth[leaf])])
    out = np.empty(offsets[-1], dtype=np.int64)
    place, node = offsets[1:] - 1, leaf.copy()
    going = depth[node] > 0
    place, node = place[going], node[going]
    while len(node):
        out[place] = node
        place, node = place - 1, parent[node]
        going = depth[node] > 0
        if not going.all():
            place, node = place[going], node[going]
    return out, offsets
