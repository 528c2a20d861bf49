"""Programs as texts: read, written, compared.  What leads from one to another is tried on a database in
`tests/control/apply/test_program_apply.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noria.core.errors import SqlError
from noria.core.types import Past, TableDef
from noria.sql.program.difference import ProgramDifference, difference
from noria.sql.program.export import ExportedView, current_text, program_text
from noria.sql.program.outline import Outline, read

T = "CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20), KEY by_a (a))"
U = "CREATE TABLE u (id INT PRIMARY KEY, k INT)"
WIDE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20), k INT, KEY by_a (a))"


def text(*statements: str) -> str:
    return ";\n".join(statements)


def written(outline: Outline) -> str:
    kept = [ExportedView(n, v.text, v.stage) for n, v in outline.views.items()]
    return program_text(outline.tables.values(), kept, {t.name: t.first_id for t in outline.tables.values()})


def between(have: str, want: str, drop: bool = False) -> ProgramDifference:
    return difference(read(have), read(want), drop)


EVERYTHING = """
CREATE TABLE t (
  id BIGINT UNSIGNED AUTO_INCREMENT, a INT DEFAULT -3, s VARCHAR(10) COLLATE utf8mb4_bin DEFAULT 'a\\\\b''c"`',
  x VARBINARY(4) DEFAULT X'00ff', y VARBINARY(4) DEFAULT '', d TIME(3) DEFAULT '-30:00:01.5', e ENUM('x','y''z') DEFAULT
  'y''z', f DOUBLE DEFAULT 1e300, g DECIMAL(8,3) NOT NULL DEFAULT 1.5, b BOOLEAN DEFAULT TRUE, day DATE DEFAULT
  '2020-01-02', ts TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), c SET('p','q') DEFAULT
  'p,q', j JSON, h YEAR, i CHAR(3) NOT NULL, `odd ``name` INT, PRIMARY KEY (id, a), KEY (a), KEY (a, s),
  UNIQUE KEY one (s, a)) AUTO_INCREMENT = 70;
