"""Whatever the language can say, against SQLite: the same random query over the same random tables.

The plan is run by the slow reference, so this tests parsing, name resolution, typing and every rewrite.  A view
with parameters is asked for every key; an ad-hoc SELECT runs as the batch query that it may become.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from noria.plan.mir import show
from noria.plan.optimizer import kept_top
from noria.plan.read_errors import has_single_values
from noria.sql.commands import CreateView, Select, as_batch
from noria.sql.parse import bind, parse, prepare
from reference import mir_reference
from seeds import cases
from sql.catalogs import DictCatalog

SCHEMA = (
    "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT NOT NULL, s VARCHAR(20))",
    "CREATE TABLE u (id INT PRIMARY KEY, a INT, c INT, s VARCHAR(20))",
    "CREATE TABLE w (a INT, d DOUBLE, s VARCHAR(20))",
    "CREATE VIEW tc AS SELECT a, COUNT(*) AS n, SUM(b) AS total FROM t GROUP BY a",
    "CREATE INTERNAL VIEW tu AS SELECT t.id, t.a, u.c, u.s FROM t JOIN u ON t.a = u.a WHERE t.b > 0",
)
Rows = dict[str, list[tuple[Any, ...]]]
SMALL = st.integers(-2, 3)
TEXT = st.sampled_from(["", "a", "A", "b", "ab", "Ba", "x_y", "50%"])


def nullable(s: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | s


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    def keyed(*columns: st.SearchStrategy[Any]) -> list[tuple[Any, ...]]:
        rows = draw(st.lists(st.tuples(*columns), max_size=5))
        return [(i + 1, *r) for i, r in enumerate(rows)]

    return {"t": keyed(nullable(SMALL), SMALL, nullable(TEXT)),
            "u": keyed(nullable(SMALL), nullable(SMALL), nullable(TEXT)),
            "w": draw(st.lists(st.tuples(nullable(SMALL), nullable(SMALL.map(lambda i: i / 2)), nullable(TEXT)),
                               max_size=4))}


# ------------------------------------------------------------------ random queries
FROMS: list[tuple[str, list[str], list[str]]] = [  # FROM, its number columns, its text columns
    ("t", ["t.id", "a", "b"], ["s"]),
    ("t x", ["x.id", "x.a", "b"], ["x.s"]),
    ("t JOIN u ON t.a = u.a", ["t.id", "u.id", "t.a", "b", "c"], ["t.s", "u.s"]),
    ("t JOIN u ON t.a = u.a AND t.b = u.c", ["t.id", "u.a", "b", "c"], ["t.s", "u.s"]),
    ("t JOIN u USING (a)", ["a", "t.id", "b", "c"], ["t.s", "u.s"]),
    ("t, u", ["t.id", "u.id", "t.a", "u.a", "b", "c"], ["t.s", "u.s"]),
    ("t, u, w", ["t.id", "u.id", "w.a", "b", "c", "d"], ["t.s", "w.s"]),
    ("t LEFT JOIN u ON t.a = u.a", ["t.id", "u.id", "t.a", "b", "c"], ["t.s", "u.s"]),
    ("t LEFT JOIN u ON t.s = u.s AND u.c > 0", ["t.id", "u.id", "u.a", "b", "c"], ["t.s", "u.s"]),
    ("t LEFT JOIN u ON t.a = u.a AND t.b > 0 AND u.c IS NOT NULL", ["t.id", "u.id", "b", "c"], ["u.s"]),
    ("t LEFT JOIN u ON t.a = u.a LEFT JOIN w ON u.c = w.a", ["t.id", "u.id", "b", "c", "d"], ["u.s", "w.s"]),
    ("t LEFT JOIN u ON t.a = u.a JOIN w ON w.a = t.b", ["t.id", "u.id", "b", "c", "w.d"], ["u.s", "w.s"]),
    ("t LEFT JOIN u ON t.a = u.a JOIN w ON w.a = u.c", ["t.id", "u.id", "b", "c", "w.d"], ["u.s", "w.s"]),
    ("t JOIN u ON t.a + 1 = u.c", ["t.id", "u.id", "t.a", "c"], ["t.s", "u.s"]),
    ("t JOIN w ON t.a = w.d", ["t.id", "w.a", "b", "d"], ["t.s", "w.s"]),
    ("t RIGHT JOIN u ON t.a = u.a", ["t.id", "u.id", "t.a", "b", "c"], ["t.s", "u.s"]),
    ("t JOIN w ON t.a = w.a RIGHT JOIN u ON t.b = u.c AND w.d < u.a", ["t.id", "u.id", "w.a", "b", "c"],
     ["w.s", "u.s"]),
    ("t RIGHT JOIN u ON t.a = u.a LEFT JOIN w ON w.a = t.b OR w.a = u.c", ["t.id", "u.id", "w.a", "c"],
     ["t.s", "w.s"]),
    ("t RIGHT JOIN u USING (a)", ["t.id", "u.id", "b", "c"], ["t.s", "u.s"]),
    ("t CROSS JOIN w", ["t.id", "t.a", "w.a", "b", "d"], ["t.s", "w.s"]),
    ("t LEFT JOIN u ON t.a < u.a", ["t.id", "u.id", "b", "c"], ["t.s", "u.s"]),
    ("t LEFT JOIN u ON t.a = u.a AND (t.b < u.c OR t.s = u.s)", ["t.id", "u.id", "b", "c"], ["t.s", "u.s"]),
    ("t LEFT JOIN u ON t.a = u.a AND t.b > 0 AND t.b <> u.c", ["t.id", "u.id", "b", "c"], ["t.s", "u.s"]),
    ("t LEFT JOIN w ON 1 = 0", ["t.id", "w.a", "b", "d"], ["t.s", "w.s"]),
    ("t JOIN u ON t.a <=> u.a", ["t.id", "u.id", "b", "c"], ["t.s", "u.s"]),
    ("t LEFT JOIN u ON t.a <=> u.a AND t.s = u.s", ["t.id", "u.id", "b", "c"], ["t.s", "u.s"]),
    ("t JOIN u ON t.a = u.a AND t.b = u.a AND t.a = u.c", ["t.id", "u.id", "b", "c"], ["t.s", "u.s"]),
    ("t LEFT JOIN u ON t.a = u.a AND t.b = u.a", ["t.id", "u.id", "b", "c"], ["t.s", "u.s"]),
    ("t LEFT JOIN (u JOIN w ON u.c = w.a) ON t.a = u.a", ["t.id", "u.id", "w.a", "b"], ["t.s", "w.s"]),
    ("t LEFT JOIN (u LEFT JOIN w ON u.c = w.a AND w.d > 0) ON t.a = u.a AND w.a IS NULL",
     ["t.id", "u.id", "w.a", "b"], ["t.s", "w.s"]),
    ("t x JOIN t y ON x.a = y.b", ["x.id", "y.id", "x.a", "y.b"], ["x.s", "y.s"]),
    ("(SELECT a, b + 1 AS e, s FROM t WHERE b <> 2) z", ["a", "e"], ["s"]),
    ("u JOIN (SELECT a, COUNT(*) AS n, MAX(s) AS m FROM t GROUP BY a) z ON u.a = z.a", ["u.id", "c",
    "n"], ["u.s"]),
    ("t LEFT JOIN tc ON t.a = tc.a", ["t.id", "tc.n", "total"], ["s"]),
    ("(SELECT t.id, t.a, t.s, u.c, u.s AS us FROM t LEFT JOIN u ON t.a = u.a) z", ["id", "a", "c"], ["s",
    "us"]),
    ("w LEFT JOIN (SELECT t.a, u.c, u.s FROM t LEFT JOIN u ON t.b = u.c WHERE t.a < 3) z ON w.a = z.a",
     ["w.a", "z.a", "d", "c"], ["w.s", "z.s"]),
    ("(SELECT n, s, COUNT(*) AS k FROM (SELECT a, s, COUNT(*) AS n FROM t GROUP BY a, s) y GROUP BY n, s) z",
     ["n", "k"], ["s"]),
    ("(SELECT id, a, s FROM t ORDER BY a DESC, id LIMIT 3) z", ["id", "a"], ["s"]),
    ("u JOIN (SELECT id, b, s FROM t ORDER BY s, id DESC LIMIT 2 OFFSET 1) z ON u.a = z.b", ["u.id", "c"], ["z.s"]),
    ("tu", ["id", "a", "c"], ["s"]),
    ("tu JOIN w ON tu.c = w.a", ["id", "tu.a", "c", "d"], ["tu.s", "w.s"]),
]


@st.composite
def numbers(draw: st.DrawFn, numeric: list[str], texts: list[str], depth: int) -> str:
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(numeric) | st.sampled_from(["0", "1", "2", "-1", "NULL"]))
    inner = numbers(numeric, texts, depth - 1)
    kind = draw(st.integers(0, 6))
    if kind == 6:
        return draw(scalar_subqueries(numeric, texts))
    if kind == 0:
        return f"({draw(inner)} {draw(st.sampled_from(['+', '-', '*']))} {draw(inner)})"
    if kind == 1:
        return f"COALESCE({draw(inner)}, {draw(inner)})"
    if kind == 2:
        condition = draw(conditions(numeric, texts, depth - 1))
        return f"CASE WHEN {condition} THEN {draw(inner)} ELSE {draw(inner)} END"
    if kind == 3:
        return f"NULLIF({draw(inner)}, {draw(inner)})"
    if kind == 4:
        return f"ABS({draw(inner)})"
    return f"LENGTH({draw(st.sampled_from(texts))})"


@st.composite
def scalar_subqueries(draw: st.DrawFn, numeric: list[str], texts: list[str]) -> str:
    x, s = draw(st.sampled_from(numeric)), draw(st.sampled_from(texts))
    term = draw(st.sampled_from([f"q.a = {x}", f"q.s = {s}", f"q.a = {x} AND q.s = {s}", "q.a > 0", f"{x} > 0",
                                 f"q.a + 1 = {x} AND q.s IS NOT NULL", f"q.a <=> {x} AND {s} LIKE 'a%'"]))
    what = draw(st.sampled_from(["COUNT(*)", "COUNT(q.s)", "MAX(q.a)", "MIN(q.a) + 1", "COUNT(*) + MAX(q.a)",
                                 "COALESCE(SUM(q.a), 7)", "COUNT(DISTINCT q.s)"]))
    of = draw(st.sampled_from(["t", "u", "w"]))
    return draw(st.sampled_from([
        f"(SELECT {what} FROM {of} q WHERE {term})", f"(SELECT {what} FROM {of} q WHERE {term})",
        f"(SELECT {what} FROM {of} q)", f"(SELECT q.a FROM t q WHERE q.id = {x})",
        f"(SELECT q.c FROM u q WHERE q.id = 2 AND q.a = {x})",
        f"(SELECT q.id FROM t q WHERE q.a = {x} AND q.b > 0 ORDER BY q.s DESC, q.id LIMIT 1)",
        "(SELECT q.c FROM u q ORDER BY q.id LIMIT 1)",
        f"(SELECT COUNT(*) FROM {of} q WHERE q.a = {x} GROUP BY q.a)"]))


@st.composite
def memberships(draw: st.DrawFn, numeric: list[str], texts: list[str]) -> str:
    x, y, s = (draw(st.sampled_from(names)) for names in (numeric, numeric, texts))
    of, no = draw(st.sampled_from(["t", "u", "w"])), draw(st.sampled_from(["", "NOT "]))
    term = draw(st.sampled_from([f"q.a = {y}", f"q.s = {s}", "q.a > 0", f"{y} < 2", f"q.a = {y} AND q.s <> 'a'",
                                 f"q.a <=> {y}", "q.a IN (SELECT r.c FROM u r WHERE r.s = q.s)"]))
    return draw(st.sampled_from([
        f"{x} {no}IN (SELECT q.a FROM {of} q)", f"{x} {no}IN (SELECT q.a FROM {of} q WHERE {term})",
        f"{s} {no}IN (SELECT q.s FROM {of} q WHERE {term})", f"{no}EXISTS (SELECT 1 FROM {of} q WHERE {term})",
        f"{no}EXISTS (SELECT q.s FROM {of} q WHERE {term} ORDER BY q.a LIMIT 1)",
        f"{x} {no}IN (SELECT q.b FROM t q)", f"{no}EXISTS (SELECT * FROM {of} q)",
        f"{x} {no}IN (SELECT MAX(q.a) FROM {of} q GROUP BY q.s)", f"{x} {no}IN (SELECT a FROM t UNION SELECT c FROM u)",
        f"{x} = {draw(scalar_subqueries(numeric, texts))}", f"EXISTS (SELECT COUNT(*) FROM {of} q WHERE {term})"]))


@st.composite
def conditions(draw: st.DrawFn, numeric: list[str], texts: list[str], depth: int) -> str:
    if depth > 0 and draw(st.booleans()):
        inner = conditions(numeric, texts, depth - 1)
        kind = draw(st.sampled_from(["AND", "AND", "OR", "NOT"]))
        return f"NOT ({draw(inner)})" if kind == "NOT" else f"({draw(inner)} {kind} {draw(inner)})"
    if draw(st.integers(0, 5)) == 0:
        return draw(memberships(numeric, texts))
    x, y = draw(numbers(numeric, texts, min(depth, 1))), draw(numbers(numeric, texts, 0))
    s, z = draw(st.sampled_from(texts)), draw(TEXT)
    return draw(st.sampled_from([
        *(f"{x} {op} {y}" for op in ("=", "<>", "<", "<=", ">", ">=")), f"{x} IS NULL", f"{x} IS NOT NULL",
        f"{x} BETWEEN -1 AND {y}", f"{x} IN (0, 2)", f"{x} NOT IN (1, {y})", f"{s} = '{z}'", f"{s} <> '{z}'",
        f"{s} < '{z}'", f"{s} >= '{z}'", f"{s} LIKE '{z}%'", f"{s} NOT LIKE '_b'", f"{s} IN ('a', '{z}')",
        f"{s} IS NULL"]))


AGGREGATES = ["COUNT(*)", "COUNT({0})", "SUM({0})", "MIN({0})", "MAX({0})", "COUNT({1})", "MIN({1})", "MAX({1})",
              "SUM({0} + 1)", "COUNT(DISTINCT {0})", "SUM(DISTINCT {0})", "AVG(DISTINCT {0})",
              "COUNT(DISTINCT {1})", "SUM({0} > 0)", "COUNT(CASE WHEN {0} > 0 THEN {1} END)",
              "SUM(CASE WHEN {0} > 0 THEN 1 ELSE 0 END)", "AVG({0})"]


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A SELECT without parameters."""
    source, numeric, texts = draw(st.sampled_from(FROMS))
    terms = draw(st.lists(conditions(numeric, texts, 2), max_size=3))
    if source == "t, u":
        terms.append("t.a = u.a")
    if source == "t, u, w":
        terms += ["u.a = t.a", "w.a = u.c"]
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    if draw(st.booleans()):
        items = draw(st.lists(numbers(numeric, texts, 2) | st.sampled_from(texts), min_size=1, max_size=4))
        return f"SELECT {', '.join(items)} FROM {source}{where}"
    groups = draw(st.lists(st.sampled_from([*numeric, *texts]), max_size=2, unique=True))
    if draw(st.integers(0, 4)) == 0:
        groups.append(f"{numeric[0]} + 1")
    chosen = draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3))
    items = [*groups, *(a.format(draw(st.sampled_from(numeric)), draw(st.sampled_from(texts))) for a in chosen)]
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    having = draw(st.sampled_from(["", "", " HAVING COUNT(*) > 1", " HAVING MAX({0}) > 0 OR COUNT(*) = 1"]))
    return f"SELECT {', '.join(items)} FROM {source}{where}{by}{having.format(numeric[0]) if by else ''}"


