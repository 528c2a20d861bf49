"""MIR: the plan of a query as frozen relational nodes that check themselves (section 5 of the paper).

A plan is lowered to incremental operators (`lowering/`) or to a Spark DataFrame (`spark/lowering/`).  Both
must return the same rows.  Equal nodes are shared: two views that contain an equal node run it once.  Names are for
people and are no part of equality; positions are.

Relations are bags; NULL has SQL's three-valued logic.  Texts with the CI collation are equal if their folded values
are, in joins, groups and keys alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

from noria.core.expressions.expr import Expr, columns_of
from noria.core.ranking import Order
from noria.core.types import Field, Kind, TableDef
from noria.plan.calls import AGG_FUNCTIONS as AGG_FUNCTIONS
from noria.plan.calls import CARRYING as CARRYING
from noria.plan.calls import FRAMED as FRAMED
from noria.plan.calls import NEVER_NULL as NEVER_NULL
from noria.plan.calls import PICKING as PICKING
from noria.plan.calls import RANKING as RANKING
from noria.plan.calls import WHOLE as WHOLE
from noria.plan.calls import Agg as Agg
from noria.plan.calls import Frame as Frame
from noria.plan.calls import Over as Over
from noria.plan.calls import agg as agg
from noria.plan.calls import check as check
from noria.plan.calls import over as over


class BaseProperties(NamedTuple):
    """The properties of a base table that the data-flow uses, but that equality of plans ignores."""
    name: str
    table_id: int
    primary_key: tuple[int, ...]
    sharded_by: tuple[int, ...] | None


@dataclass(frozen=True)
class Mir:
    """A plan node: a relation with the output columns `fields`.

    A node is a frozen dataclass that checks its parts in `__post_init__` and prints itself.  The parts that are
    relations are its inputs.  Equality and the cached hash depend on its type and parts.
    """

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Mir.__hash__  # type: ignore[method-assign]  # a dataclass's own would walk the plan at each call

    @property
    def _kind(self) -> Any:
        return type(self)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The output columns: the first input's, unless a node overrides this."""
        return self.inputs[0].fields

    @cached_property
    def inputs(self) -> tuple[Mir, ...]:
        parts = [getattr(self, name) for name in _parts(self._kind)]
        return tuple(p for p in parts if isinstance(p, Mir))

    def with_inputs(self, *inputs: Mir) -> Mir:
        """The same node over other inputs."""
        names = _parts(self._kind)
        replacements = iter(inputs)
        parts = (getattr(self, name) for name in names)
        return type(self)(*[next(replacements) if isinstance(p, Mir) else p for p in parts])

    @property
    def width(self) -> int:
        return len(self.fields)

    @cached_property
    def steps(self) -> int:
        """The number of nodes; a shared node counts at each use."""
        return 1 + sum(i.steps for i in self.inputs)

    @cached_property
    def table_names(self) -> frozenset[str]:
        """The names of the base tables that it reads."""
        return frozenset(r.name for r in self.tables_read)

    @cached_property
    def tables_read(self) -> frozenset[BaseProperties]:
        """The base tables that it reads.  Equal plans may read tables of different names, keys or sharding."""
        return frozenset[BaseProperties]().union(*(i.tables_read for i in self.inputs))

    @cached_property
    def tables_below(self) -> dict[str, TableDef]:
        """The result of `tables_of`, which a change of a table asks of each view."""
        found: dict[str, TableDef] = {}
        for i in self.inputs:
            for name, table in i.tables_below.items():
                if name not in found or len(table.columns) > len(found[name].columns):
                    found[name] = table
        return found

    @cached_property
    def _hash(self) -> int:
        return hash((type(self).__name__, *[getattr(self, name) for name in _parts(self._kind, True)]))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """The parts without cached values: a hash is valid in one process only."""
        return {name: getattr(self, name) for name in _parts(self._kind)}


@cache
def _parts(kind: Any, compared: bool = False) -> tuple[str, ...]:
    """The names of the parts of nodes of this kind.  `compared`: only those that take part in equality."""
    return tuple(f.name for f in dataclasses.fields(kind) if f.compare or not compared)


