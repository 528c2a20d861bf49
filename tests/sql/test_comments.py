"""Conditional comments, as dumps and drivers write them: they are statements, not comments."""

from __future__ import annotations

import pytest

from noria.core.errors import SqlError
from noria.sql.commands import CreateTable, Nothing, Select, SetVariable
from noria.sql.parse import parse
from noria.sql.text.comments import opened
from sql.catalogs import DictCatalog

CATALOG = DictCatalog("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20))")


@pytest.mark.parametrize(("text", "want"), [
    ("/*!40101 SET NAMES utf8 */", "         SET NAMES utf8   "),
    ("/*! SET a = 1*/;", "    SET a = 1  ;"),
    ("SELECT '/*!40101 x */', `/*! y */` /* /*!1 */", "SELECT '/*!40101 x */', `/*! y */` /* /*!1 */"),
    ("/*!99999 SET a = 1 */", "/*!99999 SET a = 1 */"),
    ("SELECT 1 -- /*! x */\n/*! + 1 */", "SELECT 1 -- /*! x */\n    + 1   "),
])
def test_opened(text: str, want: str) -> None:
    assert opened(text) == want and len(want) == len(text)


def test_what_stands_in_them_is_run() -> None:
    (said,) = parse("/*!40103 SET TIME_ZONE='+01:00' */", CATALOG)
    assert isinstance(said, SetVariable) and said.assignments[0].value == "+01:00"
    (made,) = parse("CREATE TABLE u (id INT /*!50100 NOT NULL */) /*!50100 ENGINE=InnoDB */", CATALOG)
    assert isinstance(made, CreateTable) and not made.table.columns[0].nullable
    (select,) = parse("SELECT /*!40001 SQL_NO_CACHE */ * FROM t WHERE id = 1", CATALOG)
    assert isinstance(select, Select) and select.view is not None
    with pytest.raises(SqlError, match="NONSENSE"):
        parse("/*!40101 NONSENSE */", CATALOG)


def test_keys_around_the_rows_of_a_dump() -> None:
    assert parse("/*!40000 ALTER TABLE `t` DISABLE KEYS */", CATALOG) == [Nothing("alter", ("t",))]
    with pytest.raises(SqlError, match="Can't DROP 'x'; check that column/key exists"):
        parse("ALTER TABLE t DROP COLUMN x", CATALOG)
