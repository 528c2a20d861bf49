"""Wrong input of every kind to a real server: each a clear error with MySQL's number and SQLSTATE, nothing lost, and
the server serves on.  (Full disks: `tests/e2e/failures/test_full_disks.py`.)"""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import struct
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest

from e2e.serving import Served, execute, rows, serving, until
from noria.client.transport import HttpTransport
from noria.core.errors import SqlError
from seeds import seed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
GOOD = [(1, 10, "one"), (2, 20, "two")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("wrong") / "data",
                 "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, s VARCHAR(5), d DECIMAL(5,2), day DATE,"
                 " u TINYINT UNSIGNED, UNIQUE KEY s (s))", "CREATE VIEW v AS SELECT id, n, s FROM t WHERE id = ?",
                 "INSERT INTO t (id, n, s) VALUES (1, 10, 'one'), (2, 20, 'two')") as server:
        yield server


@pytest.fixture(autouse=True)
def serves_on(served: Served) -> Iterator[None]:
    """After each test: what was there is there, reads and writes are answered, by the same processes."""
    worker = served.pid("worker")
    yield
    with served.connect() as connection:
        assert sorted(rows(connection, "SELECT id, n, s FROM t")) == GOOD
        assert rows(connection, "SELECT * FROM v WHERE id = 2") == GOOD[1:]
        assert execute(connection, "INSERT INTO t (id, n) VALUES (3, 30)") == 1
        assert rows(connection, "SELECT * FROM v WHERE id = 3") == [(3, 30, None)]
        assert execute(connection, "DELETE FROM t WHERE id = 3") == 1
    assert served.pid("worker") == worker and served.process.poll() is None


