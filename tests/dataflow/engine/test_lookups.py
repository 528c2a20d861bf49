"""Popular keys: their rows are read in slices between the packets of a worker on a real store, while they are
written.  Each answer is compared with the rows that the tables have at the moment of the reply."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dataflow.building import Building
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.statements import Delete, Insert, Update
from noria.core.types import INT
from noria.dataflow.engine import lookups
from noria.dataflow.inspect.validate import validate
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.sql.commands import CreateView

TABLES = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9), c INT, KEY (a), KEY (b))",
          "CREATE TABLE p (k INT, n INT, x INT, PRIMARY KEY (k, n))",
          "CREATE TABLE u (a INT PRIMARY KEY, name VARCHAR(9))")
VIEWS = {
    "rows_of": "SELECT id, c FROM t WHERE a = ?",
    "counts": "SELECT a, COUNT(*), SUM(c) FROM t WHERE a = ? GROUP BY a",
    "texts": "SELECT id FROM t WHERE b = ?",
    "sums": "SELECT k, SUM(x), MIN(n) FROM p WHERE k = ? GROUP BY k",
    "joined": "SELECT name, COUNT(*) FROM u JOIN t ON u.a = t.a WHERE u.a = ? GROUP BY name",
    "both": "SELECT t.id, p.n FROM t JOIN p ON t.c = p.k WHERE t.a = ?",
    "firsts": "SELECT id FROM t WHERE a = ? ORDER BY id DESC LIMIT 3",
}


class Popular(Building):
    """A bench with a second copy of the tables' rows."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.t: dict[int, tuple[int, str, int]] = {}
        self.p: dict[tuple[int, int], int] = {}
        self.u = {i: f"u{i}" for i in range(4)}
        for text in TABLES:
            self.define(text)
        self.change(packets.Write((Insert("u", (0, 1), tuple(self.u.items())),)))

    def write(self, rng: random.Random) -> None:
        """A random write, mostly to popular keys."""
        kind = rng.random()
        if kind < 0.4 or not self.t:
            fresh = {rng.randrange(10**6): (rng.choice((0, 0, 0, 1, 2)), rng.choice(("A", "a", "b")), rng.randrange(4))
                     for _ in range(rng.randrange(1, 9))}
            fresh = {i: r for i, r in fresh.items() if i not in self.t}
            self.t.update(fresh)
            self.change(packets.Write((Insert("t", (0, 1, 2, 3), tuple((i, *r) for i, r in fresh.items())),)))
        elif kind < 0.6:
            some = {(rng.choice((0, 0, 1)), rng.randrange(10**6)): rng.randrange(9) for _ in range(5)}
            some = {key: x for key, x in some.items() if key not in self.p}
            self.p.update(some)
            self.change(packets.Write((Insert("p", (0, 1, 2), tuple((*k, x) for k, x in some.items())),)))
        elif kind < 0.8:
            removed = rng.choice(list(self.t))
            self.change(packets.Write((Delete("t", functions.call("eq", col(0, INT), const(removed, INT))),)))
            del self.t[removed]
        else:  # to another key, or to the same
            id, a, c = rng.choice(list(self.t)), rng.choice((0, 1, 2)), rng.randrange(4)
            self.change(packets.Write((Update("t", ((1, const(a, INT)), (3, const(c, INT))),
                                              functions.call("eq", col(0, INT), const(id, INT))),)))
            self.t[id] = (a, self.t[id][1], c)

    def expected(self, view: str, key: Any) -> Counter[tuple[Any, ...]]:
        of_a = {i: r for i, r in self.t.items() if r[0] == key}
        if view == "rows_of":
            return Counter((i, c) for i, (_, _, c) in of_a.items())
        if view == "counts":
            return Counter([(key, len(of_a), sum(c for *_, c in of_a.values()))] if of_a else [])
        if view == "texts":
            return Counter((i,) for i, (_, b, _) in self.t.items() if b.lower() == key.lower())
        if view == "sums":
            mine = {n: x for (k, n), x in self.p.items() if k == key}
            return Counter([(key, sum(mine.values()), min(mine))] if mine else [])
        if view == "joined":
            return Counter([(self.u[key], len(of_a))] if of_a and key in self.u else [])
        if view == "both":
            return Counter((i, n) for i, (_, _, c) in of_a.items() for k, n in self.p if k == c)
        return Counter((i,) for i in sorted(of_a, reverse=True)[:3])

    def read(self, number: int, view: str, *keys: Any, limit_ms: int = 0) -> None:
        read = packets.Read(number, view, [(k,) for k in keys], limit_ms=limit_ms)
        self.replies += [r.body for r in self.worker.step([Envelope(1, -1, 0, read)])]

    def waits(self) -> bool:
        return bool(self.worker.engine.lookups)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Popular]:
    monkeypatch.setattr(lookups, "LONG_LOOKUP_ROWS", 20)
    monkeypatch.setattr(lookups, "FIRST_ROWS", 7)
    monkeypatch.setattr(lookups, "MOST_ROWS", 20)
    made = Popular(tmp_path / "base")
    yield made
    made.worker.close()


