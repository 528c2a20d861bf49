"""Turns the table, view or query that a read names into a plan for Spark (`reads.SourcePlanner`)."""

from __future__ import annotations

import contextlib
from pathlib import Path

from noria.core.errors import SqlError, unknown_table
from noria.core.errors.codes import NOT_SUPPORTED_YET
from noria.core.types import TableDef
from noria.server.answering.executor import Executor
from noria.server.bulk.jobs import BulkJobs
from noria.sql.commands import BatchQuery, Select, as_batch
from noria.sql.parse import parse
from noria.sql.text.databases import Names, namespace_of


class ServerSourcePlanner:
    """Plans queries against the program, and lets Spark export them.  Raises SqlError for what cannot be read."""
    def __init__(self, executor: Executor, bulk: BulkJobs):
        self._executor, self._bulk = executor, bulk

    def table(self, name: str) -> TableDef | None:
        return self._executor.program.table(self._executor.program.catalog.resolved(name))

    def query(self, kind: str, text: str, database: str = "") -> BatchQuery:
        return self._of_view(text) if kind == "view" else self._of_text(text, database)

    def _of_view(self, name: str) -> BatchQuery:
        """Return the query for all rows of all keys of a view, present or not."""
        view = self._executor.program.view(self._executor.program.catalog.resolved(name))
        if view is None:
            raise unknown_table(name)
        if view.asks is not None or view.after is not None:
            raise SqlError(*NOT_SUPPORTED_YET, f"the view {name} has conditions with parameters, so it has no one "
                                               f"content: read "
                                               "a query with values in their place (option \"query\")")
        if view.key and (view.order and view.limit is not None):
            raise SqlError(*NOT_SUPPORTED_YET,
                           f"the view {name} has a LIMIT for each key: read a query for the keys that "
                           f"are "
                           "wanted (option \"query\")")
        if view.key:
            return BatchQuery(view.plan, max(view.visible, 1 + max(view.key)))
        return as_batch(Select(view))

    def _names(self, database: str) -> Names:
        catalog = self._executor.program.catalog
        if database:
            catalog.databases.named(database)
        return Names(namespace_of(database or catalog.default_database), catalog.databases)

    def _of_text(self, text: str, database: str = "") -> BatchQuery:
        commands = parse(text, self._executor.program, True, self._names(database))
        if len(commands) != 1 or not isinstance(commands[0], Select):
            raise SqlError(*NOT_SUPPORTED_YET,
                           "the option \"query\" takes one SELECT; give a table or a view by the option "
                           "\"table\" or \"view\"")
        return as_batch(commands[0])

    def anything(self, text: str) -> tuple[BatchQuery, bool]:
        """Return the query for a table's, a view's or a query's rows, and True if it has a row for no input rows."""
        program, name = self._executor.program, text
        with contextlib.suppress(SqlError):  # it is a query
            name = program.catalog.resolved(text)
        if program.table(name) is not None:
            return self._of_text(f"SELECT * FROM {program.catalog.databases.full(name)}"), False
        if program.view(name) is not None:
            view = program.view(name)
            return self._of_view(program.catalog.databases.full(name)), view is not None and view.empty_row is not None
        if not text.strip().partition(" ")[2]:
            raise unknown_table(text)
        (select,) = parse(text, program, True, self._names(""))[:1] or (None,)
        one_row = isinstance(select, Select) and select.view is not None and select.view.empty_row is not None
        return self._of_text(text), one_row

    async def export(self, batch: BatchQuery, checkpoint: str, out: Path, files: int) -> None:
        await self._bulk.export(batch, checkpoint, out, files)

