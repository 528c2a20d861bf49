"""Runs the statements that create, drop or write temporary tables, and plans those that name one.

Keeps true: a statement that names a temporary table is planned with the session's own catalog and is in no cache.  One
that fails leaves the tables as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import BAD_TABLE, TABLE_EXISTS
from noria.core.statements import Delete, Insert, Update, WriteResult
from noria.server.answering.statements import CachedStatement
from noria.server.outcomes import Ok, Outcome, ResultSet
from noria.server.sessions import session_reads, writes
from noria.server.sessions.context import SessionContext
from noria.server.sessions.given.temporary import TemporaryTable, TemporaryTables
from noria.server.sessions.inspect import inspection
from noria.server.sessions.modes.lenient_writes import Leniency
from noria.server.sessions.transactions.selected_parts import parts_of
from noria.sql import commands as sql
from noria.sql.parse import parse, prepare
from noria.sql.text.databases import Names

_NEVER = -1  # a version of the program that there never is: the text is planned again at each execution


def parsed(session: SessionContext, text: str) -> sql.Command:
    """Parse one statement with the session's own catalog."""
    (command,) = parse(text, _catalog(session), True, _names(session))
    return command


def planned(session: SessionContext, text: str) -> CachedStatement:
    """Prepare one statement with the session's own catalog."""
    return CachedStatement(text, prepare(text, _catalog(session), _names(session)), _NEVER, session.namespace)


def _catalog(session: SessionContext) -> Any:
    return session.temporary.catalog(session.executor.program.catalog)


def _names(session: SessionContext) -> Names:
    return Names.of(session.namespace, session.executor.program.catalog.databases)


async def run(session: SessionContext, command: sql.Command, items: writes.Items) -> Outcome | None:
    """Run a statement about temporary tables; None if the command is about others only."""
    own = session.temporary
    if isinstance(command, sql.CreateTemporary):
        return await _create(session, command, items)
    if isinstance(command, sql.DropTemporary):
        missing = own.drop(command.names, command.if_exists)
        return Ok(warnings=[("Note", BAD_TABLE.number, f"Unknown table '{name}'") for name in missing])
    if not own:
        return None
    if isinstance(command, sql.DropTable) and any(own.find(n) for n in command.names):
        rest = tuple(n for n in command.names if own.find(n) is None)
        if rest:
            raise not_supported("DROP TABLE of temporary and other tables together", "drop them one by one")
        own.drop(command.names, False)
        return Ok()
    if isinstance(command, sql.Truncate) and (table := own.find(command.name)) is not None:
        own.before_write(session.transaction.active)
        table.write(Delete(command.name, None), session.offset)
        return Ok()
    if isinstance(command, Insert | Update | Delete) and (table := own.find(command.table)) is not None:
        own.before_write(session.transaction.active)
        return _run(session, table, command)
    if isinstance(command, sql.SelectedWrite) and any(own.find(n) for n in command.tables):
        return await _write_selected(session, command, items)
    if isinstance(command, sql.Show) and (table := own.find(command.target)) is not None:
        return _shown(session, command, table)
    _refuse_others(own, command)
    return None


def _shown(session: SessionContext, command: sql.Show, table: TemporaryTable) -> ResultSet | None:
    """SHOW CREATE TABLE, COLUMNS and INDEX, and DESCRIBE, of a temporary table."""
    databases = session.executor.program.catalog.databases
    beside: Any = SimpleNamespace(table=lambda name: table.definition, databases=databases)
    if command.what == "create table":
        found = inspection.create_table(table.definition, table.next_number, beside)
        (name, text), *_ = found.rows
        return replace(found, rows=[(name, str(text).replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1))])
    return inspection.show(command, beside, session) if command.what in ("columns", "index") else None


