"""What following is made of, by itself: addresses, types, what statements mean, what changes come to."""

from __future__ import annotations

import doctest
from datetime import timedelta

import pyarrow as pa
import pytest

from noria.core.types import Collation
from noria.following import address, changes, schema, source, statements, values
from noria.following.address import CannotFollow, SourceAddress
from noria.following.binlog import RowChange
from noria.following.schema import SourceColumn, SourceTable
from noria.following.statements import meaning
from noria.server.source import writes


@pytest.mark.parametrize("module", [address, schema, source, statements, values, writes])
def test_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0


def test_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SourceAddress.of("mysql://a%40b:p%2Fw@[::1]:3307/shop")
    assert (found.user, found.password, found.host, found.port, found.database) == ("a@b", "p/w", "::1", 3307, "shop")
    assert "p/w" not in repr(found) and found.source == "mysql://[::1]:3307/shop"
    monkeypatch.setenv("NORIA_SOURCE_PASSWORD", "secret")
    assert SourceAddress.of("mariadb://u@h/d").password == "secret"
    assert SourceAddress.of("mysql://u:@h/d").password == ""
    for wrong in ("mysql://h", "postgres://h/d", "h/d", "mysql://u:pw@h/d?ssl=1", "mysql://h/d/e"):
        with pytest.raises(CannotFollow) as told:
            SourceAddress.of(wrong)
        assert "pw" not in str(told.value)


@pytest.mark.parametrize("statement, what, tables", [
    ("BEGIN", "begin", ()), ("COMMIT", "commit", ()), ("ROLLBACK", "rollback", ()), ("SAVEPOINT `s`", "nothing", ()),
    ("XA COMMIT 'x'", "xa", ()), ("/* c */ -- d\n TRUNCATE TABLE `a`", "truncate", ("a",)),
    ("truncate other.a", "nothing", ()), ("CREATE TABLE IF NOT EXISTS shop.`b``c` (id INT)", "create", ("b`c",)),
    ("CREATE TEMPORARY TABLE b (id INT)", "nothing", ()), ("DROP TABLE `a`,`other`.`b`, shop.c /* by server */", "drop",
                                                           ("a", "c")),
    ("DROP TABLE IF EXISTS a CASCADE", "drop", ("a",)), ("RENAME TABLE a TO z, other.x TO shop.y", "rename",
                                                         ("a", "z", "y")),
    ("ALTER ONLINE TABLE a ADD x INT", "alter", ("a",)), ("CREATE UNIQUE INDEX i ON a (v)", "alter", ("a",)),
    ("DROP INDEX i ON shop.a", "alter", ("a",)), ("DROP DATABASE shop", "database", ()),
    ("DROP DATABASE other", "nothing", ()), ("INSERT INTO a VALUES (1)", "rows", ()),
    ("UPDATE other.b JOIN shop.a SET v = 1", "rows", ()), ("/*!40000 ALTER TABLE `a` DISABLE KEYS */", "alter", ("a",)),
    ("GRANT ALL ON *.* TO x", "nothing", ()), ("CREATE VIEW w AS SELECT * FROM a", "nothing", ()),
    ("CREATE OR REPLACE TABLE a (id INT)", "create", ("a",))])
def test_what_a_statement_means(statement: str, what: str, tables: tuple[str, ...]) -> None:
    assert meaning(statement, "shop", "shop") == (what, tables)
    if what == "rows" and "shop" not in statement:
        assert meaning(statement, "other", "shop").what == "nothing"


@pytest.mark.parametrize("kind, charset, collation, here", [
    ("int(11)", "", "", "int"), ("tinyint(1)", "", "", "tinyint(1)"),
    ("tinyint(3) unsigned", "", "", "tinyint unsigned"),
    ("bigint(20) unsigned zerofill", "", "", "bigint unsigned"), ("decimal(18,2)", "", "", "decimal(18,2)"),
    ("varchar(9)", "utf8mb4", "utf8mb4_bin", "varchar(9) COLLATE utf8mb4_bin"), ("text", "latin1", "latin1_bin",
                                                                                "text COLLATE utf8mb4_bin"),
    ("longtext", "utf8mb3", "utf8mb3_general_ci", "longtext"), ("year(4)", "", "", "year"), ("binary(16)", "", "",
                                                                                           "binary(16)"),
    ("enum('a\\','it''s')", "utf8mb4", "", "enum('a\\\\','it''s')"), ("datetime(6)", "", "", "datetime(6)"),
    ("float(7,2)", "", "", "float"), ("json", "", "", "json")])
def test_types_here(kind: str, charset: str, collation: str, here: str) -> None:
    assert schema.sql_type("t", SourceColumn("c", kind, charset, collation)) == here


@pytest.mark.parametrize("kind", ["bit(1)", "geometry", "point", "uuid", "inet6", "decimal(19,2)", "vector(3)"])
def test_types_that_are_not_here(kind: str) -> None:
    with pytest.raises(CannotFollow, match=r"t\.c is .* in the source.*--tables"):
        schema.sql_type("t", SourceColumn("c", kind))


def test_texts_in_other_charsets_and_inexact_keys() -> None:
    with pytest.raises(CannotFollow, match="texts in cp1251"):
        schema.sql_type("t", SourceColumn("c", "text", "cp1251", "cp1251_general_ci"))
    for kind in ("float", "double", "json"):
        with pytest.raises(CannotFollow):
            schema.sql_type("t", SourceColumn("c", kind), is_key=True)
    assert Collation.BIN.value in schema.sql_type("t", SourceColumn("c", "varchar(9)", "utf8mb4", "x_ci"), is_key=True)


T = SourceTable("t", (SourceColumn("v", "int"), SourceColumn("k", "varchar(9)", "utf8mb4"), SourceColumn("j", "int")),
                ("k", "j"))


def net(*given: RowChange) -> dict[str, list[tuple[object, ...]]]:
    found = changes.NetChange()
    found.add(given, {"t": T})
    return {on: [tuple(r.values()) for r in rows.to_pylist()] for _, on, rows in found.batches({"t": T})}


def test_of_a_key_the_last_counts() -> None:
    assert net(RowChange("t", None, (1, "a", 1)), RowChange("t", ("a", 1), (2, "a", 1))) == {"replace": [(2, "a", 1)]}
    assert net(RowChange("t", None, (1, "a", 1)), RowChange("t", ("a", 1), None)) == {"delete": [("a", 1)]}
    assert net(RowChange("t", ("a", 1), (1, "b", 1)), RowChange("t", ("b", 1), (1, "a", 1))) == {
        "delete": [("b", 1)], "replace": [(1, "a", 1)]}
    assert net(RowChange("t", ("a", 1), None), RowChange("t", None, (3, "a", 1))) == {"replace": [(3, "a", 1)]}


def test_a_value_that_cannot_be_had_is_told() -> None:
    with pytest.raises(CannotFollow, match=r"t\.v \(int\)"):
        values.arrays(T, [0], [(2**40,)], [None])
    year = SourceColumn("y", "year(4)")
    assert values.arrow_type(year) == pa.int16() and values.of_binlog(year)(1900) == 0
    assert values.of_binlog(SourceColumn("t", "time(1)"))(timedelta(seconds=-2)) == timedelta(seconds=-2)
    with pytest.raises(ValueError, match="0000-00-00"):
        values.of_select(SourceColumn("d", "date"))("0000-00-00")
