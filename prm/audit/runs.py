"""What an audit reads of a run folder: trees with their labels, and the rule that made them."""

from __future__ import annotations

from collections.abc import Iterator

from treerl.errors import ConfigError
from treerl.prm.formats.paths import check_labelled, trees_with_labels
from treerl.prm.fuse import Fusion
from treerl.prm.label import StepLabel
from treerl.store import RunReader
from treerl.tree import Tree

__all__ = ["check_labelled", "labelled_trees_of", "run_fusion"]


def labelled_trees_of(run: RunReader) -> Iterator[tuple[Tree, tuple[StepLabel, ...]]]:
    """Yield the trees of a run with their labels, one at a time.

    Raises:
        ConfigError: The run has no labels.
        StoreError: Trees and labels do not belong together.
    """
    check_labelled(run, "audit")
    return trees_with_labels(run)


def run_fusion(run: RunReader) -> Fusion | None:
    """Return the fusion that a run's manifest names, None where this treerl has none like it."""
    try:
        return Fusion(**run.manifest["fusion"])
    except (KeyError, TypeError, ConfigError):
        return None
