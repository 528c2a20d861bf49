"""FOREIGN KEY in definitions: names, indexes, actions, and what ALTER TABLE does with them."""

from __future__ import annotations

import pytest

from noria.core.errors import SqlError
from noria.core.types import Action, TableDef
from noria.sql.commands import AlterTable
from noria.sql.parse import parse
from noria.sql.program.alteration import alteration
from noria.sql.program.definition_text import table_text
from noria.sql.text.databases import Database, Databases, Names
from sql.catalogs import DictCatalog, altered, made

SHOP = Names("shop", Databases().having(Database("shop")))
BASE = "CREATE TABLE t (a INT, b INT, KEY k (b), FOREIGN KEY (a) REFERENCES p (id), CONSTRAINT x FOREIGN KEY (b, a) " \
       "REFERENCES q (c, d) ON DELETE CASCADE)"


def keys(table: TableDef) -> dict[str, str]:
    """Each key as its columns and what it refers to."""
    def columns(places: tuple[int, ...]) -> str:
        return ",".join(table.columns[c].name for c in places)

    return {k.name: f"{columns(k.columns)} -> {k.parent}({','.join(k.parent_columns)})" for k in table.foreign_keys}


def indexes(table: TableDef) -> dict[str, str]:
    return {i.name: ",".join(table.columns[c].name for c in i.columns) for i in table.indexes}


def error(statement: str, *before: str) -> tuple[int, str]:
    with pytest.raises(SqlError) as e:
        parse(statement, DictCatalog(*before))
    return e.value.code, e.value.message


# ------------------------------------------------------------------ CREATE TABLE
def test_names_and_indexes_are_made_as_mysql_makes_them() -> None:
    table = made(BASE)
    assert keys(table) == {"t_ibfk_1": "a -> p(id)", "x": "b,a -> q(c,d)"}
    assert indexes(table) == {"k": "b", "a": "a", "x": "b,a"}
    assert made("CREATE TABLE t (a INT, FOREIGN KEY ix (a) REFERENCES p (id))").indexes[0].name == "ix"
    assert made("CREATE TABLE t (a INT, CONSTRAINT c FOREIGN KEY ix (a) REFERENCES p (id))").indexes[0].name == "c"


def test_an_index_that_begins_with_the_columns_is_enough() -> None:
    table = made("CREATE TABLE t (a INT, b INT, c INT, PRIMARY KEY (a, b), KEY k (c, a), FOREIGN KEY (a) REFERENCES p "
                 "(id), FOREIGN KEY (c) REFERENCES p (id), FOREIGN KEY (b) REFERENCES p (id))")
    assert indexes(table) == {"k": "c,a", "b": "b"}


def test_an_index_on_a_prefix_is_not_enough() -> None:
    table = made("CREATE TABLE t (a VARCHAR(9), KEY k (a(3)), FOREIGN KEY (a) REFERENCES p (id))")
    assert indexes(table) == {"k": "a", "a": "a"}


def test_a_column_may_declare_one() -> None:
    table = made("CREATE TABLE t (a INT REFERENCES p (id) ON UPDATE CASCADE, b INT CONSTRAINT x REFERENCES p (id))")
    assert keys(table) == {"t_ibfk_1": "a -> p(id)", "x": "b -> p(id)"}


@pytest.mark.parametrize("written, on_delete, on_update", [
    ("", Action.NO_ACTION, Action.NO_ACTION),
    ("ON DELETE CASCADE", Action.CASCADE, Action.NO_ACTION),
    ("on update set null on delete restrict", Action.RESTRICT, Action.SET_NULL),
    ("ON DELETE NO ACTION ON UPDATE CASCADE", Action.NO_ACTION, Action.CASCADE)])
def test_actions(written: str, on_delete: Action, on_update: Action) -> None:
    (key,) = made(f"CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES p (id) {written})").foreign_keys
    assert (key.on_delete, key.on_update) == (on_delete, on_update)


def test_names_of_databases() -> None:
    table = made("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES p (id), FOREIGN KEY (a) REFERENCES noria.q (id))",
                 SHOP)
    assert keys(table) == {"t_ibfk_1": "a -> shop.p(id)", "t_ibfk_2": "a -> q(id)"}


@pytest.mark.parametrize("parts, code", [
    ("a INT, FOREIGN KEY (z) REFERENCES p (id)", 1072), ("a INT, FOREIGN KEY (a, a) REFERENCES p (id, c)", 1060),
    ("a INT, FOREIGN KEY (a) REFERENCES p (id, c)", 1239), ("a INT, FOREIGN KEY (a) REFERENCES p", 1239),
    ("a INT, b INT, FOREIGN KEY (a, b) REFERENCES p (id, id)", 1060), ("a INT REFERENCES p", 1239),
    ("a INT, FOREIGN KEY (a) REFERENCES p (id) ON DELETE SET DEFAULT", 1215),
    ("a INT, FOREIGN KEY (a) REFERENCES p (id) MATCH FULL", 1235),
    ("a INT, FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE ON DELETE CASCADE", 1064),
    ("a INT NOT NULL, FOREIGN KEY (a) REFERENCES p (id) ON DELETE SET NULL", 1830),
    ("a INT PRIMARY KEY, FOREIGN KEY (a) REFERENCES p (id) ON UPDATE SET NULL", 1830),
    ("a INT, CONSTRAINT x FOREIGN KEY (a) REFERENCES p (id), CONSTRAINT X FOREIGN KEY (a) REFERENCES q (id)", 1826),
    ("a INT, b INT AS (a) VIRTUAL, FOREIGN KEY (b) REFERENCES p (id)", 3733),
    ("a INT, b INT AS (a) STORED, FOREIGN KEY (b) REFERENCES p (id) ON DELETE SET NULL", 3104),
    ("a INT, b INT AS (a) STORED, FOREIGN KEY (b) REFERENCES p (id) ON UPDATE CASCADE", 3104),
    ("a INT, b INT AS (a) STORED, FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE", 3192)])
