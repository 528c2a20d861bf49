"""Decodes copied rows to values: all visible columns of a view, or those that a reader chooses.

Keeps true: only chosen columns become values, and checks use codes.  So a read of few columns costs the same in a wide
view as in a narrow one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa

from noria.core.batch import Codes
from noria.core.limits import ERROR_CODE
from noria.core.symbols import Symbols
from noria.core.types import Field, Kind
from noria.core.values import decode, to_arrow
from noria.plan.reuse.lookups.stronger_condition import ColumnCheck
from noria.plan.reuse.lookups.through import ReadThrough
from noria.state.symbols.symbols import AttachedSymbols

Row = tuple[Any, ...]


class Decoder:
    """Decodes some columns of rows to Python values, column by column if there are several rows.

    `fields`: of the view's visible columns.  `start`: the word at which the rows begin; each row follows its weight.
    """

    def __init__(self, fields: Sequence[Field], columns: Sequence[int], symbols: AttachedSymbols, start: int):
        self._symbols, self._start = cast(Symbols, symbols), start
        self._types = [fields[c].type for c in columns]
        self._places = [(start + c + 1, decoder(fields[c], symbols)) for c in columns]
        self._texts = [(i, d) for i, (_, d) in enumerate(self._places) if d is not None]
        self._codes = itemgetter(*(at for at, _ in self._places)) if len(columns) > 1 else None

    def one(self, words: memoryview, checks: Sequence[ColumnCheck]) -> list[Row]:
        """`plain` for a single row."""
        for check in checks:
            if not check.test(words[self._start + check.column + 1]):
                return []
        if self._codes is None:
            ((at, value),) = self._places
            return [(words[at] if value is None else value(words[at]),)]
        row = self._codes(words)
        if self._texts:
            row = list(row)
            for i, value in self._texts:
                row[i] = value(row[i])
        return [tuple(row)]

    def plain(self, words: memoryview, rows: int, stride: int, checks: Sequence[ColumnCheck]) -> list[Row]:
        """Decode the rows that pass the checks.  Every row must have weight 1 and no NULL or error."""
        start = self._start
        codes: list[Any] = self._passing_codes(words, rows, stride, checks) if checks else [
            words[at:start + rows * stride:stride].tolist() for at, _ in self._places]
        for i, value in self._texts:
            codes[i] = map(value, codes[i])
        return list(zip(*codes, strict=True))

    def special(self, words: memoryview, rows: int, stride: int, checks: Sequence[ColumnCheck]) -> list[Row]:
        """`plain` for rows with NULLs, other weights or errors; a row of weight n occurs n times."""
        weights, *codes_by_column = self._passing_codes(words, rows, stride, checks, weights=True)
        columns = [[decode(c, t, self._symbols) for c in codes]
                   for t, codes in zip(self._types, codes_by_column, strict=True)]
        return [row for weight, row in zip(weights, zip(*columns, strict=True), strict=True) for _ in range(weight)]

    def _passing_codes(self, words: memoryview, rows: int, stride: int, checks: Sequence[ColumnCheck],
                       weights: bool = False) -> list[list[int]]:
        """The codes of the columns (with `weights`, after the rows' weights), for the rows that pass the checks."""
        start, places = self._start, [at for at, _ in self._places]
        stop = start + rows * stride
        codes_by_column = [words[at:stop:stride].tolist() for at in ([start, *places] if weights else places)]
        if not checks:
            return codes_by_column
        checked = zip(*(words[start + c.column + 1:stop:stride].tolist() for c in checks), strict=True)
        passing = [i for i, codes in enumerate(checked) if all(c.passes(v) for c, v in zip(checks, codes, strict=True))]
        return [[codes[i] for i in passing] for codes in codes_by_column]


def chosen_table(out: Codes, ordinal: Codes, fields: Sequence[Field], symbols: AttachedSymbols,
                 through: ReadThrough | None
                 ) -> pa.Table:
    """Decode columns of codes to an Arrow table, with the rows' key ordinals as `__key`.  `through`: selects columns,
    and the rows that pass its checks."""
    columns: Sequence[int] = range(len(fields))
    if through is not None:
        columns = through.columns
        for check in through.checks:
            mask = check.mask(out[check.column])
            out, ordinal = out[:, mask], ordinal[mask]
    arrays = [_array(out[c], fields[c], symbols) for c in columns]
    schema = pa.schema([*(pa.field(fields[c].name, arrow.type) for c, arrow in zip(columns, arrays, strict=True)),
                        ("__key", pa.int64())])
    return pa.Table.from_arrays([*arrays, pa.array(ordinal)], schema=schema)


def decoder(field: Field, symbols: AttachedSymbols) -> Callable[[int], Any] | None:
    """A function from a code, neither NULL nor an error, to its value; None if the code is the value."""
    if field.type.kind is Kind.INT:
        return None
    if field.type.is_text and not field.type.is_bytes:
        return symbols.text
    type, known = field.type, cast(Symbols, symbols)
    return lambda code: decode(code, type, known)


def _array(codes: Codes, field: Field, symbols: AttachedSymbols) -> pa.Array:
    if field.type.is_text and not field.type.is_bytes and not (len(codes) and codes.min() <= ERROR_CODE):
        return symbols.texts(codes)
    return to_arrow(codes, field.type, cast(Symbols, symbols))
