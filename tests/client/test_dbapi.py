"""DB-API 2.0 over an embedded database; over a server in `tests/e2e`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import noria
from noria import dbapi

TYPES = ("CREATE TABLE types (id INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(9), b VARBINARY(9), d DECIMAL(9,2), "
         "x DOUBLE, day DATE, at DATETIME)")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[dbapi.Connection]:
    with dbapi.connect(str(tmp_path / "data")) as opened:
        opened.execute("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20) NOT NULL)")
        opened.cursor().executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b"), (3, "c")])
        yield opened


def test_the_module_is_what_the_standard_says() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 1, "qmark")
    assert issubclass(dbapi.InterfaceError, dbapi.Error) and not issubclass(dbapi.InterfaceError, dbapi.DatabaseError)
    for name in ("DataError", "OperationalError", "IntegrityError", "InternalError", "ProgrammingError",
                 "NotSupportedError"):
        kind = getattr(dbapi, name)
        assert issubclass(kind, dbapi.DatabaseError) and getattr(dbapi.Connection, name) is kind
    assert dbapi.Date(2024, 1, 2) == datetime.date(2024, 1, 2) and dbapi.Binary(b"x") == b"x"
    assert dbapi.TimestampFromTicks(0).date() == dbapi.DateFromTicks(0)
    assert dbapi.TimeFromTicks(0) == dbapi.TimestampFromTicks(0).time()


def test_rows_are_fetched_in_every_way(connection: dbapi.Connection) -> None:
    cursor = connection.execute("SELECT id, s FROM t ORDER BY id")
    assert cursor.rowcount == 3 and cursor.fetchone() == (1, "a") and cursor.rownumber == 1
    assert cursor.fetchmany() == [(2, "b")] and cursor.fetchall() == [(3, "c")]
    assert cursor.fetchone() is None and cursor.fetchall() == [] and cursor.fetchmany(5) == []
    assert list(connection.execute("SELECT id FROM t WHERE id > ? ORDER BY id DESC", [1])) == [(3,), (2,)]
    cursor.arraysize = 2
    cursor.execute("SELECT id FROM t ORDER BY id")
    assert cursor.fetchmany() == [(1,), (2,)]


def test_columns_are_described(connection: dbapi.Connection) -> None:
    connection.execute(TYPES)
    day, at = datetime.date(2024, 2, 3), datetime.datetime(2024, 2, 3, 4, 5, 6)
    inserted = connection.execute("INSERT INTO types (s, b, d, x, day, at) VALUES (?, ?, ?, ?, ?, ?)",
                                  ["é", b"\x00\xff", Decimal("1.50"), 2.5, day, at])
    assert (inserted.rowcount, inserted.lastrowid, inserted.description) == (1, 1, None)
    cursor = connection.execute("SELECT id, s, b, d, x, day, at FROM types")
    assert cursor.description is not None
    names = [column[0] for column in cursor.description]
    kinds = [column[1] for column in cursor.description]
    assert names == ["id", "s", "b", "d", "x", "day", "at"] and all(len(c) == 7 for c in cursor.description)
    wanted = [dbapi.NUMBER, dbapi.STRING, dbapi.BINARY, dbapi.NUMBER, dbapi.NUMBER, dbapi.DATETIME, dbapi.DATETIME]
    assert kinds == wanted and kinds[0] != dbapi.STRING
    assert cursor.fetchall() == [(1, "é", b"\x00\xff", Decimal("1.50"), 2.5, day, at)]


@pytest.mark.parametrize("sql, parameters, kind, code", [
    ("INSERT INTO t VALUES (1, 'x')", (), dbapi.IntegrityError, 1062),
    ("INSERT INTO t VALUES (9, NULL)", (), dbapi.IntegrityError, 1048),
    ("INSERT INTO t VALUES (99999999999, 'x')", (), dbapi.DataError, 1264),
    ("SELECT nothing FROM t", (), dbapi.ProgrammingError, 1054),
    ("SELECT * FROM nowhere", (), dbapi.ProgrammingError, 1146),
    ("SELEC 1", (), dbapi.ProgrammingError, 1064),
    ("SELECT * FROM t WHERE id = ?", (1, 2), dbapi.ProgrammingError, 1210),
    ("SELECT * FROM t WHERE id = ?", {"id": 1}, dbapi.ProgrammingError, 0),
    ("CREATE TABLE c (id INT PRIMARY KEY, CHECK (id > 1))", (), dbapi.NotSupportedError, 1235)])
def test_errors_are_of_their_classes(connection: dbapi.Connection, sql: str, parameters: Any, kind: type[dbapi.Error],
                                     code: int) -> None:
    with pytest.raises(kind) as raised:
        connection.execute(sql, parameters)
    assert type(raised.value) is kind and raised.value.code == code and bool(raised.value.state) == bool(code)
    assert connection.execute("SELECT COUNT(*) FROM t").fetchall() == [(3,)], "the connection goes on"


def test_there_is_no_transaction_and_none_is_pretended(connection: dbapi.Connection) -> None:
    connection.execute("INSERT INTO t VALUES (4, 'd')")
    connection.commit()
    connection.rollback()
    assert connection.autocommit and connection.execute("SELECT s FROM t WHERE id = 4").fetchall() == [("d",)]
    connection.autocommit = True
    with pytest.raises(dbapi.NotSupportedError, match="transactions"):
        connection.autocommit = False


def test_what_is_closed_is_refused(tmp_path: Path, connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    with pytest.raises(dbapi.ProgrammingError, match="no statement"):
        cursor.fetchall()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
        cursor.execute("SELECT 1")
    other = connection.execute("SELECT id FROM t")
    connection.close()
    connection.close()
    for act in (connection.commit, connection.rollback, connection.cursor, other.fetchone,
                lambda: other.execute("SELECT 1")):
        with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
            act()


def test_executemany_counts_all_rows(connection: dbapi.Connection) -> None:
    cursor = connection.cursor().executemany("UPDATE t SET s = CONCAT(s, ?) WHERE id <= ?", [("x", 1), ("y", 3)])
    assert cursor.rowcount == 4
    assert cursor.executemany("DELETE FROM t WHERE id = ?", []).rowcount == 0
    cursor.setinputsizes([1])
    cursor.setoutputsize(1)


def test_pandas_reads_it(connection: dbapi.Connection) -> None:
    with pytest.warns(UserWarning, match="SQLAlchemy"):
        frame = pd.read_sql("SELECT id, s FROM t WHERE id > ? ORDER BY id", connection, params=[1])
    assert frame.to_dict("list") == {"id": [2, 3], "s": ["b", "c"]}


def test_a_server_that_is_not_there_is_an_operational_error() -> None:
    connection = dbapi.connect("http://127.0.0.1:9")
    with pytest.raises(dbapi.OperationalError, match=r"did not answer: .*start one with `noria serve`"):
        connection.execute("SELECT 1")


def test_a_directory_in_use_is_an_error(tmp_path: Path, connection: dbapi.Connection) -> None:
    with pytest.raises(dbapi.OperationalError, match="in use"):
        dbapi.connect(str(tmp_path / "data"))


def test_the_package_shows_what_it_has(tmp_path: Path) -> None:
    assert {"connect", "open", "dbapi", "SqlError"} <= set(dir(noria)) and "TYPE_CHECKING" not in dir(noria)
    assert noria.dbapi is dbapi and issubclass(noria.SqlError, Exception)
    with noria.open(tmp_path / "named") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
        db.sql("CREATE VIEW v AS SELECT a, b, COUNT(*) AS n FROM t WHERE a = ? AND b = ? GROUP BY a, b")
        db.table("t").insert([(1, 2, 3), (2, 2, 3)])
        place = str(tmp_path / "named")
        assert (repr(db), repr(db.table("t")), repr(db.view("v"))) == (
            f"<noria database {place}>", f"<noria table t of {place}>", f"<noria view v of {place}>")
        view = db.view("v")
        assert view.lookup(b=3, A=2) == view.lookup((2, 3)) == [(2, 3, 2)]
        for wrong in ({"a": 2}, {"a": 2, "c": 3}, {"a": 2, "b": 3, "c": 1}):
            with pytest.raises(TypeError, match="looked up by a, b, not by"):
                view.lookup(**wrong)
        with pytest.raises(TypeError, match="beside a key"):
            view.lookup((2, 3), a=2, b=3)
