"""Reuse beyond equality: views of the same groups, written in many ways, share states; what they give is what they
gave alone, whichever came first.

    NORIA_REUSE_SEEDS=5000 pytest tests/dataflow/test_reuse.py        a longer run
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from dataflow.engine_rig import Rig
from dataflow.random_play import play, published
from noria.core.expressions import functions
from noria.core.expressions.expr import Expr, col, const, substitute
from noria.core.expressions.functions import conjunction
from noria.core.types import BIGINT, INT, Column, Kind, TableDef
from noria.dataflow.graph.nodes import Node
from noria.dataflow.ops import gate
from noria.dataflow.ops.keep import Keep
from noria.plan import mir
from noria.plan.lower import Lowering
from noria.plan.reuse.grouped import grouped
from noria.plan.reuse.join_order import joined
from noria.plan.reuse.sharing import groupings
from noria.plan.view import ViewDef
from noria.state.symbols import SymbolTable
from reference import mir_reference, random_plans
from reference.join_chains import chains, known
from reference.table_views import TableViews

SEEDS = int(os.environ.get("NORIA_REUSE_SEEDS", "80"))
FIRST = int(os.environ.get("NORIA_REUSE_FIRST", "0"))


def siblings(rng: random.Random, bases: list[TableDef]) -> list[ViewDef]:
    """Views that group the same rows: by the same columns or more or fewer, under conditions that they share in part,
    through projections or not; some with what follows a grouping."""
    tree = Tree(rng, bases, rng.choice([1, 1, 2, 2, 3]))
    source, _ = tree.written(range(len(tree.relations)))
    if len(tree.relations) == 2 and rng.random() < 0.3:
        source, tree = random_plans.join(rng, *tree.relations) or source, None
    terms = [random_plans.predicate(rng, source.fields) for _ in range(3)]
    if rng.random() < 0.6:  # that differ in a constant
        c = rng.randrange(source.width)
        left = col(c, source.fields[c].type, source.fields[c].nullable)
        terms = [functions.call("eq", left, const(random_plans.value(rng, left.type, False), left.type))
                 for _ in range(2)]
    group = rng.sample(range(source.width), rng.choice([0, 1, 1, 2]) if source.width > 1 else 1)
    out = []
    for i in range(rng.randint(2, 5)):
        condition = conjunction(rng.sample(terms, rng.choice([0, 0, 1, 1, 1, 2])))
        rows = source if condition is None else mir.Filter(source, condition)
        places = list(range(source.width))  # of the columns of `rows`, which of the source's
        if tree is not None and len(tree.relations) > 1 and rng.random() < 0.5:
            rows, places = tree.any_order(rng, condition)
        if rng.random() < 0.3:
            shuffled = rng.sample(range(source.width), source.width)
            rows, places = random_plans.projection(rows, shuffled), [places[c] for c in shuffled]
        if rng.random() < 0.4:
            rows = computed(rng, rows, places)
        by = [g for g in group if rng.random() < 0.92]
        rng.shuffle(by)
        plan = _grouped(rng, rows, tuple(places.index(g) for g in by))
        keys = len(by) if isinstance(plan, mir.Aggregate) else plan.width
        if rng.random() < 0.3:
            plan = mir.Filter(plan, random_plans.predicate(rng, plan.fields))
        if rng.random() < 0.2 and len(out) > 0:
            joined = random_plans.join(rng, plan, rng.choice(out).plan)
            plan = joined or plan
        key = tuple(rng.sample(range(keys), min(keys, rng.choice([0, 1, 1, 1, 2]))))
        ranged = len(key) == 1 and not plan.fields[key[0]].type.is_text and rng.random() < 0.3
        out.append(ViewDef(f"v{i}", plan, key, plan.width, ranged=ranged))
    return out


class Tree:
    """Inner joins of some tables, each with one before it; a table may stand there twice."""

    def __init__(self, rng: random.Random, bases: list[TableDef], size: int):
        self.relations: list[mir.Mir] = [mir.Base(rng.choice(bases))]
        self.pairs: list[tuple[int, int]] = []  # columns of all relations side by side
        for _ in range(size - 1):
            width, fields = sum(r.width for r in self.relations), [f for r in self.relations for f in r.fields]
            new = mir.Base(rng.choice(bases))
            on = [(a, width + b) for a, f in enumerate(fields) for b, g in enumerate(new.fields)
                  if random_plans.same(f.type, g.type)]
            if on and width + new.width <= 9:
                self.relations.append(new)
                self.pairs += rng.sample(on, min(len(on), rng.choice([1, 1, 1, 2])))

    def written(self, order: Sequence[int]) -> tuple[mir.Mir, list[int]] | None:
        """The joins in this order, and which column each one of theirs is; None where that is no tree of joins."""
        starts = [sum(r.width for r in self.relations[:i]) for i in range(len(self.relations))]
        columns = [range(starts[i], starts[i] + r.width) for i, r in enumerate(self.relations)]
        plan, places = self.relations[order[0]], list(columns[order[0]])
        for i in order[1:]:
            on = [(places.index(x), columns[i].index(y)) for a, b in self.pairs for x, y in ((a, b), (b, a))
                  if x in places and y in columns[i]]
            if not on:
                return None
            plan, places = mir.Join(plan, self.relations[i], tuple(on)), [*places, *columns[i]]
        return plan, places

    def any_order(self, rng: random.Random, condition: Expr | None) -> tuple[mir.Mir, list[int]]:
        orders = [w for o in permutations(range(len(self.relations))) if (w := self.written(o)) is not None]
        plan, places = rng.choice(orders)
        if condition is not None:
            plan = mir.Filter(plan, substitute(condition, lambda c: col(places.index(c.index), c.type, c.nullable)))
        return plan, places


def computed(rng: random.Random, rows: mir.Mir, places: list[int]) -> mir.Mir:
    """Its columns, and some that are computed of them; of the same columns, in whatever order the joins are."""
    exprs: list[Expr] = [col(i, f.type, f.nullable) for i, f in enumerate(rows.fields)]
    whole = sorted((c for c, f in zip(places, rows.fields, strict=True) if f.type.kind is Kind.INT))
    for c in rng.choices(whole, k=rng.choice([1, 2])):
        by = const(rng.choice([1, 2, 2]), BIGINT)
        exprs.append(functions.call(rng.choice(["add", "mul"]), exprs[places.index(c)], by))
    return mir.Project(rows, tuple(exprs), tuple(f"p{i}" for i in range(len(exprs))))


def _grouped(rng: random.Random, rows: mir.Mir, by: tuple[int, ...]) -> mir.Mir:
    if rng.random() < 0.1 and rows.width <= 8:
        return mir.Distinct(rows)
    aggs = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        c = rng.randrange(rows.width)
        options = ["count_star", "count", "min", "max"]
        options += ["sum", "avg"] if rows.fields[c].type.is_number else []
        f = rng.choice(options)
        aggs.append(mir.agg(f, None if f == "count_star" else c, rows.fields))
    return mir.Aggregate(rows, by, tuple(aggs), tuple(f"a{i}" for i in range(len(aggs))))


KINDS = (siblings, chains)


def run(seed: int, steps: int = 30) -> bool:
    """Was anything shared?"""
    rng = random.Random(seed)
    tables = random_plans.tables(rng)
    views = KINDS[seed % 2](rng, tables)
    late = views.pop() if len(views) > 2 and rng.random() < 0.5 else None
    sliced = random.Random(seed + 1) if seed % 2 else None
    rig = Rig(tables, [], *((TableViews, None) if seed % 3 == 0 else (published, SymbolTable(None))), sliced)
    try:
        for _ in range(rng.choice([0, 12])):
            rig.random_write(rng)
        for together in [views] if seed % 4 < 2 else [[v] for v in views]:
            rig.add_views(together)
        shared = any(n.reuse for n in rig.engine.graph.nodes)
        play(rig, rng, views, late, steps)
    except Exception as e:
        raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\nthe story:\n{rig.story.tell()[-4000:]}") from e
    return shared


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small states are built in several slices, too."""
    monkeypatch.setattr(gate, "PART_ROWS", 1)


