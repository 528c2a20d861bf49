"""A checkpoint of the base tables, or one of each of several workers, as DataFrames, read by Spark's tasks in ranges of
the key.

Keeps true: a table's DataFrame has its rows at the checkpoint's watermark, as a bag, in shown columns c0, c1, …
in the order of the table's columns; columns that old rows lack have their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from noria.core.types import TableDef
from noria.spark.lowering import coding
from noria.storage.snapshot import Range, read_checkpoint, read_tables, shards_of, split

BROADCAST_BYTES = 10 * 2**20  # a side of a join that turns out smaller is sent to all
PIECES_PER_SLOT = 2  # ranges are of estimated size: some more than slots even them out
LEAST_ROWS = 20_000  # of a range: to read fewer takes less time than to start a task for them


SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}  # Spark's own


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
    shards = shards_of(checkpoint)
    held = read_tables(shards[0])
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
            found[t.name] = reduce(DataFrame.unionAll, [table(spark, shard, as_known, len(shards)) for shard in shards])
    return found


def table(spark: SparkSession, checkpoint: str, definition: TableDef, shards: int = 1) -> DataFrame:
    """One table of the checkpoint, which is one of so many."""
    pieces = max(PIECES_PER_SLOT * spark.sparkContext.defaultParallelism // shards, 1)
    ranges = split(checkpoint, definition, pieces, LEAST_ROWS)
    numbers = spark.range(0, len(ranges), 1, len(ranges))
    schema = coding.shown_schema(definition.fields)
    return numbers.mapInArrow(_reader(checkpoint, definition, ranges), schema)


def _reader(checkpoint: str, definition: TableDef, ranges: list[Range]
            ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of Spark's tasks: from numbers of ranges to their rows."""
    names = [f"c{i}" for i in range(len(definition.columns))]

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            mine = [ranges[n] for n in batch.column(0).to_pylist()]
            for rows in read_checkpoint(checkpoint, definition, mine):
                columns = [c.cast(SMALL[c.type]) if c.type in SMALL else c for c in rows.columns]
                yield pa.RecordBatch.from_arrays(columns, names)

    return read
