"""Protocols through which the pure data-flow uses base tables on disk and published views.

`storage/` (RocksDB) and `views/` (shared memory) implement them; tests use dictionaries. Key arrays have shape
(key columns, keys) and hold raw codes. Implementations fold CI text themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes, Texts
from noria.core.errors import SqlError
from noria.core.statements import Insert, KeyChange, StagedPart, Statement, StatementEffect, WriteResult
from noria.core.types import Field, TableDef
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.messages.packets import ChangeOrigin, RecordedChange
from noria.dataflow.transactions.locks import LockTable
from noria.state.rows.table import Cold, Columns


class StoreBroken(Exception):
    """The base tables cannot be used in this process any more. The worker ends and reports the message."""


class IndexBuild(Protocol):
    """An index under construction. `done`: rows indexed so far; `total`: rows of the table."""

    done: int

    @property
    def declared(self) -> bool:
        """Whether the table declares the index; otherwise a view needs it."""

    @property
    def total(self) -> int: ...

    @property
    def over(self) -> bool:
        """Whether it is complete or abandoned."""

    def step(self, rows: int) -> bool:
        """Index the next rows. Returns True when the index is complete and in use. After an SqlError the caller
        may continue or abandon it."""

    @property
    def awaits(self) -> bool:
        """Whether it waits for files of Spark's tasks."""

    def deliver(self, files: Sequence[str]) -> None:
        """Ingest files that were made from a checkpoint which is younger than its wait. After an SqlError it still
        waits for files."""

    def in_slices(self) -> None:
        """Stop waiting for files and index the rows in slices."""

    def restart(self) -> None:
        """Restart at the first row: a bulk load added rows without writes."""

    def abandon(self) -> None:
        """Abandon the index and remove its entries."""


class DefinitionCheck(Protocol):
    """A check whether the rows of a table satisfy another definition of it.

    Writes are checked too, until the table has the new definition or the check is abandoned. `done`: rows
    checked. `error`: the first violation.
    """

    done: int
    over: bool
    error: SqlError | None

    @property
    def total(self) -> int: ...

    def step(self, rows: int) -> bool:
        """Check the next rows. Returns True when no row is left."""

    def abandon(self) -> None: ...


class TooManyRows(Exception):
    """A lookup has more rows than its limit."""


class KeyedScan(Protocol):
    """The rows of a table under keys, read in slices. `over`: whether all have been read."""

    @property
    def over(self) -> bool: ...

    def next(self, rows: int) -> tuple[Batch, Codes]:
        """Read about `rows` more rows in their present version. Returns them with the ordinals of their keys."""

    def passed(self, rows: Batch, ordinals: Codes) -> npt.NDArray[np.bool_]:
        """Which of these rows, under the keys of these ordinals, are in the part that the scan has read already."""

    def same(self) -> bool:
        """Whether the table and the index that the scan uses are unchanged."""


class Snapshots(Protocol):
    """The open snapshots, by transaction. `position`: grows by one with each commit while any is open, and with each
    bulk load or definition."""

    position: int

    def has_others(self, transactions: Collection[str]) -> bool:
        """Whether a snapshot is open that is not of these transactions."""

    def open(self, transaction: str) -> None:
        """Open a snapshot of this moment, unless the transaction has one."""

    def close(self, transaction: str) -> None: ...


