"""The aggregates of a plan as the kernels of `state/grouping/groups.py` compute them."""

from __future__ import annotations

from noria.core.types import Collation, Field, Kind
from noria.plan import mir
from noria.state.grouping import group_kernels as gk
from noria.state.grouping import moment_kernels
from noria.state.grouping.groups import Spec

_BITS = {"bit_and": moment_kernels.AND, "bit_or": moment_kernels.OR, "bit_xor": moment_kernels.XOR}


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
    if a.function == "variance":
        return Spec(gk.FVAR, a.column, 1) if t.kind is Kind.DOUBLE else Spec(gk.VAR, a.column, 10**t.scale)
    if a.function in _BITS:
        return Spec(gk.BITS, a.column, _BITS[a.function])
    if t.is_text:
        return Spec(gk.TEXT_MIN if a.function == "min" else gk.TEXT_MAX, a.column, int(t.collation is Collation.CI))
    return Spec(gk.MIN if a.function == "min" else gk.MAX, a.column)
