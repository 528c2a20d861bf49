"""`ClusterLink`: one `Link` over the links of several workers (design/decisions.md, 7).

    a write      to the worker that has its rows; if several, as a group (`write_router.py`)
    a read       to the worker that has its key (`scattered_reads.py`)
    a change of the program    at worker 0, whose catalog decides; then at all others (`program_changes.py`)
    a worker that starts       receives the program of the others (`starting.py`)
    questions    to all; their answers are combined (`routing/answers.py`)

`ClusterLink` builds these parts, and decides which one handles a request.

Keeps true: all workers that are up have the same tables and the same graph. A worker that is down delays only
requests that need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from noria.core.statements import Staged
from noria.dataflow.messages.packets import (
    CheckRowsFit,
    Hello,
    Ingest,
    Inspect,
    Migrate,
    Packet,
    Query,
    Read,
    SessionWrites,
    SetLimit,
    Snapshot,
    Write,
)
from noria.runtime.cluster.absent_workers import AbsentWorkers, state_of, why_of
from noria.runtime.cluster.checkpoints import ClusterCheckpoints
from noria.runtime.cluster.consistent_cut import ConsistentCut, Snapshots
from noria.runtime.cluster.exclusive import ExclusiveWrites, PastPauses
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.cluster.loads import BulkLoads
from noria.runtime.cluster.numbering import AutoIncrement
from noria.runtime.cluster.pending_changes import Background, PendingChanges
from noria.runtime.cluster.program_changes import ProgramChanges
from noria.runtime.cluster.program_state import LEADER, ProgramState
from noria.runtime.cluster.scattered_reads import ScatteredReads
from noria.runtime.cluster.starting import WorkerStarts
from noria.runtime.cluster.write_router import WriteRouter
from noria.runtime.link.change_queue import Change
from noria.runtime.link.commit_order import CommitOrder, Scope
from noria.runtime.link.link import LinkState, LinkStats, OnHello, WorkerLink
from noria.runtime.link.one_worker_link import Losses
from noria.runtime.link.pauses import Pauses, TableWrites
from noria.runtime.link.recent_changes import RecentChanges
from noria.runtime.link.result_memory import MemoryLease
from noria.runtime.link.written import WrittenTables
from noria.runtime.routing.answers import AT_LEADER, combined_replies
from noria.runtime.transactions.locked_statements import LockedStatements
from noria.runtime.transactions.read_your_writes import ReadYourWrites
from noria.runtime.transactions.two_phase_commit import TwoPhaseCommits
from noria.runtime.transactions.writes import RoutedWrites


class ClusterLink:
    """See `Link`. `links`: of the workers, by number. `on_hello`: receives worker 0's Hello when all workers
    start together."""

    def __init__(self, links: Sequence[SomeLink], epoch: int, *, on_hello: OnHello | None = None):
        self.links, self.workers, self.on_hello = links, len(links), on_hello
        self._counters, self.recent = LinkStats(), RecentChanges()
        self._program = program = ProgramState(self.workers)
        self.routes = program.routes
        self.commit_order = order = CommitOrder()
        self._groups = groups = TwoPhaseCommits(links, epoch, order)
        self._read_your_writes = read_your_writes = ReadYourWrites(links)
        self._writes = writes = RoutedWrites(links, groups, read_your_writes)
        self._absent = absent = AbsentWorkers(links)
        self._pending, self._background = pending, background = PendingChanges(), Background()
        self._pauses, writing, one_moment = Pauses(self._begin), TableWrites(), asyncio.Lock()
        self.written = written = WrittenTables()
        self._numbering = numbering = AutoIncrement(links, background.later, writing.__contains__)
        self._router = router = WriteRouter(links, program, pending, writing, writes, numbering, written, order)
        self._changes = ProgramChanges(links, program, absent, self._pauses, writing, writes, numbering)
        self._starts = WorkerStarts(links, program, groups, numbering, read_your_writes, background, self._welcome)
        self._reads = ScatteredReads(links, program)
        self._loads = BulkLoads(links, program, groups, read_your_writes, numbering, self._pauses, pending, one_moment)
        self._snapshots = Snapshots(links, program, groups, read_your_writes, one_moment)
        self.checkpoints = ClusterCheckpoints(links, epoch, program, groups, read_your_writes, one_moment)
        exclusive = ExclusiveWrites(links, program, read_your_writes, self._pauses, pending,
                                    PastPauses(self._begin, router.moved), self.submit)
        self.unwritten, self.copied = exclusive.unwritten, exclusive.copied
        self.routed, self._locked = router.route_for_transaction, LockedStatements(self, epoch)
        router.on_blocked = self._locked.begin
        for w, link in enumerate(links):
            link.on_hello = partial(self._starts.appeared, w)
            link.on_lost = partial(lambda worker, why: writes.lost(worker), w)

    # ------------------------------------------------------------ life
    @property
    def state(self) -> LinkState:
        """The state of the worker that is farthest from serving."""
        return state_of(self.links)

    @property
    def why(self) -> str:
        return why_of(self.links)

    @property
    def stats(self) -> LinkStats:
        """Counters of all links; `changes` and `questions` count the requests to this one."""
        each = [link.stats for link in self.links]
        return replace(self._counters, groups=sum(s.groups for s in each), workers=sum(s.workers for s in each),
                       losses=sum(s.losses for s in each), dropped=sum(s.dropped for s in each))

    def losses(self) -> Losses:
        return {w: loss for link in self.links for w, loss in link.losses().items()}

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(*(link.start() for link in self.links))
        if all(isinstance(link, WorkerLink) for link in self.links):  # a process of the application is not forked
            self.checkpoints.start()

    async def _welcome(self, hello: Hello) -> None:
        if self.on_hello is not None:
            await self.on_hello(hello)

    async def close(self) -> None:
        await self.checkpoints.finish()
        for link in self.links:
            await link.close()
        self._background.close()
        self._pending.close()

    async def up(self) -> None:
        for link in self.links:
            await link.up()

    def is_idle(self) -> bool:
        at_rest = not self._groups and not self._absent and not self._program.changing.locked()
        return at_rest and all(link.is_idle() for link in self.links)

    # ------------------------------------------------------------ transactions
    @property
    def staging_workers(self) -> Sequence[SomeLink]:
        return self.links

    async def learn_numbers(self, table: str) -> None:
        if (known := self._program.mirror.tables.get(table)) is not None:
            await self._numbering.look((known,))

    def commit_staged(self, parts: Mapping[int, Staged], idempotency_key: str, scope: Scope) -> asyncio.Future[Any]:
        return self._router.commit_staged(parts, idempotency_key, scope)

    async def after_earlier_commits(self, scope: Scope) -> None:
        await self.commit_order.wait(scope)

    async def at_one_moment(self, ask: Callable[[Any], Awaitable[Any]]) -> None:
        await ConsistentCut(self.links, self._groups.name()).each(ask)

    def unanswered(self) -> set[str]:
        return self._router.under_way().union(*(link.unanswered() for link in self.links))

    def waits_as(self, change: asyncio.Future[Any]) -> str | None:
        change = self._router.write_of(change)
        if (name := self._locked.waits_as(change)) is not None or (inner := self._pending.inner(change)) is None:
            return name
        return next((name for link in self.links if (name := link.waits_as(inner)) is not None), None)

    def on_answer(self, callback: Callable[[], None]) -> None:
        self._router.on_answer(callback)
        for link in self.links:
            link.on_answer(callback)

    def submit_unlocked(self, body: Write) -> asyncio.Future[Any]:
        """Submit a write whose caller handles error 3572."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._router.begin(body, future, False)
        return future

    # ------------------------------------------------------------ changes
    def submit(self, body: Change) -> asyncio.Future[Any]:
        self._counters.changes += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pauses.submit(body, future)
        return future

    def _begin(self, body: Change, future: asyncio.Future[Any]) -> None:
        if isinstance(body, Write):
            self._router.begin(body, future)
        else:
            self.written.note(body)
            assert isinstance(body, Migrate | Ingest), "groups are made here"
            task: asyncio.Task[Any] = (self._changes.begin(body) if isinstance(body, Migrate)
                                       else self._loads.begin(body))
            self._pending.passes_on(task, future, task.result)

    def cancel(self, change: asyncio.Future[Any]) -> None:
        change = self._router.write_of(change)
        if self._locked.give_up(change) or self._pauses.cancel(change) or self._pending.answer_now(change):
            return
        inner = self._pending.inner(change)
        if isinstance(inner, asyncio.Task):
            if not self._absent.give_up(inner):
                self._writes.give_up(inner)
                self._changes.give_up(inner)
        elif inner is not None:
            for link in self.links:
                link.cancel(inner)

    async def change(self, body: Change) -> Any:
        return await self.submit(body)

    async def request(self, body: Packet) -> Any:
        return await (self.change(body) if isinstance(body, Write | Migrate | Ingest) else self.ask(body))

    async def recover(self, body: Packet) -> Any:
        """Within `on_hello` only: worker 0 restores the program, and the others copy it from there."""
        if isinstance(body, Migrate):
            return await self._changes.restore(body)
        return combined_replies(body, await asyncio.gather(*(link.recover(body) for link in self.links)))

    # ------------------------------------------------------------ questions
    async def ask(self, body: Packet, retry: bool = False, lease: MemoryLease | None = None) -> Any:
        self._counters.questions += 1
        if isinstance(body, Read | Query):
            return await self._reads.read(body, retry, lease)
        if isinstance(body, Inspect) and body.what == "analyze" and body.read is not None:
            return await self._reads.analyze(body, retry)
        if isinstance(body, Inspect) and body.what in AT_LEADER:
            return await self.links[LEADER].ask(body, retry)
        if isinstance(body, CheckRowsFit):
            return await self._changes.fit(body, retry)
        if isinstance(body, Snapshot):
            return await self._snapshots.make(body)
        if isinstance(body, Inspect) and body.what == "builds":
            return await self._absent.builds(body)
        if isinstance(body, SetLimit):
            self._starts.limit = body
        return combined_replies(body, await asyncio.gather(*(link.ask(body, retry) for link in self.links)))

    def has(self, worker: int, view: str, writes: SessionWrites) -> bool:
        return self._read_your_writes.has(worker, self.routes.depth_of(view), writes)

    async def catch_up(self, writes: SessionWrites, view: str = "", worker: int | None = None) -> None:
        depth = self.routes.depth_of(view) if view else self.routes.depth
        if depth and writes:
            await self._read_your_writes.catch_up(writes, depth, range(self.workers) if worker is None else (worker,))
