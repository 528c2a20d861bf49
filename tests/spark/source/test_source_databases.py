"""`noria serve --database shop`, and the databases of Spark's source, of `noria load` and of `noria export`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cli.command import run
from e2e.serving import Served, execute, rows
from noria.spark.source import register

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Served]:
    register(spark)
    server = Served(tmp_path_factory.mktemp("databases") / "data", "--database", "Shop")
    try:
        with server.connect() as c:
            execute(c, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")  # the client names no database
            execute(c, "CREATE TABLE noria.t (id INT PRIMARY KEY, n INT)")
            execute(c, "INSERT INTO t VALUES (1, 100)")
            execute(c, "INSERT INTO noria.t VALUES (1, 10)")
            execute(c, "CREATE VIEW noria.v AS SELECT n FROM t WHERE id = ?")
        yield server
    finally:
        server.close()


def test_the_default_database(served: Served) -> None:
    with served.connect() as c:
        assert rows(c, "SHOW DATABASES") == [("Shop",), ("noria",)]
        assert rows(c, "SELECT n FROM t WHERE id = 1") == rows(c, "SELECT n FROM shop.t") == [(100,)]
        assert rows(c, "SELECT n FROM noria.t WHERE id = 1") == [(10,)]


def test_reads_and_writes(spark: SparkSession, served: Served) -> None:
    def read(**options: str) -> list[tuple[object, ...]]:
        found = spark.read.format("noria").options(url=served.url, **options).load().collect()
        return sorted(tuple(r) for r in found)

    assert read(table="t") == read(table="t", database="SHOP") == read(table="shop.t") == [(1, 100)]
    assert read(table="t", database="noria") == read(table="noria.t", direct="false") == [(1, 10)]
    assert read(query="SELECT n FROM t", database="noria") == [(10,)] and read(query="SELECT n FROM t") == [(100,)]
    assert read(view="v", database="noria") == read(view="noria.v") == [(100, 1)]
    frame = spark.createDataFrame([(7, 70)], "id int, n int")
    for options in ({"table": "made", "database": "noria"}, {"table": "noria.made2"}):
        frame.write.format("noria").options(url=served.url, primaryKey="id", **options).mode("append").save()
    assert read(table="noria.made") == read(table="made2", database="noria") == [(7, 70)]
    frame.write.format("noria").options(url=served.url, table="made", database="noria").mode("overwrite").save()
    with served.connect() as c:
        assert rows(c, "SELECT * FROM noria.made") == [(7, 70)]
        assert rows(c, "SHOW TABLES") == [("t",)]


def test_files(served: Served, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,n\n5,50\n6,60\n")
    for options in (("shop.t",), ("noria.fresh", "--create", "--primary-key", "id")):
        done = run("load", *options, str(tmp_path / "rows.csv"), "--url", served.url)
        assert done.returncode == 0, done.stderr
    with served.connect() as c:
        assert rows(c, "SELECT * FROM t WHERE id > 4 ORDER BY id") == [(5, 50), (6, 60)]
        assert rows(c, "SELECT id, n FROM noria.fresh ORDER BY id") == [(5, 50), (6, 60)]
    done = run("export", "noria.fresh", "--to", "parquet", "--url", served.url, str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "out").sort_by("id").to_pydict() == {"id": [5, 6], "n": [50, 60]}
