"""What the pure data-flow needs of the world, as protocols: base tables on disk, published views.

Implementations: `storage/` (RocksDB) and `views/` (shared memory); tests bring dictionaries.
Key arrays have shape (key columns, keys) and hold raw codes; implementations fold CI text themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes, Texts
from noria.core.errors import SqlError
from noria.core.statements import Insert, Statement, WorkedOut, WriteResult
from noria.core.types import Field, TableDef
from noria.dataflow.graph.work import Work
from noria.dataflow.messages.packets import Note, Noted
from noria.state.table import Cold, Columns


class StoreBroken(Exception):
    """The base tables cannot go on in this process: the worker ends, and says this."""


class IndexBuild(Protocol):
    """An index in the making: rows done, rows of the table."""

    done: int

    @property
    def declared(self) -> bool:
        """Is it declared, or made for a view only?"""

    @property
    def total(self) -> int: ...

    @property
    def over(self) -> bool:
        """Is it whole, or given up?"""

    def step(self, rows: int) -> bool:
        """Index the next rows; True when it is whole and in use.  SqlError: it can go on, or be given up."""

    @property
    def awaits(self) -> bool:
        """Does it wait for files of Spark's tasks?"""

    def deliver(self, files: Sequence[str]) -> None:
        """Take these files over, made from a checkpoint since it awaits them.  SqlError: it cannot, and awaits them
        still."""

    def in_slices(self) -> None:
        """No file will come: go on without."""

    def again(self) -> None:
        """Rows came beside all writes: begin at the first one again."""

    def give_up(self) -> None:
        """Without a trace."""


class Fitting(Protocol):
    """A look at whether rows fit another definition of their table: rows looked at, rows of the table, and what
    does not fit.  Writes are looked at, too, until the table is defined so or it is given up."""

    done: int
    over: bool
    error: SqlError | None

    @property
    def total(self) -> int: ...

    def step(self, rows: int) -> bool:
        """Look at the next rows; True when there is nothing left to look at."""

    def give_up(self) -> None: ...


class TooManyRows(Exception):
    """A lookup has more rows than it may have at once."""


class KeyedScan(Protocol):
    """The rows of a table under keys, in slices.  over: has it come to the end?"""

    @property
    def over(self) -> bool: ...

    def next(self, rows: int) -> tuple[Batch, Codes]:
        """About so many rows more, as they are now, and the ordinals of their keys."""

    def passed(self, rows: Batch, ordinals: Codes) -> npt.NDArray[np.bool_]:
        """Which rows of the table, under the keys of these ordinals, it has passed or would have."""

    def same(self) -> bool:
        """Is the table what it was, and what it is looked up by?"""


