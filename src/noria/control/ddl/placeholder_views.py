"""Placeholder views (`sql/statements/placeholder_views.py`): stored as text in the recipe, and made when possible.

    CREATE VIEW a AS SELECT n FROM z     z is a placeholder without FROM: a waits, and reading it returns error 1356
    DROP VIEW z
    CREATE VIEW z AS SELECT … FROM t     z is made, and then a

Keeps true: such a view has no plan, so no state is kept for it and nothing builds on it.  An acknowledged one exists,
as its text or as a view, until it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold
from noria.control.catalog.recipe import stored_placeholder
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.change import ChangeResult, Warning_
from noria.control.ddl.view_changes import ViewChanges
from noria.core.errors import SqlError, table_exists
from noria.core.errors.codes import VIEW_INVALID
from noria.sql import commands
from noria.sql.parse import parse
from noria.sql.statements.placeholder_views import PlaceholderView


class PlaceholderViews:
    """Placeholder views, which `views` makes when their inputs exist."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, views: ViewChanges):
        self._catalog, self._sender, self._views = catalog, sender, views

    async def create(self, command: commands.CreatePlaceholderView) -> ChangeResult:
        """Store a view as text."""
        catalog, name = self._catalog, fold(command.name)
        async with self._sender.lock:
            if catalog.taken(name) and not (command.or_replace and name in catalog.placeholder_defs):
                raise table_exists(command.name)
            catalog.databases.of(command.name)
            view = PlaceholderView(command.name, command.text)
            await self._sender.migrate((), (*catalog.recipe([name]), stored_placeholder(view.name, view.text)))
            catalog.forget_placeholders([name])
            catalog.placeholder_defs[name] = view
            catalog.version += 1
        return ChangeResult() if view.items else ChangeResult((_waits(view.name, "it reads a view without FROM"),))

    async def made(self) -> tuple[Warning_, ...]:
        """Make the waiting views whose inputs exist now; return warnings for those that cannot be made."""
        wrong: dict[str, SqlError] = {}
        while (found := self._first_there([n for n in self._waiting() if n not in wrong], wrong)) is not None:
            name = fold(found.view.name)
            try:
                await self._views.create(replace(found, or_replace=True))
            except SqlError as e:
                wrong[name] = e
                if not self._catalog.taken(name):  # it was made, and dropped again
                    await self.create(commands.CreatePlaceholderView(found.view.name, found.text))
        placeholders = self._catalog.placeholder_defs
        return tuple(_waits(placeholders[n].name, e.message) for n, e in wrong.items() if n in placeholders)

    def _waiting(self) -> list[str]:
        """The placeholders that read a view; one without FROM needs no other and stays as it is."""
        return [name for name, view in self._catalog.placeholder_defs.items() if not view.items]

    def _first_there(self, names: Iterable[str], wrong: dict[str, SqlError]) -> commands.CreateView | None:
        """The command that makes the first of them that can be made, or None."""
        for name in names:
            try:
                (command,) = parse(self._catalog.placeholder_defs[name].text, self._catalog)
            except SqlError as e:
                wrong[name] = e
                continue
            if isinstance(command, commands.CreateView):
                return command
        return None


def _waits(name: str, why: str) -> Warning_:
    return "Warning", VIEW_INVALID.number, f"View '{name}' is not there yet: {why}"
