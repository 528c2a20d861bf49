"""The store: definitions, MySQL's errors and counts, exactly once, look-ups, and opening what is not right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rocksdict import Options, Rdict, WriteBatch

from noria.core.errors import InvariantViolation, SqlError
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import DEFAULT, NEW, Delete, Insert, Statement, Update, WriteResult
from noria.core.types import (
    BIGINT,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    INT,
    TEXT,
    TEXT_BIN,
    Column,
    IndexDef,
    Kind,
    SqlType,
    TableDef,
    decimal,
)
from noria.core.values import decode, encode
from noria.dataflow.messages.packets import ChangeOrigin
from noria.storage.format.catalog import CommittedWrite, table_to_json
from noria.storage.rocks import sync_mark
from noria.storage.rocks.errors import StoreError, StoreFenced, StoreInUse
from noria.storage.store import RocksStore
from noria.storage.tables import meta

NAME = SqlType(Kind.TEXT, length=5)
USERS = TableDef("users", (Column("id", INT, False, auto_increment=True), Column("name", NAME, False),
                           Column("age", SqlType(Kind.INT, bits=8, unsigned=True), False, True, 18),
                           Column("boss", INT)), (0,), (IndexDef("name", (1,), True),))
LOG = TableDef("log", (Column("what", TEXT), Column("n", INT)))
ID, NAME_, AGE, BOSS = (col(i, c.type, c.nullable) for i, c in enumerate(USERS.columns))


class Rig:
    """A store at a path, with the numbering of its writes."""

    def __init__(self, path: Path):
        self.path, self.seq = path, 0
        self.open()

    def open(self) -> None:
        self.symbols = PlainSymbols()
        self.store = RocksStore(str(self.path), self.symbols)
        self.seq = self.store.applied()[1]

    def reopen(self) -> None:
        self.store.close()
        self.open()

    def create(self, *tables: TableDef) -> None:
        for table in tables:
            self.store.create_table(table)
        self.seq += 1
        self.store.set_recipe([f"create {t.name}" for t in tables], 1, self.seq)

    def write(self, *statements: Statement) -> list[WriteResult]:
        self.seq += 1
        results, self.deltas = self.store.write(statements, 1, self.seq)
        return results

    def one(self, statement: Statement) -> tuple[int, int, int] | tuple[int, str]:
        """(affected, last id, matched), or (error number, message)."""
        result = self.write(statement)[0]
        if result.error is not None:
            return result.error.code, result.error.message
        return result.affected, result.last_insert_id, result.matched

    def rows(self, table: str = "users") -> list[tuple[Any, ...]]:
        batch, _ = self.store.scan(table, None, 1000)
        return [self.values(table, row) for row in batch.rows()]

    def values(self, table: str, row: tuple[int, ...]) -> tuple[Any, ...]:
        columns = self.store.tables()[table].columns
        return tuple(decode(c, column.type, self.symbols) for c, column in zip(row, columns, strict=True))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "data")
    yield made
    made.store.close()


def users(*rows: tuple[Any, ...], mode: str = "error", columns: tuple[int, ...] = (0, 1, 2, 3), **more: Any) -> Insert:
    return Insert("users", columns, list(rows), mode, **more)


# ------------------------------------------------------------------ what MySQL says
def test_insert_ids_of_rows_that_have_their_own(rig: Rig) -> None:
    rig.create(USERS)
    own = [users((n, str(n), 0, None)) for n in (7, 5)]
    made = users(("a",), ("b",), columns=(1,))
    assert [(r.insert_id, r.last_insert_id) for r in rig.write(*own, made)] == [(7, 0), (5, 0), (8, 8)]
    kept = [users((20, "x", 0, None), (21, "y", 0, None), numbered=[1]), users((19, "z", 0, None)),
            users((30, "v", 0, None), (31, "w", 0, None), numbered=range(2))]
    assert [(r.insert_id, r.last_insert_id) for r in rig.write(*kept)] == [(21, 21), (19, 0), (30, 30)]
    assert rig.write(users(columns=(0,)), users((40, ), columns=(0,)))[0].insert_id == 0


def test_results_as_they_were_written_before_are_read() -> None:
    error = SqlError(1062, "23000", "taken, [yes]")
    results = (WriteResult(1, 2, 3), WriteResult(error=error), WriteResult(1, 0, 0, row_id=-5))
    read = CommittedWrite.from_bytes(CommittedWrite(1, 9, results).to_bytes())
    assert read.results[::2] == results[::2] and str(read.results[1].error) == str(error)
    assert CommittedWrite.from_bytes(b'[1,9,[[1,2,3]]]').results == (WriteResult(1, 2, 3),)


def test_affected_rows_and_ids_as_mysql_counts(rig: Rig) -> None:
    rig.create(USERS)
    by_name = (1,)
    assert rig.one(users(("a",), ("b",), columns=by_name)) == (2, 1, 0)
    assert rig.one(users((0, "c", 3, None), (None, "d", DEFAULT, 1))) == (2, 3, 0)
    assert rig.one(users((10, "e", 5, 1), (0, "f", 5, 1))) == (2, 11, 0)
    assert rig.one(users((10, "e", 5, 1), mode="replace")) == (2, 0, 0)  # there is another UNIQUE key beside
    assert rig.one(users((10, "e", 6, 1), mode="replace")) == (2, 0, 0)
    assert rig.one(users((10, "a", 6, 1), mode="replace")) == (3, 0, 0)
    assert rig.one(users((10, "x", 6, 1), (12, "y", 6, 1), mode="ignore")) == (1, 0, 0)
    add = ((2, call("add", AGE, col(NEW + 2, AGE.type))),)
    assert rig.one(users((10, "x", 1, 1), (13, "z", 1, 1), mode="update", assignments=add)) == (3, 0, 1)
    assert rig.one(users((10, "x", 0, 1), mode="update", assignments=add)) == (0, 0, 1)
    assert rig.one(Update("users", ((2, const(7, INT)),), call("le", ID, const(10, INT)))) == (3, 0, 4)
    assert rig.one(Update("users", ((2, const(7, INT)),), call("le", ID, const(10, INT)))) == (0, 0, 4)
    assert rig.one(Delete("users", call("eq", NAME_, const("B", TEXT)))) == (1, 0, 0)
    assert rig.rows() == [(3, "c", 7, None), (4, "d", 7, 1), (10, "a", 7, 1), (11, "f", 5, 1), (12, "y", 6, 1),
                          (13, "z", 1, 1)]
    assert rig.one(users(columns=by_name)) == (0, 0, 0)
    assert rig.one(Delete("users", None)) == (6, 0, 0) and rig.store.row_count("users") == 0
    assert rig.one(users(("g",), columns=by_name)) == (1, 14, 0)  # the mark outlives the rows ...
    rig.one(Delete("users", None))
    rig.reopen()
    assert rig.one(users(("g",), columns=by_name)) == (1, 15, 0)  # ... and the process


def test_errors_have_mysqls_numbers_and_change_nothing(rig: Rig) -> None:
    rig.create(USERS)
    rig.write(users((1, "ann", 20, None), (2, "bob", 20, 1)))
    before, two = rig.rows(), call("eq", ID, const(2, INT))
    wrong: list[tuple[Statement, int, str]] = [
        (users((3, "x", 1, 1), (1, "y", 1, 1)), 1062, "Duplicate entry '1' for key 'users.PRIMARY'"),
        (users((3, "ANN", 1, 1)), 1062, "Duplicate entry 'ANN' for key 'users.name'"),
        (users((3, "x", 1, 1), (4, "X", 1, 1)), 1062, "Duplicate entry 'X' for key 'users.name'"),
        (users((3, "x", 1, 1), (3, "y", 1, 1)), 1062, "Duplicate entry '3' for key 'users.PRIMARY'"),
        (users((3, None, 1, 1)), 1048, "Column 'name' cannot be null"),
        (users((5,), columns=(0,)), 1364, "Field 'name' doesn't have a default value"),
        (users((3, "x", 1, 1), (4, "y", 1)), 1136, "Column count doesn't match value count at row 2"),
        (users((3, "x", 1, 1), (4, "toolong", 1, 1)), 1406, "Data too long for column 'name' at row 2"),
        (users((3, "x", 1, 1), (4, "y", 256, 1)), 1264, "Out of range value for column 'age' at row 2"),
        (users((3, "x", -1, 1)), 1264, "Out of range value for column 'age' at row 1"),
        (users((3, "x", "old", 1)), 1366, "Incorrect integer value: 'old' for column 'age' at row 1"),
        (users((3, "x", "1y", 1)), 1265, "Data truncated for column 'age' at row 1"),
        (Update("users", ((2, const(300, INT)),), two), 1264, "Out of range value for column 'age' at row 1"),
        (Update("users", ((1, const(None, TEXT)),), two), 1048, "Column 'name' cannot be null"),
        (Update("users", ((0, const(1, INT)),), two), 1062, "Duplicate entry '1' for key 'users.PRIMARY'"),
        (Update("users", ((0, const(9, INT)),), None), 1062, "Duplicate entry '9' for key 'users.PRIMARY'"),
        (Update("users", ((1, const("Ann", TEXT)),), two), 1062, "Duplicate entry 'Ann' for key 'users.name'"),
        (Update("users", ((3, call("mul", ID, const(2**62, BIGINT))),), None), 1690, "BIGINT value is out of range"),
        (Delete("users", call("gt", call("add", ID, const(2**63 - 1, BIGINT)), const(1, BIGINT))), 1690,
         "BIGINT value is out of range"),
        (users((2, "x", 1, 1), mode="update", assignments=((0, const(1, INT)),)), 1062,
         "Duplicate entry '1' for key 'users.PRIMARY'"),
        (users((2, "bob", 1, 1), mode="update", assignments=((2, const(999, INT)),)), 1264,
         "Out of range value for column 'age' at row 1"),
        (users((2**31 - 1, "x", 1, 1), (0, "y", 1, 1)), 1467,
         "Failed to read auto-increment value from storage engine: the values of column 'id' are used up"),
        (Insert("nobody", (0,), [(1,)]), 1146, "Table 'nobody' doesn't exist"),
        (Delete("nobody", None), 1146, "Table 'nobody' doesn't exist"),
    ]
    for statement, code, message in wrong:
        assert rig.one(statement) == (code, message)
        assert rig.deltas == {} and rig.rows() == before and rig.store.row_count("users") == 2
    assert rig.one(users(("c",), columns=(1,))) == (1, 3, 0), "failed statements use up no number"
    rig.reopen()
    assert len(rig.rows()) == 3


def test_a_group_keeps_its_good_statements_and_each_sees_the_ones_before(rig: Rig) -> None:
    rig.create(USERS, LOG)
    results = rig.write(
        users((1, "a", 1, None)), users((1, "b", 1, None)), users((2, "b", 1, None)),
        Insert("log", (0, 1), [("x", 1), ("x", 1)]), Update("users", ((3, const(5, INT)),), call("is_null", BOSS)),
        Insert("log", (0,), [("x",)]), Delete("log", call("eq", col(1, INT), const(1, INT))),
        Delete("users", call("eq", ID, const(1, INT))), users((1, "c", 1, 1)))
    assert [r.error.code if r.error else r.affected for r in results] == [1, 1062, 1, 2, 2, 1, 2, 1, 1]
    assert {rig.values("users", r): w for r, w in zip(rig.deltas["users"].rows(), rig.deltas["users"].weights.tolist(),
                                                      strict=True)} == {(2, "b", 1, 5): 1, (1, "c", 1, 1): 1}
    assert [rig.values("log", r) for r in rig.deltas["log"].rows()] == [("x", None)]
    rig.reopen()
    assert rig.rows() == [(1, "c", 1, 1), (2, "b", 1, 5)] and rig.rows("log") == [("x", None)]


def test_a_statement_that_fails_in_its_midst_is_taken_back_before_the_next(rig: Rig) -> None:
    rig.create(USERS)
    rig.write(users((1, "a", 100, None)))
    add = ((2, call("add", AGE, col(NEW + 2, AGE.type))),)
    results = rig.write(
        users((2, "b", 100, None), (1, "a", 100, None), (1, "a", 100, None), mode="update", assignments=add),
        Update("users", ((3, call("add", AGE, const(1, INT))),), call("eq", ID, const(1, INT))),
        users((2, "b", 7, None)))
    assert [r.error.code if r.error else r.affected for r in results] == [1264, 1, 1]
    assert rig.rows() == [(1, "a", 100, 101), (2, "b", 7, None)] and len(rig.deltas["users"]) == 3


def test_keys_may_cross_within_a_statement(rig: Rig) -> None:
    rig.create(USERS)
    rig.write(users(*((i, f"n{i}", 1, None) for i in range(1, 50))))
    assert rig.one(Update("users", ((0, call("add", ID, const(1, INT))),), None)) == (49, 0, 49)
    swap = call("case", call("eq", ID, const(2, INT)), const("n2", TEXT), const("n1", TEXT))
    where = call("in", ID, const(2, INT), const(3, INT))
    assert rig.one(Update("users", ((1, swap),), where)) == (2, 0, 2)
    assert [r[:2] for r in rig.rows()[:3]] == [(2, "n2"), (3, "n1"), (4, "n3")]


def test_every_type_is_kept_and_arrow_rows_are_rows(rig: Rig) -> None:
    types = [INT, BOOL, DOUBLE, decimal(9, 3), TEXT, TEXT_BIN, DATE, DATETIME]
    table = TableDef("every", tuple(Column(f"c{i}", t) for i, t in enumerate(types)), (0, 4, 6))
    rig.create(table)
    row = (-5, 1, -0.5, Decimal("-1.250"), "Ünï\0code", "", date(1969, 7, 20), datetime(2038, 1, 19, 3, 14, 8))
    empty = (7, None, None, None, "", None, date(1, 1, 1), None)
    rig.write(Insert("every", tuple(range(8)), [row, empty]))
    assert sorted(rig.rows("every")) == sorted([row, empty])
    arrow = pa.record_batch([pa.array([v, w]) for v, w in zip((1, *row[1:]), (2, *empty[1:]), strict=True)],
                            [c.name for c in table.columns])
    assert rig.one(Insert("every", tuple(range(8)), arrow)) == (2, 0, 0)
    assert rig.one(Insert("every", (0, 4), arrow)) == (1136, "Column count doesn't match value count at row 1")
    rig.reopen()
    assert rig.rows("every") == [row, (1, *row[1:]), (2, *empty[1:]), empty]


def test_null_in_unique_and_folding(rig: Rig) -> None:
    table = TableDef("t", (Column("ci", TEXT, False), Column("b", TEXT_BIN), Column("n", INT)), (0,),
                     (IndexDef("bn", (1, 2), True),))
    rig.create(table)
    assert rig.one(Insert("t", (0, 1, 2), [("a", "x", None), ("b", "x", None), ("c", None, 1), ("d", None, 1)]))[0] == 4
    assert rig.one(Insert("t", (0, 1, 2), [("Á", "y", 1)]))[0] == 1062
    assert rig.one(Insert("t", (0, 1, 2), [("e", "y", 1), ("f", "Y", 1)]))[0] == 2
    assert rig.one(Insert("t", (0, 1, 2), [("g", "Y", 1)])) == (1062, "Duplicate entry 'Y-1' for key 't.bn'")
    assert rig.one(Update("t", ((0, const("A", TEXT)),), call("eq", col(0, TEXT), const("a", TEXT)))) == (1, 0, 1)
    assert rig.rows("t")[0] == ("A", "x", None)


@pytest.mark.parametrize("rows", [3, 300])
def test_rows_of_one_statement_meet_each_other_in_order(rig: Rig, rows: int) -> None:
    rig.create(USERS)
    add = ((2, call("add", AGE, col(NEW + 2, AGE.type))),)
    many = [(i % 3 + 1, f"n{i % 3}", 1, i) for i in range(rows)]
    counted = min(rows // 3, 255)
    met = 3 * (counted - 1)
    assert rig.one(users(*many[: 3 * counted], mode="update", assignments=add)) == (3 + 2 * met, 0, met)
    assert [r[2] for r in rig.rows()] == [counted] * 3
    others = [(*row[:3], row[3] + 1000) for row in many]
    assert rig.one(users(*others, mode="replace")) == (6 + 6 * (rows // 3 - 1), 0, 0)
    assert [r[3] for r in rig.rows()] == [997 + rows, 998 + rows, 999 + rows]


# ------------------------------------------------------------------ exactly once
def test_a_resend_gets_its_first_results(rig: Rig) -> None:
    rig.create(USERS)
    first = rig.store.write([users((1, "a", 1, 1)), users((1, "b", 1, 1))], 1, 5)
    assert rig.store.write([users((2, "c", 1, 1))], 1, 5) == (first[0], {})
    rig.reopen()
    assert rig.store.applied() == (1, 5)
    again, deltas = rig.store.write([users((1, "a", 1, 1)), users((1, "b", 1, 1))], 1, 5)
    assert (again, deltas) == (first[0], {}) and again[1].error == first[0][1].error
    rig.store.set_recipe(["other"], 1, 5)
    assert rig.store.recipe() == ("create users",)
    rig.store.write([], 2, 1)
    with pytest.raises(StoreFenced):
        rig.store.write([users((3, "a", 1, 1))], 1, 6)


def test_results_older_than_the_ring_are_no_longer_known(rig: Rig) -> None:
    rig.create(LOG)
    for seq in range(10, 10 + meta.RECENT_RESULTS + 1):
        rig.store.write([], 1, seq)
    rig.reopen()
    assert rig.store.write([], 1, 11) == ([], {})
    with pytest.raises(InvariantViolation, match="ACK-DURABLE"):
        rig.store.write([], 1, 10)


# ------------------------------------------------------------------ definitions
def test_definitions_are_durable_with_the_recipe_and_not_before(rig: Rig) -> None:
    rig.create(USERS, LOG)
    rig.write(Insert("log", (0,), [("kept",)]))
    kept = rig.store.tables()
    assert [t.table_id for t in kept.values()] == [1, 2]
    rig.store.drop_table("log")
    rig.store.create_table(replace(LOG, columns=(Column("other", INT),)))
    rig.store.add_index("log", (0,))
    rig.reopen()
    assert rig.store.tables() == kept and rig.rows("log") == [("kept", None)]
    rig.store.drop_table("log")
    rig.store.create_table(replace(LOG, columns=(Column("other", INT),)))
    rig.store.set_recipe(["a", "b"], 1, 9)
    rig.reopen()
    assert rig.store.recipe() == ("a", "b") and rig.rows("log") == [] and rig.store.row_count("log") == 0
    assert rig.store.tables()["log"].table_id == 3, "ids are never used again"
    with pytest.raises(SqlError, match="already exists"):
        rig.store.create_table(LOG)
    with pytest.raises(SqlError, match="doesn't exist"):
        rig.store.drop_table("nobody")
    with pytest.raises(ValueError, match="in use"):
        rig.store.create_table(TableDef("third", LOG.columns, table_id=1))


def test_the_last_changes_are_remembered(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the change or not at all; what comes again is remembered once; a store of before has none."""
    monkeypatch.setattr(meta, "HISTORY_CHANGES", 3)
    rig.create(USERS)
    assert rig.store.history() == ()
    for n in range(1, 6):
        for _ in range(2):
            note = ChangeOrigin(n, "me@here", "x" * 5_000 if n == 4 else f"change {n}")
            rig.store.set_recipe([f"r{n}"], 1, rig.seq + n, note)
        if n == 2:
            rig.store.set_recipe(["no note"], 1, rig.seq + 2)
    want = [(3, "change 3"), (4, "x" * 4_000), (5, "change 5")]
    for _ in range(2):
        assert [(c.version, c.note.text) for c in rig.store.history()] == want
        assert rig.store.history()[0].note == ChangeOrigin(3, "me@here", "change 3")
        rig.reopen()
    rig.store.set_recipe([], 1, rig.seq + 1, ChangeOrigin(0, "", "sixth"))
    assert [c.version for c in rig.store.history()] == [4, 5, 6]


