"""Views that have no first state yet, and the callers that wait for it.

Keeps true: a caller that waits for a view learns that it is ready, why it never will be, or that it was dropped.  An
ad-hoc view that nobody wants any more is soon given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from noria.control.catalog.names import fold
from noria.core.errors import SqlError, is_redefined, view_gone
from noria.core.limits import ADHOC_UNWANTED_S
from noria.dataflow.messages import packets
from noria.plan.mir import Mir
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link, WorkerUnavailable

log = logging.getLogger(__name__)
Bootstrapper = Callable[[ViewDef, int, Mir], Awaitable[None]]


class FirstStates:
    """Tracks first states.  bootstrap: lets Spark compute the state of one node.

    on_failed: called with a view's folded name and the reason; on_unwanted: called with an ad-hoc view that nobody has
    waited for or requested during ADHOC_UNWANTED_S.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.bootstrap: Bootstrapper | None = None
        self.on_failed: Callable[[str, BaseException], None] = lambda name, why: None
        self.on_unwanted: Callable[[ViewDef], None] = lambda view: None
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._wanting: Counter[str] = Counter()
        self._ends: dict[str, asyncio.TimerHandle] = {}  # of ad-hoc views that nobody waits for

    def begin(self, view: ViewDef, by_spark: Sequence[tuple[int, Mir]]) -> None:
        """Track a view that the worker builds.  by_spark: (node, plan of its input) whose state Spark computes."""
        name = fold(view.name)
        task = self._under_way[name] = asyncio.ensure_future(self.fill(view, by_spark))
        task.add_done_callback(partial(self._done, name))
        self.note_request(view)

    async def fill(self, view: ViewDef, by_spark: Sequence[tuple[int, Mir]]) -> None:
        """Wait for the first state of a view.  by_spark: as for `begin`."""
        for node, plan in by_spark:
            if self.bootstrap is None:
                raise RuntimeError(f"view {view.name} needs a bulk replay, and nothing here can do one")
            await self.bootstrap(view, node, plan)
        reply: packets.Done = await self._link.ask(packets.Inspect(0, "built", view.name), retry=True)
        reply.result()

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        if self._under_way.get(name) is task:
            del self._under_way[name]
            self._goes_on(name)
        why = None if task.cancelled() else task.exception()
        if isinstance(why, SqlError) and is_redefined(why):  # the code that drops a view also forgets it
            log.info("view %s was given up before it had its first state", name)
        elif why is not None:
            if not isinstance(why, SqlError | WorkerUnavailable):
                log.error("first state of view %s failed", name, exc_info=why)
            self.on_failed(name, why)

    def forget(self, name: str) -> None:
        """Forget a dropped view by its folded name."""
        task = self._under_way.pop(name, None)
        self._goes_on(name)
        if task is not None:
            task.cancel()

    def is_unfilled(self, view: ViewDef) -> bool:
        """True if the view has no first state yet."""
        return fold(view.name) in self._under_way

    @contextmanager
    def wanted(self, view: ViewDef) -> Iterator[None]:
        """Within this context a caller waits for the view, or will ask again after an answer without it."""
        name = fold(view.name)
        self._wanting[name] += 1
        self._goes_on(name)
        try:
            yield
        finally:
            self._wanting[name] -= 1
            if not self._wanting[name]:
                del self._wanting[name]
            self.note_request(view)

    def note_request(self, view: ViewDef) -> None:
        """Note that the view was requested just now, whether or not the caller waits."""
        name = fold(view.name)
        self._goes_on(name)
        if view.adhoc and name in self._under_way and not self._wanting[name]:
            self._ends[name] = asyncio.get_running_loop().call_later(ADHOC_UNWANTED_S, self.on_unwanted, view)

    def _goes_on(self, name: str) -> None:
        if (end := self._ends.pop(name, None)) is not None:
            end.cancel()

    async def of(self, view: ViewDef) -> None:
        """Wait until the view has its first state; nearly every view has it already."""
        task = self._under_way.get(fold(view.name))
        if task is None:
            return
        try:
            with self.wanted(view):
                await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise view_gone(view.name) from None
            raise
