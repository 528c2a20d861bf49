"""Attached readers: values of every type, misses, versions, and files that appear and disappear."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.types import BIGINT, DATE, DATETIME, DOUBLE, TEXT, TEXT_BIN, Field, SqlType, decimal
from noria.core.values import encode
from noria.state.memory.mapped import GrowingMemory
from noria.state.symbols.symbols import SymbolTable
from noria.views import read_kernels
from noria.views.reader import AttachedView, attach
from noria.views.writer import ViewDirectory, WritableView

TYPES = [BIGINT, TEXT, TEXT_BIN, DOUBLE, decimal(10, 2), DATE, DATETIME]
VALUES = [
    (-5, "Žluťoučký kůň", "Aa", -0.5, Decimal("-12.30"), date(1969, 12, 31), datetime(2024, 2, 29, 1, 2, 3, 4)),
    (2**63 - 1, "", "aA", 1e300, Decimal("0.01"), date(2024, 1, 1), datetime(1900, 1, 1)),
    (None,) * 7,
]


class Setting:
    """A directory, its writer and a reader."""

    def __init__(self, path: Path):
        self.path = path
        self.symbols = SymbolTable(str(path))
        self.directory = ViewDirectory(str(path / "views"), self.symbols, 4)
        self.attached = attach(str(path / "views"))

    def create(self, types: list[SqlType], key: tuple[int, ...], full: bool = False, visible: int | None = None,
               name: str = "v") -> WritableView:
        fields = [Field(f"c{i}", t) for i, t in enumerate(types)]
        return self.directory.create(name, fields, key, visible or len(types), full)

    def batch(self, types: list[SqlType], rows: list[tuple[Any, ...]]) -> Batch:
        return Batch.from_rows([[encode(v, t, self.symbols) for v, t in zip(r, types, strict=True)] for r in rows],
                               len(types))

    def full(self, types: list[SqlType], key: tuple[int, ...], rows: list[tuple[Any, ...]],
             **options: Any) -> WritableView:
        view = self.create(types, key, True, **options)
        view.apply(self.batch(types, rows))
        view.activate()
        return view

    @property
    def reader(self) -> AttachedView:
        return self.attached.view("v")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def some(*codes: int) -> np.ndarray:
    return np.array([codes], np.int64)


def test_every_type_is_decoded(setting: Setting) -> None:
    setting.full(TYPES, (), VALUES)
    assert sorted(setting.reader.lookup(()) or [], key=str) == sorted(VALUES, key=str)
    table, missing = setting.reader.lookup_many([(), ()])
    assert not missing.any()
    assert table["__key"].to_pylist() == [0] * 3 + [1] * 3
    rows = list(zip(*(c.to_pylist() for c in table.drop_columns("__key").columns), strict=True))
    assert sorted(rows, key=str) == sorted(VALUES * 2, key=str)


@pytest.mark.parametrize("column", range(7))
@pytest.mark.parametrize("row", VALUES[:2])
def test_every_type_is_a_key(setting: Setting, column: int, row: tuple[Any, ...]) -> None:
    setting.full(TYPES, (column,), VALUES)
    assert setting.reader.lookup((row[column],)) == [row]
    assert setting.reader.lookup((None,)) == []
    array = pa.array([row[column], None])
    if isinstance(row[column], Decimal):
        array = array.cast(pa.decimal128(10, 2))
    table, missing = setting.reader.lookup_many(array)
    assert table.num_rows == 1
    assert not missing.any()


def test_keys_that_nothing_equals(setting: Setting) -> None:
    setting.full(TYPES, (0,), VALUES)
    assert setting.reader.lookup((-5.0,)) == setting.reader.lookup((Decimal(-5),)) == [VALUES[0]]
    for value in (1.5, Decimal("0.1"), 2**63, 2**70, -(2**70), float("inf"), float("nan"), None, True):
        assert setting.reader.lookup((value,)) == []
    with pytest.raises(SqlError, match="Incorrect bigint value: 'x'"):
        setting.reader.lookup(("x",))
    with pytest.raises(SqlError, match="the key has 2 values, but the view is looked up by: c0"):
        setting.reader.lookup((1, 2))
    with pytest.raises(SqlError, match="2 columns"):
        setting.reader.lookup_many(pa.table({"a": [1], "b": [2]}))
    with pytest.raises(SqlError, match="key for column 'c0'"):
        setting.reader.lookup_many(pa.array(["x"]))


def test_text_keys_fold(setting: Setting) -> None:
    types = [TEXT, TEXT_BIN, BIGINT]
    view = setting.create(types, (0, 1))
    rows = [("Straße", "B", 1), ("STRASSE", "B", 2), ("strasse", "b", 3)]
    keys = np.array([[setting.symbols.intern("Strasse")] * 2, [setting.symbols.intern(t) for t in "Bb"]], np.int64)
    view.fill(keys, setting.batch(types, rows))
    assert sorted(setting.reader.lookup(("STRAßE", "B")) or []) == sorted(rows[:2])
    assert setting.reader.lookup(("strassE", "b")) == rows[2:]
    assert setting.reader.lookup(("nobody wrote this", "b")) is None
    table, missing = setting.reader.lookup_many([("Strasse", "b"), ("never", "b"), ("STRASSE", "B"), (None, "b")])
    assert missing.tolist() == [False, True, False, False]
    assert table["__key"].to_pylist() == [0, 2, 2]


def test_hidden_columns_weights_and_errors(setting: Setting) -> None:
    view = setting.full([BIGINT, TEXT, BIGINT], (2,), [(1, "x", 9), (1, "x", 9), (2, "y", 8)], visible=2)
    assert setting.reader.lookup((9,)) == [(1, "x"), (1, "x")]
    assert setting.reader.lookup_many([(8,), (9,)])[0].column_names == ["c0", "c1", "__key"]
    assert setting.reader.lookup_many([(8,), (9,)])[0]["__key"].to_pylist() == [0, 1, 1]
    codes = setting.reader.lookup_codes((9,))
    assert codes is not None
    assert codes.shape == (2, 3)
    view.apply(Batch.from_rows([(ERROR_CODE, NULL_CODE, 7), (5, NULL_CODE, 6)], 3))
    assert setting.reader.lookup((6,)) == [(5, None)]
    for read in (lambda: setting.reader.lookup((7,)), lambda: setting.reader.lookup_many([(7,)])):
        with pytest.raises(SqlError, match="out of range") as error:
            read()
        assert error.value.code == 1690


def test_a_full_view_is_a_miss_until_it_is_activated(setting: Setting) -> None:
    view = setting.create([BIGINT, BIGINT], (0,), full=True)
    view.apply(Batch.from_rows([(1, 2)], 2))
    assert setting.reader.lookup((1,)) is None
    assert setting.reader.lookup_many([(1,), (2,)])[1].all()
    view.activate()
    assert setting.reader.lookup((1,)) == [(1, 2)]
    assert setting.reader.lookup((2,)) == []
    assert not setting.reader.lookup_many([(1,), (2,)])[1].any()


def test_equal_versions_mean_equal_rows(setting: Setting) -> None:
    view, reader = setting.create([BIGINT, BIGINT], (0,)), setting.reader
    view.fill(some(1, 2), Batch.from_rows([(1, 10), (2, 20)], 2))
    rows, handle, version = reader.lookup_entry((1,)) or pytest.fail("a miss")
    assert rows == [(1, 10)]
    assert reader.lookup_entry((1,)) == (rows, handle, version)
    assert reader.lookup_entry((3,)) is None
    assert reader.lookup_entry((None,)) == ([], -1, -1)
    assert reader.version(-1) == -1
    view.apply(Batch.from_rows([(2, 21)], 2))
    assert reader.version(handle) == version
    view.apply(Batch.from_rows([(1, 11)], 2))
    second = reader.version(handle)
    assert second > version
    view.evict(some(1))
    assert reader.version(handle) != second
    assert reader.lookup_entry((1,)) is None
    view.fill(some(1), Batch.from_rows([(1, 10)], 2))
    _, handle, third = reader.lookup_entry((1,)) or pytest.fail("a miss")
    assert reader.version(handle) == third > second
    view.fill(np.arange(100, 1000, dtype=np.int64)[None, :], Batch.empty(2))  # moves to a larger file
    assert reader.version(handle) == -1
    _, again, fourth = reader.lookup_entry((1,)) or pytest.fail("a miss")
    assert again != handle
    assert reader.version(again) == fourth > second


def test_stamps_of_readers_keep_keys_warm(setting: Setting) -> None:
    view, reader = setting.create([BIGINT, BIGINT], (0,)), setting.reader
    keys = np.arange(30, dtype=np.int64)[None, :]
    view.begin_tick(1)
    view.fill(keys, Batch.of(np.concatenate([keys, keys])))
    view.end_tick(1)
    _, handle, _ = reader.lookup_entry((29,)) or pytest.fail("a miss")
    view.begin_tick(2)
    view.end_tick(2)
    for k in range(10, 20):
        reader.lookup((k,))
    reader.lookup_many([(k,) for k in range(20, 29)])
    reader.stamp(handle)
    coldest, stamps, _ = view.coldest(10)
    assert sorted(coldest[0].tolist()) == list(range(10))
    assert set(stamps.tolist()) == {1}
    coldest, stamps, _ = view.coldest(30)
    assert sorted(stamps.tolist()) == [1] * 10 + [2] * 20


def test_a_read_over_keys_during_a_tick_is_a_miss(setting: Setting) -> None:
    view = setting.full([BIGINT, BIGINT], (0,), [(1, 2)])
    view.begin_tick(5)
    assert setting.reader.tick() is None
    assert setting.reader.lookup((1,)) == [(1, 2)]
    assert setting.reader.lookup_many([(1,)])[1].all()
    assert not setting.reader.lookup_many([(1,)], same_tick=False)[1].any()
    view.end_tick(5)
    assert setting.reader.tick() == 5
    assert not setting.reader.lookup_many([(1,)])[1].any()


def test_a_dropped_view_may_be_created_again_with_other_columns(setting: Setting) -> None:
    view = setting.full([BIGINT, BIGINT], (0,), [(1, 2)], name="v")
    setting.full([BIGINT], (), [(3,)], name="a/../ strange name?" * 20)
    assert setting.attached.names() == ["a/../ strange name?" * 20, "v"]
    assert setting.attached.view("a/../ strange name?" * 20).lookup(()) == [(3,)]
    reader = setting.reader
    assert reader.lookup((1,)) == [(1, 2)]
    view.drop()
    view.drop()
    assert reader.lookup((1,)) is None
    assert reader.lookup_many([(1,)])[1].all()
    with pytest.raises(KeyError):
        attach(setting.attached.path).view("v")
    setting.full([TEXT, TEXT, BIGINT], (2,), [("x", "y", 1)])
    assert reader.lookup((1,)) == [("x", "y", 1)]
    assert [f.name for f in reader.fields] == ["c0", "c1", "c2"]


def test_a_missing_view_is_read_by_compiled_kernels(setting: Setting) -> None:
    """Memory of another type had them compiled for the first read of a view that was just replaced: nearly a second, in
    which a front end served nobody."""
    view = setting.full([BIGINT, BIGINT], (0,), [(1, 2)])
    reader = setting.reader

    def compiled() -> list[tuple[Any, ...]]:
        reader.lookup((1,))
        reader.lookup_many([(1,)])
        reader.tick()
        used = (read_kernels.read, read_kernels.read_many, read_kernels.stable_tick, read_kernels.serves)
        return [tuple(kernel.signatures) for kernel in used]

    before = compiled()
    view.drop()
    assert reader.lookup((1,)) is None
    assert compiled() == before


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_restarted_writer_has_other_symbols(setting: Setting, epoch: int) -> None:
    """The same text has another id in the next life: a key must not be looked up by its old one."""
    setting.full([TEXT, BIGINT], (0,), [("a", 1), ("b", 2)])
    reader = setting.reader
    assert reader.lookup(("a",)) == [("a", 1)]
    again = Setting(setting.path)
    again.directory = ViewDirectory(str(setting.path / "views"), again.symbols, epoch)
    view = again.create([TEXT, BIGINT], (0,), full=True)
    assert reader.lookup(("a",)) == [("a", 1)], "nothing is published yet"
    view.apply(again.batch([TEXT, BIGINT], [("b", 20), ("a", 10)]))
    assert reader.lookup(("a",)) is None
    assert reader.lookup_many([("a",)])[1].all()
    view.activate()
    assert reader.lookup(("a",)) == [("a", 10)]
    assert reader.lookup_many([("a",)])[0].to_pylist() == [{"c0": "a", "c1": 10, "__key": 0}]
    assert [p.name for p in setting.path.glob("symbols.*")] == ["symbols.00000002"]


def test_keys_with_more_rows_than_expected(setting: Setting) -> None:
    view = setting.create([BIGINT, BIGINT], (0,))
    view.fill(some(1, 2), Batch.from_rows([(2, i) for i in range(10_000)], 2))
    assert setting.reader.lookup((1,)) == []
    assert sorted(r[1] for r in setting.reader.lookup((2,)) or []) == list(range(10_000))
    table, missing = setting.reader.lookup_many([(2,), (1,), (2,)])
    assert table["__key"].to_pylist() == [0] * 10_000 + [2] * 10_000
    assert not missing.any()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    path = tmp_path / "small"
    path.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], capture_output=True)
    if mount.returncode:
        pytest.skip(f"cannot mount a small tmpfs (needs root): {mount.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_run_directory_is_an_error_that_changes_nothing(small_disk: Path) -> None:
    setting = Setting(small_disk)
    view = setting.create([BIGINT, BIGINT], (0,))
    filled = 0
    with pytest.raises(SqlError, match="Disk full") as error:
        while True:
            keys = np.arange(filled, filled + 500, dtype=np.int64)[None, :]
            view.fill(keys, Batch.of(np.concatenate([keys, keys])))
            filled += 500
    assert error.value.code == 1021
    assert filled > 5000
    everything = np.arange(filled + 500, dtype=np.int64)[None, :]
    assert int(view.missing(everything).sum()) == 500
    table, missing = setting.reader.lookup_many(pa.array(everything[0]))
    assert missing.tolist() == [False] * filled + [True] * 500
    assert table["c1"].to_pylist() == list(range(filled))
    with pytest.raises(SqlError, match="Disk full"):
        setting.create([BIGINT], (), name="another")
        setting.create([BIGINT] * 9, (), name="one more")
        for i in range(100):
            setting.create([BIGINT] * 9, (), name=f"one more {i}")
    assert setting.reader.lookup((5,)) == [(5, 5)]
    view.evict(everything[:, :filled - 1000])  # so many that it moves to less memory
    assert setting.reader.lookup((filled - 1,)) == [(filled - 1, filled - 1)]  # follows it: the old memory is free
    view.fill(keys, Batch.of(np.concatenate([keys, keys])))  # into the space that is free now
    assert setting.reader.lookup((filled,)) == [(filled, filled)]


def test_a_full_run_directory_and_the_symbol_table(small_disk: Path) -> None:
    symbols = SymbolTable(str(small_disk))
    known = 0
    with pytest.raises(SqlError, match="Disk full"):
        for known in range(10_000_000):
            symbols.intern(f"Žluťoučký kůň {known}")
    for number in (0, known // 2, known - 1):
        code = symbols.find(f"Žluťoučký kůň {number}")
        assert code is not None
        assert symbols.text(int(symbols.fold_table[code])) == f"zlutoucky kun {number}"


def test_memory_does_not_grow_beyond_its_reserve(tmp_path: Path) -> None:
    memory = GrowingMemory(str(tmp_path / "file"), 2**20, 2**12)
    memory.back(2**20)
    with pytest.raises(SqlError, match="is full at 1048576 bytes"):
        memory.back(2**20 + 1)
    memory.unlink()
    assert not os.path.exists(tmp_path / "file")


def test_a_lookup_while_texts_of_an_ended_worker_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is looked up while the next life of a worker removes the texts of the last one."""
    setting = Setting(tmp_path)
    setting.full([TEXT, BIGINT], (0,), [("a", 1)])
    reader, write_key = setting.attached.view("v"), AttachedView._write_key
    assert reader.lookup(["a"]) == [("a", 1)]
    after = SymbolTable(str(tmp_path))
    after_views = ViewDirectory(str(tmp_path / "views"), after, 5)
    fresh = after_views.create("v", [Field("c0", TEXT), Field("c1", BIGINT)], (0,), 2, True)
    fresh.apply(Batch.from_rows([[encode("a", TEXT, after), 2]], 2))
    fresh.activate()

    def removed(self: AttachedView, key: Any) -> bool:
        monkeypatch.setattr(AttachedView, "_write_key", write_key)
        raise FileNotFoundError("hash.0")

    monkeypatch.setattr(AttachedView, "_write_key", removed)
    assert reader.lookup(["a"]) == [("a", 2)]


