"""GROUP BY … WITH ROLLUP: the groupings by all columns, by all but the last, and so on to the total, under each other.

    SELECT a, b, COUNT(*) FROM t GROUP BY a, b WITH ROLLUP
        project a, b, count(*), 0        (aggregate count(*) by a, b (t))
        union all project a, NULL, count(*), 1   (aggregate count(*) by a (t))
        union all project NULL, NULL, count(*), 2   (aggregate count(*) (t))

Keeps true: the last column is the number of group columns that are rolled up, from which GROUPING follows.  Each
grouping groups by the keys of the lookup as well.  They have columns of their own, because a group column is NULL where
it is rolled up and a key is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import FIELD_IN_GROUPING_NOT_GROUP_BY
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import call, cast, literal
from noria.core.types import BIGINT
from noria.plan.mir import Mir, Project, UnionAll
from noria.sql.expressions.leaves import AggCall, GroupingCall, parts_of
from noria.sql.query.relations.context import Context
from noria.sql.query.relations.joins import JoinedPlan
from noria.sql.query.relations.scope import Scope
from noria.sql.query.results.grouping import GroupedPlan, group, of_nothing

_ROWS = AggCall(BIGINT, False, "count_star", None)


def is_rollup(tree: exp.Select) -> bool:
    clause = tree.args.get("group")
    return clause is not None and bool(clause.args.get("rollup"))


@dataclass(frozen=True)
class RolledUpPlan(GroupedPlan):
    """The groupings under each other.  `groups`: the block's group columns.  `keys`: the positions of the lookup's."""

    groups: tuple[Expr, ...]
    keys: dict[Expr, int]

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, GroupingCall):
            return self._grouping(e)
        return super().expr(e)

    def key(self, e: Expr) -> Expr:
        """The column of a key."""
        return self._column(self.keys[e])

    def _grouping(self, e: GroupingCall) -> Expr:
        """GROUPING(a, b): a bit for each argument, the last one lowest."""
        rolled = self._column(self.plan.width - 1)
        out: Expr = literal(0)
        for number, argument in enumerate(e.arguments, 1):
            if argument not in self.groups:
                raise SqlError(*FIELD_IN_GROUPING_NOT_GROUP_BY,
                               f"Argument #{number} of GROUPING function is not in GROUP BY")
            behind = len(self.groups) - 1 - self.groups.index(argument)  # the columns that are rolled up before it
            out = call("add", call("mul", out, literal(2)), call("gt", rolled, literal(behind)))
        return cast(out, BIGINT)

    def empty_row(self, exprs: Sequence[Expr]) -> tuple[Any, ...] | None:
        """The total of no rows, which a key without rows has."""
        values = self.values_of_nothing()
        values[self.plan.width - 1] = literal(len(self.groups))
        return tuple(constant(of_nothing(e, values)) for e in exprs)


def rolled_up(context: Context, tree: exp.Select, scope: Scope, joined: JoinedPlan, groups: Sequence[Expr],
              keys: Sequence[Expr], computed: Sequence[Expr]) -> RolledUpPlan:
    """Make the groupings that compute these expressions."""
    aggregates = list(dict.fromkeys(a for e in computed for a in _aggregates(e, groups))) or [_ROWS]
    plan: Mir | None = None
    for kept in range(len(groups), -1, -1):
        made = group(context, tree, scope, joined, list(groups[:kept]), list(keys), list(aggregates))
        columns = [made.expr(g) if i < kept else Const(g.type, True, None) for i, g in enumerate(groups)]
        columns += [made.expr(k) for k in keys] + [made.expr(a) for a in aggregates]
        names = [f"group{i}" for i in range(len(groups))] + [f"key{i}" for i in range(len(keys))]
        names += [str(a) for a in aggregates]
        part = Project(made.plan, (*columns, literal(len(groups) - kept)), (*names, "rolled up"))
        plan = part if plan is None else UnionAll(plan, part)
    assert plan is not None
    first = len(groups) + len(keys)
    places: dict[Expr, int] = {g: i for i, g in enumerate(groups)}
    places.update((a, first + i) for i, a in enumerate(aggregates))
    return RolledUpPlan(scope, plan, places, tree, True, tuple(groups),
                        {k: len(groups) + i for i, k in enumerate(keys)})


def _aggregates(e: Expr, groups: Sequence[Expr]) -> list[AggCall]:
    if isinstance(e, AggCall):
        return [e]
    return [] if e in groups else [a for x in parts_of(e) for a in _aggregates(x, groups)]


def groupings_in(e: Expr) -> bool:
    return isinstance(e, GroupingCall) or any(map(groupings_in, parts_of(e)))


def default_order(groups: Sequence[Expr]) -> list[tuple[Expr, bool]]:
    """MySQL's order: by the groups, each followed by its total."""
    return [(e, False) for g in groups for e in (GroupingCall(BIGINT, False, (g,)), g)]
