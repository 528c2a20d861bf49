"""TRUNCATE: empties a small table in one commit and tick; replaces a large one by an empty one (section 5).

    few rows ──► one write
    many ──► an empty table instead of it (`swapping`)

Keeps true: new writes are lost with the old rows until the tables are exchanged.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold, temporary_name
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.change import ChangeResult
from noria.control.ddl.foreign_keys import ForeignKeys
from noria.control.ddl.swapping import ReplacedTable, TableSwap
from noria.core import limits
from noria.core.errors.codes import QUERY_TIMEOUT
from noria.core.statements import Clear
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.sql import commands


class Truncation:
    """Empties tables."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, swap: TableSwap, keys: ForeignKeys):
        self._catalog, self._sender, self._swap, self._keys = catalog, sender, swap, keys

    async def truncate(self, command: commands.Truncate) -> ChangeResult:
        return await self._swap.while_gone(command.name, partial(self._emptied, command.name, command))

    async def _emptied(self, name: str, command: commands.Truncate) -> None:
        self._keys.refuse_truncated(command)
        if not await self._emptied_at_once(name):
            async with self._swap.turn:
                await self._swap.swap(self._run_for(self._swap.known(name)))

    async def _emptied_at_once(self, name: str) -> bool:
        """Empty a small table with one write; False, and nothing done, for a table of many rows."""
        while True:
            async with self._sender.lock:
                if (held := self._swap.unwritten.get(fold(name))) is None:
                    write = Clear(self._swap.known(name).name, limits.TRUNCATE_AT_ONCE_ROWS)
                    reply: packets.Wrote = await self._sender.change(packets.Write((write,)))
                    break
            await held.wait()
        error = reply.results[0].error
        if error is not None and error.code != QUERY_TIMEOUT.number:
            raise error
        return error is None

    def _run_for(self, table: TableDef) -> ReplacedTable:
        number = self._catalog.next_table_id()
        return ReplacedTable(table, replace(table, name=temporary_name(table.name, number), table_id=number,
                                            first_id=1), table.name)
