"""Keys and values in place: slots and the prefix store against plain dictionaries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="keys and values need treerl[local]")
pytest.importorskip("transformers", reason="keys and values need treerl[local]")

from treerl.engines.kv_slots import KVSlots  # noqa: E402
from treerl.engines.prefix_store import PrefixStore  # noqa: E402


def states(values: list[list[int]]) -> Any:
    """Return (rows, 1, n, 1) keys that carry readable numbers."""
    return torch.tensor(values, dtype=torch.float32)[:, None, :, None]


def content(slots: KVSlots, row: int) -> list[int]:
    (keys, values), *_ = slots.read(row, 0, slots.lengths[row])
    assert torch.equal(keys, values)
    return [int(x) for x in keys.flatten()]


def compute(slots: KVSlots, columns: list[list[int]]) -> None:
    for layer in slots.layers:
        layer.update(states(columns), states(columns))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("jjaaadc"), st.integers(0, 400)), max_size=40))
def test_slots_hold_what_was_written_through_joins_steps_leaves_and_copies(
    moves: list[tuple[str, int]],
) -> None:
    slots, model, fresh = KVSlots(2), [], iter(range(1, 10**6))
    for kind, n in moves:
        if kind == "j" and len(model) < 6:
            length = n % 300 + 1
            row = [next(fresh) for _ in range(length)]
            slots.reserve(len(model) + 1, length)
            mask, first = slots.open_rows([length], length)
            assert first == len(model)
            assert mask.tolist() == [[1] * length]
            compute(slots, [row])
            model.append(row)
        elif kind == "a" and model:
            mask = slots.open_column()
            column = [[next(fresh)] for _ in model]
            compute(slots, column)
            model = [row + new for row, new in zip(model, column, strict=True)]
            assert mask.sum(-1).tolist() == [len(row) for row in model]
        elif kind == "d" and model:
            index = n % len(model)
            slots.remove(index)
            model[index] = model[-1]
            model.pop()
        elif kind == "c" and 0 < len(model) < 6:
            index = n % len(model)
            slots.reserve(len(model) + 1, len(model[index]))
            assert slots.duplicate(index) == len(model)
            model.append(list(model[index]))
        assert [content(slots, i) for i in range(len(model))] == model


def pieces(store: PrefixStore, ids: tuple[int, ...]) -> list[int]:
    match = store.find(ids)
    found: list[int] = []
    for piece in match.pieces(len(ids)):
        found += [int(x) for x in piece[0][0].flatten()]
    assert len(found) == match.length
    return found


def reader(ids: tuple[int, ...]) -> Any:
    def read(begin: int, end: int) -> Any:
        keys = torch.tensor(ids[begin:end], dtype=torch.float32)[None, :, None]
        return [(keys, keys)]

    return read


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), max_size=30),
    st.sampled_from([0, 10, 1000]),
)
def test_the_store_finds_the_longest_known_prefix(
    sequences: list[tuple[int, ...]], budget: int
) -> None:
    store, added = PrefixStore(budget), []
    for ids in sequences:
        found = pieces(store, ids)
        assert found == list(ids[: len(found)])
        if budget == 1000:  # nothing was dropped yet
            best = max(
                (
                    next((i for i, (a, b) in enumerate(zip(x, ids, strict=False)) if a != b), None)
                    if x[: len(ids)] != ids[: len(x)]
                    else min(len(x), len(ids))
                    for x in added
                ),
                default=0,
            )
            assert len(found) == best
        store.add(ids, reader(ids))
        added.append(ids)
        assert store.size <= max(budget, 0)
        if budget == 1000:
            assert pieces(store, ids) == list(ids)
    distinct = {ids[:n] for ids in added for n in range(1, len(ids) + 1)}
    if budget == 1000:
        assert store.size == len(distinct), "a shared prefix is kept once"


def test_the_longest_unused_goes_first() -> None:
    store = PrefixStore(10)
    old, used, new = (1,) * 4, (2,) * 4, (3,) * 4
    store.add(old, reader(old))
    store.add(used, reader(used))
    store.find(old)
    store.add(new, reader(new))
    assert [store.find(x).length for x in (old, used, new)] == [4, 0, 4]
