"""Runs writes without a transaction that met a lock: each becomes a short transaction, which waits for the lock.
Call `LockedWrites.begin`.

    Write ──► error 3572 ──► Stage (waits for the lock) ──► a Write of the staged rows ──► the caller's answer

Keeps true: such a write is committed once, and its caller receives one outcome. Without locks no code here runs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from noria.core.errors import SqlError, interrupted
from noria.core.errors.codes import LOCK_DEADLOCK, LOCK_NOWAIT, LOCK_WAIT_TIMEOUT
from noria.core.statements import Staged, WriteResult, tables_written
from noria.dataflow.messages.packets import Done, Packet, Write, Wrote
from noria.dataflow.messages.transaction_packets import EndTransaction, EndWait, Stage

Ask = Callable[[Packet], Awaitable[Any]]
Submit = Callable[[Write], Awaitable[Wrote]]


def met_lock(reply: Wrote) -> bool:
    """Whether a statement failed because a transaction has locked its rows."""
    return any(r.error is not None and r.error.code == LOCK_NOWAIT.number for r in reply.results)


class LockedWrites:
    """See the module. `name`: makes the names of the transactions unique at the worker."""

    def __init__(self, ask: Ask, submit: Submit, name: str):
        self._ask, self._submit, self._name = ask, submit, name
        self._numbers = itertools.count(1)
        self._running: dict[asyncio.Future[Any], tuple[str, asyncio.Task[None]]] = {}

    def begin(self, body: Write, future: asyncio.Future[Any]) -> None:
        """Run a write again, now behind the locks. `future`: its caller's."""
        name = f"{self._name}.{next(self._numbers)}"
        task = asyncio.ensure_future(self._run(name, body, future))
        self._running[future] = name, task
        task.add_done_callback(lambda _: self._running.pop(future))

    def give_up(self, future: asyncio.Future[Any]) -> bool:
        """Stop the write if it waits for a lock. Returns whether it is one of these."""
        if (running := self._running.get(future)) is None:
            return False
        self._end_wait(running[0], interrupted())
        return True

    def waits_as(self, future: asyncio.Future[Any]) -> str | None:
        """The name under which the caller's write waits for a lock; None if it does not."""
        running = self._running.get(future)
        return None if running is None else running[0]

    def _end_wait(self, name: str, why: SqlError) -> None:
        task = asyncio.ensure_future(self._notify(EndWait(0, name, why)))
        self._running[task] = name, task
        task.add_done_callback(self._running.pop)

    async def _notify(self, body: Packet) -> None:
        with suppress(ConnectionError):  # a lost worker has forgotten it
            await self._ask(body)

    async def _run(self, name: str, body: Write, future: asyncio.Future[Any]) -> None:
        timer = asyncio.get_running_loop().call_later(body.wait_s, self._end_wait, name, SqlError(
            *LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded; try restarting transaction"))
        try:
            reply = await self._outcome(name, body)
        except Exception as e:
            if not future.done():
                future.set_exception(e)
                future.exception()
        else:
            if not future.done():
                future.set_result(reply)
        finally:
            timer.cancel()

    async def _outcome(self, name: str, body: Write) -> Wrote:
        """Stage and commit. If the worker is lost before the commit, so are the locks: the write is submitted anew."""
        try:
            staged: Done = await self._ask(Stage(0, name, 0, body.statements))
        except ConnectionError:
            return await self._submit(body)
        results = staged.value if staged.error is None else tuple(WriteResult(error=staged.error)
                                                                  for _ in body.statements)
        if any(r.error is not None for r in results):
            await self._notify(EndTransaction(0, name))
            return Wrote(0, tuple(results))
        tables = tuple(dict.fromkeys(t for s in body.statements for t in tables_written(s)))
        wrote: Wrote = await self._submit(Write((Staged(name, 1, tables),), idempotency_key=body.idempotency_key))
        if (error := wrote.results[0].error) is None:
            return Wrote(wrote.seq, tuple(results), wrote.recipients)
        if error.code == LOCK_DEADLOCK.number:  # the staged rows are lost
            return await self._submit(body)
        await self._notify(EndTransaction(0, name))
        return Wrote(0, tuple(WriteResult(error=error) for _ in results))
