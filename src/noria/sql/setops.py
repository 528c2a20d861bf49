"""UNION, INTERSECT and EXCEPT, with and without ALL, by composition (section 5.1).

    a UNION ALL b      UnionAll(a, b);  UNION: Distinct of it
    a INTERSECT b      the groups of all columns over both, each row marked by its side, that have rows of both sides
    a EXCEPT b         … of the left side only
    … ALL              each group as often as the lesser of its two counts; as its left count exceeds its right

Keeps true: columns have the names of the first query and a common type; NULL equals NULL, text by its collation.
A lookup by columns of the result asks every arm.
"""

from __future__ import annotations

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.expr import Col, Const, Expr
from noria.core.functions import call, cast, common_type, literal
from noria.core.types import BIGINT
from noria.plan.mir import Aggregate, Distinct, Filter, Mir, Project, Repeat, UnionAll, agg
from noria.sql.context import Context
from noria.sql.refusals import refuse
from noria.sql.sources import relation_plan, with_queries
from noria.sql.tree import only, snippet

Order = tuple[tuple[int, bool], ...]
_PARTS = frozenset({"this", "expression", "distinct", "with_", "order", "limit", "offset"})


def set_plan(context: Context, tree: exp.SetOperation) -> Mir:
    """The rows of a set operation, without its ORDER BY and LIMIT."""
    context = with_queries(context, tree)
    name = type(tree).__name__.upper()
    only(tree, _PARTS, name)
    left, right = _typed(relation_plan(context, tree.this), relation_plan(context, tree.expression))
    distinct = bool(tree.args.get("distinct"))
    if isinstance(tree, exp.Union):
        return Distinct(UnionAll(left, right)) if distinct else UnionAll(left, right)
    if not isinstance(tree, (exp.Intersect, exp.Except)):
        raise refuse(name, tree)
    return _matched(left, right, isinstance(tree, exp.Intersect), distinct)


def _typed(left: Mir, right: Mir) -> tuple[Mir, Mir]:
    """Both with columns of common types."""
    if left.width != right.width:
        raise SqlError(1222, "21000", "The used SELECT statements have a different number of columns")
    types = [common_type([a.type, b.type]) for a, b in zip(left.fields, right.fields, strict=True)]

    def arm(plan: Mir) -> Mir:
        if all(f.type == t for f, t in zip(plan.fields, types, strict=True)):
            return plan
        exprs = tuple(cast(c, t) for c, t in zip(_copies(plan), types, strict=True))
        return Project(plan, exprs, tuple(f.name for f in plan.fields))

    return arm(left), arm(right)


def _matched(left: Mir, right: Mir, both: bool, distinct: bool) -> Mir:
    """INTERSECT (both) or EXCEPT of two relations of the same types."""
    width, names = left.width, tuple(f.name for f in left.fields)
    here, nothing = literal(1), Const(literal(1).type, True, None)
    marked = UnionAll(Project(left, (*_copies(left), here, nothing), (*names, "in_left", "in_right")),
                      Project(right, (*_copies(right), nothing, here), (*names, "in_left", "in_right")))
    counts = tuple(agg("count", c, marked.fields) for c in (width, width + 1))
    groups = Aggregate(marked, tuple(range(width)), counts, ("in_left", "in_right"))
    copies = _copies(groups)[:width]
    a, b = Col(BIGINT, False, width), Col(BIGINT, False, width + 1)
    if distinct:
        right_side = call("gt" if both else "eq", b, literal(0))
        return Project(Filter(groups, call("and", call("gt", a, literal(0)), right_side)), copies, names)
    times = call("if", call("lt", a, b), a, b) if both else call("sub", a, b)
    counted = Project(groups, (*copies, times), (*names, "times"))
    return Project(Repeat(counted, width), _copies(counted)[:width], names)


def set_order(tree: exp.SetOperation, plan: Mir) -> Order:
    """ORDER BY of a set operation names columns of its result, or numbers them."""
    order: dict[int, bool] = {}
    names = [f.name.lower() for f in plan.fields]
    for node in (tree.args["order"].expressions if tree.args.get("order") else []):
        only(node, frozenset({"this", "desc", "nulls_first"}), "ORDER BY")
        by = node.this
        if isinstance(by, exp.Literal) and by.this.isdigit() and 1 <= int(by.this) <= len(names):
            at = int(by.this) - 1
        elif isinstance(by, exp.Column) and not by.table and by.name.lower() in names:
            at = names.index(by.name.lower())
        else:
            raise SqlError(1054, "42S22", f"Unknown column '{snippet(by)}' in 'order clause'")
        order.setdefault(at, bool(node.args.get("desc")))
    return tuple(order.items())


def _copies(plan: Mir) -> tuple[Expr, ...]:
    return tuple(Col(f.type, f.nullable, i) for i, f in enumerate(plan.fields))
