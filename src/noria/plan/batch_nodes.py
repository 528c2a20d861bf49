"""Plan nodes that only Spark's lowering knows: what the data-flow does not maintain yet.

They stand in the plans of `sql.commands.BatchQuery`, never in a `ViewDef`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from noria.core.types import Field
from noria.plan.mir import Mir, _check


@dataclass(frozen=True)
class Distinct(Mir):
    """Each row once.  NULLs are equal here, text by its collation; of a group's spellings the least in byte
    order is shown, per column."""

    input: Mir

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields

    @property
    def inputs(self) -> tuple[Mir, ...]:
        return (self.input,)

    @cached_property
    def _hash(self) -> int:
        return hash(("distinct", self.input))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return "distinct"


@dataclass(frozen=True)
class UnionAll(Mir):
    """The rows of both, duplicates kept.  Columns pair by position and have the same kind, scale and collation."""

    left: Mir
    right: Mir

    def __post_init__(self) -> None:
        _check(self.left.width == self.right.width, "union of different widths")
        for a, b in zip(self.left.fields, self.right.fields, strict=True):
            _check((a.type.kind, a.type.folds, a.type.scale) == (b.type.kind, b.type.folds, b.type.scale),
                   f"union of {a.type} with {b.type}")

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(a.name, a.type, a.nullable or b.nullable)
                     for a, b in zip(self.left.fields, self.right.fields, strict=True))

    @property
    def inputs(self) -> tuple[Mir, ...]:
        return (self.left, self.right)

    @cached_property
    def _hash(self) -> int:
        return hash(("union_all", self.left, self.right))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return "union all"


@dataclass(frozen=True)
class Sort(Mir):
    """The rows in order of (column, descending): NULLs first ascending, text by its collation.  Above it only
    Limit keeps the order."""

    input: Mir
    order: tuple[tuple[int, bool], ...]

    def __post_init__(self) -> None:
        _check(len(self.order) > 0 and all(0 <= c < self.input.width for c, _ in self.order), "sort")

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields

    @property
    def inputs(self) -> tuple[Mir, ...]:
        return (self.input,)

    @cached_property
    def _hash(self) -> int:
        return hash(("sort", self.input, self.order))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return "sort " + ", ".join(f"#{c}{' desc' if d else ''}" for c, d in self.order)


@dataclass(frozen=True)
class Limit(Mir):
    """The rows after the first `offset`, at most `limit` of them (None: all)."""

    input: Mir
    limit: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        _check(self.offset >= 0 and (self.limit is None or self.limit >= 0), "limit")

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields

    @property
    def inputs(self) -> tuple[Mir, ...]:
        return (self.input,)

    @cached_property
    def _hash(self) -> int:
        return hash(("limit", self.input, self.limit, self.offset))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"limit {'all' if self.limit is None else self.limit}" + (f" after {self.offset}" if self.offset else "")
