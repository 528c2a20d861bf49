"""The source's stream reader against a feed in memory: exactly once by offset, over restarts and what is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from noria.spark.source import register
from noria.spark.source.stream import NoriaStreamReader
from spark.feeds import Feed, serving_feed

pytestmark = pytest.mark.spark


@pytest.fixture
def feed() -> Iterator[Feed]:
    with serving_feed() as served:
        served.add((1, "a", 1), (2, "b", 1), (1, "a", -1), (1, "A", 1))
        yield served


def drained(spark: SparkSession, feed: Feed, place: Path, **options: str) -> None:
    """Run the stream on what there is, into Parquet files."""
    register(spark)
    rows = spark.readStream.format("noria").options(url=feed.url, feed="people", **options).load()
    query = (rows.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
             .trigger(availableNow=True).start(str(place / "out")))
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def found(spark: SparkSession, place: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(r)[:4] for r in spark.read.parquet(str(place / "out")).collect())


def test_the_content_then_each_change_once(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    drained(spark, feed, tmp_path)
    assert found(spark, tmp_path) == [(1, "A", 1, "7.4"), (2, "b", 1, "7.2")]
    feed.add((3, "c", 1), (2, "b", -1))
    drained(spark, feed, tmp_path)
    assert found(spark, tmp_path)[-2:] == [(2, "b", 1, "7.2"), (3, "c", 1, "7.5")]
    assert (2, "b", -1, "7.6") in found(spark, tmp_path) and len(found(spark, tmp_path)) == 4


def test_from_now_or_a_watermark(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    drained(spark, feed, tmp_path, startingOffsets="7.3")
    assert found(spark, tmp_path) == [(1, "A", 1, "7.4")]
    now = {"url": feed.url, "feed": "people", "startingOffsets": "latest"}
    reader = NoriaStreamReader(now, StructType([]))
    assert reader.initialOffset() == reader.latestOffset() == {"at": "7.4"}
    assert reader.partitions({"at": "7.4"}, {"at": "7.4"}) == []


def test_who_is_too_far_behind_is_told_what_to_do(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    drained(spark, feed, tmp_path)
    feed.add((3, "c", 1), (4, "d", 1))
    feed.oldest = 5
    with pytest.raises(StreamingQueryException, match=r"What came after 7\.4 is lost.*failOnDataLoss=false"):
        drained(spark, feed, tmp_path)
    drained(spark, feed, tmp_path, failOnDataLoss="false")
    assert [r[0] for r in found(spark, tmp_path)] == [1, 1, 2, 2, 3, 4]  # the whole content again
