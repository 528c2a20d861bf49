"""A catalog in two dictionaries, and tables that the SQL tests share."""

from __future__ import annotations

from dataclasses import replace

from noria.core.types import TableDef
from noria.plan.view import ViewDef
from noria.sql.commands import AlterTable, Command, CreateTable, CreateView, DropTable, DropView
from noria.sql.parse import parse
from noria.sql.text.databases import Databases, Names

HOME = Names("", Databases())


class DictCatalog:
    """Implements sql.context.Catalog; `run` applies definitions."""

    def __init__(self, *statements: str) -> None:
        self.tables: dict[str, TableDef] = {}
        self.views: dict[str, ViewDef] = {}
        for s in statements:
            self.run(s)

    def table(self, name: str) -> TableDef | None:
        return self.tables.get(name.lower())

    def view(self, name: str) -> ViewDef | None:
        return self.views.get(name.lower())

    def run(self, text: str) -> list[Command]:
        commands = parse(text, self, names=HOME)
        for c in commands:
            if isinstance(c, CreateTable):
                self.tables[c.table.name.lower()] = replace(c.table, table_id=len(self.tables) + 1)
            elif isinstance(c, CreateView):
                self.views[c.view.name.lower()] = c.view
            elif isinstance(c, DropTable):
                for n in c.names:
                    del self.tables[n.lower()]
            elif isinstance(c, DropView):
                for n in c.names:
                    del self.views[n.lower()]
        return commands

    def view_of(self, text: str) -> ViewDef:
        """The view that a CREATE VIEW or SELECT makes."""
        (command,) = self.run(text)
        view = getattr(command, "view", None)
        assert isinstance(view, ViewDef), command
        return view


def made(text: str, names: Names = HOME) -> TableDef:
    """The table that a CREATE TABLE makes."""
    (command,) = parse(text, DictCatalog(), names=names)
    assert isinstance(command, CreateTable)
    return command.table


def altered(change: str, base: str) -> TableDef:
    """The table `t`, which the statement `base` makes, after an ALTER TABLE."""
    (command,) = parse(f"ALTER TABLE t {change}", DictCatalog(base))
    assert isinstance(command, AlterTable)
    return command.table


FIGURE_2 = (
    "CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(100), url TEXT)",
    "CREATE TABLE votes (user_id INT, story_id INT)",
)
VOTE_COUNT = "CREATE INTERNAL VIEW VoteCount AS SELECT story_id, COUNT(*) AS votes FROM votes GROUP BY story_id"
STORIES_WITH_VC = ("CREATE VIEW StoriesWithVC AS SELECT id, author, title, url, votes FROM stories "
                   "JOIN VoteCount ON VoteCount.story_id = stories.id WHERE stories.id = ?")
