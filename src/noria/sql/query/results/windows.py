"""Plans window functions: OVER (…) as Window nodes above a block's joins or grouping.

    SELECT id, RANK() OVER (PARTITION BY a ORDER BY b) FROM t WHERE c = ?
        window rank() by a, c order b (t), looked up by c

Keeps true: the partition includes the keys of the lookup, because a window is over the rows that WHERE leaves, and
these have one key.  A Window's input has only the columns that the query reads, so that visible columns break the ties
of ROW_NUMBER.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noria.core.expressions.expr import Call, Col, Expr, is_unrounded
from noria.core.expressions.functions import literal, with_arguments, with_each_argument
from noria.core.ranking import Order
from noria.plan.mir import Mir, Project, Window, over
from noria.sql.expressions.leaves import OverCall, parts_of


def windows_in(e: Expr) -> list[OverCall]:
    return [e] if isinstance(e, OverCall) else [c for a in parts_of(e) for c in windows_in(a)]


def with_windows(plan: Mir, rewrite: Callable[[Expr], Expr], shown: Sequence[Expr], keys: Sequence[Expr]
                 ) -> tuple[Mir, Callable[[Expr], Expr]]:
    """Add the window functions of the shown expressions to the plan.  Returns the plan and a function that rewrites
    expressions over it.  `rewrite`: rewrites expressions over the plan without them."""
    wanted = [_mapped(e, rewrite) for e in shown]
    fixed = [rewrite(k) for k in keys]
    calls = list(dict.fromkeys(c for e in wanted for c in windows_in(e)))
    parts = list(dict.fromkeys([*fixed, *(p for c in calls for p in c.parts)]))
    columns = {c.index: c for e in [*wanted, *parts] for c in _columns(e)}
    inputs: list[Expr] = [columns[i] for i in sorted(columns)]
    inputs += sorted((p for p in parts if not isinstance(p, Col)), key=str)
    inputs = inputs or [literal(1)]
    names = tuple(plan.fields[e.index].name if isinstance(e, Col) else str(e) for e in inputs)
    out: Mir = Project(plan, tuple(inputs), names)
    at: dict[Expr, int] = {e: i for i, e in enumerate(inputs)}
    for same in _alike(calls):
        first, width = same[0], out.width
        partition = tuple(dict.fromkeys(at[e] for e in [*first.partition, *fixed]))
        order: Order = tuple((at[e], d) for e, d in first.order)
        made = tuple(over(c.function, None if c.argument is None else at[c.argument], out.fields, c.frame, c.by)
                     for c in same)
        out = Window(out, tuple(sorted(partition)), order, made, tuple(map(str, made)))
        at.update((c, width + i) for i, c in enumerate(same))

    def final(e: Expr) -> Expr:
        if e in at and not is_unrounded(e):
            f = out.fields[at[e]]
            return Col(f.type, f.nullable, at[e])
        return with_each_argument(e, final)

    return out, lambda e: final(_mapped(e, rewrite))


def _alike(calls: Sequence[OverCall]) -> list[list[OverCall]]:
    """Group the calls by window, in an order that does not depend on how the query is written."""
    groups: dict[tuple[object, ...], list[OverCall]] = {}
    for c in sorted(calls, key=str):
        groups.setdefault((frozenset(c.partition), c.order), []).append(c)
    return list(groups.values())


def _mapped(e: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
    """Rewrite an expression.  Its window functions stay, with rewritten parts."""
    if isinstance(e, OverCall):
        argument = None if e.argument is None else rewrite(e.argument)
        partition, order = tuple(map(rewrite, e.partition)), tuple((rewrite(o), d) for o, d in e.order)
        return OverCall(e.type, e.nullable, e.function, argument, partition, order, e.frame, e.by)
    if not windows_in(e) or not isinstance(e, Call):
        return rewrite(e)
    return with_arguments(e, tuple(_mapped(a, rewrite) for a in e.args))


def _columns(e: Expr) -> list[Col]:
    return [e] if isinstance(e, Col) else [c for a in parts_of(e) for c in _columns(a)]
