"""Reads a view that several workers publish, with the interface of `views.reader.AttachedView`.

Keeps true: a key is looked up in the memory of its owner.  `definition` is valid only if all workers have the same.
Keys of one worker are read at one moment.  The columns are read from memory each time, because the definition may
change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from noria.core.types import Field
from noria.plan.reuse.lookups.through import ReadThrough
from noria.runtime.routing.key_routing import KeyRoutes
from noria.runtime.routing.scatter_gather import numbered, select_keys
from noria.views.reader import AttachedView, Mask

NO_DEFINITION = -2  # the workers have different definitions


class SpreadView:
    """views: one for each worker.  by: the places within the key that decide the owner."""

    def __init__(self, views: Sequence[AttachedView], by: Sequence[int]):
        self._views, self.name = views, views[0].name
        self._routes = KeyRoutes(len(views))
        self._routes.learn([(self.name, tuple(by), 0)])

    @property
    def fields(self) -> Sequence[Field]:
        return self._views[0].fields

    @property
    def visible(self) -> int:
        return self._views[0].visible

    @property
    def key_fields(self) -> Sequence[Field]:
        return self._views[0].key_fields

    @property
    def definition(self) -> int:
        found = {view.definition for view in self._views}
        return found.pop() if len(found) == 1 else NO_DEFINITION

    @property
    def there(self) -> bool:
        return all(view.there for view in self._views)

    def refresh(self) -> None:
        for view in self._views:
            view.refresh()

    def lookup(self, key: Sequence[Any], through: ReadThrough | None = None) -> list[Any] | None:
        """Look a key up at its owner, as `AttachedView.lookup` does."""
        try:
            owner = self._routes.owner(self, key)
        except Exception:  # an invalid key: any worker raises the error
            owner = 0
        return self._views[owner].lookup(key, through)

    def lookup_many(self, keys: pa.Table, through: ReadThrough | None = None) -> tuple[pa.Table, Mask]:
        """Look keys up at their owners, as `AttachedView.lookup_many` does."""
        try:
            whose = self._routes.owners(self, keys)
        except Exception:  # invalid keys, or keys of a definition that is not here yet: the server answers them
            return self._views[0].missed(keys, through)
        missing = np.zeros(len(whose), np.bool_)
        found = []
        for worker in np.unique(whose).tolist() or [0]:
            at = np.flatnonzero(whose == worker)
            rows, missing[at] = self._views[worker].lookup_many(select_keys(keys, at), through=through)
            found.append((rows, at))
        return numbered(found).combine_chunks(), missing
