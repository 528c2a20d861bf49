"""The front end's side of several workers: one `Link` over the links of all (DESIGN section 7).

    a write      to the worker that has its rows; if several, as a group (`two_phase_commit.py`)
    a read       to the worker that has its key (`scatter_gather.py`)
    a change of the program    at worker 0, whose catalog decides; then at all others
    questions    to all; their answers are combined (`answers.py`)

A worker that starts while others serve copies their graph. If none serves, worker 0's catalog defines the
program, and the others follow it.

Keeps true: all workers that are up have the same tables and the same graph. Changes of the program happen one at
a time, in the order of requests. A worker that is down delays only requests that need it.

More than 500 lines: all steps of a change, from its submission to its undo, are in one place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import CRASHED_ON_USAGE
from noria.core.limits import HEARTBEAT_MS
from noria.core.statements import Clear, Move, Staged, Statement, WriteResult
from noria.core.types import TableDef
from noria.dataflow.messages.packets import (
    AlterTable,
    Ask,
    CreateTable,
    Done,
    DropView,
    Fit,
    Hello,
    Ingest,
    Migrate,
    Migrated,
    MigrationStep,
    Own,
    Packet,
    Query,
    Read,
    Rows,
    SetLimit,
    Snapshot,
    Write,
    Wrote,
)
from noria.plan.view import ViewDef
from noria.runtime.cluster.absent import AbsentWorkers
from noria.runtime.cluster.consistent_cut import ConsistentCut
from noria.runtime.cluster.copying import copy_rows
from noria.runtime.cluster.joining import ChangeUnderWay, SomeLink, adopt, follow, take_back, taking_back
from noria.runtime.cluster.mirror import ProgramMirror, catalog_only, of_views, yielding
from noria.runtime.cluster.numbering import AutoIncrement, How
from noria.runtime.link.changes import Change, WorkerGone
from noria.runtime.link.link import LinkState, LinkStats, OnHello
from noria.runtime.link.member import Losses, Unwritten
from noria.runtime.link.pauses import ALL, Pauses, Writing
from noria.runtime.link.room import Lease
from noria.runtime.link.written import WrittenTables
from noria.runtime.routing.answers import AT_LEADER, together
from noria.runtime.routing.key_routing import KeyRoutes
from noria.runtime.routing.scatter_gather import merged, split
from noria.runtime.routing.write_routing import RoutedWrite, renumbers, routed
from noria.runtime.transactions.own_writes import ReadYourWrites
from noria.runtime.transactions.two_phase_commit import TwoPhaseCommits
from noria.runtime.transactions.unique import Unique, compared
from noria.runtime.transactions.writes import Send, Writes
from noria.storage.tables.shards import shard_path, spread_families

log = logging.getLogger(__name__)
LEADER = 0


class _Past:
    """An `Unwritten`: writes past the pause of its table."""

    def __init__(self, link: ShardedLink):
        self.submit, self.moved = link.past, link.moved


class ShardedLink:
    """See `Link`. `links`: of the workers, by number. `on_hello`: receives worker 0's Hello when all workers
    start together."""

    def __init__(self, links: Sequence[SomeLink], epoch: int, *, on_hello: OnHello | None = None):
        self.links, self.workers, self.on_hello = links, len(links), on_hello
        self._asked = LinkStats()
        self.routes, self.version = KeyRoutes(self.workers), 0  # of the program
        self._mirror = ProgramMirror()
        self._told: list[Migrated] = []  # replies of workers that started since a change began
        self._next: tuple[int, ProgramMirror] | None = None  # the version and mirror after the change under way
        self._doing: ChangeUnderWay | None = None
        self._adopted: dict[int, int] = {}  # by worker: the version of the graph it adopted in this life
        self._numbering, self._turn = AutoIncrement(links, self._later, lambda table: table in self._writing), 0
        self._groups = TwoPhaseCommits(links, epoch)
        self._migrating = asyncio.Lock()
        self._at_leader: tuple[asyncio.Task[Any], asyncio.Future[Any]] | None = None  # a change of the program there
        self._inner: dict[asyncio.Future[Any], asyncio.Future[Any]] = {}  # by submitted future: the one it waits for
        self._within: dict[asyncio.Future[Any], asyncio.Future[Any]] = {}  # by future that awaits numbers: its write
        self._writing = Writing()
        self._taking: set[asyncio.Future[None]] = set()  # done when a worker that copies a graph serves or is lost
        self._at_gate: dict[int, Hello] = {}  # of workers that started while none serves
        self._starting: asyncio.Task[Any] | None = None  # all of these
        self._gate = asyncio.Event()  # set when all workers that start together may serve
        self._tasks: set[asyncio.Task[Any]] = set()
        self._alone: set[asyncio.Future[Any]] = set()  # changes that wait until no other is under way
        self._limit: SetLimit | None = None
        self._pauses = Pauses(self._begin)
        self._own = ReadYourWrites(links)
        self._writes = Writes(links, self._groups, self._own)
        self._one_moment = asyncio.Lock()
        self.written = WrittenTables()
        self._away = AbsentWorkers(links)
        for w, link in enumerate(links):
            link.on_hello = partial(self._appeared, w)
            link.on_lost = partial(lambda worker, why: self._writes.lost(worker), w)

    # ------------------------------------------------------------ transactions
    @property
    def staging_workers(self) -> Sequence[SomeLink]:
        return self.links

    def routed(self, statement: Statement) -> RoutedWrite:
        """See `Link`. A statement that moves rows, or whose UNIQUE values other workers have, is refused."""
        placed = self._placed(statement)
        if placed.moves or placed.unique:
            raise not_supported("in a transaction of several workers, a statement that may move rows to another "
                                "worker, or that writes a table with a UNIQUE key beside its primary key",
                                "run it without a transaction, or use one worker")
        if placed.brings:
            self._numbering.numbers.reached(self._mirror.tables[statement.table], placed.brings)
        return placed

    def commit_staged(self, parts: Mapping[int, Staged]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        inner, wrote = self._writes.begin(RoutedWrite(dict(parts)))
        for table in {t for part in parts.values() for t in part.tables}:
            self._writing.add(table, inner)
        self.written.note(Write(tuple(parts.values())))
        self._passes_on(inner, future, wrote)
        return future

    async def at_one_moment(self, ask: Callable[[Any], Awaitable[Any]]) -> None:
        await ConsistentCut(self.links, self._groups.name()).each(ask)

    def unanswered(self) -> set[str]:
        return self._writing.tables() | set().union(*(link.unanswered() for link in self.links))

    # ------------------------------------------------------------ life
    @property
    def state(self) -> LinkState:
        """The state of the worker that is farthest from serving."""
        states = [link.state for link in self.links]
        order = (LinkState.CLOSED, LinkState.DOWN, LinkState.RECOVERING)
        return next((s for s in order if s in states), LinkState.UP)

    @property
    def why(self) -> str:
        down = [link for link in self.links if link.state is not LinkState.UP]
        return "; ".join(f"worker {link.worker}: {link.why}" for link in down) or self.links[0].why

    @property
    def stats(self) -> LinkStats:
        """Counters of all links; `changes` and `asks` count the requests to this one."""
        each = [link.stats for link in self.links]
        return replace(self._asked, groups=sum(s.groups for s in each), workers=sum(s.workers for s in each),
                       losses=sum(s.losses for s in each), dropped=sum(s.dropped for s in each))

    def losses(self) -> Losses:
        return {w: loss for link in self.links for w, loss in link.losses().items()}

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(*(link.start() for link in self.links))

    async def close(self) -> None:
        for link in self.links:
            await link.close()
        for task in (*self._tasks, *self._inner.values()):
            task.cancel()

    async def up(self) -> None:
        for link in self.links:
            await link.up()

    def settled(self) -> bool:
        at_rest = not self._groups and not self._away and not self._migrating.locked()
        return at_rest and all(link.settled() for link in self.links)

    # ------------------------------------------------------------ workers come and go
    async def _appeared(self, worker: int, hello: Hello) -> None:
        """Prepare a worker that has sent a Hello. Returns when it may serve."""
        self._own.lost(worker)
        while (donor := self._serving()) is None and self._taking:
            await asyncio.wait(self._taking)  # a worker that copies a lost worker's graph serves first
        if donor is not None:
            serves: asyncio.Future[None] = self._loop.create_future()
            self._taking.add(serves)
            try:
                await self._take_over(self.links[worker], hello, donor)
            finally:
                self._taking.discard(serves)
                serves.set_result(None)
            return
        if self._gate.is_set():
            self._gate = asyncio.Event()
        gate = self._gate
        self._at_gate[worker] = hello
        try:
            if len(self._at_gate) == self.workers and (self._starting is None or self._starting.done()):
                self._starting = self._later(self._start_all(gate, [self._at_gate[w] for w in range(self.workers)]))
            await gate.wait()
        finally:
            if self._at_gate.get(worker) is hello:
                del self._at_gate[worker]
            if self._starting is not None and not gate.is_set():  # it was lost: it will not answer
                self._starting.cancel()

    def _serving(self) -> SomeLink | None:
        return next((link for link in self.links if link.state is LinkState.UP), None)

    async def _start_all(self, gate: asyncio.Event, hellos: Sequence[Hello]) -> None:
        """Start all workers, of which none has the program. If one is lost meanwhile, all restart."""
        try:
            await self._bring_back(hellos)
            gate.set()
        except (Exception, asyncio.CancelledError) as e:
            why = str(e) or "one was lost on the way"
            log.warning("starting %d workers failed, so they start again: %s", self.workers, why)
            for link in self.links:
                link.restart(f"not all workers could be started: {why}")
        finally:
            self._starting = None

    async def _bring_back(self, hellos: Sequence[Hello]) -> None:
        self._mirror, self._next = ProgramMirror.of(hellos[LEADER].tables, hellos[LEADER].recipe), None
        for link in self.links[1:]:
            await link.replay(catalog_only)
            if self._doing is not None and LEADER in self._doing.done:
                link.has_it_otherwise()
        await self._groups.settle(hellos)
        for hello in hellos:
            await self._groups.resolve(hello, lambda w: hellos[w].decided)
        for hello in hellos[1:]:
            await follow(self.links[hello.worker], hello, self._mirror)
        if self.on_hello is not None:
            await self.on_hello(hellos[LEADER])
        plan = (await self.links[LEADER].recover(Ask(0, "graph plan"))).value
        for link in self.links[1:]:
            await adopt(link, plan, self._mirror)
        await self._numbering.look(self._mirror.tables.values(), lambda link, b: link.recover(b))
        if any(self._at_gate.get(h.worker) is not h for h in hellos):
            raise WorkerGone("one that had the program is gone")

    async def _take_over(self, link: SomeLink, hello: Hello, donor: SomeLink) -> None:
        """Give a starting worker the graph of a serving one (`donor`), then the changes made since."""
        missed: list[Migrate] = []

        def noted(body: Change) -> Change:
            if isinstance(body, Migrate):
                missed.append(body)
            return catalog_only(body)

        await link.replay(noted)
        await self._groups.resolve(hello, lambda w: ())
        if self._limit is not None:
            await link.recover(self._limit)
        doing = self._doing
        try:
            plan = (await donor.ask(Ask(0, "graph plan"))).value
        except WorkerGone as e:
            raise RuntimeError(f"worker {donor.worker} ended, whose graph it was to have: {e}") from None
        await link.take_in(plan["version"], catalog_only)  # the graph includes it, this worker's catalog does not
        mirror = self._mirror
        if self._next is not None and plan["version"] == self._next[0]:
            mirror = self._next[1]
        self._tells(plan["version"], await adopt(link, plan, mirror))
        self._adopted[link.worker] = plan["version"]
        if doing is not None and (lacking := doing.lacks(link.worker, donor.worker, plan["version"])) is not None:
            missed.insert(0, lacking)
        for body in missed:
            if body.version > plan["version"]:
                told = await link.recover(replace(body, steps=of_views(body.steps), durable=False))
                if body.back and told.error is not None:
                    raise told.error
                self._tells(body.version, told)

    def _tells(self, version: int, told: Migrated) -> None:
        """Record the routes of a starting worker's graph of this version."""
        if self._migrating.locked():
            self._told.append(told)
        if self._next is None and version == self.version:
            self.routes.changed((), [told], self._mirror.views)

    # ------------------------------------------------------------ changes
    def submit(self, body: Change) -> asyncio.Future[Any]:
        self._asked.changes += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pauses.submit(body, future)
        return future

    def _begin(self, body: Change, future: asyncio.Future[Any]) -> None:
        self.written.note(body)
        if isinstance(body, Write):
            self._write(body, future)
        else:
            assert isinstance(body, Migrate | Ingest), "groups are made here"
            task: asyncio.Task[Any] = asyncio.ensure_future(
                self._migrate(body) if isinstance(body, Migrate) else self._ingest(body))
            if isinstance(body, Ingest):
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)
            self._passes_on(task, future, task.result)

    def _passes_on(self, inner: asyncio.Future[Any], future: asyncio.Future[Any], result: Callable[[], Any]) -> None:
        """Pass the outcome of `inner` to `future`."""
        self._inner[future] = inner

        def done(_: asyncio.Future[Any]) -> None:
            del self._inner[future]
            try:
                reply = result()
            except (Exception, asyncio.CancelledError) as e:
                if not future.done():
                    stopping = isinstance(e, asyncio.CancelledError)
                    future.set_exception(WorkerGone("the front end is stopping") if stopping else e)
                    future.exception()
            else:
                if not future.done():
                    future.set_result(reply)

        inner.add_done_callback(done)

    def _write(self, body: Write, future: asyncio.Future[Any]) -> None:
        if not body.statements:  # only names to forget: every worker may remember them
            forgotten = asyncio.gather(*(link.submit(body) for link in self.links))
            self._passes_on(forgotten, future, lambda: Wrote(0, ()))
            return
        if len(body.statements) > 1:
            self._write_together(body, future)
            return
        (statement,) = body.statements
        future = self._renumbered(statement, future)
        try:
            parts = self._placed(statement)
        except SqlError as e:
            future.set_result(Wrote(0, (WriteResult(error=e),)))
            return
        inner, wrote = self._writes.begin(parts, body.once)
        self._writing.add(statement.table, inner)
        self._passes_on(inner, future, self._expecting(parts, statement.table, wrote))

    def _expecting(self, parts: RoutedWrite, table: str, wrote: Callable[[], Wrote]) -> Callable[[], Wrote]:
        return self._numbering.expecting(parts, self._mirror.tables[table], wrote) if parts.brings else wrote

    def _renumbered(self, statement: Statement, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """The future for the write itself. If the write may set AUTO_INCREMENT, `future` also waits until the new
        value is known."""
        table = self._mirror.tables.get(statement.table)
        if table is None or not renumbers(statement, table):
            return future
        written: asyncio.Future[Any] = self._loop.create_future()
        self._within[future] = written
        task = asyncio.ensure_future(self._numbering.after(written, table, isinstance(statement, Clear)))
        task.add_done_callback(lambda _: self._within.pop(future))
        self._passes_on(task, future, task.result)
        return written

    def _placed(self, statement: Statement) -> RoutedWrite:
        self._turn += 1
        table = self._mirror.tables.get(statement.table)
        if table is None:
            return RoutedWrite({LEADER: statement})
        return routed(statement, table, self.workers, self._numbering.numbers, self._turn)

    def _write_together(self, body: Write, future: asyncio.Future[Any]) -> None:
        try:
            parts = [self._placed(s) for s in body.statements]
        except SqlError as e:
            future.set_result(Wrote(0, (WriteResult(error=e),)))
            return
        inner, wrote = self._writes.begin_together(parts, body.once)
        for table in dict.fromkeys(s.table for s in body.statements):
            self._writing.add(table, inner)
        for s, part in zip(body.statements, parts, strict=True):
            wrote = self._expecting(part, s.table, wrote)
        self._passes_on(inner, future, wrote)

    def _later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self, change: asyncio.Future[Any]) -> None:
        change = self._within.get(change, change)
        if self._pauses.cancel(change):
            return
        inner = self._inner.get(change)
        if isinstance(inner, asyncio.Task) and self._away.give_up(inner):
            return
        if isinstance(inner, asyncio.Task):
            self._writes.give_up(inner)
            if self._at_leader is not None and self._at_leader[0] is inner:
                self.links[LEADER].cancel(self._at_leader[1])
        elif inner is not None:
            for link in self.links:
                link.cancel(inner)

    async def change(self, body: Change) -> Any:
        return await self.submit(body)

    async def request(self, body: Packet) -> Any:
        return await (self.change(body) if isinstance(body, Write | Migrate | Ingest) else self.ask(body))

    # ------------------------------------------------------------ the program
    async def _migrate(self, body: Migrate) -> Migrated:
        if (away := await self._away.refusal(body)) is not None:
            return Migrated(0, away)
        async with self._migrating:
            if (error := self._mirror.refusal(body.steps)) is not None:
                return Migrated(0, error)
            idle = [s.view for s in body.steps if isinstance(s, DropView) and s.idle and await self._is_idle(s.view)]
            steps = yielding(body.steps, idle)
            aside, gone = self._mirror.aside(steps)
            made = await self._checked(replace(body, steps=aside))
            if gone and made.error is not None and made.error.code == CRASHED_ON_USAGE.number:  # it can only be dropped
                made = await self._checked(replace(body, steps=steps))
            elif gone and made.error is None:
                await self._drop(replace(body, steps=gone))
            return replace(made, yielded=tuple(idle)) if made.error is None else made

    async def _checked(self, body: Migrate) -> Migrated:
        """Make the change, unless several workers have equal values of an index that becomes UNIQUE."""
        body, unique = replace(body, version=self.version + 1), self._unique(body.steps)
        try:
            for u in unique:
                await u.catch_up(self._still)
            async with (self._unplaced(body.steps),
                        self._writes.places(bool(unique), lambda: self._pauses.of(ALL)) as send):
                for u in unique:
                    await u.end()
                return await self._made(body, send)
        except SqlError as error:
            return Migrated(0, error)

    @asynccontextmanager
    async def _unplaced(self, steps: Sequence[MigrationStep]) -> AsyncIterator[None]:
        """Wait until no write that was routed by a table's old definition is under way, and pause new ones."""
        ids = {s.table.table_id: s.table.name for s in steps if isinstance(s, AlterTable)}
        names = {*ids.values(), *(t.name for t in self._mirror.tables.values() if t.table_id in ids)}
        with ExitStack() as pauses:
            for name in sorted(names):
                pauses.enter_context(self._pauses.of(name))
            await self._writing.over(names)
            yield

    def _still(self) -> AbstractAsyncContextManager[Any]:
        """Pause all writes for the duration of the context."""
        return self._writes.places(True)

    def _unique(self, steps: Sequence[MigrationStep]) -> list[Unique]:
        return [Unique(self.links, *u) for u in self._mirror.made_unique(steps)]

    async def _drop(self, body: Migrate) -> None:
        """Drop tables that nothing refers to any more. If that fails, the next start drops them."""
        (made,) = await asyncio.gather(self._checked(body), return_exceptions=True)
        self._mirror = self._mirror.after(body.steps, self._mirror.recipe)
        if not isinstance(made, Migrated) or made.error is not None:
            log.warning("what was dropped takes its place on disk until the next start: %r", made)

    async def _is_idle(self, view: str) -> bool:
        """Whether the view is idle at all workers."""
        return bool((await self._all(Ask(0, "idle", view), lambda link, b: link.ask(b, True))).value)

    async def _made(self, body: Migrate, send: Send) -> Migrated:
        """Make the change at worker 0, then at all others."""
        self._told.clear()
        sent, task = send(LEADER, body), asyncio.current_task()
        assert task is not None
        self._at_leader = task, sent
        try:
            first: Migrated = await sent
        finally:
            self._at_leader = None
        if first.error is not None:
            return first
        after = self._mirror.after(body.steps, body.recipe if body.durable else self._mirror.recipe)
        self.version, self._next, gate = body.version, (body.version, after), self._gate
        self._away.under_way = True
        try:
            follow = replace(body, limit_ms=0, first_node=first.first_node)
            doing = self._doing = ChangeUnderWay(dict.fromkeys(range(self.workers), follow), {LEADER})
            others = await asyncio.gather(*(doing.watch(w, send(w, follow)) for w in range(1, self.workers)),
                                          return_exceptions=True)
        finally:
            self._next, self._doing, self._away.under_way = None, None, False
        replies = [first, *(r for r in others if isinstance(r, Migrated) and r.error is None)]
        if len(replies) < self.workers:
            return await self._undo(body, [first, *others])
        if self._gate is not gate:
            return await self._again(body, send, first, after)
        self._mirror = after
        await self._numbering.look(s.table for s in body.steps if isinstance(s, CreateTable | AlterTable)
                                   and s.table.name in after.tables)
        self.routes.changed(body.steps, [*self._told, *replies], after.views)
        return replace(first, filling=tuple(dict.fromkeys(v for r in replies for v in r.filling)))

    async def _again(self, body: Migrate, send: Send, first: Migrated, after: ProgramMirror) -> Migrated:
        """Make the rest of a change during which all workers restarted: they have its durable part, and the other
        views as before."""
        await self._gate.wait()
        steps = self._mirror.differing(body.steps, after)
        if not steps:
            return first
        return await self._made(replace(body, steps=steps, durable=False, version=self.version + 1), send)

    async def _undo(self, body: Migrate, replies: Sequence[Any]) -> Migrated:
        """Undo a change that one worker could not make. A worker that cannot undo it restarts. So does one that
        failed to store the change but has it from another worker's graph."""
        self.version += 1
        back = Migrate(self._mirror.inverse(body.steps), self._mirror.recipe, body.durable, version=self.version,
                       back=True)
        self._doing = taking_back(replies, back)
        try:
            await take_back(self.links, self._doing)
            for w, reply in enumerate(replies):
                made = isinstance(reply, Migrated) and reply.error is None
                if not made and self._adopted.get(w) == body.version:
                    self.links[w].restart("it took over a graph with a change that was taken back")
        finally:
            self._doing = None
        for r in (r for r in replies if isinstance(r, Migrated) and r.error is not None):
            return r
        raise next(r for r in replies if isinstance(r, BaseException))

    async def recover(self, body: Packet) -> Any:
        """Within `on_hello` only: worker 0 restores the program, and the others copy it from there."""
        if not isinstance(body, Migrate):
            return await self._all(body, lambda link, b: link.recover(b))
        self.version = max(self.version, 1)  # all workers are new: later changes must have later versions
        reply: Migrated = await self.links[LEADER].recover(replace(body, version=self.version))
        if reply.error is None:
            self._mirror = self._mirror.after(body.steps, self._mirror.recipe, [v for v, _ in reply.failed])
            self.routes.changed(body.steps, [reply], self._mirror.views)
        return reply

    # ------------------------------------------------------------ questions
    async def ask(self, body: Packet, retry: bool = False, lease: Lease | None = None) -> Any:
        self._asked.asks += 1
        if isinstance(body, Read | Query):
            return await self._read(body, retry, lease)
        if isinstance(body, Ask) and body.what == "analyze" and body.read is not None:
            return await self._analyze(body, retry)
        if isinstance(body, Ask) and body.what in AT_LEADER:
            return await self.links[LEADER].ask(body, retry)
        if isinstance(body, Fit):
            if (away := await self._away.refusal(body)) is not None:
                return Done(0, error=away)
            fits = await self._all(body, lambda link, b: link.ask(b, retry))
            return await compared(fits, self._unique((AlterTable(body.table),)), self._still)
        if isinstance(body, Snapshot):
            return await self._snapshot(body)
        if isinstance(body, Ask) and body.what == "builds":
            return await self._away.builds(body)
        if isinstance(body, SetLimit):
            self._limit = body
        return await self._all(body, lambda link, b: link.ask(b, retry))

    async def _all(self, body: Packet, how: How) -> Any:
        """Ask all workers and combine the answers; an error of any of them is the answer."""
        return together(body, await asyncio.gather(*(how(link, body) for link in self.links)))

    # ------------------------------------------------------------ reads
    async def _read(self, body: Read | Query, retry: bool, lease: Lease | None) -> Rows:
        view = body.view if isinstance(body, Query) else await self._view(body.view, retry)
        if view is None:
            reply: Rows = await self.links[LEADER].ask(body, retry)  # worker 0 reports that it is gone
            return reply
        parts = split(body, self.routes, view)
        if len(parts) == 1:
            ((worker, part),) = parts.items()
            only: Rows = await self.links[worker].ask(part, retry, lease)
            return only
        replies: list[Rows] = await asyncio.gather(*(self.links[w].ask(part, retry, lease)
                                                     for w, part in parts.items()))
        return merged(parts, dict(zip(parts, replies, strict=True)))

    async def _view(self, name: str, patient: bool) -> ViewDef | None:
        """The view's definition, once the program is known; None if the program has no such view."""
        while (view := self._mirror.views.get(name)) is None and not self._gate.is_set():
            if not patient:
                raise WorkerGone(self.why)
            await self._gate.wait()
        return view

    async def _analyze(self, body: Ask, retry: bool) -> Any:
        """Measure a read at all workers that have a part of it."""
        assert isinstance(body.read, Read)
        view = await self._view(body.read.view, retry)
        parts = {LEADER: body.read} if view is None else split(body.read, self.routes, view)
        return together(body, await asyncio.gather(*(
            self.links[worker].ask(replace(body, read=read), retry) for worker, read in parts.items())))

    def has(self, worker: int, view: str, writes: Own) -> bool:
        return self._own.has(worker, self.routes.depth_of(view), writes)

    async def catch_up(self, writes: Own, view: str = "", worker: int | None = None) -> None:
        depth = self.routes.depth_of(view) if view else self.routes.depth
        if depth and writes:
            await self._own.catch_up(writes, depth, range(self.workers) if worker is None else (worker,))

    # ------------------------------------------------------------ what all workers do at one moment
    @asynccontextmanager
    async def _nothing_else(self) -> AsyncIterator[None]:
        """Pause all changes and wait until none is under way."""
        async with self._one_moment:
            with self._pauses.of(ALL):
                await self._under_way()
                yield

    async def _under_way(self) -> None:
        """Wait until no change is under way. WorkerGone if a worker is not up."""
        while True:
            if self.state is not LinkState.UP:
                raise WorkerGone(self.why)
            if not (waited := set(self._inner.values()) - self._alone):
                return
            await asyncio.wait(waited, timeout=HEARTBEAT_MS / 1000)

    @asynccontextmanager
    async def unwritten(self, table: str) -> AsyncIterator[Unwritten]:
        with self._pauses.of(table):
            if waited := set(self._inner.values()):
                await asyncio.wait(waited)
            yield _Past(self)

    def past(self, body: Change) -> asyncio.Future[Any]:
        """`submit`, past pauses."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._begin(body, future)
        return future

    def moved(self, parts: Mapping[int, Move]) -> asyncio.Future[Any]:
        """See `Unwritten.moved`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        inner, wrote = self._writes.begin(RoutedWrite(dict(parts)))
        first = next(iter(parts.values()))
        self._writing.add(first.table, inner)
        self._passes_on(inner, self._renumbered(first, future), wrote)
        return future

    @asynccontextmanager
    async def copied(self, table: TableDef, other: TableDef) -> AsyncIterator[None]:
        """Copy all rows of the table into the other one and the states that derive from it. Nobody writes the
        table until the context ends. SqlError if a row does not fit."""
        async with self.unwritten(table.name):
            await copy_rows(self.links, self.change, table, other)
            await self._own.catch_up({}, self.routes.depth, range(self.workers))
            yield

    async def _snapshot(self, body: Snapshot) -> Done:
        """Make a checkpoint of each worker in its own directory, as of one cut."""
        async with self._one_moment, self._migrating:
            Path(body.path).mkdir(mode=0o700)
            replies: list[Done] = await ConsistentCut(self.links, self._groups.name()).each(
                lambda link: link.ask(replace(body, path=shard_path(body.path, link.worker, self.workers))),
                partial(self._own.catch_up, {}, self.routes.depth, range(self.workers)) if body.views else None)
        for r in replies:
            if r.error is not None:
                return r
        views = {name: [r.value["views"][name] for r in replies if name in r.value["views"]]
                 for name in replies[LEADER].value["views"]}
        return replace(replies[LEADER], value={"watermark": sum((r.value["watermark"] for r in replies), ()),
                                               "views": views})

    async def _ingest(self, body: Ingest) -> Done:
        """Ingest a load at all workers or at none, as a group, after all have accepted their parts."""
        async with self._nothing_else():
            spread = spread_families(self._mirror.tables.get(body.table))
            checks: list[Done] = await asyncio.gather(*(link.ask(body.check_of(link.worker, spread))
                                                        for link in self.links))
            for r in checks:
                if r.error is not None:
                    return r
            outcome = await self._groups.begin({w: (body.of(w),) for w in range(self.workers)}, patient=True,
                                                once=body.once)
            results = outcome.all()
            wrong = next((r.error for r in results if r.error is not None), None)
            table = self._mirror.tables.get(body.table)
            if table is not None and wrong is None:
                self._numbering.numbers.reached(table, body.auto_increment)
        await self._own.catch_up({}, self.routes.depth, range(self.workers))
        if table is not None:
            await self._numbering.look([table])
        return Done(0, sum(r.affected for r in results), wrong)
