"""The Spark tasks of a bulk load (`load.py`): they encode splits, and write sorted entries to files.

Tasks send entries (key, value, place in the files) in *parcels*: rows (part, kind, data).  `part` is a range of a
family's keys, and the number of its Spark partition.  `data` is an Arrow batch of entries.  So Spark exchanges few
large rows, and the task that owns a range sorts it.  A task that wrote files or rejects sends a `TaskReport`, which is
another kind of parcel; later tasks pass it on.

Keeps true: a task's attempt is in the names of its files, so no file of a repeated task is in two reports.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from noria.core.batch import Codes
from noria.core.codec import Codec
from noria.core.columns_codec import to_stream
from noria.core.integers import span
from noria.core.limits import NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import BIGINT, TableDef
from noria.core.values import decode, from_arrow
from noria.spark.loading.rows import checking, files
from noria.spark.loading.rows.checking import ColumnMap
from noria.spark.loading.rows.files import Reject, Split
from noria.spark.loading.rows.orphans import Orphans, ReferredKey
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.ranges import KeyRanges
from noria.spark.loading.tasks.rejects import kept
from noria.storage.format.catalog import family_of
from noria.storage.format.encoding import unpack_rows
from noria.storage.tables.shards import owners
from noria.storage.tables.sst import ENTRY, ROW_NUMBER, bag_rows, entries, write_file
from noria.storage.tables.table import Index

PARCEL_SCHEMA = "part int, kind string, data binary"
ENTRIES, REPORT = "entries", "report"
ROW_BITS = 40  # the low bits of a place: the row in its split; the high bits are the split
SORTED_ROWS = 50_000  # of a sorted range, written at once
EXAMPLES = 5
SAMPLED_SPLITS = 4  # read by the driver to compute the bounds of ranges
SAMPLED_TEXT_BYTES = 128 * 1024  # read from each sampled part of a text file
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Job:
    """The load as data, which each task receives."""

    table: TableDef
    indexes: tuple[Index, ...]
    splits: tuple[Split, ...]
    maps: dict[str, ColumnMap]
    reading: TextFormat
    out: str
    load: int  # makes the row numbers of a bag differ from those of other loads
    now: datetime
    max_rejects: int | None
    numbers: dict[int, int] = field(default_factory=dict)  # split -> its first AUTO_INCREMENT number
    workers: int = 1  # the number of shards
    keys: tuple[ReferredKey, ...] = ()
    orphans: dict[int, str] = field(default_factory=dict)  # split -> the file of its rows that lack a parent

    def with_numbers(self, numbers: dict[int, int]) -> Job:
        return replace(self, numbers=numbers)

    def rows(self, number: int, rejected: Rejected | None) -> Iterator[tuple[pa.RecordBatch, Codes]]:
        """Call `rows_of` for this job."""
        return rows_of(self, number, rejected)

    def sampled(self) -> Iterator[pa.RecordBatch]:
        """Read a sample of rows from all parts of the files, in the driver."""
        few = replace(self, splits=tuple(_spread(self.splits)), orphans={})
        for number in range(len(few.splits)):
            yield from (batch for batch, _ in rows_of(few, number, None))

    def repeated(self, index: Index, count: int) -> str:
        """Return the error message for `count` rows that repeat a key of a UNIQUE index."""
        names = ", ".join(self.table.columns[c].name for c in index.columns)
        return (f"{count} rows of the files repeat a key of the UNIQUE index on {self.table.name} ({names}); "
                "nothing was loaded: remove them")

    @property
    def families(self) -> list[Index | None]:
        """The table's own family, then its indexes."""
        return [None, *self.indexes]

    def family(self, number: int) -> str:
        index = self.families[number]
        return family_of(self.table) if index is None else index.family


@dataclass(frozen=True)
class EntryFile:
    """A file that a task wrote.  first: its first key, by which the files of a family are ordered."""

    family: str
    path: str
    rows: int
    first: bytes
    worker: int = 0


@dataclass(frozen=True)
class TaskReport:
    """The results of a task, except the entries that it sent.  `duplicate`: the error message if a UNIQUE key repeats.
    `left_out`: the places of rows that were rejected because their primary key repeats."""

    files: tuple[EntryFile, ...] = ()
    rejected: int = 0
    reject_file: str = ""
    examples: tuple[str, ...] = ()
    auto_increment: int = 0
    duplicate: str = ""
    left_out: tuple[int, ...] = ()

    def parcel(self) -> pa.RecordBatch:
        return _parcels([0], REPORT, [REPORTS.encode(self)])

    @staticmethod
    def from_bytes(data: bytes) -> TaskReport:
        report = REPORTS.decode(data)
        assert isinstance(report, TaskReport)
        return report