class Staging(Protocol):
    """The open transactions of one store. A transaction begins with its first request."""

    locks: LockTable

    @property
    def history(self) -> Snapshots: ...

    def __len__(self) -> int: ...

    def stage(self, transaction: str, done: int, statements: Sequence[Statement], limits: RequestLimits | None = None
              ) -> list[WriteResult]:
        """Run statements within the transaction, all or none. Raises Blocked; SqlError 1213 if `done` is not the
        number of its requests here."""

    def lock_rows(self, transaction: str, done: int, table: str, keys: Sequence[tuple[object, ...]], exclusive: bool,
                  how: str) -> tuple[int, ...]:
        """Lock rows by the values of their primary keys; as `LockRows` says. Raises Blocked, if `how` is wait."""

    def key_changes(self, transaction: str, done: int, since: int, table: str, columns: Sequence[tuple[int, ...]]
                    ) -> tuple[KeyChange, ...]:
        """What the requests from `since` on did to the values of each set of columns."""

    def find_keys(self, part: StagedPart, table: str, columns: tuple[int, ...], keys: Sequence[tuple[object, ...]],
                  lock: bool) -> tuple[int, ...]:
        """The positions of the keys that no row has, as `FindKeys` says. Raises Blocked."""

    def lock_definitions(self, transaction: str, tables: Sequence[str]) -> None:
        """Keep other transactions from changing and locking these tables. Raises Blocked."""

    def mark_reads(self, transaction: str, marks: int) -> None:
        """Mark a moment of reading, as `MarkReads` says."""

    def undo(self, transaction: str, done: int, keep: int) -> None:
        """Undo all but the first `keep` requests."""

    def end(self, transaction: str) -> list[str]:
        """Forget the transaction. Returns those whose requests get a lock now."""

    def work_of(self, transaction: str) -> int:
        """The rows that it has staged."""

    def deltas(self, transaction: str, done: int, snapshot: bool, tables: Sequence[str]) -> dict[str, Batch]:
        """By table, the rows that exist or lack for this transaction only, with their signs."""

    def held(self) -> Iterator[Codes]:
        """The codes whose texts must not be freed."""


