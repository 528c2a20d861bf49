"""Views that have no first state yet, and who waits for it.

Keeps true: whoever waits for a view is told when it is there, why it will not be, or that the view is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from noria.control.names import fold
from noria.core.errors import view_gone
from noria.dataflow import packets
from noria.plan.mir import Mir
from noria.plan.view import ViewDef
from noria.runtime.link import Link

log = logging.getLogger(__name__)
Bootstrapper = Callable[[ViewDef, int, Mir], Awaitable[None]]


class FirstStates:
    """bootstrap: has Spark compute the state of one node; failed: is told of a view (its folded name) and why."""

    def __init__(self, link: Link, failed: Callable[[str, BaseException], None]):
        self._link, self._failed = link, failed
        self.bootstrap: Bootstrapper | None = None
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def begin(self, view: ViewDef, by_spark: Sequence[tuple[int, Mir]]) -> None:
        """The worker makes the view; by_spark: nodes whose state Spark must compute, and the plans of their input."""
        name = fold(view.name)
        task = self._under_way[name] = asyncio.ensure_future(self._fill(view, by_spark))
        task.add_done_callback(partial(self._done, name))

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
        if not task.cancelled() and (why := task.exception()) is not None:
            log.error("first state of view %s failed", name, exc_info=why)
            self._failed(name, why)

    def forget(self, name: str) -> None:
        """The view of this folded name is no more."""
        task = self._under_way.pop(name, None)
        if task is not None:
            task.cancel()

    def wait_for(self, view: ViewDef) -> bool:
        """Has the view no first state yet?"""
        return fold(view.name) in self._under_way

    async def of(self, view: ViewDef) -> None:
        """Returns when the view has its first state: at once for nearly every view."""
        task = self._under_way.get(fold(view.name))
        if task is None:
            return
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise view_gone(view.name) from None
            raise
