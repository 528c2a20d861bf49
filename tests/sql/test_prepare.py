"""prepare and bind, shapes, and the quick way for long INSERTs: the same commands as the parser gives."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.core.errors import SqlError
from noria.core.statements import DEFAULT, Insert, Update
from noria.sql.commands import Select, SelectItems, as_batch
from noria.sql.parse import bind, parse, prepare, split
from noria.sql.text import literal_rows as values
from noria.sql.text.databases import STORED
from noria.sql.text.shape import shape_of
from noria.sql.text.syntax import statements_of, tokenize
from seeds import cases
from sql.catalogs import FIGURE_2, STORIES_WITH_VC, VOTE_COUNT, DictCatalog

CATALOG = DictCatalog(*FIGURE_2, VOTE_COUNT, STORIES_WITH_VC,
                      "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(50), d DECIMAL(10,2))")


def one(text: str) -> Any:
    (command,) = parse(text, CATALOG)
    return command


@pytest.mark.parametrize("prepared, given, text", [
    ("INSERT INTO t VALUES (?, ?, ?)", [1, "x", None], "INSERT INTO t VALUES (1, 'x', NULL)"),
    ("INSERT INTO t (s, id) VALUES (?, 1), ('y', ?)", ["x", 2],
     "INSERT INTO t (s, id) VALUES ('x', 1), ('y', 2)"),
    ("INSERT INTO t (id, d) VALUES (?, 1) ON DUPLICATE KEY UPDATE d = d + ?", [1, 5],
     "INSERT INTO t (id, d) VALUES (1, 1) ON DUPLICATE KEY UPDATE d = d + 5"),
    ("REPLACE INTO t (id) VALUES (?)", [3], "REPLACE INTO t (id) VALUES (3)"),
    ("UPDATE t SET s = ?, d = d + 1 WHERE id = ? AND s LIKE ?", ["z", 4, "a%"],
     "UPDATE t SET s = 'z', d = d + 1 WHERE id = 4 AND s LIKE 'a%'"),
    ("DELETE FROM t WHERE id IN (?, ?) OR s IS NULL", [4, 5], "DELETE FROM t WHERE id IN (4, 5) OR s IS NULL"),
    ("SELECT * FROM StoriesWithVC WHERE id = ?", [7], "SELECT * FROM StoriesWithVC WHERE id = 7"),
    ("SELECT id FROM t WHERE s IN (?, 'b') AND id IN (?, ?)", ["a", 1, 2],
     "SELECT id FROM t WHERE id IN (1, 2) AND s IN ('a', 'b')"),
    ("SELECT COUNT(*) FROM t WHERE s = ? OR s = ?", ["a", "b"], "SELECT COUNT(*) FROM t WHERE s IN ('a', 'b')"),
    ("SELECT id FROM t WHERE s <=> ?", ["a"], "SELECT id FROM t WHERE s <=> 'a'"),
    ("SELECT id FROM t WHERE s = ? ORDER BY d LIMIT ? OFFSET ?", ["a", 2, 1],
     "SELECT id FROM t WHERE s = 'a' ORDER BY d LIMIT 2 OFFSET 1"),
])
def test_bound_is_what_the_text_says(prepared: str, given: list[Any], text: str) -> None:
    p = prepare(prepared, CATALOG)
    assert p.parameters == len(given)
    bound, want = bind(p, given), one(text)
    if isinstance(want, Select):
        assert isinstance(bound, Select) and bound.view is not None and want.view is not None
        assert (bound.lookups, bound.view.plan, bound.view.limit, bound.view.offset) == (
            want.lookups, want.view.plan, want.view.limit, want.view.offset)
    else:
        assert bound == want


def test_values_that_are_no_keys_are_constants_of_the_view() -> None:
    p = prepare("SELECT id, d + ? AS more FROM t WHERE s <> ?", CATALOG)
    assert isinstance(p.command, Select) and p.command.view is None and [f.name for f in p.fields] == ["id", "more"]
    bound = bind(p, [Decimal("1.5"), "x"])
    assert isinstance(bound, Select) and bound.view is not None and bound.lookups == ()
    assert "1.5" in str(bound.view.plan) and "'x'" in str(bound.view.after)


def test_what_spark_answers_is_planned_for_each_execution() -> None:
    rows = "SELECT id, d + {} AS more FROM (SELECT id, d FROM t ORDER BY id LIMIT 20000) AS x"
    bound = bind(prepare(rows.format("?"), CATALOG), [Decimal("1.5")])
    assert isinstance(bound, Select) and bound.view is None and bound.batch is not None
    assert bound.batch.plan == as_batch(one(rows.format("1.5"))).plan


def test_select_without_from() -> None:
    bound = bind(prepare("SELECT ? AS a, 1", CATALOG), ["x"])
    assert isinstance(bound, SelectItems) and [i.value for i in bound.items] == ["x", 1]


def test_wrong_number_of_values() -> None:
    with pytest.raises(SqlError) as e:
        bind(prepare("SELECT id FROM t WHERE id = ?", CATALOG), [])
    assert e.value.code == 1210


@pytest.mark.parametrize("limit", [-1, "x", None])
def test_limit_takes_a_count(limit: Any) -> None:
    with pytest.raises(SqlError) as e:
        bind(prepare("SELECT id FROM t WHERE id = 1 LIMIT ?", CATALOG), [limit])
    assert e.value.code == 1210


@pytest.mark.parametrize("text", [
    "SELECT nope FROM t WHERE id = ?", "UPDATE t SET nope = ?", "DELETE FROM nope WHERE a = ?",
    "INSERT INTO t VALUES (?)", "SELECT 1; SELECT 2", "",
])
def test_errors_come_when_preparing(text: str) -> None:
    with pytest.raises(SqlError):
        prepare(text, CATALOG)


# ------------------------------------------------------------------ shapes
@pytest.mark.parametrize("text, shape, literals", [
    ("SELECT a FROM t WHERE id = 7 AND b = 'x'", "SELECT a FROM t WHERE id = ? AND b = ?", [7, "x"]),
    ("SELECT a1 FROM t2 WHERE `id` = 1.5", "SELECT a1 FROM t2 WHERE `id` = ?", [Decimal("1.5")]),
    ("... WHERE a = 'it''s' AND b = \"say \\\"x\\\"\"", "... WHERE a = ? AND b = ?", ["it's", 'say "x"']),
    ("a = 1e3, b = '\\n\\0\\%'", "a = ?, b = ?", [1000.0, "\n\0\\%"]),
    ("SELECT a FROM t WHERE b = 3 ORDER BY a limit 10 OFFSET\n20", "SELECT a FROM t WHERE b = ? ORDER BY a limit 10 "
     "OFFSET\n20", [3]),
    ("(SELECT 1 LIMIT 5 , 7) UNION SELECT a, 2 FROM t WHERE offset = 4 LIMIT 1", "(SELECT ? LIMIT 5 , 7) UNION SELECT "
     "a, ? FROM t WHERE offset = ? LIMIT 1", [1, 2, 4]),
    ("VALUES (1,-2,'é')", "VALUES (?,-?,?)", [1, 2, "é"]),
])
def test_shape(text: str, shape: str, literals: list[Any]) -> None:
    assert shape_of(text) == (shape, literals)


@pytest.mark.parametrize("text", [
    "SELECT ?", "SELECT 1 -- x", "SELECT 1 # x", "SELECT /* x */ 1", "SELECT 1; SELECT 2", "SELECT x'41'",
    "SELECT _utf8'a'",
    "SELECT 'a' 'b'", "SELECT @@version", "SELECT 'open", "SELECT 0x41x'", "SELECT N'a'",
    "SELECT `a'b` FROM t WHERE c = 'd'",
    "SELECT '\\", "SELECT 1'a'",
])
def test_doubtful_texts_have_no_shape(text: str) -> None:
    assert shape_of(text) is None


TEXTS = st.text(alphabet="ab'\"\\%_\n;?-#`é0", max_size=8)


def quoted(text: str, quote: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, quote * 2) + quote


@settings(max_examples=cases(200), deadline=None)
@given(st.integers(-10, 10), TEXTS, st.sampled_from("'\""))
def test_a_shape_means_what_the_text_means(number: int, text: str, quote: str) -> None:
    """Whatever is in the strings: the literals are the parser's, and binding them gives the same command."""
    for sql in (f"SELECT id FROM t WHERE id = {number} AND s = {quoted(text, quote)}",
                f"INSERT INTO t (id, s) VALUES ({number}, {quoted(text, quote)})",
                f"UPDATE t SET s = {quoted(text, quote)} WHERE id = {number}"):
        found = shape_of(sql)
        assert found is not None
        assert found[1].count(text) == 1 or text == ""
        if number >= 0:
            prepared = prepare(found[0], CATALOG)
            assert bind(prepared, found[1]) == one(sql)


