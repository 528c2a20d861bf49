"""Determines which worker has the rows of a view's key. Pure. Call `KeyRoutes.owner`.

Keeps true: `owner` of a key, `owners` of many and `shard_of` of their codes are one function of the values alone.
It returns the worker to which the data-flow hashes the key's rows. A view without a known route raises error
1412, as a redefined view does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.errors import view_changed
from noria.core.keys import hasher, shard_of, shard_of_key
from noria.core.limits import NULL_CODE
from noria.core.types import Field, Kind, SqlType
from noria.dataflow.messages.packets import DropView, Migrated, MigrationStep, RenameView

Hash = Callable[[Any], int]


class Keyed(Protocol):
    """An object that is looked up by a key: a view's definition, or an attached view."""

    @property
    def name(self) -> str: ...

    @property
    def definition(self) -> int: ...

    @property
    def key_fields(self) -> Sequence[Field]: ...


@dataclass(slots=True)
class _Route:
    """The route of a view. `by`: positions within its key. `depth`: the largest number of exchanges above it.
    `definition`: the last definition it was used for, to which `types` and `hashers` belong."""

    by: tuple[int, ...]
    depth: int
    definition: int = -1
    types: tuple[SqlType, ...] = ()
    hashers: tuple[Hash, ...] = ()


class KeyRoutes:
    """The routes of all views (see the module). `workers`: their number."""

    def __init__(self, workers: int):
        self.workers = workers
        self._known: dict[str, _Route] = {}

    @property
    def depth(self) -> int:
        """The largest number of exchanges above any view."""
        return max((r.depth for r in self._known.values()), default=0)

    def learn(self, routes: Iterable[tuple[str, tuple[int, ...], int]]) -> None:
        """Record routes as in `Migrated.routes`."""
        for view, by, depth in routes:
            self._known[view] = _Route(by, depth)

    def changed(self, steps: Sequence[MigrationStep], replies: Sequence[Migrated], views: Collection[str]) -> None:
        """Update the routes after a change of the program to these views. A worker that died meanwhile reports
        its routes when it restarts."""
        for s in steps:
            if isinstance(s, RenameView):
                self.rename(s.view, s.name)
            elif isinstance(s, DropView):
                self.forget(s.view)
        self.learn(route for reply in replies for route in reply.routes if route[0] in views)

    def forget(self, view: str) -> None:
        self._known.pop(view, None)

    def rename(self, view: str, name: str) -> None:
        if view in self._known:
            self._known[name] = self._known.pop(view)

    def depth_of(self, view: str) -> int:
        """The largest number of exchanges above this view; 0 if its route is unknown."""
        route = self._known.get(view)
        return 0 if route is None else route.depth

    def route_of(self, view: str) -> tuple[str, tuple[int, ...], int] | None:
        """The route of this view in the form that `learn` accepts, or None."""
        route = self._known.get(view)
        return None if route is None else (view, route.by, route.depth)

    def all_by(self) -> dict[str, tuple[int, ...]]:
        """For each view, the positions within its key that determine the worker."""
        return {name: route.by for name, route in self._known.items()}

    def owner(self, view: Keyed, key: Sequence[Any]) -> int:
        """The worker of a key. `key`: Python values in the types of its columns; None is NULL."""
        if self.workers == 1:
            return 0
        route = self._of(view)
        return shard_of_key([key[i] for i in route.by], route.hashers, self.workers) if route.by else 0

    def owners(self, view: Keyed, keys: Any) -> Codes:
        """The worker of each of many keys: an Arrow table or batch of key columns by position, or a list of
        tuples."""
        arrow = isinstance(keys, (pa.Table, pa.RecordBatch))
        number = keys.num_rows if arrow else len(keys)
        route = None if self.workers == 1 else self._of(view)
        if route is None or not route.by or not number:
            return np.zeros(number, np.int64)
        if not arrow:
            if all(t.kind is Kind.INT for t in route.types):
                with suppress(OverflowError):  # otherwise some are keys of no row
                    codes = [np.array([NULL_CODE if k[i] is None else int(k[i]) for k in keys], np.int64)
                             for i in route.by]
                    return shard_of(codes, route.types, self.workers)
            return np.array([self.owner(view, key) for key in keys], np.int64)
        columns = [keys.column(i) for i in route.by]
        plain = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
        return shard_of(plain, route.types, self.workers)

    def everybody(self, view: Keyed) -> range:
        """The workers that may have keys of the view."""
        return range(self.workers if self.workers > 1 and self._of(view).by else 1)

    def _of(self, view: Keyed) -> _Route:
        route = self._known.get(view.name)
        if route is None:
            raise view_changed(view.name)
        if route.definition != view.definition:
            if max(route.by, default=-1) >= len(view.key_fields):  # of another definition, which has a longer key
                raise view_changed(view.name)
            route.definition = view.definition
            route.types = tuple(view.key_fields[i].type for i in route.by)
            route.hashers = tuple(map(hasher, route.types))
        return route
