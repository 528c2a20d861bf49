"""Packets between a front end and a worker: frozen messages, no I/O (`runtime/transport/wire.py` has the wire
form).

Every packet travels in an `Envelope`. It has the sender's epoch (a receiver rejects an older one), a sequence
number (per sender and epoch, for exactly-once writes) and the vector of applied (worker, tick).

`program_packets.py`, `bulk_packets.py` and `transaction_packets.py` have further packets. The names of the first two
may be imported from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import LOCK_WAIT_S
from noria.core.statements import Insert, Part, Statement, WriteResult
from noria.core.types import TableDef
from noria.dataflow.messages.bulk_packets import (
    Bootstrap,
    CheckIngest,
    IndexFiles,
    IndexRequest,
    Ingest,
    Snapshot,
)
from noria.dataflow.messages.peer_messages import Message
from noria.dataflow.messages.program_packets import (
    AddView,
    AlterTable,
    ChangeOrigin,
    CheckView,
    CreateTable,
    DropTable,
    DropView,
    Migrate,
    Migrated,
    MigrationStep,
    RecordedChange,
    Rehearse,
    RenameView,
)
from noria.dataflow.messages.transaction_packets import TransactionPacket, Within
from noria.plan.view import ViewDef

__all__ = [  # from other modules
    "AddView", "AlterTable", "Bootstrap", "ChangeOrigin", "CheckIngest", "CheckView", "CreateTable",
    "DropTable", "DropView", "IndexFiles", "IndexRequest", "Ingest", "Migrate", "Migrated", "MigrationStep",
    "RecordedChange", "Rehearse", "RenameView", "Snapshot",
]

Unique = tuple[tuple[int, ...], ...]
Watermark = tuple[tuple[int, int], ...]  # (worker, tick), ascending by worker


@dataclass(frozen=True)
class Envelope:
    """A packet with its sender and position.

    `epoch`: the front end's. `sender`: -1 for the front end, otherwise the worker's number. `seq`: grows by one
    with each packet that changes data (Write, Migrate, Ingest); a resent packet has the same seq and is applied
    once.
    """

    epoch: int
    sender: int
    seq: int
    body: Packet
    watermark: Watermark = ()


# ---------------------------------------------------------------- to the worker
@dataclass(frozen=True)
class Write:
    """Statements that are committed in one synced batch and acknowledged together. Each takes effect wholly or
    not at all. Answer: `Wrote`.

    `group`: the statements are this worker's part of a group over several shards, and take effect together or not
    at all. Their commit decides for all shards; the store remembers this name until a later write lists it in
    `forget`. `once`: a name that is remembered likewise, for a single write (`Inspect` "once").
    `wait_s`: how long the write may wait for locks; SENDER_WAITS: error 3572 goes to its sender.
    """

    statements: tuple[Statement, ...]
    group: str = ""
    forget: tuple[str, ...] = ()
    once: str = ""
    wait_s: float = LOCK_WAIT_S


@dataclass(frozen=True)
class Prepare:
    """First phase of a two-phase commit: compute what this worker's part of a group would do, and keep it durably
    until `Decide`.

    No other change may be sent before. `coordinator`: the worker whose commit decides. Answer: `Wrote`. If a
    statement has an error, nothing is kept, and the other results are empty.
    """

    statements: tuple[Statement, ...]
    group: str
    coordinator: int


@dataclass(frozen=True)
class Decide:
    """Second phase: commit the prepared part of a group, or discard it. Answer: `Wrote`, with the results."""

    group: str
    commit: bool


@dataclass(frozen=True)
class PredictEffect:
    """Ask what this worker's part of a statement would do, and at which workers. Nothing is changed.

    `rows`: packed rows of other workers, treated as rows of this one. `unique`: the columns of the table's
    `spread_unique` when the statement was routed; error 1412 if they have changed. Answer: `Done` with
    `statements.StatementEffect`.

    `within`: the statement belongs to a transaction. It reads what that has staged, and locks the rows that it
    would write. The answer waits while another transaction has a lock. So do `FindConflicts` and `CheckUnique`,
    which also lock the keys and entries that they look up.
    """

    request: int
    statement: Statement
    unique: Unique
    rows: tuple[bytes, ...] = ()
    within: Part | None = None


@dataclass(frozen=True)
class FindConflicts:
    """Ask which rows of this worker share a key with a row of each INSERT, given with its `PredictEffect.unique`.

    Answer: `Done` with, for each INSERT, a tuple of packed rows or its SqlError.
    """

    request: int
    statements: tuple[tuple[Insert, Unique], ...]
    within: Part | None = None


@dataclass(frozen=True)
class CheckUnique:
    """Ask whether the packed rows `added`, of any worker, would violate a UNIQUE index, among each other or with
    rows here.

    Rows here whose keys are in `removed` do not count. Answer: `Done`, with error 1062 for a violation.
    """

    request: int
    table: str
    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]
    within: Part | None = None


@dataclass(frozen=True)
class UniqueEntries:
    """A question about a future UNIQUE index of the table whose entries `CheckRowsFit` has collected (see
    `storage/online/comparing.py`)."""

    request: int
    table: TableDef
    columns: tuple[int, ...]
    what: str
    arguments: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class ReadPage:
    """Ask for the first rows of a table in key order, or the first after the encoded key `after`.

    Answer: `Done` with a RecordBatch of the visible columns and the last row's key, which is None at the end.
    """

    request: int
    table: str
    after: bytes | None
    rows: int


@dataclass(frozen=True)
class Read:
    """Look up rows of a view by keys (tuples of Python values, or a RecordBatch of key columns); missing keys are
    filled. Answer: `Rows`.

    * `nulls`: look a NULL in a key up like any value. Otherwise such a key has no rows.
    * `between`: instead of keys, the least and greatest code of the only key column. `__key` then numbers the
      values found.
    * `first`: with `between`, this many rows of the least keys suffice, or of the greatest (`descending`).
    * `fill`: make the keys present and answer without rows: the asker reads them from shared memory.
    * `definition`: the view's definition; error 1412 if the name has another one or none. 0: any.
    * `limit_ms`: the time it may use the worker; 0: unlimited.
    * `together`: it has one key and may travel with others in a `ReadMany`.
    * `chunked`: many rows may be sent in pieces, which `NextRows` asks for.
    """

    request: int
    view: str
    keys: Any
    nulls: bool = False
    fill: bool = False
    between: tuple[int, int] | None = None
    first: int | None = None
    descending: bool = False
    definition: int = 0
    limit_ms: int = 0
    together: bool = False
    chunked: bool = False


@dataclass(frozen=True)
class SameViewReads:
    """Reads of one view with one key each (see `Read`): their request numbers and their keys."""

    view: str
    definition: int
    limit_ms: int
    requests: tuple[int, ...]
    keys: tuple[Any, ...]


@dataclass(frozen=True)
class ReadMany:
    """Reads that travel together. Answer: `ReadManyReply`, at once."""

    request: int
    alike: tuple[SameViewReads, ...]


@dataclass(frozen=True)
class Query:
    """A one-shot: rows of a query that is in no program. Nothing of it is kept
    (`oneshot.py`). Answer: `Rows`.

    `keys`, `nulls`, `between`, `first`, `descending`, `limit_ms`, `chunked`: as in `Read`. `rows`: a query that
    would read more rows reads its table in slices (`slicing.py`); error 3024 if it cannot. `spread`: the query
    needs the rows of all workers, not only this one's. `within`: a transaction whose changes it sees.
    """

    request: int
    view: ViewDef
    keys: Any
    nulls: bool = False
    between: tuple[int, int] | None = None
    first: int | None = None
    descending: bool = False
    rows: int = 0
    limit_ms: int = 0
    spread: bool = False
    chunked: bool = False
    within: Within | None = None


@dataclass(frozen=True)
class QueryForecast:
    """How a Query would be answered now. `way`: once | slices (a scan of its only table) | too much. `rows`: the
    rows of tables and states that `once` reads."""

    way: str
    rows: int


@dataclass(frozen=True)
class NextRows:
    """Ask for the next rows of the answer to the Query or Read `of`. Answer: `Rows`. `stop`: the worker drops the
    remaining rows and does not answer."""

    request: int
    of: int
    stop: bool = False


@dataclass(frozen=True)
class PeerPacket:
    """A message from one worker to another. `version`: of the sender's program."""

    message: Message
    version: int