def test_defaults_of_every_kind_survive(rig: Rig) -> None:
    columns = [(INT, 5), (DOUBLE, 0.1), (decimal(5, 2), Decimal("1.50")), (TEXT, "ä"), (DATE, date(2020, 2, 29)),
               (SqlType(Kind.DATETIME, scale=3), datetime(2020, 1, 1, 0, 0, 0, 1000)), (BOOL, True), (INT, None)]
    table = TableDef("d", (Column("id", INT, False), *(Column(f"c{i}", t, True, True, v)
                                                       for i, (t, v) in enumerate(columns))), (0,))
    rig.create(table)
    rig.reopen()
    assert rig.store.tables()["d"] == replace(table, table_id=1)
    rig.write(Insert("d", (0,), [(1,)]))
    assert rig.rows("d") == [(1, *(v for _, v in columns))]


# ------------------------------------------------------------------ look-ups
def test_texts_that_nobody_looks_at_are_not_read(rig: Rig) -> None:
    table = TableDef("v", (Column("name", TEXT, False), Column("n", INT), Column("a", TEXT), Column("b", TEXT)), (0,))
    rig.create(table)
    rig.write(Insert("v", (0, 1, 2, 3), [(f"k{i:03}", i % 4, None if i % 5 == 0 else f"a{i}", f"b{i}" * (i % 3))
                                         for i in range(100)]))
    rig.reopen()
    whole: list[tuple[Any, ...]] = []
    after: bytes | None = None
    while not whole or after is not None:
        batch, after = rig.store.scan("v", after, 30, {3})
        whole += [rig.values("v", row) for row in batch.rows()]
    assert all(r[2] is None for r in whole[:90]), "of few rows all is read"
    assert [(r[0], r[1], r[3]) for r in whole] == [(f"k{i:03}", i % 4, f"b{i}" * (i % 3)) for i in range(100)]
    rig.store.add_index("v", (1,))
    for texts in (set(), {2}, {0, 3}, None):
        found, _ = rig.store.lookup("v", (1,), np.array([[3]]), texts)
        rows = [rig.values("v", row) for row in found.rows()]
        wanted = [(f"k{i:03}", 3, None if i % 5 == 0 else f"a{i}", f"b{i}" * (i % 3)) for i in range(3, 100, 4)]
        seen = [1, *(range(4) if texts is None else texts)]
        assert [[r[c] for c in seen] for r in rows] == [[r[c] for c in seen] for r in wanted]


