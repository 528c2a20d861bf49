"""Changes of base tables: one synced commit, then one tick of its deltas (ACK-DURABLE).

Keeps true: a change is committed before it is acknowledged. A committed change completes its tick, or the worker
ends. `Commits.write` handles a write, a prepare and a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from noria.core.batch import Batch
from noria.core.errors import SqlError, unknown_table, view_changed
from noria.core.statements import Delete, Insert, Load, Staged, Statement, Update, WriteResult
from noria.core.types import Kind, TableDef
from noria.core.values import decode, to_arrow
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.protocols import BaseStore
from noria.dataflow.messages.packets import (
    CheckUnique,
    Decide,
    Done,
    Envelope,
    FindConflicts,
    Ingest,
    PredictEffect,
    Prepare,
    PriorRows,
    ReadPage,
    Unique,
    UniqueEntries,
    Write,
    Wrote,
)

_BY_ROW = (Insert, Update, Delete, Staged)  # statements of which each changed row is in the delta
MOST_PRIOR_ROWS, MOST_PRIOR_CHARACTERS = 500, 65_536  # of one table and commit that are sent for the snapshots
PriorRow = tuple[int, tuple[Any, ...] | None]


def has_prior_rows(table: TableDef) -> bool:
    """Whether the rows before a commit are sent: the primary key is an integer, and values are numbers and texts."""
    return len(table.primary_key) == 1 and table.columns[table.primary_key[0]].type.kind is Kind.INT and all(
        c.type.kind in (Kind.INT, Kind.DECIMAL, Kind.DOUBLE) or (c.type.kind is Kind.TEXT and not c.type.is_bytes)
        for c in table.columns)


class TickFailed(Exception):
    """A committed change did not complete its tick. Only a restart makes states agree with the tables again."""


class SlicedTask(Protocol):
    """A task that reads a table in slices."""

    def restart(self, table: str) -> None:
        """Restart at the first row: a load added rows."""


class Commits:
    """Handles all packets that change or check base tables. `slices`: tasks that read tables in slices. `ended`:
    called with each transaction that is committed. `alone`: there is no other worker."""

    def __init__(self, engine: Engine, store: BaseStore, slices: Iterable[SlicedTask],
                 ended: Callable[[str], None] = lambda transaction: None, alone: bool = False):
        self._engine, self._store, self._slices, self._ended = engine, store, tuple(slices), ended
        self._alone = alone

    def write(self, body: Write | Prepare | Decide, e: Envelope) -> Wrote:
        limits, self._engine.limits = self._engine.limits, None
        deltas: dict[str, Batch] = {}
        loaded = self._loaded(body)
        try:
            if isinstance(body, Prepare):
                results = self._store.prepare(body.statements, body.group, body.coordinator, e.epoch, e.seq, limits)
            elif isinstance(body, Decide):
                results, deltas = self._store.decide(body.group, body.commit, e.epoch, e.seq)
            else:
                results, deltas = self._store.write(body.statements, e.epoch, e.seq, limits, body.group, body.forget,
                                                     body.idempotency_key)
        except SqlError as error:  # nothing was written
            number = 1 if isinstance(body, Decide) else len(body.statements)
            return Wrote(e.seq, tuple(WriteResult(error=error) for _ in range(number)))
        if loaded and any(r.error is None for r in results):
            for table in loaded:
                self._reload(table, e)
        try:
            self._engine.tick(deltas)
        except Exception as bug:  # committed, and states may differ from the tables
            raise TickFailed(f"the tick of write {e.epoch}.{e.seq} failed: {bug!r}") from bug
        prior = self._prior(body.statements, deltas) if self._alone and type(body) is Write else None
        if isinstance(body, Decide):
            self._ended(body.group)  # the group had locked the rows that it wrote
        elif isinstance(body, Write):
            for statement, result in zip(body.statements, results, strict=True):
                if type(statement) is Staged and result.error is None:
                    self._ended(statement.transaction)
        return Wrote(e.seq, tuple(results), prior=prior)

    def _prior(self, statements: Sequence[Statement], deltas: Mapping[str, Batch]) -> PriorRows | None:
        """The rows before a commit, if a snapshot of another transaction needs them."""
        if any(type(s) not in _BY_ROW for s in statements):
            return None
        history = self._store.transactions.history
        if not history.has_others([s.transaction for s in statements if type(s) is Staged]):
            return None
        return PriorRows(self._engine.tick_number, history.position, self._prior_rows(deltas))

    def _prior_rows(self, deltas: Mapping[str, Batch]) -> dict[str, tuple[PriorRow, ...] | None]:
        """The rows before a commit, by table and key; None for a table of which they are not sent."""
        tables, symbols = self._store.tables(), self._engine.symbols
        found: dict[str, tuple[PriorRow, ...] | None] = {}
        for name, delta in deltas.items():
            table = tables.get(name)
            if table is None or not has_prior_rows(table) or len(delta) > MOST_PRIOR_ROWS:
                found[name] = None
                continue
            types, (key,) = [c.type for c in table.columns], table.primary_key
            before: dict[int, tuple[Any, ...] | None] = dict.fromkeys(delta.columns[key].tolist())
            for row in delta.columns[:, delta.weights < 0].T.tolist():
                before[row[key]] = tuple(decode(code, type, symbols) for code, type in zip(row, types, strict=True))
            characters = sum(len(v) for row in before.values() if row is not None for v in row if type(v) is str)
            found[name] = tuple(before.items()) if characters <= MOST_PRIOR_CHARACTERS else None
        return found

    def predict_effect(self, workers: int, body: PredictEffect) -> Done:
        self._refuse_altered(body.statement, body.unique)
        effect = self._store.predict_effect(body.statement, tuple(body.rows), workers, self._engine.limits, body.within)
        return Done(body.request, effect, effect.result.error)

    def find_conflicts(self, body: FindConflicts) -> Done:
        conflicts: list[tuple[bytes, ...] | SqlError] = []
        for statement, unique in body.statements:
            try:
                self._refuse_altered(statement, unique)
                conflicts.append(self._store.find_conflicts(statement, self._engine.limits, body.within))
            except SqlError as error:
                conflicts.append(SqlError(error.code, error.state, error.message))
        return Done(body.request, tuple(conflicts))

    def _refuse_altered(self, statement: Statement, unique: Unique) -> None:
        table = self._store.tables().get(statement.table)
        if table is not None and tuple(i.columns for i in table.spread_unique) != tuple(unique):
            raise view_changed(table.name)

    def check_unique(self, body: CheckUnique) -> Done:
        self._store.check_unique(body.table, tuple(body.removed), tuple(body.added), body.within)
        return Done(body.request)

    def entries(self, body: UniqueEntries) -> Done:
        return Done(body.request, self._store.entries(body.table, tuple(body.columns), body.what,
                                                      tuple(body.arguments)))

    def page(self, body: ReadPage) -> Done:
        table = self._store.tables().get(body.table)
        if table is None:
            raise unknown_table(body.table)
        rows, after = self._store.scan(table.name, body.after, body.rows)
        arrays = [to_arrow(rows.columns[c], table.columns[c].type, self._engine.symbols) for c in table.shown]
        names = [table.columns[c].name for c in table.shown]
        return Done(body.request, (pa.RecordBatch.from_arrays(arrays, names=names), after))

    def ingest(self, body: Ingest, e: Envelope) -> Done:
        """Ingest bulk rows, which bypass the graph: states that derive from the table forget their keys or are
        built again."""
        try:
            self._store.ingest(body.table, {name: list(paths) for name, paths in body.files}, body.rows,
                               body.auto_increment, e.epoch, e.seq, body.idempotency_key)
        except SqlError as error:
            return Done(e.seq, error=error)
        self._engine.limits = None
        self._reload(body.table, e)
        return Done(e.seq, body.rows)

    def _loaded(self, body: Write | Prepare | Decide) -> tuple[str, ...]:
        """The tables whose files the packet ingests."""
        if isinstance(body, Write):
            return tuple([s.table for s in body.statements if type(s) is Load])
        return self._store.loads(body.group) if isinstance(body, Decide) and body.commit else ()

    def _reload(self, table: str, e: Envelope) -> None:
        for slices in self._slices:
            slices.restart(table)
        try:
            self._engine.reload(table)
        except Exception as bug:
            raise TickFailed(f"states could not be renewed after load {e.epoch}.{e.seq} of {table}: {bug!r}") from bug
