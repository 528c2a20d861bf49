"""Ad-hoc views, made for SELECTs that no named view answers, and the sending of changes to the worker.

Keeps true:

* Changes happen one at a time.
* Ad-hoc views are bounded in number (limits.ADHOC_VIEWS), the least recently used is dropped first.  What each may
  keep is bounded, too (limits.ADHOC_SHARE).
* An ad-hoc view that nobody waits for while it is made is given up.  None is durable.
* `policy.py` decides whether a SELECT gets one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from noria.control.catalog.catalog import Catalog
from noria.control.catalog.names import fold
from noria.control.catalog.origin import note
from noria.control.catalog.policy import Policy, Verdict
from noria.control.catalog.published import columns_asked, published
from noria.control.views.first_states import FirstStates
from noria.core import limits
from noria.core.errors import DISK_FULL, OUT_OF_RESOURCES, TOO_LONG, SqlError, adhoc_too_large, adhoc_too_long
from noria.dataflow.inspect.rehearsal import NodePlan, Rehearsal, ViewPlan
from noria.dataflow.messages import packets
from noria.plan.mir import Mir, TopK, tables_of
from noria.plan.optimizer import is_copy, shared_top
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class _Pending:
    """An ad-hoc view in the making, and how many callers wait for it."""

    task: asyncio.Task[ViewDef]
    waiting: int = 0


class AdHoc(Catalog):
    """The catalog with ad-hoc views.  hold_ms: how long the worker may take to make one."""

    def __init__(self, link: Link, adhoc_views: int, hold_ms: int):
        super().__init__()
        self._link, self.hold_ms = link, hold_ms
        self._clock = time.monotonic
        self._adhoc_views = adhoc_views
        self._pending: dict[tuple[Mir, tuple[int, ...], int], _Pending] = {}
        self._adhoc_made = self._definitions = 0
        self._lock = asyncio.Lock()
        self._sent: tuple[asyncio.Task[Any] | None, asyncio.Future[Any]] | None = None  # the current change
        self._costly: OrderedDict[tuple[Mir, tuple[int, ...]], tuple[int, float]] = OrderedDict()
        """SELECTs whose view took the worker too long: under which version of the program, and how long that counts."""
        self._above: dict[str, int] = {}  # for each ad-hoc view, how many table rows it was made over
        self.policy = Policy()
        self.first_states = FirstStates(link, self._unfillable, self._unwanted)

    def _is_whole(self, view: ViewDef) -> bool:
        return not self.first_states.wait_for(view)

    def _unfillable(self, name: str, why: BaseException) -> None:
        """Handle a view that will have no first state while this worker lives."""
        raise NotImplementedError

    def _unwanted(self, view: ViewDef) -> None:
        """Drop an ad-hoc view whose first state nobody waits for."""
        log.info("ad-hoc view %s is given up: nobody waits for it any more", view.name)
        self._forget(fold(view.name))
        self._link.submit(packets.Migrate((packets.DropView(view.name),), self.recipe(), False))

    async def first_read(self, view: ViewDef) -> None:
        """Wait until a named view without a reader has one."""
        raise NotImplementedError

    def once(self, wanted: ViewDef) -> bool:
        """True if a one-shot should answer this SELECT, not a view's reader; may start to make a view for it."""
        reader = self.match(wanted)
        if reader is not None and not self.first_states.wait_for(reader):
            return False
        if reader is not None:
            self.first_states.asked(reader)
            if not reader.adhoc:
                return self.policy.expected(wanted, self.version) is not Verdict.VIEW
        self._refuse_broken(wanted)
        if reader is None and self.readerless(wanted) is not None:
            return False  # the first read of a named view
        verdict = self.policy.asked(wanted, self.version)
        if verdict is Verdict.BOTH and reader is None and len(self._pending) < limits.VIEWS_BEGUN:
            self._begun(wanted).waiting += 1  # it is finished even if the callers leave
        return verdict is not Verdict.VIEW

    def read_many(self, wanted: ViewDef, rows: int) -> None:
        """Note that a SELECT was answered from so many rows of a view without a key.

        If only few of them were wanted and the SELECT is repeated, a view that keeps only the first rows is begun.
        """
        top = shared_top(wanted).plan
        if not isinstance(top, TopK) or rows <= max(limits.FIRST_ROWS_AMONG, top.limit):
            return
        if (begun := next((v for v in self._holding(wanted) if isinstance(v.plan, TopK)), None)) is not None:
            self.first_states.asked(begun)  # it is being filled
        elif self.policy.asked(wanted, self.version) is Verdict.BOTH and len(self._pending) < limits.VIEWS_BEGUN:
            self._begun(wanted).waiting += 1

    def expected(self, wanted: ViewDef) -> Verdict:
        """How a SELECT would be answered if no view answers it."""
        return self.policy.expected(wanted, self.version)

    async def rehearsed(self, wanted: ViewDef) -> ViewPlan:
        """What a view for the SELECT would keep; none is made.  Raises SqlError 1235 if it must not be made."""
        if self._is_costly(wanted):
            raise adhoc_too_long(self.hold_ms)
        add = published(replace(shared_top(wanted), name=f"adhoc_{self._adhoc_made + 1}", adhoc=True))
        reply: packets.Done = await self._link.ask(packets.Rehearse(0, (add,)), retry=True)
        if reply.error is not None:
            raise reply.error
        found: Rehearsal = reply.value
        (view,) = found.views
        rows = sum(found.rows.get(name, 0) for name in tables_of(wanted.plan))
        if rows <= min(limits.ADHOC_COPY_ROWS, limits.ADHOC_FULL_ROWS):
            return view
        if _holds_all(view.nodes, isinstance(add.view.plan, TopK)):
            most = limits.ADHOC_SHARE * (await self._stats())["memory_limit"]
            taken = sum(n.nbytes for n in view.nodes if n.new and n.filled)
            if rows > limits.ADHOC_FULL_ROWS or is_copy(add.view.plan) or 0 < most < taken:
                raise adhoc_too_large(rows)
        return view

    def _begun(self, wanted: ViewDef) -> _Pending:
        """The view for the SELECT that is in the making; starts to make it if there is none."""
        same = (wanted.plan, wanted.key, columns_asked(wanted))
        pending = self._pending.get(same)
        if pending is None:
            pending = self._pending[same] = _Pending(asyncio.ensure_future(self._add_adhoc(wanted)))
            pending.task.add_done_callback(partial(self._made, same, wanted))
        return pending

    async def reader(self, wanted: ViewDef) -> ViewDef:
        """A view that answers this SELECT, made if there is none.  Raises SqlError 1235 if it must not be made."""
        while (found := self.match(wanted)) is None:
            self._refuse_broken(wanted)
            if (named := self.readerless(wanted)) is not None:
                await self.first_read(named)
                continue
            pending = self._begun(wanted)
            pending.waiting += 1
            try:
                await asyncio.shield(pending.task)
            finally:
                pending.waiting -= 1
                if not pending.waiting and not pending.task.done():  # nobody waits any more
                    self._give_up(pending.task)
        return found

    async def reader_of(self, view: ViewDef) -> ViewDef:
        """The view whose reader has the rows of this named view: itself, or another one."""
        while (found := self.reader_now(view)) is None:
            await self.first_read(view)
        return found

    def _refuse_broken(self, wanted: ViewDef) -> None:
        for name, why in self._broken.items():
            view = self._views.get(name)
            if view is not None and (view.plan, view.key) == (wanted.plan, wanted.key):
                raise SqlError(why.code, why.state, f"View '{view.name}' could not be brought back after a restart "
                                                    f"({why.message}): drop or replace it")

    def _made(self, same: tuple[Mir, tuple[int, ...], int], wanted: ViewDef, task: asyncio.Task[ViewDef]) -> None:
        self._pending.pop(same, None)
        if not task.cancelled() and task.exception() is not None:  # reads the exception: the callers may have left
            self.policy.no_view(wanted, self.version)

    async def _add_adhoc(self, wanted: ViewDef) -> ViewDef:
        async with self._lock:
            if self._is_costly(wanted):
                raise adhoc_too_long(self.hold_ms)
            found = await self._stats()
            rows = sum(found["tables"].get(name, 0) for name in tables_of(wanted.plan))
            kept = shared_top(wanted)
            if rows > min(limits.ADHOC_COPY_ROWS, limits.ADHOC_FULL_ROWS):
                await self.rehearsed(wanted)
            self._adhoc_made += 1
            view = self._numbered(replace(kept, name=f"adhoc_{self._adhoc_made}", adhoc=True))
            reply = await self._migrate_adhoc(wanted, published(view), self._crowding(found))
            self._remember(view, set())
            self._above = {v.name: self._above.get(v.name, 0) for v in self._adhoc.values()} | {view.name: rows}
            self._planned(reply)
            return view

    async def _with_room(self, steps: tuple[packets.MigrationStep, ...], recipe: tuple[str, ...], durable: bool,
                         evicted: int = 0, limit_ms: int = 0, crowding: Sequence[str] = ()) -> packets.Migrated:
        """Add a view, or none, and drop at least `evicted` ad-hoc views.

        Those in `crowding` are dropped first, then the least recently used.  If memory, mappings or descriptors are
        lacking, more are dropped, until none is left.
        """
        while True:
            gone = [*crowding, *(n for n in self._adhoc if n not in crowding)][: max(len(crowding), evicted)]
            drops = tuple(packets.DropView(self._adhoc[n].name) for n in gone)
            try:
                reply = await self._migrate((*drops, *steps), recipe, durable, limit_ms)
            except SqlError as e:
                if e.code not in (OUT_OF_RESOURCES, DISK_FULL) or len(gone) == len(self._adhoc):
                    raise
                evicted = max(len(self._adhoc) // 4, 2 * evicted, 1)
                continue
            for n in gone:
                self._forget(n)
            return reply

    async def _migrate_adhoc(self, wanted: ViewDef, add: packets.AddView, crowding: Sequence[str]) -> packets.Migrated:
        """Make an ad-hoc view.  Error 1235 if its worker takes too long; it is not tried again for a while."""
        try:
            return await self._with_room((add,), self.recipe(), False, len(self._adhoc) + 1 - self._adhoc_views,
                                         self.hold_ms, crowding)
        except SqlError as e:
            if e.code != TOO_LONG:
                raise
            self._cost_too_much(wanted)
            raise adhoc_too_long(self.hold_ms) from None

    def patience_s(self, view: ViewDef) -> float | None:
        """How long to wait for an ad-hoc view that is being filled before Spark is asked, too.

        Spark takes some seconds, and processors that the view needs.  None: never ask Spark, because waiting for few
        rows is always shorter.
        """
        return self.patience_of(self._above.get(view.name, 0))

    def patience_of(self, rows: int) -> float | None:
        """`patience_s` of a view over so many table rows."""
        if rows <= limits.SPARK_ROWS:
            return None
        return self.hold_ms / 1000 + min(rows / limits.FILL_ROWS_S, limits.FILL_PATIENCE_S)

    def _is_costly(self, wanted: ViewDef) -> bool:
        version, until = self._costly.get((wanted.plan, wanted.key), (-1, 0.0))
        return version == self.version and self._clock() < until

    def _cost_too_much(self, wanted: ViewDef) -> None:
        """Remember for a while that a view for the SELECT took too long; the machine may be less busy later."""
        self._costly[wanted.plan, wanted.key] = self.version, self._clock() + limits.FORGET_COSTLY_S
        while len(self._costly) > limits.ADHOC_REFUSED:
            self._costly.popitem(last=False)

    async def _stats(self) -> dict[str, Any]:
        reply: packets.Done = await self._link.ask(packets.Ask(0, "stats"), retry=True)
        stats: dict[str, Any] = reply.value
        return stats

    # ------------------------------------------------------------ their memory
    async def make_room(self, stats: dict[str, Any]) -> None:
        """Drop the ad-hoc views that exceed their common memory by the worker's `stats`, unless a change is running."""
        if self._lock.locked():
            return
        async with self._lock:
            if gone := self._crowding(stats):
                await self._with_room((), self.recipe(), False, crowding=gone)

    def _crowding(self, stats: dict[str, Any]) -> list[str]:
        """The ad-hoc views to drop, least recently used first, so that the others fit
        (`memory_limit.excess_of_adhoc`)."""
        excess, gone = stats["adhoc_excess"], []
        for name, view in self._adhoc.items():
            if excess > 0 and view.name in stats["adhoc_views"] and self._is_whole(view):
                gone.append(name)
                excess -= stats["adhoc_views"][view.name]
        return gone

    # ------------------------------------------------------------ sending changes
    async def _migrate(self, steps: tuple[packets.MigrationStep, ...], recipe: tuple[str, ...], durable: bool = True,
                       limit_ms: int = 0) -> packets.Migrated:
        told = note() if durable else None
        reply: packets.Migrated = await self._change(packets.Migrate(steps, recipe, durable, limit_ms=limit_ms,
                                                                     note=told))
        if reply.error is not None:
            raise reply.error
        return reply

    async def _change(self, body: packets.Migrate | packets.Write) -> Any:
        """Send a change and return the reply; if the caller is cancelled, the worker gives the change up."""
        return await self._answered(self._link.submit(body))

    async def _answered(self, sent: asyncio.Future[Any]) -> Any:
        self._sent = asyncio.current_task(), sent
        try:
            return await sent
        finally:
            self._sent = None

    def _planned(self, reply: packets.Migrated) -> None:
        """Keep the explanations, and start to build first states, or to compute them by Spark, in the background."""
        self._explain.update((fold(name), text) for name, text in reply.explain)
        for name in dict.fromkeys([*reply.filling, *(name for name, _, _ in reply.bootstrap)]):
            view = self._views.get(fold(name)) or self._adhoc[fold(name)]
            self.first_states.begin(view, [(node, plan) for v, node, plan in reply.bootstrap if v == name])

    def _numbered(self, view: ViewDef) -> ViewDef:
        """The view with a new definition number."""
        self._definitions += 1
        return replace(view, definition=self._definitions)

    # ------------------------------------------------------------ one change at a time
    async def settled(self, attempt: int = 0) -> None:
        """Wait until no change is running.

        attempt: for a read that is bound again because its view was dropped or replaced.  After the first attempt, this
        also waits until all workers are up.
        """
        async with self._lock:
            pass
        if attempt:
            await self._link.up()

    async def _given_up_whole(self, change: asyncio.Task[T]) -> T:
        """The change's result.  If the caller is cancelled, a change that is not complete is undone.

        So the worker's program and this catalog never differ.
        """
        try:
            return await asyncio.shield(change)
        except asyncio.CancelledError:
            self._give_up(change)
            sent = self._is_sent(change)
            while self._sent is not None and self._is_sent(change):
                await asyncio.wait((self._sent[1],))  # the change, which waited first, has continued by then
            if sent and change.done():
                return await change
            if sent:  # the worker has made it, and there is more to wait for
                change.cancel()
            await asyncio.wait((change,), timeout=limits.GIVING_UP_S)
            raise

    def _is_sent(self, change: asyncio.Task[Any]) -> bool:
        return self._sent is not None and self._sent[0] is change

    def _give_up(self, change: asyncio.Task[Any]) -> None:
        if self._sent is not None and self._sent[0] is change:
            self._link.cancel(self._sent[1])
        else:
            change.cancel()


def _holds_all(nodes: Sequence[NodePlan], top: bool) -> bool:
    """True if the reader is full, or with several workers the exchange that it reads from.

    top: these keep only the first rows; then True if a node above them is full and must be filled.
    """
    if top:
        return any(n.filled and not n.does.startswith(("top ", "exchange ", "reader ")) for n in nodes)
    *_, reader = nodes
    return reader.state == "full" or (len(nodes) > 1 and nodes[-2].state == "full"
                                      and nodes[-2].does.startswith("exchange "))