WINDOWS = ["RANK() OVER ({2})", "DENSE_RANK() OVER ({2})", "COUNT(*) OVER ({2})", "SUM({0}) OVER ({2})",
           "MIN({0}) OVER ({2})", "MAX({0}) OVER ({2})", "AVG({0}) OVER ({2})", "COUNT({1}) OVER ({2})",
           "RANK() OVER ({2}) + SUM({0}) OVER ()"]


@st.composite
def windows(draw: st.DrawFn) -> str:
    """A SELECT with window functions; none that tells equal rows apart."""
    source, numeric, texts = draw(st.sampled_from([f for f in FROMS if not f[0].startswith("t, u")]))
    columns = st.sampled_from([*numeric, *texts])

    def over() -> str:
        by, order = draw(st.lists(columns, max_size=2)), draw(st.lists(columns, max_size=2))
        directed = [f"{c} {draw(st.sampled_from(['', 'DESC']))}" for c in order]
        parts = [f"PARTITION BY {', '.join(by)}" if by else "", f"ORDER BY {', '.join(directed)}" if order else ""]
        return " ".join(parts)

    chosen = draw(st.lists(st.sampled_from(WINDOWS), min_size=1, max_size=2))
    items = [w.format(draw(st.sampled_from(numeric)), draw(st.sampled_from(texts)), over()) for w in chosen]
    where = draw(st.sampled_from(["", f" WHERE {draw(conditions(numeric, texts, 1))}"]))
    if draw(st.integers(0, 3)) == 0:
        by = draw(st.sampled_from(numeric))
        return f"SELECT {by}, RANK() OVER (ORDER BY SUM({numeric[0]}) DESC) FROM {source}{where} GROUP BY {by}"
    return f"SELECT {', '.join([*draw(st.lists(columns, max_size=2)), *items])} FROM {source}{where}"


