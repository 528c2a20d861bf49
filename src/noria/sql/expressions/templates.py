"""Expressions of parameters, made once and then filled with values.

`bind` makes the expressions of a statement from its parameters' values.  It resolves names and types anew each time,
which takes twenty times as long as putting other values into expressions that exist.

Keeps true: a template is used only for values of the types of its first ones.  Before, it has given the expressions of
`bind`, up to the order of operands, for extreme values of these types.  If `bind` folds or converts a value, there is
no template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from noria.core.errors import SqlError
from noria.core.expressions.expr import Call, Const, Expr
from noria.core.expressions.functions import canonical, uses_clock

Bind = Callable[[Sequence[Any]], tuple[Expr | None, ...]]
_Fill = Callable[[Sequence[Any]], Expr]
_MOST_INT = 2**62
_EXTREMES: dict[type, tuple[Any, ...]] = {
    int: (0, 1, -1, 2, 127, 255, 65_536, 2**31 - 1, -2**31, 2**32, _MOST_INT - 1, 1 - _MOST_INT),
    float: (0.0, 1.0, -1.0, 0.5, 1e300, -1e-300),
    str: ("", "0", "1", "-1", "1e3", "abc", "ABC", " a ", "É", "2024-02-29", "%", "_", "x" * 1_000),
}
_TYPES = 8  # combinations of types with templates of their own, for one statement
_MOST_VALUES = 32  # with more, learning takes too long
LEARN_AFTER = 2  # statements of the same types


class Templates:
    """See the module.  Calling it gives what `bind` gives, and whether that reads the clock."""

    def __init__(self, bind: Bind):
        self._bind = bind
        self._known: dict[tuple[type, ...], Template | None] = {}
        self._seen: dict[tuple[type, ...], int] = {}

    def __call__(self, values: Sequence[Any]) -> tuple[tuple[Expr | None, ...], bool]:
        if len(values) > _MOST_VALUES:
            found = self._bind(values)
            return found, _timed(found)
        types = tuple(map(type, values))
        known = self._known.get(types)
        if known is not None and _fits(values):
            return known.filled(values), known.timed
        found = self._bind(values)
        if types not in self._known and len(self._known) < _TYPES:
            self._seen[types] = self._seen.get(types, 0) + 1
            if self._seen[types] > LEARN_AFTER:
                self._known[types] = _learnt(self._bind, types)
            if len(self._seen) > 8 * _TYPES:
                self._seen.clear()
        return found, _timed(found)


class Template:
    """Expressions with holes.  An expression without holes stands for itself."""

    def __init__(self, expressions: tuple[Expr | None, ...], holes: Sequence[Any]):
        self.timed = _timed(expressions)
        self._made = [None if e is None else _filler(e, holes) or e for e in expressions]

    def filled(self, values: Sequence[Any]) -> tuple[Expr | None, ...]:
        return tuple([m if m is None or isinstance(m, Expr) else m(values) for m in self._made])


def _timed(expressions: Sequence[Expr | None]) -> bool:
    return any(uses_clock(e) for e in expressions if e is not None)


def _fits(values: Sequence[Any]) -> bool:
    """Whether the integers are among those for which templates are tried."""
    return all(-_MOST_INT < v < _MOST_INT for v in values if type(v) is int)


def _filler(e: Expr, holes: Sequence[Any]) -> _Fill | None:
    """A function that makes the expression from values; None if it has no holes."""
    if isinstance(e, Const):
        at = next((n for n, hole in enumerate(holes) if type(hole) is type(e.value) and hole == e.value), None)
        if at is None or e.value is None:
            return None
        kind, place = e.type, at
        return lambda values: Const(kind, False, values[place])
    if not isinstance(e, Call):
        return None
    parts = [_filler(a, holes) for a in e.args]
    if not any(parts):
        return None
    type_, nullable, op = e.type, e.nullable, e.op
    made = list(zip(parts, e.args, strict=True))
    return lambda values: Call(type_, nullable, op, tuple([a if f is None else f(values) for f, a in made]))


def _learnt(bind: Bind, types: Sequence[type]) -> Template | None:
    """The template for values of these types, or None if it would not give what `bind` gives."""
    if not set(types) <= {*_EXTREMES, type(None)}:
        return None
    holes = [_hole(kind, n) for n, kind in enumerate(types)]
    try:
        template = Template(bind(holes), holes)
        for step in (0, 1):  # all parameters alike, then each another extreme
            for first in range(max(map(len, _EXTREMES.values()))):
                values = [_extreme(kind, first + step * n) for n, kind in enumerate(types)]
                if not _same(template.filled(values), bind(values)):
                    return None
    except SqlError:
        return None
    return template


def _same(these: Sequence[Expr | None], those: Sequence[Expr | None]) -> bool:
    """Whether the expressions are equal, but for the order of operands, which values decide."""
    return these == those or [e and canonical(e) for e in these] == [e and canonical(e) for e in those]


def _extreme(kind: type, n: int) -> Any:
    return None if kind is type(None) else _EXTREMES[kind][n % len(_EXTREMES[kind])]


def _hole(kind: type, n: int) -> Any:
    """A value that occurs nowhere else."""
    if kind is int:
        return 1_000_003_000_000_007 + 2 * n
    if kind is float:
        return 1.000_003e207 * (n + 1)
    return None if kind is type(None) else f"\U000f0000{n}\U000f0001"
