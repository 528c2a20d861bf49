"""Reads a snapshot of the base tables as DataFrames; Spark's tasks read ranges of the key.

A snapshot consists of the checkpoints of all workers; worker 0's has the catalog.

Keeps true: a table's DataFrame is the bag of its rows at the checkpoint's watermark.  It has shown columns c0, c1, …
in the table's order.  If an old row lacks a column, the value is the column's default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from noria.core.types import TableDef
from noria.spark.lowering import coding
from noria.storage.format.encoding import key_parts_of_arrow, pack_keys
from noria.storage.offline.snapshot import KeyRange, read_checkpoint, read_tables, split
from noria.storage.tables.shards import owners, shards_of

BROADCAST_BYTES = 10 * 2**20  # Spark broadcasts a side of a join that is found to be smaller
RANGES_PER_SLOT = 2  # the sizes of ranges are estimates, so more ranges than slots balance the load
LEAST_ROWS = 20_000  # of a range: fewer rows are read faster than a task starts


ShardRange = tuple[str, KeyRange]  # of a table: a checkpoint, and a range of keys
Look = Callable[[int, str, KeyRange], Iterator[pa.RecordBatch]]  # reads a range of the table with this number
SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}  # Spark's own


@dataclass(frozen=True)
class Misplaced:
    """Rows of a table that a worker stores and another one owns.  example: a row's partition columns and key."""

    table: str
    worker: int
    owner: int
    rows: int
    example: str

    def __str__(self) -> str:
        return f"{self.rows:,} rows are at worker {self.worker} and belong to worker {self.owner}, as {self.example}"


@cache
def session(spark: SparkSession) -> SparkSession:
    """Return the session that all jobs over checkpoints share: a new session takes longer than a small query.

    Spark assumes that the output of `mapInArrow` is as small as its input, here numbers, and would broadcast large
    tables.  So it may broadcast only a side whose size it has measured.
    """
    own = spark.newSession()
    own.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    own.conf.set("spark.sql.adaptive.autoBroadcastJoinThreshold", str(BROADCAST_BYTES))
    return own


def tables(spark: SparkSession, checkpoint: str, wanted: Iterable[TableDef]) -> dict[str, DataFrame]:
    """Return the wanted tables that the checkpoint holds, by name."""
    return {name: table(spark, checkpoint, t) for name, t in held_of(checkpoint, wanted).items()}


def held_of(checkpoint: str, wanted: Iterable[TableDef]) -> dict[str, TableDef]:
    """Return definitions of the wanted tables that the checkpoint holds, by their present name.

    A table that was renamed is found by its id.  Of the two definitions, the one with more columns is returned: a
    position means the same column in both.  Raises ValueError if the types at a position differ in kind.
    """
    held = read_tables(shards_of(checkpoint)[0])
    by_id = {t.table_id: t for t in held.values()}
    found: dict[str, TableDef] = {}
    for t in wanted:
        then = by_id.get(t.table_id) if t.table_id else held.get(t.name)
        if then is not None:
            pairs = zip(t.columns, then.columns, strict=False)
            if any(mine.type.kind is not theirs.type.kind for mine, theirs in pairs):
                raise ValueError(f"table {t.name} has other columns in the snapshot {checkpoint} than in the program: "
                                 "take a new snapshot")
            as_known = then if len(then.columns) > len(t.columns) else replace(t, table_id=then.table_id)
            found[t.name] = as_known
    return found


def table(spark: SparkSession, checkpoint: str, definition: TableDef) -> DataFrame:
    """Return a table of the checkpoint."""
    ranges = ranges_of(spark, checkpoint, definition)
    numbers = spark.range(0, len(ranges), 1, len(ranges))
    schema = coding.shown_schema(definition.fields)
    return numbers.mapInArrow(_reader(definition, ranges), schema)