@st.composite
def set_operations(draw: st.DrawFn) -> str:
    """UNION, INTERSECT and EXCEPT of two or three queries with as many columns."""
    arms = draw(st.lists(st.sampled_from(FROMS), min_size=2, max_size=3))
    width = draw(st.integers(1, 2))
    out = ""
    for i, (source, numeric, texts) in enumerate(arms):
        terms = draw(st.lists(conditions(numeric, texts, 1), max_size=1))
        terms += {"t, u": ["t.a = u.a"], "t, u, w": ["u.a = t.a", "w.a = u.c"]}.get(source, [])
        items = [draw(numbers([n for n in numeric if n != "d" and not n.endswith(".d")], texts, 1)),
                 draw(st.sampled_from(texts))][:width]
        word = draw(st.sampled_from(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"] if i < 2 else ["UNION ALL"]))
        out += f" {word} " if i else ""
        out += f"SELECT {', '.join(items)} FROM {source}{' WHERE ' + ' AND '.join(terms) if terms else ''}"
    return out


@st.composite
def selects(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return draw(set_operations())
    if kind == 2:
        return draw(windows())
    query = draw(queries())
    return query.replace("SELECT", "SELECT DISTINCT", 1) if kind == 1 else query


# ------------------------------------------------------------------ the other database
def sqlite(rows: Rows) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    for statement in SCHEMA:
        db.execute(statement.replace("VARCHAR(20)", "TEXT COLLATE NOCASE").replace("INTERNAL ", ""))
    for name, content in rows.items():
        for r in content:
            db.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(r))})", r)
    return db


