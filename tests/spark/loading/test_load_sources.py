"""What a load names becomes plain files: compressed, arrays of JSON, far away."""

from __future__ import annotations

import gzip
import http.server
import json
import random
import threading
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from noria.spark.jobs.progress import ignore_progress
from noria.spark.loading.inferring import infer
from noria.spark.loading.rows.arrays import Lines, NoArray
from noria.spark.loading.rows.files import BadFile, InputFile
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.sources import gathered
from noria.spark.loading.tasks.tasks import LoadRefused

CSV = b"id,name\n" + b"".join(b"%d,n%d\n" % (i, i) for i in range(20_000))


def lines(data: bytes, rng: random.Random) -> list[str]:
    """The lines of an array that comes in blocks of any size."""
    made, out, at = Lines(), b"", 0
    while at < len(data):
        size = rng.choice((1, 2, 7, 100))
        out += made.of(data[at:at + size])
        at += size
    made.end()
    return [one for one in out.decode().split("\n") if one.strip()]


def nested(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randint(0, 4 if depth < 3 else 2)
    if kind == 3:
        return [nested(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind == 4:
        return {nested_text(rng): nested(rng, depth + 1) for _ in range(rng.randint(0, 3))}
    return rng.choice((None, True, 1.5, -3)) if kind else nested_text(rng)


def nested_text(rng: random.Random) -> str:
    return "".join(rng.choice('a"\\[]{},\n é') for _ in range(rng.randint(0, 6)))


@pytest.mark.parametrize("seed", range(60))
def test_elements_of_an_array_are_lines_however_it_is_cut(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    elements = [nested(rng) for _ in range(rng.randint(0, 8))]
    text = json.dumps(elements, indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5)
    assert [json.loads(one) for one in lines(f" {text}\r\n".encode(), rng)] == elements
    if elements:
        with pytest.raises(NoArray, match="does not end"):
            lines(text.encode()[:-1], rng)
    for more in ("x", "[]", ",", "]"):
        with pytest.raises(NoArray, match="more follows"):
            lines(f"{text} {more}".encode(), rng)


def test_plain_files_stay_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(CSV)
    assert gathered(None, ignore_progress, [str(path)], TextFormat(),
                    str(tmp_path / "place")) == (  # Spark is not asked
        InputFile(str(path), str(path), "csv"),)
    for name, says in (("nothing.csv", "there is no such file"), ("", "is not a file"),
                       ("a.csv.bz2", "unpack it first"),
                       ("a.parquet.gz", "compressed inside"), ("a.unknown", "format is not known")):
        if name not in ("", "nothing.csv"):
            (tmp_path / name).write_bytes(CSV)
        with pytest.raises(BadFile, match=says) as told:
            gathered(None, ignore_progress, [str(tmp_path / name)], TextFormat(), str(tmp_path / "place"))
        assert str(tmp_path / name) in str(told.value)


def made(spark: SparkSession, place: Path, *names: object) -> list[tuple[str, str, bytes]]:
    """The name, the format and the bytes of each file."""
    return [(s.shown, s.format, Path(s.path).read_bytes())
            for s in gathered(spark, ignore_progress, [str(n) for n in names], TextFormat(), str(place))]


@pytest.mark.spark
def test_compressed_files_and_arrays(spark: SparkSession, tmp_path: Path) -> None:
    gz, zst, array = tmp_path / "a.csv.gz", tmp_path / "b.CSV.zst", tmp_path / "c.json.gz"
    half = len(CSV) // 2
    gz.write_bytes(gzip.compress(CSV[:half]) + gzip.compress(CSV[half:]))
    zst.write_bytes(pa.compress(CSV, "zstd", asbytes=True))
    array.write_bytes(gzip.compress(b'\xef\xbb\xbf\n [{"id": 1,\n "name": "[,"},\n 7, {"id": 2}]\n'))
    found = made(spark, tmp_path / "place", gz, zst, array)
    assert found[:2] == [(str(gz), "csv", CSV), (str(zst), "csv", CSV)]
    assert [json.loads(one) for one in found[2][2].split(b"\n") if one.strip()] == [
        {"id": 1, "name": "[,"}, 7, {"id": 2}]
    for path, data, says in ((gz, gz.read_bytes()[:-20], "cut off or damaged"),
                             (zst, zst.read_bytes()[:-20], "cut off or damaged"), (gz, CSV, "cut off or damaged"),
                             (array, gzip.compress(b"[{}"), "no array of JSON: the array does not end")):
        path.write_bytes(data)
        with pytest.raises(BadFile, match=says) as told:
            made(spark, tmp_path / "place", path)
        assert str(path) in str(told.value)


@pytest.mark.spark
def test_the_table_that_files_would_fit(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text('id,n,day,at,x,yes,"odd`name"\n1,3000000000,2026-01-02,2026-01-02 03:04:05,1.5,'
                                       'true,a\n2,\\N,,,,,"b\n,"\n')
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b'[{"b": 1, "a": "x", "c": true}, 7, {"d": 0.5}]'))
    pq.write_table(pa.table({"k": ["x"], "n": pa.array([1], pa.int16()), "p": pa.array([Decimal("1.50")])}),
                   tmp_path / "c.parquet")
    pq.write_table(pa.table({"k": ["x"], "list": [[1]]}), tmp_path / "d.parquet")

    places = (str(tmp_path / f"place-{i}") for i in range(9))

    def made(*names: str, keys: tuple[str, ...] = (), **reading: Any) -> str:
        found = infer(spark, table="t", files=[str(tmp_path / n) for n in names], reading=TextFormat(**reading),
                      keys=keys, place=next(places))
        return found.statement.removeprefix("CREATE TABLE `t` (").removesuffix(")")

    assert made("a[1].csv", multiline=True) == (
        "`id` INT, `n` BIGINT, `day` DATE, `at` DATETIME(6), `x` DECIMAL(18,1), `yes` TEXT, `odd``name` TEXT")
    assert made("b.json.gz", keys=("b", "A")) == (
        "`a` VARCHAR(255) NOT NULL, `b` INT NOT NULL, `c` BOOL, `d` DECIMAL(18,1), PRIMARY KEY (`b`, `A`)")
    assert made("c.parquet") == "`k` TEXT, `n` SMALLINT, `p` DECIMAL(3,2)"
    for names, keys, says in ((("d.parquet",), (), "the column 'list' is array<bigint>"),
                              (("c.parquet",), ("q",), "--primary-key names 'q'"),
                              (("c.parquet", "a[1].csv"), (), "of several formats")):
        with pytest.raises(LoadRefused, match=says):
            made(*names, keys=keys)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """A web server with a file."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "far.csv.gz").write_bytes(gzip.compress(CSV))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "site")))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.spark
def test_urls_by_sparks_connectors(spark: SparkSession, tmp_path: Path, site: str) -> None:
    lake = tmp_path / "lake"
    (lake / "day-1").mkdir(parents=True)
    for name in ("day-1/a.csv", "day-1/b.csv", "day-1/_SUCCESS", "c.csv"):
        (lake / name).write_bytes(CSV + name.encode())
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.lake.link./data", f"file://{lake}")
    place = tmp_path / "place"
    found = made(spark, place, "viewfs://lake/data/day-*/*.csv", "viewfs://lake/data/c.csv", "viewfs://lake/data/day-1")
    names = ["day-1/a.csv", "day-1/b.csv", "c.csv", "day-1/a.csv", "day-1/b.csv"]
    assert found == [(f"viewfs://lake/data/{n}", "csv", CSV + n.encode()) for n in names]
    assert made(spark, tmp_path / "place-2", f"{site}/far.csv.gz") == [(f"{site}/far.csv.gz", "csv", CSV)]
    for url, says in (("viewfs://lake/data/none-*.csv", "nothing is there that matches"),
                      (f"{site}/absent.csv", "cannot be read by Spark's connector"),
                      ("nosuch://b/c.csv", "Spark has no connector for nosuch:// here")):
        with pytest.raises(BadFile, match=says) as told:
            made(spark, tmp_path / "place-3", url)
        assert url in str(told.value)