class BaseStore(Protocol):
    """The durable base tables of one worker's shard. Text codes are ids in the worker's symbol table."""

    @property
    def transactions(self) -> Staging:
        """The open transactions."""

    def tables(self) -> dict[str, TableDef]: ...

    def create_table(self, table: TableDef) -> None: ...

    def alter_table(self, table: TableDef, fits: bool = False) -> None:
        """Replace the definition and name of the table of this id; the next `set_recipe` makes the change durable.

        Declared indexes are maintained from now on, and `begin_index` builds them. `fits`: the rows are known to
        fit. Otherwise, if types change, `begin_fitting` must have confirmed it: else SqlError 1412.
        """

    def begin_fitting(self, table: TableDef) -> DefinitionCheck:
        """Begin to check whether the rows of the table of this id fit this definition."""

    def unbuilt(self) -> Iterable[tuple[str, tuple[int, ...]]]:
        """Table and columns of each declared index that no key or other index serves and that is not being built."""

    def drop_table(self, name: str) -> None: ...

    def keep_table(self, name: str) -> None:
        """Undo the last `drop_table`, before a `set_recipe` makes it durable."""

    def set_recipe(self, recipe: Sequence[str], epoch: int, seq: int, note: ChangeOrigin | None = None) -> None:
        """Store the program's statements, and the effects of create_table and drop_table, in one synced commit.
        `note`: a record of the change for `history`."""

    def recipe(self) -> tuple[str, ...]: ...

    def history(self) -> tuple[RecordedChange, ...]:
        """The last recorded changes of the program, the oldest first."""

    def applied(self) -> tuple[int, int]:
        """(epoch, seq) of the last commit."""

    def tidy(self) -> bool:
        """Spend some milliseconds on removing dropped data. Returns whether more is left."""

    def close(self) -> None: ...

    def add_index(self, table: str, columns: tuple[int, ...], limits: RequestLimits | None = None) -> None:
        """Make lookups by these columns possible. Existing rows are indexed before it returns. If `work` raises,
        there is no index."""

    def begin_index(self, table: str, columns: tuple[int, ...], awaited: bool = False) -> IndexBuild | None:
        """`add_index` in slices, while the table accepts writes. None if the index exists. `awaited`: Spark's
        tasks make its files."""

    def flush_ahead(self, least_bytes: int) -> bool:
        """Flush each memtable of at least `least_bytes` in the background, so that the next checkpoint is fast.
        Returns whether all are flushed."""

    def positions(self, table: str, rows: Batch) -> list[bytes] | None:
        """The position of each row in the order of `scan`, from its primary key. None for a table without a
        primary key."""

    def trim_indexes(self, table: str, needed: Iterable[tuple[int, ...]], most: int) -> None:
        """Drop indexes of `add_index` that lookups by the `needed` columns do not use, the oldest first, until at
        most `most` are left."""

    def write(self, statements: Sequence[Statement], epoch: int, seq: int, limits: RequestLimits | None = None,
              group: str = "", forget: Sequence[str] = (), idempotency_key: str = "") -> tuple[list[WriteResult],
                                                                                    dict[str, Batch]]:
        """Run statements in order, in ONE synced commit together with (epoch, seq) and the results.

        Each statement is applied completely or, on its SqlError, not at all. Later statements see earlier ones.
        Returns a result for each statement and the net delta of each table. A repeated (epoch, seq) changes
        nothing, and returns its first results without deltas.

        `work`: checked between slices of a scan, before the commit. `group`: all statements are applied or none
        is. The store remembers this name as committed until a later write lists it in `forget`. `idempotency_key`:
        another name that it remembers likewise.
        """

    def prepare(self, statements: Sequence[Statement], group: str, coordinator: int, epoch: int, seq: int,
                limits: RequestLimits | None = None) -> list[WriteResult]:
        """First phase of a two-phase commit: compute the statements' results and keep the statements, synced,
        until `decide`.

        If a statement fails, nothing is kept; its result has the error, and the other results are empty. Until
        `decide`, writes of the same tables are refused. A repeated call behaves as in `write`.
        """

    def decide(self, group: str, commit: bool, epoch: int, seq: int) -> tuple[list[WriteResult], dict[str, Batch]]:
        """Second phase: commit the prepared group as `write` would, or discard it. An unknown group has no
        effect. Without disk space nothing changes, and every result has the error."""

    def predict_effect(self, statement: Statement, rows: tuple[bytes, ...], workers: int,
                       limits: RequestLimits | None = None, within: StagedPart | None = None) -> StatementEffect:
        """Compute, without any change, what the statement would write at each worker. `rows`: packed rows of
        other workers, treated as rows of this one.

        Without a transaction (`within`), a lock of a transaction is SqlError 3572. Within one, Blocked is raised
        instead, and the transaction then holds the locks of all rows that would be written.
        """

    def find_conflicts(self, statement: Insert, limits: RequestLimits | None = None, within: StagedPart | None = None
                       ) -> tuple[bytes, ...]:
        """The stored rows, packed, that share a key with a row of the INSERT. Locks: as in `predict_effect`; a
        transaction then also holds the locks of all keys and entries that were looked up."""

    def check_unique(self, table: str, removed: tuple[bytes, ...], added: tuple[bytes, ...],
                     within: StagedPart | None = None) -> None:
        """Raise SqlError 1062 if the rows `added` (packed) would violate a UNIQUE index, among each other or with
        stored rows. Rows whose keys are in `removed` do not count. Locks: as in `find_conflicts`."""

    def entries(self, table: TableDef, columns: tuple[int, ...], what: str, arguments: tuple[bytes, ...]) -> object:
        """Answer a question about a UNIQUE index that `begin_fitting` has filled for this definition. SqlError
        1412 if no such check ran."""

    def groups(self) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """The prepared groups as (group, coordinator), and the groups that are remembered as committed."""

    def lookup(self, table: str, columns: tuple[int, ...], keys: Codes, texts: Texts = None, most: int = 0
               ) -> tuple[Batch, Codes]:
        """Rows whose columns equal a key, and for each row the ordinal of its key.

        NULL equals NULL as in GROUP BY; joins and clients never look NULL up. `texts`: the columns whose texts
        the caller reads; others may be NULL. None: all. `most`: the limit for a table with a primary key, beyond
        which TooManyRows is raised; 0: no limit.
        """

    def begin_lookup(self, table: str, columns: tuple[int, ...], keys: Codes) -> KeyedScan:
        """Begin to read, in slices, the rows under distinct keys of a table with a primary key."""

    def finds(self, table: str, columns: tuple[int, ...]) -> bool:
        """Whether rows can be looked up by these columns."""

    def serves(self, table: str, columns: tuple[int, ...]) -> bool:
        """Whether rows can be looked up by these columns as fast as by an index of them."""

    def within(self, table: str, columns: tuple[int, ...], keys: Codes, rows: int) -> bool:
        """Whether a lookup of these keys has at most `rows` rows. Reads no more index entries than that."""

    def scan(self, table: str, after: bytes | None, rows: int, texts: Texts = None
             ) -> tuple[Batch, bytes | None]:
        """About `rows` rows in primary-key order from a position, and the next position.

        `after` None: from the start. Next position None: the end. A table without a primary key yields each row
        with its multiplicity. `texts`: as in `lookup`.
        """

    def values_between(self, table: str, column: int, low: int, high: int) -> Codes:
        """The distinct codes of an indexed column from low to high, ascending. Not for text columns."""

    def reach(self, table: str, column: int, low: int, high: int, rows: int, descending: bool) -> int:
        """The code at which `rows` rows are reached, counted from low (`descending`: from high). The other end if
        there are fewer."""

    def row_count(self, table: str) -> int:
        """Rows in the table: exact after a clean start, otherwise an estimate within a few per cent."""

    def damage_of(self, name: str) -> SqlError | None:
        """The error of a damaged table, one of whose files cannot be read; None otherwise. Other methods raise
        this error for it."""

    def load_needs(self, table: str) -> tuple[tuple[tuple[tuple[int, ...], bool], ...], int]:
        """What a bulk load must bring: (columns, unique) for each maintained index, and the AUTO_INCREMENT
        high-water mark."""

    def memory(self) -> int:
        """Bytes of memory that the store uses now, in caches and buffers."""

    def hold_memory(self, limit: int) -> None:
        """From now on, keep within the store's share of the memory limit of the worker (bytes; 0: no limit)."""

    def checkpoint(self, path: str) -> None: ...

    def loads(self, group: str) -> tuple[str, ...]:
        """The tables for which files are staged under this name (`statements.Load`) until the group is decided."""

    def check_ingest(self, table: str, files: dict[str, list[str]], rows: int,
                     others: dict[str, list[str]] | None = None) -> None: ...

    def ingest(self, table: str, files: dict[str, list[str]], rows: int, auto_increment: int,
               epoch: int, seq: int, idempotency_key: str = "") -> None: ...


