"""CHECK over the embedded runtime: every way to write, ALTER TABLE while others write, restarts, and random writes
beside MariaDB."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import noria
import seeds
from control.databases import Opened
from e2e.mariadb import INSTALLED, MariaDb
from noria.client import Database
from noria.core.errors import SqlError
from server.sessions.refusals import refusal

TABLE = ("CREATE TABLE t (id INT PRIMARY KEY, a INT CHECK (a > 0), b VARCHAR(10), "
         "CONSTRAINT ab CHECK (b <> 'bad' OR a > 100))")


VIOLATED = (3819, "Check constraint 't_chk_1' is violated.")


def test_every_way_to_write(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql(TABLE)
        db.sql("CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a")
        db.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, NULL, 'y'), (3, 200, 'BAD')")
        assert refusal(db, "INSERT INTO t VALUES (4, 1, 'x'), (5, 0, 'y')") == VIOLATED
        assert refusal(db, "INSERT INTO t VALUES (4, 1, 'Bád')") == (3819, "Check constraint 'ab' is violated.")
        assert refusal(db, "INSERT INTO t VALUES (?, ?, ?)", 4, 0, "x") == VIOLATED
        assert refusal(db, "REPLACE INTO t VALUES (1, 0, 'x')") == VIOLATED
        assert refusal(db, "INSERT INTO t VALUES (1, 5, 'x') ON DUPLICATE KEY UPDATE a = 0") == VIOLATED
        assert refusal(db, "INSERT INTO t VALUES (1, 0, 'x') ON DUPLICATE KEY UPDATE a = 5") == VIOLATED
        assert refusal(db, "UPDATE t SET a = a - 5") == VIOLATED
        assert refusal(db, "UPDATE t SET id = id + 10, a = a - 5") == VIOLATED
        assert refusal(db, "UPDATE t SET b = 'bad' WHERE id = 1")[0] == 3819
        assert db.sql("INSERT IGNORE INTO t VALUES (4, 1, 'x'), (5, 0, 'y'), (1, 1, 'z'), (6, 6, 'z')").affected == 2
        assert db.sql("INSERT INTO t VALUES (1, 5, 'x') ON DUPLICATE KEY UPDATE a = 7").affected == 2
        assert db.sql("UPDATE t SET a = 150, b = 'bad' WHERE id = 1").affected == 1
        with pytest.raises(SqlError, match="t_chk_1"):
            db.table("t").insert([(11, 5, "a"), (12, -5, "a")])
        with pytest.raises(SqlError, match="t_chk_1"):
            db.table("t").insert(pa.table({"id": [11, 12], "a": [5, -5], "b": ["a", "b"]}))
        assert sorted(db.sql("SELECT * FROM t").rows) == [
            (1, 150, "bad"), (2, None, "y"), (3, 200, "BAD"), (4, 1, "x"), (6, 6, "z")]
        assert (0, 1) not in db.view("v").lookup()


def test_the_first_wrong_row_says_what_is_wrong(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data", workers=1) as db:
        db.sql(TABLE)
        db.sql("INSERT INTO t VALUES (1, 1, 'x')")
        assert refusal(db, "INSERT INTO t VALUES (1, 1, 'x'), (5, 0, 'y')")[0] == 1062
        assert refusal(db, "INSERT INTO t VALUES (5, 0, 'y'), (1, 1, 'x')")[0] == 3819
        assert refusal(db, "INSERT INTO t VALUES (1, 0, 'y')")[0] == 3819


def test_a_division_by_zero_is_an_error_unless_something_guards_it(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, CHECK (a / b > 1), CHECK (a = 0 OR b / a > -1))")
        db.sql("INSERT INTO t VALUES (1, 4, 2), (2, 4, NULL), (3, NULL, 3)")
        assert refusal(db, "INSERT INTO t VALUES (4, 4, 0)")[0] == 1365
        assert refusal(db, "INSERT INTO t VALUES (4, 0, 4)") == VIOLATED


def test_alter_table_checks_the_rows_that_are_there(tmp_path: Path) -> None:
    for _ in ("made", "opened again"):
        with noria.open(tmp_path / "data") as db:
            if _ == "made":
                db.sql(TABLE)
                db.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, 150, 'bad')")
                assert refusal(db, "ALTER TABLE t ADD CHECK (a < 150)") == (
                    3819, "Check constraint 't_chk_2' is violated.")
                db.sql("INSERT INTO t VALUES (3, 2000, 'x')")
                db.sql("ALTER TABLE t ADD CHECK (a < 150) NOT ENFORCED, ADD CHECK (a < 3000)")
                assert refusal(db, "ALTER TABLE t ADD COLUMN z INT NOT NULL CHECK (z > 0)")[0] == 3819
                db.sql("ALTER TABLE t ADD COLUMN z INT NOT NULL DEFAULT 1 CHECK (z > 0)")
                assert refusal(db, "ALTER TABLE t ALTER CHECK t_chk_2 ENFORCED")[0] == 3819
            assert refusal(db, "INSERT INTO t VALUES (4, 3000, 'x', 1)") == (
                3819, "Check constraint 't_chk_3' is violated.")
            assert refusal(db, "UPDATE t SET z = 0")[0] == 3819
            assert "CONSTRAINT `t_chk_2` CHECK ((`a` < 150)) /*!80016 NOT ENFORCED */" in db.sql(
                "SHOW CREATE TABLE t").rows[0][1]
            assert db.sql("SELECT constraint_name, check_clause FROM information_schema.check_constraints").rows == [
                ("ab", "((`b` <> 'bad') or (`a` > 100))"), ("t_chk_1", "(`a` > 0)"), ("t_chk_2", "(`a` < 150)"),
                ("t_chk_3", "(`a` < 3000)"), ("t_chk_4", "(`z` > 0)")]
            assert db.sql("SELECT constraint_name, enforced FROM information_schema.table_constraints "
                          "WHERE constraint_type = 'CHECK' AND enforced = 'NO'").rows == [("t_chk_2", "NO")]
    with noria.open(tmp_path / "data") as db:
        db.sql("RENAME TABLE t TO s")
        assert refusal(db, "INSERT INTO s VALUES (10, 0, 'x', 1)") == (3819, "Check constraint 's_chk_1' is violated.")
        db.sql("ALTER TABLE s DROP CONSTRAINT s_chk_1, DROP CHECK ab, RENAME TO t, DROP COLUMN z")
        db.sql("INSERT INTO t VALUES (10, 0, 'bad')")
        assert refusal(db, "INSERT INTO t VALUES (11, 3000, 'x')") == (3819, "Check constraint 't_chk_3' is violated.")


def test_a_column_of_another_type_is_checked_anew(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a DOUBLE CHECK (a > 1))")
        db.sql("INSERT INTO t VALUES (1, 1.2), (2, 5)")
        assert refusal(db, "ALTER TABLE t MODIFY a INT") == VIOLATED
        db.sql("DELETE FROM t WHERE id = 1")
        db.sql("ALTER TABLE t MODIFY a INT")
        assert refusal(db, "INSERT INTO t VALUES (1, 1)") == VIOLATED


def test_others_write_while_a_check_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In slices: a row that breaks it either is refused, or ends the ALTER."""
    monkeypatch.setattr("noria.dataflow.backfill.full_state.SLICE_ROWS", 100, raising=False)
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        db.table("t").insert(pa.table({"id": range(50_000), "a": [1] * 50_000}))
        errors: list[SqlError] = []

        def write() -> None:
            for id in range(60_000, 60_300):
                try:
                    db.sql("INSERT INTO t VALUES (?, ?)", [id, 0 if id == 60_150 else 2])
                except SqlError as e:
                    errors.append(e)

        writer = threading.Thread(target=write)
        writer.start()
        added = True
        try:
            db.sql("ALTER TABLE t ADD CHECK (a > 0)")
        except SqlError as e:
            assert e.code == 3819
            added = False
        writer.join()
        there = db.sql("SELECT COUNT(*) FROM t WHERE a = 0").rows[0][0]
        assert (there, len(errors)) == ((0, 1) if added else (1, 0))


