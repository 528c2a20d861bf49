"""Sends the others' catalog to a starting worker, then their graph. Call `follow`, then `adopt`.

Keeps true: a worker serves with the tables and the graph of all workers. Rows that must fit a new definition of
their table are checked first, as on worker 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from noria.dataflow.messages.packets import AddView, AlterTable, CheckRowsFit, Done, Hello, Migrate, Migrated
from noria.runtime.cluster.mirror import ProgramMirror, table_steps
from noria.runtime.link.inprocess import InProcessLink
from noria.runtime.link.link import WorkerLink

SomeLink = WorkerLink | InProcessLink


async def follow(link: SomeLink, hello: Hello, target: ProgramMirror) -> None:
    """Change the worker's catalog to that of the program. SqlError if it cannot be changed."""
    have = ProgramMirror.of(hello.tables, hello.recipe)
    steps = table_steps(have, target)
    for step in steps:
        if isinstance(step, AlterTable):
            fits: Done = await link.recover(CheckRowsFit(0, step.table))
            fits.result()
    if steps or have.recipe != target.recipe:
        reply: Migrated = await link.first(Migrate(steps, target.recipe))
        if reply.error is not None:
            raise reply.error


async def adopt(link: SomeLink, plan: dict[str, Any], mirror: ProgramMirror, restore: bool = False) -> Migrated:
    """Send the worker the graph of this plan (`Inspect` "graph plan") for the program's views. `restore`: as in
    `Migrate`."""
    steps = tuple(AddView(v) for v in mirror.views.values())
    reply: Migrated = await link.recover(Migrate(steps, mirror.recipe, False, adopt=plan["plan"],
                                                 version=plan["version"], restore=restore))
    if reply.error is not None:
        raise reply.error
    if restore and not reply.restored:
        raise RuntimeError(f"worker {link.worker} has not restored the states that the others have restored")
    return reply


@dataclass
class ChangeUnderWay:
    """A change under way at several workers: each one's part, and who has done it. A worker that starts meanwhile
    copies the graph of a donor that may not have made the change. Its own part is not sent to it again."""

    bodies: dict[int, Migrate]
    done: set[int] = field(default_factory=set)

    def watch(self, worker: int, reply: asyncio.Future[Any]) -> asyncio.Future[Any]:
        def note_done(_: asyncio.Future[Any]) -> None:
            if not reply.cancelled() and reply.exception() is None and reply.result().error is None:
                self.done.add(worker)

        reply.add_done_callback(note_done)
        return reply

    def lacks(self, worker: int, donor: int, version: int) -> Migrate | None:
        """The change that a restarted worker must make again: it made it in its last life, but the donor's graph
        of this version lacks it."""
        body = self.bodies[donor]
        return body if worker in self.done and body.version > version else None


def plan_undo(replies: Sequence[Any], back: Migrate) -> ChangeUnderWay:
    """Plan the undo: workers whose reply shows that they made the change undo it. The others only adopt
    the version."""
    nothing = replace(back, steps=(), durable=False, back=False)  # the disk may be full
    made = [isinstance(r, Migrated) and r.error is None for r in replies]
    return ChangeUnderWay({w: back if made[w] else nothing for w in range(len(made))})


async def undo(links: Sequence[SomeLink], doing: ChangeUnderWay) -> None:
    """Undo the change at all workers."""
    await asyncio.gather(*(_undo_at(link, doing) for link in links), return_exceptions=True)


async def _undo_at(link: SomeLink, doing: ChangeUnderWay) -> None:
    """Undo the change at one worker. If that fails, the worker restarts with what the others have."""
    back = doing.bodies[link.worker]
    for step in back.steps:
        if isinstance(step, AlterTable):
            await link.ask(CheckRowsFit(0, step.table), True)  # the change itself reports the same error
    reply: Migrated = await doing.watch(link.worker, link.submit(back))
    if reply.error is not None:
        link.restart(f"a change that other workers do not have could not be undone: {reply.error}")
