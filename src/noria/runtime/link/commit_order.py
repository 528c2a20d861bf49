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
import itertools
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple


class Scope(NamedTuple):
    """What a commit concerns. `tables`: those that it has written or locked. Two scopes meet if both have one worker
    and one table in common."""

    workers: Collection[int]
    tables: Collection[str]


class CommitOrder:
    """The last commit of each worker and table that some workers may show, and others not yet. An answer that waits
    for it counts as such a commit, too. So each waits for the last ones only, which wait for those before them."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], asyncio.Future[Any]] = {}
        self._under_way = 0

    def __len__(self) -> int:
        """The number of such commits and answers."""
        return self._under_way

    def begins(self, done: asyncio.Future[Any], scope: Scope) -> None:
        """Note a commit that some workers may show from now on. `done`: is done when all of them show it."""
        earlier = self._earlier(scope)
        self._note(_all_done([done, *earlier]) if earlier else done, scope)

    def answer(self, scope: Scope, deliver: Callable[[], object]) -> None:
        """Call `deliver` when every commit noted so far is done that meets the scope: at once if there is none."""
        if not self._last or not (earlier := self._earlier(scope)):
            deliver()
            return
        answered = _all_done(earlier)
        self._note(answered, scope)
        answered.add_done_callback(lambda _: deliver())

    def _earlier(self, scope: Scope) -> set[asyncio.Future[Any]]:
        found = (self._last.get(at) for at in itertools.product(scope.workers, scope.tables))
        return {f for f in found if f is not None and not f.done()}

    def _note(self, done: asyncio.Future[Any], scope: Scope) -> None:
        places = list(itertools.product(scope.workers, scope.tables))
        self._last.update(dict.fromkeys(places, done))
        self._under_way += 1
        done.add_done_callback(partial(self._forget, places))

    def _forget(self, places: Collection[tuple[int, str]], done: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        for at in places:
            if self._last.get(at) is done:
                del self._last[at]

    async def wait(self, scope: Scope) -> None:
        """Wait as an answer does."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer(scope, partial(set_once, answered, None))
        await answered


def _all_done(futures: Collection[asyncio.Future[Any]]) -> asyncio.Future[None]:
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