WRONG = [  # statement, number, SQLSTATE, what the message says
    ("SELEC 1", 1064, "42000", "line 1"),
    ("SELECT * FROM t WHERE", 1064, "42000", "near"),
    ("SELECT 'open FROM t", 1064, "42000", "does not end"),
    ("INSERT INTO t VALUES (1,", 1064, "42000", "near"),
    ("", 1065, "42000", "empty"),
    ("SELECT 1e", 1064, "42000", "'1e' is no number"),
    ("SELECT * FROM t WHERE n = 1e999", 1367, "22007", "'1e999'"),
    ("SELECT * FROM nowhere", 1146, "42S02", "nowhere"),
    ("INSERT INTO nowhere VALUES (1)", 1146, "42S02", "nowhere"),
    ("DELETE FROM nowhere", 1146, "42S02", "nowhere"),
    ("CREATE VIEW w AS SELECT a FROM nowhere", 1146, "42S02", "nowhere"),
    ("DROP TABLE nowhere", 1051, "42S02", "nowhere"),
    ("SELECT x FROM t", 1054, "42S22", "'x' in 'field list'"),
    ("SELECT id FROM t WHERE x = 1", 1054, "42S22", "'x' in 'where clause'"),
    ("UPDATE t SET x = 1", 1054, "42S22", "'x'"),
    ("INSERT INTO t (id, x) VALUES (1, 1)", 1054, "42S22", "'x'"),
    ("SELECT id FROM t a JOIN t b ON a.id = b.id", 1052, "23000", "ambiguous"),
    ("INSERT INTO t (id, id) VALUES (5, 5)", 1110, "42000", "'id'"),
    ("INSERT INTO t (id, n) VALUES (5)", 1136, "21S01", "row 1"),
    ("INSERT INTO t (id, n) VALUES (5, 5), (6, 6, 6)", 1136, "21S01", "row 2"),
    ("INSERT INTO t (id) VALUES (5)", 1364, "HY000", "'n'"),
    ("INSERT INTO t (id, n) VALUES (5, NULL)", 1048, "23000", "'n'"),
    ("UPDATE t SET n = NULL WHERE id = 1", 1048, "23000", "'n'"),
    ("INSERT INTO t (id, n) VALUES (1, 5)", 1062, "23000", "'1' for key 't.PRIMARY'"),
    ("INSERT INTO t (id, n) VALUES (5, 5), (6, 6), (5, 5)", 1062, "23000", "'5'"),
    ("INSERT INTO t (id, n, s) VALUES (5, 5, 'ONE')", 1062, "23000", "'ONE' for key 't.s'"),
    ("UPDATE t SET id = 2 WHERE id = 1", 1062, "23000", "'2'"),
    ("INSERT INTO t (id, n) VALUES (2147483648, 1)", 1264, "22003", "'id' at row 1"),
    ("INSERT INTO t (id, n) VALUES (5, 5), (6, -99999999999)", 1264, "22003", "'n' at row 2"),
    ("INSERT INTO t (id, n, u) VALUES (5, 5, 256)", 1264, "22003", "'u'"),
    ("INSERT INTO t (id, n, u) VALUES (5, 5, -1)", 1264, "22003", "'u'"),
    ("INSERT INTO t (id, n, d) VALUES (5, 5, 1000)", 1264, "22003", "'d'"),
    ("UPDATE t SET n = n * 1000000000", 1264, "22003", "'n'"),
    ("UPDATE t SET n = n + 9223372036854775807", 1690, "22003", "out of range"),
    ("DELETE FROM t WHERE n + 9223372036854775807 > 1", 1690, "22003", "out of range"),
    ("UPDATE t SET u = 1 WHERE id > 0 AND n * 9223372036854775807 <> 1", 1690, "22003", "out of range"),
    ("INSERT INTO t (id, n) VALUES ('x', 5)", 1366, "HY000", "'x' for column 'id'"),
    ("INSERT INTO t (id, n, day) VALUES (5, 5, '2023-02-29')", 1292, "22007", "'2023-02-29'"),
    ("INSERT INTO t (id, n, s) VALUES (5, 5, 'sixsix')", 1406, "22001", "'s' at row 1"),
    ("UPDATE t SET s = CONCAT(s, s)", 1406, "22001", "'s'"),
    ("CREATE TABLE t (a INT)", 1050, "42S01", "'t'"),
    ("CREATE TABLE w (a INT, A INT)", 1060, "42S21", "'A'"),
    ("CREATE TABLE w (a INT DEFAULT 'x')", 1067, "42000", "'a'"),
    ("CREATE TABLE w (a INT, PRIMARY KEY (b))", 1072, "42000", "'b'"),
    ("CREATE TABLE w (a VARCHAR(99999999))", 1074, "42000", "use TEXT"),
    ("DROP TABLE t", 3730, "HY000", "drop these first"),
    ("SELECT n, COUNT(*) FROM t", 1140, "42000", "'t.n'"),
    ("SELECT SUM(COUNT(*)) FROM t", 1111, "HY000", "group function"),
    ("SET nonsense = 1", 1193, "HY000", "'nonsense'"),
    ("SET time_zone = 'Europe/Atlantis'", 1298, "HY000", "Europe/Berlin"),
]
UNSUPPORTED = [  # what, and what the message advises or shows
    ("CREATE TEMPORARY TABLE w (a INT, FOREIGN KEY (a) REFERENCES t (id))", "leave it out"),
    ("SELECT n FROM t INTO OUTFILE '/tmp/x'", "noria export"), ("SELECT id, SLEEP(1) FROM t", "without FROM"),
    ("WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n FROM c LIMIT 3) SELECT n FROM c", "after WITH"),
    ("SELECT q.m FROM t, LATERAL (SELECT COUNT(*) AS m FROM votes v WHERE v.user = t.id) q", "a subquery"),
    ("CREATE VIEW w AS SELECT n FROM t WHERE n > ALL (SELECT n FROM t LIMIT 1)", "join with a derived table"),
    ("CREATE VIEW w AS SELECT NOW() AS x, n FROM t", "pass the value"),
    ("SELECT id, (SELECT n FROM t u WHERE u.id > t.id LIMIT 2) FROM t", "LIMIT 1"),
    ("SELECT t.id, (SELECT MAX(u.n + v.n) FROM t u) FROM t LEFT JOIN t v ON v.id = t.n", "outer join"),
    ("SELECT APPROX_DISTINCT(n) FROM t", "there are COUNT"),
    ("SELECT STDDEV(n) OVER (ORDER BY id) FROM t", "ROW_NUMBER"),
    ("SELECT SUM(n) OVER (ORDER BY id RANGE 1 PRECEDING) FROM t", "use ROWS"),
    ("SELECT n, COUNT(*) FROM t GROUP BY n, n WITH ROLLUP", "name it once"),
    ("INSERT INTO t (id) VALUES (1) ON DUPLICATE KEY UPDATE n = (SELECT MAX(id) FROM t)", "VALUES(column)"),
    ("UPDATE t SET n = LAST_INSERT_ID(n) + 1", "write column = LAST_INSERT_ID"),
    ("LOAD DATA INFILE 'x' INTO TABLE t", "noria load"),
    ("GRANT EXECUTE ON PROCEDURE p TO x", "no stored programs"), ("GRANT CLONE_ADMIN ON *.* TO x", "reference of SQL"),
    ("CREATE USER x REQUIRE X509", "--tls-ca"), ("CREATE USER x WITH MAX_QUERIES_PER_HOUR 5", "leave it out"),
    ("CREATE USER x IDENTIFIED BY RANDOM PASSWORD", "write a password"),
    ("CREATE USER x IDENTIFIED BY 'a' PASSWORD HISTORY 5", "leave it out"),
    ("ALTER USER x IDENTIFIED BY 'a' RETAIN CURRENT PASSWORD", "one password"),
    ("CREATE USER x@db.example.org", "not looked up"), ("CREATE USER x FAILED_LOGIN_ATTEMPTS 3", "slowed"),
    ("GRANT SELECT ON t TO x IDENTIFIED BY 'y'", "CREATE USER before"),
    ("REVOKE IF EXISTS SELECT ON t FROM x", "leave IF"),
    ("GRANT SELECT ON t TO x WITH MAX_QUERIES_PER_HOUR 5", "ALTER USER"), ("CALL p()", "no stored procedures"),
    ("XA START 'x'", "commits by COMMIT"),
    ("CREATE PROCEDURE p() SELECT 1", "PROCEDURE"),
    ("CREATE DEFINER = 'a'@'b' TRIGGER t BEFORE INSERT ON votes FOR EACH ROW SET @a = 1", "CREATE TRIGGER yet"),
    ("CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1", "CREATE EVENT yet; run"),
]


