"""Caches parsed statements: by text and, for texts that differ only in literals, by shape.

Parsing takes hundreds of microseconds, recognising a shape a few (DESIGN section 5).  A shape is learnt when it occurs
for the second time.  For a SELECT the shape is then parsed instead of the text, since the first command is kept until
then; for other statements it is parsed in addition.

Keeps true: a shape is only used after its own parsed tree and that of one text of it gave the same command.  Everything
parsed under another version of the program is parsed again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from noria.control.catalog.catalog import Catalog
from noria.control.catalog.holding import reading
from noria.core.errors import SqlError
from noria.core.limits import FIRST_STATEMENTS, OFF_LOOP_CHARACTERS
from noria.core.statements import Delete, Insert, Update
from noria.plan.reuse.through import Through
from noria.plan.view import ViewDef
from noria.server.answering.kept import Kept
from noria.server.answering.shapes import Shape
from noria.sql.commands import Command, Explain, Prepared, Select, bound_select
from noria.sql.parse import bind, parse, prepare
from noria.sql.text.shape import shape_of

_numbers = itertools.count(1)


class Compiled:
    """A parsed statement; several sessions may hold it.  Keys of kept replies have its number, not the object."""

    __slots__ = ("by_key", "direct", "generation", "number", "one_key", "plain", "prepared", "reader", "shape", "text",
                 "through", "uses", "version", "view")

    def __init__(self, text: str, prepared: Prepared, version: int):
        self.text, self.prepared, self.version = text, prepared, version
        self.number = next(_numbers)
        self.direct = _is_direct(prepared)
        select = self.command if isinstance(self.command, Select) else None
        self.one_key = select is not None and is_one_key(select)
        self.plain = select is not None and self.one_key and select.is_plain(prepared.parameters)  # values: the key
        self.reader: ViewDef | None = None  # the view that answers, as found in `generation` of the program
        self.through: Through | None = None  # how it is read there
        self.generation = -1
        self.uses = 0
        self.by_key = False  # a write that was found to concern one or few rows (`Rewriting.may_rewrite`)
        self.view = None if select is None else select.view
        fixed = select is not None and select.limit is None and select.offset is None
        self.shape = Shape.of(self.view) if fixed and self.view is not None else None

    @property
    def command(self) -> Command:
        return self.prepared.command

    def answered_by(self, reader: ViewDef | None, generation: int) -> None:
        self.reader, self.generation = reader, generation
        self.through = None if reader is None or self.view is None else reading(reader, self.view)

    def bind(self, values: Sequence[Any]) -> Command:
        return bind(self.prepared, values)

    def select(self, values: Sequence[Any]) -> Select:
        """The SELECT with its values."""
        command = self.bind(values)
        assert isinstance(command, Select)
        return command

    def asked(self, values: Sequence[Any]) -> tuple[Shape, Sequence[Any]]:
        """For a SELECT of one key: the operations on its rows, and the key's values."""
        select, shape = self.command, self.shape
        assert isinstance(select, Select) and self.view is not None
        if shape is None:  # LIMIT has a parameter
            shape = Shape.of(bound_select(select, values).view or self.view)
        return shape, values if self.plain else [a.bind(values).values[0] for a in select.lookups]


def is_one_key(select: Select) -> bool:
    """True if the SELECT asks only for one key's rows in order."""
    return select.view is not None and select.view.after is None and all(a.single for a in select.lookups)


def _is_direct(prepared: Prepared) -> bool:
    """True if a lookup by the values gives the answer, in the same view for all values."""
    command = prepared.command
    if not isinstance(command, Select) or command.view is None:
        return False
    return command.parameters == set(range(prepared.parameters))


class _First(NamedTuple):
    """The literals and the command of the first text of a shape, under this version of the program."""

    version: int
    literals: Sequence[Any]
    command: Select


