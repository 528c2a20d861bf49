"""Checks whether a stopped store is whole: reads every block with its checksum, compares every index with its table.

The check makes one pass over each family, in slices.  It computes the entries that a table's rows make in each index
and compares them with the stored entries, by count and sums of hashes (`entries_hash`).  So memory is bounded by a
slice, whatever the size.  Only if they differ does it look up single entries, for examples.  Filter blocks are not
read: a damaged one costs time, never rows.

A store of a newer format is rejected (`StoreNewer`).

Keeps true: the check changes only the record of damaged tables (`damage`), which the next start obeys.  With `mend` it
also sets counters, and only to what the rows say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from rocksdict import AccessType, Options, Rdict, WriteBatch, WriteOptions

from noria.core.batch import Codes
from noria.core.keys import folded_texts
from noria.core.limits import NULL_CODE
from noria.core.types import TableDef
from noria.storage.commits.prepared import damage_in
from noria.storage.format.catalog import FIRST_WITHOUT_PICKLE, family_of, read_catalog
from noria.storage.format.encoding import EncodableColumn, key_parts_of_arrow, pack_keys, unpack_parts
from noria.storage.format.entries_hash import MultisetHash
from noria.storage.offline.snapshot import column_array
from noria.storage.rocks import reading, recovery
from noria.storage.rocks.damage import Damage, is_damage
from noria.storage.rocks.engine import DEFAULT, META
from noria.storage.rocks.errors import StoreError, StoreNewer, one_line, opening_error
from noria.storage.rocks.options import table_options
from noria.storage.rocks.reading import Family
from noria.storage.rocks.shared import RESIDUE, SHARED, names_in, part_of
from noria.storage.rocks.sync_mark import SyncMark
from noria.storage.tables.shards import owners
from noria.storage.tables.table import Counters, Index

_TABLE = re.compile(r"t\d+(k\d+)?")  # a family of rows (`catalog.family_of`)
SLICE_ROWS = 50_000
EXAMPLES = 3  # entries that are reported of each index that differs
LOADED = 1 << 62  # row numbers of a bulk load (`sst.bag_rows`) are above those of INSERT
Progress = Callable[[str, int, int], object]  # what is being read, entries done, entries in all (an estimate)


@dataclass
class StoreCheckReport:
    """The result of a check.

    findings: one sentence each, with the table, index or file; tables: name -> rows read; sums: of those rows
    (`add_rows`); misplaced: the tables with rows that other workers own.
    """

    findings: list[str] = field(default_factory=list)
    tables: dict[str, int] = field(default_factory=dict)
    indexes: int = 0
    sums: dict[str, MultisetHash] = field(default_factory=dict)
    misplaced: set[str] = field(default_factory=set)


class StoreCheck:
    """Checks one worker's store.  worker, workers: whose store it is, and how many there are.

    mend: after an accepted loss, set counters to what the rows say, so that no value is generated twice.
    """

    def __init__(self, path: str, progress: Progress, mend: bool = False, worker: int = 0, workers: int = 1):
        self.path, self.report = path, StoreCheckReport()
        self._worker, self._workers = worker, workers
        self._mend = mend
        self._counted: dict[bytes, Counters] = {}  # to be written
        self._progress = progress
        self._entries = self._done = 0
        self._mislaid: set[str] = set()  # tables with a row under a wrong key

    def run(self) -> StoreCheckReport:
        try:
            recovery.check_log(self.path, lambda: table_options())
            self._damage = Damage(self.path)
            names = [n for n in Rdict.list_cf(self.path, Options(raw_mode=True)) if n != DEFAULT]
            self._db = _read_only(self.path, names)
        except StoreNewer:
            raise
        except StoreError as e:
            self.report.findings.append(str(e))
            return self.report
        except Exception as e:  # rocksdict raises bare Exceptions
            self.report.findings.append(str(opening_error(self.path, e)))
            return self.report
        try:
            self._families = {n: self._db.get_column_family(n) for n in names}
            self._parts = list[str]()
            with suppress(Exception):  # a damaged block is found when the parts are read
                self._parts.extend(names_in(self._families[SHARED]) if SHARED in names else ())
            self._entries = sum(int(f.property_int_value("rocksdb.estimate-num-keys") or 0)
                                for f in self._families.values())
            self._tables()
        finally:
            self._families.clear()
            self._db.close()
        if self._counted:
            self._write_counters()
        return self.report

    def _write_counters(self) -> None:
        names = [n for n in Rdict.list_cf(self.path, Options(raw_mode=True)) if n != DEFAULT]
        options = recovery.tracked_options()
        options.set_paranoid_checks(False)
        db = Rdict(self.path, options, {n: table_options() for n in names})
        batch, synced = WriteBatch(raw_mode=True), WriteOptions()
        synced.sync = True
        for key, counters in self._counted.items():
            batch.put(key, counters.to_bytes(), db.get_column_family_handle(META))
        db.write(batch, synced)
        SyncMark(self.path, db.latest_sequence_number()).close()
        db.close()

    def _tables(self) -> None:
        try:
            stored = dict(self._read(META, "the catalog", "items"))
            _, tables, last_table_id = read_catalog(stored.get)
            indexes = [(key.decode()[len("index:"):], *json.loads(value)) for key, value in stored.items()
                       if key.startswith(b"index:")]
        except (ValueError, KeyError, TypeError) as e:
            self._find(f"the catalog of {self.path} cannot be read: {e}")
            return
        if b"ingest" in stored:
            self._find(f"a bulk load of {self.path} was interrupted: start the server, which finishes it, stop it and "
                       "check again")
            return
        older = int(stored.get(b"format", b"0")) < FIRST_WITHOUT_PICKLE
        self.report.findings += [f"{self.path}: {f}" for f in damage_in(stored, older)]
        self._unnamed(last_table_id)
        for table in tables:
            own = [Index(tuple(c), unique, name, family) for family, id, c, unique, name in indexes
                   if id == table.table_id]
            counters = stored.get(b"counters:" + family_of(table).encode())
            self._table(table, own, Counters.from_bytes(counters) if counters else Counters())
        self._forget_mended()

    def _unnamed(self, last_table_id: int) -> None:
        """Report rows of tables newer than the catalog: their CREATE TABLE was lost with the log."""
        for name in (*self._families, *self._parts):
            unknown = _TABLE.fullmatch(name) is not None and int(name[1:].partition("k")[0]) > last_table_id
            if unknown and next(self._slices(name, f"column family {name}", "keys"), None):
                self._find(f"column family {name} has rows of a table that the catalog does not know, since its CREATE "
                           "TABLE was lost with the write-ahead log: the next start drops them; bring the log back or "
                           "restore a backup (noria restore)")

    def _find(self, text: str) -> None:
        self.report.findings.append(text)

    # ---------------------------------------------------------------- reading
    def _read(self, family: str, what: str, kind: str = "items") -> Iterator[Any]:
        for some in self._slices(family, what, kind):
            yield from some

    def _slices(self, family: str, what: str, kind: str = "items") -> Iterator[list[Any]]:
        """All entries of a family in slices; report and remember what cannot be read."""
        part = part_of(self._families, family)
        if part is None:
            self._find(f"{what} has no column family {family}: restore a backup")
            return
        try:
            for some in reading.slices(part, SLICE_ROWS, kind):
                self._done += len(some)
                self._progress(what, self._done, max(self._entries, self._done))
                yield some
        except Exception as e:
            text = one_line(e)
            e.__traceback__ = None
            if not is_damage(text):
                raise
            self._find(f"{what}: a file cannot be read: {text}")
            if family != META:
                self._damage.note(family, text)
            return
        self._damage.forget(family)

    def _forget_mended(self) -> None:
        """Forget damage of the shared family if all of it can be read."""
        noted = {SHARED, RESIDUE} & self._damage.families.keys()
        if noted and SHARED in self._families:
            with suppress(Exception):
                for _ in reading.slices(self._families[SHARED], SLICE_ROWS, "keys"):
                    pass
                for name in noted:
                    self._damage.forget(name)

    def _part(self, family: str) -> Family:
        found = part_of(self._families, family)
        assert found is not None
        return found

    # ---------------------------------------------------------------- a table
    def _table(self, table: TableDef, indexes: list[Index], counters: Counters) -> None:
        what, before = f"table {table.name}", len(self.report.findings)
        wanted = [MultisetHash() for _ in indexes]
        rows, top, last_row = MultisetHash(), 0, 0
        elsewhere: dict[int, tuple[int, str]] = {}
        for some in self._slices(family_of(table), what):
            keys, values = [k for k, _ in some], [v for _, v in some]
            add_rows(rows, table, keys, values)
            for chosen, parts in unpack_parts(values, [c.type for c in table.columns]):
                mine = keys if isinstance(chosen, slice) else [keys[r] for r in chosen.tolist()]
                self._keys(table, parts, mine)
                self._places(table, parts, len(mine), elsewhere)
                for index, sums in zip(indexes, wanted, strict=True):
                    sums.add(entries_of(table, index, parts, mine), mine)
                if table.auto_increment is not None and table.auto_increment < len(parts):
                    top = max(top, int(parts[table.auto_increment].max()))
            if not table.primary_key:
                last_row = max([last_row, *(n for k in keys if (n := int.from_bytes(k, "big") - 2**63) < LOADED)])
        self.report.tables[table.name], self.report.sums[table.name] = rows.count, rows
        if elsewhere:
            self.report.misplaced.add(table.name)
            self._find(f"{what}: {sum(n for n, _ in elsewhere.values()):,} rows belong to other workers: " + "; ".join(
                f"{n:,} to worker {w}, as that with {key}" for w, (n, key) in sorted(elsewhere.items())))
        if len(self.report.findings) == before:
            self._counters(table, Counters(rows.count, top, last_row), counters)
        for index, sums in zip(indexes, wanted, strict=True):
            self._index(table, index, sums, len(self.report.findings) == before)

    def _counters(self, table: TableDef, found: Counters, counters: Counters) -> None:
        what, before = f"table {table.name}", len(self.report.findings)
        if found.rows != counters.rows:
            self._find(f"{what} has {found.rows:,} rows, its counter says {counters.rows:,}")
        if found.auto_increment > counters.auto_increment:
            self._find(f"{what} has the AUTO_INCREMENT value {found.auto_increment:,}, above its mark "
                       f"{counters.auto_increment:,}: the next rows would get values that are taken")
        if found.row_number > counters.row_number:
            self._find(f"{what} has row number {found.row_number:,}, above its mark {counters.row_number:,}: the next "
                       "rows would replace rows that are there")
        if self._mend and len(self.report.findings) > before:
            del self.report.findings[before:]
            self._counted[b"counters:" + family_of(table).encode()] = Counters(
                found.rows, max(found.auto_increment, counters.auto_increment),
                max(found.row_number, counters.row_number))

    def _keys(self, table: TableDef, parts: list[EncodableColumn], keys: list[bytes]) -> None:
        """Report a row that is stored under another key than its columns say."""
        if not table.primary_key or max(table.primary_key) >= len(parts):
            return
        wanted = pack_keys(_key_parts(table, table.primary_key, parts, len(keys)))
        if wanted != keys and table.name not in self._mislaid:
            self._mislaid.add(table.name)
            bad = next(k for k, w in zip(keys, wanted, strict=True) if k != w)
            self._find(f"table {table.name}: a row lies under the key {bad.hex()}, which is not that of its columns")

    def _places(self, table: TableDef, parts: list[EncodableColumn], rows: int,
                elsewhere: dict[int, tuple[int, str]]) -> None:
        """Count the rows that other workers own, by worker, with the values of one such row."""
        whose = owners_of(table, parts, rows, self._workers) if self._workers > 1 else None
        if whose is None or (whose == self._worker).all():
            return
        for worker in set(np.unique(whose).tolist()) - {self._worker}:
            at = np.flatnonzero(whose == worker)
            count, example = elsewhere.get(worker, (0, ""))
            elsewhere[worker] = count + len(at), example or _shown(table, parts, rows, int(at[0]))

    # ---------------------------------------------------------------- an index
    def _index(self, table: TableDef, index: Index, wanted: MultisetHash, compare: bool) -> None:
        what, before = f"index {index.name or index.family} of table {table.name}", len(self.report.findings)
        self.report.indexes += 1
        held = MultisetHash()
        for some in self._slices(index.family, what):
            held.add([k for k, _ in some], [v for _, v in some])
        if not compare or len(self.report.findings) > before or held == wanted:
            return
        self._find(f"{what} differs from the table: it has {held.count:,} entries, the rows make {wanted.count:,}"
                   + "".join(f"; {e}" for e in self._examples(table, index)))

    def _examples(self, table: TableDef, index: Index) -> list[str]:
        """A few entries without a row, and rows without an entry."""
        found: list[str] = []
        for some in self._slices(family_of(table), f"table {table.name}"):
            keys = [k for k, _ in some]
            for chosen, parts in unpack_parts([v for _, v in some], [c.type for c in table.columns]):
                mine = keys if isinstance(chosen, slice) else [keys[r] for r in chosen.tolist()]
                wanted = entries_of(table, index, parts, mine)
                held = self._part(index.family).get(wanted)
                found += [f"row {k.hex()} has no entry" for k, h in zip(mine, held, strict=True) if h != k]
                if len(found) >= EXAMPLES:
                    break
        del found[EXAMPLES:]
        lost: list[str] = []
        for some in self._slices(index.family, "the index"):
            rows = self._part(family_of(table)).get([v for _, v in some])
            wrong = [(k, v, r) for (k, v), r in zip(some, rows, strict=True)
                     if r is None or not _makes(table, index, k, v, r)]
            lost += [f"entry {k.hex()} names row {v.hex()}, which {'is not there' if r is None else 'has other values'}"
                     for k, v, r in wrong]
            if len(lost) >= EXAMPLES:
                break
        return found + lost[:EXAMPLES]


def _makes(table: TableDef, index: Index, entry: bytes, key: bytes, row: bytes) -> bool:
    """True if the row makes this entry."""
    (_, parts), = unpack_parts([row], [c.type for c in table.columns])
    return entries_of(table, index, parts, [key]) == [entry]


def add_rows(sums: MultisetHash, table: TableDef, keys: list[bytes], values: list[bytes]) -> None:
    """Add rows to the sums; for a table without a primary key, leave out their row numbers."""
    sums.add(values, keys if table.primary_key else [b""] * len(values))


def entries_of(table: TableDef, index: Index, parts: Sequence[EncodableColumn], keys: list[bytes]) -> list[bytes]:
    """The entries that rows make in an index, computed from their packed columns."""
    columns = _key_parts(table, index.columns, parts, len(keys))
    prefixes = pack_keys(columns)
    if not index.unique:
        return list(map(add, prefixes, keys))
    nulls = np.zeros(len(keys), np.bool_)
    for part in columns:
        nulls |= part == NULL_CODE if isinstance(part, np.ndarray) else part.is_null().to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(nulls).tolist():
        prefixes[row] += keys[row]
    return prefixes


def owners_of(table: TableDef, parts: Sequence[EncodableColumn], rows: int, workers: int) -> Codes | None:
    """The worker that owns each packed row; None if any worker may store them."""
    columns = {c: _contiguous(column_array(table, c, parts, rows)) for c in table.sharded_by or ()}
    return owners(table, columns, rows, workers)


def _shown(table: TableDef, parts: Sequence[EncodableColumn], rows: int, at: int) -> str:
    """The values of a row that determine its worker, and its key."""
    columns = dict.fromkeys([*(table.sharded_by or ()), *table.primary_key]) or range(len(table.columns))
    return ", ".join(f"{table.columns[c].name} {_contiguous(column_array(table, c, parts, rows))[at].as_py()!r}"
                     for c in columns)


def _key_parts(table: TableDef, columns: Sequence[int], parts: Sequence[EncodableColumn],
               rows: int) -> list[EncodableColumn]:
    """Columns as keys hold them: text folded; a column that the rows lack has its default."""
    made: list[EncodableColumn] = []
    for c in columns:
        type = table.columns[c].type
        if c >= len(parts):
            made += key_parts_of_arrow([_contiguous(column_array(table, c, parts, rows))], [type])
        else:
            made.append(folded_texts(parts[c]) if type.folds else parts[c])
    return made


def _contiguous(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _read_only(path: str, names: list[str]) -> Rdict:
    options = table_options(recovery.tracked_options())
    options.set_paranoid_checks(False)  # the log was checked; a damaged table file is found when it is read
    options.set_keep_log_file_num(2)
    return Rdict(path, options, {n: table_options() for n in names}, AccessType.read_only(False))
