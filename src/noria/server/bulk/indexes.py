"""Indexes of large tables, built by Spark while their worker continues (section 5 of the paper).

A migration adds the indexes that new queries need.  The worker requests an index.  The server makes a snapshot, and
Spark's tasks write the index's entries as sorted files.  The worker ingests them and the entries of later writes.

Keeps true: for each requested index, the worker receives files, or the order to build the index itself.  No file is
left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from noria.control.processes.supervisor import JobError, NoDriver
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Done, IndexFiles, IndexRequest, Inspect
from noria.runtime.link.link import Link, WorkerUnavailable

if TYPE_CHECKING:
    from noria.server.bulk.jobs import BulkJobs
    from noria.spark.jobs.index import IndexFilesMade

log = logging.getLogger(__name__)


class Indexes:
    """Delivers indexes of a worker's own rows to that worker (`link`).  `run` continues until it is cancelled."""

    def __init__(self, bulk: BulkJobs, link: Link):
        self._bulk, self._link = bulk, link

    async def run(self) -> None:
        """Build the requested indexes, one after the other: each uses all of Spark's slots."""
        while True:
            wanted = (await self._link.ask(Inspect(0, "awaited index"), retry=True)).value
            try:
                await self._unless_unwanted(wanted)
            except (WorkerUnavailable, SqlError) as e:  # a new worker requests it again, or the table was dropped
                log.info("index of table %s: %s", wanted.table.name, e)

    async def _unless_unwanted(self, wanted: IndexRequest) -> None:
        made = asyncio.ensure_future(self._make(wanted))
        unwanted = asyncio.ensure_future(self._link.ask(Inspect(0, "index no longer awaited", wanted.ticket)))
        try:
            await asyncio.wait((made, unwanted), return_when=asyncio.FIRST_COMPLETED)
            if made.done():
                made.result()
        finally:
            for task in (made, unwanted):
                task.cancel()
            await asyncio.gather(made, unwanted, return_exceptions=True)

    async def _make(self, wanted: IndexRequest) -> None:
        async with contextlib.AsyncExitStack() as files:
            try:
                found: IndexFilesMade | None = await files.enter_async_context(self._bulk.index(self._link, wanted))
            except (NoDriver, JobError, SqlError) as e:
                log.warning("Spark cannot make an index of table %s, the worker does: %s", wanted.table.name, e)
                found = None
            except Exception:
                log.exception("making an index of table %s failed, the worker makes it", wanted.table.name)
                found = None
            reply: Done = await self._link.ask(IndexFiles(wanted.ticket, None if found is None else found.files))
            reply.result()
