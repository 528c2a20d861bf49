"""Lends columns of an outer query to a subquery that uses them elsewhere than in the terms of its WHERE.

    (SELECT SUM(u.b > t.x) FROM u WHERE u.a = t.a)
        the block joins the distinct values (a, x) of t, and resolves the names to these; so only they are correlations
    … WHERE EXISTS (SELECT 1 FROM u WHERE u.a IN (SELECT v.a FROM v WHERE v.b = t.x))
        the block of u joins the distinct values x of t: the innermost query's outer query then has the column

Keeps true: no join NULL-extends the lent columns.  The outer query's own or lent columns are lent.  Only qualified
names are lent; errors report the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from noria.core.expressions.expr import Col
from noria.sql.query.conditions.inner_queries import join_domains
from noria.sql.query.relations.block import Block
from noria.sql.query.relations.scope import Scope
from noria.sql.text.trees import children

_OUTSIDE = ("from_", "joins")  # their derived tables do not know the outer query


def lend(block: Block) -> None:
    """Join the distinct values of the outer columns to the block, if it needs more than correlations."""
    outer = block.outer
    if outer is None:
        return
    free = list(_free(block.tree, frozenset()))
    if not any(needs for _, needs in free):
        return
    names = dict.fromkeys((n.table.lower(), n.name.lower()) for n, _ in free)
    known = {name: c for name in names if (c := _column(outer, *name)) is not None}
    own = join_domains(block, outer, {c.index for c in known.values()}) if known else None
    if own is not None:
        block.scope.lent = {name: own[c.index] for name, c in known.items()}


def _column(outer: Scope, table: str, name: str) -> Col | None:
    """The outer query's column, its own or a lent one."""
    found = outer.find(name, table)
    return found[0] if len(found) == 1 else outer.lent.get((table, name))


def _free(query: exp.Expr, bound: frozenset[str]) -> Iterator[tuple[exp.Column, bool]]:
    """The qualified columns of a query whose tables are not its own, and whether each needs more than a correlation.

    One in a query within this one does, and one elsewhere than in WHERE."""
    if not isinstance(query, exp.Select):
        for part in children(query):
            if isinstance(part, exp.Query):
                yield from _free(part.unnest(), bound)
        return
    own = bound | {t.lower() for t in _aliases(query)}
    for name, part in query.args.items():
        if name not in _OUTSIDE:
            for node in part if isinstance(part, list) else [part]:
                if isinstance(node, exp.Expr):
                    yield from _names(node, own, name != "where")


def _names(node: exp.Expr, own: frozenset[str], needs: bool) -> Iterator[tuple[exp.Column, bool]]:
    if isinstance(node, exp.Select | exp.SetOperation):
        yield from ((n, True) for n, _ in _free(node, own))
    elif isinstance(node, exp.Column):
        if node.table and node.table.lower() not in own:
            yield node, needs
    else:
        for child in children(node):
            yield from _names(child, own, needs)


def _aliases(select: exp.Select) -> list[str]:
    source = select.args.get("from_")
    every = [] if source is None else [source.this, *(j.this for j in select.args.get("joins") or ())]
    return [n.alias_or_name for s in every for n in (s.find_all(exp.Table, exp.Subquery) if isinstance(
        s, exp.Paren) else [s])]
