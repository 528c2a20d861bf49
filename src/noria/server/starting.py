"""Steps of the server's start that take long, with reports in the log: compilation of kernels, Spark's driver, workers.

Keeps true: the log mentions compilation only while kernels are compiled.  Their cache shows this, since numba writes
each kernel there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from noria.control.catalog.origin import with_text
from noria.control.processes.supervisor import Supervisor
from noria.control.program import Program
from noria.kernels import place
from noria.runtime.link.link import Link, LinkState, WorkerLink
from noria.runtime.worker import warm
from noria.spark.hosting import archive
from noria.spark.hosting.session import import_path
from noria.sql.commands import CreateDatabase
from noria.sql.text.databases import Database
from noria.sql.warm_up import plan_some

log = logging.getLogger("noria")
LOG_EVERY_S = 15  # between two lines of the log about a start that waits
ARCHIVE_END_S = 5.0  # for which the end of a server waits for the process that makes the archive
ARCHIVE_AFTER_S = 30  # after the workers are up, since the first clients have priority


class StartFailed(Exception):
    """The server cannot start.  The message says why, and what to do."""


class Compiling:
    """Watches the cache of kernels.  count: returns the number of kernels in it."""

    def __init__(self, count: Callable[[], int] | None = None) -> None:
        self._count = count or _kernels
        self._before = self._last = self._count()

    def now(self) -> str:
        """Describe the kernels compiled so far; "" if none was compiled since the last call."""
        last, self._last = self._last, self._count()
        if self._last == last:
            return ""
        return (f"kernels are being compiled, {self._last - self._before} so far: the first start of a release does "
                "that, for a minute or two")


def _kernels() -> int:
    return sum(1 for _ in place.directory().glob("*.nbc"))


def waited_for(compiling: str, links: Iterable[WorkerLink], spark: str) -> str:
    """Describe what a start waits for: compilation, else Spark's driver, else the workers that do not serve."""
    if compiling:
        return compiling
    if spark != "up":
        return f"Spark's driver is {spark}"
    return "; ".join(f"worker {link.worker} is {link.state.value} ({link.why})" for link in links
                     if link.state is not LinkState.UP)


async def warm_up(supervisor: Supervisor, scratch: Path | None) -> None:
    """Start Spark's driver, and load or compile the kernels beside it, so that no client waits for a compilation."""
    compiling = Compiling()

    def load() -> None:
        warm.kernels(scratch and str(scratch))
        plan_some()

    both = asyncio.gather(supervisor.start(), asyncio.to_thread(load))
    try:
        while not (await asyncio.wait((both,), timeout=LOG_EVERY_S))[0]:
            log.info("starting: %s", waited_for(compiling.now(), (), supervisor.state) or "kernels are being loaded")
        await both
    finally:
        both.cancel()
        await asyncio.gather(both, return_exceptions=True)  # it would be reported as an error that nobody saw


async def archive_made(log_path: Path) -> None:
    """Make Java's class archive in a process of low priority, unless it exists.  The set-up of a source tree makes it,
    but a wheel does not contain it."""
    await asyncio.sleep(ARCHIVE_AFTER_S)
    if archive.found() is not None:
        return
    with log_path.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            "nice", "-n", "19", sys.executable, "-m", archive.MODULE, stdin=asyncio.subprocess.DEVNULL, stdout=said,
            stderr=said, start_new_session=True, env={**os.environ, "PYTHONPATH": import_path()})
    try:
        await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # it ends its JVM and removes what it has written
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), ARCHIVE_END_S)
            os.killpg(process.pid, signal.SIGKILL)


async def worker_up(link: Link, links: Iterable[WorkerLink], supervisor: Supervisor) -> None:
    """Wait until all workers serve.  Raises StartFailed if one cannot open its store, since a retry would not help."""
    up, unusable, compiling = asyncio.ensure_future(link.up()), supervisor.unusable, Compiling()
    assert unusable is not None, "the supervisor has started"
    try:
        while not (await asyncio.wait((up, unusable), timeout=LOG_EVERY_S, return_when=asyncio.FIRST_COMPLETED))[0]:
            log.info("starting: %s; spark.log in the data directory says more",
                     waited_for(compiling.now(), links, supervisor.state))
        if unusable.done() and not up.done():
            raise StartFailed(unusable.result())
    finally:
        up.cancel()


async def with_default_database(program: Program, name: str) -> None:
    """Make the database of clients that name none, unless it exists."""
    catalog = program.catalog
    if catalog.databases.get(name) is None:
        with with_text(f"noria serve --database {name}"):
            await program.define(CreateDatabase(Database(name), if_not_exists=True))
    catalog.default_database = catalog.databases.named(name).name


__all__ = ["StartFailed", "warm_up", "with_default_database", "worker_up"]
