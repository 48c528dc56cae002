"""Advantages: from the rewards of a tree's leaves to a number on every trained token.

``estimator(name, **options)`` is every published tree estimator and treerl's own; ``to_rows``
writes training rows.
"""

if not __name__.startswith("treerl."):
    raise ImportError(
        "this folder is the package treerl.advantage; import it as `import treerl.advantage` "
        "(the root of the checkout is on sys.path: run Python from elsewhere, or with -P)"
    )

from treerl.advantage.chains import spo_cut_points
from treerl.advantage.forest import Forest
from treerl.advantage.gigpo import GiGPOSteps, gigpo_steps
from treerl.advantage.registry import ESTIMATORS, Estimator, estimator
from treerl.advantage.results import (
    Advantages,
    GroupReport,
    LeafAdvantages,
    NodeAdvantages,
    PathAdvantages,
)
from treerl.advantage.rewards import (
    combine_rewards,
    dapo_filter,
    drop_leaves,
    overlong_penalty,
    with_rewards,
)
from treerl.advantage.rows import Row, expand, to_rows

__all__ = [
    "ESTIMATORS",
    "Advantages",
    "Estimator",
    "Forest",
    "GiGPOSteps",
    "GroupReport",
    "LeafAdvantages",
    "NodeAdvantages",
    "PathAdvantages",
    "Row",
    "combine_rewards",
    "dapo_filter",
    "drop_leaves",
    "estimator",
    "expand",
    "gigpo_steps",
    "overlong_penalty",
    "spo_cut_points",
    "to_rows",
    "with_rewards",
]