@dataclass(frozen=True)
class Base(Mir):
    """A base table with all its columns.  Equality compares the table's number and column types; names, keys, indexes
    and defaults do not matter."""

    table: TableDef = field(compare=False)

    @cached_property
    def tables_below(self) -> dict[str, TableDef]:
        return {self.table.name: self.table}

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.table.fields

    @cached_property
    def tables_read(self) -> frozenset[BaseProperties]:
        t = self.table
        return frozenset((BaseProperties(t.name, t.table_id, t.primary_key, t.sharded_by),))

    @cached_property
    def _same(self) -> tuple[Any, ...]:
        t = self.table
        return t.table_id or t.name, tuple((c.type, c.nullable) for c in t.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Base) and (self.table is other.table or self._same == other._same)

    @cached_property
    def _hash(self) -> int:
        return hash(self.table.table_id or self.table.name)

    def __str__(self) -> str:
        return f"table {self.table.name}"


@dataclass(frozen=True)
class Filter(Mir):
    """The rows for which the predicate is true (neither false nor NULL)."""

    input: Mir
    predicate: Expr

    def __post_init__(self) -> None:
        check(all(0 <= c < self.input.width for c in columns_of(self.predicate)), lambda: f"filter {self.predicate}")

    def __str__(self) -> str:
        return f"filter {self.predicate}"


@dataclass(frozen=True)
class Project(Mir):
    """Computed columns.  A bare `Col` is a copy: keys trace through it."""

    input: Mir
    exprs: tuple[Expr, ...]
    names: tuple[str, ...] = field(compare=False)

    def __post_init__(self) -> None:
        check(len(self.exprs) == len(self.names) and len(self.exprs) > 0, "project: names and expressions differ")
        check(all(0 <= c < self.input.width for e in self.exprs for c in columns_of(e)), "project: no such column")

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(n, e.type, e.nullable) for n, e in zip(self.names, self.exprs, strict=True))

    def __str__(self) -> str:
        return "project " + ", ".join(f"{e} as {n}" for n, e in zip(self.names, self.exprs, strict=True))


@dataclass(frozen=True)
class Join(Mir):
    """An equi-join on one or more pairs (left column, right column).  Output: all left columns, then all right columns.

    `outer`: a LEFT JOIN; an unmatched left row occurs once, with NULLs on the right.  NULL matches nothing, except in
    the pairs whose indexes are in `null_safe`, where NULL equals NULL.  `residual`: a further condition for a match of
    an outer join, over the output columns (an inner join has a Filter instead).  Paired columns have the same kind,
    scale and collation; the SQL front end casts them by a Project.
    """

    left: Mir
    right: Mir
    on: tuple[tuple[int, int], ...]
    outer: bool = False
    null_safe: tuple[int, ...] = ()
    residual: Expr | None = None

    def __post_init__(self) -> None:
        check(len(self.on) > 0, "join without a column pair")
        check(all(0 <= i < len(self.on) for i in self.null_safe), "join: a NULL-safe pair that is not there")
        width = self.left.width + self.right.width
        check(self.residual is None or (self.outer and all(0 <= c < width for c in columns_of(self.residual))),
              lambda: f"join with residual {self.residual}")
        for a, b in self.on:
            check(0 <= a < self.left.width and 0 <= b < self.right.width, f"join on {a}, {b}")
            x, y = self.left.fields[a].type, self.right.fields[b].type
            same = (x.kind, x.folds) == (y.kind, y.folds) and (x.kind is not Kind.DECIMAL or x.scale == y.scale)
            check(same, partial("join of {} with {}".format, x, y))

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        right = self.right.fields
        if self.outer:
            right = tuple(Field(f.name, f.type, True) for f in right)
        return self.left.fields + right

    def __str__(self) -> str:
        pairs = " and ".join(f"#{a} {'<=>' if i in self.null_safe else '='} #{b}" for i, (a, b) in enumerate(self.on))
        return f"{'left ' if self.outer else ''}join on {pairs}" + (f" if {self.residual}" if self.residual else "")


