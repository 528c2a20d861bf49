"""What a worker takes and gives: frozen messages, no I/O (the wire form is `runtime/transport/wire.py`).

Every packet travels in an `Envelope`: the sender's epoch (a receiver refuses an older one), a sequence number
(per sender and epoch, for exactly-once writes) and the watermark vector of (worker, tick) applied.  The module has more
than 500 lines because it is a list of messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from noria.core.errors import SqlError
from noria.core.statements import Insert, Load, Statement, WriteResult
from noria.core.types import TableDef

Unique = tuple[tuple[int, ...], ...]
Watermark = tuple[tuple[int, int], ...]  # (worker, tick), ascending by worker


@dataclass(frozen=True)
class Envelope:
    """epoch: the front end's; sender: -1 the front end, else the worker's number; seq: grows by one for each
    packet that changes anything (Write, Migrate, Ingest); a resend has the same seq and is applied once."""

    epoch: int
    sender: int
    seq: int
    body: Packet
    watermark: Watermark = ()


# ---------------------------------------------------------------- to the worker
@dataclass(frozen=True)
class Write:
    """Statements committed in one synced batch, each whole or not at all, acknowledged together.  group: this worker's
    part of statements over several shards, whole or not at all together; that it is committed is the decision for all,
    and remembered under this name until a later one says `forget`.  once: likewise (`Ask` "once"), by itself."""

    statements: tuple[Statement, ...]
    group: str = ""
    forget: tuple[str, ...] = ()
    once: str = ""


@dataclass(frozen=True)
class Prepare:
    """See what a worker's part of a group would do, and keep it, durably, for `Decide`; until then no other change may
    come.  coordinator: the worker whose commit decides.  Answer: `Wrote`; with an error, which those statements have
    that it is of, nothing is kept."""

    statements: tuple[Statement, ...]
    group: str
    coordinator: int


@dataclass(frozen=True)
class Decide:
    """Do what was prepared for a group, or forget it.  Answer: `Wrote`, of what was done."""

    group: str
    commit: bool


@dataclass(frozen=True)
class WorkOut:
    """What would this worker's part of a statement do, and at which workers?  Nothing is done.  rows: packed rows of
    other workers, which are looked at as if they were here.  unique: the columns of its table's
    `spread_unique` that it was placed by; error 1412 where these are others by now.  `Done`: `statements.WorkedOut`."""

    request: int
    statement: Statement
    unique: Unique
    rows: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Meet:
    """Which rows of this worker do the rows of each of these INSERTs, with its `WorkOut.unique`, meet, by a key?
    `Done`: for each a tuple of packed rows, or the SqlError of one that cannot be."""

    request: int
    statements: tuple[tuple[Insert, Unique], ...]


@dataclass(frozen=True)
class CheckUnique:
    """Are rows that come to a table, here or at other workers (packed), kept apart by its UNIQUE indexes, from each
    other and from this worker's rows without those that go (by key)?  `Done`, with error 1062 where they are not."""

    request: int
    table: str
    gone: tuple[bytes, ...]
    came: tuple[bytes, ...]


@dataclass(frozen=True)
class Entries:
    """A question about a UNIQUE index that the table is about to have and `Fit` has looked at the rows for
    (`storage/online/comparing.py` has them)."""

    request: int
    table: TableDef
    columns: tuple[int, ...]
    what: str
    given: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Page:
    """The first rows of a table in the order of their keys, or the first behind a key (as the store has it).  `Done`: a
    RecordBatch of the columns that are shown, and the last row's key; None where there are no more."""

    request: int
    table: str
    after: bytes | None
    rows: int


@dataclass(frozen=True)
class Read:
    """Rows of a view for keys (tuples of Python values, or a RecordBatch of key columns); fills what is missing.
    nulls: a NULL in a key is looked up like any value; else it finds nothing.  between: instead of keys, the least
    and greatest code of the one key column; `__key` then numbers the values found.  first: so many rows of the least
    keys are enough, or of the greatest (descending).  fill: the keys are to be present, and the answer has no rows:
    whoever asks reads them from shared memory.  definition: of the view that is meant; error 1412 where another one has
    the name by now, or none (0: whichever has it).  limit_ms: how long it may keep the worker (0: any time).
    together: of one key, and may travel with others, in a `ReadMany`.  pieces: many rows may come in pieces, which
    `More` asks for."""

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
    pieces: bool = False


