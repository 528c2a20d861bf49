"""FOREIGN KEYs are kept by every statement, within transactions and without, at one worker and at several.

A random history of one session is compared with MariaDB: the same errors and the same rows after each statement.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from differential.known import Error
from differential.play import differs, sent
from e2e.local import LocalServer
from e2e.mariadb import INSTALLED, MariaDb
from e2e.transactions.waiting import Waiting, refused, run
from noria.core.errors import SqlError

TABLES = ("CREATE TABLE p (id INT PRIMARY KEY, code VARCHAR(9) UNIQUE, n INT)",
          "CREATE TABLE c (id INT PRIMARY KEY, p INT, code VARCHAR(9), FOREIGN KEY (p) REFERENCES p (id), "
          "FOREIGN KEY (code) REFERENCES p (code) ON DELETE SET NULL ON UPDATE CASCADE)",
          "CREATE TABLE d (id INT PRIMARY KEY, c INT, up INT, FOREIGN KEY (c) REFERENCES c (id) ON DELETE CASCADE ON "
          "UPDATE CASCADE, FOREIGN KEY (up) REFERENCES d (id) ON DELETE SET NULL)",
          "CREATE TABLE q (a INT, b INT, PRIMARY KEY (a, b))",
          "CREATE TABLE r (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b INT, FOREIGN KEY (a, b) REFERENCES q (a, b) ON "
          "DELETE CASCADE)")
ROWS = ("INSERT INTO p VALUES (1, 'one', 1), (2, 'two', 2), (3, NULL, 3)",
        "INSERT INTO c VALUES (1, 1, 'one'), (2, 2, NULL), (3, NULL, 'two')",
        "INSERT INTO d VALUES (1, 1, NULL), (2, 1, 1), (3, 2, 3)",
        "INSERT INTO q VALUES (1, 1), (1, 2), (2, 1)", "INSERT INTO r (a, b) VALUES (1, 1), (1, 2), (1, NULL)")
BROKEN = (1062, 1451, 1452)


@pytest.fixture(params=[1, 3])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param)
    run(server.connect(), *TABLES, *ROWS)
    yield server
    server.validate()
    assert server.ask("stats")["open_transactions"] == 0
    server.close()


def test_a_child_needs_its_parent(server: LocalServer) -> None:
    a = server.connect()
    with pytest.raises(pymysql.err.IntegrityError, match=r"1452, 'Cannot add or update a child row: a foreign key "
                       r"constraint fails \(`noria`\.`c`, CONSTRAINT `c_ibfk_1` FOREIGN KEY \(`p`\) REFERENCES `p` "
                       r"\(`id`\)\)'"):
        run(a, "INSERT INTO c VALUES (8, 1, NULL), (9, 9, NULL)")
    assert refused(a, "UPDATE c SET p = 9 WHERE id = 1") == 1452
    assert refused(a, "INSERT INTO r (a, b) VALUES (2, 2)") == 1452
    assert run(a, "SELECT COUNT(*) FROM c") == [(3,)]
    run(a, "INSERT INTO r (a, b) VALUES (2, NULL), (2, 1)", "INSERT INTO c VALUES (8, 3, 'TWO')")


def test_a_parent_is_needed_by_its_children(server: LocalServer) -> None:
    a = server.connect()
    with pytest.raises(pymysql.err.IntegrityError, match="1451, 'Cannot delete or update a parent row"):
        run(a, "DELETE FROM p WHERE id = 1")
    assert refused(a, "UPDATE p SET id = 7 WHERE id = 2") == 1451
    assert refused(a, "REPLACE INTO p VALUES (1, 'new', 1)") == 1451
    assert refused(a, "REPLACE INTO p SELECT * FROM p WHERE id = 1") == 1451
    run(a, "UPDATE p SET n = 5 WHERE id = 1", "DELETE FROM p WHERE id = 3", "DELETE FROM c WHERE id = 1",
        "DELETE FROM p WHERE id = 1")
    assert run(a, "SELECT id FROM p") == [(2,)]


def test_what_follows_from_a_write(server: LocalServer) -> None:
    a = server.connect()
    run(a, "UPDATE p SET code = 'uno' WHERE id = 1")
    assert run(a, "SELECT id, code FROM c ORDER BY id") == [(1, "uno"), (2, None), (3, "two")]
    run(a, "UPDATE c SET id = 10 WHERE id = 1")
    assert run(a, "SELECT id, c, up FROM d ORDER BY id") == [(1, 10, None), (2, 10, 1), (3, 2, 3)]
    run(a, "DELETE FROM d WHERE id = 1")
    assert run(a, "SELECT id, c, up FROM d ORDER BY id") == [(2, 10, None), (3, 2, 3)]
    run(a, "DELETE FROM c WHERE id IN (10, 2)")
    assert run(a, "SELECT COUNT(*) FROM d") == [(0,)]
    run(a, "DELETE FROM q WHERE a = 1")
    assert run(a, "SELECT a, b FROM r") == [(1, None)]


def test_a_key_that_is_only_written_in_another_way_stays(server: LocalServer) -> None:
    a = server.connect()
    run(a, "CREATE TABLE named (id INT PRIMARY KEY, code VARCHAR(9), FOREIGN KEY (code) REFERENCES p (code))",
        "INSERT INTO named VALUES (1, 'TWO')", "UPDATE p SET code = 'Two' WHERE id = 2")
    assert refused(a, "UPDATE p SET code = 'three' WHERE id = 2") == 1451


def test_within_a_transaction(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "INSERT INTO p VALUES (5, 'five', 5)", "INSERT INTO c VALUES (5, 5, 'five')", "SAVEPOINT s",
        "DELETE FROM c WHERE id = 1")
    assert run(a, "SELECT COUNT(*) FROM d") == [(1,)]
    assert refused(a, "DELETE FROM p WHERE id = 5") == 1451
    run(a, "ROLLBACK TO s")
    assert run(a, "SELECT COUNT(*) FROM d") == [(3,)]
    assert run(b, "SELECT COUNT(*) FROM c") == [(3,)]
    run(a, "COMMIT")
    assert run(b, "SELECT COUNT(*) FROM c") == [(4,)]


def test_a_parent_stays_until_its_new_child_is_committed(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "INSERT INTO c VALUES (5, 3, NULL)")
    removing = Waiting(b, "DELETE FROM p WHERE id = 3")
    run(server.connect(), "SELECT 1")
    assert removing.waits()
    run(a, "COMMIT")
    assert removing.end() == 1451
    run(a, "BEGIN", "DELETE FROM c WHERE id = 5", "DELETE FROM p WHERE id = 3")
    adding = Waiting(b, "INSERT INTO c VALUES (6, 3, NULL)")
    run(server.connect(), "SELECT 1")
    assert adding.waits()
    run(a, "COMMIT")
    assert adding.end() == 1452


def test_writers_of_both_sides_leave_no_orphan(server: LocalServer) -> None:
    def write(seed: int) -> None:
        chance, connection = random.Random(seed), server.connect()
        for _ in range(25):
            try:
                run(connection, chance.choice((
                    f"INSERT INTO c VALUES ({chance.randrange(100, 120)}, {chance.randrange(10, 14)}, NULL)",
                    f"INSERT INTO p VALUES ({chance.randrange(10, 14)}, NULL, 0)",
                    f"DELETE FROM p WHERE id = {chance.randrange(10, 14)}",
                    f"DELETE FROM c WHERE id = {chance.randrange(100, 120)}",
                    f"UPDATE c SET p = {chance.randrange(10, 14)} WHERE id = {chance.randrange(100, 120)}")))
            except pymysql.MySQLError as e:
                assert e.args[0] in (1062, 1213, 1451, 1452), e

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    orphans = "SELECT COUNT(*) FROM c LEFT JOIN p ON c.p = p.id WHERE c.p IS NOT NULL AND p.id IS NULL"
    assert run(server.connect(), orphans) == [(0,)]


def test_checks_may_be_off(server: LocalServer) -> None:
    a = server.connect()
    run(a, "SET foreign_key_checks = 0", "INSERT INTO c VALUES (9, 99, NULL)", "DELETE FROM p WHERE id = 1",
        "SET foreign_key_checks = 1")
    assert refused(a, "INSERT INTO c VALUES (10, 99, NULL)") == 1452
    run(a, "DELETE FROM c WHERE id = 9", "INSERT INTO p VALUES (1, 'one', 1)")


def test_a_key_that_is_added_is_kept_from_then_on(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "CREATE TABLE x (id INT PRIMARY KEY, p INT)", "INSERT INTO x VALUES (1, 1), (2, 9)")
    assert refused(a, "ALTER TABLE x ADD FOREIGN KEY (p) REFERENCES p (id)") == 1452
    run(a, "DELETE FROM x WHERE id = 2", "INSERT INTO p VALUES (4, NULL, 4)", "INSERT INTO x VALUES (4, 4)")
    run(b, "BEGIN", "INSERT INTO p VALUES (6, NULL, 6)")
    adding = Waiting(a, "ALTER TABLE x ADD FOREIGN KEY (p) REFERENCES p (id)")
    run(b, "COMMIT")
    assert adding.end() is None
    assert refused(b, "INSERT INTO x VALUES (3, 9)") == 1452
    assert refused(b, "DELETE FROM p WHERE id = 4") == 1451


def test_insert_ignore_leaves_out_rows_without_a_parent(server: LocalServer) -> None:
    a = server.connect()
    with a.cursor() as cursor:
        assert cursor.execute("INSERT IGNORE INTO c VALUES (7, 77, NULL)") == 0
        assert cursor.execute("INSERT IGNORE INTO c VALUES (1, 2, NULL), (7, 2, NULL), (8, 77, NULL)") == 1
    assert run(a, "SELECT p FROM c WHERE id IN (1, 7, 8) ORDER BY id") == [(1,), (2,)]
    with a.cursor() as cursor:  # more than are looked up at once
        ids = range(1_000, 3_000)
        many = ", ".join(f"({n}, {n % 700 + 2}, NULL)" for n in ids)
        assert cursor.execute(f"INSERT IGNORE INTO c VALUES {many}") == sum(n % 700 < 2 for n in ids)
    run(a, "DELETE FROM c WHERE id >= 1000")
    run(a, "SET foreign_key_checks = 0", "INSERT INTO c VALUES (9, 88, NULL)", "SET foreign_key_checks = 1")
    assert refused(a, "INSERT IGNORE INTO c VALUES (10, 88, NULL)") == 1235  # the row that was there stays
    assert run(a, "SELECT id FROM c WHERE p = 88") == [(9,)]


def test_other_ways_of_writing_keep_them_or_are_refused(tmp_path: Path) -> None:
    import noria

    with noria.open(tmp_path / "embedded") as db:
        for text in (*TABLES, *ROWS):
            db.sql(text)
        with pytest.raises(SqlError, match="a foreign key constraint fails"):
            db.table("c").insert([{"id": 50, "p": 50, "code": None}])
        assert db.table("c").insert([{"id": 50, "p": 3, "code": None}]) == 1
        with db.transaction() as tx:
            tx.sql("DELETE FROM c WHERE id = 50")


# ---------------------------------------------------------------- beside MariaDB
class _Case:
    """Random statements of one session."""

    def __init__(self, seed: int):
        self._c = random.Random(seed)

    def statement(self) -> str:
        c = self._c
        code = c.choice(("'one'", "'two'", "'x'", "NULL"))
        return c.choice((
            lambda: f"INSERT INTO p VALUES ({self._n()}, {code}, 1)", lambda: f"DELETE FROM p WHERE id = {self._n()}",
            lambda: f"UPDATE p SET code = {code} WHERE id = {self._n()}",
            lambda: f"UPDATE p SET id = {self._n()} WHERE id = {self._n()}",
            lambda: f"INSERT INTO c VALUES ({self._n()}, {self._or_null()}, {code})",
            lambda: f"UPDATE c SET p = {self._or_null()}, code = {code} WHERE id = {self._n()}",
            lambda: f"UPDATE c SET id = {self._n()} WHERE id = {self._n()}",
            lambda: f"DELETE FROM c WHERE id IN ({self._n()}, {self._n()})",
            lambda: f"INSERT INTO d VALUES ({self._n()}, {self._or_null()}, {self._or_null()})",
            lambda: f"UPDATE d SET c = {self._or_null()}, up = {self._or_null()} WHERE id = {self._n()}",
            lambda: f"DELETE FROM d WHERE id = {self._n()}",
            lambda: f"REPLACE INTO p VALUES ({self._n()}, {code}, {c.randrange(2)})",  # perhaps by an equal row
            lambda: f"INSERT INTO c VALUES ({self._n()}, 1, NULL) ON DUPLICATE KEY UPDATE p = {self._or_null()}",
            lambda: f"INSERT IGNORE INTO c VALUES ({self._n()}, {self._n()}, {code}), ({self._n()}, 9, NULL)",
            lambda: f"INSERT IGNORE INTO d VALUES ({self._n()}, {self._or_null()}, {self._or_null()})",
            lambda: f"INSERT INTO q VALUES ({self._n()}, {c.randrange(3)})",
            lambda: f"DELETE FROM q WHERE a = {self._n()} AND b = {c.randrange(3)}",
            lambda: f"INSERT INTO r (id, a, b) VALUES ({c.randrange(10, 40)}, {self._or_null()}, {c.randrange(3)})",
            lambda: f"DELETE FROM r WHERE a = {self._n()}",
            lambda: c.choice(("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s")),
            lambda: c.choice(("BEGIN", "COMMIT", "ROLLBACK"))))()

    def _n(self) -> int:
        return self._c.randint(1, 5)

    def _or_null(self) -> str:
        return str(self._c.choice((1, 2, 3, 4, "NULL")))


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
@pytest.mark.parametrize("workers", [1, 3])
def test_they_are_kept_as_mariadb_keeps_them(tmp_path: Path, workers: int) -> None:
    mariadb, server = MariaDb(tmp_path), LocalServer(tmp_path / "data", workers=workers)
    seed = int(os.environ.get("NORIA_FUZZ_SEED", "100")) + workers
    try:
        ours, theirs = server.connect(), mariadb.connect()
        for connection in (ours, theirs):
            for text in (*TABLES, *ROWS):
                made: Any = sent(connection, text)
                assert not isinstance(made, Error), (text, made)
        case, errors = _Case(seed), 0
        for step in range(400):
            text = case.statement()
            got, want = sent(ours, text), sent(theirs, text)
            if not all(isinstance(o, Error) and o.code in BROKEN for o in (got, want)):  # which of two comes first
                assert differs(text, got, want) is None, (step, text, got, want)
            errors += isinstance(want, Error) and want.code in (1451, 1452)
            for name in ("p", "c", "d", "q", "r") if step % 10 == 0 else ():
                text = f"SELECT * FROM {name}"
                assert differs(text, sent(ours, text), sent(theirs, text)) is None, (step, name)
        assert errors > 20
        server.validate()
    finally:
        server.close()
        mariadb.close()
