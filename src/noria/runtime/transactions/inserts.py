"""Batches INSERTs into tables with UNIQUE keys whose values several workers have (`TableDef.spread_unique`).
Call `Inserts.add`.

    places at all workers → FindConflicts: which values does another worker have?
        one owner         → one Write at each owner
        several owners    → a group

Keeps true: INSERTs of one batch have no such value in common, and none that another worker has. So each worker
detects duplicates among its own rows. INSERTs that wait meanwhile form the next batch: the more clients write,
the less each write costs. Those with several owners form batches of their own. If one of these has an error,
its group is aborted, and it runs once more alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import GROUP_ROWS, GROUP_STATEMENTS, SENDER_WAITS
from noria.core.statements import Insert, WriteResult
from noria.dataflow.messages.packets import Done, FindConflicts, Write, Wrote
from noria.runtime.link.change_queue import WorkerLost
from noria.runtime.routing.write_routing import RoutedWrite
from noria.runtime.transactions.group_commit import parts_of
from noria.runtime.transactions.two_phase_commit import Outcome, PlanningLink, TwoPhaseCommits


@dataclass(eq=False)
class _PendingInsert:
    """A waiting INSERT. `parts`: by owner. `places`: its position among each owner's statements in the group
    under way.

    `done`: its result. None: nothing is done yet, and it must run alone, because it meets rows of other workers
    or had an error in a group.
    """

    routed: RoutedWrite
    parts: dict[int, Insert]
    done: asyncio.Future[WriteResult | None]
    places: dict[int, int] = field(default_factory=dict)

    def finish(self, result: WriteResult | None) -> None:
        if not self.done.done():
            self.done.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Inserts:
    """The INSERTs that wait for a batch, and the batch under way."""

    def __init__(self, links: Sequence[PlanningLink], groups: TwoPhaseCommits):
        self._links, self._groups = links, groups
        self._waiting: list[_PendingInsert] = []
        self._running: asyncio.Task[None] | None = None
        self._planning: asyncio.Task[list[_PendingInsert]] | None = None

    @staticmethod
    def accepts(routed: RoutedWrite) -> bool:
        """Whether the owners alone can execute the INSERT once no other worker has its values."""
        known = len(routed.parts) == 1 or routed.distinct
        return routed.split_insert is not None and known and not (routed.moves or routed.assigns)

    def add(self, routed: RoutedWrite) -> asyncio.Future[WriteResult | None]:
        """Queue an INSERT. If the future is cancelled before it begins, it is not done."""
        parts = {w: part for w, part in routed.parts.items() if isinstance(part, Insert)}
        one = _PendingInsert(routed, parts, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        return one.done

    def give_up(self, done: asyncio.Future[WriteResult | None]) -> bool:
        """Drop an INSERT that has not begun. Returns whether it did."""
        waiting = [one for one in self._waiting if one.done is done]
        for one in waiting:
            self._waiting.remove(one)
            done.cancel()
        return bool(waiting)

    def lost(self) -> None:
        """After the loss of a worker: the batch under way begins again when the worker is back."""
        if self._planning is not None:
            self._planning.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                if not self._groups.all_up(range(len(self._links))):
                    await self._groups.wait_until_up(range(len(self._links)))
                    continue  # some may have been cancelled
                together = self._together()
                try:
                    await self._insert(together)
                except WorkerLost:
                    self._waiting[:0] = [one for one in together if not one.done.done()]
                except Exception as e:
                    for one in together:
                        one.fail(e)
        finally:
            self._running = None
            for one in self._waiting:  # the front end is stopping
                one.done.cancel()

    def _together(self) -> list[_PendingInsert]:
        """The next INSERTs without common values: all with one owner each, or all with several."""
        chosen: list[_PendingInsert] = []
        values: set[tuple[int, int]] = set()
        rows, several = 0, len(self._waiting[0].parts) > 1
        for one in self._waiting:
            if (len(one.parts) > 1) != several:
                continue
            rows += sum(len(part.rows) for part in one.parts.values())
            if chosen and (rows > GROUP_ROWS or len(chosen) == GROUP_STATEMENTS):
                break
            if values.isdisjoint(one.routed.values):
                values |= one.routed.values
                chosen.append(one)
        left = set(chosen)
        self._waiting = [one for one in self._waiting if one not in left]
        return chosen

    async def _insert(self, together: Sequence[_PendingInsert]) -> None:
        name = self._groups.name()
        places = [link.reserve_place(name) for link in self._links]
        group: asyncio.Task[Outcome] | None = None
        writes: dict[asyncio.Future[Any], list[_PendingInsert]] = {}
        try:
            free = await self._planned(places, together)
            if free and len(free[0].parts) > 1:
                group = self._groups.begin(parts_of(free), name)
            else:
                writes = self._begin_each(name, free)
        finally:
            for link in self._links:
                link.release_place(name)
        if group is not None:
            await self._decided(group, free)
        await self._wrote(writes)

    def _begin_each(self, name: str, free: Sequence[_PendingInsert]) -> dict[asyncio.Future[Any], list[_PendingInsert]]:
        """Send the INSERTs that have one owner each."""
        writes = {}
        for w, link in enumerate(self._links):
            mine = [one for one in free if w in one.parts]
            if mine:
                writes[link.fill_place(name, Write(tuple(one.parts[w] for one in mine), wait_s=SENDER_WAITS))] = mine
        return writes

    async def _wrote(self, writes: Mapping[asyncio.Future[Any], Sequence[_PendingInsert]]) -> None:
        await asyncio.gather(*writes, return_exceptions=True)
        for wrote, mine in writes.items():
            for n, one in enumerate(mine):
                if (error := wrote.exception()) is not None:
                    one.fail(error)
                else:
                    reply: Wrote = wrote.result()
                    one.finish(reply.results[n])

    async def _decided(self, group: asyncio.Task[Outcome], free: Sequence[_PendingInsert]) -> None:
        """Report the outcome of INSERTs that have several owners each."""
        try:
            outcome = await group
        except WorkerLost as e:
            if not e.deaths:
                raise
            outcome = Outcome(False, {})  # one of them may have ended a worker
        if outcome.done:
            for one in free:
                one.finish(one.routed.result(outcome.of(one.places)))
            return
        wrong = {one for one in free if any(r.error is not None for r in outcome.of(one.places))} or set(free)
        for one in wrong:
            one.finish(None)
        self._waiting[:0] = [one for one in free if one not in wrong]

    async def _planned(self, places: Sequence[asyncio.Future[Any]],
                       together: Sequence[_PendingInsert]) -> list[_PendingInsert]:
        """The INSERTs that may run, determined when everything before the places is answered."""
        async def planned() -> list[_PendingInsert]:
            await asyncio.gather(*places)
            return await self._free(together)

        planning = self._planning = asyncio.ensure_future(planned())
        try:
            await asyncio.wait((planning,))
        finally:
            self._planning = None
            planning.cancel()
        if planning.cancelled() or not self._groups.all_up(range(len(self._links))):
            raise WorkerLost
        return planning.result()

    async def _free(self, together: Sequence[_PendingInsert]) -> list[_PendingInsert]:
        """The INSERTs whose values no other worker has. The others are answered, or marked to run alone."""
        each = [(link, [(one, part) for one in together for owner, part in one.parts.items() if owner != w])
                for w, link in enumerate(self._links)]
        concerned = [(link, some) for link, some in each if some]
        replies: list[Done] = await asyncio.gather(*(
            link.ask(FindConflicts(0, tuple((part, one.routed.spread) for one, part in some)), True) for link,
            some in concerned))
        for reply, (_, some) in zip(replies, concerned, strict=True):
            if reply.error is not None:
                raise reply.error
            for conflict, (one, _) in zip(reply.value, some, strict=True):
                if conflict:
                    one.finish(WriteResult(error=conflict) if isinstance(conflict, SqlError) else None)
        return [one for one in together if not one.done.done()]
