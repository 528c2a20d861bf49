"""Resolves names in a query block: the relations of FROM and their columns.

Keeps true: every column of every relation of the block has one number, `ScopeRelation.offset` plus its position.
Expressions use these numbers until the join order is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from noria.core.errors import SqlError, ambiguous_column, unknown_column
from noria.core.errors.codes import BAD_TABLE, NO_TABLES_USED, NONUNIQ_TABLE
from noria.core.expressions.expr import Col
from noria.core.types import Field
from noria.plan.keys import unique_keys
from noria.plan.mir import Mir

_CONDITIONS = ("where clause", "on clause")


class RelationNames(NamedTuple):
    """The names of a table or view of FROM, and the one by which the statement calls it."""

    database: str
    name: str
    alias: str
    is_table: bool


@dataclass
class ScopeRelation:
    """A relation of the block.

    `outer`: a join can NULL-extend it, so all its columns can be NULL.  `merged`: positions of columns that USING or
    NATURAL replaced by a column of another relation.  `hidden`: the number of last columns without a name (keys, and
    order columns of a view).  `order`: a view's order, as (column, descending).  `keys`: positions of a view's hidden
    keys, which only conditions may name.
    `named_as`: of a table or view, the names that clients know; None for a derived table and a query of WITH.
    `determined_by`: for the relation of a subquery, which no name refers to: columns whose values determine its row.
    """

    alias: str
    plan: Mir
    offset: int
    outer: bool = False
    merged: set[int] = field(default_factory=set)
    determined_by: frozenset[int] | None = None
    hidden: int = 0
    order: tuple[tuple[int, bool], ...] = ()
    keys: tuple[int, ...] = ()
    named_as: RelationNames | None = None

    @property
    def end(self) -> int:
        return self.offset + self.plan.width

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that have a name."""
        return self.plan.fields[: self.plan.width - self.hidden]

    @cached_property
    def named(self) -> dict[str, list[int]]:
        """Positions by lower-case name."""
        found: dict[str, list[int]] = {}
        for i, f in enumerate(self.fields):
            found.setdefault(f.name.lower(), []).append(i)
        return found

    def column(self, position: int) -> Col:
        f = self.plan.fields[position]
        return Col(f.type, f.nullable or self.outer, self.offset + position)


