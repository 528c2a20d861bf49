"""The aggregates of a plan as the kernels of `state/grouping/groups.py` compute them."""

from __future__ import annotations

from noria.core.types import Collation, Field, Kind
from noria.plan import mir
from noria.state.grouping import group_kernels as gk
from noria.state.grouping.groups import Spec


def spec_of(a: mir.Agg, inputs: tuple[Field, ...]) -> Spec:
    """The kernel's specification of a plan's aggregate."""
    if a.function == "count_star":
        return Spec(gk.COUNT_STAR)
    assert a.column is not None
    t = inputs[a.column].type
    if a.function == "count":
        return Spec(gk.COUNT_COL, a.column)
    if a.function in ("sum", "avg"):
        if t.kind is Kind.DOUBLE:
            return Spec(gk.FSUM if a.function == "sum" else gk.FAVG, a.column)
        return Spec(gk.SUM if a.function == "sum" else gk.AVG, a.column, 10 ** (a.type.scale - t.scale))
    if t.is_text:
        return Spec(gk.TEXT_MIN if a.function == "min" else gk.TEXT_MAX, a.column, int(t.collation is Collation.CI))
    return Spec(gk.MIN if a.function == "min" else gk.MAX, a.column)
