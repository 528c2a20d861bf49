"""Feeds over HTTP: server-sent events and Arrow streams."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import noria
from server.local_services import LocalServices


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalServices]:
    with LocalServices(tmp_path) as services:
        services.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(6, 2), at DATETIME)",
                     "INSERT INTO t VALUES (1, 'a', 1.5, '2026-01-02 03:04:05'), (2, NULL, NULL, NULL)")
        yield services


class Events:
    """What a browser's EventSource makes of it."""

    def __init__(self, local: LocalServices, path: str, last: str | None = None):
        self.connection = http.client.HTTPConnection("127.0.0.1", local.port, timeout=30)
        self.connection.request("GET", path, headers={} if last is None else {"Last-Event-ID": last})
        self.response = self.connection.getresponse()

    def next(self) -> tuple[str, str | None, Any]:
        fields: dict[str, str] = {}
        while (line := self.response.readline().decode().rstrip("\n")) or "event" not in fields:
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        return fields["event"], fields.get("id"), json.loads(fields["data"])

    def close(self) -> None:
        self.connection.close()


def get(local: LocalServices, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", local.port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_events(local: LocalServices) -> None:
    events = Events(local, "/views/t/changes")
    assert events.response.getheader("content-type").startswith("text/event-stream")
    kind, mark, data = events.next()
    assert (kind, mark) == ("rows", None)
    assert sorted(data["rows"], key=lambda r: r[1]["id"]) == [
        [1, {"id": 1, "name": "a", "price": "1.50", "at": "2026-01-02 03:04:05"}],
        [1, {"id": 2, "name": None, "price": None, "at": None}]]
    kind, whole, _ = events.next()
    assert kind == "whole"
    local.run("DELETE FROM t WHERE id = 2")
    kind, mark, data = events.next()
    assert (kind, data["rows"]) == ("changes", [[-1, {"id": 2, "name": None, "price": None, "at": None}]])
    events.close()
    local.run("DELETE FROM t WHERE id = 1")
    again = Events(local, "/views/t/changes", last=mark)
    assert again.next()[2]["rows"][0][1]["id"] == 1
    again.close()
    both = Events(local, f"/views/t/changes?since={whole}")
    assert {r[1]["id"] for r in both.next()[2]["rows"]} == {1, 2}
    both.close()


def test_arrow_between_two_watermarks(local: LocalServices) -> None:
    about = json.loads(get(local, "/views/t/feed")[1])
    assert [c["name"] for c in about["columns"]] == ["id", "name", "price", "at"]
    start = about["newest"]
    local.run("UPDATE t SET name = 'b' WHERE id = 1", "INSERT INTO t VALUES (3, 'c', 2, NULL)")
    now = json.loads(get(local, "/views/t/feed")[1])["newest"]
    status, raw = get(local, f"/views/t/changes?after={start}&until={now}&format=arrow")
    told = pa.ipc.open_stream(raw).read_all()
    assert status == 200
    assert sorted(zip(told["_sign"].to_pylist(), told["id"].to_pylist(), told["name"].to_pylist(), strict=True)) == [
        (-1, 1, "a"), (1, 1, "b"), (1, 3, "c")]
    assert told["_watermark"].to_pylist()[-1] == now
    rows = pa.ipc.open_stream(get(local, f"/views/t/rows?at={start}&format=arrow")[1]).read_all()
    assert sorted(rows["id"].to_pylist()) == [1, 2]
    assert rows.schema == told.schema


@pytest.mark.parametrize("path, status, said", [
    ("/views/none/changes", 404, "none"),
    ("/views/t/changes?since=0123456789abcdef.5", 410, "since=start"),
    ("/views/t/changes?since=yesterday", 400, "no watermark"),
    ("/views/t/changes?format=xml", 400, "format=events or format=arrow"),
    ("/views/t/changes?after=0123456789abcdef.5&format=arrow", 410, "another life"),
    ("/views/t/rows?at=0123456789abcdef.5", 410, "another life"),
    ("/views/t/rows?format=json", 400, "format=arrow"),
])
def test_what_cannot_be_told(local: LocalServices, path: str, status: int, said: str) -> None:
    found, raw = get(local, path)
    assert (found, said in json.loads(raw)["error"]["message"]) == (status, True), raw


def test_the_client(local: LocalServices) -> None:
    with noria.connect(f"http://127.0.0.1:{local.port}") as db:
        changes = db.table("t").changes()
        assert sorted(row[0] for _, row in next(changes)) == [1, 2]
        assert next(changes).kind == "whole"
        db.sql("INSERT INTO t (id) VALUES (9)")
        told = next(changes)
        assert [(sign, row[0]) for sign, row in told] == [(1, 9)]
        assert told.watermark is not None
        with pytest.raises(noria.core.errors.SqlError, match="since=start"):
            next(db.table("t").changes("0123456789abcdef.5"))
