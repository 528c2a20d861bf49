"""Integers at the ends of their columns' ranges, stored by every statement; the oracle is Python's integers."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import noria
from noria.core.errors import SqlError
from noria.core.limits import ERROR_CODE, MAX_INT, MIN_INT, NULL_CODE
from noria.core.types import BIGINT, Column, TableDef
from noria.state.symbols.symbols import SymbolTable
from noria.storage.tables.table import StoredTable
from seeds import cases

BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}
USED_UP, TOO_BIG, OVERFLOW = 1467, 1264, 1690


def bounds(type: str) -> tuple[int, int]:
    """What a column takes: BIGINT without its two lowest values, UNSIGNED up to 2**63 - 1."""
    name, _, unsigned = type.partition(" ")
    if unsigned:
        return 0, min(2 ** BITS[name] - 1, MAX_INT)
    return max(-(2 ** (BITS[name] - 1)), MIN_INT), 2 ** (BITS[name] - 1) - 1


TYPES = [*BITS, *(f"{t} UNSIGNED" for t in BITS)]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with noria.open(tmp_path_factory.mktemp("boundaries")) as opened:
        for t in TYPES:
            name = t.replace(" ", "_")
            opened.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, n {t} NOT NULL, m {t}, KEY (n))")
            opened.sql(f"CREATE VIEW sums_{name} AS SELECT COUNT(*) AS c, SUM(n) AS s, MIN(n) AS lo, MAX(m) AS hi FROM"
                       f" {name}")
        yield opened


def error(db: Any, text: str, *values: Any) -> int:
    """The number of the statement's error, 0 for none."""
    try:
        db.sql(text, list(values))
    except SqlError as e:
        return e.code
    return 0


# ------------------------------------------------------------------ AUTO_INCREMENT
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("columns", ["(a) VALUES (1), (2), (3), (4)", "VALUES (NULL, 1), (0, 2), (NULL, 3), (NULL, 4)",
                                     "SET a = 1"])
def test_auto_increment_gives_its_last_values_and_then_none(tmp_path: Path, type: str, columns: str) -> None:
    high, rows = bounds(type)[1], 1 if columns.startswith("SET") else 4
    with noria.open(tmp_path) as db:
        db.sql(f"CREATE TABLE ai (id {type} AUTO_INCREMENT PRIMARY KEY, a INT)")
        db.sql(f"INSERT INTO ai VALUES ({high - 4}, 0)")
        want = [high - 4]
        while len(want) < 5:
            db.sql(f"INSERT INTO ai {columns}")
            want += range(want[-1] + 1, want[-1] + rows + 1)
        for text in (f"INSERT INTO ai {columns}", f"INSERT IGNORE INTO ai {columns}", f"REPLACE INTO ai {columns}",
                     f"INSERT INTO ai {columns} ON DUPLICATE KEY UPDATE a = 9"):
            assert error(db, text) == USED_UP, text
        assert [r[0] for r in db.sql("SELECT id FROM ai ORDER BY id")] == want


@pytest.mark.parametrize("type", ["BIGINT", "TINYINT", "BIGINT UNSIGNED"])
def test_a_row_too_many_stores_nothing(tmp_path: Path, type: str) -> None:
    high = bounds(type)[1]
    with noria.open(tmp_path) as db:
        db.sql(f"CREATE TABLE ai (id {type} AUTO_INCREMENT PRIMARY KEY, a INT)")
        db.sql(f"ALTER TABLE ai AUTO_INCREMENT = {high - 2}")
        assert error(db, "INSERT INTO ai (a) VALUES (1), (2), (3), (4)") == USED_UP
        assert error(db, f"INSERT INTO ai VALUES (NULL, 1), ({high}, 2), (NULL, 3)") == USED_UP
        assert not list(db.sql("SELECT * FROM ai"))


def test_a_new_auto_increment_column_does_not_leave_its_range(tmp_path: Path) -> None:
    with noria.open(tmp_path) as db:
        db.sql("CREATE TABLE many (a INT)")
        db.table("many").insert({"a": list(range(128))})
        assert error(db, "ALTER TABLE many ADD id TINYINT NOT NULL AUTO_INCREMENT UNIQUE") == USED_UP
        db.sql("DELETE FROM many WHERE a = 0")
        db.sql("ALTER TABLE many ADD id TINYINT NOT NULL AUTO_INCREMENT UNIQUE")
        assert sorted(r[0] for r in db.sql("SELECT id FROM many")) == list(range(1, 128))


