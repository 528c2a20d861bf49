"""Views that have no first state yet, and who waits for it.

Keeps true: whoever waits for a view is told when it is there, why it will not be, or that the view is gone; an ad-hoc
view that nobody wants any more is not filled for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from noria.control.catalog.names import fold
from noria.core.errors import SqlError, is_gone, view_gone
from noria.core.limits import ADHOC_UNWANTED_S
from noria.dataflow.messages import packets
from noria.plan.mir import Mir
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link, WorkerGone

log = logging.getLogger(__name__)
Bootstrapper = Callable[[ViewDef, int, Mir], Awaitable[None]]


class FirstStates:
    """bootstrap: has Spark compute the state of one node; failed: is told of a view (its folded name) and why;
    unwanted: of an ad-hoc one that nobody has waited for, or asked for, for so long."""

    def __init__(self, link: Link, failed: Callable[[str, BaseException], None], unwanted: Callable[[ViewDef], None]):
        self._link, self._failed, self._unwanted = link, failed, unwanted
        self.bootstrap: Bootstrapper | None = None
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._wanting: Counter[str] = Counter()
        self._ends: dict[str, asyncio.TimerHandle] = {}  # of ad-hoc views that nobody waits for

    def begin(self, view: ViewDef, by_spark: Sequence[tuple[int, Mir]]) -> None:
        """The worker makes the view; by_spark: nodes whose state Spark must compute, and the plans of their input."""
        name = fold(view.name)
        task = self._under_way[name] = asyncio.ensure_future(self._fill(view, by_spark))
        task.add_done_callback(partial(self._done, name))
        self.asked(view)

    async def whole(self, view: ViewDef, by_spark: Sequence[tuple[int, Mir]]) -> None:
        """Wait for the first state of a view that is in no program."""
        await self._fill(view, by_spark)

    async def _fill(self, view: ViewDef, by_spark: Sequence[tuple[int, Mir]]) -> None:
        for node, plan in by_spark:
            if self.bootstrap is None:
                raise RuntimeError(f"view {view.name} needs a bulk replay, and nothing here can do one")
            await self.bootstrap(view, node, plan)
        reply: packets.Done = await self._link.ask(packets.Ask(0, "built", view.name), retry=True)
        if reply.error is not None:
            raise reply.error

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        if self._under_way.get(name) is task:
            del self._under_way[name]
            self._goes_on(name)
        why = None if task.cancelled() else task.exception()
        if isinstance(why, SqlError) and is_gone(why):  # whoever drops it forgets it, too
            log.info("view %s was given up before it had its first state", name)
        elif why is not None:
            if not isinstance(why, SqlError | WorkerGone):
                log.error("first state of view %s failed", name, exc_info=why)
            self._failed(name, why)

    def forget(self, name: str) -> None:
        """The view of this folded name is no more."""
        task = self._under_way.pop(name, None)
        self._goes_on(name)
        if task is not None:
            task.cancel()

    def wait_for(self, view: ViewDef) -> bool:
        """Has the view no first state yet?"""
        return fold(view.name) in self._under_way

    @contextmanager
    def wanted(self, view: ViewDef) -> Iterator[None]:
        """Somebody waits for the view, or will ask again when he has been answered without it."""
        name = fold(view.name)
        self._wanting[name] += 1
        self._goes_on(name)
        try:
            yield
        finally:
            self._wanting[name] -= 1
            if not self._wanting[name]:
                del self._wanting[name]
            self.asked(view)

    def asked(self, view: ViewDef) -> None:
        """Somebody has asked for the view just now, whether or not he waits."""
        name = fold(view.name)
        self._goes_on(name)
        if view.adhoc and name in self._under_way and not self._wanting[name]:
            self._ends[name] = asyncio.get_running_loop().call_later(ADHOC_UNWANTED_S, self._unwanted, view)

    def _goes_on(self, name: str) -> None:
        if (end := self._ends.pop(name, None)) is not None:
            end.cancel()

    async def of(self, view: ViewDef) -> None:
        """Returns when the view has its first state: at once for nearly every view."""
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