def _refuse_others(own: TemporaryTables, command: sql.Command) -> None:
    """Refuse definitions of temporary tables beside CREATE and DROP."""
    if isinstance(command, sql.AlterTable | sql.RenameTables):
        named = next((n for n in sql.tables_changed(command) if own.find(n)), None)
        if named is not None:
            raise not_supported(f"ALTER and RENAME of the temporary table '{named}'", "create another one from it")


async def _create(session: SessionContext, command: sql.CreateTemporary, items: writes.Items) -> Outcome:
    own, create = session.temporary, command.create
    if not own.create(create.table, create.if_not_exists):
        return Ok(warnings=[("Note", TABLE_EXISTS.number, f"Table '{create.table.name}' already exists")])
    if command.fill is None:
        return Ok()
    try:
        return await _write_selected(session, command.fill, items)
    except BaseException:
        own.drop((create.table.name,), True)
        raise


async def _write_selected(session: SessionContext, command: sql.SelectedWrite, items: writes.Items) -> Outcome:
    """Write rows that a SELECT finds."""
    tables = [session.temporary.find(name) for name in command.tables]
    if None in tables:
        raise not_supported("a write of temporary and other tables together", "write them one after the other")
    found = await _found(session, command.select, items)
    session.temporary.before_write(session.transaction.active)
    before = [(t, t.state()) for t in tables if t is not None]
    results: list[WriteResult] = []
    leniency = _leniency(session, command.ignores, command.insert is not None)
    try:
        for part in parts_of(command, found.fields, [tuple(r) for r in found.rows]):
            table = session.temporary.find(part.table)
            assert table is not None
            results.append(_written(session, table, part, leniency))
    except SqlError:
        for table, state in before:
            table.restore(state)
        raise
    done = WriteResult(sum(r.affected for r in results), next((r.last_insert_id for r in results if r.last_insert_id),
                                                              0), sum(r.matched for r in results))
    if command.insert is not None:
        ok = writes.applied(session, command.insert._replace(rows=range(len(found.rows))), done, True)
        return writes.warned(ok, leniency.warnings)
    name = command.tables[0]
    ok = writes.applied(session, Delete(name, None) if command.targets[0].assignments is None
                        else Update(name, (), None), done)
    return writes.warned(ok, leniency.warnings)


def _run(session: SessionContext, table: TemporaryTable, command: Insert | Update | Delete) -> Outcome:
    leniency = _leniency(session, isinstance(command, Insert) and command.on_duplicate == "ignore")
    result = _written(session, table, command, leniency)
    return writes.warned(writes.applied(session, command, result), leniency.warnings)


def _leniency(session: SessionContext, ignore: bool, selected: bool = False) -> Leniency:
    own = session.temporary
    return Leniency(session.mode, lambda n: None if (t := own.find(n)) is None else t.definition, ignore, selected)


def _written(session: SessionContext, table: TemporaryTable, part: Insert | Update | Delete, leniency: Leniency
             ) -> WriteResult:
    """Write a part of a statement; a second time with values that fit, if that is where MySQL only warns."""
    part = writes.in_mode(session, part, table.definition)
    warned = leniency.warnings.number
    try:
        return table.write(leniency.first(part), session.offset)
    except SqlError as e:
        leniency.warnings.back_to(warned)
        again = leniency.again(part, e)
        if again is None and not leniency.ignore:
            raise
        if again is None:
            return WriteResult(matched=1)
    try:
        return table.write(again, session.offset)
    except SqlError:
        if not leniency.ignore:
            raise
        return WriteResult(matched=1)


async def _found(session: SessionContext, select: sql.Select | sql.LockingSelect | tuple[sql.SelectItems, ...],
                 items: writes.Items) -> ResultSet:
    if isinstance(select, tuple):
        answers: Sequence[ResultSet] = [await items(row) for row in select]
        return replace(answers[0], rows=[row for a in answers for row in a.rows])
    if isinstance(select, sql.LockingSelect):
        raise not_supported("a write of temporary and other tables together", "write them one after the other")
    return await session_reads.select(session, select)


__all__ = ["parsed", "planned", "run"]
