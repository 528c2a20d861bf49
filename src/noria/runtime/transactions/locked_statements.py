"""Statements of several workers that met a lock: each becomes a transaction of its own, which waits for the lock.
Call `LockedStatements.begin`.

The links of single workers do this for writes that concern one of them (`link/locked_writes.py`).

Keeps true: such a statement is done once or not at all, and its caller learns the outcome once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Protocol

from noria.core.errors import SqlError, interrupted
from noria.core.errors.codes import LOCK_DEADLOCK, LOCK_WAIT_TIMEOUT
from noria.core.statements import WriteResult
from noria.dataflow.messages.packets import Write, Wrote
from noria.runtime.link.locked_writes import met_lock
from noria.runtime.transactions.client_transactions import STATEMENT, ClientTransactions
from noria.runtime.transactions.open_transaction import Workers


class Resubmitting(Workers, Protocol):
    """All workers, which also run a write whose caller handles error 3572."""

    def submit_unlocked(self, body: Write) -> asyncio.Future[Any]: ...


AGAIN_S = 0.02  # a statement that is tried by itself is tried so often


class LockedStatements:
    """See the module. `workers`: also runs a statement again, by `submit_unlocked`."""

    def __init__(self, workers: Resubmitting, epoch: int):
        self._workers, self._coordinator = workers, ClientTransactions(workers, f"{STATEMENT}{epoch}")
        self._running: dict[asyncio.Future[Any], asyncio.Task[None]] = {}
        self._names: dict[asyncio.Future[Any], str] = {}  # of their transactions

    def begin(self, body: Write, future: asyncio.Future[Any]) -> None:
        """Run a write again, now behind the locks. `future`: its caller's."""
        self._running[future] = task = asyncio.ensure_future(self._run(body, future))
        task.add_done_callback(lambda _: self._running.pop(future))

    def give_up(self, future: asyncio.Future[Any]) -> bool:
        """Stop the write if it waits for a lock. Returns whether it is one of these."""
        task = self._running.get(future)
        if task is not None:
            task.cancel()
        return task is not None

    def waits_as(self, future: asyncio.Future[Any]) -> str | None:
        """The name under which the caller's write waits for a lock; None if it does not."""
        return self._names.get(future)

    async def _run(self, body: Write, future: asyncio.Future[Any]) -> None:
        try:
            reply = await self._outcome(body, future)
        except asyncio.CancelledError:
            reply = _failed(body, interrupted())
        except Exception as e:
            if not future.done():
                future.set_exception(e)
                future.exception()
            return
        if not future.done():
            future.set_result(reply)

    async def _outcome(self, body: Write, future: asyncio.Future[Any]) -> Wrote:
        try:
            return await self._within(body, future)
        except SqlError as e:
            return await self._again(body) if e.code == LOCK_DEADLOCK.number else _failed(body, e)

    async def _within(self, body: Write, future: asyncio.Future[Any]) -> Wrote:
        transaction = self._coordinator.begin()
        self._names[future] = transaction.name
        try:
            results = [await self._coordinator.stage(transaction, s, body.wait_s) for s in body.statements]
        except BaseException:
            self._coordinator.end(transaction)
            raise
        finally:
            del self._names[future]
        wrote = await self._coordinator.commit(transaction, body.idempotency_key)
        return replace(wrote, results=tuple(results))

    async def _again(self, body: Write) -> Wrote:
        """Its transaction was lost: try the statement by itself until it meets no lock."""
        end = asyncio.get_running_loop().time() + body.wait_s
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(AGAIN_S)
            wrote: Wrote = await self._workers.submit_unlocked(body)
            if not met_lock(wrote):
                return wrote
        return _failed(body, SqlError(*LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded; try restarting transaction"))


def _failed(body: Write, error: SqlError) -> Wrote:
    return Wrote(0, tuple(WriteResult(error=error) for _ in body.statements))
