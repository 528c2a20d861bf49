"""Turns the table, view or query that a read names into a plan for Spark (`reads.Asks`)."""

from __future__ import annotations

from pathlib import Path

from noria.core.errors import SqlError, unknown_table
from noria.core.errors.codes import NOT_SUPPORTED_YET
from noria.core.identifiers import quote_identifier
from noria.core.types import TableDef
from noria.server.answering.executor import Executor
from noria.server.bulk.jobs import Bulk
from noria.sql.commands import BatchQuery, Select, as_batch
from noria.sql.parse import parse


class Asking:
    """Plans queries against the program, and lets Spark export them.  Raises SqlError for what cannot be read."""
    def __init__(self, executor: Executor, bulk: Bulk):
        self._executor, self._bulk = executor, bulk

    def table(self, name: str) -> TableDef | None:
        return self._executor.program.table(name)

    def query(self, kind: str, text: str) -> BatchQuery:
        return self._of_view(text) if kind == "view" else self._of_text(text)

    def _of_view(self, name: str) -> BatchQuery:
        """Return the query for all rows of all keys of a view, present or not."""
        view = self._executor.program.view(name)
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

    def _of_text(self, text: str) -> BatchQuery:
        commands = parse(text, self._executor.program, complete=True)
        if len(commands) != 1 or not isinstance(commands[0], Select):
            raise SqlError(*NOT_SUPPORTED_YET,
                           "the option \"query\" takes one SELECT; give a table or a view by the option "
                           "\"table\" or \"view\"")
        return as_batch(commands[0])

    def anything(self, text: str) -> tuple[BatchQuery, bool]:
        """Return the query for a table's, a view's or a query's rows, and True if it has a row for no input rows."""
        program = self._executor.program
        if program.table(text) is not None:
            return self._of_text(f"SELECT * FROM {quote_identifier(text)}"), False
        if program.view(text) is not None:
            view = program.view(text)
            return self._of_view(text), view is not None and view.empty_row is not None
        if not text.strip().partition(" ")[2]:
            raise unknown_table(text)
        (select,) = parse(text, program, complete=True)[:1] or (None,)
        one_row = isinstance(select, Select) and select.view is not None and select.view.empty_row is not None
        return self._of_text(text), one_row

    async def export(self, batch: BatchQuery, checkpoint: str, out: Path, files: int) -> None:
        await self._bulk.export(batch, checkpoint, out, files)