@dataclass(frozen=True)
class Evict:
    """Evict least recently read keys until `nbytes` are free; None: evict every partial key."""

    request: int
    nbytes: int | None


@dataclass(frozen=True)
class Inspect:
    """A question about the worker. Answer: `Done`.

    * stats | graph | validate | builds (the builds under way, and their views) | history (the changes of the
      program, `RecordedChange`) | waits (what its requests wait for, as text)
    * graph plan: the graph as data, for `Migrate.adopt`.
    * explain (view) | analyze (measures what `read` does) | idle (view): whether it was never read.
    * table (table): what a bulk load must bring.
    * built (view): answered when the view has its first state, or when that failed.
    * indexed (table): answered when the table has its declared indexes. looked up (table): also those of views.
    * wanted index: answered with `IndexRequest` when an index waits for Spark.
    * unwanted index (ticket): answered when the index no longer waits for files.
    * caught up (depth, a blank, and workers such as "0,2", or none for all): answered when this worker has the
      earlier commits of these workers, beyond `depth` exchanges.
    * heard (workers with message numbers, "0:7,2:9"): answered when all effects of these messages are in the
      states here.
    * flush ahead (bytes): flush memtables of at least this size, and say whether that is done.
    * foresee: how the Query `read` would be answered (`QueryForecast`); nothing is kept.
    * few between (column, least code, greatest code, table: "0 1 10 t"): whether an index shows few rows there.
    * lock waits: for each transaction that waits for a lock, its name and those for whom it waits.
    * once (prefix): the remembered names of groups and writes that begin so.
    """

    request: int
    what: str
    argument: str = ""
    read: Read | Query | None = None

    @property
    def limit_ms(self) -> int:
        """The time it may use the worker; 0: unlimited."""
        return 0 if self.read is None else self.read.limit_ms


