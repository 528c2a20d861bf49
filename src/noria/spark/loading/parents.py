"""Finds the rows of a load that lack the parent of a FOREIGN KEY.

    rows ──keys without NULL──► looked up in a checkpoint ──found──► noted, for `gone`
                                                          └─missing─► another table's key: an orphan
                                                                   └─► the table's own key: an orphan, unless a row of
                                                                       the load that is no orphan has the key

Keeps true: each row that is left has its parents in the checkpoint or among the rows that are left.  The order of the
rows does not matter.  No process holds all keys or all rows: Spark joins them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from noria.core.limits import NULL_CODE
from noria.spark.jobs import snapshot
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.loading.rows.orphans import ReferredKey
from noria.spark.loading.tasks.running import collected, numbers
from noria.spark.loading.tasks.tasks import (
    ROW_BITS,
    Batches,
    Job,
    LoadRefused,
    codes_of,
    each,
    name_of,
    read_split,
)
from noria.storage.offline.stored_keys import StoredKeys, packed

ROUNDS = 100  # of rows that lack a parent because their parent in the load lacks one, and so on
KEY_SCHEMA = pa.schema([("key", pa.int32()), ("wanted", pa.binary())])
ROW_SCHEMA = "key int, place bigint, wanted binary"
_DIRECTORY, _ENDING = "parents", ".keys"  # below the load's directory: the keys that were found
Mask = npt.NDArray[np.bool_]


def without_orphans(spark: SparkSession, progress: Progress, job: Job, keys: Sequence[ReferredKey], checkpoint: str
                    ) -> Job:
    """Return the job with the orphans that its tasks must reject.  Raises LoadRefused after ROUNDS."""
    if not keys:
        return job
    job, place = replace(job, keys=tuple(keys)), os.path.join(job.out, _DIRECTORY)
    os.makedirs(place, exist_ok=True)
    own = snapshot.session(spark)
    with stages(spark, progress, f"looking for the parents of {job.table.name}"):
        splits = numbers(own, len(job.splits))
        missing = _kept(splits.mapInArrow(FindOrphans(job, checkpoint), ROW_SCHEMA), os.path.join(place, "missing"))
        orphans = _orphans(splits, job, missing, place)
        if orphans is None:
            return job
        first = orphans.groupBy("place").agg(F.min("key").alias("key"))
        divided = first.withColumn("split", F.shiftright("place", ROW_BITS)).repartition("split").sortWithinPartitions(
            "place")
        found = collected(divided.mapInArrow(WriteOrphans(place), "split bigint, path string"))
    return replace(job, orphans={r["split"]: r["path"] for r in found})


def _kept(rows: DataFrame, path: str) -> DataFrame:
    """Compute rows once, and read them from files from then on."""
    rows.write.parquet(path)
    return rows.sparkSession.read.schema(rows.schema).parquet(path)


def _orphans(splits: DataFrame, job: Job, missing: DataFrame, place: str) -> DataFrame | None:
    """Return the orphans, (key, place); None if there are none."""
    referring = [n for n, key in enumerate(job.keys) if key.own]
    orphans = missing.filter(~F.col("key").isin(referring)).select("key", "place")
    waiting = missing.filter(F.col("key").isin(referring))
    if not referring or waiting.isEmpty():
        return None if orphans.isEmpty() else orphans
    providers = splits.mapInArrow(OwnKeys(job), "key int, provider bigint, wanted binary")
    edges = _kept(waiting.join(providers, ["key", "wanted"]).select("key", "place", "provider"),
                  os.path.join(place, "edges"))
    known, count, live = orphans, -1, edges
    for n in range(ROUNDS):
        left = waiting.join(live.select("key", "place").distinct(), ["key", "place"], "left_anti")
        known = _kept(orphans.union(left.select("key", "place")), os.path.join(place, f"orphans-{n}"))
        if (more := known.select("place").distinct().count()) == count or not more:
            return known if more else None
        count = more
        live = edges.join(known.select(F.col("place").alias("provider")).distinct(), ["provider"], "left_anti")
    raise LoadRefused(f"rows of the files follow from each other more than {ROUNDS} times, up to one without a parent; "
                      "nothing was loaded: load the parents first, or add the missing ones")


def gone(spark: SparkSession, progress: Progress = ignore_progress, *, keys: tuple[ReferredKey, ...], checkpoint: str,
         out: str) -> int:
    """Count the keys that an earlier checkpoint had, for the load in the directory `out`, and this one lacks."""
    place = os.path.join(out, _DIRECTORY)
    files = [os.path.join(place, name) for name in sorted(os.listdir(place)) if name.endswith(_ENDING)]
    with stages(spark, progress, "looking for the parents again"):
        task = CountGoneParents(keys, checkpoint, tuple(files))
        found = collected(numbers(spark, len(files)).mapInArrow(task, "lost bigint"))
    return sum(r["lost"] for r in found)


# ------------------------------------------------------------------ tasks
@contextmanager
def _stored(keys: Sequence[ReferredKey], checkpoint: str) -> Iterator[list[StoredKeys | None]]:
    """Open the parents' keys in the checkpoint.  None: there is no such table."""
    opened: list[StoredKeys | None] = []
    try:
        for key in keys:
            opened.append(None if key.parent is None else StoredKeys(checkpoint, key.parent, key.parent_columns))
        yield opened
    finally:
        for one in filter(None, opened):
            one.close()


