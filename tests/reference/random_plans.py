"""Random MIR plans, tables and row values for property tests; deterministic for a given `random.Random`."""

from __future__ import annotations

import random
from datetime import timedelta

from noria.core.expressions import functions
from noria.core.expressions.expr import Expr, col, const
from noria.core.types import (
    BIGINT,
    BYTES,
    DOUBLE,
    INT,
    TEXT,
    TEXT_BIN,
    TIME,
    Column,
    Field,
    Kind,
    SqlType,
    TableDef,
    decimal,
)
from noria.plan import mir
from noria.plan.calls import PEERS, WHOLE
from noria.plan.constant_row import one_row
from noria.plan.view import ViewDef

OPERATORS = ["filter", "project", "join", "join", "join", "aggregate", "aggregate", "union", "distinct", "repeat",
             "window", "group_concat", "top", "constants"]
FURTHER = [TIME, BYTES]
WORDS = ["a", "A", "b", "B", "é", "e", ""]


def tables(rng: random.Random) -> list[TableDef]:
    """Two or three tables, with and without primary keys, of mixed column types."""
    kinds = [INT, INT, BIGINT, TEXT, TEXT_BIN, DOUBLE, decimal(8, 2), *FURTHER]
    out = []
    for t in range(rng.choice([2, 3])):
        cols = [Column("id", INT, nullable=False)]
        cols += [Column(f"c{i}", rng.choice(kinds if i else [INT])) for i in range(rng.choice([1, 2, 3]))]
        pk = (0,) if rng.random() < 0.6 else ()
        out.append(TableDef(f"t{t}", tuple(cols), pk, table_id=t + 1))
    return out


def value(rng: random.Random, type: SqlType, nullable: bool = True) -> object:
    if nullable and rng.random() < 0.15:
        return None
    if type.kind is Kind.TEXT:
        word = rng.choice(WORDS)
        return word.encode() if type.is_bytes else word
    if type.kind is Kind.TIME:
        return timedelta(seconds=rng.randrange(-3, 3))
    if type.kind is Kind.DOUBLE:
        return rng.choice([0.0, 1.5, -2.25, 3.0])
    if type.kind is Kind.DECIMAL:
        from decimal import Decimal

        return Decimal(rng.randrange(-300, 300)).scaleb(-min(2, type.scale))
    return rng.randrange(4)


def predicate(rng: random.Random, fields: tuple[Field, ...]) -> Expr:
    c = rng.randrange(len(fields))
    f = fields[c]
    left = col(c, f.type, f.nullable)
    if rng.random() < 0.2:
        e = functions.call("is_null", left)
        return functions.call("not", e) if rng.random() < 0.5 else e
    right = const(value(rng, f.type, nullable=False), f.type)
    e = functions.call(rng.choice(["eq", "ne", "lt", "le", "gt", "ge"]), left, right)
    if rng.random() < 0.3:
        return functions.call(rng.choice(["and", "or"]), e, predicate(rng, fields))
    return e


def same(a: SqlType, b: SqlType) -> bool:
    if a.is_bytes != b.is_bytes:
        return False
    return a.kind is b.kind and a.folds == b.folds and (a.kind is not Kind.DECIMAL or a.scale == b.scale)


def join(rng: random.Random, left: mir.Mir, right: mir.Mir) -> mir.Mir | None:
    pairs = [(i, j) for i, a in enumerate(left.fields) for j, b in enumerate(right.fields) if same(a.type, b.type)]
    if not pairs or left.width + right.width > 9:
        return None
    rng.shuffle(pairs)
    on = pairs[:1] if rng.random() < 0.75 else pairs[:2]
    safe = tuple(i for i in range(len(on)) if rng.random() < 0.2)
    outer = rng.random() < 0.4
    residual = predicate(rng, left.fields + right.fields) if outer and rng.random() < 0.3 else None
    if residual is not None and rng.random() < 0.5:
        a, b = rng.choice(pairs)
        f, g = left.fields[a], right.fields[b]
        residual = functions.call(rng.choice(["lt", "ne", "ge"]), col(a, f.type, f.nullable),
                                  col(left.width + b, g.type, g.nullable))
    return mir.Join(left, right, tuple(on), outer, safe, residual)


