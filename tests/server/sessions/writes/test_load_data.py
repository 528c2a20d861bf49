"""LOAD DATA LOCAL INFILE beside MariaDB: formats, columns, NULLs, values that do not fit, keys that are taken, within
transactions, through several front ends; what is refused; clients that break off."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from noria.server.mysql.long_input import FILE_BYTES, named_in
from noria.server.sessions.given.local_load import FILE_ROWS
from noria.sql.session_commands import FileFormat
from noria.sql.statements.writing.delimited import rows_of
from seeds import seed

TABLE = ("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(6), n INT NOT NULL DEFAULT 7, d DATE, f DECIMAL(6,2),"
         " UNIQUE KEY (s))")
CSV = """FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '"' LINES TERMINATED BY '\\n'"""
LOADS = (  # the file, and what follows INTO TABLE t
    ("1\tone\t5\t2024-01-02\t1.25\n2\ttwo\t6\t\\N\t2\n3\t\\N\t8\t2024-02-03\t\\N\n", ""),
    ("4\ta\\tb\t1\t2024-01-01\t0\n5\tc\\\\d\t1\t2024-01-01\t0\n6\te\\\nf\t1\t2024-01-01\t0", ""),
    ('id,s,n,d,f\n7,"x,y",1,2024-01-01,1\n8,"say ""z""",2,NULL,2\n9,"NULL",3,\\N,3\n', f"{CSV} IGNORE 1 LINES"),
    ("10,ten\n11,eleven\n12\n13,a,b,c,d,e,f\n", f"{CSV} (id, s)"),
    ("14,skip,x14\n15,skip,x15\n", f"{CSV} (id, @dummy, s)"),
    ("16\tlonger than six\tmany\t2024-02-31\t99999\n", ""),
    ("1\tagain\t1\t2024-01-01\t0\n20\tnew\t1\t2024-01-01\t0\n", ""),
    ("21\tv\t\t\t\n", ""), ("22\tw\n", ""), ("", ""),
    ("23|r;24|q;", "FIELDS TERMINATED BY '|' LINES TERMINATED BY ';' (id, s)"),
    ("xx25,o\nno\nxx26,p\n", "FIELDS TERMINATED BY ',' LINES STARTING BY 'xx' (id, s)"),
    ("27\\,c\n", "FIELDS TERMINATED BY ',' ESCAPED BY '' (id, s)"),
    ("28||p\n29||q\n", "FIELDS TERMINATED BY '||' (id, s)"),
    ("30,g\r\n31,h\r\n", "FIELDS TERMINATED BY ',' LINES TERMINATED BY '\\r\\n' (id, s)"),
)


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as running:
        yield running


