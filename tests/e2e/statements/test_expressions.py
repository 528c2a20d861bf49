"""Expressions against MariaDB: every line of expressions.txt over rows of every type, values as text on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pymysql
import pytest

from e2e.mariadb import INSTALLED, MariaDb
from noria.core import values
from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.expressions import evaluate
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.plan.mir import Project
from noria.server.mysql.codec import PayloadReader
from noria.server.mysql.rows import _text_encoder
from noria.sql.commands import Select, as_batch
from noria.sql.parse import parse
from sql.catalogs import DictCatalog

pytestmark = pytest.mark.skipif(not INSTALLED, reason="needs MariaDB")
TABLE = """CREATE TABLE x (
  id INT PRIMARY KEY, i INT, u INT UNSIGNED, b BIGINT, d DECIMAL(10,2), e DECIMAL(14,6), f DOUBLE, g FLOAT,
  s VARCHAR(40), c CHAR(10), t TEXT, k VARCHAR(20) COLLATE utf8mb4_bin, h VARBINARY(20), y YEAR,
  a DATE, m DATETIME, n DATETIME(6), w TIME, v TIME(3), z ENUM('small','Large','medium'), q SET('a','b','c'), j JSON)"""
ROWS: list[tuple[Any, ...]] = [
    (1, 5, 7, 10**12, "12.50", "0.333333", 1.5, 0.1, "Hello World", "abc", "some text, here", "Bin", b"\x01\xffA", 2020,
     "2020-02-29", "2020-02-29 13:14:15", "2020-02-29 13:14:15.123456", "10:11:12", "-01:02:03.500", "Large", "a,c",
     '{"a": 1, "b": [1, 2, {"c": "x"}], "name": "Ann"}'),
    (2, -3, 0, -5, "-0.01", "-1.500000", -2.25, 1e10, "  padded ", "x", "", "", b"", 1999,
     "1999-12-31", "1999-12-31 23:59:59", "1970-01-01 00:00:00.000001", "-838:59:59", "00:00:00", "small", "", "[]"),
    (3, *[None] * 21),
    (4, 0, 4294967295, 9007199254740993, "99999999.99", "99999999.999999", 1e300, -0.5, "12abc", "Émile", "a%b_c",
     "12abc", b"abc", 2155, "9999-12-31", "9999-12-31 23:59:59", "2021-03-31 23:59:59.999999", "100:00:00",
     "23:59:59.999", "medium", "a,b,c", '"just text"'),
    (5, 2147483647, 1, 1, "1.00", "1.000000", 0.0, 3.0, "élan", "ELAN", "2020-01-02", "a", b"a", 2000, "2000-01-01",
     "2000-01-01 00:00:00", "2000-01-01 00:00:00.500000", "00:00:00", "12:30:45.678", "small", "b", "null"),
]


def corpus() -> tuple[list[str], list[str]]:
    """The expressions that must agree, and those that differ for a reason."""
    agree, differ, reason = [], [], False
    for line in Path(__file__).with_name("expressions.txt").read_text().splitlines():
        if line and not line.startswith(("#", "differs:")):
            (differ if reason else agree).append(line)
        reason = line.startswith("differs:")
    return agree, differ


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server = MariaDb(tmp_path_factory.mktemp("maria"))
    try:
        with server.connect().cursor() as cursor:
            cursor.execute(TABLE)
            for row in ROWS:
                cursor.execute(f"INSERT INTO x VALUES ({', '.join(['%s'] * len(row))})", row)
        connection = pymysql.connect(unix_socket=server.socket, user="root", database="oracle", autocommit=None,
                                     conv={}, charset="utf8mb4", collation="utf8mb4_unicode_nopad_ci")
        yield connection.cursor()
    finally:
        server.close()


def told(cursor: Any, expression: str) -> list[Any]:
    """MariaDB's values as it writes them; one error for all rows."""
    try:
        cursor.execute(f"SELECT {expression} FROM x ORDER BY id")
    except pymysql.Error as e:
        return [e.args[0]]
    return [_readable(row[0]) for row in cursor.fetchall()]


def _readable(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


CATALOG = DictCatalog(TABLE)
SYMBOLS = PlainSymbols()


def ours(expression: str) -> list[Any]:
    """Noria's; the number of an error alone, as MySQL stops at the first."""
    table = CATALOG.table("x")
    assert table is not None
    columns = [values.convert([r[i] for r in ROWS], c, 1, SYMBOLS) for i, c in enumerate(table.columns)]
    try:
        (command,) = parse(f"SELECT {expression} FROM x", CATALOG)
    except SqlError as e:
        return [e.code]
    assert isinstance(command, Select)
    plan = as_batch(command).plan
    assert isinstance(plan, Project)
    e = plan.exprs[0]
    codes = evaluate.compile(e)(Batch.of(np.array(columns)), SYMBOLS).tolist()
    if ERROR_CODE in codes:
        return [1690]
    encode = _text_encoder(e.type)
    return [None if c == NULL_CODE
            else _readable(PayloadReader(encode([values.decode(c, e.type, SYMBOLS)])[0]).lenenc())
            for c in codes]


def test_expressions_agree(maria: Any) -> None:
    wrong = []
    for expression in corpus()[0]:
        want, got = told(maria, expression), ours(expression)
        if want != got:
            wrong.append(f"{expression}\n    MariaDB {want}\n    Noria   {got}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong)


def test_known_differences_are_still_there(maria: Any) -> None:
    """What agrees by now loses its `differs` line."""
    agreeing = [e for e in corpus()[1] if told(maria, e) == ours(e)]
    assert not agreeing
