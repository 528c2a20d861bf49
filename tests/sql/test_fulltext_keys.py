"""FULLTEXT keys in definitions, in the difference of programs, and MATCH … AGAINST in plans."""

from __future__ import annotations

import pytest

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.sql.program.alteration import alteration
from noria.sql.program.definition_text import table_text
from sql.catalogs import altered, made


def table(parts: str) -> TableDef:
    return made(f"CREATE TABLE t ({parts})")


def keys(of: TableDef) -> dict[str, list[str]]:
    return {i.name: [of.columns[c].name for c in i.columns] for i in of.fulltext}


BOTH = "a TEXT, b VARCHAR(9), c INT, KEY k (b), FULLTEXT KEY x (a), FULLTEXT INDEX y (a, b)"


def test_keys_are_kept_and_printed() -> None:
    was = table(BOTH)
    assert keys(was) == {"x": ["a"], "y": ["a", "b"]} and [i.name for i in was.indexes] == ["k"]
    assert made(table_text(was)) == was


@pytest.mark.parametrize(("parts", "names"), [
    ("a TEXT, FULLTEXT (a), FULLTEXT (a)", ["a", "a_2"]), ("a TEXT, FULLTEXT KEY (a(10)), KEY (a(3))", ["a"]),
    ("a VARCHAR(9), KEY a (a), FULLTEXT (a)", ["a_2"])])
def test_a_key_without_a_name_has_its_first_columns(parts: str, names: list[str]) -> None:
    assert list(keys(table(parts))) == names


@pytest.mark.parametrize(("change", "left"), [
    ("DROP INDEX x", {"y": ["a", "b"]}), ("RENAME INDEX x TO z", {"z": ["a"], "y": ["a", "b"]}),
    ("DROP COLUMN b", {"x": ["a"], "y": ["a"]}), ("DROP COLUMN a", {"y": ["b"]}),
    ("CHANGE a d MEDIUMTEXT", {"x": ["d"], "y": ["d", "b"]}), ("MODIFY b CHAR(9)", {"x": ["a"], "y": ["a", "b"]}),
    ("ADD FULLTEXT (b)", {"x": ["a"], "y": ["a", "b"], "b": ["b"]})])
def test_alter_table(change: str, left: dict[str, list[str]]) -> None:
    assert keys(altered(change, f"CREATE TABLE t ({BOTH})")) == left


@pytest.mark.parametrize(("change", "code"), [
    ("ADD FULLTEXT x (b)", 1061), ("ADD FULLTEXT k (b)", 1061), ("ADD INDEX x (b)", 1061), ("ADD FULLTEXT (c)", 1283),
    ("MODIFY a INT", 1283), ("MODIFY b VARCHAR(9) COLLATE utf8mb4_bin", 1283), ("DROP INDEX z", 1091),
    ("ADD FULLTEXT (a) WITH PARSER ngram", 1235)])
def test_errors(change: str, code: int) -> None:
    with pytest.raises(SqlError) as e:
        altered(change, f"CREATE TABLE t ({BOTH})")
    assert e.value.code == code


def test_the_difference_of_two_definitions() -> None:
    text = "CREATE TABLE t (a TEXT, b TEXT, FULLTEXT KEY x (a), FULLTEXT KEY y (b))"
    want = table("a TEXT, b TEXT, FULLTEXT KEY z (a), KEY y (b(5))")
    parts, wrong = alteration(made(text), want, False)
    assert not wrong and parts == ("RENAME INDEX `x` TO `z`", "DROP INDEX `y`", "ADD KEY `y` (`b`(5))")
    assert altered(", ".join(parts), text).fulltext == want.fulltext
