"""What the workers say to each other: messages, and rows without ids of any worker's symbol table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.state.table import Columns


@dataclass(frozen=True)
class Parcel:
    """Rows on their way between workers.  columns: codes, shape (columns, rows); of text, places in `texts` (NULL and
    errors as they are)."""

    columns: Codes
    weights: Codes
    texts: pa.Array | None


@dataclass(frozen=True)
class Update:
    """Rows for the exchange of this number."""

    node: int
    rows: Parcel


@dataclass(frozen=True)
class Request:
    """What the input of an exchange has under these keys for whoever asks.  ask: the asker's number of it."""

    node: int
    cols: Columns
    keys: Parcel
    ask: int


@dataclass(frozen=True)
class Answer:
    """error: why there are no rows."""

    node: int
    ask: int
    rows: Parcel | None
    error: SqlError | None = None


@dataclass(frozen=True)
class Piece:
    """Some rows of the answer to a request for all; an `Answer` is the last.  more: is the next one to be asked for?
    passed: how many rows of the sender have passed, and of how many."""

    node: int
    ask: int
    rows: Parcel
    more: bool
    passed: tuple[int, int]


@dataclass(frozen=True)
class More:
    """Of an answer in pieces: so many more, please; 0: none at all, nobody wants them."""

    ask: int
    pieces: int


@dataclass(frozen=True)
class LookUp:
    """Rows of a base table for a one-shot (`remote_scan.py`): those under these keys, or all (no cols).  table_id: what
    the asker knows it by; width: of its columns, the first ones; rows: no more than so many; texts: columns whose
    texts are looked at (None: all)."""

    ask: int
    table: str
    table_id: int
    width: int
    cols: Columns
    keys: Parcel
    rows: int
    texts: tuple[int, ...] | None


@dataclass(frozen=True)
class Found:
    """error: why there are no rows."""

    ask: int
    rows: Parcel | None
    error: SqlError | None = None


@dataclass(frozen=True)
class Evict:
    """Keys of an exchange's index that agree with one of these tuples on the columns they share are stale."""

    node: int
    cols: Columns
    known: Columns
    values: Parcel


@dataclass(frozen=True)
class Lost:
    """The first message of a worker that was started again: what it had sent last may never have come, and it has its
    base tables and nothing else.  incarnation: how often it was started."""

    incarnation: int


@dataclass(frozen=True)
class Loaded:
    """The sender's rows of this table changed on disk, beside any update."""

    table: str


@dataclass(frozen=True)
class Broke:
    """Operators of the sender raised in a tick, so updates of these exchanges, by the numbers of their nodes, are
    lost.  Whoever gets it asks the sender again for what it has of them."""

    exchanges: tuple[int, ...]


@dataclass(frozen=True)
class Mark:
    """To be answered when whoever gets it has caught up to this depth (`frontier.py`).  ask: the asker's number of
    it."""

    ask: int
    depth: int


@dataclass(frozen=True)
class Marked:
    ask: int


@dataclass(frozen=True)
class Keep:
    """Is what may be evicted for want of memory to stay for now?  A request of the sender was run again and again, for
    what it had gathered went before the rest was there."""

    keep: bool


Message = (Update | Request | Answer | Piece | More | LookUp | Found | Evict | Lost | Loaded | Broke | Mark | Marked
           | Keep)


def packed(rows: Batch, fields: Sequence[Field], symbols: Symbols) -> Parcel:
    """Rows without ids of this worker's symbol table."""
    at = [i for i, f in enumerate(fields) if f.type.is_text]
    if not at:
        return Parcel(rows.columns, rows.weights, None)
    columns = rows.columns.copy()
    ids, place = np.unique(columns[at], return_inverse=True)
    first = int(np.searchsorted(ids, 0))  # NULL and errors are negative
    columns[at] = np.where(columns[at] < 0, columns[at], place.reshape(columns[at].shape) - first)
    return Parcel(columns, rows.weights, symbols.texts(np.ascontiguousarray(ids[first:])))


def unpacked(parcel: Parcel, fields: Sequence[Field], symbols: Symbols) -> Batch:
    at = [i for i, f in enumerate(fields) if f.type.is_text]
    if parcel.texts is None or not len(parcel.texts):
        return Batch(parcel.columns, parcel.weights)
    columns, ids = parcel.columns.copy(), symbols.intern_many(parcel.texts)
    columns[at] = np.where(columns[at] < 0, columns[at], ids[np.maximum(columns[at], 0)])
    return Batch(columns, parcel.weights)
