"""Replaces VALUES ROW(…), … as a query by SELECTs without FROM.  Call `with_selects` on each parsed statement.

    VALUES ROW(1, 2), ROW(3, 4)          SELECT 1 AS column_0, 2 AS column_1 UNION ALL SELECT 3, 4
    FROM (VALUES ROW(1), ROW(2)) AS q    FROM (SELECT … UNION ALL SELECT …) AS q
    INSERT INTO t VALUES ROW(1, 2)       INSERT INTO t VALUES (1, 2)

Keeps true: the UNION ALL is balanced, so its depth is the logarithm of the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from noria.core.errors import parse_error, wrong_value_count
from noria.sql.text.comments import SHOWN

_ENDS = ("order", "limit", "offset")


def with_selects(tree: exp.Expr, nodes: Sequence[exp.Expr]) -> exp.Expr | None:
    """The tree without VALUES as a query; None if it has none.  nodes: all of them.  Raises error 1136 for rows of
    different lengths, 1064 for rows without ROW."""
    changed = None
    for values in [n for n in nodes if isinstance(n, exp.Values)]:
        if isinstance(values.parent, exp.Insert):
            _without_row(values)
            changed = changed or tree
            continue
        query = _query(values)
        changed = changed or tree
        if values is tree:
            changed = query
        elif isinstance(values.parent, exp.In):
            values.parent.set("expressions", None)
            values.parent.set("query", exp.Subquery(this=query))
        elif isinstance(values.parent, exp.From | exp.Join):
            values.replace(exp.Subquery(this=query, alias=values.args.get("alias")))
        else:
            values.replace(query)
    return changed


def _without_row(values: exp.Values) -> None:
    """ROW(1, 2) between the rows of an INSERT   →   (1, 2)"""
    for row in values.expressions:
        if (inner := _row(row)) is not None:
            row.set("expressions", inner)


def _row(node: exp.Expr) -> list[exp.Expr] | None:
    """The values of ROW(…); None for anything else."""
    inner = node.expressions[0] if isinstance(node, exp.Tuple) and len(node.expressions) == 1 else node
    if isinstance(inner, exp.Anonymous) and inner.name.upper() == "ROW":
        return list(inner.expressions)
    return None


def _query(values: exp.Values) -> exp.Query:
    rows = [_row(row) for row in values.expressions]
    widths = [0 if row is None else len(row) for row in rows]
    if 0 in widths:
        raise parse_error(f"each row of VALUES is ROW(…) with values, near '{values.sql(dialect='mysql')[:SHOWN]}'")
    for number, width in enumerate(widths, 1):
        if width != widths[0]:
            raise wrong_value_count(number)
    first = [exp.alias_(e, f"column_{i}", quoted=True) for i, e in enumerate(rows[0] or ())]
    arms: list[exp.Query] = [exp.Select(expressions=first), *(exp.Select(expressions=row) for row in rows[1:])]
    while len(arms) > 1:
        pairs: list[exp.Query] = [exp.Union(this=a, expression=b, distinct=False)
                                  for a, b in zip(arms[::2], arms[1::2], strict=False)]
        arms = pairs + arms[len(pairs) * 2:]
    for end in _ENDS:
        if values.args.get(end) is not None:
            arms[0].set(end, values.args[end])
    return arms[0]
