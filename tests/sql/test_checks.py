"""CHECK in definitions: names, texts, what a condition must not contain, and what ALTER TABLE does with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.sql.expressions.table_expressions import of_text
from noria.sql.program.alteration import alteration
from noria.sql.program.definition_text import table_text
from noria.sql.statements.checks import renamed
from sql.catalogs import altered, made

BASE = "CREATE TABLE t (a INT CHECK (a > 1), b INT, c VARCHAR(9), CONSTRAINT x CHECK (a > b), UNIQUE KEY u (c))"


def checks(table: TableDef) -> dict[str, str]:
    return {c.name: c.text + ("" if c.enforced else " off") for c in table.checks}


def test_names_are_made_as_mysql_makes_them() -> None:
    """The example of MySQL's manual."""
    table = made("""CREATE TABLE t1 (CHECK (c1 <> c2), c1 INT CHECK (c1 > 10), c2 INT CONSTRAINT c2_positive
                    CHECK (c2 > 0), c3 INT CHECK (c3 < 100), CONSTRAINT c1_nonzero CHECK (c1 <> 0), CHECK (c1 > c3))""")
    assert list(checks(table).items()) == [
        ("c1_nonzero", "(`c1` <> 0)"), ("c2_positive", "(`c2` > 0)"), ("t1_chk_1", "(`c1` <> `c2`)"),
        ("t1_chk_2", "(`c1` > 10)"), ("t1_chk_3", "(`c3` < 100)"), ("t1_chk_4", "(`c1` > `c3`)")]


def test_not_enforced() -> None:
    table = made("CREATE TABLE t (a INT CHECK (a > 0) NOT ENFORCED NOT NULL, CONSTRAINT y CHECK (a < 9) ENFORCED, "
                 "CHECK (a < 8) /*!80016 NOT ENFORCED */)")
    assert checks(table) == {"t_chk_1": "(`a` > 0) off", "t_chk_2": "(`a` < 8) off", "y": "(`a` < 9)"}
    assert not table.columns[0].nullable
    assert "CONSTRAINT `t_chk_1` CHECK ((`a` > 0)) /*!80016 NOT ENFORCED */" in table_text(table)


CONDITIONS = """
a like 'X%' and char_length(trim(a)) > 2 and a IN ('AB','Cd') and upper(a) <> 'It''s' and locate('A', a) > 1
json_extract(j, '$.a') > 1
j->'$.a' > 1 or j->>'$.b' = 'X'
json_valid(a)
d > '2020-01-01' and d + interval 1 day > '2000-01-01'
case when a = 'x' then d is null else true end
a regexp '^[A-Z]+$'
date_format(d, '%Y-%M') <> 'x'
cast(a as unsigned) > 1
a is null xor d is null
a collate utf8mb4_bin = 'a'
coalesce(a, 'x') <=> 'y'
true
a < 'b' is not true
abs(-char_length(a)) % 3 = 1 and ~1 > 4 and char_length(a) & 3 = 2 | 1
(n + 1) * 2 - n / 3 > -4 and not (n = 1 or n = 2 and n = 3)
substring(a, 1, 2) = 'XY'
a not in ('b','c') and n not between 1 and 1 + 2
a not like 'b!_%' escape '!'
extract(year from d) > 3
unix_timestamp(d) > n
(n, m) = (1, 2) or (n, m) in ((1, 2), (3, 4))
"T".a = "x"
if(n > 1, m > 1, m < 1)
n in (1, 2, 3) is true
x'41' = a and n > 0x10
""".strip().splitlines()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_printed_condition_means_what_was_written(condition: str) -> None:
    condition = condition.replace('"T"', "t").replace('"', "'")
    table = made(f"CREATE TABLE t (a VARCHAR(10), n INT, m INT, j JSON, d DATETIME, CHECK ({condition}))")
    again = made(table_text(table))
    assert again == table, "it is printed alike again"
    (check,) = table.checks
    assert of_text(table, check.text) == of_text(table, f"({condition})")


@pytest.mark.parametrize("condition, code, said", [
    ("a", 3812, "An expression of non-boolean type specified to a check constraint 't_chk_1'."),
    ("a + 1", 3812, "non-boolean"), ("1", 3812, "non-boolean"),
    ("now() > d", 3814, "An expression of a check constraint 't_chk_1' contains disallowed function: now."),
    ("d < current_date", 3814, "curdate"), ("rand() > 1", 3814, "rand"), ("uuid() = a", 3814, "uuid"),
    ("connection_id() = a", 3814, "connection_id"), ("sysdate() > d", 3814, "sysdate"),
    ("a in (select b from t)", 3815, "An expression of a check constraint 't_chk_1' contains disallowed function."),
    ("exists (select 1)", 3815, "disallowed"), ("(select 1) > a", 3815, "disallowed"),
    ("@x > 1", 3816, "An expression of a check constraint 't_chk_1' cannot refer to a user or system variable."),
    ("@@sql_mode = a", 3816, "variable"), ("(a, b)", 3817, "row value"),
    ("id > 1", 3818, "Check constraint 't_chk_1' cannot refer to an auto-increment column."),
    ("zz > 1", 3820, "Check constraint 't_chk_1' refers to non-existing column 'zz'."),
    ("other.a > 1", 1054, "other.a"), ("sum(a) > 1", 1111, "group function"), ("nothing(a) = 1", 1305, "nothing"),
    ("a > ?", 1064, "parameter"), ("row_number() over () > 1", 3593, "window"),
])
def test_what_a_condition_must_not_contain(condition: str, code: int, said: str) -> None:
    with pytest.raises(SqlError, match=said.replace("(", r"\(")) as told:
        made(f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b INT, d DATETIME, CHECK ({condition}))")
    assert told.value.code == code


