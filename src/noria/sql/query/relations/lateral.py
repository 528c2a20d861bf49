"""Rewrites LATERAL derived tables to joins, which views can maintain.  Call `joined` on each qualified statement.

    FROM p, LATERAL (SELECT MAX(n) AS m FROM c WHERE c.parent = p.id) q
        FROM p LEFT JOIN (SELECT MAX(n) AS m, c.parent AS k FROM c GROUP BY c.parent) q ON q.k = p.id
    FROM p JOIN LATERAL (SELECT n FROM c WHERE c.parent = p.id ORDER BY n DESC LIMIT 3) q ON TRUE
        FROM p JOIN (SELECT n, c.parent AS k, ROW_NUMBER() OVER (PARTITION BY c.parent ORDER BY n DESC) AS r FROM c) q
               ON q.k = p.id AND q.r <= 3

Keeps true: the derived table compares its columns with outer ones by `=` only, in the terms of its WHERE.  Any other
use of outer columns is refused, and so is `*`, which would show the added columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from noria.sql.text.refusals import refuse
from noria.sql.text.trees import aggregates, nodes

_WHAT = "this LATERAL"
_NULL_OVER_NONE = (exp.Sum, exp.Min, exp.Max, exp.Avg, exp.GroupConcat)
_KEY, _ROW = "lateral key {}", "lateral row"


def joined(tree: exp.Expr) -> bool:
    """Rewrite the tree in place, innermost queries first.  Returns whether it has changed."""
    found = [n for n in nodes(tree) if isinstance(n, exp.Lateral)]
    for lateral in reversed(found):
        _rewrite(lateral)
    return bool(found)


def _rewrite(lateral: exp.Lateral) -> None:
    join, select = lateral.parent, lateral.this.this if isinstance(lateral.this, exp.Subquery) else None
    if not isinstance(join, exp.Join) or not isinstance(select, exp.Select):
        raise refuse(_WHAT, lateral, "it follows another table of FROM, and holds one SELECT")
    block = join.parent
    assert isinstance(block, exp.Select), "joins are those of a SELECT"
    if join.args.get("side") not in (None, "", "LEFT") or join.args.get("using") or join.args.get("method"):
        raise refuse(_WHAT, lateral, "write JOIN, LEFT JOIN or a comma before it, and ON")
    alias = lateral.alias
    if any(isinstance(n, exp.Star) and (not isinstance(n.parent, exp.Column) or n.parent.table.lower() == alias.lower())
           for item in block.expressions for n in nodes(item) if not isinstance(n.parent, exp.Count)):
        raise refuse("* of a SELECT with LATERAL", block, "name the columns")
    inner = _aliases(select)
    keys, rest = _terms(select, inner, lateral)
    _check_rest(select, rest, inner, lateral)
    select.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)
    columns = lateral.args["alias"].args.get("columns") or []
    single = aggregates(select) and select.args.get("group") is None
    if single:
        _check_single(select, lateral)
    on: list[exp.Expr] = [exp.EQ(this=_column(alias, _KEY.format(n)), expression=outer)
                          for n, (_, outer) in enumerate(keys)]
    partition = [own.copy() for own, _ in keys]
    if select.args.get("group") is not None or (single and keys):
        group = select.args.get("group") or exp.Group(expressions=[])
        group.set("expressions", [*group.expressions, *(p.copy() for p in partition)])
        select.set("group", group)
    if not (single and not keys):
        on += _first_rows(select, partition, alias, lateral)
    added = [exp.alias_(own.copy(), _KEY.format(n), quoted=True) for n, (own, _) in enumerate(keys)]
    select.set("expressions", [*select.expressions[: len(select.expressions) - (_has_row(select))], *added,
                               *select.expressions[len(select.expressions) - (_has_row(select)):]])
    if columns:
        names = [*columns, *(exp.to_identifier(a.alias, quoted=True) for a in added)]
        names += [exp.to_identifier(_ROW, quoted=True)] * _has_row(select)
        lateral.args["alias"].set("columns", names)
    written = join.args.get("on")
    if single and keys and not join.args.get("side") and written is not None and not _is_true(written):
        raise refuse("ON of an aggregate in LATERAL", lateral, "write the condition in WHERE")
    terms = [*on, *([written] if written is not None and not _is_true(written) else [])]
    if single and keys:
        join.set("side", "LEFT")  # an aggregate without groups has a row always
    join.set("kind", None)
    join.set("on", exp.and_(*terms, copy=False) if terms else exp.true() if join.args.get("side") else None)
    if not terms and not join.args.get("side"):
        join.set("kind", "CROSS")
    lateral.replace(exp.Subquery(this=select, alias=lateral.args["alias"]))


def _column(table: str, name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(table, quoted=True))


def _aliases(select: exp.Select) -> set[str]:
    source = select.args.get("from_")
    every = [] if source is None else [source.this, *(j.this for j in select.args.get("joins") or ())]
    return {s.alias_or_name.lower() for s in every}


def _terms(select: exp.Select, inner: set[str], lateral: exp.Lateral
           ) -> tuple[list[tuple[exp.Column, exp.Column]], list[exp.Expr]]:
    """The equalities with outer columns, as (own, outer), and the other terms of WHERE."""
    where = select.args.get("where")
    keys: list[tuple[exp.Column, exp.Column]] = []
    rest: list[exp.Expr] = []
    for term in [] if where is None else _conjuncts(where.this):
        a, b = (term.this, term.expression) if isinstance(term, exp.EQ) else (None, None)
        if isinstance(a, exp.Column) and isinstance(b, exp.Column):
            if a.table and a.table.lower() not in inner:
                a, b = b, a
            if b.table and b.table.lower() not in inner and (not a.table or a.table.lower() in inner):
                keys.append((a, b))
                continue
        rest.append(term)
    return keys, rest


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Paren):
        return _conjuncts(node.this)
    return _conjuncts(node.this) + _conjuncts(node.expression) if isinstance(node, exp.And) else [node]


def _check_rest(select: exp.Select, rest: Sequence[exp.Expr], inner: set[str], lateral: exp.Lateral) -> None:
    """Refuse outer columns outside of the equalities.  Subqueries have names of their own."""
    parts = [*rest, *select.expressions, *(p for n in ("group", "having", "order", "joins", "from_")
                                          if (p := select.args.get(n)) is not None and isinstance(p, exp.Expr))]
    parts += select.args.get("joins") or []
    for part in parts:
        own = inner | {n.alias_or_name.lower() for n in nodes(part) if isinstance(n, exp.Table | exp.Subquery)}
        for column in nodes(part):
            if isinstance(column, exp.Column) and column.table and column.table.lower() not in own:
                raise refuse(f"'{column.table}.{column.name}' here in LATERAL", lateral,
                             "compare outer columns by = in its WHERE")


def _check_single(select: exp.Select, lateral: exp.Lateral) -> None:
    """Refuse what would differ over no rows, where the rewritten join has NULL."""
    if any(isinstance(n, exp.Count) for item in select.expressions for n in nodes(item)):
        raise refuse("COUNT without GROUP BY in LATERAL", lateral, "write a subquery in place of the value")
    if any(select.args.get(name) for name in ("having", "limit", "offset")):
        raise refuse("HAVING or LIMIT of an aggregate in LATERAL", lateral, "leave it out")
    if any(not isinstance(e.unalias(), _NULL_OVER_NONE) for e in select.expressions):
        raise refuse("this aggregate without GROUP BY in LATERAL", lateral,
                     "SUM, MIN, MAX, AVG and GROUP_CONCAT may stand there; compute further outside")


def _first_rows(select: exp.Select, partition: Sequence[exp.Expr], alias: str, lateral: exp.Lateral) -> list[exp.Expr]:
    """The conditions that keep the rows of LIMIT for each outer row."""
    limit, offset = select.args.get("limit"), select.args.get("offset")
    if limit is None and offset is None:
        select.set("order", None)
        return []
    ends = [end.expression for end in (limit, offset) if end is not None]
    if any(not isinstance(end, exp.Literal) for end in ends) or select.args.get("distinct") or limit is None:
        raise refuse("this LIMIT in LATERAL", lateral, "give a number, and leave DISTINCT out")
    order = select.args.get("order")
    number = exp.Window(this=exp.RowNumber(), partition_by=[p.copy() for p in partition], over="OVER",
                        order=None if order is None else order.copy())
    select.append("expressions", exp.alias_(number, _ROW, quoted=True))
    for name in ("order", "limit", "offset"):
        select.set(name, None)
    skipped = 0 if offset is None else int(offset.expression.this)
    conditions: list[exp.Expr] = [exp.LTE(this=_column(alias, _ROW), expression=exp.Literal.number(
        int(limit.expression.this) + skipped))]
    if skipped:
        conditions.append(exp.GT(this=_column(alias, _ROW), expression=exp.Literal.number(skipped)))
    return conditions


def _has_row(select: exp.Select) -> int:
    return int(bool(select.expressions) and select.expressions[-1].alias == _ROW)


def _is_true(node: exp.Expr) -> bool:
    return (isinstance(node, exp.Boolean) and bool(node.this)) or (isinstance(node, exp.Literal) and node.this == "1")


__all__ = ["joined"]
