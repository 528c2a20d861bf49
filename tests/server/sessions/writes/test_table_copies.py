"""CREATE TABLE … LIKE, and CREATE TABLE … AS SELECT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.core.errors import SqlError
from server.sessions.connection import Connection


@pytest.fixture(params=[1, 3], ids=["one", "three"])
def a(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    with noria.open(tmp_path / "data", workers=request.param) as opened:
        opened.sql("CREATE TABLE parent (id INT PRIMARY KEY)")
        opened.sql("CREATE TABLE src (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(10) NOT NULL DEFAULT 'x',"
                   " b DECIMAL(5,2), n INT AS (LENGTH(a)), at TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3), p INT,"
                   " UNIQUE KEY ua (a), KEY kb (b, a(3)), CHECK (b > 0), FOREIGN KEY (p) REFERENCES parent (id))")
        opened.sql("INSERT INTO src (a, b) VALUES ('p', 1), ('quux', 2)")
        yield Connection(opened)


def definition(a: Any, table: str) -> str:
    text: str = a.rows(f"SHOW CREATE TABLE {table}")[0][1]
    return text.replace(f"`{table}`", "`t`").replace(f"`{table}_chk_1`", "`t_chk_1`")


def without_foreign_keys(text: str) -> str:
    lines = [line for line in text.split("\n") if "FOREIGN KEY" not in line]
    return "\n".join(lines).replace(" AUTO_INCREMENT=3", "")


@pytest.mark.parametrize("text", ["CREATE TABLE copy LIKE src", "CREATE TABLE copy (LIKE src)",
                                  "CREATE TABLE IF NOT EXISTS copy LIKE src"])
def test_like_has_columns_indexes_and_checks(a: Any, text: str) -> None:
    a.sql(text)
    made, source = definition(a, "copy"), without_foreign_keys(definition(a, "src"))
    assert made.replace(",\n)", "\n)") == source.replace(",\n)", "\n)")
    assert a.rows("SELECT * FROM copy") == []
    assert a.sql("INSERT INTO copy (a, b, p) SELECT a, b, 9 FROM src").affected == 2, "it has no FOREIGN KEY"
    assert a.code("INSERT INTO copy (a) SELECT a FROM src") == 1062
    assert a.code("INSERT INTO copy (a, b) VALUES ('z', 0)") == 3819
    assert a.code("CREATE TABLE copy LIKE src") == 1050 and a.code("CREATE TABLE IF NOT EXISTS copy LIKE src") == 0


def test_like_in_another_database(a: Any) -> None:
    a.sql("CREATE DATABASE shop")
    a.sql("CREATE TABLE shop.src LIKE src")
    a.sql("USE shop")
    a.sql("CREATE TABLE second LIKE noria.src")
    assert [name for name, *_ in a.rows("SHOW TABLES")] == ["second", "src"]


def test_as_select(a: Any) -> None:
    made = a.sql("CREATE TABLE c AS SELECT id, a, b * 2 AS bb, n + 1 AS more, at FROM src WHERE b < 9")
    assert made.affected == 2 and made.info.startswith("Records: 2")
    assert a.rows("SELECT id, a, bb, more FROM c ORDER BY id") == [(1, "p", 2, 2), (2, "quux", 4, 5)]
    assert [(name, kind) for name, kind, *_ in a.rows("DESCRIBE c")] == [
        ("id", "int"), ("a", "varchar(10)"), ("bb", "decimal(18,2)"), ("more", "bigint"), ("at", "timestamp(3)")]
    a.sql("CREATE TABLE d (id INT PRIMARY KEY, extra INT DEFAULT 5) SELECT id, a FROM src")
    assert a.rows("SELECT id, extra, a FROM d ORDER BY id") == [(1, 5, "p"), (2, 5, "quux")]
    a.sql("CREATE TABLE e SELECT 1 AS x, 'y' AS y, (SELECT COUNT(*) FROM src) AS n")
    assert a.rows("SELECT * FROM e") == [(1, "y", 2)]
    a.sql("CREATE TABLE IF NOT EXISTS e AS SELECT 7 AS x")
    assert a.rows("SELECT * FROM e") == [(1, "y", 2)]


def test_a_table_that_cannot_be_filled_is_not_made(a: Any) -> None:
    a.sql("CREATE TABLE many (g INT)")
    a.sql("INSERT INTO many VALUES (1), (1)")
    assert a.code("CREATE TABLE made (g INT PRIMARY KEY) AS SELECT g FROM many") == 1062
    assert a.code("SELECT * FROM made") == 1146
    a.sql("CREATE TABLE made (g INT) AS SELECT g FROM many")


@pytest.mark.parametrize("text, code", [
    ("CREATE TABLE x LIKE nothing", 1146), ("CREATE TABLE x AS SELECT a FROM nothing", 1146), ("CREATE TABLE x", 1113),
    ("CREATE TABLE x AS SELECT a, a FROM src", 1060), ("CREATE TABLE src AS SELECT 1 AS x", 1050),
    ("CREATE TABLE x (LIKE src, b INT)", 1064), ("CREATE TABLE x LIKE src ENGINE = InnoDB", 1064)])
def test_errors(a: Any, text: str, code: int) -> None:
    with pytest.raises(SqlError) as caught:
        a.sql(text)
    assert caught.value.code == code
