"""Reads one view through another: a lookup in the other's reader, then a selection of rows and columns.

Keeps true: the result has the rows of the view's own plan, including errors.  The strategies `fewer_columns` and
`stronger_condition` decide whether such a read is fast enough.  Call `through`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from noria.core.expressions.expr import Expr
from noria.plan.keys import unique_keys
from noria.plan.mir import Mir
from noria.plan.reuse.errors import errorless
from noria.plan.reuse.lookups.fewer_columns import fewer_columns
from noria.plan.reuse.lookups.rows import rows_of
from noria.plan.reuse.lookups.stronger_condition import ColumnCheck, is_integer, stronger_condition
from noria.plan.view import ViewDef

Key = tuple[Any, ...]
Place = tuple[Mir, tuple[Expr, ...]]
"""What rows are of, and what they are looked up by."""
_MOST_KEYS = 4  # the most columns of a key whose subsets are tried as another view's key


@dataclass(frozen=True)
class ReadThrough:
    """How a view is read through another.  `columns`: the wanted columns of the other's rows.  `checks`: conditions
    over the other's columns.  `key`: the positions of the other's key columns in the view's key.  `bound`: the other
    positions in the view's key, each with the other view's column that must have its value."""

    columns: tuple[int, ...]
    checks: tuple[ColumnCheck, ...] = ()
    key: tuple[int, ...] = ()
    bound: tuple[tuple[int, int], ...] = ()

    @cached_property
    def same_key(self) -> bool:
        """Whether a key of the view is also a key of the other."""
        return not self.bound and self.key == tuple(range(len(self.key)))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(about: dict[str, Any]) -> ReadThrough:
        checks = (ColumnCheck(c["column"], c["op"], tuple(v) if isinstance(v := c["value"], list) else v)
                  for c in about["checks"])
        return ReadThrough(tuple(about["columns"]), tuple(checks), tuple(about["key"]),
                           tuple(map(tuple, about["bound"])))

    def of(self, keys: Sequence[Key]) -> tuple[list[Key], ReadThrough]:
        """The other's keys for all keys of one lookup, and this Through with checks for the `bound` values.

        The keys of a lookup are the product of the values of each column, so a check for each column suffices.
        """
        if self.same_key:
            return list(keys), self
        found = list(dict.fromkeys(tuple(k[i] for i in self.key) for k in keys))
        if not self.bound:
            return found, self
        checks = tuple(ColumnCheck(c, "one_of", tuple({k[i] for k in keys})) for i, c in self.bound)
        return found, replace(self, checks=self.checks + checks, bound=())

    def rows(self, found: list[Any]) -> list[Any]:
        """Select the view's rows from those found in the other view, as Python values."""
        for check in self.checks:
            found = [r for r in found if check.holds(r[check.column])]
        columns = self.columns
        return [tuple(r[c] for c in columns) for r in found]

    def part(self, other: ViewDef) -> float:
        """The fraction of the other's columns that is used."""
        return len(set(self.columns)) / self._most(other)

    def _most(self, other: ViewDef) -> int:
        return max(other.visible, *(c + 1 for c in self.columns))

    def show(self, other: ViewDef) -> str:
        """A readable description, as EXPLAIN prints it."""
        names = [f.name for f in other.result.fields]
        checks = [*map(str, self.checks), *(f"#{c} = ?" for _, c in self.bound)]
        conditions = " and ".join(re.sub(r"#(\d+)", lambda found: names[int(found[1])], t) for t in checks)
        used = f"{len(set(self.columns))} of {self._most(other)} columns"
        return f"{used}, where {conditions}" if conditions else used


def place_of(view: ViewDef) -> Place:
    """The place of a view: views of one place may be read through each other."""
    rows = rows_of(view.plan)
    return rows.source, tuple(rows.exprs[k] for k in view.key)


def places_for(view: ViewDef) -> Iterator[Place]:
    """The places of views through which this one might be read: those of its key, then of subsets of the key."""
    source, key = place_of(view)
    yield source, key
    if len(key) <= _MOST_KEYS:
        for n in range(len(key) - 1, 0, -1):
            yield from ((source, part) for part in combinations(key, n))


def through(other: ViewDef, reader_columns: int, view: ViewDef, wanted: int) -> ReadThrough | None:
    """How to read the view through another; None if that is impossible or would be slower.

    `reader_columns`: the number of columns that the other's reader shows.  `wanted`: the number of the view's columns
    in the result, including key columns that are not used.
    """
    there, mine = rows_of(other.plan), rows_of(view.plan)
    if there.source != mine.source or not there.terms <= mine.terms or (view.ranged and not other.ranged):
        return None
    shown, sure = there.exprs[:reader_columns], errorless(other.plan)[:reader_columns]
    mine_key = [mine.exprs[k] for k in view.key]
    other_key = [there.exprs[k] for k in other.key]
    if len(set(mine_key)) < len(mine_key) or not all(k in mine_key for k in other_key):
        return None
    key = tuple(mine_key.index(k) for k in other_key)
    rest = [i for i in range(len(mine_key)) if i not in key]
    seen = {*range(view.visible), *(c for c, _ in view.order)} if view.after is None else range(wanted)
    columns = fewer_columns(shown, sure, [e if i in seen else None for i, e in enumerate(mine.exprs[:wanted])])
    checks = stronger_condition(mine.terms - there.terms, shown, sure)
    if columns is None or checks is None:
        return None
    if (rest or checks) and not (all(sure) and _one_row(other)):
        return None
    if not all(is_integer(mine_key[i]) and mine_key[i] in shown for i in rest):
        return None
    return ReadThrough(columns, checks, key, tuple((i, shown.index(mine_key[i])) for i in rest))


def _one_row(view: ViewDef) -> bool:
    """Whether each key has at most one row."""
    return any(unique <= set(view.key) for unique in unique_keys(view.plan))