class State(Protocol):
    """The stored rows of a stateful node (`Table` and `Groups` of `state`, `published.Published`).

    In each index a key is present (its rows are complete, perhaps none) or missing. In a full state every key is
    present. Key arrays have shape (key columns, keys) and hold raw codes.
    """

    @property
    def full(self) -> bool: ...

    def fits(self, indexes: Sequence[Columns]) -> bool:
        """Whether the state has these indexes."""

    def fit(self, indexes: Sequence[Columns]) -> None:
        """Make these the state's indexes and drop others. The keys of a new index are missing."""

    def fill(self, cols: Columns, keys: Codes, rows: Batch) -> None:
        """Make distinct missing keys present, with their rows among `rows`."""

    def missing(self, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]: ...

    def evict(self, cols: Columns, keys: Codes) -> int:
        """Make keys missing."""

    def present(self, cols: Columns) -> Codes:
        """All present keys, folded."""

    def present_count(self, cols: Columns) -> int:
        """The number of present keys."""

    def coldest(self, cols: Columns, most: int) -> Cold:
        """A sample of the present keys that includes old ones."""

    def lookup(self, cols: Columns, keys: Codes, tick: int) -> tuple[Batch, Codes]:
        """Stored rows under each key, in the node's columns, with the ordinal of the key. `tick`: the stamp of
        this read."""

    def rows(self) -> Batch:
        """All stored rows, in the node's columns."""

    def part(self, parts: int, low: int, high: int) -> Batch:
        """The rows of parts low..high-1 out of `parts` (a power of two), in the node's columns. The part of a row
        depends on the row alone."""

    def part_of(self, rows: Batch, parts: int) -> Codes:
        """The part of each row, in the node's columns, whether it is stored or not."""

    def held(self, texts: Sequence[int]) -> Iterator[Codes]:
        """Every text id in use; other numbers may be among them. Texts that no state holds are swept. `texts`:
        the node's text columns."""

    def shrink(self) -> None:
        """Return unused memory."""

    def memory(self) -> int:
        """Bytes in use, indexes and rows."""

    def __len__(self) -> int:
        """Rows stored, weights not counted."""


