"""Which views hold what: found by what is asked for, whether they have a reader or not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

from noria.control.published import columns_asked
from noria.core.limits import KEPT_PLANS
from noria.plan.mir import Mir
from noria.plan.optimizer import kept_top
from noria.plan.reuse.through import Place, Through, place_of, places_for, through
from noria.plan.view import ViewDef

K = TypeVar("K")


class Holding:
    """Views by their plans and keys, and by the places of their rows (`plan/reuse/through.py`)."""

    def __init__(self) -> None:
        self._views: dict[str, ViewDef] = {}  # by folded name
        self._by_plan: dict[tuple[Mir, tuple[int, ...]], list[str]] = {}
        self._by_place: dict[Place, list[str]] = {}

    def add(self, name: str, view: ViewDef) -> None:
        self.remove(name)
        self._views[name] = view
        self._by_plan.setdefault((view.plan, view.key), []).append(name)
        self._by_place.setdefault(place_of(view), []).append(name)

    def remove(self, name: str) -> None:
        view = self._views.pop(name, None)
        if view is not None:
            _without(self._by_plan, (view.plan, view.key), name)
            _without(self._by_place, place_of(view), name)

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def __len__(self) -> int:
        return len(self._views)

    def same(self, wanted: ViewDef) -> Iterator[str]:
        """Views of what is asked for: the same rows by the same key, or just the first of them where that is all it
        shows; at least its columns."""
        for plan in dict.fromkeys((wanted.plan, kept_top(wanted).plan)):
            yield from (n for n in self._by_plan.get((plan, wanted.key), ()) if has_columns(self._views[n], wanted))

    def others(self, wanted: ViewDef) -> Iterator[str]:
        """Views of other rows or columns, in whose readers what is asked for can be read."""
        for place in places_for(wanted):
            for name in self._by_place.get(place, ()):
                if reading(self._views[name], wanted) is not None:
                    yield name


def reading(reader: ViewDef, wanted: ViewDef) -> Through | None:
    """How what is asked for is read in a view that holds it; None where that has just its rows, or does not."""
    return None if _same(reader, wanted) else _through(reader, columns_asked(reader), wanted, columns_asked(wanted))


def holds(reader: ViewDef, wanted: ViewDef) -> bool:
    """Can what is asked for be read there?"""
    return _same(reader, wanted) or reading(reader, wanted) is not None


def _same(reader: ViewDef, wanted: ViewDef) -> bool:
    rows = reader.key == wanted.key and reader.plan in (wanted.plan, kept_top(wanted).plan)
    return rows and has_columns(reader, wanted)


def has_columns(reader: ViewDef, wanted: ViewDef) -> bool:
    """Has it the columns, and is it read by ranges, where that is wanted?"""
    return columns_asked(reader) >= columns_asked(wanted) and reader.ranged >= wanted.ranged


_through = lru_cache(maxsize=KEPT_PLANS)(through)


def _without(names: dict[K, list[str]], key: K, name: str) -> None:
    names[key].remove(name)
    if not names[key]:
        del names[key]
