"""Sends a worker that started its program, and leaves out views that have no first state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold, views_named
from noria.control.catalog.recipe import HistoricalCatalog, read, read_placeholder
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.restore import brought_back
from noria.control.views.adhoc import AdHocViews
from noria.control.views.readers import ViewReaders
from noria.core import limits
from noria.core.errors import Poisoned, SqlError, is_out_of_service
from noria.core.errors.codes import QUERY_TIMEOUT, UNKNOWN_ERROR
from noria.dataflow.messages import packets
from noria.plan.mir import tables_of
from noria.plan.view import ViewDef
from noria.runtime.link.link import WorkerUnavailable
from noria.sql import commands
from noria.sql.parse import parse
from noria.sql.query.relations.context import Recorder
from noria.sql.text.databases import is_stored, read_stored

ALL = ""  # all views at once


class Recovery:
    """Brings the catalog and the workers together after a restart."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, readers: ViewReaders, adhoc: AdHocViews):
        self._catalog, self._sender, self._readers, self._adhoc = catalog, sender, readers, adhoc
        self._at: str | None = None  # the view that a recovery was restoring when it was cut off

    def unfillable(self, name: str, why: BaseException) -> None:
        """Leave out a view that will have no first state while this worker lives."""
        catalog = self._catalog
        view = catalog.view_defs.get(name) or catalog.adhoc_defs.get(name)
        if view is None or isinstance(why, WorkerUnavailable) or (is_out_of_service(why) and not view.adhoc):
            return  # the worker itself rebuilds a view that is out of service
        if isinstance(why, Poisoned):  # building it ends workers
            catalog.deaths[name] = limits.POISON_DEATHS
        error = why if isinstance(why, SqlError) else SqlError(*UNKNOWN_ERROR, str(why))
        if view.adhoc and error.code == QUERY_TIMEOUT.number:
            self._adhoc.cost_too_much(view)
        catalog.leave_out(name, error)
        self._sender.unawaited((packets.DropView(view.name, error),))

    # ------------------------------------------------------------ a worker starts
    async def welcome(self, hello: packets.Hello) -> None:
        """Send a worker that started the program that its store holds, and the ad-hoc views of this front end.

        A change may be waiting for the answer of the worker that died, and hold the lock.  It is sent again after
        this, and answered as if nothing had happened.  So this takes no lock, and the catalog already has what
        the store holds of that change when its answer arrives.
        """
        catalog = self._catalog
        adhoc = list(catalog.adhoc())
        catalog.table_defs = {fold(t.name): t for t in hello.tables if not t.is_beside}
        catalog.last_table_id = max([catalog.last_table_id, *(t.table_id for t in hello.tables)])
        deaths = dict(catalog.deaths)
        for name in [*catalog.view_defs, *catalog.adhoc_defs]:
            catalog.forget(name)
        catalog.databases = read_stored(hello.recipe)
        catalog.placeholder_defs = {fold(v.name): v for v in map(read_placeholder, hello.recipe) if v is not None}
        for text, as_of, without_reader in [read(s) for s in hello.recipe if not (is_stored(s) or read_placeholder(s))]:
            for view, used in self._parse_recipe(text, as_of):
                catalog.remember(self._as_made(view), used, text, as_of, without_reader)
        for view in adhoc:
            if all(fold(t) in catalog.table_defs for t in tables_of(view.plan)):
                catalog.remember(view, set())
        catalog.deaths = deaths  # `remember` forgets them
        self._read_through()
        catalog.version += 1
        catalog.broken.clear()
        if self._at is not None:  # a worker ended while it was restored
            catalog.deaths[self._at] = catalog.deaths.get(self._at, 0) + 1
            for view in catalog.kept():
                if self._may(view):
                    await self._bring_back([view], fold(view.name))
        else:
            await self._bring_back([v for v in catalog.kept() if self._may(v)], ALL)
        self._at = None
        catalog.deaths = {n: d for n, d in catalog.deaths.items() if d >= limits.POISON_DEATHS}
        for table in [t for t in hello.tables if t.is_beside]:  # the change that made it has ended or starts again
            self._sender.unawaited((packets.DropTable(table.name),), durable=True)

    def _as_made(self, view: ViewDef) -> ViewDef:
        """The view of a recipe, with the definition number that the current change uses if it is one of that."""
        made = (m for m in self._sender.under_way if m == replace(view, definition=m.definition))
        return next(made, None) or self._catalog.numbered(view)

    def _read_through(self) -> None:
        """Mark views that can be read through another view as readerless: no worker keeps anything yet."""
        without_reader = self._catalog.without_reader
        for name, view in self._catalog.view_defs.items():
            if not (view.internal or name in without_reader) and self._catalog.lender(view, named=True) is not None:
                without_reader.add(name)

    def _may(self, view: ViewDef) -> bool:
        """True if the view may be restored; a view that ended POISON_DEATHS workers is left out."""
        deaths = self._catalog.deaths.get(fold(view.name), 0)
        if deaths >= limits.POISON_DEATHS:
            self._catalog.leave_out(fold(view.name), SqlError(*UNKNOWN_ERROR, f"it ended the worker {deaths} times"))
        return deaths < limits.POISON_DEATHS

    async def _bring_back(self, views: Sequence[ViewDef], at: str) -> None:
        """Restore views.  Those that cannot be made are left out; reads of them return the error."""
        self._at = at
        async for reply in brought_back(self._sender.link, views, self._catalog.recipe()):
            for name, why in reply.failed:
                self._catalog.leave_out(fold(name), why)
            self._readers.start_first_states(reply)

    def _parse_recipe(self, text: str, as_of: int) -> Iterator[tuple[ViewDef, set[str]]]:
        """The views of a text, each with the views that it reads.  Parsing takes most of the time of a start."""
        recorder = Recorder(HistoricalCatalog(self._catalog, as_of))
        found = parse(text, recorder)
        for command in found:
            if not isinstance(command, commands.CreateView):
                raise RuntimeError(f"the stored recipe holds something that is no view: {text}")
            several = len(found) > 1
            yield command.view, views_named(command.view.text, self._catalog, as_of) if several else recorder.views
