"""UPDATE and DELETE that go through a large table, on a real server: done by Spark, compared with SQLite, while others
read and write; cancelled, refused, and with each process at work on it killed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
import pytest

import noria
from e2e.meanwhile import Statement, clients
from e2e.serving import Served, execute, rows, until
from noria.core.limits import REWRITTEN_KEYS, REWRITTEN_ROWS
from seeds import kinds

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]
ROWS = REWRITTEN_ROWS + 20_000
TABLE = ("CREATE TABLE v (id INT PRIMARY KEY AUTO_INCREMENT, kind INT NOT NULL, note VARCHAR(20), "
         "n SMALLINT DEFAULT 1, UNIQUE KEY two (kind, id))")
VIEWS = {
    "one": "SELECT id, kind, note, n FROM v WHERE id = ?",
    "per_kind": "SELECT kind, COUNT(*) AS c, SUM(n) AS total FROM v WHERE kind = ? GROUP BY kind",
    "kinds": "SELECT kind, COUNT(*) AS c, SUM(n) AS total FROM v GROUP BY kind",
    "joined": "SELECT k.name, COUNT(*) AS c FROM v JOIN k ON k.kind = v.kind GROUP BY k.name",
}
KINDS = 1_000
OVER = {  # one that is INTERNAL, and one that reads it
    "inner_counts": "SELECT kind, COUNT(*) AS c FROM v GROUP BY kind",
    "over_inner": "SELECT k.kind, name, c FROM k JOIN inner_counts ON k.kind = inner_counts.kind WHERE k.kind = ?",
}
STATEMENTS = (
    "UPDATE v SET n = n + 1, note = 'new' WHERE id >= 50",
    "UPDATE v SET kind = kind + 7 WHERE kind % 3 = 1",
    f"DELETE FROM v WHERE id % 5 = 0 AND id < {ROWS}",
    "UPDATE v SET id = id + 1000000 WHERE n > 0",
)


class Same:
    """A server and SQLite that are told the same."""

    def __init__(self, server: Served):
        self.server = server
        self.lite = sqlite3.connect(":memory:", check_same_thread=False)
        self.lite.execute("CREATE TABLE v (id INT PRIMARY KEY, kind INT, note TEXT, n INT)")
        self.lite.execute("CREATE TABLE k (kind INT PRIMARY KEY, name TEXT)")

    def fill(self) -> None:
        """ROWS rows again."""
        with self.server.connect() as c, noria.connect(self.server.url) as db:
            execute(c, "TRUNCATE TABLE v")
            self.lite.execute("DELETE FROM v")
            for at in range(0, ROWS, 50_000):
                ids = np.arange(at, min(at + 50_000, ROWS)) + 1
                texts = [f"r{i}" if i % 11 else None for i in ids.tolist()]
                db.table("v").insert(pa.table({"id": ids, "kind": ids % KINDS, "note": texts, "n": ids % 7}))
                self.lite.executemany("INSERT INTO v VALUES (?, ?, ?, ?)",
                                      zip(ids.tolist(), (ids % KINDS).tolist(), texts, (ids % 7).tolist(), strict=True))

    def both(self, text: str) -> None:
        with self.server.connect() as c:
            execute(c, text)
        self.lite.execute(text)

    def compare(self) -> None:
        """What others wrote is seen soon."""
        def same() -> bool:
            with suppress(AssertionError):
                self._compare()
                return True
            return False

        with suppress(AssertionError):
            until("all is the same", same, 10)
        self._compare()

    def _compare(self) -> None:
        with self.server.connect() as c:
            execute(c, "SET max_execution_time = 300000")  # Spark is there a while after a server that started again
            for text in ("SELECT COUNT(*), SUM(id), SUM(kind), SUM(n), COUNT(note), MIN(note), MAX(note) FROM v",
                         VIEWS["kinds"], VIEWS["joined"]):
                have, want = rows(c, text), self.lite.execute(text).fetchall()
                assert sorted(map(_plain, have)) == sorted(map(_plain, want)), text
            for kind in range(0, KINDS + 20, 97):
                have = rows(c, f"SELECT * FROM per_kind WHERE kind = {kind}")
                want = self.lite.execute(VIEWS["per_kind"].replace("?", str(kind))).fetchall()
                assert sorted(map(_plain, have)) == sorted(map(_plain, want)), kind
                have = rows(c, f"SELECT * FROM over_inner WHERE kind = {kind}")
                text = OVER["over_inner"].replace("inner_counts", f"({OVER['inner_counts']}) AS inner_counts", 1)
                text = text.replace("?", str(kind))
                assert sorted(map(_plain, have)) == sorted(map(_plain, self.lite.execute(text))), kind
            for key in (1, 2, 51, ROWS // 2, ROWS, 1_000_051, 1_000_052):
                have = rows(c, f"SELECT * FROM one WHERE id = {key}")
                assert have == self.lite.execute(VIEWS["one"].replace("?", str(key))).fetchall(), key


def _is(connection: Any, text: str, want: list[tuple[Any, ...]]) -> bool:
    return sorted(map(_plain, rows(connection, text))) == want


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("" if v is None else str(v) for v in row)


@pytest.fixture(scope="module", params=kinds(1, 2))
def same(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Same]:
    server = Served(tmp_path_factory.mktemp("rewriting") / "data", "--workers", str(request.param))
    try:
        made = Same(server)
        with server.connect() as c:
            for text in (TABLE, "CREATE TABLE k (kind INT PRIMARY KEY, name VARCHAR(10))",
                         "CREATE TABLE other (id INT PRIMARY KEY)"):
                execute(c, text)
            for name, query in VIEWS.items():
                execute(c, f"CREATE {'MATERIALIZED ' * ('?' not in query)}VIEW {name} AS {query}")
            execute(c, f"CREATE INTERNAL VIEW inner_counts AS {OVER['inner_counts']}")
            execute(c, f"CREATE VIEW over_inner AS {OVER['over_inner']}")
        made.both(f"INSERT INTO k VALUES {', '.join(f'({i}, {chr(39)}k{i % 9}{chr(39)})' for i in range(0, KINDS, 2))}")
        yield made
    finally:
        server.close()


def jobs(server: Served) -> list[str]:
    """What rewriting statements are at."""
    with server.connect() as c:
        return [str(r) for r in rows(c, "SHOW FULL PROCESSLIST") if "of v" in str(r) or "rewriting v" in str(r)]


def nothing_left(server: Served) -> None:
    until("nothing of it lies about", lambda: not list((server.data / "snapshots").glob("rewrite-*")))
    with server.connect() as c:
        assert [t for (t,) in rows(c, "SHOW TABLES")] == sorted([*VIEWS, *OVER, "k", "other", "v"])


def test_statements_are_as_in_sqlite_and_others_go_on(same: Same) -> None:
    same.fill()
    seen: list[int] = []

    def write(c: Any, n: int) -> None:
        seen.append(execute(c, "INSERT IGNORE INTO other VALUES (%s)", (n,)))

    def read(c: Any, n: int) -> None:
        rows(c, f"SELECT * FROM one WHERE id = {n}")

    for text in STATEMENTS:
        with same.server.connect() as c, clients(same.server, write, read):
            before, want = len(seen), same.lite.execute(text).rowcount
            assert execute(c, text) == want, text
            assert len(seen) > before
        same.compare()
    nothing_left(same.server)
    same.both("INSERT INTO v (id, kind, note, n) VALUES (99999999, 3, 'last', 4)")
    same.compare()


def test_writes_of_the_table_wait_and_are_done(same: Same) -> None:
    same.fill()
    statement = Statement(same.server, "UPDATE v SET n = n + 1")
    until("it is at work", lambda: jobs(same.server))
    with same.server.connect() as c:
        late: list[int] = []
        waiting = threading.Thread(target=lambda: late.append(execute(c, "UPDATE v SET n = 100 WHERE id = 5")))
        waiting.start()
        assert statement.outcome() is None
        waiting.join(60)
        assert late == [1]
        assert rows(c, "SELECT n FROM one WHERE id = 5") == [(100,)]
    same.lite.execute("UPDATE v SET n = n + 1")
    same.lite.execute("UPDATE v SET n = 100 WHERE id = 5")
    same.compare()


def test_few_rows_are_written_as_they_are(same: Same) -> None:
    same.fill()
    text = f"UPDATE v SET note = 'few' WHERE n = 3 AND id <= {2 * REWRITTEN_KEYS}"
    with same.server.connect() as c:
        assert execute(c, text) == same.lite.execute(text).rowcount
        assert execute(c, "UPDATE v SET note = 'none' WHERE note = 'nowhere'") == 0
        text = "DELETE FROM v WHERE note = 'few'"
        assert execute(c, text) == same.lite.execute(text).rowcount
    same.compare()


def test_tables_without_a_primary_key(same: Same) -> None:
    statements = ("UPDATE bag SET n = 5 WHERE n = 77", "DELETE FROM bag WHERE n = 78 AND kind < 500",
                  "UPDATE bag SET kind = 1 - kind WHERE kind < 100000", "DELETE FROM bag WHERE n > 60")
    with same.server.connect() as c, noria.connect(same.server.url) as db:
        execute(c, "CREATE TABLE bag (kind INT, n INT)")
        execute(c, "CREATE MATERIALIZED VIEW bags AS SELECT n, COUNT(*) AS c, SUM(kind) AS s FROM bag GROUP BY n")
        same.lite.execute("CREATE TABLE IF NOT EXISTS bag (kind INT, n INT)")
        try:
            for at in range(0, ROWS, 50_000):
                kind = np.arange(at, min(at + 50_000, ROWS)) // 2  # every row is there twice
                db.table("bag").insert(pa.table({"kind": kind, "n": kind % 97}))
                same.lite.executemany("INSERT INTO bag VALUES (?, ?)", zip(kind.tolist(), (kind % 97).tolist(),
                                                                           strict=True))
            for text in statements:
                assert execute(c, text) == same.lite.execute(text).rowcount, text
                want = sorted(map(_plain, same.lite.execute("SELECT n, COUNT(*), SUM(kind) FROM bag GROUP BY n")))
                until(text, partial(_is, c, "SELECT * FROM bags", want))
        finally:
            execute(c, "DROP VIEW bags")
            execute(c, "DROP TABLE bag")


def test_a_table_with_a_feed_is_changed_by_its_worker(same: Same) -> None:
    """Because a feed tells each row."""
    same.fill()
    with same.server.connect() as c, noria.connect(same.server.url) as db:
        execute(c, "CREATE FEED told AS SELECT id, n FROM v")
        try:
            newest = same.server.get("/views/told/feed")["newest"]
            same.both("UPDATE v SET n = n + 1")
            came = went = 0
            for some in db.view("told").changes(since=newest):
                signs = [sign for sign, _ in some]
                came, went = came + sum(s for s in signs if s > 0), went - sum(s for s in signs if s < 0)
                if came == ROWS:
                    break
            assert came == went == ROWS
            same.compare()
        finally:
            execute(c, "DROP FEED told")


@pytest.mark.parametrize(("text", "code"), kinds(
    ("UPDATE v SET n = n * 10000", 1264), ("UPDATE v SET kind = NULL", 1048), ("UPDATE v SET id = id % 1000", 1062)))
def test_what_fits_not_changes_nothing(same: Same, text: str, code: int) -> None:
    same.fill()
    with same.server.connect() as c, pytest.raises(pymysql.err.MySQLError) as refused:
        execute(c, text)
    assert refused.value.args[0] == code, refused.value
    same.compare()
    nothing_left(same.server)


def test_killed_it_changes_nothing(same: Same) -> None:
    same.fill()
    statement = Statement(same.server, "UPDATE v SET n = n + 1")
    until("it is at work", lambda: jobs(same.server))
    with same.server.connect() as c:
        execute(c, f"KILL QUERY {statement.number}")
    error = statement.outcome()
    assert error is not None and error.args[0] == 1317
    same.compare()
    nothing_left(same.server)
    same.both("UPDATE v SET n = n + 2 WHERE id = 7")
    same.compare()


@pytest.mark.parametrize("which", kinds("jvm", "worker", "front"))
def test_it_is_whole_or_not_there_whoever_is_killed(same: Same, which: str) -> None:
    same.fill()
    statement = Statement(same.server, "UPDATE v SET n = n + 1")
    until("it is at work", lambda: jobs(same.server))
    if which == "front":
        same.server.kill("front")
        same.server.start()
    else:
        same.server.kill("worker" if which == "worker" else "jvm")
        same.server.wait_up()
    error = statement.outcome()
    with same.server.connect() as c:
        done = rows(c, "SELECT n FROM one WHERE id = 2") == [(3,)]
    assert done or error is not None
    if done:
        same.lite.execute("UPDATE v SET n = n + 1")
    same.compare()
    nothing_left(same.server)
