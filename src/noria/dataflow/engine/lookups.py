"""Long lookups: reads of keys with very many rows in a base table, done in slices between packets (section 4.3).

    a read      looks up more rows of a table than LONG_LOOKUP_ROWS: it raises LongLookup and waits
    a slice     reads the next rows under its keys, in the order of the index
    meanwhile   a write under these keys is added if the slices have passed its place; otherwise a slice will read it
    at the end  the read runs again and uses the rows of the lookup

Keeps true: after every tick, a finished lookup holds exactly the table's rows under its keys. Rows that differ
only in unused columns are merged. The rows held are bounded in bytes, and are dropped with the last read that
waits for them.

`SlicedLookups.rows` looks rows up; after LongLookup call `wait`, and `step` for each slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation, SqlError, interrupted, statement_timeout, too_much_at_once
from noria.core.limits import LONG_LOOKUP_ROWS, LONG_LOOKUPS, LOOKUP_SLICE_MS, NULL_CODE, REQUEST_BYTES
from noria.dataflow.backfill.pace import Pace, SliceCost, no_time
from noria.dataflow.engine.runtime import EngineRuntime
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.graph.graph import used_columns
from noria.dataflow.graph.keys import distinct, folded_keys
from noria.dataflow.graph.nodes import Columns, Node
from noria.dataflow.graph.protocols import KeyedScan, StoreBroken, TooManyRows
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.messages.envelopes import error_reply, number_of
from noria.dataflow.messages.packets import Envelope, Packet
from noria.state.rows import probe
from noria.state.rows.netting import netted

FIRST_ROWS, MOST_ROWS = 1_024, 65_536  # of a slice
ROUNDS = 16  # lookups of one read in slices; the read does further ones at once, because its keys are being evicted


class LongLookup(Exception):
    """A read looks up more rows of a base table than it may at once. It runs again when the rows have been read
    in slices."""

    def __init__(self, base: Node, cols: Columns, keys: Codes):
        super().__init__()
        self.base, self.cols, self.keys = base, cols, keys


class SlicedLookup:
    """One long lookup: the rows of a base table under distinct keys, as far as they have been read.

    The keys are folded codes of shape (key columns, keys). `rows`: size of the next slice. `done`: rows read.
    `spent_ns`: the worker's time spent. `over`: whether all rows have been read. `stale`: the table, or the set
    of its columns in use, has changed.
    """

    def __init__(self, engine: EngineRuntime, needed: LongLookup):
        self._engine = engine
        self.base, self.cols, self.keys = needed.base, needed.cols, needed.keys
        self.rows, self.spent_ns, self.stale = FIRST_ROWS, 0, False
        self.cost = SliceCost()
        self._used_columns = _kept(self.base)
        self.restart()

    def restart(self) -> None:
        """Restart at the first row: a bulk load may have added rows without a delta."""
        self._scan: KeyedScan = self._engine.store.begin_lookup(self._table, self.cols, self.keys)
        self._parts: list[Batch] = []  # rows, each followed by the ordinal of its key
        self._nets, self._signed, self.done = self._used_columns is not None, False, 0

    @property
    def _table(self) -> str:
        """The table's present name; empty if it was dropped."""
        return next((table for table, bases in self._engine.bases.items() if self.base in bases), "")

    @property
    def over(self) -> bool:
        return self._scan.over

    def of(self, needed: LongLookup) -> bool:
        """Whether this read waits for this lookup."""
        return (self.base, self.cols) == (needed.base, needed.cols) and np.array_equal(self.keys, needed.keys)

    def check_table(self) -> None:
        """After a change of the program, determine whether the lookup is stale."""
        self.stale |= (self.base not in self._engine.bases.get(self._table, ()) or not self._scan.same()
                       or _kept(self.base) != self._used_columns)

    def reads(self, table: str) -> bool:
        return self._table == table

    def step(self) -> None:
        """Read one slice. SqlError 3024 if the lookup holds too many bytes."""
        rows, ordinals = self._scan.next(self.rows)
        self.done += len(rows)
        self._add(rows, ordinals)
        if self.memory() > REQUEST_BYTES:
            raise too_much_at_once(self.done, REQUEST_BYTES)

    def tick(self, inputs: Mapping[str, Batch]) -> None:
        """Add written rows whose place the slices have passed."""
        delta = inputs.get(self._table)
        if delta is None or not len(delta) or self.stale:
            return
        folded = self._folded(self.cols, delta.columns[list(self.cols)])
        row, ordinals = probe.pairs(folded, self.keys)
        passed = self._scan.passed(mine := delta.take(row), ordinals)
        if passed.any():
            self._add(mine.where(passed), ordinals[passed])

    def _add(self, rows: Batch, ordinals: Codes) -> None:
        if not len(rows):
            return
        rows = self.base.narrowed(rows)
        columns = np.concatenate([rows.columns, ordinals[None, :]])
        if self._used_columns is not None:
            columns[[c for c in range(rows.width) if c not in self._used_columns]] = NULL_CODE
        part = Batch(columns, rows.weights)
        self._signed |= bool((rows.weights < 0).any())
        if self._nets:
            net = netted(part)
            self._nets, part = 2 * len(net) <= len(part) or len(part) < FIRST_ROWS, net
        self._parts.append(part)

    def has_any(self, keys: Codes) -> bool:
        """Whether the lookup covers some of these folded keys."""
        return len(probe.pairs(np.ascontiguousarray(keys), self.keys)[0]) > 0

    def rows_under(self, cols: Columns, keys: Codes) -> tuple[Batch, Codes, Codes]:
        """Its rows under these folded keys, the ordinals of their keys, and the ordinals of keys that it does not
        cover."""
        at, own = probe.pairs(keys, self.keys)
        rest = np.setdiff1d(np.arange(keys.shape[1]), at)
        every = concat(self._parts, self.base.width + 1)
        if self._signed or self._nets:
            every = netted(every)
        self._parts, self._signed = [every], False
        if at.tolist() == [0] and self.keys.shape[1] == 1:
            return Batch(every.columns[:-1], every.weights), np.zeros(len(every), np.int64), rest
        which, row = probe.pairs(own[None, :], every.columns[-1:])
        rows = every.take(row)
        return Batch(np.ascontiguousarray(rows.columns[:-1]), rows.weights), at[which], rest

    def _folded(self, cols: Columns, keys: Codes) -> Codes:
        return folded(self._engine, self.base, cols, keys)

    def memory(self) -> int:
        """Bytes of the rows held."""
        return sum(p.columns.nbytes + p.weights.nbytes for p in self._parts)

    def held(self) -> Iterator[Codes]:
        """Every text id in use; other numbers may be among them."""
        yield from self.keys
        for part in self._parts:
            yield from part.columns


