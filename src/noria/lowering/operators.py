"""The registry of operators: `OPERATORS` makes the operator of a plan node.  ARCHITECTURE lists what else
a new operator needs."""

from __future__ import annotations

from collections.abc import Callable

from noria.core.expressions.expr import columns_of
from noria.core.types import Field
from noria.dataflow.graph.nodes import Operator
from noria.dataflow.ops.stateful.aggregate import Aggregate
from noria.dataflow.ops.stateful.base import Base
from noria.dataflow.ops.stateful.given import Given
from noria.dataflow.ops.stateful.nothing import Nothing
from noria.dataflow.ops.stateful.reader import Reader
from noria.dataflow.ops.stateful.top import Top
from noria.dataflow.ops.stateless.filter import Filter
from noria.dataflow.ops.stateless.group_concat import GroupConcat
from noria.dataflow.ops.stateless.join import Join
from noria.dataflow.ops.stateless.project import Project
from noria.dataflow.ops.stateless.repeat import Repeat
from noria.dataflow.ops.stateless.union import Union
from noria.dataflow.ops.stateless.window import FrameEnds, Window, WindowFunction
from noria.plan import constant_row, mir
from noria.plan.aggregates import spec_of
from noria.plan.optimizer.averages import sums_fit
from noria.plan.view import ViewDef
from noria.state.grouping import group_kernels as gk
from noria.state.grouping.groups import Spec


def _join(m: mir.Join) -> Operator:
    return Join(m.fields, m.left.width, m.on, m.outer, m.null_safe, m.residual)


def _aggregate(m: mir.Aggregate) -> Operator:
    sums = [m.input.fields[a.column].type for a in m.aggs if a.function == "sum" and a.column is not None]
    specs = [spec_of(a, m.input.fields) for a in m.aggs]
    return Aggregate(m.fields, m.group, specs, str(m), not all(map(sums_fit, sums)))


def _leaves_out(m: mir.Project) -> bool:
    """Whether it shows only some of a grouping's aggregates.  Then a change of another view's aggregate in a shared
    state may leave its rows unchanged."""
    below = m.input
    while isinstance(below, mir.Filter):
        below = below.input
    if not isinstance(below, mir.Aggregate):
        return False
    shown = {c for e in m.exprs for c in columns_of(e)}
    return not shown.issuperset(range(len(below.group), below.width))


def _distinct(m: mir.Distinct) -> Operator:
    """DISTINCT, as a grouping by all columns without aggregates."""
    return Aggregate(m.fields, range(m.width), [], str(m))


def _window(m: mir.Window) -> Operator:
    return Window(m.fields, m.input.fields, m.partition, m.order, [_function(c, m.input.fields) for c in m.calls],
                  str(m))


def _function(c: mir.Over, inputs: tuple[Field, ...]) -> WindowFunction:
    bounds = FrameEnds(c.frame.rows, c.frame.start, c.frame.end)
    if c.function not in mir.AGG_FUNCTIONS:
        return WindowFunction(c.function, c.column or 0, None, bounds, c.by)
    spec = spec_of(mir.Agg(c.function, c.column, c.type), inputs)
    kind = {gk.TEXT_MIN: gk.MIN, gk.TEXT_MAX: gk.MAX}.get(spec.kind, spec.kind)
    return WindowFunction(c.function, c.column or 0, Spec(kind, spec.column, spec.factor), bounds, c.by)


def _group_concat(m: mir.GroupConcat) -> Operator:
    return GroupConcat(m.fields, m.input.fields, m.group, m.column, m.distinct, m.order, m.separator, str(m))


OPERATORS: dict[type[mir.Mir], Callable[..., Operator]] = {
    mir.Base: lambda m: Base(m.table),
    constant_row.Nothing: lambda m: Nothing(m.fields),
    constant_row.GivenRows: lambda m: Given(m.fields, m.rows),
    mir.Filter: lambda m: Filter(m.fields, m.predicate),
    mir.Project: lambda m: Project(m.fields, m.exprs, _leaves_out(m)),
    mir.Join: _join,
    mir.Aggregate: _aggregate,
    mir.Distinct: _distinct,
    mir.GroupConcat: _group_concat,
    mir.Repeat: lambda m: Repeat(m.fields, m.count),
    mir.TopK: lambda m: Top(m.fields, m.group, m.order, m.limit, m.offset, str(m)),
    mir.UnionAll: lambda m: Union(m.fields),
    mir.Window: _window,
}


def parts_of(m: mir.Mir) -> tuple[Operator, Operator]:
    parts = OPERATORS[type(m)](m).in_parts()
    assert parts is not None
    return parts


def reader_of(view: ViewDef) -> Reader:
    return Reader(view.name, view.plan.fields, view.key, view.visible, view.definition, view.feed, view.adhoc)
