"""Caches parsed statements: by text and, for texts that differ only in literals, by shape.

A parse takes hundreds of microseconds, the recognition of a shape a few (design/decisions.md, 5).  A shape is learnt
at its second occurrence.  For a SELECT, the first command is kept until then, so the shape is parsed instead of the
second text.  For other statements, the text and the shape are parsed.

Keeps true: a shape is used only after its own tree and the tree of one of its texts gave the same command.  A statement
parsed under another version of the program is parsed again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.view_index import reading
from noria.core.errors import SqlError
from noria.core.errors.codes import EMPTY_QUERY
from noria.core.limits import FIRST_STATEMENTS, OFF_LOOP_CHARACTERS
from noria.core.statements import Delete, Insert, Update
from noria.plan.read_errors import has_single_values
from noria.plan.reuse.lookups.through import ReadThrough
from noria.plan.view import ViewDef
from noria.server.answering.bounded_cache import BoundedCache
from noria.server.answering.result_finish import ResultFinish
from noria.sql.commands import (
    Command,
    CountedSelect,
    Explain,
    PlannedStatement,
    Select,
    Transaction,
    bound_select,
)
from noria.sql.parse import bind, parse, prepare
from noria.sql.text.databases import Names, in_namespace, scope_in
from noria.sql.text.shape import shape_of

_numbers = itertools.count(1)
Check = Callable[[str], None] | None
_LEARNT = (Select, CountedSelect, Insert, Update, Delete, Transaction)


class CachedStatement:
    """A parsed statement, which several sessions may share.  Keys of kept replies contain its number, not the object.

    version: the program's version at parsing.  namespace: of the sessions in which the text means this.  plain: the
    parameters are the key.  shape: None if LIMIT is a parameter."""

    __slots__ = ("by_key", "direct", "generation", "namespace", "number", "one_key", "plain", "prepared", "reader",
                 "scope", "shape", "text", "through", "uses", "version", "view")

    def __init__(self, text: str, prepared: PlannedStatement, version: int, namespace: str = ""):
        self.text, self.prepared, self.version, self.namespace = text, prepared, version, namespace
        self.scope = scope_in(namespace)
        self.number = next(_numbers)
        self.direct = _is_direct(prepared)
        select = self.command if isinstance(self.command, Select) else None
        self.one_key = select is not None and is_one_key(select)
        self.plain = select is not None and self.one_key and select.is_plain(prepared.parameters)
        self.reader: ViewDef | None = None  # the view that answers in `generation` of the program
        self.through: ReadThrough | None = None  # selects the rows and columns in the reader
        self.generation = -1
        self.uses = 0
        self.by_key = False  # a write that needs no scan of its table (`TableRewrites.may_rewrite` returned False)
        self.view = None if select is None else select.view
        self.shape: ResultFinish | None = None
        if select is not None and select.view is not None and select.limit is None and select.offset is None:
            self.shape = ResultFinish.of(select.view, select.columns)

    @property
    def command(self) -> Command:
        return self.prepared.command

    def answered_by(self, reader: ViewDef | None, generation: int) -> None:
        self.reader, self.generation = reader, generation
        self.through = None if reader is None or self.view is None else reading(reader, self.view)

    def bind(self, values: Sequence[Any]) -> Command:
        return bind(self.prepared, values)

    def select(self, values: Sequence[Any]) -> Select:
        """Return the SELECT with its values."""
        command = self.bind(values)
        assert isinstance(command, Select)
        return command

    def bind_lookup(self, values: Sequence[Any]) -> tuple[ResultFinish, Sequence[Any]]:
        """Return the operations on the rows, and the key's values, of a SELECT of one key."""
        select, shape = self.command, self.shape
        assert isinstance(select, Select) and self.view is not None
        if shape is None:  # LIMIT has a parameter
            shape = ResultFinish.of(bound_select(select, values).view or self.view, select.columns)
        return shape, values if self.plain else [a.bind(values).values[0] for a in select.lookups]