def refused(connection: Any, text: str) -> tuple[int, str, str]:
    with pytest.raises(pymysql.err.MySQLError) as e:
        rows(connection, text)
    return int(e.value.args[0]), str(e.value.sqlstate), str(e.value.args[1])


def test_wrong_statements(served: Served) -> None:
    differs = []
    with served.connect() as connection:
        for text, code, state, says in WRONG:
            got = refused(connection, text)
            if got[:2] != (code, state) or says not in got[2]:
                differs.append((text, (code, state, says), got))
            assert text == "" or rows(connection, "SHOW WARNINGS") == [("Error", got[0], got[2])]
    assert not differs


def test_what_is_not_there_says_what_where_and_what_instead(served: Served) -> None:
    differs = []
    with served.connect() as connection:
        for text, says in UNSUPPORTED:
            code, state, message = refused(connection, text)
            if (code, state) != (1235, "42000") or says not in message or "does not support" not in message:
                differs.append((text, says, code, state, message))
    assert not differs


def test_garbage_as_statements(served: Served) -> None:
    """Whatever the text: an answer or an error, never a closed connection."""
    chance = random.Random(seed())
    words = ["SELECT", "FROM", "t", "WHERE", "(", ")", ",", "'", '"', "`", "id", "=", "?", "1", "NULL", ";", "--",
             "VALUES", "/*", "*/", "/*!", "\\", "\0", "é😀", "GROUP BY", "@x", "@@", "COUNT(*)", ".", "UNION", "CASE",
             "INSERT INTO t", "DELETE FROM nowhere", "0x", "1e", "LIMIT", "JOIN", "AS",
             "\ud800".encode("utf-8", "surrogatepass")]
    with served.connect() as connection:
        for _ in range(300):
            picked = [chance.choice(words) for _ in range(chance.randrange(1, 12))]
            text = b" ".join(w if isinstance(w, bytes) else w.encode() for w in picked)
            if b"INSERT" in text or text.startswith(b"DELETE"):
                text = b"EXPLAIN " + text
            try:
                with connection.cursor() as cursor:
                    cursor.execute(text)
                    cursor.fetchall()
            except pymysql.err.MySQLError as e:
                assert e.args[0] not in (0, 1105, 2006, 2013), (text, e)
        assert rows(connection, "SELECT 1") == [(1,)]


# ---------------------------------------------------------------- the wire
def raw(served: Served) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", served.mysql_port), 20)
    line.settimeout(20)
    return line


