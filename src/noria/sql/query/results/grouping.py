"""GROUP BY and aggregates: the Aggregate node, and expressions above it (§5.1).

Keeps true: an expression above a grouping has only group columns, aggregates and constants.  Another column is allowed
if it has one value in each group, as when the primary key is grouped by; then the node groups by it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import MIX_OF_GROUP_FUNC_AND_FIELDS, WRONG_FIELD_WITH_GROUP
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Call, Col, Const, Expr
from noria.core.expressions.functions import call, conjunction, literal, with_each_argument
from noria.plan.mir import Filter, Mir, Project
from noria.sql.expressions.aggregates import any_value
from noria.sql.expressions.leaves import AggCall, GroupingCall, OverCall, parts_of
from noria.sql.query.relations.context import Context
from noria.sql.query.relations.joins import EQUALITIES, JoinedPlan, JoinPair, left_joined
from noria.sql.query.relations.scope import Scope
from noria.sql.query.results.joined_groups import join_groupings, partial_groupings
from noria.sql.text.refusals import not_merged


@dataclass(frozen=True)
class GroupedPlan:
    """A grouping and the positions of the block's groups and aggregates in it."""

    scope: Scope
    plan: Mir
    places: dict[Expr, int]
    tree: exp.Select
    grouped: bool  # with GROUP BY

    def expr(self, e: Expr) -> Expr:
        """Rewrite an expression over the block's columns and aggregates to one over the grouping's output."""
        at = self.places.get(e)
        if at is not None:
            return self._column(at)
        if isinstance(e, Col):
            raise self.not_grouped(e)
        return with_each_argument(e, self.expr)

    def _column(self, at: int) -> Col:
        f = self.plan.fields[at]
        return Col(f.type, f.nullable, at)

    def joined(self, unit: JoinedPlan, on: list[Expr]) -> GroupedPlan:
        """LEFT JOIN a subquery that has at most one row for each group."""
        pairs = [JoinPair(self.expr(t.args[0]), unit.expr(t.args[1]), t.op == "nseq") for t in on
                 if isinstance(t, Call) and t.op in EQUALITIES]
        if len(pairs) < len(on):
            raise not_supported("a subquery beside aggregates that compares outer columns by more than equality",
                                "GROUP BY the columns that it compares")
        both = left_joined(JoinedPlan(self.plan, {}), unit, pairs or [JoinPair(literal(1), literal(1))])
        fields = unit.plan.fields
        found: dict[Expr, int] = {Col(fields[at].type, True, number): both.positions[number]
                                  for number, at in unit.positions.items()}
        return replace(self, plan=both.plan, places={**self.places, **found})

    def not_grouped(self, c: Col) -> SqlError:
        s = self.scope.sources[self.scope.source_of(c.index)]
        if s.determined_by is not None:
            return not_supported("a subquery beside aggregates, if it has several values in a group",
                                 "GROUP BY the columns that it compares")
        name = f"{s.alias}.{self.scope.field(c.index).name}"
        if self.grouped:
            return SqlError(*WRONG_FIELD_WITH_GROUP,
                            f"'{name}' is not in GROUP BY and not an aggregate: it can have several "
                            f"values in a group (sql_mode=only_full_group_by); ANY_VALUE({name}) is one of them")
        return SqlError(*MIX_OF_GROUP_FUNC_AND_FIELDS,
                        f"In aggregated query without GROUP BY, '{name}' is not an aggregate "
                        f"(sql_mode=only_full_group_by); ANY_VALUE({name}) is one of its values")

    def having(self, terms: Sequence[Expr]) -> Mir:
        condition = conjunction([self.expr(t) for t in terms])
        return self.plan if condition is None else Filter(self.plan, condition)

    def empty_row(self, exprs: Sequence[Expr]) -> tuple[Any, ...] | None:
        """The values that the expressions have over no rows: COUNT is 0, other aggregates are NULL.  None with GROUP
        BY, where a key without rows has no group."""
        if self.grouped:
            return None
        values = self.values_of_nothing()
        try:
            return tuple(constant(of_nothing(e, values)) for e in exprs)
        except SqlError as e:
            raise not_merged(f"an aggregate that fails over no rows ({e.message}), by a key", self.tree,
                                 "GROUP BY the key") from None

    def values_of_nothing(self) -> dict[int, Expr]:
        """The values over no rows of the columns that are not NULL then."""
        return {at: _NOTHING[e.function] for e, at in self.places.items()
                if isinstance(e, AggCall) and e.function in _NOTHING}