REPORTS = Codec(TaskReport)


def _parcels(parts: list[int], kind: str, data: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(parts, pa.int32()), pa.array([kind] * len(parts)), pa.array(data, pa.binary())],
        ["part", "kind", "data"])


def _packed(batch: pa.RecordBatch) -> bytes:
    data: bytes = to_stream(batch).to_pybytes()
    return data


# ------------------------------------------------------------------ reading
@dataclass
class Rejected:
    """Counts a task's bad rows, and writes them to the task's own file, which `rejects.gather` reads."""

    job: Job
    name: str
    count: int = 0
    examples: list[str] = field(default_factory=list)
    path: str = ""

    def add(self, rejects: Iterable[Reject], split: int | None = None) -> None:
        """Add rejects.  Raises LoadRefused if they are more than allowed.  split: the split that counts their lines."""
        rejects = list(rejects)
        if not rejects:
            return
        self.path = os.path.join(self.job.out, f"{self.name}.rejects")
        with open(self.path, "a", encoding="utf-8", errors="backslashreplace") as out:
            out.writelines(kept(split, r) for r in rejects)
        self.count += len(rejects)
        self.examples += [r.reason for r in rejects][: EXAMPLES - len(self.examples)]
        limit = self.job.max_rejects
        if limit is not None and self.count > limit:
            raise LoadRefused(f"more than the {limit} allowed bad rows; nothing was loaded. "
                              f"First: {'; '.join(self.examples)}")

    def report(self, **more: Any) -> TaskReport:
        return TaskReport(rejected=self.count, reject_file=self.path, examples=tuple(self.examples), **more)


class LoadRefused(Exception):
    """The load failed, and nothing is ingested.  The message says why, and what to do."""


def name_of(stage: str) -> str:
    """Return a name for the files of this attempt of this task."""
    context = TaskContext.get()
    return f"{stage}-{context.partitionId()}-{context.taskAttemptId()}"


def read_split(job: Job, split: Split, rejected: Rejected | None) -> Iterator[pa.RecordBatch]:
    """Read the split's good rows, with the table's column names."""
    mapping, fill = job.maps[split.path], checking.defaults(job.table, job.now)
    columns = {n: job.table.columns[i] for i, n in enumerate(mapping.names) if n is not None}
    path = job.orphans.get(split.number)
    orphans = None if path is None else Orphans(path, job.table, job.keys).of
    for chunk in files.read(split, job.reading, columns):
        csv = job.reading if split.format == "csv" else None
        batch, bad = checking.convert(chunk, mapping, job.table, fill, split.shown, csv, orphans)
        if rejected is not None:
            rejected.add(bad, split.number)
        yield batch


