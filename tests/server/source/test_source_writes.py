"""Writes of Spark's source at the server: what was staged is committed once, at one worker or several."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noria.core import limits
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Write
from noria.server.source import writes
from noria.server.source.writes import ONCE, StagedWrites


class Sink:
    """An embedded database with the writes of its server."""

    def __init__(self, path: Path, workers: int):
        from noria.client.embedded import EmbeddedTransport

        self.near = EmbeddedTransport(path / "data", None, workers)
        staging = path / f"staging-{uuid.uuid4().hex}"
        staging.mkdir()

        async def run(text: str) -> object:
            return await self.near.sessions.run(text, [])

        self.writes = StagedWrites(self.near.executor, None, self.near.link, staging, run)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        rows = self.near.sql(text, []).rows
        return [] if rows is None else [tuple(r.values()) for r in rows.to_pylist()]

    def write(self, table: str, *parts: dict[str, list[Any]], write: str = "", **request: Any) -> dict[str, Any]:
        write = write or uuid.uuid4().hex

        async def done() -> dict[str, Any]:
            names = []
            for part in parts:
                sink = pa.BufferOutputStream()
                pq.write_table(pa.table(part), sink)
                names.append((await self.writes.part(write, sink.getvalue().to_pybytes()))["part"])
            steps = [s async for s in self.writes.commit(write, {"table": table, "parts": names, **request})]
            return steps[-1]

        return self.near.run(done())


@pytest.fixture(params=[1, 3])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sink]:
    sink = Sink(tmp_path, request.param)
    sink.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT, v VARCHAR(9), UNIQUE (n))")
    sink.sql("CREATE TABLE bag (id INT, v VARCHAR(9))")
    yield sink
    sink.near.close()


@pytest.mark.parametrize("table", ["t", "bag"])
def test_a_batch_is_done_once_whoever_asks_again(sink: Sink, table: str, tmp_path: Path) -> None:
    rows = {"id": list(range(50)), "v": ["x"] * 50}
    assert sink.write(table, rows, {"id": [77]}, scope="q", batch=3)["rows"] == 51
    for batch in (3, 2):
        again = sink.write(table, rows, scope="q", batch=batch)
        assert again == {"step": "done", "rows": 0, "rejected": 0, "again": True}
    assert sink.sql(f"SELECT COUNT(*) FROM {table}") == [(51,)]
    workers = sink.near.link.workers
    sink.near.close()
    anew = Sink(tmp_path, workers)  # also after a restart
    try:
        assert anew.write(table, rows, scope="q", batch=3)["again"]
        assert anew.write(table, {"id": [90]}, scope="q", batch=4)["rows"] == 1
        done = anew.near.run(anew.writes._done("q"))
        assert done == ["once:q/4"]  # of each scope the last one
        assert anew.sql(f"SELECT COUNT(*) FROM {table}") == [(52,)]
    finally:
        anew.near.close()


def test_what_fails_is_not_done_and_may_come_again(sink: Sink) -> None:
    sink.sql("INSERT INTO t VALUES (1, 1, 'a')")
    with pytest.raises(SqlError, match="Duplicate entry '1'"):
        sink.write("t", {"id": [5, 1, 9], "n": [5, 7, 9]}, scope="q")
    assert sink.sql("SELECT id FROM t") == [(1,)]
    assert sink.write("t", {"id": [5, 9], "n": [5, 9]}, scope="q")["rows"] == 2


def test_by_key(sink: Sink) -> None:
    sink.write("t", {"id": [1, 2, 3], "n": [1, 2, 3], "v": ["a", "b", "c"]})
    sink.write("t", {"id": [2, 4], "v": ["B", "D"]}, on="update")
    assert sink.sql("SELECT * FROM t ORDER BY id") == [(1, 1, "a"), (2, 2, "B"), (3, 3, "c"), (4, None, "D")]
    sink.write("t", {"id": [2, 5], "v": ["", "e"]}, on="ignore")
    sink.write("t", {"id": [3]}, on="replace")
    found = sink.sql("SELECT id, n, v FROM t WHERE id IN (2, 3, 5) ORDER BY id")
    assert found == [(2, 2, "B"), (3, None, None), (5, None, "e")]
    sink.write("t", {"id": [1, 2, 8], "v": ["", "", ""]}, on="delete")
    assert sink.sql("SELECT id FROM t ORDER BY id") == [(3,), (4,), (5,)]
    sink.write("t", {"id": [6]}, overwrite=True)
    assert sink.sql("SELECT id FROM t") == [(6,)]


def test_many_rows_by_key_go_in_pieces(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "SOURCE_STATEMENT_ROWS", 7)
    monkeypatch.setattr(writes, "SOURCE_KEYS", 4)
    assert sink.write("t", {"id": list(range(20))}, {"id": list(range(10, 30))}, on="update")["rows"] == 40
    assert sink.sql("SELECT COUNT(*) FROM t") == [(30,)]
    assert sink.write("t", {"id": list(range(25))}, on="delete", scope="d")["rows"] == 25
    assert sink.sql("SELECT COUNT(*) FROM t") == [(5,)] and sink.write("t", scope="d")["again"]


def test_refusals_say_what_to_do(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    for table, request, said in (
            ("no", {}, "no"), ("t", {"on": "x"}, "error, ignore, replace, update, delete"),
            ("bag", {"on": "update"}, "has no primary key"), ("t", {"scope": "a/b"}, "no scope of a write"),
            ("t", {"parts": ["0" * 32]}, "are not here .any more.: .*write again"),
            ("t", {"on": "update", "max_rejects": 1}, "bad rows cannot be set aside")):
        with pytest.raises(SqlError, match=said):
            sink.write(table, {"id": [1]}, **request)
    with pytest.raises(SqlError, match="no column 'other' in table t: it has id, n, v"):
        sink.write("t", {"other": [1]})
    with pytest.raises(SqlError, match="the column id must be there"):
        sink.write("t", {"v": ["x"]}, on="delete")
    with pytest.raises(SqlError, match="no Parquet file"):
        sink.near.run(sink.writes.part("0" * 32, b"PAR1"))
    with pytest.raises(SqlError, match="no write's name"):
        sink.near.run(sink.writes.part("../x", b""))
    monkeypatch.setattr(writes, "SOURCE_WRITES", len(sink.writes._staged))
    with pytest.raises(SqlError, match="writes of Spark's source are under way"):
        sink.write("t", {"id": [1]})


def test_what_is_over_leaves_nothing(sink: Sink) -> None:
    write = uuid.uuid4().hex
    sink.write("t", {"id": [1]}, write=write)
    assert sink.near.run(sink.writes._done(write)) == [f"once:{write}/0"]
    place = sink.writes._staged[write].place
    assert list(place.iterdir()) == []
    sink.near.run(sink.writes.drop(write))
    assert sink.near.run(sink.writes._done("")) == [] and write not in sink.writes._staged


def test_who_is_remembered_is_bounded(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "ONCE_KEPT", 3)
    for n in range(6):
        sink.write("bag", {"id": [n]}, scope=f"s{n}")

    async def every() -> list[str]:
        return list(await sink.near.executor.ask(writes.Inspect(0, "remembered names", writes.ONCE)))

    assert len(sink.near.run(every())) <= 4 < limits.ONCE_KEPT


def test_what_became_of_a_load(sink: Sink) -> None:
    """A client that has gone asks by the name of its load."""
    writes = sink.writes

    class BulkJobs:
        def __init__(self, fails: bool, is_left: bool):
            self.fails, self.is_left = fails, is_left

        async def load(self, request: dict[str, Any], run: object, write: Any) -> AsyncIterator[dict[str, Any]]:
            assert request["once"] == f"{ONCE}load.{name}/0"
            assert (await writes.loaded(name), await writes.loaded("other")) == ("under way", "nothing")
            yield {"step": "reading"}
            if self.fails:
                raise SqlError(1105, "HY000", "no")
            await writes._link.change(Write((), idempotency_key=request["once"]))
            yield {"step": "done", "rows": 1}
            if self.is_left:
                raise asyncio.CancelledError

    async def state(name: str) -> str:
        with contextlib.suppress(SqlError, asyncio.CancelledError):
            async for _ in writes.load({"once": name}):
                pass
        return await writes.loaded(name)

    for fails, is_left, name, wanted in ((True, False, "monday", "nothing"), (False, False, "monday", "done"),
                                         (False, False, "cli-1", "nothing"), (False, True, "cli-1", "done")):
        writes._bulk = BulkJobs(fails, is_left)
        assert sink.near.run(state(name)) == wanted, "one that its command was told of is forgotten"
    assert sink.near.run(writes.loaded("no name!")) == "nothing"
