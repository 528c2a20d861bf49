"""Answers a known SELECT of one key from shared memory, without parser and program.

Keeps true: the answer is the one that the session itself would return.  If that is not certain there is no answer, and
the session is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Own
from noria.plan.reuse.through import Through
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link
from noria.server.answering.keys import key_of
from noria.server.answering.reads import Reads
from noria.server.answering.shapes import Shape
from noria.server.outcomes import ResultSet
from noria.sql.commands import Select, bound_select

TOUCH_EVERY = 64  # executions between two notes that an ad-hoc view is in use
Route = tuple[str, tuple[int, ...], int]  # of a reader, as `Routes.learn` expects it


@dataclass(slots=True, eq=False, weakref_slot=True)
class Known:
    """A parsed SELECT of one key, as other processes know it.

    number: of the statement, part of the keys of kept replies; version: of the program that it was parsed under;

    reader: the view that answers, None once that is dropped; through: how it is read there.

    plain: its parameters are the key; shape: None if LIMIT has a parameter; route: None with one worker.
    """

    number: int
    version: int
    select: Select
    view: ViewDef
    reader: ViewDef | None
    through: Through | None
    plain: bool
    shape: Shape | None
    route: Route | None
    uses: int = 0

    @staticmethod
    def of(number: int, version: int, select: Select, reader: ViewDef, through: Through | None, plain: bool,
           shape: Shape | None, route: Route | None) -> Known:
        assert select.view is not None
        return Known(number, version, replace(select, instead=None), select.view, reader, through, plain, shape, route)

    def asked(self, values: Sequence[Any]) -> tuple[Shape, Sequence[Any]]:
        """The operations on the rows, and the key's values."""
        shape = self.shape or Shape.of(bound_select(self.select, values).view or self.view)
        return shape, values if self.plain else [a.bind(values).values[0] for a in self.select.lookups]


class Wanted(NamedTuple):
    """The lookup of one key in a reader, the choice of its rows and columns (through), and the operations on them."""

    reader: ViewDef
    key: tuple[Any, ...]
    through: Through | None
    shape: Shape

    def answer(self, rows: list[Any]) -> ResultSet:
        """The result.  rows: all rows that the reader has of the key, with all columns."""
        chosen = rows if self.through is None else self.through.rows(rows)
        return ResultSet(self.shape.shown, self.shape.apply(chosen))


def wanted(link: Link, known: Known, values: Sequence[Any], unseen: Own
           ) -> Wanted | ResultSet | tuple[str, int] | None:
    """The lookup to make; or the answer, if nothing can be found; or the view and the worker that may lack the
    session's own writes.  Raises SqlError."""
    reader = known.reader
    if reader is None:
        return None
    shape, asked = known.asked(values)
    key = key_of(asked, known.view.key_fields)
    if key is None:
        return ResultSet(shape.shown, shape.apply([]))
    through = known.through
    if through is not None and not through.same_key:
        (key,), through = through.of([key])
    if unseen and not link.has(worker := link.routes.owner(reader, key), reader.name, unseen):
        return reader.name, worker
    return Wanted(reader, key, through, shape)


def hit(reads: Reads, link: Link, known: Known, values: Sequence[Any], keep: bool, unseen: Own
        ) -> ResultSet | tuple[str, int] | None:
    """The answer, if all of it is in shared memory; else None, or what `wanted` returns."""
    try:
        want = wanted(link, known, values, unseen)
        if not isinstance(want, Wanted):
            return want
        found = reads.local(want.reader, want.key, keep, want.through)
        if found is None:
            return None
        return ResultSet(want.shape.shown, want.shape.apply(found.rows), (), found.stands)
    except SqlError:
        return None  # the session reports the error in its own way
