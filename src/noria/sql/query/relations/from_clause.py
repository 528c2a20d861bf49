"""Resolves FROM: tables, views, derived tables and WITH, and how they join.

    JOIN … USING (c), NATURAL JOIN   →   equalities; the column of the right side merges into the left's
    b RIGHT JOIN a                   →   a LEFT JOIN b
    a JOIN (b LEFT JOIN c ON …)      →   the joins in brackets are planned by themselves

Call `resolve_from` for a block, `relation_plan` for a query within a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from noria.core.errors import SqlError, not_supported, parse_error, unknown_table
from noria.core.errors.codes import (
    DERIVED_MUST_HAVE_ALIAS,
    NOT_SUPPORTED_YET,
    TOO_MANY_TABLES,
    VIEW_WRONG_LIST,
)
from noria.core.expressions.expr import Col, Expr, columns_of, conjuncts, is_unrounded
from noria.core.expressions.functions import call, rounded
from noria.core.identifiers import refuse_repeated_columns
from noria.core.limits import MAX_TABLES, TOP_ROWS
from noria.core.types import TableDef
from noria.plan.after import filter_of
from noria.plan.columns import cols_of
from noria.plan.constant_row import one_row
from noria.plan.lookups import Key, Lookup
from noria.plan.mir import Base, Filter, Join, Mir, Project, TopK
from noria.plan.view import ViewDef
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.relations.context import Context, GivenCatalog
from noria.sql.query.relations.joins import JoinedPlan, QueryGraph, unit_of
from noria.sql.query.relations.limit_offset import limits_of
from noria.sql.query.relations.planned import PlannedQuery
from noria.sql.query.relations.scope import RelationNames, Scope, ScopeRelation
from noria.sql.text.databases import HOME
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts

_JOIN = frozenset({"this", "side", "kind", "on", "using", "method"})
_MADE_UP = re.compile(r"key\d+")  # the generated name of a key that is an expression (`assembly`)
_TABLE = frozenset({"this", "alias", "db", "catalog", "hints", "joins"})


SubqueriesOfOn = Callable[[Context, Scope, "OnRelations"], Callable[[Resolver, exp.Expr], Expr]]


def resolve_from(context: Context, tree: exp.Select, scope: Scope, top: bool, subqueries: SubqueriesOfOn
                 ) -> tuple[Context, QueryGraph]:
    """Fill the scope from FROM and its joins; return the context with the queries of WITH, and the relations.

    `top`: the keys of derived tables may become the block's own (`relations.keys`).  `subqueries`: translates those of
    an ON.
    """
    context = with_queries(context, tree)
    first = tree.args.get("from_")
    if first is None:
        return context, QueryGraph([unit_of(scope.unnamed(one_row()))], [])
    joins = tree.args.get("joins") or []
    if len(joins) >= MAX_TABLES:
        raise SqlError(*TOO_MANY_TABLES, f"Too many tables; MySQL can only use {MAX_TABLES} tables in a join")
    plain = not any(j.args.get("side") for j in joins)  # a NULL-extended row has no key
    return context, _joins(context, scope, first.this, joins, top and plain and not context.batch, subqueries)


def _joins(context: Context, scope: Scope, first: exp.Expr, joins: list[exp.Expr], top: bool,
           subqueries: SubqueriesOfOn) -> QueryGraph:
    keys: list[Key[Expr]] = []
    out = QueryGraph([_unit(context, scope, first, keys if top else None, subqueries)], [], keys)
    for before, node in enumerate(joins):
        if node.args.get("side") == "RIGHT" and any(_comma(j) for j in joins[:before]):
            raise refuse("a comma, or a JOIN without ON, before a RIGHT JOIN", node, "write CROSS JOIN")
        _join(context, scope, out, node, keys if top else None, subqueries)
    return out


def _comma(join: exp.Expr) -> bool:
    """Whether the join is a comma; `a JOIN b` without a condition has the same tree."""
    return not any(join.args.get(n) for n in ("kind", "side", "method", "on", "using"))


def _unit(context: Context, scope: Scope, node: exp.Expr, keys: list[Key[Expr]] | None, subqueries: SubqueriesOfOn
          ) -> JoinedPlan:
    """Plan one relation, or joins in brackets, whose ON sees only relations within the brackets.  `keys`: the list to
    which a derived table's keys are added."""
    inner = node
    while _is_bracket(inner) and not inner.args.get("joins"):
        inner = inner.this
    joins = inner.args.get("joins") or []
    if inner is node and not joins:
        alias, plan, found, hidden, order, named = _relation(context, node, keys is not None)
        source = scope.add(alias, plan, len(found) + hidden, order, named)
        source.named_as = names_of(context, node)
        if keys is not None:
            keys += [Key(by, source.column(plan.width - len(found) + i)) for i, by in enumerate(found)]
        return unit_of(source)
    within = Scope(scope.end)
    alone = inner.copy()
    alone.set("joins", None)
    bracketed = _joins(context, within, alone, joins, False, subqueries)
    scope.adopt(within)
    return bracketed.joined() if bracketed.joins else bracketed.units[0]


