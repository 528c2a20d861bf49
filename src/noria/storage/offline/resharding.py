"""Converts a data directory to another number of workers: builds new stores beside the old ones, then swaps them.

    DATA/reshard/plan           from how many workers to how many, and the last change of each old store
    DATA/reshard/old            a checkpoint of the old stores, which shares their files
    DATA/reshard/new/worker-<w> the new stores; tables that are whole in them are kept when `noria reshard` runs again
    DATA/reshard/switch         the new stores are verified and valid: written in one step; after that any process
                                that finds this file only moves them into place
    DATA/before-reshard         the old stores after the switch, a data directory of its own

Keeps true: until `switch` exists the old stores are valid, and their rows are unchanged.  A table is whole in a new
store when its counters exist; they are written in the commit after its files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path

from rocksdict import WriteBatch

from noria.core.plain_symbols import PlainSymbols
from noria.core.types import TableDef
from noria.storage.commits import prepared
from noria.storage.format.catalog import family_of
from noria.storage.format.entries_hash import MultisetHash
from noria.storage.offline.check import StoreCheckReport
from noria.storage.rocks.disk import sync
from noria.storage.rocks.engine import META, RocksEngine
from noria.storage.rocks.errors import StoreError
from noria.storage.rocks.options import RocksMemory
from noria.storage.store import RocksStore
from noria.storage.tables import meta
from noria.storage.tables.shards import BEFORE, RESHARD, SWITCH, WORKERS, bases, note_workers, shard_path
from noria.storage.tables.sst import SstFile
from noria.storage.tables.table import Counters, Index

_PLAN, _OLD, _NEW = "plan", "old", "new"
_SUMS = b"resharded:"  # in `meta` of the first new store, by family: sums of a table's rows in the old stores
ROOM = 2.2  # disk needed, as a multiple of the old stores: the new stores, and the files of one table


@dataclass(frozen=True)
class ReshardingPlan:
    """A conversion.  at: for each old store, the (epoch, seq) of its last change when its checkpoint was made."""

    before: int
    after: int
    at: list[list[int]]


def place(data_dir: Path) -> Path:
    return data_dir / RESHARD


# ------------------------------------------------------------------ the old stores
def begin(data_dir: Path, workers: int, epoch: int) -> ReshardingPlan:
    """Decide undecided groups in the old stores and make a checkpoint of them.

    What an earlier run has built is kept if nothing was written since.  Raises StoreError if it cannot be done.
    """
    found = bases(data_dir)
    with ExitStack() as stack:
        stores = [RocksStore(str(base), PlainSymbols()) for base in found]
        for store in stores:
            stack.callback(store.close)
        _resolve_prepared(stores, epoch)
        _alike(stores, len(found))
        plan = ReshardingPlan(len(found), workers, [list(s.applied()) for s in stores])
        at = place(data_dir)
        if _read(at / _PLAN) == plan:
            return plan
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir(mode=0o700)
        if len(stores) > 1:
            (at / _OLD).mkdir()
        for w, store in enumerate(stores):
            store.checkpoint(shard_path(str(at / _OLD), w, len(stores)))
    try:
        _refuse_little_room(at / _OLD)
    except StoreError:
        shutil.rmtree(at)
        raise
    _write(at / _PLAN, plan)
    return plan


def _resolve_prepared(stores: list[RocksStore], epoch: int) -> None:
    """Decide prepared groups as a start would: each as its coordinator's store has it."""
    decided = [set(store.groups()[1]) for store in stores]
    for store in stores:
        for seq, (name, coordinator) in enumerate(store.groups()[0], 1):
            results, _ = store.decide(name, name in decided[coordinator], epoch, seq)
            if (error := next((r.error for r in results if r.error is not None), None)) is not None:
                raise error


def _alike(stores: list[RocksStore], workers: int) -> None:
    """Raise StoreError if the catalogs differ, because a change of the program was interrupted."""
    if any(s.tables() != stores[0].tables() for s in stores[1:]):
        raise StoreError("the workers' catalogs differ, since a change of the program was interrupted: start the "
                         f"server once with --workers {workers}, which completes it, and stop it again")


def _refuse_little_room(old: Path) -> None:
    needed = int(ROOM * sum(p.stat().st_size for p in old.rglob("*") if p.is_file()))
    disk = os.statvfs(old)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        raise StoreError(f"{old.parent} has {free / 1e9:,.1f} GB free, and about {needed / 1e9:,.1f} GB are needed for "
                         "the new stores and a table on its way to them: make room; nothing was changed")


def _read(path: Path) -> ReshardingPlan | None:
    try:
        return ReshardingPlan(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path, plan: ReshardingPlan) -> None:
    building = path.with_name(f".{path.name}")
    building.write_text(json.dumps(asdict(plan)))
    sync(building)
    building.rename(path)
    sync(path.parent)


