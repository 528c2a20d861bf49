"""Large results, sent in chunks: the worker sends the next chunk when the front end requests it.

    Query, Read ──► Rows, with the number left ──► NextRows ──► Rows ──► … ──► Rows, with none left

A result is held as codes; a chunk is converted to Arrow when it is requested. Keeps true: a cancelled result is
dropped at the next turn; a chunk has about RESULT_CHUNK_BYTES.

`LargeResults.make_reply` makes the reply to a query. `request_next` queues a request for a chunk; `next` answers it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from noria.core.batch import Batch, Codes
from noria.core.errors import result_gone
from noria.core.limits import (
    ERROR_CODE,
    LONG_TEXT_CHARACTERS,
    RESULT_CHUNK_BYTES,
    RESULT_FIRST_LONG,
    RESULT_FIRST_ROWS,
)
from noria.core.symbols import Symbols
from noria.core.values import evaluation_error, to_arrow
from noria.dataflow.messages.packets import Envelope, NextRows, Rows
from noria.plan.read_errors import of_read


class LargeResult:
    """The unsent rows of one answer. `view`: defines the columns."""

    def __init__(self, view: Any, symbols: Symbols, columns: Codes, ordinals: Codes):
        self._view, self._symbols = view, symbols
        self._columns, self._ordinals = columns, ordinals
        self._rows = first_rows(view)  # of the next chunk
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._ordinals) - self._at

    def next_chunk(self) -> pa.Table:
        """The next rows, as Arrow."""
        part = slice(self._at, self._at + self._rows)
        table = _table(self._view, self._symbols, self._columns[:, part], self._ordinals[part])
        self._at = min(part.stop, len(self._ordinals))
        self._rows = max(1, RESULT_CHUNK_BYTES * table.num_rows // max(table.nbytes, 1))
        return table

    def memory(self) -> int:
        return self._columns.nbytes + self._ordinals.nbytes

    def held(self) -> Iterator[Codes]:
        """Every text id in use; other numbers may be among them."""
        yield from self._columns

    def tick(self, inputs: Mapping[str, Batch]) -> None:
        """Nothing to do: the rows are those of the tick at which they were read."""


def first_rows(view: Any) -> int:
    """The number of rows in the first chunk, before their size is known."""
    long = any(f.type.is_text and not 0 < f.type.length <= LONG_TEXT_CHARACTERS for f in view.fields[: view.visible])
    return RESULT_FIRST_LONG if long else RESULT_FIRST_ROWS


def _table(view: Any, symbols: Symbols, columns: Codes, ordinals: Codes) -> pa.Table:
    arrays = [to_arrow(np.ascontiguousarray(c), f.type, symbols) for c, f in zip(columns, view.fields, strict=True)]
    names = [*(f"c{i}" for i in range(len(arrays))), "__key"]
    return pa.table([*arrays, pa.array(np.ascontiguousarray(ordinals))], names=names)


class LargeResults:
    """All results held. `engine`: its `scans` keep the texts of these results in memory. `cancelled`: whether the
    request of this number was cancelled."""

    def __init__(self, engine: Any, symbols: Symbols, cancelled: Callable[[int], bool]):
        self._engine, self._symbols, self._cancelled = engine, symbols, cancelled
        self._held: dict[int, LargeResult] = {}
        self._requested: deque[tuple[Envelope, NextRows]] = deque()

    def __bool__(self) -> bool:
        """Whether a chunk is requested."""
        return bool(self._requested)

    def __len__(self) -> int:
        return len(self._held)

    def memory(self) -> int:
        return sum(r.memory() for r in self._held.values())

    def make_reply(self, request: int, view: Any, chunked: bool, rows: Batch, ordinals: Codes) -> Rows:
        """Convert the rows of an answer to a reply: all of them or, with `chunked`, the first of many. If a value is an
        evaluation error, the reply is that error."""
        visible = rows.columns[: view.visible]
        wrong = (visible == ERROR_CODE).any(axis=1)
        if wrong.any():
            error = evaluation_error(view.fields[int(wrong.argmax())].type)
            return Rows(request, None, of_read(view.plan, error))
        if (rows.weights != 1).any():
            times = np.repeat(np.arange(len(rows)), rows.weights)
            visible, ordinals = visible[:, times], ordinals[times]
        if not chunked or len(ordinals) <= first_rows(view):
            return Rows(request, _table(view, self._symbols, visible, ordinals))
        result = LargeResult(view, self._symbols, visible, ordinals)
        self._held[request] = result
        self._engine.scans.append(result)
        return Rows(request, result.next_chunk(), left=result.left)

    def request_next(self, more: NextRows, e: Envelope) -> None:
        """Queue the request for the next chunk, which is sent in its turn; drop the result if it says `stop`."""
        if more.stop:
            self._drop(more.of)
        else:
            self._requested.append((e, more))

    def drop_cancelled(self) -> None:
        """Drop cancelled results."""
        for number in [n for n in self._held if self._cancelled(n)]:
            self._drop(number)

    def next(self) -> tuple[Envelope, Rows]:
        """The chunk for the oldest request."""
        e, more = self._requested.popleft()
        result = self._held.get(more.of)
        if result is None:
            return e, Rows(more.request, None, result_gone())
        table = result.next_chunk()
        if not result.left:
            self._drop(more.of)
        return e, Rows(more.request, table, left=result.left)

    def _drop(self, number: int) -> None:
        result = self._held.pop(number, None)
        if result is not None:
            self._engine.scans = [s for s in self._engine.scans if s is not result]
