"""The state of a session that its reads, writes and definitions share (`session_reads`, `writes`, `definitions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from noria.core.errors import SqlError
from noria.dataflow.messages.packets import SessionWrites
from noria.server.access.permits import Permits
from noria.server.answering.executor import Executor
from noria.server.logins import LoginGuard
from noria.server.outcomes import Client, Outcome, Warning_
from noria.server.sessions.given.temporary import TemporaryTables
from noria.server.sessions.locked_tables import LockedTables
from noria.server.sessions.modes.sql_mode import SqlMode
from noria.server.sessions.running import RunningStatement
from noria.server.sessions.transactions.transaction import SessionTransaction
from noria.server.sessions.transactions.transaction_service import TransactionService
from noria.sql.commands import Command, PlannedStatement


class SessionContext(Protocol):
    """A session, as those modules use it (`session.Session`).

    offset: how far the session's clock is ahead of UTC.  unseen: its writes whose effects some worker may lack.

    text: the text of the last statement, for the program's history.  prepared_texts: of PREPARE, by name.
    """

    executor: Executor
    transactions: TransactionService
    locked: LockedTables
    running: RunningStatement
    transaction: SessionTransaction
    client: Client
    user: str
    address: str
    connection_id: int
    database: str
    variables: dict[str, Any]
    user_variables: dict[str, Any]
    warnings: Sequence[Warning_]
    last_insert_id: int
    row_count: int
    found_rows: int
    offset: timedelta
    unseen: SessionWrites
    text: str
    guard: LoginGuard
    prepared_texts: dict[str, str]
    temporary: TemporaryTables
    mode: SqlMode
    local_file: bytes | None  # what the client has sent for LOAD DATA LOCAL
    permits: Permits

    @property
    def namespace(self) -> str:
        """Under which database and mode of GROUP BY the session's texts are known (`sql/text/databases.py`)."""

    @property
    def server_variables(self) -> Mapping[str, Any]:
        """The variables that all sessions share."""

    def set_status(self) -> None:
        """Compute the status bits of replies and the mode, after a change of the transaction or of variables."""

    def leave_database(self) -> None:
        """Have no database, since it was dropped."""

    def use(self, database: str) -> None:
        """Make it the session's database."""

    async def run_text(self, text: str, values: Sequence[Any]) -> Outcome:
        """Run a prepared statement's text with the values of its parameters."""

    def planned(self, text: str) -> PlannedStatement:
        """Plan a statement with parameters in the session's database, beside its temporary tables."""

    async def run_command(self, command: Command) -> Outcome:
        """Run a command, and note its warnings."""

    def noted(self, error: SqlError) -> SqlError:
        """Return the error, and record it for SHOW WARNINGS."""

    async def commit(self, idempotency_key: str = "") -> None:
        """Commit the transaction."""

    def collect_own_writes(self) -> None:
        """Note what the transaction's commit has written, for the session's next reads."""


__all__ = ["SessionContext"]
