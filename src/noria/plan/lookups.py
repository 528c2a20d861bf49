"""The lookups of a view's key columns: values, parameters, sets and ranges.

    Value(3)                        a = 3                 Parameter(0)                  a = ?1
    AnyOf(Parameter(0), Value(3))   a IN (?1, 3)          NullSafe(Parameter(0))        a <=> ?1
    Range(Bound("gt", …), …)        a > ?1 AND a <= 5

Keeps true: a lookup that `bind` returns has no parameters.  NULL among its values matches no row, as in `a = NULL`;
under NullSafe it matches NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar

from noria.core.expressions.expr import Expr
from noria.core.expressions.functions import call, literal

C = TypeVar("C")
SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class Lookup:
    """Base of the kinds below; each is frozen and compares by value."""

    single = False  # exactly one value, from the client or the text
    several = False  # may have more than one key

    @property
    def parameters(self) -> tuple[int, ...]:
        """The ordinals of its parameters, in order."""
        raise NotImplementedError

    @property
    def values(self) -> tuple[Any, ...]:
        """The Python values of a bound lookup, as the client sent them.  Not for ranges."""
        raise NotImplementedError

    def bind(self, values: Sequence[Any]) -> Lookup:
        """Replace its parameters by these values."""
        raise NotImplementedError

    def moved(self, change: Callable[[Any], Any]) -> Lookup:
        """Apply `change` to each value of a bound lookup."""
        raise NotImplementedError

    def condition(self, column: Expr) -> Expr:
        """The condition on the column that equals a bound lookup."""
        raise NotImplementedError

    def show(self, column: str) -> str:
        """The lookup as SQL; parameters count from one."""
        raise NotImplementedError


@dataclass(frozen=True)
class Value(Lookup):
    """`column = value`."""

    value: Any
    single = True

    @property
    def parameters(self) -> tuple[int, ...]:
        return ()

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.value,)

    def bind(self, values: Sequence[Any]) -> Value:
        return self

    def moved(self, change: Callable[[Any], Any]) -> Value:
        return Value(change(self.value))

    def condition(self, column: Expr) -> Expr:
        return call("eq", column, literal(self.value))

    def show(self, column: str) -> str:
        return f"{column} = {self}"

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        return str(self.value) if isinstance(self.value, (int, float, Decimal)) else repr(str(self.value))


@dataclass(frozen=True)
class Parameter(Lookup):
    """`column = ?`.  `ordinal`: of the `?`, from zero."""

    ordinal: int
    single = True

    @property
    def parameters(self) -> tuple[int, ...]:
        return (self.ordinal,)

    def bind(self, values: Sequence[Any]) -> Value:
        return Value(values[self.ordinal])

    def show(self, column: str) -> str:
        return f"{column} = {self}"

    def __str__(self) -> str:
        return f"?{self.ordinal + 1}"


One = Value | Parameter


def one(lookup: Lookup) -> One:
    """The lookup as a `One`; it must be single."""
    assert isinstance(lookup, One)
    return lookup


@dataclass(frozen=True)
class AnyOf(Lookup):
    """`column IN (…)`: each value is a key."""

    of: tuple[One, ...]
    several = True

    @property
    def parameters(self) -> tuple[int, ...]:
        return tuple(i for one in self.of for i in one.parameters)

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(v for one in self.of for v in one.values)

    def bind(self, values: Sequence[Any]) -> AnyOf:
        return AnyOf(tuple(dict.fromkeys(one.bind(values) for one in self.of)))

    def moved(self, change: Callable[[Any], Any]) -> AnyOf:
        return AnyOf(tuple(Value(change(v)) for v in self.values))

    def condition(self, column: Expr) -> Expr:
        return call("in", column, *map(literal, self.values))

    def show(self, column: str) -> str:
        return f"{column} IN ({', '.join(map(str, self.of))})"


@dataclass(frozen=True)
class NullSafe(Lookup):
    """`column <=> …`: NULL is looked up like any value."""

    one: One

    @property
    def parameters(self) -> tuple[int, ...]:
        return self.one.parameters

    @property
    def values(self) -> tuple[Any, ...]:
        return self.one.values

    def bind(self, values: Sequence[Any]) -> NullSafe:
        return NullSafe(self.one.bind(values))

    def moved(self, change: Callable[[Any], Any]) -> NullSafe:
        return NullSafe(Value(change(self.values[0])))

    def condition(self, column: Expr) -> Expr:
        return call("nseq", column, literal(self.values[0]))

    def show(self, column: str) -> str:
        return f"{column} <=> {self.one}"


@dataclass(frozen=True)
class Bound:
    """One end of a range.  `op`: lt, le, gt or ge."""

    op: str
    one: One

    @property
    def value(self) -> Any:
        """The value, in a bound lookup."""
        return self.one.values[0]


@dataclass(frozen=True)
class Range(Lookup):
    """All values for which every bound holds."""

    bounds: tuple[Bound, ...]
    several = True

    @property
    def parameters(self) -> tuple[int, ...]:
        return tuple(i for b in self.bounds for i in b.one.parameters)

    def bind(self, values: Sequence[Any]) -> Range:
        return Range(tuple(Bound(b.op, b.one.bind(values)) for b in self.bounds))

    def moved(self, change: Callable[[Any], Any]) -> Range:
        return Range(tuple(Bound(b.op, Value(change(b.value))) for b in self.bounds))

    def condition(self, column: Expr) -> Expr:
        return call("and", *(call(b.op, column, literal(b.value)) for b in self.bounds))

    def show(self, column: str) -> str:
        return " AND ".join(f"{column} {SIGNS[b.op]} {b.one}" for b in self.bounds)


def is_plain(lookups: Sequence[Lookup]) -> bool:
    """Whether the lookups are exactly the parameters 0, 1, … in order; true for none."""
    return all(lookup == Parameter(i) for i, lookup in enumerate(lookups))


@dataclass(frozen=True)
class Key(Generic[C]):
    """A column and its lookup.  `column`: an expression over a block's relations, or a position in a plan."""

    lookup: Lookup
    column: C

    def at(self, position: int) -> Key[int]:
        return Key(self.lookup, position)
