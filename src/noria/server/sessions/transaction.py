"""BEGIN … COMMIT in a server where each statement commits by itself.

Keeps true: the server never claims to have undone a write.  BEGIN returns a warning.  ROLLBACK is error 1235 after a
write in the transaction (or under autocommit=0), because the write is committed.  ROLLBACK TO is, too, if a write
followed the savepoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import (
    CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
    NOT_SUPPORTED_YET,
    SP_DOES_NOT_EXIST,
)
from noria.server.outcomes import Warning_
from noria.sql.commands import Transaction as Command

NOT_ATOMIC: Warning_ = ("Warning", NOT_SUPPORTED_YET.number,
                        "every statement commits by itself: this transaction is not atomic, sees no snapshot, and "
                        "cannot be undone")


class Transaction:
    """A session's transaction.  open: True after BEGIN.  next_read_only: as SET TRANSACTION set it for the next one."""

    def __init__(self) -> None:
        self.open = False
        self.next_read_only: bool | None = None
        self._read_only: bool | None = None  # None: the session's variable decides
        self._written_rows = 0  # since BEGIN, or since COMMIT under autocommit=0
        self._savepoints: dict[str, int] = {}  # by name: `_written_rows` when it was set

    def end(self) -> None:
        self.open, self._written_rows, self._savepoints, self._read_only = False, 0, {}, None

    def run(self, command: Command, autocommit: bool) -> Sequence[Warning_]:
        """Run a statement about transactions and return its warnings.  Raises SqlError 1235 or 1305."""
        if command.what == "begin":
            return self._begin(command)
        if command.what == "commit":
            return self._commit(command)
        if command.what == "rollback":
            return self._rollback(command)
        if command.what == "savepoint":
            self._savepoint(command.name, autocommit)
        elif command.what == "rollback to":
            self._rollback_to(command.name)
        else:
            self._release(command.name)
        return ()

    def check_write(self, read_only: bool) -> None:
        """Raise SqlError 1792 in a read-only transaction.  read_only: the session's variable."""
        if read_only if self._read_only is None else self._read_only:
            raise SqlError(*CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
                           "Cannot execute statement in a READ ONLY transaction.")

    def wrote(self, rows: int, autocommit: bool) -> None:
        """Count written rows, unless the session is outside a transaction."""
        if self.open or not autocommit:
            self._written_rows += rows

    # ------------------------------------------------------------ statements
    def _begin(self, command: Command) -> Sequence[Warning_]:
        self.end()
        self._read_only, self.next_read_only = (True if command.read_only else self.next_read_only), None
        self.open = True
        return (NOT_ATOMIC,)

    def _commit(self, command: Command) -> Sequence[Warning_]:
        self.end()
        return self._begin(command) if command.chain else ()

    def _rollback(self, command: Command) -> Sequence[Warning_]:
        stands = self._written_rows
        warnings = self._commit(command)
        if stands:
            raise not_supported("ROLLBACK of what was written", "every statement has committed by itself")
        return warnings

    def _savepoint(self, name: str, autocommit: bool) -> None:
        self._savepoints.pop(name, None)
        if self.open or not autocommit:
            self._savepoints[name] = self._written_rows

    def _rollback_to(self, name: str) -> None:
        before = self._saved(name)
        names = list(self._savepoints)
        for later in names[names.index(name) + 1 :]:
            del self._savepoints[later]
        if before != self._written_rows:
            raise not_supported("ROLLBACK TO a savepoint of what was written since",
                                "every statement has committed by itself")

    def _release(self, name: str) -> None:
        self._saved(name)
        names = list(self._savepoints)
        for later in names[names.index(name) :]:
            del self._savepoints[later]

    def _saved(self, name: str) -> int:
        if name not in self._savepoints:
            raise SqlError(*SP_DOES_NOT_EXIST, f"SAVEPOINT {name} does not exist")
        return self._savepoints[name]
