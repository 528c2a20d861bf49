"""GroupConcat: out = one row per group with the texts of a column joined in an order. NULLs are skipped; the
result is NULL if no text is left.

f sorts by the order, then by the texts themselves. Without GROUP BY there is always one row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from noria.core.batch import Batch, Codes
from noria.core.expressions.coerce import MAX_TEXT_BYTES
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.ranking import Order, in_order, ranks
from noria.core.types import Field
from noria.dataflow.graph.nodes import Columns, UpstreamReader
from noria.dataflow.ops.stateless.per_group import PerGroup, expanded


class GroupConcat(PerGroup):
    """`distinct`: of the rows of a group that are equal in these columns, only the first is kept; empty: all are."""

    def __init__(self, fields: tuple[Field, ...], inputs: tuple[Field, ...], group: Columns, column: int,
                 distinct: Columns, order: Order, separator: str, text: str):
        super().__init__(fields, inputs, group, tuple(range(len(group))), text)
        self._column, self._distinct, self._order, self._separator = column, distinct, order, separator

    def of(self, engine: UpstreamReader, rows: Batch) -> Batch:
        rows = expanded(rows)
        if not len(rows):
            nothing = [] if self.group else [(NULL_CODE,)]
            return Batch.from_rows(nothing, len(self._fields))
        order = in_order(rows, self.types, self.group_keys(engine, rows), (*self._order, (self._column, False)),
                         engine.symbols)
        rows = rows.take(order.at)
        number = np.cumsum(order.new_group) - 1  # of each row's group
        starts = np.flatnonzero(order.new_group)
        keys = [self._group_values(engine, c, rows, starts) for c in self.group]
        return Batch.of(np.stack([*keys, self._joined(engine, rows, number, len(starts))]))

    def _group_values(self, engine: UpstreamReader, column: int, rows: Batch, starts: Codes) -> Codes:
        """Each group's value of a group column. Of several spellings of a CI text it is the least in byte order."""
        codes = rows.columns[column]
        if not self.types[column].folds:
            return np.asarray(codes[starts])
        spelled = ranks(codes, self.types[column], engine.symbols, spelled=True)
        size = np.diff(np.append(starts, len(codes)))
        least = spelled == np.repeat(np.minimum.reduceat(spelled, starts), size)
        out = np.empty(len(starts), np.int64)
        out[np.repeat(np.arange(len(starts)), size)[least]] = codes[least]
        return out

    def _joined(self, engine: UpstreamReader, rows: Batch, number: Codes, groups: int) -> Codes:
        """The joined text of each group. `rows` are sorted by group and order."""
        codes = rows.columns[self._column]
        wrong = number[codes == ERROR_CODE]
        some = np.flatnonzero(codes >= 0)
        if self._distinct and len(some):
            same = [ranks(rows.columns[c][some], self.types[c], engine.symbols) for c in self._distinct]
            first = np.unique(np.stack([number[some], *same]), axis=1, return_index=True)[1]
            some = some[np.sort(first)]
        ends = np.searchsorted(number[some], np.arange(groups + 1))
        lists = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), engine.symbols.texts(codes[some]))
        texts = pc.binary_join(lists, pa.scalar(self._separator, pa.large_string()))
        out = np.full(groups, NULL_CODE, np.int64)
        out[wrong] = ERROR_CODE
        with_text = np.flatnonzero((np.diff(ends) > 0) & (out != ERROR_CODE))
        long = pc.greater(pc.binary_length(texts), MAX_TEXT_BYTES).to_numpy(zero_copy_only=False)
        out[long] = ERROR_CODE
        with_text = with_text[~long[with_text]]
        out[with_text] = engine.symbols.intern_many(texts.take(pa.array(with_text)))
        return out