@pytest.mark.parametrize("block", range(4))
@pytest.mark.usefixtures("small_parts")
def test_what_shares_gives_what_it_gave_alone(block: int) -> None:
    shared = [run(FIRST + seed) for seed in range(block * SEEDS // 4, (block + 1) * SEEDS // 4)]
    assert sum(shared) > len(shared) // 8


# ------------------------------------------------------------------ the same graph
def shape(lowering: Lowering) -> tuple[dict, dict, int]:
    """The graph without its order: each plan node with how it is kept, each view with where its rows come from."""
    names = {n: m for m, n in lowering.made.items()}
    kept = {m: (n.full, frozenset(n.indexes) if n.op.stateful else frozenset()) for m, n in lowering.made.items()}
    readers = {name: (names[n.parents[0]], n.full) for name, n in lowering.engine.readers.items()}
    return kept, readers, len(lowering.engine.graph.nodes)


def graph_of(tables: list[TableDef], views: list[ViewDef], at_once: bool, detour: ViewDef | None = None
             ) -> tuple[dict, dict, int]:
    rig = Rig(tables, [])
    if detour is not None:
        rig.add_view(detour)
    for view in views:
        rig.lowering.add_view(view) if at_once else rig.add_view(view)
    if detour is not None:
        rig.drop_view(detour.name)
    rig.engine.relayout()
    return shape(rig.lowering)


@pytest.mark.parametrize("block", range(4))
def test_the_graph_does_not_depend_on_the_order_of_creation(block: int) -> None:
    for seed in range(FIRST + block * SEEDS // 4, FIRST + (block + 1) * SEEDS // 4):
        rng = random.Random(seed)
        tables = random_plans.tables(rng)
        views = KINDS[seed % 2](rng, tables)
        orders = list(permutations(views))
        first = graph_of(tables, views, True)
        for order in rng.sample(orders, min(len(orders), 6)):
            assert graph_of(tables, list(order), rng.random() < 0.5) == first, f"seed {seed}: {[v.name for v in order]}"
        *others, gone = rng.choice(orders)
        after, never = (graph_of(tables, others, False, g) for g in (replace(gone, name="gone"), None))
        assert after[0].keys() == never[0].keys(), f"seed {seed}: but for what is full already, a dropped view is gone"


# ------------------------------------------------------------------ ordinary plans
def test_a_rewritten_plan_has_the_rows_of_the_one_it_stands_for() -> None:
    """As plans, without the engine: they are lowered to Spark, too."""
    other = prefixes = copied = 0
    for seed in range(FIRST, FIRST + 2 * SEEDS):
        rng = random.Random(seed)
        tables = random_plans.tables(rng)
        views, rig = KINDS[seed % 2](rng, tables), Rig(tables, [])
        for v in views:
            rig.lowering.add_view(v)
        rig.engine.relayout()
        prefixes += any(n.reuse.startswith("one join") for n in rig.engine.graph.nodes)
        copied += any(n.reuse and isinstance(n.op, Keep) for n in rig.engine.graph.nodes)
        for _ in range(8):
            rig.random_write(rng)
        for v in views:
            mine, alone = rig.lowering.planned(v.name), rig.lowering.views[v.name].plan
            other += mine != alone
            assert [(f.type, f.nullable) for f in mine.fields] == [
                (f.type, f.nullable) for f in alone.fields], f"seed {seed}: {v.name}"
            have, want = (Counter(map(str, mir_reference.run(p, rig.rows))) for p in (mine, alone))
            assert have == want, f"seed {seed}: {v.name}\n{mir.show(mine)}"
    assert other > SEEDS // 4 and prefixes > SEEDS // 16 and copied > SEEDS // 16


# ------------------------------------------------------------------ examples
T = mir.Base(TableDef("t", (Column("id", INT, False), Column("x", INT), Column("y", INT)), (0,), table_id=1))
U = mir.Base(TableDef("u", (Column("id", INT, False), Column("t", INT), Column("z", INT)), (0,), table_id=2))
W = mir.Base(TableDef("w", (Column("id", INT, False), Column("u", INT)), (0,), table_id=3))


def aggregates(views: list[ViewDef]) -> list[mir.Aggregate]:
    """Those of a program of these views."""
    rig = Rig([t.table for t in (T, U, W)], [])
    for v in views:
        rig.add_view(v)
    return [m for m in rig.lowering.made if isinstance(m, mir.Aggregate)]


def total(name: str, rows: mir.Mir, by: int, *columns: int) -> ViewDef:
    aggs = tuple(mir.agg("sum", c, rows.fields) for c in columns)
    return ViewDef(name, mir.Aggregate(rows, (by,), aggs, tuple(f"s{c}" for c in columns)), (0,), 1 + len(columns))


def product(rows: mir.Mir, a: int, by: int) -> mir.Mir:
    """All columns, and a product."""
    columns = [col(i, f.type, f.nullable) for i, f in enumerate(rows.fields)]
    made = functions.call("mul", columns[a], const(by, BIGINT))
    return mir.Project(rows, (*columns, made), (*(f.name for f in rows.fields), "made"))


def test_computed_values_stand_side_by_side() -> None:
    """The plain column, one product and another: one state of three sums."""
    views = [total("a", T, 1, 2), total("b", product(T, 0, 2), 1, 3), total("c", product(T, 0, 3), 1, 3)]
    (one,) = aggregates(views)
    assert len(one.aggs) == 3


def test_joins_in_any_order_are_one() -> None:
    """t, u and w in three orders, with the pairs said in two ways: one state of one sum, over two joins."""
    tu = mir.Join(T, U, ((0, 1),))
    orders = {"a": total("a", mir.Join(tu, W, ((3, 1),)), 1, 5),
              "b": total("b", mir.Join(mir.Join(U, W, ((0, 1),)), T, ((1, 0),)), 6, 2),
              "c": total("c", mir.Join(W, mir.Join(U, T, ((1, 0),)), ((1, 0),)), 6, 4)}
    (one,) = aggregates([*orders.values()])
    assert [a.function for a in one.aggs] == ["sum"] and len(joins([*orders.values()])) == 2
    assert joined(one.input).joined == joined(orders["a"].plan.inputs[0]).joined
    assert joined(one.input).joined == joined(orders["c"].plan.inputs[0]).joined
    other = mir.Join(T, mir.Join(U, W, ((0, 1),)), ((1, 1),))  # t.x for t.id
    assert joined(other).joined != joined(orders["a"].plan.inputs[0]).joined
    assert len(aggregates([*orders.values(), total("d", other, 1, 5)])) == 2


def test_what_is_equal_counts_and_not_by_which_pairs() -> None:
    ab, ac, bc = mir.Join(T, U, ((0, 1),)), ((0, 1),), ((4, 1),)
    assert joined(mir.Join(ab, W, ac)) == joined(mir.Join(ab, W, bc))
    safe = mir.Join(ab, W, ac, null_safe=(0,))
    assert joined(safe) is None and joined(mir.Join(ab, W, ac, outer=True)) is None


def test_a_table_that_is_joined_with_itself() -> None:
    """Which of the two it is does not follow from what it is."""
    def child(left: mir.Mir, on: tuple[int, int], by: int, of: int) -> ViewDef:
        return total(f"v{on}{by}", mir.Join(left, U, (on,)), by, of)

    same = [child(U, (0, 1), 2, 5), child(U, (1, 0), 5, 2)]  # z of the parent, sum of the child's: twice
    (one,) = aggregates(same)
    assert len(one.aggs) == 1
    assert len(aggregates([same[0], child(U, (1, 0), 2, 5)])) == 2  # and of the child, sum of the parent's


def joins(views: list[ViewDef]) -> list[mir.Join]:
    """Those of a program of these views."""
    rig = Rig([t.table for t in (T, U, W)], [])
    for v in views:
        rig.add_view(v)
    return [m for m in rig.lowering.made if isinstance(m, mir.Join)]


def shown(name: str, rows: mir.Mir, *columns: int) -> ViewDef:
    return ViewDef(name, random_plans.projection(rows, columns), (0,), len(columns))


UT = mir.Join(U, T, ((1, 0),))  # each u with its t
UW = mir.Join(U, W, ((0, 1),))  # and with its ws, of which there may be many


def test_a_prefix_of_a_larger_join_is_one_node() -> None:
    """u with its t and its ws, beside u with its t: w comes last.  Which is the left side does not matter."""
    larger = shown("larger", mir.Join(UW, T, ((1, 0),)), 0, 7, 4)
    for small in (UT, mir.Join(T, U, ((0, 1),))):
        alone = [*joins([larger]), *joins([shown("small", small, 1, 2)])]
        assert len(alone) == 3
        rig = Rig([t.table for t in (T, U, W)], [])
        for v in (larger, shown("small", small, 1, 2)):
            rig.add_view(v)
        first, second = (m for m in rig.lowering.made if isinstance(m, mir.Join))
        assert {first.left, first.right} == {T, U} and (second.left, second.right) == (first, W)
        assert rig.lowering.made[first].reuse == "one join instead of 2, of t, u; of t, u, w"


def test_a_left_join_goes_after_an_inner_one() -> None:
    larger = shown("larger", mir.Join(mir.Join(U, W, ((0, 1),), True), T, ((1, 0),)), 0, 7, 4)
    first, second = joins([larger, shown("small", UT, 1, 2)])
    assert first == UT and second.outer and (second.left, second.right) == (UT, W)


def test_what_a_join_keeps_of_another_is_kept_once() -> None:
    """By w's u, which may be NULL because there is no w, rows are found in a copy of them only."""
    uw = mir.Join(U, W, ((1, 0),), True)  # id, t, z, id, u
    utw = mir.Join(mir.Join(U, T, ((0, 0),), True), W, ((1, 0),), True)
    views = [shown("first", mir.Join(uw, T, ((4, 0),)), 0, 6),
             shown("second", mir.Join(mir.Join(uw, T, ((0, 0),), True), T, ((4, 0),), True), 0, 6, 9),
             shown("third", mir.Join(utw, U, ((7, 0),)), 0, 9)]
    assert all(len(copies(some)) == 1 for some in [*([v] for v in views), *permutations(views)])


def copies(views: Sequence[ViewDef]) -> list[Node]:
    """What is kept of rows that cannot be found otherwise."""
    rig = Rig([t.table for t in (T, U, W)], [])
    for v in views:
        rig.add_view(v)
    rig.engine.relayout()
    return [n for n in rig.engine.graph.nodes if isinstance(n.op, Keep)]


def test_copies_of_the_same_rows_are_one() -> None:
    """By what is computed of x: joined with x, joined with y, and grouped; of all columns but one each."""
    def some(rows: mir.Mir, *columns: int) -> mir.Mir:
        return mir.Project(rows, tuple(rows.exprs[c] for c in columns), tuple(rows.names[c] for c in columns))

    all_ = known(T, 1)  # id, x, y, x or 0
    views = [shown("a", mir.Join(W, some(all_, 3, 0), ((1, 0),)), 0, 3),
             shown("b", mir.Join(some(all_, 2, 3), U, ((1, 1),), True), 2, 0),
             ViewDef("c", mir.Aggregate(some(all_, 3, 1), (0,), (mir.agg("max", 1, all_.fields),), ("m",)), (0,), 2)]
    assert [len(copies([v])) for v in views] == [1, 1, 1]
    for order in permutations(views):
        (one,) = copies(order)
        assert one.width == 4 and one.reuse.startswith("one state instead of 3")
    count = mir.Aggregate(some(all_, 3, 1), (0,), (mir.agg("count", 1, all_.fields),), ("n",))
    (two,) = copies([views[0], ViewDef("d", count, (0,), 2)])
    assert two.width == 2, "who keeps none does not make it wider"
    filtered = mir.Filter(T, functions.call("eq", col(2, INT), const(1, INT)))
    other = shown("e", mir.Join(W, some(known(filtered, 1), 3, 0, 1), ((1, 0),)), 0, 3)
    assert len(copies([views[0], other])) == 2


def test_joins_stay_in_their_order() -> None:
    """Where the other one may find many rows, or leaves some out, or looks at what the first finds, or where columns
    would be put in order by one more node, or may hold errors."""
    some = mir.Filter(W, functions.call("eq", col(1, INT), const(1, INT)))
    t = ((1, 0),)
    for larger, small in [
            (shown("larger", mir.Join(UT, W, ((0, 1),)), 0, 7), shown("small", UW, 0, 2)),
            (shown("larger", mir.Join(mir.Join(U, some, ((0, 1),)), T, t), 0, 7), shown("small", UT, 0, 2)),
            (ViewDef("larger", mir.Join(UW, T, t), (0,), 8), shown("small", UT, 0, 2)),
            (shown("larger", mir.Join(product(UW, 0, 2), T, t), 0, 7), shown("small", UT, 0, 2))]:
        assert len(joins([larger, small])) == 3


def test_joins_stay_in_their_order_where_the_other_would_need_a_copy() -> None:
    """Groups by columns of both: after a left join whose right side has one of them, its rows would be kept."""
    left = mir.Join(U, W, ((1, 0),), True)
    plan = mir.Join(mir.Join(U, T, ((0, 0),)), W, ((1, 0),), True)  # id, t, z, id, x, y, id, u
    both = ViewDef("both", mir.Aggregate(plan, (7, 4), (mir.agg("max", 0, plan.fields),), ("m",)), (1,), 3)
    assert not copies([both, shown("left", left, 0, 4)])


# ------------------------------------------------------------------ never less partial
@pytest.mark.parametrize("block", range(2))
def test_what_is_partial_alone_is_partial_together(block: int) -> None:
    for seed in range(FIRST + block * SEEDS // 2, FIRST + (block + 1) * SEEDS // 2):
        rng = random.Random(seed)
        tables = random_plans.tables(rng)
        views = KINDS[seed % 2](rng, tables)
        together, apart = Rig(tables, []), Rig(tables, [])
        apart.lowering = Lowering(apart.engine, reuse=False)
        for rig in (together, apart):
            for v in views:
                rig.lowering.add_view(v)
            rig.engine.relayout()
        for v in views:
            mine, alone = (r.engine.readers[v.name] for r in (together, apart))
            assert mine.full <= alone.full, f"seed {seed}: {v.name}"
        states = [sum(n.op.stateful and bool(n.parents) and n.full for n in r.engine.graph.nodes)
                  for r in (together, apart)]
        assert states[0] <= states[1], f"seed {seed}: {states}"
        kept = [sum(n.op.stateful and bool(n.parents) for n in r.engine.graph.nodes) for r in (together, apart)]
        assert kept[0] <= kept[1], f"seed {seed}: {kept}"


def test_equal_plans_over_tables_that_are_called_otherwise() -> None:
    """What is known of one is not taken for the other: they are looked for by name."""
    for name in ("before", "after"):
        plan = mir.Distinct(mir.Base(TableDef(name, (Column("x", INT), Column("y", INT)), table_id=1)))
        found = grouped(plan)
        assert found is not None and set(mir.tables_of(found.source)) == {name}
        assert [set(mir.tables_of(g)) for g in groupings(plan)] == [{name}]
