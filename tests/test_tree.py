"""Trees: structure, exactness, size."""

from __future__ import annotations

import random

import anytree
import pytest
from anytree.exporter import DotExporter
from hypothesis import given
from hypothesis import strategies as st

from treerl.errors import StoreError, TreeRLError
from treerl.ledger import Ledger
from treerl.problem import Problem
from treerl.tree import Node, RunInfo, Tree
from treerl.treefile import read_trees, tree_from_record, tree_to_record, write_trees
from treerl.verdict import StepVerdict, Verdict

PROBLEM = Problem.from_text("p", "What is 1 + 1?", "2", metadata={"level": "007"})


def grown(size: int, seed: int = 0, depth: int | None = None) -> Tree:
    """Return a random tree of ``size`` nodes; with ``depth``, one long chain among them."""
    rng = random.Random(seed)
    tree = Tree(PROBLEM, (5, 6), RunInfo(seed=3, sampler="test", policy="m"))
    for i in range(1, size):
        chain = depth is not None and i <= depth
        parent = tree.nodes[i - 1] if chain else tree.nodes[rng.randrange(len(tree.nodes))]
        if parent.finish_reason is not None:
            parent = tree.root
        n = rng.randint(1, 3)
        node = tree.add(
            parent,
            tuple(rng.randrange(1000) for _ in range(n)),
            tuple(-rng.random() for _ in range(n)),
            finish_reason=None if chain or rng.random() < 0.7 else "eos",
            seed=rng.getrandbits(62),
            policy_version="v1",
            text=f"step {i} é\n",
        )
        node.value_sum, node.visits, node.own = rng.random(), rng.randrange(9), rng.randrange(3)
        node.correct, node.total = 1, rng.randrange(1, 5)
        if node.is_leaf:
            node.reward = rng.choice([0.0, 1.0, 0.1 + 0.2, None])
        if rng.random() < 0.2:
            node.verdict = StepVerdict(Verdict.REFUTED, "unequal", "exact", verifier="t/1")
            node.meta = {"why": [1, "x"]}
    tree.ledger = Ledger(requests=3, generated=9, submitted=7)
    return tree


def test_context_ids_are_prompt_plus_path_ids() -> None:
    tree = Tree(PROBLEM, (1, 2))
    a = tree.add(tree.root, (3,), (-0.1,))
    b = tree.add(a, (4, 5), (-0.1, -0.2))
    assert tree.context_ids(b) == (1, 2, 3, 4, 5)
    assert tree.context_ids(tree.root) == (1, 2)
    assert [n.index for n in tree.path(b)] == [1, 2]
    assert tree.path_ids(tree.root) == ()


def test_nothing_grows_below_an_ended_path() -> None:
    tree = Tree(PROBLEM, (1,))
    end = tree.add(tree.root, (3,), (-0.1,), finish_reason="eos")
    with pytest.raises(ValueError, match="below an ended path"):
        tree.add(end, (4,), (-0.1,))


def test_ids_and_logprobs_must_match() -> None:
    tree = Tree(PROBLEM, (1,))
    with pytest.raises(ValueError, match="2 ids but 1 log-probs"):
        tree.add(tree.root, (3, 4), (-0.1,))


def test_places_are_the_address() -> None:
    tree = Tree(PROBLEM, (1,))
    tree.add(tree.root, (3,))
    second = tree.add(tree.root, (4,))
    below = tree.add(second, (5,))
    assert tree.address(below) == (1, 0)
    assert tree.address(tree.root) == ()


@given(st.integers(1, 60), st.integers(0, 10**6))
def test_record_restores_every_field(size: int, seed: int) -> None:
    tree = grown(size, seed)
    twin = tree_from_record(tree_to_record(tree))
    assert_same(tree, twin)


def assert_same(a: Tree, b: Tree) -> None:
    """Compare two trees field by field."""
    assert (a.problem, a.prompt_ids, a.run) == (b.problem, b.prompt_ids, b.run)
    assert a.ledger.to_json() == b.ledger.to_json()
    assert len(a) == len(b)
    for x, y in zip(a.nodes, b.nodes, strict=True):
        for name in Node.__slots__:
            left, right = getattr(x, name), getattr(y, name)
            if name == "parent":
                left, right = left and left.index, right and right.index
            if name == "children":
                left, right = [n.index for n in left], [n.index for n in right]
            assert left == right, name


def test_save_and_load_are_exact(tmp_path) -> None:
    tree = grown(300, 5)
    tree.save(tmp_path / "one.parquet")
    assert_same(tree, Tree.load(tmp_path / "one.parquet"))
    assert [p.name for p in tmp_path.iterdir()] == ["one.parquet"]  # no part file stays


def test_many_trees_in_one_file(tmp_path) -> None:
    trees = [grown(20, seed) for seed in range(5)]
    write_trees(trees, tmp_path / "many.parquet")
    for tree, twin in zip(trees, read_trees(tmp_path / "many.parquet"), strict=True):
        assert_same(tree, twin)
    with pytest.raises(StoreError, match="holds 5 trees"):
        Tree.load(tmp_path / "many.parquet")