_NOTHING = {"count": literal(0), "count_star": literal(0), "bit_or": literal(0), "bit_xor": literal(0),
            "bit_and": call("bit_not", literal(0))}  # no code can hold the last one


def of_nothing(e: Expr, values: dict[int, Expr]) -> Expr:
    """The expression over these columns; NULL for all others."""
    if isinstance(e, Col):
        return values.get(e.index, Const(e.type, True, None))
    return with_each_argument(e, lambda a: of_nothing(a, values))


def group(context: Context, tree: exp.Select, scope: Scope, joined: JoinedPlan, groups: list[Expr], keys: list[Expr],
          computed: list[Expr], above: frozenset[int] = frozenset()) -> GroupedPlan:
    """Make the grouping that computes these expressions.  It groups by `keys` as well: the keys of a lookup, and the
    columns of conditions after it.  `above`: columns that are joined to it."""
    aggregates = list(dict.fromkeys(a for e in computed for a in _aggregates(e, groups)))
    by_value = [g for g in groups if not isinstance(g, Const)] or groups  # GROUP BY 1 over no rows: no group
    wanted = list(dict.fromkeys(by_value + keys))
    if tree.args.get("group") is not None:
        grouped_columns = {g.index for g in wanted if isinstance(g, Col)}
        free = [c for e in computed for c in _free_columns(e, set(wanted))
                if c.index in scope.determined(grouped_columns) - above]
        wanted = list(dict.fromkeys([*wanted, *free]))
    inputs = list(dict.fromkeys(joined.expr(e) for e in [*wanted, *(x for a in aggregates for x in a.arguments)]))
    plan, column = _input_columns(joined.plan, inputs)
    by = tuple(sorted({column[joined.expr(g)] for g in wanted}))
    parts = partial_groupings(plan, by, aggregates, lambda e: column[joined.expr(e)])
    places: dict[Expr, int] = {g: by.index(column[joined.expr(g)]) for g in wanted}
    places.update({a: len(by) + i for i, a in enumerate(a for p in parts for a in p.aggregates)})
    return GroupedPlan(scope, join_groupings(parts, len(by)), places, tree,
                       tree.args.get("group") is not None)


def with_any_values(scope: Scope, groups: Sequence[Expr], above: frozenset[int], e: Expr) -> Expr:
    """The expression with MIN, as ANY_VALUE is computed, of each column that is not determined by the groups.  Columns
    `above` are joined to the groups.

    b + 1 by a   →   min(b) + 1 by a
    """
    determined = scope.determined({g.index for g in groups if isinstance(g, Col)}) | above

    def some(e: Expr) -> Expr:
        if e in groups or isinstance(e, AggCall | GroupingCall):
            return e
        if isinstance(e, Col):
            return e if e.index < scope.start or e.index in determined else any_value(e)
        if isinstance(e, OverCall):
            return replace(e, argument=e.argument and some(e.argument), partition=tuple(map(some, e.partition)),
                           order=tuple((some(o), d) for o, d in e.order))
        return with_each_argument(e, some)

    return some(e)


def _aggregates(e: Expr, groups: list[Expr]) -> list[AggCall]:
    if isinstance(e, AggCall):
        return [e]
    return [] if e in groups else [a for x in parts_of(e) for a in _aggregates(x, groups)]


def _free_columns(e: Expr, known: set[Expr]) -> list[Col]:
    """The columns of an expression outside aggregates and outside grouped expressions."""
    if e in known or isinstance(e, AggCall):
        return []
    if isinstance(e, Col):
        return [e]
    return [c for a in parts_of(e) for c in _free_columns(a, known)]


def _input_columns(plan: Mir, inputs: list[Expr]) -> tuple[Mir, dict[Expr, int]]:
    """The plan with each input as a column: the plan itself if all are columns, else a projection to exactly these."""
    if all(isinstance(e, Col) for e in inputs):
        return plan, {e: e.index for e in inputs if isinstance(e, Col)}
    ordered: list[Expr] = [*sorted((e for e in inputs if isinstance(e, Col)), key=lambda c: c.index)]
    ordered += sorted((e for e in inputs if not isinstance(e, Col)), key=str)
    names = tuple(plan.fields[e.index].name if isinstance(e, Col) else str(e) for e in ordered)
    return Project(plan, tuple(ordered), names), {e: i for i, e in enumerate(ordered)}
