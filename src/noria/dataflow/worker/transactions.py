"""The requests of transactions at one worker, and those that wait for a lock.

    Stage ──► staged ──► its results
       │ locked by others
       ├──► queued; the lock is granted ──► the request runs again from the start
       └──► the wait would close a cycle ──► the transaction with the fewest staged rows is rolled back (1213)

Keeps true: nothing waits in a thread. A transaction has one request at a time. A request that waits has changed
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from noria.core.batch import Batch
from noria.core.errors import SqlError, interrupted
from noria.core.statements import StagedPart
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.protocols import Staging
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.messages import transaction_packets as messages
from noria.dataflow.messages.envelopes import error_reply
from noria.dataflow.messages.packets import Done, Envelope, Packet
from noria.dataflow.transactions.locks import Blocked, deadlock

Run = Callable[[], Packet | None]


@dataclass(frozen=True, eq=False)
class _Request:
    envelope: Envelope
    run: Run


class Transactions:
    """See the module. `run_again`: runs a request again and sends its reply. `send_late`: sends a reply after the step
    in which the request arrived."""

    def __init__(self, engine: Engine, worker: int, staging: Staging, run_again: Callable[[Envelope, Run], None],
                 send_late: Callable[[Envelope, Packet], None]):
        self._engine, self._worker, self._staging = engine, worker, staging
        self._run_again, self._send_late = run_again, send_late
        self._waiting: dict[str, _Request] = {}
        self._ready: deque[_Request] = deque()
        self.deadlocks = 0
        self.handlers: dict[type, Callable[[Any, Envelope], Packet | None]] = {
            messages.Stage: self._stage, messages.Undo: self._undo, messages.EndTransaction: self._end,
            messages.EndWait: self._end_wait, messages.OpenSnapshot: self._open_snapshot,
            messages.LockRows: self._lock_rows, messages.LockDefinitions: self._lock_definitions,
            messages.ReadKeyChanges: self._key_changes, messages.FindKeys: self._find_keys,
            messages.MarkReads: self._mark_reads}

    def __len__(self) -> int:
        """The number of open transactions."""
        return len(self._staging)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a lock."""
        return len(self._waiting)

    def run_granted(self) -> None:
        """Run the requests whose locks were granted."""
        while self._ready:
            request = self._ready.popleft()
            self._run_again(request.envelope, request.run)

    def ended(self, transaction: str) -> None:
        """Forget a transaction, whose changes are committed or dropped."""
        for owner in self._staging.end(transaction):
            self._ready.append(self._waiting.pop(owner))

    def deltas(self, within: messages.Within | None) -> dict[str, Batch]:
        """The rows that only this reader has, by table."""
        if within is None:
            return {}
        done = within.done[self._worker] if self._worker < len(within.done) else 0
        return self._staging.deltas(within.transaction, done, within.snapshot, within.tables)

    # ---------------------------------------------------------------- requests
    def _stage(self, body: messages.Stage, e: Envelope) -> Packet | None:
        limits, self._engine.limits = self._engine.limits, None

        def run(limits: RequestLimits | None) -> Packet:
            return Done(body.request, tuple(self._staging.stage(body.transaction, body.done, body.statements, limits)))

        return self._locking(body.transaction, e, partial(run, limits), lambda: self._stage(body, e))

    def planning(self, answer: Callable[[Any], Packet]) -> Callable[[Any, Envelope], Packet | None]:
        """A handler of requests that plan a statement of several workers; within a transaction they acquire locks."""
        def handled(body: Any, e: Envelope) -> Packet | None:
            if body.within is None:
                return answer(body)
            return self._locking(body.within.transaction, e, lambda: answer(body), lambda: handled(body, e))

        return handled

    def _locking(self, transaction: str, e: Envelope, run: Run, run_again: Run) -> Packet | None:
        """Run a request that acquires locks. If it is blocked, queue it to run `run_again`, or end a deadlock."""
        while True:
            try:
                return run()
            except Blocked as blocked:
                cycle = self._staging.locks.wait(transaction, blocked.resource, blocked.exclusive)
            if not cycle:
                self._waiting[transaction] = _Request(e, run_again)
                return None
            self.deadlocks += 1
            victim = min(map(str, cycle), key=self._staging.work_of)
            if victim == transaction:
                self.ended(victim)
                return error_reply(e, deadlock())
            self._send_late(self._waiting[victim].envelope, error_reply(self._waiting.pop(victim).envelope, deadlock()))
            self.ended(victim)

    def _lock_rows(self, body: messages.LockRows, e: Envelope) -> Packet | None:
        def run() -> Packet:
            return Done(body.request, self._staging.lock_rows(body.transaction, body.done, body.table, body.keys,
                                                              body.exclusive, body.how))

        return self._locking(body.transaction, e, run, lambda: self._lock_rows(body, e))

    def _lock_definitions(self, body: messages.LockDefinitions, e: Envelope) -> Packet | None:
        def run() -> Packet:
            self._staging.lock_definitions(body.transaction, body.tables)
            return Done(body.request)

        return self._locking(body.transaction, e, run, lambda: self._lock_definitions(body, e))

    def _key_changes(self, body: messages.ReadKeyChanges, e: Envelope) -> Packet:
        return Done(body.request, self._staging.key_changes(body.transaction, body.done, body.since, body.table,
                                                            body.columns))

    def _find_keys(self, body: messages.FindKeys, e: Envelope) -> Packet | None:
        def run() -> Packet:
            return Done(body.request, self._staging.find_keys(StagedPart(body.transaction, body.done), body.table,
                                                              tuple(body.columns), body.keys, body.lock))

        return self._locking(body.transaction, e, run, lambda: self._find_keys(body, e))

    def _undo(self, body: messages.Undo, e: Envelope) -> Packet:
        self._staging.undo(body.transaction, body.done, body.keep)
        return Done(body.request)

    def _end(self, body: messages.EndTransaction, e: Envelope) -> Packet:
        self._answer_waiting(body.transaction, body.error or interrupted())
        self.ended(body.transaction)
        return Done(body.request)

    def _end_wait(self, body: messages.EndWait, e: Envelope) -> Packet:
        for owner in self._staging.locks.withdraw(body.transaction):
            self._ready.append(self._waiting.pop(str(owner)))
        self._answer_waiting(body.transaction, body.error)
        return Done(body.request)

    def _answer_waiting(self, transaction: str, error: SqlError) -> None:
        request = self._waiting.pop(transaction, None)
        if request is not None:
            self._send_late(request.envelope, error_reply(request.envelope, error))

    def _open_snapshot(self, body: messages.OpenSnapshot, e: Envelope) -> Packet:
        if body.marks is not None:
            self._staging.mark_reads(body.transaction, body.marks)
        self._staging.history.open(body.transaction)
        return Done(body.request, (self._engine.tick_number, self._staging.history.position))

    def _mark_reads(self, body: messages.MarkReads, e: Envelope) -> Packet:
        self._staging.mark_reads(body.transaction, body.marks)
        return Done(body.request)
