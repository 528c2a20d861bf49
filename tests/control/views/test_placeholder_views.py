"""Views without FROM, and those that wait for one: what a dump makes of each view before it makes it as it is."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.client import Database
from noria.core.errors import SqlError


def rows(db: Database, text: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r) for r in db.sql(text).rows)


def test_a_view_without_from_has_one_row(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE VIEW k AS SELECT 1 AS one, NULL AS n, 'a' AS s, 1.5 + 1 AS d")
        db.sql("CREATE VIEW named (a, b) AS SELECT 1, 2")
        assert rows(db, "SELECT * FROM k") == [(1, None, "a", Decimal("2.5"))]
        assert rows(db, "SELECT s, one AS uno FROM k") == [("a", 1)]
        assert rows(db, "SELECT b FROM named") == [(2,)]
        assert [r[0] for r in rows(db, "SHOW FIELDS FROM k")] == ["d", "n", "one", "s"]
        assert rows(db, "SELECT table_name, table_type FROM information_schema.tables") == [
            ("k", "VIEW"), ("named", "VIEW")]
        assert rows(db, "SELECT column_name FROM information_schema.columns WHERE table_name = 'named'") == [
            ("a",), ("b",)]
        for text in ("SELECT COUNT(*) FROM k", "SELECT one + 1 FROM k", "SELECT * FROM k WHERE one = 1",
                     "SELECT * FROM k a JOIN k b ON a.one = b.one",
                     "SELECT one FROM (SELECT one FROM k WHERE one > 5) d",
                     "SELECT one FROM (SELECT s AS one FROM k) d", "SELECT one FROM (SELECT one FROM k LIMIT 0) d"):
            with pytest.raises(SqlError, match="has no FROM") as e:
                db.sql(text)
            assert e.value.code == 1356
        for text, code in (("SELECT two FROM k", 1054), ("CREATE VIEW K AS SELECT 2 AS b", 1050),
                           ("CREATE TABLE k (id INT PRIMARY KEY)", 1050), ("CREATE VIEW x AS SELECT NOW() AS n", 1235),
                           ("CREATE VIEW x AS SELECT DATABASE() AS n", 1235), ("CREATE VIEW x AS SELECT 1 AS a, 2 AS A",
                            1060), ("CREATE FEED x AS SELECT * FROM k", 1356),
                           ("CREATE VIEW x AS SELECT ? AS a", 1235)):
            with pytest.raises(SqlError) as e:
                db.sql(text)
            assert e.value.code == code, text
        db.sql("CREATE OR REPLACE VIEW k AS SELECT 2 AS two")
        assert rows(db, "SELECT * FROM k") == [(2,)]
        db.sql("DROP VIEW k, named")
        assert rows(db, "SHOW TABLES") == []
        with pytest.raises(SqlError, match="Unknown table 'k'"):
            db.sql("DROP VIEW k")


DUMP = (
    "CREATE VIEW a AS SELECT NULL AS n, NULL AS author",
    "CREATE VIEW b AS SELECT NULL AS n",
    "CREATE VIEW z AS SELECT NULL AS author, NULL AS n",
    "CREATE TABLE t (id INT PRIMARY KEY, author INT)", "INSERT INTO t VALUES (1, 7), (2, 7), (3, 8)",
    "DROP VIEW a", "CREATE MATERIALIZED VIEW a AS SELECT n, author FROM z WHERE n > 1",
    "DROP VIEW b", "CREATE VIEW b AS SELECT SUM(n) AS n FROM a",
)


def test_a_view_that_comes_before_what_it_reads_waits_for_it(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        for text in DUMP:
            db.sql(text)
        assert rows(db, "SHOW TABLES") == [("a",), ("b",), ("t",), ("z",)]
        for text in ("SELECT * FROM b", "SELECT * FROM a WHERE n = 1", "SHOW FIELDS FROM a"):
            with pytest.raises(SqlError) as e:
                db.sql(text)
            assert e.value.code == 1356
    with noria.open(tmp_path / "data") as db:
        assert rows(db, "SHOW CREATE VIEW b")[0][1] == DUMP[-1]
        db.sql("DROP VIEW z")
        db.sql("CREATE VIEW z AS SELECT author, COUNT(*) AS n FROM t GROUP BY author")
        assert rows(db, "SELECT * FROM a") == [(2, 7)] and rows(db, "SELECT * FROM b") == [(2,)]
        assert rows(db, "SHOW CREATE VIEW a")[0][1] == DUMP[6]
        db.sql("INSERT INTO t VALUES (4, 8)")
        assert rows(db, "SELECT * FROM b") == [(4,)]
        with pytest.raises(SqlError, match="views build on it: 'a'"):
            db.sql("DROP VIEW z")
    with noria.open(tmp_path / "data") as db:
        assert rows(db, "SELECT * FROM b") == [(4,)]


def test_they_are_no_part_of_a_program_as_a_text(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        for text in (DUMP[2], DUMP[3], DUMP[6]):
            db.sql(text)
        (said,) = [r[0] for r in db.sql("SHOW NORIA PROGRAM").rows]
        assert said.startswith("CREATE TABLE `t`")


def test_one_that_cannot_be_made_says_why_and_waits_on(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, author INT)")
        db.sql("CREATE VIEW z AS SELECT NULL AS n")
        assert "not there yet" in db.sql("CREATE VIEW a AS SELECT n FROM z").warnings[0][2]
        db.sql("DROP VIEW z")
        said = db.sql("CREATE VIEW z AS SELECT author FROM t").warnings
        assert [w[1] for w in said] == [1356] and "'a' is not there yet: Unknown column 'n'" in said[0][2]
        with pytest.raises(SqlError) as e:
            db.sql("SELECT * FROM a")
        assert e.value.code == 1356
        db.sql("CREATE OR REPLACE VIEW z AS SELECT author, id AS n FROM t")
        assert rows(db, "SELECT * FROM a") == []
        db.sql("DROP VIEW a, z")
