"""Runs the functions of `library` over codes (see `evaluate.py`).

A `codes` function runs once over arrays.  A `values` function runs once for each distinct row of arguments.
Keeps true: an error among the arguments makes the result an error.  A NULL makes it NULL, unless the function
`sees_null`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from noria.core.batch import Codes
from noria.core.errors import SqlError
from noria.core.errors.codes import DATA_OUT_OF_RANGE
from noria.core.expressions import casts
from noria.core.expressions.coerce import coerce
from noria.core.expressions.expr import Call, Const
from noria.core.expressions.failures import is_of_a_row
from noria.core.expressions.lenient import FITTED, fit, implicit
from noria.core.expressions.library import LIBRARY, ArgumentType, Function
from noria.core.expressions.zero_date import ZERO_CODE
from noria.core.limits import ERROR_CODE, MAX_INT, MIN_INT, NULL_CODE, REGEXP_FAILURES
from noria.core.symbols import NO_SYMBOLS, Symbols
from noria.core.types import MOMENTS, Column, Kind, SqlType
from noria.core.values import decode, decode_doubles, encode, encode_doubles

SCREENED_ROWS = 16  # fewer rows are not worth the arrays
Node = Callable[[Codes, Symbols], Codes]
Compute = Callable[[list[Codes], Symbols], Codes]  # over the codes of the arguments


def library_node(e: Call, nodes: list[Node]) -> Node:
    function = _fitting(e) if e.op == FITTED else LIBRARY[e.op]
    compute = _over_values(e, function) if function.codes is None else _over_arrays(e, function.codes)
    dates = [n for n, a in enumerate(e.args) if a.type.kind in MOMENTS and function.want(n) in _DATES]
    if function.sees_zero or not dates:
        return lambda columns, symbols: compute([node(columns, symbols) for node in nodes], symbols)
    of_zero = np.int64(NULL_CODE if function.of_zero is None else function.of_zero)

    def run(columns: Codes, symbols: Symbols) -> Codes:
        arguments = [node(columns, symbols) for node in nodes]
        out = compute(arguments, symbols)
        for n in dates:
            zero = arguments[n] == ZERO_CODE
            if zero.any():
                out = _masked(arguments, np.where(zero, of_zero, out))
        return out

    return run


_DATES = (ArgumentType.DATE, ArgumentType.MOMENT)


def _fitting(e: Call) -> Function:
    """The conversion to what a column of the call's type keeps (`functions.fitted`)."""
    column = Column("", e.type, e.nullable)

    def values(value: Any) -> Any:
        if value is None:
            return None if column.nullable else implicit(column)
        return coerce(fit(value, column, 1)[0], column, 1)

    return Function((ArgumentType.ANY,), e.type, values=values, sees_null=True, sees_zero=True)


# ------------------------------------------------------------------ over arrays
def _over_arrays(e: Call, f: Callable[..., Any]) -> Compute:
    doubles = [a.type.kind is Kind.DOUBLE for a in e.args]
    to_double = e.type.kind is Kind.DOUBLE

    def run(arguments: list[Codes], symbols: Symbols) -> Codes:
        with np.errstate(all="ignore"):
            out = f(*(decode_doubles(a) if d else a for a, d in zip(arguments, doubles, strict=True)))
        if to_double:
            out = np.where(np.isnan(out), NULL_CODE, np.where(np.isinf(out), ERROR_CODE, encode_doubles(
                np.where(np.isfinite(out), out, 0.0))))
        return _masked(arguments, out)

    return run


def _masked(arguments: list[Codes], out: Codes) -> Codes:
    """Copy the NULLs and errors of the arguments to the result.  An error replaces NULL."""
    for a in arguments:
        if a.item(a.argmin()) <= ERROR_CODE:
            out = np.where(a == NULL_CODE, NULL_CODE, out)
    for a in arguments:
        if a.item(a.argmin()) <= ERROR_CODE:
            out = np.where(a == ERROR_CODE, ERROR_CODE, out)
    return out


