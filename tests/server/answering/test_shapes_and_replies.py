"""Order, limit, empty aggregates; kept replies are given only while the entry is the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import Col
from noria.core.order import sort_rows
from noria.core.types import BIGINT, DOUBLE, TEXT, TEXT_BIN, Column, Field, TableDef, decimal
from noria.core.values import array_of
from noria.plan.after import LookedUpRows
from noria.plan.mir import Agg, Aggregate, Base, Mir, Project
from noria.plan.view import ViewDef
from noria.server.answering.after_values import FEW_ROWS, rows_of_few
from noria.server.answering.replies import ReplyCache
from noria.server.answering.result_finish import ResultFinish, after_rows

TABLE = TableDef("t", (Column("a", BIGINT), Column("b", TEXT), Column("c", BIGINT)), table_id=1)


def view(**how: Any) -> ViewDef:
    return ViewDef("v", Base(TABLE), (2,), **{"visible": 3, **how})


def shaped(rows: list[Any], of: ViewDef) -> list[Any]:
    return ResultFinish.of(of, ()).apply(rows)


def test_order_puts_null_first_and_keeps_the_order_of_equals() -> None:
    rows = [(2, "x", 0), (None, "y", 1), (1, "z", 2), (2, "w", 3)]
    assert [r[2] for r in shaped(rows, view(order=((0, False),)))] == [1, 2, 0, 3]
    assert [r[2] for r in shaped(rows, view(order=((0, True),)))] == [0, 3, 2, 1]


def test_order_by_two_columns_and_limit() -> None:
    rows = [(1, "b", 0), (1, "a", 1), (0, "c", 2)]
    wanted = view(order=((0, False), (1, True)), limit=2, offset=1)
    assert [r[2] for r in shaped(rows, wanted)] == [0, 1]


def test_text_is_ordered_by_its_collation() -> None:
    rows = [("b",), ("A",), ("é",), ("E",), (None,), ("",)]
    by_fold = sort_rows(rows, [(0, False)], [Field("x", TEXT)])
    assert [r[0] for r in by_fold] == [None, "", "A", "b", "é", "E"]
    by_bytes = sort_rows(rows, [(0, False)], [Field("x", TEXT_BIN)])
    assert [r[0] for r in by_bytes] == [None, "", "A", "E", "b", "é"]


def test_the_row_of_an_empty_aggregate_and_hidden_columns() -> None:
    assert shaped([], view(empty_row=(0, None, None), visible=2)) == [(0, None)]
    assert shaped([], view()) == []
    assert shaped([(1, "x", 9)], view(visible=1)) == [(1,)]
    assert shaped([(1, "x", 9)], view(limit=0)) == []


FOUND = (Field("a", BIGINT), Field("s", TEXT), Field("d", decimal(18, 2)), Field("b", TEXT_BIN), Field("k", BIGINT))
AGGREGATES = (("count_star", None, BIGINT), ("count", 1, BIGINT), ("sum", 0, decimal(18, 0)), ("min", 0, BIGINT),
              ("max", 4, BIGINT), ("sum", 2, decimal(18, 2)), ("count", 2, BIGINT))


def found_rows(chance: random.Random, rows: int) -> pa.Table:
    values: list[tuple[Any, ...]] = [
        (None, 0, 1, -1, 2**40), (None, "", "a", "A", "á", "b", "B ", "ß", "ss"),
        (None, Decimal("0.10"), Decimal("-7.00")), (None, "a", "A", "\u20ac"), tuple(range(9))]
    arrays = [array_of([chance.choice(some) for _ in range(rows)], f.type)
              for f, some in zip(FOUND, values, strict=True)]
    return pa.table([*arrays, pa.array([0] * rows, pa.int64())], names=[*"asdbk", "__key"])


def copied(plan: Mir, chance: random.Random) -> Mir:
    """The plan below a projection that copies some columns."""
    chosen = [chance.randrange(plan.width) for _ in range(chance.randint(1, 3))]
    columns = tuple(Col(plan.fields[c].type, plan.fields[c].nullable, c) for c in chosen)
    return Project(plan, columns, tuple(f"c{i}" for i in range(len(columns))))


def test_few_rows_are_grouped_as_kernels_group_them() -> None:
    chance = random.Random(5)
    found = LookedUpRows(FOUND)
    for case in range(300):
        rows = found_rows(chance, chance.choice((0, 1, 2, 30)))
        if chance.random() < 0.6:
            below = copied(found, chance) if chance.random() < 0.5 else found
            columns = [c for c, f in enumerate(below.fields) if f.type.kind is not FOUND[2].type.kind]
            if not columns:
                continue
            plan: Mir = Aggregate(below, tuple(chance.sample(columns, chance.randint(1, len(columns)))), (), ())
        else:
            some = chance.sample(AGGREGATES, 3)
            plan = Aggregate(found, (), tuple(Agg(f, c, t) for f, c, t in some), tuple("xyz"))
        plan = copied(plan, chance) if chance.random() < 0.5 else plan
        few = rows_of_few(plan, rows)
        assert few is not None, plan
        assert sorted(map(repr, few)) == sorted(map(repr, after_rows(plan, rows))), (case, plan, rows.to_pylist())


def test_kernels_group_what_python_values_cannot() -> None:
    rows = found_rows(random.Random(1), 3)
    doubles = LookedUpRows((Field("f", DOUBLE),))
    assert rows_of_few(Aggregate(doubles, (0,), (), ()), pa.table({"f": [0.0], "__key": [0]})) is None
    both = Aggregate(LookedUpRows(FOUND), (0,), (Agg("count_star", None, BIGINT),), ("n",))
    assert rows_of_few(both, rows) is None
    assert rows_of_few(LookedUpRows(FOUND), rows) is None
    groups = Aggregate(LookedUpRows(FOUND), (0,), (), ())
    assert rows_of_few(groups, found_rows(random.Random(1), FEW_ROWS + 1)) is None


def test_a_sum_beyond_its_type_is_an_error_for_few_rows_too() -> None:
    total = Aggregate(LookedUpRows((Field("a", BIGINT),)), (), (Agg("sum", 0, decimal(18, 0)),), ("t",))
    rows = pa.table({"a": [2**62, 2**62], "__key": [0, 0]})
    assert rows_of_few(total, rows) is None
    with pytest.raises(SqlError) as refused:
        ResultFinish(total.fields, 1, after=total).rows_of(rows)
    assert refused.value.code == 1690


class Entry:
    """A view's entry: its version, and how often it was stamped."""

    def __init__(self, version: int = 1) -> None:
        self.version, self.stamps, self.view = version, 0, object()

    def watch(self) -> Callable[[], int]:
        return lambda: self.version

    def stamp(self) -> None:
        self.stamps += 1

    def has(self, writes: Mapping[int, int]) -> bool:
        return writes != {1: 2}


