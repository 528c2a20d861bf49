"""Runs one-shots in turns: those that read few rows first, larger ones in slices or behind other work.

    Query ──► fresh ──► reads at most ONE_SHOT_AT_ONCE_ROWS ──► the reply
                 │ it would read more
                 ├──► all of a small table ──► slices (`slicing.py`) ──► the reply
                 └──► larger: at once, at most `rows` rows ──► the reply, or slices, or error 3024

Keeps true: a query reads the rows as of the begin of its turn, not of its arrival. A cancelled query is answered at the
next turn.

`OneShots.add` queues a query; `fresh`, `larger` and `send_chunk` each run one turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError, interrupted, read_limit_error
from noria.core.errors.codes import QUERY_TIMEOUT, UNKNOWN_ERROR
from noria.core.limits import ONE_SHOT_AT_ONCE_ROWS
from noria.core.symbols import Symbols
from noria.dataflow.cluster.peers import Peers
from noria.dataflow.cluster.remote_scan import RemoteTableReads
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.graph.nodes import Node, RemoteRowsNeeded
from noria.dataflow.messages.client_keys import codes_of
from noria.dataflow.messages.envelopes import error_reply
from noria.dataflow.messages.packets import Envelope, Packet, Query, QueryForecast, Read
from noria.dataflow.oneshot.oneshot import OneShot, ReadLimitExceeded
from noria.dataflow.oneshot.results import LargeResults
from noria.dataflow.oneshot.slicing import QueryLookup, Scan, Scans
from noria.dataflow.worker.graph_changes import GraphChanges
from noria.dataflow.worker.transactions import Transactions

Run = Callable[[], Packet | None]
Again = Callable[[Envelope, Run], None]  # runs a request and sends its reply
Wait = Callable[[RemoteRowsNeeded, Envelope, Run, RemoteTableReads | None], None]  # for other workers' rows


@dataclass(frozen=True, eq=False)
class _QueuedOneShot:
    envelope: Envelope
    body: Query


class OneShots:
    """The queue of one-shots (see the module)."""

    def __init__(self, engine: Engine, changes: GraphChanges, symbols: Symbols, environment: WorkerEnvironment,
                 peers: Peers | None, on_defect: Callable[[str, Exception], SqlError], again: Again, wait: Wait,
                 transactions: Transactions):
        self._transactions = transactions
        self._changes, self._symbols, self._environment, self._peers = changes, symbols, environment, peers
        self._engine, self._again, self._wait = engine, again, wait
        self.results = LargeResults(engine, symbols, environment.cancelled)
        self.scans = Scans(engine, environment, on_defect, self.results.memory)
        self._fresh: deque[_QueuedOneShot] = deque()
        self._larger: deque[_QueuedOneShot] = deque()
        self._replies: list[tuple[Envelope, Packet]] = []
        self._units = 0  # of the query under way
        self._sliced = False  # whether the last larger turn was a slice

    def __bool__(self) -> bool:
        """Whether any query waits for a turn, or any reply to be collected."""
        return bool(self._fresh or self._larger or self._replies or self.scans or self.results)

    def add(self, body: Query, e: Envelope) -> None:
        """Queue a query, which is answered in its turn."""
        self._fresh.append(_QueuedOneShot(e, body))

    def answered(self) -> list[tuple[Envelope, Packet]]:
        """Return and clear the replies of finished queries and the chunks of results."""
        replies, self._replies = self._replies, []
        return replies + self.scans.answered()

    def end_cancelled(self) -> None:
        """Answer cancelled queries and drop cancelled results."""
        self.results.drop_cancelled()
        for waiting in (self._fresh, self._larger):
            for queued in [a for a in waiting if self._environment.cancelled(a.body.request)]:
                waiting.remove(queued)
                self._replies.append((queued.envelope, error_reply(queued.envelope, interrupted())))

    # -------------------------------------------------------------- turns
    def has_fresh(self) -> bool:
        return bool(self._fresh)

    def has_larger(self) -> bool:
        return bool(self._larger or self.scans.can_continue())

    def fresh(self) -> int:
        """Run the oldest query that has not begun. Returns its units of work."""
        query = self._fresh.popleft()
        return self._run(query, min(query.body.rows, ONE_SHOT_AT_ONCE_ROWS))

    def larger(self) -> int:
        """Run a slice of a scan or, in alternation, one larger query at once. Returns its units of work."""
        if self._larger and (self._sliced or not self.scans.can_continue()):
            self._sliced = False
            query = self._larger.popleft()
            return self._run(query, query.body.rows)
        self._sliced = True
        return self.scans.step()

    def send_chunk(self) -> int:
        """Send the next chunk of a result. Returns its number of rows."""
        e, rows = self.results.next()
        self._replies.append((e, rows))
        return 0 if rows.rows is None else int(rows.rows.num_rows)

    def _run(self, query: _QueuedOneShot, rows: int) -> int:
        self._units = 0
        self._again(query.envelope, partial(self._query, query, rows))
        return self._units

    # -------------------------------------------------------------- predictions
    def forecast(self, body: Query | Read | None) -> QueryForecast:
        """Determine how a query would be answered now: runs it on this worker's rows alone and drops the result."""
        if not isinstance(body, Query):
            raise SqlError(*UNKNOWN_ERROR, "only a Query can be predicted")
        view, top, shot = self._changes.one_shot(body.view, body.rows)
        try:
            self._read(body, view, top, shot)
        except ReadLimitExceeded:
            return QueryForecast("slices" if Scan.can(self._engine, top) else "too much", 0)
        except SqlError as e:
            if e.code != QUERY_TIMEOUT.number:
                raise
            return QueryForecast("too much", 0)
        return QueryForecast("one-shot", shot.spent)

    def _read(self, body: Query, view: Any, top: Node, shot: OneShot) -> tuple[Batch, Codes]:
        if body.key_range is not None:
            return shot.read_between(top, view.key, *body.key_range, body.first, body.descending)
        return shot.read(top, view.key, codes_of(body.keys, view.key_fields, self._symbols), body.nulls)

    # -------------------------------------------------------------- one query
    def _query(self, query: _QueuedOneShot, rows: int, remote: RemoteTableReads | None = None) -> Packet | None:
        """Run a query; None if its reply follows later. `remote`: the rows received from other workers so far."""
        body = query.body
        if body.spread and remote is None and self._peers is not None:
            remote, rows = RemoteTableReads(self._peers.remote_scan, body.within), body.rows
        view, top, shot = self._changes.one_shot(body.view, rows, remote, self._transactions.deltas(body.within))
        try:
            answer = self._read(body, view, top, shot)
        except RemoteRowsNeeded as r:
            self._wait(r, query.envelope, partial(self._query, query, rows, remote), remote)
            return None
        except ReadLimitExceeded:
            if rows < body.rows and not Scan.can(self._engine, top, body.rows):
                self._larger.append(query)
                return None
            show = partial(self.results.make_reply, body.request, view, body.chunked)
            keys = codes_of(body.keys if body.key_range is None else (), view.key_fields, self._symbols)
            what = QueryLookup(view.key, keys, body.nulls, body.key_range)
            if remote is None and self.scans.begin(query.envelope, shot, top, what, show):
                return None
            raise read_limit_error(body.rows) from None
        finally:
            self._units += shot.spent
        self._units += len(answer[0])
        return self.results.make_reply(body.request, view, body.chunked, *answer)
