"""Small tables in one column family: every read against a dictionary, through moves, drops, reopenings and crashes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rocksdict import Options, Rdict, WriteBatch

from noria.core.errors import SqlError
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert
from noria.core.types import INT, Column, IndexDef, TableDef
from noria.storage.offline.check import StoreCheck
from noria.storage.offline.snapshot import opened
from noria.storage.rocks import reading
from noria.storage.rocks.engine import META, RocksEngine
from noria.storage.rocks.options import RocksMemory
from noria.storage.rocks.shared import PART_BYTES, SHARED
from noria.storage.store import RocksStore
from noria.storage.tables import meta
from seeds import cases
from storage.damage import flip

MEMORY = RocksMemory(cache_bytes=2**20, write_buffer_bytes=2**20, family_buffer_bytes=2**18, reserve_bytes=0,
                     part_entries=20)
NAMES = ("t1", "t1.i1", "t10", "t1k2", "t2")  # of which some begin like others
KEYS = [bytes(k) for k in ((), (0,), (0, 0), (1,), (1, 255), (254,), (255,), (255, 255), (255, 255, 0))]
Model = dict[str, dict[bytes, bytes]]


def made(path: Path, memory: RocksMemory = MEMORY) -> RocksEngine:
    return RocksEngine(str(path), memory)


def column_families(path: Path) -> set[str]:
    return set(Rdict.list_cf(str(path), Options(raw_mode=True))) - {"default"}


def put(engine: RocksEngine, name: str, removed: list[bytes], rows: dict[bytes, bytes]) -> None:
    batch = WriteBatch(raw_mode=True)
    engine.fill(batch, name, removed, list(rows), list(rows.values()))
    batch.set_default_column_family(None)
    engine.commit(batch)


def compare(engine: RocksEngine, model: Model, chance: random.Random) -> None:
    """Compare every way to read with the dictionaries."""
    assert set(engine.families()) - {META} == set(model)
    for name, rows in model.items():
        held, some = sorted(rows.items()), chance.choices(KEYS, k=4)
        first, last = sorted(chance.choices(KEYS, k=2))
        assert engine.items(name, 99) == held
        assert engine.items(name, 3, first) == [i for i in held if i[0] >= first][:3]
        assert engine.values(name, 3, first) == [v for k, v in held if k >= first][:3]
        assert engine.get(name, some) == [rows.get(k) for k in some] and engine.get(name, first) == rows.get(first)
        under = [i for i in held if i[0].startswith(first)] if first else held
        assert engine.items_with_prefix(name, first) == under
        assert engine.count_with_prefix(name, first, 99) == len(under)
        values, after = engine.values_with_prefix(name, first, 2)
        assert values == [v for _, v in under][:2]
        if after is not None:
            assert engine.values_with_prefix(name, first, 99, after)[0] == [v for _, v in under][2:]
        between = [k for k, _ in held if first <= k and (k <= last or k.startswith(last))]
        assert list(engine.keys_between(name, first, last)) == between
        assert list(engine.keys_between(name, first, last, True)) == between[::-1]
        assert engine.any_between(name, first, last) == any(first <= k <= last for k in rows)
        for what, wanted in (("items", held), ("keys", list(rows)), ("values", [v for _, v in held])):
            got = [one for part in engine.slices(name, 2, what) for one in part]
            assert got == (sorted(wanted) if what == "keys" else wanted)
        got = [k for part in engine.slices(name, 2, "keys", first, last) for k in part] if first < last else []
        assert got == [k for k, _ in held if first <= k < last]


@pytest.mark.parametrize("seed", range(cases(6)))
def test_parts_are_as_families_of_their_own(tmp_path: Path, seed: int) -> None:
    chance, model = random.Random(seed), Model()
    engine, path = made(tmp_path / "0"), tmp_path / "0"
    for step in range(150):
        name, what = chance.choice(NAMES), chance.random()
        if name not in model:
            engine.create_family(name, rows=chance.choice([0, 5, 20, None]))
            model[name] = {}
        elif what < 0.6:
            rows = {chance.choice(KEYS) + chance.choice(KEYS): chance.randbytes(3) for _ in range(chance.randrange(9))}
            removed = chance.choices(list(model[name]) or [b""], k=chance.randrange(3))
            removed = [k for k in removed if k not in rows]
            put(engine, name, removed, rows)
            for key in removed:
                model[name].pop(key, None)
            model[name].update(rows)
        elif what < 0.65:
            engine.separate(name)
        elif what < 0.7:
            engine.drop_family(name)
            del model[name]
        elif what < 0.75:
            engine.condemn(name)
            del model[name]
        elif what < 0.8:
            batch = WriteBatch(raw_mode=True)
            engine.put_dropped(batch, [name])
            engine.commit(batch)
            engine.forget_dropped([name])
            del model[name]
        elif what < 0.85:
            engine.flush()
        elif what < 0.95:
            engine.tidy()
        else:  # a crash, or an orderly end
            if chance.random() < 0.7:
                path = tmp_path / str(step)
                shutil.copytree(tmp_path / engine.path, path)
                engine.close()
            else:
                engine.close()
            engine = made(path)
            for known, rows in model.items():
                assert engine.keep_part(known, len(rows))
            for left in set(engine.families()) - set(model) - {META}:
                engine.drop_family(left)
        compare(engine, model, chance)
        assert all((name in column_families(path)) != engine.is_part(name) for name in model) or step % 10
    engine.close()


@pytest.mark.parametrize("at", ["before the commit", "after the commit"])
def test_a_crash_within_a_move(tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made(tmp_path / "data")
    for name in ("t1", "t2"):
        engine.create_family(name, rows=0)
        put(engine, name, [], {b"a": name.encode(), b"b": b""})
    real = engine._guarded

    def dies(action: Callable[[], object]) -> None:
        if "t1" in column_families(tmp_path / "data") and at == "before the commit":
            raise KeyboardInterrupt
        real(action)

    monkeypatch.setattr(engine, "_guarded", dies)
    if at == "before the commit":
        with pytest.raises(KeyboardInterrupt):
            engine.separate("t1")
    else:
        engine.separate("t1")
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    assert {"t1", SHARED} <= column_families(tmp_path / "crashed")
    for name in ("t1", "t2"):
        with opened(str(tmp_path / "crashed"), name) as family:  # without a recovery, as offline tools read
            assert reading.items(family, 9) == [(b"a", name.encode()), (b"b", b"")]
    after = made(tmp_path / "crashed")
    assert after.is_part("t1") == (at == "before the commit")
    for name in ("t1", "t2"):
        assert after.items(name, 9) == [(b"a", name.encode()), (b"b", b"")]
    after.close()
    assert ("t1" in column_families(tmp_path / "crashed")) == (at == "after the commit")


def test_a_part_moves_when_it_is_large_not_when_it_is_written_often(tmp_path: Path) -> None:
    engine = made(tmp_path / "data")
    for name in ("often", "many", "long"):
        engine.create_family(name, rows=0)
    for step in range(60):
        put(engine, "often", [], {b"k": bytes([step])})
    put(engine, "many", [], {bytes([k]): b"" for k in range(21)})
    put(engine, "long", [], {b"k": bytes(PART_BYTES + 1)})
    while engine.tidy():
        pass
    assert {n for n in engine.families() if engine.is_part(n)} == {"often"}
    engine.create_family("at once", rows=0)
    put(engine, "at once", [], {bytes([k]): b"" for k in range(81)})
    assert not engine.is_part("at once"), "no idle moment is needed"
    engine.close()


# ------------------------------------------------------------------ tables
def table(number: int) -> TableDef:
    return TableDef(f"t{number}", (Column("id", INT, False), Column("n", INT)), (0,), (IndexDef("n", (1,)),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    found = opened_store(tmp_path / "data")
    yield found
    found.close()


def opened_store(path: Path, memory: RocksMemory = MEMORY) -> RocksStore:
    return RocksStore(str(path), PlainSymbols(), memory=memory)


def create(store: RocksStore, *numbers: int) -> None:
    for number in numbers:
        store.create_table(table(number))
    store.set_recipe([], 1, store.applied()[1] + 1)


def insert(store: RocksStore, number: int, *ids: int) -> None:
    store.write([Insert(f"t{number}", (0, 1), [(i, i % 3) for i in ids])], 1, store.applied()[1] + 1)


def ids(store: RocksStore, number: int) -> list[int]:
    return sorted(r[0] for r in store.scan(f"t{number}", None, 10_000)[0].rows())


def test_many_small_tables_need_no_families(store: RocksStore) -> None:
    create(store, *range(1, 30))
    for number in range(1, 30):
        insert(store, number, 1, number + 1)
    assert column_families(Path(store.path)) == {META, SHARED}
    store.deltas.begin()
    store.drop_table("t3")
    store.set_recipe([], 1, store.applied()[1] + 1)
    assert not store.engine.items_with_prefix(SHARED, b"t3\0") and not store.tidy()
    assert store.deltas.recording, "the commit that forgets the table drops its rows"
    store.deltas.end()
    store.close()
    store = opened_store(Path(store.path))
    assert [ids(store, n) for n in (1, 2, 4)] == [[1, 2], [1, 3], [1, 5]] and "t3" not in store.tables()
    assert len(store.lookup("t4", (1,), np.array([[1]]))[0]) == 1
    store.close()
    assert StoreCheck(store.path, lambda *_: None).run().findings == []


def test_rows_that_are_gone_are_missed(store: RocksStore) -> None:
    """The counters of a table say how many rows it has."""
    create(store, 1)
    insert(store, 1, 5)
    batch = WriteBatch(raw_mode=True)
    store.engine.put_dropped(batch, ["t1", "t1.i1"])
    store.engine.commit(batch)
    store.close()
    with pytest.raises(Exception, match="table t1 has no data"):
        opened_store(Path(store.path))


def test_a_directory_of_the_format_before_opens(tmp_path: Path) -> None:
    """Its tables have families of their own, and keep them; new tables are parts."""
    path = tmp_path / "data"
    store = opened_store(path, replace(MEMORY, part_entries=0))
    create(store, 1, 2)
    insert(store, 1, 7)
    batch = WriteBatch(raw_mode=True)
    meta.put(store.engine, batch, b"format", b"5")
    store.engine.commit(batch)
    store.close()
    assert column_families(path) == {META, "t1", "t1.i1", "t2", "t2.i1"}
    store = opened_store(path)
    create(store, 3)
    insert(store, 3, 8)
    insert(store, 1, 9)
    assert column_families(path) == {META, SHARED, "t1", "t1.i1", "t2", "t2.i1"}
    store.close()
    store = opened_store(path)
    assert [ids(store, n) for n in (1, 2, 3)] == [[7, 9], [], [8]]
    assert meta.get(store.engine, b"format") == b"6"
    store.close()


def test_a_damaged_block_costs_the_tables_in_it(tmp_path: Path) -> None:
    """Those are dropped and made anew, in families of their own, until no part is left in the damaged file."""
    path = tmp_path / "data"
    store = opened_store(path, replace(MEMORY, part_entries=2000))
    create(store, 1, 2)
    for number in (1, 2):
        insert(store, number, *range(1000))
    store.engine.flush()
    store.close()
    name = max(path.glob("*.sst"), key=lambda p: p.stat().st_size).name
    flip(path / name, (path / name).stat().st_size // 20)
    store = opened_store(path, replace(MEMORY, part_entries=2000))
    with pytest.raises(SqlError, match="'t1' is marked as crashed"):
        ids(store, 1)
    assert store.damage_of("t1") is not None and store.damage_of("t2") is None
    assert ids(store, 2) == list(range(1000))
    store.drop_table("t1")
    create(store, 3)
    insert(store, 3, 4)
    assert not store.engine.is_part("t3") and ids(store, 3) == [4]
    store.close()
    store = opened_store(path)
    assert store.damage_of("t2") is None and ids(store, 2) == list(range(1000)) and ids(store, 3) == [4]
    store.drop_table("t2")
    create(store, 4)
    create(store, 5)
    assert not store.engine.damage.families and store.engine.is_part("t5")
    store.close()
