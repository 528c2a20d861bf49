"""SERIALIZABLE: what several sessions did and saw equals what they would have done and seen one after the other.

Random histories are compared with SQLite, which runs the same transactions alone, in the order of their commits.
Concurrent clients are checked by the graph of who has read and overwritten whose rows.
"""

from __future__ import annotations

import random
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run, until

SESSIONS = 4
HISTORIES = 6
STEPS = 250
TABLES = ("CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT)",
          "CREATE TABLE b (id INT PRIMARY KEY, a INT, u INT UNIQUE)",
          "CREATE TABLE c (k VARCHAR(8) {bin}, n INT, v INT, PRIMARY KEY (k, n))")
VIEW = "CREATE VIEW per AS SELECT w, COUNT(*) AS n, SUM(v) AS s FROM a GROUP BY w"
RETRY = (1205, 1213)


@pytest.fixture(params=[1, 3])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param)
    yield server
    server.close()


def connected(server: LocalServer, level: str = "SERIALIZABLE") -> Any:
    """A client that counts found rows, as SQLite does."""
    connection = pymysql.connect(host="127.0.0.1", port=server.mysql.address[1], user="root", autocommit=True,
                                 read_timeout=120, write_timeout=120, ssl_disabled=True, client_flag=CLIENT.FOUND_ROWS)
    run(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    return connection


def outcome(connection: Any, text: str) -> Any:
    """The rows, the number of found rows, or the error."""
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(text)
        except pymysql.MySQLError as e:
            return e
        if cursor.description is None:
            return affected
        return sorted(cursor.fetchall(), key=repr)


@dataclass
class Transaction:
    """What a session did within one.  at: when it is as if all of it happened."""

    level: str
    done: list[tuple[str, Any]] = field(default_factory=list)
    at: int = -1
    first_read: int = -1
    writes: bool = False


class History:
    """Random transactions of several sessions that take turns."""

    def __init__(self, seed: int):
        self._c = random.Random(seed)
        self.committed: list[Transaction] = []
        self.conflicts = self.clock = 0

    def play(self, sessions: list[Any], length: int) -> None:
        open_: dict[int, Transaction] = {}
        for _ in range(length):
            self.clock += 1
            n = self._c.randrange(len(sessions))
            if n not in open_:
                self._begin(n, sessions[n], open_)
            elif self._c.random() < 0.2:
                self._end(sessions[n], open_.pop(n))
            else:
                self._step(n, sessions[n], open_)
        for n, transaction in open_.items():
            self.clock += 1
            self._end(sessions[n], transaction)

    def _begin(self, n: int, session: Any, open_: dict[int, Transaction]) -> None:
        if self._c.random() < 0.25:  # a statement by itself
            text = self._write()
            alone = Transaction("", [(text, outcome(session, text))], self.clock, writes=True)
            if not is_error(alone.done[0][1], RETRY):
                self.committed.append(alone)
            return
        run(session, "BEGIN")
        open_[n] = Transaction("SERIALIZABLE")

    def _end(self, session: Any, transaction: Transaction) -> None:
        if self._c.random() < 0.1:
            run(session, "ROLLBACK")
            return
        ended = outcome(session, "COMMIT")
        if isinstance(ended, Exception):
            assert is_error(ended, RETRY), ended
            self.conflicts += 1
            return
        transaction.at = self.clock if transaction.writes else transaction.first_read
        self.committed.append(transaction)

    def _step(self, n: int, session: Any, open_: dict[int, Transaction]) -> None:
        transaction = open_[n]
        roll = self._c.random()
        if roll < 0.07:
            text = f"SAVEPOINT s{self._c.randrange(2)}"
        elif roll < 0.12 and (names := [t for t, _ in transaction.done if t.startswith("SAVEPOINT")]):
            text = f"ROLLBACK TO {self._c.choice(names)}"
        elif roll < 0.55:
            text = self._read()
            if transaction.first_read < 0:
                transaction.first_read = self.clock
            transaction.writes |= text.endswith("FOR UPDATE")
        else:
            text, transaction.writes = self._write(), True
        found = outcome(session, text)
        if is_error(found, (1213,)):
            del open_[n]
            self.conflicts += 1
        elif text.startswith("ROLLBACK TO") and is_error(found, (1305,)):
            return
        elif not is_error(found, (1205,)):
            transaction.done.append((text, found))

    def _number(self) -> int:
        return self._c.randrange(10)

    def _read(self) -> str:
        x, y = self._number(), self._number()
        return self._c.choice((
            f"SELECT * FROM a WHERE id = {x}", f"SELECT v FROM a WHERE id IN ({x}, {y})", "SELECT * FROM a",
            f"SELECT COUNT(*), SUM(v) FROM a WHERE w = {x % 3}", f"SELECT id FROM a WHERE v > {10 * x}",
            f"SELECT id, v FROM a WHERE id >= {x} AND id < {x + 3}", f"SELECT * FROM per WHERE w = {x % 3}",
            "SELECT w, COUNT(*) FROM a GROUP BY w", "SELECT SUM(v) FROM a", f"SELECT * FROM b WHERE u = {x}",
            f"SELECT a.v, b.id FROM a JOIN b ON a.id = b.a WHERE a.id = {x}",
            f"SELECT b.id, a.v FROM b LEFT JOIN a ON a.id = b.a WHERE b.id = {x}",
            "SELECT b.id, a.v FROM b JOIN a ON a.id = b.a",
            f"SELECT id FROM a WHERE w = {x % 3} ORDER BY v, id LIMIT 2",
            f"SELECT id FROM b WHERE a IN (SELECT id FROM a WHERE w = {x % 3})", "SELECT DISTINCT w FROM a",
            f"SELECT MAX(v) FROM a WHERE w = {x % 3}", f"SELECT * FROM c WHERE k = '{'xyz'[x % 3]}'",
            f"SELECT v FROM c WHERE k = '{'xyz'[x % 3]}' AND n = {y % 3}", "SELECT k, SUM(v) FROM c GROUP BY k",
            f"SELECT id FROM b WHERE NOT EXISTS (SELECT 1 FROM a WHERE a.id = b.a AND a.v > {10 * y})",
            f"SELECT id, v FROM a WHERE id = {x} UNION ALL SELECT id, u FROM b WHERE id = {y}",
            f"SELECT * FROM a WHERE id = {x} FOR UPDATE", f"SELECT * FROM a WHERE w = {x % 3} FOR UPDATE"))

    def _write(self) -> str:
        x, y, z = self._number(), self._number(), self._c.randrange(100)
        return self._c.choice((
            f"INSERT INTO a VALUES ({x}, {z}, {z % 3})", f"UPDATE a SET v = v + {z} WHERE id = {x}",
            f"UPDATE a SET v = {z}, w = {z % 3} WHERE id = {x}", f"DELETE FROM a WHERE id = {x}",
            f"UPDATE a SET v = v + 1 WHERE w = {x % 3}", f"UPDATE a SET w = {z % 3} WHERE v > {90 - x}",
            f"DELETE FROM a WHERE v > {95 + x % 5}", f"INSERT INTO b VALUES ({x}, {y}, {z % 12})",
            f"UPDATE b SET u = {z % 12} WHERE id = {x}", f"UPDATE b SET a = {y} WHERE id = {x}",
            f"DELETE FROM b WHERE id = {x}", f"DELETE FROM b WHERE u = {z % 12}",
            f"INSERT IGNORE INTO b VALUES ({x}, {y}, {z % 12})", f"REPLACE INTO a VALUES ({x}, {z}, {z % 3})",
            f"INSERT INTO c VALUES ('{'xyz'[x % 3]}', {y % 3}, {z})",
            f"UPDATE c SET v = v + {z} WHERE k = '{'xyz'[x % 3]}' AND n = {y % 3}",
            f"UPDATE c SET n = {x % 3} WHERE k = '{'xyz'[y % 3]}' AND n = {z % 3}",
            f"DELETE FROM c WHERE k = '{'xyz'[x % 3]}'"))


def is_error(found: Any, numbers: tuple[int, ...]) -> bool:
    return isinstance(found, pymysql.MySQLError) and found.args[0] in numbers


def replayed(transactions: list[Transaction]) -> list[str]:
    """What SQLite says differently, transaction after transaction; and its tables at the end."""
    lite = sqlite3.connect(":memory:", isolation_level=None)
    for text in (*TABLES, VIEW):
        lite.execute(text.format(bin="COLLATE NOCASE"))
    wrong = []
    for transaction in sorted(transactions, key=lambda t: t.at):
        lite.execute("BEGIN")
        for text, found in transaction.done:
            expected = _lite(lite, text)
            same = expected == found if not isinstance(found, Exception) else expected == found.args[0]
            if not same:
                wrong.append(f"{transaction}\n  {text}: {expected}, not {found}")
        lite.execute("COMMIT")
    wrong += [repr(_lite(lite, f"SELECT * FROM {t}")) for t in "abc"]
    return wrong


def _lite(lite: sqlite3.Connection, text: str) -> Any:
    text = text.removesuffix(" FOR UPDATE").replace("INSERT IGNORE", "INSERT OR IGNORE")
    replaces = text.startswith("REPLACE")
    row = tuple(int(n) for n in text[text.index("(") + 1 : -1].split(",")) if replaces else ()
    there = lite.execute("SELECT * FROM a WHERE id = ?", row[:1]).fetchone() if replaces else None
    try:
        cursor = lite.execute(text)
    except sqlite3.IntegrityError:
        return 1062
    if cursor.description is not None:
        return sorted(cursor.fetchall(), key=repr)
    if replaces:
        return 2 if there not in (None, row) else 1
    return max(cursor.rowcount, 0) if text.split()[0] in ("INSERT", "UPDATE", "DELETE") else 0


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_random_history_has_a_serial_order(server: LocalServer, seed: int) -> None:
    sessions = [connected(server) for _ in range(SESSIONS)]
    run(sessions[0], *(text.format(bin="") for text in TABLES), VIEW)
    for session in sessions:
        run(session, "SET SESSION innodb_lock_wait_timeout = 0")
    history = History(seed)
    history.play(sessions, STEPS)
    tables = [repr(outcome(sessions[0], f"SELECT * FROM {t}")) for t in "abc"]
    for session in sessions:
        session.close()
    assert replayed(history.committed) == tables, f"seed {seed}"
    assert history.conflicts and any(t.level and t.writes for t in history.committed), "the history checks something"


# ---------------------------------------------------------------- one rule each
def two(server: LocalServer) -> tuple[Any, Any]:
    """Two sessions within transactions, of which the first has written."""
    one, other = connected(server), connected(server)
    run(one, "CREATE TABLE t (id INT PRIMARY KEY, g INT, v INT, u INT UNIQUE)",
        "CREATE TABLE done (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1, 1, 10, 1), (2, 1, 20, 2), (3, 2, 30, 3)")
    run(one, "BEGIN", "INSERT INTO done VALUES (1)")
    return one, other


READS = (  # what the transaction does, a write that concerns it, and one that does not
    ("SELECT v FROM t WHERE id = 1", "UPDATE t SET v = 11 WHERE id = 1", "UPDATE t SET v = 21 WHERE id = 2"),
    ("SELECT v FROM t WHERE id = 9", "INSERT INTO t VALUES (9, 1, 1, 9)", "INSERT INTO t VALUES (8, 1, 1, 8)"),
    ("SELECT v FROM t WHERE id IN (1, 9)", "INSERT INTO t VALUES (9, 1, 1, 9)", "DELETE FROM t WHERE id = 2"),
    ("SELECT COUNT(*) FROM t WHERE g = 1", "UPDATE t SET g = 1 WHERE id = 3", "UPDATE t SET v = 0 WHERE id = 3"),
    ("SELECT id FROM t WHERE v > 100", "UPDATE t SET v = 101 WHERE id = 3", "UPDATE t SET v = 99 WHERE id = 3"),
    ("SELECT id FROM t WHERE id > 2", "DELETE FROM t WHERE id = 3", "DELETE FROM t WHERE id = 1"),
    ("SELECT a.v, b.v FROM t a JOIN t b ON a.id = b.id WHERE a.id = 1", "UPDATE t SET v = 11 WHERE id = 1",
     "UPDATE t SET v = 21 WHERE id = 2"),
    ("SELECT id FROM t WHERE g = 1 AND v > 100", "UPDATE t SET v = 101 WHERE id = 2",
     "UPDATE t SET v = 99 WHERE id = 2"),
    ("SELECT g, COUNT(*) FROM t WHERE g = 2 GROUP BY g", "DELETE FROM t WHERE id = 3", "DELETE FROM t WHERE id = 1"),
    ("SELECT v FROM t WHERE id = 1 FOR UPDATE", None, "UPDATE t SET v = 21 WHERE id = 2"),
    ("SELECT v FROM t WHERE g = 2 FOR UPDATE", "INSERT INTO t VALUES (9, 2, 1, 9)",
     "INSERT INTO t VALUES (8, 1, 1, 8)"),
    ("UPDATE t SET v = v + 1 WHERE g = 2", "INSERT INTO t VALUES (9, 2, 1, 9)", "INSERT INTO t VALUES (8, 1, 1, 8)"),
    ("UPDATE t SET v = v + 1 WHERE g = 7", "UPDATE t SET g = 7 WHERE id = 1", "UPDATE t SET v = 7 WHERE id = 1"),
    ("UPDATE t SET v = v + 1 WHERE id = 9", "INSERT INTO t VALUES (9, 2, 1, 9)", "INSERT INTO t VALUES (8, 1, 1, 8)"),
    ("DELETE FROM t WHERE v > 100", "UPDATE t SET v = 101 WHERE id = 3", "UPDATE t SET v = 99 WHERE id = 3"),
    ("INSERT IGNORE INTO t VALUES (1, 0, 0, 0)", "DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id = 2"),
    ("INSERT IGNORE INTO t VALUES (7, 0, 0, 3)", "UPDATE t SET u = 9 WHERE id = 3", "UPDATE t SET v = 9 WHERE id = 2"),
)


@pytest.mark.parametrize("reads, conflicts, independent", READS)
def test_what_was_read_is_checked(server: LocalServer, reads: str, conflicts: str | None, independent: str) -> None:
    one, other = two(server)
    for write, expected in ((independent, None), (conflicts, 1213)):
        if write is not None:
            run(one, "ROLLBACK", "BEGIN", "DELETE FROM done", reads)
            run(other, write)
            ended = outcome(one, "COMMIT")
            assert (ended.args[0] if isinstance(ended, Exception) else None) == expected, (reads, write)


def test_an_error_is_a_read(server: LocalServer) -> None:
    one, other = two(server)
    assert refused(one, "INSERT INTO t VALUES (1, 0, 0, 0)") == 1062
    run(other, "DELETE FROM t WHERE id = 1")
    assert refused(one, "COMMIT") == 1213
    run(one, "BEGIN", "INSERT INTO done VALUES (1)")
    assert refused(one, "INSERT INTO t VALUES (7, 0, 0, 3)") == 1062
    run(other, "UPDATE t SET u = 9 WHERE id = 3")
    assert refused(one, "COMMIT") == 1213


def test_a_foreign_key_is_a_read(server: LocalServer) -> None:
    one, other = two(server)
    run(one, "ROLLBACK", "CREATE TABLE child (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id))", "BEGIN",
        "INSERT INTO done VALUES (1)")
    assert refused(one, "INSERT INTO child VALUES (1, 9)") == 1452
    run(other, "INSERT INTO t VALUES (9, 0, 0, 9)")
    assert refused(one, "COMMIT") == 1213


def test_who_waited_for_a_lock_can_commit(server: LocalServer) -> None:
    """A write, and a locking SELECT, read when they have their lock, not when they began to wait."""
    one, other = two(server)
    run(one, "UPDATE t SET v = v + 1 WHERE id = 1")
    for text in ("UPDATE t SET v = v + 1 WHERE id = 1", "SELECT v FROM t WHERE id = 1 FOR UPDATE"):
        run(other, "BEGIN")
        waiting = Waiting(other, text)
        until(lambda: server.locks_waited_for() > 0)
        run(one, "COMMIT")
        assert waiting.end() is None
        run(other, "UPDATE t SET v = v + 1 WHERE id = 1", "COMMIT")
        run(one, "BEGIN", "UPDATE t SET v = v + 1 WHERE id = 1")
    run(one, "ROLLBACK")
    assert run(one, "SELECT v FROM t WHERE id = 1") == [(15,)]


def test_a_transaction_that_only_reads_its_snapshot_commits(server: LocalServer) -> None:
    one, other = two(server)
    run(one, "ROLLBACK", "BEGIN")
    assert run(one, "SELECT SUM(v) FROM t") == [(60,)]
    run(other, "UPDATE t SET v = v + 1")
    assert run(one, "SELECT SUM(v) FROM t", "COMMIT", "SELECT SUM(v) FROM t") == [(63,)]


def test_the_level_is_shown_and_holds_for_one_transaction(server: LocalServer) -> None:
    one, other = two(server)
    assert run(one, "SELECT @@transaction_isolation") == [("SERIALIZABLE",)]
    run(other, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    for level, error in (("SERIALIZABLE", 1213), ("REPEATABLE READ", None)):
        run(one, "ROLLBACK", "SET autocommit = 1")
        run(other, f"SET TRANSACTION ISOLATION LEVEL {level}", "START TRANSACTION", "SELECT * FROM t",
            "INSERT INTO done VALUES (5)")
        run(one, "UPDATE t SET v = v + 1 WHERE id = 1")
        if error is not None:
            assert refused(other, "COMMIT") == error
        run(other, "ROLLBACK")
    run(other, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET autocommit = 0", "SELECT * FROM t",
        "INSERT INTO done VALUES (6)")
    run(one, "UPDATE t SET v = v + 1 WHERE id = 1")
    assert refused(other, "COMMIT") == 1213
    assert run(other, "SELECT * FROM done") == []


def test_another_definition_is_a_conflict(server: LocalServer) -> None:
    one, other = two(server)
    run(one, "SELECT SUM(v) FROM t")
    server.define("ALTER TABLE t ADD COLUMN more INT")
    assert refused(one, "COMMIT") == 1213
    run(one, "BEGIN", "INSERT INTO done VALUES (1)", "SELECT SUM(v) FROM t")
    server.define("DROP TABLE t")
    run(other, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    assert refused(one, "COMMIT") == 1213


def test_many_reads_become_coarser(server: LocalServer) -> None:
    one, other = two(server)
    run(one, *(f"SELECT v FROM t WHERE id >= {n} AND v >= {n} AND g = 5" for n in range(100, 320)))
    run(other, "UPDATE t SET v = v + 1 WHERE id = 1")
    assert refused(one, "COMMIT") == 1213
    run(one, "BEGIN", "INSERT INTO done VALUES (1)", *(f"SELECT v FROM t WHERE id = {n}" for n in range(100, 320)))
    run(other, "UPDATE t SET v = v + 1 WHERE id = 1")
    run(one, "COMMIT")


# ---------------------------------------------------------------- concurrent clients
LISTS = 6
CLIENTS = 6
ROUNDS = 25


class Client:
    """Appends its transactions' numbers to lists, and reads lists.  committed: number, what was read, what appended."""

    def __init__(self, server: LocalServer, number: int):
        self._session, self._c = connected(server), random.Random(number)
        self._number, self.committed, self.conflicts = number, list[tuple[int, dict[int, str], list[int]]](), 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        for n in range(ROUNDS):
            number = self._number * ROUNDS + n
            try:
                self._one(number)
            except pymysql.MySQLError as e:
                assert e.args[0] in RETRY, e
                self.conflicts += 1
                run(self._session, "ROLLBACK")
        self._session.close()

    def _one(self, number: int) -> None:
        run(self._session, "BEGIN")
        read: dict[int, str] = {}
        appended: list[int] = []
        for _ in range(self._c.randrange(1, 4)):
            if self._c.random() < 0.4:
                text = "SELECT id, v FROM l"
            else:
                text = f"SELECT id, v FROM l WHERE id = {self._c.randrange(LISTS)}"
            read.update({key: v for key, v in run(self._session, text) if key not in appended})
        for key in self._c.sample(range(LISTS), self._c.randrange(3)):
            run(self._session, f"UPDATE l SET v = CONCAT(v, ' {number}') WHERE id = {key}")
            appended.append(key)
        run(self._session, "COMMIT")
        self.committed.append((number, read, appended))


def test_concurrent_clients_have_a_serial_order(server: LocalServer) -> None:
    control = connected(server)
    run(control, "CREATE TABLE l (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO l VALUES " + ", ".join(f"({n}, '')" for n in range(LISTS)))
    clients = [Client(server, n) for n in range(CLIENTS)]
    for client in clients:
        client.thread.join(120)
    lists = {key: [int(n) for n in v.split()] for key, v in run(control, "SELECT id, v FROM l")}
    committed = [t for client in clients for t in client.committed]
    assert sum(len(appended) for _, _, appended in committed) == sum(map(len, lists.values()))
    after: defaultdict[int, set[int]] = defaultdict(set)  # by transaction: those that come before it
    for number, read, appended in committed:
        for key in appended:
            at = lists[key].index(number)
            after[number] |= {lists[key][at - 1]} if at else set()
        for key, text in read.items():
            seen = [int(n) for n in text.split()]
            assert seen == lists[key][: len(seen)], "what is read is committed"
            after[number] |= set(seen[-1:])
            for overwritten_by in lists[key][len(seen) : len(seen) + 1]:
                if overwritten_by != number:
                    after[overwritten_by].add(number)
    TopologicalSorter(after).prepare()  # raises CycleError
    assert sum(client.conflicts for client in clients) and len(committed) > CLIENTS
