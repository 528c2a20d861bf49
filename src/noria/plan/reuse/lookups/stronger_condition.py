"""Reads a view from another with fewer conditions: looks rows up there, and tests the additional conditions.

    all       SELECT id, title, state FROM stories WHERE id = ?
    open      SELECT title FROM stories WHERE id = ? AND state = 1     a row of all, if its column 2 is 1
    by both   SELECT title FROM stories WHERE id = ? AND author = ?    likewise, if its author is the wanted one

The policy: a key must have at most one row, so that a read tests at most one.  If two of a thousand rows were wanted,
rows of its own would be faster.  Only whole numbers are tested, which costs nothing beside the lookup (`ColumnCheck`).
Refused if a column may hold an error: rejected rows must not report one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.expressions.expr import Call, Col, Const, Expr
from noria.core.limits import MAX_INT, MIN_INT, NULL_CODE
from noria.core.types import Kind
from noria.plan.lookups import SIGNS

Mask = npt.NDArray[np.bool_]
_SAME: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
_SWAPPED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.gt, "le": operator.ge, "gt": operator.lt, "ge": operator.le}

_SIGNS = {**SIGNS, "eq": "=", "ne": "<>", "is_null": "IS NULL", "is_not_null": "IS NOT NULL", "in": "IN"}


@dataclass(frozen=True)
class ColumnCheck:
    """A comparison of a column of whole numbers with a constant.  NULL passes only "is_null", and "one_of" if its
    values include NULL."""

    column: int
    op: str
    value: Any = None

    def holds(self, value: Any) -> bool:
        if self.op in ("is_null", "is_not_null"):
            return (value is None) == (self.op == "is_null")
        if value is None:
            return self.op == "one_of" and None in self.value
        return self.test(value)

    @cached_property
    def test(self) -> Callable[[int], bool]:
        """`holds` for values that are not NULL."""
        if self.op in ("is_null", "is_not_null"):
            answer = self.op == "is_not_null"
            return lambda value: answer
        if self.op == "one_of":
            among: frozenset[Any] = self.value
            return among.__contains__
        if self.op == "in":
            return partial(operator.contains, self.value)
        return partial(_SWAPPED[self.op], self.value)

    def passes(self, code: int) -> bool:
        """`holds` for a code: a whole number is its own code."""
        return self.test(code) if code != NULL_CODE else self.holds(None)

    def mask(self, codes: Codes) -> Mask:
        """`passes` for many codes."""
        null: Mask = codes == NULL_CODE
        if self.op in ("is_null", "is_not_null"):
            return null if self.op == "is_null" else np.logical_not(null)
        if self.op in ("in", "one_of"):
            found: Mask = np.isin(codes, [NULL_CODE if v is None else v for v in self.value])
            return found
        return np.logical_and(_SAME[self.op](codes, self.value), np.logical_not(null))

    def __str__(self) -> str:
        return f"#{self.column} {_SIGNS.get(self.op, self.op)}" + (f" {self.value}" if self.value is not None else "")


def stronger_condition(terms: Collection[Expr], shown: Sequence[Expr], sure: Sequence[bool]
                       ) -> tuple[ColumnCheck, ...] | None:
    """The checks of shown columns that equal the terms; None if a term is no such check or a column may fail."""
    checks = [_test(t, shown) for t in sorted(terms, key=str)]
    return tuple(c for c in checks if c) if all(checks) and (not terms or all(sure)) else None


def is_integer(e: Expr) -> bool:
    return e.type.kind is Kind.INT


def _test(term: Expr, shown: Sequence[Expr]) -> ColumnCheck | None:
    if not isinstance(term, Call):
        return None
    if term.op == "not" and isinstance(term.args[0], Call) and term.args[0].op == "is_null":
        term, op = term.args[0], "is_not_null"
    else:
        op = term.op
    column, *others = term.args
    if not isinstance(column, Col) or column not in shown or not is_integer(column):
        return None
    if op in ("is_null", "is_not_null"):
        return ColumnCheck(shown.index(column), op)
    known = op in _SAME or op == "in"
    if not known or not all(isinstance(o, Const) and is_integer(o) and o.value is not None for o in others):
        return None
    values = tuple(int(o.value) for o in others if isinstance(o, Const))
    if not all(MIN_INT <= v <= MAX_INT for v in values):
        return None
    return ColumnCheck(shown.index(column), op, values if op == "in" else values[0])
