"""Plans UNION, INTERSECT and EXCEPT, with and without ALL, by composition of other nodes (section 5.1).

    a UNION ALL b      UnionAll(a, b);  UNION: Distinct of it.  If every arm has keys: each row carries the number of
                       its arm, the lookup has the keys of all arms, and a filter keeps the rows of each arm's own keys
    a INTERSECT b      the groups of all columns over both, each row marked by its side, that have rows of both sides
    a EXCEPT b         … of the left side only
    … ALL              INTERSECT: each group as often as the lesser of its two counts; EXCEPT: left count minus right

Keeps true: columns have the names of the first query and a common type.  NULL equals NULL; text compares by its
collation.  A lookup by columns of the result reads every arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import BAD_FIELD, WRONG_NUMBER_OF_COLUMNS_IN_SELECT
from noria.core.expressions.expr import Col, Const, Expr, Param
from noria.core.expressions.functions import call, canonical, cast, common_type, literal
from noria.core.types import BIGINT, Field, SqlType
from noria.plan.after import LookedUpRows
from noria.plan.columns import cols_of
from noria.plan.lookups import AnyOf, Key, Parameter, one
from noria.plan.mir import Aggregate, Distinct, Filter, Mir, Project, Repeat, UnionAll, agg
from noria.sql.query.relations.context import Context
from noria.sql.query.relations.from_clause import relation_plan, with_queries
from noria.sql.query.relations.planned import PlannedQuery
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts, snippet

Order = tuple[tuple[int, bool], ...]
_PARTS = frozenset({"this", "expression", "distinct", "with_", "order", "limit", "offset"})


def set_plan(context: Context, tree: exp.SetOperation) -> Mir:
    """Plan the rows of a set operation, without its ORDER BY and LIMIT."""
    context = with_queries(context, tree)
    name = type(tree).__name__.upper()
    check_parts(tree, _PARTS, name)
    left, right = _typed(relation_plan(context, tree.this), relation_plan(context, tree.expression))
    distinct = bool(tree.args.get("distinct"))
    if isinstance(tree, exp.Union):
        return Distinct(UnionAll(left, right)) if distinct else UnionAll(left, right)
    if not isinstance(tree, (exp.Intersect, exp.Except)):
        raise refuse(name, tree)
    return _matched(left, right, isinstance(tree, exp.Intersect), distinct)


# ------------------------------------------------------------------ arms with keys
def keyed_union(context: Context, tree: exp.SetOperation) -> tuple[Mir, tuple[Key[int], ...], Mir] | None:
    """Plan a UNION [ALL] whose arms all have keys, of the same number and types.

    Returns the plan of all arms, its keys, and the plan over the rows of a lookup.  None for any other query.
    """
    distinct = bool(tree.args.get("distinct"))
    found = _arms(tree.this, not distinct), _arms(tree.expression, not distinct)
    if not isinstance(tree, exp.Union) or found[0] is None or found[1] is None:
        return None
    check_parts(tree, _PARTS, "UNION")
    context = with_queries(context, tree)
    queries = [context.query(a, top=True) for a in found[0] + found[1]]
    if not all(map(_plain, queries)) or len({_kinds(q) for q in queries}) > 1 or not queries[0].keys:
        return None
    types = _types([q.plan.fields[: q.visible] for q in queries])
    plan: Mir = reduce(UnionAll, (_marked(q, types, i) for i, q in enumerate(queries)))
    width = len(types)
    keys = tuple(Key(AnyOf(tuple(dict.fromkeys(one(q.keys[n].lookup) for q in queries))), width + n)
                 for n in range(len(queries[0].keys)))
    rows: Mir = Filter(LookedUpRows(plan.fields),
                       canonical(call("or", *(_own(plan, q, i) for i, q in enumerate(queries)))))
    rows = Project(rows, cols_of(plan)[:width], tuple(f.name for f in plan.fields[:width]))
    return plan, keys, Aggregate(rows, tuple(range(width)), (), ()) if distinct else rows


def _arms(tree: exp.Expr, all_rows: bool) -> list[exp.Expr] | None:
    """The arms of a chain of UNIONs that equals one UNION, or (`all_rows`) one UNION ALL, of all.  None for any other
    query."""
    if not isinstance(tree, exp.SetOperation):
        return [tree]
    if not isinstance(tree, exp.Union) or (all_rows and tree.args.get("distinct")):
        return None
    if any(tree.args.get(n) for n in _PARTS - {"this", "expression", "distinct"}):
        return None
    left, right = _arms(tree.this, all_rows), _arms(tree.expression, all_rows)
    return None if left is None or right is None else left + right


def _plain(query: PlannedQuery) -> bool:
    ends = query.limit is None and query.offset is None
    return ends and query.after is None and query.empty_row is None and all(k.lookup.single for k in query.keys)


def _kinds(query: PlannedQuery) -> tuple[tuple[Any, ...], ...]:
    """The kinds of the key columns, which must be the same in every arm: one column holds the keys of all."""
    types = [query.plan.fields[k.column].type for k in query.keys]
    return tuple((t.kind, t.folds, t.scale) for t in types)


def _own(plan: Mir, query: PlannedQuery, arm: int) -> Expr:
    """The condition that a row is the arm's and has the arm's own keys."""
    columns = cols_of(plan)
    first = plan.width - 1 - len(query.keys)
    terms = [call("eq", columns[-1], literal(arm))]
    for n, key in enumerate(query.keys):
        c, by = columns[first + n], key.lookup
        terms.append(call("eq", c, Param(c.type, True, by.ordinal)) if isinstance(by, Parameter) else by.condition(c))
    return call("and", *terms)


def _marked(query: PlannedQuery, types: list[SqlType], arm: int) -> Mir:
    """The arm's columns, then its keys, then its number."""
    copies, fields = cols_of(query.plan), query.plan.fields
    shown = [c if c.type == t else cast(c, t) for c, t in zip(copies, types, strict=False)]
    keys = [copies[k.column] for k in query.keys]
    names = (*(f.name for f in fields[: len(types)]), *(fields[k.column].name for k in query.keys), "arm")
    return Project(query.plan, (*shown, *keys, literal(arm)), names)


