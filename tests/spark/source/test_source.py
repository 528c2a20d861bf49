"""The data source on a server: what is read is of one snapshot, what is written is written once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import noria
from e2e.serving import Served, execute, rows
from noria.client.transport import HttpTransport
from noria.core.errors import SqlError
from noria.spark.source import register
from noria.spark.source.reader import NoriaReader
from noria.spark.source.types import schema_of
from noria.spark.source.wire import Server
from noria.spark.source.writer import NoriaStreamWriter, NoriaWriter, Staged
from spark.feeds import serving_feed

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
MANY = 250_000  # more than are written as statements, and than are read in one piece
TYPES = {
    "a1": ("TINYINT", "-128"), "a2": ("SMALLINT UNSIGNED", "65535"), "a3": ("MEDIUMINT", "-8388608"),
    "a4": ("INT UNSIGNED", "4294967295"), "a5": ("BIGINT", "-9223372036854775000"), "a6": ("BOOL", "2"),
    "a7": ("YEAR", "1999"), "b1": ("FLOAT", "1.5"), "b2": ("DOUBLE", "-2.5e300"),
    "b3": ("DECIMAL(18,4)", "-12345678901234.5678"),
    "c1": ("CHAR(5)", "'ab'"), "c2": ("VARCHAR(20)", "'É x'"), "c3": ("TEXT", "'t'"),
    "c4": ("JSON", "'{\"k\": [1, null]}'"),
    "c5": ("ENUM('x','y')", "'y'"), "c6": ("SET('p','q')", "'p,q'"), "d1": ("BINARY(3)", "x'00ff01'"),
    "d2": ("VARBINARY(9)", "x'80'"), "d3": ("BLOB", "x''"), "e1": ("DATE", "'0999-12-31'"),
    "e2": ("DATETIME(6)", "'2026-02-03 04:05:06.789012'"), "e3": ("TIMESTAMP(3)", "'2026-02-03 04:05:06.789'"),
    "e4": ("TIME(2)", "'-838:59:58.50'")}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Served]:
    register(spark)
    server = Served(tmp_path_factory.mktemp("source") / "data")
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def db(served: Served) -> Iterator[Any]:
    with served.connect() as connection:
        yield connection


def read(spark: SparkSession, served: Served, **options: str) -> DataFrame:
    return spark.read.format("noria").options(url=served.url, **options).load()


def write(frame: DataFrame, served: Served, table: str, mode: str = "append", **options: str) -> None:
    frame.write.format("noria").options(url=served.url, table=table, **options).mode(mode).save()


def numbers(spark: SparkSession, count: int, parts: int = 3) -> DataFrame:
    return spark.range(0, count, 1, parts).select("id", F.concat(F.lit("n"), "id").alias("name"))


# ------------------------------------------------------------------ types
def test_every_type_there_and_back(spark: SparkSession, served: Served, db: Any) -> None:
    columns = ", ".join(f"{n} {t}" for n, (t, _) in TYPES.items())
    for table in ("kinds", "kinds2"):
        execute(db, f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})")
    execute(db, f"INSERT INTO kinds VALUES (1, {', '.join(v for _, v in TYPES.values())})")
    execute(db, "INSERT INTO kinds (id) VALUES (2)")
    there = read(spark, served, table="kinds")
    write(there, served, "kinds2")
    assert rows(db, "SELECT * FROM kinds2 ORDER BY id") == rows(db, "SELECT * FROM kinds ORDER BY id")
    one = there.filter("id = 1").collect()[0]
    assert (one.a4, one.a6, one.b3, one.c2, bytes(one.d1)) == (2**32 - 1, 2, Decimal("-12345678901234.5678"), "É x",
                                                               b"\0\xff\1")
    by_http = read(spark, served, table="kinds", direct="false").orderBy("id").collect()
    assert by_http == there.orderBy("id").collect()
    by_query = read(spark, served, query="SELECT * FROM kinds").orderBy("id").collect()
    assert [tuple(r) for r in by_query] == [tuple(r) for r in by_http]
    write(there, served, "kinds3", primaryKey="id")
    made = read(spark, served, table="kinds3").orderBy("id").collect()
    assert [tuple(r) for r in made] == [tuple(r) for r in by_http]


# ------------------------------------------------------------------ the documented walk
def test_the_walk_of_the_page(spark: SparkSession, served: Served, db: Any, tmp_path: Path) -> None:
    """The lines of docs/how-to/spark.md, as they stand there."""
    walk = (ROOT / "docs" / "how-to" / "spark.md").read_text().partition("## A walk")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", walk, re.DOTALL)
    assert len(blocks) == 4
    pages = ["/about", "/docs/start", "/docs/types", None]
    events = [(i, pages[i % 4], "x", i) for i in range(400)]
    spark.createDataFrame(events, "id long, page string, reader string, ms long").write.json(str(tmp_path / "events"))
    owners = [("/about", "ann"), ("/docs/start", "bob"), ("/docs/types", "bob")]
    spark.createDataFrame(owners, "page string, owner string").write.parquet(str(tmp_path / "owners"))
    names: dict[str, Any] = {"spark": spark, "url": served.url, "place": str(tmp_path)}
    try:
        for block in blocks:
            exec(compile(block, "docs/how-to/spark.md", "exec"), names)
        assert names["shown"] == [("/about", 100, sum(range(0, 400, 4)))]
        assert {tuple(r) for r in spark.table("sections").collect()} == {("about", 100), ("docs", 202)}
        assert {tuple(r) for r in names["by_owner"].collect()} == {("ann", 100), ("bob", 202)}
        exec(compile(blocks[0], "docs/how-to/spark.md", "exec"), names)
        assert rows(db, "SELECT COUNT(*) FROM events") == [(302,)]
    finally:
        names["query"].stop()
        names["db"].close()


# ------------------------------------------------------------------ files
def exported(served: Served, what: str, to: str, place: Path, **more: Any) -> dict[str, Any]:
    return list(HttpTransport(served.url).export({"what": what, "to": to, "directory": str(place), **more}))[-1]


def loaded(served: Served, table: str, place: Path, **more: Any) -> list[dict[str, Any]]:
    request = {"table": table, "files": [str(place)], "reject": str(place.parent / "rejected"), **more}
    return list(HttpTransport(served.url).load(request))


def test_what_is_exported_loads_to_equal_rows(served: Served, db: Any, tmp_path: Path) -> None:
    kinds = {n: (t, v) for n, (t, v) in TYPES.items() if n[0] != "d"}
    texts = ("", "\\N", '"\\N"', "a,b", 'q"', "line\nend", "\r", "é\\", None)
    columns = ", ".join(f"{n} {t}" for n, (t, _) in kinds.items())
    for table in ("out", "out_csv", "out_json"):
        execute(db, f"CREATE TABLE `{table}` (id INT PRIMARY KEY, {columns}, s TEXT)")
    names = ", ".join(kinds)
    execute(db, f"INSERT INTO `out` (id, {names}) VALUES (100, {', '.join(v for _, v in kinds.values())})")
    for i, text in enumerate(texts):
        execute(db, "INSERT INTO `out` (id, s) VALUES (%s, %s)", (i, text))
    there = rows(db, "SELECT * FROM `out` ORDER BY id")
    for form in ("csv", "json"):
        told = exported(served, "out", form, tmp_path / form)
        assert (told["rows"], told["multiline"]) == (10, form == "csv")
        assert loaded(served, f"out_{form}", tmp_path / form, multiline=form == "csv")[-1]["rejected"] == 0
        assert rows(db, f"SELECT * FROM out_{form} ORDER BY id") == there
    execute(db, "CREATE VIEW per_text AS SELECT s, COUNT(*) AS n FROM `out` WHERE s = ? GROUP BY s")
    assert exported(served, "per_text", "csv", tmp_path / "view")["rows"] == 9


def test_a_file_as_people_have_it(served: Served, db: Any, tmp_path: Path) -> None:
    """By the command, with --create, and over HTTP; a load without rejects removes those of the load before."""
    path, rejected = tmp_path / "preise.csv", tmp_path / "bad"
    path.write_bytes("Käse;12,50;31.12.2025\nBrot;x;1.2.2026\n".encode("windows-1252"))
    execute(db, "CREATE TABLE preise (name VARCHAR(9) PRIMARY KEY, price DECIMAL(6,2), day DATE)")
    how = ("--no-header", "--delimiter", ";", "--decimal", ",", "--date-format", "%d.%m.%Y", "--encoding", "cp1252")
    done = served.run("load", "preise", str(path), *how, "--reject", str(rejected))
    assert done.returncode == 3 and "Incorrect decimal value: 'x'" in rejected.read_text(), done.stdout + done.stderr
    path.write_bytes(path.read_bytes().replace(b";x;", b";0,5;"))
    done = served.run("load", "made_preise", str(path), *how, "--create", "--columns", "name,price,day")
    assert "(`name` TEXT, `price` DECIMAL(18,2), `day` DATE)" in done.stdout, done.stdout + done.stderr
    request = {"header": False, "delimiter": ";", "decimal": ",", "date_format": "%d.%m.%Y", "encoding": "cp1252",
               "reject": str(rejected), "on_duplicate": "ignore"}
    assert loaded(served, "preise", path, **request)[-1]["rows"] == 1
    assert not rejected.exists()
    there = rows(db, "SELECT * FROM preise ORDER BY name")
    assert there == rows(db, "SELECT * FROM made_preise ORDER BY name") and len(there) == 2
    with pytest.raises(SqlError, match=r"--decimal .* is \. or , and not ';'"):
        loaded(served, "preise", path, decimal=";")


def test_views_are_not_written_to(spark: SparkSession, served: Served, db: Any, tmp_path: Path) -> None:
    execute(db, "CREATE TABLE below (id BIGINT PRIMARY KEY)")
    execute(db, "CREATE VIEW above AS SELECT id FROM below")
    (tmp_path / "a.csv").write_text("id\n1\n")
    for create in (False, True):
        with pytest.raises(SqlError, match="above is a view and cannot be written") as told:
            loaded(served, "above", tmp_path / "a.csv", create=create)
        assert told.value.code == 1288
    with noria.connect(served.url) as client, pytest.raises(SqlError, match="is a view"):
        client.table("above").insert([(1,)])
    with pytest.raises(PySparkException, match="is a view and cannot be written") as refused:
        write(spark.range(1), served, "above")
    assert "Traceback" not in str(refused.value)


def test_texts_in_where(spark: SparkSession, served: Served, db: Any) -> None:
    execute(db, "CREATE TABLE named (name VARCHAR(20) PRIMARY KEY, n INT)")
    execute(db, "INSERT INTO named VALUES ('Ann', 1), ('bob', 2), ('Éve', 3)")
    for where, found in (("name = 'ANN'", [1]), ("name IN ('eve', 'x') AND n > 0", [3]), ("name > 'b'", [2, 3])):
        assert sorted(r.n for r in read(spark, served, table="named", where=where).collect()) == found, where


def test_an_export_and_a_table_made_of_it(served: Served, db: Any, tmp_path: Path) -> None:
    execute(db, "CREATE TABLE `from` (id INT PRIMARY KEY, n SMALLINT, b VARBINARY(9), t TIME(2), name VARCHAR(9))")
    execute(db, "INSERT INTO `from` VALUES (1, 2, x'00ff', '-01:02:03.5', 'x'), (2, NULL, NULL, NULL, NULL)")
    place = tmp_path / "files"
    done = served.run("export", "SELECT * FROM `from` WHERE id > 0 ORDER BY id", str(place))
    assert done.returncode == 0 and "2 rows in" in done.stdout, done.stdout + done.stderr
    done = served.run("load", "made", str(place), "--create", "--primary-key", "id")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("CREATE TABLE `made` (`id` INT NOT NULL, `n` SMALLINT, `b` LONGBLOB, `t` TEXT, `name` TEXT, "
            "PRIMARY KEY (`id`));") in done.stdout
    assert rows(db, "SELECT * FROM made ORDER BY id") == [
        (1, 2, b"\0\xff", "-01:02:03.500000", "x"), (2, None, None, None, None)]
    for says, call in (
            ("already exists", lambda: loaded(served, "made", place, create=True)),
            ("is not empty", lambda: exported(served, "from", "parquet", place)),
            ("has bytes", lambda: exported(served, "from", "csv", tmp_path / "new")),
            ("name them apart", lambda: exported(served, "SELECT id, id FROM `from`", "csv", tmp_path / "new")),
            ("make it first", lambda: exported(served, "from", "csv", tmp_path / "nowhere" / "new")),
            ("no export made", lambda: exported(served, "from", "parquet", tmp_path, overwrite=True)),
            ("out of range", lambda: exported(served, "SELECT id * 4611686018427387904 AS n FROM `from`", "json",
                                              tmp_path / "new")),
            ("doesn't exist", lambda: exported(served, "nothing", "csv", tmp_path / "new"))):
        with pytest.raises(SqlError, match=says):
            call()
    assert [p.name for p in tmp_path.iterdir()] == ["files"], "nothing is left of what failed"
    execute(db, "DELETE FROM `from` WHERE id = 1")
    assert exported(served, "from", "parquet", place, overwrite=True)["rows"] == 1
    assert pq.read_table(place).column("id").to_pylist() == [2]
    assert exported(served, "SELECT id FROM `from` WHERE id < 0", "csv", tmp_path / "none")["files"] == 1
    assert (tmp_path / "none" / "part-00000.csv").read_text() == '"id"\n'


# ------------------------------------------------------------------ writes and reads of many rows
def test_many_rows_in_pieces_of_one_snapshot(spark: SparkSession, served: Served, db: Any) -> None:
    write(numbers(spark, MANY), served, "many", primaryKey="id")
    frame = read(spark, served, table="many")
    assert frame.rdd.getNumPartitions() > 1
    low, high = frame.filter("id < 100"), frame.filter("id >= 100")
    assert low.union(high).count() == MANY == frame.count()  # plans of one DataFrame do not share their filters
    some = read(spark, served, table="many", columns="name", direct="false")
    assert some.columns == ["name"] and some.agg(F.countDistinct("name")).collect()[0][0] == MANY
    part = read(spark, served, table="many", columns="name", where="id BETWEEN 1000 AND 1099")
    assert part.rdd.getNumPartitions() == 1 and part.count() == 100 and part.columns == ["name"]
    execute(db, "INSERT INTO many VALUES (-1, 'new')")
    assert frame.count() == MANY + 1  # each execution sees what is there when it begins
    with pytest.raises(PySparkException, match="Duplicate entry"):
        write(numbers(spark, MANY), served, "many")
    with pytest.raises(PySparkException, match="nothing was written to many: Duplicate entry '5' for key"):
        write(numbers(spark, 10).filter("id = 5"), served, "many")
    assert frame.count() == MANY + 1


def test_all_tasks_of_an_execution_read_one_snapshot(served: Served, spark: SparkSession, db: Any) -> None:
    execute(db, "CREATE TABLE steps (id INT PRIMARY KEY)")
    execute(db, "INSERT INTO steps VALUES (1)")
    reader = NoriaReader({"url": served.url, "table": "steps"}, schema_of([{"name": "id", "type": "int"}]))
    (piece,) = reader.partitions()

    def ids(execution: str, **more: Any) -> list[int]:
        request = {**piece.value, "read": execution, **more}
        return [i for b in reader._streamed(request) for i in b.column(0).to_pylist()]

    assert ids("first") == [1]
    execute(db, "INSERT INTO steps VALUES (2)")
    assert ids("first") == [1] and ids("second") == [1, 2]
    with pytest.raises(Exception, match="the server was started again since this DataFrame was made: load it again"):
        ids("third", life="another")


def test_a_broken_connection_goes_on_with_the_next_row(served: Served, spark: SparkSession,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    write(numbers(spark, 120_000, 1), served, "long")
    reader = NoriaReader({"url": served.url, "table": "long", "direct": "false"},
                         schema_of([{"name": "id", "type": "bigint"}]))
    whole, broken = Server.stream, []

    def breaks(self: Server, *asked: Any) -> Iterator[pa.RecordBatch]:
        for batch in whole(self, *asked):
            yield batch
            if len(broken) < 3:
                broken.append(batch.num_rows)
                raise ConnectionError("broken")

    monkeypatch.setattr(Server, "stream", breaks)
    found = [i for p in reader.partitions() for b in reader.read(p) for i in b.column(0).to_pylist()]
    assert len(broken) == 3 and sorted(found) == list(range(120_000))


def test_views_and_queries_are_whole(spark: SparkSession, served: Served, db: Any) -> None:
    execute(db, "CREATE TABLE votes (story INT, who INT, PRIMARY KEY (story, who))")
    execute(db, "CREATE VIEW votecount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story")
    execute(db, "INSERT INTO votes VALUES (1, 1), (1, 2), (2, 1)")
    rows(db, "SELECT story, COUNT(*) AS n FROM votes WHERE story = 1 GROUP BY story")  # the other key is not present
    counts = read(spark, served, view="votecount")
    assert sorted(map(tuple, counts.collect())) == [(1, 2), (2, 1)]
    assert sorted(map(tuple, read(spark, served, query="SELECT who, SUM(story) AS s FROM votes GROUP BY who").collect())
                  ) == [(1, Decimal(3)), (2, Decimal(1))]
    for wrong, said in (({"view": "nothing"}, "nothing"), ({"query": "DELETE FROM votes"}, "one SELECT"),
                        ({"table": "a", "view": "b"}, "one of the options"),
                        ({"table": "votes", "columns": "x"}, "no column 'x'")):
        with pytest.raises(PySparkException, match=said):
            read(spark, served, **wrong)


# ------------------------------------------------------------------ modes and options of writes
def test_modes(spark: SparkSession, served: Served, db: Any) -> None:
    write(numbers(spark, 5), served, "modes", primaryKey="id")
    write(numbers(spark, 3), served, "modes", "overwrite")
    assert [i for i, _ in rows(db, "SELECT * FROM modes ORDER BY id")] == [0, 1, 2]
    write(numbers(spark, 9), served, "modes", ifExists="ignore")
    with pytest.raises(PySparkException, match="modes is there already"):
        write(numbers(spark, 9), served, "modes", ifExists="error")
    changed = numbers(spark, 4).withColumn("name", F.lit("other"))
    write(changed, served, "modes", onDuplicate="ignore")
    assert rows(db, "SELECT name FROM modes WHERE id IN (0, 3) ORDER BY name") == [("n0",), ("other",)]
    write(changed, served, "modes", onDuplicate="upsert")
    assert rows(db, "SELECT DISTINCT name FROM modes") == [("other",)]
    write(numbers(spark, 2).select("id"), served, "modes", onDuplicate="delete")
    assert rows(db, "SELECT id FROM modes ORDER BY id") == [(2,), (3,)]


def test_bad_rows(spark: SparkSession, served: Served, db: Any) -> None:
    execute(db, "CREATE TABLE short (id BIGINT PRIMARY KEY, name VARCHAR(2))")
    frame = numbers(spark, 12, 1)
    with pytest.raises(PySparkException, match="Data too long for column 'name'"):
        write(frame, served, "short")
    with pytest.raises(PySparkException, match="more than the 1 allowed bad rows"):
        write(frame, served, "short", maxRejects="1")
    assert rows(db, "SELECT COUNT(*) FROM short") == [(0,)]
    write(frame, served, "short", maxRejects="2")
    assert rows(db, "SELECT COUNT(*), MAX(id) FROM short") == [(10, 9)]


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, served: Served, db: Any) -> None:
    write(numbers(spark, 4), served, "whole")

    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if 9 in batch.column(0).to_pylist():
                raise RuntimeError("injected")

    with pytest.raises(PySparkException, match="injected"):
        write(numbers(spark, 10).mapInArrow(fails, "id bigint, name string"), served, "whole")
    assert rows(db, "SELECT COUNT(*) FROM whole") == [(4,)]


@pytest.mark.parametrize("count", [20, 20_000])
def test_what_ran_twice_is_written_once(served: Served, db: Any, count: int) -> None:
    """A task's second run, and a commit whose answer was lost; small and as a load."""
    table = f"twice{count}"
    schema = schema_of([{"name": "id", "type": "bigint"}])
    writer = NoriaWriter({"url": served.url, "table": table}, schema, False)
    batch = pa.record_batch([pa.array(range(count), pa.int64())], names=["id"])
    writer.write(iter([batch]))  # its task was slow: another one ran beside it
    message = writer.write(iter([batch]))
    for _ in range(2):
        writer._sink.done([message, Staged((), writer._sink._id)], 0, writer._sink._id)
    assert rows(db, f"SELECT COUNT(*) FROM {table}") == [(count,)]
    writer.commit([message])
    assert rows(db, f"SELECT COUNT(*) FROM {table}") == [(count,)]


