"""Reuse beyond equality: views of the same groups, written in many ways, share states; what they give is what they
gave alone, whichever came first.

    NORIA_REUSE_SEEDS=5000 pytest tests/plan/reuse/test_reuse.py        a longer run
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
from noria.core.types import BIGINT, Kind, TableDef
from noria.dataflow.ops.stateful import gate
from noria.dataflow.ops.stateful.keep import Keep
from noria.lowering.lower import Lowering
from noria.plan import mir
from noria.plan.view import ViewDef
from noria.state.symbols.symbols import SymbolTable
from reference import mir_reference, random_plans
from reference.join_chains import chains
from reference.table_views import TableViews
from seeds import cases

SEEDS = int(os.environ.get("NORIA_REUSE_SEEDS") or cases(80))
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
        options += ["sum", "avg", "variance"] if rows.fields[c].type.is_number else []
        options += ["bit_and", "bit_xor"] if rows.fields[c].type.kind is Kind.INT else []
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
        raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\nthe story:\n{rig.story.describe()[-4000:]}") from e
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
    rig.lowering.replan()
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
        rig.lowering.replan()
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
            rig.lowering.replan()
            rig.engine.relayout()
        for v in views:
            mine, alone = (r.engine.readers[v.name] for r in (together, apart))
            assert mine.full <= alone.full, f"seed {seed}: {v.name}"
        states = [sum(n.op.stateful and bool(n.parents) and n.full for n in r.engine.graph.nodes)
                  for r in (together, apart)]
        assert states[0] <= states[1], f"seed {seed}: {states}"
        kept = [sum(n.op.stateful and bool(n.parents) for n in r.engine.graph.nodes) for r in (together, apart)]
        assert kept[0] <= kept[1], f"seed {seed}: {kept}"


