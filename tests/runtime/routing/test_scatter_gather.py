"""Reads of three workers are those of one: of a key, of several, of ranges, of all; by packets and in shared memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow.three_workers import WORKERS, Three, opened
from noria.control.catalog.worker_view import add_view_step
from noria.core.errors import SqlError
from noria.core.errors.codes import TABLE_DEF_CHANGED
from noria.core.limits import MAX_INT, MIN_INT
from noria.core.statements import Delete, Insert
from noria.core.values import arrow_type, encode
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope, Query, Read, Rows
from noria.plan.view import ViewDef
from noria.runtime.routing.key_routing import KeyRoutes
from noria.runtime.routing.scatter_gather import merged, split
from noria.server.answering.result_finish import ResultFinish
from noria.server.answering.view_lookups import ManyRows, ViewLookups
from noria.sql.commands import CreateTable
from noria.sql.parse import parse
from noria.views.reader import AttachedViews, attach

TABLES = ("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(80), price DECIMAL(8,2), day DATE, shop INT)",
          "CREATE TABLE shops (id INT PRIMARY KEY, city VARCHAR(80))")
VIEWS = (
    "CREATE VIEW by_id AS SELECT name, price FROM items WHERE id = ?",
    "CREATE VIEW by_name AS SELECT id, name FROM items WHERE name = ?",
    "CREATE VIEW by_two AS SELECT id, price FROM items WHERE day = ? AND shop = ?",
    "CREATE VIEW counted AS SELECT shop, name, COUNT(*) AS n FROM items WHERE name = ? AND shop = ? "
    "GROUP BY shop, name",
    "CREATE VIEW cities AS SELECT s.city, SUM(i.price) AS total FROM items i JOIN shops s ON s.id = i.shop "
    "WHERE s.city = ? GROUP BY s.city",
    "CREATE VIEW left_over AS SELECT i.id, s.city FROM items i LEFT JOIN shops s ON s.id = i.shop WHERE i.price = ?",
    "CREATE VIEW cheap AS SELECT price, id FROM items WHERE price BETWEEN ? AND ?",
    "CREATE VIEW lately AS SELECT id, day FROM items WHERE day >= ? ORDER BY day DESC LIMIT 3",
    "CREATE VIEW there AS SELECT i.id, i.shop, s.city FROM items i JOIN shops s ON s.id = i.shop "
    "WHERE i.shop BETWEEN ? AND ?",
    "CREATE VIEW per_shop AS SELECT shop, COUNT(*) AS n FROM items WHERE shop >= ? GROUP BY shop",
    "CREATE VIEW hidden AS SELECT id FROM items WHERE shop > ?",
    "CREATE VIEW total AS SELECT COUNT(*) AS n, MAX(id) AS m FROM items",
    "CREATE VIEW everything AS SELECT id, name FROM items",
)
NAMES = (None, "a", "A", "é", "E", "ß", "é" * 70)
PRICES = tuple(Decimal(n) / 100 for n in (-150, 0, 99, 100, 250))
DAYS = tuple(date(2020, 1, d) for d in range(1, 8))
VALUES = {"id": range(40), "name": NAMES, "price": (None, *PRICES), "day": (None, *DAYS), "shop": range(6),
          "city": NAMES}


class Beside(Three):
    """Three workers that publish their views, and one that has all."""

    def __init__(self, path: Path, rng: random.Random):
        super().__init__(path, rng)
        self.path, self.routes, self.views = path, KeyRoutes(WORKERS), dict[str, ViewDef]()
        self.one, self.one_seq = opened(path / "one", 0, 1, None), 0

    def views_of(self, path: Path, w: int) -> str | None:
        where = path / f"views-{w}"
        where.mkdir()
        return str(where)

    def attached(self, worker: int) -> AttachedViews:
        return attach(str(self.path / f"views-{worker}"))

    def rest(self) -> None:
        super().rest()
        while self.deliver() or any(w.idle(10)[1] for w in self.workers):
            pass

    def at_one(self, body: Any) -> Any:
        self.one_seq += isinstance(body, packets.Write | packets.Migrate)
        (reply,) = self.one.step([Envelope(1, -1, self.one_seq, body)])
        return reply.body

    def define(self, text: str) -> None:
        (command,) = self.catalog.run(text)
        if isinstance(command, CreateTable):
            self.migrate(packets.CreateTable(self.catalog.tables[command.table.name.lower()]))
        else:
            step = add_view_step(command.view)
            self.views[step.view.name] = step.view
            self.migrate(step)

    def migrate(self, step: Any) -> None:
        self.version += 1
        body = packets.Migrate((step,), (str(step),), version=self.version)
        replies = [self.change(w, body) for w in self.rng.sample(range(WORKERS), WORKERS)]
        assert not any(t.error for t in replies)
        assert len({t.routes for t in replies}) == 1, replies
        self.routes.learn(replies[0].routes)
        alone = self.at_one(body)
        assert (alone.error, alone.routes) == (None, ())

    def write(self, table: str, row: Sequence[Any]) -> None:
        body = packets.Write((Insert(table, tuple(range(len(row))), (tuple(row),), "replace"),))
        for reply in (self.change(self.owner(row[0]), body), self.at_one(body)):
            assert reply.results[0].error is None

    def clear(self, table: str) -> None:
        body = packets.Write((Delete(table, None),))
        for w in range(WORKERS):
            self.change(w, body)
        self.at_one(body)

    def ask(self, body: Read) -> Rows:
        parts = split(body, self.routes, self.views[body.view])
        numbers = {}
        for w, part in parts.items():
            self.request += 1
            numbers[w] = self.request
            self.step(w, [Envelope(1, -1, 0, replace(part, request=self.request))])
        self.rest()
        return merged(parts, {w: self.replies[number] for w, number in numbers.items()})

    def key(self, view: ViewDef) -> tuple[Any, ...]:
        return tuple(self.rng.choice(VALUES[f.name]) for f in view.key_fields)

    def random_range(self, view: ViewDef) -> tuple[int, int]:
        (field,) = view.key_fields
        ends = [self.rng.choice([v for v in VALUES[field.name] if v is not None]) for _ in range(2)]
        low, high = sorted(encode(v, field.type, self.one.engine.symbols) for v in ends)
        return self.rng.choice([(low, high), (MIN_INT, high), (low, MAX_INT), (MIN_INT, MAX_INT)])


@pytest.fixture
def beside(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Beside]:
    made = Beside(tmp_path, random.Random(getattr(request, "param", 1)))
    for text in TABLES:
        made.define(text)
    yield made
    for w in (*made.workers, made.one):
        w.close()


def shown(rows: Rows) -> list[tuple[Any, ...]]:
    assert rows.error is None, rows.error
    return sorted(zip(*(c.to_pylist() for c in rows.rows.columns), strict=True), key=repr)


def without_keys(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((r[:-1] for r in rows), key=repr)


def arrow_keys(view: ViewDef, keys: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = zip(zip(*keys, strict=True), view.key_fields, strict=True)
    return pa.table({f"key{i}": pa.array(c, arrow_type(f.type)) for i, (c, f) in enumerate(columns)})


@pytest.mark.parametrize("beside", range(3), indirect=True)
def test_reads_of_three_are_those_of_one(beside: Beside) -> None:
    rng, late = beside.rng, list(VIEWS)
    rng.shuffle(late)
    for turn in range(260):
        x = rng.random()
        if late and (x < 0.1 or turn > 200):
            beside.define(late.pop())
        elif x < 0.4:
            row = [rng.choice(VALUES[c]) for c in ("id", "name", "price", "day", "shop")]
            beside.write("items", row)
        elif x < 0.5:
            beside.write("shops", (rng.randrange(6), rng.choice(NAMES)))
        elif x < 0.51:
            beside.clear("items")
        elif x < 0.55:
            beside.step(rng.randrange(WORKERS), [Envelope(1, -1, 0, packets.Evict(0, None))])
        elif x < 0.8 and beside.views:
            beside.rest()
            look(beside, rng.choice(list(beside.views.values())))
        else:
            beside.deliver()
    beside.rest()
    for view in beside.views.values():
        for _ in range(4):
            look(beside, view)
    in_memory(beside)


def look(beside: Beside, view: ViewDef) -> None:
    rng = beside.rng
    if view.ranged:
        ranged(beside, view)
        return
    keys: Any = [beside.key(view) for _ in range(rng.choice([0, 1, 1, 2, 9]))]
    body = Read(0, view.name, keys, nulls=rng.random() < 0.3)
    if view.key and keys and rng.random() < 0.4:
        body = replace(body, keys=arrow_keys(view, keys).to_batches()[0])
    assert shown(beside.ask(body)) == shown(beside.at_one(body)), body


def ranged(beside: Beside, view: ViewDef) -> None:
    rng = beside.rng
    body = Read(0, view.name, (), key_range=beside.random_range(view))
    rows, expected = beside.ask(body).rows, shown(beside.at_one(body))
    assert without_keys(shown(Rows(0, rows))) == without_keys(expected), body
    key = view.key[0]
    if key >= view.visible:
        assert len(set(rows.column("__key").to_pylist())) == len({r[-1] for r in expected})
        return
    first = replace(body, first=rng.randrange(5), descending=rng.random() < 0.5)
    answer = beside.ask(first).rows
    values = sorted({r[key] for r in expected}, reverse=first.descending)
    first_rows: list[Any] = []
    while values and len(first_rows) < (first.first or 0):
        value = values.pop(0)
        first_rows += [r for r in expected if r[key] == value]
    assert without_keys(shown(Rows(0, answer))) == without_keys(first_rows), first
    order = answer.column(key).to_pylist()
    assert order == sorted(order, reverse=first.descending)
    numbers = answer.column("__key").to_pylist()
    assert numbers == [sorted(set(order), reverse=first.descending).index(v) for v in order]


def in_memory(beside: Beside) -> None:
    """Compare the reads of a front end, from shared memory and by requests."""

    class Link:
        routes = beside.routes

        async def ask(self, body: Any, retry: bool = False, lease: Any = None) -> Rows:
            return beside.ask(body)

    def nowhere(worker: int) -> AttachedViews:
        return attach(str(beside.path / "nowhere"))

    reads = ViewLookups(Link(), beside.attached, 0)

    async def compare() -> None:
        for view in [v for v in beside.views.values() if not v.ranged]:
            keys = list(dict.fromkeys(beside.key(view) for _ in range(6)))
            there = [k for k in keys if None not in k]
            for key in there[:2]:
                expected = without_keys(shown(beside.at_one(Read(0, view.name, [key]))))
                fetched = await reads.fetch(view, key)
                if isinstance(fetched, ManyRows):
                    fetched = without_keys(shown(Rows(0, fetched.table)))
                assert sorted(fetched, key=repr) == expected
                local = reads.local(view, key, True)
                assert local is not None and sorted(local.rows, key=repr) == expected
            expected = shown(beside.at_one(Read(0, view.name, there)))
            assert shown(Rows(0, await reads.fetch_keys(view, there, False))) == expected
            several = reads.local_keys(view, there, False)
            assert several is not None and shown(Rows(0, several)) == expected
            none = pa.table({f"key{i}": pa.array([], arrow_type(f.type)) for i, f in enumerate(view.key_fields)})
            for front in (reads, ViewLookups(Link(), nowhere, 0)):
                assert (await front.fetch_table(view, none if view.key else pa.table({"": pa.nulls(0)}))).num_rows == 0
            if view.key:
                table = arrow_keys(view, keys)
                beside.step(beside.rng.randrange(WORKERS), [Envelope(1, -1, 0, packets.Evict(0, None))])
                beside.rest()
                expected = shown(beside.at_one(Read(0, view.name, keys)))
                for _ in range(2):
                    assert shown(Rows(0, await reads.fetch_table(view, table))) == expected

    asyncio.run(compare())


def defined(beside: Beside, name: str) -> ViewDef:
    beside.define(next(v for v in VIEWS if f" {name} " in v))
    beside.rest()
    return beside.views[name]


def test_a_worker_that_has_caught_up_has_the_writes_of_others(beside: Beside) -> None:
    view, body = defined(beside, "counted"), Read(0, "counted", [("a", 1)])
    owner = beside.routes.owner(view, ("a", 1))
    assert shown(beside.ask(body)) == []
    for i in range(20):
        beside.write("items", (i, "a", None, None, 1))
    ((_, _, early, _),) = shown(ask_worker(beside, owner, body))
    assert early < 20, "its own rows"
    depth = str(beside.routes.depth_of("counted"))
    assert ask_worker(beside, owner, packets.Inspect(0, "caught up", depth)).error is None
    assert shown(ask_worker(beside, owner, body)) == [(1, "a", 20, 0)]
    assert beside.at_one(packets.Inspect(7, "caught up", "2")) == packets.Done(7)


def ask_worker(beside: Beside, worker: int, body: Any) -> Any:
    """Send a request to one worker, and deliver messages only until it has answered."""
    beside.request += 1
    beside.step(worker, [Envelope(1, -1, 0, replace(body, request=beside.request))])
    while beside.request not in beside.replies:
        assert beside.deliver(), "no message is under way, and no answer has arrived"
    return beside.replies[beside.request]


def test_routes_follow_the_program(beside: Beside) -> None:
    view = defined(beside, "by_name")
    owner = beside.routes.owner(view, ("é",))
    assert owner == beside.routes.owner(view, ("E",))
    beside.migrate(packets.RenameView("by_name", "other"))
    beside.routes.rename("by_name", "other")
    assert beside.routes.owner(replace(view, name="other"), ("é",)) == owner
    with pytest.raises(SqlError) as error:
        beside.routes.owner(view, ("é",))
    assert error.value.code == TABLE_DEF_CHANGED.number
    beside.routes.forget("other")
    with pytest.raises(SqlError):
        split(Read(0, "other", [("é",)]), beside.routes, replace(view, name="other"))


def test_owners_of_many_are_those_of_each(beside: Beside) -> None:
    for name, keys in (("by_id", [(i,) for i in range(-50, 50)]), ("by_id", [(2**63 - 1,), (None,), (True,)]),
                       ("by_id", [(2**64,), (1,)]), ("by_name", [("a",), (None,), ("É",)])):
        view = defined(beside, name)
        assert list(beside.routes.owners(view, keys)) == [beside.routes.owner(view, key) for key in keys]


def test_keys_of_another_definition_have_no_owner(beside: Beside) -> None:
    """Such keys may have other types, and fewer columns than the worker is determined by."""
    view, two = replace(defined(beside, "by_name"), definition=7), replace(defined(beside, "by_two"), definition=8)
    keys = [(Decimal("0.07"),)]
    with pytest.raises(SqlError) as error:
        split(Read(0, "by_name", keys, definition=6), beside.routes, view)
    assert error.value.code == TABLE_DEF_CHANGED.number
    assert split(Read(0, "by_name", [("é",)], definition=7), beside.routes, view)
    routes = KeyRoutes(WORKERS)
    routes.learn([("by_two", (0, 1), 0)])
    assert routes.owner(two, (date(2020, 1, 1), 1)) in range(WORKERS)
    with pytest.raises(SqlError) as error:
        routes.owner(replace(view, name="by_two"), ("é",))
    assert error.value.code == TABLE_DEF_CHANGED.number


def test_an_error_of_one_worker_is_the_answer(beside: Beside) -> None:
    view = defined(beside, "by_id")
    parts = split(Read(5, "by_id", [(i,) for i in range(20)]), beside.routes, view)
    assert set(parts) == set(range(WORKERS))
    wrong = SqlError(1690, "22003", "too much")
    replies = {w: Rows(w, pa.table({"c0": pa.nulls(0), "__key": pa.array([], pa.int64())})) for w in parts}
    assert merged(parts, replies).rows.num_rows == 0
    assert merged(parts, {**replies, 1: Rows(9, None, wrong)}) == Rows(5, None, wrong)
    alone = KeyRoutes(1)
    assert split(Read(5, "by_id", [(1,)]), alone, view) == {0: Read(5, "by_id", [(1,)])}
    assert alone.owner(view, (1,)) == 0 and list(alone.owners(view, [(1,), (2,)])) == [0, 0]


ONCE = (
    "SELECT id, price FROM items WHERE name = ?",
    "SELECT id, day FROM items WHERE day BETWEEN ? AND ? ORDER BY day DESC LIMIT 3",
    "SELECT name, shop FROM items WHERE shop >= ? ORDER BY shop LIMIT 4",
    "SELECT id FROM items WHERE price > ?",
    "SELECT id, city FROM shops UNION ALL SELECT shop, name FROM items",
    "SELECT name FROM items ORDER BY id LIMIT 5",
    "SELECT COUNT(*) AS n FROM items",
    "SELECT DISTINCT name FROM items WHERE shop = ?",
    "SELECT i.id, s.city FROM items i JOIN shops s ON s.id = i.shop WHERE i.id = ?",
    "SELECT i.id, s.city FROM items i LEFT JOIN shops s ON s.id = i.shop WHERE s.city = ?",
    "SELECT city, COUNT(*), MAX(i.price), MIN(i.name) FROM items i JOIN shops s ON s.id = i.shop GROUP BY city",
    "SELECT i.day, COUNT(DISTINCT s.city) FROM items i JOIN shops s ON s.id = i.shop WHERE i.day > ? GROUP BY i.day",
    "SELECT id FROM items WHERE shop IN (SELECT id FROM shops WHERE id > 2) AND name = ?",
)


def test_one_shots_of_three_are_those_of_one(beside: Beside) -> None:
    for _ in range(60):
        beside.write("items", [beside.rng.choice(VALUES[c]) for c in ("id", "name", "price", "day", "shop")])
    for shop in range(6):
        beside.write("shops", (shop, beside.rng.choice(NAMES)))
    beside.rest()
    for text in ONCE:
        (command,) = parse(text, beside.catalog)
        for _ in range(6):
            once(beside, command.view)


def once(beside: Beside, view: ViewDef) -> None:
    alone, several = (ViewLookups(Once(beside, w), beside.attached, 0) for w in (1, WORKERS))
    keys = [] if view.ranged else list(dict.fromkeys(beside.key(view) for _ in range(3)))
    key_range = beside.random_range(view) if view.ranged else None
    expected = asyncio.run(alone.one_shot(view, keys, False, key_range)).table
    actual, shape = asyncio.run(several.one_shot(view, keys, False, key_range)).table, ResultFinish.of(view, ())
    if view.limit is None:
        assert sorted(shape.rows_of(actual), key=repr) == sorted(shape.rows_of(expected), key=repr)
        assert without_keys(shown(Rows(0, actual))) == without_keys(shown(Rows(0, expected)))
    else:  # the order of equal rows is undefined
        by = view.order[0][0]
        there, alike = ([r[by] for r in all_columns(shape, t)] for t in (actual, expected))
        assert there == alike


def all_columns(shape: ResultFinish, table: pa.Table) -> list[Any]:
    return replace(shape, visible=len(shape.fields)).rows_of(table)


class Once:
    """A link to one worker or to all, for one-shots."""

    def __init__(self, beside: Beside, workers: int):
        self.beside, self.routes = beside, KeyRoutes(workers)

    async def ask(self, body: Query, retry: bool = False, lease: Any = None) -> Rows:
        if self.routes.workers == 1:
            return self.beside.at_one(body)
        parts = split(body, self.routes, body.view)
        return merged(parts, {w: ask_worker(self.beside, w, part) for w, part in parts.items()})
