"""Finds the views that hold the rows of a query, whether they have a reader or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

from noria.control.catalog.worker_view import columns_needed
from noria.core.limits import KEPT_PLANS
from noria.core.ranking import Order
from noria.plan.mir import Mir, TopK
from noria.plan.optimizer import first_rows, kept_top, top_of
from noria.plan.reuse.lookups.through import Place, ReadThrough, place_of, places_for, through
from noria.plan.view import ViewDef

K = TypeVar("K")
Top = tuple[Mir, tuple[int, ...], Order, int]


class ViewIndex:
    """Indexes views by their plans and keys, and by the places of their rows (`plan/reuse/lookups/through.py`)."""

    def __init__(self) -> None:
        self._views: dict[str, ViewDef] = {}  # by folded name
        self._by_plan: dict[tuple[Mir, tuple[int, ...]], list[str]] = {}
        self._by_top: dict[Top, list[str]] = {}
        self._by_place: dict[Place, list[str]] = {}
        self._over: Counter[frozenset[int]] = Counter()  # how many views read exactly these tables

    def add(self, name: str, view: ViewDef) -> None:
        self.remove(name)
        self._views[name] = view
        self._by_plan.setdefault((view.plan, view.key), []).append(name)
        if isinstance(view.plan, TopK) and view.plan.group == view.key:
            self._by_top.setdefault(top_of(view.plan), []).append(name)
        self._by_place.setdefault(place_of(view), []).append(name)
        self._over[_ids(view)] += 1

    def remove(self, name: str) -> None:
        view = self._views.pop(name, None)
        if view is not None:
            _without(self._by_plan, (view.plan, view.key), name)
            if isinstance(view.plan, TopK) and view.plan.group == view.key:
                _without(self._by_top, top_of(view.plan), name)
            _without(self._by_place, place_of(view), name)
            self._over[_ids(view)] -= 1
            self._over += Counter()  # drops the counts of 0

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def __len__(self) -> int:
        return len(self._views)

    def same(self, wanted: ViewDef) -> Iterator[str]:
        """Views that hold the wanted rows, with at least its columns.

        If only the first rows are shown, views of the first rows by the same key are first, the smallest limit before
        others; then views of all rows.
        """
        top = kept_top(wanted).plan
        names = self._by_top.get(top_of(top), []) if isinstance(top, TopK) and top is not wanted.plan else []
        tops = [n for n in names if first_rows(self._views[n].plan, wanted)]
        for n in (*sorted(tops, key=self._kept), *self._by_plan.get((wanted.plan, wanted.key), ())):
            if has_columns(self._views[n], wanted):
                yield n

    def _kept(self, name: str) -> int:
        """How many rows a view keeps of each key."""
        plan = self._views[name].plan
        assert isinstance(plan, TopK)
        return plan.limit

    def others(self, wanted: ViewDef) -> Iterator[str]:
        """Views of other rows or columns through whose readers the wanted view can be read."""
        if _ids(wanted) not in self._over:
            return  # rows of one place come from the same tables
        for place in places_for(wanted):
            for name in self._by_place.get(place, ()):
                if reading(self._views[name], wanted) is not None:
                    yield name


def reading(reader: ViewDef, wanted: ViewDef) -> ReadThrough | None:
    """How `wanted` is read through a view that holds more; None if the view has just its rows, or does not hold it."""
    return None if _same(reader, wanted) else _through(reader, columns_needed(reader), wanted, columns_needed(wanted))


def holds(reader: ViewDef, wanted: ViewDef) -> bool:
    """True if `wanted` can be read from the reader of this view."""
    return _same(reader, wanted) or reading(reader, wanted) is not None


def _same(reader: ViewDef, wanted: ViewDef) -> bool:
    rows = reader.plan == wanted.plan or first_rows(reader.plan, wanted)
    return rows and reader.key == wanted.key and has_columns(reader, wanted)


def has_columns(reader: ViewDef, wanted: ViewDef) -> bool:
    """True if the reader has the wanted columns, and ranges if they are wanted."""
    return columns_needed(reader) >= columns_needed(wanted) and reader.ranged >= wanted.ranged


def _ids(view: ViewDef) -> frozenset[int]:
    return frozenset(t.table_id for t in view.plan.tables_read)


_through = lru_cache(maxsize=KEPT_PLANS)(through)


def _without(names: dict[K, list[str]], key: K, name: str) -> None:
    names[key].remove(name)
    if not names[key]:
        del names[key]
