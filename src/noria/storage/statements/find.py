"""Finds the rows of a WHERE: by key or index if equalities allow, by a range of its first column, else by a scan.

An index yields a superset (folded text, further terms), so the whole condition is always evaluated on the rows found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import value_overflow
from noria.core.expressions import evaluate
from noria.core.expressions.column_ranges import bounded, ranges_of
from noria.core.expressions.expr import Call, Expr, conjuncts
from noria.core.limits import ERROR_CODE
from noria.core.symbols import Symbols
from noria.core.types import Kind
from noria.core.values import encode
from noria.storage.statements.stage import TableStage
from noria.storage.tables.table import StoredTable

Points = dict[int, list[Any]]  # values by column (`core.expressions.points`)
KEY_WORDS = 8  # the memory of a row's key, in columns
_SAFE = frozenset("eq ne lt le gt ge nseq and or not xor is_null is_true in like".split())  # never overflow


class FoundRows(NamedTuple):
    """Found rows: their keys and their codes."""

    keys: list[bytes]
    codes: Codes

    def take(self, rows: npt.NDArray[np.intp]) -> FoundRows:
        return FoundRows([self.keys[r] for r in rows.tolist()], self.codes[:, rows])


def find(stage: TableStage, where: Expr | None, symbols: Symbols) -> FoundRows:
    """All rows for which the condition is true."""
    table = stage.table
    points = bounded(where, table.types)
    holds = None if where is None or _are_its_rows(where, points, table) else true_of(where)
    keys: list[bytes] = []
    chunks: list[Codes] = []
    for some, values in _candidates(stage, where, points, symbols):
        codes = table.codes(values)
        if holds is not None:
            rows = np.flatnonzero(holds(Batch.of(codes), symbols))
            codes = codes[:, rows]
            some = None if some is None else [some[r] for r in rows.tolist()]
        if codes.shape[1]:
            keys += table.keys(codes) if some is None else some
            chunks.append(codes)
            if stage.limits is not None:
                stage.limits.product(len(keys), table.width + KEY_WORDS)
    if len(chunks) == 1:
        return FoundRows(keys, chunks[0])
    return FoundRows(keys, np.concatenate(chunks, axis=1) if chunks else np.empty((table.width, 0), np.int64))


def true_of(where: Expr) -> Callable[[Batch, Symbols], npt.NDArray[np.bool_]]:
    """A function that computes the mask of rows for which the condition is true.

    It raises SqlError 1690 if a row's condition cannot be evaluated: such a row must be neither written nor skipped.
    """
    holds = evaluate.predicate(where)
    if not _may_fail(where):
        return holds
    value = evaluate.compile(where)

    def checked(batch: Batch, symbols: Symbols) -> npt.NDArray[np.bool_]:
        if (value(batch, symbols) == ERROR_CODE).any():
            raise value_overflow("BIGINT")
        return holds(batch, symbols)

    return checked


def _may_fail(e: Expr) -> bool:
    """True if the evaluation can overflow; comparisons alone cannot."""
    return isinstance(e, Call) and (e.op not in _SAFE or any(map(_may_fail, e.args)))


def _are_its_rows(where: Expr, points: Points, table: StoredTable) -> bool:
    """Whether the rows with these primary keys all meet the condition: it is the equality of integers with the key."""
    if points.keys() != set(table.key) or any(table.types[c].kind is not Kind.INT for c in table.key):
        return False
    terms = conjuncts(where)
    return len(terms) == len(points) and all(isinstance(t, Call) and t.op == "eq" for t in terms)


def _candidates(
    stage: TableStage, where: Expr | None, points: Points, symbols: Symbols
) -> Iterator[tuple[list[bytes] | None, list[bytes]]]:
    """Yield keys and packed rows that include all wanted rows.  Keys may be None: then `table.keys` computes them."""
    table = stage.table
    access = _best_access(stage, set(points))
    if access is None:
        yield from _in_range(stage, where) or stage.scan()
        return
    index, columns = access
    values = list(product(*(points[c] for c in columns)))
    codes = [np.array([encode(v[i], table.types[c], symbols) for v in values], np.int64)
             for i, c in enumerate(columns)]
    prefixes = list(dict.fromkeys(table.columns_key(codes, columns))) if values else []
    if index is None and len(columns) == len(table.key):
        rows = stage.get(table.family, prefixes)
        yield [k for k, v in zip(prefixes, rows, strict=True) if v is not None], [v for v in rows if v is not None]
    else:
        yield stage.by_prefix(index, prefixes)


def _in_range(stage: TableStage, where: Expr | None) -> Iterator[tuple[list[bytes], list[bytes]]] | None:
    """Rows in a range of the key's first column, or a few in one of an index; None if the condition has no range."""
    table = stage.table
    bounds, of_key = ranges_of(where, table.types), None
    for index, columns in [(None, table.key), *((i, i.columns) for i in table.indexes)]:
        if not columns or columns[0] not in bounds:
            continue
        low, high = bounds[columns[0]]
        if low > high:
            return iter(())
        first, last = table.columns_key([np.array([low, high], np.int64)], columns[:1])
        if index is None:
            of_key = first, last
            if stage.is_short(first, last):
                break
        elif (found := stage.few_between(index, first, last)) is not None:
            return iter((found,))
    return None if of_key is None else stage.rows_in_range(*of_key)


def _best_access(stage: TableStage, columns: set[int]) -> Any:
    """The (index, columns) that uses the most of these columns, and no others."""
    table = stage.table
    by_key = table.access(table.key) if table.key and set(table.key) <= columns else None
    if by_key is not None:
        return by_key
    best: Any = None
    for index, of in [(None, table.key), *((i, i.columns) for i in table.indexes)]:
        length = next((n for n, c in enumerate(of) if c not in columns), len(of))
        if length and (best is None or length > len(best[1])):
            best = index, of[:length]
    return best