@dataclass(frozen=True)
class Alike:
    """Reads of one view and one key each, as of `Read`: their numbers, and their keys."""

    view: str
    definition: int
    limit_ms: int
    requests: tuple[int, ...]
    keys: tuple[Any, ...]


@dataclass(frozen=True)
class ReadMany:
    """Reads that leave together.  Answer: `Found`, at once."""

    request: int
    alike: tuple[Alike, ...]


@dataclass(frozen=True)
class Query:
    """Rows of a view (plan.view.ViewDef) that is in no program: a one-shot, of which nothing is kept (`oneshot.py`).
    keys, nulls, between, first, descending, limit_ms: as of `Read`.  What would read more than `rows` rows
    reads its table in slices (`slicing.py`): error 3024 where it cannot.  spread: rows of all workers matter to each
    row, not this one's alone.  pieces: as of `Read`.  Answer: `Rows`."""

    request: int
    view: Any
    keys: Any
    nulls: bool = False
    between: tuple[int, int] | None = None
    first: int | None = None
    descending: bool = False
    rows: int = 0
    limit_ms: int = 0
    spread: bool = False
    pieces: bool = False


@dataclass(frozen=True)
class Foreseen:
    """How a Query would be answered now.  way: once | slices (a scan of its one table) | too much; rows: of tables and
    states, that are read `once`."""

    way: str
    rows: int


@dataclass(frozen=True)
class More:
    """The next rows of the answer to the Query or Read `of`.  stop: nobody wants them, the worker lets go of them,
    and does not answer.  Answer: `Rows`."""

    request: int
    of: int
    stop: bool = False


@dataclass(frozen=True)
class Between:
    """A message of one worker to another (`between.Message`).  version: of the program that the sender had."""

    message: Any
    version: int


@dataclass(frozen=True)
class CreateTable:
    table: TableDef


@dataclass(frozen=True)
class AlterTable:
    """The table of this id is defined, and called, like this now.  Its rows stay as they are; where types are others,
    `Fit` has found that they fit."""

    table: TableDef


@dataclass(frozen=True)
class DropTable:
    table: str


@dataclass(frozen=True)
class AddView:
    view: Any  # plan.view.ViewDef (this package is below plan)


@dataclass(frozen=True)
class CheckView:
    """Nothing is made, but what could not be is refused: of a view that has no reader yet."""

    view: Any


@dataclass(frozen=True)
class DropView:
    """why: what its reads are told from now on, of a view that is in the program and could not be made.  idle: only if
    nothing has been read of it yet."""

    view: str
    why: SqlError | None = None
    idle: bool = False


@dataclass(frozen=True)
class RenameView:
    view: str
    name: str


@dataclass(frozen=True)
class Note:
    """What is remembered of a change of the program.  at: microseconds since 1970, UTC; who: user@host, or the part of
    the server that asked; text: the statement."""

    at: int
    who: str
    text: str


@dataclass(frozen=True)
class Noted:
    """A change that was made: it led to this version of the program."""

    version: int
    note: Note


MigrationStep = CreateTable | AlterTable | DropTable | AddView | CheckView | DropView | RenameView


@dataclass(frozen=True)
class Migrate:
    """A change of the program.  `recipe`: the SQL statements that make the program after the change, stored in
    the same commit; on recovery they are planned again.  durable=False: already in the catalog (recovery).
    each: a view that cannot be made costs itself only (recovery); else the change is made whole or not at all.
    limit_ms: how long it may take (0: any time).  note: stored in the same commit, of one that is durable.  version: of
    the program after it, which several workers tell their messages by.  adopt: the graph that other workers have of
    these views (`Ask` "graph plan"), to be the same here (recovery).  first_node: the number of the first new node of
    the graph, as worker 0 has given it (0: whatever is next).  back: these steps take back what the last change did,
    which not all workers could do."""

    steps: tuple[MigrationStep, ...]
    recipe: tuple[str, ...] = ()
    durable: bool = True
    each: bool = False
    limit_ms: int = 0
    note: Note | None = None
    version: int = 0
    adopt: Any = None
    first_node: int = 0
    back: bool = False


@dataclass(frozen=True)
class Rehearse:
    """What would these steps do?  Nothing is done.  The answer: `dataflow/inspect/rehearsal.py`."""

    request: int
    steps: tuple[MigrationStep, ...]


