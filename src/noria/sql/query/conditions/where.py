"""Resolves WHERE term by term, into filters, keys, conditions after the lookup, and correlations of a subquery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sqlglot import exp

from noria.core.expressions.expr import Expr, columns_of, conjuncts
from noria.core.expressions.functions import call
from noria.plan.keys import unique_keys
from noria.plan.lookups import Parameter
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.conditions.inner_queries import correlation
from noria.sql.query.conditions.parameters import (
    after_terms,
    as_parameters,
    has_parameter,
    key_term,
    literal_range,
    range_key,
)
from noria.sql.query.conditions.subqueries import holds, subquery
from noria.sql.query.relations.block import Block
from noria.sql.text.refusals import NotMaintained, not_maintained
from noria.sql.text.syntax import is_membership
from noria.sql.text.trees import aggregates as aggregating
from noria.sql.text.trees import has, nodes


def resolver_of(block: Block, clause: str, aggregates: bool = False,
                column: Callable[[str, str, str], Expr] | None = None) -> Resolver:
    """The resolver of the block's expressions.  Names refer to the block's columns, else to the outer query's."""
    return Resolver(column or block.column, block.context.parameter, clause, aggregates,
                    subquery=partial(subquery, block), identity=partial(_identity, block))


def _identity(block: Block, of_group: bool) -> list[Expr]:
    """The columns that tell a row of the block from others: a unique key of each relation, or all its columns.

    of_group: those that tell its group from others, if the block groups rows.
    """
    groups = block.tree.args.get("group")
    if of_group and (groups is not None or aggregating(block.tree)):
        resolve = replace(resolver_of(block, "group statement"), identity=None)
        return [] if groups is None else [resolve(n) for n in groups.expressions if not isinstance(n, exp.Literal)]
    out: list[Expr] = []
    for s in block.scope.sources:
        if s.determined_by is None:
            key = min(unique_keys(s.plan), key=len, default=range(s.plan.width))
            out += [s.column(c) for c in sorted(key)]
    return out


def terms_of(node: exp.Expr) -> list[exp.Expr]:
    """The conjuncts of a condition, in the written order."""
    if isinstance(node, exp.Paren):
        return terms_of(node.this)
    if isinstance(node, exp.And):
        return terms_of(node.this) + terms_of(node.expression)
    return [node]


def conditions_after(block: Block, resolve: Resolver, term: exp.Expr) -> list[Expr] | None:
    """Read a term with parameters as conditions over the rows of a lookup.  None if the values are known and the term
    cannot be such a condition: its parameters are then constants."""
    try:
        return after_terms(term, lambda p: replace(resolve, parameter=p))
    except NotMaintained:
        if block.context.values is None:
            raise
        return None


def resolve_where(block: Block, top: bool) -> None:
    """Resolve WHERE into the block.  `top`: terms with parameters may become keys or conditions after the lookup."""
    where = block.tree.args.get("where")
    if where is None:
        return
    resolve = resolver_of(block, "where clause")
    top = top and not block.context.batch
    for term in terms_of(where.this):
        if is_membership(term):
            block.where.append(holds(block, resolve, term, top))
            continue
        with_query = has(term, exp.Select)
        if top and with_query and has_parameter(term) and block.context.values is None:
            raise not_maintained("a parameter in a subquery here", term, "it may stand in IN (SELECT …) and EXISTS")
        key = key_term(term, resolve, block.context.mode == "adhoc") if top and not with_query else None
        if key is not None and any(c < block.scope.start for c in columns_of(key.column)):
            key = None
        if key is not None and key.lookup.several and not key.lookup.parameters and _unmergeable(block):
            key = None
        if key is not None and (isinstance(key.lookup, Parameter) or all(b.column != key.column for b in block.bound)):
            block.keys.append(key)
            continue
        if top and not with_query and literal_range(term, resolve) and _varying(block, term):
            term, values = as_parameters(term, len(block.literals))
            block.literals += values
        after = conditions_after(block, resolve, term) if top and not with_query and has_parameter(term) else None
        if after is not None:
            block.after += after
        else:
            _where_terms(block, conjuncts(call("and", resolve(term))))
    found = None if block.bound else range_key(block.after, dict(enumerate(block.literals)))
    if found is not None:
        block.keys, block.after = [found[0]], found[1]


def _where_terms(block: Block, terms: list[Expr]) -> None:
    """Add filters to the block: terms with both queries' columns as correlations, with outer columns
    alone as outer terms."""
    start = block.scope.start
    for term in terms:
        columns = columns_of(term)
        found = correlation(term, start) if columns and min(columns) < start else None
        if found is not None:
            block.correlations.append(found)
        elif columns and max(columns) < start:
            block.outer_terms.append(term)
        else:
            block.where.append(term)


def _varying(block: Block, term: exp.Expr) -> bool:
    """Whether the literals of a range become parameters, because the text may come again with other literals.  With a
    LIMIT, the first order column must be the range's, so that the lookup need not read all rows."""
    tree, context = block.tree, block.context
    if context.mode != "adhoc" or context.constant or block.outer is not None or _unmergeable(block):
        return False
    if any(tree.args.get(n) for n in ("group", "distinct")):
        return False
    if tree.args.get("limit") is not None:
        order = tree.args.get("order")
        first = order.expressions[0].this if order is not None else None
        if not isinstance(first, exp.Column) or first.name.lower() != term.this.name.lower():
            return False
    return not has_parameter(tree) and not any(has(item, exp.AggFunc) for item in tree.expressions)


def _unmergeable(block: Block) -> bool:
    """Whether the query has window functions or, without GROUP BY, GROUP_CONCAT or an aggregate of DISTINCT.

    Parts of these cannot be merged after a lookup of several keys, so such literals stay conditions of the view.
    """
    tree = block.tree
    if has(tree, exp.Window):
        return True
    if tree.args.get("group") is not None:
        return False
    found = [a for e in tree.expressions for a in nodes(e) if isinstance(a, exp.AggFunc)]
    return any(isinstance(a, exp.GroupConcat) or isinstance(a.this, exp.Distinct) for a in found)
