"""Turns an exception in the evaluation of a row into that row's error value.

`evaluate` first runs an expression over the batch as it is.  If that raises, it compiles the expression again with
`of_its_rows` around each call.  A call that raises then runs over halves of the batch, down to the single rows that
raise.  So `COALESCE(a, f(b))` is an error only where a is NULL and f raises.

Keeps true: an exception that no row caused is raised: a broken invariant, or a lack of memory or disk space.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noria.core.batch import Codes
from noria.core.errors import InvariantViolation, SqlError
from noria.core.errors.codes import DISK_FULL, OUT_OF_RESOURCES, TABLE_FULL
from noria.core.limits import ERROR_CODE
from noria.core.symbols import Symbols

Node = Callable[[Codes, Symbols], Codes]
_ERROR = np.array([ERROR_CODE], np.int64)


def is_of_a_row(bug: Exception) -> bool:
    """True if an exception is the fault of a row, not of the machine or of Noria."""
    if isinstance(bug, SqlError):
        return bug.code not in (OUT_OF_RESOURCES.number, DISK_FULL.number, TABLE_FULL.number)
    return isinstance(bug, TimeoutError) or not isinstance(bug, (InvariantViolation, MemoryError, OSError))


def of_its_rows(node: Node, constant: bool) -> Node:
    """Wrap a node so that each row for which it raises becomes an error.  constant: the node reads no columns."""
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