@dataclass(frozen=True)
class Snapshot:
    """Make a checkpoint of the base tables at `path`.  The answer: {"watermark": …, "views": …}, with `views` the
    contents of every view at that moment, if asked for: name -> (rows, present keys or None), Arrow tables in
    the form of `dataflow/inspect/export.py`.  node: the checkpoint is for the first state of the node with this
    number: what was kept back for it so far is in the checkpoint."""

    request: int
    path: str
    views: bool = False
    node: int = -1


@dataclass(frozen=True)
class Ingest:
    """Take SST files built by Spark into a table; state is brought up to date.  files: column family name ->
    paths, keys disjoint and ascending; rows: how many; auto_increment: the high-water mark they bring.  shards: of
    several workers, what each takes, (files, rows); files and rows are then those of all, and each worker gets its own
    (`of`), after all have found that it fits (`CheckIngest`).  once: as of `Write`."""

    table: str
    files: tuple[tuple[str, tuple[str, ...]], ...]
    rows: int
    auto_increment: int = 0
    shards: tuple[tuple[tuple[tuple[str, tuple[str, ...]], ...], int], ...] = ()
    once: str = ""

    def of(self, worker: int) -> Load:
        """What one of several workers takes: perhaps nothing but the mark."""
        return Load(self.table, *self.shards[worker], self.auto_increment)

    def check_of(self, worker: int, spread: Collection[str] = ()) -> CheckIngest:
        """Whether it could.  spread: families whose keys are to be there once among all workers."""
        files, rows = self.shards[worker]
        others = tuple(f for w, (some, _) in enumerate(self.shards) for f in some if w != worker and f[0] in spread)
        by_family = {name: tuple(p for n, paths in others if n == name for p in paths) for name, _ in others}
        return CheckIngest(0, self.table, files, rows, tuple(by_family.items()))


@dataclass(frozen=True)
class CheckIngest:
    """Could these files be taken into the table as it is?  `Done`, with the error that `Ingest` would have (1062: a key
    is there already).  Nothing is changed.  others: files of other workers, with entries of UNIQUE indexes that must
    not be here, either."""

    request: int
    table: str
    files: tuple[tuple[str, tuple[str, ...]], ...]
    rows: int
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Bootstrap:
    """First state of a full node, computed by Spark from a snapshot that was taken for it (`Snapshot.node`):
    Parquet files of the node's input rows, in the form of `dataflow/inspect/export.py`."""

    view: str
    node: int
    files: tuple[str, ...]
    request: int = 0


@dataclass(frozen=True)
class Wanted:
    """An index that Spark is to make (the answer to `Ask` "wanted index").  Its files hold the entries of the table's
    rows at a snapshot made after this.  ticket: names it in `IndexFiles` and in `Ask` "unwanted index"."""

    ticket: str
    table: TableDef
    columns: tuple[int, ...]


@dataclass(frozen=True)
class IndexFiles:
    """Files of `storage.sst` with the entries of an index that was wanted; none: nobody can make it.  `Done` where they
    are taken over, with an error where they are not and the worker makes the index itself."""

    ticket: str
    files: tuple[str, ...] | None
    request: int = 0


@dataclass(frozen=True)
class Evict:
    """Evict least recently read keys until `nbytes` are free, or everything that is partial (None)."""

    request: int
    nbytes: int | None


@dataclass(frozen=True)
class Ask:
    """A question about the worker: stats | graph | explain (argument: view name) | analyze (what `read` does) | table
    (argument: its name; what a bulk load must bring) | validate | builds (what is being built, and for which views) |
    built (argument: view name; answered when it has its first state, or will not have it) | indexed (argument: table;
    answered when it has the indexes that it declares) | looked up (argument: table; when it has those that views want,
    too) | wanted index (answered, `Wanted`, when there is one) | unwanted index (argument: ticket; answered when nobody
    waits for its files any more) | caught up (argument: a depth, a blank, and workers "0,2" or none for all; of several
    workers, answered when this one has what was committed at these before, beyond so many exchanges) | heard (argument:
    workers, and of each the number of a message "0:7,2:9"; when all that came of these is in the states here) |
    flush ahead (argument: bytes; has what tables have in memory write to files, where it is so many, and says whether
    that is done) | history (the changes of the program, `Noted`) | graph plan (the graph as data, for `Migrate.adopt`)
    | idle (argument: view name; has nothing been read of it yet?) | foresee (how the Query `read` would be answered:
    `Foreseen`; nothing is kept) | few between (argument: a column's number, the least
    and the greatest code, and the table, "0 1 10 t"; are few rows there, by an index?)."""

    request: int
    what: str
    argument: str = ""
    read: Read | Query | None = None

    @property
    def limit_ms(self) -> int:
        """So long may it keep the worker; 0: any time."""
        return 0 if self.read is None else self.read.limit_ms


