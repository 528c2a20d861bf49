"""Replaces subqueries without FROM in expressions by what they select.  Call `unfolded` on each parsed statement.

    a = (SELECT 1)                   a = (1)
    (SELECT a + 1 WHERE b)           CASE WHEN b THEN a + 1 END
    a IN (SELECT 1)                  a IN (1)                  so it can be a key of the lookup
    EXISTS (SELECT 1 WHERE b)        (b) IS TRUE
    a > ALL (SELECT b)               a > (b)
    FROM dual                        no FROM

Keeps true: a name in such a subquery can only be the outer query's, so it means the same outside.  Subqueries with
aggregates, windows, several columns or other clauses stay, and so do queries in FROM, WITH and set operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from noria.sql.text.trees import children

# Parents whose operand is a value, unless they are queries.
_OPERATORS = (exp.Alias, exp.Paren, exp.Tuple, exp.Case, exp.If, exp.Interval, exp.Select, exp.Where, exp.Having,
              exp.Ordered, exp.PropertyEQ, exp.Update, exp.Condition)
_QUERIES = (exp.SetOperation, exp.Subquery, exp.Exists, exp.In, exp.Any, exp.All)


def unfolded(tree: exp.Expr, nodes: Sequence[exp.Expr]) -> bool:
    """Rewrite the tree in place, innermost subqueries first.  Returns whether it has changed.  nodes: all of them, from
    the top."""
    selects = [n for n in nodes if isinstance(n, exp.Select) and _without_from(n)]
    changed = False
    for select in reversed(selects):
        if select is not tree and select.parent is not None and _is_constant(select):
            changed |= _unfold(select)
    return changed or bool(selects)


def _without_from(select: exp.Select) -> bool:
    """Whether the SELECT has no FROM.  FROM DUAL counts as none and is removed."""
    source = select.args.get("from_")
    if source is not None and not select.args.get("joins") and isinstance(source.this, exp.Table):
        name = source.this.this
        bare = not any(v for part, v in source.this.args.items() if part != "this")
        if bare and isinstance(name, exp.Identifier) and not name.quoted and name.name.lower() == "dual":
            select.set("from_", None)
    return select.args.get("from_") is None


def _is_constant(select: exp.Select) -> bool:
    """Whether the SELECT has one row of plain expressions, or none if its WHERE says so."""
    limit = select.args.get("limit")
    if limit is not None and not (isinstance(limit.expression, exp.Literal) and limit.expression.name.strip("0")):
        return False
    if any(value for name, value in select.args.items() if name not in ("expressions", "where", "limit", "distinct",
                                                                        "order")):
        return False
    return not any(_is_of_rows(e) for e in (*select.expressions, *_where(select)))


def _is_of_rows(node: exp.Expr) -> bool:
    """Whether the expression needs rows: `*`, an aggregate or a window function."""
    if isinstance(node, exp.Query):
        return False
    return isinstance(node, exp.Star | exp.AggFunc | exp.Window) or any(map(_is_of_rows, children(node)))


def _where(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    return [] if where is None else [where.this]


def _unfold(select: exp.Select) -> bool:
    """Replace the subquery of the SELECT; False if it is none in an expression."""
    condition = [exp.Is(this=exp.Paren(this=w), expression=exp.true()) for w in _where(select)]
    items = [e.unalias() for e in select.expressions]
    above = select.parent
    of = above if above is None or isinstance(above, exp.Any | exp.All) else above.parent
    compared = None if of is None else of.parent
    if isinstance(of, exp.Any | exp.All) and compared is not None and len(items) == 1:
        compared.set("expression", exp.Paren(this=items[0]))
        return not condition or _put(compared, _quantified(of, compared.copy(), condition[0]))
    if isinstance(above, exp.Exists):
        return _put(above, condition[0] if condition else exp.true())
    if not isinstance(above, exp.Subquery) or above.args.get("alias") is not None:
        return False
    outside = above.parent
    if isinstance(outside, exp.In) and outside.args.get("query") is above:
        value = exp.Tuple(expressions=items) if len(items) > 1 else items[0]
        found = exp.In(this=outside.this, expressions=[value])
        return _put(outside, exp.Paren(this=exp.And(this=condition[0], expression=found)) if condition else found)
    if not isinstance(outside, _OPERATORS) or isinstance(outside, _QUERIES) or len(items) > 1:
        return False
    value = exp.Case(ifs=[exp.If(this=condition[0], true=items[0])]) if condition else items[0]
    return _put(above, exp.Paren(this=value))


def _quantified(of: exp.Expr, compared: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """ALL is true over no row, ANY is false."""
    if isinstance(of, exp.All):
        return exp.Paren(this=exp.Or(this=exp.Not(this=exp.Paren(this=condition)), expression=compared))
    return exp.Paren(this=exp.And(this=condition, expression=compared))


def _put(place: exp.Expr, value: exp.Expr) -> bool:
    value.meta.update(place.meta)
    place.replace(value)
    return True
