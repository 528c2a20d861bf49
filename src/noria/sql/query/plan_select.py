"""Plans a query for its purpose.  Call `view_of` for CREATE VIEW, `select_of` for an ad-hoc SELECT and `batch_of` for
a query that Spark runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.errors.codes import STACK_OVERRUN_NEED_MORE, VIEW_SELECT_TMPTABLE
from noria.core.expressions.expr import col
from noria.core.limits import MAX_PLAN_DEPTH, MAX_PLAN_STEPS, TOP_ROWS
from noria.core.types import with_origins
from noria.plan.after import LookedUpRows, parameters_of, with_leaf
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.constant_row import has_given_rows
from noria.plan.lookups import Lookup, Parameter, Range, is_plain
from noria.plan.mir import Mir, Project, TopK
from noria.plan.optimizer import kept_top, optimize
from noria.plan.view import ParameterUses, ViewDef
from noria.sql.commands import BatchQuery, Select, as_batch
from noria.sql.query.conditions.parameters import INSTEAD
from noria.sql.query.fulltext import by_relevance
from noria.sql.query.parameterised_views import with_values
from noria.sql.query.relations.context import Catalog, Context, GivenCatalog
from noria.sql.query.relations.from_clause import names_of
from noria.sql.query.relations.limit_offset import count_of, limits_of, parameter_of
from noria.sql.query.relations.planned import PlannedQuery
from noria.sql.query.relations.scope import Scope
from noria.sql.query.results.origins import of_view
from noria.sql.query.select import plan_query
from noria.sql.query.set_operations import keyed_union, set_order, set_plan
from noria.sql.text.refusals import NotMaintained, NotMerged, not_maintained, refuse
from noria.sql.text.shape import shape_of
from noria.sql.text.syntax import Statement, check_parts, snippet


def view_of(statement: Statement, name: str, tree: exp.Expr, catalog: Catalog) -> ViewDef:
    """Plan CREATE VIEW: a view whose parameters are its key.  Raises NotMaintained if it cannot be maintained."""
    query = _plan(Context(catalog, block_of, "view"), tree)
    if has_given_rows(query.plan):
        raise SqlError(*VIEW_SELECT_TMPTABLE, "View's SELECT refers to a temporary table")
    keys = sorted(query.keys, key=lambda k: k.lookup.parameters)  # by ordinal: the order of the client's values
    limit, offset = parameter_of(query.limit), parameter_of(query.offset)
    lookups = tuple(k.lookup for k in keys)
    if _parameters(lookups, limit, offset, query) != set(range(statement.parameters)):
        raise not_maintained("a parameter here", tree, INSTEAD)
    if statement.internal and statement.parameters:
        what = "parameters in a feed" if statement.feed else "parameters in an internal view"
        raise refuse(what, tree, "" if statement.feed else "views that read it have parameters of their own")
    context = Context(catalog, block_of, "view")
    plain = is_plain(lookups) and len(lookups) == statement.parameters and query.after is None
    uses = None if plain else ParameterUses(lookups, limit, offset, _names(statement, query))
    view = ViewDef(name, query.plan, tuple(k.column for k in keys), query.visible, query.order,
                   None if limit else count_of(context, query.limit),
                   0 if offset else count_of(context, query.offset) or 0,
                   query.empty_row, statement.body, statement.internal, after=query.after, asks=uses,
                   ranged=_ranged(lookups))
    return _of_a_feed(kept_top(view), tree) if statement.feed else kept_top(view)


def _of_a_feed(view: ViewDef, tree: exp.Expr) -> ViewDef:
    """The view of a feed: all shown columns, without key and order.  Raises for a SELECT that a feed cannot record."""
    plan = view.plan
    top = isinstance(plan, TopK) and (plan.limit, view.offset) == (view.limit, 0)
    if view.after is not None or view.empty_row is not None or not (top or (view.limit is None and not view.offset)):
        what = "this SELECT" if view.limit is None else "this LIMIT"
        raise refuse(f"{what} in a feed", tree, f"a feed tells rows, or the first {TOP_ROWS} without OFFSET")
    if view.visible < plan.width:
        shown = [col(i, f.type, f.nullable) for i, f in enumerate(plan.fields[: view.visible])]
        plan = Project(plan, tuple(shown), tuple(f.name for f in plan.fields[: view.visible]))
    return replace(view, plan=plan, key=(), order=(), limit=None, feed=True, asks=None)


def _parameters(lookups: tuple[Lookup, ...], limit: Parameter | None, offset: Parameter | None, query: PlannedQuery
                ) -> set[int]:
    """The ordinals of the parameters that the query uses: in lookups, LIMIT, OFFSET or conditions after the lookup."""
    ends = [end for end in (limit, offset) if end is not None]
    return {i for a in (*lookups, *ends) for i in a.parameters} | parameters_of(query.after)


def _names(statement: Statement, query: PlannedQuery) -> tuple[str, ...]:
    """The parameters' names: the compared column, LIMIT, OFFSET, or `parameter n` for any other."""
    names = [f"parameter {i + 1}" for i in range(statement.parameters)]
    for key in query.keys:
        for i in key.lookup.parameters:
            names[i] = query.plan.fields[key.column].name
    for name, end in (("LIMIT", parameter_of(query.limit)), ("OFFSET", parameter_of(query.offset))):
        if end is not None:
            names[end.ordinal] = name
    return tuple(names)


