"""Translates `f(x) OVER (…)` to an `OverCall`, a leaf that `sql.query.results.windows` replaces.  Call `over_call`."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.errors.codes import (
    WINDOW_FRAME_END_ILLEGAL,
    WINDOW_FRAME_ILLEGAL,
    WINDOW_FRAME_START_ILLEGAL,
    WINDOW_INVALID_WINDOW_FUNC_USE,
    WINDOW_NO_SUCH_WINDOW,
    WRONG_ARGUMENTS,
)
from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import call, literal
from noria.core.types import BIGINT
from noria.plan.calls import FRAMED, OVER_FRAMES, PEERS, Frame, over
from noria.sql.expressions.leaves import AggCall, OverCall
from noria.sql.expressions.resolving import Operands
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts, snippet

_RANKINGS: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank", exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist", exp.Ntile: "ntile"}
_PICKS: dict[type[exp.Expr], str] = {exp.FirstValue: "first_value", exp.LastValue: "last_value",
                                     exp.NthValue: "nth_value", exp.Lag: "lag", exp.Lead: "lead"}
KNOWN_OVER = ("there are ROW_NUMBER, RANK, DENSE_RANK, PERCENT_RANK, CUME_DIST, NTILE, LAG, LEAD, FIRST_VALUE, "
              "LAST_VALUE, NTH_VALUE, COUNT, SUM, AVG, MIN, MAX")
MAX_ROWS = 2**62  # a greater distance in rows means the same
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


def _frame(spec: exp.Expr | None) -> Frame:
    """The frame of a window.  Refuses RANGE with a distance.  Raises errors 3584 to 3586 for ends in a wrong order."""
    if spec is None:
        return PEERS
    if spec.args.get("exclude") is not None:
        raise refuse("EXCLUDE in a frame of a window", spec)
    rows = str(spec.args.get("kind", "ROWS")).upper() == "ROWS"
    start, end = _end(spec, "start", rows), 0.0 if spec.args.get("end") is None else _end(spec, "end", rows)
    if start == _LAST:
        raise SqlError(*WINDOW_FRAME_START_ILLEGAL, f"{_UNNAMED}: frame start cannot be UNBOUNDED FOLLOWING.")
    if end == _FIRST:
        raise SqlError(*WINDOW_FRAME_END_ILLEGAL, f"{_UNNAMED}: frame end cannot be UNBOUNDED PRECEDING.")
    if start > 0 >= end or start == 0 > end:
        raise _bad_frame()
    first, last = (None if e in (_FIRST, _LAST) else int(e) for e in (start, end))
    return Frame(rows, first, last)


_UNNAMED = "Window '<unnamed window>'"
_FIRST, _LAST = float("-inf"), float("inf")


def _end(spec: exp.Expr, side: str, rows: bool) -> float:
    """One end of a frame, as a distance."""
    value = spec.args.get(side)
    word = value.upper() if isinstance(value, str) else ""
    following = str(spec.args.get(f"{side}_side")).upper() == "FOLLOWING"
    if word == "CURRENT ROW":
        return 0
    if word == "UNBOUNDED":
        return _LAST if following else _FIRST
    if not rows:
        raise refuse("RANGE with a distance in a frame of a window", spec,
                     "use ROWS, or RANGE with UNBOUNDED and CURRENT ROW")
    if not isinstance(value, exp.Literal) or not value.this.isdigit():
        raise _bad_frame()
    distance = int(value.this)
    return distance if following else -distance


def _bad_frame() -> SqlError:
    return SqlError(*WINDOW_FRAME_ILLEGAL, f"{_UNNAMED}: frame start or end is negative, NULL or of non-integral type")


def _function(r: Operands, node: exp.Expr, partition: tuple[Expr, ...], order: tuple[tuple[Expr, bool], ...],
              frame: Frame) -> Expr:
    this = node.this
    if type(this) in _RANKINGS:
        name = _RANKINGS[type(this)]
        check_parts(this, frozenset({"this"}), name.upper())
        by = _number(this, this.this, 1) if name == "ntile" else 1
        made = over(name, None, (), by=by)
        return OverCall(made.type, False, name, None, partition, order, PEERS, by)
    if type(this) in _PICKS:
        name = _PICKS[type(this)]
        check_parts(this, frozenset({"this", "offset", "default"}), name.upper())
        argument, by = r(this.this), 1
        if this.args.get("offset") is not None:
            by = _number(this, this.args["offset"], int(name == "nth_value"))
        found = OverCall(argument.type, True, name, argument, partition, order, frame if name in FRAMED else PEERS, by)
        if this.args.get("default") is None:
            return found
        there = replace(found, type=BIGINT, argument=literal(1))  # NULL if there is no such row
        return call("if", call("is_null", there), r(this.args["default"]), found)
    called = r.of_function()(this)
    if not isinstance(called, AggCall) or called.function not in OVER_FRAMES:
        raise refuse("this as a window function", node, KNOWN_OVER)
    if called.distinct:
        raise refuse("DISTINCT in a window function", node)
    return OverCall(called.type, called.nullable, called.function, called.argument, partition, order, frame)


def _number(node: exp.Expr, number: exp.Expr | None, least: int) -> int:
    """A literal number of rows.  Raises error 1210 for a lesser one."""
    if not isinstance(number, exp.Literal) or not number.this.isdigit():
        raise parse_error(f"near '{snippet(node)}': a number of rows")
    if int(number.this) < least:
        raise SqlError(*WRONG_ARGUMENTS, f"Incorrect arguments to {node.key}")
    return min(int(number.this), MAX_ROWS)