@pytest.fixture(params=[(1, 1), (3, 2)], ids=["one", "several"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    workers, front_ends = request.param
    with closing(LocalServer(tmp_path / "data", workers=workers, front_ends=front_ends)) as server:
        yield server


def connected(server: LocalServer) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.mysql.address[1], user="root", autocommit=True,
                           local_infile=True, ssl_disabled=True)


def outcome(connection: Any, text: str) -> Any:
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else affected
        except pymysql.err.MySQLError as e:
            return f"error {e.args[0]}"


@needs_mariadb
def test_beside_mariadb(local: LocalServer, maria: MariaDb, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    theirs = pymysql.connect(unix_socket=maria.socket, user="root", autocommit=True, local_infile=True)
    name = f"load{len(request.node.name)}"
    with theirs, connected(local) as mine:
        outcome(theirs, "SET GLOBAL local_infile = 1")
        for text in (f"CREATE DATABASE {name}", f"USE {name}", TABLE):
            assert outcome(mine, text) == outcome(theirs, text)
        for words in ("", "REPLACE ", "IGNORE "):
            for number, (content, rest) in enumerate(LOADS):
                file = tmp_path / f"{number}"
                file.write_text(content, newline="")
                load = f"LOAD DATA LOCAL INFILE '{file}' {words}INTO TABLE t {rest}"
                assert (load, outcome(mine, load)) == (load, outcome(theirs, load))
                rows = "SELECT * FROM t ORDER BY id"
                assert (load, outcome(mine, rows)) == (load, outcome(theirs, rows))


def test_within_a_transaction_and_info(local: LocalServer, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("1\ta\n2\tb\n2\tc\nx\td\n")
    with connected(local) as c:
        for text in (TABLE, "BEGIN", f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE t (id, s)"):
            outcome(c, text)
        assert c._result.message.endswith(b"Records: 4  Deleted: 0  Skipped: 1  Warnings: 1")
        assert outcome(c, "SELECT id, s, n FROM t ORDER BY id") == [(0, "d", 7), (1, "a", 7), (2, "b", 7)]
        outcome(c, "ROLLBACK")
        assert outcome(c, "SELECT COUNT(*) FROM t") == [(0,)]
        many = tmp_path / "many"
        many.write_text("".join(f"{n}\tr{n}\n" for n in range(30_000)))  # several packets
        assert outcome(c, f"LOAD DATA LOCAL INFILE '{many}' INTO TABLE t (id, s)") == 30_000
        assert outcome(c, "SELECT COUNT(*), MAX(id) FROM t") == [(30_000, 29_999)]


def test_what_is_refused(local: LocalServer, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("1\ta\n")
    load = f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE"
    with connected(local) as c, local.connect() as without:
        outcome(c, TABLE)
        assert outcome(without, f"{load} t (id, s)") == "error 3948"  # the client has not said that it sends files
        assert outcome(c, f"{load} t (id, nope)") == "error 1054"
        assert outcome(c, f"{load} none") == "error 1146"
        assert outcome(c, f"{load} t (id, @s) SET s = UPPER(@s)") == "error 1235"
        assert outcome(c, f"LOAD DATA INFILE '{file}' INTO TABLE t") == "error 1235"
        assert outcome(c, f"{load} t CHARACTER SET latin1") == "error 1115"
        assert outcome(c, f"{load} t FIELDS TERMINATED BY ''") == "error 1235"
        assert outcome(c, f"{load} t; SELECT 1").startswith("error")
        file.write_bytes(b"1\t\xff\n")
        assert outcome(c, f"{load} t (id, s)") == "error 1300"
        file.write_bytes(b"\n" * (FILE_ROWS + 1))
        assert outcome(c, f"{load} t (id, s)") == "error 1235"
        assert outcome(c, f"LOAD DATA LOCAL INFILE '{file}' REPLACE IGNORE INTO TABLE t") == "error 1064"
        file.write_bytes(b"1\ta\n" * (FILE_BYTES // 4 + 1))
        assert outcome(c, f"{load} t (id, s)") == "error 1235"
        assert outcome(c, "SELECT COUNT(*) FROM t") == [(0,)]
        with pytest.raises(pymysql.err.OperationalError, match="Can't open file"):  # the client sends an empty file
            c.cursor().execute("LOAD DATA LOCAL INFILE '/nowhere/at/all' INTO TABLE t")
        assert outcome(c, "SELECT 1") == [(1,)]


def test_the_command_line_client(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text('1,"one"\n2,"two"\n')
    with closing(LocalServer(tmp_path / "data")) as server:
        done = subprocess.run(
            ["mariadb", "--local-infile=1", "-h", "127.0.0.1", "-P", str(server.mysql.address[1]), "-u", "root", "-vv",
             "noria"], input=f"{TABLE};\nLOAD DATA LOCAL INFILE '{file}' INTO TABLE t {CSV} (id, s);\n"
                             "SELECT id, s FROM t ORDER BY id;", capture_output=True, text=True, timeout=60, check=True)
        assert "Records: 2" in done.stdout and "2\ttwo" in done.stdout


# ------------------------------------------------------------------ the reader of files
def test_rows_are_read_back() -> None:
    """Random rows, written with quotes and escapes, are read back."""
    r = random.Random(seed())
    for _ in range(300):
        form = FileFormat(r.choice([",", "\t", "||"]), r.choice(["", '"', "'"]), r.choice(["\\", "^"]), "",
                          r.choice(["\n", "\r\n", ";"]))
        values = [None, "", "a", "NULL", form.fields, form.lines, form.escaped, "x" + form.enclosed, "é\0\t"]
        rows = [tuple(r.choice(values) for _ in range(r.randrange(1, 4))) for _ in range(r.randrange(5))]
        text = "".join(form.fields.join(_written(v, form) for v in row) + form.lines for row in rows)
        assert list(rows_of(text, form, 0)) == rows, (text, form)
        assert list(rows_of(text, form, 1)) == rows[1:]


def _written(value: str | None, form: FileFormat) -> str:
    if value is None:
        return form.escaped + "N"
    special = {form.escaped, form.enclosed, *form.fields, *form.lines}
    out = "".join(form.escaped + c if c in special else c for c in value)
    out = out.replace("\0", form.escaped + "0")
    return f"{form.enclosed}{out}{form.enclosed}"


def test_the_name_of_the_file() -> None:
    assert named_in(b"load data low_priority local infile 'it''s' into table t") == b"it's"
    assert named_in(b"LOAD DATA INFILE 'x' INTO TABLE t") is None and named_in(b"LOCK TABLES t READ") is None
