"""An exception that is raised while a row is evaluated is that row's error value: the one place for this rule.

`evaluate` runs an expression over a whole batch as it is.  Only when that raises is the expression compiled once more,
with `of_its_rows` around every call in it: the batch is then evaluated in halves, down to the rows that raise.  So
`COALESCE(a, f(b))` is an error only where a is NULL and f raises.

Keeps true: what is no fault of a row leaves as an exception: a broken invariant, and want of memory or disk.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noria.core.batch import Codes
from noria.core.errors import DISK_FULL, OUT_OF_RESOURCES, TABLE_FULL, InvariantViolation, SqlError
from noria.core.limits import ERROR_CODE
from noria.core.symbols import Symbols

Node = Callable[[Codes, Symbols], Codes]
_ERROR = np.array([ERROR_CODE], np.int64)


def is_of_a_row(bug: Exception) -> bool:
    """Is the row at fault, and not the machine?"""
    if isinstance(bug, SqlError):
        return bug.code not in (OUT_OF_RESOURCES, DISK_FULL, TABLE_FULL)
    return isinstance(bug, TimeoutError) or not isinstance(bug, (InvariantViolation, MemoryError, OSError))


def of_its_rows(node: Node, constant: bool) -> Node:
    """The node, giving an error for each row for which it raises.  constant: it gives the same for every row."""
    def run(columns: Codes, symbols: Symbols) -> Codes:
        return _evaluated(node, columns[:, :1] if constant else columns, symbols)

    return run


def _evaluated(node: Node, columns: Codes, symbols: Symbols) -> Codes:
    try:
        return node(columns, symbols)
    except Exception as bug:
        if not is_of_a_row(bug):
            raise
    rows = columns.shape[1]
    if rows == 1:
        return _ERROR
    halves = (columns[:, : rows // 2], columns[:, rows // 2 :])
    return np.concatenate([_spread(_evaluated(node, half, symbols), half.shape[1]) for half in halves])


def _spread(codes: Codes, rows: int) -> Codes:
    return codes if len(codes) == rows else np.repeat(codes, rows)