# ------------------------------------------------------------------ long inserts
@settings(max_examples=cases(100), deadline=None)
@given(st.lists(st.tuples(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.just(DEFAULT), st.booleans(), st.none()),
    st.one_of(TEXTS, st.none()), st.decimals(-1000, 1000, places=2) | st.floats(-1e6, 1e6, allow_subnormal=False)),
    min_size=1, max_size=20))
def test_long_inserts_are_read_as_the_parser_reads_them(rows: list[tuple[Any, ...]]) -> None:
    def shown(v: Any) -> str:
        if v is DEFAULT:
            return "DEFAULT"
        if isinstance(v, str):
            return quoted(v, "'")
        return "NULL" if v is None else str(v).upper()

    text = "INSERT INTO t (id, s, d) VALUES " + ", ".join(f"({', '.join(map(shown, r))})" for r in rows)
    text += " " * values.SHORTEST
    quick = values.insert(text, lambda head: prepare(head, CATALOG))
    assert isinstance(quick, Insert)
    (tokens,) = statements_of(tokenize(text))
    from noria.sql.parse import _plan

    slow = _plan(tokens, text, CATALOG, STORED).command
    assert isinstance(slow, Insert)
    assert quick.columns == slow.columns
    for a, b in zip(quick.rows, slow.rows, strict=True):
        assert a[:2] == b[:2] and float(a[2]) == float(b[2])


