"""Do rows fit another definition?  Found out in slices between random writes, beside a model of the rows."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert, Update
from noria.core.types import INT, TEXT, Column, IndexDef, Kind, SqlType, TableDef
from noria.core.values import decode
from noria.storage.offline.check import StoreCheck
from noria.storage.store import RocksStore

T = TableDef("t", (Column("id", INT, False), Column("a", INT), Column("b", TEXT)), (0,), (), 1)
SHORT = SqlType(Kind.TEXT, length=2)
UNIQUE = replace(T, indexes=(IndexDef("u", (2, 1), True),))
NARROW = replace(T, columns=(T.columns[0], Column("a", INT, False), Column("b", SHORT)))
BAG = replace(T, primary_key=())
WIDER = replace(UNIQUE, columns=(*T.columns[:2], Column("b", TEXT, False)), primary_key=(0, 2), keyed=1)
BY_TEXT = replace(WIDER, primary_key=(2,), indexes=())
UNKEYED = replace(BAG, keyed=1)
NUMBERS = Column("n", INT, False, auto_increment=True, added=1)
NUMBERED = replace(T, columns=(*T.columns, NUMBERS), indexes=(IndexDef("n", (3,), True),), keyed=1)
BY_NUMBER = replace(NUMBERED, primary_key=(3,), indexes=())
CONVERTED = replace(T, columns=(*T.columns[:2], replace(T.columns[2], name="gone ", dropped=1),
                                Column("b", INT, added=1, source=2)))


UNIQUE_BAG = replace(UNIQUE, primary_key=())
Row = tuple[int, int | None, str | None]


class Rig:
    def __init__(self, path: Path, seed: int, table: TableDef = T):
        self.path, self.chance, self.bag = path, random.Random(seed), not table.primary_key
        self.rows: list[Row] = []
        self.seq = 0
        self.store = RocksStore(str(path), PlainSymbols())
        self.store.create_table(table)
        self.recipe()
        self.store.add_index("t", (1,))

    def recipe(self) -> None:
        self.seq += 1
        self.store.set_recipe([], 1, self.seq)

    def write(self, statement: Any) -> None:
        self.seq += 1
        results, _ = self.store.write([statement], 1, self.seq)
        assert results[0].error is None, results

    def value(self) -> tuple[int | None, str | None]:
        a, none = self.chance.choice([*range(30), *([] if self.full else [None])]), [] if self.texts else [None]
        return a, self.chance.choice([*none, str(a or 0), "7", "é", "É", "long"] if self.odd else [*none, str(a or 0)])

    odd = full = texts = False

    def step(self) -> None:
        id, act = self.chance.randrange(60), self.chance.random()
        if act < 0.5:
            if not self.bag or self.chance.random() < 0.9:
                self.write(Delete("t", call("eq", col(0, INT), const(id, INT))))
                self.rows = [r for r in self.rows if r[0] != id]
            self.rows.append((id, *self.value()))
            self.write(Insert("t", (0, 1, 2), [self.rows[-1]], "error"))
        elif act < 0.75:
            a = self.value()[0]
            self.rows = [(r[0], a, r[2]) if r[0] == id else r for r in self.rows]
            self.write(Update("t", ((1, const(a, INT)),), call("eq", col(0, INT), const(id, INT))))
        elif act < 0.98:
            low = call("and", call("ge", col(0, INT), const(id, INT)), call("lt", col(0, INT), const(id + 2, INT)))
            self.rows = [r for r in self.rows if not id <= r[0] < id + 2]
            self.write(Delete("t", low))
        else:
            self.rows.clear()
            self.write(Delete("t", None))

    def fits(self, wanted: TableDef) -> bool:
        """Do the rows of now fit?"""
        if wanted in (UNIQUE, UNIQUE_BAG):
            return told_apart([(folded(b), a) for _, a, b in self.rows if None not in (a, b)])
        if wanted is NARROW:
            return all(a is not None and (b is None or len(b) <= 2) for _, a, b in self.rows)
        if wanted.keyed:
            keys = [tuple(folded(r[c]) for c in wanted.primary_key) for r in self.rows]
            unique = not wanted.indexes or self.fits(UNIQUE)
            return not wanted.primary_key or (all(None not in k for k in keys) and told_apart(keys) and unique)
        return all(b is None or b.isdigit() for _, _, b in self.rows)

    def stored(self) -> list[tuple[Any, ...]]:
        batch, _ = self.store.scan("t", None, 1000)
        columns = self.store.tables()["t"].columns
        return [tuple(decode(c, column.type, self.store._symbols) for c, column in zip(row, columns, strict=True))
                for row in batch.rows()]

    def having(self, a: int) -> list[tuple[Any, ...]]:
        """Rows by the index on a."""
        batch, _ = self.store.lookup("t", (1,), np.array([[a]]))
        return [tuple(decode(c, t, self.store._symbols) for c, t in zip(row, (INT, INT, TEXT), strict=True))
                for row in batch.rows()]


def folded(value: Any) -> Any:
    return value.casefold().replace("é", "e") if isinstance(value, str) else value


def told_apart(keys: list[Any]) -> bool:
    return len(set(keys)) == len(keys)


@pytest.mark.parametrize("was, wanted", [(T, UNIQUE), (T, NARROW), (T, CONVERTED), (T, WIDER), (T, BY_TEXT),
                                         (T, UNKEYED), (BAG, replace(T, keyed=1)), (BAG, WIDER), (BAG, UNIQUE_BAG)],
                         ids=["unique", "narrow", "converted", "wider", "by_text", "unkeyed", "keyed", "keyed_unique",
                              "unique_bag"])
@pytest.mark.parametrize("seed", range(20))
def test_between_writes(tmp_path: Path, was: TableDef, wanted: TableDef, seed: int) -> None:
    rig = Rig(tmp_path / "base", seed, was)
    rig.full = wanted is NARROW and seed % 2 == 1
    rig.texts = WIDER.columns == wanted.columns and seed % 4 > 0
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
        if wanted in (UNIQUE, UNIQUE_BAG) or wanted.keyed:  # of two rows that are there now
            assert not rig.fits(wanted)
        with pytest.raises(SqlError) as refused:
            rig.store.alter_table(wanted)
        rig.store.alter_table(was, fits=True)  # so it is given up
        assert not [f for f in rig.store.engine.families() if "k1" in f]
        assert refused.value.code in (1062, 1138, 1366, 1406), refused.value
        fitting.abandon()
        rig.step()
    else:
        assert rig.fits(wanted)
        rig.store.alter_table(wanted)
        if wanted.keyed and seed % 5 == 0:  # it is taken back, for another part of the change
            rig.store.alter_table(was, fits=True)
            rig.recipe()
            rig.step()
            assert Counter(r[:3] for r in rig.stored()) == Counter(rig.rows)
            wanted = was
        else:
            rig.recipe()
            after(rig, wanted)
    rig.store.close()
    report = StoreCheck(str(rig.path), lambda what, done, total: None).run()
    assert not report.findings
    assert sum(i.unique for t in [rig.store.tables()["t"]] for i in t.indexes) == (
        bool(wanted.indexes) and fitting.error is None)


def after(rig: Rig, wanted: TableDef) -> None:
    """The rows are what they were, by their new types, and writes are held to them."""
    if wanted is CONVERTED:
        assert Counter((r[0], r[1], r[-1]) for r in rig.stored()) == Counter(
            (i, a, None if b is None else int(b)) for i, a, b in rig.rows)
        return
    assert Counter(rig.stored()) == Counter(rig.rows)
    for a in range(30):
        assert Counter(rig.having(a)) == Counter(r for r in rig.rows if r[1] == a)
    if wanted.keyed:
        held = bool(wanted.primary_key and rig.rows)
        row = rig.rows[0] if rig.rows else (99, None, "b")
        if not held:
            rig.rows.append(row)
    else:
        row = (99, *rig.rows[0][1:]) if wanted in (UNIQUE, UNIQUE_BAG) and rig.rows else (99, None, "b")
        held = None not in row if wanted in (UNIQUE, UNIQUE_BAG) else True
    rig.seq += 1
    results, _ = rig.store.write([Insert("t", (0, 1, 2), [row])], 1, rig.seq)
    assert (results[0].error is not None) == held
    if wanted.keyed:
        rig.bag = not wanted.primary_key
        for _ in range(10 if rig.bag or wanted.primary_key == (0,) else 0):
            rig.step()
        assert Counter(rig.stored()) == Counter(rig.rows)


def test_what_was_not_looked_at_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "base", 1)
    for wanted in (UNIQUE, NARROW, CONVERTED, WIDER, UNKEYED):
        with pytest.raises(SqlError) as refused:
            rig.store.alter_table(wanted)
        assert refused.value.code == 1412
        rig.store.begin_fitting(wanted)  # not yet
        with pytest.raises(SqlError):
            rig.store.alter_table(wanted)
    rig.store.close()


@pytest.mark.parametrize("was, wanted", [(T, WIDER), (T, UNKEYED), (BAG, replace(T, keyed=1)), (T, NUMBERED),
                                         (BAG, BY_NUMBER)])
@pytest.mark.parametrize("steps", [1, 100])
def test_a_crash_before_the_commit(tmp_path: Path, was: TableDef, wanted: TableDef, steps: int) -> None:
    """Another key was never there: neither half a copy nor a whole one is left."""
    rig = Rig(tmp_path / "base", 3, was)
    rig.texts = True
    for id in range(20):
        rig.rows.append((id, id, str(id)))
    rig.write(Insert("t", (0, 1, 2), rig.rows, "error"))
    fitting = rig.store.begin_fitting(wanted)
    if any(fitting.step(5) for _ in range(steps)):
        rig.store.alter_table(wanted)
    rig.store.close()
    rig.store = RocksStore(str(rig.path), PlainSymbols())
    assert rig.store.tables() == {"t": was} and rig.stored() == rig.rows
    assert not [f for f in rig.store.engine.families() if "k1" in f]
    for _ in range(20):
        rig.step()
    rig.store.close()
    assert not StoreCheck(str(rig.path), lambda what, done, total: None).run().findings


@pytest.mark.parametrize("was, wanted", [(T, NUMBERED), (T, BY_NUMBER), (BAG, NUMBERED), (BAG, BY_NUMBER)],
                         ids=["keyed", "by_number", "bag", "bag_by_number"])
@pytest.mark.parametrize("seed", range(6))
def test_numbers_between_writes(tmp_path: Path, was: TableDef, wanted: TableDef, seed: int) -> None:
    """Each row has one, none has another's, and the next is above them; a change that is taken back leaves none."""
    rig = Rig(tmp_path / "base", seed, was)
    wanted = replace(wanted, primary_key=wanted.primary_key if was.primary_key or wanted.primary_key == (3,) else (),
                     first_id=1 + seed % 3 * 10)
    for _ in range(80):
        rig.step()
    still = seed % 2 == 0
    known = list(rig.stored())
    fitting = rig.store.begin_fitting(wanted)
    while not fitting.over:
        fitting.step(rig.chance.randrange(1, 8))
        if not still:
            rig.step()
    assert fitting.error is None
    rig.store.alter_table(wanted)
    if seed % 5 == 0:
        rig.store.alter_table(was, fits=True)
        rig.recipe()
        assert Counter(rig.stored()) == Counter(rig.rows)
        assert not [f for f in rig.store.engine.families() if "k1" in f and f not in rig.store.engine._condemned]
    else:
        rig.recipe()
        found = rig.stored()
        assert Counter(r[:3] for r in found) == Counter(rig.rows)
        numbers = [r[3] for r in found]
        assert told_apart(numbers)
        if still:
            first = wanted.first_id
            by = {r[:3]: r[3] for r in found}
            assert sorted(numbers) == [first + i for i in range(len(known))]
            assert not was.primary_key or [by[r] for r in known] == sorted(numbers)
        rig.seq += 1
        (made,), _ = rig.store.write([Insert("t", (0, 1, 2), [(99, 1, "b")])], 1, rig.seq)
        assert made.error is None and made.last_insert_id == max([wanted.first_id - 1, fitting.top]) + 1
        assert made.last_insert_id > max(numbers, default=0)
    rig.store.close()
    assert not StoreCheck(str(rig.path), lambda what, done, total: None).run().findings


def test_more_rows_than_numbers(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "base", 1)
    rig.rows = [(i, i, "") for i in range(200)]
    rig.write(Insert("t", (0, 1, 2), rig.rows, "error"))
    tiny = replace(NUMBERED, columns=(*T.columns, replace(NUMBERS, type=SqlType(Kind.INT, bits=8))))
    fitting = rig.store.begin_fitting(tiny)
    while not fitting.step(50):
        pass
    with pytest.raises(SqlError) as refused:
        rig.store.alter_table(tiny)
    assert refused.value.code == 1467
    rig.store.alter_table(T, fits=True)
    rig.store.close()
    assert not StoreCheck(str(rig.path), lambda what, done, total: None).run().findings
