"""The Python client over a real socket: rows in every form, lookups, errors, addresses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import noria
from noria.core.errors import SqlError
from noria.server.http.app import make_app
from noria.server.http.server import HttpServer
from noria.server.listening import listening
from server.fake_services import FakeServices


@pytest.fixture
def served() -> Iterator[tuple[FakeServices, str]]:
    """A server in a thread of its own."""
    services, started, address = FakeServices(password="p@ss"), threading.Event(), []
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        server = HttpServer(make_app(services))
        await server.start(listening("127.0.0.1", 0, ""))
        address.append("http://root:p%40ss@127.0.0.1:" + str(server.address[1]))
        stop.append((asyncio.get_running_loop(), asyncio.Event()))
        started.set()
        await stop[0][1].wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(10)
    yield services, address[0]
    stop[0][0].call_soon_threadsafe(stop[0][1].set)
    thread.join(10)


def test_inserts_in_every_form(served: tuple[FakeServices, str]) -> None:
    services, url = served
    with noria.connect(url) as db:
        words = db.table("Words")
        assert words.columns == ("id", "word") and words.primary_key == ("id",)
        assert words.insert([(1, "one"), (2, None)]) == 2
        assert words.insert({"id": [3], "word": ["three"]}) == 1
        assert words.insert(pa.table({"id": [4], "word": ["four"]})) == 1
        assert words.insert(pa.RecordBatch.from_pydict({"id": [4], "word": ["4"]}), on_duplicate="replace") == 1
        assert words.insert([]) == 0
        assert services.rows == {1: "one", 2: None, 3: "three", 4: "4"}
        with pytest.raises(SqlError, match="Duplicate entry '1'") as e:
            words.insert([(1, "again")])
        assert e.value.code == 1062
        with pytest.raises(ValueError, match="row 1 has 1 values for 2 columns"):
            words.insert([(5, "five"), (6,)])


def test_lookups(served: tuple[FakeServices, str]) -> None:
    services, url = served
    services.rows = {1: "one", 3: "three"}
    with noria.connect(url) as db:
        view = db.view("ById")
        assert view.columns == ("id", "word") and view.key == ("id",)
        assert view.lookup(1) == [(1, "one")]
        assert view.lookup(2) == []
        many = view.lookup_many([3, 2, 1])
        assert many.column("__key").to_pylist() == [0, 2] and many.column("word").to_pylist() == ["three", "one"]
        assert view.lookup_many(pa.array([1])).num_rows == 1
        with pytest.raises(ValueError, match="the key has 2 values and needs 1: id"):
            view.lookup((1, 2))
        with pytest.raises(SqlError, match="doesn't exist"):
            db.view("none").lookup(1)


def test_sql_and_primary_key_writes(served: tuple[FakeServices, str]) -> None:
    services, url = served
    with noria.connect(url) as db:
        result = db.sql("SELECT n")
        assert result.columns == ("n", "n") and list(result) == [(1, "é"), (None, None)] and len(result) == 2
        assert result.warnings == (("Note", 1, "slow"),)
        written = db.sql("INSERT", [1])
        assert (written.affected, written.last_insert_id, written.arrow) == (2, 41, None)
        with pytest.raises(SqlError, match=r"no: UPDATE `noria`.`Words` SET `word` = \? WHERE `id` = \?"):
            db.table("Words").update(1, word="uno")
        with pytest.raises(SqlError, match=r"no: DELETE FROM `noria`.`Words` WHERE `id` = \?"):
            db.table("Words").delete(1)
        assert [p for _, p in services.statements[-2:]] == [["uno", 1], [1]]


def test_a_wrong_password_and_a_server_that_is_not_there(served: tuple[FakeServices, str]) -> None:
    _, url = served
    with pytest.raises(ConnectionError, match="wrong user or password"):
        noria.connect(url.replace("p%40ss", "wrong")).sql("SELECT 1")
    with pytest.raises(ConnectionError, match="did not answer"):
        noria.connect("http://127.0.0.1:9").sql("SELECT 1")


@pytest.mark.parametrize("url", ["ftp://h", "http://", "mysql://h", "http://h/path"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="is no server's address"):
        noria.connect(url)