class ViewState(Protocol):
    """The state of one reader: rows by one key, published for lock-free readers.

    A key is present (its rows are complete, perhaps none) or missing; a full view has every key present.
    `apply`, `fill` and `evict` publish each changed key atomically: readers see complete versions only.
    """

    full: bool

    def missing(self, keys: Codes) -> npt.NDArray[np.bool_]: ...

    def apply(self, delta: Batch) -> None:
        """Add the delta's rows to their keys; rows of missing keys are dropped. A weight below zero raises
        InvariantViolation NO-SPURIOUS."""

    def fill(self, keys: Codes, rows: Batch) -> None:
        """Make distinct missing keys present with exactly these rows (rows of every key, in any order)."""

    def evict(self, keys: Codes) -> int:
        """Make keys missing; returns bytes freed."""

    def rows(self, keys: Codes) -> tuple[Batch, Codes]:
        """Stored rows of the keys and the ordinal of each row's key."""

    def present(self) -> Codes:
        """All present keys (for a full view: keys that have rows), folded."""

    def present_count(self) -> int:
        """The number of present keys."""

    def coldest(self, keys: int) -> tuple[Codes, Codes, Codes]:
        """About that many least recently read present keys (sampled), their stamps (ticks) and sizes in bytes."""

    def begin_tick(self, tick: int) -> None: ...

    def end_tick(self, tick: int) -> None: ...

    def activate(self) -> None:
        """Publish the first rows of a full view. Until then readers see every key as missing and send the worker a
        request."""

    def memory(self) -> int:
        """Bytes in use, index and rows."""

    def __len__(self) -> int:
        """Rows stored, weights not counted."""

    def held(self) -> Iterator[Codes]:
        """Every text id in rows and keys."""

    def expect(self, rows: int, keys: int) -> None:
        """Reserve space for `rows` rows of at least `keys` keys: to grow later would stall the worker."""

    def rename(self, name: str) -> None:
        """Publish the view under another name. SqlError if its record cannot be written for lack of space."""

    def drop(self) -> None:
        """Drop the view; readers find it marked as dead."""


class ViewFactory(Protocol):
    def create(self, name: str, fields: Sequence[Field], key: tuple[int, ...], visible: int, full: bool,
               definition: int = 0) -> ViewState:
        """Create the state of a view, in place of one that has its name. SqlError if there is no space.
        `definition`: the number by which readers distinguish it from other definitions of the name."""
        ...

    def feed(self, name: str, fields: Sequence[Field]) -> ViewState:
        """Create the state of a feed: full, without a key, its changes recorded. It continues where a feed of
        this name ended. SqlError if there is no space."""
        ...

    def tidy(self) -> bool:
        """Spend some milliseconds on deferred work for feeds. Returns whether more is left."""
        ...

    def take_over(self) -> None:
        """Mark all views of earlier lives of this worker as dead."""