@dataclass(frozen=True)
class Fit:
    """Do the rows of the table of this id fit this definition?  Answered when all were looked at: `Done`, with the
    error of one that does not.  An `AlterTable` that says the same may follow; until it comes, writes are looked at."""

    request: int
    table: TableDef


@dataclass(frozen=True)
class SetLimit:
    """Memory limit in bytes for all that this worker keeps: symbols, states, views, the store's caches; 0 for none."""

    nbytes: int
    request: int = 0


# ---------------------------------------------------------------- from the worker
@dataclass(frozen=True)
class Hello:
    """A worker is up: what the store holds.  seq: the last applied of the epoch that wrote it.  prepared: (group,
    coordinator) of what is not decided; decided: groups that it has decided."""

    worker: int
    pid: int
    last_epoch: int
    last_seq: int
    recipe: tuple[str, ...]
    tables: tuple[TableDef, ...]
    prepared: tuple[tuple[str, int], ...] = ()
    decided: tuple[str, ...] = ()


Told = tuple[tuple[int, int], ...] | None  # workers that a write's messages went to, and the last one's number; or any
Own = Mapping[int, tuple[int, Told]]  # by worker that has written: which of its writes, and whom it has told


@dataclass(frozen=True)
class Wrote:
    """told: of a worker, whom it has told.  own: of the front end's link to several, what a session must know."""

    seq: int
    results: tuple[WriteResult, ...]
    told: Told = ()
    own: Own = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """Answer to Read, Query and More: an Arrow table of the view's visible columns plus `__key`, the ordinal of the
    asked key; None where the keys were only to be filled.  left: rows of the same answer that the worker still holds;
    `More` asks for them."""

    request: int
    rows: Any
    error: SqlError | None = None
    left: int = 0


@dataclass(frozen=True)
class Found:
    """Answer to ReadMany.  parts: the numbers of reads of one view, and their rows as of `Rows`, where `__key` is the
    place among the numbers.  Reads that it does not name are answered by `Rows` of their own, now or later."""

    request: int
    parts: tuple[tuple[tuple[int, ...], Any], ...] = ()
    error: SqlError | None = None


@dataclass(frozen=True)
class Migrated:
    """explain: (view, explanation text); filling: views that are not there yet (`Ask` built); bootstrap: (view, node
    number, plan of the node's input) of full nodes whose first state Spark must compute; failed: (view, why) of those
    that cannot be made, where each stands by itself; yielded: those that went as they were idle.  routes: of several
    workers, for each view that the steps name and that is there: places within its key whose values say which worker
    has its rows (none: worker 0), and how many exchanges rows may pass on the way to it; first_node: see `Migrate`."""

    seq: int
    error: SqlError | None = None
    explain: tuple[tuple[str, str], ...] = ()
    bootstrap: tuple[tuple[str, int, Any], ...] = ()
    failed: tuple[tuple[str, SqlError], ...] = ()
    filling: tuple[str, ...] = ()
    yielded: tuple[str, ...] = ()
    routes: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    first_node: int = 0


@dataclass(frozen=True)
class Done:
    """Answer to Rehearse, Snapshot, CheckIngest, Bootstrap, IndexFiles, Evict, Ask, SetLimit; to Ingest with the
    envelope's seq as `request`."""

    request: int
    value: Any = None
    error: SqlError | None = None


Packet = (
    Write | Prepare | Decide | WorkOut | Meet | CheckUnique | Entries | Page | Read | ReadMany | Query | More | Migrate
    | Rehearse | Snapshot | Ingest | CheckIngest | Bootstrap | IndexFiles | Evict | Ask | Fit | SetLimit | Between
    | Hello | Wrote | Rows | Found | Migrated | Done
)
