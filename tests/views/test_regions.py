"""Small views share files: regions that are used again, readers that come too late, and bounds that are reached."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noria
from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.types import BIGINT, DOUBLE, TEXT, Field, SqlType, decimal
from noria.core.values import encode
from noria.state.memory import mapped
from noria.state.symbols.symbols import SymbolTable
from noria.views.layout import DEAD, STATE, STATES
from noria.views.reader import AttachedView, attach
from noria.views.writer import ViewDirectory, WritableView

KEYS = np.arange(3, dtype=np.int64)[None, :]


class Directory:
    def __init__(self, path: Path):
        self.symbols = SymbolTable(str(path))
        self.views = ViewDirectory(str(path / "views"), self.symbols, 3)
        self.attached = attach(str(path / "views"))
        self.path = path / "views"

    def view(self, name: str, value: int, types: tuple[SqlType, ...] = (BIGINT, BIGINT),
             full: bool = False) -> WritableView:
        """Keys 0, 1 and 2 with that value in the other columns."""
        fields = [Field(f"c{i}", t) for i, t in enumerate(types)]
        view = self.views.create(name, fields, (0,), len(types), full)
        columns = [[encode(k, types[0], self.symbols) if not types[0].is_text else self.symbols.intern(str(k))
                    for k in range(3)]]
        columns += [[value] * 3 for _ in types[1:]]
        rows = Batch.of(np.array(columns, np.int64))
        if full:
            view.apply(rows)
            view.activate()
        else:
            view.fill(rows.columns[:1].copy(), rows)
        return view


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("other", [decimal(9, 2), DOUBLE, TEXT])
def test_a_key_is_coded_for_the_view_as_it_is(directory: Directory, other: SqlType) -> None:
    """Neither an empty answer nor an error may come from how the last view's key was coded."""
    view = directory.view("v", 7)
    reader = directory.attached.view("v")
    assert reader.lookup((1,)) == [(1, 7)]
    view.drop()
    view = directory.view("v", 8, (other, BIGINT))
    key = "1" if other.is_text else 1
    assert [r[1] for r in reader.lookup((key,)) or []] == [8]
    view.drop()
    view = directory.view("v", 9)
    assert reader.lookup((1,)) == [(1, 9)]
    view.drop()
    directory.view("v", 10, (other, BIGINT))
    assert reader.lookup_many([(key,)])[0]["c1"].to_pylist() == [10]
    reader = attach(str(directory.path)).view("v")
    view = directory.view("v", 11)  # another creation of the name, before the last is dropped
    assert reader.lookup_entry((key,)) is not None
    with pytest.raises(SqlError):
        reader.lookup((object(),))


def test_a_thousand_views_are_a_few_mappings_and_no_descriptors(directory: Directory) -> None:
    files, before = open_files(), maps()
    views = [directory.view(f"v{n}", n) for n in range(1000)]
    assert [directory.attached.view(f"v{n}").lookup((2,)) for n in range(1000)] == [[(2, n)] for n in range(1000)]
    assert open_files() <= files + 2, "the reader's symbols"
    assert maps() < before + 160
    for n, view in enumerate(views):
        view.drop()
        directory.attached.forget(f"v{n}")
    assert maps() < before + 60
    assert len(list(directory.path.rglob("*"))) == 2, "one pool and its stamps are kept for the next"


def test_a_region_used_again_never_looks_like_the_last_view(directory: Directory) -> None:
    first = directory.view("first", 1, full=True)
    late = directory.attached.view("first")
    held = late.lookup_entry((1,))
    assert held is not None
    _, handle, version = held
    first.drop()
    second = directory.view("second", 2)
    assert np.shares_memory(first._words, second._words)
    assert second._words[STATE] & STATES != DEAD
    assert late.version(handle) == -1 or late.version(handle) > version
    assert late.lookup((1,)) is None, "not an empty answer of a full view, and not the other view's rows"
    assert attach(str(directory.path)).view("second").lookup((1,)) == [(1, 2)]
    second.fill(np.arange(10, 3000, dtype=np.int64)[None, :], Batch.empty(2))  # grows out of its region
    third = directory.view("third", 3)
    assert np.shares_memory(first._words, third._words)
    assert directory.attached.view("second").lookup((2,)) == [(2, 2)]
    assert directory.attached.view("third").lookup((2,)) == [(2, 3)]


