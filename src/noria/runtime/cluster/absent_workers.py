"""Delays changes of the program while a worker is down, because all workers must make them. Errors name the missing
workers. Call `AbsentWorkers.refusal` before a change.

Keeps true: a change that somebody waits for begins when all workers are up. Otherwise it fails within
CHANGE_WAIT_S with the name of the missing worker, and nothing is changed. Before it begins it can be cancelled. A
change that only removes leftovers waits without a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from noria.core.errors import SqlError, interrupted
from noria.core.errors.codes import LOCK_WAIT_TIMEOUT
from noria.core.limits import CHANGE_WAIT_S
from noria.dataflow.messages.packets import Done, Inspect, Migrate
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.link import Link, LinkState
from noria.runtime.link.one_worker_link import Losses
from noria.runtime.routing.answers import as_one


def state_of(links: Sequence[SomeLink]) -> LinkState:
    """The state of the worker that is farthest from serving."""
    states = [link.state for link in links]
    order = (LinkState.CLOSED, LinkState.DOWN, LinkState.RECOVERING)
    return next((s for s in order if s in states), LinkState.UP)


def why_of(links: Sequence[SomeLink]) -> str:
    """Why workers do not serve; if all serve, why worker 0 does."""
    down = [link for link in links if link.state is not LinkState.UP]
    return "; ".join(f"worker {link.worker}: {link.why}" for link in down) or links[0].why


def lost_workers_text(link: Link, before: Losses) -> str:
    """Describe the workers that were lost since `before`, or do not serve now, and why; "" if all have served
    throughout."""
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


class AbsentWorkers:
    """The changes that wait for absent workers."""

    def __init__(self, links: Sequence[SomeLink]):
        self._links = links
        self._waiting: dict[asyncio.Task[Any], bool] = {}  # changes that have not begun; True: cancelled
        self._awaited: set[asyncio.Task[Any]] = set()  # those that somebody waits for
        self.under_way = False  # whether a change is made at some workers and not yet at all

    def __bool__(self) -> bool:
        """Whether a change has not begun."""
        return bool(self._waiting)

    def missing(self) -> list[str]:
        """The workers that are not up, and why."""
        return [f"worker {link.worker} is {link.state.value} ({link.why})" for link in self._links
                if link.state is not LinkState.UP]

    async def refusal(self, body: object) -> SqlError | None:
        """Wait until all workers are up. Returns the error if that takes too long or the change is cancelled;
        otherwise None."""
        bounded = not isinstance(body, Migrate) or body.note is not None or body.limit_ms > 0
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = False
        if bounded:
            self._awaited.add(task)
        try:
            async with asyncio.timeout(CHANGE_WAIT_S if bounded else None):
                for link in self._links:
                    await link.up()
        except TimeoutError:
            return SqlError(*LOCK_WAIT_TIMEOUT,
                            f"The program cannot be changed now: {'; '.join(self.missing())}, and has "
                            f"not come back for {CHANGE_WAIT_S} s.  Nothing was changed: try again when "
                            "it is there (GET /health)")
        except asyncio.CancelledError:
            if not self._waiting[task]:
                raise
            return interrupted()
        finally:
            del self._waiting[task]
            self._awaited.discard(task)
        return None

    def give_up(self, task: asyncio.Task[Any]) -> bool:
        """Cancel a change. Returns whether it had not begun."""
        if task not in self._waiting:
            return False
        self._waiting[task] = True
        task.cancel()
        return True

    async def builds(self, body: Inspect) -> Done:
        """The builds at the workers that are up, and the changes that wait for the others."""
        replies: list[Done | None] = await asyncio.gather(*(
            _builds_of(link, body) if link.state is LinkState.UP else _nothing() for link in self._links))
        built = as_one(body, [[] if r is None or r.error is not None else r.value for r in replies])
        return Done(0, [*built, *self._shown()])

    def _shown(self) -> list[dict[str, Any]]:
        missing = self.missing()
        waits = len(self._awaited) + self.under_way if missing else 0
        there = len(self._links) - len(missing)
        return [{"what": "a change of the program, at all workers", "views": [], "rows": there, "of": len(self._links),
                 "state": "waits", "why": "; ".join(missing), "ticket": ""}] * waits


async def _builds_of(link: SomeLink, body: Inspect) -> Done | None:
    try:
        reply: Done = await link.ask(body)
    except WorkerUnavailable:
        return None
    return reply


async def _nothing() -> None:
    """The answer of an absent worker."""