class BaseStore(Protocol):
    """The durable base tables of one worker's shard.  Codes of text are ids of the worker's symbol table."""

    def tables(self) -> dict[str, TableDef]: ...

    def create_table(self, table: TableDef) -> None: ...

    def alter_table(self, table: TableDef, fits: bool = False) -> None:
        """Another definition, and name, for the table of this id; durable with the next `set_recipe`.  Indexes that are
        declared are kept from now on, and made by `begin_index`.  fits: the rows are known to fit; else `begin_fitting`
        must have found so where types are others: SqlError 1412."""

    def begin_fitting(self, table: TableDef) -> Fitting:
        """Begin to look at whether the rows of the table of this id fit this definition."""

    def unbuilt(self) -> Iterable[tuple[str, tuple[int, ...]]]:
        """Table and columns of the indexes that are declared, that no key or index serves, and that nobody builds."""

    def drop_table(self, name: str) -> None: ...

    def keep_table(self, name: str) -> None:
        """Take the last `drop_table` back, before a `set_recipe` makes it durable."""

    def set_recipe(self, recipe: Sequence[str], epoch: int, seq: int, note: Note | None = None) -> None:
        """Store the program's statements and what create_table/drop_table changed in one synced commit, with a note
        of the change."""

    def recipe(self) -> tuple[str, ...]: ...

    def history(self) -> tuple[Noted, ...]:
        """The last changes of the program that were noted, the oldest first."""

    def applied(self) -> tuple[int, int]:
        """(epoch, seq) of the last commit."""

    def tidy(self) -> bool:
        """Some milliseconds of work on what was dropped; is there more?"""

    def close(self) -> None: ...

    def add_index(self, table: str, columns: tuple[int, ...], work: Work | None = None) -> None:
        """Make lookups by these columns possible; existing rows are indexed before it returns, unless `work` gives
        up: then there is no index."""

    def begin_index(self, table: str, columns: tuple[int, ...], awaited: bool = False) -> IndexBuild | None:
        """`add_index` in slices, while the table is written; None where there is nothing to do.  awaited: from files
        that Spark's tasks make."""

    def flush_ahead(self, least_bytes: int) -> bool:
        """Write what is in memory of a table, where that is so many bytes, to files in the background: so the next
        checkpoint takes no time.  Is it done?"""

    def positions(self, table: str, rows: Batch) -> list[bytes] | None:
        """Where rows lie in the order of `scan`, by their primary keys; None of a table without one."""

    def trim_indexes(self, table: str, needed: Iterable[tuple[int, ...]], most: int) -> None:
        """Of the indexes that were made by `add_index` and that lookups by these columns do not use, drop the longest
        there beyond so many."""

    def write(self, statements: Sequence[Statement], epoch: int, seq: int, work: Work | None = None, group: str = "",
              forget: Sequence[str] = (), once: str = "") -> tuple[list[WriteResult], dict[str, Batch]]:
        """Run statements in order, each wholly or (on its SqlError) not at all, in ONE synced commit together
        with (epoch, seq) and the results.  Later statements see earlier ones.  Returns a result for each and
        the net delta of each table.  A repeated (epoch, seq) changes nothing, returns its first results and
        no deltas.  work: asked between slices of a scan, before the commit.  group: the statements are whole or not
        at all together, and that they are done is remembered under this name until a later write says `forget`.
        once: another name that is remembered, likewise."""

    def prepare(self, statements: Sequence[Statement], group: str, coordinator: int, epoch: int, seq: int,
                work: Work | None = None) -> list[WriteResult]:
        """See what the statements would do, and keep them, synced, until `decide`; if one fails nothing is kept, and
        its error is each one's result.  Until then nothing else is written.  Repeated: as `write`."""

    def decide(self, group: str, commit: bool, epoch: int, seq: int) -> tuple[list[WriteResult], dict[str, Batch]]:
        """Do what was prepared, as `write` would, or forget it; of a group that is unknown nothing.  Without space
        nothing happens, and every result says so."""

    def work_out(self, statement: Statement, rows: tuple[bytes, ...], workers: int, work: Work | None = None
                 ) -> WorkedOut:
        """What the statement would do, by worker; nothing is done.  rows: packed rows of other workers, which are
        looked at as if they were here."""

    def met(self, statement: Insert, work: Work | None = None) -> tuple[bytes, ...]:
        """The rows, packed, that the rows of an INSERT meet, by a key."""

    def check_unique(self, table: str, gone: tuple[bytes, ...], came: tuple[bytes, ...]) -> None:
        """SqlError 1062 where rows that come (packed) are not kept apart by UNIQUE indexes, from each other and from
        the rows that are here, without those that go (by key)."""

    def entries(self, table: TableDef, columns: tuple[int, ...], what: str, given: tuple[bytes, ...]) -> object:
        """The answer to a question about a UNIQUE index that `begin_fitting` has filled for this definition.  SqlError
        1412 where nobody has looked at the rows."""

    def groups(self) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """What is prepared, (group, coordinator), and the groups that are remembered as done."""

    def lookup(self, table: str, columns: tuple[int, ...], keys: Codes, texts: Texts = None, most: int = 0
               ) -> tuple[Batch, Codes]:
        """Rows whose columns equal a key, NULL equal to NULL as in GROUP BY, and for each row the ordinal of its
        key.  (Joins and clients never ask for NULL.)  texts: columns whose texts are looked at, None: all; in the
        place of others there may be NULL.  most: TooManyRows where there are more (0: any), of a table with a primary
        key."""

    def begin_lookup(self, table: str, columns: tuple[int, ...], keys: Codes) -> KeyedScan:
        """The rows of a table with a primary key under distinct keys, in slices."""

    def finds(self, table: str, columns: tuple[int, ...]) -> bool:
        """Can rows be looked up by these columns?"""

    def serves(self, table: str, columns: tuple[int, ...]) -> bool:
        """Likewise, and as fast as by an index of them?"""

    def within(self, table: str, columns: tuple[int, ...], keys: Codes, rows: int) -> bool:
        """Has a lookup of these keys no more than so many rows?  Reads no more index entries than that."""

    def scan(self, table: str, after: bytes | None, rows: int, texts: Texts = None
             ) -> tuple[Batch, bytes | None]:
        """About `rows` rows in primary-key order from a position (None: the start) and the next position
        (None: the end).  Bags give each row with its multiplicity.  texts: as `lookup` has it."""

    def values_between(self, table: str, column: int, low: int, high: int) -> Codes:
        """The distinct codes of an indexed column (no text) from low to high, ascending."""

    def reach(self, table: str, column: int, low: int, high: int, rows: int, descending: bool) -> int:
        """The code up to which so many rows lie, counted from low (descending: from high); the other end if there are
        fewer."""

    def row_count(self, table: str) -> int:
        """Rows in the table (exact after a clean start, else an estimate good to a few per cent)."""

    def damage_of(self, name: str) -> SqlError | None:
        """Why no statement can use the table: a file of it cannot be read.  Its other methods raise this then."""

    def load_needs(self, table: str) -> tuple[tuple[tuple[tuple[int, ...], bool], ...], int]:
        """What a bulk load must bring files for: (columns, unique) of every index that is kept; and the
        AUTO_INCREMENT high-water mark."""

    def memory(self) -> int:
        """Bytes of memory that the store takes now: caches and buffers."""

    def hold_memory(self, limit: int) -> None:
        """Take no more than the store's part of a memory limit for everything (0: none), from now on."""

    def checkpoint(self, path: str) -> None: ...

    def loads(self, group: str) -> tuple[str, ...]:
        """The tables for which files are staged under this name (`statements.Load`), until it is decided."""

    def check_ingest(self, table: str, files: dict[str, list[str]], rows: int,
                     others: dict[str, list[str]] | None = None) -> None: ...

    def ingest(self, table: str, files: dict[str, list[str]], rows: int, auto_increment: int,
               epoch: int, seq: int, once: str = "") -> None: ...