# ------------------------------------------------------------------ composition
def _types(arms: Sequence[Sequence[Field]]) -> list[SqlType]:
    """The common types of the arms' columns.  Raises error 1222 if their number differs."""
    if len({len(fields) for fields in arms}) > 1:
        raise SqlError(*WRONG_NUMBER_OF_COLUMNS_IN_SELECT,
                       "The used SELECT statements have a different number of columns")
    return [common_type([f.type for f in column]) for column in zip(*arms, strict=True)]


def _typed(left: Mir, right: Mir) -> tuple[Mir, Mir]:
    """Cast the columns of both sides to their common types."""
    types = _types([left.fields, right.fields])

    def arm(plan: Mir) -> Mir:
        if all(f.type == t for f, t in zip(plan.fields, types, strict=True)):
            return plan
        exprs = tuple(cast(c, t) for c, t in zip(cols_of(plan), types, strict=True))
        return Project(plan, exprs, tuple(f.name for f in plan.fields))

    return arm(left), arm(right)


def _matched(left: Mir, right: Mir, both: bool, distinct: bool) -> Mir:
    """Plan INTERSECT (`both`) or EXCEPT of two relations of the same types."""
    width, names = left.width, tuple(f.name for f in left.fields)
    here, nothing = literal(1), Const(literal(1).type, True, None)
    marked = UnionAll(Project(left, (*cols_of(left), here, nothing), (*names, "in_left", "in_right")),
                      Project(right, (*cols_of(right), nothing, here), (*names, "in_left", "in_right")))
    counts = tuple(agg("count", c, marked.fields) for c in (width, width + 1))
    groups = Aggregate(marked, tuple(range(width)), counts, ("in_left", "in_right"))
    copies = cols_of(groups)[:width]
    a, b = Col(BIGINT, False, width), Col(BIGINT, False, width + 1)
    if distinct:
        right_side = call("gt" if both else "eq", b, literal(0))
        return Project(Filter(groups, call("and", call("gt", a, literal(0)), right_side)), copies, names)
    times = call("if", call("lt", a, b), a, b) if both else call("sub", a, b)
    counted = Project(groups, (*copies, times), (*names, "times"))
    return Project(Repeat(counted, width), cols_of(counted)[:width], names)


def set_order(tree: exp.SetOperation, plan: Mir) -> Order:
    """The order of a set operation.  Its ORDER BY has names or numbers of result columns; others raise error 1054."""
    order: dict[int, bool] = {}
    names = [f.name.lower() for f in plan.fields]
    for node in (tree.args["order"].expressions if tree.args.get("order") else []):
        check_parts(node, frozenset({"this", "desc", "nulls_first"}), "ORDER BY")
        by = node.this
        if isinstance(by, exp.Literal) and by.this.isdigit() and 1 <= int(by.this) <= len(names):
            at = int(by.this) - 1
        elif isinstance(by, exp.Column) and not by.table and by.name.lower() in names:
            at = names.index(by.name.lower())
        else:
            raise SqlError(*BAD_FIELD, f"Unknown column '{snippet(by)}' in 'order clause'")
        order.setdefault(at, bool(node.args.get("desc")))
    return tuple(order.items())