def answer(reply: packets.Rows) -> Counter[tuple[Any, ...]]:
    assert reply.error is None, reply.error
    return Counter(tuple(int(v) if not isinstance(v, str) else v for v in list(r.values())[:-1])
                   for r in reply.rows.to_pylist())


@pytest.mark.parametrize("seed", range(8))
def test_rows_read_in_slices_equal_those_of_the_tables(bench: Popular, seed: int) -> None:
    rng = random.Random(seed)
    for name, text in VIEWS.items():
        bench.define(f"CREATE VIEW {name} AS {text}")
    for _ in range(rng.choice((60, 150))):
        bench.write(rng)
    pending: dict[int, tuple[str, tuple[Any, ...]]] = {}
    sliced = 0
    for step in range(150):
        if rng.random() < 0.3:
            view = rng.choice(list(VIEWS))
            among = ("A", "b") if view == "texts" else (0, 0, 1, 2, 3)
            keys = tuple(rng.choice(among) for _ in range(rng.choice((1, 1, 2))))
            pending[2**40 + step] = view, keys
            bench.read(2**40 + step, view, *keys)
            sliced += bench.waits()
        elif rng.random() < 0.5:
            bench.write(rng)
        elif rng.random() < 0.3:
            bench.send(packets.Evict(2**39 + step, 2**40))
        else:
            bench.replies += [r.body for r in bench.worker.idle(0)[0]]
        for reply in bench.replies:
            if isinstance(reply, packets.Rows):
                view, keys = pending.pop(reply.request)
                expected = sum((bench.expected(view, k) for k in keys), Counter())
                assert answer(reply) == expected, (view, keys)
        bench.replies.clear()
    bench.idle()
    for reply in bench.replies:
        view, keys = pending.pop(reply.request)
        assert answer(reply) == sum((bench.expected(view, k) for k in keys), Counter())
    assert not pending
    assert sliced > 3, "no read was in slices"
    assert not bench.worker.engine.scans, "a finished lookup is still held"
    validate(bench.worker.engine)


def popular(bench: Popular, rows: int = 100) -> None:
    bench.define(f"CREATE VIEW counts AS {VIEWS['counts']}")
    bench.t.update(dict.fromkeys(range(rows), (0, "A", 1)))
    bench.change(packets.Write((Insert("t", (0, 1, 2, 3), tuple((i, 0, "A", 1) for i in range(rows))),)))


def last(bench: Popular) -> packets.Rows:
    (reply,) = bench.replies
    bench.replies.clear()
    assert isinstance(reply, packets.Rows)
    return reply


def test_all_reads_of_a_key_wait_for_one_lookup(bench: Popular) -> None:
    popular(bench)
    for number in range(5):
        bench.read(2**40 + number, "counts", 0)
    (lookup,) = bench.worker.engine.scans
    bench.idle()
    assert [answer(r) for r in bench.replies] == 5 * [Counter([(0, 100, 100)])]
    assert lookup.done == 100
    assert not bench.waits()
    assert not bench.worker.engine.scans


