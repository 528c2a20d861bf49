"""Write routing: the workers of a statement, checked against the hash of each row's key."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import Col, Const
from noria.core.expressions.functions import call
from noria.core.keys import shard_of
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import DEFAULT, NEW, Clear, Delete, Insert, Update, WriteResult
from noria.core.types import BIGINT, INT, TEXT, Column, IndexDef, TableDef
from noria.core.values import encode
from noria.runtime.routing.write_routing import AutoIncrementValues, RoutedWrite, routed

ID, NAME, OTHER = range(3)


def table(**more: Any) -> TableDef:
    columns = (Column("id", INT, False), Column("name", TEXT, True), Column("other", BIGINT, True))
    return TableDef("t", columns, **{"primary_key": (ID,), "table_id": 7, **more})


def home(t: TableDef, row: tuple[Any, ...], workers: int) -> int:
    by, symbols = t.sharded_by, PlainSymbols()
    assert by
    codes = [np.array([encode(row[c], t.columns[c].type, symbols)]) for c in by]
    return int(shard_of(codes, [t.columns[c].type for c in by], workers, symbols)[0])


@pytest.mark.parametrize("key", [(ID,), (NAME,), (NAME, ID)])
@pytest.mark.parametrize("as_arrow", [False, True])
def test_each_row_is_sent_to_its_worker_once_and_in_order(key: tuple[int, ...], as_arrow: bool) -> None:
    rng, t = random.Random(str(key)), table(primary_key=key)
    for workers in (2, 3, 5):
        rows = [(rng.randrange(1000), rng.choice(["a", "A", "b", "é", "xyz"]), i) for i in range(rng.randrange(1, 60))]
        values: Any = rows if not as_arrow else pa.RecordBatch.from_arrays(
            [pa.array(c) for c in zip(*rows, strict=True)], ["id", "name", "other"])
        parts = routed(Insert("t", (ID, NAME, OTHER), values), t, workers, AutoIncrementValues(), 0).parts
        seen = []
        for w, part in parts.items():
            assert isinstance(part, Insert)
            mine = part.rows if not as_arrow else list(zip(*(c.to_pylist() for c in part.rows.columns), strict=True))
            assert [home(t, r, workers) for r in mine] == [w] * len(mine)
            assert [r[OTHER] for r in mine] == sorted(r[OTHER] for r in mine)
            seen += mine
        assert sorted(seen, key=lambda r: r[OTHER]) == rows


def test_a_condition_on_the_key_concerns_its_workers_only() -> None:
    t = table()
    one = Update("t", ((OTHER, Const(BIGINT, False, 1)),), call("eq", Col(INT, False, ID), Const(INT, False, 5)))
    assert list(routed(one, t, 3, AutoIncrementValues(), 0).parts) == [home(t, (5,), 3)]
    some = Delete("t", call("in", Col(INT, False, ID), *(Const(INT, False, i) for i in (1, 2))))
    assert list(routed(some, t, 3, AutoIncrementValues(), 0).parts) == sorted({home(t, (1,), 3), home(t, (2,), 3)})
    others = call("eq", Col(BIGINT, True, OTHER), Const(BIGINT, False, 5))
    assert list(routed(Delete("t", others), t, 3, AutoIncrementValues(), 0).parts) == [0, 1, 2]
    assert list(routed(Clear("t", 10), t, 3, AutoIncrementValues(), 0).parts) == [0, 1, 2]


def test_the_primary_key_determines_the_worker_if_keys_share_no_column() -> None:
    t = table(indexes=(IndexDef("u", (NAME,), True),))
    assert t.sharded_by == (ID,) and t.spread_unique == t.indexes
    insert = routed(Insert("t", (ID, NAME), [(i, str(i)) for i in range(50)]), t, 3, AutoIncrementValues(), 0)
    assert insert.unique and not insert.assigns and list(insert.parts) == [0, 1, 2]
    other, name = ((OTHER, Const(BIGINT, False, 1)),), ((NAME, Const(TEXT, False, "a")),)
    assert not routed(Update("t", other, None), t, 3, AutoIncrementValues(), 0).unique
    assert not routed(Delete("t", None), t, 3, AutoIncrementValues(), 0).unique
    for renames in (Update("t", name, None), Insert("t", (ID,), [(1,)], "update", name)):
        write = routed(renames, t, 3, AutoIncrementValues(), 0)
        assert write.unique and write.assigns


def test_worker_0_has_all_rows_if_unique_keys_share_no_column() -> None:
    t = table(primary_key=(), indexes=(IndexDef("u", (NAME,), True), IndexDef("v", (OTHER,), True)))
    parts = routed(Insert("t", (ID, NAME), [(i, str(i)) for i in range(50)]), t, 3, AutoIncrementValues(), 0).parts
    assert list(parts) == [0] and not t.spread_unique
    assert list(routed(Delete("t", None), t, 3, AutoIncrementValues(), 0).parts) == [0]


def test_rows_without_a_key_are_distributed_in_turn() -> None:
    t = table(primary_key=())
    insert = Insert("t", (ID, NAME), [(1, "a"), (2, "b")])
    assert [list(routed(insert, t, 3, AutoIncrementValues(), turn).parts) for turn in range(4)] == [[0], [1], [2], [0]]
    assert list(routed(Delete("t", call("eq", Col(INT, False, ID), Const(INT, False, 5))), t, 3, AutoIncrementValues(),
                       0).parts
                ) == [0, 1, 2]


def test_missing_auto_increment_values_are_assigned() -> None:
    columns = (Column("id", INT, False, auto_increment=True), Column("name", TEXT, True))
    t, numbers = TableDef("t", columns, (0,), table_id=3), AutoIncrementValues({3: 10})
    several = routed(Insert("t", (0, 1), [(None, "a"), (20, "b"), (0, "c"), (DEFAULT, "d")]), t, 3, numbers, 0)
    assert sorted(r for p in several.parts.values() for r in p.rows) == [(11, "a"), (20, "b"), (21, "c"), (22, "d")]
    made = {r[0]: (w, n in p.numbered) for w, p in several.parts.items() for n, r in enumerate(p.rows)}
    assert {i for i, (_, assigned) in made.items() if assigned} == {11, 21, 22}
    assert sorted(several.parts)[several.last] == made[22][0]
    one = routed(Insert("t", (1,), [("e",)]), t, 3, numbers, 0)
    ((worker, part),) = one.parts.items()
    assert part == Insert("t", (1, 0), [("e", 23)], numbered=range(1)) and worker == home(t, (23,), 3)
    batch = routed(Insert("t", (1,), pa.RecordBatch.from_arrays([pa.array(["x", "y"])], ["name"])), t, 3, numbers, 0)
    assert sorted(i for p in batch.parts.values() for i in p.rows.column(1).to_pylist()) == [24, 25]
    assert all(len(p.numbered) == len(p.rows) for p in batch.parts.values())


def test_the_result_has_the_first_generated_value_and_the_last_rows_value() -> None:
    several = RoutedWrite(dict.fromkeys((0, 2, 5), Delete("t", None)), last=1)
    results = [WriteResult(1, 12, row_id=14), WriteResult(0, 0, row_id=7), WriteResult(1, 11, row_id=11)]
    assert several.result(results) == WriteResult(2, 11, row_id=7)
    assert several.result([WriteResult(2, 0, row_id=8)]) == WriteResult(2, row_id=8), "one worker has planned it"
    assert several.result([WriteResult()] * 3).insert_id == 0


def test_a_row_without_a_valid_place_is_refused() -> None:
    """No read would look for such a row at the worker that stored it."""
    for rows, code in (([("x", "a"), (2, "b")], 1366), ([(2, "b"), ()], 1136), ([(None, "a")], 1048)):
        with pytest.raises(SqlError) as wrong:
            routed(Insert("t", (ID, NAME), rows), table(), 3, AutoIncrementValues(), 0)
        assert wrong.value.code == code


def test_an_error_names_the_row_number_of_the_clients_statement() -> None:
    rows = [(i, "a", 5) for i in range(9)] + [(9, "a", 2**70)]
    insert = Insert("t", (ID, NAME, OTHER), rows)
    parts = routed(insert, table(), 3, AutoIncrementValues(), 0)
    result = parts.result([WriteResult(error=SqlError(1264, "22003", "at row 2")), WriteResult(1), WriteResult(1)])
    assert result.error is not None and "at row 10" in result.error.message
    duplicate = SqlError(1062, "23000", "a duplicate")
    assert routed(insert._replace(rows=rows[:9]), table(), 3, AutoIncrementValues(), 0).result(
        [WriteResult(1), WriteResult(error=duplicate), WriteResult(1)]) == WriteResult(error=duplicate)


def test_statements_that_may_move_rows() -> None:
    moves, stays = ((ID, Const(INT, False, 1)),), ((ID, Col(INT, False, NEW + ID)),)
    assert routed(Update("t", moves, None), table(), 2, AutoIncrementValues(), 0).moves
    assert routed(Insert("t", (ID,), [(1,)], "update", moves), table(), 2, AutoIncrementValues(), 0).moves
    assert not routed(Insert("t", (ID,), [(1,)], "update", stays), table(), 2, AutoIncrementValues(), 0).moves
    assert not routed(Update("t", ((NAME, Const(TEXT, False, "a")),), None), table(), 2, AutoIncrementValues(), 0).moves
    unnamed = table(primary_key=(), indexes=(IndexDef("u", (ID,), True),))
    several = routed(Insert("t", (ID,), [(i,) for i in range(9)], "update", moves), unnamed, 2, AutoIncrementValues(),
                     0)
    assert several.moves and len(several.parts) == 2


def test_an_error_of_one_worker_is_the_result_and_counts_are_added() -> None:
    done = routed(Delete("t", None), table(), 2, AutoIncrementValues(), 0)
    assert done.result([WriteResult(2, 0, 3), WriteResult(1, 0, 1)]) == WriteResult(3, 0, 4)
    error = SqlError(1062, "23000", "a duplicate")
    assert done.result([WriteResult(2), WriteResult(error=error)]) == WriteResult(error=error)
