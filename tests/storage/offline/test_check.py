"""`noria check`: whole stores have no findings, and every kind of damage has one that names what it is in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict, WriteBatch

from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.keys import hasher, shard_of_key
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert, Update
from noria.core.types import BIGINT, INT, TEXT, Column, IndexDef, TableDef
from noria.storage.offline.check import StoreCheck, StoreCheckReport
from noria.storage.rocks import recovery
from noria.storage.rocks.engine import META
from noria.storage.rocks.errors import StoreDamaged
from noria.storage.rocks.options import table_options
from noria.storage.store import RocksStore
from storage.damage import (
    LOSSES,
    ROOMY,
    SMALL,
    closed_logs,
    crashed,
    file_of,
    filled,
    flip,
    ids,
    logs,
    row,
    write,
)

ID = Column("id", BIGINT, False, auto_increment=True)
USERS = TableDef("users", (ID, Column("n", INT), Column("name", TEXT)), (0,),
                 (IndexDef("n", (1,)), IndexDef("name", (2,), True)))
BAG = TableDef("bag", (Column("n", INT), Column("name", TEXT)))


def checked(path: Path) -> StoreCheckReport:
    return StoreCheck(str(path), lambda what, done, total: None).run()


def users(path: Path) -> Path:
    """Inserted, updated, deleted; NULLs in both indexes, texts that fold."""
    store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
    for table in (USERS, BAG):
        store.create_table(table)
    store.set_recipe([], 1, 1)
    rows = [(i % 5 or None, None if i % 9 == 0 else f"Ärger {i}") for i in range(1, 3000)]
    store.write([Insert("users", (1, 2), rows), Insert("bag", (0, 1), rows)], 1, 2)
    where = call("lt", col(0, BIGINT), const(200, BIGINT))
    store.write([Update("users", ((1, const(77, INT)),), where), Delete("bag", call("eq", col(0, INT), const(3, INT)))],
                1, 3)
    store.add_index("users", (2, 1))
    store.write([Insert("users", (1, 2), [(1, "late")])], 1, 4)
    store.close()
    return path


def test_a_whole_store_has_no_findings(tmp_path: Path) -> None:
    path = users(tmp_path / "data")
    report = checked(path)
    assert not report.findings, report.findings
    assert report.tables == {"users": 3000, "bag": 2399} and report.indexes == 3
    assert checked(crashed(filled(tmp_path / "log"))).findings == [], "with rows in the log only"


def test_rows_of_other_workers_are_told(tmp_path: Path) -> None:
    """Of each table, for each worker that owns some, with the key of one."""
    path = users(tmp_path / "data")
    owner = [shard_of_key([i], [hasher(BIGINT)], 3) for i in range(1, 3001)]
    report = StoreCheck(str(path), lambda what, done, total: None, worker=1, workers=3).run()
    assert report.findings == [f"table users: {3000 - owner.count(1):,} rows belong to other workers: "
                               + "; ".join(f"{owner.count(w):,} to worker {w}, as that with id {owner.index(w) + 1}"
                                           for w in (0, 2))], "those of a bag may be anywhere"
    assert report.misplaced == {"users"}


def first(db: Rdict, family: str) -> tuple[bytes, bytes]:
    found: tuple[bytes, bytes] = next(iter(db.get_column_family(family).items()))
    return found


def change(path: Path, edit: Callable[[Rdict, WriteBatch], None]) -> None:
    """Put something into the database that the store would not."""
    names = [n for n in Rdict.list_cf(str(path), table_options()) if n != "default"]
    db = Rdict(str(path), recovery.tracked_options(), {n: table_options() for n in names})
    batch = WriteBatch(raw_mode=True)
    edit(db, batch)
    db.write(batch)
    for name in names:
        db.get_column_family(name).flush()
    db.close()


def lose_entry(db: Rdict, batch: WriteBatch) -> None:
    batch.delete(first(db, "t1.i1")[0], db.get_column_family_handle("t1.i1"))


def lose_row(db: Rdict, batch: WriteBatch) -> None:
    batch.delete(first(db, "t1")[0], db.get_column_family_handle("t1"))


def other_row(db: Rdict, batch: WriteBatch) -> None:
    key, value = first(db, "t1")
    batch.put(key, value[:10] + bytes([value[10] ^ 1]) + value[11:], db.get_column_family_handle("t1"))


def wrong_target(db: Rdict, batch: WriteBatch) -> None:
    (entry, _), (_, target) = list(db.get_column_family("t1.u2").items())[5:7]
    batch.put(entry, target, db.get_column_family_handle("t1.u2"))


def misplaced(db: Rdict, batch: WriteBatch) -> None:
    key, value = first(db, "t1")
    batch.delete(key, db.get_column_family_handle("t1"))
    batch.put(key[:-1] + b"\x00", value, db.get_column_family_handle("t1"))


def low_mark(db: Rdict, batch: WriteBatch) -> None:
    old = db.get_column_family(META).get(b"counters:t1")
    batch.put(b"counters:t1", old[:8] + (7).to_bytes(8, "little") + old[16:], db.get_column_family_handle(META))


def low_row_number(db: Rdict, batch: WriteBatch) -> None:
    old = db.get_column_family(META).get(b"counters:t2")
    batch.put(b"counters:t2", old[:16] + (7).to_bytes(8, "little"), db.get_column_family_handle(META))


@pytest.mark.parametrize(("edit", "words"), [
    (lose_entry, "index n of table users differs.* has no entry"), (lose_row, "table users has 2,999 rows"),
    (other_row, "index n of table users differs.*other values"), (wrong_target, "index name of table users differs"),
    (misplaced, "table users: a row lies under the key"), (low_mark, "AUTO_INCREMENT value 3,000, above its mark 7"),
    (low_row_number, "table bag has row number .* above its mark 7"),
], ids=lambda p: getattr(p, "__name__", ""))
def test_what_does_not_fit_is_named(tmp_path: Path, edit: Callable[[Rdict, WriteBatch], None], words: str) -> None:
    path = users(tmp_path / "data")
    change(path, edit)
    findings = checked(path).findings
    print(findings)
    assert any(re.search(words, f) for f in findings), findings


@pytest.mark.parametrize("family", ["t2", "t2.i1", META])
def test_a_damaged_block_is_named_with_its_table(tmp_path: Path, family: str) -> None:
    store = filled(tmp_path / "data")
    name = file_of(store, family)
    store.close()
    path = tmp_path / "data" / name
    at = path.stat().st_size // (3 if family != META else 50)
    flip(path, at)
    findings = checked(tmp_path / "data").findings
    print(findings)
    assert len(findings) == 1 and name in findings[0]
    if family != META:
        assert "table bad" in findings[0]
        store = RocksStore(str(tmp_path / "data"), PlainSymbols(), memory=SMALL)
        assert store.damage_of("bad") is not None, "the next start knows"
        store.close()
        flip(path, at)
        assert checked(tmp_path / "data").findings == []
        store = RocksStore(str(tmp_path / "data"), PlainSymbols(), memory=SMALL)
        assert store.damage_of("bad") is None, "mended, it counts again"
        store.close()


def partly_flushed(path: Path) -> RocksStore:
    """Five groups of rows, of which the first three of `good` are in a file, and the catalog as it was then; all else
    is in the logs."""
    store = filled(path, 3, ROOMY)
    for family in ("t1", META):
        store.engine.family(family).flush()
    for seq in (5, 6):
        write(store, seq)
    return store


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_that_is_accepted_lets_the_store_open(tmp_path: Path, loss: str) -> None:
    path = crashed(partly_flushed(tmp_path / "data"))
    LOSSES[loss](path)
    assert "noria check --accept-loss" in checked(path).findings[0]
    lost = recovery.accept_loss(str(path), table_options)
    assert (lost > 0) == ("mark" not in loss)
    cut_at = [f for f in checked(path).findings if "index" not in f]
    assert bool(cut_at) == (loss == "all logs gone"), "closed logs too: the tables are not cut between two commits"
    mended = StoreCheck(str(path), lambda what, done, total: None, mend=True).run().findings
    assert checked(path).findings == mended and not [f for f in mended if "index" not in f]
    store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
    rows = {t: len(ids(store, t)) for t in store.tables()}
    assert rows == {t: store.row_count(t) for t in rows}
    if "mark" in loss:
        assert rows["good"] == 500
    elif loss != "all logs gone":
        assert ids(store, "good") == ids(store, "bad") == list(range(rows["bag"])), "a cut between commits"
    else:
        store.write([Insert("bag", (0, 1, 2), [row(10**6)])], 1, 10**6)
        assert len(ids(store, "bag")) == rows["bag"] + 1, "no row number is given twice"
    store.close()


def test_rows_whose_table_was_lost_with_the_log_are_told_before_a_start_drops_them(tmp_path: Path) -> None:
    store = filled(tmp_path / "data", 3, ROOMY)
    store.engine.family("t1").flush()
    path = crashed(store)
    LOSSES["all logs gone"](path)
    recovery.accept_loss(str(path), table_options)
    finding, = checked(path).findings
    assert "column family t1 " in finding and "restore a backup" in finding


def test_a_closed_log_that_is_given_up_is_found_by_the_check(tmp_path: Path) -> None:
    """The rows that later logs hold stay, so counters no longer fit: the check says so."""
    path = crashed(closed_logs(tmp_path / "data"))
    logs(path)[0].unlink()
    with pytest.raises(StoreDamaged):
        RocksStore(str(path), PlainSymbols(), memory=SMALL)
    recovery.accept_loss(str(path), table_options)
    findings = checked(path).findings
    assert "table bad has 0 rows, its counter says 200" in findings, findings
    assert "table good" in findings[0] and "index part" in findings[0], "its entries were in that log"
    RocksStore(str(path), PlainSymbols(), memory=SMALL).close()