# ------------------------------------------------------------------ the new stores
class NewStores:
    """The new stores, open while tables are added.  tables: all of them, with their indexes."""

    def __init__(self, data_dir: Path, workers: int):
        self.checkpoint = str(place(data_dir) / _OLD)
        old = RocksEngine(str(bases(data_dir)[0]), RocksMemory())
        try:
            self._program = meta.program_of(old)
            _, definitions, _ = meta.read_catalog(old)
            indexes = meta.read_indexes(old)
        finally:
            old.close()
        self.tables = [(t, [i for id, i in indexes if id == t.table_id]) for t in definitions]
        self._first_ids = _auto_increments(data_dir, definitions)
        done_once = _done_once(data_dir)
        self._engines: list[RocksEngine] = []
        try:
            for base in new_bases(data_dir, workers):
                Path(base).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                engine = RocksEngine(base, RocksMemory())
                self._engines.append(engine)
                meta.check_format(engine, base, prepared.renew)
                batch = WriteBatch(raw_mode=True)
                for key, value in self._program:
                    meta.put(engine, batch, key, value)
                for key in done_once:
                    meta.put(engine, batch, key, b"")
                engine.commit(batch)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for engine in self._engines:
            engine.close()
        self._engines = []

    def has(self, table: TableDef) -> bool:
        """True if the table is whole in all new stores."""
        return all(meta.has_counters(e, table) for e in self._engines)

    def take(self, table: TableDef, indexes: Iterable[Index], files: dict[tuple[int, str], list[SstFile]],
             row_number: int, sums: MultisetHash) -> None:
        """Add all rows of a table.  files: by worker and family; sums: of the rows in the old stores."""
        families = [family_of(table), *(i.family for i in indexes)]
        for w, engine in enumerate(self._engines):
            for family in families:
                some = [f.path for f in files.get((w, family), [])]
                engine.create_family(family, rows=None if some else 0)
                if some:
                    engine.ingest(family, some)
            rows = sum(f.rows for f in files.get((w, families[0]), []))
            batch = WriteBatch(raw_mode=True)
            meta.put_counters(engine, batch, table, Counters(rows, self._first_ids[table.name], row_number))
            if w == 0:
                meta.put(engine, batch, _SUMS + families[0].encode(), json.dumps(asdict(sums)).encode())
            engine.commit(batch)

    def complete(self) -> dict[str, MultisetHash]:
        """Flush the new stores, which have all tables; return the sums of the old rows by table name."""
        sums = dict(self._engines[0].items_with_prefix(META, _SUMS))
        found = {t.name: MultisetHash(**json.loads(sums[_SUMS + family_of(t).encode()])) for t, _ in self.tables}
        for engine in self._engines:
            engine.flush()
        return found


def _done_once(data_dir: Path) -> set[bytes]:
    """The statements done once on any old worker; stream writers and followers need them to continue."""
    found: set[bytes] = set()
    for base in bases(data_dir):
        engine = RocksEngine(str(base), RocksMemory())
        try:
            found |= set(prepared.done_once(engine))
        finally:
            engine.close()
    return found


def _auto_increments(data_dir: Path, tables: Iterable[TableDef]) -> dict[str, int]:
    """By table, the greatest AUTO_INCREMENT value that any old worker has generated."""
    most: dict[str, int] = {}
    for base in bases(data_dir):
        engine = RocksEngine(str(base), RocksMemory())
        try:
            for t in tables:
                most[t.name] = max(most.get(t.name, 0), meta.read_counters(engine, t).auto_increment)
        finally:
            engine.close()
    return most


def new_bases(data_dir: Path, workers: int) -> list[str]:
    """The paths of the new stores, by worker."""
    return [str(place(data_dir) / _NEW / f"worker-{w}" / "base") for w in range(workers)]


def verify(reports: Iterable[StoreCheckReport], wanted: dict[str, MultisetHash]) -> None:
    """Raise StoreError if the new stores differ from the old ones.  reports: a check of each new store, by worker."""
    found: dict[str, list[MultisetHash]] = {name: [] for name in wanted}
    for w, report in enumerate(reports):
        if report.findings:
            raise _differs(f"worker {w}: {report.findings[0]}")
        for name, sums in report.sums.items():
            found[name].append(sums)
    for name, some in found.items():
        if (there := reduce(MultisetHash.plus, some, MultisetHash())) != wanted[name]:
            raise _differs(f"table {name} had {wanted[name].count:,} rows and would have {there.count:,}"
                           + (", others" if there.count == wanted[name].count else ""))


def _differs(what: str) -> StoreError:
    return StoreError(f"the new stores are not what the old ones are ({what}): the old ones stay as they are; run "
                      "noria check, and remove the directory `reshard` to begin anew")


# ------------------------------------------------------------------ the switch
def switch(data_dir: Path, plan: ReshardingPlan) -> None:
    """Make the new stores valid with one write, then move them into place."""
    new = place(data_dir) / _NEW
    for directory in (*new.rglob("worker-*/base"), *new.glob("worker-*"), new):
        sync(directory)
    _write(place(data_dir) / SWITCH, plan)
    finish_switch(data_dir)


def is_switching(data_dir: Path) -> bool:
    """True if the new stores are valid and not all in place."""
    return (place(data_dir) / SWITCH).exists()


def finish_switch(data_dir: Path) -> ReshardingPlan | None:
    """If the new stores are valid, move into place what is not there yet.  May be interrupted at any point."""
    at, before = place(data_dir), data_dir / BEFORE
    plan = _read(at / SWITCH)
    if plan is None:
        return None
    before.mkdir(mode=0o700, exist_ok=True)
    for w in range(plan.before):
        if not (before / f"worker-{w}").exists():
            (data_dir / f"worker-{w}").rename(before / f"worker-{w}")
    note_workers(before, plan.before)
    shutil.copyfile(data_dir / "epoch", before / "epoch")
    sync(before / "epoch")
    sync(before)
    for w in range(plan.after):
        if (at / _NEW / f"worker-{w}").exists():
            (at / _NEW / f"worker-{w}").rename(data_dir / f"worker-{w}")
    if plan.after == 1:
        (data_dir / WORKERS).unlink(missing_ok=True)
    note_workers(data_dir, plan.after)
    sync(data_dir)
    (at / SWITCH).unlink()
    sync(at)
    shutil.rmtree(at)
    return plan


def forget(data_dir: Path) -> None:
    """Remove the old stores."""
    shutil.rmtree(data_dir / BEFORE, ignore_errors=True)
