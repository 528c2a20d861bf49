"""A SELECT of one key that whoever parsed it made known, answered from shared memory without parser and program.

Keeps true: what it gives is what the session itself would give; where it is not sure of that it gives nothing, and the
session is asked.
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
Route = tuple[str, tuple[int, ...], int]  # of a reader, as `Routes.learn` takes it


@dataclass(slots=True, eq=False, weakref_slot=True)
class Known:
    """number: of the statement, from which kept replies have their keys; version: of the program that it was parsed
    under; reader: which view answers, None when that is gone; through: how it is read there; plain: its parameters are
    the key; shape: None where LIMIT has a parameter; route: None with one worker."""

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
        """What is done to the rows, and the key's values."""
        shape = self.shape or Shape.of(bound_select(self.select, values).view or self.view)
        return shape, values if self.plain else [a.bind(values).values[0] for a in self.select.lookups]


class Wanted(NamedTuple):
    """One key's rows in a reader, some of its rows and columns (through), and what is done to them."""

    reader: ViewDef
    key: tuple[Any, ...]
    through: Through | None
    shape: Shape

    def answer(self, rows: list[Any]) -> ResultSet:
        """rows: all that the reader has of the key, with all columns."""
        chosen = rows if self.through is None else self.through.rows(rows)
        return ResultSet(self.shape.shown, self.shape.apply(chosen))


def wanted(link: Link, known: Known, values: Sequence[Any], unseen: Own
           ) -> Wanted | ResultSet | tuple[str, int] | None:
    """What is to be looked up; the answer where that is nothing, or the view and the worker that may not have the
    session's own writes yet.  SqlError."""
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
    """The answer, where all of it is in shared memory; else None, or what `wanted` says."""
    try:
        want = wanted(link, known, values, unseen)
        if not isinstance(want, Wanted):
            return want
        found = reads.local(want.reader, want.key, keep, want.through)
        if found is None:
            return None
        return ResultSet(want.shape.shown, want.shape.apply(found.rows), (), found.stands)
    except SqlError:
        return None  # the session says it in its way
