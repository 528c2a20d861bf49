"""The family `meta`: format version, fence, catalog, indexes, counters and recent results, one key each.

    format              the version of everything on disk
    fence               the latest owner's epoch
    catalog             JSON: the program's statements, the ids of its tables, the last table id
    table:<id>          JSON: a table; only a change of it writes it
    index:<family>      JSON: an index that is complete
    counters:<family>   rows, AUTO_INCREMENT counter and row number of a table (`table.Counters`)
    done:<slot>         JSON: (epoch, seq) and results of one of the last writes (`catalog.CommittedWrite`)
    history:<version>   JSON: one of the last changes of the program (`packets.ChangeOrigin`); versions have ten
    digits to sort ingest              JSON: a bulk load that is being ingested (`bulk`)

`check_format` and `check_fence` decide whether a process may use the directory; `sweep` drops what a crash left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rocksdict import WriteBatch

from noria.core.limits import HISTORY_CHANGES, HISTORY_CHARACTERS
from noria.core.types import TableDef
from noria.dataflow.messages.packets import ChangeOrigin, RecordedChange
from noria.storage.format import catalog
from noria.storage.format.catalog import (
    CATALOG,
    FIRST_WITHOUT_PICKLE,
    FORMAT,
    TABLE,
    CommittedWrite,
    family_of,
)
from noria.storage.rocks import recovery
from noria.storage.rocks.engine import DELTAS, META, RocksEngine
from noria.storage.rocks.errors import StoreDamaged, StoreError, StoreFenced, refuse_newer
from noria.storage.tables.table import Counters, Index, StoredTable

RECENT_RESULTS = 1024  # so many writes may be unacknowledged at a time and still be resent
_FORMAT, FENCE = recovery.FORMAT_KEY, b"fence"
_INDEX, _COUNTERS, _DONE, _HISTORY = b"index:", b"counters:", b"done:", b"history:"


def put(engine: RocksEngine, batch: WriteBatch, key: bytes, value: bytes) -> None:
    batch.put(key, value, engine.handle(META))


def get(engine: RocksEngine, key: bytes) -> bytes | None:
    value: bytes | None = engine.get(META, key)
    return value


# ------------------------------------------------------------------ the right to use the directory
def check_format(engine: RocksEngine, path: str, renew: Callable[[RocksEngine, WriteBatch], None]) -> None:
    """Check the format version, and upgrade an older one.  renew: rewrites entries whose format changed."""
    stored = get(engine, _FORMAT)
    if stored is None or (stored.isdigit() and int(stored) < FORMAT):
        if stored is None and engine.families() != [META]:
            raise StoreError(f"the data directory {path} holds a RocksDB database that is not Noria's: "
                             "give another --data-dir")
        batch = WriteBatch(raw_mode=True)
        if stored is not None and int(stored) < FIRST_WITHOUT_PICKLE:
            renew(engine, batch)
        put(engine, batch, _FORMAT, str(FORMAT).encode())
        engine.commit(batch)
    elif not stored.isdigit():
        raise StoreDamaged(f"the data directory {path} is damaged: its format version reads {stored!r}; "
                           "restore it from a backup")
    refuse_newer(path, stored, FORMAT)


def check_fence(engine: RocksEngine, path: str, fence: int | None) -> None:
    stored = int(get(engine, FENCE) or b"0")
    if fence is None or fence == stored:
        return
    if fence < stored:
        raise StoreFenced(f"the data directory {path} belongs to epoch {stored}, this process is of epoch {fence}")
    batch = WriteBatch(raw_mode=True)
    put(engine, batch, FENCE, str(fence).encode())
    engine.commit(batch)


# ------------------------------------------------------------------ the catalog
def with_id(table: TableDef, id: int) -> TableDef:
    return replace(table, table_id=id)


def read_catalog(engine: RocksEngine) -> tuple[tuple[str, ...], list[TableDef], int]:
    """The program's statements, its tables, and the greatest table id ever used."""
    return catalog.read_catalog(lambda key: get(engine, key))


StoredTables = dict[int, tuple[TableDef, tuple[Index, ...], Counters]]  # by table id


class StoredCatalog:
    """What is stored of each table, so that a change of the program writes only what it changes."""

    def __init__(self) -> None:
        self._tables: StoredTables = {}

    def put(self, engine: RocksEngine, batch: WriteBatch, recipe: Sequence[str], tables: Sequence[StoredTable],
            last_table_id: int) -> StoredTables:
        """Add the catalog to a batch.  Returns what `committed` takes after the commit."""
        batch.put(CATALOG, catalog.catalog_to_bytes(recipe, (t.definition.table_id for t in tables), last_table_id),
                  engine.handle(META))
        now = {t.definition.table_id: (t.definition, tuple(t.indexes), t.counters) for t in tables}
        for table in tables:
            definition, indexes, counters = now[table.definition.table_id]
            was = self._tables.get(definition.table_id)
            if was is None or was[0] is not definition:
                put(engine, batch, catalog.table_key(definition.table_id), catalog.table_to_bytes(definition))
            for index in indexes if was is None or was[1] != indexes else ():
                put_index(engine, batch, table, index)
            if was is None or was[0] is not definition or was[2] is not counters:
                put_counters(engine, batch, definition, counters)
        for id in self._tables.keys() - now.keys():
            batch.delete(catalog.table_key(id), engine.handle(META))
        return now

    def committed(self, now: StoredTables) -> None:
        self._tables = now


