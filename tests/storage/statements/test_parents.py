"""FOREIGN KEYs of INSERTs that one worker checks itself: alone, in one packet with others, and within transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert, ParentKey, Staged, WriteResult
from noria.core.types import INT, TEXT, Column, TableDef
from noria.dataflow.transactions.locks import Blocked
from noria.storage.store import RocksStore

PARENT = TableDef("p", (Column("id", INT, False), Column("code", TEXT)), (0,))
CHILD = TableDef("c", (Column("id", INT, False, auto_increment=True), Column("p", INT), Column("code", TEXT)), (0,))
BY_ID = ParentKey((1,), "p", (0,), "no parent")
BY_CODE = ParentKey((2,), "p", (1,), "no code")
ITSELF = ParentKey((1,), "c", (0,), "no other row")
NO_PARENT = 1452


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    made = RocksStore(str(tmp_path / "data"), PlainSymbols())
    made.create_table(PARENT)
    made.create_table(CHILD)
    made.set_recipe(["one"], 1, 1)
    made.write([Insert("p", (0, 1), [(1, "one"), (2, "two")])], 1, 2)
    yield made
    made.close()


def child(*rows: tuple[int | None, str | None], key: ParentKey = BY_ID) -> Insert:
    return Insert("c", (1, 2), list(rows), parents=(key,))


def errors(results: list[WriteResult]) -> list[int]:
    return [0 if r.error is None else r.error.code for r in results]


def test_each_statement_of_a_packet_has_its_own_outcome(store: RocksStore) -> None:
    results, deltas = store.write([child((1, None)), child((9, None)), child((None, None), (2, None))], 1, 3)
    assert errors(results) == [0, NO_PARENT, 0] and results[1].error is not None
    assert results[1].error.message == "no parent"
    assert len(deltas["c"]) == 3 and store.row_count("c") == 3


def test_a_refused_row_uses_up_its_number(store: RocksStore) -> None:
    store.write([child((9, None))], 1, 3)
    assert store.write([child((1, None))], 1, 4)[0] == [WriteResult(1, 2, row_id=2)]
    assert errors(store.transactions.stage("t", 0, [child((9, None))])) == [NO_PARENT]
    assert store.transactions.stage("t", 0, [child((1, None))])[0].row_id == 4


def test_statements_see_the_parents_before_them(store: RocksStore) -> None:
    """Clients sent the statements of a packet at the same time, so a parent may also be behind its child."""
    results, _ = store.write([child((7, None)), Insert("p", (0, 1), [(7, "x")]), child((7, None))], 1, 3)
    assert errors(results) == [0, 0, 0]
    results, _ = store.write([Insert("p", (0, 1), [(8, "x")]), child((8, None))], 1, 4)
    assert errors(results) == [0, 0]
    results, _ = store.write([child((1, "TWO"), key=BY_CODE), child((1, "ten"), key=BY_CODE)], 1, 5)
    assert errors(results) == [0, NO_PARENT]


def test_a_row_may_be_the_parent_of_another_in_its_statement(store: RocksStore) -> None:
    rows = Insert("c", (0, 1), [(10, 11), (11, 10)], parents=(ITSELF,))
    assert errors(store.write([rows], 1, 3)[0]) == [0]
    assert errors(store.transactions.stage("t", 0, [Insert("c", (0, 1), [(12, 12)], parents=(ITSELF,))])) == [0]
    assert errors(store.transactions.stage("t", 1, [Insert("c", (0, 1), [(13, 99)], parents=(ITSELF,))])) == [NO_PARENT]


def test_a_transaction_keeps_the_parents_of_its_rows(store: RocksStore) -> None:
    """Several may share a parent. Nobody removes it before they end, and a failed statement keeps none."""
    stage = store.transactions.stage
    assert errors(stage("a", 0, [child((1, None))])) == errors(stage("b", 0, [child((1, None))])) == [0]
    assert errors(stage("b", 1, [child((2, None), (9, None))])) == [NO_PARENT]
    with pytest.raises(Blocked):
        stage("d", 0, [Delete("p", None)])
    store.transactions.end("a")
    store.transactions.end("b")
    assert errors(stage("d", 0, [Delete("p", None)])) == [0]


def test_an_insert_waits_for_the_transaction_that_removes_its_parent(store: RocksStore) -> None:
    stage = store.transactions.stage
    stage("a", 0, [Delete("p", None)])
    locked = 3572
    assert errors(store.write([child((1, None)), child((None, None))], 1, 3)[0]) == [locked, 0]
    with pytest.raises(Blocked) as blocked:
        stage("b", 0, [child((1, None))])
    assert not blocked.value.exclusive and store.row_count("c") == 1
    store.write([Staged("a", 1, ("p",))], 1, 4)
    store.transactions.end("a")
    assert errors(stage("b", 0, [child((1, None))])) == [NO_PARENT]


def test_a_parent_of_an_earlier_definition_is_refused(store: RocksStore) -> None:
    gone = child((1, None), key=BY_ID._replace(parent="other"))
    assert errors(store.write([gone], 1, 3)[0]) == errors(store.transactions.stage("a", 0, [gone])) == [1412]
