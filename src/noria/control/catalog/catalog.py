"""What the program has: tables, named views with their texts, ad-hoc views, and which of them answers a SELECT."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from noria.control.catalog.holding import Holding, has_columns, reading
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
    """What can be selected from, by folded names: tables, and named views in the order of their creation; apart from
    these, views that are only their text, which `view` refuses."""

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
    """What statements are parsed against.

    `version` grows with every change of a named thing: what was parsed under another version is parsed again.
    `generation` grows when a view goes, named or not: a reader found under another one is looked for again.

    A named view may have no reader: because nobody has read it, or because the reader of another one has its rows, or
    more (`plan/reuse/through.py`).
    """

    def __init__(self) -> None:
        super().__init__({}, {}, {})
        self._texts: dict[str, str] = {}  # named view -> its CREATE VIEW
        self._uses: dict[str, set[str]] = {}  # named view -> named views its text reads
        self._as_of: dict[str, int] = {}  # named view -> after how many changes of columns its text was written
        self._adhoc: OrderedDict[str, ViewDef] = OrderedDict()  # least recently used first
        self._held = Holding()  # of views that can be read
        self._readerless: set[str] = set()  # named views without a reader, but internal ones, which never have one
        self._beneath: dict[str, frozenset[int]] = {}  # the tables of each view that is looked up
        self._essences: dict[str, Mir] = {}  # of views that were compared by it
        self._defined_anew: set[int] = set()  # tables that had another definition since this process began
        self._explain: dict[str, str] = {}
        self._broken: dict[str, SqlError] = {}  # views without a first state, and why
        self._version = self.generation = 0
        self.on_forget: Callable[[ViewDef], None] = lambda view: None  # told of each definition that is no more
        self.on_version: Callable[[int], None] = lambda version: None  # told of each other version, at once

    @property
    def version(self) -> int:
        """See the class."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._version = version
        self.on_version(version)

    def now(self) -> Relations:
        """The tables and views of this moment, whatever changes since."""
        return Relations(dict(self._tables), dict(self._views), dict(self._as_text))

    def adhoc(self) -> Iterable[ViewDef]:
        return self._adhoc.values()

    def adhoc_named(self, name: str) -> ViewDef | None:
        return self._adhoc.get(fold(name))

    def explanation(self, view: str) -> str:
        """How the view is kept: partial or full, and why; what it shares."""
        return self.why_readerless(view) or self._explain.get(fold(view), "")

    def why_readerless(self, view: str) -> str:
        """Why the view has no reader; empty for one that has, and for an internal one."""
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
        """The named views that are read in this one's reader, and have none of their own."""
        unread = (v for n, v in self._views.items() if n in self._readerless)
        return [v for v in unread if (found := self.match(v)) is not None and found.name == reader.name]

    def reader_now(self, view: ViewDef) -> ViewDef | None:
        """The view whose reader has the rows of this named one; None where it has none yet."""
        return self.match(view) if fold(view.name) in self._readerless else view

    def recipe(self, without: Collection[str] = (), more: str = "", unread: bool = False, read: Collection[str] = ()
               ) -> tuple[str, ...]:
        """The statements that make the views, but some; with one more, whose view has no reader if `unread`.  read:
        views that have one from now on."""
        kept = [stored(self._texts[n], self._as_of[n], n in self._readerless and n not in read)
                for n in self._views if n not in without]
        kept += [stored_text(v.name, v.text) for n, v in self._as_text.items() if n not in without]
        return (*kept, stored(more, self.schema, unread)) if more else tuple(kept)

    @property
    def schema(self) -> int:
        """How many changes of columns and of names there were, as far as anything remembers; a text means what it meant
        after as many as when it was written."""
        found = [0, *self._as_of.values()]
        for t in self._tables.values():
            found += [t.made, *(p.before for p in t.past), *(max(c.added, c.dropped) for c in t.columns)]
        return max(found)

    def create_text(self, view: ViewDef) -> str:
        """The CREATE VIEW of a named view, with the names of now where that can be said."""
        name = fold(view.name)
        kept = Kept(name, self._texts[name], self._as_of[name])
        return text_of_now(kept, self._tables, self._views) or kept.text

    def match(self, wanted: ViewDef) -> ViewDef | None:
        """A view whose reader holds what a SELECT, or another view, asks for: just that, or with more (`reading`); one
        that is whole, if there is one."""
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
        """The view in whose reader it is read, with more columns or rows: the one with the fewest.  named: for a named
        view, which stands on named ones, whole or not."""
        readers = [n for n in self._held.others(wanted) if n not in self._readerless]
        views = [self._views[n] for n in readers if n in self._views and not (named and n == fold(wanted.name))]
        if not named:
            views = [v for v in (*views, *(self._adhoc[n] for n in readers if n in self._adhoc)) if self._is_whole(v)]
        return min(views, key=lambda v: (v.adhoc, columns_asked(v), v.name), default=None)

    def _is_whole(self, view: ViewDef) -> bool:
        """Has the view its first state?"""
        raise NotImplementedError

    def readerless(self, wanted: ViewDef) -> ViewDef | None:
        """A named view that would hold it if it had a reader; itself, if it is one.  Of views that hold more than is
        asked for only those that keep few rows: the reader of another one may cost far more than what is asked."""
        found = [v for v in self._answering(wanted) if fold(v.name) in self._readerless]
        if not found:
            more = [self._views[n] for n in self._held.others(wanted) if n in self._readerless]
            found = [v for v in more if isinstance(v.plan, TopK)]
        return next((v for v in found if v.name == wanted.name), found[0] if found else None)

    def _holding(self, wanted: ViewDef) -> Iterator[ViewDef]:
        """Views of just what is asked for."""
        for name in self._held.same(wanted):
            yield self._views.get(name) or self._adhoc[name]

    def _answering(self, wanted: ViewDef) -> Iterator[ViewDef]:
        """`_holding`, and views that were made before the tables had other columns than they have, if neither looks at
        what changed."""
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
        """Is there any view over just the tables of this one?"""
        return _ids(wanted) in self._beneath.values()

    def touch(self, view: ViewDef) -> None:
        """An ad-hoc view was used."""
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
        """In all plans."""
        for views in (self._views, self._adhoc):
            for known, view in list(views.items()):
                views[known] = view.with_table(table, name)

    def _redefine(self, view: ViewDef) -> None:
        """A named view has the same text and another plan, in its place: others build on it."""
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
        """A named view has a reader, of this definition; of: whose reader that was until now."""
        name, source = fold(view.name), view if of is None else of
        self._views[name] = replace(self._views[name], definition=source.definition)  # in its place: others build on it
        self._readerless.discard(name)
        if of is not None and (told := self._explain.get(fold(of.name))):
            self._explain[name] = told.replace(f"reader {of.name}", f"reader {view.name}")

    def _lost_reader(self, name: str) -> None:
        """A named view has no reader any more, and is as if it had not been read."""
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
