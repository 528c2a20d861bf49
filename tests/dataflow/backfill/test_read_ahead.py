"""Tables on disk that a first state reads: a table in which most rows are looked up is read sequentially once, and the
first rows of all are read from the end of an index.  Tested beside writes, against a recomputation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataflow.building import ROWS, WAITING, Building
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.statements import Delete, Insert
from noria.core.types import INT
from noria.dataflow.backfill import read_ahead, scan
from noria.dataflow.inspect.validate import validate
from noria.dataflow.messages import packets


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Building]:
    made = Building.filled(tmp_path / "base")
    yield made
    made.worker.close()


class Pairs:
    """A bench with a table of pairs (t's a, a number), keyed by both, and a second copy of its rows."""

    def __init__(self, bench: Building):
        self.bench, self.rows = bench, set[tuple[int, int]]()
        bench.define("CREATE TABLE pairs (a INT, n INT, PRIMARY KEY (a, n))")

    def put(self, *rows: tuple[int, int]) -> None:
        wrote = self.bench.change(packets.Write((Insert("pairs", (0, 1), rows),)))
        assert wrote.results[0].error is None
        self.rows.update(rows)

    def delete(self, a: int, n: int) -> None:
        both = functions.call("and", functions.call("eq", col(0, INT), const(a, INT)),
                              functions.call("eq", col(1, INT), const(n, INT)))
        self.bench.change(packets.Write((Delete("pairs", both),)))
        self.rows.discard((a, n))

    def joined(self) -> Counter[tuple[Any, ...]]:
        """Each pair with the number of rows of t that match it."""
        met = Counter(self.bench.rows.values())
        return Counter((a, n, met[a]) for a, n in self.rows if met[a])


@pytest.mark.parametrize("most", [65_536, 64])  # of one key: beyond, it is left to lookups
def test_a_table_is_read_sequentially_once_beside_writes(bench: Building, monkeypatch: pytest.MonkeyPatch, most: int
                                                         ) -> None:
    monkeypatch.setattr(read_ahead, "MOST_ROWS", most)
    monkeypatch.setattr(scan, "PROBED_ROWS", 64)
    rng, pairs = random.Random(most), Pairs(bench)
    bench.put(*((ROWS + i, i) for i in range(ROWS)))
    bench.delete_below(ROWS)  # rows with keys of their own are left
    pairs.put(*((a, n) for a in range(-40, ROWS) for n in range(rng.choice((0, 1, 3)))))
    pairs.put(*((90, n) for n in range(10, 110)))
    store, looked_up = bench.worker.engine.store, list[int]()
    lookup = store.lookup

    def counted(table: str, columns: Any, keys: Any, *args: Any) -> Any:
        looked_up.append(keys.shape[1] * (table == "pairs"))
        return lookup(table, columns, keys, *args)

    monkeypatch.setattr(store, "lookup", counted)
    assert bench.define("CREATE VIEW joined AS SELECT pairs.a, n, COUNT(*) FROM t JOIN pairs ON pairs.a = t.a "
                        "GROUP BY pairs.a, n").filling
    bench.await_view("joined")
    writes = 0
    while not bench.replies:
        a, n = rng.randrange(-40, 60), rng.randrange(200, 210)
        if (a, n) not in pairs.rows:
            pairs.put((a, n))
        elif rng.random() < 0.5:
            pairs.delete(a, n)
        else:
            bench.put((3 * ROWS + writes, a))
        writes += 1
        assert writes < 5_000
    assert bench.replies == [packets.Done(WAITING)] and writes > 5
    validate(bench.worker.engine)
    assert bench.all_of("joined") == pairs.joined()
    if most > 100:
        assert sum(looked_up) < ROWS // 2, "a row that was read ahead is looked up again"
    for a, n in list(pairs.rows)[:20]:
        pairs.delete(a, n)
    bench.put(*((9 * ROWS + i, i % 7) for i in range(20)))
    validate(bench.worker.engine)
    assert bench.all_of("joined") == pairs.joined()


def test_where_few_rows_look_up_nothing_is_read_ahead(bench: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.define("CREATE TABLE large (a INT PRIMARY KEY, n INT)")
    bench.change(packets.Write((Insert("large", (0, 1), tuple((i, i) for i in range(3 * ROWS))),)))
    scanned = list[str]()
    scan = bench.worker.engine.store.scan
    monkeypatch.setattr(bench.worker.engine.store, "scan",
                        lambda table, *args: (scanned.append(table), scan(table, *args))[1])
    assert bench.define("CREATE VIEW joined AS SELECT t.id, n FROM t LEFT JOIN large ON large.a = t.a").filling
    bench.idle()
    assert set(scanned) == {"t"}
    validate(bench.worker.engine)
    assert bench.all_of("joined") == Counter(bench.rows.items())


@pytest.mark.parametrize("where", ["t.id < 5", "t.a < 5 AND t.id < 2000"])
def test_where_few_keys_are_looked_up_nothing_is_read_ahead(bench: Building, monkeypatch: pytest.MonkeyPatch,
                                                            where: str) -> None:
    """All rows of a table were read, and kept, for five lookups."""
    bench.define("CREATE TABLE large (a INT PRIMARY KEY, n INT)")
    bench.change(packets.Write((Insert("large", (0, 1), tuple((i, i) for i in range(1_000))),)))
    monkeypatch.setattr(scan, "PROBED_ROWS", 64)
    bench.define(f"CREATE VIEW few AS SELECT DISTINCT t.a, n FROM t JOIN large ON large.a = t.a WHERE {where}")
    bench.idle()
    validate(bench.worker.engine)
    base = next(n for n in bench.worker.engine.graph.nodes if n.op.describe() == "table large")
    assert base.state is not None and len(base.stored) == 5
    assert bench.all_of("few") == Counter({(i, i): 1 for i in range(5)})


def test_first_rows_of_a_join_with_a_stored_input(bench: Building) -> None:
    """The end of an index was read through a state that a window over all rows stores: an internal error."""
    bench.define("CREATE TABLE u (x INT PRIMARY KEY, b INT)")
    bench.change(packets.Write((Insert("u", (0, 1), tuple((i, -i) for i in range(7))),)))
    bench.define("CREATE VIEW first AS SELECT t.id, w.r FROM t LEFT JOIN (SELECT x, RANK() OVER (ORDER BY b) AS r FROM "
                 "u) AS w ON w.x = t.a ORDER BY t.id DESC LIMIT 5")
    bench.idle()
    for id in range(ROWS - 1, ROWS - 30, -1):
        assert bench.all_of("first") == Counter({(i, 7 - i % 7): 1 for i in range(id, id - 5, -1)})
        equal = functions.call("eq", col(0, INT), const(id, INT))
        bench.change(packets.Write((Delete("t", equal),)))
        del bench.rows[id]
    validate(bench.worker.engine)


def test_lookups_by_the_primary_key_need_no_other_index(bench: Building) -> None:
    """GROUP BY id, title caused a build of an index of both."""
    bench.define("CREATE TABLE posts (id INT PRIMARY KEY, title VARCHAR(20))")
    posts = {i: f"Post {i % 90}" for i in range(500)}
    bench.change(packets.Write((Insert("posts", (0, 1), tuple(posts.items())),)))
    bench.define("CREATE VIEW used AS SELECT posts.id, title, COUNT(*) AS n FROM posts JOIN t ON t.a = posts.id "
                 "GROUP BY posts.id, title HAVING n > 0")
    bench.idle()
    assert [i.columns for i in bench.store.table("posts").indexes] == []
    for id in (3, 3, 5):
        bench.change(packets.Write((Insert("posts", (0, 1), ((id, f"POST {id}"),), "replace"),)))
        posts[id] = f"POST {id}"
        bench.put((ROWS + len(bench.rows), id))
    validate(bench.worker.engine)
    met = Counter(bench.rows.values())
    assert bench.all_of("used") == Counter((id, title, met[id]) for id, title in posts.items() if met[id])


def first(bench: Building, limit: int, descending: bool) -> Counter[tuple[int, int]]:
    return Counter(sorted(bench.rows.items(), reverse=descending)[:limit])


@pytest.mark.parametrize("descending", [True, False])
def test_the_first_rows_of_all_are_read_from_the_end_of_an_index(bench: Building, monkeypatch: pytest.MonkeyPatch,
                                                                 descending: bool) -> None:
    """All rows were read for the first twenty, and again whenever too many of the kept rows had been deleted."""
    bench.define("CREATE TABLE few (a INT PRIMARY KEY, name INT)")
    bench.change(packets.Write((Insert("few", (0, 1), tuple((i, i) for i in range(7))),)))
    rng = random.Random(descending)
    scan = bench.worker.engine.store.scan

    def of_few(table: str, *args: Any) -> Any:
        assert table == "few", "all rows are read"
        return scan(table, *args)

    monkeypatch.setattr(bench.worker.engine.store, "scan", of_few)
    bench.define("CREATE VIEW newest AS SELECT t.id, few.name FROM t JOIN few ON few.a = t.a "
                 f"ORDER BY t.id {'DESC' if descending else ''} LIMIT 20")
    bench.idle()  # t gets an index by a first
    for step in range(60):
        ids = sorted(bench.rows, reverse=descending)
        if step % 3:
            for id in ids[: rng.randrange(8)]:
                equal = functions.call("eq", col(0, INT), const(id, INT))
                bench.change(packets.Write((Delete("t", equal),)))
                del bench.rows[id]
        else:
            bench.put(*((i, abs(i) % 7) for i in {rng.randrange(-ROWS, 2 * ROWS) for _ in range(5)} - set(ids)))
        assert bench.all_of("newest") == first(bench, 20, descending)
    monkeypatch.setattr(bench.worker.engine.store, "scan", scan)
    validate(bench.worker.engine)


def test_all_rows_are_read_where_too_many_of_the_first_are_left_out(bench: Building) -> None:
    assert bench.define("CREATE VIEW rare AS SELECT id, a FROM t WHERE b IS NOT NULL OR id < 3 ORDER BY id DESC LIMIT 2"
                        ) is not None
    bench.idle()
    validate(bench.worker.engine)
    assert bench.all_of("rare") == Counter({(2, 2): 1, (1, 1): 1})


def test_a_null_may_rank_before_the_rows_of_an_index(bench: Building) -> None:
    bench.define("CREATE TABLE n (id INT PRIMARY KEY, x INT, KEY (x))")
    bench.change(packets.Write((Insert("n", (0, 1), tuple((i, None if i % 2 else i) for i in range(ROWS))),)))
    for name, order, expected in (("down", "x DESC", [(i, i) for i in range(ROWS - 2, ROWS - 12, -2)]),
                                  ("up", "x, id", [(i, None) for i in range(1, 11, 2)])):
        bench.define(f"CREATE VIEW {name} AS SELECT id, x FROM n ORDER BY {order} LIMIT 5")
        bench.idle()
        validate(bench.worker.engine)
        assert bench.all_of(name) == Counter(expected)