@dataclass(frozen=True)
class CheckRowsFit:
    """Ask whether the rows of the table of this id fit this definition. Answer: `Done` when all rows are checked,
    with the error of a row that does not fit.

    An `AlterTable` with the same definition may follow. Until then writes are checked too.
    """

    request: int
    table: TableDef


@dataclass(frozen=True)
class SetLimit:
    """Set the memory limit, in bytes, of the worker's symbol table, states, views and store caches; 0: no limit."""

    nbytes: int
    request: int = 0


# ---------------------------------------------------------------- from the worker
@dataclass(frozen=True)
class Hello:
    """A worker has started: the content of its store.

    `last_seq`: the last one applied of `last_epoch`. `prepared`: (group, coordinator) of undecided groups.
    `decided`: groups that it has committed.
    """

    worker: int
    pid: int
    last_epoch: int
    last_seq: int
    recipe: tuple[str, ...]
    tables: tuple[TableDef, ...]
    prepared: tuple[tuple[str, int], ...] = ()
    decided: tuple[str, ...] = ()


Recipients = tuple[tuple[int, int], ...] | None  # (worker, last message number) of a write's messages; None: unknown
Own = Mapping[int, tuple[int, Recipients]]  # by writing worker: the number of its write, and its messages


@dataclass(frozen=True)
class Wrote:
    """Answer to Write, Prepare and Decide. `recipients`: the workers that received messages of the tick. `own`: filled
    by the front end's link to several workers, for the session that wrote."""

    seq: int
    results: tuple[WriteResult, ...]
    recipients: Recipients = ()
    own: Own = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """Answer to Read, Query and More: an Arrow table of the view's visible columns and `__key`, the ordinal of
    the key.

    `rows` is None if the keys were only to be filled. `left`: rows of the answer that the worker still holds for
    `NextRows`.
    """

    request: int
    rows: Any
    error: SqlError | None = None
    left: int = 0


@dataclass(frozen=True)
class ReadManyReply:
    """Answer to ReadMany. `parts`: request numbers of reads of one view, with their rows as in `Rows`, where
    `__key` is the position of the number. Reads that no part names are answered by `Rows`, now or later."""

    request: int
    parts: tuple[tuple[tuple[int, ...], Any], ...] = ()
    error: SqlError | None = None


@dataclass(frozen=True)
class Done:
    """Answer to all other packets. For Ingest `request` is the envelope's seq."""

    request: int
    value: Any = None
    error: SqlError | None = None


Packet = (
    Write | Prepare | Decide | PredictEffect | FindConflicts | CheckUnique | UniqueEntries | ReadPage | Read | ReadMany
    | Query | NextRows | Migrate
    | Rehearse | Snapshot | Ingest | CheckIngest | Bootstrap | IndexFiles | Evict | Inspect | CheckRowsFit | SetLimit
    | PeerPacket
    | Hello | Wrote | Rows | ReadManyReply | Migrated | Done | TransactionPacket
)