class Statements:
    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._by_text: Kept[Compiled] = Kept()
        self._by_shape: Kept[Compiled] = Kept()
        self._refused: Kept[int] = Kept()  # unusable shapes, and the version under which they were tried
        self._seen: Kept[int] = Kept()  # shapes that occurred once, and the version: learning costs another parse
        self._firsts: Kept[_First] = Kept(FIRST_STATEMENTS)  # by shape
        self.parsed = 0

    def prepare(self, text: str) -> Compiled:
        """The statement of this text, with its literals."""
        found = self._by_text.get(text)
        if found is not None and found.version == self._catalog.version:
            return found
        self.parsed += 1
        compiled = Compiled(text, prepare(text, self._catalog), self._catalog.version)
        self._by_text.put(text, compiled)
        return compiled

    def recognise(self, text: str) -> tuple[Compiled, Sequence[Any]] | None:
        """The statement and its literals, if a text of the same shape was confirmed before, or can be now."""
        found = shape_of(text)
        if found is None:
            return None
        compiled = self._by_shape.get(found[0])
        if compiled is None or compiled.version != self._catalog.version:
            compiled = self._confirmed(found[0])
        return None if compiled is None else (compiled, found[1])

    def known(self, text: str) -> tuple[Compiled, Sequence[Any]] | None:
        """As `recognise`, but learns nothing."""
        found = shape_of(text)
        if found is None:
            return None
        compiled = self._by_shape.get(found[0])
        return None if compiled is None or compiled.version != self._catalog.version else (compiled, found[1])

    def parse(self, text: str) -> Command:
        """The command of a text with one statement; learns its shape."""
        return self._single(text, parse(text, self._catalog, complete=True))

    async def parse_beside(self, text: str) -> Command:
        """As `parse`, for a long text, in a thread."""
        return self._single(text, await asyncio.to_thread(parse, text, self._catalog, complete=True))

    def _single(self, text: str, commands: Sequence[Command]) -> Command:
        self.parsed += 1
        if not commands:
            raise SqlError(1065, "42000", "Query was empty")
        (command,) = commands
        if isinstance(command, Explain) and isinstance(command.command, Select):
            return Explain(self._as_run(command.text, command.command), command.analyze)
        if isinstance(command, Select):
            best = self._best(command)
            if best is not command:  # a view of just this range answers: other texts of the shape need their own check
                self._refuse(text)
            command = best
        if isinstance(command, Select | Insert | Update | Delete) and len(text) <= OFF_LOOP_CHARACTERS:
            self._learn(text, command)
        return command

    def _as_run(self, text: str, select: Select) -> Select:
        """The SELECT that a client sending this text would run: its shape may be older than a better view."""
        known = self.known(text)
        command = self._best(select) if known is None else known[0].bind(known[1])
        assert isinstance(command, Select)
        return command

    def _best(self, select: Select) -> Select:
        """The SELECT with literal ranges as conditions of a view, if such a view exists, read or not."""
        if select.instead is None or select.view is None or not self._catalog.is_read_beside(select.view):
            return select  # not even worth planning
        try:
            other = select.instead()
        except SqlError:
            return select
        assert other.view is not None
        known = self._catalog.match(other.view) or self._catalog.readerless(other.view)
        return select if known is None else other

    def _learn(self, text: str, command: Command) -> None:
        found = shape_of(text)
        if found is None or self._refused.get(found[0]) == self._catalog.version:
            return
        text_of_shape, literals = found
        if self._seen.get(text_of_shape) != self._catalog.version:
            self._seen.put(text_of_shape, self._catalog.version)
            if isinstance(command, Select):
                self._firsts.put(text_of_shape, _First(self._catalog.version, literals, command))
            return
        self._learnt(text_of_shape, literals, command)

    def _confirmed(self, text_of_shape: str) -> Compiled | None:
        """Learn a shape whose first SELECT is still known."""
        first = self._firsts.get(text_of_shape)
        if first is None or first.version != self._catalog.version:
            return None
        self._firsts.take(text_of_shape)
        if self._best(first.command) is not first.command:  # a view of just its range was made since
            self._refused.put(text_of_shape, self._catalog.version)
            return None
        self.parsed += 1
        return self._learnt(text_of_shape, first.literals, first.command)

    def _learnt(self, text_of_shape: str, literals: Sequence[Any], command: Command) -> Compiled | None:
        """Learn the shape, if parsing it gives the command of its text; None if not."""
        try:
            prepared = prepare(text_of_shape, self._catalog)
            if (prepared.parameters == len(literals) and not _decides(prepared)
                    and bind(prepared, literals) == command):
                compiled = Compiled(text_of_shape, prepared, self._catalog.version)
                self._by_shape.put(text_of_shape, compiled)
                return compiled
        except SqlError:
            pass  # a literal is at a place where no parameter can be
        self._refused.put(text_of_shape, self._catalog.version)
        return None

    def _refuse(self, text: str) -> None:
        """Mark the shape of the text as unusable."""
        found = shape_of(text)
        if found is not None:
            self._refused.put(found[0], self._catalog.version)
            self._firsts.take(found[0])


def _decides(prepared: Prepared) -> bool:
    """Does a parameter decide how the SELECT is planned, or what its columns are called?"""
    return isinstance(prepared.command, Select) and prepared.command.view is None
