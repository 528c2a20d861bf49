"""INSERTs into tables with UNIQUE keys of which several workers have values (`TableDef.spread_unique`): many in one go.

    places at all workers → Meet: whose values does another worker have? → one Write at each owner
                                                                         → a group, of those that have several owners

Keeps true: those that go together have no such value in common, and none that another worker has; so each worker finds
what is taken among its own rows.  Who waits meanwhile goes together next: the more clients write, the less each costs.
Those of several owners go among themselves: where one of them has an error nothing of their group is done, and it goes
once more by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import GROUP_ROWS, GROUP_STATEMENTS
from noria.core.statements import Insert, WriteResult
from noria.dataflow.messages.packets import Done, Meet, Write, Wrote
from noria.runtime.link.changes import Lost
from noria.runtime.routing.write_routing import Placed
from noria.runtime.transactions.group_commit import parts_of
from noria.runtime.transactions.two_phase_commit import Asked, Groups, Outcome


@dataclass(eq=False)
class _Waiting:
    """parts: by owner.  done: what it did; None: nothing yet, and it goes by itself, since it meets rows of other
    workers or had an error among others.  places: which of each owner's statements it is of the group under way."""

    placed: Placed
    parts: dict[int, Insert]
    done: asyncio.Future[WriteResult | None]
    places: dict[int, int] = field(default_factory=dict)

    def told(self, result: WriteResult | None) -> None:
        if not self.done.done():
            self.done.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Inserts:
    def __init__(self, links: Sequence[Asked], groups: Groups):
        self._links, self._groups = links, groups
        self._waiting: list[_Waiting] = []
        self._running: asyncio.Task[None] | None = None
        self._planning: asyncio.Task[list[_Waiting]] | None = None

    @staticmethod
    def takes(placed: Placed) -> bool:
        """Is it an INSERT whose own workers can tell what it does, once no other has its values?"""
        known = len(placed.parts) == 1 or placed.distinct
        return placed.whole is not None and known and not (placed.moves or placed.assigns)

    def add(self, placed: Placed) -> asyncio.Future[WriteResult | None]:
        """Cancelled, it is not done, if it has not begun."""
        parts = {w: part for w, part in placed.parts.items() if isinstance(part, Insert)}
        one = _Waiting(placed, parts, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        return one.done

    def give_up(self, done: asyncio.Future[WriteResult | None]) -> bool:
        """Take it back, if it has not begun."""
        found = [one for one in self._waiting if one.done is done]
        for one in found:
            self._waiting.remove(one)
            done.cancel()
        return bool(found)

    def lost(self) -> None:
        """A worker: those that are under way begin again when it is there."""
        if self._planning is not None:
            self._planning.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                if not self._groups.are_there(range(len(self._links))):
                    await self._groups.there(range(len(self._links)))
                    continue  # some may have been given up
                together = self._together()
                try:
                    await self._insert(together)
                except Lost:
                    self._waiting[:0] = [one for one in together if not one.done.done()]
                except Exception as e:
                    for one in together:
                        one.fail(e)
        finally:
            self._running = None
            for one in self._waiting:  # the front end is stopping
                one.done.cancel()

    def _together(self) -> list[_Waiting]:
        """The next ones that have no value in common: all of one owner each, or all of several."""
        chosen: list[_Waiting] = []
        values: set[tuple[int, int]] = set()
        rows, several = 0, len(self._waiting[0].parts) > 1
        for one in self._waiting:
            if (len(one.parts) > 1) != several:
                continue
            rows += sum(len(part.rows) for part in one.parts.values())
            if chosen and (rows > GROUP_ROWS or len(chosen) == GROUP_STATEMENTS):
                break
            if values.isdisjoint(one.placed.values):
                values |= one.placed.values
                chosen.append(one)
        left = set(chosen)
        self._waiting = [one for one in self._waiting if one not in left]
        return chosen

    async def _insert(self, together: Sequence[_Waiting]) -> None:
        name = self._groups.name()
        places = [link.hold(name) for link in self._links]
        group: asyncio.Task[Outcome] | None = None
        writes: dict[asyncio.Future[Any], list[_Waiting]] = {}
        try:
            free = await self._planned(places, together)
            if free and len(free[0].parts) > 1:
                group = self._groups.begin(parts_of(free), name)
            else:
                writes = self._begin_each(name, free)
        finally:
            for link in self._links:
                link.let_go(name)
        if group is not None:
            await self._decided(group, free)
        await self._wrote(writes)

    def _begin_each(self, name: str, free: Sequence[_Waiting]) -> dict[asyncio.Future[Any], list[_Waiting]]:
        """Of one owner each."""
        writes = {}
        for w, link in enumerate(self._links):
            mine = [one for one in free if w in one.parts]
            if mine:
                writes[link.put(name, Write(tuple(one.parts[w] for one in mine)))] = mine
        return writes

    async def _wrote(self, writes: Mapping[asyncio.Future[Any], Sequence[_Waiting]]) -> None:
        await asyncio.gather(*writes, return_exceptions=True)
        for wrote, mine in writes.items():
            for n, one in enumerate(mine):
                if (error := wrote.exception()) is not None:
                    one.fail(error)
                else:
                    reply: Wrote = wrote.result()
                    one.told(reply.results[n])

    async def _decided(self, group: asyncio.Task[Outcome], free: Sequence[_Waiting]) -> None:
        """Of several owners each."""
        try:
            outcome = await group
        except Lost as e:
            if not e.deaths:
                raise
            outcome = Outcome(False, {})  # one of them may have ended a worker
        if outcome.done:
            for one in free:
                one.told(one.placed.result(outcome.of(one.places)))
            return
        wrong = {one for one in free if any(r.error is not None for r in outcome.of(one.places))} or set(free)
        for one in wrong:
            one.told(None)
        self._waiting[:0] = [one for one in free if one not in wrong]

    async def _planned(self, places: Sequence[asyncio.Future[Any]], together: Sequence[_Waiting]) -> list[_Waiting]:
        """What is free, once all before it was answered."""
        async def planned() -> list[_Waiting]:
            await asyncio.gather(*places)
            return await self._free(together)

        planning = self._planning = asyncio.ensure_future(planned())
        try:
            await asyncio.wait((planning,))
        finally:
            self._planning = None
            planning.cancel()
        if planning.cancelled() or not self._groups.are_there(range(len(self._links))):
            raise Lost
        return planning.result()

    async def _free(self, together: Sequence[_Waiting]) -> list[_Waiting]:
        """Those that no other worker has a row of; the others are done with, one way or the other."""
        each = [(link, [(one, part) for one in together for owner, part in one.parts.items() if owner != w])
                for w, link in enumerate(self._links)]
        asked = [(link, some) for link, some in each if some]
        replies: list[Done] = await asyncio.gather(*(
            link.ask(Meet(0, tuple((part, one.placed.spread) for one, part in some)), True) for link, some in asked))
        for reply, (_, some) in zip(replies, asked, strict=True):
            if reply.error is not None:
                raise reply.error
            for found, (one, _) in zip(reply.value, some, strict=True):
                if found:
                    one.told(WriteResult(error=found) if isinstance(found, SqlError) else None)
        return [one for one in together if not one.done.done()]