def test_lookups_by_key_prefix_and_index(rig: Rig) -> None:
    table = TableDef("v", (Column("user", INT, False), Column("story", INT, False), Column("tag", TEXT)), (0, 1))
    rig.create(table)
    rig.write(Insert("v", (0, 1, 2), [(u, s, f"T{(u + s) % 5}" if s else None) for u in range(60) for s in range(20)]))

    def found(columns: tuple[int, ...], *keys: tuple[Any, ...]) -> list[tuple[int, tuple[Any, ...]]]:
        codes = np.array([[encode(v, table.columns[c].type, rig.symbols) for v, c in zip(k, columns, strict=True)]
                          for k in keys], np.int64).T
        batch, ordinals = rig.store.lookup("v", columns, codes)
        return [(o, rig.values("v", r)) for o, r in zip(ordinals.tolist(), batch.rows(), strict=True)]

    assert found((0, 1), (3, 4), (99, 1), (5, 0)) == [(0, (3, 4, "T2")), (2, (5, 0, None))]
    assert found((1, 0), (4, 3), (4, 3)) == [(0, (3, 4, "T2")), (1, (3, 4, "T2"))]
    assert found((0,), (7,)) == [(0, (7, s, f"T{(7 + s) % 5}" if s else None)) for s in range(20)]
    by_all = (("t2", 4, 3), ("t3", 4, 3), (None, 0, 5), ("T1", 0, 5), ("T2", 4, 3))
    assert found((2, 1, 0), *by_all) == [(0, (3, 4, "T2")), (2, (5, 0, None)), (4, (3, 4, "T2"))], "by the key in it"
    codes = [[encode(v, table.columns[c].type, rig.symbols) for v, c in zip(k, (2, 1, 0), strict=True)] for k in by_all]
    scan = rig.store.begin_lookup("v", (2, 1, 0), np.array(codes[:4], np.int64).T)
    assert [scan.next(3)[1].tolist(), scan.next(3)[1].tolist()] == [[0, 2], []] and scan.over and scan.same()
    with pytest.raises(KeyError, match="add_index"):
        found((2,), ("T1",))
    rig.store.add_index("v", (2,))
    rig.store.add_index("v", (1, 2))
    rig.store.add_index("v", (0,))
    assert len(found((2,), ("t1",), (None,), ("T",), ("T2",))) == 2 * 228 + 60  # NULL equals NULL, as in GROUP BY
    assert found((2, 1), ("t0", 5)) == [(0, (u, 5, "T0")) for u in range(0, 60, 5)]
    assert len(found((2, 1), (None, 0))) == 60
    assert len(found((1,), (0,))) == 60
    rig.write(Delete("v", call("lt", col(0, INT), const(50, INT))))
    rig.reopen()
    assert [i.columns for i in rig.store.table("v").indexes] == [(1, 2), (2,)]
    assert found((2, 1), ("t0", 5)) == [(0, (50, 5, "T0")), (0, (55, 5, "T0"))]
    empty, none = rig.store.lookup("v", (2,), np.empty((1, 0), np.int64))
    assert len(empty) == len(none) == 0


