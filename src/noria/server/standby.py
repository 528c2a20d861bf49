"""A server with a lease: it waits while another leads, and ends when it no longer leads.

Meanwhile it starts everything that needs no data directory: Spark with idle Python processes that have a worker's code
loaded, and the kernels.  Once it has the lease, it claims the directory and opens the stores and the ports.

Keeps true: only the holder of the lease claims the directory.  A server that loses the lease ends within the same turn
of the loop, without an answer to waiting clients, like a killed process.
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

from noria.control.processes.lease_address import Address
from noria.server.settings import Settings
from noria.spark.hosting.workers import KEEP_WARM_S

if TYPE_CHECKING:
    from noria.control.processes.zookeeper import Lease

log = logging.getLogger("noria")
DEPOSED = 75  # exit code: EX_TEMPFAIL, to be started again


def lease_of(settings: Settings) -> Lease | None:
    if not settings.lease:
        return None
    from noria.control.processes.zookeeper import Lease

    holder = f"process {os.getpid()} of {socket.gethostname()}, mysql={settings.mysql_host}:{settings.mysql_port}"
    return Lease(Address.of(settings.lease), holder, lambda text: log.info("lease: %s", text))


def scratch_of(settings: Settings) -> Path:
    """Spark's, of this server alone: while one leads another one has a session as well."""
    return settings.data_dir / (f"spark-{socket.gethostname()}-{settings.mysql_port or os.getpid()}" if settings.lease
                                else "spark")


@contextlib.asynccontextmanager
async def kept_warm(work: Callable[[], Awaitable[object]], seconds: float = KEEP_WARM_S) -> AsyncIterator[None]:
    """The work is done beside what goes on within: at once, and again after each pause.  A failure is told, and is no
    more than that."""
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
    """End as a process that is killed: whatever was about to be told would be told too late."""
    log.critical("the lease is lost: %s; another server may lead by now, so this one ends", lost.result())
    logging.shutdown()
    os._exit(DEPOSED)
