"""What the program has: tables, named views with their texts, ad-hoc views, and which of them answers a SELECT."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable

from noria.control.names import fold
from noria.control.published import columns_asked
from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.plan.mir import Mir
from noria.plan.optimizer import kept_top
from noria.plan.view import ViewDef

log = logging.getLogger(__name__)


class Catalog:
    """What statements are parsed against.

    `version` grows with every change of a named thing: what was parsed under another version is parsed again.
    `generation` grows when a view goes, named or not: a reader found under another one is looked for again.
    """

    def __init__(self) -> None:
        self._tables: dict[str, TableDef] = {}
        self._views: dict[str, ViewDef] = {}  # named ones, in the order of their creation
        self._texts: dict[str, str] = {}  # named view -> its CREATE VIEW
        self._uses: dict[str, set[str]] = {}  # named view -> named views its text reads
        self._adhoc: OrderedDict[str, ViewDef] = OrderedDict()  # least recently used first
        self._by_plan: dict[tuple[Mir, tuple[int, ...]], list[str]] = {}
        self._explain: dict[str, str] = {}
        self._broken: dict[str, SqlError] = {}  # views without a first state, and why
        self.version = self.generation = 0
        self.on_forget: Callable[[ViewDef], None] = lambda view: None  # told of each definition that is no more

    def table(self, name: str) -> TableDef | None:
        return self._tables.get(fold(name))

    def view(self, name: str) -> ViewDef | None:
        return self._views.get(fold(name))

    def tables(self) -> Iterable[TableDef]:
        return self._tables.values()

    def views(self) -> Iterable[ViewDef]:
        return self._views.values()

    def adhoc(self) -> Iterable[ViewDef]:
        return self._adhoc.values()

    def explanation(self, view: str) -> str:
        """How the view is kept: partial or full, and why; what it shares."""
        return self._explain.get(fold(view), "")

    def recipe(self) -> tuple[str, ...]:
        return tuple(self._texts[n] for n in self._views)

    def create_text(self, view: ViewDef) -> str:
        """The CREATE VIEW of a named view."""
        return self._texts[fold(view.name)]

    def match(self, wanted: ViewDef) -> ViewDef | None:
        """A view that holds what a SELECT asks for: the same rows by the same key, or just the first of them where
        that is all it shows; at least its columns."""
        for plan in dict.fromkeys((wanted.plan, kept_top(wanted).plan)):
            for name in self._by_plan.get((plan, wanted.key), ()):
                found = self._views.get(name) or self._adhoc[name]
                if columns_asked(found) >= columns_asked(wanted) and found.ranged >= wanted.ranged:
                    self.touch(found)
                    return found
        return None

    def touch(self, view: ViewDef) -> None:
        """An ad-hoc view was used."""
        if view.adhoc and fold(view.name) in self._adhoc:
            self._adhoc.move_to_end(fold(view.name))

    # ------------------------------------------------------------ bookkeeping
    def _remember(self, view: ViewDef, used: set[str], text: str = "") -> None:
        name = fold(view.name)
        self._forget(name)
        if view.adhoc:
            self._adhoc[name] = view
        else:
            self._views[name] = view
            self._uses[name], self._texts[name] = used, text
        if not view.internal:
            self._by_plan.setdefault((view.plan, view.key), []).append(name)

    def _forget(self, name: str) -> None:
        view = self._views.pop(name, None) or self._adhoc.pop(name, None)
        if view is None:
            return
        self._uses.pop(name, None)
        self._texts.pop(name, None)
        self._explain.pop(name, None)
        self._broken.pop(name, None)
        self.generation += 1
        self.on_forget(view)
        names = self._by_plan.get((view.plan, view.key), [])
        if name in names:
            names.remove(name)
        if not names:
            self._by_plan.pop((view.plan, view.key), None)

    def _leave_out(self, name: str, why: SqlError) -> None:
        log.error("view %s has no first state: %s", name, why.message)
        if name in self._adhoc:
            self._forget(name)
            return
        self._broken[name] = why
        view = self._views[name]
        names = self._by_plan.get((view.plan, view.key), [])
        if name in names:
            names.remove(name)
