"""Plans one SELECT as MIR (§5.1): resolves its clauses in order, then builds the joins and assembles the plan.

    Project(Filter_having(Aggregate(Project?(joins and filters))))

Call `plan_query`.  Views, ad-hoc SELECTs, derived tables and Spark's queries are all made from its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sqlglot import exp

from noria.core.errors import SqlError, name_too_long, parse_error, too_many_columns, unknown_column
from noria.core.errors.codes import WINDOW_INVALID_WINDOW_FUNC_ALIAS_USE, WRONG_GROUP_FIELD
from noria.core.expressions.expr import Call, Col, Const, Expr, conjuncts
from noria.core.expressions.functions import call
from noria.core.limits import MAX_ALIAS_CHARS, MAX_COLUMNS
from noria.sql.expressions.leaves import columns_read, uses_aggregate
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.conditions.inner_queries import CORRELATED, add_domain, null_safe
from noria.sql.query.conditions.outer_columns import lend
from noria.sql.query.conditions.parameters import (
    has_parameter,
)
from noria.sql.query.conditions.subqueries import subquery
from noria.sql.query.conditions.where import conditions_after, resolve_where, resolver_of, terms_of
from noria.sql.query.fulltext import with_matches
from noria.sql.query.relations import from_clause as sources
from noria.sql.query.relations.block import Block, SelectItem
from noria.sql.query.relations.context import Context
from noria.sql.query.relations.joins import JoinBuilder
from noria.sql.query.relations.planned import PlannedQuery
from noria.sql.query.relations.scope import Scope
from noria.sql.query.results.assembly import assemble
from noria.sql.query.results.origins import origins_of
from noria.sql.query.results.rollup import default_order, is_rollup
from noria.sql.query.results.windows import windows_in
from noria.sql.text.refusals import not_maintained, refuse
from noria.sql.text.syntax import check_parts, snippet
from noria.sql.text.trees import aggregates, has

_CLAUSES = frozenset({"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
                      "distinct", "with_", "operation_modifiers", "kind", "windows"})
_HARMLESS = {"SQL_NO_CACHE", "SQL_CACHE", "SQL_BUFFER_RESULT", "SQL_SMALL_RESULT", "SQL_BIG_RESULT", "HIGH_PRIORITY",
             "STRAIGHT_JOIN", "ALL"}

NUMBERS = 1 << 20  # the most columns of a query: the numbers of an inner query's columns begin after them


def plan_query(context: Context, tree: exp.Select, top: bool = False, outer: Scope | None = None) -> PlannedQuery:
    """Plan one SELECT.  `top`: its parameters may become keys, in an ad-hoc context its literals too.  `outer`: the
    names of the outer query, for a subquery in an expression."""
    _check_clauses(tree)
    tree = with_matches(context, tree)
    top = top and not _is_beside_subquery(tree)
    scope = Scope(0 if outer is None else outer.start + NUMBERS)
    context, relations = sources.resolve_from(context, tree, scope, top, partial(_subqueries_of_on, tree, outer))
    block = Block(context, tree, scope, relations, outer, keys=list(relations.keys))
    lend(block)
    resolve_where(block, top)
    add_domain(block)
    _resolve_items(block)
    _resolve_groups(block)
    _resolve_having(block, top)
    _resolve_order(block)
    _check_outer(block)
    builder = JoinBuilder(relations, block.where, [b.column for b in block.bound if not null_safe(b)])
    query = assemble(block, builder.build())
    if top and outer is None:
        return replace(query, origins=origins_of(block))
    return query if outer is None else replace(query, outer_terms=tuple(block.outer_terms), single=_single(block))


def _is_beside_subquery(tree: exp.Select) -> bool:
    """Whether a subquery is beside an aggregate without GROUP BY.  Such a query has no keys: over no rows, it would
    still have to show the subquery's value."""
    if tree.args.get("group") is not None or not aggregates(tree):
        return False
    parts = [*tree.expressions, *(p for n in ("having", "order") if (p := tree.args.get(n)) is not None)]
    return any(has(e, exp.Query) for e in parts)


def _subqueries_of_on(tree: exp.Select, outer: Scope | None, context: Context, scope: Scope,
                      relations: sources.OnRelations) -> Callable[[Resolver, exp.Expr], Expr]:
    """Translate the subqueries of an ON, which sees these relations."""
    return partial(subquery, Block(context, tree, scope, relations, outer))


def _check_outer(block: Block) -> None:
    """Refuse outer columns outside the terms of WHERE that `correlation` or `add_domain` supports."""
    exprs = [*(i.expr for i in block.items), *block.groups, *block.having, *(e for e, _ in block.order),
             *block.where, *block.after]
    if any(c < block.scope.start for e in exprs for c in columns_read(e)):
        raise not_maintained("a subquery with the outer query's columns here", block.tree, CORRELATED)


def _single(block: Block) -> bool:
    """Whether the block has at most one row for one value of its keys and correlations."""
    fixed = [b.column for b in block.bound]
    equal = [t.args for t in block.where if isinstance(t, Call) and t.op == "eq"]
    fixed += [a for x, y in equal for a, b in ((x, y), (y, x)) if isinstance(b, Const)]
    if is_rollup(block.tree):
        return False
    if block.tree.args.get("group") is not None or any(uses_aggregate(i.expr) for i in block.items):
        return set(block.groups) <= set(fixed)
    known = block.scope.determined({c.index for c in fixed if isinstance(c, Col)})
    return all(s.offset in known for s in block.scope.sources) and all(
        c in known for s in block.scope.sources for c in range(s.offset, s.end))