def test_equal_trees_give_equal_bytes(tmp_path) -> None:
    grown(50, 1).save(tmp_path / "a.parquet")
    grown(50, 1).save(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_lone_surrogate_does_not_keep_a_tree_from_being_saved(tmp_path) -> None:
    tree = Tree(Problem.from_text("p", "half a pair: \ud83d"), (1,))
    tree.add(tree.root, (3,), (-0.1,), text="\udc00 x")
    tree.save(tmp_path / "odd.parquet")
    twin = Tree.load(tmp_path / "odd.parquet")
    assert twin.problem == tree.problem
    assert (twin.nodes[1].token_ids, twin.nodes[1].text) == ((3,), "? x")


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really", b"\x00" * 100])
def test_a_damaged_file_is_one_clear_error(tmp_path, content: bytes) -> None:
    path = tmp_path / "bad.parquet"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"bad\.parquet cannot be read as trees"):
        Tree.load(path)
    with pytest.raises(StoreError, match="does not exist"):
        Tree.load(tmp_path / "missing.parquet")


def test_copy_shares_nothing_mutable() -> None:
    tree = grown(80, 2)
    twin = tree.copy()
    assert_same(tree, twin)
    twin.nodes[3].visits += 1
    twin.root.children.pop()
    twin.ledger.requests += 1
    fresh = grown(80, 2)
    assert_same(tree, fresh)


def test_arrays_say_what_the_tree_says() -> None:
    tree = grown(40, 3)
    arrays = tree.arrays()
    assert arrays.group == "p"
    assert arrays.n_tokens[0] == 0  # the prompt is given, not trained
    assert arrays.n_tokens.sum() == tree.kept_tokens()
    assert [tree.nodes[i] for i in arrays.leaves] == tree.leaves()
    for node in tree.nodes[1:]:
        assert node.parent is not None
        assert arrays.parent[node.index] == node.parent.index
        assert arrays.logprob_sum[node.index] == pytest.approx(sum(node.logprobs))


def test_branch_weights_are_products_of_one_over_children() -> None:
    tree = Tree(PROBLEM, (1,))
    a = tree.add(tree.root, (3,))
    tree.add(tree.root, (4,), finish_reason="eos")
    for token in (5, 6, 7):
        tree.add(a, (token,), finish_reason="eos")
    assert tree.weights().tolist() == pytest.approx([1, 1 / 2, 1 / 2, 1 / 6, 1 / 6, 1 / 6])


def test_a_folded_duplicate_weighs_as_often_as_it_was_drawn() -> None:
    tree = Tree(PROBLEM, (1,))
    tree.add(tree.root, (3,), finish_reason="eos").multiplicity = 3
    tree.add(tree.root, (4,), finish_reason="eos")
    failed = tree.add(tree.root, (), finish_reason="error")
    failed.multiplicity = 0
    assert tree.weights().tolist() == pytest.approx([1, 3 / 4, 1 / 4, 0])


@given(st.integers(2, 80), st.integers(0, 10**6))
def test_leaf_weights_sum_to_one_where_every_path_ended(size: int, seed: int) -> None:
    tree = grown(size, seed)
    for node in tree.nodes:
        if not node.children and node.finish_reason is None:
            node.finish_reason = "length"
    arrays = tree.arrays()
    if size > 1:
        assert tree.weights()[arrays.leaves].sum() == pytest.approx(1.0)


def test_depth_5000_and_100000_nodes(tmp_path) -> None:
    tree = grown(100_000, 4, depth=5_000)
    assert max(node.depth for node in tree.nodes) >= 5_000
    tree.save(tmp_path / "big.parquet")
    twin = Tree.load(tmp_path / "big.parquet")
    assert len(twin) == 100_000
    assert twin.nodes[-1].token_ids == tree.nodes[-1].token_ids
    assert len(tree.copy()) == 100_000
    assert tree.render().count("\n") == 99_999
    assert sum(1 for _ in tree.walk()) == 100_000
    tree.weights()


def test_anytree_mirror_serves_search_render_and_export() -> None:
    tree = grown(30, 6)
    mirror = tree.to_anytree()
    leaves = anytree.findall(mirror, filter_=lambda m: m.node.is_leaf)
    assert {m.node.index for m in leaves} == {n.index for n in tree.leaves()}
    assert len(list(anytree.RenderTree(mirror))) == 30
    dot = "\n".join(DotExporter(mirror))
    assert dot.count("->") == 29
    assert mirror.node is tree.root


def test_anytree_refuses_depths_where_it_would_overflow() -> None:
    chain = grown(502, 0, depth=501)
    with pytest.raises(TreeRLError, match="501 deep"):
        chain.to_anytree()
    assert grown(501, 0, depth=500).to_anytree().node.index == 0


def test_render_keeps_model_text_from_moving_the_cursor() -> None:
    tree = Tree(PROBLEM, (1,))
    tree.add(tree.root, (3,), text="fine\x1b[2Jgone\r\nnext")
    text = tree.render()
    assert "\x1b" not in text
    assert "fine�[2Jgone next" in text


def test_render_stops_at_a_limit_and_says_so() -> None:
    text = grown(50, 1).render(max_nodes=10)
    assert text.splitlines()[-1] == "… 40 more nodes"
