"""Conditional comments, as dumps and drivers write them: they are statements, not comments."""

from __future__ import annotations

from contextlib import suppress

import pytest

from noria.core.errors import SqlError
from noria.server.mysql import codec
from noria.sql.commands import CreateTable, CreateView, NoOp, Select, SetVariable
from noria.sql.parse import parse
from noria.sql.text.comments import opened
from noria.sql.text.shape import split
from sql.catalogs import DictCatalog

CATALOG = DictCatalog("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20))")


@pytest.mark.parametrize(("text", "want"), [
    ("/*!40101 SET NAMES utf8 */", "         SET NAMES utf8   "),
    ("/*! SET a = 1*/;", "    SET a = 1  ;"),
    ("SELECT '/*!40101 x */', `/*! y */` /* /*!1 */", "SELECT '/*!40101 x */', `/*! y */` /* /*!1 */"),
    ("/*!99999 SET a = 1 */", "/*!99999 SET a = 1 */"),
    ("/*!50001 SELECT '*/;', \"*/\" /* one */ */, 2", "         SELECT '*/;', \"*/\" /* one */   , 2"),
    ("/*!99999 don't */ + 1", "/*!99999 don't */ + 1"),
    ("SELECT 1 -- /*! x */\n/*! + 1 */", "SELECT 1 -- /*! x */\n    + 1   "),
])
def test_opened(text: str, want: str) -> None:
    assert opened(text) == want and len(want) == len(text)


@pytest.mark.parametrize("text", [
    "/*! don't */ + 1", "SELECT 1 /*!", "SELECT 1 /*! + 1", "/*! /* */ SELECT 1", "/*!50001 `*/"])
def test_what_does_not_end_is_refused(text: str) -> None:
    with pytest.raises(SqlError, match="a comment that does not end"):
        opened(text)


@pytest.mark.parametrize("piece", ["/*!", "/*! '", "/*! /* */", "/*!\"*/", "'\\", "'a''b\\", "`", "/*", "_binary '"])
def test_no_text_takes_more_than_its_length(piece: str) -> None:
    """Of a megabyte: it would be hours, if the end of each beginning was sought."""
    text = piece * (1_000_000 // len(piece))
    assert len(split(";" + text)) <= 2
    with suppress(SqlError):
        opened("/*!*/" + text)
    with suppress(SqlError):
        codec.statement(b"INSERT " + text.encode() + b"\xff")


def test_what_stands_in_them_is_run() -> None:
    (said,) = parse("/*!40103 SET TIME_ZONE='+01:00' */", CATALOG)
    assert isinstance(said, SetVariable) and said.assignments[0].value == "+01:00"
    (made,) = parse("CREATE TABLE u (id INT /*!50100 NOT NULL */) /*!50100 ENGINE=InnoDB */", CATALOG)
    assert isinstance(made, CreateTable) and not made.table.columns[0].nullable
    (select,) = parse("SELECT /*!40001 SQL_NO_CACHE */ * FROM t WHERE id = 1", CATALOG)
    assert isinstance(select, Select) and select.view is not None
    with pytest.raises(SqlError, match="NONSENSE"):
        parse("/*!40101 NONSENSE */", CATALOG)


DUMPED_VIEW = """/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`root`@`localhost` SQL SECURITY DEFINER */
/*!50001 VIEW `v` AS select s, ';*/' AS x /* as it is */ from t where id > 1 */"""


def test_a_view_of_a_dump_is_kept_as_what_it_means() -> None:
    assert split(f"{DUMPED_VIEW};\nSELECT 1") == [DUMPED_VIEW, "SELECT 1"]
    (made,) = parse(DUMPED_VIEW, CATALOG)
    assert isinstance(made, CreateView)
    assert made.text == "CREATE VIEW `v` AS select s, ';*/' AS x /* as it is */ from t where id > 1"
    assert made.view.text == "select s, ';*/' AS x /* as it is */ from t where id > 1"


@pytest.mark.parametrize("head", [
    "CREATE VIEW", "CREATE ALGORITHM = merge VIEW", "CREATE DEFINER=CURRENT_USER VIEW", "CREATE DEFINER='a'@'%' VIEW",
    "CREATE DEFINER = current_user() SQL SECURITY INVOKER VIEW", "CREATE DEFINER=root VIEW",
    "CREATE ALGORITHM=TEMPTABLE DEFINER=`a`@`b` SQL SECURITY DEFINER VIEW"])
def test_options_of_a_view_that_mean_nothing_here(head: str) -> None:
    """One way to keep a view, one user who may do everything: the same view, whatever they are."""
    (made,) = parse(f"{head} v AS SELECT s FROM t WHERE id = ?", CATALOG)
    assert isinstance(made, CreateView) and made.text == "CREATE VIEW v AS SELECT s FROM t WHERE id = ?"
    (again,) = parse(f"{head.replace('CREATE', 'CREATE OR REPLACE')} v AS SELECT s FROM t", CATALOG)
    assert isinstance(again, CreateView) and again.or_replace
    assert again.text == "CREATE OR REPLACE VIEW v AS SELECT s FROM t"


@pytest.mark.parametrize("text", [
    "CREATE ALGORITHM=FAST VIEW v AS SELECT s FROM t", "CREATE ALGORITHM VIEW v AS SELECT s FROM t",
    "CREATE DEFINER VIEW v AS SELECT s FROM t", "CREATE SQL SECURITY NONE VIEW v AS SELECT s FROM t",
    "CREATE DEFINER=a@b TABLE view (id INT)", "CREATE SQL SECURITY DEFINER", "CREATE ALGORITHM = MERGE",
    "CREATE DEFINER = VIEW @", "CREATE DEFINER = VIEW", "CREATE VIEW DEFINER", "CREATE ALGORITHM = VIEW",
    "CREATE OR REPLACE",
    "CREATE ALGORITHM=MERGE TABLE v (view INT)", "CREATE VIEW v AS SELECT s FROM t WITH CHECK OPTION"])
def test_options_that_are_wrong_are_refused(text: str) -> None:
    with pytest.raises(SqlError):
        parse(text, CATALOG)


def test_keys_around_the_rows_of_a_dump() -> None:
    assert parse("/*!40000 ALTER TABLE `t` DISABLE KEYS */", CATALOG) == [NoOp("alter", ("t",))]
    with pytest.raises(SqlError, match="Can't DROP 'x'; check that column/key exists"):
        parse("ALTER TABLE t DROP COLUMN x", CATALOG)
