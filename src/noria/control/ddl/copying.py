"""ALTER TABLE that changes where rows are stored (section 6.2).

With another key, rows move to other workers, into another table.  The same is done to number rows one after the other
for a new AUTO_INCREMENT column.

    an empty table beside it, with a twin of each of its views ─► writes of the table wait ─► its rows are copied
                                                                 ─► ONE Migrate: names change ─► writes continue

Keeps true:
* Until that packet everybody reads the old rows.  If a row does not fit, the change fails and nothing has changed.
* The other table is in the catalogs of all workers, so a worker that restarts has its copied rows.  If the server ends
  meanwhile, its next start drops the table.
* Reads continue, and so do writes of other tables.  A single worker copies in the background while the table is
  written (`rekeying`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import copy_of, fold, without_numbers
from noria.control.catalog.recipe import with_change_numbers
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.change import ChangeResult
from noria.control.ddl.foreign_keys import ForeignKeys, only_keys
from noria.control.ddl.swapping import ReplacedTable, TableSwap
from noria.control.ddl.table_changes import TableChanges
from noria.core.errors import SqlError, table_exists, view_changed
from noria.core.errors.codes import NO_SUCH_TABLE
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.runtime.cluster.cluster_link import ClusterLink
from noria.runtime.cluster.mirror import place_of
from noria.sql import commands


class CopyingAlter:
    """Alters tables: in place (`TableChanges`), or by copying their rows between workers."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, tables: TableChanges, swap: TableSwap,
                 keys: ForeignKeys):
        self._catalog, self._sender, self._tables, self._swap, self._keys = catalog, sender, tables, swap, keys

    async def alter(self, command: commands.AlterTable) -> ChangeResult:
        if not self.moves(command):
            return await self._tables.alter(command)
        await self._tables.refuse_orphans_before(command)
        change = await self._swap.while_gone(command.was.name, partial(self._moved, command))
        if (made := self._catalog.table(command.table.name)) is not None:
            await self._tables.refuse_orphans(replace(command, table=made), only_keys)
        return change

    def moves(self, command: commands.AlterTable) -> bool:
        """True if rows move to other workers, or need numbers that are unique among all workers."""
        stay = place_of(command.was) == place_of(command.table) and command.table.numbered(command.was) is None
        return isinstance(self._sender.link, ClusterLink) and not stay

    async def _moved(self, command: commands.AlterTable) -> None:
        self._check(command)
        async with self._swap.turn:
            await self._swap.swap(await self._run_for(command))

    async def _run_for(self, command: commands.AlterTable) -> ReplacedTable:
        number, wanted = self._catalog.next_table_id(), self._wanted(command)
        other = replace(wanted, name=copy_of(wanted.name, number), table_id=number,
                        first_id=max(wanted.first_id, await next_id(self._sender, command.was, wanted)))
        return ReplacedTable(command.was, other, wanted.name, around=partial(self._copied, command))

    def _wanted(self, command: commands.AlterTable) -> TableDef:
        table, _ = self._keys.altered(command)
        return with_change_numbers(command.was, table, self._catalog.schema + 1, self._catalog.as_of.values())

    def _check(self, command: commands.AlterTable) -> None:
        self._tables.refuse_if_needed(command)
        old, new = fold(command.was.name), fold(command.table.name)
        if old != new and self._catalog.taken(new):
            raise table_exists(command.table.name)

    @asynccontextmanager
    async def _copied(self, command: commands.AlterTable, run: ReplacedTable) -> AsyncIterator[None]:
        """Within this context the other table has the rows, and no other change is made to either table."""
        self._check(command)
        link = self._sender.link
        assert isinstance(link, ClusterLink)
        try:
            async with link.copied(run.was, run.empty):
                run.children = self._keys.altered(command)[1]
                run.empty = replace(self._wanted(command), name=run.empty.name, table_id=run.empty.table_id)
                yield
                self._catalog.note_altered(self._catalog.table_defs[fold(run.name)])
        except SqlError as e:
            if e.code == NO_SUCH_TABLE.number:  # all workers restarted
                raise view_changed(run.was.name) from None
            raise SqlError(e.code, e.state, without_numbers(e.message)) from None


async def next_id(sender: ChangeSender, table: TableDef, wanted: TableDef) -> int:
    """The next AUTO_INCREMENT value; 1 if the column that had it is dropped."""
    if table.auto_increment is None or wanted.columns[table.auto_increment].dropped:
        return 1
    about = await sender.request(packets.Inspect(0, "table", table.name))
    return int(about["auto_increment"]) + 1
