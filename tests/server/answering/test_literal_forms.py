"""Literals that mean something else beside another type: hexadecimal and bit literals in numbers, small numbers beside
a YEAR.  Text statements are repeated with other values, so that shapes with parameters answer some of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import noria


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with noria.open(tmp_path_factory.mktemp("forms") / "db") as made:
        made.sql("CREATE TABLE t (id INT PRIMARY KEY, i INT, s VARCHAR(9), b VARBINARY(9), d DECIMAL(9,2), x DOUBLE, "
                 "y YEAR, KEY (y))")
        made.sql("INSERT INTO t VALUES (1, 0x43, 0x41, 0x4142, 0x05, b'1010', 2002), (2, 65, 'B', 'C', 1, 1, 99), "
                 "(3, 3, 'c', 'd', 1, 1, 0), (4, 4, 'e', 'f', 1, 1, '0')")
        yield made


def values(db: Any, text: str) -> list[Any]:
    return [row[0] if len(row) == 1 else row for row in db.sql(text).rows]


def test_numbers_are_stored(db: Any) -> None:
    assert values(db, "SELECT i, s, b, d, x FROM t WHERE id = 1") == [(67, "A", b"AB", 5, 10)]
    db.sql("UPDATE t SET i = 0x44, s = 0x42 WHERE id = 1")
    assert values(db, "SELECT i, s FROM t WHERE id = 1") == [(68, "B")]
    db.sql("UPDATE t SET i = 0x43, s = 0x41 WHERE id = 1")


@pytest.mark.parametrize("expression, value", [
    ("0x43 + 0", 67), ("b'1000001' + 0", 65), ("X'41' * 2", 130), ("-0x43", -67), ("0x43 | 0", 67),
    ("0x41 = 65", 1), ("0x41 = 'A'", 1), ("0x41 = s", 1), ("0x4142 = b", 1), ("0x43 = i", 1), ("i IN (0x43, 3)", 1),
    ("i BETWEEN 0x42 AND 0x44", 1), ("CONCAT(0x41, 'b')", b"Ab"), ("LENGTH(0x4142)", 2), ("ROUND(0x43)", 67),
    ("MOD(0x43, 5)", 2), ("CAST(0x41 AS UNSIGNED)", 65), ("CAST(0x41 AS CHAR)", "A"), ("SUBSTRING('abc', 0x02)", "bc"),
    ("_binary 0x41 + 0", 0), ("0xFFFFFFFFFF + 1", 2**40), ("HEX(0x41)", "41"),
    (f"0x{'FF' * 3_000}{'00' * 7}43 + 0", 67), (f"i = 0x{'FF' * 3_000}{'00' * 7}43", 1), ("IF(1, 0x41, 5)", b"A"),
    ("y = 2", 1), ("y = '02'", 1), ("y = 2002", 1), ("y <> 2", 0), ("y IN (2, 99)", 1), ("y BETWEEN 1 AND 3", 1),
    ("y + 0 = 2", 0), ("y = 102", 0)])
def test_expressions(db: Any, expression: str, value: Any) -> None:
    assert values(db, f"SELECT {expression} FROM t WHERE id = 1") == [value]


def test_long_texts_of_many_rows(db: Any) -> None:
    rows = ", ".join(f"({n}, 0x4{n % 10}, {'NULL' if n % 3 == 0 else hex(64 + n % 10)}, _binary'5')"
                     for n in range(1_000, 1_100))
    db.sql(f"INSERT INTO t (id, i, b, x) VALUES {rows}")
    assert values(db, "SELECT i, b, x FROM t WHERE id IN (1000, 1002) ORDER BY id") == [
        (64, b"@", 5), (66, None, 5)]
    db.sql("DELETE FROM t WHERE id >= 1000")


def test_sums(db: Any) -> None:
    assert values(db, "SELECT SUM(0x41 + i - i) FROM t WHERE id < 3") == [130]


@pytest.mark.parametrize("again", range(4))
def test_years_in_conditions(db: Any, again: int) -> None:
    assert values(db, "SELECT id FROM t WHERE y = 2") == [1]
    assert values(db, "SELECT id FROM t WHERE y = 99") == [2]
    assert values(db, "SELECT id FROM t WHERE y = '99'") == [2]
    assert values(db, "SELECT id FROM t WHERE y = 0") == [3]
    assert values(db, "SELECT id FROM t WHERE y = '0'") == [4]
    assert values(db, "SELECT id FROM t WHERE y < 69 AND y > 1") == [1]
    assert [row[0] for row in db.sql("SELECT id FROM t WHERE y = ?", [2]).rows] == [1]
    assert values(db, f"SELECT id FROM t WHERE i = 0x43 + {again} - {again}") == [1]
    assert values(db, f"SELECT 0x4{again} + 0 FROM t WHERE id = 1") == [64 + again]
