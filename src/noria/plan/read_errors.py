"""The error of a read that finds an evaluation error: a value has no room for what was wrong."""

from __future__ import annotations

from functools import lru_cache

from noria.core.errors import SqlError
from noria.core.errors.codes import DATA_OUT_OF_RANGE, SUBQUERY_NO_1_ROW
from noria.core.expressions.functions.failing import has_only_one
from noria.core.limits import KEPT_PLANS
from noria.plan.mir import Filter, Join, Mir, Project


@lru_cache(maxsize=KEPT_PLANS)
def has_single_values(plan: Mir) -> bool:
    """Whether the plan has a subquery that must have one row at most.  Its reads fail with error 1242, even where
    another value is out of range."""
    exprs = plan.exprs if isinstance(plan, Project) else (plan.predicate,) if isinstance(plan, Filter) else (
        (plan.residual,) if isinstance(plan, Join) and plan.residual is not None else ())
    return any(map(has_only_one, exprs)) or any(map(has_single_values, plan.inputs))


def is_evaluation_error(error: SqlError) -> bool:
    """Whether a value of a row could not be evaluated."""
    return error.code in (DATA_OUT_OF_RANGE.number, SUBQUERY_NO_1_ROW.number)


def of_read(plan: Mir, error: SqlError) -> SqlError:
    """The error of a read of the plan's rows, in place of error 1690."""
    if error.code != DATA_OUT_OF_RANGE.number or not has_single_values(plan):
        return error
    return SqlError(*SUBQUERY_NO_1_ROW, "Subquery returns more than 1 row")
