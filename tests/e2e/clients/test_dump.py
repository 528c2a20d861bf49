"""Dumps: what mariadb-dump takes of a server and the mariadb client puts into a fresh one; to and from MariaDB, too."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.mariadb import INSTALLED, MariaDb
from e2e.serving import Served, execute, rows
from seeds import kinds

pytestmark = [
    pytest.mark.spark, pytest.mark.mariadb, pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("mariadb-dump") is None or shutil.which("mariadb") is None,
                       reason="Debian's mariadb client is not installed")]

TABLES = (
    """CREATE TABLE every (id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT, i1 TINYINT, u8 BIGINT UNSIGNED, f FLOAT,
    d DOUBLE, m DECIMAL(18,4), v VARCHAR(20), c CHAR(5), x TEXT, bin VARCHAR(20) COLLATE utf8mb4_bin, b BLOB,
    vb VARBINARY(9), fb BINARY(4), e ENUM('aé','it''s','c'), s SET('x','y z'), da DATE, dt DATETIME(6),
    ts TIMESTAMP NULL, t TIME(3), y YEAR, bo BOOL NOT NULL DEFAULT 1,
    changed DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    UNIQUE KEY u (v, i1), KEY k (da, m))""",
    r"""INSERT INTO every VALUES (1, -128, 9223372036854775807, 1.5e-10, 1.5e-10, -99999999999999.9999, 'é日本 😀',
    'abcde', 'it''s; \\ \n\0 \Z "x" /* no */ -- x', 'Bin', 0x00FF27225C0A1A0D80, 0xFF00, 0x01020304, 'aé', 'x,y z',
    '1000-01-01', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', '-838:59:59.000', 1901, 0,
    '2024-01-02 03:04:05'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, 1, '2024-02-29 00:00:00'),
    (3, 1, 1, 3.14159, 1.7976931348623157e308, 0.0001, '', '', '', '', '', '', 0x00000000, 'it''s', '', '2024-02-29',
    '2024-02-29 12:00:00.500000', '1970-01-01 00:00:01', '00:00:00.001', 2155, 1, '2024-02-29 00:00:00'),
    (90, 2, 2, 1e20, 5e-324, 1, 'last', '', '', '', '', '', 0x41000000, 'c', 'x', '2024-02-29',
    '2024-02-29 12:00:00', '1970-01-01 00:00:01', '12:00:00', 2000, 1, '2024-02-29 00:00:00')""",
    "DELETE FROM every WHERE id = 90",
    "CREATE TABLE js (id INT PRIMARY KEY, j JSON)",
    """INSERT INTO js VALUES (1, '{"a": true, "b": [1.5, "é", null]}'), (2, NULL)""",
    "CREATE TABLE pairs (a INT, b VARCHAR(10), n INT NOT NULL, PRIMARY KEY (a, b), KEY n (n))",
    "INSERT INTO pairs VALUES (1, 'x', 5), (1, 'y', 6), (2, 'x', 7)",
    "CREATE TABLE keyless (a INT, b DOUBLE)",
    "INSERT INTO keyless VALUES (1, 0.1), (1, 0.1), (NULL, 1894074821961724.8)",
    "CREATE TABLE nothing (id INT PRIMARY KEY AUTO_INCREMENT, a INT)",
    "CREATE TABLE bytes (id INT PRIMARY KEY, b BLOB)",
    "INSERT INTO bytes VALUES " + ", ".join(f"({i}, 0x{bytes((i + j) % 256 for j in range(60)).hex()})"
                                            for i in range(2_000)),
    "CREATE TABLE many (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(40))",
    "INSERT INTO many (v) VALUES " + ", ".join(f"('value {i}')" for i in range(30_000)),
)
VIEWS = (  # what a_over and b_over read comes after them, as a dump has it: by name
    "CREATE VIEW z_counts AS SELECT a, COUNT(*) AS n, SUM(n) AS total, AVG(n) AS mean, MAX(b) AS last FROM pairs "
    "GROUP BY a",
    "CREATE VIEW b_over AS SELECT a, total FROM z_counts WHERE n > 1",
    "CREATE VIEW a_over AS SELECT SUM(total) AS total FROM b_over",
    "CREATE VIEW joined AS SELECT e.id, e.v, p.b, e.d FROM every e JOIN pairs p ON p.a = e.id",
    "CREATE VIEW constants AS SELECT 1 AS one, NULL AS n, 'a' AS s",
    "CREATE VIEW odd AS SELECT id, ';*/' AS x FROM every WHERE v <> '/*' ORDER BY id DESC LIMIT 2",
)
OURS = (
    "CREATE VIEW keyed AS SELECT id, v FROM every WHERE id = ?",
    "CREATE MATERIALIZED VIEW made AS SELECT COUNT(*) AS n FROM every",
    "CREATE INTERNAL VIEW within AS SELECT a, COUNT(*) AS n FROM pairs GROUP BY a",
)
NAMES = ("every", "js", "pairs", "keyless", "nothing", "bytes", "many", "z_counts", "b_over", "a_over", "joined",
         "constants", "odd")
OPTIONS = ([], ["--single-transaction", "--routines", "--triggers", "--events"], ["--hex-blob", "--databases"])


@pytest.fixture(scope="module", params=kinds("1", "3"))
def served(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("dumped") / "data", "--workers", request.param)
    try:
        with server.connect() as connection:
            for text in (*TABLES, *VIEWS, *OURS):
                execute(connection, text)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, served: Served) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("restored") / "data", *served.options[:2])
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def fresh(other: Served) -> Served:
    """With nothing in it."""
    with other.connect() as connection:
        for kind in ("VIEW", "TABLE"):
            found = [n for n, what in rows(connection, "SHOW FULL TABLES") if kind in what]
            if found:
                execute(connection, f"DROP {kind} {', '.join(found)}")
    return other


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[MariaDb]:
    if not INSTALLED:
        pytest.skip("Debian's MariaDB server is not installed")
    server = MariaDb(tmp_path)
    try:
        yield server
    finally:
        server.close()


def at(server: Served | MariaDb) -> list[str]:
    place = ["-h127.0.0.1", f"-P{server.mysql_port}", "--skip-ssl"] if isinstance(server, Served) else [
        f"-S{server.socket}"]
    return ["--no-defaults", *place, "-uroot", "--default-character-set=utf8mb4"]


def dump(server: Served | MariaDb, database: str, *options: str) -> bytes:
    done = subprocess.run(["mariadb-dump", *at(server), *options, database], capture_output=True, timeout=120,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert b"Dump completed" in done.stdout
    return done.stdout


def restore(server: Served | MariaDb, database: str, text: bytes) -> None:
    done = subprocess.run(["mariadb", *at(server), database], input=text, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def content(connection: Any, names: tuple[str, ...]) -> dict[str, list[tuple[Any, ...]]]:
    return {n: sorted(rows(connection, f"SELECT * FROM {n}"), key=repr) for n in names}


def definitions(connection: Any) -> list[Any]:
    return [rows(connection, f"SHOW CREATE TABLE `{name}`") for name, in rows(connection, "SHOW TABLES")]


@pytest.mark.parametrize("options", OPTIONS, ids=["default", "transaction", "hex"])
def test_a_dump_is_the_program_and_its_rows(served: Served, fresh: Served, options: list[str]) -> None:
    restore(fresh, "noria", dump(served, "noria", *options))
    with served.connect() as before, fresh.connect() as after:
        assert rows(after, "SHOW FULL TABLES") == rows(before, "SHOW FULL TABLES")
        assert definitions(after) == definitions(before)
        assert content(after, (*NAMES, "made", "within")) == content(before, (*NAMES, "made", "within"))
        for number in (1, 2, 3, 4):
            text = f"SELECT * FROM keyed WHERE id = {number}"
            assert rows(after, text) == rows(before, text)
        execute(after, "INSERT INTO every (v, i1) VALUES ('next', 5)")
        assert rows(after, "SELECT id FROM every WHERE v = 'next'") == [(91,)], "the counter goes on where it was"
        program = fresh.run("export-program").stdout
        assert "CREATE VIEW a_over" in program and "\n-- CREATE VIEW constants AS SELECT 1 AS one" in program
        execute(after, "INSERT INTO pairs VALUES (2, 'z', 100)")
        assert rows(after, "SELECT * FROM a_over") == [(118,)], "views go on"


def test_a_dump_of_mariadb_is_restored(served: Served, fresh: Served, oracle: MariaDb) -> None:
    with oracle.connect("there") as there, there.cursor() as cursor:
        for text in ("ALTER DATABASE there CHARACTER SET utf8mb4", "SET NAMES utf8mb4", *TABLES, *VIEWS):
            cursor.execute(text)
        for options in OPTIONS[:2]:
            text = dump(oracle, "there", *options)
        restore(fresh, "noria", text)
        with fresh.connect() as after:
            assert content(after, NAMES) == content(there, NAMES)
            execute(after, "INSERT INTO every (v, i1) VALUES ('next', 5)")
            assert rows(after, "SELECT id FROM every WHERE v = 'next'") == [(91,)]


def test_a_dump_is_restored_in_mariadb(served: Served, oracle: MariaDb) -> None:
    """Without views that only Noria has; MariaDB 10.11 does not know MySQL 8's collation."""
    ours = [f"--ignore-table=noria.{name}" for name in ("keyed", "made", "within")]
    text = dump(served, "noria", *ours).replace(b"utf8mb4_0900_ai_ci", b"utf8mb4_unicode_nopad_ci")
    with oracle.connect("there") as there, served.connect() as before:
        restore(oracle, "there", text)
        assert content(there, NAMES) == content(before, NAMES)
        execute(there, "INSERT INTO every (v, i1) VALUES ('next', 5)")
        assert rows(there, "SELECT id FROM every WHERE v = 'next'") == [(91,)]


def test_a_default_dump_is_one_cut(served: Served) -> None:
    """Who writes both tables one after the other waits while they are locked: neither is ahead by two."""
    stop, wrote = threading.Event(), [0]
    with served.connect() as connection:
        for name in ("cut_a", "cut_b"):
            execute(connection, f"CREATE TABLE {name} (id INT PRIMARY KEY)")

        def write() -> None:
            with served.connect() as mine:
                while not stop.is_set():
                    for name in ("cut_a", "cut_b"):
                        execute(mine, f"INSERT INTO {name} VALUES ({wrote[0]})")  # waits for a dump, if need be
                    wrote[0] += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(3):
                text = dump(served, "noria", "--skip-extended-insert")
                a, b = (text.count(f"INSERT INTO `{name}` VALUES".encode()) for name in ("cut_a", "cut_b"))
                assert 0 <= a - b <= 1, (a, b)
        finally:
            stop.set()
            thread.join(60)
        assert wrote[0] > 3
        for name in ("cut_a", "cut_b"):
            execute(connection, f"DROP TABLE {name}")
