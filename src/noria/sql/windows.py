"""Window functions: OVER (…) of the syntax tree, and the Window nodes above a block's joins or grouping.

    SELECT id, RANK() OVER (PARTITION BY a ORDER BY b) FROM t WHERE c = ?
        window rank() by a, c order b (t), looked up by c

Keeps true: a key of the lookup is one of the partition's columns, because the window is over the rows that WHERE
leaves: those of one key.  A Window stands on just the columns that the query reads, so that ties of ROW_NUMBER
are broken by what can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.expr import Call, Col, Const, Expr
from noria.core.functions import call, cast, literal
from noria.core.ranking import Order
from noria.core.types import BIGINT
from noria.plan.mir import Mir, Project, Window, over
from noria.sql.calls import AggCall, ConcatCall, OverCall, parts_of
from noria.sql.refusals import refuse
from noria.sql.scalars import Resolver
from noria.sql.tree import only, snippet

_RANKINGS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_PICKS: dict[type[exp.Expr], str] = {exp.FirstValue: "first_value", exp.LastValue: "last_value", exp.Lag: "lag",
                                     exp.Lead: "lead"}
_WINDOW = frozenset({"this", "partition_by", "order", "spec", "over", "alias"})
_CLAUSES = ("field list", "order clause")


# ------------------------------------------------------------------ one OVER
def over_call(r: Resolver, node: exp.Expr) -> Expr:
    """f(x) OVER (…) or OVER name"""
    if r.clause not in _CLAUSES or not r.aggregates:
        raise SqlError(3593, "HY000", f"You cannot use the window function '{snippet(node.this)}' in this context")
    only(node, _WINDOW, "OVER")
    by, order, spec = _definition(node)
    partition = tuple(dict.fromkeys(e for e in map(r, by) if not isinstance(e, Const)))
    ordered = [(r(o.this), bool(o.args.get("desc"))) for o in order]
    kept = tuple((e, d) for e, d in ordered if not isinstance(e, Const))
    return _function(r, node, partition, kept, _frame(spec))


def _definition(node: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr], exp.Expr | None]:
    """PARTITION BY, ORDER BY and the frame, those of a named window included."""
    by = list(node.args.get("partition_by") or [])
    order, spec = node.args.get("order"), node.args.get("spec")
    name = node.args.get("alias")
    if name is not None:
        select = node.find_ancestor(exp.Select)
        named = (select.args.get("windows") or []) if select is not None else []
        found = next((w for w in named if w.name.lower() == name.name.lower()), None)
        if found is None:
            raise SqlError(3579, "HY000", f"Window name '{name.name}' is not defined")
        below = _definition(found)
        return below[0] + by, below[1] or (order.expressions if order else []), spec or below[2]
    return by, list(order.expressions) if order is not None else [], spec


def _frame(spec: exp.Expr | None) -> str:
    """The frames that begin at the partition's first row."""
    if spec is None:
        return "range"
    args = {k: str(v).upper() for k, v in spec.args.items() if v is not None}
    end, side = args.get("end", "CURRENT ROW"), args.get("end_side", "FOLLOWING")
    if args.get("start") == "UNBOUNDED" and args.get("start_side") == "PRECEDING" and "exclude" not in args:
        if end == "CURRENT ROW":
            return args.get("kind", "ROWS").lower()
        if (end, side) == ("UNBOUNDED", "FOLLOWING"):
            return "all"
    raise refuse("this frame of a window", spec, "a frame begins UNBOUNDED PRECEDING and ends at the CURRENT ROW or "
                                                 "UNBOUNDED FOLLOWING")


def _function(r: Resolver, node: exp.Expr, partition: tuple[Expr, ...], order: tuple[tuple[Expr, bool], ...],
              frame: str) -> OverCall:
    this = node.this
    if type(this) in _RANKINGS:
        return OverCall(BIGINT, False, _RANKINGS[type(this)], None, partition, order)
    if type(this) in _PICKS:
        only(this, frozenset({"this", "offset"}), _PICKS[type(this)].upper())
        argument, by = r(this.this), this.args.get("offset")
        if by is not None and not (isinstance(by, exp.Literal) and by.this.isdigit()):
            raise parse_error(f"near '{snippet(this)}': a number of rows")
        return OverCall(argument.type, True, _PICKS[type(this)], argument, partition, order, frame,
                        1 if by is None else int(by.this))
    made = r(this)
    if not isinstance(made, AggCall) or isinstance(made, ConcatCall):
        raise refuse("this as a window function", node)
    if made.distinct:
        raise refuse("DISTINCT in a window function", node)
    return OverCall(made.type, made.nullable, made.function, made.argument, partition, order, frame)


# ------------------------------------------------------------------ the nodes
def windows_in(e: Expr) -> list[OverCall]:
    return [e] if isinstance(e, OverCall) else [c for a in parts_of(e) for c in windows_in(a)]


def with_windows(plan: Mir, rewrite: Callable[[Expr], Expr], shown: Sequence[Expr], keys: Sequence[Expr]
                 ) -> tuple[Mir, Callable[[Expr], Expr]]:
    """The plan with the window functions of the shown expressions, and how expressions are rewritten over it.
    rewrite: how they were over the plan alone."""
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
        if e in at:
            f = out.fields[at[e]]
            return Col(f.type, f.nullable, at[e])
        if not isinstance(e, Call):
            return e
        args = tuple(map(final, e.args))
        return cast(args[0], e.type) if e.op == "cast" else call(e.op, *args)

    return out, lambda e: final(_mapped(e, rewrite))


def _alike(calls: Sequence[OverCall]) -> list[list[OverCall]]:
    """Calls over one window together, in one order however they were asked for."""
    groups: dict[tuple[object, ...], list[OverCall]] = {}
    for c in sorted(calls, key=str):
        groups.setdefault((frozenset(c.partition), c.order), []).append(c)
    return list(groups.values())


def _mapped(e: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
    """The expression rewritten, but for its window functions, whose parts are."""
    if isinstance(e, OverCall):
        argument = None if e.argument is None else rewrite(e.argument)
        partition, order = tuple(map(rewrite, e.partition)), tuple((rewrite(o), d) for o, d in e.order)
        return OverCall(e.type, e.nullable, e.function, argument, partition, order, e.frame, e.by)
    if not windows_in(e) or not isinstance(e, Call):
        return rewrite(e)
    args = tuple(_mapped(a, rewrite) for a in e.args)
    return cast(args[0], e.type) if e.op == "cast" else call(e.op, *args)


def _columns(e: Expr) -> list[Col]:
    return [e] if isinstance(e, Col) else [c for a in parts_of(e) for c in _columns(a)]