def project(rng: random.Random, n: mir.Mir) -> mir.Mir:
    exprs: list[Expr] = []
    columns = rng.sample(range(n.width), rng.randint(1, n.width))
    for c in columns + ([rng.choice(columns)] if rng.random() < 0.15 else []):
        f = n.fields[c]
        e: Expr = col(c, f.type, f.nullable)
        if rng.random() < 0.25 and f.type.kind is Kind.INT:
            e = functions.call(rng.choice(["add", "sub", "mul"]), e, const(rng.randrange(1, 3), BIGINT))
        exprs.append(e)
    if rng.random() < 0.15:
        t = rng.choice([INT, TEXT])
        exprs.append(const(value(rng, t), t))
    return mir.Project(n, tuple(exprs), tuple(f"p{i}" for i in range(len(exprs))))


def aggregate(rng: random.Random, n: mir.Mir) -> mir.Mir:
    group = tuple(rng.sample(range(n.width), rng.choice([0, 1, 1, 1, 2]) if n.width > 1 else 1))
    aggs = []
    for _ in range(rng.choice([1, 1, 2])):
        c = rng.randrange(n.width)
        options = ["count_star", "count", "min", "max"]
        options += ["sum", "avg", "variance"] if n.fields[c].type.is_number else []
        options += ["bit_and", "bit_or", "bit_xor"] if n.fields[c].type.kind is Kind.INT else []
        f = rng.choice(options)
        aggs.append(mir.agg(f, None if f == "count_star" else c, n.fields))
    return mir.Aggregate(n, group, tuple(aggs), tuple(f"a{i}" for i in range(len(aggs))))


def union(rng: random.Random, left: mir.Mir, right: mir.Mir) -> mir.Mir | None:
    """UNION ALL of columns of the same types; sometimes of a relation with itself."""
    pairs = [(i, j) for i, a in enumerate(left.fields) for j, b in enumerate(right.fields)
             if same(a.type, b.type) and a.type.kind is b.type.kind]
    if not pairs:
        return None
    if left is right or (left.width == right.width and all((i, i) in pairs for i in range(left.width))):
        return mir.UnionAll(left, right)
    pairs = rng.sample(pairs, min(len(pairs), rng.choice([1, 2, 2, 3])))
    return mir.UnionAll(*(projection(n, [p[side] for p in pairs]) for side, n in enumerate((left, right))))


def projection(n: mir.Mir, columns: list[int]) -> mir.Mir:
    exprs = tuple(col(c, n.fields[c].type, n.fields[c].nullable) for c in columns)
    return mir.Project(n, exprs, tuple(f"u{i}" for i in range(len(columns))))


def _order(rng: random.Random, n: mir.Mir, most: int = 2) -> tuple[tuple[int, bool], ...]:
    columns = rng.sample(range(n.width), min(n.width, rng.randint(0, most)))
    return tuple((c, rng.random() < 0.5) for c in columns)


def _partition(rng: random.Random, n: mir.Mir) -> tuple[int, ...]:
    return tuple(rng.sample(range(n.width), min(n.width, rng.choice([0, 1, 1, 1, 2]))))


def _frame(rng: random.Random) -> mir.Frame:
    if rng.random() < 0.5:
        return rng.choice([PEERS, WHOLE, mir.Frame(True), mir.Frame(False, 0, None), mir.Frame(False, 0, 0)])
    return mir.Frame(True, *sorted(rng.choices([-3, -2, -1, 0, 1, 2, 3], k=2)))


def window(rng: random.Random, n: mir.Mir) -> mir.Mir | None:
    if n.width > 8:
        return None
    calls = []
    for _ in range(rng.choice([1, 1, 2])):
        c = rng.randrange(n.width)
        numbers = ["sum", "avg"] if n.fields[c].type.is_number else []
        f = rng.choice([*mir.RANKING, *mir.RANKING, *mir.PICKING, "count_star", "count", "min", "max", *numbers])
        column = None if f in ("count_star", *mir.RANKING) else c
        calls.append(mir.over(f, column, n.fields, _frame(rng), rng.choice([1, 1, 2])))
    return mir.Window(n, _partition(rng, n), _order(rng, n), tuple(calls), tuple(f"w{i}" for i in range(len(calls))))