def test_indexes_that_nobody_needs_any_more_go_oldest_first(rig: Rig) -> None:
    table = TableDef("wide", (*(Column(f"c{i}", INT) for i in range(6)),), (0,), (IndexDef("own", (5,)),))
    rig.create(table)
    rig.write(Insert("wide", tuple(range(6)), [tuple(n * i % 7 for i in range(1, 7)) for n in range(1, 7)]))
    for c in (1, 2, 3, 4):
        rig.store.add_index("wide", (c,))

    def kept() -> list[tuple[int, ...]]:
        return [i.columns for i in rig.store.table("wide").indexes]

    rig.store.trim_indexes("wide", [(3,), (0,)], 3)
    assert kept() == [(5,), (1,), (2,), (3,), (4,)], "three others are kept"
    rig.store.trim_indexes("wide", [(1,), (0,)], 1)
    assert kept() == [(5,), (1,), (4,)], "a declared one always"
    rig.reopen()
    assert sorted(kept()) == [(1,), (4,), (5,)]
    rig.store.trim_indexes("wide", [(0, 1)], 1)
    assert sorted(kept()) == [(4,), (5,)], "by the key nobody needs another"
    rig.store.trim_indexes("wide", [], 0)
    assert kept() == [(5,)]
    rig.write(Update("wide", ((1, const(50, INT)),), None))
    rig.store.add_index("wide", (1,))
    assert len(rig.store.lookup("wide", (1,), np.array([[50]]))[0]) == 6, "made anew, it has all rows"


