"""Starts workers with the program that the others have. Call `WorkerStarts.appeared` after a worker's Hello.

    another worker serves    the starting worker copies its graph, then makes the changes made since
    none serves              all wait for each other; worker 0's catalog defines the program, and the others follow it

If all have saved their states as of one cut, they restore them (`checkpoints.py`).

Keeps true: a worker serves when it has the tables and the graph of all workers. If a worker is lost while all start
together, all start again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from noria.dataflow.messages.packets import Done, Hello, Inspect, Migrate, SetLimit
from noria.runtime.cluster.joining import SomeLink, adopt, follow
from noria.runtime.cluster.mirror import ProgramMirror, catalog_only, of_views
from noria.runtime.cluster.numbering import AutoIncrement
from noria.runtime.cluster.pending_changes import Background
from noria.runtime.cluster.program_state import LEADER, ProgramState, Restores
from noria.runtime.link.change_queue import Change, WorkerUnavailable
from noria.runtime.link.link import LinkState, OnHello
from noria.runtime.transactions.read_your_writes import ReadYourWrites
from noria.runtime.transactions.two_phase_commit import TwoPhaseCommits

log = logging.getLogger(__name__)


class WorkerStarts:
    """Prepares the workers that have sent a Hello. `welcome`: receives worker 0's when all start together. `limit`:
    the memory limit that was set last."""

    def __init__(self, links: Sequence[SomeLink], program: ProgramState, groups: TwoPhaseCommits,
                 numbering: AutoIncrement, read_your_writes: ReadYourWrites, background: Background, welcome: OnHello):
        self._links, self._program, self._groups, self._numbering = links, program, groups, numbering
        self._read_your_writes, self._background, self._welcome = read_your_writes, background, welcome
        self.limit: SetLimit | None = None
        self._copying: set[asyncio.Future[None]] = set()  # done when a worker that copies a graph serves or is lost
        self._waiting: dict[int, Hello] = {}  # of workers that started while none serves
        self._starting: asyncio.Task[Any] | None = None  # all of these

    async def appeared(self, worker: int, hello: Hello) -> None:
        """Prepare a worker that has sent a Hello. Returns when it may serve."""
        self._read_your_writes.lost(worker)
        while (donor := self._serving()) is None and self._copying:
            await asyncio.wait(self._copying)  # a worker that copies a lost worker's graph serves first
        if donor is not None:
            serves: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._copying.add(serves)
            try:
                await self._copy_graph(self._links[worker], hello, donor)
            finally:
                self._copying.discard(serves)
                serves.set_result(None)
        else:
            await self._start_with_others(worker, hello)

    def _serving(self) -> SomeLink | None:
        return next((link for link in self._links if link.state is LinkState.UP), None)

    async def _start_with_others(self, worker: int, hello: Hello) -> None:
        if self._program.known.is_set():
            self._program.known = asyncio.Event()
        known, workers = self._program.known, len(self._links)
        self._waiting[worker] = hello
        try:
            if len(self._waiting) == workers and (self._starting is None or self._starting.done()):
                all_hellos = [self._waiting[w] for w in range(workers)]
                self._starting = self._background.later(self._start_all(known, all_hellos))
            await known.wait()
        finally:
            if self._waiting.get(worker) is hello:
                del self._waiting[worker]
            if self._starting is not None and not known.is_set():  # it was lost: it will not answer
                self._starting.cancel()

    async def _start_all(self, known: asyncio.Event, hellos: Sequence[Hello]) -> None:
        """Start all workers, of which none has the program. If one is lost meanwhile, all restart."""
        try:
            await self._restore_all(hellos)
            known.set()
        except (Exception, asyncio.CancelledError) as e:
            why = str(e) or "one was lost on the way"
            log.warning("starting %d workers failed, so they start again: %s", len(self._links), why)
            for link in self._links:
                link.restart(f"not all workers could be started: {why}")
        finally:
            self._starting = None

    async def _restore_all(self, hellos: Sequence[Hello]) -> None:
        program, leader, others = self._program, self._links[LEADER], self._links[1:]
        program.mirror, program.next = ProgramMirror.of(hellos[LEADER].tables, hellos[LEADER].recipe), None
        for link in others:
            await link.replay(catalog_only)
            if program.under_way is not None and LEADER in program.under_way.done:
                link.answer_migrations()
        await self._groups.resolve_running(hellos)
        for hello in hellos:
            await self._groups.resolve(hello, lambda w: hellos[w].decided)
        for hello in hellos[1:]:
            await follow(self._links[hello.worker], hello, program.mirror)
        program.restores = Restores.AGREED if await self._can_restore(hellos) else Restores.NOTHING
        await self._welcome(hellos[LEADER])
        plan = (await leader.recover(Inspect(0, "graph plan"))).value
        restored = program.restores is Restores.BEGUN
        for link in others:
            await adopt(link, plan, program.mirror, restored)
        if restored:  # the rows that each has written since are on their way to the others
            await self._of_all(f"{program.routes.depth} ", "caught up")
        await self._numbering.look(program.mirror.tables.values(), lambda link, b: link.recover(b))
        if any(self._waiting.get(h.worker) is not h for h in hellos):
            raise WorkerUnavailable("a worker that had the program was lost")

    async def _can_restore(self, hellos: Sequence[Hello]) -> bool:
        """Whether all workers can restore the states that they saved as of the same cut."""
        cut = hellos[LEADER].cut
        if not cut or any(hello.cut != cut for hello in hellos):
            return False
        await self._of_all("1 ", "caught up")  # then each knows that the others have restarted
        return all(done.value for done in await self._of_all(cut, "restorable"))

    async def _of_all(self, argument: str, what: str) -> list[Done]:
        """Ask all starting workers a question."""
        return list(await asyncio.gather(*(link.recover(Inspect(0, what, argument)) for link in self._links)))

    async def _copy_graph(self, link: SomeLink, hello: Hello, donor: SomeLink) -> None:
        """Send a starting worker the graph of a serving one (`donor`), then the changes made since."""
        program, missed = self._program, list[Migrate]()

        def noted(body: Change) -> Change:
            if isinstance(body, Migrate):
                missed.append(body)
            return catalog_only(body)

        await link.replay(noted)
        await self._groups.resolve(hello, lambda w: ())
        if self.limit is not None:
            await link.recover(self.limit)
        doing = program.under_way
        try:
            plan = (await donor.ask(Inspect(0, "graph plan"))).value
        except WorkerUnavailable as e:
            raise RuntimeError(f"worker {donor.worker} ended, whose graph it was to have: {e}") from None
        version: int = plan["version"]
        await link.send_program_changes(version, catalog_only)  # the graph includes it, this worker's catalog does not
        program.worker_started(version, await adopt(link, plan, program.mirror_at(version)))
        program.adopted[link.worker] = version
        if doing is not None and (lacking := doing.lacks(link.worker, donor.worker, version)) is not None:
            missed.insert(0, lacking)
        for body in missed:
            if body.version > version:
                reply = await link.recover(replace(body, steps=of_views(body.steps), durable=False))
                if body.back and reply.error is not None:
                    raise reply.error
                program.worker_started(body.version, reply)