def comparable(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Rows as a bag; numbers by their value to four digits, text without case."""
    def one(v: Any) -> Any:
        if isinstance(v, str):
            return v.lower()
        return round(float(v), 4) + 0.0 if isinstance(v, (int, float, Decimal)) else v

    return Counter(tuple(map(one, r)) for r in rows)


def reference_rows(catalog: DictCatalog, command: Select, rows: Rows) -> list[tuple[Any, ...]]:
    batch = as_batch(command)
    found = [r[: batch.visible] for r in mir_reference.run(batch.plan, rows)]
    if not found and command.view is not None and command.view.empty_row is not None:
        found = [command.view.empty_row]
    note(show(batch.plan))
    return found


@settings(max_examples=cases(400), deadline=None)
@given(selects(), tables())
def test_select(query: str, rows: Rows) -> None:
    catalog = DictCatalog(*SCHEMA)
    note(query)
    (command,) = parse(query, catalog)
    assert isinstance(command, Select)
    # SQLite has the first row where an unqualified name is one of the subquery's own
    assume(command.view is None or not has_single_values(command.view.plan))
    assert comparable(reference_rows(catalog, command, rows)) == comparable(sqlite(rows).execute(
        query.replace("<=>", "IS")).fetchall())


KEYED = [  # FROM … WHERE with a `?`, and what the parameter is compared with
    ("SELECT a, b FROM t WHERE a = ? AND b > 0", 1),
    ("SELECT t.id, u.c FROM t JOIN u ON t.a = u.a WHERE t.a = ? AND u.c = ?", 2),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE t.b = ?", 1),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE u.c = ?", 1),
    ("SELECT COUNT(*), SUM(b), MAX(s) FROM t WHERE a = ?", 1),
    ("SELECT COUNT(*) + 1, COALESCE(SUM(c), 0) FROM t JOIN u ON t.a = u.a WHERE t.b = ? AND u.c = ?", 2),
    ("SELECT a, COUNT(*) FROM t WHERE b = ? GROUP BY a", 1),
    ("SELECT a, COUNT(*) FROM t WHERE b = ? GROUP BY a HAVING COUNT(*) > 1", 1),
    ("SELECT n, total FROM tc WHERE a = ?", 1),
    ("SELECT b FROM t WHERE a = ? AND a = ?", 2),
    ("SELECT c FROM tu WHERE a = ? AND c = ?", 2),
    ("SELECT z.n FROM u JOIN (SELECT a, COUNT(*) n FROM t GROUP BY a) z ON z.a = u.c WHERE u.a = ?", 1),
    ("SELECT b FROM t WHERE a + b = ?", 1),
    ("SELECT id FROM t WHERE a IN (SELECT a FROM u WHERE c = ?)", 1),
    ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c = ?) AND b = ?", 2),
    ("SELECT COUNT(*), SUM(b) FROM t WHERE a IN (SELECT c FROM u WHERE a = ?)", 1),
    ("SELECT id FROM t WHERE b IN (SELECT MAX(c) FROM u WHERE a = ? GROUP BY s)", 1),
    ("SELECT id, (SELECT COUNT(*) FROM u WHERE u.a = t.a) FROM t WHERE b = ?", 1),
    ("SELECT id FROM t WHERE b = ? AND NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", 1),
    ("SELECT z.a, z.n FROM (SELECT a, COUNT(*) AS n FROM t WHERE b = ? GROUP BY a) z WHERE z.n > 0", 1),
    ("SELECT z.a, u.c FROM (SELECT DISTINCT a, s FROM t WHERE b = ?) z JOIN u ON u.a = z.a WHERE u.c = ?", 2),
    ("SELECT COUNT(*), MAX(k) FROM (SELECT x.id AS k FROM (SELECT id, s FROM t WHERE a = ?) x WHERE x.s <> 'b') y", 1),
    ("SELECT z.e FROM (SELECT a, b AS e FROM t UNION ALL SELECT a, c FROM u) z WHERE z.a = ?", 1),
    ("SELECT id FROM t WHERE b = ? ORDER BY a DESC, id LIMIT 2", 1),
    ("SELECT id FROM t WHERE b = ? ORDER BY s, id DESC LIMIT 2 OFFSET 1", 1),
    ("SELECT z.id FROM (SELECT id, a FROM t WHERE b = ? ORDER BY a DESC, id LIMIT 2) z WHERE z.a IS NOT NULL", 1),
    ("SELECT z.a, COUNT(*) FROM (SELECT id, a FROM t WHERE b = ? ORDER BY id LIMIT 2 OFFSET 1) z GROUP BY z.a", 1),
    ("SELECT id, RANK() OVER (ORDER BY a DESC), COUNT(*) OVER (PARTITION BY s) FROM t WHERE b = ?", 1),
    ("SELECT z.id, z.r FROM (SELECT id, RANK() OVER (ORDER BY a) AS r FROM t WHERE b = ?) z WHERE z.r < 3", 1),
    ("SELECT a, COUNT(DISTINCT s), COUNT(*) FROM t WHERE b = ? GROUP BY a", 1),
]


@settings(max_examples=cases(150), deadline=None)
@given(st.sampled_from(KEYED), tables(), st.tuples(SMALL, SMALL))
def test_parameters(case: tuple[str, int], rows: Rows, values: tuple[int, int]) -> None:
    """A view's key, and the same query with literals in the place of the parameters."""
    query, count = case
    catalog = DictCatalog(*SCHEMA)
    want = sqlite(rows).execute(query, values[:count]).fetchall()
    bound = bind(prepare(query, catalog), values[:count])
    assert isinstance(bound, Select) and bound.view is not None
    assert comparable(reference_rows(catalog, bound, rows)) == comparable(want)
    text = query
    for v in values[:count]:
        text = text.replace("?", str(v), 1)
    (literal,) = parse(text, catalog)
    assert isinstance(literal, Select)
    assert comparable(reference_rows(catalog, literal, rows)) == comparable(want)
    (created,) = parse(f"CREATE VIEW v AS {query}", catalog)
    assert isinstance(created, CreateView)
    assert created.view.plan == kept_top(bound.view).plan and len(created.view.key) == count
    assert comparable(reference_rows(catalog, replace(bound, view=kept_top(bound.view)), rows)) == comparable(want)
    literal = literal.instead() if literal.instead else literal
    if "a = ? AND a = ?" not in query:  # a literal may bind a column only once; the rest stays a filter
        assert literal.view is not None and ("a + b" in query or literal.view.plan == bound.view.plan)


AFTER = [
    ("SELECT a, b FROM t WHERE b = ? UNION ALL SELECT a, c FROM u WHERE c = ?", 2),
    ("SELECT a FROM t WHERE b = ? UNION SELECT a FROM u WHERE c = ? UNION SELECT a FROM w WHERE a = ? ORDER BY 1", 3),
    ("SELECT s FROM t WHERE b = ? UNION SELECT s FROM t WHERE a = ? ORDER BY s LIMIT 2", 2),
    ("SELECT a, COUNT(*) FROM t WHERE b = ? GROUP BY a UNION ALL SELECT id, c FROM u WHERE a = ?", 2),
    ("SELECT id, s FROM t WHERE a IN (?, ?)", 2),
    ("SELECT id FROM t WHERE a IN (?, 1, NULL) AND b = ?", 2),
    ("SELECT id FROM t WHERE a = ? OR a = ? ORDER BY b, id DESC LIMIT 2", 2),
    ("SELECT id FROM t WHERE (a = ? OR a IN (?)) AND s LIKE 'a%'", 2),
    ("SELECT id FROM t WHERE a <=> ?", 1),
    ("SELECT id FROM t WHERE a <=> ? AND b > ?", 2),
    ("SELECT id FROM t WHERE b > ? AND a <= ? ORDER BY id LIMIT 3", 2),
    ("SELECT id FROM t WHERE b BETWEEN ? AND ?", 2),
    ("SELECT id FROM t WHERE a NOT IN (?, ?)", 2),
    ("SELECT id FROM t WHERE a + ? > b", 1),
    ("SELECT id FROM t WHERE (a = ? OR b > ?) AND s IS NOT NULL", 2),
    ("SELECT COUNT(*), COUNT(a), SUM(b), MIN(s), MAX(a), AVG(b) FROM t WHERE b IN (?, ?)", 2),
    ("SELECT COUNT(*) + 1, COALESCE(SUM(c), -1) FROM t JOIN u ON t.a = u.a WHERE t.b IN (?, ?)", 2),
    ("SELECT AVG(c), MAX(s) FROM u WHERE a = ? AND c < ?", 2),
    ("SELECT a, COUNT(*), AVG(b) FROM t WHERE b IN (?, ?) GROUP BY a", 2),
    ("SELECT a, COUNT(*) AS n FROM t WHERE b < ? GROUP BY a HAVING n >= ?", 2),
    ("SELECT a, COUNT(*) FROM t WHERE a IN (?, ?) GROUP BY a", 2),
    ("SELECT a + 1, SUM(b) FROM t WHERE b IN (?, ?) GROUP BY a + 1 HAVING COUNT(*) > 1", 2),
    ("SELECT COUNT(*) FROM t WHERE a = ? HAVING COUNT(*) < ?", 2),
    ("SELECT COUNT(*) FROM t HAVING COUNT(*) > ?", 1),
    ("SELECT id, COUNT(*) FROM t WHERE a IN (?, ?) GROUP BY id", 2),
    ("SELECT t.id, u.s FROM t JOIN u ON t.a = u.a WHERE t.b IN (?, ?) AND u.c = ?", 3),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE u.c IN (?, ?)", 2),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE u.c <=> ?", 1),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE t.b = ? AND u.c > ?", 2),
    ("SELECT DISTINCT s FROM t WHERE a IN (?, ?) ORDER BY s", 2),
    ("SELECT DISTINCT a, b FROM t WHERE b >= ?", 1),
    ("SELECT DISTINCT COUNT(*) FROM t WHERE b IN (?, ?) GROUP BY a", 2),
]


