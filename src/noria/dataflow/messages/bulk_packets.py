"""Packets for work over whole tables: checkpoints, loads, and first states and indexes that Spark computes.

The front end sends them to a worker, as those of `packets.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from noria.core.statements import Load
from noria.core.types import TableDef


@dataclass(frozen=True)
class Snapshot:
    """Make a checkpoint of the base tables at `path`. Answer: `Done` with {"watermark": …, "views": …}.

    `views`: also return the contents of every view at that moment: name -> (rows, present keys or None), as Arrow
    tables in the form of `dataflow/inspect/export.py`. `node`: the checkpoint is for this node's first state, so
    it includes the deltas kept back for the node so far.
    """

    request: int
    path: str
    views: bool = False
    node: int = -1


@dataclass(frozen=True)
class SaveStates:
    """Begin to save the states of these names, and those that they derive from, as of this moment of several workers.
    Answer: `Done` with a digest of all names, which is equal at all workers; "" if they cannot be saved now.

    `cut`: the name of the moment. `at_end`: the worker is to end, so it saves before it answers.
    """

    request: int
    cut: str
    names: tuple[str, ...]
    at_end: bool = False


@dataclass(frozen=True)
class KeepStates:
    """Keep the states that were saved as of this cut, in place of earlier ones, or drop them. Answer: `Done` with
    whether they are kept."""

    request: int
    cut: str
    keep: bool


@dataclass(frozen=True)
class Ingest:
    """Ingest SST files built by Spark into a table, and renew the states that derive from it. Answer: `Done`.

    `files`: column family name -> paths, keys disjoint and ascending. `rows`: their number. `auto_increment`: the
    new high-water mark. `shards`: for each of several workers, (files, rows); `files` and `rows` are then the
    totals. Each worker receives its own part (`of`) after all have accepted theirs (`CheckIngest`). `idempotency_key`:
    as in `Write`.
    """

    table: str
    files: tuple[tuple[str, tuple[str, ...]], ...]
    rows: int
    auto_increment: int = 0
    shards: tuple[tuple[tuple[tuple[str, tuple[str, ...]], ...], int], ...] = ()
    idempotency_key: str = ""

    def of(self, worker: int) -> Load:
        """The part of one worker, which may be the high-water mark only."""
        return Load(self.table, *self.shards[worker], self.auto_increment)

    def check_of(self, worker: int, spread: Collection[str] = ()) -> CheckIngest:
        """The `CheckIngest` of a worker's part. `spread`: families whose keys must be unique among all workers."""
        files, rows = self.shards[worker]
        others = tuple(f for w, (some, _) in enumerate(self.shards) for f in some if w != worker and f[0] in spread)
        by_family = {name: tuple(p for n, paths in others if n == name for p in paths) for name, _ in others}
        return CheckIngest(0, self.table, files, rows, tuple(by_family.items()))


@dataclass(frozen=True)
class CheckIngest:
    """Check whether these files could be ingested into the table now; nothing is changed. Answer: `Done`, with the
    error of the `Ingest` (1062: a key exists already).

    `others`: files of other workers, with entries of UNIQUE indexes that must not exist at this worker.
    """

    request: int
    table: str
    files: tuple[tuple[str, tuple[str, ...]], ...]
    rows: int
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Bootstrap:
    """Begin a full node's first state from rows that Spark computed over a snapshot made for it
    (`Snapshot.node`). Answer: `Done`.

    `files`: Parquet files of the node's input rows, in the form of `dataflow/inspect/export.py`.
    """

    view: str
    node: int
    files: tuple[str, ...]
    request: int = 0


@dataclass(frozen=True)
class IndexRequest:
    """An index that Spark is to make: the answer to `Inspect` "awaited index". The files must hold the entries of the
    table's rows at a snapshot made after this answer. `ticket`: names the index in `IndexFiles` and in `Inspect`
    "index no longer awaited"."""

    ticket: str
    table: TableDef
    columns: tuple[int, ...]


@dataclass(frozen=True)
class IndexFiles:
    """Files of `storage.sst` with the entries of an awaited index. None: Spark cannot make them, so the worker
    builds the index.

    Answer: `Done`; with an error if the files are rejected and the worker builds the index itself.
    """

    ticket: str
    files: tuple[str, ...] | None
    request: int = 0