def select_of(statement: Statement, tree: exp.Expr, catalog: Catalog,
              values: list[object] | None = None) -> Select:
    """Plan a client's SELECT: answered by a view if one can be maintained, else by Spark.

    `values`: the parameters' values.  With them, a parameter that no lookup can use is a constant of the view.
    """
    if isinstance(catalog, GivenCatalog):
        found = _select_of(statement, tree, catalog, values)
        plan = found.view.plan if found.view is not None else as_batch(found).plan
        return replace(found, once=has_given_rows(plan))
    return _select_of(statement, tree, catalog, values)


def _select_of(statement: Statement, tree: exp.Expr, catalog: Catalog, values: list[object] | None) -> Select:
    tree, shown = with_values(by_relevance(tree), catalog)
    try:
        found = _complete(statement, tree, catalog, values)
        if shown is None or found.view is None:
            return found
        return replace(found, view=replace(found.view, visible=shown), columns=found.columns[:shown])
    except NotMaintained as reason:
        return Select(None, batch=batch_of(tree, Context(catalog, block_of, "batch", values,
                                                            any_of_group=statement.any_of_group), reason.message))


def _complete(statement: Statement, tree: exp.Expr, catalog: Catalog, values: list[object] | None) -> Select:
    """Plan the SELECT as a view with keys; without any, if a lookup would not find complete groups."""
    try:
        return _adhoc(statement, tree, catalog, values=values)
    except NotMerged:
        if statement.parameters and values is None:
            raise
        return _adhoc(statement, tree, catalog, values=values, keyless=True)


def _adhoc(statement: Statement, tree: exp.Expr, catalog: Catalog, constant: bool = False,
           values: list[object] | None = None, keyless: bool = False) -> Select:
    selected = _selected_view(tree, catalog)
    if selected is not None:
        view = replace(selected, name="select", text=_shape_text(statement.text), adhoc=True, definition=0)
        names = names_of(Context(catalog, block_of, "adhoc"), tree.args["from_"].this)
        origins = tuple(of_view(names, f.name) for f in view.fields) if names else ()
        return Select(view, columns=with_origins(view.fields, origins))
    query = _plan(Context(catalog, block_of, "view" if keyless else "adhoc", values, constant=constant,
                          any_of_group=statement.any_of_group), tree, top=not (keyless and statement.parameters))
    found = sorted(query.keys, key=lambda k: k.column)  # a canonical order: equal queries find the same view
    lookups = tuple(k.lookup for k in found)
    limit, offset = parameter_of(query.limit), parameter_of(query.offset)
    if values is None and _parameters(lookups, limit, offset, query) != set(range(statement.parameters)):
        raise not_maintained("a parameter here", tree, INSTEAD)
    context = Context(catalog, block_of, "adhoc")
    view = ViewDef("select", query.plan, tuple(k.column for k in found), query.visible, query.order,
                   None if limit else count_of(context, query.limit),
                   0 if offset else count_of(context, query.offset) or 0,
                   query.empty_row, _shape_text(statement.text), adhoc=True, after=query.after,
                   ranged=_ranged(lookups))
    return Select(view, lookups, limit=limit, offset=offset, columns=with_origins(view.fields, query.origins),
                  instead=partial(_adhoc, statement, tree, catalog, True, values) if query.varied else None)


