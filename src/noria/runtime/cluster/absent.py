"""Changes of the program while a worker is away: all workers must make them, so they wait, and are told who is missing.

Keeps true: a change that somebody waits for begins when all workers are there, or fails within CHANGE_WAIT_S with the
name of the one that is not, and nothing is done; until it begins it can be given up.  What is only cleared away waits
as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from noria.core.errors import SqlError, interrupted
from noria.core.limits import CHANGE_WAIT_S
from noria.dataflow.messages.packets import Ask, Done, Migrate
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.link.changes import WorkerGone
from noria.runtime.link.link import Link, LinkState
from noria.runtime.link.member import Losses
from noria.runtime.routing.answers import as_one


def told(link: Link, before: Losses) -> str:
    """Which workers were lost since, or do not serve now, and why; "" where all serve all the time."""
    parts = []
    each: Sequence[SomeLink] = getattr(link, "links", None) or (cast(SomeLink, link),)
    for one in each:
        number, why = one.losses().get(one.worker, (0, ""))
        times = number - before.get(one.worker, (0, ""))[0]
        if times > 0:
            parts.append(f"worker {one.worker} was lost {times} time{'s' * (times > 1)} (the last time: {why}) and "
                         + ("serves again" if one.state is LinkState.UP else "is being restarted"))
        elif one.state is not LinkState.UP:
            parts.append(f"worker {one.worker} is {one.state.value} ({one.why})")
    return "; ".join(parts)


class Away:
    def __init__(self, links: Sequence[SomeLink]):
        self._links = links
        self._waiting: dict[asyncio.Task[Any], bool] = {}  # what has not begun: was it given up?
        self._wanted: set[asyncio.Task[Any]] = set()  # of these, what somebody waits for
        self.under_way = False  # is a change made at some workers, and not yet at all?

    def __bool__(self) -> bool:
        """Has something not begun?"""
        return bool(self._waiting)

    def missing(self) -> list[str]:
        """Who is not there, and why."""
        return [f"worker {link.worker} is {link.state.value} ({link.why})" for link in self._links
                if link.state is not LinkState.UP]

    async def refusal(self, body: object) -> SqlError | None:
        """None when all are there."""
        bounded = not isinstance(body, Migrate) or body.note is not None or body.limit_ms > 0
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = False
        if bounded:
            self._wanted.add(task)
        try:
            async with asyncio.timeout(CHANGE_WAIT_S if bounded else None):
                for link in self._links:
                    await link.up()
        except TimeoutError:
            return SqlError(1205, "HY000", f"The program cannot be changed now: {'; '.join(self.missing())}, and has "
                                           f"not come back for {CHANGE_WAIT_S} s.  Nothing was changed: try again when "
                                           "it is there (GET /health)")
        except asyncio.CancelledError:
            if not self._waiting[task]:
                raise
            return interrupted()
        finally:
            del self._waiting[task]
            self._wanted.discard(task)
        return None

    def give_up(self, task: asyncio.Task[Any]) -> bool:
        """Has it not begun?"""
        if task not in self._waiting:
            return False
        self._waiting[task] = True
        task.cancel()
        return True

    async def builds(self, body: Ask) -> Done:
        """What is built at the workers that are there, and what waits for the others."""
        replies: list[Done | None] = await asyncio.gather(*(
            _asked(link, body) if link.state is LinkState.UP else _nothing() for link in self._links))
        built = as_one(body, [[] if r is None or r.error is not None else r.value for r in replies])
        return Done(0, [*built, *self._shown()])

    def _shown(self) -> list[dict[str, Any]]:
        missing = self.missing()
        waits = len(self._wanted) + self.under_way if missing else 0
        there = len(self._links) - len(missing)
        return [{"what": "a change of the program, at all workers", "views": [], "rows": there, "of": len(self._links),
                 "state": "waits", "why": "; ".join(missing), "ticket": ""}] * waits


async def _asked(link: SomeLink, body: Ask) -> Done | None:
    try:
        reply: Done = await link.ask(body)
    except WorkerGone:
        return None
    return reply


async def _nothing() -> None:
    """What a worker that is away says."""
