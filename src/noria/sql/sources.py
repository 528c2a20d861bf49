"""FROM: tables, views, derived tables and WITH, and how they join.

    JOIN … USING (c), NATURAL JOIN   →   equalities, the column of the right side merged into the left's
    b RIGHT JOIN a                   →   a LEFT JOIN b (as the first join)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from noria.core.errors import SqlError, parse_error, unknown_column, unknown_table
from noria.core.expr import Col, Expr, conjuncts
from noria.core.functions import call
from noria.plan.after import filter_of
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.mir import Base, Mir, Project
from noria.sql.context import Context
from noria.sql.querygraph import JoinSpec
from noria.sql.refusals import not_maintained, refuse
from noria.sql.scalars import Resolver
from noria.sql.scope import Scope, Source
from noria.sql.tree import only

_JOIN = frozenset({"this", "side", "kind", "on", "using", "method"})
_TABLE = frozenset({"this", "alias", "db", "catalog", "hints", "joins"})


def resolve_from(context: Context, tree: exp.Select, scope: Scope) -> tuple[Context, list[JoinSpec]]:
    """Fill the scope from FROM and its joins; the context then knows the queries of WITH."""
    context = with_queries(context, tree)
    first = tree.args.get("from_")
    if first is None:
        raise refuse("a SELECT without FROM here", tree)
    joins = list(tree.args.get("joins") or [])
    node = _unwrapped(first.this, joins)
    if joins and joins[0].side == "RIGHT":
        node, joins = _turned(node, joins)
    scope.add(*_relation(context, node))
    return context, [_join(context, scope, j) for j in joins]


def with_queries(context: Context, tree: exp.Expr) -> Context:
    """The context with the queries of the tree's WITH, each of which knows those before it."""
    clause = tree.args.get("with_")
    if clause is None:
        return context
    only(clause, frozenset({"expressions"}), "WITH")
    for cte in clause.expressions:
        only(cte, frozenset({"this", "alias"}), "WITH")
        plan = _renamed(relation_plan(context.inner(), cte.this), cte.args["alias"])
        context = replace(context, named={**context.named, cte.alias.lower(): plan})
    return context


def _unwrapped(node: exp.Expr, joins: list[exp.Expr]) -> exp.Expr:
    """(a JOIN b ON …) JOIN c: the brackets change nothing when they come first."""
    while isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias:
        node = node.this
    joins[:0] = node.args.get("joins") or []
    return node


def _turned(node: exp.Expr, joins: list[exp.Expr]) -> tuple[exp.Expr, list[exp.Expr]]:
    """b RIGHT JOIN a   →   a LEFT JOIN b"""
    first = joins[0].copy()
    this = first.this
    first.set("this", node.copy())
    first.set("side", "LEFT")
    return this, [first, *joins[1:]]


# ------------------------------------------------------------------ one relation
def _relation(context: Context, node: exp.Expr) -> tuple[str, Mir]:
    """The alias and plan of a relation."""
    if isinstance(node, exp.Subquery):
        only(node, frozenset({"this", "alias"}), "FROM")
        if not isinstance(node.this, (exp.Select, exp.SetOperation)):
            raise refuse("joins in brackets", node, "write the joins without brackets, or as (SELECT …) AS t")
        if not node.alias:
            raise SqlError(1248, "42000", "Every derived table must have its own alias")
        return node.alias, _renamed(relation_plan(context.inner(), node.this), node.args["alias"])
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise refuse("this in FROM", node)
    only(node, _TABLE, "FROM")
    return node.alias_or_name, _named(context, node.name)


def _named(context: Context, name: str) -> Mir:
    """A query of WITH, a table, or a view by its plan without parameters: equal plans are shared."""
    if name.lower() in context.named:
        return context.named[name.lower()]
    table = context.catalog.table(name)
    if table is not None:
        return Base(table)
    view = context.catalog.view(name)
    if view is None:
        raise unknown_table(name)
    if view.limit is not None or view.offset or (view.asks is not None and (view.asks.limit or view.asks.offset)):
        raise SqlError(1235, "42000", f"Noria does not support reading the view '{name}' in FROM yet: it has a LIMIT, "
                                      "which applies to each lookup; select from what it selects from")
    if view.empty_row is not None or (view.after is not None and filter_of(view.after) is None):
        raise SqlError(1235, "42000", f"Noria does not support reading the view '{name}' in FROM yet: it aggregates "
                                      "for each parameter; give it a GROUP BY")
    if view.visible == view.plan.width:
        return view.plan
    shown = view.plan.fields[: view.visible]
    return Project(view.plan, tuple(Col(f.type, f.nullable, i) for i, f in enumerate(shown)),
                   tuple(f.name for f in shown))


