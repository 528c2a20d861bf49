"""The rows on which a plan's answer depends: a change of any other row leaves the answer as it is.

Random plans are run by the slow reference before and after the change of one row that meets no condition.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from noria.core.expressions.expr import Call, Expr, col, const
from noria.core.types import BOOL, INT, TEXT, TEXT_BIN, Column, TableDef
from noria.plan.mir import Aggregate, Base, Distinct, Filter, Join, Mir, agg, tables_of
from noria.plan.rows_read import rows_of_lookup, rows_read
from noria.plan.view import ViewDef
from reference import mir_reference, random_plans

A = TableDef("a", (Column("id", INT, False), Column("w", INT), Column("s", TEXT)), (0,), table_id=1)
B = TableDef("b", (Column("id", INT, False), Column("a", INT), Column("v", INT)), (0,), table_id=2)


def shown(plan: ViewDef | Mir, keys: list[tuple[Any, ...]] | None = None, key_range: tuple[int, int] | None = None
          ) -> list[str]:
    found = rows_of_lookup(plan, keys or [], False, key_range) if isinstance(plan, ViewDef) else rows_read(plan)
    return [f"{table}: {' and '.join(sorted(map(str, terms)))}" for table, terms in found]


def equals(at: int, value: int, plan: Mir) -> Expr:
    return Call(BOOL, True, "eq", (col(at, plan.fields[at].type), const(value, INT)))


def test_a_key_is_followed_through_a_join() -> None:
    view = ViewDef("v", Join(Base(A), Base(B), ((0, 1),), outer=True), (0,), 3)
    assert shown(view, [(3,), (4,)]) == ["a: in(#0, 3, 4)", "b: in(#1, 3, 4)"]


def test_a_condition_on_the_right_of_a_left_join_is_not() -> None:
    joined = Join(Base(A), Base(B), ((0, 1),), outer=True)
    assert shown(Filter(joined, equals(5, 7, joined))) == ["a: ", "b: "]
    inner = Join(Base(A), Base(B), ((0, 1),))
    assert shown(Filter(inner, equals(5, 7, inner))) == ["a: ", "b: eq(#2, 7)"]


def test_groups_are_looked_up_by_their_columns() -> None:
    grouped = Aggregate(Base(A), (1,), (agg("count_star", None, Base(A).fields),), ("n",))
    assert shown(ViewDef("v", grouped, (0,), 2), [(5,)]) == ["a: in(#1, 5)"]
    assert shown(ViewDef("v", grouped, (1,), 2), [(5,)]) == ["a: "]


def test_texts_of_one_group_may_differ() -> None:
    """The shown spelling is that of any of the group's rows, so only a comparison by the collation holds for all."""
    once = Distinct(Base(A))
    exact = Call(BOOL, True, "eq", (Call(TEXT_BIN, True, "cast", (col(2, TEXT),)), const("x", TEXT_BIN)))
    assert shown(Filter(once, exact)) == ["a: "]
    assert shown(Filter(once, Call(BOOL, True, "eq", (col(2, TEXT), const("x", TEXT))))) == ["a: eq(#2, 'x')"]


def test_ranges_and_lookups_of_nothing() -> None:
    view = ViewDef("v", Base(A), (0,), 3, ranged=True)
    assert shown(view, key_range=(3, 9)) == ["a: ge(#0, 3) and le(#0, 9)"]
    assert shown(view, []) == []
    assert shown(ViewDef("v", Base(A), (), 3), [()]) == ["a: "]


@pytest.mark.parametrize("seed", range(400))
def test_other_rows_do_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    bases = random_plans.tables(rng)
    rows = {t.name: [_row(rng, t) for _ in range(rng.randrange(6))] for t in bases}
    for view in random_plans.views(rng, bases):
        fields = [view.plan.fields[c] for c in view.key]
        keys = [tuple(random_plans.value(rng, f.type, False) for f in fields) for _ in range(2 if fields else 1)]
        read = list(rows_of_lookup(view, keys, False, None))
        before = _answer(view, keys, rows)
        for _ in range(8):
            table = rng.choice(sorted(tables_of(view.plan).values(), key=lambda t: t.name))
            changed = _changed(rng, table, rows[table.name])
            moved = list((Counter(changed) - Counter(rows[table.name])).elements()) + list(
                (Counter(rows[table.name]) - Counter(changed)).elements())
            if not any(_meets(terms, row) for name, terms in read if name == table.name for row in moved):
                assert _answer(view, keys, {**rows, table.name: changed}) == before, (view.plan, table.name, moved)


def _row(rng: random.Random, table: TableDef) -> tuple[Any, ...]:
    return tuple(random_plans.value(rng, c.type, c.nullable) for c in table.columns)


def _changed(rng: random.Random, table: TableDef, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    kept = [row for row in rows if rng.random() < 0.8]
    return [*kept, _row(rng, table)] if rng.random() < 0.7 else kept


def _meets(terms: Any, row: tuple[Any, ...]) -> bool:
    found = [mir_reference.evaluate(t, row) for t in terms]
    return not any(f in (0, None) and f is not mir_reference.ERROR for f in found)


def _answer(view: ViewDef, keys: list[tuple[Any, ...]], rows: dict[str, list[tuple[Any, ...]]]) -> Counter[Any]:
    found = mir_reference.run(view.plan, rows)
    fields = view.plan.fields
    return Counter(r for key in keys for r in found if _holds(
        [Call(BOOL, True, "eq", (col(c, fields[c].type), const(v, fields[c].type)))
         for c, v in zip(view.key, key, strict=True)], r))


def _holds(terms: list[Expr], row: tuple[Any, ...]) -> bool:
    return all(mir_reference.is_true(mir_reference.evaluate(t, row)) for t in terms)

