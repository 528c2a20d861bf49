"""Answers a commit only when all commits that it may have followed are visible at each of their workers.
Call `CommitOrder.begins` for a commit of several workers, and `CommitOrder.answer` for every answer.

    worker 0:  commit X ── Y locks a row of X, commits ──► Y's answer waits │
    worker 1:              X is still under way ────────── X is visible ────┴──► Y is answered

Without this, a client could learn of Y, read at worker 1, and miss X.

Keeps true: when a write is answered, each commit is visible everywhere that was visible at one of its workers and
has one of its tables. An answer waits only for commits that began before it, so no two wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple


class Scope(NamedTuple):
    """What a commit concerns. `tables`: those that it has written or locked."""

    workers: Collection[int]
    tables: Collection[str]

    def meets(self, other: Scope) -> bool:
        return not set(self.workers).isdisjoint(other.workers) and not set(self.tables).isdisjoint(other.tables)


class CommitOrder:
    """The commits that some of their workers may show, and others not yet; and the answers that wait for them."""

    def __init__(self) -> None:
        self._partial: dict[asyncio.Future[Any], Scope] = {}

    def __len__(self) -> int:
        return len(self._partial)

    def begins(self, done: asyncio.Future[Any], scope: Scope) -> None:
        """Note a commit that some workers may show from now on. `done`: is done when all of them show it."""
        earlier = self._earlier(scope)
        whole = _all_done([done, *earlier]) if earlier else done  # whoever follows it follows the earlier ones
        self._partial[whole] = scope
        whole.add_done_callback(self._partial.pop)

    def answer(self, scope: Scope, deliver: Callable[[], None]) -> None:
        """Call `deliver` when every commit noted so far is done that meets the scope: at once if there is none."""
        if not self._partial or not (earlier := self._earlier(scope)):
            deliver()
            return
        answered = _all_done(earlier)
        self._partial[answered] = scope
        answered.add_done_callback(self._partial.pop)
        answered.add_done_callback(lambda _: deliver())

    def _earlier(self, scope: Scope) -> list[asyncio.Future[Any]]:
        return [f for f, other in self._partial.items() if not f.done() and scope.meets(other)]

    async def wait(self, scope: Scope) -> None:
        """Wait as an answer does."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer(scope, partial(set_once, answered, None))
        await answered


def _all_done(futures: Sequence[asyncio.Future[Any]]) -> asyncio.Future[None]:
    """A future that is done when these are, also if they fail."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(futures)

    def one(_: asyncio.Future[Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            set_once(future, None)

    for f in futures:
        f.add_done_callback(one)
    return future


def set_once(future: asyncio.Future[Any], result: Any) -> None:
    """Set the result of a future, unless it is done."""
    if not future.done():
        future.set_result(result)
