"""Runs each CREATE, DROP, ALTER, RENAME and TRUNCATE by the code for its kind.

Keeps true: changes happen one at a time, in the order of their arrival.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.change import ChangeResult
from noria.control.ddl.copying import CopyingAlter
from noria.control.ddl.databases import DatabaseChanges
from noria.control.ddl.placeholder_views import PlaceholderViews
from noria.control.ddl.table_changes import TableChanges
from noria.control.ddl.truncating import Truncation
from noria.control.ddl.view_changes import ViewChanges
from noria.sql import commands


class Definitions:
    """Runs commands; then placeholder views are made whose inputs exist now."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, tables: TableChanges, views: ViewChanges,
                 placeholders: PlaceholderViews, alter: CopyingAlter, truncate: Truncation, databases: DatabaseChanges):
        self._catalog, self._sender, self._placeholders = catalog, sender, placeholders
        self._handlers: dict[type, Callable[[Any], Awaitable[ChangeResult]]] = {
            commands.CreateTable: tables.create, commands.DropTable: tables.drop, commands.RenameTables: tables.rename,
            commands.AlterTable: alter.alter, commands.Truncate: truncate.truncate, commands.CreateView: views.create,
            commands.DropView: views.drop, commands.CreatePlaceholderView: placeholders.create,
            commands.CreateDatabase: databases.create, commands.AlterDatabase: databases.alter,
            commands.DropDatabase: databases.drop}

    async def define(self, command: commands.Command) -> ChangeResult:
        """Run a command.  After a SqlError the program is unchanged.  So it is after a cancellation, unless it was too
        late: then the result is returned."""
        return await self._sender.complete_or_undo(asyncio.ensure_future(self._define(command)))

    async def _define(self, command: commands.Command) -> ChangeResult:
        change = await self._handlers[type(command)](command)
        if isinstance(command, commands.Truncate) or not self._catalog.placeholder_defs:
            return change
        return replace(change, warnings=(*change.warnings, *await self._placeholders.made()))