def as_of(reader: AttachedView, key: tuple[int, ...], tick: int) -> list[tuple[Any, ...]] | None:
    entry = reader.lookup_entry(key)
    return entry[0] if entry is not None and reader.entry_tick <= tick else None


def test_rows_as_of_an_earlier_tick(tmp_path: Path) -> None:
    """An entry that a later tick has published, also by filling it, is a miss for the earlier one."""
    setting, row = Setting(tmp_path), np.array([[7], [70]], np.int64)
    view = setting.create([BIGINT, BIGINT], (0,))
    for tick, keys in ((5, [1, 2]), (7, [3])):
        view.begin_tick(tick)
        view.fill(np.array([keys], np.int64), Batch.of(np.array([keys, [10 * k for k in keys]], np.int64)))
        view.end_tick(tick)
    view.begin_tick(9)
    view.apply(Batch.of(np.array([[2], [21]], np.int64)))
    view.end_tick(9)
    reader = setting.attached.view("v")
    assert as_of(reader, (1,), 5) == [(1, 10)] and as_of(reader, (1,), 4) is None
    assert as_of(reader, (2,), 8) is None and as_of(reader, (2,), 9) == [(2, 20), (2, 21)]
    assert as_of(reader, (3,), 6) is None and as_of(reader, (3,), 7) == [(3, 30)]
    assert as_of(reader, (4,), 99) is None
    view.begin_tick(10)
    view.fill(row[:1], Batch.of(row))
    view.end_tick(10)
    view.expect(200_000, 200_000)  # moves to larger memory: the ticks go with the entries
    assert as_of(reader, (1,), 5) == [(1, 10)] and as_of(reader, (7,), 9) is None
    assert as_of(reader, (7,), 10) == [(7, 70)]


