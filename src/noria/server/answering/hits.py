"""Answers a known SELECT of one key from shared memory, at once or once its key is filled.  Neither the parser nor
the program takes part.

Keeps true: the answer is the one that the session itself would return.  If that is not certain, this module returns no
answer, and the caller passes the statement to the session.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from noria.core.errors import SqlError
from noria.dataflow.messages.packets import SessionWrites
from noria.plan.reuse.lookups.through import ReadThrough
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link
from noria.server.answering.keys import key_of
from noria.server.answering.result_finish import ResultFinish
from noria.server.answering.view_lookups import ViewLookups
from noria.server.outcomes import ResultSet
from noria.sql.commands import Select, bound_select

TOUCH_EVERY = 64  # executions between two notes that an ad-hoc view is in use
Route = tuple[str, tuple[int, ...], int]  # of a reader, in the form that `KeyRoutes.learn` accepts


@dataclass(slots=True, eq=False, weakref_slot=True)
class KnownSelect:
    """A parsed SELECT of one key, in the form that front ends receive.

    number: the statement's number, part of the keys of kept replies.  version: the program's version at parsing.

    reader: the view that answers; None once it is dropped.  through: selects the rows and columns in the reader.

    plain: the parameters are the key.  shape: None if LIMIT has a parameter.  route: None with one worker.
    """

    number: int
    version: int
    select: Select
    view: ViewDef
    reader: ViewDef | None
    through: ReadThrough | None
    plain: bool
    shape: ResultFinish | None
    route: Route | None
    uses: int = 0

    @staticmethod
    def of(number: int, version: int, select: Select, reader: ViewDef, through: ReadThrough | None, plain: bool,
           shape: ResultFinish | None, route: Route | None) -> KnownSelect:
        assert select.view is not None
        return KnownSelect(number, version, replace(select, instead=None), select.view, reader, through, plain, shape,
                           route)

    def bind_lookup(self, values: Sequence[Any]) -> tuple[ResultFinish, Sequence[Any]]:
        """Return the operations on the rows, and the key's values."""
        shape = self.shape or ResultFinish.of(bound_select(self.select, values).view or self.view,
                                              self.select.columns)
        return shape, values if self.plain else [a.bind(values).values[0] for a in self.select.lookups]


class KeyLookup(NamedTuple):
    """A lookup of one key in a reader.  through: selects rows and columns; shape: the operations on them."""

    reader: ViewDef
    key: tuple[Any, ...]
    through: ReadThrough | None
    shape: ResultFinish

    def answer(self, rows: list[Any]) -> ResultSet:
        """Return the result.  rows: all rows of the key in the reader, with all columns."""
        chosen = rows if self.through is None else self.through.rows(rows)
        return ResultSet(self.shape.shown, self.shape.apply(chosen))


@dataclass(frozen=True, slots=True)
class MissedKey:
    """The answer to a SELECT of one key that is missing.

    `fill` begins to fill the key.  `found` returns the answer once it is filled, or None.  `later` begins an answer
    that takes its time.  Who awaits this object awaits `later`.
    """

    reads: ViewLookups
    lookup: KeyLookup
    later: Callable[[], Coroutine[Any, Any, ResultSet]]

    def fill(self) -> Future[bool] | None:
        """Return a future that is done soon, or None if somebody waits for the key otherwise."""
        fill = self.reads.fill(self.lookup.reader, self.lookup.key)
        return None if fill is None else fill.soon

    def found(self) -> ResultSet | None:
        want = self.lookup
        rows = self.reads.filled(want.reader, want.key, want.through)
        return None if rows is None else ResultSet(want.shape.shown, want.shape.apply(rows))

    def __await__(self) -> Generator[Any, Any, ResultSet]:
        return self.later().__await__()


def wanted(link: Link, known: KnownSelect, values: Sequence[Any], unseen: SessionWrites
           ) -> KeyLookup | ResultSet | tuple[str, int] | None:
    """Return the lookup that answers the statement.  Return the answer itself if no row can have the key, None if the
    view was dropped, and (view, worker) if this worker may lack the session's own writes (`unseen`).  Raises SqlError
    for a value that is no key."""
    reader = known.reader
    if reader is None:
        return None
    shape, key_values = known.bind_lookup(values)
    key = key_of(key_values, known.view.key_fields)
    if key is None:
        return ResultSet(shape.shown, shape.apply([]))
    through = known.through
    if through is not None and not through.same_key:
        (key,), through = through.of([key])
    if unseen and not link.has(worker := link.routes.owner(reader, key), reader.name, unseen):
        return reader.name, worker
    return KeyLookup(reader, key, through, shape)


def hit(reads: ViewLookups, link: Link, known: KnownSelect, values: Sequence[Any], keep: bool, unseen: SessionWrites
        ) -> ResultSet | tuple[str, int] | None:
    """Return the answer from shared memory.  Else return None, or (view, worker) as `wanted` does."""
    try:
        want = wanted(link, known, values, unseen)
        if not isinstance(want, KeyLookup):
            return want
        found = reads.local(want.reader, want.key, keep, want.through)
        if found is None:
            return None
        return ResultSet(want.shape.shown, want.shape.apply(found.rows), (), found.version)
    except SqlError:
        return None  # the session reports the error in its own way
