"""A snapshot of the base tables as DataFrames, read by Spark's tasks in ranges of the key: the checkpoints of all
workers, of which worker 0's tells the tables.

Keeps true: a table's DataFrame has its rows at the checkpoint's watermark, as a bag, in shown columns c0, c1, …
in the order of the table's columns; columns that old rows lack have their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from noria.core.types import TableDef
from noria.spark.lowering import coding
from noria.storage.encoding import key_parts_of_arrow, pack_keys
from noria.storage.shards import owners, shards_of
from noria.storage.snapshot import Range, read_checkpoint, read_tables, split

BROADCAST_BYTES = 10 * 2**20  # a side of a join that turns out smaller is sent to all
PIECES_PER_SLOT = 2  # ranges are of estimated size: some more than slots even them out
LEAST_ROWS = 20_000  # of a range: to read fewer takes less time than to start a task for them


Piece = tuple[str, Range]  # of a table: in which checkpoint, and which keys
SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}  # Spark's own


@dataclass(frozen=True)
class Misplaced:
    """Rows of a table that a worker has and another one owns.  example: the columns that say so, then the key's."""

    table: str
    worker: int
    owner: int
    rows: int
    example: str

    def __str__(self) -> str:
        return f"{self.rows:,} rows are at worker {self.worker} and belong to worker {self.owner}, as {self.example}"


@cache
def session(spark: SparkSession) -> SparkSession:
    """The session for jobs over checkpoints: one for all, because making one takes longer than a small query.  Spark
    takes what `mapInArrow` gives for as small as the numbers that went in and would send whole tables to every task;
    so sizes decide only once they are known."""
    own = spark.newSession()
    own.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    own.conf.set("spark.sql.adaptive.autoBroadcastJoinThreshold", str(BROADCAST_BYTES))
    return own


def tables(spark: SparkSession, checkpoint: str, wanted: Iterable[TableDef]) -> dict[str, DataFrame]:
    """The wanted tables by name, those that the checkpoint holds, whatever they were called then, with the columns that
    either knows: a position means the same column in both, with the same codes; ValueError where it does not."""
    held = read_tables(shards_of(checkpoint)[0])
    by_id = {t.table_id: t for t in held.values()}
    found: dict[str, DataFrame] = {}
    for t in wanted:
        then = by_id.get(t.table_id) if t.table_id else held.get(t.name)
        if then is not None:
            pairs = zip(t.columns, then.columns, strict=False)
            if any(mine.type.kind is not theirs.type.kind for mine, theirs in pairs):
                raise ValueError(f"table {t.name} has other columns in the snapshot {checkpoint} than in the program: "
                                 "take a new snapshot")
            as_known = then if len(then.columns) > len(t.columns) else replace(t, table_id=then.table_id)
            found[t.name] = table(spark, checkpoint, as_known)
    return found


def table(spark: SparkSession, checkpoint: str, definition: TableDef) -> DataFrame:
    """One table of the checkpoint."""
    ranges = pieces_of(spark, checkpoint, definition)
    numbers = spark.range(0, len(ranges), 1, len(ranges))
    schema = coding.shown_schema(definition.fields)
    return numbers.mapInArrow(_reader(definition, ranges), schema)


