"""Tables of a running MariaDB, followed: after its binlog was applied they have its rows, all and no others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from e2e.mariadb import INSTALLED
from e2e.serving import until
from following.sources import Followed, SourceDb, following, load_here
from noria.client.transport import HttpTransport
from noria.core.errors import SqlError
from noria.following.address import CannotFollow
from noria.following.follower import Follower, FollowOptions
from noria.following.target import TargetServer

pytestmark = [pytest.mark.timeout(100), pytest.mark.mariadb,
              pytest.mark.skipif(not INSTALLED, reason="MariaDB is not installed")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceDb]:
    source = SourceDb(tmp_path_factory.mktemp("source"))
    yield source
    source.close()


@pytest.fixture
def source(server: SourceDb) -> SourceDb:
    server.anew()
    return server


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Followed]:
    with Followed(tmp_path) as local:
        yield local


def test_rows_and_changes(source: SourceDb, target: Followed) -> None:
    source.run("CREATE TABLE votes (story INT, user VARCHAR(20), v INT, PRIMARY KEY (story, user))",
               "INSERT INTO votes SELECT seq DIV 10, CONCAT('u', seq % 10), seq FROM seq_1_to_1000")
    with following(source, target) as now:
        now.caught_up()
        assert target.rows(["votes"]) == source.rows()
        assert target.all("SHOW NORIA FOLLOWING")[0][8] == 1000  # of the first load
        source.run("INSERT INTO votes VALUES (1000, 'a', 1), (1000, 'b', NULL)",
                   "UPDATE votes SET v = v + 1 WHERE story < 20", "DELETE FROM votes WHERE story = 3",
                   "UPDATE votes SET story = story + 5000 WHERE story = 4",
                   "UPDATE votes SET user = 'A' WHERE user = 'a'")
        now.caught_up()
        assert target.rows(["votes"]) == source.rows()
    source.run("DELETE FROM votes WHERE story BETWEEN 50 AND 60", "INSERT INTO votes VALUES (55, 'x', 1)")
    with following(source, target) as now:
        now.caught_up()
        assert target.rows(["votes"]) == source.rows()


# ------------------------------------------------------------------ values
TYPES = {
    "a1": ("TINYINT", "-128"), "a2": ("TINYINT UNSIGNED", "255"), "a3": ("SMALLINT UNSIGNED", "65535"),
    "a4": ("MEDIUMINT", "-8388608"), "a5": ("MEDIUMINT UNSIGNED", "16777215"), "a6": ("INT UNSIGNED", "4294967295"),
    "a7": ("BIGINT", "-9223372036854775000"), "a8": ("BIGINT UNSIGNED", "9223372036854775000"), "a9": ("BOOL", "2"),
    "b1": ("FLOAT", "0.1"), "b2": ("DOUBLE", "-2.5e300"), "b3": ("DECIMAL(18,4)", "-12345678901234.5678"),
    "b4": ("DECIMAL(5,5)", "0.00001"), "b5": ("DECIMAL(18)", "999999999999999999"), "b6": ("YEAR", "2155"),
    "c1": ("CHAR(5)", "'ab '"), "c2": ("VARCHAR(300)", "'É 😀'"), "c3": ("TEXT", "'t\\n\\\\'"),
    "c4": ("LONGTEXT", "REPEAT('x', 70000)"), "c5": ("JSON", "'{\"k\": [1, null, \"é\"]}'"),
    "c6": ("ENUM('x','y é','it''s')", "'it''s'"), "c7": ("SET('p','q','r')", "'p,r'"),
    "c8": ("VARCHAR(20) CHARACTER SET latin1", "'é€'"), "c9": ("VARCHAR(20) COLLATE utf8mb4_bin", "'ß'"),
    "d1": ("BINARY(4)", "x'ff000000'"), "d2": ("VARBINARY(9)", "x'8000'"), "d3": ("BLOB", "x'00'"),
    "e1": ("DATE", "'0999-12-31'"), "e2": ("DATETIME(6)", "'2026-02-03 04:05:06.789012'"),
    "e3": ("TIMESTAMP(3) NULL", "'2026-02-03 04:05:06.789'"), "e4": ("TIME(6)", "'-01:02:03.400005'"),
    "e5": ("TIME(1)", "'-00:00:00.9'"), "e6": ("TIME", "'-838:59:58'"), "e7": ("DATETIME", "'9999-12-31 23:59:59'"),
    "e8": ("TIME(3)", "'838:59:58.999'"), "f1": ("INT AS (id + 1) VIRTUAL", ""), "f2": ("INT AS (id + 2) STORED", "")}
GIVEN = {n: v for n, (_, v) in TYPES.items() if v}
EMPTY = {"c1": "''", "c2": "''", "c7": "''", "d1": "x''", "d3": "x''", "b6": "0", "e6": "'00:00:00'", "b1": "-0.5"}


def test_every_type_from_a_select_and_from_the_binlog(source: SourceDb, target: Followed) -> None:
    columns = ", ".join(f"{n} {t}" for n, (t, _) in TYPES.items())
    full = f"INSERT INTO kinds (id, {', '.join(GIVEN)}) VALUES (%s, {', '.join(GIVEN.values())})"
    some = f"INSERT INTO kinds (id, {', '.join(EMPTY)}) VALUES (%s, {', '.join(EMPTY.values())})"
    source.run(f"CREATE TABLE kinds (id INT PRIMARY KEY, {columns})", full % 1, "INSERT INTO kinds (id) VALUES (2)",
               some % 3)
    with following(source, target) as now:
        now.caught_up()
        loaded = target.rows(["kinds"])["kinds"]
        for mine, theirs in zip(loaded, source.rows()["kinds"], strict=True):
            assert dict(zip(["id", *TYPES], mine, strict=True)) == {
                n: np.float32(v) if n == "b1" and v else v for n, v in zip(["id", *TYPES], theirs, strict=True)}
        source.run(full % 11, "INSERT INTO kinds (id) VALUES (12)", some % 13)
        now.caught_up()
        values = {row[0]: row[1:-2] for row in target.rows(["kinds"])["kinds"]}
        assert all(values[i] == values[i + 10] for i in (1, 2, 3)) and len(values) == 6
        source.run("DELETE FROM kinds WHERE id < 10", "UPDATE kinds SET id = id - 10")
        now.caught_up()
        assert target.rows(["kinds"])["kinds"] == loaded  # one by a SELECT, the other by the binlog


KEYS = {"BIGINT UNSIGNED": ("1", "9223372036854775000"), "VARCHAR(30)": ("'É'", "'a '"), "DECIMAL(9,3)": ("1.5", "-2"),
        "DATETIME(3)": ("'2026-01-01 00:00:00.123'", "'2026-01-01'"), "BINARY(3)": ("x'000001'", "x'ff'"),
        "DATE": ("'2026-01-01'", "'1000-01-01'"), "ENUM('b','a')": ("'a'", "'b'"),
        "TIME(2)": ("'-01:00:00.25'", "'5:0'"),
        "TIMESTAMP": ("'2026-01-01 01:02:03'", "'2030-01-01'"), "VARCHAR(9) CHARACTER SET latin1": ("'é'", "'f'"),
        "YEAR": ("2026", "0"), "VARBINARY(9)": ("x'00'", "x'0000'")}


def test_rows_are_found_by_keys_of_any_type(source: SourceDb, target: Followed) -> None:
    tables = [f"k{i}" for i in range(len(KEYS))]
    for table, (kind, values) in zip(tables, KEYS.items(), strict=True):
        source.run(f"CREATE TABLE {table} (k {kind} PRIMARY KEY, v INT)",
                   *(f"INSERT INTO {table} VALUES ({v}, {i})" for i, v in enumerate(values)))
    with following(source, target) as now:
        now.caught_up()
        assert target.rows(tables) == source.rows()
        source.run(*(f"UPDATE {t} SET v = v + 10" for t in tables))
        now.caught_up()
        assert target.rows(tables) == source.rows()
        source.run(*(f"DELETE FROM {t} WHERE v = 10" for t in tables))
        now.caught_up()
        assert target.rows(tables) == source.rows()
        assert [len(rows) for rows in source.rows().values()] == [1] * len(KEYS)


def test_keys_that_the_source_keeps_apart_stay_apart(source: SourceDb, target: Followed) -> None:
    source.run("CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY)",
               "INSERT INTO t VALUES ('a'), ('A'), ('á')",
               "CREATE TABLE u (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY)",
               "INSERT INTO u VALUES ('ss'), ('ß')")
    with following(source, target) as now:
        now.caught_up()
        source.run("UPDATE u SET k = 'SS' WHERE k = 'ss'", "DELETE FROM t WHERE k = 'A'")
        now.caught_up()
        assert target.rows(["t", "u"]) == source.rows()


# ------------------------------------------------------------------ transactions and tables
def test_a_transaction_over_tables_and_a_large_one(source: SourceDb, target: Followed, monkeypatch: pytest.MonkeyPatch
                                                   ) -> None:
    monkeypatch.setattr("noria.following.binlog.FOLLOW_PIECE_ROWS", 100)
    source.run("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT PRIMARY KEY, v TEXT)",
               "CREATE DATABASE IF NOT EXISTS other", "CREATE OR REPLACE TABLE other.a (id INT PRIMARY KEY)")
    with following(source, target) as now:
        now.caught_up()
        with source.connect() as connection, connection.cursor() as cursor:
            connection.begin()
            cursor.execute("INSERT INTO a SELECT seq, seq FROM seq_1_to_2000")
            cursor.execute("INSERT INTO b SELECT seq, 'x' FROM seq_1_to_1000")
            cursor.execute("UPDATE a SET id = id + 10000 WHERE id % 2")
            cursor.execute("DELETE FROM b WHERE id % 3")
            cursor.execute("INSERT INTO other.a VALUES (1), (2)")
            cursor.execute("SAVEPOINT s")
            cursor.execute("INSERT INTO b VALUES (5000, 'gone')")
            cursor.execute("ROLLBACK TO s")
            connection.commit()
            connection.begin()
            cursor.execute("DELETE FROM a")
            connection.rollback()
        now.caught_up()
        assert target.rows(["a", "b"]) == source.rows()
        assert now.follower.connected and not now.said[2:]


def test_tables_that_come_are_emptied_and_altered_without_harm(source: SourceDb, target: Followed) -> None:
    source.run("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1)")
    with following(source, target) as now:
        now.caught_up()
        source.run("CREATE TABLE b (id INT PRIMARY KEY) SELECT seq AS id FROM seq_1_to_5", "TRUNCATE a",
                   "INSERT INTO a VALUES (2, 2)", "ALTER TABLE a ADD INDEX (v)", "CREATE INDEX i ON a (v, id)",
                   "INSERT INTO a VALUES (3, 3)", "OPTIMIZE TABLE a", "CREATE VIEW w AS SELECT * FROM a",
                   "DROP VIEW w", "CREATE TEMPORARY TABLE x (id INT)", "INSERT INTO x VALUES (1)",
                   "CREATE TABLE c LIKE a",
                   "INSERT INTO c VALUES (9, 9)", "FLUSH LOGS", "INSERT INTO c VALUES (10, 9)")
        now.caught_up()
        assert target.rows(["a", "b", "c"]) == source.rows()
        assert "b is followed, too" in now.said
        target.run("CREATE TABLE d (id INT PRIMARY KEY)")
        source.run("CREATE TABLE d (id INT PRIMARY KEY)")
        now.thread.join(30)
        assert "Table 'd' already exists" in str(now.failed[0])


HARMFUL = {"ALTER TABLE a ADD COLUMN w INT": "columns or keys", "DROP TABLE a": "is not followed",
           "CREATE TABLE z (id INT)": "no primary key",
           "CREATE OR REPLACE TABLE a (id INT PRIMARY KEY)": "not followed"}


@pytest.mark.parametrize("statement", HARMFUL)
def test_a_change_of_a_table_that_cannot_be_followed_stops_before_it(source: SourceDb, target: Followed, statement: str
                                                                     ) -> None:
    source.run("CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL)")
    with following(source, target) as now:
        now.caught_up()
        source.run("INSERT INTO a VALUES (1, 1)", statement)
        now.thread.join(30)
    for _ in range(2):  # also when it is started again
        (told,) = (str(e).replace("`", "") for e in now.failed)
        assert statement in told and HARMFUL[statement] in told and "--release" in told
        assert target.rows(["a"]) == {"a": [(1, 1)]}
        (shown,) = target.all("SHOW NORIA FOLLOWING")
        assert shown[2] == "stopped" and statement in shown[-1].replace("`", "")
        with following(source, target) as now:
            now.thread.join(30)


# ------------------------------------------------------------------ what is refused
def refused(source: SourceDb, target: Followed, *tables: str) -> str:
    follower = Follower(FollowOptions(source.address, target.url, tables), load_here, print)
    with pytest.raises(CannotFollow) as told:
        follower.run()
    return str(told.value)


TABLES = {
    "CREATE TABLE a (id INT)": "has no primary key", "CREATE TABLE a (id INT PRIMARY KEY, b BIT(3))": "a.b is bit(3)",
    "CREATE TABLE a (id INT UNIQUE)": "has no primary key", "CREATE TABLE a (t TEXT, PRIMARY KEY (t(9)))": "whole",
    "CREATE TABLE a (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)": "by CASCADE"}


def test_tables_that_cannot_be_followed(source: SourceDb, target: Followed) -> None:
    assert "no table" in refused(source, target)
    source.run("CREATE TABLE p (id INT PRIMARY KEY)")
    for statement, why in TABLES.items():
        source.run(statement)
        told = refused(source, target)
        assert why in told and "--tables" in told
        assert target.source().follows.all() == []
        source.run("DROP TABLE a")
    assert "there is no table b" in refused(source, target, "b")
    target.run("CREATE TABLE p (id INT PRIMARY KEY)")
    assert "Table 'p' already exists" in refused(source, target)


@pytest.mark.parametrize("setting, value, good", [
    ("binlog_row_image", "MINIMAL", "FULL"), ("binlog_row_metadata", "NO_LOG", "FULL"),
    ("binlog_format", "MIXED", "ROW"), ("log_bin_compress", "ON", "OFF")])
def test_settings_under_which_changes_would_be_lost(source: SourceDb, target: Followed, setting: str, value: str,
                                                    good: str) -> None:
    source.run("CREATE TABLE a (id INT PRIMARY KEY)")
    source.run(f"SET GLOBAL {setting} = {value}")
    try:
        told = refused(source, target)
    finally:
        source.run(f"SET GLOBAL {setting} = {good}")
    assert f"has {setting} = {value}" in told and f"SET GLOBAL {setting} = {good}" in told


def test_sessions_that_log_otherwise_stop_it(source: SourceDb, target: Followed) -> None:
    source.run("CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO a VALUES (1, 1, 1)")
    for settings, why in ((("SET SESSION binlog_format = STATEMENT",), "a statement instead of rows"),
                          (("SET SESSION binlog_row_image = MINIMAL",), "a part of a row"),
                          (("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10"),
                           "of the unknown kind")):
        with following(source, target) as now:
            now.caught_up()
            source.run(*settings, "UPDATE a SET v = v + 1")
            now.thread.join(30)
            assert why in str(now.failed[0])
        source.run("SET GLOBAL log_bin_compress = OFF")
        released(source, target, "a")


def released(source: SourceDb, target: Followed, *tables: str) -> None:
    TargetServer(target.url, source.address.name).release()
    assert target.all("SHOW NORIA FOLLOWING") == []
    target.run(*(f"DROP TABLE {t}" for t in tables))


def test_a_binlog_that_is_gone_or_another_one(source: SourceDb, target: Followed) -> None:
    source.run("CREATE TABLE a (id INT PRIMARY KEY)")
    with following(source, target) as now:
        now.caught_up()
    source.run("FLUSH LOGS", "INSERT INTO a VALUES (1)", "FLUSH LOGS")
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        cursor.execute(f"PURGE BINARY LOGS TO '{cursor.fetchone()[0]}'")
    assert "does not have its binlog from the remembered position on" in refused(source, target)
    released(source, target, "a")
    for i in range(2):  # the second time all positions of before are there again
        source.run("RESET MASTER")
        began = int(time.time())  # or the second before: binlogs are told apart by the second in which they were made
        if not i:
            with following(source, target) as now:
                now.caught_up()
                source.run("INSERT INTO a VALUES (2)")
                now.caught_up()
        else:
            source.run("INSERT INTO a VALUES (3)", "INSERT INTO a VALUES (4)")
        until("a second is over", lambda at=began: int(time.time()) > at)
    assert "is not the one that was followed" in refused(source, target)
    released(source, target, "a")
    with following(source, target) as now:
        now.caught_up()
    source.run("SET GLOBAL server_id = 8")
    try:
        assert "another server than the one that was followed" in refused(source, target)
    finally:
        source.run("SET GLOBAL server_id = 7")


def test_who_may_not(source: SourceDb, target: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    source.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE OR REPLACE USER poor@'%' IDENTIFIED BY 'x'",
               "GRANT SELECT ON *.* TO poor@'%'")
    wrong = replace(source.address, password="wrong")
    monkeypatch.setattr(SourceDb, "address", wrong)
    assert "the user or the password is wrong" in refused(source, target)
    monkeypatch.setattr(SourceDb, "address", replace(wrong, user="poor", password="x"))
    assert "lacks a privilege: GRANT" in refused(source, target)
    monkeypatch.setattr(SourceDb, "address", replace(wrong, database="nowhere", password="secret"))
    assert "Unknown database" in refused(source, target)


# ------------------------------------------------------------------ meanwhile
def test_nobody_else_writes_what_is_followed(source: SourceDb, target: Followed) -> None:
    source.run("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1)",
               "CREATE TABLE b (id INT PRIMARY KEY)")
    with following(source, target, "a") as now:
        now.caught_up()
        target.run("CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO b VALUES (1)")
        for text in ("INSERT INTO a VALUES (2, 2)", "UPDATE a SET v = 2", "DELETE FROM a", "TRUNCATE a", "DROP TABLE a",
                     "ALTER TABLE a ADD COLUMN w INT", "RENAME TABLE a TO z", "REPLACE INTO a VALUES (1, 2)"):
            with pytest.raises(SqlError, match="read-only: it follows mysql://127") as told:
                target.run(text)
            assert told.value.code == 1290
        with pytest.raises(SqlError, match="read-only"):
            HttpTransport(target.url).insert("a", pa.table({"id": [3], "v": [4]}), "error")
        target.run("CREATE VIEW sums AS SELECT SUM(v) AS s FROM a")
        source.run("INSERT INTO a VALUES (2, 5)")
        now.caught_up()
        assert target.all("SELECT * FROM sums") == [(6,)]
        (told,) = target.all("SHOW NORIA FOLLOWING")
        assert told[:2] == (source.address.source, "a")
        other = TargetServer(target.url, source.address.name)
        with pytest.raises(ConnectionError, match="this run of the follower is over"):
            other.apply(2**50, [])
    target.embedded.run(target.source().follows.recover())  # as a server that starts again
    with pytest.raises(SqlError, match="read-only"):
        target.run("DELETE FROM a")
    assert "are followed already" in refused(source, target, "b")
    TargetServer(target.url, source.address.name).release()
    target.run("DELETE FROM a")
    with pytest.raises(CannotFollow, match="nothing here follows"):
        TargetServer(target.url, source.address.name).release()
