"""Statements that concern only their session: SET, USE, PREPARE and EXECUTE, and those without effect.

Keeps true: a statement of PREPARE belongs to its session and is planned at each EXECUTE, with the values of variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from noria.accounts import policy
from noria.core.errors import SqlError, not_supported, unknown_table
from noria.core.errors.codes import (
    MAX_PREPARED_STMT_COUNT_REACHED,
    NOT_SUPPORTED_YET,
    SP_FETCH_NO_DATA,
    TOO_MANY_ROWS,
    TRUNCATED_WRONG_VALUE,
    UNKNOWN_STMT_HANDLER,
    WRONG_ARGUMENTS,
    WRONG_NUMBER_OF_COLUMNS_IN_SELECT,
)
from noria.core.expressions.casts import show
from noria.core.identifiers import quote_identifier
from noria.core.limits import MYSQL_STATEMENTS
from noria.core.types import BIGINT, TEXT, Field
from noria.server.answering import time_zone
from noria.server.outcomes import Ok, Outcome, ResultSet, Warning_
from noria.server.sessions.context import SessionContext
from noria.server.sessions.given import local_load
from noria.server.sessions.inspect import inspection
from noria.server.sessions.running import Processes
from noria.server.sessions.variables import changes, most_errors
from noria.sql import commands as sql
from noria.sql.sql_modes import in_default_dialect

_UPKEEP = ("Table", "Op", "Msg_type", "Msg_text")
_SPREAD = 2_654_435_761  # so that the number of rows changes all bits of a checksum
TEXT_CHARACTERS = 2**22  # of all texts that a session keeps


async def run(session: SessionContext, command: sql.Command) -> Outcome:
    """Run a statement that changes only this session."""
    if isinstance(command, sql.ExecutePrepared):
        return await _execute(session, command)
    if isinstance(command, sql.LoadData):
        return await local_load.load(session, command)
    if isinstance(command, sql.SelectInto):
        return await _select_into(session, command)
    warnings: Sequence[Warning_] = ()
    if isinstance(command, sql.SetVariable):
        found: list[Warning_] = []
        for a in command.assignments:
            if a.scope == "global" and a.name in policy.DEFAULTS:
                await session.permits.set_policy(a.name, a.value)
            else:
                found += _assigned(session, a)
        warnings = found
    elif isinstance(command, sql.Use):
        session.use(command.database)
    elif isinstance(command, sql.FlushHosts):
        session.guard.flush_hosts()
    elif isinstance(command, sql.PrepareText):
        _prepare(session, command)
    elif isinstance(command, sql.DeallocatePrepared):
        if session.prepared_texts.pop(command.name.lower(), None) is None:
            raise _unknown(command.name, "DEALLOCATE PREPARE")
    elif isinstance(command, sql.NoOp) and command.what in ("check", "repair", "checksum"):
        return await _checked(session, command)
    elif isinstance(command, sql.NoOp):
        for name in command.tables:
            check_known(session, name)
        if command.what in ("analyze", "optimize"):
            return _upkeep(session, command)
    else:
        raise TypeError(f"no effect is known of {type(command).__name__}")
    return Ok(warnings=warnings)


async def transact(session: SessionContext, command: sql.Transaction, processes: Processes) -> None:
    """BEGIN, COMMIT, ROLLBACK and savepoints."""
    if command.what == "begin" or command.chain:
        session.executor.locks.unlock(session.connection_id)
    try:
        await session.transaction.run(command)
    finally:
        session.collect_own_writes()
    if session.temporary:
        session.temporary.follow(command.what, command.name)
    if command.release:
        processes.hang_up(session.connection_id)


async def lock(session: SessionContext, command: sql.LockTables) -> Ok:
    """LOCK TABLES commits; so does UNLOCK TABLES, if tables are locked."""
    locks, number = session.executor.locks, session.connection_id
    if command.tables or locks.holds(number):
        await session.commit()
    locks.unlock(number)
    command = replace(command, tables=tuple(t for t in command.tables if session.temporary.find(t[0]) is None))
    for name, _ in command.tables:
        check_known(session, name)
    if command.tables:
        await session.locked.lock(command, float(session.variables["lock_wait_timeout"]))
    return Ok()


def check_known(session: SessionContext, name: str) -> None:
    """Raise SqlError 1146 if nothing in the program has this name."""
    program = session.executor.program
    if program.table(name) is None and program.placeholder_view(name) is None and program.view(name) is None:
        raise unknown_table(name)


def _upkeep(session: SessionContext, command: sql.NoOp) -> ResultSet:
    """The answer of ANALYZE and OPTIMIZE TABLE, which have nothing to do."""
    databases = session.executor.program.catalog.databases
    rows = [(".".join(databases.split(name)), command.what, "status", "OK") for name in command.tables]
    return inspection.texts(_UPKEEP, rows)


async def _checked(session: SessionContext, command: sql.NoOp) -> ResultSet:
    """The answer of CHECK, REPAIR and CHECKSUM TABLE.  An unknown or damaged table has a row of its own."""
    rows: list[tuple[Any, ...]] = []
    for name in command.tables:
        shown = ".".join(session.executor.program.catalog.databases.split(name))
        error, number = "", None
        try:
            check_known(session, name)
            number = await _checksum(session, name) if command.what == "checksum" else None
            if command.what == "check":
                await session.run_text(f"SELECT 1 FROM {_written(session, name)} LIMIT 1", ())
        except SqlError as e:
            error = e.message
        if command.what == "checksum":
            rows.append((shown, number))
        elif error:
            rows += [(shown, command.what, "Error", error), (shown, command.what, "status", "Operation failed")]
        elif command.what == "repair":
            rows.append((shown, "repair", "note", "The storage engine for the table doesn't support repair"))
        else:
            rows.append((shown, "check", "status", "OK"))
    if command.what == "checksum":
        return ResultSet((Field("Table", TEXT), Field("Checksum", BIGINT, True)), rows)
    return inspection.texts(_UPKEEP, rows)


def _written(session: SessionContext, name: str) -> str:
    """A table's name as any session may write it."""
    return ".".join(map(quote_identifier, session.executor.program.catalog.databases.split(name)))


