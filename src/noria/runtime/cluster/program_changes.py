"""Changes the program at all workers: worker 0 first, whose catalog decides, then all others.
Call `ProgramChanges.begin`.

    all workers are up ─► idle views decided ─► UNIQUE values compared ─► worker 0 ─► all others ─► dropped tables
                                                                             one of them cannot ─► all undo it

Keeps true: changes are made one at a time, in the order of requests. All workers make a change or undo it; a worker
that can do neither restarts with the program of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import CRASHED_ON_USAGE
from noria.dataflow.messages.packets import (
    AlterTable,
    CheckRowsFit,
    CreateTable,
    Done,
    DropView,
    Inspect,
    Migrate,
    Migrated,
    MigrationStep,
)
from noria.runtime.cluster.absent_workers import AbsentWorkers
from noria.runtime.cluster.joining import ChangeUnderWay, SomeLink, plan_undo, undo
from noria.runtime.cluster.mirror import ProgramMirror, yielding
from noria.runtime.cluster.numbering import AutoIncrement
from noria.runtime.cluster.program_state import LEADER, ProgramState, Restores
from noria.runtime.link.pauses import ALL, Pauses, TableWrites
from noria.runtime.routing.answers import combined_replies
from noria.runtime.transactions.unique import UniqueIndexCheck, compared
from noria.runtime.transactions.writes import RoutedWrites, Send

log = logging.getLogger(__name__)


class ProgramChanges:
    """Makes changes of the program, or undoes them."""

    def __init__(self, links: Sequence[SomeLink], program: ProgramState, absent: AbsentWorkers, pauses: Pauses,
                 writing: TableWrites, writes: RoutedWrites, numbering: AutoIncrement):
        self._links, self._program, self._absent = links, program, absent
        self._pauses, self._writing, self._writes, self._numbering = pauses, writing, writes, numbering
        self._at_leader: tuple[asyncio.Task[Any], asyncio.Future[Any]] | None = None  # a change that worker 0 makes

    def begin(self, body: Migrate) -> asyncio.Task[Migrated]:
        return asyncio.ensure_future(self._migrate(body))

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """Cancel a change, unless worker 0 has made it."""
        if self._at_leader is not None and self._at_leader[0] is task:
            self._links[LEADER].cancel(self._at_leader[1])

    async def fit(self, body: CheckRowsFit, retry: bool) -> Done:
        """Whether all rows of all workers fit the table's new definition."""
        if (absent := await self._absent.refusal(body)) is not None:
            return Done(0, error=absent)
        fits = combined_replies(body, await asyncio.gather(*(link.ask(body, retry) for link in self._links)))
        return await compared(fits, self._unique((AlterTable(body.table),)), self._still)

    async def restore(self, body: Migrate) -> Migrated:
        """Within `on_hello` only: worker 0 restores the program, and the others copy it from there."""
        program = self._program
        program.version = max(program.version, 1)  # all workers are new: later changes must have later versions
        if program.restores is Restores.BEGUN:
            raise RuntimeError("saved states were restored, and then the program is to be restored in parts")
        restore = program.restores is Restores.AGREED
        reply: Migrated = await self._links[LEADER].recover(replace(body, version=program.version, restore=restore))
        program.restores = Restores.BEGUN if reply.restored else Restores.NOTHING
        if reply.error is None:
            program.mirror = program.mirror.after(body.steps, program.mirror.recipe, [v for v, _ in reply.failed])
            program.routes.changed(body.steps, [reply], program.mirror.views)
        return reply

    async def _migrate(self, body: Migrate) -> Migrated:
        if (absent := await self._absent.refusal(body)) is not None:
            return Migrated(0, absent)
        async with self._program.changing:
            if (error := self._program.mirror.refusal(body.steps)) is not None:
                return Migrated(0, error)
            idle = [s.view for s in body.steps if isinstance(s, DropView) and s.idle and await self._is_idle(s.view)]
            steps = yielding(body.steps, idle)
            aside, drops = self._program.mirror.aside(steps)
            made = await self._checked(replace(body, steps=aside))
            if drops and made.error is not None and made.error.code == CRASHED_ON_USAGE.number:  # only a drop works
                made = await self._checked(replace(body, steps=steps))
            elif drops and made.error is None:
                await self._drop(replace(body, steps=drops))
            return replace(made, yielded=tuple(idle)) if made.error is None else made

    async def _is_idle(self, view: str) -> bool:
        """Whether the view is idle at all workers."""
        body = Inspect(0, "idle", view)
        return bool(combined_replies(body, await asyncio.gather(*(link.ask(body, True) for link in self._links))).value)

    async def _checked(self, body: Migrate) -> Migrated:
        """Make the change, unless several workers have equal values of an index that becomes UNIQUE."""
        body, unique = replace(body, version=self._program.version + 1), self._unique(body.steps)
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
        names = {*ids.values(), *(t.name for t in self._program.mirror.tables.values() if t.table_id in ids)}
        with ExitStack() as pauses:
            for name in sorted(names):
                pauses.enter_context(self._pauses.of(name))
            await self._writing.over(names)
            yield

    def _still(self) -> AbstractAsyncContextManager[Any]:
        """Pause all writes for the duration of the context."""
        return self._writes.places(True)

    def _unique(self, steps: Sequence[MigrationStep]) -> list[UniqueIndexCheck]:
        return [UniqueIndexCheck(self._links, *u) for u in self._program.mirror.made_unique(steps)]

    async def _drop(self, body: Migrate) -> None:
        """Drop tables that nothing refers to any more. If that fails, the next start drops them."""
        (made,) = await asyncio.gather(self._checked(body), return_exceptions=True)
        mirror = self._program.mirror
        self._program.mirror = mirror.after(body.steps, mirror.recipe)
        if not isinstance(made, Migrated) or made.error is not None:
            log.warning("what was dropped takes its place on disk until the next start: %r", made)

    async def _made(self, body: Migrate, send: Send) -> Migrated:
        """Make the change at worker 0, then at all others."""
        program, workers = self._program, len(self._links)
        program.started.clear()
        first = await self._made_at_leader(body, send)
        if first.error is not None:
            return first
        after = program.mirror.after(body.steps, body.recipe if body.durable else program.mirror.recipe)
        program.version, program.next, known = body.version, (body.version, after), program.known
        self._absent.under_way = True
        try:
            follow = replace(body, limit_ms=0, first_node=first.first_node)
            doing = program.under_way = ChangeUnderWay(dict.fromkeys(range(workers), follow), {LEADER})
            others = await asyncio.gather(*(doing.watch(w, send(w, follow)) for w in range(1, workers)),
                                          return_exceptions=True)
        finally:
            program.next, program.under_way, self._absent.under_way = None, None, False
        replies = [first, *(r for r in others if isinstance(r, Migrated) and r.error is None)]
        if len(replies) < workers:
            return await self._undo(body, [first, *others])
        if program.known is not known:
            return await self._again(body, send, first, after)
        program.mirror = after
        await self._numbering.look(s.table for s in body.steps if isinstance(s, CreateTable | AlterTable)
                                   and s.table.name in after.tables)
        program.routes.changed(body.steps, [*program.started, *replies], after.views)
        return replace(first, filling=tuple(dict.fromkeys(v for r in replies for v in r.filling)))

    async def _made_at_leader(self, body: Migrate, send: Send) -> Migrated:
        sent, task = send(LEADER, body), asyncio.current_task()
        assert task is not None
        self._at_leader = task, sent
        try:
            first: Migrated = await sent
        finally:
            self._at_leader = None
        return first

    async def _again(self, body: Migrate, send: Send, first: Migrated, after: ProgramMirror) -> Migrated:
        """Make the rest of a change during which all workers restarted: they have its durable part, and the other
        views as before."""
        await self._program.known.wait()
        steps = self._program.mirror.differing(body.steps, after)
        if not steps:
            return first
        return await self._made(replace(body, steps=steps, durable=False, version=self._program.version + 1), send)

    async def _undo(self, body: Migrate, replies: Sequence[Any]) -> Migrated:
        """Undo a change that one worker could not make. A worker that cannot undo it restarts. So does one that
        failed to store the change but has it from another worker's graph."""
        program = self._program
        program.version += 1
        back = Migrate(program.mirror.inverse(body.steps), program.mirror.recipe, body.durable,
                       version=program.version, back=True)
        program.under_way = plan_undo(replies, back)
        try:
            await undo(self._links, program.under_way)
            for w, reply in enumerate(replies):
                made = isinstance(reply, Migrated) and reply.error is None
                if not made and program.adopted.get(w) == body.version:
                    self._links[w].restart("it adopted a graph with a change that was undone")
        finally:
            program.under_way = None
        for r in (r for r in replies if isinstance(r, Migrated) and r.error is not None):
            return r
        raise next(r for r in replies if isinstance(r, BaseException))
