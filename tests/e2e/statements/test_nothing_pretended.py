"""What is not there is refused where it would matter, and not taken for done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.statements.asking import code, rows


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path_factory.mktemp("pretended") / "data")
    with server.connect() as c:
        c.query("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT)")
        c.query("INSERT INTO t VALUES (1, 1)")
    yield server
    server.close()


@pytest.fixture
def c(local: LocalServer) -> Iterator[Any]:
    with local.connect() as connection:
        yield connection


# ------------------------------------------------------------------ databases
def test_a_database_that_is_not_there(local: LocalServer, c: Any) -> None:
    for text in ("USE app", "SELECT * FROM app.t", "SHOW TABLES FROM app", "DELETE FROM app.t", "DROP TABLE app.t"):
        assert code(c, text) == 1049, text
    with pytest.raises(pymysql.err.OperationalError) as e:
        c.select_db("app")
    assert e.value.args[0] == 1049
    c.select_db("Noria")
    assert rows(c, "SELECT t.a FROM noria.t WHERE noria.t.id = 1") == [(1,)]
    with pytest.raises(pymysql.err.OperationalError) as e:
        pymysql.connect(host="127.0.0.1", port=local.mysql.address[1], user="root", database="test_app",
                        ssl_disabled=True)
    assert e.value.args[0] == 1049
    pymysql.connect(host="127.0.0.1", port=local.mysql.address[1], user="root", database="noria",
                    ssl_disabled=True).close()


# ------------------------------------------------------------------ transactions
@pytest.mark.parametrize("begin", ["BEGIN", "SET autocommit = 0", "START TRANSACTION"])
def test_rollback_undoes_what_was_written(c: Any, begin: str) -> None:
    before = rows(c, "SELECT a FROM t WHERE id = 1")
    rows(c, begin)
    assert code(c, "ROLLBACK") == 0
    rows(c, begin)
    rows(c, "UPDATE t SET a = a + 1 WHERE id = 1")
    assert code(c, "ROLLBACK") == 0 and rows(c, "SELECT a FROM t WHERE id = 1") == before
    rows(c, "SET autocommit = 1")


def test_savepoints(c: Any) -> None:
    before = rows(c, "SELECT a FROM t WHERE id = 1")
    rows(c, "BEGIN")
    rows(c, "SAVEPOINT a")
    assert code(c, "ROLLBACK TO a") == 0 and code(c, "ROLLBACK TO SAVEPOINT b") == 1305
    rows(c, "UPDATE t SET a = a + 1 WHERE id = 1")
    rows(c, "SAVEPOINT b")
    assert code(c, "ROLLBACK TO b") == 0 and code(c, "ROLLBACK TO a") == 0 and code(c, "RELEASE SAVEPOINT b") == 1305
    assert rows(c, "SELECT a FROM t WHERE id = 1") == before
    assert code(c, "RELEASE SAVEPOINT a") == 0 and code(c, "RELEASE SAVEPOINT a") == 1305
    assert code(c, "ROLLBACK") == 0


def test_read_only_transactions_refuse_writes(c: Any) -> None:
    write = "UPDATE t SET a = a + 1 WHERE id = 1"
    rows(c, "START TRANSACTION READ ONLY")
    assert code(c, write) == 1792
    rows(c, "COMMIT")
    assert code(c, write) == 0
    rows(c, "SET TRANSACTION READ ONLY")
    rows(c, "BEGIN")
    assert code(c, write) == 1792
    rows(c, "ROLLBACK")
    assert code(c, write) == 0
    rows(c, "SET SESSION TRANSACTION READ ONLY")
    assert code(c, write) == 1792
    rows(c, "SET SESSION TRANSACTION READ WRITE")
    assert code(c, write) == 0


# ------------------------------------------------------------------ SHOW … WHERE, LIKE
def test_where_of_show_is_of_any_column(c: Any) -> None:
    rows(c, "CREATE VIEW v AS SELECT a FROM t WHERE id = ?")
    try:
        assert rows(c, "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'") == [("t", "BASE TABLE")]
        assert rows(c, "SHOW FULL TABLES WHERE Table_type = 'VIEW' AND Tables_in_noria LIKE 'v%%'") == [("v", "VIEW")]
    finally:
        rows(c, "DROP VIEW v")
    assert rows(c, "SHOW VARIABLES WHERE Value = 'UTC' AND Variable_name IN ('time_zone', 'autocommit')") == [
        ("time_zone", "UTC")]
    assert rows(c, "SHOW COLUMNS FROM t WHERE `Key` = 'PRI'")[0][0] == "id"
    assert [r[0] for r in rows(c, "SHOW COLUMNS FROM t WHERE Field <> 'id'")] == ["a"]
    assert code(c, "SHOW TABLES WHERE nosuch = 1") == 1054
    assert len(rows(c, "SHOW INDEX FROM t WHERE Key_name = 'PRIMARY'")) == 1


# ------------------------------------------------------------------ locks
def test_a_locked_table_is_not_written_by_others(local: LocalServer, c: Any) -> None:
    write = "UPDATE t SET a = a + 1 WHERE id = 1"
    with local.connect() as other:
        rows(other, "SET lock_wait_timeout = 0")
        rows(c, "LOCK TABLES t WRITE")
        assert code(other, write) == 1205 and code(other, "LOCK TABLES t READ") == 1205 and code(c, write) == 0
        assert code(other, "DROP TABLE t") == 1205 and code(other, "SELECT a FROM t WHERE id = 1") == 1205
        rows(c, "UNLOCK TABLES")
        assert code(other, write) == 0
        rows(c, "LOCK TABLES t READ")
        assert code(c, write) == 1099 and code(other, write) == 1205 and code(other, "LOCK TABLES t READ") == 0
        rows(other, "UNLOCK TABLES")
        rows(c, "BEGIN")
        assert code(other, write) == 0
        assert code(c, "LOCK TABLES nosuch WRITE") == 1146
    with local.connect() as gone:
        rows(gone, "LOCK TABLES t WRITE")
    assert code(c, write) == 0


# ------------------------------------------------------------------ AUTO_INCREMENT
def test_auto_increment_begins_where_it_is_told(c: Any) -> None:
    rows(c, "CREATE TABLE n (id INT PRIMARY KEY AUTO_INCREMENT, a INT) AUTO_INCREMENT=40 ENGINE=InnoDB")
    try:
        rows(c, "INSERT INTO n (a) VALUES (1), (2)")
        assert rows(c, "SELECT id FROM n ORDER BY id") == [(40,), (41,)]
        assert code(c, "INSERT INTO n VALUES (0, 3)") == 0
        rows(c, "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
        assert [code(c, f"INSERT INTO n VALUES ({zero}, 3)") for zero in ("0", "'0'", "0.0")] == [0, 1062, 1062]
        assert code(c, "INSERT INTO n VALUES (NULL, 3), (77, 4)") == 0
        assert rows(c, "SELECT id FROM n ORDER BY id") == [(0,), (40,), (41,), (42,), (43,), (77,)]
    finally:
        rows(c, "DROP TABLE n")


# ------------------------------------------------------------------ parameters
def test_a_parameter_without_a_value_is_an_error(c: Any) -> None:
    assert code(c, "SELECT a FROM t WHERE id = ?") == 1064
    assert code(c, "INSERT INTO t (a) VALUES (?)") == 1064
    assert code(c, "SELECT ?") == 1064