def _selected_view(tree: exp.Expr, catalog: Catalog) -> ViewDef | None:
    """The view v that answers `SELECT * FROM v` itself, with its order and LIMIT.  None for any other SELECT, or if v
    has parameters, is internal or is a feed."""
    if not isinstance(tree, exp.Select) or not _has_only(tree, "expressions", "from_", "kind"):
        return None
    items, source = tree.expressions, tree.args.get("from_")
    star = len(items) == 1 and isinstance(items[0], exp.Star) and _has_only(items[0])
    table = source.this if star and source is not None else None
    if not isinstance(table, exp.Table) or not _has_only(table, "this", "alias"):
        return None
    view = catalog.view(table.name) if catalog.table(table.name) is None else None
    plain = view is not None and not (view.key or view.asks is not None or view.internal or view.feed)
    return view if plain else None


def _has_only(node: exp.Expr, *names: str) -> bool:
    return not any(value for name, value in node.args.items() if name not in names)


def _ranged(lookups: tuple[Lookup, ...]) -> bool:
    return any(isinstance(a, Range) for a in lookups)


def _shape_text(text: str) -> str:
    """The text without literals: queries that differ only in literals have one view, so they share its text."""
    found = shape_of(text)
    return text if found is None else found[0]


def batch_of(tree: exp.Expr, context: Context, reason: str) -> BatchQuery:
    """Plan a query for Spark.  Its ORDER BY and LIMIT are part of the plan.  `reason`: why no view answers it."""
    query = _plan(context, tree)
    plan = Sort(query.plan, query.order) if query.order else query.plan
    limit, offset = limits_of(context, query)
    if limit is not None or offset:
        plan = Limit(plan, limit, offset)
    return BatchQuery(plan, query.visible, reason, with_origins(plan.fields[: query.visible], query.origins))


def _plan(context: Context, tree: exp.Expr, top: bool = True) -> PlannedQuery:
    query = block_of(context, tree, top)
    plan = optimize(query.plan)
    if plan.steps > MAX_PLAN_DEPTH and _depth(plan) > MAX_PLAN_DEPTH:
        raise SqlError(*STACK_OVERRUN_NEED_MORE,
                       f"Thread stack overrun: the plan is {_depth(plan)} steps deep, and at most "
                       f"{MAX_PLAN_DEPTH} are run; build on fewer views over each other")
    return replace(query, plan=plan, after=query.after and with_leaf(query.after, LookedUpRows(plan.fields)))


def _depth(plan: Mir) -> int:
    """The number of nodes on the longest path; iterative, because a plan can exceed Python's stack."""
    found: dict[int, int] = {}
    rest = [plan]
    while rest:
        node = rest[-1]
        missing = [i for i in node.inputs if id(i) not in found]
        if missing:
            rest += missing
        else:
            found[id(rest.pop())] = 1 + max((found[id(i)] for i in node.inputs), default=0)
    return found[id(plan)]


def block_of(context: Context, tree: exp.Expr, top: bool = False, outer: Scope | None = None) -> PlannedQuery:
    """Plan a SELECT or a set operation; also the `Planner` of queries within queries.

    Raises error 1436 beyond MAX_PLAN_STEPS: a plan doubles with each level of queries that name others twice.
    """
    query = _block_of(context, tree, top, outer)
    if query.plan.steps > MAX_PLAN_STEPS:
        raise SqlError(*STACK_OVERRUN_NEED_MORE,
                       f"Thread stack overrun: the plan has {query.plan.steps} steps, and at most "
                       f"{MAX_PLAN_STEPS} are run; name fewer queries more than once within each other")
    return query


def _block_of(context: Context, tree: exp.Expr, top: bool, outer: Scope | None) -> PlannedQuery:
    if isinstance(tree, exp.Subquery):
        check_parts(tree, frozenset({"this", "alias"}), "a SELECT in brackets")
        return block_of(context, tree.this, top, outer)
    if isinstance(tree, exp.SetOperation):
        keyed = keyed_union(context, tree) if top and not context.batch else None
        plan, keys, after = keyed or (set_plan(context.inner(), tree), (), None)
        shown = after or plan
        limit, offset = (tree.args.get(n) for n in ("limit", "offset"))
        return PlannedQuery(plan, shown.width, keys, set_order(tree, shown), limit and limit.expression,
                            offset and offset.expression, None, after)
    if not isinstance(tree, exp.Select):
        raise parse_error(f"near '{snippet(tree)}'")
    return plan_query(context, tree, top, outer)
