"""Results that come in pieces, as one: the next piece is asked for when there is room for the whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa

from noria.dataflow.messages.packets import More, Rows
from noria.runtime.link.changes import WorkerGone
from noria.runtime.link.room import Lease


async def collected(first: Rows, more: Callable[[More], Awaitable[Rows]], drop: Callable[[More], object],
                    lease: Lease | None) -> Rows:
    """The whole answer.  more: asks for the next piece; drop: tells the worker that nobody wants the rest; lease:
    covers about what the whole takes, before it is asked for.  WorkerGone: the rest went with its worker."""
    if first.error is not None or not first.left:
        return first
    of, parts, reply = first.request, [first.rows], first
    try:
        if lease is not None:
            await lease.cover(first.rows.nbytes * (first.left + first.rows.num_rows) // first.rows.num_rows)
        while reply.left:
            reply = await more(More(0, of))
            if reply.error is not None:
                raise WorkerGone(reply.error.message)
            parts.append(reply.rows)
    except BaseException:
        drop(More(0, of, stop=True))
        raise
    return Rows(of, pa.concat_tables(parts))
