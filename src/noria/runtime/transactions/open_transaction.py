"""The coordinator's record of an open transaction, and the operations of the workers that the coordinator uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from noria.core.errors import SqlError
from noria.core.statements import Staged, StagedPart, Statement
from noria.runtime.link.commit_order import Scope
from noria.runtime.link.one_worker_link import StagingWorker
from noria.runtime.link.recent_changes import RecentChanges
from noria.runtime.link.written import WrittenTables
from noria.runtime.routing.write_routing import RoutedWrite
from noria.runtime.transactions.transaction_reads import TransactionReads


class Workers(Protocol):
    """All workers, as transactions use them."""

    written: WrittenTables
    recent: RecentChanges  # of the only worker; empty with several

    @property
    def staging_workers(self) -> Sequence[StagingWorker]:
        """The links, by worker."""

    def routed(self, statement: Statement) -> RoutedWrite:
        """Split a statement by worker. Raises SqlError."""

    async def learn_numbers(self, table: str) -> None:
        """Learn the highest AUTO_INCREMENT values of the table from the workers."""

    def commit_staged(self, parts: Mapping[int, Staged], idempotency_key: str, scope: Scope) -> asyncio.Future[Any]:
        """Commit the parts of a transaction as one. Returns the future of a `Wrote`. `idempotency_key`: as in `Write`.
        `scope`: the workers and tables of its parts and locks."""

    async def after_earlier_commits(self, scope: Scope) -> None:
        """Wait until the commits are visible everywhere that a transaction without writes may have seen."""

    async def at_one_moment(self, ask: Callable[[Any], Awaitable[Any]]) -> None:
        """Call `ask` with each worker's link, behind the same writes."""

    def waits_as(self, change: asyncio.Future[Any]) -> str | None:
        """The name under which a submitted write without a transaction waits for a lock; None if it does not."""

    def unanswered(self) -> set[str]:
        """The tables with writes that are under way."""


@dataclass(eq=False)
class OpenTransaction:
    """One transaction. `done`: by worker, the number of its requests there. `tables`: by worker, those that it may have
    changed. `locked`: tables with rows that it may have locked. `lost`: why it can only be rolled back.
    `losses`: how often each of these workers had been lost before the transaction's first request there.

    `snapshot`: the moment of its snapshot (`WrittenTables.moment`); None before. `unsure`: tables whose rows in views
    may be older or newer than the snapshot. `tick`: the last tick of its snapshot, if there is one worker.

    `owner`: the session to which it belongs; None for none. `defines`: it only keeps others from tables.
    """

    name: str
    done: dict[int, int] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)
    tables: dict[int, set[str]] = field(default_factory=dict)
    locked: set[str] = field(default_factory=set)
    lost: SqlError | None = None
    snapshot: int | None = None
    unsure: set[str] = field(default_factory=set)
    tick: int | None = None
    reads: TransactionReads | None = None  # of a SERIALIZABLE transaction
    owner: Hashable = None
    defines: bool = False
    removed: set[str] = field(default_factory=set)  # tables that lost keys of a FOREIGN KEY by it, in small letters

    @property
    def changed(self) -> set[str]:
        """The tables that it may have changed."""
        return set().union(*self.tables.values()) if self.tables else set()

    @property
    def scope(self) -> Scope:
        return Scope(self.done.keys(), self.locked)

    def staged_part(self, worker: int) -> StagedPart:
        return StagedPart(self.name, self.done.get(worker, 0))

    def mark(self) -> dict[int, int]:
        """What a savepoint remembers."""
        return dict(self.done)
