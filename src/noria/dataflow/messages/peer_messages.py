"""Messages between workers, and the form of their rows, which is independent of a worker's symbol table.

Each class says what the receiver does and what answers the message. `cluster/peers.py` sends and handles them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.dataflow.messages.transaction_packets import Within
from noria.state.rows.table import Columns


@dataclass(frozen=True)
class EncodedRows:
    """Rows in a message. `columns`: codes of shape (columns, rows); text columns have positions in `texts`, or
    the codes of NULL and errors."""

    columns: Codes
    weights: Codes
    texts: pa.Array | None


@dataclass(frozen=True)
class ExchangeDelta:
    """Rows of a tick for the exchange of this number. No answer."""

    node: int
    rows: EncodedRows


@dataclass(frozen=True)
class RowsRequest:
    """Request the rows of an exchange's input that the sender owns, under these keys (no `cols`: all rows). `number`:
    the requester's number of the request. Answer: a `RowsReply`; for all rows, `RowsChunk`s and then a `RowsReply`."""

    node: int
    cols: Columns
    keys: EncodedRows
    number: int


@dataclass(frozen=True)
class RowsReply:
    """The rows for a `RowsRequest`, or the last of them. `error`: why there are no rows."""

    node: int
    number: int
    rows: EncodedRows | None
    error: SqlError | None = None


@dataclass(frozen=True)
class RowsChunk:
    """Some rows of the answer to a request for all rows; a `RowsReply` follows the last. `more`: the receiver must
    request the next chunk (`MoreChunks`). `passed`: rows that have passed at the sender, and in total."""

    node: int
    number: int
    rows: EncodedRows
    more: bool
    passed: tuple[int, int]


@dataclass(frozen=True)
class MoreChunks:
    """Request this many more chunks of an answer. 0: the requester accepts no more."""

    number: int
    chunks: int


@dataclass(frozen=True)
class TableLookup:
    """Request rows of a base table for a one-shot (`remote_scan.py`), under these keys or all (no `cols`).
    Answer: `TableLookupReply`.

    `table_id`: the table's id at the requester. `width`: the number of leading columns to return. `rows`: the limit.
    `texts`: the columns whose texts are read; None: all. `within`: the transaction that reads.
    """

    number: int
    table: str
    table_id: int
    width: int
    cols: Columns
    keys: EncodedRows
    rows: int
    texts: tuple[int, ...] | None
    within: Within | None = None


@dataclass(frozen=True)
class TableLookupReply:
    """Answer to TableLookup. `error`: why there are no rows."""

    number: int
    rows: EncodedRows | None
    error: SqlError | None = None


@dataclass(frozen=True)
class EvictedKeys:
    """Keys of an exchange's index that agree with one of these tuples on their common columns are stale. No
    answer."""

    node: int
    cols: Columns
    known: Columns
    values: EncodedRows


@dataclass(frozen=True)
class WorkerRestarted:
    """The first message of a restarted worker. Its last messages may be lost, and it has nothing but its base
    tables. `incarnation`: how often it was started. Answer: a `MarkerReply` with number 0."""

    incarnation: int


@dataclass(frozen=True)
class TableLoaded:
    """The sender's rows of this table changed on disk without updates. No answer."""

    table: str


@dataclass(frozen=True)
class ExchangesBroken:
    """Operators of the sender raised in a tick, so updates of these exchanges (node numbers) are lost. Receivers
    request the rows again."""

    exchanges: tuple[int, ...]


@dataclass(frozen=True)
class Marker:
    """Request an answer when the receiver has caught up to this depth (`frontier_requests.py`). `number`: the
    requester's number of the mark. Answer: `MarkerReply`."""

    number: int
    depth: int


@dataclass(frozen=True)
class MarkerReply:
    """Answer to Marker: the sender has caught up, and has sent all results before this message."""

    number: int


@dataclass(frozen=True)
class HoldEviction:
    """Stop eviction for lack of memory at the receiver (`hold`), or allow it again. A request of the sender runs again
    and again, because gathered keys are evicted before the others arrive. No answer."""

    hold: bool


@dataclass(frozen=True)
class KeysToFill:
    """Keys of the view whose reader is this node, which the receiver owns and may fill before clients read them
    (`fill_ahead.py`). No answer."""

    node: int
    keys: EncodedRows


Message = (ExchangeDelta | RowsRequest | RowsReply | RowsChunk | MoreChunks | TableLookup | TableLookupReply
           | EvictedKeys | WorkerRestarted | TableLoaded | ExchangesBroken | Marker | MarkerReply
           | HoldEviction | KeysToFill)


def packed(rows: Batch, fields: Sequence[Field], symbols: Symbols) -> EncodedRows:
    """Pack rows without ids of this worker's symbol table."""
    at = [i for i, f in enumerate(fields) if f.type.is_text]
    if not at:
        return EncodedRows(rows.columns, rows.weights, None)
    columns = rows.columns.copy()
    ids, place = np.unique(columns[at], return_inverse=True)
    first = int(np.searchsorted(ids, 0))  # NULL and errors are negative
    columns[at] = np.where(columns[at] < 0, columns[at], place.reshape(columns[at].shape) - first)
    return EncodedRows(columns, rows.weights, symbols.texts(np.ascontiguousarray(ids[first:])))


def unpacked(parcel: EncodedRows, fields: Sequence[Field], symbols: Symbols) -> Batch:
    """Unpack rows into ids of this worker's symbol table."""
    at = [i for i, f in enumerate(fields) if f.type.is_text]
    if parcel.texts is None or not len(parcel.texts):
        return Batch(parcel.columns, parcel.weights)
    columns, ids = parcel.columns.copy(), symbols.intern_many(parcel.texts)
    columns[at] = np.where(columns[at] < 0, columns[at], ids[np.maximum(columns[at], 0)])
    return Batch(columns, parcel.weights)
