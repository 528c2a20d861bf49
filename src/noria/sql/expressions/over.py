"""Translates `f(x) OVER (…)` to an `OverCall`, a leaf that `sql.query.results.windows` replaces.  Call `over_call`."""

from __future__ import annotations

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.errors.codes import WINDOW_INVALID_WINDOW_FUNC_USE, WINDOW_NO_SUCH_WINDOW
from noria.core.expressions.expr import Const, Expr
from noria.core.types import BIGINT
from noria.sql.expressions.leaves import AggCall, ConcatCall, OverCall
from noria.sql.expressions.resolving import Operands
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts, snippet

_RANKINGS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_PICKS: dict[type[exp.Expr], str] = {exp.FirstValue: "first_value", exp.LastValue: "last_value", exp.Lag: "lag",
                                     exp.Lead: "lead"}
_WINDOW = frozenset({"this", "partition_by", "order", "spec", "over", "alias"})
_CLAUSES = ("field list", "order clause")


def over_call(r: Operands, node: exp.Expr) -> Expr:
    """Translate f(x) OVER (…) or OVER name.  Raises error 3593 outside the select list and ORDER BY."""
    if r.clause not in _CLAUSES or not r.aggregates:
        raise SqlError(*WINDOW_INVALID_WINDOW_FUNC_USE,
                       f"You cannot use the window function '{snippet(node.this)}' in this context")
    check_parts(node, _WINDOW, "OVER")
    by, order, spec = _definition(node)
    partition = tuple(dict.fromkeys(e for e in map(r, by) if not isinstance(e, Const)))
    ordered = [(r(o.this), bool(o.args.get("desc"))) for o in order]
    kept = tuple((e, d) for e, d in ordered if not isinstance(e, Const))
    return _function(r, node, partition, kept, _frame(spec))


def _definition(node: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr], exp.Expr | None]:
    """The PARTITION BY, ORDER BY and frame of a window, including those of the named window that it extends."""
    by = list(node.args.get("partition_by") or [])
    order, spec = node.args.get("order"), node.args.get("spec")
    name = node.args.get("alias")
    if name is not None:
        select = node.find_ancestor(exp.Select)
        named = (select.args.get("windows") or []) if select is not None else []
        found = next((w for w in named if w.name.lower() == name.name.lower()), None)
        if found is None:
            raise SqlError(*WINDOW_NO_SUCH_WINDOW, f"Window name '{name.name}' is not defined")
        below = _definition(found)
        return below[0] + by, below[1] or (order.expressions if order else []), spec or below[2]
    return by, list(order.expressions) if order is not None else [], spec


def _frame(spec: exp.Expr | None) -> str:
    """The name of a frame in `mir.FRAMES`.  Refuses frames that do not begin at the partition's first row."""
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


def _function(r: Operands, node: exp.Expr, partition: tuple[Expr, ...], order: tuple[tuple[Expr, bool], ...],
              frame: str) -> OverCall:
    this = node.this
    if type(this) in _RANKINGS:
        return OverCall(BIGINT, False, _RANKINGS[type(this)], None, partition, order)
    if type(this) in _PICKS:
        check_parts(this, frozenset({"this", "offset"}), _PICKS[type(this)].upper())
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