def pieces_of(spark: SparkSession, checkpoint: str, definition: TableDef) -> list[Piece]:
    """Ranges that cover the table in the checkpoints of all workers."""
    shards = shards_of(checkpoint)
    each = -(-PIECES_PER_SLOT * spark.sparkContext.defaultParallelism // len(shards))
    return [(shard, some) for shard in shards for some in split(shard, definition, each, LEAST_ROWS)]


def misplaced(spark: SparkSession, checkpoint: str, wanted: Iterable[TableDef]) -> list[Misplaced]:
    """Rows that are at another worker than the one that owns them, of those tables that the snapshot holds."""
    shards = shards_of(checkpoint)
    if len(shards) == 1:
        return []
    held = {t.table_id: t for t in read_tables(shards[0]).values()}
    found: list[Misplaced] = []
    for t in wanted:
        then = held.get(t.table_id)
        if then is None or then.sharded_by is None:
            continue
        pieces = pieces_of(spark, checkpoint, then)
        numbers = spark.range(0, len(pieces), 1, len(pieces))
        wrong = numbers.mapInArrow(_placing(then, pieces, shards), "worker int, owner int, rows bigint, example string")
        counts: dict[tuple[int, int], tuple[int, str]] = {}
        for r in wrong.collect():
            rows, _ = counts.get((r["worker"], r["owner"]), (0, ""))
            counts[r["worker"], r["owner"]] = rows + r["rows"], r["example"]
        found += [Misplaced(t.name, *at, *told) for at, told in sorted(counts.items())]
    return found


@dataclass(frozen=True)
class Repeated:
    """Values of a UNIQUE index that several rows have."""

    table: str
    index: str
    values: int

    def __str__(self) -> str:
        return f"{self.values:,} values of the UNIQUE index {self.index} are of several rows"


def repeated(spark: SparkSession, checkpoint: str, wanted: Iterable[TableDef]) -> list[Repeated]:
    """What is not kept apart among the workers, of those tables that the snapshot holds."""
    shards = shards_of(checkpoint)
    held = {t.table_id: t for t in read_tables(shards[0]).values()} if len(shards) > 1 else {}
    found: list[Repeated] = []
    for t in wanted:
        then = held.get(t.table_id)
        if then is None:
            continue
        for index in then.spread_unique:
            pieces = pieces_of(spark, checkpoint, then)
            numbers = spark.range(0, len(pieces), 1, len(pieces))
            entries = numbers.mapInArrow(_entries(then, pieces, index.columns), "entry binary")
            values = entries.groupBy("entry").count().filter("count > 1").count()
            found += [Repeated(t.name, index.name, values)] if values else []
    return found


def _entries(definition: TableDef, pieces: list[Piece], columns: tuple[int, ...]
             ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of Spark's tasks: from numbers of pieces to the entries of their rows in an index, without NULLs."""
    types = [definition.columns[c].type for c in columns]

    def look(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                shard, some = pieces[n]
                for rows in read_checkpoint(shard, definition, [some], columns):
                    rows = rows.drop_null()
                    entries = pack_keys(key_parts_of_arrow(rows.columns, types))
                    yield pa.record_batch([pa.array(entries, pa.binary())], names=["entry"])

    return look


def _placing(definition: TableDef, pieces: list[Piece], shards: list[str]
             ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of Spark's tasks: from numbers of pieces to what is misplaced in them."""
    by = definition.sharded_by or ()
    read = list(dict.fromkeys([*by, *definition.primary_key])) or [0]

    def look(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                shard, some = pieces[n]
                worker = shards.index(shard)
                for rows in read_checkpoint(shard, definition, [some], read):
                    whose = owners(definition, dict(zip(read, rows.columns, strict=True)), rows.num_rows, len(shards))
                    assert whose is not None
                    for owner in set(np.unique(whose).tolist()) - {worker}:
                        at = np.flatnonzero(whose == owner)
                        example = str(tuple(c[int(at[0])].as_py() for c in rows.columns))
                        yield pa.record_batch(
                            [pa.array([worker], pa.int32()), pa.array([owner], pa.int32()), pa.array([len(at)]),
                             pa.array([example])], names=["worker", "owner", "rows", "example"])

    return look


def _reader(definition: TableDef, ranges: list[Piece]
            ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of Spark's tasks: from numbers of ranges to their rows."""
    names = [f"c{i}" for i in range(len(definition.columns))]

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                shard, some = ranges[n]
                for rows in read_checkpoint(shard, definition, [some]):
                    columns = [c.cast(SMALL[c.type]) if c.type in SMALL else c for c in rows.columns]
                    yield pa.RecordBatch.from_arrays(columns, names)

    return read
