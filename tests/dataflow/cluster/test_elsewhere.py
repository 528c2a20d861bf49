"""Rows of a table that one worker requests from another for a one-shot."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from dataflow.simulator import ShardRig
from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import INT, TEXT, Column, TableDef
from noria.dataflow.cluster.remote_scan import RemoteTableReads
from noria.dataflow.graph.nodes import RemoteRowsNeeded
from noria.dataflow.messages.peer_messages import Message, TableLookup, TableLookupReply
from reference.table_views import TableViews

TABLE = TableDef("t", (Column("id", INT, False), Column("g", INT), Column("s", TEXT)), (0,), table_id=1)
WIDER = replace(TABLE, columns=(*TABLE.columns, Column("n", INT)))
NONE = np.empty((0, 1), np.int64)


class Two:
    """Two workers, and the messages that have not arrived. `requester` has no rows; `owner` has all."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.requester, self.owner = (ShardRig(w, 2, lambda to, m: self.sent.append((to, m)), [TABLE], TableViews,
                                               PlainSymbols(), 1, random.Random(0)) for w in range(2))
        rows = [("t", (i, i % 3, f"text {i}"), 1) for i in range(10)]
        self.owner.store.put("t", self.owner.deltas(rows)["t"])
        self.reads = RemoteTableReads(self.requester.remote_scan)

    def under(self, table: TableDef, cols: tuple[int, ...], keys: np.ndarray, rows: int = 100,
              texts: tuple[int, ...] | None = None) -> list[tuple]:
        """The rows under the keys, read again once all answers have arrived."""
        with pytest.raises(RemoteRowsNeeded) as missing:
            self.reads.under(table, cols, keys, rows, texts)
        while self.sent:
            to, message = self.sent.pop(0)
            if isinstance(message, TableLookup):
                self.last = message
                self.owner.remote_scan.serve(0, message)
            else:
                assert isinstance(message, TableLookupReply) and to == 0
                self.requester.remote_scan.answered(message)
        assert all(p.over for p in missing.value.gathers)
        (answer,) = self.reads.under(table, cols, keys, rows, texts)
        return sorted(self.shown(answer))

    def shown(self, rows: Batch) -> list[tuple]:
        text = self.requester.symbols.text
        return [(i, g, None if s < 0 else text(s)) for i, g, s, *_ in rows.columns.T.tolist()]


def test_all_rows_or_those_under_keys() -> None:
    two = Two()
    every = [(i, i % 3, f"text {i}") for i in range(10)]
    assert two.under(TABLE, (), NONE) == every
    assert two.under(TABLE, (1,), np.array([[2]])) == [r for r in every if r[1] == 2], "without an index at the owner"
    two.owner.store.add_index("t", (1,))
    assert two.under(TABLE, (1,), np.array([[0, 1]]), texts=()) == [(*r[:2], None) for r in every if r[1] < 2]
    assert not two.sent and two.reads.under(TABLE, (), NONE, 100, None), "received rows are not requested again"


def test_columns_that_a_table_gained_meanwhile_are_requested() -> None:
    two = Two()
    assert len(two.under(TABLE, (), NONE)) == 10 and two.last.width == 3
    two.owner.store.alter_table(WIDER)
    assert len(two.under(WIDER, (), NONE)) == 10 and two.last.width == 4


@pytest.mark.parametrize("what, rows, code", [("dropped", 100, 1412), ("made again", 100, 1412), ("large", 9, 3024)])
def test_an_error_is_reported(what: str, rows: int, code: int) -> None:
    two, table = Two(), TABLE
    if what == "dropped":
        two.owner.store.drop_table("t")
    elif what == "made again":
        table = replace(TABLE, table_id=2)
    with pytest.raises(SqlError) as error:
        two.under(table, (), NONE, rows)
    assert error.value.code == code


def test_requests_to_a_lost_worker_are_sent_again() -> None:
    two = Two()
    with pytest.raises(RemoteRowsNeeded):
        two.reads.under(TABLE, (), NONE, 100, None)
    (first,) = two.sent
    two.sent.clear()
    two.requester.remote_scan.lost(1)
    assert two.sent == [first]
    two.requester.remote_scan.answered(TableLookupReply(first[1].number - 1, None))  # to a request of an earlier life
    with pytest.raises(RemoteRowsNeeded):
        two.reads.under(TABLE, (), NONE, 100, None)