class State(Protocol):
    """What keeps the rows of a stateful node (`state.table.Table`, `state.groups.Groups`, `published.Published`).

    By each of its indexes a key is present (its rows are complete, perhaps none) or missing; in a full state every key
    is present.  Key arrays have shape (key columns, keys), raw codes.
    """

    @property
    def full(self) -> bool: ...

    def fits(self, indexes: Sequence[Columns]) -> bool:
        """Are these indexes there?"""

    def fit(self, indexes: Sequence[Columns]) -> None:
        """These indexes and no others; the keys of a new one are missing."""

    def fill(self, cols: Columns, keys: Codes, rows: Batch) -> None:
        """Make distinct missing keys present with what `rows` give them."""

    def missing(self, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]: ...

    def evict(self, cols: Columns, keys: Codes) -> int:
        """Make keys missing."""

    def present(self, cols: Columns) -> Codes:
        """All present keys, folded."""

    def present_count(self, cols: Columns) -> int:
        """How many there are."""

    def coldest(self, cols: Columns, most: int) -> Cold:
        """A sample of the present keys, in which old ones are."""

    def lookup(self, cols: Columns, keys: Codes, tick: int) -> tuple[Batch, Codes]:
        """Stored rows under each key, in the node's columns, and the ordinal of the key.  tick: when it is read."""

    def rows(self) -> Batch:
        """All of them, in the node's columns."""

    def part(self, parts: int, low: int, high: int) -> Batch:
        """The rows of parts low..high-1 of so many (a power of two), in the node's columns.  Which part a row is in
        depends on the row alone."""

    def part_of(self, rows: Batch, parts: int) -> Codes:
        """The part that each row, in the node's columns, is in or would be."""

    def held(self, texts: Sequence[int]) -> Iterator[Codes]:
        """Every text id that is held (any other numbers do no harm): strings beside these are swept.  texts: the node's
        columns of texts."""

    def shrink(self) -> None:
        """Give slack back."""

    def memory(self) -> int:
        """Bytes in use, indexes and rows."""

    def __len__(self) -> int:
        """Rows stored, weights not counted."""


