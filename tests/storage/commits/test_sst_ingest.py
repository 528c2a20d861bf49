"""Files built outside, taken over, checked; checkpoints read by ranges."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert
from noria.core.types import BIGINT, DOUBLE, INT, TEXT, Column, IndexDef, TableDef
from noria.core.values import arrow_type, decode
from noria.storage.offline.snapshot import KeyRange, read_checkpoint, read_tables, split
from noria.storage.rocks.errors import StoreError
from noria.storage.rocks.options import RocksMemory
from noria.storage.store import RocksStore
from noria.storage.tables import meta
from noria.storage.tables.sst import ROW_NUMBER, bag_rows, describe, entries, write_file
from noria.storage.tables.table import Index

VOTES = TableDef("votes", (Column("id", BIGINT, False, auto_increment=True), Column("story", INT), Column("why", TEXT),
                           Column("weight", DOUBLE)), (0,), (IndexDef("why", (2,), True), IndexDef("story", (1,))))
BAG = TableDef("bag", (Column("story", INT), Column("why", TEXT)), (), (IndexDef("story", (0,)),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    made = RocksStore(str(tmp_path / "data"), PlainSymbols(), memory=RocksMemory(part_entries=1000))
    made.create_table(VOTES)
    made.create_table(BAG)
    made.set_recipe(["votes", "bag"], 1, 1)
    yield made
    made.close()


def rows(store: RocksStore, table: str) -> list[tuple[Any, ...]]:
    columns, found, after = store.tables()[table].columns, [], None
    while True:
        batch, after = store.scan(table, after, 7)
        found += [tuple(decode(c, column.type, store.table(table)._symbols) for c, column in
                        zip(row, columns, strict=True)) for row in batch.rows()]
        if after is None:
            return found


def votes(ids: Any) -> list[tuple[Any, ...]]:
    return [(i, i % 10 if i % 3 else None, f"Why {i}" if i % 5 else None, i / 2) for i in ids]


def as_batch(table: TableDef, given: list[tuple[Any, ...]], numbers: Any = None) -> pa.RecordBatch:
    arrays = [pa.array([r[i] for r in given], arrow_type(c.type)) for i, c in enumerate(table.columns)]
    names = [c.name for c in table.columns]
    if numbers is not None:
        arrays, names = [*arrays, pa.array(numbers)], [*names, ROW_NUMBER]
    return pa.record_batch(arrays, names)


def files_of(store: RocksStore, directory: Path, table: str, batch: pa.RecordBatch, pieces: int = 3
             ) -> dict[str, list[str]]:
    """What Spark's tasks do: entries, a sort, ranges, files."""
    directory.mkdir(exist_ok=True)
    stored = store.table(table)
    families: list[tuple[str, Index | None]] = [(stored.family, None), *((i.family, i) for i in stored.indexes)]
    files: dict[str, list[str]] = {}
    for family, index in families:
        sorted_entries = pa.table(entries(stored.definition, index, batch)).sort_by("key")
        size = -(-sorted_entries.num_rows // pieces)
        for piece in range(pieces):
            part = sorted_entries.slice(piece * size, size)
            made = write_file(str(directory / f"{family}-{piece}.sst"), part.to_batches(max_chunksize=11))
            if made is not None:
                files.setdefault(family, []).append(made.path)
    return files


def test_loaded_rows_are_as_if_inserted(store: RocksStore, tmp_path: Path) -> None:
    store.write([Insert("votes", (0, 1, 2, 3), votes(range(1, 20)))], 1, 2)
    store.ingest("votes", files_of(store, tmp_path / "sst", "votes", as_batch(VOTES, votes(range(30, 130)))),
                 100, 129, 1, 3)
    store.ingest("votes", {}, 0, 0, 1, 3)  # a resend
    other = RocksStore(str(tmp_path / "other"), PlainSymbols())
    other.create_table(VOTES)
    other.write([Insert("votes", (0, 1, 2, 3), votes([*range(1, 20), *range(30, 130)]))], 1, 2)
    assert rows(store, "votes") == rows(other, "votes") == votes([*range(1, 20), *range(30, 130)])
    for family in (store.table("votes").family, *(i.family for i in store.table("votes").indexes)):
        same = family.replace(f"t{store.table('votes').definition.table_id}", "t1", 1)
        assert store.engine.items(family, 2**62) == other.engine.items(same, 2**62)
    other.close()
    assert store.row_count("votes") == 119 and store.applied() == (1, 3)
    assert store.write([Insert("votes", (1,), [(1,)])], 1, 4)[0][0].last_insert_id == 130
    assert store.write([Delete("votes", call("lt", col(0, BIGINT), const(125, BIGINT)))], 1, 5)[0][0].affected == 114
    batch, _ = store.lookup("votes", (1,), np.array([[5, 8]]))
    assert sorted(r[0] for r in batch.rows()) == [125, 128]


def test_bags_keep_every_row(store: RocksStore, tmp_path: Path) -> None:
    given = [(i % 3, "same") for i in range(50)]
    store.write([Insert("bag", (0, 1), given)], 1, 2)
    for load in (5, 6):
        batch = as_batch(BAG, given, bag_rows(load, 0, 0, 50))
        store.ingest("bag", files_of(store, tmp_path / f"sst{load}", "bag", batch), 50, 0, 1, load)
    assert sorted(rows(store, "bag")) == sorted(given * 3) and store.row_count("bag") == 150
    assert len(store.lookup("bag", (0,), np.array([[2]]))[0]) == 48
    again = files_of(store, tmp_path / "again", "bag", as_batch(BAG, given, bag_rows(6, 0, 0, 50)))
    with pytest.raises(SqlError, match="Duplicate entry"):
        store.ingest("bag", again, 50, 0, 1, 7)
    with pytest.raises(StoreError, match="too large"):
        bag_rows(1, 2**14, 0, 1)


def wrong_loads(store: RocksStore, directory: Path) -> Iterator[tuple[dict[str, list[str]], int, str]]:
    def load(name: str, given: list[tuple[Any, ...]]) -> dict[str, list[str]]:
        return files_of(store, directory / name, "votes", as_batch(VOTES, given))

    good = load("good", votes(range(100, 120)))
    yield good, 21, "says 21 rows"
    yield {**good, "t1.u2": []}, 20, "must bring files"
    yield {**good, "t9": good["t1"]}, 20, "must bring files"
    yield {**good, "t1": [*good["t1"], good["t1"][0]]}, 20, "hold 27"
    overlapping = load("overlapping", votes(range(110, 117)))
    yield {f: good[f][:2] + overlapping[f][:1] for f in good}, sum(
        describe(p).rows for p in good["t1"][:2] + overlapping["t1"][:1]), "overlap"
    yield load("key", votes([4, 5, 6, *range(100, 120)])), 23, "Duplicate entry '4' for key 'votes.PRIMARY'"
    yield load("unique", [(200, 1, "WHY 7", 0.0)]), 1, "Duplicate entry 'Why 7' for key 'votes.why'"
    torn = load("torn", votes(range(300, 310)))
    Path(torn["t1"][0] + ".json").write_text("{")
    yield torn, 10, "is not whole"
    gone = load("gone", votes(range(300, 310)))
    Path(gone["t1"][0]).unlink()
    yield gone, 10, "is not whole"


def test_a_load_that_is_wrong_changes_nothing(store: RocksStore, tmp_path: Path) -> None:
    store.write([Insert("votes", (0, 1, 2, 3), votes([1, 4, 7, 400]))], 1, 2)
    before = rows(store, "votes")
    for files, count, message in wrong_loads(store, tmp_path):
        with pytest.raises(SqlError, match=message):
            store.check_ingest("votes", files, count)
        with pytest.raises((SqlError, StoreError), match=message):
            store.ingest("votes", files, count, 0, 1, 3)
        assert rows(store, "votes") == before and store.applied() == (1, 2) and store.row_count("votes") == 4
        assert set(store.engine.families()) == {"meta", "t1", "t1.u2", "t1.i1", "t2", "t2.i0"}
    between = files_of(store, tmp_path / "between", "votes", as_batch(VOTES, votes([2, 3, 5, 6, 300])))
    store.check_ingest("votes", between, 5)
    assert rows(store, "votes") == before
    store.ingest("votes", between, 5, 0, 1, 3)
    assert rows(store, "votes") == votes([1, 2, 3, 4, 5, 6, 7, 300, 400])


def test_duplicates_within_a_load(tmp_path: Path) -> None:
    batch = as_batch(VOTES, votes([1, 2, 2, 3, 3, 3, 4]))
    pieces = entries(VOTES, None, batch)
    with pytest.raises(SqlError, match="Duplicate entry in the rows to load"):
        write_file(str(tmp_path / "a.sst"), [pieces])
    out: list[bytes] = []
    made = write_file(str(tmp_path / "b.sst"), [pieces.slice(0, 3), pieces.slice(3, 1), pieces.slice(4)],
                      lambda key, value: out.append(key))
    assert made is not None and (made.rows, len(out)) == (4, 3) and describe(made.path) == made
    assert write_file(str(tmp_path / "c.sst"), []) is None


@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_a_crash_after_the_intent_is_finished_at_the_next_start(
    store: RocksStore, tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies when `taken` of three families have their files."""
    files = files_of(store, tmp_path / "sst", "votes", as_batch(VOTES, votes(range(1, 50))))
    real, calls = store.engine.ingest, []

    def ingest(family: str, paths: list[str]) -> None:
        if len(calls) == taken:
            raise KeyboardInterrupt
        calls.append(family)
        real(family, paths)

    if taken == 3:
        monkeypatch.setattr(meta, "put_counters", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr(store.engine, "ingest", ingest)
    with pytest.raises(KeyboardInterrupt):
        store.ingest("votes", files, 49, 49, 1, 2)
    monkeypatch.undo()
    image = tmp_path / "crashed"
    shutil.copytree(tmp_path / "data", image)
    after = RocksStore(str(image), PlainSymbols())
    assert rows(after, "votes") == votes(range(1, 50)) and after.row_count("votes") == 49
    assert after.applied() == (1, 2) and len(after.lookup("votes", (1,), np.array([[5]]))[0]) == 3
    assert meta.get(after.engine, b"ingest") is None and not (image / "ingest").exists()
    after.ingest("votes", files, 49, 49, 1, 2)
    assert after.row_count("votes") == 49
    after.close()



# ------------------------------------------------------------------ checkpoints
def test_a_checkpoint_stands_still_and_is_read_by_ranges(store: RocksStore, tmp_path: Path) -> None:
    given = votes(range(1, 3000))
    store.write([Insert("votes", (0, 1, 2, 3), given)], 1, 2)
    store.engine.separate("t1")
    path = str(tmp_path / "snapshot")
    store.checkpoint(path)
    store.write([Delete("votes", None)], 1, 3)
    tables = read_tables(path)
    assert tables == store.tables()
    ranges = split(path, tables["votes"], 4)
    parts = [pa.Table.from_batches(read_checkpoint(path, tables["votes"], [r])) for r in ranges]
    assert len(parts) == 4 and all(600 < p.num_rows < 900 for p in parts)
    whole = pa.concat_tables(parts)
    assert [tuple(r.values()) for r in whole.to_pylist()] == given
    assert whole.schema == pa.schema([(c.name, arrow_type(c.type)) for c in VOTES.columns])
    some = pa.Table.from_batches(read_checkpoint(path, tables["votes"], ranges[:2], (2, 0)))
    assert some.column_names == ["why", "id"] and some.num_rows == parts[0].num_rows + parts[1].num_rows
    assert list(read_checkpoint(path, tables["bag"])) == [] and split(path, tables["bag"], 4) == [KeyRange()]


@pytest.mark.parametrize("keys", ["dense", "sparse", "two clusters", "text", "loaded bag"])
def test_ranges_cover_every_row_once(tmp_path: Path, keys: str) -> None:
    store = RocksStore(str(tmp_path / "data"), PlainSymbols(), memory=RocksMemory(part_entries=0))
    values: list[Any] = {
        "dense": list(range(5000)), "sparse": [i**3 * 1000 for i in range(5000)],
        "two clusters": [*range(2500), *range(2**60, 2**60 + 2500)],
        "text": [f"user{i % 100}-{i}" for i in range(5000)], "loaded bag": list(range(2500))}[keys]
    type = TEXT if keys == "text" else BIGINT
    table = TableDef("t", (Column("k", type, False),), () if keys == "loaded bag" else (0,))
    store.create_table(table)
    store.set_recipe([], 1, 1)
    for start in (0, 2500):
        store.write([Insert("t", (0,), [(v,) for v in values[start : start + 2500]])], 1, 2 + start)
        store.engine.flush()
    if keys == "loaded bag":
        definition = store.tables()["t"]
        batch = as_batch(definition, [(v,) for v in values], bag_rows(77, 3, 0, 2500))
        store.ingest("t", files_of(store, tmp_path / "sst", "t", batch), 2500, 0, 1, 9000)
        values = values * 2
    path = str(tmp_path / "snapshot")
    store.checkpoint(path)
    definition = store.tables()["t"]
    sizes, found = [], []
    for range_ in split(path, definition, 5):
        some = [v for b in read_checkpoint(path, definition, [range_]) for v in b.column(0).to_pylist()]
        sizes.append(len(some))
        found += some
    assert sorted(found) == sorted(values) and len(sizes) <= 5
    if keys != "text":
        assert max(sizes) < 0.6 * len(values), sizes
    store.close()