# ------------------------------------------------------------------ streams
def test_batches_of_a_stream_are_written_once(spark: SparkSession, served: Served, db: Any, tmp_path: Path) -> None:
    with serving_feed() as feed:
        feed.add(*((i, f"n{i}", 1) for i in range(5)))

        def run() -> None:
            people = spark.readStream.format("noria").options(url=feed.url, feed="people").load().select("id", "name")
            query = (people.writeStream.format("noria").options(url=served.url, table="people")
                     .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
            try:
                query.processAllAvailable()
            finally:
                query.stop()

        run()
        feed.add((5, "n5", 1))
        run()
        assert rows(db, "SELECT COUNT(*), COUNT(DISTINCT id) FROM people") == [(6, 6)]
        last = max(int(p.name) for p in (tmp_path / "checkpoint" / "commits").iterdir() if p.name.isdigit())
        for path in (tmp_path / "checkpoint" / "commits").glob(f"*{last}*"):
            path.unlink()  # killed before it noted that the batch was done
        run()
        assert rows(db, "SELECT COUNT(*), COUNT(DISTINCT id) FROM people") == [(6, 6)]


def test_a_batch_done_is_remembered_by_who_begins_anew(served: Served, db: Any) -> None:
    schema = schema_of([{"name": "id", "type": "bigint"}])
    batch = pa.record_batch([pa.array([1, 2], pa.int64())], names=["id"])
    scope = f"job-{uuid.uuid4().hex}"
    for number in (0, 0, 1, 0):
        writer = NoriaStreamWriter({"url": served.url, "table": "anew", "id": scope}, schema, False)
        writer.commit([writer.write(iter([batch]))], number)
    assert rows(db, "SELECT COUNT(*) FROM anew") == [(4,)]


def test_nothing_to_write_is_a_write(spark: SparkSession, served: Served, db: Any) -> None:
    write(spark.createDataFrame([], StructType().add("id", "long")), served, "empty")
    assert rows(db, "SELECT COUNT(*) FROM empty") == [(0,)]
    assert read(spark, served, table="empty").count() == 0


def test_a_view_flows_through_spark_into_a_table(spark: SparkSession, served: Served, db: Any, tmp_path: Path) -> None:
    """Its feed, of the server that is written to: all rows, then what changes, whoever stops between."""
    execute(db, "CREATE TABLE ballots (story INT UNSIGNED, who INT, PRIMARY KEY (story, who))")
    execute(db, "CREATE VIEW tallies AS SELECT story, COUNT(*) AS n FROM ballots WHERE story = ? GROUP BY story")
    execute(db, "CREATE TABLE copied (story INT UNSIGNED, n BIGINT, sign BIGINT)")

    def run() -> list[tuple[Any, ...]]:
        told = spark.readStream.format("noria").options(url=served.url, feed="tallies").load()
        query = (told.selectExpr("story", "n", "_sign AS sign").writeStream.format("noria")
                 .options(url=served.url, table="copied").option("checkpointLocation", str(tmp_path / "checkpoint"))
                 .trigger(availableNow=True).start())
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return rows(db, "SELECT story, n, SUM(sign) FROM copied GROUP BY story, n HAVING SUM(sign) > 0 ORDER BY story")

    execute(db, "INSERT INTO ballots VALUES (1, 1), (1, 2), (4000000000, 1)")
    assert run() == [(1, 2, 1), (4000000000, 1, 1)]
    execute(db, "DELETE FROM ballots WHERE story = 1 AND who = 2")
    execute(db, "INSERT INTO ballots VALUES (7, 1)")
    assert run() == [(1, 1, 1), (7, 1, 1), (4000000000, 1, 1)]
