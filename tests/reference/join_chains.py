"""Random views over one relation and joins with it, in many orders: input for tests of reuse."""

from __future__ import annotations

import random

from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.types import Kind, TableDef
from noria.plan import mir
from noria.plan.keys import unique_keys
from noria.plan.optimizer import optimize
from noria.plan.view import ViewDef
from reference import random_plans


def chains(rng: random.Random, bases: list[TableDef]) -> list[ViewDef]:
    """Views of one relation and some of the joins over it, inner and left, in orders of their own; of some tables some
    rows only; grouped, filtered and projected or not."""
    pool: list[tuple[int, int, mir.Mir, int, bool]] = []  # left relation, its column; right relation, its column; outer
    relations: list[mir.Mir] = [mir.Base(rng.choice(bases))]
    for _ in range(rng.choice([2, 3, 3])):
        right: mir.Mir = mir.Base(rng.choice(bases))
        if rng.random() < 0.2:
            right = mir.Filter(right, random_plans.predicate(rng, right.fields))
        whole = [c for c, f in enumerate(right.fields) if f.type.kind is Kind.INT and f.nullable]
        if computes := bool(whole) and rng.random() < 0.3:
            right = known(right, whole[0])
        left = rng.randrange(len(relations))
        on = [(a, b) for a, f in enumerate(relations[left].fields) for b, g in enumerate(right.fields)
              if random_plans.same(f.type, g.type)]
        if on:
            unique = [(a, b) for a, b in on if {b} in unique_keys(right)]
            last = [(a, b) for a, b in on if computes and b == right.width - 1]
            a, b = rng.choice(last or unique or on)
            pool.append((left, a, right, b, rng.random() < 0.3))
            relations.append(right)
    out = []
    for i in range(rng.randint(2, 5)):
        plan, starts = relations[0], {0: 0}
        left_out = rng.choice([None, None, *range(len(pool))])
        for n in rng.sample(range(len(pool)), len(pool)):
            left, a, right, b, outer = pool[n]
            if n != left_out and left in starts and plan.width + right.width <= 10:
                starts[n + 1] = plan.width
                flip = len(starts) == 2 and not outer and rng.random() < 0.3
                if flip:
                    plan, starts = mir.Join(right, plan, ((b, a),)), {left: right.width, n + 1: 0}
                else:
                    plan = mir.Join(plan, right, ((starts[left] + a, b),), outer)
        if rng.random() < 0.3:
            plan = mir.Filter(plan, random_plans.predicate(rng, plan.fields))
        if rng.random() < 0.3:
            by = rng.sample(range(plan.width), rng.choice([1, 1, 2]) if plan.width > 1 else 1)
            what = rng.choice([("count_star", None), ("max", 0)])
            plan = mir.Aggregate(plan, tuple(by), (mir.agg(*what, plan.fields),), ("a0",))
        else:
            some = rng.sample(range(plan.width), rng.randint(1, plan.width))
            plan = random_plans.projection(plan, some) if rng.random() < 0.8 else plan
        plan = optimize(plan) if rng.random() < 0.6 else plan  # with those of the computed columns that it reads
        keys = plan.width - isinstance(plan, mir.Aggregate)
        key = tuple(rng.sample(range(keys), min(keys, rng.choice([0, 1, 1, 1, 2]))))
        out.append(ViewDef(f"v{i}", plan, key, plan.width))
    return out


def known(rows: mir.Mir, c: int) -> mir.Project:
    """All columns, and one with 0 for NULL."""
    columns = [col(i, f.type, f.nullable) for i, f in enumerate(rows.fields)]
    made = functions.call("coalesce", columns[c], const(0, columns[c].type))
    return mir.Project(rows, (*columns, made), (*(f.name for f in rows.fields), "known"))
