"""Views as frozen values: the maintained plan, the key of lookups, and the steps after a lookup."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from noria.core.types import Field
from noria.plan.lookups import Lookup, Parameter
from noria.plan.mir import Mir, check, renamed


@dataclass(frozen=True)
class ParameterUses:
    """The uses of a view's parameters: a lookup for each key column, LIMIT, OFFSET.  `names`: the parameters' names, in
    order."""

    lookups: tuple[Lookup, ...]
    limit: Parameter | None
    offset: Parameter | None
    names: tuple[str, ...]


@dataclass(frozen=True)
class ViewDef:
    """A view: a plan, the key of its lookups, and the steps after a lookup.

    `key`: positions in plan.fields, one for each `?` in order (parameter i binds key[i]).  It is empty for a view
    without parameters, whose single key is ().  `visible`: the number of leading columns that the client sees; key
    columns that were not selected follow them.  `order`, as (column, descending), `limit` and `offset` apply to the
    rows of one lookup.  `empty_row`: for an ungrouped aggregate with parameters, the Python values of the row of a key
    without rows (COUNT 0, SUM NULL); None otherwise.
    `text`: the SELECT as SQL.  `internal`: without a reader and not looked up; other views build on it.  `feed`: an
    internal view whose reader records its changes on disk (`noria.feeds`).

    `after`: a plan over `plan.after.LookedUpRows` that is applied to the rows of a lookup before order and limit.
    With it, visible and order refer to its columns.  `asks`: None if parameter i binds key[i] and there are no others.
    `ranged`: its only key column, of numbers or dates, is also looked up by ranges.
    `definition`: a number that distinguishes it from other views that have or had its name; 0 if there are none.
    """

    encoded_once: ClassVar[bool] = True  # the worker receives the same view with each read that has no reader

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
    asks: ParameterUses | None = None
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
        """The relation whose rows a lookup returns, including hidden columns."""
        return self.plan if self.after is None else self.after

    def with_table(self, table: str, name: str) -> ViewDef:
        """The view after the table was renamed to `name`."""
        return replace(self, plan=renamed(self.plan, table, name))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that the client sees."""
        return self.result.fields[: self.visible]

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(self.plan.fields[k] for k in self.key)


def first_of(view: ViewDef) -> tuple[int, bool] | None:
    """Return (rows, descending) that are enough of a range, if the view orders by its key and has a limit."""
    if view.after is not None or view.limit is None or not view.order or view.order[0][0] != view.key[0]:
        return None
    return view.limit + view.offset, view.order[0][1]