@settings(max_examples=cases(300), deadline=None)
@given(st.sampled_from(AFTER), tables(), st.tuples(nullable(SMALL), SMALL, SMALL))
def test_parameters_beside_the_key(case: tuple[str, int], rows: Rows, values: tuple[int | None, int, int]) -> None:
    """Several keys of one lookup, and conditions over what it finds; as Spark would answer, too."""
    query, count = case
    catalog = DictCatalog(*SCHEMA)
    want = sqlite(rows).execute(query.replace("<=>", "IS"), values[:count]).fetchall()
    bound = bind(prepare(query, catalog), values[:count])
    assert isinstance(bound, Select) and bound.view is not None
    assert comparable(reference_rows(catalog, bound, rows)) == comparable(want)
    (created,) = parse(f"CREATE VIEW v AS {query}", catalog)
    assert isinstance(created, CreateView)
    assert created.view.plan == kept_top(prepare(query, catalog).command.view).plan
    assert comparable(reference_rows(catalog, replace(bound, view=kept_top(bound.view)), rows)) == comparable(want)


BATCH = [
    "SELECT DISTINCT a, s FROM t",
    "SELECT a FROM t UNION SELECT c FROM u",
    "SELECT a, s FROM t UNION ALL SELECT c, s FROM u",
    "SELECT a FROM t UNION SELECT d FROM w",
    "SELECT COUNT(DISTINCT a) FROM t",
    "SELECT b, SUM(DISTINCT a) FROM t GROUP BY b",
    "SELECT t.id, u.id FROM t, u",
    "SELECT t.id, u.id FROM t JOIN u ON t.a < u.c",
    "SELECT id FROM t ORDER BY a, id LIMIT 2",
    "SELECT a FROM t UNION SELECT c FROM u ORDER BY 1 LIMIT 2",
    "SELECT z.id FROM (SELECT id, a FROM t ORDER BY id LIMIT 2) z WHERE z.a > 0",
    "WITH z AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT u.id, z.n FROM u JOIN z ON u.a = z.a",
    "SELECT x.id FROM t x RIGHT JOIN u ON x.a = u.a",
    "SELECT id, a, s, b, c FROM t NATURAL JOIN u",  # SQLite has another order in *
]