def names_of(context: Context, node: exp.Expr) -> RelationNames | None:
    """The names of a table or view of FROM; None for anything else."""
    if not isinstance(node, exp.Table) or node.name.lower() in context.named:
        return None
    if isinstance(context.catalog, GivenCatalog) and context.catalog.given(node.name) is not None:
        return None
    table = context.catalog.table(node.name)
    found = table or context.catalog.view(node.name)
    if found is None:
        return None
    database, alias = node.meta.get("database", HOME), node.alias_or_name
    name = found.name if database.lower() == HOME else found.name[len(database) + 1 :]
    if alias.lower() == node.name.lower():  # the catalog's name
        alias = node.meta.get("shown", alias)
    return RelationNames(database, name, alias, table is not None)


def _is_bracket(node: exp.Expr) -> bool:
    return isinstance(node, exp.Subquery) and isinstance(node.this, (exp.Table, exp.Subquery)) and not node.alias


def with_queries(context: Context, tree: exp.Expr) -> Context:
    """The context with the queries of the tree's WITH.  Each of them sees the ones before it."""
    clause = tree.args.get("with_")
    if clause is None:
        return context
    check_parts(clause, frozenset({"expressions"}), "WITH")
    for cte in clause.expressions:
        check_parts(cte, frozenset({"this", "alias"}), "WITH")
        plan = _renamed(relation_plan(context.inner(), cte.this), cte.args["alias"])
        context = replace(context, named={**context.named, cte.alias.lower(): plan})
    return context


# ------------------------------------------------------------------ one relation
_Order = tuple[tuple[int, bool], ...]


def _relation(context: Context, node: exp.Expr, top: bool
              ) -> tuple[str, Mir, list[Lookup], int, _Order, tuple[int, ...]]:
    """Plan a relation.  Returns its alias and plan, the lookups of its last columns, the number of further hidden
    columns, and a view's order and hidden keys."""
    if isinstance(node, exp.Subquery):
        check_parts(node, frozenset({"this", "alias"}), "FROM")
        if not isinstance(node.this, (exp.Select, exp.SetOperation)):
            raise refuse("joins in brackets", node, "write the joins without brackets, or as (SELECT …) AS t")
        if not node.alias:
            raise SqlError(*DERIVED_MUST_HAVE_ALIAS, "Every derived table must have its own alias")
        plan, keys = _derived(context, node.this) if top else (relation_plan(context.inner(), node.this), [])
        return node.alias, _renamed(_rounded(plan), node.args["alias"], len(keys)), keys, 0, (), ()
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise refuse("this in FROM", node)
    check_parts(node, _TABLE, "FROM")
    plan, hidden, order, named = _named(context, node.name)
    return node.alias_or_name, _rounded(plan), [], hidden, order, named


def _rounded(plan: Mir) -> Mir:
    """Round what a query of groups has computed to the digits of its types, as MySQL does by storing its rows."""
    if not isinstance(plan, Project) or not any(map(is_unrounded, plan.exprs)):
        return plan
    below = plan.input
    while isinstance(below, Filter | Project):
        below = below.input
    if isinstance(below, Base | Join):
        return plan  # MySQL computes it within the outer query, with all digits
    return Project(plan.input, tuple(map(rounded, plan.exprs)), plan.names)


def _derived(context: Context, tree: exp.Expr) -> tuple[Mir, list[Lookup]]:
    """Plan a derived table, with its keys as last columns if the outer query can be looked up by them.  Its LIMIT then
    applies to each key."""
    query = context.query(tree, top=True)
    known = all(end is None or isinstance(end, exp.Literal) for end in (query.limit, query.offset))
    plain = query.after is None and query.empty_row is None and known
    if not plain or not query.keys or any(k.lookup.several for k in query.keys):
        return relation_plan(context.inner(), tree), []
    limit, offset = limits_of(context, query)
    if limit is not None:
        query = replace(query, plan=_first(context, tree, query, limit, offset, tuple(k.column for k in query.keys)))
    shown = [*range(query.visible), *(k.column for k in query.keys)]
    fields = [query.plan.fields[c] for c in shown]
    plan = Project(query.plan, tuple(Col(f.type, f.nullable, c) for c, f in zip(shown, fields, strict=True)),
                   tuple(f.name for f in fields))
    return plan, [k.lookup for k in query.keys]


