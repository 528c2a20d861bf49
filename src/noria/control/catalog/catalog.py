"""The catalog: tables, named views with their texts, ad-hoc views, and which of them answers a SELECT."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from noria.control.catalog.names import fold
from noria.control.catalog.recipe import stored, stored_placeholder
from noria.control.catalog.view_index import ViewIndex, has_columns, reading
from noria.control.catalog.worker_view import columns_needed
from noria.core.errors import PlaceholderViewError, SqlError
from noria.core.limits import KEPT_PLANS
from noria.core.types import TableDef
from noria.plan.mir import Mir, TopK, tables_of
from noria.plan.optimizer import comparison_form, kept_top
from noria.plan.view import ViewDef
from noria.sql.program.export import ExportedView, current_text
from noria.sql.statements.placeholder_views import PlaceholderView
from noria.sql.text.databases import HOME, Databases

log = logging.getLogger(__name__)
# A prepared SELECT is matched again at each execution.
_comparison_form = lru_cache(maxsize=KEPT_PLANS)(comparison_form)


class NamedRelations:
    """Tables, and named views in the order of their creation, by folded names.

    Placeholder views, which are stored only as text, are kept apart; `view` raises PlaceholderViewError for them.
    """

    def __init__(self, tables: dict[str, TableDef], views: dict[str, ViewDef],
                 placeholders: dict[str, PlaceholderView]):
        self.table_defs, self.view_defs, self.placeholder_defs = tables, views, placeholders
        self.databases = Databases()

    def taken(self, name: str) -> bool:
        """True if a table or view has this folded name."""
        return name in self.table_defs or name in self.view_defs or name in self.placeholder_defs

    def table(self, name: str) -> TableDef | None:
        return self.table_defs.get(fold(name))

    def view(self, name: str) -> ViewDef | None:
        found = self.view_defs.get(fold(name))
        if found is None and (waits := self.placeholder_defs.get(fold(name))) is not None:
            raise PlaceholderViewError(waits.name, waits.text)
        return found

    def placeholder_view(self, name: str) -> PlaceholderView | None:
        return self.placeholder_defs.get(fold(name))

    def tables(self) -> Iterable[TableDef]:
        return self.table_defs.values()

    def views(self) -> Iterable[ViewDef]:
        return self.view_defs.values()

    def placeholder_views(self) -> Iterable[PlaceholderView]:
        return self.placeholder_defs.values()


class UnfilledViews(Protocol):
    """The views without a first state, as the catalog needs them."""

    def is_unfilled(self, view: ViewDef) -> bool: ...

    def forget(self, name: str) -> None: ...


class ProgramCatalog(NamedRelations):
    """The tables and views that statements are parsed against.

    It is data: whoever changes the program updates it when the worker has acknowledged the change.

    `version` grows with every change of a named object: statements of another version are parsed again.
    `generation` grows when any view is dropped: readers found under another one are looked for again.

    A named view may have no reader: because nobody has read it, or because another view's reader has its rows or more
    (`plan/reuse/lookups/through.py`).
    """

    def __init__(self, filling: UnfilledViews) -> None:
        super().__init__({}, {}, {})
        self._filling = filling
        self.texts: dict[str, str] = {}  # named view -> its CREATE VIEW
        self.uses: dict[str, set[str]] = {}  # named view -> named views its text reads
        self.as_of: dict[str, int] = {}  # named view -> the number of column changes when its text was written
        self.adhoc_defs: OrderedDict[str, ViewDef] = OrderedDict()  # least recently used first
        self.held = ViewIndex()  # of views that can be read
        self.without_reader: set[str] = set()  # named views; internal ones never have a reader
        self.explanations: dict[str, str] = {}
        self.broken: dict[str, SqlError] = {}  # views without a first state, and why
        self.deaths: dict[str, int] = {}  # how many workers ended while this view was restored
        self.last_table_id = 0
        self.default_database = HOME  # of sessions that name none
        self._definitions = 0
        self._beneath: dict[str, frozenset[int]] = {}  # the tables of each view that is looked up
        self._comparison_forms: dict[str, Mir] = {}  # of views that were compared by it
        self._defined_anew: set[int] = set()  # tables that were redefined since this process started
        self._version = self.generation = 0
        self.on_forget: Callable[[ViewDef], None] = lambda view: None  # called with each dropped definition
        self.on_version: Callable[[int], None] = lambda version: None  # called at once with each new version

    @property
    def version(self) -> int:
        """The version of the program (see the class)."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._version = version
        self.on_version(version)

    def now(self) -> NamedRelations:
        """A copy of the current tables and views."""
        found = NamedRelations(dict(self.table_defs), dict(self.view_defs), dict(self.placeholder_defs))
        found.databases = self.databases
        return found

    def resolved(self, name: str) -> str:
        """The catalog's name for a client's name of a table or view (`Databases.resolved`)."""
        return self.databases.resolved(name, self.default_database)

    def to_make(self, name: str) -> str:
        """The name of a new table for `created` of Spark's source: with its database, if that is not everybody's."""
        home = self.default_database == HOME and self.databases.split(name)[1] == name
        return name if home else self.databases.full(name)

    def database_names(self) -> tuple[str, ...]:
        """The folded names of the databases.  The first is that of clients that name none, whether it exists or not."""
        return (fold(self.default_database), *self.databases.known)

    def adhoc(self) -> Iterable[ViewDef]:
        return self.adhoc_defs.values()

    def adhoc_named(self, name: str) -> ViewDef | None:
        return self.adhoc_defs.get(fold(name))

    def explanation(self, view: str) -> str:
        """How the view is kept: partial or full, and why; what it shares."""
        return self.why_readerless(view) or self.explanations.get(fold(view), "")

    def why_readerless(self, view: str) -> str:
        """Why the view has no reader; empty if it has one or is internal."""
        if fold(view) not in self.without_reader:
            return ""
        mine = self.view_defs[fold(view)]
        donor = self.match(mine)
        if donor is None:
            return "not looked up in yet: it keeps nothing"
        some = reading(donor, mine)
        return f"its rows are those of {donor.name}" if some is None else (
            f"its rows are found in those of {donor.name}: {some.show(donor)}")

    def read_through(self, reader: ViewDef) -> list[ViewDef]:
        """The named views that are read through this view's reader and have none of their own."""
        views = (v for n, v in self.view_defs.items() if n in self.without_reader)
        return [v for v in views if (found := self.match(v)) is not None and found.name == reader.name]

    def reader_now(self, view: ViewDef) -> ViewDef | None:
        """The view whose reader has the rows of this named view; None if there is none yet."""
        return self.match(view) if fold(view.name) in self.without_reader else view

    def recipe(self, without: Collection[str] = (), more: str = "", without_reader: bool = False,
               read: Collection[str] = (), databases: Databases | None = None) -> tuple[str, ...]:
        """The databases, and the statements that make the views, except `without`, followed by `more`.

        without_reader: the view of `more` has no reader; read: views that have a reader from now on.  databases:
        instead of the catalog's.
        """
        kept = [stored(self.texts[n], self.as_of[n], n in self.without_reader and n not in read)
                for n in self.view_defs if n not in without]
        kept += [stored_placeholder(v.name, v.text) for n, v in self.placeholder_defs.items() if n not in without]
        kept = [*(self.databases if databases is None else databases).stored(), *kept]
        return (*kept, stored(more, self.schema, without_reader)) if more else tuple(kept)

    @property
    def schema(self) -> int:
        """The number of column and name changes so far, as far as it is recorded.

        A text means what it meant after as many changes as when it was written.
        """
        return max([0, *self.as_of.values(), *(t.changed for t in self.table_defs.values())])

    def create_text(self, view: ViewDef) -> str:
        """The CREATE VIEW of a named view, with current names if possible."""
        name = fold(view.name)
        kept = ExportedView(name, self.texts[name], self.as_of[name])
        return current_text(kept, self.table_defs, self.view_defs) or kept.text

    def match(self, wanted: ViewDef) -> ViewDef | None:
        """A view whose reader holds the rows that a SELECT or another view reads, exactly or with more (`reading`).

        Views with a first state are preferred.
        """
        first: ViewDef | None = None
        for found in self._answering(wanted):
            if fold(found.name) in self.without_reader:
                continue
            first = first or found
            if self.is_filled(found):
                first = found
                break
        if first is not None:
            self.touch(first)
            return first
        mine = self.view_defs.get(fold(wanted.name))
        lender = self.lender(wanted, named=mine is not None and mine.plan == wanted.plan)
        if lender is not None:
            self.touch(lender)
        return lender

    def lender(self, wanted: ViewDef, named: bool) -> ViewDef | None:
        """The view whose reader has the wanted rows among more rows or columns: the one with the fewest columns.

        named: a named view is wanted; it may only be read through named views, which may lack a first state.
        """
        readers = [n for n in self.held.others(wanted) if n not in self.without_reader]
        views = [self.view_defs[n] for n in readers if n in self.view_defs and not (named and n == fold(wanted.name))]
        if not named:
            adhoc = [self.adhoc_defs[n] for n in readers if n in self.adhoc_defs]
            views = [v for v in (*views, *adhoc) if self.is_filled(v)]
        return min(views, key=lambda v: (v.adhoc, columns_needed(v), v.name), default=None)

    def is_filled(self, view: ViewDef) -> bool:
        """True if the view has its first state."""
        return not self._filling.is_unfilled(view)

    def readerless(self, wanted: ViewDef) -> ViewDef | None:
        """A named view without a reader that would hold the wanted rows; `wanted` itself if it is one.

        Views that hold more are considered only if they keep few rows: another view's reader may cost far more.
        """
        found = [v for v in self._answering(wanted) if fold(v.name) in self.without_reader]
        if not found:
            more = [self.view_defs[n] for n in self.held.others(wanted) if n in self.without_reader]
            found = [v for v in more if isinstance(v.plan, TopK)]
        return next((v for v in found if v.name == wanted.name), found[0] if found else None)

    def holding(self, wanted: ViewDef) -> Iterator[ViewDef]:
        """Views that hold exactly the wanted rows."""
        for name in self.held.same(wanted):
            yield self.view_defs.get(name) or self.adhoc_defs[name]

    def _answering(self, wanted: ViewDef) -> Iterator[ViewDef]:
        """`holding`, and views made before a table was altered, if neither view uses what changed."""
        yield from self.holding(wanted)
        if not any(t.altered or t.table_id in self._defined_anew for t in tables_of(wanted.plan).values()):
            return
        views = (*self.view_defs.values(), *self.adhoc_defs.values())
        of_key = [v for v in views if v.key == wanted.key and not v.internal]
        plans = {_comparison_form(p) for p in (wanted.plan, kept_top(wanted).plan)} if of_key else set()
        for found in of_key:
            name = fold(found.name)
            if name not in self._comparison_forms:
                self._comparison_forms[name] = comparison_form(found.plan)
            if self._comparison_forms[name] in plans and name not in self.broken and has_columns(found, wanted):
                yield found

    def is_read_beside(self, wanted: ViewDef) -> bool:
        """True if some view reads exactly the tables of this one."""
        return _ids(wanted) in self._beneath.values()

    def touch(self, view: ViewDef) -> None:
        """Mark an ad-hoc view as most recently used."""
        if view.adhoc and fold(view.name) in self.adhoc_defs:
            self.adhoc_defs.move_to_end(fold(view.name))

    def kept(self) -> list[ViewDef]:
        """The views that a worker has: named views with a reader, and ad-hoc ones."""
        return [*(v for n, v in self.view_defs.items() if n not in self.without_reader), *self.adhoc_defs.values()]

    def adhoc_over(self, tables: Iterable[str]) -> list[str]:
        """Folded names of the ad-hoc views that read one of these tables, which have folded names."""
        some = {*tables}
        return [n for n, v in self.adhoc_defs.items() if some & {fold(t) for t in tables_of(v.plan)}]

    # ------------------------------------------------------------ bookkeeping
    def numbered(self, view: ViewDef) -> ViewDef:
        """The view with a new definition number."""
        self._definitions += 1
        return replace(view, definition=self._definitions)

    def next_table_id(self) -> int:
        self.last_table_id += 1
        return self.last_table_id

    def remember(self, view: ViewDef, used: set[str], text: str = "", as_of: int | None = None,
                 without_reader: bool = False) -> None:
        """Add a view.  used: the named views that its text reads; as_of: the column changes it was written after."""
        name = fold(view.name)
        self.forget(name)
        if view.adhoc:
            self.adhoc_defs[name] = view
        else:
            self.view_defs[name] = view
            self.uses[name], self.texts[name] = used, text
            self.as_of[name] = self.schema if as_of is None else as_of
            if without_reader:
                self.without_reader.add(name)
        if not view.internal:
            self._beneath[name] = _ids(view)
            self.held.add(name, view)

    def note_altered(self, table: TableDef) -> None:
        """Record that the table was redefined."""
        there = {t.table_id for t in self.table_defs.values()}
        self._defined_anew = (self._defined_anew | {table.table_id}) & there

    def rename_table(self, table: str, name: str) -> None:
        """Rename a table in all plans."""
        for views in (self.view_defs, self.adhoc_defs):
            for known, view in list(views.items()):
                views[known] = view.with_table(table, name)

    def redefine(self, view: ViewDef) -> None:
        """Replace the plan of a named view, at its place in the order: other views build on it."""
        name = fold(view.name)
        old = self.view_defs[name]
        self.view_defs[name] = view
        self._comparison_forms.pop(name, None)
        self.generation += 1
        self.on_forget(old)
        if not view.internal:
            self._beneath[name] = _ids(view)
        if name in self.held:  # else it answers no other text
            self.held.add(name, view)

    def forget(self, name: str) -> None:
        """Forget a dropped view by its folded name, and whoever waits for its first state."""
        self._filling.forget(name)
        self.deaths.pop(name, None)
        view = self.view_defs.pop(name, None) or self.adhoc_defs.pop(name, None)
        if view is None:
            return
        self.uses.pop(name, None)
        self.texts.pop(name, None)
        self.as_of.pop(name, None)
        self.explanations.pop(name, None)
        self._comparison_forms.pop(name, None)
        self._beneath.pop(name, None)
        self.broken.pop(name, None)
        self.without_reader.discard(name)
        self.generation += 1
        self.on_forget(view)
        self.held.remove(name)

    def forget_placeholders(self, names: Iterable[str]) -> None:
        """Forget placeholder views by their folded names."""
        gone = [self.placeholder_defs.pop(n) for n in names if n in self.placeholder_defs]
        self.version += bool(gone)

    def gain_reader(self, view: ViewDef, of: ViewDef | None = None) -> None:
        """Record that a named view has a reader of this definition.  of: the view whose reader it was."""
        name, source = fold(view.name), view if of is None else of
        self.view_defs[name] = replace(self.view_defs[name], definition=source.definition)  # at its place in the order
        self.without_reader.discard(name)
        if of is not None and (explanation := self.explanations.get(fold(of.name))):
            self.explanations[name] = explanation.replace(f"reader {of.name}", f"reader {view.name}")

    def lose_reader(self, name: str) -> None:
        """Record that a named view lost its reader, as if it had not been read."""
        view = self.view_defs[name]
        self.without_reader.add(name)
        self.broken.pop(name, None)
        self.explanations.pop(name, None)
        self.held.add(name, view)
        self.generation += 1
        self.on_forget(view)

    def leave_out(self, name: str, why: SqlError) -> None:
        """Record that a view has no first state: forget an ad-hoc view; reads of a named one return the error."""
        if name in self.adhoc_defs:
            log.info("ad-hoc view %s has no first state: %s", name, why.message)
            self.forget(name)
            return
        log.error("view %s has no first state: %s", name, why.message)
        self.broken[name] = why
        self.held.remove(name)


def _ids(view: ViewDef) -> frozenset[int]:
    return frozenset(t.table_id for t in tables_of(view.plan).values())