# ------------------------------------------------------------------ directories that are not right
def test_a_directory_in_use_is_refused(rig: Rig) -> None:
    with pytest.raises(StoreInUse, match="in use by another process"):
        RocksStore(str(rig.path), PlainSymbols())
    script = ("import sys; from noria.core.plain_symbols import PlainSymbols\n"
              "from noria.storage.store import RocksStore\n"
              "from noria.storage.rocks.errors import StoreInUse\n"
              "try: RocksStore(sys.argv[1], PlainSymbols())\nexcept StoreInUse as e: print(e)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", script, str(rig.path)], env=environment, capture_output=True,
                          text=True, check=True)
    assert f"the data directory {rig.path} is in use by another process" in told.stdout


def put_meta(path: Path, key: bytes, value: bytes) -> None:
    options = Options(raw_mode=True)
    db = Rdict(str(path), options, {n: Options(raw_mode=True) for n in Rdict.list_cf(str(path), options)})
    batch = WriteBatch(raw_mode=True)
    batch.put(key, value, db.get_column_family_handle("meta"))
    db.write(batch)
    db.close()


@pytest.mark.parametrize(("key", "value", "message"), [
    (b"format", b"99", "written by a newer version"), (b"format", b"\x00", "damaged: its format version"),
    (b"catalog", b"{", "damaged: its catalog cannot be read"), (b"catalog", b"{}", "damaged: its catalog"),
    (b"counters:t1", b"x", "damaged: its catalog"), (b"done:1", b"[1]", "damaged: its catalog"),
    (b"index:t1.i1", json.dumps([1, [1], False, ""]).encode(), "damaged: table users has no data"),
])
def test_meta_data_that_cannot_be(rig: Rig, key: bytes, value: bytes, message: str) -> None:
    rig.create(USERS)
    rig.write(users((1, "a", 1, 1)))
    rig.store.close()
    put_meta(rig.path, key, value)
    for _ in range(2):  # a refused opening leaves no lock behind
        with pytest.raises(StoreError, match=message):
            RocksStore(str(rig.path), PlainSymbols())


