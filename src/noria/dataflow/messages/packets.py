"""Packets between a front end and a worker, as frozen dataclasses. `runtime/transport/wire.py` has their wire form.

Keeps true: every packet is sent in an `Envelope`. The envelope has the sender's epoch (a receiver rejects an older
one), a sequence number (per sender and epoch, for exactly-once writes) and the last tick of each worker.

`program_packets.py`, `bulk_packets.py` and `transaction_packets.py` have further packets. This module re-exports the
names of the first two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import LOCK_WAIT_S
from noria.core.statements import Insert, StagedPart, Statement, WriteResult
from noria.core.types import TableDef
from noria.dataflow.messages.bulk_packets import (
    Bootstrap,
    CheckIngest,
    IndexFiles,
    IndexRequest,
    Ingest,
    KeepStates,
    SaveStates,
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

__all__ = [  # re-exported names
    "AddView", "AlterTable", "Bootstrap", "ChangeOrigin", "CheckIngest", "CheckView", "CreateTable",
    "DropTable", "DropView", "IndexFiles", "IndexRequest", "Ingest", "KeepStates", "Migrate", "Migrated",
    "MigrationStep", "RecordedChange", "Rehearse", "RenameView", "SaveStates", "Snapshot",
]

Unique = tuple[tuple[int, ...], ...]
Watermark = tuple[tuple[int, int], ...]  # (worker, tick), ascending by worker


@dataclass(frozen=True)
class Envelope:
    """A packet with its sender and position.

    `epoch`: the front end's. `sender`: -1 for the front end, otherwise the worker's number. `seq`: from the
    front end, the number of a change of data or program, otherwise 0; a change that is sent again has the same number
    and is applied once. Between workers it numbers all messages.
    """

    epoch: int
    sender: int
    seq: int
    body: Packet
    watermark: Watermark = ()


# ---------------------------------------------------------------- to the worker
@dataclass(frozen=True)
class Write:
    """Statements that are committed in one synced batch and acknowledged together. Each statement is applied
    completely or not at all. Answer: `Wrote`.

    `group`: the statements are this worker's part of a group over several shards; all are applied or none is. Their
    commit decides for all shards; the store remembers this name until a later write lists it in `forget`.
    `idempotency_key`: a name that is remembered likewise, for a single write (`Inspect` "remembered names"). `wait_s`:
    how long the write may wait for locks; SENDER_WAITS: its sender receives error 3572.
    """

    statements: tuple[Statement, ...]
    group: str = ""
    forget: tuple[str, ...] = ()
    idempotency_key: str = ""
    wait_s: float = LOCK_WAIT_S


@dataclass(frozen=True)
class Prepare:
    """First phase of a two-phase commit: compute what this worker's part of a group would do, and keep it durably
    until `Decide`.

    While the coordinator is lost, the link sends only writes of other tables. `coordinator`: the worker whose commit
    decides. Answer: `Wrote`. If a statement has an error, nothing is kept, and the other results are
    empty.
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
    """Predict what this worker's part of a statement would do, and at which workers. Nothing is changed.

    `rows`: packed rows of other workers, treated as rows of this one. `unique`: the columns of the table's
    `spread_unique` when the statement was routed; error 1412 if they have changed. Answer: `Done` with
    `statements.StatementEffect`.

    `within`: the statement belongs to a transaction. It reads the transaction's staged rows, and locks the rows that
    it would write. The answer waits while another transaction has a lock. `FindConflicts` and `CheckUnique` behave
    likewise, and also lock the keys and entries that they look up.
    """

    request: int
    statement: Statement
    unique: Unique
    rows: tuple[bytes, ...] = ()
    within: StagedPart | None = None


@dataclass(frozen=True)
class FindConflicts:
    """Find the rows of this worker that share a key with a row of an INSERT. Each INSERT has its
    `PredictEffect.unique`.

    Answer: `Done` with, for each INSERT, a tuple of packed rows or its SqlError.
    """

    request: int
    statements: tuple[tuple[Insert, Unique], ...]
    within: StagedPart | None = None


@dataclass(frozen=True)
class CheckUnique:
    """Check whether the packed rows `added`, of any worker, would violate a UNIQUE index, among each other or with
    rows of this worker.

    This worker's rows with keys in `removed` do not count. Answer: `Done`, with error 1062 for a violation.
    """

    request: int
    table: str
    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]
    within: StagedPart | None = None


@dataclass(frozen=True)
class UniqueEntries:
    """A question about the entries of a future UNIQUE index, which `CheckRowsFit` has collected. `what`, `arguments`:
    the question, and its parameters (see `storage/online/comparing.py`)."""

    request: int
    table: TableDef
    columns: tuple[int, ...]
    what: str
    arguments: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class ReadPage:
    """Read the first rows of a table in key order, or the first after the encoded key `after`.

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
      key values.
    * `first`: with `between`, this many rows of the least keys suffice, or of the greatest (`descending`).
    * `fill`: make the keys present and answer without rows: the requester reads them from shared memory.
    * `definition`: the view's definition; error 1412 if the name has another one or none. 0: any.
    * `limit_ms`: the time it may use the worker; 0: unlimited.
    * `together`: it has one key and may travel with others in a `ReadMany`.
    * `chunked`: many rows may be sent in chunks; `NextRows` requests the next chunk.
    """

    request: int
    view: str
    keys: Any
    nulls: bool = False
    fill: bool = False
    key_range: tuple[int, int] | None = None
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
class FillKeys:
    """Fill keys (tuples of Python values) of a view, for clients that then read them from shared memory.

    Answer: `Done` with True once all are present. False: read each one by itself (`Read`), because the view has
    another definition, or because one of the keys has an error or very many rows. `limit_ms`: as in `Read`.
    """

    request: int
    view: str
    definition: int
    limit_ms: int
    keys: tuple[Any, ...]


