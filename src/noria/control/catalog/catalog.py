"""The catalog: tables, named views with their texts, ad-hoc views, and which of them answers a SELECT."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from noria.control.catalog.holding import ViewIndex, has_columns, reading
from noria.control.catalog.names import fold
from noria.control.catalog.published import columns_asked
from noria.control.catalog.recipe import stored, stored_text
from noria.core.errors import KeptAsText, SqlError
from noria.core.types import TableDef
from noria.plan.mir import Mir, TopK, tables_of
from noria.plan.optimizer import essence, kept_top
from noria.plan.view import ViewDef
from noria.sql.statements.text_views import TextView
from noria.sql.whole.exported import Kept, text_of_now

log = logging.getLogger(__name__)


class Relations:
    """Tables, and named views in the order of their creation, by folded names.

    Placeholder views, which are stored only as text, are kept apart; `view` raises KeptAsText for them.
    """

    def __init__(self, tables: dict[str, TableDef], views: dict[str, ViewDef], as_text: dict[str, TextView]):
        self._tables, self._views, self._as_text = tables, views, as_text

    def table(self, name: str) -> TableDef | None:
        return self._tables.get(fold(name))

    def view(self, name: str) -> ViewDef | None:
        found = self._views.get(fold(name))
        if found is None and (waits := self._as_text.get(fold(name))) is not None:
            raise KeptAsText(waits.name, waits.text)
        return found

    def text_view(self, name: str) -> TextView | None:
        return self._as_text.get(fold(name))

    def tables(self) -> Iterable[TableDef]:
        return self._tables.values()

    def views(self) -> Iterable[ViewDef]:
        return self._views.values()

    def text_views(self) -> Iterable[TextView]:
        return self._as_text.values()


class Catalog(Relations):
    """The tables and views that statements are parsed against.

    `version` grows with every change of a named object: statements of another version are parsed again.
    `generation` grows when any view is dropped: readers found under another one are looked for again.

    A named view may have no reader: because nobody has read it, or because another view's reader has its rows or more
    (`plan/reuse/through.py`).
    """

    def __init__(self) -> None:
        super().__init__({}, {}, {})
        self._texts: dict[str, str] = {}  # named view -> its CREATE VIEW
        self._uses: dict[str, set[str]] = {}  # named view -> named views its text reads
        self._as_of: dict[str, int] = {}  # named view -> the number of column changes when its text was written
        self._adhoc: OrderedDict[str, ViewDef] = OrderedDict()  # least recently used first
        self._held = ViewIndex()  # of views that can be read
        self._readerless: set[str] = set()  # named views without a reader, except internal ones, which never have one
        self._beneath: dict[str, frozenset[int]] = {}  # the tables of each view that is looked up
        self._essences: dict[str, Mir] = {}  # of views that were compared by it
        self._defined_anew: set[int] = set()  # tables that were redefined since this process started
        self._explain: dict[str, str] = {}
        self._broken: dict[str, SqlError] = {}  # views without a first state, and why
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

    def now(self) -> Relations:
        """A copy of the current tables and views."""
        return Relations(dict(self._tables), dict(self._views), dict(self._as_text))

    def adhoc(self) -> Iterable[ViewDef]:
        return self._adhoc.values()

    def adhoc_named(self, name: str) -> ViewDef | None:
        return self._adhoc.get(fold(name))

    def explanation(self, view: str) -> str:
        """How the view is kept: partial or full, and why; what it shares."""
        return self.why_readerless(view) or self._explain.get(fold(view), "")

    def why_readerless(self, view: str) -> str:
        """Why the view has no reader; empty if it has one or is internal."""
        if fold(view) not in self._readerless:
            return ""
        mine = self._views[fold(view)]
        donor = self.match(mine)
        if donor is None:
            return "not looked up in yet: it keeps nothing"
        some = reading(donor, mine)
        return f"its rows are those of {donor.name}" if some is None else (
            f"its rows are found in those of {donor.name}: {some.show(donor)}")

    def read_through(self, reader: ViewDef) -> list[ViewDef]:
        """The named views that are read through this view's reader and have none of their own."""
        unread = (v for n, v in self._views.items() if n in self._readerless)
        return [v for v in unread if (found := self.match(v)) is not None and found.name == reader.name]

    def reader_now(self, view: ViewDef) -> ViewDef | None:
        """The view whose reader has the rows of this named view; None if there is none yet."""
        return self.match(view) if fold(view.name) in self._readerless else view

    def recipe(self, without: Collection[str] = (), more: str = "", unread: bool = False, read: Collection[str] = ()
               ) -> tuple[str, ...]:
        """The statements that make the views, except `without`, followed by `more`.

        unread: the view of `more` has no reader; read: views that have a reader from now on.
        """
        kept = [stored(self._texts[n], self._as_of[n], n in self._readerless and n not in read)
                for n in self._views if n not in without]
        kept += [stored_text(v.name, v.text) for n, v in self._as_text.items() if n not in without]
        return (*kept, stored(more, self.schema, unread)) if more else tuple(kept)

    @property
    def schema(self) -> int:
        """The number of column and name changes so far, as far as it is recorded.

        A text means what it meant after as many changes as when it was written.
        """
        found = [0, *self._as_of.values()]
        for t in self._tables.values():
            found += [t.made, *(p.before for p in t.past), *(max(c.added, c.dropped) for c in t.columns)]
        return max(found)

    def create_text(self, view: ViewDef) -> str:
        """The CREATE VIEW of a named view, with current names if possible."""
        name = fold(view.name)
        kept = Kept(name, self._texts[name], self._as_of[name])
        return text_of_now(kept, self._tables, self._views) or kept.text

    def match(self, wanted: ViewDef) -> ViewDef | None:
        """A view whose reader holds what a SELECT or another view asks for, exactly or with more (`reading`).

        Views with a first state are preferred.
        """
        first: ViewDef | None = None
        for found in self._answering(wanted):
            if fold(found.name) in self._readerless:
                continue
            first = first or found
            if self._is_whole(found):
                first = found
                break
        if first is not None:
            self.touch(first)
            return first
        mine = self._views.get(fold(wanted.name))
        lender = self._lender(wanted, named=mine is not None and mine.plan == wanted.plan)
        if lender is not None:
            self.touch(lender)
        return lender

    def _lender(self, wanted: ViewDef, named: bool) -> ViewDef | None:
        """The view whose reader has the wanted rows among more rows or columns: the one with the fewest columns.

        named: a named view is wanted; it may only be read through named views, which may lack a first state.
        """
        readers = [n for n in self._held.others(wanted) if n not in self._readerless]
        views = [self._views[n] for n in readers if n in self._views and not (named and n == fold(wanted.name))]
        if not named:
            views = [v for v in (*views, *(self._adhoc[n] for n in readers if n in self._adhoc)) if self._is_whole(v)]
        return min(views, key=lambda v: (v.adhoc, columns_asked(v), v.name), default=None)

    def _is_whole(self, view: ViewDef) -> bool:
        """True if the view has its first state."""
        raise NotImplementedError

    def readerless(self, wanted: ViewDef) -> ViewDef | None:
        """A named view without a reader that would hold the wanted rows; `wanted` itself if it is one.

        Views that hold more are considered only if they keep few rows: another view's reader may cost far more.
        """
        found = [v for v in self._answering(wanted) if fold(v.name) in self._readerless]
        if not found:
            more = [self._views[n] for n in self._held.others(wanted) if n in self._readerless]
            found = [v for v in more if isinstance(v.plan, TopK)]
        return next((v for v in found if v.name == wanted.name), found[0] if found else None)

    def _holding(self, wanted: ViewDef) -> Iterator[ViewDef]:
        """Views that hold exactly what is asked for."""
        for name in self._held.same(wanted):
            yield self._views.get(name) or self._adhoc[name]

    def _answering(self, wanted: ViewDef) -> Iterator[ViewDef]:
        """`_holding`, and views made before a table was altered, if neither view uses what changed."""
        yield from self._holding(wanted)
        if not any(t.altered or t.table_id in self._defined_anew for t in tables_of(wanted.plan).values()):
            return
        of_key = [v for v in (*self._views.values(), *self._adhoc.values()) if v.key == wanted.key and not v.internal]
        plans = {essence(p) for p in (wanted.plan, kept_top(wanted).plan)} if of_key else set()
        for found in of_key:
            name = fold(found.name)
            if name not in self._essences:
                self._essences[name] = essence(found.plan)
            if self._essences[name] in plans and name not in self._broken and has_columns(found, wanted):
                yield found

    def is_read_beside(self, wanted: ViewDef) -> bool:
        """True if some view reads exactly the tables of this one."""
        return _ids(wanted) in self._beneath.values()

    def touch(self, view: ViewDef) -> None:
        """Mark an ad-hoc view as most recently used."""
        if view.adhoc and fold(view.name) in self._adhoc:
            self._adhoc.move_to_end(fold(view.name))

    # ------------------------------------------------------------ bookkeeping
    def _remember(self, view: ViewDef, used: set[str], text: str = "", as_of: int | None = None, unread: bool = False
                  ) -> None:
        name = fold(view.name)
        self._forget(name)
        if view.adhoc:
            self._adhoc[name] = view
        else:
            self._views[name] = view
            self._uses[name], self._texts[name] = used, text
            self._as_of[name] = self.schema if as_of is None else as_of
            if unread:
                self._readerless.add(name)
        if not view.internal:
            self._beneath[name] = _ids(view)
            self._held.add(name, view)

    def _note_altered(self, table: TableDef) -> None:
        there = {t.table_id for t in self._tables.values()}
        self._defined_anew = (self._defined_anew | {table.table_id}) & there

    def _rename_table(self, table: str, name: str) -> None:
        """Rename a table in all plans."""
        for views in (self._views, self._adhoc):
            for known, view in list(views.items()):
                views[known] = view.with_table(table, name)

    def _redefine(self, view: ViewDef) -> None:
        """Replace the plan of a named view, at its place in the order: other views build on it."""
        name = fold(view.name)
        old = self._views[name]
        self._views[name] = view
        self._essences.pop(name, None)
        self.generation += 1
        self.on_forget(old)
        if not view.internal:
            self._beneath[name] = _ids(view)
        if name in self._held:  # else it answers no other text
            self._held.add(name, view)

    def _forget(self, name: str) -> None:
        view = self._views.pop(name, None) or self._adhoc.pop(name, None)
        if view is None:
            return
        self._uses.pop(name, None)
        self._texts.pop(name, None)
        self._as_of.pop(name, None)
        self._explain.pop(name, None)
        self._essences.pop(name, None)
        self._beneath.pop(name, None)
        self._broken.pop(name, None)
        self._readerless.discard(name)
        self.generation += 1
        self.on_forget(view)
        self._held.remove(name)

    def _given_reader(self, view: ViewDef, of: ViewDef | None = None) -> None:
        """Record that a named view has a reader of this definition.  of: the view whose reader it was."""
        name, source = fold(view.name), view if of is None else of
        self._views[name] = replace(self._views[name], definition=source.definition)  # keeps its place in the order
        self._readerless.discard(name)
        if of is not None and (told := self._explain.get(fold(of.name))):
            self._explain[name] = told.replace(f"reader {of.name}", f"reader {view.name}")

    def _lost_reader(self, name: str) -> None:
        """Record that a named view lost its reader, as if it had not been read."""
        view = self._views[name]
        self._readerless.add(name)
        self._broken.pop(name, None)
        self._explain.pop(name, None)
        self._held.add(name, view)
        self.generation += 1
        self.on_forget(view)

    def _leave_out(self, name: str, why: SqlError) -> None:
        if name in self._adhoc:
            log.info("ad-hoc view %s has no first state: %s", name, why.message)
            self._forget(name)
            return
        log.error("view %s has no first state: %s", name, why.message)
        self._broken[name] = why
        self._held.remove(name)


def _ids(view: ViewDef) -> frozenset[int]:
    return frozenset(t.table_id for t in tables_of(view.plan).values())
