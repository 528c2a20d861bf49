"""SELECT SQL_CALC_FOUND_ROWS: the SELECT, and a second one that counts its rows without LIMIT.

    SELECT SQL_CALC_FOUND_ROWS id FROM t WHERE a = ? LIMIT 10            SELECT COUNT(*) FROM t WHERE a = ?
    SELECT SQL_CALC_FOUND_ROWS a, COUNT(*) FROM t GROUP BY a LIMIT 10    SELECT COUNT(*) FROM (SELECT …) AS counted

The session runs the second one only if the rows do not tell the number themselves.  Each of both is a SELECT as any
other: a view may answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from noria.sql.commands import Command, CountedSelect, Select
from noria.sql.text.refusals import refuse
from noria.sql.text.trees import aggregates, has, nodes

Planned = tuple[Command, Callable[[Sequence[Any]], Command]]
_WORD = "SQL_CALC_FOUND_ROWS"
_ENDS = ("order", "limit", "offset")


def counts(tree: exp.Select) -> bool:
    """Whether the SELECT has the word SQL_CALC_FOUND_ROWS."""
    return any(m.name.upper() == _WORD for m in tree.args.get("operation_modifiers") or [])


def without_count(tree: exp.Select) -> exp.Select:
    """The SELECT without the word."""
    bare = tree.copy()
    kept = [m for m in bare.args.get("operation_modifiers") or [] if m.name.upper() != _WORD]
    bare.set("operation_modifiers", kept or None)
    return bare


def counted(tree: exp.Select, plan: Callable[[exp.Select], Planned],
            plan_count: Callable[[exp.Select, int], Planned]) -> Planned:
    """Plan a SELECT with the word.  plan: plans the SELECT without it.  plan_count: plans one with so many parameters.
    """
    bare = without_count(tree)
    command, binder = plan(bare)
    if bare.args.get("limit") is None or not isinstance(command, Select):
        return command, binder
    counting = _counting(bare)
    places = [n for n in nodes(counting) if isinstance(n, exp.Placeholder)]
    used = sorted({int(p.this) for p in places})
    for place in places:
        place.set("this", str(used.index(int(place.this))))
    count, count_binder = plan_count(counting, len(used))

    def bound(values: Sequence[Any]) -> Command:
        select, number = binder(values), count_binder([values[i] for i in used])
        assert isinstance(select, Select) and isinstance(number, Select)
        return CountedSelect(select, number)

    assert isinstance(count, Select), "it has a FROM"
    return CountedSelect(command, count), bound


def _counting(tree: exp.Select) -> exp.Select:
    """SELECT COUNT(*) of the SELECT's rows without ORDER BY and LIMIT."""
    rows = tree.copy()
    for name in (*_ENDS, "operation_modifiers"):
        rows.set(name, None)
    count = exp.Count(this=exp.Star())
    grouped = any(rows.args.get(name) for name in ("group", "having", "distinct")) or aggregates(rows)
    if not grouped and not any(has(e, exp.Window) for e in rows.expressions):
        rows.set("expressions", [exp.alias_(count, "found_rows")])
        return rows
    if rows.args.get("distinct") and any(has(e, exp.Star) for e in rows.expressions):
        raise refuse(f"{_WORD} with DISTINCT and *", tree, "name the columns")
    items = [e for e in rows.expressions if isinstance(e, exp.Alias)] if not rows.args.get("distinct") else [
        exp.alias_(e.unalias(), f"column {i}", quoted=True) for i, e in enumerate(rows.expressions)]
    one = exp.Literal.number(1) if rows.args.get("group") or not aggregates(tree) else count.copy()
    rows.set("expressions", items or [exp.alias_(one, "one")])
    return exp.select(exp.alias_(count, "found_rows")).from_(exp.Subquery(
        this=rows, alias=exp.TableAlias(this=exp.to_identifier("counted"))))


__all__ = ["counted", "counts", "without_count"]
