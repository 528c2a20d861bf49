"""Lookups of far front ends, which have no shared memory.

A far front end collects the keys of its sessions and sends them to the controller in one message
(`runtime/link/read_batching.py`).  The controller looks them up as a front end on its host would.

Keeps true: an answer has all rows of a present key, as of one moment.  A missing key gets no answer here, and the
session must answer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import OFF_LOOP_ROWS
from noria.plan.view import ViewDef
from noria.runtime.link.read_batching import BatchQueue, BatchRows, KeyRows
from noria.server.answering.view_lookups import Key, ViewLookups
from noria.server.fronts import messages
from noria.server.rows import python_rows

FEW = 8  # keys of one view: fewer are looked up faster one by one
Rows = list[Any] | None


# ---------------------------------------------------------------- the front end
@dataclass(frozen=True, slots=True, eq=False)
class PendingLookup:
    """A lookup that waits for its rows."""

    view: ViewDef
    key: Key
    rows: asyncio.Future[Rows] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class FarLookups:
    """The lookups of a far front end.  send: sends a message to the controller.  version: returns the program's version
    that the front end has."""

    def __init__(self, send: Callable[[messages.LookupKeys], None], version: Callable[[], int]):
        self._queue = BatchQueue[PendingLookup, list[list[PendingLookup]]](self._sent)
        self._send, self._version, self._number = send, version, 0

    def rows(self, view: ViewDef, key: Key) -> asyncio.Future[Rows]:
        """Return a future of all rows of the key, with all columns; None if the session must answer."""
        lookup = PendingLookup(view, key)
        self._queue.add(lookup)
        return lookup.rows

    def _sent(self, some: list[PendingLookup]) -> tuple[int, list[list[PendingLookup]]] | None:
        alike: defaultdict[tuple[str, int], list[PendingLookup]] = defaultdict(list)
        for lookup in some:
            if not lookup.rows.done():
                alike[lookup.view.name, lookup.view.definition].append(lookup)
        if not alike:
            return None
        self._number += 1
        self._send(messages.LookupKeys(self._number, self._version(), tuple(
            (*kind, tuple(a.key for a in group)) for kind, group in alike.items())))
        return self._number, list(alike.values())

    def take(self, looked: messages.LookupReply) -> None:
        for group, found in zip(self._queue.landed(looked.number) or (), looked.found, strict=False):
            for lookup, rows in zip(group, _each(found), strict=True):
                if not lookup.rows.done():
                    lookup.rows.set_result(rows)

    def over(self) -> None:
        """Answer None to all waiting lookups, because the controller is unreachable."""
        flying = [lookup for groups in self._queue.under_way() for group in groups for lookup in group]
        for lookup in flying + self._queue.clear():
            if not lookup.rows.done():
                lookup.rows.set_result(None)


def _each(found: Sequence[Rows] | messages.KeyRowsReply) -> Sequence[Rows]:
    if not isinstance(found, messages.KeyRowsReply):
        return found
    batch = BatchRows(found.rows, len(found.missing))
    made = batch.made(lambda table: python_rows(table, table.num_columns - 1))
    return [None if missing else KeyRows(batch, at).of(made) for at, missing in enumerate(found.missing)]


# ---------------------------------------------------------------- the controller
def looked(reads: ViewLookups, readers: Mapping[str, ViewDef], lookups: Sequence[tuple[str, int, Sequence[Key]]]
           ) -> list[Sequence[Rows] | messages.KeyRowsReply]:
    """Look keys up for a far front end.  readers: the views that it may read, by name."""
    return [_looked(reads, readers.get(view), definition, keys) for view, definition, keys in lookups]


def _looked(reads: ViewLookups, view: ViewDef | None, definition: int,
            keys: Sequence[Key]) -> Sequence[Rows] | messages.KeyRowsReply:
    if view is None or view.definition != definition:
        return [None] * len(keys)
    if len(keys) >= FEW:
        try:
            found = reads.present_keys(view, list(keys))
        except SqlError:  # an error of one key: the session reports it
            found = None
        if found is not None and found[0].num_rows <= OFF_LOOP_ROWS:
            return messages.KeyRowsReply(found[0], found[1].tolist())
    return [_one(reads, view, key) for key in keys]


def _one(reads: ViewLookups, view: ViewDef, key: Key) -> Rows:
    try:
        found = reads.local(view, key, False)
    except SqlError:
        return None
    return None if found is None else found.rows
