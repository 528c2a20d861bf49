"""The plan over looked-up rows: filters, groupings and projections of a query that a view's state cannot include.

    SELECT COUNT(*) FROM t WHERE a IN (?, ?) AND s LIKE ?
        view:    aggregate count(*) by a, s, looked up by a
        after:   aggregate sum(count) over filter s like ?2 over found

Its leaf is `LookedUpRows`; its predicates may have parameters (`expr.Param`), which `bound` replaces by values.  `run`
executes it, vectorised, at each lookup.  `with_leaf` puts it above the view's own plan, for Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from noria.core.batch import Batch
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr, Param, columns_of, walk
from noria.core.expressions.functions import with_values
from noria.core.expressions.functions.failing import check_searches
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.plan.aggregates import spec_of
from noria.plan.mir import Aggregate, Filter, Mir, Project
from noria.state.grouping.groups import Groups


@dataclass(frozen=True)
class LookedUpRows(Mir):
    """The rows that a lookup finds in the view, for all its keys."""

    columns: tuple[Field, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.columns

    def __str__(self) -> str:
        return "found"


def bound(after: Mir, values: Sequence[Any]) -> Mir:
    """Replace the parameters by their values.  Raises SqlError for a search of MATCH … AGAINST without meaning."""
    inputs = tuple(bound(i, values) for i in after.inputs)
    plan = after if inputs == after.inputs else after.with_inputs(*inputs)
    if not isinstance(plan, Filter):
        return plan
    predicate = with_values(plan.predicate, values)
    check_searches(predicate)
    return replace(plan, predicate=predicate)


def with_leaf(after: Mir, plan: Mir) -> Mir:
    """Replace the leaf `LookedUpRows` by `plan`."""
    return plan if isinstance(after, LookedUpRows) else after.with_inputs(*(with_leaf(i, plan) for i in after.inputs))


def parameters_of(after: Mir | None) -> set[int]:
    """The ordinals of the parameters in the plan's predicates."""
    if after is None:
        return set()
    own = {e.index for e in walk(after.predicate) if isinstance(e, Param)} if isinstance(after, Filter) else set()
    return own.union(*(parameters_of(i) for i in after.inputs))


def filter_of(after: Mir) -> Expr | None:
    """The predicate of a plan that only filters; None for any other plan."""
    return after.predicate if isinstance(after, Filter) and isinstance(after.input, LookedUpRows) else None


def found_fields(after: Mir) -> tuple[Field, ...]:
    """The columns of the leaf `LookedUpRows`."""
    return after.fields if isinstance(after, LookedUpRows) else found_fields(after.inputs[0])


def mask_columns(predicate: Expr) -> tuple[int, ...]:
    return tuple(sorted(columns_of(predicate)))


def run(after: Mir, found: Batch, symbols: Symbols) -> Batch:
    """Execute the plan over the found rows.  An evaluation error in a column is an ERROR_CODE.  One in a condition
    raises SqlError, because no reader follows that could report it."""
    if isinstance(after, LookedUpRows):
        return found
    rows = run(after.inputs[0], found, symbols)
    if isinstance(after, Filter):
        return rows.where(evaluate.certain(after.predicate)(rows, symbols))
    if isinstance(after, Project):
        columns = [evaluate.compile(e)(rows, symbols) for e in after.exprs]
        return Batch(np.ascontiguousarray(np.stack(columns)), rows.weights)
    assert isinstance(after, Aggregate)
    return _aggregated(after, rows, symbols)


def _aggregated(plan: Aggregate, rows: Batch, symbols: Symbols) -> Batch:
    folds = [plan.fields[i].type.folds for i in range(len(plan.group))]
    groups = Groups(plan.group, folds, [spec_of(a, plan.input.fields) for a in plan.aggs], symbols, full=True)
    if not plan.group:
        groups.start()
    groups.apply(rows)
    return groups.rows()


