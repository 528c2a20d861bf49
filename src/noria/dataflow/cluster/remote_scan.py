"""One-shots over several workers: what the others have of the base tables (section 4.4's pulls, over sections 6.2's
shards).

Such a one-shot is one worker's.  It takes the others' rows of a table as it takes its own: under keys where an index
has them, else all.  It asks for what it misses and ends with `Remote`; once that is here it is run again from the
start, with what it has got.

Keeps true: nothing that came is kept longer than the one-shot; nobody sends more rows than it may still read; what a
lost worker was asked is asked again.  Each worker's rows are of one moment, not all workers' of the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation, SqlError, took_too_much, view_changed
from noria.core.limits import NULL_CODE
from noria.core.types import TableDef
from noria.dataflow.cluster.pending import end
from noria.dataflow.graph.nodes import Columns, Node, Remote, folded_keys
from noria.dataflow.graph.partition import owners
from noria.dataflow.graph.protocols import StoreBroken
from noria.dataflow.messages.peer_messages import Found, LookUp, Message, packed, unpacked
from noria.dataflow.oneshot.oneshot import OneShot
from noria.dataflow.ops.base import SCAN_ROWS, Base
from noria.dataflow.ops.top import Top
from noria.state import probe

if TYPE_CHECKING:
    from noria.dataflow.engine.engine import Engine


@dataclass(eq=False)
class Piece:
    """What one worker is asked of a table, and what it had.  over, error, then: as a `Gather` has them."""

    table: TableDef
    worker: int
    asked: LookUp
    rows: Batch | None = None
    over: bool = False
    error: SqlError | None = None
    then: list[Callable[[], None]] = field(default_factory=list)


class Elsewhere:
    """A worker's side of all of them.  send: puts a message last into the channel to a worker; first: its numbers of
    what it asks are greater."""

    def __init__(self, engine: Engine, worker: int, workers: int, send: Callable[[int, Message], None], first: int):
        self.worker, self.workers = worker, workers
        self._engine, self._send, self._next = engine, send, first
        self._under_way: dict[int, Piece] = {}
        self.symbols = engine.symbols

    # ------------------------------------------------------------ whoever asks
    def ask(self, table: TableDef, worker: int, cols: Columns, keys: Codes, rows: int, texts: Collection[int] | None
            ) -> Piece:
        self._next += 1
        parcel = packed(Batch.of(keys), [table.fields[c] for c in cols], self.symbols)
        piece = Piece(table, worker, LookUp(self._next, table.name, table.table_id, len(table.fields), cols, parcel,
                                            rows, None if texts is None else tuple(texts)))
        self._under_way[self._next] = piece
        self._send(worker, piece.asked)
        return piece

    def found(self, answer: Found) -> None:
        piece = self._under_way.pop(answer.ask, None)
        if piece is None:
            return  # asked in another life
        piece.error = answer.error
        if answer.rows is not None:
            piece.rows = unpacked(answer.rows, piece.table.fields, self.symbols)
        end(piece)

    def lost(self, worker: int) -> None:
        """It was started again, and knows of nothing that it was asked."""
        for piece in self._under_way.values():
            if piece.worker == worker:
                self._send(worker, piece.asked)

    # ------------------------------------------------------------ whoever has rows
    def serve(self, asker: int, asked: LookUp) -> None:
        """An error is that of whoever asked."""
        found, error = None, None
        try:
            table = self._engine.store.tables().get(asked.table)
            if table is None or table.table_id != asked.table_id or len(table.fields) < asked.width:
                raise view_changed(asked.table)
            rows = self._cut(table, asked, self._rows(table, asked))
            found = packed(rows, table.fields[: asked.width], self.symbols)
        except SqlError as e:
            error = e
        except (InvariantViolation, StoreBroken):
            raise
        except Exception as bug:
            if self._engine.builds.unforeseen is None:
                raise
            error = self._engine.builds.unforeseen(bug)
        self._send(asker, Found(asked.ask, found, error))

    def _rows(self, table: TableDef, asked: LookUp) -> Batch:
        store, cols = self._engine.store, asked.cols
        if not cols:
            return self._scanned(table, asked)
        keys = self._folded(table, cols, unpacked(asked.keys, [table.fields[c] for c in cols], self.symbols).columns)
        if not store.finds(table.name, cols):  # the asker's index is not there yet
            rows = self._scanned(table, asked)
            return rows.take(probe.pairs(keys, self._folded(table, cols, rows.columns[list(cols)]))[1])
        if store.row_count(table.name) > asked.rows and not store.within(table.name, cols, keys, asked.rows):
            raise took_too_much(asked.rows)
        return store.lookup(table.name, cols, keys, asked.texts)[0]

    def _folded(self, table: TableDef, cols: Columns, values: Codes) -> Codes:
        folds = [table.fields[c].type.folds for c in cols]
        return np.ascontiguousarray(folded_keys(self.symbols, folds, values))

    def _cut(self, table: TableDef, asked: LookUp, rows: Batch) -> Batch:
        """The columns that were asked for; of texts those that somebody looks at."""
        columns = rows.columns[: asked.width].copy()
        if asked.texts is not None:
            for at, f in enumerate(table.fields[: asked.width]):
                if f.type.is_text and at not in asked.texts and at not in asked.cols:
                    columns[at] = NULL_CODE
        return Batch(columns, rows.weights)

    def _scanned(self, table: TableDef, asked: LookUp) -> Batch:
        store, after = self._engine.store, None
        texts = None if asked.texts is None else {*asked.texts, *asked.cols}
        if store.row_count(table.name) > asked.rows:
            raise took_too_much(asked.rows)
        parts = []
        while True:
            rows, after = store.scan(table.name, after, SCAN_ROWS, texts)
            parts.append(rows)
            if after is None:
                return concat(parts, len(table.fields))


class Pieces:
    """What one one-shot has asked, and got, of other workers."""

    def __init__(self, elsewhere: Elsewhere):
        self._elsewhere = elsewhere
        self._pieces: dict[tuple[int, int, int, Columns, bytes], Piece] = {}

    def held(self) -> Iterator[Codes]:
        """Every text id of keys and rows, and other numbers."""
        for (*_, keys), piece in self._pieces.items():
            yield np.frombuffer(keys, np.int64)
            if piece.rows is not None:
                yield from piece.rows.columns

    @property
    def workers(self) -> int:
        return self._elsewhere.workers

    def under(self, table: TableDef, cols: Columns, keys: Codes, rows: int, texts: Collection[int] | None
              ) -> list[Batch]:
        """Rows of the others under distinct folded keys, (columns, keys); cols empty: all rows.  rows: no more than so
        many of each.  Raises `Remote` until they are here, and the error of whoever cannot give them."""
        found = [self._piece(table, w, cols, mine, rows, texts)
                 for w, mine in self._whose(table, cols, keys) if w != self._elsewhere.worker]
        for piece in found:
            if piece.error is not None:
                raise piece.error
        if missing := tuple(p for p in found if not p.over):
            raise Remote(missing)
        return [p.rows for p in found if p.rows is not None]

    def _piece(self, table: TableDef, worker: int, cols: Columns, keys: Codes, rows: int, texts: Collection[int] | None
               ) -> Piece:
        place = (table.table_id, len(table.fields), worker, cols, keys.tobytes())  # it may have got columns meanwhile
        if place not in self._pieces:
            self._pieces[place] = self._elsewhere.ask(table, worker, cols, keys, rows, texts)
        return self._pieces[place]

    def _whose(self, table: TableDef, cols: Columns, keys: Codes) -> Iterator[tuple[int, Codes]]:
        """Who may have rows of which keys: one worker for each if the key tells (narrow), else all (broad: R3)."""
        by = table.sharded_by
        if by == ():
            yield 0, keys
        elif by is None or not set(by) <= set(cols):
            yield from ((w, keys) for w in range(self.workers))
        else:
            values = keys[[cols.index(c) for c in by]]
            whose = owners(values, [table.fields[c] for c in by], self.workers, self._elsewhere.symbols)
            yield from ((w, np.ascontiguousarray(keys[:, whose == w])) for w in np.unique(whose).tolist())


class SpreadOneShot(OneShot):
    """A one-shot that has rows of all workers.  No state of this one is used: it has this worker's part."""

    def __init__(self, engine: Engine, rows: int, texts: Mapping[Node, Collection[int]], pieces: Pieces):
        super().__init__(engine, {}, rows, texts=texts)
        self._pieces = pieces

    def read_between(self, top: Node, key: Columns, low: int, high: int, first: int | None = None,
                     descending: bool = False) -> tuple[Batch, Codes]:
        """All rows between, whatever is enough."""
        return self.between(top, key, low, high)

    def _in_order(self, node: Node, op: Top) -> None:
        """Indexes here have this worker's rows only."""

    def _count(self, table: str) -> int:
        return self.store.row_count(table) * self._pieces.workers

    def _with_others(self, node: Node, cols: Columns, keys: Codes, rows: Batch, ordinal: Codes) -> tuple[Batch, Codes]:
        wanted = self.folded(node, cols, keys)
        far = self._far(node, cols, wanted)
        more, whose = self._matching(node, cols, wanted, far)
        return concat([rows, more], node.width), np.concatenate([ordinal, whose])

    def _scanned(self, node: Node) -> Iterator[Batch]:
        yield from super()._scanned(node)
        yield self._far(node, (), np.empty((0, 1), np.int64))

    def _far(self, node: Node, cols: Columns, keys: Codes) -> Batch:
        assert isinstance(node.op, Base)
        table = self.store.tables()[node.op.table.name]  # the node's own may have older columns
        rows = concat([node.narrowed(b) for b in self._pieces.under(table, cols, keys, max(self._left, 0),
                                                                    self.texts_of(node))], node.width)
        self._spend(len(rows))
        return rows
