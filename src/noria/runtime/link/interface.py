"""`Link`: the interface through which the front end uses workers, one or several, in any process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from noria.core.statements import Staged, Statement
from noria.dataflow.messages.packets import Hello, Packet, SessionWrites
from noria.runtime.link.change_queue import Change
from noria.runtime.link.commit_order import Scope
from noria.runtime.link.one_worker_link import ExclusiveWriter, LinkState, Losses, StagingWorker
from noria.runtime.link.recent_changes import RecentChanges
from noria.runtime.link.result_memory import MemoryLease
from noria.runtime.link.written import WrittenTables
from noria.runtime.routing.key_routing import KeyRoutes
from noria.runtime.routing.write_routing import RoutedWrite

OnHello = Callable[[Hello], Awaitable[None]]


@dataclass
class LinkStats:
    """Counters since the start."""

    changes: int = 0
    groups: int = 0
    questions: int = 0
    workers: int = 0
    losses: int = 0
    dropped: int = 0


class Link(Protocol):
    """The workers as the front end uses them, wherever they run; `workers` is their number. `routes`: which
    worker has a view's key."""

    workers: int
    routes: KeyRoutes
    recent: RecentChanges  # of the only worker; empty with several
    on_hello: OnHello | None

    @property
    def stats(self) -> LinkStats: ...

    @property
    def state(self) -> LinkState: ...

    @property
    def why(self) -> str: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def up(self) -> None: ...

    def is_idle(self) -> bool: ...

    def losses(self) -> Losses:
        """How often each worker was lost since the start, and why the last time."""

    def submit(self, body: Change) -> asyncio.Future[Any]: ...

    def cancel(self, change: asyncio.Future[Any]) -> None: ...

    async def change(self, body: Change) -> Any: ...

    async def ask(self, body: Packet, retry: bool = False, lease: MemoryLease | None = None) -> Any:
        """Return the reply; the chunks of a large result are joined. `lease`: grows by their bytes."""

    async def recover(self, body: Packet) -> Any: ...

    async def request(self, body: Packet) -> Any: ...

    def has(self, worker: int, view: str, writes: SessionWrites) -> bool:
        """Whether the worker's part of the view has all effects of these writes."""

    async def catch_up(self, writes: SessionWrites, view: str = "", worker: int | None = None) -> None:
        """Wait until the view's part on `worker` has all effects of these writes. Without `view`: any view. None:
        all workers."""

    written: WrittenTables

    @property
    def staging_workers(self) -> Sequence[StagingWorker]:
        """The links of all workers, to which transactions send their parts."""

    def routed(self, statement: Statement) -> RoutedWrite:
        """Split a transaction's statement by worker. Raises SqlError."""

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
        """The tables of changes that are under way."""

    def on_answer(self, callback: Callable[[], None]) -> None:
        """Register a callback for answered changes: `unanswered` may then return fewer tables."""

    def unwritten(self, table: str) -> AbstractAsyncContextManager[ExclusiveWriter]:
        """Keep all others from writing the table; their writes wait. The yielded object writes it nevertheless."""