def _absent(stored: StoredKeys | None, keys: Sequence[bytes]) -> set[bytes]:
    return set(keys) if stored is None else stored.absent(keys)


def _numbered(job: Job, batch: pa.RecordBatch, columns: Sequence[int]) -> Mask:
    """The rows whose key has an AUTO_INCREMENT number that is not generated yet."""
    auto = job.table.auto_increment
    if auto is None or auto not in columns:
        return np.zeros(batch.num_rows, np.bool_)
    codes = codes_of(batch, job.table.columns[auto].name)
    wanted: Mask = (codes == NULL_CODE) | (codes == 0)
    return wanted


def _keyed(job: Job, batch: pa.RecordBatch, columns: Sequence[int]) -> tuple[npt.NDArray[np.int64], list[bytes]]:
    """The rows of a batch that have values in all of these columns, and their keys."""
    there = ~_numbered(job, batch, columns)
    for c in columns:
        there &= batch.column(c).is_valid().to_numpy(zero_copy_only=False)
    mine, types = batch.filter(pa.array(there)), [job.table.columns[c].type for c in columns]
    return np.flatnonzero(there), packed([mine.column(c) for c in columns], types)


def _placed(job: Job, number: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A split's good rows, and the place of each batch's first one."""
    at = number << ROW_BITS
    for batch in read_split(job, job.splits[number], None):
        if batch.num_rows:
            yield at, batch
        at += batch.num_rows


def _rows(key: int, places: npt.NDArray[np.int64], wanted: Sequence[bytes | None], name: str = "place"
          ) -> pa.RecordBatch:
    return pa.record_batch([pa.array(np.full(len(places), key, np.int32)), pa.array(places),
                            pa.array(wanted, pa.binary())], names=["key", name, "wanted"])


@dataclass(frozen=True)
class FindOrphans:
    """A task that looks up the keys of its splits.  It yields rows whose key is not stored, and notes other keys."""

    job: Job
    checkpoint: str

    def __call__(self, numbers: Batches) -> Batches:
        path = os.path.join(self.job.out, _DIRECTORY, f"{name_of('found')}{_ENDING}")
        with _stored(self.job.keys, self.checkpoint) as stored, pa.OSFile(path, "wb") as file, \
                pa.ipc.new_file(file, KEY_SCHEMA) as noted:
            for number in each(numbers):
                for at, batch in _placed(self.job, number):
                    for n, key in enumerate(self.job.keys):
                        unnumbered = np.flatnonzero(_numbered(self.job, batch, key.columns))
                        if len(unnumbered):  # no parent can be known to have a number that is generated later
                            yield _rows(n, unnumbered + at, [None] * len(unnumbered))
                        rows, wanted = _keyed(self.job, batch, key.columns)
                        absent = _absent(stored[n], wanted)
                        there = sorted(set(wanted) - absent)
                        noted.write_batch(pa.record_batch(
                            [pa.array(np.full(len(there), n, np.int32)), pa.array(there, pa.binary())], KEY_SCHEMA))
                        lacking = [i for i, w in enumerate(wanted) if w in absent] if absent else []
                        if lacking:
                            yield _rows(n, rows[lacking] + at, [wanted[i] for i in lacking])


@dataclass(frozen=True)
class OwnKeys:
    """A task that yields the keys to which rows of the same load may refer."""

    job: Job

    def __call__(self, numbers: Batches) -> Batches:
        for number in each(numbers):
            for at, batch in _placed(self.job, number):
                for n, key in enumerate(self.job.keys):
                    if key.own:
                        rows, has = _keyed(self.job, batch, key.parent_columns)
                        yield _rows(n, rows + at, has, "provider")


@dataclass(frozen=True)
class WriteOrphans:
    """A task that writes a file for each split: the places of its orphans, ascending, and the key that each lacks."""

    place: str

    def __call__(self, batches: Batches) -> Batches:
        found = [(b.column("place").to_numpy(), b.column("key").to_numpy()) for b in batches]
        if not found:
            return
        places, keys = (np.concatenate(some).astype(np.int64) for some in zip(*found, strict=True))
        splits = places >> ROW_BITS
        for split in np.unique(splits).tolist():
            mine, path = splits == split, os.path.join(self.place, f"{name_of(f'orphans-of-{split}')}.npy")
            np.save(path, np.stack([places[mine] - (split << ROW_BITS), keys[mine]]))
            yield pa.record_batch([pa.array([split], pa.int64()), pa.array([path])], names=["split", "path"])


@dataclass(frozen=True)
class CountGoneParents:
    """A task that counts the keys of some files that the checkpoint lacks."""

    keys: tuple[ReferredKey, ...]
    checkpoint: str
    files: tuple[str, ...]

    def __call__(self, numbers: Batches) -> Batches:
        lost = 0
        with _stored(self.keys, self.checkpoint) as stored:
            for number in each(numbers):
                with pa.memory_map(self.files[number]) as file, pa.ipc.open_file(file) as held:
                    for i in range(held.num_record_batches):
                        batch = held.get_batch(i)
                        for n in np.unique(batch.column("key").to_numpy()).tolist():
                            mine = batch.filter(pa.array(batch.column("key").to_numpy() == n))
                            lost += len(_absent(stored[n], mine.column("wanted").to_pylist()))
        yield pa.record_batch([pa.array([lost], pa.int64())], names=["lost"])
