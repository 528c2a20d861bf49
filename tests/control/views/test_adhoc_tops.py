"""Ad-hoc views of ORDER BY … LIMIT without a key keep the first rows only, for several pages."""

from __future__ import annotations

import random
from typing import Any

from noria.client.api import Database
from noria.core.limits import TOP_ROWS
from noria.plan.mir import TopK
from seeds import seed

TABLES = ("CREATE TABLE p (id INT PRIMARY KEY, a INT, at INT)", "CREATE TABLE u (id INT PRIMARY KEY, name VARCHAR(20))")
PAGE = "SELECT p.id, name FROM p JOIN u ON u.id = a ORDER BY at DESC, p.id LIMIT {} OFFSET {}"


def adhoc(db: Database) -> list[Any]:
    return list(db.transport.executor.program.adhoc())


def filled(db: Database, rows: int) -> dict[int, tuple[int, int]]:
    db.table("u").insert([(i, f"u{i}") for i in range(10)])
    have = {i: (i % 10, i * 7 % 1_000) for i in range(rows)}
    db.table("p").insert([(i, a, at) for i, (a, at) in have.items()])
    return have


def page(have: dict[int, tuple[int, int]], limit: int, offset: int) -> list[tuple[int, str]]:
    rows = sorted(have.items(), key=lambda r: (-r[1][1], r[0]))
    return [(id, f"u{a}") for id, (a, _) in rows][offset:offset + limit]


def test_pages_share_a_view_that_keeps_few_rows(db: Database) -> None:
    have = filled(db, 3_000)
    for _ in range(3):
        for offset in (0, 20, 40):
            assert db.sql(PAGE.format(20, offset)).rows == page(have, 20, offset)
    (view,) = adhoc(db)
    assert isinstance(view.plan, TopK) and view.plan.limit == 64
    assert db.sql(PAGE.format(2, 1)).rows == page(have, 2, 1) and adhoc(db) == [view]
    for _ in range(3):
        assert db.sql(PAGE.format(20, 60)).rows == page(have, 20, 60)
    assert [v.plan.limit for v in adhoc(db)] == [64, 512]
    assert db.sql(PAGE.format(20, 0)).rows == page(have, 20, 0)


def test_what_is_more_than_a_top_keeps(db: Database) -> None:
    have = filled(db, 300)
    for _ in range(3):
        assert db.sql(PAGE.format(TOP_ROWS + 1, 0)).rows == page(have, TOP_ROWS + 1, 0)
    (view,) = adhoc(db)
    assert not isinstance(view.plan, TopK)


def test_the_fewest_rows_are_read(db: Database) -> None:
    """Also where a view of all rows is there."""
    filled(db, 3_000)
    for limit in (500, 3):
        for _ in range(3):
            db.sql(PAGE.format(limit, 0))
    db.sql(f"CREATE MATERIALIZED VIEW everything AS {PAGE[:PAGE.index(' LIMIT')]}")
    assert "adhoc" in db.sql(f"EXPLAIN {PAGE.format(3, 0)}").rows[0][0]
    kept = {v.name: v.plan.limit for v in adhoc(db)}
    answering = db.sql(f"EXPLAIN {PAGE.format(3, 0)}").rows[0][0]
    assert next(k for name, k in kept.items() if name in answering) == min(kept.values()), answering


def test_random_writes(db: Database) -> None:
    chance = random.Random(seed("NORIA_TOPS_SEED", 1))
    have = filled(db, 500)
    for _ in range(120):
        limit, offset = chance.choice((1, 5, 20, 60)), chance.choice((0, 0, 3, 60, 400))
        assert db.sql(PAGE.format(limit, offset)).rows == page(have, limit, offset)
        for _ in range(chance.randrange(5)):
            id = chance.randrange(600)
            if chance.random() < 0.5:
                db.sql("DELETE FROM p WHERE id = ?", [id])
                have.pop(id, None)
            else:
                have[id] = chance.randrange(10), chance.randrange(1_000)
                db.sql("REPLACE INTO p VALUES (?, ?, ?)", [id, *have[id]])


def test_a_page_of_a_view_that_has_all_rows(db: Database) -> None:
    """Asked again, it gets a view that keeps its first rows; of a view of few rows it does not."""
    have = filled(db, 3_000)
    db.sql(f"CREATE MATERIALIZED VIEW everything AS {PAGE[:PAGE.index(' LIMIT')]}")
    answering = ""
    for _ in range(1_000):
        assert db.sql(PAGE.format(7, 3)).rows == page(have, 7, 3)
        answering = db.sql(f"EXPLAIN {PAGE.format(7, 3)}").rows[0][0]
        if "adhoc" in answering:
            break
    (view,) = adhoc(db)
    assert view.name in answering and isinstance(view.plan, TopK) and view.plan.limit == 64
    db.sql("CREATE MATERIALIZED VIEW few AS SELECT id, at FROM p WHERE a = 3")
    for _ in range(6):
        db.sql("SELECT * FROM few ORDER BY at, id LIMIT 2")
    assert adhoc(db) == [view]