def test_all_rows_of_a_view_as_of_an_earlier_tick(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    view = setting.full([BIGINT, BIGINT], (), [(1, 1)])
    view.begin_tick(3)
    view.apply(Batch.of(np.array([[2], [2]], np.int64)))
    view.end_tick(3)
    reader = setting.attached.view("v")
    assert as_of(reader, (), 2) is None and sorted(as_of(reader, (), 3) or ()) == [(1, 1), (2, 2)]


def between(reader: AttachedView, low: int, high: int, tick: int | None = None) -> list[tuple[Any, ...]] | None:
    rows = reader.lookup_between(low, high, tick)
    return None if rows is None else [tuple(row.values())[:-1] for row in rows.to_pylist()]


def test_a_range_of_few_keys(tmp_path: Path) -> None:
    """Of a partial view each key must be present; of a full one an absent key has no rows."""
    setting = Setting(tmp_path)
    setting.full([BIGINT, BIGINT], (0,), [(1, 10), (3, 30)], name="f")
    view = setting.create([BIGINT, BIGINT], (0,))
    view.fill(some(1, 2, 3), Batch.of(np.array([[1, 3], [10, 30]], np.int64)))
    reader = setting.attached.view("v")
    assert between(reader, 1, 3) == [(1, 10), (3, 30)] and between(reader, 2, 2) == []
    assert between(reader, 1, 4) is None and between(reader, 0, 3) is None
    assert between(setting.attached.view("f"), -5, 900) == [(1, 10), (3, 30)]


def test_a_range_as_of_an_earlier_tick(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    view = setting.full([BIGINT, BIGINT], (0,), [])
    for tick, key in ((5, 1), (7, 2), (9, 3)):
        view.begin_tick(tick)
        view.apply(Batch.of(np.array([[key], [10 * key]], np.int64)))
        view.end_tick(tick)
    reader = setting.attached.view("v")
    assert between(reader, 1, 2, 7) == [(1, 10), (2, 20)] and between(reader, 1, 2, 6) is None
    assert between(reader, 1, 3, 8) is None and between(reader, 1, 3, 9) == [(1, 10), (2, 20), (3, 30)]
    assert between(reader, 1, 4, 99) is None, "the tick that removed key 4, if any, is not known"
