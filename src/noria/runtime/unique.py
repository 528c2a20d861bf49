"""A UNIQUE index that a table with rows is about to have: is each of its values there once among all workers?

Keeps true: it is asked at all workers at one moment, after each has looked at its own rows (`packets.Fit`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.dataflow.packets import Done, Entries
from noria.runtime.groups import Asked

_BYTES = 16  # of an entry's hash


async def repeated(links: Sequence[Asked], table: TableDef, columns: tuple[int, ...]) -> SqlError | None:
    """Error 1062 where two workers have the same value, or why that cannot be found out."""
    replies: list[Done] = await asyncio.gather(*(link.ask(Entries(0, table, columns), True) for link in links))
    seen: set[bytes] = set()
    for link, reply in zip(links, replies, strict=True):
        if reply.error is not None:
            return reply.error
        mine = {reply.value[at : at + _BYTES] for at in range(0, len(reply.value), _BYTES)}
        if both := seen & mine:
            named: Done = await link.ask(Entries(0, table, columns, min(both)), True)
            return named.error
        seen |= mine
    return None
