"""The program of tables and views: builds its parts, and passes the requests of the server to them (section 5).

A change is one `Migrate` packet.  The worker plans and applies it, and stores the recipe (the CREATE VIEW statements of
the program) in the same commit as the tables.  Keeps true: the catalog has what the worker has acknowledged.

    ProgramCatalog tables and views as data; waits for nothing
    ChangeSender   one change at a time, over the link
    views          ViewReaders, AdHocViews: which views have a reader; FirstStates: who waits for it
    ddl            Definitions: from a command to TableChanges, CopyingAlter, Truncate, ViewChanges, PlaceholderViews
                   TableRewrites: large UPDATEs and DELETEs; Recovery: a worker starts
    apply          ProgramApply: the program as one text
"""

from __future__ import annotations

from noria.control.apply.program_apply import ProgramApply
from noria.control.catalog.catalog import ProgramCatalog
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.copying import CopyingAlter
from noria.control.ddl.databases import DatabaseChanges
from noria.control.ddl.definitions import Definitions
from noria.control.ddl.foreign_keys import ForeignKeys
from noria.control.ddl.placeholder_views import PlaceholderViews
from noria.control.ddl.recovery import Recovery
from noria.control.ddl.rewriting import TableRewrites
from noria.control.ddl.shadow_views import ShadowViews
from noria.control.ddl.swapping import TableSwap
from noria.control.ddl.table_changes import TableChanges
from noria.control.ddl.truncating import Truncation
from noria.control.ddl.view_changes import ViewChanges
from noria.control.views.adhoc import AdHocViews
from noria.control.views.first_states import FirstStates
from noria.control.views.readers import ViewReaders
from noria.core import limits
from noria.runtime.link.link import Link


class Program:
    """The program.  adhoc_views: how many there may be; hold_ms: how long the worker may take to make one.

    Its methods are those of its parts, bound here, so that a call of one costs no other call.
    """

    def __init__(self, link: Link, adhoc_views: int = limits.ADHOC_VIEWS, hold_ms: int = limits.READ_HOLD_MS):
        self.first_states = states = FirstStates(link)
        self.catalog = catalog = ProgramCatalog(states)
        self.sender = sender = ChangeSender(link, catalog)
        readers = ViewReaders(catalog, sender, states)
        self.adhoc_views = adhoc = AdHocViews(catalog, sender, states, readers, adhoc_views, hold_ms)
        self.shadow_views = shadow_views = ShadowViews(states)
        self.swap = swap = TableSwap(catalog, sender, shadow_views)
        self.foreign_keys = keys = ForeignKeys(catalog)
        self.table_changes = tables = TableChanges(catalog, sender, shadow_views, keys)
        self.view_changes = views = ViewChanges(catalog, sender, readers, shadow_views)
        alter = CopyingAlter(catalog, sender, tables, swap, keys)
        definitions = Definitions(catalog, sender, tables, views, PlaceholderViews(catalog, sender, views), alter,
                                  Truncation(catalog, sender, swap, keys),
                                  databases := DatabaseChanges(catalog, sender, readers, shadow_views, views, keys))
        self.rewriting = rewriting = TableRewrites(catalog, sender, states, swap)
        self.applying = applying = ProgramApply(catalog, sender, states, readers, shadow_views, tables, alter,
                                                databases, keys)
        recovery = Recovery(catalog, sender, readers, adhoc)
        states.on_failed, states.on_unwanted = recovery.unfillable, adhoc.unwanted

        self.table, self.tables, self.placeholder_view = catalog.table, catalog.tables, catalog.placeholder_view
        self.view, self.views = catalog.view, catalog.views
        self.adhoc, self.adhoc_named = catalog.adhoc, catalog.adhoc_named
        self.match, self.touch, self.readerless = catalog.match, catalog.touch, catalog.readerless
        self.reader_now, self.read_through = catalog.reader_now, catalog.read_through
        self.explanation, self.why_readerless = catalog.explanation, catalog.why_readerless
        self.wants_one_shot, self.expected, self.rehearsed = adhoc.wants_one_shot, adhoc.expected, adhoc.rehearsed
        self.reader, self.reader_of, self.read_many = adhoc.reader, adhoc.reader_of, adhoc.read_many
        self.patience_s, self.patience_of, self.make_room = adhoc.patience_s, adhoc.patience_of, adhoc.make_room
        self.wait_until_idle, self.history = sender.wait_until_idle, sender.history
        self.define = definitions.define
        self.may_rewrite, self.rewrite = rewriting.may_rewrite, rewriting.rewrite
        self.is_large = rewriting.is_large
        self.preview, self.apply, self.exported = applying.preview, applying.apply, applying.exported
        self.next_number = applying.next_number
        self.welcome = recovery.welcome

    def accounts_changed(self) -> None:
        """Let every text be planned, and checked, again."""
        self.catalog.version += 1

    @property
    def version(self) -> int:
        """See `ProgramCatalog`."""
        return self.catalog.version