def _renamed(plan: Mir, alias: exp.Expr) -> Mir:
    """(SELECT …) AS t (a, b)"""
    columns = [c.name for c in alias.args.get("columns") or []]
    names = columns or [f.name for f in plan.fields]
    if columns and len(columns) != plan.width:
        raise SqlError(1353, "HY000", f"'{alias.name}' names {len(columns)} columns and selects {plan.width}")
    seen: set[str] = set()
    for n in names:
        if n.lower() in seen:
            raise SqlError(1060, "42S21", f"Duplicate column name '{n}'")
        seen.add(n.lower())
    if not columns:
        return plan
    return Project(plan, tuple(Col(f.type, f.nullable, i) for i, f in enumerate(plan.fields)), tuple(names))


def relation_plan(context: Context, tree: exp.Expr) -> Mir:
    """A query within a query as a relation: its select list only; its order matters only below a LIMIT."""
    from noria.sql.queries import block_of, limits_of

    query = block_of(context, tree)
    plan = query.plan
    limit, offset = limits_of(context, query)
    if limit is not None or offset:
        context.only_batch("LIMIT in a derived table", tree, "use it in the outermost SELECT")
        plan = Limit(Sort(plan, query.order) if query.order else plan, limit, offset)
    return visible_only(plan, query.visible)


def visible_only(plan: Mir, visible: int) -> Mir:
    if visible == plan.width:
        return plan
    return Project(plan, tuple(Col(f.type, f.nullable, i) for i, f in enumerate(plan.fields[:visible])),
                   tuple(f.name for f in plan.fields[:visible]))


# ------------------------------------------------------------------ one join
def _join(context: Context, scope: Scope, node: exp.Expr) -> JoinSpec:
    only(node, _JOIN, "JOIN")
    side, kind, method = ((node.args.get(n) or "") for n in ("side", "kind", "method"))
    if side not in ("", "LEFT"):
        raise not_maintained(f"{side} JOIN", node, "turn it into a LEFT JOIN")
    if kind not in ("", "INNER", "CROSS", "OUTER", "STRAIGHT"):
        raise refuse(f"{kind} JOIN", node)
    if node.this.args.get("joins"):
        raise refuse("joins in brackets", node, "write the joins without brackets")
    before = list(scope.sources)
    source = scope.add(*_relation(context, node.this))
    source.outer = side == "LEFT"
    columns = [c.name for c in node.args.get("using") or []]
    if method == "NATURAL":
        columns = _common(before, source)
    on = [_using(scope, before, source, c) for c in columns]
    if node.args.get("on") is not None:
        resolve = Resolver(scope.resolve, context.parameter, "on clause")
        on += conjuncts(call("and", resolve(node.args["on"])))
    elif side == "LEFT" and not columns:
        raise parse_error(f"LEFT JOIN without ON or USING, near '{node.sql(dialect='mysql')}'")
    return JoinSpec(len(scope.sources) - 1, side == "LEFT", on, _refusal(context, node))


def _refusal(context: Context, node: exp.Expr) -> Callable[[str], Exception]:
    def refusal(what: str) -> Exception:
        if context.batch:
            return refuse(what, node)
        return not_maintained(what, node, "join on columns, and put other conditions into WHERE")

    return refusal


def _common(before: list[Source], source: Source) -> list[str]:
    """The columns of a NATURAL JOIN."""
    known = {f.name.lower() for s in before for f in s.plan.fields}
    return [f.name for f in source.plan.fields if f.name.lower() in known]


def _using(scope: Scope, before: list[Source], source: Source, name: str) -> Expr:
    position = next((i for i, f in enumerate(source.plan.fields) if f.name.lower() == name.lower()), None)
    known = Scope()
    known.sources = before
    left = known.resolve(name, "", "from clause")
    if position is None:
        raise unknown_column(name, "from clause")
    source.merged.add(position)
    return call("eq", left, source.column(position))
