"""Executes a write at the workers that it concerns (design/decisions.md, 7). Call `RoutedWrites.begin`.

    one worker     one packet
    several        a group (`two_phase_commit.py`), with others that wait (`group_commit.py`)
    rows may move between workers, or have values that are UNIQUE among all workers:
                   planned first, then one of the above:

        places at all workers that have rows → FindConflicts, PredictEffect, CheckUnique → each worker's part

A UNIQUE index may lack the columns that determine the worker of a row (`TableDef.spread_unique`). Each worker
checks such an index among its own rows. A statement that adds values to it reserves places at all workers and
queries them.

Keeps true: a plan is still valid when it is executed, because nothing passes its places in the workers' queues.
Places are reserved at all workers at once, so no two statements wait for each other. If the plan concerns a
worker without a place, all places are released and reserved again with that worker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

from noria.core.errors import SqlError, interrupted
from noria.core.limits import HEARTBEAT_MS, LOCK_WAIT_S, POISON_DEATHS, SENDER_WAITS
from noria.core.statements import Move, Statement, StatementEffect, WriteResult
from noria.dataflow.messages.packets import Done, Packet, Recipients, Write, Wrote
from noria.runtime.link.change_queue import Change, WorkerLost
from noria.runtime.routing.write_routing import RoutedWrite
from noria.runtime.transactions.group_commit import GroupCommits, GroupOutcome, too_many_deaths
from noria.runtime.transactions.inserts import Inserts
from noria.runtime.transactions.plans import plan_statement
from noria.runtime.transactions.read_your_writes import ReadYourWrites
from noria.runtime.transactions.two_phase_commit import Outcome, PlanningLink, TwoPhaseCommits

Send = Callable[[int, Change], asyncio.Future[Any]]  # a change to a worker


class PlannedOutcome(NamedTuple):
    """The outcome of a planned statement, and the workers that executed a part."""

    result: WriteResult
    workers: tuple[int, ...]


class RoutedWrites:
    """The writes under way at several workers."""

    def __init__(self, links: Sequence[PlanningLink], groups: TwoPhaseCommits, read_your_writes: ReadYourWrites):
        self._links, self._groups, self._read_your_writes = links, groups, read_your_writes
        self._inserts, self._batches = Inserts(links, groups), GroupCommits(groups, len(links))
        self._together: dict[asyncio.Task[Any], asyncio.Future[Any]] = {}  # by statement: the future of its batch
        self._places: dict[asyncio.Task[PlannedOutcome], tuple[str, Iterable[int]]] = {}
        self._group_of: dict[asyncio.Task[Any], asyncio.Task[Outcome]] = {}
        self._planning: dict[asyncio.Task[PlannedOutcome], asyncio.Task[StatementEffect]] = {}
        self._apart: set[asyncio.Task[Any]] = set()  # statements that have no place, since a worker is away
        self._cancelled: WeakSet[asyncio.Task[Any]] = WeakSet()

    def begin(self, routed: RoutedWrite, idempotency_key: str = "", wait_s: float = LOCK_WAIT_S
              ) -> tuple[asyncio.Future[Any], Callable[[], Wrote]]:
        """Begin a statement. Returns its future, and a function that returns its result when that is done."""
        parts = routed.parts
        if routed.moves or routed.unique:
            together = Inserts.accepts(routed) and not idempotency_key
            moving = self._begin_insert(routed) if together else self._begin_moving(routed, idempotency_key)
            return moving, lambda: self._moved(routed, moving)
        if len(parts) == 1:
            ((worker, part),) = parts.items()
            one = self._links[worker].submit(Write((part,), idempotency_key=idempotency_key, wait_s=wait_s))
            return one, lambda: self._wrote(routed, one.result().results, {worker: one.result().recipients})
        if GroupCommits.accepts(routed) and not idempotency_key:
            batched = self._begin_in_batch(routed)
            return batched, lambda: self._wrote(routed, *self._result_unless_cancelled(batched))
        sent: dict[int, Recipients] = {}
        group = asyncio.ensure_future(self._run_group({w: (part,) for w, part in parts.items()}, sent, idempotency_key))
        group.add_done_callback(self._group_ended)
        return group, lambda: self._wrote(routed, self._result_unless_cancelled(group), sent)

    def _begin_in_batch(self, routed: RoutedWrite) -> asyncio.Task[GroupOutcome]:
        async def did() -> GroupOutcome:
            return await done

        done = self._batches.add(routed.parts)
        task = asyncio.ensure_future(did())
        self._together[task] = done
        task.add_done_callback(self._together.pop)
        return task

    def begin_together(self, routed: Sequence[RoutedWrite], idempotency_key: str
                       ) -> tuple[asyncio.Future[Any], Callable[[], Wrote]]:
        """Begin statements that are done all or not at all, in this order at each worker. None may move rows or
        add values that are UNIQUE among all workers."""
        assert not any(p.moves or p.unique for p in routed), "these are planned first, one by one"
        parts: dict[int, tuple[Statement, ...]] = {}
        for worker, part in ((w, part) for p in routed for w, part in p.parts.items()):
            parts[worker] = (*parts.get(worker, ()), part)
        if len(parts) == 1:
            ((worker, own),) = parts.items()
            one = self._links[worker].submit(Write(own, idempotency_key=idempotency_key))
            return one, lambda: self._together_wrote(one.result().results, {worker: one.result().recipients})
        sent: dict[int, Recipients] = {}
        group = asyncio.ensure_future(self._run_group(parts, sent, idempotency_key))
        group.add_done_callback(self._group_ended)
        return group, lambda: self._together_wrote(self._result_unless_cancelled(group), sent)

    def _together_wrote(self, results: Sequence[WriteResult], sent: Mapping[int, Recipients]) -> Wrote:
        wrong = next((r for r in results if r.error is not None), None)
        result = wrong or WriteResult(sum(r.affected for r in results))
        return Wrote(0, (result,), session_writes=self._read_your_writes.wrote(sent))

    async def _run_group(self, parts: Mapping[int, tuple[Statement, ...]], sent: dict[int, Recipients],
                         idempotency_key: str) -> list[WriteResult]:
        """Run a group when all its workers are up; again if one is lost."""
        task, deaths = asyncio.current_task(), 0
        assert task is not None
        while True:
            await self._wait_for(parts, task)
            sent.clear()
            group = self._groups.begin(parts, sent=sent, idempotency_key=idempotency_key)
            self._group_of[task] = group
            try:
                return (await group).all()
            except WorkerLost as e:
                deaths += e.deaths
                if deaths >= POISON_DEATHS:
                    raise too_many_deaths(deaths) from None

    async def _wait_for(self, workers: Iterable[int], task: asyncio.Task[Any]) -> None:
        """Wait until all of these workers serve.  Until then the statement has no place."""
        if not self._groups.all_up(workers):
            self._apart.add(task)
            await self._groups.wait_until_up(workers)
            self._apart.discard(task)

    def _group_ended(self, task: asyncio.Task[Any]) -> None:
        self._group_of.pop(task, None)
        self._apart.discard(task)

    def _result_unless_cancelled(self, task: asyncio.Task[Any]) -> Any:
        if task.cancelled() and task in self._cancelled:
            raise interrupted()
        return task.result()

    def lost(self, worker: int) -> None:
        """Handle the loss of a worker: statements that need it release their places, so that nothing waits behind
        them."""
        self._groups.lost(worker)
        self._inserts.lost()
        for task, (_, places) in self._places.items():
            if worker in places and task in self._planning:
                self._planning[task].cancel()

    def _wrote(self, routed: RoutedWrite, results: Sequence[WriteResult], sent: Mapping[int, Recipients]) -> Wrote:
        return Wrote(0, (routed.result(results),), session_writes=self._read_your_writes.wrote(sent))

    def _moved(self, routed: RoutedWrite, task: asyncio.Task[PlannedOutcome]) -> Wrote:
        moved: PlannedOutcome = self._result_unless_cancelled(task)
        return self._wrote(routed, [moved.result], dict.fromkeys(moved.workers))

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """Cancel a statement, unless it is decided."""
        waits = self._together.get(task)
        if waits is not None and (self._batches.give_up(waits) or self._inserts.give_up(waits)):
            self._cancelled.add(task)
        elif task in self._places or task in self._apart:
            self._cancelled.add(task)
            task.cancel()
        else:
            self._groups.give_up(self._group_of.get(task, task))

    @asynccontextmanager
    async def places(self, reserve: bool, paused: Callable[[], AbstractContextManager[None]] = nullcontext
                     ) -> AsyncIterator[Send]:
        """Yield a function that sends changes to workers; if `reserve`, to places reserved at one moment in all
        queues. `paused`: keeps others from reserving places meanwhile."""
        if not reserve:
            yield lambda w, body: self._links[w].submit(body)
            return
        while True:
            await self._groups.wait_until_up(range(len(self._links)))
            with paused():
                name, places = self._reserve(range(len(self._links)))
                try:
                    if await self._reached(places):
                        yield partial(self._put, name)
                        return
                finally:
                    self._release(name, places)

    def _put(self, name: str, worker: int, body: Change) -> asyncio.Future[Any]:
        return self._links[worker].fill_place(name, body)

    async def _reached(self, places: Mapping[int, asyncio.Future[Any]]) -> bool:
        """Wait until everything before the places is answered. False if a worker was lost first: nothing may wait
        for it behind a place."""
        while not all(place.done() for place in places.values()):
            if not self._groups.all_up(places):
                return False
            await asyncio.wait(places.values(), timeout=HEARTBEAT_MS / 1000)
        for place in places.values():
            place.result()
        return True

    # ------------------------------------------------------------ batched INSERTs
    def _begin_insert(self, routed: RoutedWrite) -> asyncio.Task[PlannedOutcome]:
        inserting = self._inserts.add(routed)
        task = asyncio.ensure_future(self._insert(routed, inserting))
        self._together[task] = inserting
        task.add_done_callback(self._ended)
        return task

    async def _insert(self, routed: RoutedWrite, inserting: asyncio.Future[WriteResult | None]) -> PlannedOutcome:
        result = await inserting
        if result is not None:
            return PlannedOutcome(result, tuple(routed.parts))
        return await self._move(routed)

    # ------------------------------------------------------------ rows that move between workers
    def _begin_moving(self, routed: RoutedWrite, idempotency_key: str) -> asyncio.Task[PlannedOutcome]:
        task = asyncio.ensure_future(self._move(routed, idempotency_key))
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[PlannedOutcome]) -> None:
        self._together.pop(task, None)
        self._group_of.pop(task, None)
        self._apart.discard(task)
        self._release(*self._places.pop(task, ("", ())))

    def _reserve(self, workers: Iterable[int]) -> tuple[str, dict[int, asyncio.Future[Any]]]:
        name = self._groups.name()
        return name, {w: self._links[w].reserve_place(name) for w in workers}

    def _release(self, name: str, workers: Iterable[int]) -> None:
        for w in workers:
            self._links[w].release_place(name)

    async def _move(self, routed: RoutedWrite, idempotency_key: str = "") -> PlannedOutcome:
        """Plan a statement and execute it; both again if the plan concerns more workers or one is lost."""
        task, deaths = asyncio.current_task(), 0
        assert task is not None
        concerned = frozenset(range(len(self._links)) if routed.unique else routed.parts)
        while True:
            await self._wait_for(concerned, task)
            self._places[task] = name, places = self._reserve(concerned)
            try:
                plan = await self._planned(task, routed, places)
                if plan.parts.keys() <= places.keys():
                    del self._places[task]
                    self._release(name, places.keys() - plan.parts.keys())
                    results = await self._do(task, name, plan.parts, idempotency_key)
                    wrong = next((r for r in results if r.error is not None), None)
                    return PlannedOutcome(wrong or plan.result, tuple(plan.parts))
                concerned |= plan.parts.keys()
            except SqlError as e:
                return PlannedOutcome(WriteResult(error=e), ())
            except WorkerLost as e:
                deaths += e.deaths
                if deaths >= POISON_DEATHS:
                    raise too_many_deaths(deaths) from None
            self._places.pop(task, None)
            self._release(name, places)

    async def _planned(self, task: asyncio.Task[PlannedOutcome], routed: RoutedWrite,
                       places: Mapping[int, asyncio.Future[Any]]
                       ) -> StatementEffect:
        """The plan, made when everything before the places is answered."""
        async def planned() -> StatementEffect:
            await asyncio.gather(*places.values())
            return await plan_statement(routed, len(self._links), self._all)

        planning = self._planning[task] = asyncio.ensure_future(planned())
        try:
            await asyncio.wait((planning,))
        finally:
            del self._planning[task]
            planning.cancel()
        if planning.cancelled() or not self._groups.all_up(places):
            raise WorkerLost
        return planning.result()

    async def _do(self, task: asyncio.Task[PlannedOutcome], name: str, parts: Mapping[int, tuple[Move]],
                  idempotency_key: str) -> Sequence[WriteResult]:
        if not parts:
            return ()
        if len(parts) == 1:
            ((worker, (part,)),) = parts.items()
            write = Write((part,), idempotency_key=idempotency_key, wait_s=SENDER_WAITS)
            wrote: Wrote = await self._links[worker].fill_place(name, write)
            return wrote.results
        self._group_of[task] = self._groups.begin(parts, name, idempotency_key=idempotency_key)
        return (await self._group_of[task]).all()

    async def _all(self, questions: Mapping[int, Packet]) -> list[Any]:
        """Send requests to several workers and return the answers; SqlError if one is an error."""
        replies: list[Done] = await asyncio.gather(*(self._links[w].ask(q, True) for w, q in questions.items()))
        for r in replies:
            if r.error is not None:
                raise r.error
        return [r.value for r in replies]
