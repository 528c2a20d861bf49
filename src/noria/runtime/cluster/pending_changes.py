"""Tracks the submitted changes that are not answered, and the background tasks of a link.

Keeps true: the future of a change gets the outcome of the work done for it, once. When the link is closed, it fails
with `WorkerUnavailable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from noria.dataflow.messages.packets import Wrote
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.commit_order import set_once
from noria.runtime.link.locked_writes import met_lock

Order = Callable[[Callable[[], object]], None]  # calls its argument, now or later


class PendingChanges:
    """The futures of submitted changes, each with the one it waits for."""

    def __init__(self) -> None:
        self._inner: dict[asyncio.Future[Any], asyncio.Future[Any]] = {}
        self._done: dict[asyncio.Future[Any], Wrote] = {}  # writes whose answers are delayed

    def inner(self, future: asyncio.Future[Any]) -> asyncio.Future[Any] | None:
        """What this change waits for."""
        return self._inner.get(future)

    def under_way(self) -> set[asyncio.Future[Any]]:
        """What the changes wait for."""
        return set(self._inner.values())

    def passes_on(self, inner: asyncio.Future[Any], future: asyncio.Future[Any], result: Callable[[], Any],
                  blocked: Callable[[asyncio.Future[Any]], None] | None = None, order: Order | None = None) -> None:
        """Pass the outcome of `inner` to `future`. `blocked`: receives the future of a write that met a lock. `order`:
        delays the answer of a write that is done."""
        self._inner[future] = inner

        def done(_: asyncio.Future[Any]) -> None:
            del self._inner[future]
            try:
                reply = result()
            except (Exception, asyncio.CancelledError) as e:
                if not future.done():
                    stopping = isinstance(e, asyncio.CancelledError)
                    future.set_exception(WorkerUnavailable("the front end is stopping") if stopping else e)
                    future.exception()
            else:
                if future.done():
                    return
                if blocked is not None and isinstance(reply, Wrote) and met_lock(reply):
                    blocked(future)
                elif order is None or not isinstance(reply, Wrote) or any(r.error for r in reply.results):
                    future.set_result(reply)
                else:
                    self._done[future] = reply
                    order(partial(self.answer_now, future))

        inner.add_done_callback(done)

    def answer_now(self, future: asyncio.Future[Any]) -> bool:
        """Answer a write that is done. Returns whether its answer was delayed."""
        reply = self._done.pop(future, None)
        if reply is not None:
            set_once(future, reply)
        return reply is not None

    def close(self) -> None:
        for inner in self.under_way():
            inner.cancel()


class Background:
    """Tasks that nobody awaits."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