def _shown(table: TableDef) -> Mir:
    """The table's columns that exist and are shown, in the table's order."""
    base = Base(table)
    if table.shown == tuple(range(base.width)):
        return base
    fields = [base.fields[c] for c in table.shown]
    return Project(base, tuple(Col(f.type, f.nullable, c) for c, f in zip(table.shown, fields, strict=True)),
                   tuple(f.name for f in fields))


def _named(context: Context, name: str) -> tuple[Mir, int, _Order, tuple[int, ...]]:
    """The plan of a query of WITH, a table or a view; equal plans are shared.

    A view's key and order columns that it does not show come last and are hidden.  Returns the plan, the number of
    hidden columns, the view's order, and the positions of hidden keys that conditions may name.
    """
    if name.lower() in context.named:
        return context.named[name.lower()], 0, (), ()
    if isinstance(context.catalog, GivenCatalog) and (given := context.catalog.given(name)) is not None:
        return given, 0, (), ()
    table = context.catalog.table(name)
    if table is not None:
        return _shown(table), 0, (), ()
    view = context.catalog.view(name)
    if view is None:
        raise unknown_table(name)
    if (why := unreadable(view)) is not None:
        raise SqlError(*NOT_SUPPORTED_YET, f"Noria does not support reading the view '{name}' in FROM yet: {why}")
    plan = view.plan
    if isinstance(plan, TopK) and view.limit is not None:  # the rows that a lookup of one key shows
        plan = TopK(plan.input, plan.group, plan.order, view.limit, view.offset)
    order = () if view.after is not None else view.order  # a filter: its columns are the plan's
    keys = [k for k in view.key if k >= view.visible]
    more = [*dict.fromkeys((*keys, *(c for c, _ in order if c >= view.visible)))]
    place = {c: i for i, c in enumerate((*range(view.visible), *more))}
    return (_chosen(plan, tuple(place)), len(more), tuple((place[c], descending) for c, descending in order),
            tuple(place[k] for k in keys if can_be_named(view, k)))


def unreadable(view: ViewDef) -> str | None:
    """Why a view cannot be read in FROM and what to do instead; None if it can."""
    top = isinstance(view.plan, TopK) and view.limit is not None
    ends = view.limit is not None or view.offset or (view.asks is not None and (view.asks.limit or view.asks.offset))
    alone = "select from it alone, with a value for each parameter"
    if ends and not top:
        return f"it has a LIMIT, which applies to each lookup; {alone}, or from what it selects from"
    if view.empty_row is not None or (view.after is not None and filter_of(view.after) is None):
        return f"it aggregates for each parameter; {alone}, or give it a GROUP BY"
    return None


def can_be_named(view: ViewDef, key: int) -> bool:
    """Whether conditions of queries over the view may name this hidden key: its name is not generated, and unique."""
    name = view.plan.fields[key].name.lower()
    others = [f.name.lower() for f in (*view.fields, *(view.plan.fields[k] for k in view.key if k != key))]
    return _MADE_UP.fullmatch(name) is None and name not in others


def _chosen(plan: Mir, columns: tuple[int, ...]) -> Mir:
    if columns == tuple(range(plan.width)):
        return plan
    fields = [plan.fields[c] for c in columns]
    return Project(plan, tuple(Col(f.type, f.nullable, c) for c, f in zip(columns, fields, strict=True)),
                   tuple(f.name for f in fields))


def _renamed(plan: Mir, alias: exp.Expr, hidden: int = 0) -> Mir:
    """The plan with the column names of `(SELECT …) AS t (a, b)`; `hidden` last columns keep theirs."""
    columns = [c.name for c in alias.args.get("columns") or []]
    width = plan.width - hidden
    names = columns or [f.name for f in plan.fields[:width]]
    if columns and len(columns) != width:
        raise SqlError(*VIEW_WRONG_LIST, f"'{alias.name}' names {len(columns)} columns and selects {width}")
    refuse_repeated_columns(names)
    if not columns:
        return plan
    names += [f.name for f in plan.fields[width:]]
    return Project(plan, cols_of(plan), tuple(names))