# ------------------------------------------------------------------ over values
def _over_values(e: Call, function: Function) -> Compute:
    f = function.values
    assert f is not None
    readers = [_reader(a.type, function.want(i)) for i, a in enumerate(e.args)]
    writer, sees_null = _writer(e.type), function.sees_null

    def run(arguments: list[Codes], symbols: Symbols) -> Codes:
        table = np.stack(np.broadcast_arrays(*arguments, _ONE))[:-1]
        rows, place = _distinct(table)
        results: list[Any] = []
        late = 0
        for row in rows.T.tolist():
            if ERROR_CODE in row or late >= REGEXP_FAILURES:
                results.append(_FAILED)
            elif not sees_null and NULL_CODE in row:
                results.append(None)
            else:
                try:
                    results.append(_storable(f(*[None if c == NULL_CODE else read(c, symbols)
                                                 for c, read in zip(row, readers, strict=True)])))
                except Exception as bug:
                    if not is_of_a_row(bug):
                        raise
                    results.append(_FAILED)
                    late += isinstance(bug, TimeoutError)
        out = writer(results, symbols)
        return out if place is None else out[place]

    return run if function.screen is None else _screened(e, function, run)


def _screened(e: Call, function: Function, run: Compute) -> Compute:
    """Run a function only for rows whose result may differ from zero, if its first two arguments are constants."""
    screen, first = function.screen, len(function.takes) - 1
    constants = [a.value for a in e.args[:2] if isinstance(a, Const)]
    if screen is None or len(constants) < 2 or None in constants:
        return run
    zero = _writer(e.type)([0], NO_SYMBOLS)[0]

    def screened(arguments: list[Codes], symbols: Symbols) -> Codes:
        rows = max(map(len, arguments))
        if rows < SCREENED_ROWS:
            return run(arguments, symbols)

        def texts(folded: bool) -> list[pa.Array]:
            known = [np.where(a <= ERROR_CODE, NULL_CODE, a) for a in arguments[first:]]
            return [symbols.texts(symbols.folded(a) if folded else a) for a in known]

        text, mode = constants
        chosen = pc.fill_null(screen(text, mode, texts), False).to_numpy(zero_copy_only=False)
        for a in arguments:
            chosen = chosen | (a == ERROR_CODE)
        at = np.flatnonzero(np.broadcast_to(chosen, (rows,)))
        out = np.full(rows, zero, np.int64)
        if len(at):
            out[at] = run([a if len(a) == 1 else a[at] for a in arguments], symbols)
        return out

    return screened


def _storable(value: Any) -> Any:
    """Return the value.  Raises UnicodeEncodeError for an invalid text, such as half of a surrogate pair from JSON."""
    if type(value) is str and not value.isascii():
        value.encode()
    return value


_ONE = np.zeros(1, np.int64)
_FAILED = SqlError(*DATA_OUT_OF_RANGE, "")


def _distinct(table: Codes) -> tuple[Codes, Codes | None]:
    """Return the distinct columns of a table of arguments, and for each column which one it equals (None: itself)."""
    rows = table.shape[1]
    if rows == 1:
        return table, None
    varying = np.flatnonzero((table != table[:, :1]).any(axis=1))
    if len(varying) == 0:
        return table[:, :1], np.zeros(rows, np.int64)
    if len(varying) == 1:
        _, first, place = np.unique(table[varying[0]], return_index=True, return_inverse=True)
    else:
        _, first, place = np.unique(table[varying], axis=1, return_index=True, return_inverse=True)
    return table[:, first], place.reshape(-1)


def _reader(type: SqlType, want: ArgumentType) -> Callable[[int, Symbols], Any]:
    """Return the function that converts a code to the Python value that the library's function receives."""
    if type.is_text and want is ArgumentType.BYTES:
        form = "latin-1" if type.is_bytes else "utf-8"
        return lambda code, symbols: symbols.text(code).encode(form)
    if type.is_bytes and want is ArgumentType.TEXT:
        return lambda code, symbols: symbols.text(code).encode("latin-1").decode("utf-8", "replace")
    return lambda code, symbols: decode(code, type, symbols)


def _writer(type: SqlType) -> Callable[[list[Any], Symbols], Codes]:
    """Return the function that converts results to codes.  None becomes NULL, and a SqlError an error."""
    if type.is_text:
        if type.is_bytes:
            return lambda values, symbols: casts.interned_or_special(
                [v.decode("latin-1") if isinstance(v, bytes) else v.encode().decode("latin-1")
                 if isinstance(v, str) else v for v in values], symbols)
        return lambda values, symbols: casts.interned_or_special(
            [v.decode() if isinstance(v, bytes) else v for v in values], symbols)

    def one(value: Any) -> int:
        if value is None:
            return NULL_CODE
        code = ERROR_CODE if isinstance(value, SqlError) else encode(value, type, NO_SYMBOLS)
        return code if MIN_INT <= code <= MAX_INT else ERROR_CODE

    return lambda values, _: np.array([one(v) for v in values], np.int64)