CREATE VIEW v AS SELECT * FROM t WHERE a = ?;
ALTER TABLE t ADD COLUMN z INT NOT NULL DEFAULT 5, ADD INDEX (z);
CREATE TABLE bag (a TEXT);
CREATE INTERNAL VIEW i AS SELECT id, z FROM t;
/* a comment */ CREATE VIEW w (p, q) AS SELECT z, COUNT(*) FROM i GROUP BY z;
CREATE VIEW page AS SELECT id FROM t WHERE a > ? ORDER BY id LIMIT ?;
CREATE VIEW two (p, q) AS SELECT id, z FROM t UNION SELECT z, id FROM t;
"""


def at_once(table: TableDef) -> TableDef:
    return replace(table, columns=tuple(replace(c, added=0, initial=None) for c in table.columns))


def test_what_is_written_is_read_again() -> None:
    """Twice the same; with the columns of then in the views of then."""
    made = read(EVERYTHING)
    again = read(written(made))
    assert "ALTER" not in written(made) and again.tables["t"].first_id == 70
    assert again.tables == {n: at_once(t) for n, t in made.tables.items()}
    assert written(again) == written(made)
    assert difference(made, again, True).empty and difference(again, made, True).empty
    assert "z" not in [f.name for f in again.views["v"].definition.fields]
    assert list(again.views) == list(made.views)


def test_a_text_without_stages_where_they_make_no_difference() -> None:
    program = text(T, "CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a", "ALTER TABLE t ADD COLUMN k INT",
                   "CREATE VIEW w AS SELECT n FROM v")
    assert "ALTER" not in written(read(program))
    assert difference(read(program), read(written(read(program))), True).empty


@pytest.mark.parametrize("have, want", [
    ("CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a",
     "-- the same\ncreate  view V as\nselect a , count( * ) n from t group by a"),
    ("CREATE VIEW v AS SELECT * FROM t WHERE a = ?", "CREATE OR REPLACE VIEW v AS SELECT id, a, s FROM t WHERE ? = a"),
    ("CREATE VIEW v AS SELECT a + 0 AS b FROM t", "CREATE VIEW v (b) AS SELECT a+0 FROM t"),
])
def test_only_the_meaning_counts(have: str, want: str) -> None:
    assert between(text(T, have), text(T.replace(", ", " ,\n"), want)).empty


@pytest.mark.parametrize("have, want", [
    ("SELECT a AS x FROM t", "SELECT a AS y FROM t"), ("SELECT id FROM t WHERE a = ?", "SELECT id FROM t WHERE s = ?"),
    ("SELECT id FROM t ORDER BY a LIMIT 3", "SELECT id FROM t ORDER BY a LIMIT 4"),
    ("SELECT id FROM t WHERE a = 1", "SELECT id FROM t WHERE a = 2"),
    ("SELECT DISTINCT a FROM t", "SELECT a FROM t"), ("SELECT id FROM t WHERE a = ?", "SELECT id FROM t WHERE a > ?"),
])
def test_what_means_something_else_is_replaced(have: str, want: str) -> None:
    found = between(text(T, f"CREATE VIEW v AS {have}"), text(T, f"CREATE VIEW v AS {want}"))
    assert found.replaced == ("v",) == found.early and not found.views_kept


@pytest.mark.parametrize("view, kept", [
    ("SELECT a, COUNT(*) AS n FROM t GROUP BY a", True), ("SELECT t.a * t.id AS p FROM t", True),
    ("SELECT t.id, u.k FROM t JOIN u ON t.a = u.id WHERE u.k = ?", True), ("SELECT * FROM t WHERE a = ?", False),
    ("SELECT t.*, u.id AS other FROM t JOIN u ON t.a = u.id", False),
    ("SELECT COUNT(*) AS n FROM (SELECT DISTINCT * FROM t) q", False), ("SELECT s FROM t NATURAL JOIN u", False),
    ("SELECT u.id FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.id = u.id AND k = 2)", False),
])
def test_a_new_column_matters_to_those_who_see_it(view: str, kept: bool) -> None:
    """The last two meant something else before, and are still understood."""
    found = between(text(T, U, f"CREATE VIEW v AS {view}"), text(WIDE, U, f"CREATE VIEW v AS {view}"))
    assert (found.views_kept, found.replaced) == ((("v",), ()) if kept else ((), ("v",)))
    assert not found.early and found.altered == (("t", ("ADD COLUMN `k` int",)),)


def test_whoever_reads_what_changes_is_made_anew_with_it() -> None:
    have = text(T, "CREATE VIEW a AS SELECT id, a FROM t", "CREATE VIEW b AS SELECT id FROM a",
                "CREATE VIEW c AS SELECT s FROM t")
    found = between(have, have.replace("SELECT id, a FROM t", "SELECT id, a + 1 AS a FROM t"))
    assert found.replaced == ("a", "b") and found.views_kept == ("c",)


def test_what_needs_something_new_comes_later() -> None:
    want = text(WIDE, U, "CREATE VIEW a AS SELECT k FROM t", "CREATE VIEW b AS SELECT k FROM a",
                "CREATE VIEW c AS SELECT a FROM t", "CREATE VIEW d AS SELECT * FROM u",
                "CREATE VIEW e AS SELECT c.a FROM c JOIN t ON c.a = t.id")
    found = between(T, want)
    assert found.made == ("a", "b", "c", "d", "e") and found.early == ("c", "e") and found.created == ("u",)


def test_gone_only_if_asked() -> None:
    have = text(T, U, "CREATE VIEW v AS SELECT a FROM t", "CREATE VIEW w AS SELECT a FROM v")
    kept = between(have, T)
    assert kept.empty and kept.left == ("u", "v", "w")
    gone = between(have, T, drop=True)
    assert gone.tables_dropped == ("u",) and gone.views_dropped == ("v", "w") and not gone.left
    stranded = between(have, text(T, "CREATE VIEW v AS SELECT a, s FROM t"))
    assert "'w' is not in the new program and reads 'v'" in stranded.refused[0]


@pytest.mark.parametrize("want, parts", [
    ("id INT PRIMARY KEY, a INT DEFAULT 4, s VARCHAR(20), KEY by_a (a)", ("ALTER COLUMN `a` SET DEFAULT '4'",)),
    ("id INT PRIMARY KEY, a INT DEFAULT NULL, s VARCHAR(20), KEY by_a (a)", ()),
    ("id INT PRIMARY KEY, a INT, s VARCHAR(20)", ("DROP INDEX `by_a`",)),
    ("id INT PRIMARY KEY, a INT, s VARCHAR(20), KEY other (a)", ("RENAME INDEX `by_a` TO `other`",)),
    ("id INT PRIMARY KEY, a INT, s VARCHAR(20), KEY by_a (s)", ("DROP INDEX `by_a`", "ADD KEY `by_a` (`s`)")),
    ("id INT PRIMARY KEY, a INT, s VARCHAR(20), n INT, KEY by_a (a), KEY (n, a)",
     ("ADD COLUMN `n` int", "ADD KEY `n` (`n`, `a`)")),
    ("ID int, A integer, S varchar(20), KEY BY_A (a), PRIMARY KEY (id)", ()),
    ("id INT NOT NULL, a INT, s VARCHAR(20), n INT, KEY by_a (a), PRIMARY KEY (a, n)",
     ("DROP PRIMARY KEY", "ADD COLUMN `n` int NOT NULL", "ADD PRIMARY KEY (`a`, `n`)")),
    ("id INT NOT NULL, a INT, s VARCHAR(20), KEY by_a (a)", ("DROP PRIMARY KEY",)),
    ("id INT PRIMARY KEY, a BIGINT, s VARCHAR(20), KEY by_a (a)", ("MODIFY COLUMN `a` bigint",)),
    ("id INT PRIMARY KEY, a INT NOT NULL DEFAULT 3, s VARCHAR(20), KEY by_a (a)",
     ("MODIFY COLUMN `a` int NOT NULL DEFAULT '3'",)),
    ("id INT, a INT PRIMARY KEY, s VARCHAR(20), KEY by_a (a)",
     ("DROP PRIMARY KEY", "MODIFY COLUMN `id` int", "ADD PRIMARY KEY (`a`)")),
])
def test_tables_that_can_be_altered(want: str, parts: tuple[str, ...]) -> None:
    """The parts are understood, and lead there."""
    found = between(T, f"CREATE TABLE t ({want})")
    assert found.altered == ((("t", parts),) if parts else ()) and not found.refused
    if parts:
        assert between(text(T, f"ALTER TABLE t {', '.join(parts)}"), f"CREATE TABLE t ({want})").empty


@pytest.mark.parametrize("want, words", [
    ("id INT PRIMARY KEY, a INT", "table 't' has a column 's' that the new program has not: --drop drops it"),
    ("id INT PRIMARY KEY, b INT, s VARCHAR(20)", "ALTER TABLE `t` RENAME COLUMN `a` TO … first"),
    ("id INT PRIMARY KEY, s VARCHAR(20), a INT", "in another order"),
    ("id INT PRIMARY KEY, n INT, a INT, s VARCHAR(20)", "column 'n' of table 't' is new"),
])
def test_tables_that_cannot_be_altered(want: str, words: str) -> None:
    assert any(words in r for r in between(T, f"CREATE TABLE t ({want})").refused)


def test_a_counter_goes_up_only() -> None:
    numbered = "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT) AUTO_INCREMENT = {}"
    assert between(numbered.format(5), numbered.format(9)).altered == (("t", ("AUTO_INCREMENT = 9",)),)
    assert between(numbered.format(9), numbered.format(5)).empty


def test_names_of_tables_and_views_are_one_space() -> None:
    found = between(text(T, "CREATE VIEW x AS SELECT a FROM t"), text(T, "CREATE TABLE x (a INT)"))
    assert "'x' is a view, and a table" in found.refused[0]


def test_all_errors_with_their_lines() -> None:
    """What follows from another error is not told; nothing else may stand in a program."""
    with pytest.raises(SqlError) as e:
        read("CREATE TABLE t (a INT);\n\nCREATE VIEW v AS SELECT b FROM t;\nCREATE VIEW w AS SELECT * FROM v;\n"
             "INSERT INTO t VALUES (1);\nCREATE TABLE t (b INT);\nCREATE VIEW x\nAS SELEC a FROM t; DROP TABLE t")
    lines = e.value.message.split("\n")
    assert [line.partition(":")[0] for line in lines] == ["line 3", "line 5", "line 6", "line 7", "line 8"]
    assert "Unknown column 'b'" in lines[0] and "(in: CREATE VIEW v AS SELECT b FROM t)" in lines[0]
    assert "at line 8" in lines[3] and e.value.code == 1054


@pytest.mark.parametrize("wrong, words", [
    ("CREATE TABLE t (a INT", "line 1"), ("CREATE VIEW v AS SELECT 'a", "does not end"),
    ("-- x" * 2**18 + "x", "bigger than"), ("CREATE VIEW v AS SELECT * FROM w; CREATE VIEW w AS SELECT 1", "'w'"),
])
def test_texts_that_are_no_program(wrong: str, words: str) -> None:
    with pytest.raises(SqlError, match=words):
        read(wrong)


def test_nothing_is_a_program() -> None:
    assert read("") == Outline() == read("-- nothing\n;") and written(Outline()) == ""


@pytest.mark.parametrize("body, want", [
    ("SELECT * FROM t WHERE a = ?", "SELECT `t`.`id` AS `id`, `t`.`x` AS `a`, `t`.`s` AS `s` FROM `now` AS `t` WHERE "
                                    "`t`.`x` = ?"),
    ("SELECT A, COUNT(*), SUM(id) AS n FROM t GROUP BY a HAVING MAX(a) > 3 AND n > 1",
     "SELECT `t`.`x` AS `A`, COUNT(*) AS `COUNT(*)`, SUM(`t`.`id`) AS `n` FROM `now` AS `t` GROUP BY `t`.`x` HAVING "
     "MAX(`t`.`x`) > 3 AND SUM(`t`.`id`) > 1"),
    ("SELECT a + 1 FROM t q WHERE EXISTS (SELECT 1 FROM u WHERE k = q.a) UNION SELECT t.k FROM u AS t JOIN u "
     "USING (id)",
     "SELECT `q`.`x` + 1 AS `a + 1` FROM `now` AS `q` WHERE EXISTS(SELECT 1 AS `1` FROM `u` AS `u` WHERE "
     "`u`.`k` = `q`.`x`) UNION SELECT `t`.`k` AS `k` FROM `u` AS `t` JOIN `u` AS `u` ON `t`.`id` = `u`.`id`"),
    ("SELECT a FROM (SELECT id AS a FROM u) q JOIN t USING (a)",
     "SELECT `q`.`a` AS `a` FROM (SELECT `u`.`id` AS `a` FROM `u` AS `u`) AS `q` JOIN `now` AS `t` ON `q`.`a` = "
     "`t`.`x`"),
    ("SELECT k FROM u", "SELECT k FROM u")])
def test_a_text_with_the_names_of_now(body: str, want: str) -> None:
    """After renames, and a new column with the name of before."""
    then = read(text(T, U))
    table = then.tables["t"]
    columns = (table.columns[0], replace(table.columns[1], name="x"), table.columns[2],
               replace(table.columns[1], name="a", added=2))
    was = Past(1, "t", table.shape)
    tables = {"now": replace(table, name="now", columns=columns, past=(was,)), "u": then.tables["u"]}
    kept = ExportedView("v", f"CREATE VIEW v AS {body}", 0)
    assert current_text(kept, tables, {}) == f"CREATE VIEW v AS {want}"
