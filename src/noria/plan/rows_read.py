"""The rows of base tables on which the answer of a plan depends, as conditions that single rows meet or do not.

    filter #1 = 7 over join of a, b on a.0 = b.2, looked up by #0 in (3)
        ──► a: #1 = 7 and #0 in (3)        b: #2 in (3)

Keeps true: if a table's row changes, and meets the conditions neither before the change nor after it, the answer stays
the same.  Terms that cannot be followed to a table are left out, so too many rows meet the rest, never too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from noria.core.expressions.expr import (
    Call,
    Col,
    Const,
    Expr,
    Param,
    col,
    columns_of,
    composed,
    conjuncts,
    const,
    shifted,
    substitute,
    walk,
)
from noria.core.limits import MAX_INT, MIN_INT
from noria.core.types import BOOL, Field, Kind
from noria.plan.after import with_leaf
from noria.plan.batch_nodes import Sort
from noria.plan.mir import (
    Aggregate,
    Base,
    Distinct,
    Filter,
    GroupConcat,
    Join,
    Mir,
    Project,
    Repeat,
    TopK,
    UnionAll,
    Window,
)
from noria.plan.view import ViewDef

Terms = Sequence[Expr]  # all of them are true for the rows of interest
Read = tuple[str, Terms]  # a table's name, and terms over its columns
LARGEST_TERM = 500  # nodes of a term; larger ones are left out


def rows_read(plan: Mir, terms: Terms = ()) -> Iterator[Read]:
    """Yield each use of a base table.  terms: the conditions on the plan's rows."""
    if isinstance(plan, Base):
        yield plan.table.name, [t for t in terms if _is_small(t) and not any(isinstance(e, Param) for e in walk(t))]
        return
    pushed = _PUSHED.get(type(plan))
    below = [()] * len(plan.inputs) if pushed is None else pushed(plan, [t for t in terms if columns_of(t)])
    for one, its_terms in zip(plan.inputs, below, strict=True):
        yield from rows_read(one, its_terms)


def rows_of_lookup(view: ViewDef, keys: Sequence[tuple[Any, ...]], nulls: bool, key_range: tuple[int, int] | None
                   ) -> Iterator[Read]:
    """Yield each use of a base table by lookups of a view's keys, or of a range of its only key.  nulls: a None in a
    key matches NULL."""
    if key_range is None and not keys:
        return
    terms = _points(view, keys, nulls) if key_range is None else _range(view, *key_range)
    found = Filter(view.plan, Call(BOOL, True, "and", tuple(terms))) if terms else view.plan
    yield from rows_read(found if view.after is None else with_leaf(view.after, found))


def _points(view: ViewDef, keys: Sequence[tuple[Any, ...]], nulls: bool) -> list[Expr]:
    terms: list[Expr] = []
    for n, column in enumerate(view.key):
        values, type_ = list(dict.fromkeys(key[n] for key in keys)), view.plan.fields[column].type
        if len(values) < LARGEST_TERM - 1 and not (nulls and None in values):
            terms.append(Call(BOOL, True, "in", (col(column, type_), *(const(v, type_) for v in values))))
    return terms


def _range(view: ViewDef, low: int, high: int) -> list[Expr]:
    (column,) = view.key
    type_ = view.plan.fields[column].type
    if type_.kind is not Kind.INT:
        return []
    return [Call(BOOL, True, op, (col(column, type_), const(bound, type_)))
            for op, bound in (("ge", low), ("le", high)) if MIN_INT < bound < MAX_INT]


def _filter(plan: Filter, terms: Terms) -> list[Terms]:
    return [[*terms, *conjuncts(plan.predicate)]]


def _project(plan: Project, terms: Terms) -> list[Terms]:
    made = [composed(t, plan.exprs) for t in terms if _is_small(t)]
    return [[t for t in made if _is_small(t)]]


def _is_small(term: Expr) -> bool:
    return not isinstance(term, Call) or term.size <= LARGEST_TERM


def _join(plan: Join, terms: Terms) -> list[Terms]:
    """Terms of one side stay there.  A value of a paired column holds for the other side's column, too."""
    width = plan.left.width
    left = [t for t in terms if max(columns_of(t)) < width]
    right = [] if plan.outer else [shifted(t, -width) for t in terms if min(columns_of(t)) >= width]
    to_right = [_moved(t, plan.right.fields, b) for a, b in plan.on for t in left if _is_point(t, a)]
    to_left = [_moved(t, plan.left.fields, a) for a, b in plan.on for t in right if _is_point(t, b)]
    return [[*left, *to_left], [*right, *to_right]]


def _is_point(term: Expr, column: int) -> bool:
    """True if the term compares just this column with values, by `=` or IN."""
    if not isinstance(term, Call) or term.op not in ("eq", "in"):
        return False
    first, *values = term.args
    return isinstance(first, Col) and first.index == column and all(isinstance(v, Const) for v in values)


def _moved(term: Expr, fields: Sequence[Field], column: int) -> Expr:
    return substitute(term, lambda c: Col(fields[column].type, fields[column].nullable, column))


def _both(plan: UnionAll, terms: Terms) -> list[Terms]:
    return [terms, terms]


def _same(plan: Mir, terms: Terms) -> list[Terms]:
    return [terms]


def _grouped(plan: Aggregate | GroupConcat, terms: Terms) -> list[Terms]:
    return [_of_groups(plan.inputs[0], dict(enumerate(plan.group)), terms)]


def _within(plan: TopK | Window, terms: Terms) -> list[Terms]:
    columns = plan.group if isinstance(plan, TopK) else plan.partition
    return [_of_groups(plan.input, {c: c for c in columns}, terms)]


def _distinct(plan: Distinct, terms: Terms) -> list[Terms]:
    return [_of_groups(plan.input, {c: c for c in range(plan.width)}, terms)]


def _of_groups(below: Mir, columns: Mapping[int, int], terms: Terms) -> list[Expr]:
    """The terms that are equally true for all rows of a group.  columns: those that make the group, above and below.

    Texts of a group may differ in case and accents, so only a comparison by their collation is.
    """
    def stays(term: Expr) -> bool:
        used = columns_of(term)
        if not used <= columns.keys():
            return False
        return not any(below.fields[columns[c]].type.folds for c in used) or any(_is_point(term, c) for c in used)

    return [substitute(t, lambda c: Col(c.type, c.nullable, columns[c.index])) for t in terms if stays(t)]


_PUSHED: dict[type, Callable[..., list[Terms]]] = {
    Filter: _filter, Project: _project, Join: _join, UnionAll: _both, Aggregate: _grouped, GroupConcat: _grouped,
    TopK: _within, Window: _within, Distinct: _distinct, Repeat: _same, Sort: _same}