def crashed(rig: Rig) -> Path:
    """The directory as a crash now would leave it (closing would write the log's rows to files)."""
    image = rig.path.parent / "crashed"
    shutil.copytree(rig.path, image)
    rig.store.close()
    return image


@pytest.mark.parametrize("damage", ["CURRENT gone", "manifest cut", "log damaged", "file gone", "not ours", "a file"])
def test_a_damaged_directory_is_not_taken_for_a_new_one(rig: Rig, damage: str) -> None:
    rig.create(USERS)
    for i in range(200):
        rig.write(users((i + 1, f"n{i}", 1, 1)))
    if damage == "file gone":
        rig.store.checkpoint(str(rig.path) + "-flushed")
    path = crashed(rig)
    if damage == "CURRENT gone":
        (path / "CURRENT").unlink()
    elif damage == "manifest cut":
        manifest = next(path.glob("MANIFEST-*"))
        manifest.write_bytes(b"\xff" * 50 + manifest.read_bytes()[50:])
    elif damage == "log damaged":
        log = max(path.glob("*.log"), key=lambda p: p.stat().st_size)
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 0xFF
        log.write_bytes(content)
    elif damage == "file gone":
        for file in path.glob("*.sst"):
            file.unlink()
    elif damage == "not ours":
        path = path.parent / "other"
        other = Rdict(str(path), Options(raw_mode=True))
        other.create_column_family("theirs", Options(raw_mode=True))
        other.close()
    else:
        path = path.parent / "file"
        path.write_text("")
    with pytest.raises(StoreError, match=r"damaged|not Noria's|cannot make"):
        RocksStore(str(path), PlainSymbols())


