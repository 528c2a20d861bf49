"""Packets of transactions over several statements, from a front end to a worker. Each is answered by `Done`.

In all of them, `transaction` is the front end's name of the transaction. `done` is the number of its `Stage` requests
that this worker has staged. If the worker's own count differs, it was restarted and lost them: error 1213. The commit
is a `Write` of `statements.Staged`. `worker/transactions.py` handles these packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noria.core.errors import SqlError
from noria.core.statements import Statement


@dataclass(frozen=True)
class Stage:
    """Run statements within a transaction, all or none. Answer: their results; or error 1213 if the transaction is
    rolled back to end a deadlock.

    The answer waits while another transaction has a lock.
    """

    request: int
    transaction: str
    done: int
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Undo:
    """Undo all but the first `keep` requests of the transaction. It keeps its locks (ROLLBACK TO SAVEPOINT)."""

    request: int
    transaction: str
    done: int
    keep: int


@dataclass(frozen=True)
class EndTransaction:
    """Drop the transaction: its changes, locks and snapshot. Its waiting request is answered with `error`, or 1317."""

    request: int
    transaction: str
    error: SqlError | None = None


@dataclass(frozen=True)
class EndWait:
    """Answer the waiting request of the transaction with this error. The transaction is otherwise unchanged."""

    request: int
    transaction: str
    error: SqlError


@dataclass(frozen=True)
class OpenSnapshot:
    """Open a snapshot of this moment for the transaction, unless it has one.

    `marks`: mark the moment, too, as `MarkReads` does; None: do not. Answer: the number of the last tick, and
    `Snapshots.position`.
    """

    request: int
    transaction: str
    marks: int | None = None


@dataclass(frozen=True)
class MarkReads:
    """Mark this moment: SELECTs that follow refer to it (`statements.TableRead`). From the first mark on, the worker
    notes what the transaction's writes read. Answer: nothing, or error 1213 if the worker has not `marks` marks."""

    request: int
    transaction: str
    marks: int


@dataclass(frozen=True)
class LockRows:
    """Lock rows of a table by their primary keys (`keys`: values). `how` is "wait", "skip" or "nowait". Answer: with
    skip, the positions of the rows that others have locked; otherwise none. With nowait, such a row is error 3572.

    Rows that do not exist, and rows of other workers, can be locked too.
    """

    request: int
    transaction: str
    done: int
    table: str
    keys: tuple[tuple[Any, ...], ...]
    exclusive: bool
    how: str


@dataclass(frozen=True)
class LockDefinitions:
    """Wait until no transaction has changed or locked these tables at this worker, and block others until
    `EndTransaction`. Answer: nothing."""

    request: int
    transaction: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class ReadKeyChanges:
    """Read how the transaction's requests from number `since` on changed the values of these columns of a table.
    Answer: for each set of columns a `statements.KeyChange`."""

    request: int
    transaction: str
    done: int
    since: int
    table: str
    columns: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class FindKeys:
    """Find which of these keys no row of this worker has. Staged rows of the transaction count. Answer: the positions
    of these keys.

    `lock`: lock the rows that have a key, shared. The answer waits while another transaction holds a conflicting lock.
    """

    request: int
    transaction: str
    done: int
    table: str
    columns: tuple[int, ...]
    keys: tuple[tuple[Any, ...], ...]
    lock: bool


@dataclass(frozen=True)
class Within:
    """The transaction in which a `Query` reads.

    * `done`: by worker, as above.
    * `tables`: the base tables that it reads.
    * `snapshot`: read as of the transaction's snapshot. Otherwise read the last commits.
    * In both cases the transaction sees its own changes.
    """

    transaction: str
    done: tuple[int, ...]
    tables: tuple[str, ...]
    snapshot: bool = False


TransactionPacket = (ReadKeyChanges | FindKeys | LockDefinitions | LockRows | MarkReads | Stage | Undo | EndTransaction
                     | EndWait | OpenSnapshot)