def test_refused(parts: str, code: int) -> None:
    assert error(f"CREATE TABLE t ({parts})")[0] == code


def test_generated_columns_that_no_action_writes() -> None:
    assert keys(made("CREATE TABLE t (a INT, b INT AS (a) STORED, FOREIGN KEY (b) REFERENCES p (id) ON DELETE CASCADE, "
                     "FOREIGN KEY (a) REFERENCES p (id))"))


def test_a_key_is_added_behind_the_index_that_it_uses() -> None:
    table = altered("ADD FOREIGN KEY (b) REFERENCES p (id), ADD UNIQUE KEY u (b)", "CREATE TABLE t (a INT, b INT)")
    assert indexes(table) == {"u": "b"}


@pytest.mark.parametrize("change", ["DROP FOREIGN KEY x", "DROP CONSTRAINT x"])
def test_a_dropped_key_leaves_its_index(change: str) -> None:
    table = altered(change, BASE)
    assert (list(keys(table)), list(indexes(table))) == (["t_ibfk_1"], ["k", "a", "x"])


def test_keys_follow_a_converted_column_and_the_table() -> None:
    table = altered("MODIFY a VARCHAR(9), RENAME COLUMN b TO e", BASE)
    assert keys(table) == {"t_ibfk_1": "a -> p(id)", "x": "e,a -> q(c,d)"}
    own = "CREATE TABLE t (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES t (id))"
    assert keys(altered("RENAME TO u", own)) == {"u_ibfk_1": "up -> u(id)"}


@pytest.mark.parametrize("change, code", [
    ("DROP COLUMN a", 1828), ("DROP FOREIGN KEY z", 1091), ("DROP CONSTRAINT z", 3940), ("ADD CONSTRAINT x FOREIGN KEY "
     "(a) REFERENCES p (id)", 1826), ("ADD b2 INT NOT NULL REFERENCES p (id) ON DELETE SET NULL", 1830)])
def test_alterations_that_are_refused(change: str, code: int) -> None:
    assert error(f"ALTER TABLE t {change}", BASE)[0] == code


def test_a_column_is_dropped_with_its_keys() -> None:
    assert keys(altered("DROP COLUMN a, DROP FOREIGN KEY x, DROP FOREIGN KEY t_ibfk_1", BASE)) == {}


def test_parts_are_dropped_by_their_names_in_another_database() -> None:
    catalog = DictCatalog()
    catalog.tables["shop.t"] = made("CREATE TABLE t (a INT, CONSTRAINT x FOREIGN KEY (a) REFERENCES p (id), CONSTRAINT "
                                    "y CHECK (a > 1), CHECK (a > 2))", SHOP)
    assert [c.name for c in catalog.tables["shop.t"].checks] == ["t_chk_1", "y"]
    for change in ("DROP FOREIGN KEY x", "DROP CONSTRAINT x", "DROP CHECK y", "DROP CONSTRAINT y", "DROP KEY x"):
        (command,) = parse(f"ALTER TABLE t {change}", catalog, names=SHOP)
        assert isinstance(command, AlterTable) and command.table != command.was


# ------------------------------------------------------------------ whole programs
def test_what_is_written_is_read_again() -> None:
    table = made(BASE)
    assert made(table_text(table)) == table
    assert "CONSTRAINT `x` FOREIGN KEY (`b`, `a`) REFERENCES `q` (`c`, `d`) ON DELETE CASCADE" in table_text(table)


@pytest.mark.parametrize("want, parts", [
    (BASE, ()),
    (BASE.replace("t (a", "t (A").replace("p (id)", "P (ID)"), ()),
    ("CREATE TABLE t (a INT, b INT, KEY k (b), KEY a (a), KEY x (b, a), FOREIGN KEY (a) REFERENCES p (id))",
     ("DROP FOREIGN KEY `x`",)),
    (BASE.replace("CASCADE", "SET NULL"),
     ("DROP FOREIGN KEY `x`",
      "ADD CONSTRAINT `x` FOREIGN KEY (`b`, `a`) REFERENCES `q` (`c`, `d`) ON DELETE SET NULL")),
    (BASE.replace("b INT,", "b INT, d INT REFERENCES p (id),"),
     ("DROP FOREIGN KEY `t_ibfk_1`", "ADD COLUMN `d` int", "ADD KEY `d` (`d`)",
      "ADD CONSTRAINT `t_ibfk_1` FOREIGN KEY (`d`) REFERENCES `p` (`id`)",
      "ADD CONSTRAINT `t_ibfk_2` FOREIGN KEY (`a`) REFERENCES `p` (`id`)"))])
def test_differences(want: str, parts: tuple[str, ...]) -> None:
    """The parts are understood, and lead there."""
    found, _ = alteration(made(BASE), made(want), False)
    assert found == parts
    if parts:
        again, _ = alteration(altered(", ".join(parts), BASE), made(want), False)
        assert [p for p in again if "KEY" in p] == []