async def _checksum(session: SessionContext, name: str) -> int:
    """A number that depends on all rows, and not on their order."""
    columns = [f.name for f, _, _ in inspection.columns_of(name, session.executor.program.catalog)]
    values = ", ".join(f"IFNULL(HEX({quote_identifier(c)}), '-')" for c in columns)
    found = await session.run_text(f"SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS(',', {values}))) "
                                   f"FROM {_written(session, name)}", ())
    assert isinstance(found, ResultSet), "it is a SELECT"
    (count, xor), *_ = found.rows
    return (int(str(xor)) + int(str(count)) * _SPREAD) & 0xFFFFFFFF


def _assigned(session: SessionContext, a: sql.Assignment) -> Sequence[Warning_]:
    value = a.value
    if isinstance(value, sql.OutputColumn):
        value = inspection.value_of(value, session)
    if a.scope == "user":
        session.user_variables[a.name] = value
        return ()
    if a.scope == "global" and a.name == "max_connect_errors":
        number, cut = most_errors(value)
        session.guard.set_most_errors(number)
        return [("Warning", TRUNCATED_WRONG_VALUE.number, text) for text in cut]
    if a.scope == "global":
        raise not_supported("SET GLOBAL", "set the variable in each session, or start the server with options")
    kept, warnings = changes(a.name, value, session.variables)
    if a.name == "transaction" and a.scope == "":
        session.transaction.set_next(kept)
        kept = {}
    session.variables.update(kept)
    session.transaction.renew()
    session.set_status()
    session.offset = time_zone.offset_of(session.variables["time_zone"])
    return [("Warning", NOT_SUPPORTED_YET.number, text) for text in warnings]


async def _select_into(session: SessionContext, command: sql.SelectInto) -> Ok:
    """Run SELECT … INTO @a, @b: the variables get the values of the one row."""
    found = await session.run_command(command.command)
    assert isinstance(found, ResultSet), "it is a SELECT"
    if len(found.fields) != len(command.names):
        raise SqlError(*WRONG_NUMBER_OF_COLUMNS_IN_SELECT,
                       "The used SELECT statements have a different number of columns")
    for row in found.rows[:1]:
        for name, value, field in zip(command.names, row, found.fields, strict=True):
            session.user_variables[name] = show(value, field.type) if isinstance(value, date | timedelta) else value
    if len(found.rows) > 1:
        raise SqlError(*TOO_MANY_ROWS, "Result consisted of more than one row")
    none = ("Warning", SP_FETCH_NO_DATA.number, "No data - zero rows fetched, selected, or processed")
    return Ok(len(found.rows), warnings=() if len(found.rows) else [none])


# ------------------------------------------------------------------ PREPARE and EXECUTE
def _prepare(session: SessionContext, command: sql.PrepareText) -> None:
    """Plan the text once, so that its errors are those of PREPARE."""
    name, texts = command.name.lower(), session.prepared_texts
    texts.pop(name, None)
    text = _value(session, command.variable) if command.text is None else command.text
    if len(texts) >= MYSQL_STATEMENTS:
        raise SqlError(*MAX_PREPARED_STMT_COUNT_REACHED, "Can't create more than max_prepared_stmt_count statements "
                                                         f"(current value: {MYSQL_STATEMENTS})")
    text = "NULL" if text is None else in_default_dialect(str(text), session.namespace)
    if sum(map(len, texts.values())) + len(text) > TEXT_CHARACTERS:
        raise SqlError(*MAX_PREPARED_STMT_COUNT_REACHED,
                       f"The texts of PREPARE have more than {TEXT_CHARACTERS} characters in this session; deallocate "
                       "some")
    planned = session.planned(text)
    if isinstance(planned.command, sql.PrepareText | sql.ExecutePrepared | sql.DeallocatePrepared):
        raise not_supported("PREPARE of PREPARE, EXECUTE or DEALLOCATE PREPARE", "send the statement itself")
    texts[name] = text


async def _execute(session: SessionContext, command: sql.ExecutePrepared) -> Outcome:
    text = session.prepared_texts.get(command.name.lower())
    if text is None:
        raise _unknown(command.name, "EXECUTE")
    planned = session.planned(text)
    if planned.parameters != len(command.variables):
        raise SqlError(*WRONG_ARGUMENTS, "Incorrect arguments to EXECUTE")
    return await session.run_text(text, [_value(session, name) for name in command.variables])


def _value(session: SessionContext, variable: str) -> Any:
    return session.user_variables.get(variable)


def _unknown(name: str, what: str) -> SqlError:
    return SqlError(*UNKNOWN_STMT_HANDLER, f"Unknown prepared statement handler ({name}) given to {what}")


__all__ = ["check_known", "lock", "run", "transact"]