class ViewState(Protocol):
    """The state of one reader: rows by one key, published for lock-free readers.

    A key is present (its rows are complete, perhaps none) or missing; a full view has every key present.
    `apply`, `fill` and `evict` publish each touched key atomically, whole versions only.
    """

    full: bool

    def missing(self, keys: Codes) -> npt.NDArray[np.bool_]: ...

    def apply(self, delta: Batch) -> None:
        """Add the delta's rows to their keys; rows of missing keys are dropped.  A row's weight never goes
        below zero: that raises InvariantViolation NO-SPURIOUS."""

    def fill(self, keys: Codes, rows: Batch) -> None:
        """Make distinct missing keys present with exactly these rows (rows of every key, in any order)."""

    def evict(self, keys: Codes) -> int:
        """Make keys missing; returns bytes freed."""

    def rows(self, keys: Codes) -> tuple[Batch, Codes]:
        """Stored rows of the keys and the ordinal of each row's key."""

    def present(self) -> Codes:
        """All present keys (for a full view: keys that have rows), folded."""

    def present_count(self) -> int:
        """How many there are."""

    def coldest(self, keys: int) -> tuple[Codes, Codes, Codes]:
        """About that many least recently read present keys (sampled), their stamps (ticks) and sizes in bytes."""

    def begin_tick(self, tick: int) -> None: ...

    def end_tick(self, tick: int) -> None: ...

    def activate(self) -> None:
        """A full view has its first rows: until then readers find every key missing and ask the worker."""

    def memory(self) -> int:
        """Bytes in use, index and rows."""

    def __len__(self) -> int:
        """Rows stored, weights not counted."""

    def held(self) -> Iterator[Codes]:
        """Every text id of rows and keys."""

    def expect(self, rows: int, keys: int) -> None:
        """So many rows will come, of at least so many keys: growing then would hold everybody up."""

    def rename(self, name: str) -> None:
        """Readers find it by another name.  SqlError where there is no room to tell them."""

    def drop(self) -> None:
        """The view is no more: readers find it dead."""


class ViewFactory(Protocol):
    def create(self, name: str, fields: Sequence[Field], key: tuple[int, ...], visible: int, full: bool,
               definition: int = 0) -> ViewState:
        """The state of a new view, instead of one that has its name.  SqlError where there is no room for it.
        definition: what readers tell it by from others of its name."""
        ...

    def feed(self, name: str, fields: Sequence[Field]) -> ViewState:
        """The state of a feed, full and without a key, whose changes are told; it goes on where one of its name ended.
        SqlError where there is no room for it."""
        ...

    def tidy(self) -> bool:
        """Some milliseconds of work on feeds that can wait; is there more?"""
        ...

    def take_over(self) -> None:
        """What earlier lives of this worker published is dead, if it is not so yet."""