def test_a_cancelled_lookup_leaves_nothing(bench: Popular) -> None:
    popular(bench)
    bench.read(2**40, "counts", 0)
    bench.cancelled.add(2**40)
    bench.idle()
    error = last(bench).error
    assert error is not None
    assert error.code == 1317
    assert not bench.worker.engine.scans


def test_slices_are_bounded_by_the_time_limit_of_the_read(bench: Popular) -> None:
    """Each reading of the clock takes a millisecond in this test."""
    popular(bench, 400)
    bench.read(2**40, "counts", 0, limit_ms=10)
    bench.idle()
    error = last(bench).error
    assert error is not None
    assert error.code == 3024
    assert not bench.worker.engine.scans


def test_a_lookup_is_bounded_by_the_memory_of_one_request(bench: Popular, monkeypatch: pytest.MonkeyPatch) -> None:
    popular(bench)
    bench.define(f"CREATE VIEW rows_of AS {VIEWS['rows_of']}")
    monkeypatch.setattr(lookups, "REQUEST_BYTES", 1_000)
    bench.read(2**40, "rows_of", 0)
    bench.idle()
    error = last(bench).error
    assert error is not None
    assert error.code == 3024


@pytest.mark.parametrize("change", ["view", "table", "index", "rename", "more"])
def test_the_program_changes_meanwhile(bench: Popular, change: str) -> None:
    popular(bench)
    bench.read(2**40, "counts", 0)
    bench.worker.engine.lookups.step(bench.worker.environment, bench.worker._again, bench.worker._log_defect)
    t = bench.catalog.tables["t"]
    (more,) = bench.catalog.run(f"CREATE VIEW texts AS {VIEWS['texts']}")
    assert isinstance(more, CreateView)
    steps: dict[str, tuple[packets.MigrationStep, ...]] = {
        "view": (packets.DropView("counts"),), "table": (packets.DropView("counts"), packets.DropTable("t")),
        "index": (packets.AlterTable(replace(t, indexes=())),), "rename": (packets.AlterTable(replace(t, name="s")),),
        "more": (packets.AddView(more.view),)}
    done = bench.change(packets.Migrate(steps[change], ("x",)))
    assert done.error is None, done.error
    bench.idle()
    reply = next(r for r in bench.replies if isinstance(r, packets.Rows))
    if change in ("view", "table"):
        assert reply.error is not None
    else:
        assert answer(reply) == Counter([(0, 100, 100)])
    assert not bench.worker.engine.scans


def test_a_load_meanwhile_is_in_the_answer(bench: Popular, monkeypatch: pytest.MonkeyPatch) -> None:
    popular(bench)
    bench.read(2**40, "counts", 0)
    engine = bench.worker.engine
    engine.lookups.step(bench.worker.environment, bench.worker._again, bench.worker._log_defect)
    rows = tuple((1_000 + i, 0, "A", 1) for i in range(50))
    engine.store.write((Insert("t", (0, 1, 2, 3), rows),), 1, 10**6)  # without the data-flow, as files of a load
    monkeypatch.setattr(engine.store, "ingest", lambda *a: None)
    assert bench.change(packets.Ingest("t", (), 50, 0)).error is None
    bench.idle()
    assert [answer(r) for r in bench.replies if isinstance(r, packets.Rows)] == [Counter([(0, 150, 150)])]


def test_a_read_of_a_key_under_way_reads_no_row_of_it(bench: Popular, monkeypatch: pytest.MonkeyPatch) -> None:
    popular(bench)
    bench.read(2**40, "counts", 0)

    def lookup(*args: Any) -> Any:
        raise AssertionError("the key was read a second time")

    monkeypatch.setattr(bench.worker.engine.store, "lookup", lookup)
    bench.read(2**40 + 1, "counts", 1, 0)
    assert len(bench.worker.engine.scans) == 1
    monkeypatch.undo()
    bench.idle()
    assert [answer(r) for r in bench.replies] == 2 * [Counter([(0, 100, 100)])]
