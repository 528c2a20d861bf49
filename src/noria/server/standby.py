"""A server with a lease: it waits while another server leads, and ends when it no longer leads.

While it waits, it starts all parts that need no data directory: the kernels, and Spark with idle Python processes that
have a worker's code loaded.  Once it has the lease, it claims the directory and opens the stores and the ports.

Keeps true: only the holder of the lease claims the directory.  A server that loses the lease ends within the same turn
of the loop, like a killed process, without an answer to waiting clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from noria.control.processes.lease_address import LeaseAddress
from noria.server.settings import Settings
from noria.spark.hosting.workers import KEEP_WARM_S

if TYPE_CHECKING:
    from noria.control.processes.zookeeper import Lease

log = logging.getLogger("noria")
DEPOSED = 75  # exit code: EX_TEMPFAIL, to be started again


def lease_of(settings: Settings) -> Lease | None:
    """Return the lease that the settings name, or None."""
    if not settings.lease:
        return None
    from noria.control.processes.zookeeper import Lease

    holder = f"process {os.getpid()} of {socket.gethostname()}, mysql={settings.mysql_host}:{settings.mysql_port}"
    return Lease(LeaseAddress.of(settings.lease), holder, lambda text: log.info("lease: %s", text))


def scratch_of(settings: Settings) -> Path:
    """Return Spark's scratch directory.  With a lease each server has its own, since a waiting one runs Spark, too."""
    return settings.data_dir / (f"spark-{socket.gethostname()}-{settings.mysql_port or os.getpid()}" if settings.lease
                                else "spark")


@contextlib.asynccontextmanager
async def kept_warm(work: Callable[[], Awaitable[object]], seconds: float = KEEP_WARM_S) -> AsyncIterator[None]:
    """Within this context, do the work at once and again after each pause.  A failure is only logged.  seconds: the
    length of a pause."""
    async def go_on() -> None:
        ready = False
        while True:
            try:
                await work()
                if not ready:
                    log.info("standing by: ready to take over")
                ready = True
            except Exception as e:
                log.warning("standing by: %s", e)
            await asyncio.sleep(seconds)

    task = asyncio.ensure_future(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def deposed(lost: asyncio.Future[str]) -> None:
    """End like a killed process, because another server may lead by now: no further reply may be sent."""
    log.critical("the lease is lost: %s; another server may lead by now, so this one ends", lost.result())
    logging.shutdown()
    os._exit(DEPOSED)
