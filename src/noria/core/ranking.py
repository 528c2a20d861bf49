"""The order of rows in windows, top-k and GROUP_CONCAT, as permutations of a batch.

NULL is least, then an evaluation error, then the values; text by its collation.  Rows that are equal by ORDER BY are
ordered by all their columns, first to last, ascending; equal texts by their bytes.  So the order is total up to
identical rows, and the same wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from noria.core.batch import Batch, Codes
from noria.core.limits import NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import Collation, SqlType

_PACKED_ROWS = 256  # fewer are sorted sooner as they are
_WIDE = 2**62

Order = tuple[tuple[int, bool], ...]
"""ORDER BY: (column, descending), the first decides first."""


def ranks(codes: Codes, type: SqlType, symbols: Symbols, spelled: bool = False) -> Codes:
    """Numbers that order as the values do, equal for equal values; spelled: texts by their bytes alone."""
    if not type.is_text:
        return codes
    out, at = codes.copy(), np.flatnonzero(codes >= 0)
    ids = codes[at] if spelled or not type.folds else symbols.folded(codes[at])
    some, place = np.unique(ids, return_inverse=True)
    rank = np.empty(len(some), np.int64)
    rank[pc.sort_indices(symbols.sort_keys(some, Collation.BIN)).to_numpy()] = np.arange(len(some))
    out[at] = rank[place]
    return out


def spelled_ranks(codes: Codes, type: SqlType, symbols: Symbols) -> Codes:
    """As `ranks`, but equal texts of different spellings are ordered by their bytes."""
    if not type.folds:
        return ranks(codes, type, symbols)
    out = ranks(codes, type, symbols)
    some = out >= 0
    out[some] = out[some] * (len(codes) + 1) + ranks(codes[some], type, symbols, spelled=True)
    return out


@dataclass(frozen=True)
class Sorted:
    """at: the rows in order.  new_group, new_peer: where in that order a group begins, and where rows that the
    ORDER BY calls equal begin."""

    at: npt.NDArray[np.intp]
    new_group: npt.NDArray[np.bool_]
    new_peer: npt.NDArray[np.bool_]


def in_order(rows: Batch, types: Sequence[SqlType], groups: Codes, order: Order, symbols: Symbols) -> Sorted:
    """The rows sorted by group (columns that are equal within one), then by the order, then by all columns."""
    keys = [*groups, *(_directed(ranks(rows.columns[c], types[c], symbols), descending) for c, descending in order)]
    at = _lexsort(keys, len(rows))
    new_group = _starts(keys[: len(groups)], at)
    new_peer = _starts(keys[len(groups) :], at) | new_group
    if not new_peer.all():
        tied = np.flatnonzero(~(new_peer & np.append(new_peer[1:], True)))  # the others are alone
        some = at[tied]
        rest = [r for c, t in enumerate(types) for r in _whole(rows.columns[c][some], t, symbols)]
        at[tied] = some[_lexsort([np.cumsum(new_peer, dtype=np.int64)[tied], *rest], len(some))]
    return Sorted(at, new_group, new_peer)


def _directed(keys: Codes, descending: bool) -> Codes:
    return ~keys if descending else keys


def _whole(codes: Codes, type: SqlType, symbols: Symbols) -> list[Codes]:
    keys = ranks(codes, type, symbols)
    return [keys, ranks(codes, type, symbols, spelled=True)] if type.folds else [keys]


def _lexsort(keys: Sequence[Codes], n: int) -> npt.NDArray[np.intp]:
    """A permutation that sorts by the keys, the first before the others; which of equal rows is first is open."""
    if not keys:
        return np.arange(n)
    if n >= _PACKED_ROWS and len(keys) > 1:
        keys = _packed(keys)
    return np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])


def _packed(keys: Sequence[Codes]) -> list[Codes]:
    """Fewer keys of the same order: neighbours that fit become one integer, which sorts ten times faster."""
    out: list[Codes] = []
    room = -1
    for key in keys:
        key, size = _from_zero(key)
        bits = size.bit_length()
        if bits <= room:
            out[-1] = (out[-1] << bits) | key
            room -= bits
        else:
            out.append(key)
            room = 63 - bits
    return out


def _from_zero(key: Codes) -> tuple[Codes, int]:
    """Numbers from 0 in the same order, and the greatest.  NULL, which lies far from all others, is moved next to
    them; what then still fills 62 bits stays as it is."""
    low, high = int(key.min()), int(key.max())
    if high - low < _WIDE:
        return key - low, high - low
    far = low if low == NULL_CODE else high
    others = key[key != far]
    low, high = int(others.min()), int(others.max())
    if high - low >= _WIDE:
        return key, 2**63
    return np.where(key == far, 0 if far < low else high - low + 2, key - low + 1), high - low + 2


def _starts(keys: Sequence[Codes], at: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Which rows, in this order, differ from the one before."""
    out = np.zeros(len(at), np.bool_)
    out[:1] = True
    for k in keys:
        ordered = k[at]
        out[1:] |= ordered[1:] != ordered[:-1]
    return out
