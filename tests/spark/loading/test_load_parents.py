"""Loads into tables with FOREIGN KEYs: each row that is stored has its parents, whatever others do meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from e2e.serving import Served, execute, rows, serving
from noria.client.transport import HttpTransport
from noria.core.errors import SqlError
from noria.spark.source import register

pytestmark = pytest.mark.spark
TABLES = ("CREATE TABLE p (id INT PRIMARY KEY, code VARCHAR(9), n INT, UNIQUE (code))",
          "CREATE TABLE q (a INT, b VARCHAR(5), PRIMARY KEY (a, b))",
          "CREATE TABLE c (id INT PRIMARY KEY, p INT, code VARCHAR(20), a INT, b VARCHAR(9), "
          "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE, "
          "FOREIGN KEY (code) REFERENCES p (code), FOREIGN KEY (a, b) REFERENCES q (a, b))",
          "CREATE TABLE tree (id INT AUTO_INCREMENT PRIMARY KEY, up INT, p INT, FOREIGN KEY (up) REFERENCES tree (id), "
          "FOREIGN KEY (p) REFERENCES p (id))",
          "CREATE TABLE named (name VARCHAR(9), up VARCHAR(9), id INT PRIMARY KEY, UNIQUE (name), "
          "FOREIGN KEY (up) REFERENCES named (name))",
          "CREATE TABLE bag (p INT, v INT CHECK (v < 100), twice INT AS (v * 2) STORED, "
          "FOREIGN KEY (p) REFERENCES p (id))")
PARENTS = ("INSERT INTO p VALUES (1, 'one', 1), (2, 'Two', 2), (3, NULL, 3)",
           "INSERT INTO q VALUES (1, 'x'), (1, 'y'), (2, 'x')")
ORPHANS = ("SELECT COUNT(*) FROM c LEFT JOIN p ON p.id = c.p WHERE c.p IS NOT NULL AND p.id IS NULL",
           "SELECT COUNT(*) FROM c LEFT JOIN p ON p.code = c.code WHERE c.code IS NOT NULL AND p.id IS NULL",
           "SELECT COUNT(*) FROM tree AS c LEFT JOIN tree AS p ON p.id = c.up WHERE c.up IS NOT NULL AND p.id IS NULL",
           "SELECT COUNT(*) FROM bag AS c LEFT JOIN p ON p.id = c.p WHERE c.p IS NOT NULL AND p.id IS NULL")


@pytest.fixture(scope="module", params=[pytest.param("1", marks=pytest.mark.long), "2"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("parents") / "data", *TABLES, workers=request.param) as server:
        yield server


@pytest.fixture
def db(served: Served) -> Iterator[Any]:
    with served.connect() as connection:
        for table in ("tree", "named", "c", "bag", "q", "p"):
            execute(connection, f"DELETE FROM {table}" if table not in ("tree", "named") else f"TRUNCATE TABLE {table}")
        for text in PARENTS:
            execute(connection, text)
        yield connection
        for text in ORPHANS:
            assert rows(connection, text) == [(0,)], text


class Loads:
    """Loads from text files."""

    def __init__(self, served: Served, place: Path):
        self._served, self._place = served, place

    def steps(self, table: str, text: str, **more: Any) -> Iterator[dict[str, Any]]:
        path = self._place / f"{table}.csv"
        path.write_text(text)
        return iter(HttpTransport(self._served.url).load({
            "table": table, "files": [str(path)], "reject": str(self._place / "rejected"), **more}))

    def run(self, table: str, text: str, **more: Any) -> tuple[int, int]:
        """The numbers of loaded and rejected rows."""
        done = list(self.steps(table, text, **more))[-1]
        return done["rows"], done["rejected"]

    def rejects(self) -> list[tuple[int, str, str]]:
        found = [json.loads(line) for line in (self._place / "rejected").read_text().splitlines()]
        return [(r["line"], r.get("column"), r["reason"]) for r in found]


@pytest.fixture
def load(served: Served, tmp_path: Path) -> Loads:
    return Loads(served, tmp_path)


def message(table: str, name: str, columns: str, parent: str, of: str, more: str = "") -> str:
    return (f"Cannot add or update a child row: a foreign key constraint fails (`noria`.`{table}`, CONSTRAINT `{name}` "
            f"FOREIGN KEY ({columns}) REFERENCES `{parent}` ({of}){more})")


def test_rows_without_a_parent_are_rejected(load: Loads, db: Any) -> None:
    text = ("id,p,code,a,b\n1,1,TWO,1,X\n2,9,one,,\nx,1,,,\n4,\\N,\\N,7,\\N\n5,3,three,2,x\n6,2,\\N,2,y\n7,2,\\N,"
            "\\N,zz\n8,9,nine,2,y\n")
    assert load.run("c", text) == (3, 5)
    assert rows(db, "SELECT id FROM c ORDER BY id") == [(1,), (4,), (7,)]
    p = message("c", "c_ibfk_1", "`p`", "p", "`id`", " ON DELETE CASCADE")
    code = message("c", "c_ibfk_2", "`code`", "p", "`code`")
    both = message("c", "c_ibfk_3", "`a`, `b`", "q", "`a`, `b`")
    assert load.rejects() == [(3, "p", p), (4, "id", "Incorrect integer value: 'x' for column 'id'"),
                              (6, "code", code), (7, None, both), (9, "p", p)]
    with pytest.raises(SqlError, match=r"nothing was loaded\. First: Cannot add or update a child row"):
        load.run("c", "id,p\n20,1\n21,8\n", max_rejects=0)
    assert rows(db, "SELECT COUNT(*) FROM c") == [(3,)]


def test_all_other_rules_hold_too(load: Loads, db: Any) -> None:
    assert load.run("bag", "p,v\n1,5\n9,6\n2,100\n,7\n2,8\n2,8\n") == (4, 2)
    assert rows(db, "SELECT p, v, twice FROM bag ORDER BY v, p") == [(1, 5, 10), (None, 7, 14), (2, 8, 16), (2, 8, 16)]


def test_a_table_that_refers_to_itself(load: Loads, db: Any) -> None:
    """Table and load as a whole count: parents may follow.  Who has no parent takes its children along."""
    text = "id,up,p\n1,5,\n2,1,1\n3,3,\n4,,\n5,4,2\n6,99,\n7,6,\n8,7,\n9,,9\n10,9,\n11,8,\n"
    assert load.run("tree", text) == (5, 6)
    assert rows(db, "SELECT id, up FROM tree ORDER BY id") == [(1, 5), (2, 1), (3, 3), (4, None), (5, 4)]
    assert [line for line, _, _ in load.rejects()] == [7, 8, 9, 10, 11, 12]
    assert load.run("tree", "id,up\n6,5\n7,6\n8,88\n") == (2, 1), "stored rows count"
    assert load.run("tree", "up\n7\n\n77\n") == (1, 1), "numbers are generated afterwards"
    assert load.run("named", "id,name,up\n1,Ann,BOB\n2,Bob,\\N\n3,Cid,ann\n4,Dan,eva\n") == (3, 1)
    with pytest.raises(SqlError, match="repeat the primary key"):
        load.run("named", "id,name,up\n11,N11,\\N\n11,N12,\\N\n13,N13,N12\n")


def test_others_that_remove_parents_meanwhile(load: Loads, db: Any, served: Served) -> None:
    """A transaction has removed a parent, and commits after Spark has looked it up."""
    for end, wanted in (("ROLLBACK", (2, 0)), ("COMMIT", (1, 1))):
        with served.connect() as other:
            execute(other, "BEGIN")
            execute(other, "DELETE FROM p WHERE id = 3")
            told = []
            for step in load.steps("c", "id,p\n50,3\n51,2\n"):
                told.append(step["step"])
                if "waiting for transactions" in told[-1]:
                    execute(other, end)
            assert (step["rows"], step["rejected"]) == wanted, told
            assert any("again, because some are gone" in t for t in told) == (end == "COMMIT")
        if end == "ROLLBACK":
            execute(db, "DELETE FROM p WHERE id = 3")
            assert rows(db, "SELECT id FROM c") == [(51,)], "the load's row followed"
            execute(db, "DELETE FROM c")
            execute(db, "INSERT INTO p (id) VALUES (3)")


def test_one_that_no_row_needs(load: Loads, db: Any, served: Served) -> None:
    with served.connect() as other:
        execute(other, "BEGIN")
        execute(other, "DELETE FROM p WHERE id = 1")
        told = []
        for step in load.steps("c", "id,p\n50,3\n"):
            told.append(step["step"])
            if "waiting for transactions" in told[-1]:
                execute(other, "COMMIT")
    assert (step["rows"], step["rejected"]) == (1, 0)
    assert sum(t.startswith("loading c") for t in dict.fromkeys(told)) <= 1


def test_a_key_that_is_added_or_dropped_meanwhile(load: Loads, db: Any, served: Served) -> None:
    execute(db, "CREATE TABLE late (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))")
    try:
        with served.connect() as other:
            execute(other, "BEGIN")
            execute(other, "INSERT INTO p (id) VALUES (4)")
            with pytest.raises(SqlError, match="changed"):
                for step in load.steps("late", "id,p\n50,3\n51,9\n"):
                    if "waiting for transactions" in step["step"]:
                        execute(db, "ALTER TABLE late DROP FOREIGN KEY late_ibfk_1")
                        execute(other, "COMMIT")
        assert rows(db, "SELECT COUNT(*) FROM late") == [(0,)]
    finally:
        execute(db, "DROP TABLE late")


def test_rows_that_may_be_there(load: Loads, db: Any) -> None:
    assert load.run("c", "id,p\n1,1\n2,2\n") == (2, 0)
    assert load.run("c", "id,p\n1,3\n2,9\n3,3\n", on_duplicate="ignore") == (1, 1)
    assert rows(db, "SELECT id, p FROM c ORDER BY id") == [(1, 1), (2, 2), (3, 3)]
    assert load.run("c", "id,p\n1,3\n2,9\n4,3\n", on_duplicate="replace") == (2, 1)
    assert rows(db, "SELECT id, p FROM c ORDER BY id") == [(1, 3), (2, 2), (3, 3), (4, 3)]
    with pytest.raises(SqlError, match=r"Cannot delete or update a parent row.*; 0 rows before it are written"):
        execute(db, "INSERT INTO c (id, code) VALUES (9, 'one')")
        load.run("p", "id,n\n1,7\n", on_duplicate="replace")
    assert load.run("p", "id,code,n\n3,\\N,7\n8,\\N,7\n", on_duplicate="replace") == (2, 0)
    assert rows(db, "SELECT id FROM c ORDER BY id") == [(2,), (9,)], "REPLACE deletes the parent, and inserts"
    assert load.run("p", "id,n\n20,1\n") == (1, 0), "a load that only adds parents"
    assert load.run("tree", "id,up\n1,2\n2,\n", on_duplicate="ignore") == (2, 0)


def test_writes_of_spark(spark: SparkSession, served: Served, db: Any) -> None:
    """Few rows are a statement, and more are a load."""
    register(spark)

    def write(frame: DataFrame, table: str, **options: str) -> None:
        frame.write.format("noria").options(url=served.url, table=table, **options).mode("append").save()

    write(spark.range(10, 20_000).selectExpr("id", "id AS n"), "p")
    for rows_of_write, wanted in ((100, "written to c: Cannot add or"), (15_000, "nothing was loaded.*Cannot add or")):
        bad = spark.range(10, 10 + rows_of_write).selectExpr("id", "if(id = 60, -1, id) AS p")
        with pytest.raises(PySparkException, match=wanted):
            write(bad, "c")
        assert rows(db, "SELECT COUNT(*) FROM c") == [(0,)]
    write(bad, "c", maxRejects="1")
    write(spark.range(50, 70).selectExpr("id", "3 AS p"), "c", onDuplicate="replace")
    assert rows(db, "SELECT COUNT(*), SUM(p = 3) FROM c") == [(15_000, 20)]
    write(spark.range(10, 12).selectExpr("id", "7 AS n"), "p", onDuplicate="upsert")
    write(spark.range(2, 4).toDF("id"), "p", onDuplicate="delete")
    assert rows(db, "SELECT COUNT(*), SUM(p = 3) FROM c") == [(14_980, 0)], "children of a removed parent follow"


def test_the_command(served: Served, db: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,p\n1,1\n2,9\n")
    done = served.run("load", "c", str(path), "--reject", str(tmp_path / "bad"))
    assert done.returncode == 3 and "a foreign key constraint fails" in (tmp_path / "bad").read_text()
    assert rows(db, "SELECT id FROM c") == [(1,)]