def test_a_torn_end_of_the_log_is_no_damage(rig: Rig) -> None:
    rig.create(USERS)
    rig.write(users((1, "a", 1, 1)))
    acknowledged = (rig.path / sync_mark.FILE).read_bytes()
    rig.write(users((2, "b", 1, 1)))
    rig.path = crashed(rig)
    (rig.path / sync_mark.FILE).write_bytes(acknowledged)  # killed before the second write returned
    log = max(rig.path.glob("*.log"), key=lambda p: p.stat().st_size)
    log.write_bytes(log.read_bytes()[:-3])
    rig.open()
    assert rig.rows() == [(1, "a", 1, 1)] and rig.store.applied() == (1, 2)


def test_an_earlier_owner_is_fenced_off(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    RocksStore(path, PlainSymbols(), fence=3).close()
    RocksStore(path, PlainSymbols(), fence=3).close()
    with pytest.raises(StoreFenced, match="belongs to epoch 3"):
        RocksStore(path, PlainSymbols(), fence=2)
    RocksStore(path, PlainSymbols()).close()


def test_an_interrupted_creation_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for left in ("LOCK", "LOG", "IDENTITY"):
        (tmp_path / "data" / left).write_text("")
    RocksStore(str(tmp_path / "data"), PlainSymbols()).close()


# ------------------------------------------------------------------ the catalog
def test_a_change_writes_what_it_changes(rig: Rig) -> None:
    """Of the tables; the program's statements are one entry."""
    rig.create(USERS, LOG)
    before = dict(rig.store.engine.items_with_prefix("meta", b""))
    written: list[bytes] = []
    real = meta.put
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meta, "put", lambda engine, batch, key, value: (
            written.append(key), real(engine, batch, key, value)))
        rig.create(replace(LOG, name="third"))
    after = dict(rig.store.engine.items_with_prefix("meta", b""))
    assert {k for k in after if k.startswith(b"table:")} == {b"table:1", b"table:2", b"table:3"}
    assert {k for k in after if after[k] != before.get(k)} <= {
        b"catalog", b"table:3", b"counters:t3", *(k for k in after if k.startswith((b"done:", b"index:t3")))}
    assert not any(k.startswith((b"table:1", b"table:2", b"counters:t1", b"index:t1")) for k in written)
    rig.store.drop_table("third")
    rig.seq += 1
    rig.store.set_recipe(["without"], 1, rig.seq)
    assert b"table:3" not in dict(rig.store.engine.items_with_prefix("meta", b"table:"))
    rig.reopen()
    assert list(rig.store.tables()) == ["users", LOG.name] and rig.store.recipe() == ("without",)


def test_the_catalog_of_the_format_before_is_read(rig: Rig) -> None:
    """It had the tables in one entry.  Text that UTF-8 cannot hold is kept."""
    rig.create(USERS, LOG)
    rig.write(users((1, "a", 1, 1)))
    tables = rig.store.tables()
    batch = WriteBatch(raw_mode=True)
    data = {"recipe": ["x\ud800"], "tables": [table_to_json(t) for t in tables.values()], "last_table_id": 2}
    meta.put(rig.store.engine, batch, b"catalog", json.dumps(data).encode())
    meta.put(rig.store.engine, batch, b"format", b"5")
    for id in (1, 2):
        batch.delete(b"table:%d" % id, rig.store.engine.handle("meta"))
    rig.store.engine.commit(batch)
    rig.reopen()
    assert rig.store.tables() == tables and rig.store.recipe() == ("x\ud800",) and len(rig.rows()) == 1
    rig.seq += 1
    rig.store.set_recipe([*rig.store.recipe(), "y"], 1, rig.seq)
    rig.reopen()
    assert rig.store.tables() == tables and rig.store.recipe() == ("x\ud800", "y") and len(rig.rows()) == 1