@pytest.mark.parametrize("tail", [", (1 + 1, 'x', 2)", ", (NOW(), 'x', 2)", ", (?, 'x', 2)", ", (1, x'4', 2)",
                                  ", (1, 'x', 2) RETURNING id", "; DELETE FROM t", ", (1, 'x', 2) /* c */"])
def test_what_is_no_literal_goes_to_the_parser(tail: str) -> None:
    text = "INSERT INTO t VALUES (1, 'x', 2)" + tail + " " * values.SHORTEST
    assert values.insert(text, lambda head: prepare(head, CATALOG)) is None


def test_bytes_in_long_inserts_are_what_they_are_in_short_ones() -> None:
    catalog = DictCatalog("CREATE TABLE b (id INT PRIMARY KEY, x BLOB, y VARBINARY(9))")
    text = r"INSERT INTO b VALUES (1, X'00fF', 0x4142), (2, x'', _binary 'a\'b'), (3, _BINARY'', 'x')"
    quick = values.insert(text + " " * values.SHORTEST, lambda head: prepare(head, catalog))
    (slow,) = parse(text, catalog)
    assert quick == slow and quick is not None and quick.rows[0] == (1, b"\0\xff", b"AB")
    for odd in ("0x1", "X'f'", "_binary X'00'", "0xg1"):
        text = f"INSERT INTO b VALUES (1, {odd}, '')" + " " * values.SHORTEST
        assert values.insert(text, lambda head: prepare(head, catalog)) is None


def test_ten_thousand_rows_with_an_update() -> None:
    rows = ", ".join(f"({i}, 'name {i}', {i}.25)" for i in range(10_000))
    command = one(f"INSERT INTO t VALUES {rows} ON DUPLICATE KEY UPDATE d = d + 1")
    assert isinstance(command, Insert) and len(command.rows) == 10_000 and command.on_duplicate == "update"
    assert command.rows[9_999] == (9_999, "name 9999", Decimal("9999.25"))


def test_wrong_width_names_the_row() -> None:
    rows = ", ".join(["(1, 'x', 2)"] * 100 + ["(1, 'x')"])
    with pytest.raises(SqlError) as e:
        parse(f"INSERT INTO t VALUES {rows}", CATALOG)
    assert e.value.code == 1136 and "row 101" in e.value.message


# ------------------------------------------------------------------ several statements
@pytest.mark.parametrize("text, parts", [
    ("SELECT 1", ["SELECT 1"]), ("SELECT 1;", ["SELECT 1"]), ("", []), (" ; ; ", []),
    ("SELECT ';'; SELECT `a;b` -- x;y\n; SELECT 2 /* ; */", ["SELECT ';'", "SELECT `a;b` -- x;y",
    "SELECT 2 /* ; */"]),
    ("SELECT 'a\\';'; SELECT \"b;\"\"\"", ["SELECT 'a\\';'", 'SELECT "b;"""']),
])
def test_split(text: str, parts: list[str]) -> None:
    assert split(text) == parts


def test_update_reads_what_it_assigned_before() -> None:
    command = one("UPDATE t SET id = id + 1, d = id * 2")
    assert isinstance(command, Update)
    assert str(command.assignments[1][1]) == "mul(cast(add(#0, 1)), 2)"