def relation_plan(context: Context, tree: exp.Expr) -> Mir:
    """Plan a query within a query as a relation of its select list.  Its order matters only below a LIMIT."""
    query = context.query(tree)
    plan = query.plan
    limit, offset = limits_of(context, query)
    if limit is not None:
        plan = _first(context, tree, query, limit, offset, ())
    return visible_only(plan, query.visible)


def _first(context: Context, tree: exp.Expr, query: PlannedQuery, limit: int, offset: int,
           group: tuple[int, ...]) -> Mir:
    """Keep the rows of each group that LIMIT and OFFSET leave."""
    if limit + offset > TOP_ROWS:
        context.only_batch(f"a LIMIT of more than {TOP_ROWS} rows in a derived table", tree, "leave it out")
    return TopK(query.plan, group, query.order, limit, offset)


def visible_only(plan: Mir, visible: int) -> Mir:
    if visible == plan.width:
        return plan
    return Project(plan, cols_of(plan)[:visible],
                   tuple(f.name for f in plan.fields[:visible]))


# ------------------------------------------------------------------ one join
@dataclass
class OnRelations:
    """The relations to which the subqueries of an ON are joined: the left or the right side, whichever has the columns
    that a subquery compares."""

    left: QueryGraph
    right: QueryGraph

    def join(self, unit: JoinedPlan, left: bool, on: list[Expr]) -> None:
        outside = frozenset[int]().union(*map(columns_of, on)) - unit.positions.keys()
        for side in (self.left, self.right):
            if outside <= frozenset[int]().union(*(u.positions for u in side.units)):
                side.join(unit, left, on)
                return
        raise not_supported("a subquery in ON that compares columns of both sides", "write it in WHERE")


def _join(context: Context, scope: Scope, out: QueryGraph, node: exp.Expr, keys: list[Key[Expr]] | None,
          subqueries: SubqueriesOfOn) -> None:
    """Add one join.  a RIGHT JOIN b   →   b LEFT JOIN (a): the relations before it become one unit."""
    check_parts(node, _JOIN, "JOIN")
    side, kind, method = ((node.args.get(n) or "") for n in ("side", "kind", "method"))
    if side not in ("", "LEFT", "RIGHT"):
        raise refuse(f"{side} JOIN", node, "turn it into a LEFT JOIN")
    if kind not in ("", "INNER", "CROSS", "OUTER", "STRAIGHT", "STRAIGHT_JOIN"):
        raise refuse(f"{kind} JOIN", node)
    before = len(scope.sources)
    unit = _unit(context, scope, node.this, keys, subqueries)
    left, right = scope.sources[:before], scope.sources[before:]
    columns = [c.name for c in node.args.get("using") or []]
    if method == "NATURAL":
        columns = _common(left, right)
    on = _using(scope, left, right, columns, side == "RIGHT")
    if node.args.get("on") is not None:
        sides = OnRelations(out, QueryGraph([unit], []))
        resolve = Resolver(scope.resolve, context.parameter, "on clause", subquery=subqueries(context, scope, sides))
        on += conjuncts(call("and", resolve(node.args["on"])))
        unit = sides.right.joined() if sides.right.joins else unit
    elif side and not columns and method != "NATURAL":
        raise parse_error(f"{side} JOIN without ON or USING, near '{node.sql(dialect='mysql')}'")
    for s in {"LEFT": right, "RIGHT": left}.get(side, ()):
        s.outer = True
    if side == "RIGHT":
        so_far = out.joined()
        out.units, out.joins = [unit], []
        unit = so_far
    out.join(unit, bool(side), on)


def _names(sources: list[ScopeRelation]) -> list[str]:
    return [f.name for s in sources for i, f in enumerate(s.fields) if i not in s.merged]


def _common(left: list[ScopeRelation], right: list[ScopeRelation]) -> list[str]:
    """The column names that both sides of a NATURAL JOIN have."""
    known = {n.lower() for n in _names(right)}
    return [n for n in _names(left) if n.lower() in known]


def _using(scope: Scope, left: list[ScopeRelation], right: list[ScopeRelation], names: list[str],
           from_right: bool) -> list[Expr]:
    """The equalities of USING.  The left column of each pair stays; in a RIGHT JOIN the right one does."""
    sides = []
    for sources in (left, right):
        known = Scope()
        known.sources = sources
        sides.append([known.resolve(n, "", "from clause") for n in names])
    pairs = list(zip(*sides, strict=True))
    if from_right and pairs:
        scope.merge([(b, a) for a, b in pairs], right[0].offset)
    else:
        scope.merge(pairs)
    return [call("eq", a, b) for a, b in pairs]
