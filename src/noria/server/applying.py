"""`POST /apply`: changes the program to a text, with reports of progress, or previews the change.

Keeps true: if the client disconnects, the change is cancelled; the program is then unchanged, or was already changed.
The change is in SHOW PROCESSLIST while it runs, and KILL cancels it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

from noria.control.catalog.origin import made_by
from noria.core.limits import APPLY_LINE_S
from noria.server.answering.executor import Executor
from noria.server.outcomes import Client
from noria.server.sessions.sessions import Sessions

KEYS = {"program": "its text", "dry_run": "true: say what would be done, and do nothing",
        "drop": "true: drop what the text does not have", "expect": "the digest of what was shown"}


async def applied(executor: Executor, sessions: Sessions, request: dict[str, Any], user: str, address: str
                  ) -> AsyncIterator[dict[str, Any]]:
    """Apply a request, and yield lines: the session's number for KILL, each step, and last the preview.  If no step
    happens for APPLY_LINE_S, a line has the running builds.  With `dry_run`, the preview is the only line."""
    text, drop = str(request.get("program", "")), bool(request.get("drop"))
    if request.get("dry_run"):
        yield {"preview": (await executor.program.preview(text, drop)).as_json()}
        return
    steps, progressed = list[str](), asyncio.Event()
    session = sessions.connect(Client(user, "", sessions.processes.number(), address, False))

    def report_step(step: str) -> None:
        session.running.set_state(step)
        steps.append(step)
        progressed.set()

    with made_by(f"{user}@{address}", "noria apply"):
        change = executor.program.apply(text, drop, str(request.get("expect", "")), report_step,
                                        partial(executor.locks.check, session.connection_id))
        task = asyncio.ensure_future(session.running.bounded(change, "noria apply"))
    try:
        yield {"session": session.connection_id}
        task.add_done_callback(lambda _: progressed.set())
        while not task.done():
            with suppress(TimeoutError):
                await asyncio.wait_for(progressed.wait(), APPLY_LINE_S)
            if not progressed.is_set():
                yield {"builds": await _builds(executor)}
            progressed.clear()
            while steps:
                yield {"step": steps.pop(0)}
        preview = task.result()
        await executor.wait_for_front_ends()
        yield {"preview": preview.as_json(), "applied": True}
    finally:
        task.cancel()
        task.add_done_callback(partial(_over, session.close))


def _over(close: Any, task: asyncio.Task[Any]) -> None:
    close()
    if not task.cancelled():
        task.exception()  # marks it as retrieved: the client has left


async def _builds(executor: Executor) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with suppress(ConnectionError):  # the worker is being restarted
        found = await executor.builds()
    return found
