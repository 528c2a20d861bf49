"""A view: the plan that is kept, what it is looked up by, and what is done after the lookup."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from noria.core.types import Field
from noria.plan.lookups import Lookup, Parameter
from noria.plan.mir import Mir, check, renamed


@dataclass(frozen=True)
class Asks:
    """How the parameters of a view's lookup are used: a lookup for each key column, LIMIT, OFFSET.  names: the
    parameters' names, in order."""

    lookups: tuple[Lookup, ...]
    limit: Parameter | None
    offset: Parameter | None
    names: tuple[str, ...]


@dataclass(frozen=True)
class ViewDef:
    """An external view: a plan, the columns it is looked up by, and what is done after the lookup.

    key: positions in plan.fields, one per `?` in order of the parameters (parameter i binds key[i]); empty for
    a view without parameters, whose single key is ().  visible: how many leading columns the client sees
    (key columns that were not selected follow them).  order: (column, descending) and limit/offset are
    applied to the rows of one lookup.  empty_row: for an ungrouped aggregate with parameters, the Python
    values of the row that a key without rows has (COUNT 0, SUM NULL); None otherwise.
    text: the SELECT as SQL.  internal: nobody looks it up, so it has no reader; other views build on it.  feed: but its
    changes are told (`noria.feeds`), by a reader that keeps them on disk; it is internal, too.

    after: what is done to the rows of a lookup before order and limit, a plan over `plan.after.Found`; its columns
    take the place of the plan's in visible and order.  asks: None where parameter i binds key[i] and that is all.
    ranged: its only key column, of numbers or dates, is looked up by ranges, too.
    definition: a number that tells it from other views that have or had its name; 0 where there are none.
    """

    name: str
    plan: Mir
    key: tuple[int, ...]
    visible: int
    order: tuple[tuple[int, bool], ...] = ()
    limit: int | None = None
    offset: int = 0
    empty_row: tuple[Any, ...] | None = None
    text: str = ""
    internal: bool = False
    feed: bool = False
    adhoc: bool = False
    after: Mir | None = None
    asks: Asks | None = None
    ranged: bool = False
    definition: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        check(0 < self.visible <= self.result.width, f"view {self.name} shows {self.visible} columns")
        check(all(0 <= k < self.plan.width for k in self.key), f"view {self.name} has key {self.key}")
        check(len(set(self.key)) == len(self.key), f"view {self.name} names a key column twice")
        check(not self.ranged or (len(self.key) == 1 and not self.plan.fields[self.key[0]].type.is_text),
               f"view {self.name} is read by ranges of {self.key}")

    @property
    def result(self) -> Mir:
        """The relation whose rows a lookup gives, hidden columns included."""
        return self.plan if self.after is None else self.after

    def with_table(self, table: str, name: str) -> ViewDef:
        """The same view, where a table has another name."""
        return replace(self, plan=renamed(self.plan, table, name))

    @property
    def fields(self) -> tuple[Field, ...]:
        """What the client sees."""
        return self.result.fields[: self.visible]

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(self.plan.fields[k] for k in self.key)