def ranges_of(spark: SparkSession, checkpoint: str, definition: TableDef) -> list[ShardRange]:
    """Return ranges that cover the table in the checkpoints of all workers."""
    shards = shards_of(checkpoint)
    each = -(-RANGES_PER_SLOT * spark.sparkContext.defaultParallelism // len(shards))
    return [(shard, some) for shard in shards for some in split(shard, definition, each, LEAST_ROWS)]


def misplaced(spark: SparkSession, checkpoint: str, wanted: Iterable[TableDef]) -> list[Misplaced]:
    """Find rows that are stored on another worker than their owner.  One job reads all wanted tables."""
    shards = shards_of(checkpoint)
    looked = [t for t in _held(shards, wanted) if t.sharded_by is not None]
    if not looked:
        return []
    wrong = _over(spark, checkpoint, looked, _placing(looked, shards),
                  "at int, worker int, owner int, rows bigint, example string")
    counts: dict[tuple[int, int, int], tuple[int, str]] = {}
    for r in wrong.collect():
        rows, _ = counts.get(place := (r["at"], r["worker"], r["owner"]), (0, ""))
        counts[place] = rows + r["rows"], r["example"]
    return [Misplaced(looked[at].name, worker, owner, *found) for (at, worker, owner), found in sorted(counts.items())]


def _held(shards: list[str], wanted: Iterable[TableDef]) -> list[TableDef]:
    """Return the snapshot's definitions of the wanted tables, under their present names; none for one worker."""
    then = {t.table_id: t for t in read_tables(shards[0]).values()} if len(shards) > 1 else {}
    return [replace(then[t.table_id], name=t.name) for t in wanted if t.table_id in then]


def _over(spark: SparkSession, checkpoint: str, some: Sequence[TableDef], look: Look, schema: str) -> DataFrame:
    """Apply a function to all ranges of some tables, by one job; return the rows that it yields."""
    ranges = [(at, *r) for at, t in enumerate(some) for r in ranges_of(spark, checkpoint, t)]
    tasks = min(len(ranges), RANGES_PER_SLOT * spark.sparkContext.defaultParallelism)
    dealt = [r for n in range(tasks) for r in ranges[n::tasks]]  # different tasks read a large table

    def found(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                yield from look(*dealt[n])

    return spark.range(0, len(dealt), 1, tasks).mapInArrow(found, schema)


@dataclass(frozen=True)
class Repeated:
    """Values of a UNIQUE index that several rows share."""

    table: str
    index: str
    values: int

    def __str__(self) -> str:
        return f"{self.values:,} values of the UNIQUE index {self.index} are of several rows"


def repeated(spark: SparkSession, checkpoint: str, wanted: Iterable[TableDef]) -> list[Repeated]:
    """Find values that repeat in UNIQUE indexes over several workers.  One job reads all wanted tables."""
    looked = [t for t in _held(shards_of(checkpoint), wanted) if t.spread_unique]
    if not looked:
        return []
    entries = _over(spark, checkpoint, looked, _entries(looked), "at int, unique int, entry binary")
    twice = entries.groupBy("at", "unique", "entry").count().filter("count > 1").groupBy("at", "unique").count()
    return [Repeated(looked[at].name, looked[at].spread_unique[unique].name, values)
            for at, unique, values in sorted(tuple(r) for r in twice.collect())]


def _entries(some: Sequence[TableDef]) -> Look:
    """Return a function that yields the entries of a range, without NULLs, of UNIQUE indexes over several workers."""
    def look(at: int, shard: str, key_range: KeyRange) -> Iterator[pa.RecordBatch]:
        for n, index in enumerate(some[at].spread_unique):
            types = [some[at].columns[c].type for c in index.columns]
            for rows in read_checkpoint(shard, some[at], [key_range], index.columns):
                rows = rows.drop_null()
                entries = pack_keys(key_parts_of_arrow(rows.columns, types))
                places = [pa.repeat(pa.scalar(p, pa.int32()), len(entries)) for p in (at, n)]
                yield pa.record_batch([*places, pa.array(entries, pa.binary())], names=["at", "unique", "entry"])

    return look


def _placing(some: Sequence[TableDef], shards: list[str]) -> Look:
    """Return a function that counts the misplaced rows of a range."""
    def look(at: int, shard: str, key_range: KeyRange) -> Iterator[pa.RecordBatch]:
        definition, worker = some[at], shards.index(shard)
        read = list(dict.fromkeys([*(definition.sharded_by or ()), *definition.primary_key])) or [0]
        for rows in read_checkpoint(shard, definition, [key_range], read):
            whose = owners(definition, dict(zip(read, rows.columns, strict=True)), rows.num_rows, len(shards))
            assert whose is not None
            for owner in set(np.unique(whose).tolist()) - {worker}:
                wrong = np.flatnonzero(whose == owner)
                example = str(tuple(c[int(wrong[0])].as_py() for c in rows.columns))
                yield pa.record_batch(
                    [*(pa.array([n], pa.int32()) for n in (at, worker, owner)), pa.array([len(wrong)]),
                     pa.array([example])], names=["at", "worker", "owner", "rows", "example"])

    return look


def as_spark(t: pa.DataType) -> pa.DataType:
    """Return the Arrow type that Spark uses for this one."""
    return SMALL.get(t, t)


def renamed(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Rename the columns, and cast them to Arrow types that Spark uses."""
    return pa.RecordBatch.from_arrays([c.cast(as_spark(c.type)) for c in rows.columns], names)


def _reader(definition: TableDef, ranges: list[ShardRange]
            ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of Spark's tasks, which maps numbers of ranges to their rows."""
    names = [f"c{i}" for i in range(len(definition.columns))]

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                shard, some = ranges[n]
                for rows in read_checkpoint(shard, definition, [some]):
                    yield renamed(rows, names)

    return read
