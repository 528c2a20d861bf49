"""Placeholder views (`sql/statements/text_views.py`): stored as text in the recipe, and made when that is possible.

    CREATE VIEW a AS SELECT n FROM z     z is a placeholder without FROM: a waits, and reading it returns error 1356
    DROP VIEW z
    CREATE VIEW z AS SELECT … FROM t     z is made, and then a

Keeps true: such a view has no plan, so no state is kept for it and nothing builds on it.  An acknowledged one exists,
as its text or as a view, until it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from noria.control.catalog.names import fold
from noria.control.catalog.recipe import stored_text
from noria.control.views.readers import Readers
from noria.core.errors import SqlError, table_exists
from noria.sql import commands
from noria.sql.parse import parse
from noria.sql.statements.text_views import TextView

Warning_ = tuple[str, int, str]


@dataclass(frozen=True)
class Change:
    """The result of a change: warnings as (level, code, message)."""

    warnings: tuple[Warning_, ...] = ()


class Texts(Readers):
    async def _defined(self, command: commands.Command) -> Change:
        raise NotImplementedError

    def _taken(self, name: str) -> bool:
        """True if a table or view has this folded name."""
        return name in self._tables or name in self._views or name in self._as_text

    async def _create_text_view(self, command: commands.CreateTextView) -> Change:
        name = fold(command.name)
        if self._taken(name) and not (command.or_replace and name in self._as_text):
            raise table_exists(command.name)
        view = TextView(command.name, command.text)
        await self._migrate((), (*self.recipe([name]), stored_text(view.name, view.text)))
        self._forget_texts([name])
        self._as_text[name] = view
        self.version += 1
        return Change() if view.items else Change((_waits(view.name, "it reads a view without FROM"),))

    def _forget_texts(self, names: Iterable[str]) -> None:
        gone = [self._as_text.pop(n) for n in names if n in self._as_text]
        self.version += bool(gone)

    async def _made_of_texts(self) -> tuple[Warning_, ...]:
        """Make the waiting views whose inputs exist now; return warnings for those that cannot be made."""
        wrong: dict[str, SqlError] = {}
        while (found := self._first_there([n for n in self._waiting() if n not in wrong], wrong)) is not None:
            name = fold(found.view.name)
            try:
                await self._defined(replace(found, or_replace=True))
            except SqlError as e:
                wrong[name] = e
                if not self._taken(name):  # it was made, and dropped again
                    async with self._lock:
                        await self._create_text_view(commands.CreateTextView(found.view.name, found.text))
        return tuple(_waits(self._as_text[n].name, e.message) for n, e in wrong.items() if n in self._as_text)

    def _waiting(self) -> list[str]:
        """The placeholders that read a view; one without FROM needs no other and stays as it is."""
        return [name for name, view in self._as_text.items() if not view.items]

    def _first_there(self, names: Iterable[str], wrong: dict[str, SqlError]) -> commands.CreateView | None:
        """The command that makes the first of them that can be made, or None."""
        for name in names:
            try:
                (command,) = parse(self._as_text[name].text, self)
            except SqlError as e:
                wrong[name] = e
                continue
            if isinstance(command, commands.CreateView):
                return command
        return None


def _waits(name: str, why: str) -> Warning_:
    return "Warning", 1356, f"View '{name}' is not there yet: {why}"