def _spread(splits: Sequence[Split]) -> Iterator[Split]:
    """Choose a few splits over all files; of text files only parts."""
    step = max(1, len(splits) // SAMPLED_SPLITS)
    parts = max(1, SAMPLED_SPLITS // len(splits))
    for split in splits[::step]:
        if split.format == "parquet":
            yield split
            continue
        size = split.end - split.start
        for p in range(parts):
            start, end = split.start + p * size // parts, split.start + (p + 1) * size // parts
            yield replace(split, start=start, end=min(start + SAMPLED_TEXT_BYTES, end))


def count_unnumbered(job: Job) -> Callable[[Batches], Batches]:
    """Return a task that counts, for each split, the rows that need an AUTO_INCREMENT number, and finds the greatest
    number in the files."""
    auto = job.table.auto_increment
    assert auto is not None
    column = job.table.columns[auto].name

    def count(numbers: Batches) -> Batches:
        for number in each(numbers):
            wanted, most = 0, 0
            for batch in read_split(job, job.splits[number], None):
                codes = codes_of(batch, column)
                wanted += int(((codes == NULL_CODE) | (codes == 0)).sum())
                most = max(most, int(codes.max(initial=0)))
            yield pa.record_batch([pa.array([x], pa.int64()) for x in (number, wanted, most)],
                                  names=["split", "unnumbered", "most"])

    return count


def each(numbers: Batches) -> Iterator[int]:
    for batch in numbers:
        yield from batch.column(0).to_pylist()


def codes_of(batch: pa.RecordBatch, column: str) -> Codes:
    """The codes of a column of integers."""
    return from_arrow(batch.column(column), BIGINT, checking.NO_SYMBOLS)


# ------------------------------------------------------------------ rows to entries
def rows_of(job: Job, number: int, rejected: Rejected | None) -> Iterator[tuple[pa.RecordBatch, Codes]]:
    """Read a split's rows, and add AUTO_INCREMENT numbers and a bag's row numbers.  Yields batches with the place of
    each row in the files.  Every call yields the same."""
    at, next_number = 0, job.numbers.get(number, 0)
    for batch in read_split(job, job.splits[number], rejected):
        if job.table.auto_increment is not None:
            batch, next_number = _with_numbers(batch, job.table, next_number)
        if not job.table.primary_key:
            batch = batch.append_column(ROW_NUMBER, pa.array(bag_rows(job.load, number, at, batch.num_rows)))
        yield batch, np.arange(at, at + batch.num_rows) + (number << ROW_BITS)
        at += batch.num_rows


def _with_numbers(batch: pa.RecordBatch, table: TableDef, next_number: int) -> tuple[pa.RecordBatch, int]:
    """Number the rows with NULL or 0 in the AUTO_INCREMENT column.  Returns the batch and the next free number."""
    auto = table.auto_increment
    assert auto is not None
    codes = codes_of(batch, table.columns[auto].name)
    unnumbered = (codes == NULL_CODE) | (codes == 0)
    count = int(unnumbered.sum())
    if not count:
        return batch, next_number
    codes = codes.copy()
    codes[unnumbered] = span(next_number, count)
    return batch.set_column(auto, table.columns[auto].name, pa.array(codes)), next_number + count


@dataclass(frozen=True)
class Encode:
    """A task that encodes its splits as entries of some families, and sends each entry to its part.

    left_out: the places of rows that must not be stored, ascending.  first: this stage is the first to read the files,
    and writes their rejects.
    """

    job: Job
    ranges: KeyRanges
    families: tuple[int, ...]
    first: bool = True
    left_out: tuple[int, ...] = ()

    def __call__(self, numbers: Batches) -> Batches:
        rejected = Rejected(self.job, name_of("read")) if self.first else None
        mark = GreatestNumber(self.job)
        out = np.array(self.left_out, np.int64)
        for number in each(numbers):
            for batch, places in self.job.rows(number, rejected):
                if len(out):
                    kept = ~np.isin(places, out)
                    batch, places = batch.filter(pa.array(kept)), places[kept]
                if not batch.num_rows:  # all rows were rejected
                    continue
                mark.note(batch)
                for worker, mine, at in divided(self.job, batch, places):
                    for place, family in enumerate(self.families):
                        made = entries(self.job.table, self.job.families[family], mine)
                        yield parcelled(self.ranges, place, made.append_column("n", pa.array(at)), worker)
        if rejected is not None:
            yield rejected.report(auto_increment=mark.most).parcel()


def divided(job: Job, batch: pa.RecordBatch, places: Codes) -> Iterator[tuple[int, pa.RecordBatch, Codes]]:
    """Divide rows, and their places in the files, by owner.  Rows without an owner are spread evenly over the workers.
    """
    if job.workers == 1:
        yield 0, batch, places
        return
    whose = owners(job.table, dict(enumerate(batch.columns)), batch.num_rows, job.workers)
    if whose is None:
        whose = places % job.workers
    for worker in np.unique(whose).tolist():
        mine = whose == worker
        yield worker, batch.filter(pa.array(mine)), places[mine]


def parcelled(ranges: KeyRanges, place: int, made: pa.RecordBatch, worker: int = 0) -> pa.RecordBatch:
    """Divide the entries of a family into parcels, one for each part.  Each worker has its own parts.

    place: the family's in `ranges`.
    """
    parts = ranges.parts(place, made.column("key")) + np.int32(worker * ranges.total)
    wanted = np.unique(parts).tolist()
    if len(wanted) == 1:
        return _parcels(wanted, ENTRIES, [_packed(made)])
    return _parcels(wanted, ENTRIES, [_packed(made.filter(pa.array(parts == p))) for p in wanted])


class GreatestNumber:
    """Finds the greatest AUTO_INCREMENT number of the batches that it notes."""

    def __init__(self, job: Job):
        auto = job.table.auto_increment
        self.most, self._column = 0, None if auto is None else job.table.columns[auto].name

    def note(self, batch: pa.RecordBatch) -> None:
        if self._column is not None:
            self.most = max(self.most, int(codes_of(batch, self._column).max(initial=0)))


@dataclass(frozen=True)
class WriteBag:
    """A task that writes a file for each of its splits, for a table without a primary key: its row numbers ascend."""

    job: Job

    def __call__(self, numbers: Batches) -> Batches:
        rejected, mark, made = Rejected(self.job, name_of("bag")), GreatestNumber(self.job), []
        for number in each(numbers):
            path = os.path.join(self.job.out, f"{name_of('bag')}-{number}.sst")
            file = write_file(path, self._entries(number, rejected, mark))
            if file is not None:
                made.append(EntryFile(self.job.family(0), path, file.rows, file.first))
        yield rejected.report(files=tuple(made), auto_increment=mark.most).parcel()

    def _entries(self, number: int, rejected: Rejected, mark: GreatestNumber) -> Batches:
        for batch, _ in self.job.rows(number, rejected):
            mark.note(batch)
            yield entries(self.job.table, None, batch)


# ------------------------------------------------------------------ ranges to files
@dataclass(frozen=True)
class Merge:
    """A task that sorts the entries of one part and writes them to a file.  Of equal keys, the first in the files is
    kept.  It passes the reports of earlier tasks on."""

    job: Job
    ranges: KeyRanges
    families: tuple[int, ...]

    def __call__(self, batches: Batches) -> Batches:
        worker, part = divmod(TaskContext.get().partitionId(), self.ranges.total)
        family = self.families[self.ranges.family_of_part(part)]
        index = self.job.families[family]
        name = name_of(f"sst-{family}")
        path, rejected = os.path.join(self.job.out, f"{name}.sst"), Rejected(self.job, name)
        received: list[pa.RecordBatch] = []
        for batch in batches:
            for kind, data in zip(batch.column("kind").to_pylist(), batch.column("data"), strict=True):
                if kind == REPORT:
                    yield _parcels([0], REPORT, [data.as_py()])
                else:
                    received += pa.ipc.open_stream(data.as_buffer())
        rows = sorted_entries(received)
        received.clear()
        repeated: list[bytes] = []
        places: tuple[int, ...] = ()
        made = write_file(path, rows.select(["key", "value"]).to_batches(SORTED_ROWS),
                          lambda key, value: repeated.append(value))
        duplicate = ""
        if repeated and index is not None:
            duplicate = self.job.repeated(index, len(repeated))
        elif repeated:
            places = _repeated_places(rows)
            rejected.add(_duplicate(self.job, *at) for at in zip(repeated, places, strict=True))
        files_ = () if made is None else (EntryFile(self.job.family(family), path, made.rows, made.first, worker),)
        yield rejected.report(files=files_, duplicate=duplicate, left_out=places).parcel()


_ENTRIES = pa.schema([*ENTRY, ("n", pa.int64())])


def sorted_entries(received: list[pa.RecordBatch]) -> pa.Table:
    """Sort entries by key, and equal keys by their place in the files."""
    received.sort(key=lambda b: b.column("n")[0].as_py())
    rows = pa.Table.from_batches(received, _ENTRIES).combine_chunks()
    if not rows.num_rows:
        return rows
    keys = rows.column("key").chunk(0)
    size = len(keys[0].as_py())
    if size == 8 and pc.all(pc.equal(pc.binary_length(keys), size)).as_py():  # as numbers: ten times faster
        start = int(np.frombuffer(keys.buffers()[1], np.int32)[keys.offset])
        numbers = np.frombuffer(keys.buffers()[2], ">u8", len(keys), start).astype(np.uint64)
        order = pa.array(np.argsort(numbers, kind="stable"))
    else:
        order = pc.sort_indices(keys)  # stable
    return rows.take(order)


def _repeated_places(rows: pa.Table) -> tuple[int, ...]:
    """Return the places of rows that repeat the key of the row before; `rows` is sorted."""
    keys = rows.column("key")
    same = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy()
    return tuple(rows.column("n").to_numpy()[1:][same].tolist())


def _duplicate(job: Job, value: bytes, place: int) -> Reject:
    """Make a reject of an encoded row whose primary key repeats, from its place in the files."""
    table = job.table
    symbols, types = PlainSymbols(), [c.type for c in table.columns]
    codes = unpack_rows([value], types, lambda: np.full(len(types), NULL_CODE), symbols)[:, 0].tolist()
    row = {c.name: decode(code, c.type, symbols) for c, code in zip(table.columns, codes, strict=True)}
    key = "-".join(str(row[table.columns[c].name]) for c in table.primary_key)
    return Reject(job.splits[place >> ROW_BITS].shown, None, json.dumps(row, default=str, ensure_ascii=False),
                  f"Duplicate entry '{key}' for key 'PRIMARY'")