@dataclass(frozen=True)
class Aggregate(Mir):
    """GROUP BY `group`.  Output: these input columns in order, then the aggregates.

    An empty `group` makes exactly one row; otherwise a group without rows has no row.  A grouped CI text column shows
    the spelling among the group's rows that is least in byte order.
    """

    input: Mir
    group: tuple[int, ...]
    aggs: tuple[Agg, ...]
    names: tuple[str, ...] = field(compare=False)  # of the aggregates

    def __post_init__(self) -> None:
        check(len(self.aggs) == len(self.names), "aggregate: names and aggregates differ")
        check(len(set(self.group)) == len(self.group), "aggregate groups by a column twice")
        check(len(self.group) + len(self.aggs) > 0, "aggregate without output")
        used = [*self.group, *(a.column for a in self.aggs if a.column is not None)]
        check(all(0 <= c < self.input.width for c in used), "aggregate: no such column")

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        f = self.input.fields
        out = [Field(n, a.type, a.function not in NEVER_NULL)
               for n, a in zip(self.names, self.aggs, strict=True)]
        return tuple(f[c] for c in self.group) + tuple(out)

    def __str__(self) -> str:
        by = f" by {', '.join(f'#{c}' for c in self.group)}" if self.group else ""
        return f"aggregate {', '.join(map(str, self.aggs)) or 'groups'}{by}"


def _check_order(order: Order, width: int) -> None:
    check(all(0 <= c < width for c, _ in order), "ordered by a column beyond the input")


def _show_order(order: Order) -> str:
    return ", ".join(f"#{c}{' desc' if d else ''}" for c, d in order)


@dataclass(frozen=True)
class Window(Mir):
    """Window functions.  Output: the input's columns, then one for each function.

    A group is the rows with equal `partition` columns (NULL equals NULL), or all rows if there are none.  Within a
    group, rows are ordered by `order`, then by all columns (`core/ranking.py`).
    """

    input: Mir
    partition: tuple[int, ...]
    order: Order
    calls: tuple[Over, ...]
    names: tuple[str, ...] = field(compare=False)

    def __post_init__(self) -> None:
        check(len(self.calls) == len(self.names) > 0, "window: names and functions differ")
        check(len(set(self.partition)) == len(self.partition), "window partitioned by a column twice")
        _check_order(self.order, self.input.width)
        used = [*self.partition, *(c.column for c in self.calls if c.column is not None)]
        check(all(0 <= c < self.input.width for c in used), "window: no such column")
        check(all(c.frame.rows or (c.frame.start in (None, 0) and c.frame.end in (None, 0)) for c in self.calls),
              "window: a distance in values")
        check(all(c.by >= (c.function in ("ntile", "nth_value")) for c in self.calls), "window: too low a number")

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        known = (*RANKING, *NEVER_NULL)
        return self.input.fields + tuple(
            Field(n, c.type, c.function not in known) for n, c in zip(self.names, self.calls, strict=True))

    def __str__(self) -> str:
        by = f" by {', '.join(f'#{c}' for c in self.partition)}" if self.partition else ""
        order = f" order {_show_order(self.order)}" if self.order else ""
        return f"window {', '.join(map(str, self.calls))}{by}{order}"


@dataclass(frozen=True)
class GroupConcat(Mir):
    """GROUP BY `group`, with the texts of one column joined by a separator, in `order`, then in the texts' own order.

    NULLs are skipped; the result is NULL if no text remains.  `distinct`: of the rows that are equal in these columns
    only the first is used; empty without DISTINCT.  An empty `group` makes one row.
    """

    input: Mir
    group: tuple[int, ...]
    column: int
    distinct: tuple[int, ...]
    order: Order
    separator: str
    name: str = field(compare=False)

    def __post_init__(self) -> None:
        check(len(set(self.group)) == len(self.group), "group_concat groups by a column twice")
        used = (*self.group, self.column, *self.distinct)
        check(all(0 <= c < self.input.width for c in used), "group_concat: no such column")
        check(self.input.fields[self.column].type.is_text, "group_concat of what is no text")
        _check_order(self.order, self.input.width)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        f = self.input.fields
        return (*(f[c] for c in self.group), Field(self.name, replace(f[self.column].type, length=0), True))

    def __str__(self) -> str:
        by = f" by {', '.join(f'#{c}' for c in self.group)}" if self.group else ""
        order = f" order {_show_order(self.order)}" if self.order else ""
        pairs = "" if self.distinct == (self.column,) else f"by {', '.join(f'#{c}' for c in self.distinct)} "
        distinct = f"distinct {pairs}" if self.distinct else ""
        return f"group_concat({distinct}#{self.column}{order} {self.separator!r}){by}"


