"""Serves the inputs of exchanges to other workers: rows under requested keys, or all rows in chunks.

Keeps true: a request is answered when this worker can serve the states that its rows derive from. A request that
misses rows of other workers runs again from the start when they have arrived. Its error is reported to the requester.

Call `ExchangeServer.serve` with a received `RowsRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.errors import InvariantViolation, SqlError
from noria.core.types import Field
from noria.dataflow.backfill.exchange_state import BackfillSender, Counts
from noria.dataflow.cluster.pending_gathers import PendingRequests
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.lookups import LongLookup
from noria.dataflow.graph.graph import ancestors, local_ancestors
from noria.dataflow.graph.keys import folded_keys
from noria.dataflow.graph.nodes import Columns, MissMode, Node, RemoteRowsNeeded
from noria.dataflow.graph.partition import owners
from noria.dataflow.graph.protocols import StoreBroken
from noria.dataflow.messages.peer_messages import (
    EncodedRows,
    Message,
    MoreChunks,
    RowsChunk,
    RowsReply,
    RowsRequest,
    packed,
    unpacked,
)
from noria.dataflow.ops.stateful.exchange import Exchange


class ExchangeRows:
    """Packs and unpacks rows of exchanges for messages, and finds their owners. `nodes`: the exchanges by number."""

    def __init__(self, engine: Engine, workers: int):
        self._engine, self._workers = engine, workers
        self.nodes: dict[int, Node] = {}

    def node(self, number: int) -> Node | None:
        """The exchange of this number, or None."""
        return self.nodes.get(number)

    def owners(self, node: Node, columns: Codes) -> Codes:
        """The owner of each row of an exchange. `columns` has shape (columns, rows)."""
        assert isinstance(node.op, Exchange)
        by = list(node.op.by)
        return owners(columns[by], [node.fields[c] for c in by], self._workers, self._engine.symbols)

    def keys(self, node: Node, cols: Columns, keys: Codes) -> Codes:
        """Fold keys of an exchange."""
        folds = [node.fields[c].type.folds for c in cols]
        return np.ascontiguousarray(folded_keys(self._engine.symbols, folds, keys))

    def packed(self, rows: Batch, fields: Sequence[Field]) -> EncodedRows:
        return packed(rows, fields, self._engine.symbols)

    def unpacked(self, parcel: EncodedRows, fields: Sequence[Field]) -> Batch:
        return unpacked(parcel, fields, self._engine.symbols)


@dataclass(frozen=True)
class LocalReplies:
    """Handlers of this worker's answers to itself. `received`: the rows, or the last of them. `failed`: why there are
    none. `chunk`: some of all rows, with the arguments of a `RowsChunk`, except that the exchange is left out."""

    received: Callable[[int, Batch], None]
    failed: Callable[[int, SqlError], None]
    chunk: Callable[[int, int, Batch, bool, Counts], None]


class ExchangeServer:
    """Answers the requests of all workers. `worker`: this one. `send`: appends a message to the channel to a
    worker."""

    def __init__(self, engine: Engine, worker: int, values: ExchangeRows, send: Callable[[int, Message], None],
                 waiting: PendingRequests, mine: LocalReplies):
        self._engine, self._worker, self._values, self._send = engine, worker, values, send
        self._waiting, self._mine = waiting, mine

    def serve(self, requester: int, r: RowsRequest) -> None:
        """Answer a request, or park it and run it again from the start."""
        node = self._values.node(r.node)
        if node is None:
            return
        if not r.cols:
            self.serve_all(requester, node, r.number)
            return
        keys = self._values.unpacked(r.keys, [node.fields[c] for c in r.cols]).columns
        self.serve_keys(requester, node, r.cols, self._values.keys(node, r.cols, keys), r.number)

    # -------------------------------------------------------------- rows under keys
    def serve_keys(self, requester: int, node: Node, cols: Columns, keys: Codes, number: int) -> None:
        """Answer a request for rows under distinct, folded keys."""
        def can() -> bool:  # a dormant node may pull by these columns
            builds = self._engine.builds
            served = builds.can_serve(node, cols) and (gathers_by(node, cols) or not builds.dormant)
            return served or failed_above(self._engine, node) is not None

        if not can():
            self._waiting.park(can, lambda: self.serve_keys(requester, node, cols, keys, number), requester,
                               held=lambda: keys)
            return
        if (error := failed_above(self._engine, node)) is not None:
            self._refuse(requester, node, number, error)
            return
        if not gathers_by(node, cols):
            return  # the requester drops its request, too, once it has this layout
        try:
            self._answer(requester, node, number,
                         lambda: self._engine.fetch(node.parents[0], cols, keys, MissMode.FILL)[0])
        except RemoteRowsNeeded as r:
            self._waiting.wait(r, (requester, number), lambda: self.serve_keys(requester, node, cols, keys, number),
                               partial(self._refuse, requester, node, number), requester, held=lambda: keys)

    def _answer(self, requester: int, node: Node, number: int, find: Callable[[], Batch]) -> None:
        try:
            rows = find()
        except SqlError as error:
            self._refuse(requester, node, number, error)
        except (InvariantViolation, StoreBroken, RemoteRowsNeeded, LongLookup):
            raise
        except Exception as bug:
            if self._engine.builds.on_defect is None:
                raise
            self._engine.forget_partial(ancestors(node))
            self._refuse(requester, node, number, self._engine.builds.on_defect(bug))
        else:
            self._send_rows(requester, node, number, rows)

    def _refuse(self, requester: int, node: Node, number: int, error: SqlError) -> None:
        if requester == self._worker:
            self._mine.failed(number, error)
        else:
            self._send(requester, RowsReply(node.id, number, None, error))

    def _send_rows(self, requester: int, node: Node, number: int, rows: Batch) -> None:
        rows = rows.where(self._values.owners(node, rows.columns) == requester)
        if requester == self._worker:
            self._mine.received(number, rows)
        else:
            self._send(requester, RowsReply(node.id, number, self._values.packed(rows, node.fields)))

    # -------------------------------------------------------------- all rows
    def serve_all(self, requester: int, node: Node, number: int) -> None:
        """Send all rows in chunks, once all states that the exchange derives from are complete at this worker."""
        self._engine.builds.serve(BackfillSender(
            node, requester, number, partial(_is_complete, self._engine, node),
            partial(self._send_chunk, requester, node, number),
            partial(self._send_rows, requester, node, number, Batch.empty(node.width)),
            partial(self._refuse, requester, node, number)))

    def _send_chunk(self, requester: int, node: Node, number: int, rows: Batch, more: bool, passed: Counts) -> bool:
        """Send the requester's rows among these. Returns False if there are none."""
        rows = rows.where(self._values.owners(node, rows.columns) == requester)
        if len(rows) and requester != self._worker:
            self._send(requester, RowsChunk(node.id, number, self._values.packed(rows, node.fields), more, passed))
        elif len(rows):
            self._mine.chunk(requester, number, rows, more, passed)
        return len(rows) > 0

    def more(self, requester: int, m: MoreChunks) -> None:
        """Let more chunks pass for a requester that has used one; stop if it accepts no more (`chunks` is 0)."""
        builds = self._engine.builds
        for s in builds.served:
            if (s.requester, s.number) == (requester, m.number):
                s.ahead += m.chunks
        if not m.chunks:
            builds.stop_serving(lambda s: (s.requester, s.number) != (requester, m.number))

    def lost(self, worker: int) -> None:
        """Drop the requests for all rows of a lost worker."""
        self._engine.builds.stop_serving(lambda s: s.requester != worker)

    def loaded(self, stale: list[Node]) -> None:
        """Drop requests for all rows of these exchanges after a bulk load. The requesters receive `TableLoaded` and
        send their requests again."""
        self._engine.builds.stop_serving(lambda s: s.node not in stale)


def _is_complete(engine: Engine, node: Node) -> bool:
    """Whether all states of the exchange's input are full at this worker. SqlError if one failed."""
    if (error := failed_above(engine, node)) is not None:
        raise error
    return engine.builds.can_serve(node) and all(
        n.full or not n.parents or not n.op.stateful for n in local_ancestors(node.parents[0]))


def failed_above(engine: Engine, exchange: Node) -> SqlError | None:
    """The error of a failed state that the exchange's rows of this worker derive from, or None."""
    failed = {n: b.error for n, b in engine.builds.states.items() if b.error is not None}
    return next((failed[n] for n in local_ancestors(exchange.parents[0]) if n in failed), None) if failed else None


def gathers_by(node: Node, cols: Columns) -> bool:
    """Whether the exchange gathers keys of these columns."""
    return not node.full and cols in node.pulled
