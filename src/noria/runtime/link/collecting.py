"""Collects a large result, which a worker sends in chunks of rows, once memory is reserved for all of it.
Call `collected`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa

from noria.dataflow.messages.packets import NextRows, Rows
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.result_memory import MemoryLease


async def collected(first: Rows, more: Callable[[NextRows], Awaitable[Rows]], drop: Callable[[NextRows], object],
                    lease: MemoryLease | None) -> Rows:
    """Return all rows of the answer.

    `more`: requests the next chunk. `drop`: makes the worker drop the rest. `lease`: first reserves the estimated
    size of all chunks. Raises WorkerUnavailable if the rest was lost with its worker.
    """
    if first.error is not None or not first.left:
        return first
    of, parts, reply = first.request, [first.rows], first
    try:
        if lease is not None:
            await lease.cover(first.rows.nbytes * (first.left + first.rows.num_rows) // first.rows.num_rows)
        while reply.left:
            reply = await more(NextRows(0, of))
            if reply.error is not None:
                raise WorkerUnavailable(reply.error.message)
            parts.append(reply.rows)
    except BaseException:
        drop(NextRows(0, of, stop=True))
        raise
    return Rows(of, pa.concat_tables(parts))