class Named:
    """A view in shared memory."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_a_reply_that_lacks_what_its_session_wrote_waits() -> None:
    entry, cache = Entry(), ReplyCache(1 << 20)
    cache.put("q", b"one", entry, 1)
    assert cache.get("q", {1: 2}) is None
    assert cache.get("q", {1: 1}) == cache.get("q") == b"one"


def test_a_reply_goes_when_its_entry_changes() -> None:
    entry, cache = Entry(), ReplyCache(1 << 20)
    cache.put("q", b"one", entry, 1)
    assert cache.get("q") == b"one"
    entry.version = 2
    assert cache.get("q") is None and len(cache) == 0 and cache.nbytes == 0
    cache.put("q", b"two", entry, 1)  # it changed between the version and the rows
    assert cache.get("q") is None


def test_replies_of_a_dropped_view_go_and_the_texts_asked_for_count() -> None:
    entry, other, cache = Entry(), Entry(), ReplyCache(1 << 20)
    cache.put((b"SELECT 1", 0), b"one", entry, 1)
    cache.put((b"SELECT 2", 0), b"two", other, 1)
    assert cache.nbytes == 2 * (ReplyCache.ENTRY_BYTES + len(b"SELECT 1") + 3)
    cache.forget(entry.view)
    assert cache.get((b"SELECT 1", 0)) is None and cache.get((b"SELECT 2", 0)) == b"two"
    cache.put((b"SELECT 3" + bytes(1 << 16), 0), b"three", entry, 1)
    assert len(cache) == 1, "the text takes more of the room than one reply may"
    cache.forget(other.view)
    assert cache.nbytes == len(cache) == 0 and not cache._of_view


def test_replies_that_were_given_are_counted_by_view() -> None:
    home, cache = Entry(), ReplyCache(1 << 20)
    home.view = Named("home")
    for key in ("a", "b"):
        cache.put(key, b"one", home, 1)
    for key in ("a", "a", "b", "c"):
        cache.get(key)
    cache.discard("a")
    assert cache.hits_of() == {"home": 3} and cache.hits == 3
    cache.discard("b")
    cache.had_elsewhere({"home": 4, "other": 1})
    again = Entry()
    again.view = Named("home")  # of another worker
    cache.put("a", b"two", again, 1)
    cache.get("a")
    assert cache.hits_of() == {"home": 8, "other": 1} and cache.hits == 9
    cache.forget(again.view)
    cache.dropped("home")
    assert cache.hits_of() == {"other": 1} and cache.hits == 9


def test_the_least_recently_used_replies_go_first_and_bytes_are_counted() -> None:
    limit = 100 * (ReplyCache.ENTRY_BYTES + 100)  # the keys of this test are numbers
    cache, entries = ReplyCache(limit), [Entry() for _ in range(300)]
    for i, entry in enumerate(entries):
        cache.put(i, bytes(100), entry, 1)
        for _ in range(64):
            cache.get(0)
    assert cache.nbytes <= limit and len(cache) == 100
    assert cache.get(0) is not None and cache.get(1) is None and cache.get(299) is not None
    assert entries[0].stamps == 300 and not any(e.stamps for e in entries[1:])
    cache.put("large", bytes(limit), entries[0], 1)
    assert cache.get("large") is None