@dataclass(frozen=True)
class Query:
    """A one-shot: rows of a query that no view answers (`oneshot.py`). No state is kept for it. Answer: `Rows`.

    `keys`, `nulls`, `between`, `first`, `descending`, `limit_ms`, `chunked`: as in `Read`. `rows`: a query that
    would read more rows reads its table in slices (`slicing.py`); error 3024 if it cannot. `spread`: the query
    needs the rows of all workers, not only this one's. `within`: a transaction whose changes it sees.
    """

    request: int
    view: ViewDef
    keys: Any
    nulls: bool = False
    key_range: tuple[int, int] | None = None
    first: int | None = None
    descending: bool = False
    rows: int = 0
    limit_ms: int = 0
    spread: bool = False
    chunked: bool = False
    within: Within | None = None


@dataclass(frozen=True)
class QueryForecast:
    """How a Query would be answered now. `way`: "one-shot", "slices" (a scan of its only table) or "too much". `rows`:
    the rows of tables and states that the way "one-shot" reads."""

    way: str
    rows: int


@dataclass(frozen=True)
class NextRows:
    """Request the next chunk of the answer to the Query or Read `of`. Answer: `Rows`. `stop`: the worker drops the
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
    """Evict least recently read keys until `nbytes` are free; None: evict all keys of partial states."""

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
    * awaited index: answered with `IndexRequest` when an index waits for Spark's files.
    * index no longer awaited (ticket): answered when the index no longer waits for files.
    * caught up (depth, a blank, and workers such as "0,2", or none for all): answered when this worker has the
      earlier commits of these workers, beyond `depth` exchanges.
    * frontier (workers with message numbers, "0:7,2:9"): answered when the states of this worker have all effects of
      these messages.
    * flush ahead (bytes): flush memtables of at least this size, and say whether that is done.
    * forecast: how the Query `read` would be answered (`QueryForecast`); nothing is kept.
    * few between (column, least code, greatest code, table: "0 1 10 t"): whether an index shows few rows in the range.
    * checkpoint: of one of several workers, what it has saved and could save (`CutStates.status`).
    * restorable (cut): whether it can restore the states that it saved as of this cut.
    * lock waits: for each transaction that waits for a lock, its name and those for whom it waits.
    * remembered names (prefix): the remembered names of groups and writes that begin with the prefix.
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
    """Check whether the rows of the table of this id fit this definition. Answer: `Done` when all rows are checked,
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
    """The first packet of a started worker: what its store contains.

    `last_seq`: the last applied sequence number of `last_epoch`. `prepared`: (group, coordinator) of undecided groups.
    `decided`: groups that it has committed. `cut`: of several workers, the cut as of which its saved states are valid;
    "": it has none.
    """

    worker: int
    pid: int
    last_epoch: int
    last_seq: int
    recipe: tuple[str, ...]
    tables: tuple[TableDef, ...]
    prepared: tuple[tuple[str, int], ...] = ()
    decided: tuple[str, ...] = ()
    cut: str = ""


Recipients = tuple[tuple[int, int], ...] | None  # (worker, number of the last message to it) of a write; None: unknown
SessionWrites = Mapping[int, tuple[int, Recipients]]  # by writing worker: the number of its write, and its recipients


@dataclass(frozen=True)
class PriorRows:
    """The rows as they were before a commit, for the open snapshots. `tick`: of the commit. `position`: one more than
    that of the previous commit. `tables`: by name, each changed key and its row before, None if there was none. The
    value of a table is None if its rows are not sent."""

    tick: int
    position: int
    tables: Mapping[str, tuple[tuple[int, tuple[Any, ...] | None], ...] | None]


@dataclass(frozen=True)
class Wrote:
    """Answer to Write, Prepare and Decide. `recipients`: the workers to which the tick of the write sent messages.
    `session_writes`: set by the front end's link to several workers, for the session that wrote. `prior`: of the only
    worker, while a snapshot is open."""

    seq: int
    results: tuple[WriteResult, ...]
    recipients: Recipients = ()
    session_writes: SessionWrites = field(default_factory=dict)
    prior: PriorRows | None = None


@dataclass(frozen=True)
class Rows:
    """Answer to Read, Query and NextRows: an Arrow table of the view's visible columns and `__key`, the ordinal of
    the key.

    `rows` is None if the request was only to fill keys (`Read.fill`). `left`: rows of the answer that the worker still
    holds for `NextRows`.
    """

    request: int
    rows: Any
    error: SqlError | None = None
    left: int = 0


@dataclass(frozen=True)
class ReadManyReply:
    """Answer to ReadMany. `parts`: request numbers of reads of one view, with their rows as in `Rows`, where
    `__key` is the position of the number. A read that is in no part is answered by `Rows`, now or later."""

    request: int
    parts: tuple[tuple[tuple[int, ...], Any], ...] = ()
    error: SqlError | None = None


@dataclass(frozen=True)
class Done:
    """Answer to all other packets. For Ingest `request` is the envelope's seq."""

    request: int
    value: Any = None
    error: SqlError | None = None

    def result(self) -> Any:
        """Return the value. Raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value


Packet = (
    Write | Prepare | Decide | PredictEffect | FindConflicts | CheckUnique | UniqueEntries | ReadPage | Read | ReadMany
    | FillKeys | Query | NextRows | Migrate
    | Rehearse | Snapshot | SaveStates | KeepStates
    | Ingest | CheckIngest | Bootstrap | IndexFiles | Evict | Inspect | CheckRowsFit | SetLimit
    | PeerPacket
    | Hello | Wrote | Rows | ReadManyReply | Migrated | Done | TransactionPacket
)
