"""References to the output columns of a plan, from which projections above it are made."""

from __future__ import annotations

from noria.core.expressions.expr import Col
from noria.plan.mir import Mir


def col_of(plan: Mir, i: int) -> Col:
    """A reference to an output column of the plan."""
    f = plan.fields[i]
    return Col(f.type, f.nullable, i)


def cols_of(plan: Mir) -> tuple[Col, ...]:
    """References to all its output columns."""
    return tuple(col_of(plan, i) for i in range(plan.width))