def test_a_program_with_checks_is_applied(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "data")
    db = opened.db

    def apply(text: str) -> Any:
        return opened.transport.run(opened.program.apply(text, False))

    try:
        apply(TABLE)
        assert refusal(db, "INSERT INTO t VALUES (1, 0, 'x')") == VIOLATED
        text = db.sql("SHOW CREATE TABLE t").rows[0][1]
        assert apply(text).target.difference.empty, "what SHOW CREATE TABLE prints is no change"
        apply(TABLE.replace("a > 0", "a > 5").replace("a > 100)", "a > 100) NOT ENFORCED"))
        assert refusal(db, "INSERT INTO t VALUES (1, 5, 'x')") == VIOLATED
        db.sql("INSERT INTO t VALUES (1, 6, 'bad')")
    finally:
        db.close()


# ------------------------------------------------------------------ beside MariaDB
CONDITIONS = ("a > 0", "a < b", "a <> b OR c = 'x'", "c IN ('x', 'y')", "c LIKE '%x'", "a BETWEEN -3 AND 6",
              "a + b < 9", "NOT (a = 3 AND b = 3)", "a IS NOT NULL OR b IS NOT NULL", "c IS NULL OR CHAR_LENGTH(c) < 3",
              "CASE WHEN a > 3 THEN b > 3 ELSE TRUE END", "COALESCE(a, b, 1) > 0", "a * 2 > b - 3", "a % 3 <> 1",
              "UPPER(c) <> 'Y'", "a IS NULL OR a > -2", "CONCAT(c, a) <> 'x1'", "ABS(a) < 7")
