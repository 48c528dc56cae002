"""The keys and values of a running batch, in place.

transformers' DynamicCache appends by copying the whole cache for every token and copies it again
when a row leaves. Here the batch lives in one buffer a layer: a row a request, all rows ending in
the same column, so that a step writes one column, a leaving row is overwritten by the last one, and
a new row is computed where it stays.

::

    column    lo                      end
    row 0     . . . k k k k k k k k k |      k = key and value of a token, . = masked padding
    row 1     k k k k k k k k k k k k |
    row 2     . . . . . . . . k k k k |      new rows are written up to the same end

Letters: R rows, C columns, H key-value heads, D head dimension; buffers are (R, H, C, D).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

__all__ = ["KV", "KVSlots"]

KV = list[tuple[Any, Any]]
"""Per layer the (keys, values) of one sequence, each (H, tokens, D)."""

_GROWTH = 256  # columns of headroom, so that moving costs little a token


class _Window:
    """Which part of the buffers the running forward pass sees; shared by all layers."""

    __slots__ = ("end", "lo", "queries", "rows")

    def __init__(self) -> None:
        self.rows = slice(0, 0)
        self.lo = self.end = self.queries = 0


class _SlotLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's buffers; the window says where a forward pass writes."""

    def __init__(self, window: _Window) -> None:
        super().__init__()
        self.window = window
        self.shape = (0, 0)  # rows, columns to hold once the first keys show their form

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """Allocate. Zeros, not empty: masked garbage may be NaN, and 0 * NaN is NaN."""
        self.device = key_states.device
        self.keys = _buffer(key_states, self.shape)
        self.values = _buffer(value_states, self.shape)
        self.is_initialized = True

    def update(
        self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Write the newest columns; return all that the window's rows may look at."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        w = self.window
        self.keys[w.rows, :, w.end - w.queries : w.end] = key_states
        self.values[w.rows, :, w.end - w.queries : w.end] = value_states
        return self.keys[w.rows, :, w.lo : w.end], self.values[w.rows, :, w.lo : w.end]

    def get_mask_sizes(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Return (key length, key offset) of the window."""
        return self.window.end - self.window.lo, 0

    def get_seq_length(self, *args: Any, **kwargs: Any) -> int:
        """Return how many columns precede the queries."""
        return self.window.end - self.window.queries - self.window.lo


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def _buffer(states: Any, shape: tuple[int, int]) -> Any:
    rows, columns = shape
    return states.new_zeros((rows, states.shape[1], columns, states.shape[3]))


class KVSlots(Cache):  # type: ignore[misc]
    """Rows of keys and values that end in one common column.

    Args:
        layers: Number of the model's layers.

    Attributes:
        lengths: Tokens held by each live row.
        end: The column after the last one.
    """

    def __init__(self, layers: int) -> None:
        self._window = _Window()
        super().__init__(layers=[_SlotLayer(self._window) for _ in range(layers)])
        self.lengths: list[int] = []
        self.end = 0
        self._rows = self._columns = 0

    @property
    def width(self) -> int:
        """Columns between the longest row's begin and the end."""
        return max(self.lengths, default=0)

    @property
    def _written(self) -> list[Any]:
        """Layers that have keys of their own; some models share one layer's keys with others."""
        return [layer for layer in self.layers if layer.is_initialized]

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for rows in all, each up to ``columns`` tokens, and for one more column."""
        # A new row ends where the old ones do: the end must lie at least its length to the right.
        width = max(self.width, columns)
        enough = rows <= self._rows
        if self.lengths and enough and columns <= self.end < self._columns:
            return
        if not self.lengths and enough and width < self._columns:
            self.end = width
            return
        target = (max(_round_up(rows, 8), self._rows), _round_up(width + _GROWTH, 64))
        live, old_lo = len(self.lengths), self.end - self.width
        for layer in self._written:
            for name in ("keys", "values"):
                old = getattr(layer, name)
                new = _buffer(old, target)
                new[:live, :, width - self.width : width] = old[:live, :, old_lo : self.end]
                setattr(layer, name, new)
        for layer in self.layers:
            layer.shape = target
        self._rows, self._columns = target
        self.end = width

    def open_rows(self, lengths: Sequence[int], queries: int) -> tuple[Any, int]:
        """Point the next forward pass at new rows, which become live.

        Args:
            lengths: Tokens of each new row, those of its prefix included.
            queries: Columns that the pass computes.

        Returns:
            The attention mask (new rows, columns) and the first row's index.
        """
        first = len(self.lengths)
        self.lengths.extend(lengths)
        self._point(slice(first, len(self.lengths)), max(*lengths, queries), queries)
        return self._mask(lengths), first

    def open_column(self) -> Any:
        """Point the next forward pass at one more column of all rows; return its mask."""
        self.reserve(len(self.lengths), self.width)
        self.end += 1
        self.lengths = [n + 1 for n in self.lengths]
        self._point(slice(0, len(self.lengths)), self.width, 1)
        return self._mask(self.lengths)

    def _point(self, rows: slice, width: int, queries: int) -> None:
        w = self._window
        w.rows, w.lo, w.end, w.queries = rows, self.end - width, self.end, queries

    def _mask(self, lengths: Sequence[int]) -> Any:
        width = self._window.end - self._window.lo
        begins = torch.tensor([width - n for n in lengths])
        return (torch.arange(width)[None, :] >= begins[:, None]).long()

    def write(self, row: int, length: int, pieces: Iterable[KV]) -> int:
        """Write the pieces of a known prefix into a row that will hold ``length`` tokens.

        Returns:
            Tokens written.
        """
        begin = at = self.end - length
        for piece in pieces:
            n = piece[0][0].shape[1]
            for layer, (keys, values) in zip(self._written, piece, strict=True):
                layer.keys[row, :, at : at + n] = keys
                layer.values[row, :, at : at + n] = values
            at += n
        return at - begin

    def read(self, row: int, begin: int, end: int) -> KV:
        """Copy tokens ``begin`` to ``end`` of a row."""
        lo = self.end - self.lengths[row]
        part = slice(lo + begin, lo + end)
        return [
            (layer.keys[row, :, part].clone(), layer.values[row, :, part].clone())
            for layer in self._written
        ]

    def duplicate(self, row: int) -> int:
        """Append a copy of a row; return its index. :meth:`reserve` must have made room."""
        length, new = self.lengths[row], len(self.lengths)
        part = slice(self.end - length, self.end)
        for layer in self._written:
            layer.keys[new, :, part] = layer.keys[row, :, part]
            layer.values[new, :, part] = layer.values[row, :, part]
        self.lengths.append(length)
        return new

    def remove(self, row: int) -> None:
        """Drop a row; the last one moves into its place."""
        last = len(self.lengths) - 1
        if row != last:
            length = self.lengths[last]
            part = slice(self.end - length, self.end)
            for layer in self._written:
                layer.keys[row, :, part] = layer.keys[last, :, part]
                layer.values[row, :, part] = layer.values[last, :, part]
            self.lengths[row] = length
        self.lengths.pop()

    def clear(self) -> None:
        """Drop all rows and free the buffers."""
        self.lengths = []
        self.end = self._rows = self._columns = 0
        for layer in self.layers:
            layer.keys = layer.values = None
            layer.is_initialized = False
            layer.shape = (0, 0)
