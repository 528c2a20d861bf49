"""Views that are read through another one's reader: fewer columns, a stronger condition, more of a key.  They give what
they gave alone, whichever came first, whatever is dropped or redefined; over the embedded database."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import noria
from control.databases import ask, readers, shown
from noria.client.api import Database
from noria.control.catalog import view_index
from noria.core.expressions.expr import col
from noria.core.types import INT, Column, TableDef
from noria.plan import mir
from noria.plan.view import ViewDef

TABLES = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, kind INT, name VARCHAR(20))",
          "INSERT INTO t VALUES (1, 1, 10, 3, 'one'), (2, 1, 20, NULL, 'two'), (3, 2, 30, 4, NULL), "
          "(4, NULL, 40, 3, 'four')")
PROGRAM = {
    "wide": "SELECT kind, name, id, b FROM t WHERE a = ?",
    "narrow": "SELECT b, id FROM t WHERE a = ?",
    "ordered": "SELECT id FROM t WHERE a = ? ORDER BY b DESC LIMIT ?",
    "by_id": "SELECT * FROM t WHERE id = ?",
    "threes": "SELECT name FROM t WHERE id = ? AND kind = 3",
    "others": "SELECT name, a FROM t WHERE id = ? AND kind <> 3 AND a IS NOT NULL",
    "both": "SELECT name FROM t WHERE kind = ? AND id = ?",
}
KEYS = {"wide": (1,), "narrow": (1,), "ordered": (1, 2), "by_id": (2,), "threes": (1,), "others": (3,),
        "both": (3, 1)}
ROWS = {"wide": [(3, "one", 1, 10), (None, "two", 2, 20)], "narrow": [(10, 1), (20, 2)], "ordered": [(2,), (1,)],
        "by_id": [(2, 1, 20, None, "two")], "threes": [("one",)], "others": [(None, 2)], "both": [("one",)]}


def create(db: Database, *names: str) -> None:
    for name in names:
        db.sql(f"CREATE VIEW `{name}` AS {PROGRAM[name]}")


def found(db: Database, name: str, key: Any = None) -> list[tuple[Any, ...]]:
    rows = db.view(name).lookup(KEYS[name] if key is None else key)
    return rows if name == "ordered" else sorted(rows, key=str)


def test_what_is_read_through_what(db: Database) -> None:
    create(db, *PROGRAM)
    assert readers(db) == {"wide", "by_id"}
    why = {name: why for name, (state, why) in shown(db).items() if state == "none"}
    assert why == {"narrow": "its rows are found in those of wide: 2 of 4 columns",
                   "ordered": "its rows are found in those of wide: 2 of 4 columns",
                   "threes": "its rows are found in those of by_id: 1 of 5 columns, where kind = 3",
                   "others": "its rows are found in those of by_id: 2 of 5 columns, where kind <> 3 and a IS NOT NULL",
                   "both": "its rows are found in those of by_id: 1 of 5 columns, where kind = ?"}
    for _ in range(2):  # missing, and then present
        assert {name: found(db, name) for name in PROGRAM} == ROWS
    db.sql("UPDATE t SET kind = 4, b = 15 WHERE id = 1")
    assert found(db, "threes") == [] and found(db, "others", 1) == [("one", 1)] and found(db, "both", (4, 1)) == [
        ("one",)] and (15, 1) in found(db, "narrow")
    assert found(db, "threes", 2) == found(db, "others", 2) == found(db, "both", (3, None)) == []


@pytest.mark.parametrize("seed", range(8))
def test_the_readers_are_the_same_whichever_view_came_first(db: Database, seed: int) -> None:
    names = list(PROGRAM)
    random.Random(seed).shuffle(names)
    create(db, *names)
    assert readers(db) == {"wide", "by_id"} and {n: found(db, n) for n in PROGRAM} == ROWS
    ask(db, "validate")


def test_every_order_of_three(path: Path) -> None:
    """One through the other, and that through the third."""
    texts = {"whole": "SELECT * FROM t WHERE id = ?", "some": "SELECT kind, name FROM t WHERE id = ?",
             "least": "SELECT name FROM t WHERE id = ? AND kind = 3"}
    with noria.open(path) as db:
        db.sql(TABLES[0])
        for order in permutations(texts):
            for name in order:
                db.sql(f"CREATE VIEW `{name}` AS {texts[name]}")
            assert readers(db) == {"whole"}, order
            db.sql("DROP VIEW whole")
            assert readers(db) == {"some"}, order
            db.sql("DROP VIEW some, least")


def test_what_is_filled_stays(db: Database) -> None:
    create(db, "narrow")
    assert found(db, "narrow") == ROWS["narrow"]
    create(db, "wide")
    assert readers(db) == {"narrow", "wide"} and found(db, "narrow") == ROWS["narrow"]
    db.sql("DROP VIEW narrow")
    create(db, "narrow")
    assert readers(db) == {"wide"}


def test_a_start_begins_with_what_is_needed(db: Database, path: Path) -> None:
    create(db, "narrow")
    found(db, "narrow")
    create(db, "threes", "wide", "by_id")
    assert readers(db) == {"narrow", "wide", "by_id"}
    db.close()
    for _ in range(2):
        with noria.open(path) as again:
            assert readers(again) == {"wide", "by_id"}
            assert {n: found(again, n) for n in ("narrow", "threes", "wide")} == {
                n: ROWS[n] for n in ("narrow", "threes", "wide")}
    with noria.open(path) as again:
        again.sql("DROP VIEW wide")
        assert readers(again) == {"narrow", "by_id"} and found(again, "narrow") == ROWS["narrow"]
    with noria.open(path) as again:
        assert readers(again) == {"narrow", "by_id"}


def test_the_lender_goes(db: Database) -> None:
    """Those with a key get readers in the same change; just one of those that can stand on each other."""
    db.sql("CREATE VIEW whole AS SELECT * FROM t WHERE a = ?")
    create(db, "narrow", "wide")
    attached = db.view("narrow").attach()
    assert readers(db) == {"whole"} and sorted(attached.lookup(1)) == ROWS["narrow"]
    db.sql("DROP VIEW whole")
    assert readers(db) == {"wide"} and sorted(attached.lookup(1)) == ROWS["narrow"]
    db.sql("CREATE OR REPLACE VIEW wide AS SELECT a FROM t WHERE b = ?")
    assert readers(db) == {"wide", "narrow"} and sorted(attached.lookup(1)) == found(db, "narrow") == ROWS["narrow"]
    db.sql("CREATE OR REPLACE VIEW narrow AS SELECT id, a FROM t WHERE b = ?")
    assert found(db, "narrow", 30) == [(3, 2)] == attached.lookup(30)
    db.sql("DROP VIEW narrow, wide")
    assert ask(db, "graph") == []


def test_attached(db: Database) -> None:
    create(db, *PROGRAM)
    for name in ("narrow", "threes", "others", "both"):
        attached = db.view(name).attach()
        for _ in range(2):
            assert sorted(attached.lookup(KEYS[name]), key=str) == ROWS[name]
        before = attached.misses
        many = attached.lookup_many([KEYS[name]] * 2)
        assert many.column_names == [*db.view(name).columns, "__key"]
        assert many.equals(db.view(name).lookup_many([KEYS[name]] * 2).cast(many.schema))
        assert Counter(many["__key"].to_pylist()) == {0: len(ROWS[name]), 1: len(ROWS[name])}
        assert name == "both" or attached.misses == before


def test_many_keys_some_of_which_are_missing(db: Database) -> None:
    create(db, "wide", "narrow", "by_id", "threes")
    for name, keys, rows in ("narrow", [1, 2], [(10, 1, 0), (20, 2, 0), (30, 3, 1)]), ("threes", [3, 1], [("one", 1)]):
        found(db, name, keys[0])
        for _ in range(2):
            many = db.view(name).lookup_many(keys)
            assert many.column_names == [*db.view(name).columns, "__key"]
            assert sorted(zip(*(c.to_pylist() for c in many.columns), strict=True)) == rows


def test_a_full_view_through_another(db: Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW all_t AS SELECT * FROM t")
    db.sql("CREATE VIEW names AS SELECT name, id FROM t")
    assert sorted(db.sql("SELECT * FROM names").rows, key=str) == [("four", 4), ("one", 1), ("two", 2), (None, 3)]
    assert readers(db) == {"all_t"}
    db.sql("DROP VIEW all_t")
    assert readers(db) == set() and len(db.sql("SELECT * FROM names").rows) == 4
    assert readers(db) == {"names"}


def test_selects_are_answered_from_wider_views(db: Database) -> None:
    """And become no views of their own, however often they are asked."""
    create(db, "wide", "by_id")
    for _ in range(4):
        assert sorted(db.sql("SELECT id, name FROM t WHERE a = 1").rows) == [(1, "one"), (2, "two")]
        assert db.sql("SELECT name FROM t WHERE id = 1 AND kind = 3").rows == [("one",)]
        assert db.sql("SELECT name FROM t WHERE id = 1 AND kind = 4").rows == []
        assert sorted(db.sql("SELECT id FROM t WHERE id IN (1, 2, 3) AND kind IN (3, 4)").rows) == [(1,), (3,)]
        assert db.sql("SELECT id FROM t WHERE id = 2 AND kind <=> NULL").rows == [(2,)]
        assert db.sql("SELECT b FROM t WHERE a = 1 ORDER BY name DESC LIMIT 1").rows == [(20,)]
        assert db.sql("SELECT name FROM t WHERE id = ? AND kind = ?", [4, 3]).rows == [("four",)]
    assert readers(db) == {"wide", "by_id"}
    told = [r[0] for r in db.sql("EXPLAIN ANALYZE SELECT name FROM t WHERE id = 1 AND kind = 3").rows]
    assert told[:2] == ["answered by the view by_id, looked up by (id)", "of its rows: 1 of 5 columns, where kind = ?"]
    assert "1 key present in shared memory" in told[2]


def test_a_whole_program(db: Database) -> None:
    """As if its views had been made one after the other."""
    transport: Any = db.transport

    def apply(*names: str) -> list[str]:
        text = ";\n".join([TABLES[0], *(f"CREATE VIEW `{n}` AS {PROGRAM[n]}" for n in names)])
        return list(transport.run(transport.program.apply(text, True)).lines())

    assert "+ view threes: keeps nothing: it is read in the rows of another view" in apply("threes", "narrow", "by_id")
    assert readers(db) == {"by_id", "narrow"} and found(db, "threes") == ROWS["threes"]
    apply("threes", "narrow", "by_id", "ordered", "wide")
    assert readers(db) == {"by_id", "wide"} and found(db, "ordered") == ROWS["ordered"]
    apply("threes", "narrow", "both")
    assert readers(db) == {"threes", "narrow", "both"} and {n: found(db, n) for n in ("threes", "narrow", "both")} == {
        n: ROWS[n] for n in ("threes", "narrow", "both")}
    ask(db, "validate")


@pytest.mark.parametrize("lender, view", [
    ("SELECT id, kind, name FROM t WHERE a = ?", "SELECT name FROM t WHERE a = ? AND kind = 3"),  # many rows for few
    ("SELECT * FROM t WHERE id = ?", "SELECT id FROM t WHERE id = ? AND name = 'one'"),  # more than whole numbers
    ("SELECT id, b * 4611686018427387904 AS x FROM t WHERE a = ?", "SELECT id FROM t WHERE a = ?"),  # errors
    ("SELECT id, name FROM t WHERE a = ? AND b > 10", "SELECT id FROM t WHERE a = ?"),  # fewer rows
    ("SELECT id, name FROM t WHERE a = ? ORDER BY b LIMIT 3", "SELECT id FROM t WHERE a = ? ORDER BY b LIMIT 3"),
    ("SELECT DISTINCT kind, name FROM t WHERE kind = ?", "SELECT kind FROM t WHERE kind = ?")])
def test_what_has_a_reader_of_its_own(db: Database, lender: str, view: str) -> None:
    db.sql(f"CREATE VIEW lender AS {lender}")
    db.sql(f"CREATE VIEW mine AS {view}")
    assert readers(db) == {"lender", "mine"}


# ---------------------------------------------------------------- random programs
COLUMNS = ("id", "a", "b", "kind", "name")
CONDITIONS = ("kind = 3", "kind <> 3", "b > 20", "b BETWEEN 15 AND 35", "a IS NULL", "kind IN (3, 4)",
              "kind IS NOT NULL", "name = 'one'", "a + b > 20")


def random_text(rng: random.Random) -> tuple[str, int]:
    """A view of t, perhaps joined, and how many parameters it has."""
    source, columns = "t", [*COLUMNS]
    if rng.random() < 0.3:
        source = f"t {rng.choice(['', 'LEFT '])}JOIN u ON u.t_id = t.id"
        columns += ["n"]
    key = rng.choice([("id",), ("id",), ("id",), ("a",), ("id", "kind"), ("kind", "id"), ("a", "id"), ()])
    terms = [*(f"{k} = ?" for k in key), *rng.sample(CONDITIONS, rng.choice([0, 0, 0, 1, 1, 2]))]
    shown = rng.sample(columns, rng.randint(1, len(columns)))
    return f"SELECT {', '.join(shown)} FROM {source}" + (f" WHERE {' AND '.join(terms)}" if terms else ""), len(key)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(path: Path, seed: int) -> None:
    rng, lite = random.Random(seed), sqlite3.connect(":memory:")
    with noria.open(path) as db:
        def run(text: str) -> None:
            db.sql(text)
            lite.execute(text)

        for text in (*TABLES, "CREATE TABLE u (t_id INT PRIMARY KEY, n INT)", "INSERT INTO u VALUES (1, 7), (3, 8)"):
            run(text)
        views: dict[str, tuple[str, int]] = {}
        for step in range(40):
            chance = rng.random()
            if chance < 0.35 or not views:
                name = rng.choice([f"v{step}", *views])
                views[name] = random_text(rng)
                db.sql(f"CREATE OR REPLACE VIEW {name} AS {views[name][0]}")
            elif chance < 0.45:
                db.sql(f"DROP VIEW {(gone := rng.choice([*views]))}")
                del views[gone]
            elif chance < 0.6:
                i = rng.randint(1, 6)
                run(f"DELETE FROM t WHERE id = {i}")
                values = [rng.choice(["NULL", str(rng.randint(1, 3))]), str(rng.randint(1, 4) * 10),
                          rng.choice(["NULL", "3", "4"]), rng.choice(["NULL", "'one'", "'two'"])]
                run(f"INSERT INTO t VALUES ({i}, {', '.join(values)})")
            text, parameters = views[rng.choice([*views])] if chance > 0.8 else random_text(rng)
            by_text = [rng.randint(1, 4) for _ in range(parameters)]
            assert Counter(db.sql(text, by_text).rows) == Counter(lite.execute(text, by_text).fetchall()), (seed, text)
            for name, (text, parameters) in views.items():
                key = tuple(rng.randint(1, 4) for _ in range(parameters))
                wanted = Counter(lite.execute(text, key).fetchall())
                assert Counter(db.view(name).lookup(key)) == wanted, (seed, step, name, text, key)
        ask(db, "validate")


# ------------------------------------------------------------------ joins
JOINED = ("CREATE TABLE u (id INT PRIMARY KEY, t INT, kind INT)", "CREATE TABLE w (u INT, note VARCHAR(20))",
          "INSERT INTO u VALUES (1, 1, 3), (2, 1, 4), (3, 2, 3), (4, NULL, 3)",
          "INSERT INTO w VALUES (1, 'x'), (1, 'y'), (2, NULL), (3, 'z'), (NULL, 'n')")
ORDERS = {
    "tuw": "SELECT t.id, u.kind, w.note, t.name FROM t JOIN u ON u.t = t.id JOIN w ON w.u = u.id WHERE t.a = ?",
    "wut": "SELECT w.note, t.id FROM w JOIN u ON w.u = u.id JOIN t ON t.id = u.t WHERE t.a = ?",
    "utw": "SELECT u.kind, t.name FROM u JOIN t ON u.t = t.id JOIN w ON u.id = w.u WHERE t.a = ?",
    "comma": "SELECT t.name, w.note FROM w, t, u WHERE w.u = u.id AND u.t = t.id AND t.a = ?",
}
APART = {
    "other": "SELECT w.note, t.id FROM w JOIN u ON w.u = u.kind JOIN t ON t.id = u.t WHERE t.a = ?",
    "left": "SELECT w.note, t.id FROM t JOIN u ON t.id = u.t LEFT JOIN w ON w.u = u.id WHERE t.a = ?",
    "fewer": "SELECT t.id, u.kind FROM u JOIN t ON t.id = u.t WHERE t.a = ?",
}


@pytest.mark.parametrize("seed", range(3))
def test_joins_in_any_order_are_read_through_one(db: Database, seed: int) -> None:
    lite = sqlite3.connect(":memory:")
    for text in (*TABLES, *JOINED):
        lite.execute(text)
        if text not in TABLES:
            db.sql(text)
    views = {**ORDERS, **APART}
    names = random.Random(seed).sample(sorted(views), len(views))
    for name in names:
        db.sql(f"CREATE VIEW `{name}` AS {views[name]}")
    assert readers(db) == {"tuw", *APART}
    for change in ("SELECT 1", "UPDATE u SET t = 2 WHERE id = 2", "DELETE FROM w WHERE note = 'x'",
                   "INSERT INTO t VALUES (5, 1, 0, 0, 'five')", "INSERT INTO u VALUES (5, 5, 1)"):
        db.sql(change)
        lite.execute(change)
        for name, text in views.items():
            for key in (1, 2):
                assert Counter(db.view(name).lookup(key)) == Counter(lite.execute(text, (key,)).fetchall()), name
    ask(db, "validate")


def test_a_view_over_other_tables_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one is read in another is asked of views over just the same tables."""
    held, asked, places_for = view_index.ViewIndex(), list[ViewDef](), view_index.places_for
    monkeypatch.setattr(view_index, "places_for", lambda view: asked.append(view) or places_for(view))
    a, b = (mir.Base(TableDef(n, (Column("id", INT, False), Column("v", INT)), (0,), table_id=i))
            for i, n in enumerate("ab", 1))
    wide, other = ViewDef("wide", a, (0,), 2), ViewDef("other", b, (0,), 2)
    narrow = ViewDef("narrow", mir.Project(a, (col(0, INT, False),), ("id",)), (0,), 1)
    assert not list(held.others(narrow)) and not asked
    held.add("other", other)
    assert not list(held.others(narrow)) and not asked
    held.add("wide", wide)
    assert list(held.others(narrow)) == ["wide"] and asked == [narrow]
    held.remove("wide")
    assert not list(held.others(narrow)) and asked == [narrow]