@dataclass(frozen=True)
class TopK(Mir):
    """At most `limit` rows of each group after its first `offset`, in `order`, then by all columns.  An empty `group`:
    of all rows."""

    input: Mir
    group: tuple[int, ...]
    order: Order
    limit: int
    offset: int = 0

    def __post_init__(self) -> None:
        check(len(set(self.group)) == len(self.group), "top grouped by a column twice")
        check(all(0 <= c < self.input.width for c in self.group), "top: no such column")
        check(self.limit >= 0 and self.offset >= 0, "top: negative")
        _check_order(self.order, self.input.width)

    def __str__(self) -> str:
        by = f" by {', '.join(f'#{c}' for c in self.group)}" if self.group else ""
        order = f" order {_show_order(self.order)}" if self.order else ""
        return f"top {self.limit}{f' after {self.offset}' if self.offset else ''}{by}{order}"


@dataclass(frozen=True)
class Distinct(Mir):
    """Each row once.  NULL equals NULL; text compares by its collation.  Each column shows the spelling of its group
    that is least in byte order."""

    input: Mir

    def __str__(self) -> str:
        return "distinct"


@dataclass(frozen=True)
class UnionAll(Mir):
    """The rows of both inputs, with duplicates.  Columns pair by position, with the same kind, scale and collation."""

    left: Mir
    right: Mir

    def __post_init__(self) -> None:
        check(self.left.width == self.right.width, "union of different widths")
        for a, b in zip(self.left.fields, self.right.fields, strict=True):
            check((a.type.kind, a.type.folds, a.type.scale) == (b.type.kind, b.type.folds, b.type.scale),
                   f"union of {a.type} with {b.type}")

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(a.name, a.type, a.nullable or b.nullable)
                     for a, b in zip(self.left.fields, self.right.fields, strict=True))

    def __str__(self) -> str:
        return "union all"


@dataclass(frozen=True)
class Repeat(Mir):
    """Each row as many times as its column `count` says; not at all for NULL and below 1."""

    input: Mir
    count: int

    def __post_init__(self) -> None:
        check(0 <= self.count < self.input.width and self.input.fields[self.count].type.kind is Kind.INT, "repeat")

    def __str__(self) -> str:
        return f"repeat #{self.count} times"


def tables_of(plan: Mir) -> dict[str, TableDef]:
    """The base tables that a plan reads, by name.  If its parts know different versions of a table, the one with the
    most columns."""
    return dict(plan.tables_below)


def renamed(plan: Mir, table: str, name: str) -> Mir:
    """The plan after the table was renamed to `name`."""
    return rebased(plan, table, lambda b: Base(replace(b.table, name=name)))


def rebased(plan: Mir, table: str, over: Callable[[Base], Mir]) -> Mir:
    """Replace each Base of this table by `over(base)`.  Parts that do not read it stay the same objects, and a shared
    part stays shared."""
    made: dict[int, Mir] = {}

    def again(node: Mir) -> Mir:
        if table not in node.table_names:
            return node
        if id(node) not in made:
            made[id(node)] = over(node) if isinstance(node, Base) else node.with_inputs(*map(again, node.inputs))
        return made[id(node)]

    return again(plan)


def show(plan: Mir, indent: int = 0) -> str:
    """The plan as an indented tree."""
    return "\n".join(["  " * indent + str(plan), *(show(i, indent + 1) for i in plan.inputs)])
