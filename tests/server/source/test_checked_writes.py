"""Writes of Spark's source into tables with FOREIGN KEYs: they keep the keys, as statements of SQL do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noria.client.embedded import EmbeddedTransport
from noria.core.errors import SqlError
from noria.server.source import writes
from noria.server.source.checked_writes import CheckedWrites
from noria.server.source.writes import StagedWrites

TABLES = ("CREATE TABLE p (id INT PRIMARY KEY, n INT)",
          "CREATE TABLE c (id INT AUTO_INCREMENT PRIMARY KEY, p INT, n INT, CHECK (n < 100), double_n INT AS (n * 2), "
          "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
          "CREATE TABLE d (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id))",
          "CREATE TABLE tree (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES tree (id))",
          "INSERT INTO p VALUES (1, 1), (2, 2), (3, 3)", "INSERT INTO c (id, p, n) VALUES (1, 1, 1), (2, 2, 2)",
          "INSERT INTO d VALUES (1, 1)")


class Sink:
    """An embedded database with the writes of its server."""

    def __init__(self, path: Path, workers: int):
        self.near = EmbeddedTransport(path / "data", None, workers)
        staging = path / "staging"
        staging.mkdir()

        async def run(text: str) -> object:
            return await self.near.sessions.run(text, [])

        self.writes = StagedWrites(self.near.executor, None, self.near.link, staging, run,
                                   CheckedWrites(self.near.sessions, self.near.executor.program.catalog.databases))

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        rows = self.near.sql(text, []).rows
        return [] if rows is None else [tuple(r.values()) for r in rows.to_pylist()]

    def write(self, table: str, rows: dict[str, list[Any]], **request: Any) -> dict[str, Any]:
        write = uuid.uuid4().hex

        async def done() -> dict[str, Any]:
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table(rows), sink)
            part = (await self.writes.part(write, sink.getvalue().to_pybytes()))["part"]
            return [s async for s in self.writes.commit(write, {"table": table, "parts": [part], **request})][-1]

        return self.near.run(done())

    def refused(self, table: str, rows: dict[str, list[Any]], **request: Any) -> int:
        with pytest.raises(SqlError) as found:
            self.write(table, rows, **request)
        return found.value.code


@pytest.fixture(params=[1, 3])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sink]:
    sink = Sink(tmp_path, request.param)
    for text in TABLES:
        sink.sql(text)
    yield sink
    sink.near.close()


def test_a_child_needs_its_parent(sink: Sink) -> None:
    assert sink.refused("c", {"p": [1, 9], "n": [5, 5]}) == 1452
    assert sink.sql("SELECT COUNT(*) FROM c") == [(2,)]
    assert sink.write("c", {"p": [1, 3, None], "n": [5, 6, 7]})["rows"] == 3
    assert sink.sql("SELECT p, double_n FROM c WHERE n > 4 ORDER BY n") == [(1, 10), (3, 12), (None, 14)]
    assert sink.refused("c", {"p": [1], "n": [100]}) == 3819
    assert sink.write("c", {"id": [50, 51], "p": [1, 9]}, on="ignore")["rows"] == 2
    assert sink.sql("SELECT id FROM c WHERE id >= 50") == [(50,)]


def test_a_row_may_refer_to_one_of_the_same_write(sink: Sink) -> None:
    assert sink.write("tree", {"id": [1, 2, 3], "up": [2, 3, None]})["rows"] == 3
    assert sink.refused("tree", {"id": [4, 5], "up": [5, 6]}) == 1452
    assert sink.write("tree", {"id": [4, 5], "up": [4, 1]})["rows"] == 2


def test_what_follows_when_parents_go(sink: Sink) -> None:
    assert sink.refused("p", {"id": [1, 3]}, on="delete") == 1451, "d needs the row of c that would follow"
    assert sink.refused("p", {"id": [1], "n": [7]}, on="replace") == 1451
    assert sink.sql("SELECT COUNT(*) FROM p") == [(3,)]
    sink.write("p", {"id": [1, 3], "n": [7, 8]}, on="update")
    sink.write("p", {"id": [2, 4], "n": [9, 9]}, on="replace")
    assert sink.sql("SELECT id, n FROM p ORDER BY id") == [(1, 7), (2, 9), (3, 8), (4, 9)]
    assert sink.sql("SELECT id FROM c") == [(1,)], "REPLACE deletes the row, and inserts"
    assert sink.refused("p", {"id": [1]}, overwrite=True) == 1701
    sink.write("p", {"id": [2, 3, 4]}, on="delete")
    assert sink.sql("SELECT id FROM p") == [(1,)]


def test_a_batch_is_done_once(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "SOURCE_STATEMENT_ROWS", 2)
    rows = {"id": list(range(10, 15)), "p": [1, 2, 3, 1, 2]}
    assert sink.write("c", rows, scope="q", batch=1, on="ignore")["rows"] == 5
    assert sink.write("c", rows, scope="q", batch=1, on="ignore")["again"]
    assert sink.write("c", rows, scope="q", batch=2, on="ignore")["rows"] == 5, "nothing is new, and it is remembered"
    assert sink.write("c", rows, scope="q", batch=2, on="ignore")["again"]
    assert sink.sql("SELECT COUNT(*) FROM c") == [(7,)]


def test_nothing_stays_open(sink: Sink) -> None:
    sink.write("c", {"p": [1]})
    sink.refused("c", {"p": [9]})
    assert sink.sql("DROP TABLE d") == [] and sink.sql("DROP TABLE c") == []
