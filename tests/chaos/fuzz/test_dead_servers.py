"""What a reader of shared memory is told once the server whose memory it has mapped is gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import noria
from chaos.fuzz.embedded import Embedded
from noria.server.run_directory import make_run_dir, remove_run_dir
from noria.views.reader import attach


@pytest.mark.parametrize("removed_by", ["its own end", "the next start"])
def test_views_of_a_removed_run_directory_are_dead_to_who_has_them_mapped(tmp_path: Path, removed_by: str) -> None:
    """A server that is killed says nothing: its memory stayed mapped, and was read for ever."""
    run_dir = make_run_dir(tmp_path / "data", tmp_path)
    program = ("CREATE TABLE t (k INT PRIMARY KEY, n INT)", "CREATE VIEW v AS SELECT k, n FROM t WHERE k = ?")
    database = Embedded(tmp_path, program, ("INSERT INTO t VALUES (1, 10)",), run_dir)
    database.run(database.executor.lookup("v", pa.table({"k": [1]})))
    reader = attach(str(database.views)).view("v")
    assert reader.lookup((1,)) == [(1, 10)]
    if removed_by == "its own end":
        remove_run_dir(run_dir)
    else:
        assert make_run_dir(tmp_path / "data", tmp_path) == run_dir
    assert reader.lookup((1,)) is None, "a miss: whoever serves now is asked"
    database.close()


def test_nor_is_memory_of_several_workers_read_any_more(tmp_path: Path) -> None:
    """Theirs has directories of other names, which the next server did not bury."""
    with noria.open(tmp_path / "data", workers=3) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, n INT)")
        db.sql("CREATE VIEW v AS SELECT k, n FROM t WHERE k = ?")
        db.table("t").insert([(k, 10 * k) for k in range(9)])
        attached = db.view("v").attach()
        for k in range(9):
            attached.lookup(k)
        paths = db.transport.attachment()["paths"]
        readers = [attach(p).view("v") for p in paths]
        assert all(sum(r.lookup((k,)) == [(k, 10 * k)] for r in readers) == 1 for k in range(9))
        remove_run_dir(Path(paths[0]).parent)
        assert all(r.lookup((k,)) is None for r in readers for k in range(9))


def test_who_is_attached_finds_the_workers_of_the_next_server(tmp_path: Path) -> None:
    """There are more of them, as after `noria reshard`: a key's rows are at other workers."""
    def opened(name: str, workers: int) -> noria.Database:
        db = noria.open(tmp_path / name, workers=workers)
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, n INT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, n FROM t WHERE k = ?")
        db.table("t").insert([(k, workers * k) for k in range(9)])
        return db

    with opened("first", 2) as first, opened("second", 3) as second:
        attached = first.view("v").attach()
        assert [attached.lookup(k) for k in range(9)] == [[(k, 2 * k)] for k in range(9)]
        remove_run_dir(Path(first.transport.attachment()["paths"][0]).parent)
        attached._transport = second.transport
        for _ in range(2):
            assert [attached.lookup(k) for k in range(9)] == [[(k, 3 * k)] for k in range(9)]
        misses = attached.misses
        assert attached.lookup_many(list(range(9))).column("n").to_pylist() == [3 * k for k in range(9)]
        assert attached.misses == misses, "they are found in shared memory again"


def test_texts_of_the_next_server_are_its_own(tmp_path: Path) -> None:
    """Both number the lives of their symbol tables from 1: a reader decoded rows of the second with the first's."""
    program = ("CREATE TABLE t (k INT PRIMARY KEY, s VARCHAR(9))", "CREATE VIEW v AS SELECT k, s FROM t WHERE k = ?")
    directory = make_run_dir(tmp_path / "data", tmp_path) / "views"
    reader = attach(str(directory))
    for life in ("first", "second"):
        run_dir = make_run_dir(tmp_path / "data", tmp_path)
        (tmp_path / life).mkdir()
        database = Embedded(tmp_path / life, program, (f"INSERT INTO t VALUES (1, '{life}')",), run_dir)
        database.run(database.executor.lookup("v", pa.table({"k": [1]})))
        assert reader.view("v").lookup((1,)) == [(1, life)]
        database.close()