@settings(max_examples=cases(120), deadline=None)
@given(st.sampled_from(BATCH), tables())
def test_batch(query: str, rows: Rows) -> None:
    """What only Spark answers (and some that a view could)."""
    catalog = DictCatalog(*SCHEMA)
    (command,) = parse(query, catalog)
    assert isinstance(command, Select)
    assert comparable(reference_rows(catalog, command, rows)) == comparable(sqlite(rows).execute(query).fetchall())


@pytest.mark.parametrize("a, b", [
    ("SELECT t.id FROM t JOIN u ON t.a = u.a WHERE u.c = 1 AND t.b > 0",
     "SELECT t.id FROM u, t WHERE t.b > 0 AND u.c = 1 AND u.a = t.a"),
    ("SELECT COUNT(*) FROM t GROUP BY a, b", "SELECT COUNT(*) FROM t GROUP BY b, a"),
    ("SELECT a FROM t WHERE a > 1 OR b < 2", "SELECT a FROM t WHERE 2 > b OR 1 < a"),
    ("SELECT a FROM t WHERE a BETWEEN 1 AND 3 AND a IN (2, 1)",
    "SELECT a FROM t WHERE a IN (1, 2) AND a >= 1 AND a <= 3"),
    ("SELECT n FROM tc WHERE n > 1",
    "SELECT z.k FROM (SELECT a, COUNT(*) k, SUM(b) FROM t GROUP BY a) z WHERE k > 1"),
    ("SELECT id FROM t WHERE a = 1 AND b = 2", "SELECT id FROM t WHERE b = 3 AND a = 4"),
])
def test_equal_queries_have_equal_plans(a: str, b: str) -> None:
    catalog = DictCatalog(*SCHEMA)
    one, other = (parse(q, catalog)[0] for q in (a, b))
    assert isinstance(one, Select) and isinstance(other, Select) and one.view is not None and other.view is not None
    assert (one.view.plan, one.view.key, one.view.after) == (other.view.plan, other.view.key, other.view.after)
    one, other = (s.instead() if s.instead else s for s in (one, other))
    assert one.view is not None and other.view is not None
    assert (one.view.plan, one.view.key) == (other.view.plan, other.view.key)