class Scope:
    """The relations of one block, in the written order.  `shown`: the numbers of the columns of `*`.  `start`: the
    number of the first column; lower numbers are columns of an outer query.  `lent`: the outer query's columns that
    the block has joined, by table and name (`outer_columns`)."""

    def __init__(self, start: int = 0) -> None:
        self.sources: list[ScopeRelation] = []
        self.shown: list[int] = []
        self.start = start
        self.lent: dict[tuple[str, str], Col] = {}

    @property
    def end(self) -> int:
        return self.sources[-1].end if self.sources else self.start

    def add(self, alias: str, plan: Mir, hidden: int = 0, order: tuple[tuple[int, bool], ...] = (),
            keys: tuple[int, ...] = ()) -> ScopeRelation:
        source = ScopeRelation(alias, plan, self.end, hidden=hidden, order=order, keys=keys)
        self._take(source)
        self.shown += range(source.offset, source.end - hidden)
        return source

    def hide(self, plan: Mir, determined_by: frozenset[int]) -> ScopeRelation:
        """Add the relation of a LEFT JOINed subquery: at most one row for one value of the `determined_by` columns."""
        source = ScopeRelation("", plan, self.end, outer=True, determined_by=determined_by, hidden=plan.width)
        self.sources.append(source)
        return source

    def unnamed(self, plan: Mir) -> ScopeRelation:
        """Add the one row of a SELECT without FROM, whose columns nothing names."""
        source = ScopeRelation("", plan, self.end, hidden=plan.width)
        self.sources.append(source)
        return source

    def domain(self, plan: Mir) -> ScopeRelation:
        """Add a relation of distinct rows that no name refers to."""
        source = ScopeRelation("", plan, self.end, determined_by=frozenset(range(self.end, self.end + plan.width)))
        self.sources.append(source)
        return source

    def lends(self, source: ScopeRelation) -> bool:
        """Whether the relation has columns that were lent to this block."""
        return any(source.offset <= c.index < source.end for c in self.lent.values())

    def adopt(self, other: Scope) -> None:
        """Add the relations of joins in brackets."""
        for s in other.sources:
            self._take(s)
        self.shown += other.shown

    def _take(self, source: ScopeRelation) -> None:
        if source.alias and any(s.alias.lower() == source.alias.lower() for s in self.sources):
            raise SqlError(*NONUNIQ_TABLE, f"Not unique table/alias: '{source.alias}'")
        self.sources.append(source)

    def merge(self, columns: list[tuple[Col, Col]], right: int = 0) -> None:
        """Merge the column pairs (kept, other) of USING.  In `*` the merged columns come first.  Then come columns
        from number `right` on (the right side of a RIGHT JOIN), then the rest."""
        for _, other in columns:
            s = self.sources[self.source_of(other.index)]
            s.merged.add(other.index - s.offset)
        first, gone = [k.index for k, _ in columns], {c.index for both in columns for c in both}
        self.shown = first + sorted((c for c in self.shown if c not in gone), key=lambda c: c < right)

    def source_of(self, column: int) -> int:
        """The index of the source that has this column."""
        return next(i for i, s in enumerate(self.sources) if s.offset <= column < s.end)

    def field(self, column: int) -> Field:
        s = self.sources[self.source_of(column)]
        return s.plan.fields[column - s.offset]

    def find(self, name: str, table: str = "") -> list[Col]:
        """The columns of this name, of one relation or of all.  Merged columns count once."""
        name, table = name.lower(), table.lower()
        return [s.column(i) for s in self.sources
                if s.determined_by is None and not (table and s.alias.lower() != table)
                for i in s.named.get(name, ()) if table or i not in s.merged]

    def _keys(self, name: str, table: str) -> list[Col]:
        """The hidden keys of views that have this name."""
        name, table = name.lower(), table.lower()
        return [s.column(i) for s in self.sources if not (table and s.alias.lower() != table)
                for i in s.keys if s.plan.fields[i].name.lower() == name]

    def resolve(self, name: str, table: str, clause: str) -> Col:
        found = self.find(name, table) or (self._keys(name, table) if clause in _CONDITIONS else [])
        shown = f"{table}.{name}" if table else name
        if not found:
            raise unknown_column(shown, clause)
        if len(found) > 1:
            raise ambiguous_column(shown, clause)
        return found[0]

    def star(self, table: str = "") -> list[tuple[str, Col]]:
        """The columns of `*` or `table.*`, with their names.  Raises error 1096 without FROM."""
        if not table and not self.shown:
            raise SqlError(*NO_TABLES_USED, "No tables used")
        if not table:
            return [(self.field(c).name, self._numbered(c)) for c in self.shown]
        sources = [s for s in self.sources if s.alias.lower() == table.lower()]
        if not sources:
            raise SqlError(*BAD_TABLE, f"Unknown table '{table}'")
        return [(f.name, s.column(i)) for s in sources for i, f in enumerate(s.fields)]

    def _numbered(self, column: int) -> Col:
        s = self.sources[self.source_of(column)]
        return s.column(column - s.offset)

    def determined(self, columns: set[int]) -> set[int]:
        """The columns that have one value where these have one: columns of relations whose unique key is among them,
        and of subqueries that they determine."""
        out = set(columns)
        for s in self.sources:
            if s.determined_by is not None and s.determined_by <= out:
                out.update(range(s.offset, s.end))
            for key in unique_keys(s.plan):
                # Whether its rows differ from a NULL-extended row in the key.
                distinguishable = not s.outer or not any(s.plan.fields[k].nullable for k in key)
                if distinguishable and all(s.offset + k in columns for k in key):
                    out.update(range(s.offset, s.end))
        return out
