"""TreeArrays refuse what is no tree."""

from __future__ import annotations

import numpy as np
import pytest

from treerl.arrays import TreeArrays


def arrays(parent: list[int], **changes: object) -> TreeArrays:
    n = len(parent)
    fields = {
        "parent": np.array(parent, dtype=np.int64),
        "depth": np.zeros(n, dtype=np.int64),
        "n_tokens": np.zeros(n, dtype=np.int64),
        "reward": np.zeros(n),
        "is_leaf": np.zeros(n, dtype=bool),
        "logprob_sum": np.zeros(n),
        "multiplicity": np.ones(n, dtype=np.int64),
        "group": "g",
        **changes,
    }
    return TreeArrays(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("parent", [[], [0], [-1, 1], [-1, 2, 0], [-1, -1]])
def test_a_parent_must_stand_before_its_child(parent: list[int]) -> None:
    with pytest.raises(ValueError, match="parent|root"):
        arrays(parent)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"reward has shape \(3,\), expected \(2,\)"):
        arrays([-1, 0], reward=np.zeros(3))
