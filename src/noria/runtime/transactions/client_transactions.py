"""Coordinates the transactions of clients: their parts at the workers, commit and rollback.
Call `ClientTransactions.begin`, then `stage` and `commit`.

    stage ──► Stage at each worker concerned ──► all staged, or none
    commit ──► one worker concerned: one write │ several: one two-phase commit
    end ──► EndTransaction at each worker

    stage, rows may move ──► planned under locks (`plans.py`), then each worker's part as above

Keeps true: a request that fails at one worker is undone at the others. A transaction that has lost a part can only be
rolled back; its client learns this once, by error 1213. A part may be changes, a snapshot or only locks. A transaction
without a part at a worker waits for the worker. A worker forgets a transaction at its commit; in every other case the
front end sends it `EndTransaction`.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from noria.core.errors import SqlError, interrupted
from noria.core.errors.codes import LOCK_DEADLOCK, LOCK_WAIT_TIMEOUT
from noria.core.statements import Move, Staged, Statement, StatementEffect, WriteResult, tables_written
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Done, Inspect, Packet, Wrote
from noria.dataflow.messages.transaction_packets import (
    EndTransaction,
    EndWait,
    LockDefinitions,
    LockRows,
    MarkReads,
    OpenSnapshot,
    Stage,
    TransactionPacket,
    Undo,
    Within,
)
from noria.dataflow.transactions.locks import Owner, cycle_of, deadlock
from noria.runtime.link.change_queue import WorkerLost, WorkerUnavailable
from noria.runtime.link.one_worker_link import LinkState, StagingWorker
from noria.runtime.routing.write_routing import Key, RoutedWrite, by_worker
from noria.runtime.transactions.open_transaction import OpenTransaction, Workers
from noria.runtime.transactions.plans import Planning, conflicting_rows, plan_statement
from noria.runtime.transactions.transaction_reads import TransactionReads

STATEMENT = "statement "  # begins the name of a transaction that runs one statement, and is tried again by itself
ACROSS_S = 0.05  # how often a request that waits looks for a deadlock across workers


class ClientTransactions:
    """See the module. `name`: makes the names of transactions unique, so that no worker confuses two front ends."""

    def __init__(self, workers: Workers, name: str):
        self._workers, self._name = workers, name
        self._numbers = itertools.count(1)
        self._open: set[OpenTransaction] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._looked: asyncio.Task[dict[Owner, list[Owner]]] | None = None
        self._look_again = 0.0
        self.removals = Counter[str]()  # by table: begun and ended commits that removed keys of a FOREIGN KEY

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, serializable: bool = False, owner: Hashable = None) -> OpenTransaction:
        """Begin a transaction. Workers learn of it at its first request. `owner`: its session."""
        transaction = OpenTransaction(f"{self._name}.{next(self._numbers)}", owner=owner)
        if serializable:
            transaction.reads = TransactionReads()
        self._open.add(transaction)
        return transaction

    # ------------------------------------------------------------ statements
    async def stage(self, transaction: OpenTransaction, statement: Statement, wait_s: float) -> WriteResult:
        """Run a statement within the transaction. Raises its SqlError: 1205 after `wait_s`, 1213 if the transaction
        is rolled back or lost."""
        self._refuse_lost(transaction)
        transaction.locked.update(tables_written(statement))
        routed = self._workers.routed(statement)
        if routed.moves or routed.unique:
            plan = await self._planned(transaction, routed, wait_s)
            await self._each(transaction, {w: move for w, (move,) in plan.parts.items()}, wait_s)
            results = [plan.result]
        else:
            results = await self._each(transaction, routed.parts, wait_s)
        if routed.renumbers:
            await self._workers.learn_numbers(statement.table)
        return routed.result(results)

    async def _planned(self, transaction: OpenTransaction, routed: RoutedWrite, wait_s: float) -> StatementEffect:
        """Plan a statement. The transaction then has the locks that keep the plan valid."""
        async def ask(questions: Mapping[int, Planning]) -> list[Any]:
            replies, why = await self._replies(transaction, {
                w: replace(q, within=transaction.staged_part(w))
                for w, q in questions.items()}, wait_s)
            errors = [r.error for r in replies.values() if r.error is not None]
            if errors or why is not None:
                raise errors[0] if errors else why or interrupted()
            return [r.value for r in replies.values()]

        if routed.unique:
            await conflicting_rows(routed, (0,), ask)  # INSERTs of the same values wait here, with no lock elsewhere
        return await plan_statement(routed, len(self._workers.staging_workers), ask)

    async def _each(self, transaction: OpenTransaction, parts: Mapping[int, Statement], wait_s: float
                    ) -> list[WriteResult]:
        """Stage each part at its worker and return the results. If one fails, none is staged, and its error is
        raised."""
        replies, why = await self._replies(transaction, {
            w: Stage(0, transaction.name, transaction.done.get(w, 0), (part,)) for w, part in parts.items()}, wait_s)
        results = {w: WriteResult(error=r.error) if r.error is not None else r.value[0] for w, r in replies.items()}
        errors = [r.error for r in results.values() if r.error is not None]
        if errors or why is not None:
            for w, result in results.items():
                if result.error is None:
                    await self._undo(transaction, w, transaction.done[w], 1)
            raise errors[0] if errors else why or interrupted()
        for w, result in results.items():
            transaction.done[w] += 1
            if result.affected or isinstance(parts[w], Move):
                transaction.tables.setdefault(w, set()).update(tables_written(parts[w]))
        return list(results.values())

    async def _replies(self, transaction: OpenTransaction, requests: Mapping[int, Packet], wait_s: float
                       ) -> tuple[dict[int, Done], SqlError | None]:
        """The replies of the workers, by worker, and the error if the statement was stopped. Raises SqlError 1213 if
        the transaction is lost."""
        try:
            await self._take_part(transaction, requests, wait_s)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            raise interrupted() from None
        except WorkerUnavailable as e:
            self.lose(transaction, _part_lost(e))
            self._refuse_lost(transaction)
        if transaction.reads is not None:
            transaction.reads.noted_at.update(requests)
        pending = {w: asyncio.ensure_future(self._workers.staging_workers[w].ask(body)) for w, body in requests.items()}
        why = await self._awaited(transaction, pending, wait_s) if pending else None
        failures = [lost for f in pending.values() if (lost := f.exception()) is not None]
        replies: dict[int, Done] = {w: f.result() for w, f in pending.items() if f.exception() is None}
        errors = [r.error for r in replies.values() if r.error is not None]
        if failures:
            self.lose(transaction, _part_lost(failures[0]))
        elif (deadlock := next((e for e in errors if e.code == LOCK_DEADLOCK.number), None)) is not None:
            self.lose(transaction, deadlock)
        self._refuse_lost(transaction)
        return replies, why

    async def _take_part(self, transaction: OpenTransaction, workers: Iterable[int], wait_s: float | None = None
                         ) -> None:
        """Wait for these workers, then register the transaction at each: it may get a lock there, even if its request
        fails. Raises SqlError 1205 after `wait_s`, if the transaction holds something meanwhile."""
        new, links = [w for w in workers if w not in transaction.done], self._workers.staging_workers
        if down := [links[w] for w in new if links[w].state is not LinkState.UP]:
            if any(link.state is LinkState.CLOSED for link in down):
                raise WorkerUnavailable("the server is stopping")
            up = asyncio.gather(*(link.up() for link in down))
            try:
                await asyncio.wait_for(up, wait_s if transaction.done else None)
            except TimeoutError:
                raise SqlError(*LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded; try restarting transaction: it waited "
                                                   "for a worker that is down") from None
        for w in new:
            transaction.done[w], transaction.losses[w] = 0, self._losses(w)

    def _has_lost(self, transaction: OpenTransaction) -> bool:
        """Whether it is lost, or a worker was lost that has a part of it."""
        return transaction.lost is not None or any(self._losses(w) != n for w, n in transaction.losses.items())

    def _losses(self, worker: int) -> int:
        """How often the worker was lost."""
        return next((number for number, _ in self._workers.staging_workers[worker].losses().values()), 0)

    async def _awaited(self, transaction: OpenTransaction, pending: Mapping[int, asyncio.Task[Any]], wait_s: float
                       ) -> SqlError | None:
        """Wait for all replies. Those that wait for a lock when the time is over, or when the statement is stopped,
        are ended. The result is the error if it was stopped."""
        why: SqlError | None = None
        stopped = False
        late = asyncio.get_running_loop().time() + wait_s
        before: tuple[Owner, ...] = ()
        while True:
            left = late - asyncio.get_running_loop().time()
            try:
                _, waiting = await asyncio.wait(pending.values(), timeout=None if why else min(left, self._look_s))
                if not waiting:
                    return why if stopped else None
                if left > 0:
                    cycle = await self._cycle(transaction)
                    if not cycle or cycle != before or not self._is_victim(transaction, cycle):
                        before = cycle  # look twice, since the workers answered at different moments
                        continue
                    why = deadlock()
                else:
                    why = SqlError(*LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded; try restarting transaction")
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
                why, stopped = interrupted(), True
            for w, one in pending.items():
                if not one.done():
                    self._notify(w, EndWait(0, transaction.name, why))

    @property
    def _look_s(self) -> float:
        """How often a waiting request looks for a deadlock across workers; one worker finds its own."""
        return ACROSS_S if len(self._workers.staging_workers) > 1 else math.inf

    async def _cycle(self, transaction: OpenTransaction) -> tuple[Owner, ...]:
        """A cycle of waits across workers that includes the transaction, or nothing."""
        if self._looked is None or (self._looked.done() and asyncio.get_running_loop().time() > self._look_again):
            self._look_again = asyncio.get_running_loop().time() + ACROSS_S / 2
            self._looked = asyncio.ensure_future(self.lock_waits())
        waits = await asyncio.shield(self._looked)  # all waiting requests share one look
        return cycle_of(transaction.name, lambda owner: waits.get(owner, ()))

    def opened(self) -> Iterator[OpenTransaction]:
        yield from self._open

    def end_wait(self, transaction: OpenTransaction, why: SqlError) -> None:
        """Answer its request that waits for a lock with an error."""
        for w in transaction.done:
            self._notify(w, EndWait(0, transaction.name, why))

    async def lock_waits(self) -> dict[Owner, list[Owner]]:
        """Who waits for whom at all workers."""
        waits: dict[Owner, list[Owner]] = {}
        with suppress(WorkerUnavailable):
            for reply in await asyncio.gather(*(w.ask(Inspect(0, "lock waits"))
                                                for w in self._workers.staging_workers)):
                for owner, *others in reply.value or ():
                    waits.setdefault(owner, []).extend(others)
        return waits

    def _is_victim(self, transaction: OpenTransaction, cycle: Sequence[Owner]) -> bool:
        """Whether this transaction ends to break the cycle. Every member finds the same one: a statement that is tried
        again, without an error for its client; else the transaction with the fewest requests."""
        if statements := [str(owner) for owner in cycle if str(owner).startswith(STATEMENT)]:
            return transaction.name == min(statements)
        known = [t for t in self._open if t.name in cycle]
        return transaction is min(known, key=lambda t: (sum(t.done.values()), t.name), default=transaction)

    async def _undo(self, transaction: OpenTransaction, worker: int, keep: int, more: int = 0) -> None:
        """Undo requests at one worker. `more`: requests there that `done` does not count."""
        done = transaction.done.get(worker, 0) + more
        try:
            reply: Done = await self._workers.staging_workers[worker].ask(Undo(0, transaction.name, done, keep))
        except WorkerUnavailable as e:
            reply = Done(0, None, SqlError(*LOCK_DEADLOCK, f"A worker was lost: {e}; try restarting transaction"))
        if reply.error is not None:
            self.lose(transaction, reply.error)
            raise reply.error
        transaction.done[worker] = keep

    async def back_to(self, transaction: OpenTransaction, mark: Mapping[int, int]) -> None:
        """Undo everything since the savepoint's mark."""
        self._refuse_lost(transaction)
        for worker, done in list(transaction.done.items()):
            if done != mark.get(worker, 0):
                await self._undo(transaction, worker, mark.get(worker, 0))

    async def ask(self, transaction: OpenTransaction, requests: Mapping[int, Packet], wait_s: float) -> list[Any]:
        """Send requests to workers and return their answers, in the same order. Raises SqlError if one answers with
        it."""
        replies, why = await self._replies(transaction, requests, wait_s)
        errors = [r.error for r in replies.values() if r.error is not None]
        if errors or why is not None:
            raise errors[0] if errors else why or interrupted()
        return [replies[w].value for w in requests]

    @property
    def workers(self) -> int:
        return len(self._workers.staging_workers)

    # ------------------------------------------------------------ locks
    async def lock_rows(self, transaction: OpenTransaction, table: TableDef, keys: Sequence[Key], exclusive: bool,
                        how: str, wait_s: float) -> list[Key]:
        """Lock rows by their primary keys. Returns those that others have locked, if `how` is skip. Raises SqlError
        1205 after `wait_s`, 3572 if `how` is nowait, 1213."""
        self._refuse_lost(transaction)
        transaction.locked.add(table.name)
        mine = by_worker(table, keys, len(self._workers.staging_workers))
        refused = await self.ask(transaction, {
            w: LockRows(0, transaction.name, transaction.done.get(w, 0), table.name, tuple(some), exclusive, how)
            for w, some in mine.items()}, wait_s)
        return list(dict.fromkeys(mine[w][n] for w, some in zip(mine, refused, strict=True) for n in some))

    @asynccontextmanager
    async def exclusive_access(self, tables: Sequence[str], wait_s: float,
                               owner: Hashable = None) -> AsyncIterator[None]:
        """Wait until no transaction has changed or locked these tables, and keep others from it meanwhile. If no
        transaction is open now, nothing is kept: a transaction that begins meanwhile finds the tables as they are
        then. Raises SqlError 1205 after `wait_s`. `owner`: the session that does this."""
        if not self._open or not tables:
            yield
            return
        transaction = self.begin(owner=owner)
        transaction.defines = True
        try:
            pending = {}
            for w, link in enumerate(self._workers.staging_workers):
                transaction.done[w] = 0
                pending[w] = asyncio.ensure_future(link.ask(LockDefinitions(0, transaction.name, tuple(tables))))
            why = await self._awaited(transaction, pending, wait_s)
            replies = [f.result() for f in pending.values() if f.exception() is None]  # who is lost has no transactions
            if (error := next((r.error for r in replies if r.error is not None), why)) is not None:
                raise error
            yield
        finally:
            self.end(transaction)

    # ------------------------------------------------------------ reads
    async def open_snapshot(self, transaction: OpenTransaction) -> None:
        """Open the transaction's snapshot at all workers, unless it has one. Raises SqlError 1213 if a worker is lost
        that has a part of the transaction."""
        workers = range(len(self._workers.staging_workers))
        while transaction.snapshot is None:
            self._refuse_lost(transaction)
            fresh, ticks = not transaction.done, list[int]()
            await self._take_part(transaction, workers)
            marks = None if transaction.reads is None else transaction.reads.mark_snapshot()
            moment, unsure = self._workers.written.moment, self._workers.unanswered()  # may commit before it or after
            body = OpenSnapshot(0, transaction.name, marks)
            try:
                await self._workers.at_one_moment(partial(self._opened, body, ticks))
            except BaseException as e:
                if marks is not None:  # some workers may have the mark, and others not
                    self.lose(transaction, e if isinstance(e, SqlError) else _part_lost(e))
                if not isinstance(e, WorkerUnavailable):
                    raise
                if not fresh:
                    self.lose(transaction, _part_lost(e))
                if transaction.lost is None:
                    await self._without_parts(transaction)
            else:
                transaction.snapshot, transaction.unsure = moment, unsure
                transaction.tick = ticks[0] if len(ticks) == 1 else None
            finally:
                if transaction not in self._open:  # it ended meanwhile: no worker may keep its snapshot
                    self._forget(transaction)

    async def _without_parts(self, transaction: OpenTransaction) -> None:
        """Close the snapshots of a transaction that has nothing else. Raises SqlError 1317 if it ended meanwhile."""
        ended = [self._notify(w, EndTransaction(0, transaction.name)) for w in transaction.done]
        transaction.done.clear()
        transaction.losses.clear()
        await asyncio.wait(ended)
        if transaction not in self._open:
            raise interrupted()

    @staticmethod
    async def _opened(body: OpenSnapshot, ticks: list[int], worker: StagingWorker) -> None:
        reply: Done = await worker.ask(body)
        if reply.error is not None:
            raise reply.error
        ticks.append(reply.value[0])

    async def mark_reads(self, transaction: OpenTransaction) -> int:
        """Mark this moment at all workers, before a SERIALIZABLE transaction reads the last commits. Returns the
        number of the mark. Raises SqlError 1213."""
        assert transaction.reads is not None
        self._refuse_lost(transaction)
        mark, noted_at = transaction.reads.mark(), set(transaction.reads.noted_at)
        body = MarkReads(0, transaction.name, mark)
        replies, why = await self._replies(transaction, dict.fromkeys(range(self.workers), body), math.inf)
        transaction.reads.noted_at = noted_at
        error = next((r.error for r in replies.values() if r.error is not None), None)
        if error is not None:
            self.lose(transaction, error)
        if error is not None or why is not None:
            raise error or why or interrupted()
        return mark

    def must_bypass_views(self, transaction: OpenTransaction, tables: Iterable[str]) -> bool:
        """Whether the transaction must not read these tables in views: it has changed one, or its snapshot is older."""
        names = set(tables)
        if not names.isdisjoint(transaction.changed):
            return True
        if transaction.snapshot is None:
            return False
        return not names.isdisjoint(transaction.unsure) or self._workers.written.since(transaction.snapshot, names)

    def tick_of(self, transaction: OpenTransaction, tables: Iterable[str]) -> int | None:
        """The tick of the snapshot, if rows of these tables that no later tick has changed are those that the
        transaction must see. None if it has changed one, with several workers, and after the loss of the worker."""
        if transaction.tick is None or self._has_lost(transaction) or not transaction.changed.isdisjoint(tables):
            return None
        return transaction.tick

    def within(self, transaction: OpenTransaction, tables: Iterable[str], latest: bool = False) -> Within:
        """How a query of these tables reads within the transaction. `latest`: the last commits, not its snapshot."""
        self._refuse_lost(transaction)
        done = tuple(transaction.done.get(w, 0) for w in range(len(self._workers.staging_workers)))
        return Within(transaction.name, done, tuple(sorted(tables)),
                      transaction.snapshot is not None and not latest)

    # ------------------------------------------------------------ ends
    async def commit(self, transaction: OpenTransaction, idempotency_key: str = "") -> Wrote:
        """Commit the transaction. `idempotency_key`: as in `Write`. Raises SqlError if it is rolled back instead, or
        WorkerUnavailable if that is unknown."""
        try:
            self._refuse_lost(transaction)
        except SqlError:
            self.end(transaction)
            raise
        parts = {w: Staged(transaction.name, transaction.done[w], tuple(sorted(tables)))
                 for w, tables in transaction.tables.items() if transaction.done.get(w, 0)}
        if transaction.reads is not None:
            parts = transaction.reads.checked(transaction, parts, self._workers.routed)
        if not parts:
            self.end(transaction)
            await self._workers.after_earlier_commits(transaction.scope)
            return Wrote(0, (WriteResult(),))
        self.removals.update(transaction.removed)
        try:
            wrote = await self._committed(self._workers.commit_staged(parts, idempotency_key, transaction.scope))
        except WorkerLost:
            self.end(transaction)
            raise SqlError(*LOCK_DEADLOCK, "A worker was lost before the commit: the transaction is rolled back; try "
                                           "restarting transaction") from None
        except BaseException:
            self.end(transaction)
            raise
        finally:
            self.removals.update(transaction.removed)
        if wrote.results[0].error is not None:
            self.end(transaction)
            raise wrote.results[0].error
        if len(parts) == len(transaction.done) == 1:  # the worker has forgotten the transaction at its commit
            self._open.discard(transaction)
        else:
            self._forget(transaction)
        return wrote

    @staticmethod
    async def _committed(future: asyncio.Future[Any]) -> Wrote:
        """Wait for the commit, also if the client stops waiting for it."""
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
        wrote: Wrote = future.result()
        return wrote

    def end(self, transaction: OpenTransaction) -> None:
        """Roll the transaction back, or forget one that has changed nothing. Later requests are answered after that."""
        if transaction in self._open:
            self._forget(transaction)

    def _forget(self, transaction: OpenTransaction) -> None:
        self._open.discard(transaction)
        for w in transaction.done:
            self._notify(w, EndTransaction(0, transaction.name))

    def lose(self, transaction: OpenTransaction, why: SqlError) -> None:
        """Roll the transaction back at all workers. Its client can only end it."""
        transaction.lost = why
        for w in transaction.done:
            self._notify(w, EndTransaction(0, transaction.name))

    def _refuse_lost(self, transaction: OpenTransaction) -> None:
        """Raise SqlError 1213 if the transaction has lost a part, also if that were only locks."""
        if transaction.lost is None and self._has_lost(transaction):
            self.lose(transaction, _part_lost("it has been restarted"))
        if transaction.lost is not None:
            raise transaction.lost

    def _notify(self, worker: int, body: TransactionPacket) -> asyncio.Task[None]:
        """Send a packet whose answer nobody needs; return the task that sends it. A lost worker has forgotten the
        transaction anyway."""
        async def send() -> None:
            with suppress(WorkerUnavailable):
                await self._workers.staging_workers[worker].ask(body)

        task = asyncio.ensure_future(send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _part_lost(why: object) -> SqlError:
    return SqlError(*LOCK_DEADLOCK, "A worker was lost, and with it a part of the transaction: it is rolled back; try "
                                    f"restarting transaction ({why})")