def _check_clauses(tree: exp.Select) -> None:
    if not tree.expressions:
        raise parse_error("SELECT without anything to select")
    check_parts(tree, _CLAUSES | {"locks", "hint"}, "SELECT")  # a hint does not change the rows
    check_modifiers(tree)
    for name, known in (("distinct", ()), ("limit", ("expression",)), ("offset", ("expression",)), ("where", ("this",)),
                        ("having", ("this",)), ("order", ("expressions",))):
        if tree.args.get(name) is not None:
            check_parts(tree.args[name], frozenset(known), name.upper())
    if tree.args.get("locks"):
        raise refuse("FOR UPDATE and FOR SHARE in a subquery, a view or a UNION", tree,
                     "write them in a SELECT of their own")


def check_modifiers(tree: exp.Select) -> None:
    """Refuse words after SELECT that would change the answer."""
    for modifier in tree.args.get("operation_modifiers") or []:
        if modifier.name.upper() not in _HARMLESS:
            raise refuse(f"{modifier.name.upper()} within a query", tree, "it is a word of the outermost SELECT")


# ------------------------------------------------------------------ the clauses
def _resolve_items(block: Block) -> None:
    resolve = resolver_of(block, "field list", aggregates=True)
    for node in block.tree.expressions:
        if isinstance(node, exp.Star):
            check_parts(node, frozenset(), "SELECT *")
            block.items += [SelectItem(n, c) for n, c in block.scope.star()]
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            block.items += [SelectItem(n, c) for n, c in block.scope.star(node.table)]
        else:
            if isinstance(node, exp.Alias) and len(node.alias) > MAX_ALIAS_CHARS:
                raise name_too_long(node.alias)
            block.items.append(SelectItem(column_name(node), resolve(node)))
    if len(block.items) > MAX_COLUMNS:
        raise too_many_columns(MAX_COLUMNS)


def column_name(node: exp.Expr) -> str:
    """The name of a select item: its alias, its column, or the expression as written."""
    if isinstance(node, (exp.Alias, exp.Column)):
        return str(node.alias_or_name)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    return str(node.meta.get("text") or snippet(node))


def _position(block: Block, node: exp.Expr, clause: str) -> Expr | None:
    """The select item to which a number in GROUP BY or ORDER BY refers; None if the node is not a number."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        return None
    number = int(node.this)
    if not 1 <= number <= len(block.items):
        raise unknown_column(str(number), clause)
    return block.items[number - 1].expr


def _resolve_groups(block: Block) -> None:
    clause = block.tree.args.get("group")
    if clause is None:
        return
    check_parts(clause, frozenset({"expressions", "rollup"}), "GROUP BY")
    rollup = clause.args.get("rollup") or []
    if any(part.expressions for part in rollup):
        raise refuse("ROLLUP (…) in GROUP BY", block.tree, "write GROUP BY … WITH ROLLUP")
    resolve = resolver_of(block, "group statement")
    for node in clause.expressions:
        e = _position(block, node, "group statement")
        if e is None and isinstance(node, exp.Column) and not node.table and not block.scope.find(node.name):
            e = block.alias(node.name)
        e = resolve(node) if e is None else e
        if uses_aggregate(e):
            raise SqlError(*WRONG_GROUP_FIELD, f"Can't group on '{snippet(node)}'")
        if e not in block.groups:
            block.groups.append(e)
        elif rollup:
            raise refuse("an expression twice in GROUP BY … WITH ROLLUP", block.tree, "name it once")


def _resolve_having(block: Block, top: bool) -> None:
    having = block.tree.args.get("having")
    if having is None:
        return
    grouped = {block.scope.field(g.index).name.lower() for g in block.groups if isinstance(g, Col)}

    def column(name: str, table: str, clause: str) -> Expr:
        known = block.alias(name) if not table and name.lower() not in grouped else None
        return known if known is not None else block.scope.resolve(name, table, clause)

    resolve = resolver_of(block, "having clause", aggregates=True, column=column)
    for term in terms_of(having.this):
        parameters = top and not block.context.batch and has_parameter(term)
        after = conditions_after(block, resolve, term) if parameters else None
        if after is not None:
            block.after_having += after
        else:
            block.having += conjuncts(call("and", resolve(term)))
    if any(map(windows_in, block.having)):
        raise SqlError(*WINDOW_INVALID_WINDOW_FUNC_ALIAS_USE,
                       "You cannot use the alias of an expression containing a window function in "
                       "HAVING")


def _order_of_view(block: Block) -> list[tuple[Expr, bool]]:
    """The order of a SELECT without ORDER BY: that of the one view it reads, unless it groups the rows."""
    tree, sources = block.tree, block.scope.sources
    grouped = tree.args.get("group") or tree.args.get("distinct") or any(uses_aggregate(i.expr) for i in block.items)
    if block.outer is not None or grouped or len(sources) != 1 or block.having:
        return []
    return [(sources[0].column(at), descending) for at, descending in sources[0].order]


def _resolve_order(block: Block) -> None:
    order = block.tree.args.get("order")
    if order is None and is_rollup(block.tree):
        block.order = [] if block.tree.args.get("distinct") else default_order(block.groups)
        return
    if order is None:
        block.order = _order_of_view(block)
        return

    def column(name: str, table: str, clause: str) -> Expr:
        known = block.alias(name) if not table else None
        return known if known is not None else block.scope.resolve(name, table, clause)

    resolve = resolver_of(block, "order clause", aggregates=True, column=column)
    for node in order.expressions:
        check_parts(node, frozenset({"this", "desc", "nulls_first"}), "ORDER BY")
        e = _position(block, node.this, "order clause")
        e = resolve(node.this) if e is None else e
        if not isinstance(e, Const):
            block.order.append((e, bool(node.args.get("desc"))))