# ------------------------------------------------------------------ every statement
@st.composite
def stored(draw: st.DrawFn) -> tuple[str, int]:
    type = draw(st.sampled_from(TYPES))
    low, high = bounds(type)
    near = draw(st.sampled_from((low, high, 0, -(2**63), 2**63, 2**64)))
    return type, near + draw(st.integers(-3, 3))


@settings(max_examples=cases(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored(), st.sampled_from(("literal", "parameter", "text", "rows", "update", "duplicate", "arrow")))
def test_a_value_is_stored_exactly_or_refused(db: Any, case: tuple[str, int], way: str) -> None:
    type, value = case
    table, (low, high) = type.replace(" ", "_"), bounds(type)
    db.sql(f"DELETE FROM {table}")
    if way in ("update", "duplicate"):
        db.sql(f"INSERT INTO {table} VALUES (1, 1, 1)")
    found = _store(db, table, value, way)
    fits = low <= value <= high
    assert found == (0 if fits else TOO_BIG), (type, value, way)
    old = [(1, 1, 1)] if way in ("update", "duplicate") else []
    want = [(1, value, value)] if fits else old
    assert list(db.sql(f"SELECT * FROM {table}")) == want
    [(c, s, lo, hi)] = db.sql(f"SELECT c, s, lo, hi FROM sums_{table}")
    assert (c, None if s is None else int(Decimal(s)), lo, hi) == (
        (1, want[0][1], want[0][1], want[0][2]) if want else (0, None, None, None))
    if fits:
        assert list(db.sql(f"SELECT id FROM {table} WHERE n = ?", [value])) == [(1,)]
        assert db.sql(f"DELETE FROM {table} WHERE n = {value}").affected == 1


def _store(db: Any, table: str, value: int, way: str) -> int:
    if way == "literal":
        return error(db, f"INSERT INTO {table} VALUES (1, {value}, {value})")
    if way == "parameter":
        return error(db, f"INSERT INTO {table} VALUES (1, ?, ?)", value, value)
    if way == "text":
        return error(db, f"REPLACE INTO {table} VALUES (1, '{value}', '{value}')")
    if way == "update":
        return error(db, f"UPDATE {table} SET n = {value}, m = {value} WHERE id = 1")
    if way == "duplicate":
        return error(db, f"INSERT INTO {table} VALUES (1, {value}, 1) ON DUPLICATE KEY UPDATE n = VALUES(n), m = n")
    try:
        rows: Any = [(1, value, value)] if way == "rows" else {"id": [1], "n": [value], "m": [value]}
        db.table(table).insert(rows)
    except SqlError as e:
        return e.code
    return 0


# ------------------------------------------------------------------ casts
@pytest.mark.parametrize(("text", "want"), [
    ("'-9223372036854775806'", -(2**63) + 2), ("'9223372036854775807'", MAX_INT), ("'99999999999999999999'", MAX_INT),
    ("1e30", MAX_INT), ("'-9223372036854775807'", None), ("'-9223372036854775808'", None), ("-1e30", None),
    ("'-99999999999999999999'", None)])
def test_a_cast_that_no_code_can_hold_is_an_error(db: Any, text: str, want: int | None) -> None:
    """MySQL gives the two lowest values of BIGINT for some of these, which are not stored here."""
    if want is None:
        assert error(db, f"SELECT CAST({text} AS SIGNED)") == OVERFLOW
    else:
        assert list(db.sql(f"SELECT CAST({text} AS SIGNED)")) == [(want,)]


@pytest.mark.parametrize("text", ["'18446744073709551615'", "'9223372036854775808'", "1e30", "'-1'"])
def test_an_unsigned_cast_that_no_code_can_hold_is_an_error(db: Any, text: str) -> None:
    assert error(db, f"SELECT CAST({text} AS UNSIGNED)") == OVERFLOW


# ------------------------------------------------------------------ the store's own guard
@pytest.mark.parametrize(("code", "at", "number"), [
    (NULL_CODE, 0, 1048), (NULL_CODE, 1, 1048), (NULL_CODE, 2, 0), (ERROR_CODE, 0, OVERFLOW),
    (ERROR_CODE, 2, OVERFLOW)])
def test_the_store_packs_no_row_without_what_it_must_have(code: int, at: int, number: int) -> None:
    columns = (Column("id", BIGINT, False), Column("n", BIGINT, False), Column("m", BIGINT))
    rows = np.ones((3, 2), np.int64)
    rows[at, 1] = code
    table = StoredTable(TableDef("t", columns, (0,), table_id=1), SymbolTable())
    if not number:
        assert len(table.rows(rows)) == 2
        return
    with pytest.raises(SqlError) as e:
        table.rows(rows)
    assert e.value.code == number
