"""Ingests the SST files that Spark's tasks wrote: all of them or none, even if the worker crashes.

`stage` checks the files and links them into the data directory.  `take` commits an intent, lets RocksDB move the
files into their families, and commits the counters and (epoch, seq) together with the removal of the intent.  A crash
before the intent leaves nothing behind.  After a crash past the intent, the next start ingests the remaining files.
In a group of several workers, each worker keeps its files in a directory of the group until the group is decided
(`load_commits.py`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from rocksdict import WriteBatch

from noria.core.errors import SqlError
from noria.core.errors.codes import DUP_ENTRY, UNKNOWN_ERROR
from noria.core.statements import Load, WriteResult
from noria.storage.format.catalog import CommittedWrite
from noria.storage.rocks.disk import sync
from noria.storage.rocks.engine import META, RocksEngine
from noria.storage.rocks.errors import StoreError
from noria.storage.tables import meta
from noria.storage.tables.sst import SstFile, describe
from noria.storage.tables.table import Counters, Index, StoredTable

_INTENT = b"ingest"
_DIRECTORY = "ingest"  # under the data directory
_PROBE_ROWS = 10_000
_PROBE, _OTHER = "probe", "probe.other"  # temporary families in which files are checked before they are ingested


More = Callable[[WriteBatch], object]  # adds further entries to a commit


def nothing(batch: WriteBatch) -> None:
    """Add nothing to the commit."""


def stage(engine: RocksEngine, table: StoredTable, load: Load, group: str = "") -> dict[str, list[str]]:
    """Check the files and link (or copy) them durably into the data directory; return their names by family.

    group: the group whose directory holds them; without one they are to be ingested at once.
    """
    described = check(engine, table, {family: list(paths) for family, paths in load.files}, load.rows)
    return _stage(engine, described, _directory(engine, group))


def missing(engine: RocksEngine, load: Load, group: str) -> str | None:
    """The path of a file that was staged for the group and no longer exists, or None."""
    names = (os.path.join(_directory(engine, group), name) for _, some in load.files for name in some)
    return next((path for path in names if not os.path.exists(path)), None)


def unstage(engine: RocksEngine, group: str) -> None:
    """Delete the files that were staged for the group."""
    shutil.rmtree(_directory(engine, group), ignore_errors=True)


def take(engine: RocksEngine, table: StoredTable, load: Load, staged: dict[str, list[str]], done: CommittedWrite,
         group: str, more: More
         ) -> None:
    """Ingest staged files.  The first commit, which also holds what `more` adds, makes the load durable.

    Raises SqlError if nothing was loaded, StoreError if the load was interrupted after its first commit.
    """
    counters = table.counters
    after = Counters(counters.rows + load.rows, max(counters.auto_increment, load.auto_increment), counters.row_number)
    intent = {"table": table.name, "files": staged, "counters": list(after), "epoch": done.epoch, "seq": done.seq,
              "group": group, "affected": [r.affected for r in done.results]}
    for family in staged:
        engine.separate(family)
    batch = WriteBatch(raw_mode=True)
    meta.put(engine, batch, _INTENT, json.dumps(intent).encode())
    more(batch)
    engine.commit(batch, ballast=bool(group))  # from here on the load is decided
    try:
        _take(engine, table, intent)
    except SqlError as e:
        raise StoreError(f"a load of table {table.name} was interrupted ({e}): start the worker again, "
                         "which finishes it") from e


def check(engine: RocksEngine, table: StoredTable, files: dict[str, list[str]], rows: int,
          others: dict[str, list[str]] | None = None) -> dict[str, list[SstFile]]:
    """Check the files and describe them by family.  Raises SqlError with the reason if they cannot be ingested.

    others: the files of other workers, for families whose keys must be unique among all workers.
    """
    try:
        described = _checked(engine, table, files, rows)
        for family, paths in (others or {}).items():
            _check_apart(engine, table, family, described.get(family, []), [describe(p) for p in paths])
        return described
    except StoreError as bad:  # the load is at fault; the store is unchanged
        raise SqlError(*UNKNOWN_ERROR, str(bad)) from bad


def _checked(engine: RocksEngine, table: StoredTable, files: dict[str, list[str]], rows: int) -> dict[str,
                                                                                                      list[SstFile]]:
    described = {family: [describe(p) for p in paths] for family, paths in files.items() if paths}
    _check_families(table, described)
    _check_counts(table, described, rows)
    engine.check_space(sum(f.nbytes for some in described.values() for f in some))
    for family, some in described.items():
        _check_disjoint(engine, table, family, some)
    return described


def finish_interrupted(engine: RocksEngine, tables: dict[str, StoredTable],
                       groups: Collection[str] = ()) -> CommittedWrite | None:
    """At a start, finish a load that a crash interrupted after its intent; delete other staged files.

    groups: the prepared groups, whose staged files are kept.
    """
    stored = meta.get(engine, _INTENT)
    if stored is None:
        kept = {_directory(engine, group) for group in groups}
        for name in os.listdir(engine.path):
            path = os.path.join(engine.path, name)
            if (name == _DIRECTORY or name.startswith(f"{_DIRECTORY}-")) and path not in kept:
                shutil.rmtree(path)
        return None
    intent = json.loads(stored)
    return _take(engine, tables[intent["table"]], intent)


def _take(engine: RocksEngine, table: StoredTable, intent: dict[str, Any]) -> CommittedWrite:
    directory = _directory(engine, intent.get("group", ""))
    for family, paths in intent["files"].items():
        left = [p for p in (os.path.join(directory, n) for n in paths) if os.path.exists(p)]
        if left:
            engine.ingest(family, left)
    counters = Counters(*intent["counters"])
    done = CommittedWrite(intent["epoch"], intent["seq"],
                          tuple(WriteResult(affected=n) for n in intent.get("affected", ())))
    batch = WriteBatch(raw_mode=True)
    meta.put_counters(engine, batch, table.definition, counters)
    meta.put_done(engine, batch, done)
    batch.delete(_INTENT, engine.handle(META))
    engine.commit(batch)
    table.counters = counters
    shutil.rmtree(directory, ignore_errors=True)
    return done


def _directory(engine: RocksEngine, group: str) -> str:
    return os.path.join(engine.path, f"{_DIRECTORY}-{group}" if group else _DIRECTORY)


def _stage(engine: RocksEngine, files: dict[str, list[SstFile]], directory: str) -> dict[str, list[str]]:
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    staged: dict[str, list[str]] = {}
    for family, some in files.items():
        for number, file in enumerate(some):
            name = f"{family}.{number}.sst"
            target = os.path.join(directory, name)
            try:
                os.link(file.path, target)
            except OSError:  # another file system
                shutil.copyfile(file.path, target)
            sync(target)
            staged.setdefault(family, []).append(name)
    sync(directory)
    sync(engine.path)
    return staged


# ------------------------------------------------------------------ checks: nothing changes before all of them hold
def _check_families(table: StoredTable, files: dict[str, list[SstFile]]) -> None:
    wanted = {table.family, *(i.family for i in table.indexes)}
    if files and set(files) != wanted:
        raise StoreError(f"a load of table {table.name} must bring files for {sorted(wanted)}, "
                         f"it brings {sorted(files)}: load again")


def _check_counts(table: StoredTable, files: dict[str, list[SstFile]], rows: int) -> None:
    for family, some in files.items():
        held = sum(f.rows for f in some)
        if held != rows:
            raise StoreError(f"a load of table {table.name} says {rows} rows, its files of {family} hold {held}: "
                             "load again")


def _check_disjoint(engine: RocksEngine, table: StoredTable, family: str, files: list[SstFile]) -> None:
    """Raise an error if a key occurs twice within the load or is already stored."""
    ordered = sorted(files, key=lambda f: f.first)
    for before, file in pairwise(ordered):
        if file.first <= before.last:
            raise StoreError(f"files {before.path} and {file.path} of {family} overlap: sort the load by key")
    if family not in {table.family, *(i.family for i in table.unique_indexes)}:
        return  # entries of an index that is not UNIQUE end with the row's key
    for file in ordered:
        if engine.any_between(family, file.first, file.last):
            _check_keys(engine, table, family, file)


def _check_keys(engine: RocksEngine, table: StoredTable, family: str, file: SstFile) -> None:
    """Look up each key of a file whose range contains stored keys."""
    with _probing(engine, _PROBE, [file]):
        for some in engine.slices(_PROBE, _PROBE_ROWS, "keys"):
            _check_absent(engine, table, family, some)


def _check_apart(engine: RocksEngine, table: StoredTable, family: str, mine: list[SstFile],
                 others: list[SstFile]) -> None:
    """Raise an error if a key of the other workers' files is stored here or is in this worker's files."""
    for file in others:
        if engine.any_between(family, file.first, file.last):
            _check_keys(engine, table, family, file)
    near = [o for o in others if any(o.first <= m.last and m.first <= o.last for m in mine)]
    if not near:
        return
    with _probing(engine, _PROBE, mine):
        for file in near:
            with _probing(engine, _OTHER, [file]):
                for some in engine.slices(_OTHER, _PROBE_ROWS, "keys"):
                    if any(v is not None for v in engine.get(_PROBE, some)):
                        raise _repeated(table, family)


def _repeated(table: StoredTable, family: str) -> SqlError:
    index = next(i for i in table.indexes if i.family == family)
    names = ", ".join(table.definition.columns[c].name for c in index.columns)
    return SqlError(*DUP_ENTRY, f"Rows of the files repeat a key of the UNIQUE index on {table.name} ({names}); "
                                "nothing was loaded: remove them")


@contextmanager
def _probing(engine: RocksEngine, family: str, files: list[SstFile]) -> Iterator[None]:
    """Ingest copies of disjoint files into a temporary family, which is dropped afterwards."""
    copies = [os.path.join(engine.path, f"{family}.{n}.sst") for n in range(len(files))]
    engine.create_family(family)
    try:
        for file, copy in zip(files, copies, strict=True):
            shutil.copyfile(file.path, copy)
        engine.ingest(family, copies)
        yield
    finally:
        engine.drop_family(family)


def _check_absent(engine: RocksEngine, table: StoredTable, family: str, keys: list[bytes]) -> None:
    held = engine.get(family, keys)
    taken = next((k for k, v in zip(keys, held, strict=True) if v is not None), None)
    if taken is not None:
        raise _duplicate(engine, table, family, taken)


def _duplicate(engine: RocksEngine, table: StoredTable, family: str, key: bytes) -> Exception:
    index: Index | None = next((i for i in table.indexes if i.family == family), None)
    row_key = key if index is None else engine.get(family, key)
    stored = None if row_key is None else engine.get(table.family, row_key)
    if stored is None:
        return StoreError(f"index {family} of table {table.name} names a row that is not there: rebuild it")
    return table.duplicate(index, table.codes([stored])[:, 0])