def program_of(engine: RocksEngine) -> list[tuple[bytes, bytes]]:
    """The entries that are the same on every worker: the catalog with its history and its indexes."""
    return [item for prefix in (CATALOG, TABLE, _INDEX, _HISTORY) for item in engine.items_with_prefix(META, prefix)]


def put_note(engine: RocksEngine, batch: WriteBatch, version: int, note: ChangeOrigin) -> None:
    """Record the change that leads to this version of the program; drop the oldest record."""
    data = {"at": note.at, "who": note.who, "text": note.text[:HISTORY_CHARACTERS]}
    put(engine, batch, _history_key(version), json.dumps(data).encode())
    if version > HISTORY_CHANGES:
        batch.delete(_history_key(version - HISTORY_CHANGES), engine.handle(META))


def _history_key(version: int) -> bytes:
    return _HISTORY + b"%010d" % version


def read_history(engine: RocksEngine) -> tuple[RecordedChange, ...]:
    found = []
    for key, value in engine.items_with_prefix(META, _HISTORY):
        data = json.loads(value)
        found.append(RecordedChange(int(key[len(_HISTORY) :]), ChangeOrigin(data["at"], data["who"], data["text"])))
    return tuple(found)


def put_index(engine: RocksEngine, batch: WriteBatch, table: StoredTable, index: Index) -> None:
    data = [table.definition.table_id, list(index.columns), index.unique, index.name]
    put(engine, batch, _INDEX + index.family.encode(), json.dumps(data).encode())


def forget_index(engine: RocksEngine, batch: WriteBatch, index: Index) -> None:
    batch.delete(_INDEX + index.family.encode(), engine.handle(META))


def read_indexes(engine: RocksEngine) -> list[tuple[int, Index]]:
    """Every complete index and the id of its table."""
    found = []
    for key, value in engine.items_with_prefix(META, _INDEX):
        table_id, columns, unique, name = json.loads(value)
        found.append((table_id, Index(tuple(columns), unique, name, key[len(_INDEX) :].decode())))
    return found


def forget_table(engine: RocksEngine, batch: WriteBatch, table: StoredTable) -> None:
    handle = engine.handle(META)
    batch.delete(_COUNTERS + table.family.encode(), handle)
    for index in table.indexes:
        batch.delete(_INDEX + index.family.encode(), handle)


def sweep(engine: RocksEngine, tables: Iterable[StoredTable]) -> None:
    """Drop what a crash left of uncommitted or dropped tables and indexes."""
    known = {META, DELTAS} | {family for t in tables for family in (t.family, *(i.family for i in t.indexes))}
    batch = WriteBatch(raw_mode=True)
    for prefix in (_INDEX, _COUNTERS):
        for key, _ in engine.items_with_prefix(META, prefix):
            if key[len(prefix) :].decode() not in known:
                batch.delete(key, engine.handle(META))
    if len(batch):
        engine.commit(batch)
    for family in engine.families():
        if family not in known:
            engine.drop_family(family)


# ------------------------------------------------------------------ counters and results
def put_counters(engine: RocksEngine, batch: WriteBatch, table: TableDef, counters: Counters) -> None:
    put(engine, batch, _COUNTERS + family_of(table).encode(), counters.to_bytes())


def read_counters(engine: RocksEngine, table: TableDef) -> Counters:
    stored = get(engine, _COUNTERS + family_of(table).encode())
    return Counters() if stored is None else Counters.from_bytes(stored)


def has_counters(engine: RocksEngine, table: TableDef) -> bool:
    return get(engine, _COUNTERS + family_of(table).encode()) is not None


def put_done(engine: RocksEngine, batch: WriteBatch, done: CommittedWrite) -> None:
    put(engine, batch, _DONE + str(done.seq % RECENT_RESULTS).encode(), done.to_bytes())


def read_done(engine: RocksEngine) -> dict[int, CommittedWrite]:
    """Recent writes by slot: seq modulo RECENT_RESULTS."""
    some = [CommittedWrite.from_bytes(value) for _, value in engine.items_with_prefix(META, _DONE)]
    return {done.seq % RECENT_RESULTS: done for done in some}
