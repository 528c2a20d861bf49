"""Executes an UPDATE or DELETE of a large share of a table by Spark.

`matching` finds the rows.  `rewrite` writes the table's new rows to sorted files, for another table that replaces the
first one (`control/ddl/rewriting.py`).

    checkpoint ─ranges─► tasks: condition, assignments, as the worker evaluates them ─► files, as of a bulk load

Keeps true: each row is in the files once, as the statement leaves it.  If a value does not fit or a key repeats, the
job ends with the error that the worker would have raised.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from noria.core.batch import Batch, Codes
from noria.core.codec import Codec
from noria.core.errors import SqlError, view_changed
from noria.core.errors.codes import DUP_ENTRY, UNKNOWN_ERROR
from noria.core.identifiers import without_database
from noria.core.limits import NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Move, Update
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.core.values import to_arrow
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.jobs.snapshot import ShardRange, ranges_of
from noria.spark.loading.load import Files, of_family, sorted_files
from noria.spark.loading.rows.files import Split
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.running import collected, numbers
from noria.spark.loading.tasks.tasks import ROW_BITS, Batches, Job, LoadRefused, Rejected, each
from noria.storage.format.catalog import family_of
from noria.storage.offline.snapshot import BATCH_ROWS, bytes_about, opened, read_tables
from noria.storage.rocks import reading
from noria.storage.statements.effects import assign
from noria.storage.statements.find import true_of
from noria.storage.tables.rules import refuse_broken, rules_of
from noria.storage.tables.shards import shards_of
from noria.storage.tables.sst import ROW_NUMBER, bag_rows
from noria.storage.tables.table import Index, StoredTable

MOVED_BYTES = 32 * 2**20  # at most, of the changed rows that `matching` returns
SAMPLED = 2_000  # rows of each range whose keys are read to compute the bounds of ranges
_ERROR = re.compile(r"error (\d+) (\w{5}): (.*)")  # a row's SqlError in a task's message
_TWICE = re.compile(r"Duplicate entry '.*' for key 'PRIMARY'")


@dataclass(frozen=True)
class Matching:
    """The number of rows that match a statement's condition, and how many of them it changes.  `moves`: by worker, the
    keys to remove and the rows to add; None if these are too many rows or bytes."""

    rows: int
    changed: int
    moves: dict[int, Move] | None


@dataclass(frozen=True)
class Rewritten:
    """The result of `rewrite`, with the fields of `LoadReport` that `packets.Ingest` needs."""

    files: Files
    rows: int
    auto_increment: int
    shards: tuple[tuple[Files, int], ...]


@dataclass(frozen=True)
class TableRewrite:
    """A rewrite.  table: the present table.  other: the table that replaces it, with `indexes` (columns, UNIQUE)."""

    statement: Update | Delete
    table: TableDef
    other: TableDef
    indexes: tuple[tuple[tuple[int, ...], bool], ...]
    workers: int


def matching(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, statement: Update | Delete,
             table: TableDef, most: int) -> Matching:
    """Count the rows that match, and return the changes if they are at most `most` rows.

    Raises SqlError if a row's new value does not fit.
    """
    ranges, shards = tuple(_ranges_of(spark, checkpoint, table)), shards_of(checkpoint)
    with stages(spark, progress, f"looking for rows of {table.name}"), _refusals(table):
        found = collected(numbers(spark, len(ranges)).mapInArrow(_Match(statement, table, ranges, most),
                                                                 "rows bigint, changed bigint, moves binary"))
    rows, changed = sum(r["rows"] for r in found), sum(r["changed"] for r in found)
    if changed > most or any(r["moves"] is None for r in found):
        return Matching(rows, changed, None)
    removed: dict[int, list[bytes]] = {}
    added: dict[int, list[bytes]] = {}
    for shard, left, comes in (m for r in found for m in MOVES.decode(bytes(r["moves"])).moves):
        removed.setdefault(shards.index(shard), []).extend(left)
        added.setdefault(shards.index(shard), []).extend(comes)
    return Matching(rows, changed, {w: Move(table.name, tuple(removed[w]), tuple(added[w])) for w in sorted(removed)})


def rewrite(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, wanted: TableRewrite,
            out: str
            ) -> Rewritten:
    """Write files of all rows, as the statement leaves them, to the new directory `out`.  Raises SqlError."""
    os.makedirs(out)
    try:
        ranges = _ranges_of(spark, checkpoint, wanted.table)
        nbytes = sum(bytes_about(shard, wanted.table) for shard in shards_of(checkpoint))
        families = tuple(Index.of(wanted.other, columns, unique) for columns, unique in wanted.indexes)
        splits = tuple(Split(n, shard, "base", 0, 0, (), 0, nbytes // len(ranges), wanted.table.name, False)
                       for n, (shard, _) in enumerate(ranges))
        job = _RewriteLoad(wanted.other, families, splits, {}, TextFormat(), out, secrets.randbits(22), datetime.min, 0,
                           workers=wanted.workers, wanted=wanted, shard_ranges=tuple(ranges))
        with stages(spark, progress, f"rewriting {wanted.table.name}"), _refusals(wanted.table):
            found = sorted_files(spark, job, nbytes)
        if twice := next((r.duplicate for r in found if r.duplicate), ""):
            raise SqlError(*DUP_ENTRY, twice)
        made = [f for r in found for f in r.files]
        shards = tuple(of_family(wanted.other, [f for f in made if f.worker == w]) for w in range(wanted.workers))
        return Rewritten(*of_family(wanted.other, made), max((r.auto_increment for r in found), default=0),
                         shards if wanted.workers > 1 else ())
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _ranges_of(spark: SparkSession, checkpoint: str, table: TableDef) -> list[ShardRange]:
    then = next((t for t in read_tables(shards_of(checkpoint)[0]).values() if t.table_id == table.table_id), None)
    if then is None or (then.columns, then.keyed) != (table.columns, table.keyed):
        raise view_changed(table.name)
    return ranges_of(spark, checkpoint, table)


@contextmanager
def _refusals(table: TableDef) -> Iterator[None]:
    """Raise a task's LoadRefused as the statement's SqlError."""
    try:
        yield
    except LoadRefused as e:
        raise _as_statement(e, table) from None


def _as_statement(e: LoadRefused, table: TableDef) -> SqlError:
    """Return the statement's error for the message of a task's LoadRefused."""
    message = str(e)
    if (found := _ERROR.search(message)) is not None:
        return SqlError(int(found[1]), found[2], found[3])
    if (twice := _TWICE.search(message)) is not None:
        return SqlError(*DUP_ENTRY, twice[0].replace("'PRIMARY'", f"'{without_database(table.name)}.PRIMARY'"))
    return SqlError(*UNKNOWN_ERROR, message)


# ------------------------------------------------------------------ tasks
@dataclass(frozen=True)
class _Changed:
    """Some rows before and after the statement.  `keys`: if requested.  `matched`: which rows match the condition.
    `was`: all rows before.  `rows`: the remaining rows after it."""

    keys: list[bytes]
    matched: npt.NDArray[np.bool_]
    was: Codes
    rows: Codes
    symbols: Symbols

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """Which rows the statement changes or removes."""
        if self.rows.shape[1] < len(self.matched):
            return self.matched
        different: npt.NDArray[np.bool_] = (self.was != self.rows).any(axis=0)
        return different


def _after(statement: Update | Delete, table: TableDef, shard_range: ShardRange, rows: int = BATCH_ROWS,
           keyed: bool = False) -> Generator[_Changed, None, None]:
    """Yield the rows of the range before and after the statement, `rows` at a time; with their keys if `keyed`."""
    holds = None if statement.where is None else true_of(statement.where)
    for keys, was, symbols in _codes(table, shard_range, rows, keyed):
        matched = np.ones(was.shape[1], np.bool_) if holds is None else holds(Batch.of(was), symbols)
        if isinstance(statement, Delete):
            yield _Changed(keys, matched, was, was[:, ~matched], symbols)
            continue
        after, some = was.copy(), was[:, matched]
        if some.shape[1]:
            after[:, matched] = assign(table, statement.assignments, some, some, symbols)
            refuse_broken(rules_of(table), after[:, (was != after).any(axis=0)], symbols)
        yield _Changed(keys, matched, was, after, symbols)


def _codes(table: TableDef, shard_range: ShardRange, rows: int, keyed: bool
           ) -> Iterator[tuple[list[bytes], Codes, Symbols]]:
    shard, (first, end) = shard_range
    with opened(shard, family_of(table)) as family:
        for some in reading.slices(family, rows, "items" if keyed else "values", first, end):
            symbols = PlainSymbols()
            keys, values = ([k for k, _ in some], [v for _, v in some]) if keyed else ([], some)
            yield keys, StoredTable(table, symbols).codes(values), symbols


def _refused(e: SqlError) -> LoadRefused:
    return LoadRefused(f"error {e.code} {e.state}: {' '.join(e.message.splitlines())}")


@dataclass(frozen=True)
class _Moves:
    """For some rows of a range: its checkpoint, the keys to remove, and the rows to add."""

    moves: tuple[tuple[str, tuple[bytes, ...], tuple[bytes, ...]], ...]


MOVES = Codec(_Moves)


@dataclass(frozen=True)
class _Match:
    """A task that counts the rows of its ranges that match, and that change.  It also returns the changes (`_Moves`),
    unless they are too many rows or bytes."""

    statement: Update | Delete
    table: TableDef
    shard_ranges: tuple[ShardRange, ...]
    most: int

    def __call__(self, numbers: Batches) -> Batches:
        rows, changed, nbytes, moves = 0, 0, 0, list[tuple[str, tuple[bytes, ...], tuple[bytes, ...]]]()
        most_bytes = MOVED_BYTES // len(self.shard_ranges)
        try:
            for number in each(numbers):
                for some in _after(self.statement, self.table, self.shard_ranges[number], keyed=True):
                    others = np.flatnonzero(some.changed)
                    rows, changed = rows + int(some.matched.sum()), changed + len(others)
                    if len(others) and changed <= self.most and nbytes <= most_bytes:
                        left, added = [some.keys[r] for r in others.tolist()], self._packed(some, others)
                        nbytes += sum(map(len, left)) + sum(map(len, added))
                        moves.append((self.shard_ranges[number][0], tuple(left), tuple(added)))
        except SqlError as e:
            raise _refused(e) from e
        encoded_moves = MOVES.encode(_Moves(tuple(moves))) if changed <= self.most and nbytes <= most_bytes else None
        yield pa.record_batch([pa.array([rows], pa.int64()), pa.array([changed], pa.int64()),
                               pa.array([encoded_moves], pa.binary())], names=["rows", "changed", "moves"])

    def _packed(self, some: _Changed, others: npt.NDArray[np.intp]) -> list[bytes]:
        """Encode these rows as the statement leaves them; none for a DELETE."""
        if isinstance(self.statement, Delete):
            return []
        return StoredTable(self.table, some.symbols).rows(some.rows[:, others])


@dataclass(frozen=True)
class _RewriteLoad(Job):
    """A bulk load whose rows are the table's own, rewritten."""

    wanted: TableRewrite = field(kw_only=True)
    shard_ranges: tuple[ShardRange, ...] = ()
    most: int = 0  # rows to read of each range; 0: all

    def rows(self, number: int, rejected: Rejected | None) -> Iterator[tuple[pa.RecordBatch, Codes]]:
        at = 0
        try:
            for some in self._changes(number):
                count = some.rows.shape[1]
                yield self._batch(some, number, at), np.arange(at, at + count) + (number << ROW_BITS)
                at += count
        except SqlError as e:
            raise _refused(e) from e

    def sampled(self) -> Iterator[pa.RecordBatch]:
        few = replace(self, most=SAMPLED)
        for number in range(len(self.splits)):
            yield from (batch for batch, _ in few.rows(number, None))

    def repeated(self, index: Index, count: int) -> str:
        names = ", ".join(self.table.columns[c].name for c in index.columns)
        return (f"Duplicate entry for a UNIQUE key of '{self.wanted.table.name}' ({names}): {count} rows would have a "
                "value that another one has; nothing was changed")

    def _changes(self, number: int) -> Iterator[_Changed]:
        found = _after(self.wanted.statement, self.wanted.table, self.shard_ranges[number], self.most or BATCH_ROWS)
        for some in found:
            yield some
            if self.most:
                break
        found.close()

    def _batch(self, some: _Changed, number: int, at: int) -> pa.RecordBatch:
        columns = self.table.columns
        nothing = np.full(some.rows.shape[1], NULL_CODE, np.int64)
        arrays = [to_arrow(nothing if c.dropped else codes, c.type, some.symbols)
                  for c, codes in zip(columns, some.rows, strict=True)]
        names = [c.name for c in columns]
        if not self.table.primary_key:
            arrays.append(pa.array(bag_rows(self.load, number, at, some.rows.shape[1])))
            names.append(ROW_NUMBER)
        return pa.RecordBatch.from_arrays(arrays, names)
