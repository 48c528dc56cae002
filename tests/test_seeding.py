"""Seeds are functions of their key, and different keys do not collide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treerl.seeding import TreeSeed, derive_seed

PARTS = st.lists(st.integers(0, 10**6) | st.text(max_size=6), min_size=1, max_size=4)


@given(PARTS, PARTS)
def test_different_keys_give_different_seeds(a: list[int | str], b: list[int | str]) -> None:
    assert (derive_seed(*a) == derive_seed(*b)) == (a == b)


@given(PARTS)
def test_seeds_fit_a_signed_64_bit_integer(key: list[int | str]) -> None:
    assert 0 <= derive_seed(*key) < 2**63


def test_parts_do_not_run_together() -> None:
    assert derive_seed("1", 23) != derive_seed("12", 3)
    assert derive_seed(1) != derive_seed("1")


PATHS = st.lists(st.integers(0, 20), max_size=5).map(tuple)


@given(st.tuples(PATHS, st.integers(0, 9)), st.tuples(PATHS, st.integers(0, 9)))
def test_every_place_in_a_tree_has_its_own_seed(a, b) -> None:
    seeds = TreeSeed(0, "p")
    assert (seeds.at(a[0], a[1]) == seeds.at(b[0], b[1])) == (a == b)


def test_the_tree_is_part_of_the_key() -> None:
    keys = [(0, "p", 0, 0), (1, "p", 0, 0), (0, "q", 0, 0), (0, "p", 1, 0), (0, "p", 0, 1)]
    assert len({TreeSeed(*key).at((1, 2), 0) for key in keys}) == len(keys)


def test_frozen_values() -> None:
    """A change of these changes every stored run: bump the run schema with it."""
    assert derive_seed("treerl", 1) == DERIVED
    assert TreeSeed(7, "gsm8k-1", 2, 3).at((0, 4), 1) == PLACED


DERIVED, PLACED = 8241438605004023998, 2086888909592102303
