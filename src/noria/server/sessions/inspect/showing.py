"""SHOW, from a session: of its processes, of counters that workers have, and of what it may see of the program."""

from __future__ import annotations

from noria.accounts.checks import Need
from noria.server.outcomes import ResultSet
from noria.server.sessions.context import SessionContext
from noria.server.sessions.inspect import inspection
from noria.server.sessions.inspect.explain import Explainer
from noria.server.sessions.running import Processes
from noria.sql.commands import Show


async def show(session: SessionContext, command: Show, processes: Processes, explainer: Explainer) -> ResultSet:
    program = session.executor.program
    if command.what == "processlist":
        return inspection.processlist(processes.rows(command.full, session))
    if command.what == "create table" and (table := program.table(command.target)) is not None:
        return inspection.create_table(table, await program.next_number(table), program.catalog)
    if command.what == "create table":
        place = program.catalog.databases.split(command.target)
        session.permits.require(Need(("SHOW VIEW",), place), Need(("SELECT",), place))
    if command.what.startswith("noria "):
        return await explainer.show(command)
    return inspection.show(command, session.permits.seen(program.catalog), session)


__all__ = ["show"]