@pytest.mark.parametrize("text, code", [
    ("CREATE TABLE t (a INT CHECK (b > 1), b INT)", 3813),
    ("CREATE TABLE t (a LONGTEXT, b LONGTEXT CHECK (json_valid(a)))", 3813),
    ("CREATE TABLE t (a INT, CONSTRAINT x CHECK (a > 1), CONSTRAINT X CHECK (a > 2))", 3822),
    ("CREATE TABLE t (a INT, CHECK a > 1)", 1064), ("CREATE TABLE t (a INT, CHECK (a > 1) NOT)", 1064)])
def test_definitions_that_are_refused(text: str, code: int) -> None:
    with pytest.raises(SqlError) as told:
        made(text)
    assert told.value.code == code


FIRST = {"t_chk_1": "(`a` > 1)", "x": "(`a` > `b`)"}


@pytest.mark.parametrize("change, wanted", [
    ("DROP CHECK x", {"t_chk_1": "(`a` > 1)"}), ("DROP CONSTRAINT X", {"t_chk_1": "(`a` > 1)"}),
    ("DROP CONSTRAINT u", FIRST), ("DROP COLUMN c", FIRST), ("MODIFY a DOUBLE", FIRST), ("MODIFY a VARCHAR(9)", FIRST),
    ("DROP COLUMN a, DROP CHECK x", {}),
    ("CHANGE c q INT, ADD CHECK (q = 'x')", {**FIRST, "t_chk_2": "(`q` = 'x')"}),
    ("ALTER CHECK x NOT ENFORCED", {**FIRST, "x": "(`a` > `b`) off"}),
    ("ALTER CONSTRAINT x ENFORCED", FIRST),
    ("RENAME TO q", {"q_chk_1": "(`a` > 1)", "x": "(`a` > `b`)"}),
    ("ADD CHECK (b > 3), ADD CONSTRAINT y CHECK (b > 4) NOT ENFORCED",
     {**FIRST, "t_chk_2": "(`b` > 3)", "y": "(`b` > 4) off"}),
    ("ADD COLUMN z INT CHECK (z > 1)", {**FIRST, "t_chk_2": "(`z` > 1)"}),
    ("ADD (z INT, CHECK (z > 1))", {**FIRST, "t_chk_2": "(`z` > 1)"}),
    ("MODIFY a VARCHAR(9) CHECK (a > '3')", {**FIRST, "t_chk_2": "(`a` > '3')"}),
    ("DROP CONSTRAINT x, ADD CONSTRAINT x CHECK (b > 1)", {**FIRST, "x": "(`b` > 1)"}),
])
def test_alter_table(change: str, wanted: dict[str, str]) -> None:
    assert checks(altered(change, BASE)) == wanted


@pytest.mark.parametrize("change, code", [
    ("DROP CHECK y", 3821), ("DROP CONSTRAINT y", 3940), ("ALTER CHECK y ENFORCED", 3821),
    ("ALTER CONSTRAINT y ENFORCED", 3940), ("ALTER CONSTRAINT u NOT ENFORCED", 3941), ("DROP COLUMN a", 3959),
    ("DROP COLUMN b", 3959), ("RENAME COLUMN b TO z", 3959), ("CHANGE a q INT", 3959),
    ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", 3959), ("ADD CONSTRAINT x CHECK (b > 1)", 3822),
    ("ADD CHECK (b)", 3812), ("MODIFY b INT CHECK (a > 1)", 3813), ("ADD CHECK (zz > 1)", 3820),
    ("ADD d DATETIME DEFAULT NOW() CHECK (d > '2020-01-01')", 1235), ("ALTER CHECK x", 1064)])
def test_alter_table_refuses(change: str, code: int) -> None:
    with pytest.raises(SqlError) as told:
        altered(change, BASE)
    assert told.value.code == code


def test_a_key_and_a_check_of_one_name() -> None:
    with pytest.raises(SqlError, match="multiple constraints with the name 'u'") as told:
        altered("DROP CONSTRAINT u", "CREATE TABLE t (a INT, UNIQUE KEY u (a), CONSTRAINT u CHECK (a > 1))")
    assert told.value.code == 3939


def test_a_generated_name_follows_the_table() -> None:
    assert list(checks(renamed(made(BASE), "s"))) == ["s_chk_1", "x"]


def test_the_difference_of_programs() -> None:
    was = made(BASE)
    want = made("CREATE TABLE t (a INT, b INT, c VARCHAR(9), CONSTRAINT x CHECK (a > b) NOT ENFORCED, "
                "CONSTRAINT y CHECK (a <> 3), UNIQUE KEY u (c))")
    parts, wrong = alteration(was, want, False)
    assert not wrong and parts == ("DROP CHECK `t_chk_1`", "ADD CONSTRAINT `y` CHECK ((`a` <> 3))",
                                   "ALTER CHECK `x` NOT ENFORCED")
    assert replace(altered(", ".join(parts), BASE), indexes=()).checks == want.checks
    assert alteration(want, want, False) == ((), ())