def logged_in(served: Served) -> socket.socket:
    """The socket of a client that is ready for commands."""
    connection = served.connect()
    line = socket.socket(fileno=os.dup(connection._sock.fileno()))
    connection._force_close()
    line.settimeout(20)
    return line


def packet(payload: bytes, number: int = 0) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def answer(line: socket.socket) -> bytes:
    """What comes until the server hangs up or has sent a packet."""
    try:
        head = line.recv(4, socket.MSG_WAITALL)
        return line.recv(int.from_bytes(head[:3], "little"), socket.MSG_WAITALL) if len(head) == 4 else b""
    except ConnectionResetError:
        return b""


def ended(line: socket.socket) -> bool:
    try:
        while line.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def test_bytes_that_are_no_handshake(served: Served) -> None:
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 50, os.urandom(200), b"\xff\xff\xff\x01" + b"x" * 1000,
                 packet(b"\x85\xa6\xff\x01", 1), packet(b"", 1), packet(b"\x01" * 40, 7)):
        with raw(served) as line:
            assert answer(line)[:1] == b"\x0a", "the greeting"
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
            assert ended(line)
    with raw(served) as line:
        line.recv(10)  # and gone, within the greeting


def test_broken_commands(served: Served) -> None:
    for payload, number in ((b"\x03\xff\xfe SELECT", 0), (b"", 0), (b"\xee", 0), (b"\x17" + b"\x63\0\0\0\0\1\0\0\0", 0),
                            (b"\x17\x01", 0), (b"\x19\x01", 0), (b"\x18\x01", 0), (b"\x16SELECT ? FROM", 0),
                            (b"\x03SELECT 1", 9), (b"\x04t", 0), (b"\x02", 0), (b"\x1b\x07\x07", 0), (b"\x11", 0)):
        with logged_in(served) as line:
            line.sendall(packet(payload, number))
            if payload[:1] in (b"\x19", b"\x18"):
                line.sendall(packet(b"\x0e"))  # these have no answer, or end the connection
            got = answer(line)
            assert got == b"" or got[0] in (0, 0xFF) or payload[:1] == b"\x02", (payload, got)
            if got[:1] == b"\xff":
                assert got[3:4] == b"#" and len(got) > 12


PARAMETERS = (  # after a handle: the bitmap of NULLs, the types, the values
    b"", b"\0", b"\0\1", b"\0\1\x08\0", b"\0\1\x08\0\x08\0\1\2", b"\0\1\xfd\0\xfd\0\xff", b"\0\0",
    b"\0\1\x99\0\x99\0" + b"1" * 40, b"\0\1\x0c\0\x0c\0\xff" + b"1" * 40)


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_broken_parameters_of_prepared_statements(served: Served, parameters: bytes) -> None:
    with logged_in(served) as line:
        line.sendall(packet(b"\x16INSERT INTO t (id, n) VALUES (?, ?)"))
        reply = answer(line)
        assert reply[0] == 0
        for _ in range(3):  # two parameters and an EOF
            answer(line)
        line.sendall(packet(b"\x17" + reply[1:5] + b"\0\1\0\0\0" + parameters))
        got = answer(line)
        assert got[:1] == b"\xff" and got[3:4] == b"#", got


def test_a_packet_longer_than_allowed(served: Served) -> None:
    """It is thrown away as it comes, and told of at its end."""
    with logged_in(served) as line:
        for i in range(5):
            line.sendall(b"\xff\xff\xff" + bytes([i]) + b"\x03"[i:] + b"x" * (2**24 - 1 - (i == 0)))
        line.sendall(packet(b"", 5))
        got = answer(line)
        assert got[:1] == b"\xff" and struct.unpack("<H", got[1:3])[0] == 1153


def test_clients_that_vanish(served: Served) -> None:
    before = served.metric("connections")
    insert = packet(b"\x03INSERT INTO t (id, n) VALUES (77, 7)")
    for cut in (1, 3, 4, 5, 20, len(insert) - 1):
        with logged_in(served) as line:
            line.sendall(insert[:cut])
    with served.connect() as connection:
        assert rows(connection, "SELECT id FROM t WHERE id = 77") == [], "half a packet is no statement"
        with logged_in(served) as line:  # within its statement
            line.sendall(insert)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until("the statement of a client that is gone is done or not", lambda: execute(
            connection, "INSERT IGNORE INTO t (id, n) VALUES (77, 7)") in (0, 1), 20)
        assert execute(connection, "DELETE FROM t WHERE id = 77") == 1, "once, whoever it was"
        with logged_in(served) as line:  # within a result that is larger than what buffers take
            execute(connection, "CREATE TABLE wide (id INT PRIMARY KEY, body LONGTEXT)")
            execute(connection, "INSERT INTO wide VALUES (1, %s)", ("x" * 12_000_000,))
            line.sendall(packet(b"\x03SELECT body FROM wide WHERE id = 1"))
            line.recv(1000)
        execute(connection, "DROP TABLE wide")
    until("the server lets go of clients that are gone", lambda: served.metric("connections") <= before, 20)


