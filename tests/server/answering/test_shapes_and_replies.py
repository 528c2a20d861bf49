"""Order, limit, empty aggregates; kept replies are given only while the entry is the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from noria.core.order import sort_rows
from noria.core.types import BIGINT, TEXT, TEXT_BIN, Column, Field, TableDef
from noria.plan.mir import Base
from noria.plan.view import ViewDef
from noria.server.answering.replies import ReplyCache
from noria.server.answering.result_finish import ResultFinish

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
