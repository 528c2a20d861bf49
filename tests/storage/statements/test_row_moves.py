"""What a statement comes to at several workers, on stores of their own: keys as they are folded, counts, and what is
refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import Col, Const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert, Move, Statement, StatementEffect, Update, WriteResult
from noria.core.types import INT, TEXT, Column, IndexDef, TableDef
from noria.storage.store import RocksStore

WORKERS = 3
NAME, AGE, MAIL = range(3)
T = TableDef("t", (Column("name", TEXT, False), Column("age", INT), Column("mail", TEXT)), (NAME,),
             (IndexDef("m", (MAIL,), True),))


class Stores:
    """Of three workers; a statement is worked out where its rows are, and done where they are to be."""

    def __init__(self, path: Path):
        self.each = [RocksStore(str(path / str(w)), PlainSymbols()) for w in range(WORKERS)]
        self.seq = 1
        for store in self.each:
            store.create_table(T)
            store.set_recipe((), 1, 1)

    def do(self, worked: StatementEffect) -> list[WriteResult]:
        self.seq += 1
        return [self.each[w].write([move], 1, self.seq)[0][0] for w, (move,) in worked.parts.items()]

    def insert(self, *rows: tuple[Any, ...]) -> None:
        worked = self.each[0].predict_effect(Insert("t", (NAME, AGE, MAIL), rows), (), WORKERS)
        assert worked.result == WriteResult(len(rows)) and self.do(worked) == [WriteResult()] * len(worked.parts)

    def rows(self) -> list[dict[str, int]]:
        """Of each worker: names and ages."""
        found = []
        for s in self.each:
            batch, _ = s.scan("t", None, 100)
            found.append({s._symbols.text(int(n)): int(a) for n, a in zip(*batch.columns[:2], strict=True)})
        return found

    def where(self, name: str) -> int:
        return next(w for w, rows in enumerate(self.rows()) if name in rows)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path)
    yield made
    for store in made.each:
        store.close()


def renamed(name: str, to: str) -> Statement:
    return Update("t", ((NAME, Const(TEXT, False, to)),), call("eq", Col(TEXT, False, NAME), Const(TEXT, False, name)))


def test_a_row_goes_to_where_its_key_says(stores: Stores) -> None:
    stores.insert(*((f"n{i}", i, None) for i in range(30)))
    assert all(len(rows) > 3 for rows in stores.rows())
    at = stores.where("n7")
    each = [stores.each[at].predict_effect(renamed("n7", f"x{i}"), (), WORKERS) for i in range(20)]
    assert {w.result for w in each} == {WriteResult(1, 0, 1)} and {len(w.parts) for w in each} == {1, 2}
    assert stores.rows()[at]["n7"] == 7  # nothing is done yet
    goes = next(i for i, w in enumerate(each) if len(w.parts) == 2)
    stores.do(each[goes])
    assert stores.where(f"x{goes}") != at and sum(map(len, stores.rows())) == 30
    assert sum(s.row_count("t") for s in stores.each) == 30


def test_a_key_that_is_the_same_when_folded_stays(stores: Stores) -> None:
    stores.insert(("name", 1, "a"))
    at = stores.where("name")
    worked = stores.each[at].predict_effect(renamed("name", "NAME"), (), WORKERS)
    assert list(worked.parts) == [at]
    assert stores.do(worked) == [WriteResult()] and stores.rows()[at] == {"NAME": 1}
    assert not stores.each[at].predict_effect(renamed("other", "x"), (), WORKERS).parts


def test_what_is_taken_where_a_row_comes_is_refused_there_and_nothing_goes(stores: Stores) -> None:
    stores.insert(*((f"n{i}", i, f"m{i}") for i in range(30)))
    at, to = stores.where("n7"), next(n for n in stores.rows()[(stores.where("n7") + 1) % 3])
    worked = stores.each[at].predict_effect(renamed("n7", to.upper()), (), WORKERS)
    assert worked.result.error is None
    results = stores.do(StatementEffect(worked.result, {w: p for w, p in worked.parts.items() if w != at}))
    assert [r.error.message for r in results if r.error] == [f"Duplicate entry '{to.upper()}' for key 't.PRIMARY'"]
    removed = Move("t", (b"\xff",), ())
    assert stores.each[0].write([removed], 1, 99)[0][0].error is not None


def test_unique_values_are_asked_for_at_all(stores: Stores) -> None:
    stores.insert(*((f"n{i}", i, f"m{i}" if i % 3 else None) for i in range(30)))
    new = Insert("t", (NAME, AGE, MAIL), [("x", 1, "M7"), ("y", 1, None), ("n8", 1, "z")])
    met = [store.find_conflicts(new) for store in stores.each]
    assert sum(map(len, met)) == 2  # m7's and n8: NULL is no value
    others = tuple(row for some in met[1:] for row in some)
    ignored = stores.each[0].predict_effect(new._replace(on_duplicate="ignore"), others, WORKERS)
    assert ignored.result.affected == 1
    assert sum(len(m.added) for (m,) in ignored.parts.values()) == 1
    replaced = stores.each[0].predict_effect(new._replace(on_duplicate="replace"), others, WORKERS)
    assert replaced.result.affected == 5
    lacks = [s for s in stores.each if not s.find_conflicts(Insert("t", (NAME, MAIL), [("a", "m7")]))]
    assert len(lacks) == 2
    taken = added(lacks[0].predict_effect(Insert("t", (NAME, MAIL), [("new", "M7")]), (), WORKERS))
    for store in stores.each:
        if store in lacks:
            store.check_unique("t", (), taken)
        else:
            with pytest.raises(SqlError, match=r"Duplicate entry 'M7' for key 't\.m'"):
                store.check_unique("t", (), taken)
            store.check_unique("t", tuple(store.table("t").keys(store.scan("t", None, 99)[0].columns)), taken)
    rows = [("a", "bo")], [("b", "BO")]
    each = [added(lacks[0].predict_effect(Insert("t", (NAME, MAIL), some), (), WORKERS)) for some in rows]
    with pytest.raises(SqlError, match="Duplicate entry 'BO'"):
        stores.each[0].check_unique("t", (), each[0] + each[1])


def added(worked: StatementEffect) -> tuple[bytes, ...]:
    return tuple(row for (move,) in worked.parts.values() for row in move.added)
