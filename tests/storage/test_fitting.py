"""Do rows fit another definition?  Found out in slices between random writes, beside a model of the rows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert, Update
from noria.core.types import INT, TEXT, Column, IndexDef, Kind, SqlType, TableDef
from noria.core.values import decode
from noria.storage.check import Check
from noria.storage.store import RocksStore

T = TableDef("t", (Column("id", INT, False), Column("a", INT), Column("b", TEXT)), (0,), (), 1)
SHORT = SqlType(Kind.TEXT, length=2)
UNIQUE = replace(T, indexes=(IndexDef("u", (2, 1), True),))
NARROW = replace(T, columns=(T.columns[0], Column("a", INT, False), Column("b", SHORT)))
CONVERTED = replace(T, columns=(*T.columns[:2], replace(T.columns[2], name="gone ", dropped=1),
                                Column("b", INT, added=1, source=2)))


class Rig:
    def __init__(self, path: Path, seed: int):
        self.path, self.chance = path, random.Random(seed)
        self.rows: dict[int, tuple[int | None, str | None]] = {}
        self.seq = 0
        self.store = RocksStore(str(path), PlainSymbols())
        self.store.create_table(T)
        self.recipe()

    def recipe(self) -> None:
        self.seq += 1
        self.store.set_recipe([], 1, self.seq)

    def write(self, statement: Any) -> None:
        self.seq += 1
        results, _ = self.store.write([statement], 1, self.seq)
        assert results[0].error is None, results

    def value(self) -> tuple[int | None, str | None]:
        a = self.chance.choice([*range(30), *([] if self.full else [None])])
        return a, self.chance.choice([None, str(a or 0), "7", "é", "É", "long"] if self.odd else [None, str(a or 0)])

    odd = full = False

    def step(self) -> None:
        id, act = self.chance.randrange(60), self.chance.random()
        if act < 0.5:
            self.rows[id] = self.value()
            self.write(Insert("t", (0, 1, 2), [(id, *self.rows[id])], "replace"))
        elif act < 0.75 and id in self.rows:
            self.rows[id] = (self.value()[0], self.rows[id][1])
            this = call("eq", col(0, INT), const(id, INT))
            self.write(Update("t", ((1, const(self.rows[id][0], INT)),), this))
        elif act < 0.98:
            low = call("and", call("ge", col(0, INT), const(id, INT)), call("lt", col(0, INT), const(id + 2, INT)))
            self.rows = {i: r for i, r in self.rows.items() if not id <= i < id + 2}
            self.write(Delete("t", low))
        else:
            self.rows.clear()
            self.write(Delete("t", None))

    def fits(self, wanted: TableDef) -> bool:
        """Do the rows of now fit?"""
        if wanted is UNIQUE:
            told = [(b.casefold().replace("é", "e"), a) for a, b in self.rows.values() if None not in (a, b) and b]
            return len(set(told)) == len(told)
        if wanted is NARROW:
            return all(a is not None and (b is None or len(b) <= 2) for a, b in self.rows.values())
        return all(b is None or b.isdigit() for _, b in self.rows.values())

    def stored(self) -> dict[int, tuple[Any, ...]]:
        batch, _ = self.store.scan("t", None, 1000)
        columns = self.store.tables()["t"].columns
        rows = [tuple(decode(c, column.type, self.store._symbols) for c, column in zip(row, columns, strict=True))
                for row in batch.rows()]
        return {r[0]: r[1:] for r in rows}


@pytest.mark.parametrize("wanted", [UNIQUE, NARROW, CONVERTED], ids=["unique", "narrow", "converted"])
@pytest.mark.parametrize("seed", range(20))
def test_between_writes(tmp_path: Path, wanted: TableDef, seed: int) -> None:
    rig = Rig(tmp_path / "base", seed)
    rig.full = wanted is NARROW and seed % 2 == 1
    for _ in range(80):
        rig.step()
    rig.odd = seed % 3 == 0
    fitting = rig.store.begin_fitting(wanted)
    while not fitting.over:
        fitting.step(rig.chance.randrange(1, 8))
        if fitting.over and fitting.error is None:  # what is written until it is defined so must fit, too
            rig.step()
        if not fitting.over:
            rig.step()
    if fitting.error is not None:
        if wanted is UNIQUE:  # of two rows that are there now
            assert not rig.fits(wanted)
        with pytest.raises(SqlError) as refused:
            rig.store.alter_table(wanted)
        assert refused.value.code in (1062, 1138, 1366, 1406), refused.value
        fitting.give_up()
        rig.step()
    else:
        assert rig.fits(wanted)
        rig.store.alter_table(wanted)
        rig.recipe()
        after(rig, wanted)
    rig.store.close()
    report = Check(str(rig.path), lambda what, done, total: None).run()
    assert not report.findings
    assert sum(i.unique for t in [rig.store.tables()["t"]] for i in t.indexes) == (
        wanted is UNIQUE and fitting.error is None)


def after(rig: Rig, wanted: TableDef) -> None:
    """The rows are what they were, by their new types, and writes are held to them."""
    if wanted is CONVERTED:
        stored = rig.stored()
        assert {i: (r[0], r[-1]) for i, r in stored.items()} == {
            i: (a, None if b is None else int(b)) for i, (a, b) in rig.rows.items()}
        return
    assert rig.stored() == rig.rows
    row = (99, *next(iter(rig.rows.values()))) if wanted is UNIQUE and rig.rows else (99, None, "b")
    held = None not in row if wanted is UNIQUE else True
    rig.seq += 1
    results, _ = rig.store.write([Insert("t", (0, 1, 2), [row])], 1, rig.seq)
    assert (results[0].error is not None) == held


def test_what_was_not_looked_at_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "base", 1)
    for wanted in (UNIQUE, NARROW, CONVERTED):
        with pytest.raises(SqlError) as refused:
            rig.store.alter_table(wanted)
        assert refused.value.code == 1412
        rig.store.begin_fitting(wanted)  # not yet
        with pytest.raises(SqlError):
            rig.store.alter_table(wanted)
    rig.store.close()
