"""DB-API 2.0 over an embedded database; over a server in `tests/e2e`."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import noria
from noria import dbapi
from server.local_services import LocalServices

TYPES = ("CREATE TABLE types (id INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(9), b VARBINARY(9), d DECIMAL(9,2), "
         "x DOUBLE, day DATE, at DATETIME)")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[dbapi.Connection]:
    with dbapi.connect(str(tmp_path / "data")) as opened:
        opened.execute("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20) NOT NULL)")
        opened.cursor().executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b"), (3, "c")])
        opened.commit()
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
    ("CREATE TABLE c (a INT, FOREIGN KEY (a) REFERENCES t (id) MATCH FULL)", (), dbapi.NotSupportedError, 1235)])
def test_errors_are_of_their_classes(connection: dbapi.Connection, sql: str, parameters: Any, kind: type[dbapi.Error],
                                     code: int) -> None:
    with pytest.raises(kind) as raised:
        connection.execute(sql, parameters)
    assert type(raised.value) is kind and raised.value.code == code and bool(raised.value.state) == bool(code)
    assert connection.execute("SELECT COUNT(*) FROM t").fetchall() == [(3,)], "the connection goes on"


@pytest.fixture(params=["embedded", "served"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[dbapi.Connection, dbapi.Connection]]:
    """Two connections to one database, whose table t has three rows."""
    with ExitStack() as stack:
        place = str(tmp_path / "both")
        if request.param == "served":
            place = f"http://127.0.0.1:{stack.enter_context(LocalServices(tmp_path)).port}"
        one, other = (stack.enter_context(dbapi.connect(place)) for _ in range(2))
        one.execute("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20) NOT NULL)")
        one.cursor().executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b"), (3, "c")])
        one.commit()
        yield one, other


ALL = "SELECT id FROM t ORDER BY id"


def test_a_transaction_lasts_until_commit_or_rollback(two: tuple[dbapi.Connection, dbapi.Connection]) -> None:
    one, other = two
    one.execute("INSERT INTO t VALUES (4, 'd')")
    assert one.execute(ALL).fetchall() == [(1,), (2,), (3,), (4,)] and other.execute(ALL).rowcount == 3
    one.rollback()
    assert one.execute(ALL).rowcount == 3
    one.execute("INSERT INTO t VALUES (5, 'e')")
    one.commit()
    assert other.execute(ALL).rowcount == 3, "its snapshot is of its first SELECT"
    other.commit()
    assert other.execute(ALL).fetchall() == [(1,), (2,), (3,), (5,)]
    one.rollback()
    one.commit()
    with pytest.raises(dbapi.IntegrityError):
        one.cursor().executemany("INSERT INTO t VALUES (?, '?')", [(6,), (5,)])
    assert one.execute(ALL).rowcount == 5, "a failed statement leaves its transaction open"
    one.close()
    other.rollback()
    assert other.execute(ALL).rowcount == 4, "what was not committed at its end is gone"


def test_a_definition_commits(two: tuple[dbapi.Connection, dbapi.Connection]) -> None:
    one, other = two
    one.execute("INSERT INTO t VALUES (4, 'd')")
    one.execute("CREATE TABLE another (id INT PRIMARY KEY)")
    one.execute("DELETE FROM t WHERE id = 1")
    one.rollback()
    assert other.execute(ALL).fetchall() == [(1,), (2,), (3,), (4,)]


def test_with_autocommit_each_statement_commits(two: tuple[dbapi.Connection, dbapi.Connection]) -> None:
    one, other = two
    assert not one.autocommit
    one.execute("INSERT INTO t VALUES (4, 'd')")
    one.autocommit = True  # commits what is open
    assert other.execute(ALL).rowcount == 4
    one.execute("INSERT INTO t VALUES (5, 'e')")
    one.rollback()
    other.commit()
    assert other.execute(ALL).rowcount == 5


def test_a_level_holds_for_later_transactions(two: tuple[dbapi.Connection, dbapi.Connection]) -> None:
    one, other = two
    other.isolation = "READ COMMITTED"
    assert other.execute(ALL).rowcount == 3
    one.execute("INSERT INTO t VALUES (4, 'd')")
    one.commit()
    assert other.execute(ALL).rowcount == 4


def test_a_transaction_that_was_rolled_back_is_told_of_once(two: tuple[dbapi.Connection, dbapi.Connection]) -> None:
    one, other = two
    one.execute("UPDATE t SET s = 'x' WHERE id = 1")
    other.execute("UPDATE t SET s = 'y' WHERE id IN (2, 3)")
    failed: list[dbapi.Error] = []

    def waits() -> None:
        try:
            other.execute("UPDATE t SET s = 'z' WHERE id = 1")
            other.commit()
        except dbapi.Error as e:
            failed.append(e)

    thread = threading.Thread(target=waits)
    thread.start()
    while thread.is_alive() and not failed:  # whoever closes the cycle
        try:
            one.execute("UPDATE t SET s = 'w' WHERE id = 2")
            one.commit()
            break
        except dbapi.Error as e:
            failed.append(e)
    thread.join()
    assert [(type(e), e.code) for e in failed] == [(dbapi.OperationalError, 1213)]
    for connection in two:
        connection.execute(ALL)
        connection.rollback()


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


def test_a_directory_in_use_is_an_error(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data"), pytest.raises(dbapi.OperationalError, match="in use"):
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


def test_connections_of_one_process_share_an_embedded_database(tmp_path: Path, connection: dbapi.Connection) -> None:
    with dbapi.connect(str(tmp_path / "data")) as second:
        second.execute("INSERT INTO t VALUES (4, 'd')")
        second.commit()
        connection.close()
        assert second.execute("SELECT s FROM t WHERE id = 4").fetchall() == [("d",)], "the last one closes it"
        with pytest.raises(dbapi.InterfaceError, match="open in this process with other options"):
            dbapi.connect(str(tmp_path / "data"), memory_limit=2**26)
    with noria.open(tmp_path / "data") as alone:
        assert alone.sql("SELECT COUNT(*) FROM t").rows == [(4,)]


def test_rows_of_an_insert_are_sent_together(connection: dbapi.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    run = noria.client.Transaction.sql
    monkeypatch.setattr(noria.client.Transaction, "sql", lambda self, text, *more, **options: sent.append(text) or run(
        self, text, *more, **options))
    cursor = connection.cursor()
    rows = [(i, f"é{i}") for i in range(10, 1210)]
    assert cursor.executemany("insert into t (id, s) values (?, ?)", iter(rows)).rowcount == 1200
    assert len(sent) == 3 and connection.execute("SELECT * FROM t WHERE id >= 10 ORDER BY id").fetchall() == rows
    again = "INSERT INTO t VALUES (?, ?) ON DUPLICATE KEY UPDATE s = VALUES(s);"
    assert cursor.executemany(again, [(1, "x"), (2, "y"), (9, "z")]).rowcount == 5
    with pytest.raises(dbapi.IntegrityError):
        cursor.executemany("INSERT INTO t VALUES (?, ?)", [(5, "five"), (1, "again")])
    assert connection.execute("SELECT s FROM t WHERE id = 5").fetchall() == [], "a statement is written whole or not"
    with pytest.raises(dbapi.ProgrammingError, match="1210"):
        cursor.executemany("INSERT INTO t VALUES (?, ?)", [(6, "six"), (7,)])
    cursor.executemany("INSERT INTO t VALUES (?, '?')", [(20_000,)])
    assert connection.execute("SELECT s FROM t WHERE id = 20000").fetchall() == [("?",)]


def test_rows_that_stay_as_they_are_count_when_asked(tmp_path: Path, connection: dbapi.Connection) -> None:
    same = "UPDATE t SET s = 'a' WHERE id = 1"
    assert connection.execute(same).rowcount == 0
    connection.commit()
    with dbapi.connect(str(tmp_path / "data"), found_rows=True) as other:
        assert other.execute(same).rowcount == 1


def test_rows_are_fetched_as_arrow(connection: dbapi.Connection) -> None:
    cursor = connection.execute("SELECT id, s FROM t ORDER BY id")
    assert cursor.fetchone() == (1, "a")
    assert cursor.fetch_arrow_table().to_pydict() == {"id": [2, 3], "s": ["b", "c"]} and cursor.fetchone() is None


VALUES = [None, True, 7, -2**63, 2**64, 1.5, Decimal("1.50"), "é'\"\\", b"\x00\xff", datetime.date(2024, 2, 3),
          datetime.datetime(2024, 2, 3, 4, 5, 6, 7), datetime.time(4, 5, 6),
          datetime.timedelta(hours=-30, microseconds=5)]


def test_a_server_gets_each_value_as_an_embedded_database_does(tmp_path: Path) -> None:
    with LocalServices(tmp_path) as local, dbapi.connect(f"http://127.0.0.1:{local.port}") as far, dbapi.connect(
            str(tmp_path / "near")) as near:
        for value in VALUES:
            near_answer, far_answer = (c.execute("SELECT ? AS v", [value]) for c in (near, far))
            assert near_answer.fetchall() == far_answer.fetchall() and near_answer.description == far_answer.description
        for connection in (near, far):
            connection.execute("CREATE TABLE b (id INT PRIMARY KEY, v VARBINARY(9), t TIME(6))")
            connection.execute("INSERT INTO b VALUES (1, ?, ?)", [b"\x00\xff", VALUES[-1]])
            assert connection.execute("SELECT v, t FROM b WHERE id = 1").fetchall() == [(b"\x00\xff", VALUES[-1])]
            with pytest.raises(dbapi.ProgrammingError, match=r"parameter 1 is a object; give numbers"):
                connection.execute("SELECT ?", [object()])


PLACES = (  # of parameters that are no keys
    "SELECT id, COALESCE(s, ?) AS x FROM p ORDER BY id", "SELECT id, n + ? AS x FROM p ORDER BY id",
    "SELECT CASE WHEN n > ? THEN 'more' ELSE 'less' END AS x, COUNT(*) AS c FROM p GROUP BY x ORDER BY x",
    "SELECT id FROM p WHERE id IN (SELECT id FROM p WHERE n > ?) ORDER BY id",
    "SELECT x.id FROM (SELECT id FROM p WHERE n > ?) AS x ORDER BY id",
    "SELECT id, (SELECT COUNT(*) FROM p AS q WHERE q.n = ?) AS c FROM p ORDER BY id",
    "WITH q AS (SELECT id FROM p WHERE n < ?) SELECT COUNT(*) AS c FROM q",
    "SELECT id FROM p WHERE n < ? UNION SELECT n FROM p ORDER BY 1",
    "SELECT p.id, q.id AS o FROM p LEFT JOIN p AS q ON p.id = q.n AND q.id > ? ORDER BY p.id, o",
    "SELECT id FROM p ORDER BY n = ?, id")


@pytest.mark.parametrize("sql", PLACES)
def test_a_parameter_may_stand_where_a_literal_may(connection: dbapi.Connection, sql: str) -> None:
    connection.execute("CREATE TABLE p (id INT PRIMARY KEY, n INT, s VARCHAR(9))")
    connection.cursor().executemany("INSERT INTO p VALUES (?, ?, ?)", [(i, i % 5, None) for i in range(1, 7)])
    for value in (1, 2, 1, 0):  # asked again, too, and after a write
        told = connection.execute(sql, [value]).fetchall()
        assert told == connection.execute(sql.replace("?", str(value))).fetchall() and told
    before = connection.execute(sql, [1]).fetchall()
    connection.execute("INSERT INTO p VALUES (7, 5, 'x'), (8, 0, 'y')")
    after = connection.execute(sql, [1]).fetchall()
    assert after == connection.execute(sql.replace("?", "1")).fetchall() and after != before


def test_a_parameter_that_is_no_key_stands_beside_one_that_is(connection: dbapi.Connection) -> None:
    both = "SELECT id, CONCAT(s, ?) AS x FROM t WHERE id = ?"
    for _ in range(3):
        assert connection.execute(both, ["!", 1]).fetchall() == [(1, "a!")]
        assert connection.execute(both, ["!", 2]).fetchall() == [(2, "b!")]
        assert connection.execute(both, ["?", 2]).fetchall() == [(2, "b?")]


def test_float_has_a_number_of_bits(connection: dbapi.Connection) -> None:
    connection.execute("CREATE TABLE f (id INT PRIMARY KEY, a FLOAT(24), b FLOAT(25), c FLOAT(53))")
    assert [row[1] for row in connection.execute("DESCRIBE f").fetchall()][1:] == ["float", "double", "double"]
    for wrong, code in (("FLOAT(54)", 1063), ("FLOAT(4, 7)", 1427), ("DOUBLE(40, 31)", 1425), ("DOUBLE(7)", 1064)):
        with pytest.raises(dbapi.Error) as raised:
            connection.execute(f"CREATE TABLE g (id INT PRIMARY KEY, a {wrong})")
        assert raised.value.code == code
