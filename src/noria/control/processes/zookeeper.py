"""The lease of a data directory's controllers, in ZooKeeper: one server leads, others stand by and replace it.

The lease is kazoo's lock: an ephemeral node of the session, which is deleted when the session ends.  The server that
waits longest is next.

Keeps true: a server learns that it lost the lease before ZooKeeper grants it to another, even if ZooKeeper is
unreachable.  It does not give the lease up earlier than that requires.  ZooKeeper keeps a node for the session's time
after it last heard of its process.  That is no earlier than when the last answered request was sent.  So a thread polls
repeatedly whether the node exists, and shortly before that time is over the lease counts as lost.  A lost lease is
never regained; the process that had it ends as if it had crashed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import CancelledError, KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.recipe.lock import Lock

from noria.control.processes.lease_address import LeaseAddress, LeaseUnavailable

SESSION_S = 3.0  # how long ZooKeeper keeps the node of a process that died; at least two of its ticks
CONNECT_S = 10.0
POLL_SHARE = 1 / 6  # of the session's time, between two questions
SURE_SHARE = 11 / 12  # of the session's time, for which an answer is valid


class Lease:
    """Acquires and watches a lease, within one event loop.  holder: our name for others; note: reports the progress."""

    def __init__(self, address: LeaseAddress, holder: str, note: Callable[[str], None], session_s: float = SESSION_S):
        self._address, self._holder, self._note = address, holder, note
        self._client = KazooClient(address.hosts, timeout=session_s, connection_retry={"max_tries": -1, "max_delay": 1})
        self._poll_s, self._sure_s = session_s * POLL_SHARE, session_s * SURE_SHARE
        self._lock: Lock | None = None
        self._end: asyncio.TimerHandle | None = None  # of the validity of the last answer
        self._ended = threading.Event()  # for the asking thread
        self.held = False

    # ------------------------------------------------------------ acquiring
    async def take(self) -> None:
        """Wait until this server has the lease."""
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = self._loop.create_future()  # why, once it is lost
        self._sure: asyncio.Future[None] = self._loop.create_future()  # the first answer
        try:
            await asyncio.to_thread(self._client.start, CONNECT_S)
        except KazooTimeoutError as e:
            await self.release()
            raise LeaseUnavailable(f"no ZooKeeper answers at {self._address.hosts} after {CONNECT_S:.0f} s, so nobody "
                                   "can say who leads: start it, or correct --lease") from e
        self._client.add_listener(self._session_event)
        self._lock = self._client.Lock(f"{self._address.path}/leader", self._holder)
        while not self.held:
            if not await self._in_thread(self._at_once) and not await self._in_thread(self._in_turn):
                continue
            self.held = True
            threading.Thread(target=self._poll, name="lease", daemon=True).start()
            first: set[asyncio.Future[Any]] = {self._sure, self.lost}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if self.lost.done():  # it was lost before the first answer
                raise LeaseUnavailable(f"the lease was lost as it came: {self.lost.result()}")

    async def release(self) -> None:
        """Release the lease, so that the next server gets it at once."""
        self.held = False
        self._ended.set()
        if self._end is not None:
            self._end.cancel()
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    async def _in_thread(self, wait: Callable[[], bool]) -> bool:
        """Wait in a thread; cancelling this ends the wait in the thread as well."""
        waiting = asyncio.ensure_future(asyncio.to_thread(wait))
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            assert self._lock is not None
            self._lock.cancel()
            with contextlib.suppress(KazooException):
                await waiting
            raise

    def _at_once(self) -> bool:
        assert self._lock is not None
        if self._lock.acquire(blocking=False):
            return True
        leader = next(iter(self._lock.contenders()), None)
        self._loop.call_soon_threadsafe(self._note, f"{leader or 'another server'} leads")
        return False

    def _in_turn(self) -> bool:
        assert self._lock is not None
        try:
            return bool(self._lock.acquire())
        except CancelledError:
            return False

    # ------------------------------------------------------------ losing
    def _poll(self) -> None:
        """Poll ZooKeeper in a thread of its own.  Without a connection a request waits, and the next follows it."""
        assert self._lock is not None
        sent = -self._poll_s
        while not self._ended.wait(max(sent + self._poll_s - time.monotonic(), 0)):
            sent = time.monotonic()
            with contextlib.suppress(KazooException):  # `_session_event` gets the same event
                there = self._client.exists(f"{self._lock.path}/{self._lock.node}") is not None
                self._in_loop(self._answered, sent, there)

    def _answered(self, sent: float, there: bool) -> None:
        """Process an answer.  sent: when its question was sent, by the monotonic clock."""
        if not self.held:
            return
        if self._end is not None:
            self._end.cancel()
        if there:
            self._end = self._loop.call_later(sent + self._sure_s - time.monotonic(), self._lose,
                                              "ZooKeeper does not answer")
            if not self._sure.done():
                self._sure.set_result(None)
        else:
            self._lose("ZooKeeper has its node no more")

    def _session_event(self, state: str) -> None:
        """Process kazoo's state change, in kazoo's thread."""
        self._in_loop(self._take_state, state)

    def _in_loop(self, do: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(do, *args)

    def _take_state(self, state: str) -> None:
        if not self.held:
            return
        if state == KazooState.LOST:
            self._lose("ZooKeeper has ended the session")
        elif state == KazooState.SUSPENDED:
            self._note("no connection to ZooKeeper")

    def _lose(self, why: str) -> None:
        self.held = False
        self._ended.set()
        if not self.lost.done():
            self.lost.set_result(why)