def test_readers_of_views_that_alternate_in_one_region(directory: Directory) -> None:
    """Two views alternate in the same memory, full and partial and of other widths, while readers read."""
    wrong: list[Any] = []
    stop, reads = threading.Event(), [0, 0, 0]

    def read(name: str, value: int) -> None:
        views = attach(str(directory.path))
        view: AttachedView | None = None
        while not stop.is_set():
            try:
                view = view or views.view(name)
            except KeyError:
                continue
            rows = view.lookup((1,))
            many, missing = view.lookup_many([(0,), (1,), (2,)])
            reads[value] += rows is not None
            if rows is not None and (len(rows) != 1 or set(rows[0][1:]) != {value} or rows[0][0] != 1):
                wrong.append((name, rows))
            if not missing.any() and (many.num_rows != 3 or set(many["c1"].to_pylist()) != {value}):
                wrong.append((name, many.to_pylist()))

    threads = [threading.Thread(target=read, args=(f"v{n}", n)) for n in (1, 2)]
    for t in threads:
        t.start()
    for turn in range(300):
        n = 1 + turn % 2
        view, before = directory.view(f"v{n}", n, (BIGINT,) * (2 + 3 * n), full=turn % 3 == 0), reads[n]
        for _ in range(1000):  # a reader gets a word in
            if reads[n] > before + turn % 3:
                break
            stop.wait(0.0001)
        view.drop()
    stop.set()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]
    assert reads[1] + reads[2] >= 100


class FewMaps:
    """A system that allows only this number of further mappings."""

    def __init__(self, patch: pytest.MonkeyPatch, most: int):
        self.live: weakref.WeakSet[Any] = weakref.WeakSet()
        make, few = mapped._Map.__init__, self

        def bounded(own: Any, *arguments: Any) -> None:
            if len(few.live) >= most:
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            make(own, *arguments)
            few.live.add(own)

        patch.setattr(mapped._Map, "__init__", bounded)


def test_a_view_without_a_mapping_is_an_error_and_leaves_no_files(directory: Directory, monkeypatch: pytest.MonkeyPatch
                                                          ) -> None:
    FewMaps(monkeypatch, 6)
    made = []
    with pytest.raises(SqlError, match="Out of memory: no addresses") as error:
        for n in range(10_000):
            made.append(directory.view(f"v{n}", n))
    assert error.value.code == 1041 and len(made) >= 64
    assert not (directory.path / f"view.v{len(made)}").exists()
    made.pop().drop()
    directory.view("again", 5)
    with pytest.raises(SqlError):
        directory.view("too many", 5)


def test_ad_hoc_views_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No client receives an error while an ad-hoc view can be dropped; after that, the error affects only new views."""
    columns = [f"c{n}" for n in range(12)]
    with noria.open(tmp_path / "data") as db:
        db.sql(f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(c + ' INT' for c in columns)})")
        db.sql(f"INSERT INTO t VALUES (1, {', '.join(map(str, range(12)))})")
        program = db.transport.program
        workers = len(db.transport.attachment()["paths"])
        FewMaps(monkeypatch, 9 * workers)  # two pools of views of each worker, mapped by it and by its front end
        for n in range(180):
            shown = [columns[n % 12], columns[n // 12 % 12], "id"]
            text = f"SELECT {', '.join(f'{c} AS x{i}' for i, c in enumerate(shown))} FROM t WHERE id = 1"
            assert db.sql(text).rows == [tuple(int(c[1:]) if c != "id" else 1 for c in shown)]
        assert 0 < len(list(program.adhoc())) < 140
        made = 0
        with pytest.raises(SqlError) as error:
            for made in range(400):
                db.sql(f"CREATE VIEW named{made} AS SELECT id, c1, c2 + {made} AS x FROM t WHERE id = ?")
        assert error.value.code == 1041 and made > 64 and not list(program.adhoc())
        assert db.view("named5").lookup(1) == [(1, 1, 7)]
        db.sql("DROP VIEW named7")
        db.sql("CREATE VIEW another AS SELECT id, c3 FROM t WHERE id = ?")
        assert db.view("another").lookup(1) == [(1, 3)]


LITTLE = """
import resource, sys
sys.path[:0] = {path!r}
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
import itertools, noria
columns = [f"c{{n}}" for n in range(9)]
with noria.open({data!r}) as db:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, " + ", ".join(c + " INT" for c in columns) + ")")
    db.sql("INSERT INTO t VALUES (1, 0, 1, 2, 3, 4, 5, 6, 7, 8)")
    for shown in itertools.islice(itertools.permutations(columns, 3), 300):
        assert db.sql(f"SELECT {{', '.join(shown)}} FROM t WHERE id = 1").rows == [tuple(int(c[1:]) for c in shown)]
print("served")
"""


def test_shapes_need_no_descriptors(tmp_path: Path) -> None:
    script = LITTLE.format(path=[p for p in sys.path if p], data=str(tmp_path / "data"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=280)
    assert done.stdout == "served\n", done.stderr[-2000:]
