"""Reads a view from this host's shared memory (design/decisions.md, 5), and requests only missing keys from the server.

Keeps true: a lookup returns a complete version of each key, all of one definition of the view.  If the view is
redefined, the object learns the new definition.  Only one thread may use an object.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from decimal import Decimal
from itertools import count
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from noria.client.spread_view import SpreadView
from noria.client.transport import TIMEOUT_S, Transport
from noria.core.errors import SqlError, unknown_table, view_changed
from noria.core.errors.codes import TABLE_DEF_CHANGED
from noria.core.limits import VIEW_BINDS
from noria.core.types import Kind
from noria.core.values import python_values
from noria.plan.reuse.lookups.through import ReadThrough
from noria.server.answering.result_finish import ResultFinish
from noria.views.reader import AttachedView, AttachedViews, attach

T = TypeVar("T")
LONGEST_PAUSE_S = 0.1  # between two reads of a definition that is changing


class SharedView:
    """A view in shared memory (see the module).  misses: the number of keys that the server looked up."""

    def __init__(self, transport: Transport, name: str, keys: Callable[[Any], pa.Table]):
        self.name, self.misses = name, 0
        self._transport, self._keys = transport, keys
        self._workers: list[AttachedViews] = []
        if not self._attach():
            raise ConnectionError(f"the views are in {transport.attachment()['path']} of the server's host, which is "
                                  "not there on this host: attach on the server's host, or use lookup()")
        self._bind()

    def _attach(self) -> bool:
        """Attach to the workers' directories.  False if they are already attached, or do not exist on this host."""
        paths = self._transport.attachment()["paths"]
        if [w.path for w in self._workers] == paths or not all(map(os.path.isdir, paths)):
            return False
        self._workers = [attach(p) for p in paths]
        return True

    def _bind(self) -> None:
        """Learn the view's definition, once the server and the memory agree on it.

        They differ for a moment while the view is redefined, and longer if a worker ended before it published the new
        definition.  Raises SqlError after TIMEOUT_S.
        """
        ends = time.monotonic() + TIMEOUT_S
        for turn in count():
            time.sleep(min(0.001 * turn, LONGEST_PAUSE_S))
            about = self._found()
            self._view.refresh()
            if self._view.definition == about["definition"]:
                self._through = None if about["through"] is None else ReadThrough.from_json(about["through"])
                self._definition, self._shape = about["definition"], self._shape_of(about)
                self._names = [*about["columns"], "__key"]  # a view that this one reads through may have other names
                return
            if time.monotonic() > ends:
                raise view_changed(self.name)

    def _found(self) -> dict[str, Any]:
        """Return the server's description of the view, once the view is in memory.  If nobody has read the view, a
        lookup makes the server build it; a restarted worker builds it again."""
        started = time.monotonic()
        while True:
            about = self._transport.describe("views", self.name)
            if about["internal"]:
                raise unknown_table(self.name)
            if not about["plain"]:
                raise ValueError(f"a lookup in {self.name} by {', '.join(about['key'])} is more than the rows of one "
                                 "key: use lookup()")
            if about["reader"] is None:
                self._transport.lookup(self.name, self._keys([]))
                continue
            try:
                self._view = self._attached(about["reader"])
                return about
            except KeyError:
                if time.monotonic() > started + TIMEOUT_S:
                    raise ConnectionError(f"the server has not made the view {self.name} in {self._workers[0].path} "
                                          f"for {TIMEOUT_S} s: its /health says why; lookup() asks it") from None
            time.sleep(LONGEST_PAUSE_S)

    def _attached(self, reader: str) -> AttachedView | SpreadView:
        """Attach to the view.  Raises KeyError if a worker has not published it yet."""
        by = self._transport.attachment()["by"][reader] if len(self._workers) > 1 else ()
        return SpreadView([w.view(reader) for w in self._workers], by) if by else self._workers[0].view(reader)

    def _shape_of(self, about: dict[str, Any]) -> ResultFinish | None:
        """Return the steps (order, limit, …) that a lookup applies to the rows, or None if there are none."""
        fields, empty = self._view.fields, about["empty_row"]
        if self._through is not None:
            fields = tuple(fields[c] for c in self._through.columns)
        shown = self._view.visible if self._through is None else len(self._through.columns)
        if empty is not None:
            empty = [Decimal(v) if isinstance(v, str) and f.type.kind is Kind.DECIMAL else v
                     for v, f in zip(empty, fields, strict=False)]
        order = [(int(c), bool(d)) for c, d in about["order"]]
        shape = ResultFinish(fields, len(about["columns"]), order, about["limit"], about["offset"], empty)
        return shape if shape.changes_rows or shape.visible < shown else None

    def _of_one_definition(self, read: Callable[[], T | None]) -> T:
        """Return the result of `read`, or raise its error, if the definition did not change meanwhile.  If it changed,
        or `read` returns None, bind again and repeat, at most VIEW_BINDS times."""
        for _ in range(VIEW_BINDS):
            try:
                found = read()
            except Exception as e:
                if self._still() and not (isinstance(e, SqlError) and e.code == TABLE_DEF_CHANGED.number):
                    raise
            else:
                if self._still() and found is not None:
                    return found
            self._bind()
        raise view_changed(self.name)

    def _still(self) -> bool:
        self._view.refresh()
        return bool(self._view.definition == self._definition)

    def lookup(self, key: Any = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one key: a value, or a tuple of values."""
        view = self._view
        try:
            rows = self._rows(view, key if isinstance(key, tuple) else (key,))
            if rows is not None and view.definition == self._definition:
                return rows if self._shape is None else self._shape.apply(rows)
        except Exception:
            if self._still():
                raise
        return self._of_one_definition(lambda: self._lookup(key))

    def _lookup(self, key: Any) -> list[tuple[Any, ...]]:
        rows = self._rows(self._view, key if isinstance(key, tuple) else (key,))
        if rows is None:
            if not self._view.there and self._attach():  # the server was restarted with other workers
                self._bind()
            self.misses += 1
            table = self._transport.lookup(self.name, self._keys([key])).drop_columns("__key")
            return list(zip(*map(python_values, table.columns), strict=True))
        return rows if self._shape is None else self._shape.apply(rows)

    def _rows(self, view: AttachedView | SpreadView, key: tuple[Any, ...]) -> list[tuple[Any, ...]] | None:
        """Look a key up in memory.  None for a miss, or if the key has columns that the reader's key lacks."""
        through = self._through
        if through is None:
            return view.lookup(key)
        if through.bound or len(key) != len(through.key):
            return None
        return view.lookup(tuple(key[i] for i in through.key), through)

    def lookup_many(self, keys: Any) -> pa.Table:
        """Return the rows of many keys.  The last column, `__key`, is the ordinal of the row's key, from 0."""
        return self._of_one_definition(lambda: self._lookup_many(keys))

    def _lookup_many(self, keys: Any) -> pa.Table | None:
        table = self._keys(keys)
        through = self._through
        elsewhere = through is not None and not through.same_key
        if self._shape is not None or elsewhere:  # the server applies order and limit for each key
            self.misses += table.num_rows
            return self._transport.lookup(self.name, table)
        rows, missing = self._view.lookup_many(table, through=through)
        rows = rows.rename_columns(self._names)
        if not missing.any():
            return rows
        if not self._view.there and self._attach():
            return None
        ordinals = np.flatnonzero(missing)
        self.misses += len(ordinals)
        fetched = self._transport.lookup(self.name, table.take(pa.array(ordinals)))
        if missing.all():
            return fetched
        if not self._still() or not self._view.there:
            return None  # the two parts may be of two definitions
        own = pa.array(ordinals[fetched.column("__key").to_numpy()], pa.int64())
        fetched = fetched.set_column(fetched.num_columns - 1, "__key", own)
        return pa.concat_tables([rows, fetched.cast(rows.schema)])
