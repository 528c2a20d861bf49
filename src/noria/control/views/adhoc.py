"""Ad-hoc views, made for SELECTs that no named view answers.

Keeps true:

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
from typing import Any

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold
from noria.control.catalog.policy import Verdict, ViewPolicy
from noria.control.catalog.worker_view import add_view_step, columns_needed
from noria.control.changes.sender import ChangeSender
from noria.control.views.first_states import FirstStates
from noria.control.views.readers import ViewReaders
from noria.core import limits
from noria.core.errors import SqlError, adhoc_too_large, adhoc_too_long
from noria.core.errors.codes import QUERY_TIMEOUT
from noria.dataflow.messages import packets
from noria.dataflow.messages.rehearsal import NodePlan, Rehearsal, ViewPlan
from noria.plan.mir import Mir, TopK, tables_of
from noria.plan.optimizer import is_copy, shared_top
from noria.plan.view import ViewDef

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pending:
    """An ad-hoc view in the making, and how many callers wait for it."""

    task: asyncio.Task[ViewDef]
    waiting: int = 0


class AdHocViews:
    """Decides which SELECTs are answered by a view, and makes ad-hoc views.

    hold_ms: how long the worker may take to make one; most: how many there may be.
    """

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, first_states: FirstStates, readers: ViewReaders,
                 most: int, hold_ms: int):
        self._catalog, self._sender, self._first_states, self._readers = catalog, sender, first_states, readers
        self.most, self.hold_ms = most, hold_ms
        self.clock = time.monotonic
        self.policy = ViewPolicy()
        self._pending: dict[tuple[Mir, tuple[int, ...], int], _Pending] = {}
        self._made_so_far = 0
        self._costly: OrderedDict[tuple[Mir, tuple[int, ...]], tuple[int, float]] = OrderedDict()
        """SELECTs whose view took the worker too long: under which version of the program, and how long that counts."""
        self._above: dict[str, int] = {}  # for each ad-hoc view, how many table rows it was made over

    def unwanted(self, view: ViewDef) -> None:
        """Drop an ad-hoc view whose first state nobody waits for."""
        log.info("ad-hoc view %s is given up: nobody waits for it any more", view.name)
        self._catalog.forget(fold(view.name))
        self._sender.unawaited((packets.DropView(view.name),))

    def wants_one_shot(self, wanted: ViewDef) -> bool:
        """True if a one-shot should answer this SELECT, not a view's reader; may start to make a view for it."""
        reader = self._catalog.match(wanted)
        if reader is not None and not self._first_states.is_unfilled(reader):
            return False
        if reader is not None:
            self._first_states.note_request(reader)
            if not reader.adhoc:
                return self.policy.expected(wanted, self._catalog.version) is not Verdict.VIEW
        self._refuse_broken(wanted)
        if reader is None and self._catalog.readerless(wanted) is not None:
            return False  # the first read of a named view
        verdict = self.policy.decide(wanted, self._catalog.version)
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
        begun = next((v for v in self._catalog.holding(wanted) if isinstance(v.plan, TopK)), None)
        if begun is not None:
            self._first_states.note_request(begun)  # it is being filled
            return
        verdict = self.policy.decide(wanted, self._catalog.version)
        if verdict is Verdict.BOTH and len(self._pending) < limits.VIEWS_BEGUN:
            self._begun(wanted).waiting += 1

    def expected(self, wanted: ViewDef) -> Verdict:
        """How a SELECT would be answered if no view answers it."""
        return self.policy.expected(wanted, self._catalog.version)

    async def rehearsed(self, wanted: ViewDef) -> ViewPlan:
        """What a view for the SELECT would keep; none is made.  Raises SqlError 1235 if it must not be made."""
        if self.is_costly(wanted):
            raise adhoc_too_long(self.hold_ms)
        add = add_view_step(replace(shared_top(wanted), name=f"adhoc_{self._made_so_far + 1}", adhoc=True))
        found: Rehearsal = await self._sender.request(packets.Rehearse(0, (add,)))
        (view,) = found.views
        rows = sum(found.rows.get(name, 0) for name in tables_of(wanted.plan))
        if rows <= min(limits.ADHOC_COPY_ROWS, limits.ADHOC_FULL_ROWS):
            return view
        if _holds_all(view.nodes, isinstance(add.view.plan, TopK)):
            most = limits.ADHOC_SHARE * (await self._sender.stats())["memory_limit"]
            taken = sum(n.nbytes for n in view.nodes if n.new and n.filled)
            if rows > limits.ADHOC_FULL_ROWS or is_copy(add.view.plan) or 0 < most < taken:
                raise adhoc_too_large(rows)
        return view

    def _begun(self, wanted: ViewDef) -> _Pending:
        """The view for the SELECT that is in the making; starts to make it if there is none."""
        same = (wanted.plan, wanted.key, columns_needed(wanted))
        pending = self._pending.get(same)
        if pending is None:
            pending = self._pending[same] = _Pending(asyncio.ensure_future(self._add_adhoc(wanted)))
            pending.task.add_done_callback(partial(self._made, same, wanted))
        return pending

    async def reader(self, wanted: ViewDef) -> ViewDef:
        """A view that answers this SELECT, made if there is none.  Raises SqlError 1235 if it must not be made."""
        while (found := self._catalog.match(wanted)) is None:
            self._refuse_broken(wanted)
            if (named := self._catalog.readerless(wanted)) is not None:
                await self._readers.first_read(named)
                continue
            pending = self._begun(wanted)
            pending.waiting += 1
            try:
                await asyncio.shield(pending.task)
            finally:
                pending.waiting -= 1
                if not pending.waiting and not pending.task.done():  # nobody waits any more
                    self._sender.cancel(pending.task)
        return found

    async def reader_of(self, view: ViewDef) -> ViewDef:
        """The view whose reader has the rows of this named view: itself, or another one."""
        while (found := self._catalog.reader_now(view)) is None:
            await self._readers.first_read(view)
        return found

    def _refuse_broken(self, wanted: ViewDef) -> None:
        for name, why in self._catalog.broken.items():
            view = self._catalog.view_defs.get(name)
            if view is not None and (view.plan, view.key) == (wanted.plan, wanted.key):
                raise SqlError(why.code, why.state, f"View '{view.name}' could not be brought back after a restart "
                                                    f"({why.message}): drop or replace it")

    def _made(self, same: tuple[Mir, tuple[int, ...], int], wanted: ViewDef, task: asyncio.Task[ViewDef]) -> None:
        self._pending.pop(same, None)
        if not task.cancelled() and task.exception() is not None:  # reads the exception: the callers may have left
            self.policy.no_view(wanted, self._catalog.version)

    async def _add_adhoc(self, wanted: ViewDef) -> ViewDef:
        async with self._sender.lock:
            if self.is_costly(wanted):
                raise adhoc_too_long(self.hold_ms)
            found = await self._sender.stats()
            rows = sum(found["tables"].get(name, 0) for name in tables_of(wanted.plan))
            kept = shared_top(wanted)
            if rows > min(limits.ADHOC_COPY_ROWS, limits.ADHOC_FULL_ROWS):
                await self.rehearsed(wanted)
            self._made_so_far += 1
            view = self._catalog.numbered(replace(kept, name=f"adhoc_{self._made_so_far}", adhoc=True))
            reply = await self._migrate_adhoc(wanted, add_view_step(view), self._crowding(found))
            self._catalog.remember(view, set())
            self._above = {v.name: self._above.get(v.name, 0) for v in self._catalog.adhoc()} | {view.name: rows}
            self._readers.start_first_states(reply)
            return view

    async def _migrate_adhoc(self, wanted: ViewDef, add: packets.AddView, crowding: Sequence[str]) -> packets.Migrated:
        """Make an ad-hoc view.  Error 1235 if its worker takes too long; it is not tried again for a while."""
        too_many = len(self._catalog.adhoc_defs) + 1 - self.most
        try:
            return await self._sender.with_room((add,), self._catalog.recipe(), False, too_many, self.hold_ms, crowding)
        except SqlError as e:
            if e.code != QUERY_TIMEOUT.number:
                raise
            self.cost_too_much(wanted)
            raise adhoc_too_long(self.hold_ms) from None

    def patience_s(self, view: ViewDef) -> float | None:
        """How long to wait for an ad-hoc view that is being filled before Spark answers, too.

        Spark takes some seconds, and processors that the view needs.  None: never use Spark, because waiting for few
        rows is always shorter.
        """
        return self.patience_of(self._above.get(view.name, 0))

    def patience_of(self, rows: int) -> float | None:
        """`patience_s` of a view over so many table rows."""
        if rows <= limits.SPARK_ROWS:
            return None
        return self.hold_ms / 1000 + min(rows / limits.FILL_ROWS_S, limits.FILL_PATIENCE_S)

    def is_costly(self, wanted: ViewDef) -> bool:
        """True if a view for the SELECT took too long a short while ago."""
        version, until = self._costly.get((wanted.plan, wanted.key), (-1, 0.0))
        return version == self._catalog.version and self.clock() < until

    def cost_too_much(self, wanted: ViewDef) -> None:
        """Remember for a while that a view for the SELECT took too long; the machine may be less busy later."""
        self._costly[wanted.plan, wanted.key] = self._catalog.version, self.clock() + limits.FORGET_COSTLY_S
        while len(self._costly) > limits.ADHOC_REFUSED:
            self._costly.popitem(last=False)

    # ------------------------------------------------------------ their memory
    async def make_room(self, stats: dict[str, Any]) -> None:
        """Drop the ad-hoc views that exceed their common memory by the worker's `stats`, unless a change is running."""
        if self._sender.lock.locked():
            return
        async with self._sender.lock:
            if gone := self._crowding(stats):
                await self._sender.with_room((), self._catalog.recipe(), False, crowding=gone)

    def _crowding(self, stats: dict[str, Any]) -> list[str]:
        """The ad-hoc views to drop, least recently used first, so that the others fit
        (`memory_limit.excess_of_adhoc`)."""
        excess, gone = stats["adhoc_excess"], []
        for name, view in self._catalog.adhoc_defs.items():
            if excess > 0 and view.name in stats["adhoc_views"] and self._catalog.is_filled(view):
                gone.append(name)
                excess -= stats["adhoc_views"][view.name]
        return gone


def _holds_all(nodes: Sequence[NodePlan], top: bool) -> bool:
    """True if the reader is full, or with several workers the exchange that it reads from.

    top: these keep only the first rows; then True if a node above them is full and must be filled.
    """
    if top:
        return any(n.filled and not n.does.startswith(("top ", "exchange ", "reader ")) for n in nodes)
    *_, reader = nodes
    return reader.state == "full" or (len(nodes) > 1 and nodes[-2].state == "full"
                                      and nodes[-2].does.startswith("exchange "))