CODES = {4025: 3819}  # MariaDB's number for what MySQL calls 3819


class Beside:
    """A database and MariaDB, which do the same."""

    def __init__(self, db: Database, maria: Any, seed: int, workers: int):
        self.db, self.maria, self.chance, self.workers = db, maria, random.Random(seed), workers
        self.names: list[str] = []

    def both(self, text: str) -> None:
        mine, theirs = self._mine(text), self._theirs(text)
        if self.workers > 1 and {mine, theirs} == {"error 1062", "error 3819"}:
            return  # of several wrong rows, the error is that of any worker's first one
        assert mine == theirs, (text, mine, theirs)

    def _mine(self, text: str) -> Any:
        try:
            return self.db.sql(text).affected
        except SqlError as e:
            return f"error {e.code}"

    def _theirs(self, text: str) -> Any:
        import pymysql

        try:
            with self.maria.cursor() as cursor:
                return cursor.execute(text)
        except pymysql.err.MySQLError as e:
            return f"error {CODES.get(e.args[0], e.args[0])}"

    def value(self, kind: str) -> str:
        if kind == "c":
            return self.chance.choice(["NULL", "'x'", "'Y'", "'y'", "'xx'", "'zzx'", "'z'"])
        return self.chance.choice(["NULL", *map(str, range(-4, 9))])

    def row(self) -> str:
        return f"({self.chance.randrange(12)}, {self.value('a')}, {self.value('b')}, {self.value('c')})"

    def rows(self, most: int = 3) -> str:
        return ", ".join(self.row() for _ in range(self.chance.randint(1, most)))

    def step(self) -> None:
        act, set = self.chance.random(), self.chance.choice(
            [f"a = {self.value('a')}", "a = b", "b = a + 1", f"c = {self.value('c')}", "a = b + 1, b = a - 1",
             "id = id + 20 - id % 20 * 2 - 20 + id % 20"])
        where = self.chance.choice(["TRUE", "a > 2", f"id = {self.chance.randrange(12)}", "c = 'x'", "b IS NULL"])
        if act < 0.3:
            self.both(f"INSERT INTO t VALUES {self.rows()}")
        elif act < 0.4:
            self.both(f"INSERT IGNORE INTO t VALUES {self.row()}, {self.rows()}")  # MariaDB refuses a single row
        elif act < 0.5:
            self.both(f"REPLACE INTO t VALUES {self.rows(1)}")
        elif act < 0.6:
            self.both(f"INSERT INTO t VALUES {self.rows(1)} ON DUPLICATE KEY UPDATE {set}")
        elif act < 0.85:
            self.both(f"UPDATE t SET {set} WHERE {where}")
        elif act < 0.9:
            self.both(f"DELETE FROM t WHERE {where}")
        elif self.names and act < 0.95:
            gone = self.names.pop(self.chance.randrange(len(self.names)))
            self.both(f"ALTER TABLE t DROP CONSTRAINT {gone}")
        else:
            self.add()

    def add(self) -> None:
        name, condition = f"n{self.chance.randrange(10**6)}", self.chance.choice(CONDITIONS)
        text = f"ALTER TABLE t ADD CONSTRAINT {name} CHECK ({condition})"
        mine, theirs = self._mine(text), self._theirs(text)
        failed = "error 3819"
        assert (mine == failed) == (theirs == failed), (text, mine, theirs)
        if mine != failed:
            self.names.append(name)

    def compare(self) -> None:
        with self.maria.cursor() as cursor:
            cursor.execute("SELECT * FROM t ORDER BY id")
            assert sorted(self.db.sql("SELECT * FROM t").rows) == list(cursor.fetchall())


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
@pytest.mark.parametrize("workers", [1, 2])
def test_random_writes_beside_mariadb(tmp_path: Path, oracle: MariaDb, workers: int) -> None:
    maria = oracle.connect(database=f"checks{workers}")
    with noria.open(tmp_path / "data", workers=workers) as db:
        beside = Beside(db, maria, seeds.seed(), workers)
        key = beside.chance.choice(["PRIMARY KEY", "PRIMARY KEY", "UNIQUE"])
        for run in (db.sql, lambda text: maria.cursor().execute(text)):
            run(f"CREATE TABLE t (id INT {key}, a INT, b INT, c VARCHAR(9))")
        for _ in range(3):
            beside.add()
        for n in range(400):
            beside.step()
            if n % 20 == 0:
                beside.compare()
        beside.compare()
    maria.close()
