"""Process rewards: from trees and evidence to labels, and from labels to training data."""

if not __name__.startswith("treerl."):
    raise ImportError(
        "this folder is the package treerl.prm; import it as `import treerl.prm` "
        "(the root of the checkout is on sys.path: run Python from elsewhere, or with -P)"
    )

from treerl.prm.fuse import Evidence, Fused, Fusion
from treerl.prm.label import StepLabel, label_tree
from treerl.prm.pipeline import Labeler
from treerl.prm.rewards import AnswerReward

__all__ = [
    "AnswerReward",
    "Evidence",
    "Fused",
    "Fusion",
    "Labeler",
    "StepLabel",
    "label_tree",
]
