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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from noria.control.catalog.names import copy_of, fold, without_numbers
from noria.control.catalog.recipe import stamped
from noria.control.ddl.truncating import Run, Truncate
from noria.control.views.texts import Change
from noria.core.errors import SqlError, table_exists, view_changed
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.plan.view import ViewDef
from noria.runtime.cluster.mirror import place_of
from noria.runtime.cluster.sharded import ShardedLink
from noria.sql import commands

_NO_TABLE = 1146


@dataclass(kw_only=True)
class _Copy(Run):
    command: commands.AlterTable


class CopyingAlter(Truncate):
    """A program that alters tables by copying their rows between workers."""

    async def _altered(self, command: commands.AlterTable) -> Change:
        if not self._moves(command):
            return await super()._altered(command)
        return await self._while_gone(command.was.name, partial(self._moved, command))

    def _moves(self, command: commands.AlterTable) -> bool:
        """True if rows move to other workers, or need numbers that are unique among all workers."""
        stay = place_of(command.was) == place_of(command.table) and command.table.numbered(command.was) is None
        return isinstance(self._link, ShardedLink) and not stay

    async def _moved(self, command: commands.AlterTable) -> None:
        self._check_move(command)
        async with self._emptying:
            await self._instead(await self._copy_for(command))

    async def _copy_for(self, command: commands.AlterTable) -> _Copy:
        number, wanted = self._next_table_id(), self._wanted(command)
        other = replace(wanted, name=copy_of(wanted.name, number), table_id=number,
                        first_id=max(wanted.first_id, await self._next_id(command.was, wanted)))
        return _Copy(command.was, other, wanted.name, command=command)

    def _wanted(self, command: commands.AlterTable) -> TableDef:
        return stamped(command.was, command.table, self.schema + 1, self._as_of.values())

    async def _next_id(self, table: TableDef, wanted: TableDef) -> int:
        """The next AUTO_INCREMENT value; 1 if the column that had it is dropped."""
        if table.auto_increment is None or wanted.columns[table.auto_increment].dropped:
            return 1
        reply: packets.Done = await self._link.ask(packets.Ask(0, "table", table.name), retry=True)
        if reply.error is not None:
            raise reply.error
        return int(reply.value["auto_increment"]) + 1

    def _check_move(self, command: commands.AlterTable) -> None:
        self._refuse_if_needed(command)
        was, table = command.was, command.table
        if fold(was.name) != fold(table.name) and (fold(table.name) in self._tables or fold(table.name) in self._views):
            raise table_exists(table.name)

    async def _switch(self, run: Run, views: Sequence[ViewDef]) -> None:
        if not isinstance(run, _Copy):
            return await super()._switch(run, views)
        self._check_move(run.command)
        assert isinstance(self._link, ShardedLink)
        try:
            async with self._link.copied(run.was, run.empty):
                run.empty = replace(self._wanted(run.command), name=run.empty.name, table_id=run.empty.table_id)
                await super()._switch(run, views)
                self._note_altered(self._tables[fold(run.name)])
        except SqlError as e:
            if e.code == _NO_TABLE:  # all workers restarted
                raise view_changed(run.was.name) from None
            raise SqlError(e.code, e.state, without_numbers(e.message)) from None
