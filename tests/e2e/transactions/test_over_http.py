"""Transactions over HTTP: a token for several requests, beside clients of MySQL's protocol at one or two front ends."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run, until
from noria.core.columns_codec import to_stream
from noria.server.http.bodies import ARROW
from server.local_services import LocalServices


class Http:
    """A client of its own connection."""

    def __init__(self, port: int, user: str = ""):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._login = {"Authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode()} if user else {}

    def request(self, path: str, body: bytes, token: str | None = None, **headers: str) -> tuple[int, bytes]:
        carried = {} if token is None else {"Noria-Transaction": token}
        self._connection.request("POST", path, body, {**self._login, **carried, **headers})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def sql(self, text: str, token: str | None = None, *parameters: Any) -> tuple[int, dict[str, Any]]:
        status, raw = self.request("/sql", json.dumps({"sql": text, "parameters": parameters}).encode(), token,
                                   **{"Content-Type": "application/json"})
        return status, json.loads(raw)

    def done(self, text: str, token: str | None = None, *parameters: Any) -> dict[str, Any]:
        status, body = self.sql(text, token, *parameters)
        assert status == 200, body
        return body

    def rows(self, text: str, token: str | None = None) -> list[list[Any]]:
        rows: list[list[Any]] = self.done(text, token)["rows"]
        return rows

    def begin(self, text: str = "BEGIN") -> str:
        token = self.done(text)["transaction"]
        assert isinstance(token, str) and len(token) >= 32
        return token

    def refused(self, text: str, token: str | None = None) -> tuple[int, int, str]:
        """The status, the error's number and its text."""
        status, body = self.sql(text, token)
        return status, body["error"]["code"], body["error"]["message"]

    def close(self) -> None:
        self._connection.close()


class Both:
    """A database behind MySQL's protocol and HTTP."""

    def __init__(self, server: LocalServer, services: LocalServices):
        self.server, self.services = server, services
        self.held = services.transactions

    def http(self, user: str = "") -> Http:
        return Http(self.services.port, user)

    def open(self) -> int:
        """The number of open transactions, by the loop that ends them."""
        async def counted() -> int:
            return len(self.held)

        return self.server.embedded.run(counted())