def is_one_key(select: Select) -> bool:
    """True if the SELECT looks up one key and runs no plan on the rows (`ViewDef.after`)."""
    return select.view is not None and select.view.after is None and all(a.single for a in select.lookups)


def _is_direct(prepared: PlannedStatement) -> bool:
    """True for a SELECT whose view is the same for all values, so that a lookup by the values answers it."""
    command = prepared.command
    if not isinstance(command, Select) or command.view is None:
        return False
    if has_single_values(command.view.plan):
        return False  # a front end does not know its errors
    return command.parameters == set(range(prepared.parameters))


class _ShapeEntry(NamedTuple):
    """The literals and the command of the first text of a shape, parsed under this version of the program."""

    version: int
    literals: Sequence[Any]
    command: Select


class Statements:
    """The caches of parsed statements (see the module).  parsed: the number of parses.

    A text means something else in another database, or in a session without ONLY_FULL_GROUP_BY.  The caches know it
    under `in_namespace(namespace, text)`.
    """

    def __init__(self, catalog: ProgramCatalog):
        self._catalog = catalog
        self._by_text: BoundedCache[CachedStatement] = BoundedCache()
        self._by_shape: BoundedCache[CachedStatement] = BoundedCache()
        # unusable shapes, and the version under which they were tried
        self._refused: BoundedCache[int] = BoundedCache()
        # shapes that occurred once, and the version: learning costs another parse
        self._seen: BoundedCache[int] = BoundedCache()
        self._firsts: BoundedCache[_ShapeEntry] = BoundedCache(FIRST_STATEMENTS)  # by shape
        self.parsed = 0

    def _names(self, namespace: str) -> Names:
        return Names.of(namespace, self._catalog.databases)

    def prepare(self, text: str, namespace: str = "", check: Check = None) -> CachedStatement:
        """Return the statement of this text, in which literals are constants.  check: as in `parse`.  Raises SqlError.
        """
        key = in_namespace(namespace, text)
        found = self._by_text.get(key)
        if found is not None and found.version == self._catalog.version:
            return found
        if check is not None:
            check(text)
        self.parsed += 1
        compiled = CachedStatement(text, prepare(text, self._catalog, self._names(namespace)), self._catalog.version,
                                   namespace)
        self._by_text.put(key, compiled)
        return compiled

    def recognise(self, text: str, namespace: str = "") -> tuple[CachedStatement, Sequence[Any]] | None:
        """Return the statement of the text's shape and the text's literals.  None if the shape is not confirmed.  The
        second SELECT of a shape confirms it here."""
        found = shape_of(text)
        if found is None:
            return None
        key = in_namespace(namespace, found[0])
        compiled = self._by_shape.get(key)
        if compiled is None or compiled.version != self._catalog.version:
            compiled = self._confirmed(key, found[0], namespace)
        return None if compiled is None else (compiled, found[1])

    def known(self, text: str, namespace: str = "") -> tuple[CachedStatement, Sequence[Any]] | None:
        """As `recognise`, but without learning a shape."""
        found = shape_of(text)
        if found is None:
            return None
        compiled = self._by_shape.get(in_namespace(namespace, found[0]))
        return None if compiled is None or compiled.version != self._catalog.version else (compiled, found[1])

    def parse(self, text: str, namespace: str = "", check: Check = None) -> Command:
        """Parse a text with one statement, and learn its shape.  check: raises an SqlError if the session may not run
        the text.  The namespace is that of sessions with the same rights.  Raises SqlError."""
        if check is not None:
            check(text)
        return self._single(text, namespace, parse(text, self._catalog, True, self._names(namespace)))

    async def parse_beside(self, text: str, namespace: str = "", check: Check = None) -> Command:
        """As `parse`, in a thread, for a long text."""
        if check is not None:
            await asyncio.to_thread(check, text)
        names = self._names(namespace)
        return self._single(text, namespace, await asyncio.to_thread(parse, text, self._catalog, True, names))

    def _single(self, text: str, namespace: str, commands: Sequence[Command]) -> Command:
        self.parsed += 1
        if not commands:
            raise SqlError(*EMPTY_QUERY, "Query was empty")
        (command,) = commands
        if isinstance(command, Explain) and isinstance(command.command, Select):
            return Explain(self._as_run(command.text, namespace, command.command), command.analyze)
        if isinstance(command, Select):
            best = self._best(command)
            if best is not command:  # a view for exactly this range answers: each text of the shape must be checked
                self._refuse(text, namespace)
            command = best
        if isinstance(command, Transaction) and command.name:  # savepoints often have a name of their own each
            return command
        if isinstance(command, _LEARNT) and len(text) <= OFF_LOOP_CHARACTERS:
            self._learn(text, namespace, command)
        return command

    def _as_run(self, text: str, namespace: str, select: Select) -> Select:
        """Return the SELECT that this text runs.  A known shape decides, even if a better view was made since."""
        known = self.known(text, namespace)
        command = self._best(select) if known is None else known[0].bind(known[1])
        assert isinstance(command, Select)
        return command

    def _best(self, select: Select) -> Select:
        """Return the SELECT with its literal ranges as conditions of the view, if a view with just these conditions
        exists.  The view may be without a reader.  Else return the SELECT unchanged."""
        if select.instead is None or select.view is None or not self._catalog.is_read_beside(select.view):
            return select  # no view reads these tables: planning would be in vain
        try:
            other = select.instead()
        except SqlError:
            return select
        assert other.view is not None
        known = self._catalog.match(other.view) or self._catalog.readerless(other.view)
        return select if known is None else other

    def _learn(self, text: str, namespace: str, command: Command) -> None:
        found = shape_of(text)
        if found is None:
            return
        key = in_namespace(namespace, found[0])
        if self._refused.get(key) == self._catalog.version:
            return
        if self._seen.get(key) != self._catalog.version:
            self._seen.put(key, self._catalog.version)
            if isinstance(command, Select):
                self._firsts.put(key, _ShapeEntry(self._catalog.version, found[1], command))
            return
        self._learnt(key, found[0], namespace, found[1], command)

    def _confirmed(self, key: str, text_of_shape: str, namespace: str) -> CachedStatement | None:
        """Learn a shape whose first SELECT is still cached.  None if this fails."""
        first = self._firsts.get(key)
        if first is None or first.version != self._catalog.version:
            return None
        self._firsts.take(key)
        if self._best(first.command) is not first.command:  # a view for exactly its range was made since
            self._refused.put(key, self._catalog.version)
            return None
        self.parsed += 1
        return self._learnt(key, text_of_shape, namespace, first.literals, first.command)

    def _learnt(self, key: str, text_of_shape: str, namespace: str, literals: Sequence[Any], command: Command
                ) -> CachedStatement | None:
        """Learn the shape if its parse, bound to the literals, gives the command of the text.  None if it does not."""
        try:
            prepared = prepare(text_of_shape, self._catalog, self._names(namespace))
            if (prepared.parameters == len(literals) and not _decides(prepared)
                    and bind(prepared, literals) == command):
                compiled = CachedStatement(text_of_shape, prepared, self._catalog.version, namespace)
                self._by_shape.put(key, compiled)
                return compiled
        except SqlError:
            pass  # a literal is where SQL allows no parameter
        self._refused.put(key, self._catalog.version)
        return None

    def _refuse(self, text: str, namespace: str) -> None:
        """Mark the shape of the text as unusable."""
        found = shape_of(text)
        if found is not None:
            key = in_namespace(namespace, found[0])
            self._refused.put(key, self._catalog.version)
            self._firsts.take(key)


def _decides(prepared: PlannedStatement) -> bool:
    """True for a SELECT that no view answers: a parameter may decide its plan or the names of its columns."""
    return isinstance(prepared.command, Select) and prepared.command.view is None
