"""Real clients over a dictionary: the mariadb program, PyMySQL, mysql-connector-python."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import mysql.connector
import pymysql
import pytest

from noria.core.errors import duplicate_entry
from noria.core.types import BIGINT, BOOL, DATE, DOUBLE, TEXT, TEXT_BIN, Field, Kind, SqlType, decimal
from noria.server.outcomes import Ok, ResultSet
from server.mysql.mysql_fakes import Serving

EVERYTHING = [
    Field("tiny", SqlType(Kind.INT, bits=8)), Field("flag", BOOL), Field("small", SqlType(Kind.INT, bits=16)),
    Field("medium", SqlType(Kind.INT, bits=24)), Field("normal", SqlType(Kind.INT, bits=32, unsigned=True)),
    Field("big", BIGINT, nullable=False), Field("ubig", SqlType(Kind.INT, unsigned=True)), Field("real", DOUBLE),
    Field("money", decimal(18, 4)), Field("name", SqlType(Kind.TEXT, length=40)), Field("body", TEXT),
    Field("exact", TEXT_BIN), Field("day", DATE), Field("at", SqlType(Kind.DATETIME)),
    Field("precisely", SqlType(Kind.DATETIME, scale=6)),
    Field("stamp", SqlType(Kind.DATETIME, scale=3, timestamp=True)),
]
ROWS: list[tuple[Any, ...]] = [
    (-128, 1, -32768, -8388608, 4294967295, 2**63 - 1, 2**63 - 1, 0.1, Decimal("12345678901234.5678"),
     "Grüße, 世界 🦆", "", "it's \"quoted\"\0\n", date(1000, 1, 1), datetime(2024, 2, 29, 23, 59, 59),
     datetime(2024, 2, 29, 0, 0, 0, 1), datetime(2024, 12, 31, 12, 30, 15, 250_000)),
    (127, 0, 32767, 8388607, 0, -2**63 + 2, 0, -1e300, Decimal("-0.0001"), "x" * 40, "y" * 70_000, "z" * 251,
     date(9999, 12, 31), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1)),
    (None, None, None, None, None, 0, *[None] * 10),
]


@pytest.fixture
def filled(serving: Serving) -> Iterator[Serving]:
    echoed: list[Any] = []

    def echo(*values: object) -> Ok:
        echoed.append(values)
        return Ok(len(values))

    answers = serving.backend.answers
    answers["SELECT everything"] = ResultSet(EVERYTHING, ROWS, warnings=[("Note", 1, "")] * 3)
    answers["SELECT name FROM t WHERE id = ?"] = ResultSet([Field("name", TEXT)], [("Ada",)])
    answers["SELECT none"] = ResultSet([Field("n", BIGINT)], [])
    answers["INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)"] = echo
    answers["INSERT 3"] = Ok(3, 17, (), "Records: 3  Duplicates: 0  Warnings: 0")
    answers["INSERT again"] = duplicate_entry("17", "PRIMARY")
    answers["SELECT big"] = ResultSet([Field("t", TEXT)], [("b" * (17 * 2**20),)])
    serving.backend.tables["t"] = EVERYTHING
    serving.echoed = echoed
    yield serving


ACCOUNTS = [("ada", "lovelace"), ("strong", "très secret"), ("open", "")]


# --- PyMySQL -------------------------------------------------------------------------------------------------


def pymysql_to(serving: Serving, user: str = "ada", password: str = "lovelace", **more: Any) -> Any:
    return closing(pymysql.connect(host="127.0.0.1", port=serving.port, user=user, password=password.encode(),
                                   **more))


@pytest.mark.parametrize(("user", "password"), ACCOUNTS)
def test_pymysql_logs_in(filled: Serving, user: str, password: str) -> None:
    for _ in range(2):
        with pymysql_to(filled, user, password, database="app") as connection:
            connection.ping(reconnect=False)
            assert filled.backend.sessions[-1].database == "app"


def test_pymysql_refused(filled: Serving) -> None:
    for user, password in (("ada", "wrong"), ("strong", "wrong"), ("nobody", ""), ("open", "x")):
        with pytest.raises(pymysql.err.OperationalError) as caught:
            pymysql_to(filled, user, password)
        assert caught.value.args[0] == 1045
    with pytest.raises(pymysql.err.OperationalError) as caught:
        pymysql_to(filled, database="nowhere")
    assert caught.value.args[0] == 1049


def test_pymysql_types(filled: Serving) -> None:
    with pymysql_to(filled) as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT everything") == 3
        assert list(cursor.fetchall()) == ROWS
        assert [d[0] for d in cursor.description] == [f.name for f in EVERYTHING]
        assert [d[6] for d in cursor.description] == [f.nullable for f in EVERYTHING]
        cursor.execute("SELECT none")
        assert cursor.fetchall() == ()


def test_pymysql_streams_and_large_packets(filled: Serving) -> None:
    with pymysql_to(filled, max_allowed_packet=64 * 2**20) as connection:
        with connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute("SELECT everything")
            assert [cursor.fetchone() for _ in range(4)] == [*ROWS, None]
        with connection.cursor() as cursor:
            cursor.execute("SELECT big" + " " * (18 * 2**20))
            assert len(cursor.fetchone()[0]) == 17 * 2**20
            with pytest.raises(pymysql.err.OperationalError) as caught:
                cursor.execute("SELECT big" + " " * (65 * 2**20))
            assert caught.value.args[0] == 1153
            assert cursor.execute("SELECT everything") == 3


def test_pymysql_writes_and_errors(filled: Serving) -> None:
    with pymysql_to(filled) as connection, connection.cursor() as cursor:
        assert cursor.execute("INSERT 3") == 3 and cursor.lastrowid == 17
        for sql, kind, code in (("INSERT again", pymysql.err.IntegrityError, 1062),
                                ("nonsense", pymysql.err.ProgrammingError, 1064)):
            with pytest.raises(kind) as caught:
                cursor.execute(sql)
            assert caught.value.args[0] == code
        connection.commit()
        connection.select_db("app")
        assert connection.get_server_info().startswith("8.0")


def test_pymysql_several_statements(filled: Serving) -> None:
    flag = pymysql.constants.CLIENT.MULTI_STATEMENTS
    with pymysql_to(filled, client_flag=flag) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT 3; SELECT everything; SELECT none")
        counts = [cursor.rowcount]
        while cursor.nextset():
            counts.append(cursor.rowcount)
        assert counts == [3, 3, 0]


# --- mysql-connector-python ----------------------------------------------------------------------------------


def connector_to(serving: Serving, user: str = "ada", password: str = "lovelace", **more: Any) -> Any:
    return closing(mysql.connector.connect(host="127.0.0.1", port=serving.port, user=user, password=password,
                                           use_pure=True, ssl_disabled=True, **more))


@pytest.mark.parametrize("plugin", ["mysql_native_password", "caching_sha2_password"])
def test_connector_logs_in(filled: Serving, plugin: str) -> None:
    with connector_to(filled, database="app", auth_plugin=plugin) as connection:
        connection.ping()
        assert connection.is_connected()
    with connector_to(filled, "open", "", auth_plugin=plugin) as connection:
        connection.cmd_change_user("ada", "lovelace", "app")
        assert filled.backend.sessions[-1].client.user == "ada"
        connection.cmd_reset_connection()
    with pytest.raises(mysql.connector.Error) as caught:
        connector_to(filled, password="wrong", auth_plugin=plugin)
    assert caught.value.errno == 1045


@pytest.mark.parametrize("prepared", [False, True])
def test_connector_types(filled: Serving, prepared: bool) -> None:
    with connector_to(filled) as connection, closing(connection.cursor(prepared=prepared)) as cursor:
        cursor.execute("SELECT everything")
        got = cursor.fetchall()
        assert got == ROWS
        assert cursor.column_names == tuple(f.name for f in EVERYTHING)
        cursor.execute("SELECT none")
        assert cursor.fetchall() == []


VALUES = (2**40, -7, 1.5, Decimal("1.25"), "Grüße 🦆", date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 456))


def test_connector_prepared_parameters(filled: Serving) -> None:
    with connector_to(filled) as connection, closing(connection.cursor(prepared=True)) as cursor:
        insert = "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)"
        for values in (VALUES, (None,) * 7, VALUES[::-1], (2**63, *VALUES[1:])):
            cursor.execute(insert, values)
            assert cursor.rowcount == 7
            assert filled.echoed[-1] == values
        cursor.execute("SELECT name FROM t WHERE id = ?", (1,))
        assert cursor.fetchall() == [("Ada",)]
        with pytest.raises(mysql.connector.ProgrammingError) as caught:
            cursor.execute("nonsense ?", (1,))
        assert caught.value.errno == 1064
        assert connection.is_connected()


def test_connector_prepared_large_parameters(filled: Serving) -> None:
    with connector_to(filled) as connection, closing(connection.cursor(prepared=True)) as cursor:
        large = "g" * (17 * 2**20)
        cursor.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", (large, *VALUES[1:]))
        assert filled.echoed == [(large, *VALUES[1:])]
    with connector_to(filled) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT big")  # its prepared cursors take each packet for a row of its own
        assert [len(text) for text, in cursor.fetchall()] == [17 * 2**20]


def test_connector_writes_and_errors(filled: Serving) -> None:
    with connector_to(filled) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("INSERT 3")
        assert (cursor.rowcount, cursor.lastrowid) == (3, 17)
        with pytest.raises(mysql.connector.IntegrityError) as caught:
            cursor.execute("INSERT again")
        assert (caught.value.errno, caught.value.sqlstate) == (1062, "23000")
        connection.database = "app"
        assert connection.database == "app"


# --- The mariadb program -------------------------------------------------------------------------------------

mariadb = pytest.mark.skipif(shutil.which("mariadb") is None, reason="Debian's mariadb-client is not installed")


def run_mariadb(serving: Serving, sql: str, user: str = "ada", password: str = "lovelace",
                *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["mariadb", "--no-defaults", "--default-character-set=utf8mb4", "-h127.0.0.1", f"-P{serving.port}",
         f"-u{user}", f"-p{password}" if password else "--skip-password", "--skip-ssl", *options],
        input=sql, capture_output=True, text=True, timeout=60, check=False)


@mariadb
@pytest.mark.mariadb
@pytest.mark.parametrize(("user", "password"), ACCOUNTS)
def test_mariadb_logs_in(filled: Serving, user: str, password: str) -> None:
    for options in ((), ("--default-auth=caching_sha2_password",), ("--default-auth=mysql_native_password",)):
        done = run_mariadb(filled, "SELECT none; SELECT everything", user, password, "-N", *options)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 3


@mariadb
@pytest.mark.mariadb
def test_mariadb_prints(filled: Serving) -> None:
    done = run_mariadb(filled, "SELECT everything", "ada", "lovelace", "-D", "app")
    lines = done.stdout.splitlines()
    assert lines[0].split("\t") == [f.name for f in EVERYTHING]
    assert lines[1].split("\t") == [
        "-128", "1", "-32768", "-8388608", "4294967295", "9223372036854775807", "9223372036854775807", "0.1",
        "12345678901234.5678", "Grüße, 世界 🦆", "", 'it\'s "quoted"\\0\\n', "1000-01-01",
        "2024-02-29 23:59:59", "2024-02-29 00:00:00.000001", "2024-12-31 12:30:15.250"]
    assert lines[3].split("\t") == ["NULL" if v is None else str(v) for v in ROWS[2]]


@mariadb
@pytest.mark.mariadb
def test_mariadb_errors_and_verbose_output(filled: Serving) -> None:
    assert "ERROR 1045 (28000)" in run_mariadb(filled, "", "ada", "wrong").stderr
    assert "ERROR 1064 (42000)" in run_mariadb(filled, "nonsense").stderr
    assert "ERROR 1049 (42000)" in run_mariadb(filled, "USE nowhere").stderr
    done = run_mariadb(filled, "INSERT 3; INSERT again; SELECT none", "ada", "lovelace", "-vv", "--force")
    assert "Query OK, 3 rows affected" in done.stdout and "Records: 3" in done.stdout
    assert "ERROR 1062 (23000)" in done.stderr and "Empty set" in done.stdout


@mariadb
@pytest.mark.mariadb
def test_mariadb_sends_and_reads_large_packets(filled: Serving) -> None:
    sql = "SELECT big /*" + "c" * (17 * 2**20) + "*/"
    filled.backend.answers[sql] = filled.backend.answers["SELECT big"]
    done = run_mariadb(filled, sql, "ada", "lovelace", "-N", "--max-allowed-packet=64M", "--comments")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) == 17 * 2**20 + 1
