"""The store against the model: random statements of all sorts in groups, resends, reopened all the time.

Checked after every group: results, the whole table by scans of a few rows, the sum of all deltas, look-ups by
every index, and the row count.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from noria.core.batch import Batch
from noria.core.expressions.expr import Expr, col, const
from noria.core.expressions.functions import call
from noria.core.statements import NEW, Delete, Insert, Statement, Update, WriteResult
from noria.core.symbols import fold
from noria.core.types import BIGINT, INT, TEXT, TEXT_BIN, Column, IndexDef, TableDef
from noria.core.values import decode, encode
from noria.state.symbols.symbols import SymbolTable
from noria.storage.rocks.options import RocksMemory
from noria.storage.store import RocksStore
from reference.table_model import Refused, Row, TableModel
from seeds import cases

SMALL = RocksMemory(cache_bytes=2**20, write_buffer_bytes=2**20, family_buffer_bytes=2**18, reserve_bytes=0,
                    part_entries=8)
TABLES = {
    "auto": TableDef("t", (Column("a", BIGINT, False, auto_increment=True), Column("b", INT), Column("c", TEXT)),
                     (0,), (IndexDef("by_b", (1,)),)),
    "text": TableDef("t", (Column("a", BIGINT), Column("b", INT), Column("c", TEXT, False)),
                     (2,), (IndexDef("u", (0, 1), True),)),
    "pair": TableDef("t", (Column("a", BIGINT, False), Column("b", INT, False), Column("c", TEXT_BIN)),
                     (1, 0), (IndexDef("u", (2,), True), IndexDef("by_ca", (2, 0)))),
    "bag": TableDef("t", (Column("a", BIGINT), Column("b", INT), Column("c", TEXT)), (), (IndexDef("by_c", (2,)),)),
    "bag with unique": TableDef("t", (Column("a", BIGINT), Column("b", INT), Column("c", TEXT)), (),
                                (IndexDef("u", (2, 0), True),)),
}
NUMBERS, TEXTS = (None, 0, 1, 2, 3, 4), (None, "", "a", "A", "á", "b", "ab", "B")
numbers, texts = st.sampled_from(NUMBERS), st.sampled_from(TEXTS)
a_row = st.tuples(numbers, numbers, texts)
Step = tuple[Callable[[TableModel], Any], Statement]


def condition(columns: list[Any], table: TableDef) -> st.SearchStrategy[tuple[Callable[[Row], bool], Expr | None]]:
    """A Python predicate and the same as an expression."""
    def equal(position: int, value: Any) -> tuple[Callable[[Row], bool], Expr]:
        type = table.columns[position].type
        def same(row: Row) -> bool:
            if row[position] is None or value is None:
                return False
            return bool(fold(row[position]) == fold(value) if type.folds else row[position] == value)
        return same, call("eq", columns[position], const(value, type))

    def inside(values: list[Any]) -> tuple[Callable[[Row], bool], Expr]:
        return (lambda r: r[0] is not None and r[0] in [v for v in values if v is not None],
                call("in", columns[0], *(const(v, BIGINT) for v in values)))

    def both(x: Any, y: Any) -> tuple[Callable[[Row], bool], Expr]:
        return lambda r: x[0](r) and y[0](r), call("and", x[1], y[1])

    equalities = st.one_of(
        st.builds(equal, st.sampled_from([0, 1]), numbers), st.builds(equal, st.just(2), texts),
        st.builds(inside, st.lists(numbers, min_size=1, max_size=4)),
        st.just((lambda r: r[1] is not None and r[1] > 1, call("gt", columns[1], const(1, INT)))))
    return st.one_of(st.just((lambda r: True, None)), equalities, st.builds(both, equalities, equalities))


class StoreMachine(RuleBasedStateMachine):
    """One table of a kind, its model, and the bag that the deltas make."""

    kind = "auto"

    @initialize(rows=st.lists(a_row, min_size=5, max_size=10))
    def open(self, rows: list[Row]) -> None:
        self.table = TABLES[self.kind]
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # what is tested here needs no disk
        self.path = tempfile.mkdtemp(prefix="noria-store-", dir=memory)
        self.columns = [col(i, c.type, c.nullable) for i, c in enumerate(self.table.columns)]
        self.inserted = [col(NEW + i, c.type, c.nullable) for i, c in enumerate(self.table.columns)]
        self.model, self.deltas, self.seq = TableModel(self.table), Counter[Row](), 1
        self.start()
        self.store.create_table(self.table)
        self.store.set_recipe(["create"], 1, 1)
        self.apply([self.an_insert([row], "error", 0, 0) for row in rows])

    def start(self) -> None:
        self.symbols = SymbolTable()
        self.store = RocksStore(self.path, self.symbols, memory=SMALL)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.path)

    # ---------------------------------------------------------------- statements
    def an_insert(self, rows: list[Row], mode: str, column: int, source: int) -> Step:
        table = self.table
        if table.auto_increment is not None and mode == "update" and column == 0:
            column = 1
        expr = call("add", self.columns[column], self.inserted[source]) if {column, source} <= {0, 1} \
            else self.inserted[column]

        def assign(old: Row, new: Row) -> Row:
            if {column, source} <= {0, 1}:
                value = None if old[column] is None or new[source] is None else old[column] + new[source]
            else:
                value = new[column]
            return (*old[:column], value, *old[column + 1 :])

        assignments = ((column, expr),) if mode == "update" else ()
        return (lambda m: m.insert(rows, mode, assign),
                Insert("t", (0, 1, 2), rows, mode, assignments))

    def an_update(self, where: Any, column: int, value: Any, by: int) -> Step:
        if column == 2:
            expr: Expr = const(value if isinstance(value, str) or value is None else str(value), TEXT)
        else:
            expr = call("add", self.columns[column], const(by, BIGINT))

        def assign(row: Row) -> Row:
            if column == 2:
                new = value if isinstance(value, str) or value is None else str(value)
            else:
                new = None if row[column] is None else row[column] + by
            return (*row[:column], new, *row[column + 1 :])

        return lambda m: m.update(where[0], assign), Update("t", ((column, expr),), where[1])

    def a_delete(self, where: Any) -> Step:
        return lambda m: m.delete(where[0]), Delete("t", where[1])

    def steps(self) -> st.SearchStrategy[Step]:
        where = condition(self.columns, self.table)
        modes = st.sampled_from(["error", "replace", "ignore", "update"])
        return st.one_of(
            st.builds(self.an_insert, st.lists(a_row, max_size=5), modes, st.integers(0, 2), st.integers(0, 1)),
            st.builds(self.an_insert, st.lists(a_row, min_size=1, max_size=1), st.just("error"), st.just(0),
                      st.just(0)),
            st.builds(self.an_update, where, st.integers(0, 2), texts, st.integers(-2, 2)),
            st.builds(self.a_delete, where))

    @rule(data=st.data(), and_then=st.sampled_from(["", "", "reopen", "resend", "index"]))
    def write(self, data: st.DataObject, and_then: str) -> None:
        self.apply(data.draw(st.lists(self.steps(), min_size=1, max_size=4)))
        if and_then == "reopen":
            self.store.close()
            self.start()
        if and_then in ("resend", "reopen"):
            assert self.store.write([Delete("t", None)], 1, self.seq) == (self.last, {})
        if and_then == "index":
            self.store.add_index("t", data.draw(st.sampled_from([(0,), (1,), (2, 1)])))

    def apply(self, steps: list[Step]) -> None:
        expected = [self.expect(do, statement) for do, statement in steps]
        self.seq += 1
        self.last, deltas = self.store.write([s for _, s in steps], 1, self.seq)
        assert [told(r) for r in self.last] == expected
        for row, weight in decoded(deltas.get("t", Batch.empty(3)), self.table, self.symbols):
            self.deltas[row] += weight

    def expect(self, do: Callable[[TableModel], Any], statement: Statement) -> tuple[int, ...]:
        try:
            answer = self.model.attempt(lambda: do(self.model))
        except Refused as refused:
            return (-refused.code,)
        if isinstance(statement, Insert):
            return (answer[0], answer[1], answer[3], answer[2])
        return (answer[0], 0, answer[1], 0) if isinstance(statement, Update) else (answer, 0, 0, 0)

    # ---------------------------------------------------------------- what must hold
    @invariant()
    def is_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        rows, after = Counter[Row](), None
        while True:
            batch, after = self.store.scan("t", after, 3)
            rows.update({r: 0 for r, _ in decoded(batch, self.table, self.symbols)})
            for row, weight in decoded(batch, self.table, self.symbols):
                rows[row] += weight
            if after is None:
                break
        assert rows == Counter(self.model.rows)
        assert +self.deltas == rows and not -self.deltas
        assert self.store.row_count("t") == len(self.model.rows)
        stored = self.store.table("t")
        for columns in {i.columns for i in stored.indexes} | ({stored.key} if stored.key else set()):
            self.check_lookup(columns)
            self.check_lookup(columns[:1])

    def check_lookup(self, columns: tuple[int, ...]) -> None:
        values = [tuple(TEXTS[i % len(TEXTS)] if c == 2 else NUMBERS[(i + n) % len(NUMBERS)]
                        for n, c in enumerate(columns)) for i in range(24)]
        types = [self.table.columns[c].type for c in columns]
        keys = np.array([[encode(v, t, self.symbols) for v, t in zip(key, types, strict=True)] for key in values],
                        np.int64).T
        batch, ordinals = self.store.lookup("t", columns, keys)
        found = Counter((o, row) for o, (row, _) in
                        zip(ordinals.tolist(), decoded(batch, self.table, self.symbols), strict=True))
        def folded(row: Row) -> Row:
            """The row's key, in which NULL is a value like others."""
            return tuple(fold(row[c]) if row[c] is not None and self.table.columns[c].type.folds else row[c]
                         for c in columns)

        places = {c: n for n, c in enumerate(columns)}
        asked = [folded(tuple(key[places[c]] if c in places else None for c in range(3))) for key in values]
        wanted = Counter((o, row) for o, key in enumerate(asked) for row in self.model.rows if folded(row) == key)
        assert found == wanted


def told(result: WriteResult) -> tuple[int, ...]:
    if result.error is not None:
        return (-result.error.code,)
    return result.affected, result.last_insert_id, result.matched, result.row_id


def decoded(batch: Batch, table: TableDef, symbols: SymbolTable) -> list[tuple[Row, int]]:
    rows = [tuple(decode(c, column.type, symbols) for c, column in zip(row, table.columns, strict=True))
            for row in batch.rows()]
    return list(zip(rows, batch.weights.tolist(), strict=True))


@pytest.mark.parametrize("kind", TABLES)
def test_store_is_the_model(kind: str) -> None:
    machine = type("StoreMachine", (StoreMachine,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=cases(40), stateful_step_count=10))
