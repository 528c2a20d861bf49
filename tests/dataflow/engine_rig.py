"""An engine in memory for tests, with its tables, views, random writes, reads and evictions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from noria.core.batch import Batch
from noria.core.errors import SqlError, interrupted
from noria.core.limits import ERROR_CODE, FILL_AHEAD_MISSES, MAX_INT, MIN_INT
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import fold
from noria.core.types import BESIDE, SqlType, TableDef
from noria.core.values import decode, encode
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.memory_limit import evictable, held
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.graph.eviction import evict
from noria.dataflow.graph.nodes import Node
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.messages import packets
from noria.dataflow.oneshot.oneshot import OneShot
from noria.dataflow.worker.fill_ahead import FillAhead
from noria.dataflow.worker.graph_changes import GraphChanges
from noria.lowering.lower import Lowering
from noria.plan.mir import Base, rebased
from noria.plan.view import ViewDef
from reference import mir_reference, random_plans
from reference.memory_store import MemoryStore
from reference.table_views import TableViews


class CancelledRequest(RequestLimits):
    """The limits of a request that is cancelled at its n-th check."""

    def __init__(self, looks: int):
        super().__init__()
        self.left = looks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise interrupted()


def raises(bug: Exception) -> None:
    raise bug


class Rig:
    """An engine with a second copy of the base rows, as Python values, for the oracle."""

    def __init__(self, tables: list[TableDef], views: list[ViewDef], make_views=TableViews, symbols=None,
                 sliced: random.Random | None = None):
        """sliced: nothing is built at once; the random generator that draws the size of each slice."""
        self.symbols = PlainSymbols() if symbols is None else symbols
        self.store = MemoryStore(self.symbols)
        self.engine = Engine(self.store, self.symbols, make_views(self.symbols))
        self._sliced = sliced
        if sliced is not None:
            self.engine.builds.at_once_rows = -1
        self.story = self.engine.trace = self.engine.story
        self.lowering = Lowering(self.engine)
        self.ahead = FillAhead(self.engine, 2**40, raises)
        self._changes = GraphChanges(self.engine, self.store, self.lowering, WorkerEnvironment(), None)
        self.tables = {t.name: t for t in tables}
        self.rows: dict[str, list[tuple]] = {t.name: [] for t in tables}
        for t in tables:
            self.store.create_table(t)
        for v in views:
            self.add_view(v)

    def add_view(self, view: ViewDef) -> None:
        self.add_views([view])

    def add_views(self, views: list[ViewDef]) -> None:
        """Add the views in one change."""
        for view in views:
            self._changes.views[view.name] = view
            self.lowering.add_view(view)
        self.lowering.replan()
        self.engine.relayout()

    def change(self, *steps: packets.MigrationStep) -> None:
        """Make all of these changes, or none and raise SqlError, as a worker does."""
        error = self._changes.change(steps)
        if error is not None:
            raise error

    def build_some(self) -> None:
        """Run some slices of a few rows each."""
        if self._sliced is None:
            return
        for _ in range(self._sliced.randint(0, 3)):
            builds = self.engine.builds
            for build in (*builds.states.values(), *builds.indexes.values()):
                build.rows = self._sliced.choice([1, 1, 2, 5])
            builds.step()

    def fill_ahead(self, chance: random.Random, view: str) -> None:
        """Fill some slices of a few rows each, of this view or of one that was begun before."""
        self.ahead.missed(view, FILL_AHEAD_MISSES)
        for _ in range(chance.randint(1, 4)):
            self.ahead.rows = chance.choice([1, 2, 5])
            if self.ahead.has_work():
                self.ahead.step()

    def cancelled_request(self, rng: random.Random, request: Callable[[], object]) -> bool:
        """Run a request that is cancelled at a random check, if it has not ended before. Returns whether it was
        cancelled."""
        self.engine.limits = CancelledRequest(rng.randrange(8))
        try:
            request()
        except SqlError as e:
            assert e.code == 1317, e
            return True
        finally:
            self.engine.limits = None
        return False

    def add_cancelled_view(self, rng: random.Random, view: ViewDef) -> bool:
        """Add a view by a change that may be cancelled, and undo it as a worker does. Returns whether it was
        cancelled."""
        cancelled = self.cancelled_request(rng, lambda: self.add_view(view))
        if cancelled:
            self.drop_view(view.name)
        return cancelled

    def drop_view(self, name: str) -> None:
        self._changes.views.pop(name, None)  # a worker that adopted the graph never received it
        self.lowering.drop_view(name)
        self.lowering.replan()
        self.engine.relayout()

    def codes(self, table: str, row: tuple) -> tuple[int, ...]:
        return tuple(encode(v, c.type, self.symbols) for v, c in zip(row, self.tables[table].columns, strict=True))

    def write(self, changes: list[tuple[str, tuple, int]]) -> None:
        """Apply changes in one tick. Each is (table, row of values, +1 or -1)."""
        for table, row, w in changes:
            self.rows[table].append(row) if w > 0 else self.rows[table].remove(row)
        deltas = self.deltas(changes)
        for table, delta in deltas.items():
            self.store.put(table, delta)
        self.engine.tick(deltas)

    def deltas(self, changes: list[tuple[str, tuple, int]]) -> dict[str, Batch]:
        by: dict[str, list[tuple[tuple, int]]] = {}
        for table, row, w in changes:
            by.setdefault(table, []).append((row, w))
        return {table: Batch.from_rows([self.codes(table, r) for r, _ in rows], len(self.tables[table].columns),
                                       [w for _, w in rows]) for table, rows in by.items()}

    def random_write(self, rng: random.Random, most: int = 5) -> None:
        changes, _ = self.random_changes(rng, most)
        if changes:
            self.write(changes)

    def random_load(self, rng: random.Random) -> None:
        """Change rows of a table without a delta, as a bulk load does."""
        changes, _ = self.random_changes(rng)
        table = changes[0][0] if changes else next(iter(self.tables))
        mine = [c for c in changes if c[0] == table]
        for _, row, w in mine:
            self.rows[table].append(row) if w > 0 else self.rows[table].remove(row)
        for delta in self.deltas(mine).values():
            self.store.put(table, delta)
        self.engine.builds.restart(table)
        self.engine.reload(table)

    def empty(self, table: str) -> None:
        """TRUNCATE of few rows: one write."""
        if self.rows[table]:
            self.write([(table, row, -1) for row in list(self.rows[table])])

    def random_changes(self, rng: random.Random, most: int = 5
                       ) -> tuple[list[tuple[str, tuple, int]], dict[str, list[tuple]]]:
        """Draw changes. Returns them with the rows of all tables after them."""
        changes: list[tuple[str, tuple, int]] = []
        now = {t: list(r) for t, r in self.rows.items()}
        for _ in range(rng.randint(1, most)):
            t = rng.choice(list(self.tables))
            table, rows = self.tables[t], now[t]
            what = rng.choice(["insert", "insert", "delete", "update"]) if len(rows) < 14 else "delete"
            if what != "insert" and rows:
                old = rng.choice(rows)
                rows.remove(old)
                changes.append((t, old, -1))
                if what == "delete":
                    continue
            row = tuple(random_plans.value(rng, c.type, c.nullable) for c in table.columns)
            if table.primary_key:
                row = (rng.randrange(8), *row[1:])
                if any(r[0] == row[0] for r in rows):
                    continue
            rows.append(row)
            changes.append((t, row, 1))
        return changes, now

    def one_shot(self, view: ViewDef, rows: int = 10**6, delta: dict[str, Batch] | None = None
             ) -> tuple[OneShot, Node, ViewDef]:
        """Prepare a one-shot for a view that need not be in the graph. Returns it, its node and the view as lowered."""
        lowered, top, twins, texts = self.lowering.one_shot(view)
        return OneShot(self.engine, twins, rows, delta, texts), top, lowered

    def random_key(self, rng: random.Random, view: ViewDef) -> np.ndarray:
        values = [random_plans.value(rng, f.type) for f in view.key_fields]
        return np.array([[encode(v, f.type, self.symbols)] for v, f in zip(values, view.key_fields, strict=True)],
                        np.int64).reshape(len(values), 1)

    def random_range(self, rng: random.Random, view: ViewDef) -> tuple[int, int]:
        """The codes of two values, in order, or an open end."""
        type = view.key_fields[0].type
        low, high = sorted(encode(random_plans.value(rng, type, False), type, self.symbols) for _ in range(2))
        return low if rng.random() < 0.8 else MIN_INT, high if rng.random() < 0.8 else MAX_INT

    def sweep(self) -> None:
        """Free strings; the base tables of this rig hold ids, as those on disk do not."""
        tables = (self.store.rows(t).columns for t in self.tables)
        self.symbols.sweep([*held(self.engine), *(column for columns in tables for column in columns)])

    def random_evict(self, rng: random.Random) -> None:
        some = [(n, cols) for n, cols in evictable(self.engine) if cols in n.op.presence(n)]
        if not some:
            return
        n, cols = rng.choice(some)
        keys = n.stored.present(cols)
        if keys.shape[1]:
            evict(self.engine, n, cols, np.ascontiguousarray(keys[:, [rng.randrange(keys.shape[1])]]))


class Emptying:
    """TRUNCATE of many rows, as in `control/ddl/truncating.py`: an empty table is made beside the old one, with a twin
    of each of its views; when all twins are complete, one change swaps the names."""

    def __init__(self, rig: Rig, table: str, number: int):
        """number: an unused table id."""
        self._rig, self._was, self.over = rig, rig.tables[table], False
        self._beside = replace(self._was, name=f"{table}{BESIDE}{number}", table_id=number)
        self._twins = dict[str, ViewDef]()
        rig.change(packets.CreateTable(self._beside))

    def step(self, rng: random.Random, views: list[ViewDef]) -> None:
        """Make the missing twins of these views (all views of the graph), or cancel that. If all twins are complete,
        swap the names."""
        mine = [v for v in views if self._was.name in v.plan.table_names]
        missing = {v.name: replace(self._over(v, self._beside), name=v.name + BESIDE) for v in mine
                   if v.name not in self._twins}

        def make() -> None:
            self._rig.change(*map(packets.AddView, missing.values()))
            self._twins |= missing

        if not missing and all(self._rig.engine.ready(t.name) for t in self._twins.values()):
            self._switch(mine)
        elif rng.random() < 0.3:
            self._rig.cancelled_request(rng, make)
        else:
            make()

    def _over(self, view: ViewDef, table: TableDef) -> ViewDef:
        return replace(view, plan=rebased(view.plan, self._was.name, lambda b: Base(table)))

    def _switch(self, mine: list[ViewDef]) -> None:
        table = replace(self._beside, name=self._was.name)
        old = replace(self._was, name=f"{self._was.name}{BESIDE}{self._was.table_id}")
        now = {v.name for v in mine}
        drops = [*now, *(t.name for name, t in self._twins.items() if name not in now)]
        self._rig.change(*map(packets.DropView, drops), packets.AlterTable(old), packets.AlterTable(table),
                         *(packets.RenameView(self._twins[n].name, n) for n in now), packets.DropTable(old.name))
        self._rig.tables[table.name], self._rig.rows[table.name] = table, []
        self.over = True

    def emptied(self, view: ViewDef) -> ViewDef:
        """An old view's definition after the swap of names."""
        return self._over(view, self._rig.tables[self._was.name])

    def abandon(self) -> None:
        """Drop the twins and the empty table."""
        self._rig.change(*(packets.DropView(t.name) for t in self._twins.values()),
                         packets.DropTable(self._beside.name))
        self.over = True


def has_key(row: tuple[Any, ...], view: ViewDef, types: list[SqlType], key: list[Any], nulls: bool) -> bool:
    """Whether the row has this key. nulls: NULLs are like any value; otherwise they are in no key."""
    for k, value in zip(view.key, key, strict=True):
        mine = row[k]
        if mine is None or value is None:
            if not nulls or mine is not value:
                return False
        elif (fold(mine) != fold(value)) if types[k].folds and isinstance(mine, str) else mine != value:
            return False
    return True


def values_of(rig: Rig, rows: Batch, types: list[SqlType]) -> Counter[str]:
    have: Counter[str] = Counter()
    for row, weight in zip(rows.rows(), rows.weights.tolist(), strict=True):
        have[shown(tuple(mir_reference.ERROR if c == ERROR_CODE else decode(c, t, rig.symbols)
                         for c, t in zip(row[: len(types)], types, strict=True)))] += weight  # others carry errors
    return have


def shown(row: tuple[Any, ...]) -> str:
    """A row as text: doubles to 12 digits, decimals by value."""
    return str(tuple(f"{float(v):.12g}" if isinstance(v, (float, Decimal)) else str(v) for v in row))