def test_http_that_is_none(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    cut = b"POST /sql HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    for sent in (b"nonsense\r\n\r\n", cut, os.urandom(300)):
        with socket.create_connection((host, int(port)), 20) as line:
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
            ended(line)
    assert served.get("/sql", {"sql": 5})["error"]
    assert served.get("/sql", {"sql": "SELECT x FROM t"})["error"]["code"] == 1054
    assert served.get("/views/nowhere")["error"]["code"] == 1146


# ---------------------------------------------------------------- files to load
def load(served: Served, path: Path, *options: str) -> tuple[int, str]:
    done = served.run("load", "t", str(path), *options)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_broken_files(served: Served, tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"id": range(100, 5100), "n": [1] * 5000}), whole)
    truncated = tmp_path / "truncated.parquet"
    truncated.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    columns = tmp_path / "columns.parquet"
    pq.write_table(pa.table({"id": [100], "other": [1]}), columns)
    types = tmp_path / "types.parquet"
    pq.write_table(pa.table({"id": [[100]], "n": [1]}), types)
    garbage, text, empty = tmp_path / "garbage.csv", tmp_path / "text.parquet", tmp_path / "empty.csv"
    garbage.write_bytes(os.urandom(5000))
    text.write_text("id,n\n100,1\n")
    empty.write_bytes(b"")
    for path, says in ((truncated, "truncated.parquet"), (columns, "other"), (garbage, "garbage.csv"),
                       (text, "text.parquet"), (empty, "empty.csv"), (tmp_path / "absent.csv", "absent.csv")):
        code, said = load(served, path)
        assert code not in (0,), (path.name, said)
        assert says in said and "Traceback" not in said, (path.name, said)
    code, said = load(served, types)
    assert code == 3 and "1 rows were rejected" in said, said
    code, said = load(served, whole, "--format", "nonsense")
    assert code != 0 and "nonsense" in said and "Traceback" not in said
    done = served.run("load", "nowhere", str(whole))
    assert done.returncode != 0 and "nowhere" in done.stdout + done.stderr


def test_many_files_of_many_kinds(served: Served, tmp_path: Path) -> None:
    """Compressed, in directories, by a pattern, and arrays of JSON, of which bad elements are rejected, too."""
    (tmp_path / "day-1").mkdir()
    (tmp_path / "day-1" / "a.csv.gz").write_bytes(gzip.compress(b"id,n\n1000,1\n1001,2\n"))
    (tmp_path / "day-1" / "b.csv").write_text("id,n\n1002,3\n")
    array = tmp_path / "c.json"
    array.write_text('[\n{"id": 1003,\n "n": 4},\n{"id": "x", "n": 5},\n{"id": 1004, "n": 6}\n]\n')
    done = served.run("load", "t", str(tmp_path / "day-*" / "*.csv*"), str(array), "--reject", str(tmp_path / "bad"))
    with served.connect() as connection:
        got = rows(connection, "SELECT id, n FROM t WHERE id >= 100")
        execute(connection, "DELETE FROM t WHERE id >= 100")
    assert (sorted(got), done.returncode) == ([(1000, 1), (1001, 2), (1002, 3), (1003, 4), (1004, 6)], 3)
    (bad,) = map(json.loads, (tmp_path / "bad").read_text().splitlines())
    assert bad["file"] == str(array) and "'x'" in bad["reason"] and '"n": 5' in bad["text"]
    for name, says in ((tmp_path / "e*.csv", "matches no file"), ("nosuch://bucket/a.csv", "no connector for nosuch://"),
                       (tmp_path / "day-2", "there is no such file")):
        done = served.run("load", "t", str(name))
        said = " ".join(done.stderr.split())
        assert done.returncode == 1 and says in said and str(name) in said, said