def group_concat(rng: random.Random, n: mir.Mir) -> mir.Mir | None:
    texts = [c for c, f in enumerate(n.fields) if f.type.is_text and not f.type.is_bytes]
    if not texts:
        return None
    text = rng.choice(texts)
    distinct = rng.choice([(), (), (), (text,), tuple({text, rng.randrange(n.width)})])
    return mir.GroupConcat(n, _partition(rng, n), text, distinct, _order(rng, n),
                           rng.choice([",", "", "; "]), "texts")


def top(rng: random.Random, n: mir.Mir) -> mir.Mir:
    return mir.TopK(n, _partition(rng, n), _order(rng, n), rng.choice([0, 1, 1, 2, 3]), rng.choice([0, 0, 0, 1, 2]))


def constants(rng: random.Random, n: mir.Mir) -> mir.Mir:
    """UNION ALL with a row of constants."""
    values = tuple(const(value(rng, f.type), f.type) for f in n.fields)
    return mir.UnionAll(*rng.sample([n, mir.Project(one_row(), values, tuple(f.name for f in n.fields))], 2))


_OVER_ONE = {"constants": constants, "top": top, "window": window, "group_concat": group_concat}


def plan(rng: random.Random, nodes: list[mir.Mir]) -> mir.Mir:
    """One more node over some of the given ones."""
    while True:
        n = rng.choice(nodes)
        op = rng.choice(OPERATORS)
        if op == "filter":
            return mir.Filter(n, predicate(rng, n.fields))
        if op == "project":
            return project(rng, n)
        if op == "aggregate":
            return aggregate(rng, n)
        if op == "distinct":
            if n.width > 8:  # what an index can have
                continue
            return mir.Distinct(n)
        if op == "repeat":
            counts = [c for c, f in enumerate(n.fields) if f.type == INT]  # small numbers: bags stay small
            if not counts:
                continue
            return mir.Repeat(n, rng.choice(counts))
        if op in _OVER_ONE:
            made = _OVER_ONE[op](rng, n)
        else:
            made = (join if op == "join" else union)(rng, n, rng.choice(nodes))
        if made is not None:
            return made


def views(rng: random.Random, bases: list[TableDef]) -> list[ViewDef]:
    """One to three views over a pool of shared nodes."""
    nodes: list[mir.Mir] = [mir.Base(t) for t in bases]
    for _ in range(rng.randint(2, 6)):
        nodes.append(plan(rng, nodes))
    chosen = [nodes[-1], *rng.sample(nodes, min(len(nodes), rng.choice([0, 1, 2])))]
    out = []
    for i, n in enumerate(dict.fromkeys(chosen)):
        key = tuple(rng.sample(range(n.width), min(n.width, rng.choice([0, 1, 1, 1, 2]))))
        ranged = len(key) == 1 and not n.fields[key[0]].type.is_text and rng.random() < 0.5
        out.append(ViewDef(f"v{i}", n, key, n.width, ranged=ranged))
    return out


def ways(rng: random.Random, bases: list[TableDef]) -> list[ViewDef]:
    """Two to five views over one relation, read in several ways: as it is by a key, whole, joined, grouped again and
    its first rows.  So what one has in part another one wants whole."""
    nodes: list[mir.Mir] = [mir.Base(t) for t in bases]
    shared = rng.choice(nodes)
    if rng.random() < 0.4:
        shared = join(rng, shared, rng.choice(nodes)) or shared
    grouped = rng.random() < 0.8
    shared = aggregate(rng, shared) if grouped else shared
    out = []
    for i in range(rng.randint(2, 5)):
        plan: mir.Mir | None = shared
        x = rng.random()
        if x < 0.3:
            plan = join(rng, *rng.sample([shared, rng.choice(nodes)], 2))
        elif x < 0.45:
            plan = aggregate(rng, shared)
        elif x < 0.6:
            plan = top(rng, shared)
        elif x < 0.7:
            plan = mir.Filter(shared, predicate(rng, shared.fields))
        plan = plan or shared
        key = tuple(rng.sample(range(plan.width), min(plan.width, rng.choice([0, 1, 1, 1, 2]))))
        out.append(ViewDef(f"v{i}", plan, key, plan.width))
    return out