def folded(engine: EngineRuntime, base: Node, cols: Columns, keys: Codes) -> Codes:
    return np.ascontiguousarray(folded_keys(engine.symbols, [base.fields[c].type.folds for c in cols], keys))


def _kept(base: Node) -> frozenset[int] | None:
    """The columns of a base table that nodes below use. None: all, also if its rows are kept in memory."""
    return None if base.state is not None else used_columns(base)


# ------------------------------------------------------------------ all of them
@dataclass(eq=False)
class _WaitingRead:
    """A waiting read. `lookups`: all it has needed so far; it waits for the last one."""

    envelope: Envelope
    number: int
    lookups: list[SlicedLookup]


@dataclass
class SlicedLookups:
    """All long lookups, which take turns. `most`: the rows that the current read may look up at once (0:
    unlimited)."""

    engine: EngineRuntime
    most: int = field(default=0, init=False)
    _under_way: list[SlicedLookup] = field(default_factory=list)
    _readers: list[_WaitingRead] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._readers)

    # -------------------------------------------------------------- lookups of operators
    def rows(self, table: str, base: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        """The rows of a base table under keys, which may repeat, with the ordinals of their keys. Raises
        LongLookup if there are too many."""
        known = [k for k in self._under_way if k.base is base and k.cols == cols and not k.stale]
        if not known or not self.most:
            return self._from_store(table, base, cols, keys)
        parts, ordinals = list[Batch](), list[Codes]()
        at = np.arange(keys.shape[1])
        codes = folded(self.engine, base, cols, keys)
        for lookup in known:
            if not lookup.over and lookup.has_any(codes[:, at]):
                raise LongLookup(base, cols, lookup.keys)
        for lookup in (k for k in known if k.over):
            rows, which, rest = lookup.rows_under(cols, np.ascontiguousarray(codes[:, at]))
            parts.append(rows)
            ordinals.append(at[which])
            at = at[rest]
        if len(at):
            rows, which = self._from_store(table, base, cols, np.ascontiguousarray(keys[:, at]))
            parts.append(rows)
            ordinals.append(at[which])
        return concat(parts, base.width), np.concatenate(ordinals)

    def _from_store(self, table: str, base: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        try:
            rows, ordinals = self.engine.store.lookup(table, cols, keys, None, self.most)
        except TooManyRows:
            raise LongLookup(base, cols, distinct(folded(self.engine, base, cols, keys))) from None
        return base.narrowed(rows), ordinals

    # -------------------------------------------------------------- waiting reads
    def wait(self, e: Envelope, needed: LongLookup) -> None:
        """Let the read wait for these rows; begins the lookup if none reads them yet."""
        lookup = next((k for k in self._under_way if k.of(needed) and not k.stale), None)
        if lookup is None:
            lookup = SlicedLookup(self.engine, needed)
            self._under_way.append(lookup)
            self.engine.scans.append(lookup)
        reader = next((r for r in self._readers if r.envelope is e), None)
        if reader is None:
            reader = _WaitingRead(e, number_of(e), [])
            self._readers.append(reader)
        reader.lookups.append(lookup)

    @contextmanager
    def bounded(self, e: Envelope | None = None, rows: int = 0) -> Iterator[None]:
        """Limit the lookups of a read that can wait: to `rows`, or to LONG_LOOKUP_ROWS. A read that has waited for
        ROUNDS lookups is not limited any more."""
        tired = any(r.envelope is e and len(r.lookups) >= ROUNDS for r in self._readers)
        self.most = 0 if tired else rows or LONG_LOOKUP_ROWS
        try:
            yield
        finally:
            self.most = 0

    def check_tables(self) -> None:
        """After a change of the program, find the stale lookups."""
        for lookup in self._under_way:
            lookup.check_table()

    def restart(self, table: str) -> None:
        """Restart the lookups in a table after a bulk load."""
        for lookup in self._under_way:
            if lookup.reads(table) and not lookup.stale:
                lookup.restart()

    # -------------------------------------------------------------- slices
    def step(self, environment: WorkerEnvironment, run: Callable[[Envelope], None],
             on_defect: Callable[[str, Exception], SqlError]) -> tuple[int, list[tuple[Envelope, Packet]]]:
        """Read one slice for the first waiting read.

        Returns the number of rows read, and replies to reads that failed. `run`: runs a read again whose rows are
        complete. `on_defect`: records a defect of a request and returns the error to answer with.
        """
        replies: list[tuple[Envelope, Packet]] = []
        if not self._readers:
            return 0, replies
        reader = self._readers[0]
        lookup = reader.lookups[-1]
        before = lookup.done
        try:
            self._slice(reader, environment)
        except SqlError as error:
            replies.append((reader.envelope, error_reply(reader.envelope, error)))
            self._leave(reader)
        except (InvariantViolation, StoreBroken):
            raise
        except Exception as bug:
            noted = on_defect(f"a slice of Read {reader.number}", bug)
            replies.append((reader.envelope, error_reply(reader.envelope, noted)))
            self._leave(reader)
        else:
            self._continue(reader, run)
        environment.began(0)
        return max(lookup.done - before, 0), replies

    def _slice(self, reader: _WaitingRead, environment: WorkerEnvironment) -> None:
        if environment.cancelled(reader.number):
            raise interrupted()
        lookup = reader.lookups[-1]
        limit_ms = getattr(reader.envelope.body, "limit_ms", 0)
        if limit_ms and lookup.spent_ns > limit_ms * 1_000_000:
            raise statement_timeout(limit_ms)
        lookup.check_table()
        if lookup.over or lookup.stale:
            return
        environment.began(reader.number)
        pace, outer = Pace(environment.clock or no_time, environment.processor), self.engine.limits
        self.engine.limits = RequestLimits()
        try:
            lookup.step()
        finally:
            self.engine.limits = outer
        lookup.spent_ns += pace.computed_ns()
        lookup.rows = pace.next_rows(lookup.rows, LOOKUP_SLICE_MS, MOST_ROWS, lookup.cost)

    def _continue(self, reader: _WaitingRead, run: Callable[[Envelope], None]) -> None:
        """Run the read again if its lookup is complete; otherwise let the next read have its turn."""
        lookup = reader.lookups[-1]
        if not lookup.over and not lookup.stale:
            turn = min(len(self._readers), LONG_LOOKUPS)  # the others have not begun
            self._readers.insert(turn - 1, self._readers.pop(0))
            return
        waited = len(reader.lookups)
        run(reader.envelope)
        if len(reader.lookups) == waited:  # it needs no further lookup
            self._leave(reader)

    def _leave(self, reader: _WaitingRead) -> None:
        self._readers.remove(reader)
        used = {id(k) for r in self._readers for k in r.lookups}
        self._under_way = [k for k in self._under_way if id(k) in used]
        self.engine.scans = [s for s in self.engine.scans if not isinstance(s, SlicedLookup) or id(s) in used]