def test_rows_that_meet_stored_ones(served: Served, tmp_path: Path) -> None:
    """They are refused, ignored or replace what is stored; a load with a name is done once."""
    path = tmp_path / "rows.csv"
    path.write_text("id,n\n1000,1\n1001,2\n1001,3\n1002,4\n")
    with served.connect() as connection:
        execute(connection, "INSERT INTO t (id, n) VALUES (1000, 10), (1001, 11)")

        def loaded(*options: str) -> tuple[int, str, list[tuple[int, int]]]:
            code, said = load(served, path, *options)
            return code, said, list(rows(connection, "SELECT id, n FROM t WHERE id >= 1000 ORDER BY id"))

        try:
            code, said, got = loaded("--once", "first")
            assert code == 1 and "Duplicate entry '1000'" in said and got == [(1000, 10), (1001, 11)], said
            code, said, got = loaded("--on-duplicate", "ignore", "--once", "first")
            assert code == 0 and "1 rows into t, 3 ignored" in said, said
            assert got == [(1000, 10), (1001, 11), (1002, 4)]
            code, said, got = loaded("--on-duplicate", "replace", "--once", "first")
            assert code == 0 and "was done before" in said and got == [(1000, 10), (1001, 11), (1002, 4)], said
            code, said, got = loaded("--on-duplicate", "replace")
            assert code == 0 and "4 rows into t, 4 replaced" in said, said  # one by an equal row
            assert got == [(1000, 1), (1001, 3), (1002, 4)]
            code, said, _ = loaded("--on-duplicate", "update")
            assert code == 1 and "one of error, ignore, replace" in said, said
            path.write_text("id,n\n2000,1\nx,1\ny,1\n")
            code, said, got = loaded("--max-rejects", "1", "--once", "second")
            assert code == 1 and "bad rows" in said and len(got) == 3, said
        finally:
            execute(connection, "DELETE FROM t WHERE id >= 1000")


def test_a_table_made_of_files(served: Served, tmp_path: Path) -> None:
    path, lists = tmp_path / "a.csv", tmp_path / "lists.json"
    path.write_text("id,price,day\n1,1.5,2026-01-02\n2,,\n")
    lists.write_text('{"id": 1, "list": [1]}\n')

    def asked(name: Path, **more: Any) -> list[dict[str, Any]]:
        return list(HttpTransport(served.url).load({"files": [str(name)], "create": True, **more}))

    for says, name, more in (("leave out --create", path, {"table": "t"}),
                             ("the column 'list' has arrays or objects", lists, {"table": "fresh"}),
                             ("'x', which is no column", path, {"table": "fresh", "primary_key": ["x"]}),
                             ("say --create", path, {"table": "t", "primary_key": ["id"], "create": False})):
        with pytest.raises(SqlError, match=says):
            asked(name, **more)
    steps = asked(path, table="fresh", primary_key=["id"])
    statement = "CREATE TABLE `fresh` (`id` INT NOT NULL, `price` DECIMAL(18,1), `day` DATE, PRIMARY KEY (`id`))"
    assert [s["statement"] for s in steps if "statement" in s] == [statement]
    with served.connect() as connection:
        assert rows(connection, "SELECT * FROM fresh ORDER BY id") == [(1, 1.5, date(2026, 1, 2)), (2, None, None)]
        execute(connection, "DROP TABLE fresh")


def test_bad_rows_go_to_the_reject_file(served: Served, tmp_path: Path) -> None:
    bad = {"x,1,q1": "id", "101,,q2": "'n'", "102,1,toolong": "'s'", "99999999999,1,q3": "'id'"}
    path = tmp_path / "rows.csv"
    path.write_text("id,n,s\n" + "".join(f"{i},1,{i}\n" for i in range(200, 250)) + "\n".join(bad) + "\n")
    code, said = load(served, path, "--reject", str(tmp_path / "rejected"))
    with served.connect() as connection:
        got = rows(connection, "SELECT id FROM t WHERE id >= 100")
        execute(connection, "DELETE FROM t WHERE id >= 100")
    assert (code, len(got)) == (3, 50), said
    rejected = (tmp_path / "rejected").read_text()
    for row, reason in bad.items():
        (line,) = [one for one in rejected.splitlines() if row.split(",")[2] in one]
        assert reason in line, (row, line)


def test_it_stops_and_nothing_is_left(served: Served) -> None:
    log = served.log()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