def served(directory: Path, workers: int, front_ends: int) -> Iterator[Both]:
    server = LocalServer(directory / "data", workers=workers, front_ends=front_ends)
    run(server.connect(), "CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a))",
        "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    with LocalServices(directory, embedded=server.embedded) as services:
        yield Both(server, services)
    server.close()


@pytest.fixture(params=[(1, 1), (3, 2)], ids=["one worker", "three workers, two front ends"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    yield from served(tmp_path, *request.param)


@pytest.fixture()
def one(tmp_path: Path) -> Iterator[Both]:
    yield from served(tmp_path, 1, 1)


ALL = "SELECT id, a FROM t ORDER BY id"


def test_a_token_joins_requests_until_the_commit(both: Both) -> None:
    client, b = both.http(), both.server.connect()
    token = client.begin()
    assert client.done("UPDATE t SET a = a + 1 WHERE id = ?", token, 1) == {
        "warnings": [], "affected": 1, "last_insert_id": 0, "info": "Rows matched: 1  Changed: 1  Warnings: 0",
        "transaction": token}
    client.done("INSERT INTO t VALUES (4, 40)", token)
    assert client.rows(ALL, token) == [[1, 11], [2, 20], [3, 30], [4, 40]]
    assert client.rows(ALL) == [[1, 10], [2, 20], [3, 30]]
    assert run(b, ALL) == [(1, 10), (2, 20), (3, 30)]
    assert client.done("COMMIT", token)["transaction"] is None
    assert client.rows(ALL) == [[1, 11], [2, 20], [3, 30], [4, 40]]
    assert run(b, ALL) == [(1, 11), (2, 20), (3, 30), (4, 40)]
    assert "transaction" not in client.done(ALL)
    assert both.open() == 0
    both.server.validate()


def test_a_rollback_undoes_it(both: Both) -> None:
    client = both.http()
    token = client.begin("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    client.done("DELETE FROM t", token)
    assert client.rows("SELECT COUNT(*) FROM t", token) == [[0]]
    assert client.done("ROLLBACK", token)["transaction"] is None
    assert client.rows("SELECT COUNT(*) FROM t") == [[3]]


def test_savepoints_and_failed_statements(both: Both) -> None:
    client = both.http()
    token = client.begin()
    client.done("INSERT INTO t VALUES (4, 40); SAVEPOINT s; INSERT INTO t VALUES (5, 50)", token)
    assert client.refused("INSERT INTO t VALUES (6, 60), (1, 0)", token)[:2] == (400, 1062)
    client.done("ROLLBACK TO s", token)
    assert client.rows("SELECT id FROM t ORDER BY id", token) == [[1], [2], [3], [4]]
    client.done("COMMIT", token)
    assert client.rows("SELECT id FROM t ORDER BY id") == [[1], [2], [3], [4]]


def test_isolation_and_read_only(both: Both) -> None:
    client, b = both.http(), both.server.connect()
    token = client.begin("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ ONLY")
    snapshot = client.begin()
    assert client.rows("SELECT a FROM t WHERE id = 1", token) == [[10]]
    assert client.rows("SELECT a FROM t WHERE id = 1", snapshot) == [[10]]
    run(b, "UPDATE t SET a = 11 WHERE id = 1")
    assert client.rows("SELECT a FROM t WHERE id = 1", token) == [[11]]
    assert client.rows("SELECT a FROM t WHERE id = 1", snapshot) == [[10]]
    assert client.refused("DELETE FROM t", token)[:2] == (400, 1792)
    assert client.done("COMMIT AND CHAIN", snapshot)["transaction"] == snapshot
    assert client.rows("SELECT a FROM t WHERE id = 1", snapshot) == [[11]]
    client.done("COMMIT", token)
    client.done("COMMIT RELEASE", snapshot)
    assert both.open() == 0


def test_rows_and_lookups_belong_to_it(both: Both) -> None:
    client = both.http()
    client.done("CREATE VIEW by_a AS SELECT id, a FROM t WHERE a = ?")
    token = client.begin()
    rows = to_stream(pa.table({"id": [4, 5], "a": [10, 50]})).to_pybytes()
    arrow = {"Content-Type": ARROW}
    assert client.request("/tables/t/rows", rows, token, **arrow) == (200, b'{"affected":2}')
    keys = to_stream(pa.table({"a": [10, 50, 60]})).to_pybytes()

    def found(token: str | None) -> list[tuple[int, ...]]:
        status, raw = client.request("/views/by_a/lookup", keys, token, **arrow)
        table = pa.ipc.open_stream(raw).read_all()
        assert status == 200 and table.column_names == ["id", "a", "__key"]
        return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True))

    assert found(token) == [(1, 10, 0), (4, 10, 0), (5, 50, 1)]
    assert found(None) == [(1, 10, 0)]
    assert client.request("/tables/t/rows", rows, token, **arrow)[0] == 400  # 1062
    assert client.request("/tables/none/rows", rows, token, **arrow)[0] == 404
    client.done("ROLLBACK", token)
    assert client.rows("SELECT COUNT(*) FROM t") == [[3]]
    assert client.request("/views/by_a/lookup", keys, token, **arrow)[0] == 410


def test_a_definition_commits_and_ends_it(both: Both) -> None:
    client = both.http()
    token = client.begin()
    client.done("DELETE FROM t WHERE id = 1", token)
    assert client.done("CREATE TABLE u (id INT PRIMARY KEY)", token)["transaction"] is None
    assert client.rows("SELECT COUNT(*) FROM t") == [[2]]
    assert client.refused("ROLLBACK", token)[0] == 410


def test_it_waits_for_locks_and_others_for_it(both: Both) -> None:
    client, b = both.http(), both.server.connect()
    token = client.begin()
    client.done("UPDATE t SET a = 0 WHERE id = 1", token)
    waiting = Waiting(b, "UPDATE t SET a = a + 1 WHERE id = 1")
    until(lambda: both.server.locks_waited_for() == 1)
    client.done("COMMIT", token)
    assert waiting.end() is None
    assert client.rows("SELECT a FROM t WHERE id = 1") == [[1]]
    token = client.begin("SET innodb_lock_wait_timeout = 1; BEGIN")
    run(b, "BEGIN", "UPDATE t SET a = 7 WHERE id = 1")
    assert client.refused("DELETE FROM t WHERE id = 1", token)[:2] == (400, 1205)
    client.done("UPDATE t SET a = 8 WHERE id = 2", token)  # only the statement was undone
    client.done("COMMIT", token)
    run(b, "ROLLBACK")
    assert client.rows("SELECT a FROM t WHERE id = 2") == [[8]]


def test_a_deadlock_ends_it(both: Both) -> None:
    client, b = both.http(), both.server.connect()
    run(b, "BEGIN", "UPDATE t SET a = 0 WHERE id = 1", "UPDATE t SET a = 1 WHERE id = 1")
    token = client.begin()
    client.done("UPDATE t SET a = 0 WHERE id = 2", token)
    waiting = Waiting(b, "UPDATE t SET a = 5 WHERE id = 2")
    until(lambda: both.server.locks_waited_for() == 1)
    assert client.refused("UPDATE t SET a = 6 WHERE id = 1", token)[:2] == (400, 1213)
    assert waiting.end() is None
    run(b, "COMMIT")
    assert client.refused("COMMIT", token)[:2] == (410, 1213)  # nobody takes it for committed
    assert both.open() == 0


def test_one_request_at_a_time(both: Both) -> None:
    client, b, second = both.http(), both.server.connect(), both.http()
    run(b, "BEGIN", "UPDATE t SET a = 0 WHERE id = 1")
    token = client.begin()
    waiting = threading.Thread(target=client.done, args=("UPDATE t SET a = 1 WHERE id = 1", token))
    waiting.start()
    until(lambda: both.server.locks_waited_for() == 1)
    assert second.refused("SELECT 1", token)[:2] == (409, 1105)
    run(b, "COMMIT")
    waiting.join(60)
    assert second.rows("SELECT a FROM t WHERE id = 1", token) == [[1]]  # by any connection
    second.done("COMMIT", token)


def test_unknown_tokens(one: Both) -> None:
    client, other = one.http("ann"), one.http("bob")
    token = client.begin()
    client.done("DELETE FROM t", token)
    assert client.refused("SELECT 1", "x" * 32)[:2] == (404, 1105)
    assert client.refused("SELECT 1", "")[:2] == (404, 1105)
    assert other.refused("COMMIT", token)[0] == 404
    assert client.rows("SELECT USER()", token) == [["ann@localhost"]]
    client.done("ROLLBACK", token)
    assert client.refused("COMMIT", token)[0] == 410
    assert other.refused("COMMIT", token)[0] == 404
    assert client.rows("SELECT COUNT(*) FROM t") == [[3]]


def test_an_idle_one_is_rolled_back(one: Both) -> None:
    client, b = one.http(), one.server.connect()
    one.held.idle_s = 0.01
    token = client.begin()
    until(lambda: one.open() == 0)
    status, code, message = client.refused("INSERT INTO t VALUES (9, 9)", token)
    assert (status, code) == (410, 4031) and "no request for 0.01 s" in message
    run(b, "UPDATE t SET a = 1 WHERE id = 1")
    one.held.idle_s = 60


def test_the_number_is_bounded(one: Both) -> None:
    ann, bob = one.http("ann"), one.http("bob")
    one.held.most, one.held.most_of_user = 3, 2
    tokens = [ann.begin(), ann.begin()]
    assert ann.refused("BEGIN")[:2] == (429, 1203)
    bob.begin()
    assert bob.refused("BEGIN")[:2] == (429, 1040)
    ann.done("COMMIT", tokens[0])
    bob.begin()
    assert one.open() == 3


def test_others_see_and_kill_it(both: Both) -> None:
    client, b = both.http("ann"), both.server.connect()
    token = client.begin()
    client.done("DELETE FROM t WHERE id = 1", token)
    number = client.rows("SELECT CONNECTION_ID()", token)[0][0]
    assert [r[1:5] for r in run(b, "SHOW PROCESSLIST") if r[0] == number] == [("ann", "localhost", "noria", "Sleep")]
    run(b, f"KILL {number}")
    assert client.refused("SELECT 1", token)[:2] == (410, 1317)
    assert run(b, "SELECT COUNT(*) FROM t") == [(3,)]
    run(b, "UPDATE t SET a = 5 WHERE id = 1")
    assert refused(b, f"KILL {number}") == 1094


def test_kill_ends_its_waiting_statement(one: Both) -> None:
    client, b = one.http(), one.server.connect()
    run(b, "BEGIN", "UPDATE t SET a = 0 WHERE id = 1")
    token = client.begin()
    number = client.rows("SELECT CONNECTION_ID()", token)[0][0]
    found: list[tuple[int, int, str]] = []
    waiting = threading.Thread(target=lambda: found.append(client.refused("DELETE FROM t WHERE id = 1", token)))
    waiting.start()
    until(lambda: one.server.locks_waited_for() == 1)
    run(one.server.connect(), f"KILL QUERY {number}")
    waiting.join(60)
    assert found[0][:2] == (400, 1317)
    client.done("UPDATE t SET a = 9 WHERE id = 2", token)  # only the statement was undone
    client.done("COMMIT", token)
    run(b, "COMMIT")
    assert client.rows("SELECT a FROM t ORDER BY id") == [[0], [9], [30]]


def test_a_client_that_leaves_within_a_request_is_rolled_back(both: Both) -> None:
    client, b, second = both.http(), both.server.connect(), both.http()
    run(b, "BEGIN", "UPDATE t SET a = 0 WHERE id = 1")
    token = client.begin()
    client.done("UPDATE t SET a = 7 WHERE id = 2", token)
    body = json.dumps({"sql": "UPDATE t SET a = 1 WHERE id = 1"}).encode()
    client._connection.request("POST", "/sql", body, {"Noria-Transaction": token, "Content-Type": "application/json"})
    until(lambda: both.server.locks_waited_for() == 1)
    client.close()
    until(lambda: both.open() == 0)
    assert second.refused("COMMIT", token)[:2] == (410, 1213)
    run(b, "UPDATE t SET a = 0 WHERE id = 2", "COMMIT")
    assert run(b, ALL) == [(1, 0), (2, 0), (3, 30)]


def test_an_error_in_the_first_request_holds_nothing(one: Both) -> None:
    client = one.http()
    assert client.refused("BEGIN; DELETE FROM t; SELECT * FROM nowhere")[:2] == (404, 1146)
    assert one.open() == 0 and client.rows("SELECT COUNT(*) FROM t") == [[3]]
    assert "transaction" not in client.done("BEGIN; DELETE FROM t WHERE id = 1; COMMIT")
    token = client.begin("SET autocommit = 0; DELETE FROM t WHERE id = 2")
    assert client.done("COMMIT", token)["transaction"] is None
    assert client.rows("SELECT id FROM t") == [[3]]


def test_it_has_a_database(both: Both) -> None:
    client = both.http()
    client.done("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, a INT)")
    token = client.begin()
    client.done("USE shop", token)
    client.done("INSERT INTO t VALUES (7, 70)", token)
    rows = to_stream(pa.table({"id": [8], "a": [80]})).to_pybytes()
    for path in ("/tables/t/rows", "/tables/noria.t/rows", "/tables/t/rows?database=noria&on_duplicate=ignore"):
        assert client.request(path, rows, token, **{"Content-Type": ARROW})[0] == 200
    client.done("COMMIT", token)
    assert client.rows("SELECT id FROM shop.t ORDER BY id") == [[7], [8]]
    assert client.rows("SELECT COUNT(*) FROM t") == [[4]]


def test_it_locks_what_it_reads(both: Both) -> None:
    client, b = both.http(), both.server.connect()
    token = client.begin()
    assert client.rows("SELECT a FROM t WHERE id = 1 FOR UPDATE", token) == [[10]]
    assert client.refused("SELECT a FROM t WHERE id = 1 FOR UPDATE NOWAIT")[:2] == (400, 3572)
    waiting = Waiting(b, "UPDATE t SET a = a + 1 WHERE id = 1")
    until(lambda: both.server.locks_waited_for() == 1)
    client.done("UPDATE t SET a = 20 WHERE id = 1; COMMIT", token)
    assert waiting.end() is None
    assert client.rows("SELECT a FROM t WHERE id = 1") == [[21]]
