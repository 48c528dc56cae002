"""What of a tree goes into the page."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from treerl.advantage import ESTIMATORS, estimator, to_rows
from treerl.prm.fuse import Fusion
from treerl.prm.label import label_tree
from treerl.tree import Tree
from treerl.viewer import node_advantages, tree_record

MakeTree = Callable[[int], Tree]


def test_a_record_says_what_the_tree_says(sum_tree: MakeTree) -> None:
    tree = sum_tree(4)
    tree.ledger.generated, tree.ledger.requests = 7, 2
    labels = {label.node: label for label in label_tree(tree, Fusion("mathshepherd", n_min=1))}
    record = tree_record(tree, labels)
    assert (record["id"], record["answer"], record["labelled"]) == ("p4", "5", True)
    assert (record["right"], record["scored"], record["leaves"]) == (1, 2, 2)
    assert record["ledger"]["kept"] == 7 == record["ledger"]["generated"]
    root, first, good, bad = record["nodes"]
    assert "parent" not in root
    assert [node["parent"] for node in (first, good, bad)] == [0, 1, 1]
    assert (first["correct"], first["total"], first["visits"]) == (1, 2, 2)
    assert first["logprob"] == -0.75
    assert first["seed"] == str(2**62)  # 2**62 + 1 is no number of JavaScript
    assert (good["reward"], good["value"], good["end"]) == (1.0, 1.0, "eos")
    assert (bad["reward"], bad["tokens"], bad["omega"]) == (0.0, 3, 0.5)
    assert first["label"]["value"] == 1
    assert bad["label"]["value"] == 0
    assert bad["label"]["source"] == "mc"
    assert bad["label"]["why"]


def test_a_tree_without_labels_says_so(sum_tree: MakeTree) -> None:
    record = tree_record(sum_tree(0))
    assert record["labelled"] is False
    assert not any("label" in node or "advantage" in node for node in record["nodes"])


def test_numbers_that_json_lacks_are_left_out(hostile_tree: Tree) -> None:
    record = tree_record(hostile_tree)
    json.dumps(record, allow_nan=False)
    leaf = record["nodes"][3]
    assert not {"reward", "value", "logprob"} & set(leaf)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_node_gets_the_mean_of_its_training_rows(name: str, sum_tree: MakeTree) -> None:
    tree = sum_tree(1)
    again = tree.add(tree.root, (3, 4), (-1.0, -1.0), text="or so", finish_reason="eos")
    again.reward = 1.0
    values = node_advantages(tree, estimator(name))
    rows = to_rows([tree], estimator(name)(tree.arrays()))
    assert np.isnan(values[0])
    for node in tree.nodes[1:]:
        # The last token of the segment: some estimators add a term on the first.
        means = [
            row.advantages[row.nodes == node.index][-1]
            for row in rows
            if row.loss_mask[row.nodes == node.index].any()
        ]
        if means:
            assert values[node.index] == pytest.approx(np.mean(means))
        else:
            assert np.isnan(values[node.index])
